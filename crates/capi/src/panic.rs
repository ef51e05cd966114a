//! Panics end here: none crosses the boundary to C.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body`; `default` is the answer if it panics.
pub fn guard<T>(default: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(default)
}
