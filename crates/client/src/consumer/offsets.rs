//! Offsets as the application handles them: stored, committed, looked up.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Consumer, ConsumerControl, TopicPartition, Watermarks};
use crate::admin::{Admin, OffsetAt};
use crate::error::Error;

/// An offset to be committed: the one of the next record, with what is kept beside it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OffsetAndMetadata {
    /// The offset of the next record to be processed.
    pub offset: i64,
    /// The epoch of the leader that wrote the record before it, if it is known: whoever goes on from here can tell
    /// whether the log is still the same (KIP-320).
    pub leader_epoch: Option<i32>,
    /// A note for whoever reads the offset.
    pub metadata: String,
}

impl From<i64> for OffsetAndMetadata {
    fn from(offset: i64) -> Self {
        Self { offset, ..Self::default() }
    }
}

impl Consumer {
    /// Says that everything before this offset is done: the next commit, automatic or not, has it and what is kept
    /// beside it. With `enable.auto.offset.store=false` this alone says so.
    ///
    /// # Errors
    /// [`Error::NotAssigned`] if the partition is not this consumer's (any more): nothing is stored.
    pub fn store_offset(
        &mut self,
        partition: &TopicPartition,
        offset: impl Into<OffsetAndMetadata>,
    ) -> Result<(), Error> {
        self.reader.forget_handed_out(Some(partition));
        self.control.store_offset(partition, offset)
    }

    /// [`Consumer::commit`] for threads without a runtime.
    pub fn commit_blocking(&mut self, timeout: Duration) -> Result<(), Error> {
        self.reader.finish_handed_out();
        self.begin_commit(None).wait(timeout)
    }
}

impl ConsumerControl {
    /// The offset of the first record with each timestamp or a later one, milliseconds since 1970; past the last record,
    /// the end. The partitions need not be assigned.
    pub async fn offsets_for_times(
        &self,
        wanted: &[(TopicPartition, i64)],
    ) -> Result<BTreeMap<TopicPartition, i64>, Error> {
        let wanted: Vec<_> =
            wanted.iter().map(|(at, timestamp)| (at.clone(), OffsetAt::Timestamp(*timestamp))).collect();
        Admin::of(self.client()).list_offsets(&wanted).await
    }

    /// Where a partition begins and ends, asked of its leader. It need not be assigned.
    pub async fn query_watermarks(&self, partition: &TopicPartition) -> Result<Watermarks, Error> {
        let admin = Admin::of(self.client());
        let ask = async |at| {
            let found = admin.list_offsets(&[(partition.clone(), at)]).await?;
            Ok::<_, Error>(found.get(partition).copied().unwrap_or(-1))
        };
        Ok(Watermarks { low: ask(OffsetAt::Earliest).await?, high: ask(OffsetAt::Latest).await? })
    }
}

pub(crate) fn not_assigned(at: &TopicPartition) -> Error {
    Error::NotAssigned { topic: at.topic.to_string(), partition: at.partition }
}
