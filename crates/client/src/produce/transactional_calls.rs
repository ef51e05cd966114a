//! The producer's transactional calls, in the engine. [`crate::transaction`] decides and sends the requests; a commit
//! and an abort first wait for the sender.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Produce;
use crate::cluster::Cluster;
use crate::error::transaction::{Recovery, TransactionError, TransactionErrorKind};
use crate::transaction::coordinator_calls::CoordinatorCalls;
use crate::transaction::error_table::{TransactionProtocol, TxnRequest};
use crate::transaction::machine::Machine;
use crate::transaction::requests::{add_offsets, commit_offsets, end, ensure_epoch, take_epoch};
use crate::transaction::{SentCommit, Transactions};
use crate::types::{GroupMetadata, OffsetAndMetadata, TopicPartition};

/// One transactional call, in the engine.
#[derive(Clone)]
pub(crate) struct Operation {
    pub(crate) cluster: Rc<Cluster>,
    pub(crate) produce: Arc<Produce>,
}

impl Operation {
    fn transactions(&self) -> &Transactions {
        &self.produce.transactions
    }

    fn calls(&self) -> CoordinatorCalls<'_> {
        CoordinatorCalls { cluster: &self.cluster, transactions: self.transactions(), goes_on: |_| true }
    }

    pub(crate) async fn init(&self) -> Result<(), TransactionError> {
        let _turn = self.transactions().turn.lock().await;
        self.transactions().update(Machine::begin_init)?;
        self.forget_commit().await;
        take_epoch(&self.calls()).await
    }

    pub(crate) async fn send_offsets(
        &self,
        offsets: &BTreeMap<TopicPartition, OffsetAndMetadata>,
        group: &GroupMetadata,
    ) -> Result<(), TransactionError> {
        let transactions = self.transactions();
        let _turn = transactions.turn.lock().await;
        transactions.update(Machine::begin_offsets)?;
        if let Some(level) = self.cluster.brokers.transaction_level() {
            transactions.follow_level(level);
        }
        if offsets.is_empty() {
            return Ok(());
        }
        let calls = CoordinatorCalls { goes_on: Machine::sends, ..self.calls() };
        ensure_epoch(&calls).await?;
        transactions.update(Machine::touch);
        if transactions.view().protocol == TransactionProtocol::V1 {
            add_offsets(&calls, group).await?;
        }
        commit_offsets(&calls, offsets, group).await
    }

    pub(crate) async fn commit(&self) -> Result<(), TransactionError> {
        let transactions = self.transactions();
        let _turn = transactions.turn.lock().await;
        let mut sent = transactions.commit.lock().await;
        if sent.is_none() {
            transactions.update(Machine::begin_commit)?;
            self.quiet().await?;
            if !transactions.update(Machine::flushed)? {
                return Ok(());
            }
            *sent = Some(self.send_commit());
        }
        let Some(task) = &mut *sent else { return Ok(()) };
        // The state changes with this call, not before: until it returns, no other call is allowed.
        let outcome = task.await;
        *sent = None;
        let closed = || transactions.error(TransactionErrorKind::Closed, Recovery::Close);
        let next = outcome.map_err(|_| closed())??;
        transactions.update(|machine| machine.ended(next));
        Ok(())
    }

    /// The result of a commit that failed, and was not repeated, is no result of the next one.
    async fn forget_commit(&self) {
        if let Some(task) = self.transactions().commit.lock().await.take() {
            task.abort();
        }
    }

    fn send_commit(&self) -> SentCommit {
        let operation = self.clone();
        tokio::task::spawn_local(async move {
            let calls = CoordinatorCalls { goes_on: Machine::is_committing, ..operation.calls() };
            end(&calls, TxnRequest::Commit).await
        })
    }

    pub(crate) async fn abort(&self) -> Result<(), TransactionError> {
        let transactions = self.transactions();
        let _turn = transactions.turn.lock().await;
        transactions.update(Machine::begin_abort)?;
        self.forget_commit().await;
        self.quiet().await?;
        if transactions.update(Machine::drained)? {
            let next = end(&self.calls(), TxnRequest::Abort).await?;
            transactions.update(|machine| machine.ended(next));
        }
        // As in Java's client and librdkafka, the call reports that the producer was fenced meanwhile.
        ensure_epoch(&self.calls()).await
    }

    /// Waits, without lingering, until every record has an outcome and every request a response.
    async fn quiet(&self) -> Result<(), TransactionError> {
        let queues = &self.produce.queues;
        let _flushing = Flushing::new(&self.produce);
        let quiet = self.transactions().subscribe_idle();
        queues.wake.notify_one();
        quiet.await.map_err(|_| self.transactions().error(TransactionErrorKind::Closed, Recovery::Close))
    }
}

/// Disables lingering while it exists.
struct Flushing<'a>(&'a Produce);

impl<'a> Flushing<'a> {
    fn new(produce: &'a Produce) -> Self {
        produce.queues.flushing.fetch_add(1, Ordering::Relaxed);
        Self(produce)
    }
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        self.0.queues.flushing.fetch_sub(1, Ordering::Relaxed);
    }
}
