//! Offset operations of the application: store, commit and lookup.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Consumer, ConsumerControl, OffsetAndMetadata, TopicPartition, Watermarks};
use crate::admin::OffsetAt;
use crate::error::Error;

impl Consumer {
    /// Marks all records before this offset as processed: the next commit, automatic or not, includes it and its
    /// metadata. With `enable.auto.offset.store=false`, only this call stores offsets. An offset below 0 removes the stored one.
    ///
    /// # Errors
    /// [`Error::NotAssigned`] if the partition is not assigned to this consumer, or if no poll has returned its loss yet; nothing is
    /// stored.
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
    /// Looks up the offset of the first record with each timestamp or a later one, in milliseconds since 1970. A
    /// timestamp after the last record returns the end offset. The partitions need not be assigned.
    pub async fn offsets_for_times(
        &self,
        wanted: &[(TopicPartition, i64)],
    ) -> Result<BTreeMap<TopicPartition, i64>, Error> {
        let wanted: Vec<_> =
            wanted.iter().map(|(at, timestamp)| (at.clone(), OffsetAt::Timestamp(*timestamp))).collect();
        self.client().admin().list_offsets(&wanted).await
    }

    /// Requests the first and the end offset of a partition from its leader. The partition need not be assigned.
    pub async fn query_watermarks(&self, partition: &TopicPartition) -> Result<Watermarks, Error> {
        let admin = self.client().admin();
        let ask = async |at| {
            let found = admin.list_offsets(&[(partition.clone(), at)]).await?;
            Ok::<_, Error>(found.get(partition).copied().unwrap_or(-1))
        };
        Ok(Watermarks { low: ask(OffsetAt::Earliest).await?, high: ask(OffsetAt::Latest).await? })
    }
}
