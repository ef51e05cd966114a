//! Answers of the group coordinator that depend on the group's type, over the wire.

use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::alter_share_group_offsets::AlterShareGroupOffsetsRequest;
use ottla_protocol::messages::consumer_group_describe::{Assignment, ConsumerGroupDescribeRequest};
use ottla_protocol::messages::consumer_group_heartbeat::ConsumerGroupHeartbeatRequest;
use ottla_protocol::messages::delete_share_group_offsets::DeleteShareGroupOffsetsRequest;
use ottla_protocol::messages::describe_groups::DescribeGroupsRequest;
use ottla_protocol::messages::describe_share_group_offsets::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
};
use ottla_protocol::messages::find_coordinator::FindCoordinatorRequest;
use ottla_protocol::messages::heartbeat::HeartbeatRequest;
use ottla_protocol::messages::leave_group::LeaveGroupRequest;
use ottla_protocol::messages::list_groups::ListGroupsRequest;
use ottla_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use ottla_protocol::messages::offset_fetch::{OffsetFetchRequest, OffsetFetchRequestGroup};
use ottla_protocol::messages::share_group_describe::ShareGroupDescribeRequest;
use ottla_protocol::messages::share_group_heartbeat::ShareGroupHeartbeatRequest;
use ottla_protocol::messages::sync_group::SyncGroupRequest;
use ottla_protocol::messages::txn_offset_commit::{
    TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};

use crate::common::Raw;
use crate::consumer_groups::{
    beat, describe, join_classic_as, join_classic_request, join_request, partitions, start_with, stay,
};

const NO_INTERVAL: (&str, &str) = ("group.consumer.assignment.interval.ms", "0");

/// They joined, although no migration was permitted.
#[test]
fn classic_members_do_not_join_a_group_of_the_new_protocol_without_a_migration() {
    let properties = [("group.consumer.migration.policy", "disabled")];
    let (_broker, mut connection) = start_with(&MemStorage::new(), &properties);
    assert_eq!(partitions(&beat(&mut connection, &join_request("a"))), 4);
    let refused = join_classic_as(&mut connection, "", "consumer").error_code;
    assert_eq!(refused, ErrorCode::InconsistentGroupProtocol);
    // A group without members is replaced: nothing is migrated.
    assert_eq!(stay(&mut connection, "a", -1).member_epoch, -1);
    assert_eq!(join_classic_as(&mut connection, "", "consumer").error_code, ErrorCode::None);
}

/// They got an id to join with, and only the second request was refused.
#[test]
fn a_full_group_gives_no_ids_to_classic_members() {
    let (_broker, mut connection) = start_with(&MemStorage::new(), &[("group.consumer.max.size", "1")]);
    assert_eq!(partitions(&beat(&mut connection, &join_request("a"))), 4);
    let refused = connection.ask(4, &join_classic_request("", "consumer")).expect("an answer");
    assert_eq!(refused.error_code, ErrorCode::GroupMaxSizeReached);
}

/// Commits an offset of partition 0 of each topic. Returns the error of each.
fn commit_to(connection: &mut Raw, (member, epoch): (&str, i32), topics: &[&str]) -> Vec<ErrorCode> {
    let topic = |name: &&str| OffsetCommitRequestTopic {
        name: (*name).into(),
        partitions: vec![OffsetCommitRequestPartition { committed_offset: 5, ..Default::default() }],
        ..Default::default()
    };
    let request = OffsetCommitRequest {
        group_id: "billing".into(),
        member_id: member.into(),
        generation_id_or_member_epoch: epoch,
        topics: topics.iter().map(topic).collect(),
        ..Default::default()
    };
    let answer = connection.ask(9, &request).expect("an answer");
    answer.topics.iter().map(|topic| topic.partitions[0].error_code).collect()
}

/// The same in a transaction.
fn commit_in_transaction(
    connection: &mut Raw,
    (member, epoch): (&str, i32),
    topics: &[&str],
) -> Vec<ErrorCode> {
    let topic = |name: &&str| TxnOffsetCommitRequestTopic {
        name: (*name).into(),
        partitions: vec![TxnOffsetCommitRequestPartition::default()],
    };
    let request = TxnOffsetCommitRequest {
        group_id: "billing".into(),
        producer_id: 9,
        member_id: member.into(),
        generation_id: epoch,
        topics: topics.iter().map(topic).collect(),
        ..Default::default()
    };
    let answer = connection.ask(3, &request).expect("an answer");
    answer.topics.iter().map(|topic| topic.partitions[0].error_code).collect()
}

/// One topic that was deleted made the member's epoch too old for all partitions of the commit.
#[test]
fn a_commit_is_checked_for_the_partitions_that_exist() {
    const UNKNOWN: ErrorCode = ErrorCode::UnknownTopicOrPartition;
    let (broker, mut connection) = start_with(&MemStorage::new(), &[NO_INTERVAL]);
    broker.cluster().set_transactions_approved(true);
    let epoch = beat(&mut connection, &join_request("a")).member_epoch;
    let names = Some(vec!["orders".into(), "other".into()]);
    let more = ConsumerGroupHeartbeatRequest {
        member_epoch: epoch,
        subscribed_topic_names: names,
        ..join_request("a")
    };
    assert_eq!(beat(&mut connection, &more).member_epoch, epoch + 1);
    for commit in [commit_to, commit_in_transaction] {
        // The member has had its partitions of `orders` since the first epoch.
        let codes = commit(&mut connection, ("a", epoch), &["orders", "gone"]);
        assert_eq!(codes, [ErrorCode::None, UNKNOWN]);
        let codes = commit(&mut connection, ("stranger", epoch), &["orders", "gone"]);
        assert_eq!(codes, [ErrorCode::UnknownMemberId, UNKNOWN]);
        assert_eq!(commit(&mut connection, ("stranger", epoch), &["gone"]), [UNKNOWN]);
    }
}

/// The code was that of a group that does not exist.
#[test]
fn a_member_that_commits_in_a_transaction_is_unknown_to_a_group_without_members() {
    let (broker, mut connection) = start_with(&MemStorage::new(), &[]);
    broker.cluster().set_transactions_approved(true);
    let commit = |connection: &mut Raw| commit_in_transaction(connection, ("a", 1), &["orders"]);
    assert_eq!(commit(&mut connection), [ErrorCode::IllegalGeneration], "there is no group");
    assert_eq!(commit_to(&mut connection, ("", -1), &["orders"]), [ErrorCode::None]);
    assert_eq!(commit(&mut connection), [ErrorCode::UnknownMemberId], "it has offsets only");
    let member_id = join_classic_as(&mut connection, "", "consumer").member_id;
    let leave = LeaveGroupRequest { group_id: "billing".into(), member_id, ..Default::default() };
    assert_eq!(connection.ask(2, &leave).expect("an answer").error_code, ErrorCode::None);
    assert_eq!(commit(&mut connection), [ErrorCode::UnknownMemberId], "its member has left");
}

/// They were missing, although the group is described without an error.
#[test]
fn dead_groups_are_described_with_the_authorized_operations() {
    let (_broker, mut connection) = start_with(&MemStorage::new(), &[]);
    let groups = vec!["missing".into()];
    let request = DescribeGroupsRequest { groups, include_authorized_operations: true };
    let mut described = |version| {
        let group = connection.ask(version, &request).expect("an answer").groups.remove(0);
        (group.error_code, group.authorized_operations)
    };
    // READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS.
    let bits: i32 = [3, 6, 8, 10, 11].iter().map(|bit| 1 << bit).sum();
    assert_eq!([described(3), described(5)], [(ErrorCode::None, bits); 2]);
    assert_eq!(described(6), (ErrorCode::GroupIdNotFound, i32::MIN));
}

/// They were in no assignment, although the member consumes them.
#[test]
fn partitions_that_a_member_must_give_up_are_described_with_its_assignment() {
    let (_broker, mut connection) = start_with(&MemStorage::new(), &[NO_INTERVAL]);
    let epoch = beat(&mut connection, &join_request("a")).member_epoch;
    beat(&mut connection, &join_request("b"));
    assert_eq!(partitions(&stay(&mut connection, "a", epoch)), 2, "it has to give up two");
    let group = describe(&mut connection);
    let member = group.members.iter().find(|member| member.member_id == "a").expect("a member");
    let count = |assignment: &Assignment| -> usize {
        assignment.topic_partitions.iter().map(|topic| topic.partitions.len()).sum()
    };
    assert_eq!((count(&member.assignment), count(&member.target_assignment)), (4, 2));
}

/// It was null, which Kafka never sends.
#[test]
fn a_member_without_a_pattern_is_described_with_an_empty_one() {
    let (_broker, mut connection) = start_with(&MemStorage::new(), &[]);
    let pattern = |pattern: Option<&str>| ConsumerGroupHeartbeatRequest {
        subscribed_topic_regex: pattern.map(str::to_owned),
        ..join_request("a")
    };
    for (joins, described) in [(None, ""), (Some("o.*"), "o.*"), (Some(""), "")] {
        assert_eq!(beat(&mut connection, &pattern(joins)).error_code, ErrorCode::None);
        let member = describe(&mut connection).members.remove(0);
        assert_eq!(member.subscribed_topic_regex.as_deref(), Some(described));
    }
}

/// Java's clients show the text: it said of a group of the new protocol that it does not exist.
#[test]
fn descriptions_of_classic_groups_name_the_reason_why_there_is_none() {
    let (_broker, mut connection) = start_with(&MemStorage::new(), &[]);
    let request = DescribeGroupsRequest { groups: vec!["billing".into()], ..Default::default() };
    let text = |connection: &mut Raw| {
        let group = connection.ask(6, &request).expect("an answer").groups.remove(0);
        assert_eq!((group.error_code, &*group.group_state), (ErrorCode::GroupIdNotFound, "Dead"));
        group.error_message.expect("a reason")
    };
    assert_eq!(text(&mut connection), "Group billing not found.");
    beat(&mut connection, &join_request("a"));
    assert_eq!(text(&mut connection), "group `billing` is not a classic group");
}

/// The answers were those about a group or a member that does not exist.
#[test]
fn the_group_without_a_name_has_no_members() {
    let (_broker, mut connection) = start_with(&MemStorage::new(), &[]);
    let unnamed = vec![String::new()];
    let consumers = ConsumerGroupDescribeRequest { group_ids: unnamed.clone(), ..Default::default() };
    let shares = ShareGroupDescribeRequest { group_ids: unnamed.clone(), ..Default::default() };
    let codes = [
        connection.ask(3, &SyncGroupRequest::default()).expect("an answer").error_code,
        connection.ask(3, &HeartbeatRequest::default()).expect("an answer").error_code,
        connection.ask(2, &LeaveGroupRequest::default()).expect("an answer").error_code,
        connection.ask(1, &consumers).expect("an answer").groups[0].error_code,
        connection.ask(1, &shares).expect("an answer").groups[0].error_code,
        connection.ask(0, &OffsetDeleteRequest::default()).expect("an answer").error_code,
        connection.ask(0, &AlterShareGroupOffsetsRequest::default()).expect("an answer").error_code,
        connection.ask(0, &DeleteShareGroupOffsetsRequest::default()).expect("an answer").error_code,
    ];
    assert_eq!(codes, [ErrorCode::InvalidGroupId; 8]);
    // It is a group in the requests for classic groups and for offsets.
    let classic = DescribeGroupsRequest { groups: unnamed, ..Default::default() };
    let classic = connection.ask(5, &classic).expect("an answer").groups.remove(0);
    assert_eq!((classic.error_code, &*classic.group_state), (ErrorCode::None, "Dead"));
}

/// An empty id named no member.
#[test]
fn offsets_of_a_group_of_the_new_protocol_are_read_without_a_member_or_by_one() {
    let (_broker, mut connection) = start_with(&MemStorage::new(), &[]);
    let epoch = beat(&mut connection, &join_request("a")).member_epoch;
    let mut code = |member_id: Option<&str>, member_epoch| {
        let member_id = member_id.map(str::to_owned);
        let group = OffsetFetchRequestGroup {
            group_id: "billing".into(),
            member_id,
            member_epoch,
            ..Default::default()
        };
        let request = OffsetFetchRequest { groups: vec![group], ..Default::default() };
        connection.ask(9, &request).expect("an answer").groups[0].error_code
    };
    assert_eq!([code(None, -1), code(Some("a"), epoch)], [ErrorCode::None; 2]);
    assert_eq!([code(Some(""), -1), code(Some("b"), epoch)], [ErrorCode::UnknownMemberId; 2]);
    assert_eq!(code(Some("a"), epoch + 1), ErrorCode::StaleMemberEpoch);
}

/// The group did not exist until the transaction was committed.
#[test]
fn a_group_with_offsets_of_an_open_transaction_exists() {
    let (broker, mut connection) = start_with(&MemStorage::new(), &[]);
    broker.cluster().set_transactions_approved(true);
    assert_eq!(commit_in_transaction(&mut connection, ("", -1), &["orders"]), [ErrorCode::None]);
    let listed = connection.ask(5, &ListGroupsRequest::default()).expect("an answer").groups;
    let listed: Vec<_> = listed.iter().map(|it| (&*it.group_id, &*it.group_state, &*it.group_type)).collect();
    assert_eq!(listed, [("billing", "Empty", "classic")]);
    let describe = DescribeGroupsRequest { groups: vec!["billing".into()], ..Default::default() };
    let described = connection.ask(6, &describe).expect("an answer").groups.remove(0);
    assert_eq!((described.error_code, &*described.group_state), (ErrorCode::None, "Empty"));
    assert_eq!(commit_to(&mut connection, ("a", 1), &["orders"]), [ErrorCode::UnknownMemberId]);
    let partitions = vec![OffsetDeleteRequestPartition { partition_index: 0 }];
    let topics = vec![OffsetDeleteRequestTopic { name: "orders".into(), partitions }];
    let delete = OffsetDeleteRequest { group_id: "billing".into(), topics };
    let deleted = connection.ask(0, &delete).expect("an answer");
    let partition = deleted.topics.first().map(|topic| topic.partitions[0].error_code);
    assert_eq!((deleted.error_code, partition), (ErrorCode::None, Some(ErrorCode::None)));
}

/// They joined. Kafka gives them neither partitions nor records.
#[test]
fn share_group_members_with_long_ids_do_not_join() {
    let (_broker, mut connection) = start_with(&MemStorage::new(), &[]);
    let mut code = |characters: usize| {
        let request = ShareGroupHeartbeatRequest {
            group_id: "shares".into(),
            member_id: "m".repeat(characters),
            subscribed_topic_names: Some(vec!["orders".into()]),
            ..Default::default()
        };
        connection.ask(1, &request).expect("an answer").error_code
    };
    assert_eq!([code(37), code(0)], [ErrorCode::InvalidRequest; 2]);
    assert_eq!(code(36), ErrorCode::None);
}

/// The partition had the error, as no partition of Kafka's answers has.
#[test]
fn a_share_partition_whose_state_cannot_be_read_has_no_start_offset() {
    let (_broker, mut connection) = start_with(&MemStorage::new(), &[]);
    let missing = vec![99];
    let topic = DescribeShareGroupOffsetsRequestTopic { topic_name: "orders".into(), partitions: missing };
    let topics = Some(vec![topic]);
    let group = DescribeShareGroupOffsetsRequestGroup { group_id: "shares".into(), topics };
    let request = DescribeShareGroupOffsetsRequest { groups: vec![group] };
    let mut group = connection.ask(1, &request).expect("an answer").groups.remove(0);
    let partition = group.topics.remove(0).partitions.remove(0);
    assert_eq!((partition.partition_index, partition.error_code), (99, ErrorCode::None));
    assert_eq!((partition.start_offset, partition.leader_epoch, partition.lag), (-1, 0, -1));
}

/// The version of the request was not supported.
#[test]
fn coordinators_of_an_unknown_type_are_an_invalid_request() {
    let (_broker, mut connection) = start_with(&MemStorage::new(), &[]);
    let request = FindCoordinatorRequest { key: "billing".into(), key_type: 3, ..Default::default() };
    assert_eq!(connection.ask(3, &request).expect("an answer").error_code, ErrorCode::InvalidRequest);
    let coordinator_keys = vec!["billing".into(), "other".into()];
    let request = FindCoordinatorRequest { key_type: -1, coordinator_keys, ..Default::default() };
    let found = connection.ask(6, &request).expect("an answer").coordinators;
    let codes: Vec<ErrorCode> = found.iter().map(|coordinator| coordinator.error_code).collect();
    assert_eq!(codes, [ErrorCode::InvalidRequest; 2]);
}
