//! Parallel consumption with commits that never pass unfinished work.

#[allow(dead_code, reason = "the processor that uses it comes with the next commit")]
mod core;
mod retry;

pub use retry::Retry;
