//! The lines on stderr about handles, messages and events that the application must not use.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

/// A program may use a stale handle in a loop, so the number of lines is limited.
const LINES_MAX: u32 = 100;

static LINES: AtomicU32 = AtomicU32::new(0);

/// Writes one line: the C function, the problem and the advice.
#[cold]
pub(crate) fn report(function: &str, problem: &str, advice: &str) {
    let before = LINES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |lines| lines.checked_add(1));
    let line = match before {
        Ok(..LINES_MAX) => format!("librdkafka (Ottla): {}(): {problem}: {advice}\n", c_name(function)),
        Ok(LINES_MAX) => {
            format!("librdkafka (Ottla): {LINES_MAX} lines about misuse were written: more are left out\n")
        }
        _ => return,
    };
    // A program may have closed stderr.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// The exported function that a function of this crate serves.
fn c_name(function: &str) -> String {
    function.strip_prefix("begin_").map_or_else(|| function.to_owned(), |name| format!("rd_kafka_{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_half_of_a_function_with_callbacks_has_the_name_that_c_calls() {
        assert_eq!(c_name("begin_consumer_poll"), "rd_kafka_consumer_poll");
        assert_eq!(c_name("rd_kafka_name"), "rd_kafka_name");
    }
}
