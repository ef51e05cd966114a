//! Failures, with the end of the processes' output, and the polling wait.

use std::fmt;
use std::time::{Duration, Instant};

/// Polling interval: short compared to a process start, long compared to a check.
const POLL: Duration = Duration::from_millis(5);

/// A test failure caused by a peer. `Debug` prints the plain message, so that `unwrap` shows it readably.
#[derive(Clone, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// A failure with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// Polls `look` until it returns a value; fails after `within`.
pub fn wait_until<T>(
    what: &str,
    within: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> Result<T, Failure> {
    let deadline = Instant::now() + within;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            return Err(Failure::new(format!("{what}: not within {within:?}")));
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_what_it_finds_or_at_its_deadline() {
        let mut looks = 0;
        let found = wait_until("three looks", Duration::from_secs(5), || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found, Ok(3));
        let late = wait_until::<()>("nothing", Duration::from_millis(1), || None).unwrap_err();
        assert_eq!(late.to_string(), "nothing: not within 1ms");
    }
}
