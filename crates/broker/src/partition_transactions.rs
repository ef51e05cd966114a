//! Transactions in a partition: their guards, their markers, and the last stable offset.

use std::sync::Arc;

use ottla_log::{Appended, EndMarker, FirstBatch, GuardsFull, VerificationGuard};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::config::Durability;
use crate::durable_append::{AppendRefusal, await_durable, refusal, reserve};
use crate::partition::Partition;

impl Partition {
    /// The offset up to which consumers with `isolation.level=read_committed` may read.
    pub(crate) fn last_stable_offset(&self) -> i64 {
        let log = self.log();
        log.last_stable_offset(self.high_watermark())
    }

    /// Returns the guard for the first batch of a transaction; `None` if the transaction is open in the log, so that
    /// the batch needs none. Call it before the coordinator is asked for its approval.
    pub(crate) fn transaction_guard(
        &self,
        first: FirstBatch,
        now_ms: i64,
    ) -> Result<Option<VerificationGuard>, GuardsFull> {
        self.log().verification_guard(first, now_ms)
    }

    /// Returns `true` if no marker has ended the guard since it was taken.
    pub(crate) fn is_transaction_guard_current(&self, first: FirstBatch, guard: VerificationGuard) -> bool {
        self.log().is_verification_guard_current(first.producer_id, guard)
    }

    /// Forgets a guard whose batch the coordinator has denied for good.
    pub(crate) fn discard_transaction_guard(&self, first: FirstBatch, guard: VerificationGuard) {
        self.log().discard_verification_guard(first, guard);
    }

    /// Appends the marker that ends a producer's transaction here, and starts its sync. The log decides whether the
    /// marker is late: see [`ottla_log::Log::append_marker`].
    pub(crate) fn append_marker(
        self: &Arc<Self>,
        cluster: &Arc<Cluster>,
        marker: EndMarker,
    ) -> Result<Appended, AppendRefusal> {
        self.append_marker_once(cluster, marker, &mut None)
    }

    /// [`Partition::append_marker`] for a caller that tries again. `in_log` is set once the marker is in the log: another attempt with it
    /// does only the rest.
    pub(crate) fn append_marker_once(
        self: &Arc<Self>,
        cluster: &Arc<Cluster>,
        marker: EndMarker,
        in_log: &mut Option<Appended>,
    ) -> Result<Appended, AppendRefusal> {
        let (appended, has_closed) = match *in_log {
            Some(appended) => (appended, self.log().has_unsynced_segments()),
            None => self.append_marker_to_log(cluster, marker, in_log)?,
        };
        // Another transaction of this producer begins only after its coordinator has the answer.
        cluster.complete_offsets(self, &marker);
        // Others may have appended since the reservation before the append.
        let reserved = reserve(cluster, self, appended.last_offset + 1);
        cluster.start_sync(self, has_closed);
        reserved.map(|()| appended)
    }

    /// Returns the place of the marker, and `true` if closed segments are not durable yet.
    fn append_marker_to_log(
        self: &Arc<Self>,
        cluster: &Arc<Cluster>,
        marker: EndMarker,
        in_log: &mut Option<Appended>,
    ) -> Result<(Appended, bool), AppendRefusal> {
        // Before the append: the coordinator tries again what is refused here, and must not leave a marker at each attempt.
        let end = self.log().end_offset();
        reserve(cluster, self, end + 1)?;
        let mut log = cluster.log_with_files(self);
        let result = log.append_marker(marker, self.leader_epoch(), cluster.clock.now_ms());
        let appended = result.map_err(|error| refusal(&error))?;
        *in_log = Some(appended);
        if self.is_internal {
            // Under the log's lock: offsets that are committed later count.
            cluster.complete_offsets(self, &marker);
        }
        Ok((appended, log.has_unsynced_segments()))
    }

    /// Waits until a marker is as durable as the setting `durability` asks for.
    pub(crate) async fn await_marker(
        self: &Arc<Self>,
        cluster: &Cluster,
        appended: &Appended,
        deadline: Instant,
    ) -> Result<(), AppendRefusal> {
        if cluster.config.durability != Durability::Disk {
            return Ok(());
        }
        let end = appended.last_offset + 1;
        await_durable(cluster, self, end, deadline).await.map_err(|code| (code, None))
    }
}
