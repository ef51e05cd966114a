//! The producer's transactional calls.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use super::Producer;
use crate::blocking;
use crate::error::Error;
use crate::error::transaction::{Recovery, TransactionError, TransactionErrorKind};
use crate::produce::transactional_calls::Operation;
use crate::transaction::machine::Machine;
use crate::types::{GroupMetadata, OffsetAndMetadata, TopicPartition};

/// The extra time in which the engine may report that the time is over.
const GRACE: Duration = Duration::from_secs(5);

/// # Transactions
///
/// With a `transactional.id`, records are produced in transactions: `read_committed` consumers see all records of a
/// transaction, or none. The client supports both of Kafka's protocols: KIP-890 if the cluster has
/// `transaction.version` 2, and the classic one otherwise.
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
/// producer.send_unobserved(Record::to("orders").value("17 paid")).await?;
/// producer.send_unobserved(Record::to("invoices").value("17")).await?;
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
    /// Initializes the `transactional.id`: fences a previous producer with this id and aborts its open transaction.
    ///
    /// Call it once before the first transaction, and again if an error [requires](TransactionError::requires_init)
    /// it.
    ///
    /// # Errors
    /// Retriable if `timeout` passes first or the login fails; fatal if the coordinator refuses the producer.
    pub async fn init_transactions(&self, timeout: Duration) -> Result<(), TransactionError> {
        self.operate("init_transactions", timeout, async |operation| operation.init().await).await
    }

    /// [`Producer::init_transactions`] for threads without a runtime.
    pub fn init_transactions_blocking(&self, timeout: Duration) -> Result<(), TransactionError> {
        self.block(timeout, self.init_transactions(timeout))
    }

    /// Begins a transaction: records are accepted until it is committed or aborted. The call sends no request.
    ///
    /// # Errors
    /// The error of the current state: a transaction is open, the producer is not initialized, or it has failed.
    pub fn begin_transaction(&self) -> Result<(), TransactionError> {
        self.transactional()?;
        self.client().produce().transactions.update(Machine::begin)
    }

    /// Adds a group's offsets to the transaction: they are committed with it.
    ///
    /// `offsets` are the offsets after the last processed record, by partition; `group` comes from
    /// [`Consumer::group_metadata`](crate::ConsumerControl::group_metadata). Disable the consumer's automatic
    /// commits. An offset is a number or an [`OffsetAndMetadata`], whose leader epoch and metadata are committed with it.
    ///
    /// # Errors
    /// Retriable if `timeout` passes first: the offsets are not part of the transaction until a retry succeeds.
    /// [Abortable](TransactionError::requires_abort) if the consumer is no longer in its group.
    pub async fn send_offsets_to_transaction<O: Clone + Into<OffsetAndMetadata>>(
        &self,
        offsets: &BTreeMap<TopicPartition, O>,
        group: &GroupMetadata,
        timeout: Duration,
    ) -> Result<(), TransactionError> {
        let offset = |(at, offset): (&TopicPartition, &O)| (at.clone(), offset.clone().into());
        let offsets: BTreeMap<TopicPartition, OffsetAndMetadata> = offsets.iter().map(offset).collect();
        let group = group.clone();
        self.operate("send_offsets_to_transaction", timeout, async move |operation| {
            operation.send_offsets(&offsets, &group).await
        })
        .await
    }

    /// [`Producer::send_offsets_to_transaction`] for threads without a runtime.
    pub fn send_offsets_to_transaction_blocking<O: Clone + Into<OffsetAndMetadata>>(
        &self,
        offsets: &BTreeMap<TopicPartition, O>,
        group: &GroupMetadata,
        timeout: Duration,
    ) -> Result<(), TransactionError> {
        self.block(timeout, self.send_offsets_to_transaction(offsets, group, timeout))
    }

    /// Closes the transaction to records: the first step of [`commit_transaction`](Self::commit_transaction), which has to follow. The
    /// call sends no request.
    ///
    /// It is for programs that serve delivery reports before they commit: a record that they produce meanwhile is refused, and not
    /// part of the transaction.
    ///
    /// # Errors
    /// The error of the current state, if there is no transaction that can be committed.
    pub fn close_transaction(&self) -> Result<(), TransactionError> {
        self.transactional()?;
        self.client().produce().transactions.update(Machine::begin_commit)
    }

    /// Flushes and commits. Only `Ok` confirms that the transaction is committed.
    ///
    /// # Errors
    /// Retriable if `timeout` passes first: a repeated call continues from the last step. Once the commit was sent, it continues
    /// without the call, a repeated call returns its result, and the transaction cannot be aborted any more. [Abortable](TransactionError::requires_abort) if a record failed.
    pub async fn commit_transaction(&self, timeout: Duration) -> Result<(), TransactionError> {
        self.operate("commit_transaction", timeout, async |operation| operation.commit().await).await
    }

    /// [`Producer::commit_transaction`] for threads without a runtime.
    pub fn commit_transaction_blocking(&self, timeout: Duration) -> Result<(), TransactionError> {
        self.block(timeout, self.commit_transaction(timeout))
    }

    /// Aborts the transaction: unsent records fail, and `read_committed` consumers never see the sent ones.
    ///
    /// # Errors
    /// Retriable if `timeout` passes first: repeat the call. Fatal if the coordinator refuses.
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
            None => Err(transactions.error(TransactionErrorKind::NotTransactional, Recovery::Mend)),
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
            transactions.update(Machine::forget_problem);
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
        blocking::block_on(timeout.saturating_add(GRACE), call).unwrap_or_else(|| Err(self.closed()))
    }

    fn closed(&self) -> TransactionError {
        self.client().produce().transactions.error(TransactionErrorKind::Closed, Recovery::Close)
    }
}
