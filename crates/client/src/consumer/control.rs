//! The consumer's operations that any thread can call while another one polls.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ottla_protocol::ErrorCode;
use tokio::sync::{mpsc, oneshot};

use super::OffsetAndMetadata;
use super::open_chunk::ReadContext;
use super::{StartAt, TopicPartition, Watermarks};
use crate::blocking;
use crate::client::Client;
use crate::config::{Config, GroupHabits, Isolation, Rebalance};
use crate::error::Error;
use crate::fetch::inbox::Inbox;
use crate::fetch::progress::PartitionProgress;
use crate::group::commands::{AssignmentChange, CommitScope, ConsumerCommand};
use crate::group::membership::LeavingFor;
use crate::group::poll_activity::PollActivity;
use crate::group::subscription::Subscription;
use crate::types::GroupMetadata;

/// The time limit of a subscription without topics, which leaves the group: Kafka's `default.api.timeout.ms`.
const UNSUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(60);

/// A handle on a consumer for threads other than the one that polls. Cheap to clone.
///
/// Only the [`Consumer`](super::Consumer) itself, with methods of the same names, counts the records of the last poll as
/// processed.
#[derive(Clone, Debug)]
pub struct ConsumerControl {
    pub(super) client: Client,
    pub(super) config: Arc<Config>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) polls: Arc<PollActivity>,
    pub(super) sender: mpsc::UnboundedSender<ConsumerCommand>,
}

/// The pending reply of the engine to a call: a future, with [`EngineReply::wait`] for threads without a runtime.
/// Dropping it does not cancel the call.
#[derive(Debug)]
#[must_use = "only the reply has the result of the call"]
pub struct EngineReply<T>(oneshot::Receiver<Result<T, Error>>);

/// The pending reply to a commit.
pub type PendingCommit = EngineReply<()>;

impl<T> EngineReply<T> {
    /// The reply that comes through this channel; a closed channel means a stopped engine.
    pub(crate) fn new(received: oneshot::Receiver<Result<T, Error>>) -> Self {
        Self(received)
    }

    fn refused(error: Error) -> Self {
        let (answer, received) = oneshot::channel();
        let _ = answer.send(Err(error));
        Self(received)
    }

    /// Waits for the reply, for threads without a runtime.
    ///
    /// # Errors
    /// The error of the call; [`Error::TimedOut`] when there is no reply within `timeout`.
    pub fn wait(self, timeout: Duration) -> Result<T, Error> {
        let waited_ms = timeout.as_millis();
        blocking::block_on(timeout, self)
            .unwrap_or_else(|| Err(Error::TimedOut { what: "the consumer's engine".into(), waited_ms }))
    }
}

impl<T> Future for EngineReply<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(context)).unwrap_or(Err(Error::Closed)))
    }
}

impl ConsumerControl {
    /// Returns the client that the consumer runs on.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// [`Consumer::assign`](super::Consumer::assign). The membership continues, and committed offsets are looked up later, under
    /// [`Rebalance::Application`], and under [`Rebalance::Silent`] with
    /// [`GroupHabits::Librdkafka`].
    pub fn assign(&self, partitions: &[(TopicPartition, StartAt)]) -> EngineReply<()> {
        self.ask(|answer| ConsumerCommand::Assign(AssignmentChange::Replace, partitions.to_vec(), answer))
    }

    /// Adds partitions to the assignment: the response to an assignment of the cooperative protocols.
    ///
    /// # Errors
    /// [`Error::Config`] for a partition that is assigned already, and for a member whose assignment the application may not
    /// change: see [`ConsumerControl::assign`].
    pub fn incremental_assign(&self, partitions: &[(TopicPartition, StartAt)]) -> EngineReply<()> {
        self.ask(|answer| ConsumerCommand::Assign(AssignmentChange::Add, partitions.to_vec(), answer))
    }

    /// Removes partitions from the assignment. With automatic commits, their processed offsets are committed before the reply, or soon
    /// after it with [`GroupHabits::Librdkafka`].
    ///
    /// # Errors
    /// The errors of [`ConsumerControl::incremental_assign`].
    pub fn incremental_unassign(&self, partitions: &[TopicPartition]) -> EngineReply<()> {
        let partitions = partitions.iter().map(|at| (at.clone(), StartAt::Committed)).collect();
        self.ask(|answer| ConsumerCommand::Assign(AssignmentChange::Remove, partitions, answer))
    }

    /// [`Consumer::subscribe`](super::Consumer::subscribe).
    pub fn subscribe(&self, topics: &[&str]) -> EngineReply<()> {
        if self.config.group_id.is_none() {
            return EngineReply::refused(Error::Config("subscribe needs group.id".into()));
        }
        if topics.is_empty() {
            // As in Kafka's client.
            return self.unsubscribe(UNSUBSCRIBE_TIMEOUT);
        }
        match Subscription::parse(topics) {
            Ok(subscription) => self.ask(|answer| ConsumerCommand::Subscribe(subscription, answer)),
            Err(error) => EngineReply::refused(error),
        }
    }

    /// [`Consumer::unsubscribe`](super::Consumer::unsubscribe).
    pub fn unsubscribe(&self, timeout: Duration) -> EngineReply<()> {
        self.ask(|answer| ConsumerCommand::Unsubscribe(LeavingFor::Unsubscribe, timeout, answer))
    }

    /// [`ConsumerControl::unsubscribe`] for a consumer that is about to close: a static member stays a member until its
    /// session times out, whatever [`GroupHabits`] it has.
    pub fn unsubscribe_to_close(&self, timeout: Duration) -> EngineReply<()> {
        self.ask(|answer| ConsumerCommand::Unsubscribe(LeavingFor::Close, timeout, answer))
    }

    /// Returns the current assignment, in order.
    pub fn assignment(&self) -> Vec<TopicPartition> {
        self.inbox.all_progress().iter().map(|progress| progress.at.clone()).collect()
    }

    /// Returns `true` if the group has taken partitions away (a session timeout, or another member with the same
    /// identity) and no poll has returned [`Event::Lost`](crate::Event::Lost) yet.
    pub fn has_unseen_loss(&self) -> bool {
        self.inbox.has_unseen_losses()
    }

    /// Returns the number of events, errors and fetched records that wait in the consumer's own queue, or in the one that
    /// [`ConsumerControl::split_kept`] returned for a partition. Records that a poll has begun to return are not among them
    /// ([`Consumer::unread_records`](super::Consumer::unread_records)); control records and those of aborted transactions are.
    pub fn waiting_items(&self, of: Option<&TopicPartition>) -> usize {
        self.inbox.waiting_items(of)
    }

    /// Returns `true` if a poll of that queue has something to do. It may return nothing: a partition can have batches without records.
    pub fn has_waiting_items(&self, of: Option<&TopicPartition>) -> bool {
        self.inbox.has_waiting_items(of)
    }

    /// Returns the partitions whose [`Event::Revoked`](crate::Event::Revoked) no poll has returned yet.
    pub fn unseen_revocations(&self) -> Vec<TopicPartition> {
        self.inbox.unseen_revocations()
    }

    /// Continues a partition at another position, and drops its fetched records.
    ///
    /// # Errors
    /// [`Error::NotAssigned`], also for a partition that is being revoked, or whose loss no poll has returned yet;
    /// [`Error::IllegalState`] with [`GroupHabits::Librdkafka`] before the committed offset is known
    /// from which the partition starts.
    pub fn seek(&self, partition: &TopicPartition, to: StartAt) -> EngineReply<()> {
        self.ask(|answer| ConsumerCommand::Seek(partition.clone(), Some(to), answer))
    }

    /// Continues a partition where its `auto.offset.reset` leads, and drops its fetched records.
    ///
    /// # Errors
    /// The errors of [`ConsumerControl::seek`].
    pub fn seek_by_reset(&self, partition: &TopicPartition) -> EngineReply<()> {
        self.ask(|answer| ConsumerCommand::Seek(partition.clone(), None, answer))
    }

    /// Marks all records before this offset as processed: the next commit contains it with its metadata. An offset below 0 removes
    /// the stored one.
    ///
    /// # Errors
    /// [`Error::NotAssigned`] if the partition is not assigned to this consumer, or if no poll has returned its loss yet; then nothing is
    /// stored.
    pub fn store_offset(
        &self,
        partition: &TopicPartition,
        offset: impl Into<OffsetAndMetadata>,
    ) -> Result<(), Error> {
        let progress = self.known_progress(partition).ok_or_else(|| partition.not_assigned())?;
        progress.store(offset.into());
        Ok(())
    }

    /// Returns the progress of a partition in the assignment that the application knows.
    ///
    /// After a loss that no poll has returned, the partition may be assigned again. The application's offset is then one of the lost
    /// assignment: another member may have committed a later one since, which the next commit of the new assignment would replace. A
    /// member whose application applies assignments itself has the lost one until the application gives it up.
    pub(super) fn known_progress(&self, partition: &TopicPartition) -> Option<Arc<PartitionProgress>> {
        let progress = self.inbox.progress(partition)?;
        let is_next = self.config.rebalance == Rebalance::Polled && self.inbox.has_unseen_loss(partition);
        (!is_next).then_some(progress)
    }

    /// Commits these offsets, and none of other partitions.
    ///
    /// # Errors
    /// [`Error::NotAssigned`] for a partition that the group has revoked, so that a late commit does not overwrite its next
    /// owner's. Otherwise the broker's error, which names the first partition whose offset was refused; the others may be committed.
    pub fn commit_offsets(&self, offsets: &[(TopicPartition, OffsetAndMetadata)]) -> PendingCommit {
        self.begin_commit(Some(offsets))
    }

    /// Starts to commit these offsets, or all processed ones (`None`), without waiting. Commits run in the order of their
    /// calls. A close that is called later waits for them, and so does an assignment that ends the membership.
    pub fn begin_commit(&self, offsets: Option<&[(TopicPartition, OffsetAndMetadata)]>) -> PendingCommit {
        self.ask(|answer| match offsets {
            Some(offsets) => {
                ConsumerCommand::CommitOffsets(CommitScope::Owned, offsets.iter().cloned().collect(), answer)
            }
            None => ConsumerCommand::Commit(answer),
        })
    }

    /// [`ConsumerControl::commit_offsets`], with the errors of the partitions whose offsets the coordinator refused. The others are
    /// committed.
    ///
    /// # Errors
    /// The errors of [`ConsumerControl::commit_offsets`] without those of single partitions.
    pub fn commit_offsets_each(
        &self,
        offsets: &[(TopicPartition, OffsetAndMetadata)],
    ) -> EngineReply<BTreeMap<TopicPartition, ErrorCode>> {
        let offsets = offsets.iter().cloned().collect();
        self.ask(|answer| ConsumerCommand::CommitEach(CommitScope::Owned, offsets, answer))
    }

    /// Commits these offsets with the current generation, also of partitions that the consumer does not own, as librdkafka does.
    /// The coordinator does not check who owns a partition: a late commit may overwrite its next owner's. The reply has the
    /// partitions whose offsets the coordinator refused, with its errors; the others are committed.
    ///
    /// # Errors
    /// [`Error::NotAssigned`] for a partition of a lost assignment until the application has given it up. Otherwise the
    /// broker's error for the whole group.
    pub fn commit_named_offsets(
        &self,
        offsets: &[(TopicPartition, OffsetAndMetadata)],
    ) -> EngineReply<BTreeMap<TopicPartition, ErrorCode>> {
        let offsets = offsets.iter().cloned().collect();
        self.ask(|answer| ConsumerCommand::CommitEach(CommitScope::Named, offsets, answer))
    }

    /// Returns a number that changes with each poll of the application. It is odd while a poll waits.
    pub fn poll_count(&self) -> u64 {
        self.polls.count()
    }

    /// Returns processed offsets that are not committed yet.
    pub fn uncommitted(&self) -> BTreeMap<TopicPartition, OffsetAndMetadata> {
        let all_progress = self.inbox.all_progress();
        let habits = self.config.group_habits;
        all_progress
            .iter()
            .filter_map(|progress| Some((progress.at.clone(), progress.uncommitted(habits)?)))
            .collect()
    }

    /// Returns the group's committed offsets of these partitions; partitions without one are missing in the reply.
    pub fn committed(&self, partitions: &[TopicPartition]) -> EngineReply<BTreeMap<TopicPartition, i64>> {
        self.ask(|answer| ConsumerCommand::Committed(partitions.to_vec(), answer))
    }

    /// Returns the group's committed offsets of these partitions with their metadata.
    pub fn committed_offsets(
        &self,
        partitions: &[TopicPartition],
    ) -> EngineReply<BTreeMap<TopicPartition, OffsetAndMetadata>> {
        self.ask(|answer| ConsumerCommand::CommittedOffsets(partitions.to_vec(), answer))
    }

    /// Returns the group's committed offsets of these partitions, each with its own error; partitions without one are missing in
    /// the reply. An error of the whole group is the error of the call.
    pub fn committed_offsets_each(
        &self,
        partitions: &[TopicPartition],
    ) -> EngineReply<BTreeMap<TopicPartition, Result<OffsetAndMetadata, ErrorCode>>> {
        self.ask(|answer| ConsumerCommand::CommittedEach(partitions.to_vec(), answer))
    }

    /// Returns the consumer's identity in its group, for [`Producer::send_offsets_to_transaction`].
    ///
    /// Until a poll has returned [`Event::Lost`](crate::Event::Lost), it is the identity that has lost its partitions, which the
    /// coordinator refuses: a transaction with records of a lost assignment cannot be committed.
    ///
    /// # Errors
    /// [`Error::Config`] without a `group.id`.
    ///
    /// [`Producer::send_offsets_to_transaction`]: crate::Producer::send_offsets_to_transaction
    pub fn group_metadata(&self) -> EngineReply<GroupMetadata> {
        self.ask(ConsumerCommand::GroupMetadata)
    }

    /// Stops fetching these partitions and returning their records; fetched records stay for
    /// [`ConsumerControl::resume`]. Has no effect on a partition whose loss no poll has returned yet: its next assignment, which may
    /// have begun, is not paused.
    ///
    /// With [`GroupHabits::Librdkafka`] a pause lasts until the partition is resumed, also of a partition
    /// that is not assigned: its next assignment is paused.
    pub fn pause(&self, partitions: &[TopicPartition]) {
        self.set_paused(partitions, true);
    }

    /// Resumes these partitions, first with records that were fetched before they were paused.
    pub fn resume(&self, partitions: &[TopicPartition]) {
        self.set_paused(partitions, false);
    }

    fn set_paused(&self, partitions: &[TopicPartition], paused: bool) {
        // Those of the assignment that the application knows: it would never resume the next one, unless its pauses outlast assignments.
        let lasts = self.config.group_habits == GroupHabits::Librdkafka;
        let is_known = |at: &&TopicPartition| lasts || !self.inbox.has_unseen_loss(at);
        let known: Vec<_> = partitions.iter().filter(is_known).cloned().collect();
        for at in &known {
            if lasts {
                self.inbox.pause_in_each_assignment(at, paused);
            } else {
                self.inbox.pause(at, paused);
            }
        }
        let _ = self.sender.send(ConsumerCommand::Pause(known, paused));
    }

    /// Returns the offset after the last processed record, by partition.
    pub fn positions(&self) -> BTreeMap<TopicPartition, i64> {
        let all_progress = self.inbox.all_progress();
        all_progress.iter().filter_map(|progress| Some((progress.at.clone(), progress.done()?))).collect()
    }

    /// Returns the offset of the next record that a poll returns of this partition; `None` if the partition is not
    /// assigned, or its position is not known yet.
    pub fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.inbox.progress(partition)?.position()
    }

    /// Returns the offset after the last record that a poll returned of this partition; `None` before the first record
    /// since the assignment or the last seek.
    pub fn consumed_position(&self, partition: &TopicPartition) -> Option<i64> {
        self.inbox.progress(partition)?.consumed_position()
    }

    /// [`ConsumerControl::consumed_position`] with the epoch of the leader that wrote the last record, if the broker
    /// reported it.
    pub fn consumed_offset(&self, partition: &TopicPartition) -> Option<OffsetAndMetadata> {
        let progress = self.inbox.progress(partition)?;
        let position = progress.consumed_position()?;
        Some(OffsetAndMetadata { leader_epoch: progress.epoch(), ..position.into() })
    }

    /// Returns the watermarks of this partition in the last fetch response, which may be one of an earlier assignment; `None` before
    /// the first.
    pub fn watermarks(&self, partition: &TopicPartition) -> Option<Watermarks> {
        self.inbox.watermarks(partition)
    }

    /// Returns the number of offsets between the position and the partition's end, if both are known.
    pub fn lag(&self, partition: &TopicPartition) -> Option<i64> {
        let progress = self.inbox.progress(partition)?;
        let ends = progress.ends();
        let end = match self.config.isolation_level {
            Isolation::ReadCommitted => ends.last_stable,
            Isolation::ReadUncommitted => ends.high_watermark,
        };
        (end >= 0).then_some((end - progress.position()?).max(0))
    }

    /// [`Consumer::close`](super::Consumer::close): later calls fail.
    pub fn close(&self, timeout: Duration) -> EngineReply<()> {
        self.ask(|answer| ConsumerCommand::Close(timeout, answer))
    }

    pub(super) fn reading(&self) -> ReadContext {
        ReadContext {
            config: self.config.clone(),
            budget: self.inbox.budget.clone(),
            observer: self.client.produce().observer.clone(),
        }
    }

    pub(super) fn ask<T>(
        &self,
        make: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> ConsumerCommand,
    ) -> EngineReply<T> {
        let (answer, received) = oneshot::channel();
        // Without an engine nothing sends the reply, and waiting for it fails with `Error::Closed`.
        let _ = self.sender.send(make(answer));
        EngineReply(received)
    }
}
