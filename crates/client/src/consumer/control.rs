//! What can be asked of a consumer from any thread, while another one polls.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::offsets::{OffsetAndMetadata, not_assigned};
use super::opened::Reading;
use super::{StartAt, TopicPartition, Watermarks};
use crate::blocking;
use crate::client::Client;
use crate::config::{Config, Isolation, OffsetReset};
use crate::error::Error;
use crate::fetch::inbox::Inbox;
use crate::group::subscription::Subscription;
use crate::transaction::GroupMetadata;

/// A handle on a consumer for other threads than the one that polls. Cheap to clone.
///
/// What the last poll returned counts as done only through the [`Consumer`](super::Consumer) itself, whose methods of the
/// same names see to that.
#[derive(Clone, Debug)]
pub struct ConsumerControl {
    pub(super) client: Client,
    pub(super) config: Arc<Config>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) sender: mpsc::UnboundedSender<Control>,
}

/// What the application asks of the consumer's tasks in the engine.
pub(crate) enum Control {
    Assign(Change, Vec<(TopicPartition, StartAt)>, oneshot::Sender<Result<(), Error>>),
    Subscribe(Subscription, oneshot::Sender<Result<(), Error>>),
    Unsubscribe(Duration, oneshot::Sender<Result<(), Error>>),
    Start(TopicPartition, StartAt, Own, oneshot::Sender<Result<(), Error>>),
    Stop(TopicPartition, oneshot::Sender<Result<(), Error>>),
    Seek(TopicPartition, StartAt, oneshot::Sender<Result<(), Error>>),
    Pause(Vec<TopicPartition>, bool),
    Commit(oneshot::Sender<Result<(), Error>>),
    CommitOffsets(BTreeMap<TopicPartition, OffsetAndMetadata>, oneshot::Sender<Result<(), Error>>),
    GroupMetadata(oneshot::Sender<Result<GroupMetadata, Error>>),
    Committed(Vec<TopicPartition>, oneshot::Sender<Result<BTreeMap<TopicPartition, i64>, Error>>),
    CommittedOffsets(
        Vec<TopicPartition>,
        oneshot::Sender<Result<BTreeMap<TopicPartition, OffsetAndMetadata>, Error>>,
    ),
    /// The application came back after a revocation: what it had in hand is done.
    RevokeSeen,
    Close(Duration, oneshot::Sender<Result<(), Error>>),
}

/// What a partition that is started by itself has otherwise than its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    /// How often what is done is committed, if it is by itself.
    pub(crate) commits: Option<Duration>,
    /// `auto.offset.reset`.
    pub(crate) reset: OffsetReset,
}

/// What an assignment by the application does to the one before it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Change {
    Replace,
    Add,
    Remove,
}

/// The answer to something that was asked of the engine and is under way: a future, or for threads without a runtime
/// [`Asked::wait`]. Dropping it does not stop what is under way.
#[derive(Debug)]
#[must_use = "what came of it is known only to who waits for it"]
pub struct Asked<T>(oneshot::Receiver<Result<T, Error>>);

/// A commit that is under way; its outcome, when it is waited for.
pub type Committing = Asked<()>;

impl<T> Asked<T> {
    fn refused(error: Error) -> Self {
        let (answer, received) = oneshot::channel();
        let _ = answer.send(Err(error));
        Self(received)
    }

    /// Waits for the answer, for threads without a runtime.
    ///
    /// # Errors
    /// What the answer says; [`Error::TimedOut`] when there is none within `timeout`.
    pub fn wait(self, timeout: Duration) -> Result<T, Error> {
        let waited_ms = timeout.as_millis();
        blocking::block_on(timeout, self)
            .unwrap_or_else(|| Err(Error::TimedOut { what: "the consumer's engine".into(), waited_ms }))
    }
}

impl<T> Future for Asked<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(context)).unwrap_or(Err(Error::Closed)))
    }
}

impl ConsumerControl {
    /// The client the consumer runs on.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// [`Consumer::assign`](super::Consumer::assign). Under [`Rebalance::Application`](crate::Rebalance::Application) a
    /// membership goes on, and where the group left off is found out later.
    pub fn assign(&self, partitions: &[(TopicPartition, StartAt)]) -> Asked<()> {
        self.ask(|answer| Control::Assign(Change::Replace, partitions.to_vec(), answer))
    }

    /// Consumes these partitions too: the answer to an assignment of the cooperative protocols.
    ///
    /// # Errors
    /// [`Error::Config`] for a partition that is assigned already, and unless it is the application that brings the
    /// assignment in line ([`Rebalance::Application`](crate::Rebalance::Application)).
    pub fn incremental_assign(&self, partitions: &[(TopicPartition, StartAt)]) -> Asked<()> {
        self.ask(|answer| Control::Assign(Change::Add, partitions.to_vec(), answer))
    }

    /// Consumes these partitions no more; if commits are automatic, what is done of them is committed first.
    ///
    /// # Errors
    /// As of [`ConsumerControl::incremental_assign`].
    pub fn incremental_unassign(&self, partitions: &[TopicPartition]) -> Asked<()> {
        let partitions = partitions.iter().map(|at| (at.clone(), StartAt::Committed)).collect();
        self.ask(|answer| Control::Assign(Change::Remove, partitions, answer))
    }

    /// [`Consumer::subscribe`](super::Consumer::subscribe).
    pub fn subscribe(&self, topics: &[&str]) -> Asked<()> {
        if self.config.group_id.is_none() {
            return Asked::refused(Error::Config("subscribe needs group.id".into()));
        }
        match Subscription::parse(topics) {
            Ok(subscription) => self.ask(|answer| Control::Subscribe(subscription, answer)),
            Err(error) => Asked::refused(error),
        }
    }

    /// [`Consumer::unsubscribe`](super::Consumer::unsubscribe).
    pub fn unsubscribe(&self, timeout: Duration) -> Asked<()> {
        self.ask(|answer| Control::Unsubscribe(timeout, answer))
    }

    /// What is assigned at this moment, in order.
    pub fn assignment(&self) -> Vec<TopicPartition> {
        self.inbox.places().iter().map(|place| place.at.clone()).collect()
    }

    /// Goes on elsewhere in a partition; what was fetched of it is thrown away.
    ///
    /// # Errors
    /// [`Error::NotAssigned`].
    pub fn seek(&self, partition: &TopicPartition, to: StartAt) -> Asked<()> {
        self.ask(|answer| Control::Seek(partition.clone(), to, answer))
    }

    /// Says that everything before this offset is done: the next commit, automatic or not, has it and what is kept
    /// beside it.
    ///
    /// # Errors
    /// [`Error::NotAssigned`] if the partition is not this consumer's (any more): nothing is stored.
    pub fn store_offset(
        &self,
        partition: &TopicPartition,
        offset: impl Into<OffsetAndMetadata>,
    ) -> Result<(), Error> {
        let place = self.inbox.place(partition).ok_or_else(|| not_assigned(partition))?;
        place.store(offset.into());
        Ok(())
    }

    /// Commits these offsets. What is done of other partitions stays uncommitted.
    ///
    /// # Errors
    /// [`Error::NotAssigned`] for a partition that the group has taken back: a late commit must not undo what its next
    /// owner has committed. Otherwise the broker's refusal.
    pub fn commit_offsets(&self, offsets: &[(TopicPartition, OffsetAndMetadata)]) -> Committing {
        self.begin_commit(Some(offsets))
    }

    /// Begins to commit these offsets, or all that is done (`None`), and does not wait. Commits are carried out in the
    /// order in which they are begun.
    pub fn begin_commit(&self, offsets: Option<&[(TopicPartition, OffsetAndMetadata)]>) -> Committing {
        self.ask(|answer| match offsets {
            Some(offsets) => Control::CommitOffsets(offsets.iter().cloned().collect(), answer),
            None => Control::Commit(answer),
        })
    }

    /// What is done and not committed yet.
    pub fn uncommitted(&self) -> BTreeMap<TopicPartition, OffsetAndMetadata> {
        let places = self.inbox.places();
        places.iter().filter_map(|place| Some((place.at.clone(), place.uncommitted()?))).collect()
    }

    /// The group's committed offsets of these partitions; those without one are missing in the answer.
    pub fn committed(&self, partitions: &[TopicPartition]) -> Asked<BTreeMap<TopicPartition, i64>> {
        self.ask(|answer| Control::Committed(partitions.to_vec(), answer))
    }

    /// The same, with what is kept beside each offset.
    pub fn committed_offsets(
        &self,
        partitions: &[TopicPartition],
    ) -> Asked<BTreeMap<TopicPartition, OffsetAndMetadata>> {
        self.ask(|answer| Control::CommittedOffsets(partitions.to_vec(), answer))
    }

    /// What this consumer is in its group at this moment, for [`Producer::send_offsets_to_transaction`].
    ///
    /// # Errors
    /// [`Error::Config`] without a `group.id`.
    ///
    /// [`Producer::send_offsets_to_transaction`]: crate::Producer::send_offsets_to_transaction
    pub fn group_metadata(&self) -> Asked<GroupMetadata> {
        self.ask(Control::GroupMetadata)
    }

    /// Stops fetching these partitions, and gives nothing more of them: what was fetched before is kept for
    /// [`ConsumerControl::resume`].
    pub fn pause(&self, partitions: &[TopicPartition]) {
        self.set_paused(partitions, true);
    }

    /// Goes on with these partitions, first with what was fetched before they were paused.
    pub fn resume(&self, partitions: &[TopicPartition]) {
        self.set_paused(partitions, false);
    }

    fn set_paused(&self, partitions: &[TopicPartition], paused: bool) {
        for at in partitions {
            self.inbox.pause(at, paused);
        }
        let _ = self.sender.send(Control::Pause(partitions.to_vec(), paused));
    }

    /// The offset after the last record that is done, by partition.
    pub fn positions(&self) -> BTreeMap<TopicPartition, i64> {
        let places = self.inbox.places();
        places.iter().filter_map(|place| Some((place.at.clone(), place.done()?))).collect()
    }

    /// The offset of the next record that a poll gives of this partition; `None` if it is not assigned, or if that is
    /// still being found out.
    pub fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.inbox.place(partition)?.position()
    }

    /// Where this partition begins and ends, as the last fetch said it; `None` before the first.
    pub fn watermarks(&self, partition: &TopicPartition) -> Option<Watermarks> {
        let ends = self.inbox.place(partition)?.ends();
        (ends.high_watermark >= 0).then_some(Watermarks { low: ends.log_start, high: ends.high_watermark })
    }

    /// How many offsets lie between what was handed out and the partition's end, as far as it is known.
    pub fn lag(&self, partition: &TopicPartition) -> Option<i64> {
        let place = self.inbox.place(partition)?;
        let ends = place.ends();
        let end = match self.config.isolation {
            Isolation::ReadCommitted => ends.last_stable,
            Isolation::ReadUncommitted => ends.high_watermark,
        };
        (end >= 0).then_some((end - place.position()?).max(0))
    }

    /// [`Consumer::close`](super::Consumer::close): nothing can be asked of the consumer after it.
    pub fn close(&self, timeout: Duration) -> Asked<()> {
        self.ask(|answer| Control::Close(timeout, answer))
    }

    pub(super) fn reading(&self) -> Reading {
        Reading {
            config: self.config.clone(),
            budget: self.inbox.budget.clone(),
            observer: self.client.produce().observer.clone(),
        }
    }

    pub(super) fn ask<T>(&self, make: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Control) -> Asked<T> {
        let (answer, received) = oneshot::channel();
        // When the engine is gone the answer is never sent, and that is what waiting then says.
        let _ = self.sender.send(make(answer));
        Asked(received)
    }
}
