//! The seams to time and chance: the broker's decisions take `now` and `rng`, and this is where shells get them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::UNIX_EPOCH;

/// The wall clock, for record timestamps and retention. Everything else runs on tokio's clock.
#[derive(Clone, Default)]
pub enum Clock {
    /// The system's.
    #[default]
    System,
    /// Milliseconds since 1970, set by a test or a simulation.
    Fixed(Arc<AtomicI64>),
    /// A function that returns milliseconds since 1970. It must not block.
    Custom(Arc<dyn Fn() -> i64 + Send + Sync>),
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("System"),
            Self::Fixed(ms) => f.debug_tuple("Fixed").field(ms).finish(),
            Self::Custom(_) => f.write_str("Custom"),
        }
    }
}

impl Clock {
    /// Milliseconds since 1970.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where the broker asks the system for the time"
    )]
    pub fn now_ms(&self) -> i64 {
        match self {
            Self::System => {
                let now = std::time::SystemTime::now();
                now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
            }
            Self::Fixed(ms) => ms.load(Ordering::Relaxed),
            Self::Custom(now_ms) => now_ms(),
        }
    }
}
