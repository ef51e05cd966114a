//! The markers of a prepared transaction, and its completion after them.

use ottla_log::deliberate::{DeliberateFault, has_deliberate_fault};
use std::sync::Arc;
use std::time::Duration;

use ottla_log::{Appended, EndMarker, TransactionOutcome};
use ottla_protocol::ErrorCode;
use tokio::time::Instant;

use super::metadata::TopicPartition;
use super::table::{Decision, Markers, NewRecord};
use crate::cluster::Cluster;
use crate::internal_topics::{InternalRecord, Written};
use crate::panics;
use crate::partition::Partition;

/// The pauses before a marker or a completion that failed is tried again: the first, doubled each time, up to the last. A partition
/// that is offline refuses the markers of all producers, with a log line for each.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// The time after which the sync of a marker that is not durable is started again.
const DURABLE_WITHIN: Duration = Duration::from_secs(30);
/// Markers before other tasks of the thread have their turn: less than a millisecond. A transaction may have 100,000 partitions.
const MARKERS_PER_TURN: usize = 10;

impl Cluster {
    /// Writes the markers of a prepared transaction, then completes it.
    pub(super) fn start_markers(self: &Arc<Self>, state_partition: &Arc<Partition>, markers: Markers) {
        let (cluster, state_partition) = (self.clone(), state_partition.clone());
        self.transactions.spawn(async move {
            let (mut markers, mut in_log) = (markers, None);
            loop {
                let ended = panics::caught(async {
                    cluster.write_markers(&state_partition, &markers).await;
                    cluster.complete(&state_partition, &markers.id, &mut in_log).await;
                });
                let Err(reason) = ended.await else { return };
                // Without its completion, the id would get CONCURRENT_TRANSACTIONS for ever.
                tracing::error!(id = %markers.id, reason, "the end of a transaction has panicked: it starts again; please report this defect");
                // The partitions that have their markers get no second ones.
                let is_completed = in_log.is_some();
                let left =
                    cluster.transactions.with_table(|table| table.markers_left(&markers.id, is_completed));
                let Some(left) = left else {
                    cluster.transactions.notify_settled();
                    return;
                };
                markers = left;
                tokio::time::sleep(RETRY_PAUSES.1).await;
            }
        });
    }

    async fn write_markers(self: &Arc<Self>, state_partition: &Partition, markers: &Markers) {
        let mut rest: Vec<MarkerAt<'_>> = markers.partitions.iter().map(MarkerAt::new).collect();
        let mut pause = RETRY_PAUSES.0;
        loop {
            let marker = EndMarker {
                producer_id: markers.producer.id,
                producer_epoch: markers.producer.epoch,
                coordinator_epoch: state_partition.leader_epoch(),
                outcome: if markers.committed {
                    TransactionOutcome::Commit
                } else {
                    TransactionOutcome::Abort
                },
                transaction_version: markers.version.level(),
            };
            // All are appended before the first sync is awaited: the disk makes them durable together.
            let mut appended = Vec::with_capacity(rest.len());
            for (number, mut to) in std::mem::take(&mut rest).into_iter().enumerate() {
                yield_before(number).await;
                let at = to.at;
                let step = async { self.append_one_marker(&mut to, marker) };
                let step = caught_at(&markers.id, at, step).await;
                appended.push((to, step.unwrap_or(MarkerStep::Failed)));
            }
            for (number, (to, step)) in appended.into_iter().enumerate() {
                yield_before(number).await;
                if caught_at(&markers.id, to.at, self.is_marker_done(step)).await == Some(true) {
                    self.transactions.with_table(|table| table.marker_written(&markers.id, to.at));
                } else {
                    rest.push(to);
                }
            }
            if rest.is_empty() {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSES.1);
        }
    }

    fn append_one_marker(self: &Arc<Self>, to: &mut MarkerAt<'_>, marker: EndMarker) -> MarkerStep {
        let at = to.at;
        if has_deliberate_fault(DeliberateFault::LostMarkers) && self.clock.now_ms() % 4 == 0 {
            return MarkerStep::Done;
        }
        let kept = to.partition.take().filter(|kept| to.in_log.is_some() && !kept.is_deleted());
        if kept.is_none() {
            to.in_log = None;
        }
        // The transaction's data went with the topic.
        let Some(partition) = kept.or_else(|| self.partition(&at.topic, at.index)) else {
            return MarkerStep::Done;
        };
        to.partition = Some(partition.clone());
        match partition.append_marker_once(self, marker, &mut to.in_log) {
            Ok(appended) => MarkerStep::Appended(partition, appended),
            Err((ErrorCode::UnknownTopicOrPartition, _)) => MarkerStep::Done,
            Err((ErrorCode::InvalidProducerEpoch | ErrorCode::InvalidTxnState, reason)) => {
                // The partition has a later epoch of the producer: this transaction was ended by an administrator.
                tracing::warn!(topic = %at.topic, partition = at.index, reason, "a marker is not needed any more");
                MarkerStep::Done
            }
            Err((code, reason)) => {
                tracing::warn!(topic = %at.topic, partition = at.index, %code, reason,
                    "a transaction's marker is refused, and tried again");
                MarkerStep::Failed
            }
        }
    }

    /// Waits until a marker is durable. Returns `false` if it must be tried again.
    async fn is_marker_done(self: &Arc<Self>, step: MarkerStep) -> bool {
        let (partition, appended) = match step {
            MarkerStep::Done => return true,
            MarkerStep::Failed => return false,
            MarkerStep::Appended(partition, appended) => (partition, appended),
        };
        let deadline = Instant::now() + DURABLE_WITHIN;
        match partition.await_marker(self, &appended, deadline).await {
            Ok(()) => true,
            Err(_) if partition.is_deleted() => true,
            Err((code, reason)) => {
                tracing::warn!(topic = %partition.topic, partition = partition.index, %code, reason,
                    "a transaction's marker is not durable yet");
                false
            }
        }
    }

    /// Stores the completion of a transaction after its markers. `in_log` is set to the end of its record once that is in the log: another
    /// attempt with it does only the rest.
    async fn complete(self: &Arc<Self>, partition: &Arc<Partition>, id: &Arc<str>, in_log: &mut Option<i64>) {
        let mut pause = RETRY_PAUSES.0;
        loop {
            let appended = match *in_log {
                Some(end) => self.resume_write(partition, end),
                None => match self.append_completion(partition, id, in_log) {
                    Some(appended) => appended,
                    None => return,
                },
            };
            let stored = match appended {
                Ok(written) => self.await_written_for_long(&written).await,
                Err(code) => Err(code),
            };
            match stored {
                Ok(()) => {
                    self.finish_change(partition, id);
                    return;
                }
                Err(code) => {
                    tracing::warn!(%id, %code, "the completion of a transaction cannot be stored, and is tried again");
                    if in_log.is_none() {
                        self.transactions.with_table(|table| table.not_stored(id));
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY_PAUSES.1);
                }
            }
        }
    }

    /// Decides the completion of a transaction, and appends its record. `None` if it cannot be completed.
    fn append_completion(
        self: &Arc<Self>,
        partition: &Arc<Partition>,
        id: &Arc<str>,
        in_log: &mut Option<i64>,
    ) -> Option<Result<Written, ErrorCode>> {
        let now_ms = self.clock.now_ms();
        let decided = self.transactions.with_table(|table| table.markers_written(now_ms, id));
        let Ok(Decision::Store(NewRecord { key, value, .. })) = decided else {
            tracing::error!(%id, ?decided, "a transaction with all markers cannot be completed: please report this");
            return None;
        };
        let note = |offset: i64| *in_log = Some(offset + 1);
        let appended = self.write_internal(partition, &[InternalRecord { key, value }], None, note);
        Some(appended.map(|(written, ())| written))
    }
}

/// Lets other tasks have their turn before each tenth marker.
async fn yield_before(number: usize) {
    if number > 0 && number.is_multiple_of(MARKERS_PER_TURN) {
        tokio::task::yield_now().await;
    }
}

/// Runs a step of the marker of one partition. Returns `None` after a panic: the step is tried again after a pause, and the panic neither
/// holds up nor repeats the markers of other partitions.
async fn caught_at<T>(id: &str, at: &TopicPartition, step: impl Future<Output = T>) -> Option<T> {
    match panics::caught(step).await {
        Ok(done) => Some(done),
        Err(reason) => {
            tracing::error!(id, topic = %at.topic, partition = at.index, reason,
                "a transaction's marker has panicked: it is tried again, and its id is refused until then; please report this defect");
            None
        }
    }
}

/// A marker that is to be written, and what earlier attempts have left.
struct MarkerAt<'a> {
    at: &'a TopicPartition,
    /// The partition of the last attempt.
    partition: Option<Arc<Partition>>,
    /// The place of the marker in it, if it was appended: it is not appended again if what follows the append fails or panics.
    in_log: Option<Appended>,
}

impl<'a> MarkerAt<'a> {
    fn new(at: &'a TopicPartition) -> Self {
        Self { at, partition: None, in_log: None }
    }
}

/// The state of the marker of one partition.
enum MarkerStep {
    /// It is not needed: the partition, or the transaction in it, is gone.
    Done,
    /// It is in the log, and not durable yet.
    Appended(Arc<Partition>, Appended),
    /// It is not in the log.
    Failed,
}
