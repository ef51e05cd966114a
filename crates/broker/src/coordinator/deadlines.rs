//! The timer of a coordinator: it acts when the next deadline passes, or when a change may have moved it.

use tokio::sync::Notify;
use tokio::time::Instant;

/// Calls `tick` at each deadline that it returned and after each notification of `changed`. Runs until the future is
/// dropped.
pub(super) async fn keep_time(changed: &Notify, mut tick: impl FnMut(Instant) -> Option<Instant>) {
    loop {
        let next = tick(Instant::now());
        let timer = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = changed.notified() => {}
            () = timer => {}
        }
    }
}
