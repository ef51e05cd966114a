//! Consuming: the engine keeps each consumer's queue filled, the polling thread decodes.

pub(crate) mod aborted;
mod answers;
pub(crate) mod budget;
pub(crate) mod cursor;
pub(crate) mod cursors;
mod epochs;
pub(crate) mod fetcher;
pub(crate) mod inbox;
pub(crate) mod offset_files;
pub(crate) mod offsets;
pub(crate) mod place;
mod portion;
pub(crate) mod queue;
mod session;
mod survey;
