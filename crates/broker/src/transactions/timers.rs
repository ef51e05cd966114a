//! The periodic work of the coordinator: transactions that take too long, ids that are idle, and what a start finds.

use std::sync::Arc;

use ottla_protocol::ErrorCode;

use super::coordinator::UndecidedChange;
use super::table::NewRecord;
use crate::cluster::Cluster;
use crate::internal_topics::InternalTopic;

/// Ids that are looked at in one step. Requests are served between the steps.
const IDS_PER_STEP: usize = 1000;

impl Cluster {
    /// Completes the transactions that were prepared before the start; then aborts those that take too long, and forgets
    /// idle ids, from time to time. Runs until the future is dropped.
    pub(crate) async fn keep_transactions(self: &Arc<Self>) {
        self.resume_transactions();
        let timeouts = async {
            loop {
                tokio::time::sleep(self.config.transaction_timeout_check).await;
                self.abort_timed_out().await;
            }
        };
        let idle = async {
            loop {
                tokio::time::sleep(self.config.transactional_id_expiration_check).await;
                self.forget_idle_ids().await;
            }
        };
        tokio::join!(timeouts, idle);
    }

    fn resume_transactions(self: &Arc<Self>) {
        for markers in self.transactions.with_table(super::table::Transactions::resume) {
            if let Some(partition) = self.internal_partition(InternalTopic::TransactionState, &markers.id) {
                self.start_markers(&partition, markers);
            }
        }
    }

    pub(crate) async fn abort_timed_out(self: &Arc<Self>) {
        let now_ms = self.clock.now_ms();
        for id in self.transactions.with_table(|table| table.timed_out(now_ms)) {
            let aborted =
                self.change_transaction(&id, |table, _, fresh| table.time_out(now_ms, &id, fresh)).await;
            match aborted {
                Ok(producer) => {
                    tracing::info!(%id, producer_id = producer.id, "a transaction is aborted after its timeout");
                }
                // It is ending, or has ended meanwhile.
                Err(ErrorCode::ConcurrentTransactions | ErrorCode::InvalidTxnState) => {}
                Err(code) => tracing::warn!(%id, %code, "a transaction cannot be aborted after its timeout"),
            }
        }
    }

    async fn forget_idle_ids(self: &Arc<Self>) {
        let now_ms = self.deletion_clock.now_ms();
        let mut after: Option<Arc<str>> = None;
        loop {
            let step = |table: &mut super::table::Transactions| {
                table.remove_idle(now_ms, after.as_deref(), IDS_PER_STEP)
            };
            let (records, last) = self.transactions.with_table(step);
            // All removals are pending from here on: a panic at one of them must not leave the later ones so.
            let undecided = |record: NewRecord| (UndecidedChange::new(self, &record.id), record);
            let removals: Vec<_> = records.into_iter().map(undecided).collect();
            // Each is appended before the first one is awaited: they share their syncs.
            let forget = |(undecided, record)| self.forget_id(record, undecided);
            let stored: Vec<_> = removals.into_iter().map(forget).collect();
            for stored in stored {
                stored.await;
            }
            if last.is_none() {
                return;
            }
            after = last;
            tokio::task::yield_now().await;
        }
    }

    /// Appends the record that removes an id. The future waits until it is stored.
    fn forget_id(
        self: &Arc<Self>,
        record: NewRecord,
        undecided: UndecidedChange,
    ) -> impl Future<Output = ()> + use<> {
        let id = record.id.clone();
        let partition = self.internal_partition(InternalTopic::TransactionState, &id);
        if partition.is_none() {
            self.drop_change(&id);
        }
        let stored = partition.map(|partition| self.store_undecided(&partition, record, undecided));
        async move {
            let Some(stored) = stored else { return };
            match stored.await {
                Ok(_) => tracing::debug!(%id, "an idle transactional.id is forgotten"),
                Err(code) => tracing::warn!(%id, %code, "an idle transactional.id cannot be forgotten"),
            }
        }
    }
}
