//! (grows in the commits that follow)
mod cache;
mod config;
mod error;
mod index;
pub mod storage;
mod tail;
pub use config::{LogConfig, Visible};
pub use error::{AppendError, LogError, ReadError};
pub use tail::{Grown, Tail, Waiter};
