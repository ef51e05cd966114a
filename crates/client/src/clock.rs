//! The wall clock, for record timestamps and for nothing else: every timer runs on the monotonic clock.

use std::time::UNIX_EPOCH;

/// Milliseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "record timestamps are wall-clock time; no decision depends on them"
)]
pub(crate) fn wall_ms() -> i64 {
    let now = std::time::SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
