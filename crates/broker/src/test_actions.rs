//! For tests: the periodic work of a broker, done now, and waits for the actions of clients.

use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::{ApiKey, ErrorCode};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::compactor::compact_now;
use crate::coordinator::consumer_group::group::ConsumerGroup;
use crate::coordinator::share_group::group::ShareGroup;
use crate::partition::Partition;
use crate::state_marks::Mark;
use crate::transactions::state::TransactionState;

/// Interval at which a wait looks at the state of the broker.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The time of a wait is over. Contains what was there instead.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{what} did not come about within {} ms: {found}", within.as_millis())]
pub struct WaitError {
    /// The awaited state.
    pub what: String,
    /// The state at the end of the wait.
    pub found: String,
    /// The time limit.
    pub within: Duration,
}

/// Periodic work of the broker, done now. Each call returns when the work is done.
///
/// The futures need the context of a tokio runtime, which may be another one than the broker's.
impl Cluster {
    /// Deletes the segments that `retention.ms` and `retention.bytes` allow to delete, of all topics. An active segment
    /// whose records are all older than `retention.ms` is closed first, as in Kafka.
    pub async fn apply_retention_now(self: &Arc<Self>) {
        self.enforce_retention(self.clock.now_ms()).await;
    }

    /// Closes the active segment of every partition of a topic, and begins another. Empty ones stay. Returns the number of
    /// partitions that have a new one.
    ///
    /// # Errors
    /// [`ErrorCode::UnknownTopicOrPartition`]; [`ErrorCode::KafkaStorageError`] if a file cannot be created.
    pub async fn roll_now(self: &Arc<Self>, topic: &str) -> Result<usize, ErrorCode> {
        let topic = self.topic(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        let (cluster, now_ms) = (self.clone(), self.clock.now_ms());
        let roll = move || {
            let mut rolled = 0;
            for partition in &topic.partitions {
                cluster.make_room_for_files();
                let before = partition.log().segment_count();
                partition.log().roll(now_ms).map_err(|error| failed(partition, "roll", &error))?;
                rolled += usize::from(partition.log().segment_count() > before);
                // The files of a closed segment stay open until they are durable.
                let pending = partition.log().pending_closed_sync();
                if let Some(pending) = pending {
                    let synced = pending.run();
                    partition.log().sync_done(synced).map_err(|error| failed(partition, "sync", &error))?;
                }
            }
            Ok(rolled)
        };
        self.run_blocking(roll).await
    }

    /// Compacts the closed segments of every partition of a topic, even if few of their bytes are dirty. The active segment
    /// stays: see [`Self::roll_now`]. Records younger than `min.compaction.lag.ms` stay, too.
    ///
    /// # Errors
    /// [`ErrorCode::UnknownTopicOrPartition`]; [`ErrorCode::PolicyViolation`] if the topic's `cleanup.policy` is without
    /// `compact`; [`ErrorCode::KafkaStorageError`] if a partition cannot be compacted, which the log explains.
    pub async fn compact_now(self: &Arc<Self>, topic: &str) -> Result<(), ErrorCode> {
        let topic = self.topic(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        for partition in &topic.partitions {
            compact_now(self, partition).await?;
        }
        Ok(())
    }

    /// Removes the committed offsets that are older than `offsets.retention.minutes`, and groups without members and
    /// offsets.
    pub async fn expire_offsets_now(self: &Arc<Self>) {
        self.expire_offsets(self.clock.now_ms()).await;
    }

    /// Aborts the transactions that are open for longer than their timeout, by a clock that runs steadily.
    pub async fn abort_timed_out_transactions_now(self: &Arc<Self>) {
        self.abort_timed_out().await;
    }
}

fn failed(partition: &Partition, action: &str, error: &dyn std::fmt::Display) -> ErrorCode {
    tracing::warn!(%error, topic = %partition.topic, partition = partition.index, "cannot {action}");
    ErrorCode::KafkaStorageError
}

/// The state that a wait is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Awaited<'a> {
    Group { id: &'a str, state: &'a str },
    Transaction { id: &'a str, state: &'a str },
    Requests { api: ApiKey, count: u64 },
}

impl std::fmt::Display for Awaited<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Group { id, state } => write!(f, "state {state} of group {id}"),
            Self::Transaction { id, state } => write!(f, "state {state} of transactional id {id}"),
            Self::Requests { api, count } => write!(f, "request {count} of {api}"),
        }
    }
}

impl Awaited<'_> {
    /// Looks at a cluster. The error is the state that it has instead. A state that has come and gone since the beginning of the wait
    /// counts.
    pub(crate) fn look(self, cluster: &Cluster, since: Mark) -> Result<(), String> {
        let is_state = |found: &str, state: &str, has_been: bool| {
            if has_been || found.eq_ignore_ascii_case(state) { Ok(()) } else { Err(found.to_owned()) }
        };
        match self {
            Self::Group { id, state } => {
                is_state(cluster.group_state(id), state, cluster.groups.has_been(id, state, since))
            }
            Self::Transaction { id, state } => {
                let has_been = |state| cluster.transactions.has_been(id, state, since);
                let has_been = TransactionState::of_name(state).is_some_and(has_been);
                let found = cluster.transactions.describe(id).map_or("Dead", |known| known.state.name());
                is_state(found, state, has_been)
            }
            Self::Requests { api, count } => {
                let found = cluster.requests(api);
                if found >= count { Ok(()) } else { Err(found.to_string()) }
            }
        }
    }
}

/// Waits until `look` finds the state. It is called every 2 ms with the beginning of the wait: the cluster may be another one after a
/// restore.
pub(crate) async fn wait_until(
    awaited: Awaited<'_>,
    within: Duration,
    look: impl Fn(Mark) -> Result<(), String>,
) -> Result<(), WaitError> {
    let since = Mark::now();
    // A time that the clock cannot have has no end.
    let deadline = Instant::now().checked_add(within);
    loop {
        let Err(found) = look(since) else { return Ok(()) };
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(WaitError { what: awaited.to_string(), found, within });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Waits for the state of groups and transactions, and for requests. A wait looks every 2 ms. It ends, too, if a classic group or a
/// transactional id has been in the state since its beginning and is in another one now.
///
/// A wait is for the cluster of the call: [`Broker::restore`](crate::Broker::restore) replaces it.
impl Cluster {
    /// Waits until a group is in a state: `Stable`, `Empty`, `PreparingRebalance`, ... as in DescribeGroups; `Dead` is a
    /// group that does not exist.
    ///
    /// # Errors
    /// [`WaitError`] after `within`; [`Duration::MAX`] is no limit.
    pub async fn wait_for_group(&self, group: &str, state: &str, within: Duration) -> Result<(), WaitError> {
        let awaited = Awaited::Group { id: group, state };
        wait_until(awaited, within, |since| awaited.look(self, since)).await
    }

    /// Waits until a transactional id is in a state: `Empty`, `Ongoing`, `CompleteCommit`, ... as in DescribeTransactions;
    /// `Dead` is an id that does not exist.
    ///
    /// # Errors
    /// [`WaitError`] after `within`.
    pub async fn wait_for_transaction(
        &self,
        id: &str,
        state: &str,
        within: Duration,
    ) -> Result<(), WaitError> {
        let awaited = Awaited::Transaction { id, state };
        wait_until(awaited, within, |since| awaited.look(self, since)).await
    }

    /// Waits until `count` requests of `api` have come to all nodes since the first call of [`Self::requests`] for any
    /// API, or of this function.
    ///
    /// # Errors
    /// [`WaitError`] after `within`.
    pub async fn wait_for_requests(
        &self,
        api: ApiKey,
        count: u64,
        within: Duration,
    ) -> Result<(), WaitError> {
        let awaited = Awaited::Requests { api, count };
        wait_until(awaited, within, |since| awaited.look(self, since)).await
    }

    /// Returns the state of a group, as DescribeGroups, ConsumerGroupDescribe and ShareGroupDescribe name it.
    pub fn group_state(&self, group: &str) -> &'static str {
        let new = self.consumer_groups.look(group, ConsumerGroup::state);
        let shared = || self.share_groups.look(group, ShareGroup::state);
        let classic = || self.groups.describe(group).map(|known| known.state);
        let known = new.or_else(shared).or_else(classic);
        known.unwrap_or(if self.offsets.has_offsets(group) { "Empty" } else { "Dead" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::Broker;

    /// A limit that the clock cannot count panicked.
    #[tokio::test]
    async fn a_wait_may_have_no_limit() {
        let broker = Broker::builder().memory().start().await.expect("a broker in memory");
        let cluster = broker.cluster();
        assert_eq!(cluster.wait_for_group("billing", "Dead", Duration::MAX).await, Ok(()));
        let waits = cluster.wait_for_requests(ApiKey::Produce, 1, Duration::MAX);
        assert!(tokio::time::timeout(5 * LOOK_EVERY, waits).await.is_err(), "it waits");
        broker.stop().await;
    }
}
