//! Coordination: consumer groups and their offsets.

pub(crate) mod group;
pub(crate) mod groups;
pub(crate) mod offsets;
