//! Commands of the application to the consumer's tasks in the engine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use tokio::sync::oneshot;

use super::membership::LeavingFor;
use super::subscription::Subscription;
use crate::config::OffsetReset;
use crate::error::Error;
use crate::fetch::offset_files::OffsetFileSettings;
use crate::fetch::progress::PartitionProgress;
use crate::types::{GroupMetadata, OffsetAndMetadata, StartAt, TopicPartition};

/// The committed offsets of partitions, each with its own error.
pub(crate) type CommittedEach = BTreeMap<TopicPartition, Result<OffsetAndMetadata, ErrorCode>>;

/// The partitions whose offsets the coordinator refused, with its errors. The others of the commit are committed.
pub(crate) type RefusedOffsets = BTreeMap<TopicPartition, ErrorCode>;

/// A command to the consumer's tasks; each has the channel for its reply.
pub(crate) enum ConsumerCommand {
    Assign(AssignmentChange, Vec<(TopicPartition, StartAt)>, oneshot::Sender<Result<(), Error>>),
    Subscribe(Subscription, oneshot::Sender<Result<(), Error>>),
    Unsubscribe(LeavingFor, Duration, oneshot::Sender<Result<(), Error>>),
    Start(TopicPartition, StartAt, StartOptions, oneshot::Sender<Result<(), Error>>),
    Stop(TopicPartition, oneshot::Sender<Result<(), Error>>),
    /// Without a position, `auto.offset.reset` decides.
    Seek(TopicPartition, Option<StartAt>, oneshot::Sender<Result<(), Error>>),
    /// The polling thread has begun this generation, in which the partition is fetched again from an offset.
    Refetch(Arc<PartitionProgress>, u64, i64),
    Pause(Vec<TopicPartition>, bool),
    Commit(oneshot::Sender<Result<(), Error>>),
    CommitOffsets(
        CommitScope,
        BTreeMap<TopicPartition, OffsetAndMetadata>,
        oneshot::Sender<Result<(), Error>>,
    ),
    /// The same, with the error of each partition.
    CommitEach(
        CommitScope,
        BTreeMap<TopicPartition, OffsetAndMetadata>,
        oneshot::Sender<Result<RefusedOffsets, Error>>,
    ),
    GroupMetadata(oneshot::Sender<Result<GroupMetadata, Error>>),
    Committed(Vec<TopicPartition>, oneshot::Sender<Result<BTreeMap<TopicPartition, i64>, Error>>),
    CommittedOffsets(
        Vec<TopicPartition>,
        oneshot::Sender<Result<BTreeMap<TopicPartition, OffsetAndMetadata>, Error>>,
    ),
    CommittedEach(Vec<TopicPartition>, oneshot::Sender<Result<CommittedEach, Error>>),
    /// The application polled after a revocation: the records that it had are processed.
    RevokeSeen,
    Close(Duration, oneshot::Sender<Result<(), Error>>),
}

/// Settings of a standalone partition that override the client's.
#[derive(Clone, Debug)]
pub(crate) struct StartOptions {
    /// The interval of automatic commits; `None` disables them.
    pub(crate) commits: Option<Duration>,
    /// `auto.offset.reset`.
    pub(crate) reset: OffsetReset,
    /// The files for its offset; `None` commits to the coordinator.
    pub(crate) files: Option<OffsetFileSettings>,
}

/// The partitions that a member of a group may commit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CommitScope {
    /// Those that it owns.
    Owned,
    /// All, without those that it has lost and the application has not given up.
    Named,
}

/// The effect of an assignment by the application on the current one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AssignmentChange {
    Replace,
    Add,
    Remove,
}
