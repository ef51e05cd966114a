//! ReadShareGroupState, WriteShareGroupState, InitializeShareGroupState, DeleteShareGroupState, ReadShareGroupStateSummary: the
//! share coordinator as brokers of a cluster see it.
//!
//! The share-partition leaders and the group coordinator of this process call the coordinator directly.

use std::sync::Arc;

use ottla_protocol::messages as m;
use ottla_protocol::{ErrorCode, Uuid};

use super::{Api, RequestContext};
use crate::coordinator::share_state::{SharePartitionKey, StateBatch, StateChange, UNINITIALIZED};

/// A share-partition of a request, if this node coordinates it.
fn coordinated(
    context: &RequestContext,
    group: &Arc<str>,
    topic: Uuid,
    partition: i32,
) -> Result<SharePartitionKey, ErrorCode> {
    let key = SharePartitionKey { group: group.clone(), topic, partition };
    if group.is_empty() || topic == Uuid::ZERO || partition < 0 {
        return Err(ErrorCode::InvalidRequest);
    }
    if context.cluster().share_coordinator(&key.coordinator_key()) != context.node() {
        return Err(ErrorCode::NotCoordinator);
    }
    Ok(key)
}

fn message_of(code: ErrorCode) -> Option<String> {
    (code != ErrorCode::None).then(|| code.to_string())
}

macro_rules! state_api {
    ($module:ident, $request:ident, $response:ident, $topic:ident, |$context:ident, $key:ident, $partition:ident| $call:expr, |$answer:ident| $fields:expr) => {
        impl Api for m::$module::$request {
            async fn handle(self, $context: RequestContext) -> m::$module::$response {
                let group: Arc<str> = self.group_id.into();
                let mut results = Vec::with_capacity(self.topics.len());
                for topic in self.topics {
                    let mut partitions = Vec::with_capacity(topic.partitions.len());
                    for $partition in topic.partitions {
                        let index = $partition.partition;
                        let result = match coordinated(&$context, &group, topic.topic_id, index) {
                            Ok($key) => $call,
                            Err(code) => Err(code),
                        };
                        let result = match result {
                            Ok($answer) => m::$module::PartitionResult { partition: index, ..$fields },
                            Err(code) => refused_partition::$module(index, code),
                        };
                        partitions.push(result);
                    }
                    results.push(m::$module::$topic { topic_id: topic.topic_id, partitions });
                }
                m::$module::$response { results }
            }

            fn refuse(self, _context: &RequestContext, code: ErrorCode) -> m::$module::$response {
                let results = self.topics.into_iter().map(|topic| {
                    let partitions = topic.partitions.into_iter();
                    let partitions =
                        partitions.map(|partition| refused_partition::$module(partition.partition, code));
                    m::$module::$topic { topic_id: topic.topic_id, partitions: partitions.collect() }
                });
                m::$module::$response { results: results.collect() }
            }
        }
    };
}

/// The results of partitions that are refused.
mod refused_partition {
    use super::{ErrorCode, UNINITIALIZED, m, message_of};

    macro_rules! refused {
        ($($module:ident { $($field:ident: $value:expr),* }),* $(,)?) => {
            $(pub(super) fn $module(partition: i32, code: ErrorCode) -> m::$module::PartitionResult {
                m::$module::PartitionResult {
                    partition,
                    error_code: code,
                    error_message: message_of(code),
                    $($field: $value,)*
                    ..Default::default()
                }
            })*
        };
    }

    refused! {
        read_share_group_state { start_offset: UNINITIALIZED },
        read_share_group_state_summary { start_offset: UNINITIALIZED },
    }

    pub(super) fn write_share_group_state(
        partition: i32,
        error_code: ErrorCode,
    ) -> m::write_share_group_state::PartitionResult {
        let error_message = message_of(error_code);
        m::write_share_group_state::PartitionResult { partition, error_code, error_message }
    }

    pub(super) fn initialize_share_group_state(
        partition: i32,
        error_code: ErrorCode,
    ) -> m::initialize_share_group_state::PartitionResult {
        let error_message = message_of(error_code);
        m::initialize_share_group_state::PartitionResult { partition, error_code, error_message }
    }

    pub(super) fn delete_share_group_state(
        partition: i32,
        error_code: ErrorCode,
    ) -> m::delete_share_group_state::PartitionResult {
        let error_message = message_of(error_code);
        m::delete_share_group_state::PartitionResult { partition, error_code, error_message }
    }
}

state_api!(
    read_share_group_state,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    |context, key, partition| {
        let cluster = context.cluster();
        cluster.share_states.read(cluster, &key, partition.leader_epoch).await
    },
    |state| m::read_share_group_state::PartitionResult {
        state_epoch: state.state_epoch,
        start_offset: state.start_offset,
        state_batches: state
            .batches
            .iter()
            .map(|batch| m::read_share_group_state::StateBatch {
                first_offset: batch.first,
                last_offset: batch.last,
                delivery_state: batch.state,
                delivery_count: batch.delivery_count,
            })
            .collect(),
        ..Default::default()
    }
);

state_api!(
    write_share_group_state,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
    |context, key, partition| {
        let batches = partition.state_batches.into_iter().map(|batch| StateBatch {
            first: batch.first_offset,
            last: batch.last_offset,
            state: batch.delivery_state,
            delivery_count: batch.delivery_count,
        });
        let change = StateChange {
            state_epoch: partition.state_epoch,
            leader_epoch: partition.leader_epoch,
            start_offset: partition.start_offset,
            delivery_complete_count: partition.delivery_complete_count,
            batches: batches.collect(),
        };
        let cluster = context.cluster();
        // A leader stores what it has acknowledged in any case.
        if cluster.share_states.has_room_for(change.batches.len()) {
            cluster.share_states.write(cluster, &key, change).await
        } else {
            Err(ErrorCode::PolicyViolation)
        }
    },
    |_done| m::write_share_group_state::PartitionResult::default()
);

state_api!(
    initialize_share_group_state,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    |context, key, partition| {
        let cluster = context.cluster();
        cluster.share_states.initialize(cluster, &key, partition.state_epoch, partition.start_offset).await
    },
    |_done| m::initialize_share_group_state::PartitionResult::default()
);

state_api!(
    delete_share_group_state,
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    |context, key, partition| {
        let cluster = context.cluster();
        cluster.share_states.delete(cluster, &key).await
    },
    |_done| m::delete_share_group_state::PartitionResult::default()
);

state_api!(
    read_share_group_state_summary,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
    |context, key, partition| {
        let cluster = context.cluster();
        cluster.share_states.summary(cluster, &key).await
    },
    |state| m::read_share_group_state_summary::PartitionResult {
        state_epoch: state.state_epoch,
        leader_epoch: state.leader_epoch,
        start_offset: state.start_offset,
        delivery_complete_count: state.delivery_complete_count,
        ..Default::default()
    }
);
