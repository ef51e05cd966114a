//! Fetching: the engine keeps each consumer's inbox filled, and the polling thread decodes.
//!
//! `core` decides in sync code which broker gets which Fetch request and what each response means. `fetcher` is the
//! task that performs its actions. `inbox` holds the records that wait for the application, within `budget`.

pub(crate) mod aborted;
pub(crate) mod budget;
pub(crate) mod core;
pub(crate) mod cursor;
pub(crate) mod cursors;
mod epochs;
mod fetch_size;
pub(crate) mod fetcher;
pub(crate) mod inbox;
pub(crate) mod offset_files;
pub(crate) mod offsets;
pub(crate) mod progress;
pub(crate) mod queue;
mod request;
mod session;
mod snapshot;
