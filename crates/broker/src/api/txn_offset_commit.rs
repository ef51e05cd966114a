//! TxnOffsetCommit: offsets of a group that count when a producer's transaction is committed.
//!
//! Version 3 brought the member and its generation (KIP-447), so that a member that has lost its partitions is refused.
//! Version 5 adds the group's partition to the transaction by itself (KIP-890).

use ottla_protocol::messages::txn_offset_commit::{
    TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use ottla_protocol::{ErrorCode, Uuid};

use super::groups::coordinate;
use super::offsets::{check_offset, is_unknown};
use super::{Api, RequestContext};
use crate::coordinator::offsets::{At, Committed};
use crate::internal_topics::Producer;
use crate::partition::Partition;
use crate::transaction_approval::ApprovalRequest;
use crate::transactions::metadata::{ProducerIdentity, TopicPartition};

/// From this version on, the group's partition is added to the transaction (KIP-890).
const ADDS_PARTITION_FROM: i16 = 5;
/// From this version on, producers know TRANSACTION_ABORTABLE.
const KNOWS_ABORTABLE_FROM: i16 = 4;

impl Api for TxnOffsetCommitRequest {
    async fn handle(self, context: RequestContext) -> TxnOffsetCommitResponse {
        match commit(&self, &context).await {
            Ok(codes) => {
                let mut codes = codes.into_iter();
                respond(self, |_, _| codes.next().unwrap_or(ErrorCode::UnknownServerError))
            }
            // As in Kafka, partitions that do not exist have their own error.
            Err(code) => respond(self, |topic, partition| {
                let own = check(&context, topic, partition);
                if is_unknown(own) { own } else { code }
            }),
        }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> TxnOffsetCommitResponse {
        respond(self, |_, _| code)
    }
}

/// Commits the offsets that can be committed. Returns the error of each one, in the order of the request.
async fn commit(
    request: &TxnOffsetCommitRequest,
    context: &RequestContext,
) -> Result<Vec<ErrorCode>, ErrorCode> {
    let group_id = &request.group_id;
    if group_id.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    let cluster = context.cluster();
    let partition = coordinate(context, group_id).await?;
    let ids_before = topic_ids(request, context);
    let codes = check_all(request, context, &ids_before);
    if codes.iter().all(|code| is_unknown(*code)) {
        return Ok(codes);
    }
    check_member(request, context, &codes)?;
    let producer = Producer { id: request.producer_id, epoch: request.producer_epoch };
    approve(request, context, &partition).await?;
    // Again: the member may have left, and topics may be deleted, since the transaction's coordinator was asked.
    let ids = topic_ids(request, context);
    let codes = check_all(request, context, &ids_before);
    check_member(request, context, &codes)?;
    let offsets = offsets_of(request, &codes, cluster.clock.now_ms());
    // Again, under the lock of the log: the transaction may have ended since it was approved, and another thread may have deleted a topic.
    let is_open = || {
        if topic_ids(request, context) != ids {
            return Err(ErrorCode::CoordinatorLoadInProgress);
        }
        let at = TopicPartition { topic: partition.topic.clone(), index: partition.index };
        let identity = ProducerIdentity { id: producer.id, epoch: producer.epoch };
        cluster.check_open(&request.transactional_id, identity, &at).map_err(code_of_denial)
    };
    match cluster.commit_offsets_in_transaction(&partition, group_id, producer, offsets, is_open).await {
        // There is no room for the offsets: the producer may abort and go on.
        Err(ErrorCode::PolicyViolation) if context.version >= KNOWS_ABORTABLE_FROM => {
            Err(ErrorCode::TransactionAbortable)
        }
        result => result.map(|()| codes),
    }
}

/// Refuses a member that is not in the group's current generation, and a group that has no such offsets. `codes` are the errors of
/// the offsets: the group decides about those without one.
fn check_member(
    request: &TxnOffsetCommitRequest,
    context: &RequestContext,
    codes: &[ErrorCode],
) -> Result<(), ErrorCode> {
    let TxnOffsetCommitRequest { group_id, generation_id, member_id, group_instance_id, .. } = request;
    let cluster = context.cluster();
    if cluster.share_groups.contains(group_id) {
        return Err(ErrorCode::GroupIdNotFound);
    }
    let instance_id = group_instance_id.as_deref();
    let places = request.topics.iter().zip(topic_ids(request, context)).flat_map(|(topic, id)| {
        topic.partitions.iter().map(move |partition| (id, partition.partition_index))
    });
    let places = places.zip(codes).filter(|(_, code)| **code == ErrorCode::None).map(|(place, _)| place);
    let is_of_producer = *generation_id < 0 && member_id.is_empty() && instance_id.is_none();
    let checked = cluster.consumer_groups.look(group_id, |group| {
        if is_of_producer { Ok(()) } else { group.check_commit(member_id, *generation_id, true, places) }
    });
    checked.map_or_else(
        || {
            // A group that has offsets only has no members.
            let has_offsets = cluster.offsets.has_offsets(group_id);
            let absent = if has_offsets { ErrorCode::UnknownMemberId } else { ErrorCode::IllegalGeneration };
            let (groups, generation) = (&cluster.groups, *generation_id);
            groups.check_commit_in_transaction(group_id, member_id, instance_id, generation, absent)
        },
        |checked| checked.map_err(code_in_transaction),
    )
}

/// The id of each topic, if it exists.
fn topic_ids(request: &TxnOffsetCommitRequest, context: &RequestContext) -> Vec<Option<Uuid>> {
    let id = |name: &str| context.cluster().topic(name).map(|topic| topic.id);
    request.topics.iter().map(|topic| id(&topic.name)).collect()
}

/// Returns the error of each offset. A topic that has another id than before was deleted meanwhile.
fn check_all(
    request: &TxnOffsetCommitRequest,
    context: &RequestContext,
    ids_before: &[Option<Uuid>],
) -> Vec<ErrorCode> {
    let ids = topic_ids(request, context);
    let mut codes = Vec::new();
    for ((topic, id), id_before) in request.topics.iter().zip(ids).zip(ids_before) {
        codes.extend(topic.partitions.iter().map(|partition| {
            if id == *id_before {
                check(context, &topic.name, partition)
            } else {
                ErrorCode::UnknownTopicOrPartition
            }
        }));
    }
    codes
}

/// The offsets without an error.
fn offsets_of(request: &TxnOffsetCommitRequest, codes: &[ErrorCode], now_ms: i64) -> Vec<(At, Committed)> {
    let all = request.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(move |partition| {
            let metadata = partition.committed_metadata.clone().unwrap_or_default();
            let epoch = partition.committed_leader_epoch;
            let committed = Committed::new(partition.committed_offset, epoch, metadata, now_ms);
            ((topic.name.clone(), partition.partition_index), committed)
        })
    });
    all.zip(codes).filter(|(_, code)| **code == ErrorCode::None).map(|(offset, _)| offset).collect()
}

/// Kafka's code for a member epoch that is not current: producers know the old name of it only, and take others for fatal.
fn code_in_transaction(code: ErrorCode) -> ErrorCode {
    if code == ErrorCode::StaleMemberEpoch { ErrorCode::IllegalGeneration } else { code }
}

/// Asks the coordinator of the transaction for its approval of the group's partition.
async fn approve(
    request: &TxnOffsetCommitRequest,
    context: &RequestContext,
    partition: &Partition,
) -> Result<(), ErrorCode> {
    let approval = ApprovalRequest {
        transactional_id: request.transactional_id.clone(),
        producer_id: request.producer_id,
        producer_epoch: request.producer_epoch,
        partitions: vec![(partition.topic.clone(), partition.index)],
        adds_partitions: context.version >= ADDS_PARTITION_FROM,
        knows_abortable: context.version >= KNOWS_ABORTABLE_FROM,
    };
    let approved = context.cluster().approve_transaction(approval).await;
    approved.into_iter().next().unwrap_or(Err(ErrorCode::UnknownServerError)).map_err(code_of_denial)
}

/// The retriable error of this request, in the place of that of Produce.
fn code_of_denial(code: ErrorCode) -> ErrorCode {
    if code == ErrorCode::NotEnoughReplicas { ErrorCode::CoordinatorLoadInProgress } else { code }
}

fn check(context: &RequestContext, topic: &str, partition: &TxnOffsetCommitRequestPartition) -> ErrorCode {
    check_offset(context, topic, partition.partition_index, partition.committed_metadata.as_deref())
}

fn respond(
    request: TxnOffsetCommitRequest,
    mut code: impl FnMut(&str, &TxnOffsetCommitRequestPartition) -> ErrorCode,
) -> TxnOffsetCommitResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| TxnOffsetCommitResponsePartition {
            partition_index: partition.partition_index,
            error_code: code(&topic.name, partition),
        });
        TxnOffsetCommitResponseTopic { partitions: partitions.collect(), name: topic.name }
    });
    TxnOffsetCommitResponse { topics: topics.collect(), ..Default::default() }
}
