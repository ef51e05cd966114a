//! The periodic work of a broker: sessions, rebalances, retention, flushes, the scrub, compactions.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::cluster::Cluster;

/// The pause before work that has panicked starts again: a cause that lasts must not fill the log.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Runs all periodic work until it is dropped.
pub(super) async fn run(cluster: Arc<Cluster>) {
    let cluster = &cluster;
    tokio::join!(
        restarted("retention", || enforce_retention(cluster)),
        restarted("classic groups", || cluster.groups.keep_time(cluster)),
        restarted("consumer groups", || cluster.consumer_groups.keep_time(cluster)),
        restarted("committed offsets", || cluster.keep_offsets()),
        restarted("transactions", || cluster.keep_transactions()),
        restarted("share groups", || cluster.keep_share_groups()),
        restarted("acquisition locks", || cluster.share_leader.keep_locks(cluster)),
        restarted("flushes", || cluster.keep_flushing()),
        restarted("syncs", || cluster.keep_syncing()),
        restarted("scrub", || crate::scrub::run(cluster.clone())),
        restarted("compactions", || crate::compactor::run(cluster.clone())),
    );
}

async fn enforce_retention(cluster: &Arc<Cluster>) {
    loop {
        tokio::time::sleep(cluster.config.retention_check).await;
        cluster.enforce_retention().await;
    }
}

/// Runs work until it ends. A panic is logged, and the work starts again: it must not end the work of others, which may be the
/// timeouts of all groups.
async fn restarted<F: Future<Output = ()>>(work: &str, start: impl Fn() -> F) {
    loop {
        let mut running = pin!(start());
        // Locks that the panic has poisoned are used as they are; so is all other state.
        let ended =
            poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context))) {
                Ok(polled) => polled.map(Ok),
                Err(panic) => Poll::Ready(Err(panic)),
            });
        let Err(panic) = ended.await else { return };
        let reason = message_of(&*panic);
        tracing::error!(
            work,
            reason,
            "periodic work has panicked: it starts again; please report this defect"
        );
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}

/// Returns the message of a panic.
fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A panic of the scrub ended the timeouts of groups and transactions, retention and compactions, without a line in the log.
    #[tokio::test]
    async fn a_panic_ends_no_other_work_and_the_work_starts_again() {
        let (starts, ticks) = (Cell::new(0), Cell::new(0));
        let panics = || async {
            starts.set(starts.get() + 1);
            assert!(starts.get() > 1, "start {}", starts.get());
        };
        let other = || async {
            while ticks.get() < 10 {
                tokio::time::sleep(RESTART_PAUSE / 20).await;
                ticks.set(ticks.get() + 1);
            }
        };
        let begun = tokio::time::Instant::now();
        let panicking = async {
            restarted("panicking", panics).await;
            begun.elapsed()
        };
        let (took, ()) = tokio::join!(panicking, restarted("other", other));
        assert_eq!((starts.get(), ticks.get()), (2, 10));
        assert!(took >= RESTART_PAUSE, "{took:?}");
    }

    #[test]
    fn the_message_of_a_panic_is_known() {
        assert_eq!(message_of(&"a text"), "a text");
        assert_eq!(message_of(&format!("segment {}", 3)), "segment 3");
        assert_eq!(message_of(&3), "no message");
    }
}
