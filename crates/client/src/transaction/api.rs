//! The producer's transactional calls.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use super::GroupMetadata;
use super::error::{Then, TransactionError, TransactionErrorKind};
use super::machine::Machine;
use super::operations::Operation;
use crate::blocking;
use crate::consumer::TopicPartition;
use crate::error::Error;
use crate::producer::Producer;

/// What the engine may take to say that the time is over.
const GRACE: Duration = Duration::from_secs(5);

/// # Transactions
///
/// With a `transactional.id`, records are produced in transactions: consumers that read committed records see all
/// records of a transaction, or none. Both of Kafka's protocols are spoken: KIP-890's where the cluster has
/// `transaction.version` 2, the classic one elsewhere.
///
/// ```no_run
/// use std::time::Duration;
/// use ottla_client::{Config, Producer, Record};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let timeout = Duration::from_secs(30);
/// let mut config = Config::new("127.0.0.1:9092");
/// config.transactional_id = Some("billing-1".into());
/// let producer = Producer::new(config)?;
/// producer.init_transactions(timeout).await?;
///
/// producer.begin_transaction()?;
/// producer.post(Record::to("orders").value("17 paid")).await?;
/// producer.post(Record::to("invoices").value("17")).await?;
/// while let Err(error) = producer.commit_transaction(timeout).await {
///     if error.requires_abort() {
///         producer.abort_transaction(timeout).await?;
///         break;
///     }
///     // Its outcome is not known yet: committing again tells.
///     if !error.is_retriable() {
///         return Err(error.into());
///     }
/// }
/// # Ok(())
/// # }
/// ```
impl Producer {
    /// Takes over the `transactional.id`: a producer that had it before is fenced, and what it left open is aborted.
    ///
    /// Once, before the first transaction; and again where an error [requires](TransactionError::requires_init) it.
    ///
    /// # Errors
    /// Retriable when `timeout` passes first; fatal when the coordinator refuses.
    pub async fn init_transactions(&self, timeout: Duration) -> Result<(), TransactionError> {
        self.operate("init_transactions", timeout, async |operation| operation.init().await).await
    }

    /// [`Producer::init_transactions`] for threads without a runtime.
    pub fn init_transactions_blocking(&self, timeout: Duration) -> Result<(), TransactionError> {
        self.block(timeout, self.init_transactions(timeout))
    }

    /// Begins a transaction: from now on, until it is committed or aborted, records are taken. No broker is asked.
    ///
    /// # Errors
    /// When a transaction is open, or the producer is not initialized, or failed.
    pub fn begin_transaction(&self) -> Result<(), TransactionError> {
        self.transactional()?;
        self.client().produce().transactions.update(Machine::begin)
    }

    /// Makes a group's offsets part of the transaction: they are committed when the transaction is.
    ///
    /// `offsets` are the offsets after the last record that was processed, by partition; `group` comes from
    /// [`Consumer::group_metadata`](crate::ConsumerControl::group_metadata). The consumer must not commit by itself.
    ///
    /// # Errors
    /// Retriable when `timeout` passes first: the offsets are not part of the transaction until a repetition succeeds.
    /// [Abortable](TransactionError::requires_abort) when the consumer is out of its group.
    pub async fn send_offsets_to_transaction(
        &self,
        offsets: &BTreeMap<TopicPartition, i64>,
        group: &GroupMetadata,
        timeout: Duration,
    ) -> Result<(), TransactionError> {
        let (offsets, group) = (offsets.clone(), group.clone());
        self.operate("send_offsets_to_transaction", timeout, async move |operation| {
            operation.send_offsets(&offsets, &group).await
        })
        .await
    }

    /// [`Producer::send_offsets_to_transaction`] for threads without a runtime.
    pub fn send_offsets_to_transaction_blocking(
        &self,
        offsets: &BTreeMap<TopicPartition, i64>,
        group: &GroupMetadata,
        timeout: Duration,
    ) -> Result<(), TransactionError> {
        self.block(timeout, self.send_offsets_to_transaction(offsets, group, timeout))
    }

    /// Flushes and commits. `Ok` says that the transaction is committed; nothing else does.
    ///
    /// # Errors
    /// Retriable when `timeout` passes first: call it again, which goes on where it was; once the commit was sent,
    /// aborting is not possible any more. [Abortable](TransactionError::requires_abort) when a record failed.
    pub async fn commit_transaction(&self, timeout: Duration) -> Result<(), TransactionError> {
        self.operate("commit_transaction", timeout, async |operation| operation.commit().await).await
    }

    /// [`Producer::commit_transaction`] for threads without a runtime.
    pub fn commit_transaction_blocking(&self, timeout: Duration) -> Result<(), TransactionError> {
        self.block(timeout, self.commit_transaction(timeout))
    }

    /// Aborts: records that were not sent fail, those that were are never seen by who reads committed records.
    ///
    /// # Errors
    /// Retriable when `timeout` passes first: call it again. Fatal when the coordinator refuses.
    pub async fn abort_transaction(&self, timeout: Duration) -> Result<(), TransactionError> {
        self.operate("abort_transaction", timeout, async |operation| operation.abort().await).await
    }

    /// [`Producer::abort_transaction`] for threads without a runtime.
    pub fn abort_transaction_blocking(&self, timeout: Duration) -> Result<(), TransactionError> {
        self.block(timeout, self.abort_transaction(timeout))
    }

    fn transactional(&self) -> Result<(), TransactionError> {
        let transactions = &self.client().produce().transactions;
        match &transactions.id {
            Some(_) => Ok(()),
            None => Err(transactions.error(TransactionErrorKind::NotTransactional, Then::Mend)),
        }
    }

    /// Runs a call in the engine, for `timeout` at most.
    async fn operate<W>(&self, call: &'static str, timeout: Duration, work: W) -> Result<(), TransactionError>
    where
        W: AsyncFnOnce(&Operation) -> Result<(), TransactionError> + Send + 'static,
    {
        self.transactional()?;
        let produce = self.client().produce().clone();
        let done = self.client().run(move |cluster| async move {
            let operation = Operation { cluster, produce };
            let transactions = &operation.produce.transactions;
            transactions.update(|machine| machine.note(String::new()));
            let done = tokio::time::timeout(timeout, work(&operation)).await;
            let done =
                done.unwrap_or_else(|_| Err(transactions.update(|machine| machine.timed_out(call, timeout))));
            done.map_err(Error::Transaction)
        });
        done.await.map_err(|error| match error {
            Error::Transaction(error) => error,
            _ => self.closed(),
        })
    }

    fn block(
        &self,
        timeout: Duration,
        call: impl Future<Output = Result<(), TransactionError>>,
    ) -> Result<(), TransactionError> {
        blocking::block_on(timeout + GRACE, call).unwrap_or_else(|| Err(self.closed()))
    }

    fn closed(&self) -> TransactionError {
        self.client().produce().transactions.error(TransactionErrorKind::Closed, Then::Close)
    }
}
