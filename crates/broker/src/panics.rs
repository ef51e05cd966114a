//! Panics of the broker's tasks.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// Runs `work` to its end. Returns the message of a panic, which ends it.
///
/// Locks that the panic has poisoned are used as they are; so is all other state.
pub(crate) async fn caught<F: Future>(work: F) -> Result<F::Output, String> {
    let mut work = pin!(work);
    poll_fn(|context| match caught_call(|| work.as_mut().poll(context)) {
        Ok(polled) => polled.map(Ok),
        Err(reason) => Poll::Ready(Err(reason)),
    })
    .await
}

/// [`caught`] for work that does not wait.
pub(crate) fn caught_call<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| message_of(&*panic).to_owned())
}

/// Returns the message of a panic.
fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_panic_is_known() {
        assert_eq!(message_of(&"a text"), "a text");
        assert_eq!(message_of(&format!("segment {}", 3)), "segment 3");
        assert_eq!(message_of(&3), "no message");
    }
}
