//! Commands of the application to the tasks of a share consumer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::acknowledgements::PartitionAcks;
use crate::error::Error;
use crate::types::TopicPartition;

/// The result of a commit, by partition.
pub(crate) type CommitResults = BTreeMap<TopicPartition, Result<(), Error>>;

/// A command to the tasks; each has the channel for its reply.
#[derive(Debug)]
pub(crate) enum ShareCommand {
    /// Replaces the subscription; an empty one leaves the group.
    Subscribe(BTreeSet<Arc<str>>, oneshot::Sender<Result<(), Error>>),
    /// Sends acknowledgements, and waits until those with the ids from `from` up to `up_to` are settled.
    Commit {
        /// They come with the command: results that arrived before it would belong to no commit.
        acks: Vec<PartitionAcks>,
        /// The first acknowledgements whose results are wanted; `None` for all since the last commit.
        from: Option<u64>,
        up_to: u64,
        /// The time of the reply with the results so far, if some are missing. It has none of a partition that misses one.
        reply_at: Option<Instant>,
        reply: oneshot::Sender<Result<CommitResults, Error>>,
    },
    Assignment(oneshot::Sender<Result<Vec<TopicPartition>, Error>>),
    /// Sends acknowledgements and ends, within the time.
    Close {
        /// They come with the command: a fetch that carried them would acquire the released records again, and their delivery
        /// would count.
        acks: Vec<PartitionAcks>,
        timeout: Duration,
        reply: oneshot::Sender<Result<(), Error>>,
    },
}
