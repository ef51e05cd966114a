//! The methods of [`ConsumerControl`](super::ConsumerControl) that the consumer has as well.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_protocol::Uuid;

use super::{
    Consumer, EngineReply, OffsetAndMetadata, PartitionQueue, PendingCommit, StartAt, TopicPartition,
    Watermarks,
};
use crate::client::Client;
use crate::config::TopicConfig;
use crate::error::Error;
use crate::types::GroupMetadata;

impl Consumer {
    /// Returns the client that the consumer runs on.
    pub fn client(&self) -> &Client {
        self.control.client()
    }

    /// Calls [`Client::client_instance_id`].
    ///
    /// # Errors
    /// The errors of [`Client::client_instance_id`].
    pub async fn client_instance_id(&self, timeout: Duration) -> Result<Uuid, Error> {
        self.control.client().client_instance_id(timeout).await
    }

    /// Calls [`ConsumerControl::incremental_assign`](super::ConsumerControl::incremental_assign).
    pub fn incremental_assign(&self, partitions: &[(TopicPartition, StartAt)]) -> EngineReply<()> {
        self.control.incremental_assign(partitions)
    }

    /// Calls [`ConsumerControl::incremental_unassign`](super::ConsumerControl::incremental_unassign).
    pub fn incremental_unassign(&self, partitions: &[TopicPartition]) -> EngineReply<()> {
        self.control.incremental_unassign(partitions)
    }

    /// Returns the current assignment, in order.
    pub fn assignment(&self) -> Vec<TopicPartition> {
        self.control.assignment()
    }

    /// Calls [`ConsumerControl::commit_offsets`](super::ConsumerControl::commit_offsets).
    pub fn commit_offsets(&self, offsets: &[(TopicPartition, OffsetAndMetadata)]) -> PendingCommit {
        self.control.commit_offsets(offsets)
    }

    /// Calls [`ConsumerControl::begin_commit`](super::ConsumerControl::begin_commit).
    pub fn begin_commit(&self, offsets: Option<&[(TopicPartition, OffsetAndMetadata)]>) -> PendingCommit {
        self.control.begin_commit(offsets)
    }

    /// Returns the offsets that are ready to be committed and are not committed yet.
    pub fn uncommitted(&self) -> BTreeMap<TopicPartition, OffsetAndMetadata> {
        self.control.uncommitted()
    }

    /// Calls [`ConsumerControl::committed`](super::ConsumerControl::committed).
    pub fn committed(&self, partitions: &[TopicPartition]) -> EngineReply<BTreeMap<TopicPartition, i64>> {
        self.control.committed(partitions)
    }

    /// Calls [`ConsumerControl::committed_offsets`](super::ConsumerControl::committed_offsets).
    pub fn committed_offsets(
        &self,
        partitions: &[TopicPartition],
    ) -> EngineReply<BTreeMap<TopicPartition, OffsetAndMetadata>> {
        self.control.committed_offsets(partitions)
    }

    /// Calls [`ConsumerControl::group_metadata`](super::ConsumerControl::group_metadata).
    pub fn group_metadata(&self) -> EngineReply<GroupMetadata> {
        self.control.group_metadata()
    }

    /// Stops fetching these partitions and returning their records; keeps what is fetched already.
    pub fn pause(&self, partitions: &[TopicPartition]) {
        self.control.pause(partitions);
    }

    /// Resumes these partitions, first with what was fetched before they were paused.
    pub fn resume(&self, partitions: &[TopicPartition]) {
        self.control.resume(partitions);
    }

    /// Calls [`ConsumerControl::positions`](super::ConsumerControl::positions).
    pub fn positions(&self) -> BTreeMap<TopicPartition, i64> {
        self.control.positions()
    }

    /// Calls [`ConsumerControl::position`](super::ConsumerControl::position).
    pub fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.control.position(partition)
    }

    /// Calls [`ConsumerControl::watermarks`](super::ConsumerControl::watermarks).
    pub fn watermarks(&self, partition: &TopicPartition) -> Option<Watermarks> {
        self.control.watermarks(partition)
    }

    /// Calls [`ConsumerControl::lag`](super::ConsumerControl::lag).
    pub fn lag(&self, partition: &TopicPartition) -> Option<i64> {
        self.control.lag(partition)
    }

    /// Calls [`ConsumerControl::split`](super::ConsumerControl::split).
    ///
    /// # Errors
    /// [`Error::NotAssigned`].
    pub fn split(&self, partition: &TopicPartition) -> Result<PartitionQueue, Error> {
        self.control.split(partition)
    }

    /// Calls [`ConsumerControl::start`](super::ConsumerControl::start).
    pub fn start(&self, partition: &TopicPartition, from: StartAt) -> EngineReply<()> {
        self.control.start(partition, from)
    }

    /// Calls [`ConsumerControl::start_with`](super::ConsumerControl::start_with).
    pub fn start_with(
        &self,
        partition: &TopicPartition,
        from: StartAt,
        settings: &TopicConfig,
    ) -> EngineReply<()> {
        self.control.start_with(partition, from, settings)
    }

    /// Calls [`ConsumerControl::offsets_for_times`](super::ConsumerControl::offsets_for_times).
    ///
    /// # Errors
    /// The error of the request.
    pub async fn offsets_for_times(
        &self,
        wanted: &[(TopicPartition, i64)],
    ) -> Result<BTreeMap<TopicPartition, i64>, Error> {
        self.control.offsets_for_times(wanted).await
    }

    /// Calls [`ConsumerControl::query_watermarks`](super::ConsumerControl::query_watermarks).
    ///
    /// # Errors
    /// The error of the request.
    pub async fn query_watermarks(&self, partition: &TopicPartition) -> Result<Watermarks, Error> {
        self.control.query_watermarks(partition).await
    }
}
