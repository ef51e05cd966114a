//! Consuming: the engine keeps each consumer's queue filled, the polling thread decodes.

pub(crate) mod aborted;
pub(crate) mod cursor;
pub(crate) mod cursors;
pub(crate) mod fetcher;
pub(crate) mod inbox;
pub(crate) mod offsets;
pub(crate) mod place;
