//! The tasks of a share consumer in the engine (KIP-932): membership, share sessions and acknowledgements.
//!
//! `core` decides in sync code which leader gets which request. `task` performs its actions. `queue` is the exchange with the
//! polling thread.

pub(crate) mod acknowledgements;
pub(crate) mod commands;
mod core;
mod kept_connections;
pub(crate) mod links;
mod member;
pub(crate) mod queue;
mod requests;
mod session;
mod task;
mod watch;

pub(crate) use self::task::run;
