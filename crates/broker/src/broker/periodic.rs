//! The periodic work of a broker: sessions, rebalances, reassignments, retention, idle producers, flushes, the scrub, compactions.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::panics;
use crate::partition::Syncer;

/// The pause before work that has panicked starts again: a cause that lasts must not fill the log.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Tokio ends a thread for blocking work that has had none for 10 seconds.
const THREAD_USE_INTERVAL: Duration = Duration::from_secs(5);

/// Runs all periodic work until it is dropped.
pub(super) async fn run(cluster: Arc<Cluster>) {
    let cluster = &cluster;
    tokio::join!(
        restarted("threads", || keep_thread(cluster.syncer)),
        restarted("retention", || enforce_retention(cluster)),
        restarted("producers", || expire_producers(cluster)),
        restarted("classic groups", || cluster.groups.keep_time(cluster)),
        restarted("consumer groups", || cluster.consumer_groups.keep_time(cluster)),
        restarted("committed offsets", || cluster.keep_offsets()),
        restarted("transactions", || cluster.keep_transactions()),
        restarted("reassignments", || cluster.keep_reassigning()),
        restarted("share groups", || cluster.keep_share_groups()),
        restarted("acquisition locks", || cluster.share_leader.keep_locks(cluster)),
        restarted("flushes", || cluster.keep_flushing()),
        restarted("syncs", || cluster.keep_syncing()),
        restarted("scrub", || crate::scrub::run(cluster.clone())),
        restarted("compactions", || crate::compactor::run(cluster.clone())),
    );
}

/// Keeps one of the runtime's threads for blocking work. While there is one, work that the system refuses another thread for waits for
/// it. Without one, Tokio panics in the task that has the work, such as a request.
async fn keep_thread(syncer: Syncer) {
    if matches!(syncer, Syncer::Inline(_)) {
        return;
    }
    loop {
        syncer.run_blocking(|| {}).await;
        tokio::time::sleep(THREAD_USE_INTERVAL).await;
    }
}

async fn enforce_retention(cluster: &Arc<Cluster>) {
    loop {
        tokio::time::sleep(cluster.config.retention_check).await;
        cluster.enforce_retention(cluster.deletion_clock.now_ms()).await;
    }
}

async fn expire_producers(cluster: &Arc<Cluster>) {
    loop {
        tokio::time::sleep(cluster.config.producer_expiration_check).await;
        cluster.expire_producers().await;
    }
}

/// Runs work until it ends. A panic is logged, and the work starts again: it must not end the work of others, which may be the
/// timeouts of all groups.
async fn restarted<F: Future<Output = ()>>(work: &str, start: impl Fn() -> F) {
    loop {
        let Err(reason) = panics::caught(start()).await else { return };
        tracing::error!(
            work,
            reason,
            "periodic work has panicked: it starts again; please report this defect"
        );
        tokio::time::sleep(RESTART_PAUSE).await;
    }
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
}
