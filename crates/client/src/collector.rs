//! The task that creates a snapshot at each interval and checks for stalls.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::produce::Produce;
use crate::stats::facts::{ClientFacts, MemoryFacts, PartitionLeader};
use crate::watchdog::{LOOKS, Watchdog};

/// Runs for one engine until the engine drops it.
pub(crate) async fn run(cluster: Rc<Cluster>, produce: Arc<Produce>) {
    let observer = produce.observer.clone();
    let began = Instant::now();
    let interval = produce.config.statistics_interval;
    let look_every = observer.stall_after / LOOKS;
    let next = |every: Duration| (!every.is_zero()).then(|| Instant::now() + every);
    let (mut snapshot_at, mut look_at) = (next(interval), next(look_every));
    let mut watchdog = Watchdog::default();
    let leaders = |topic: &str| leaders(&cluster, topic);
    loop {
        let Some(wake_at) = snapshot_at.into_iter().chain(look_at).min() else { return };
        tokio::time::sleep_until(wake_at).await;
        observer.request_survey();
        produce.queues.wake.notify_one();
        observer.surveyed().await;
        let now = Instant::now();
        if look_at.is_some_and(|at| at <= now) {
            let stalls = observer.active_stalls(&facts(&cluster, &produce, &leaders), now);
            for report in watchdog.look(now, observer.stall_after, stalls) {
                observer.stalled(report);
            }
            look_at = next(look_every);
        }
        if let Some(at) = snapshot_at.filter(|at| *at <= now) {
            let snapshot = Arc::new(observer.snapshot(&facts(&cluster, &produce, &leaders), began, now));
            observer.publish(snapshot);
            // The next interval starts at a fixed time, independently of the duration of this one.
            snapshot_at = Some((at + interval).max(now));
        }
    }
}

fn facts<'a>(
    cluster: &Cluster,
    produce: &'a Produce,
    leaders: &'a dyn Fn(&str) -> Vec<PartitionLeader>,
) -> ClientFacts<'a> {
    let memory = &produce.queues.memory;
    ClientFacts {
        config: &produce.config,
        memory: MemoryFacts {
            records_max: memory.records_max(),
            bytes_used: memory.used(),
            bytes_max: memory.max(),
            is_full: memory.is_full(),
        },
        unread_reports: produce.reports.len(),
        has_transactional_id: produce.transactions.id.is_some(),
        transactions: produce.transactions.status(),
        topics: cluster.topic_count(),
        leaders,
    }
}

fn leaders(cluster: &Cluster, topic: &str) -> Vec<PartitionLeader> {
    let Some(layout) = cluster.topic(topic) else { return Vec::new() };
    (0..layout.partitions.len() as i32)
        .map(|number| PartitionLeader {
            node: layout.leader(number).unwrap_or(-1),
            epoch: layout.leader_epoch(number).unwrap_or(-1),
        })
        .collect()
}
