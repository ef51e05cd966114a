//! The coordinator of groups: their members, their committed offsets, and both in `__consumer_offsets`.

pub(crate) mod consumer_group;
mod deadlines;
pub(crate) mod expiry;
pub(crate) mod group;
pub(crate) mod group_log;
pub(crate) mod groups;
pub(crate) mod loading;
pub(crate) mod offset_log;
pub(crate) mod offsets;
pub(crate) mod share_group;
