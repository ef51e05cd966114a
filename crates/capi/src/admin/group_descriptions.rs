//! Groups with their members.

use std::ffi::{CString, c_char, c_int};
use std::ptr::null;

use ottla_client::{
    AclOperation, Error, ErrorCode, GroupDescription, KeyedResults, MemberDescription, TopicPartition,
};

use super::enum_names::{GROUP_STATES, GROUP_TYPES, number};
use super::layout::{operations, rd_kafka_Node_t};
use super::macros::{array_readers, readers};
use super::{Array, DefaultPointer, List, code, error_object, error_pointer, optional};
use crate::errors::error_object::{description, rd_kafka_error_t};
use crate::ffi::c_strings::{c_string, slashed};
use crate::ffi::panic::on_panic;
use crate::ffi::*;

/// The protocol type of consumer groups.
const CONSUMER: &str = "consumer";

/// A group, or why there is nothing to say of it.
pub struct rd_kafka_ConsumerGroupDescription_t {
    group: CString,
    error: Option<Box<rd_kafka_error_t>>,
    simple: bool,
    assignor: CString,
    state: rd_kafka_consumer_group_state_t,
    kind: rd_kafka_consumer_group_type_t,
    coordinator: Option<rd_kafka_Node_t>,
    operations: Option<Vec<rd_kafka_AclOperation_t>>,
    members: Vec<rd_kafka_MemberDescription_t>,
}

pub struct rd_kafka_MemberDescription_t {
    member: CString,
    instance: Option<CString>,
    client_id: CString,
    host: CString,
    assignment: rd_kafka_MemberAssignment_t,
    target: Option<rd_kafka_MemberAssignment_t>,
}

pub struct rd_kafka_MemberAssignment_t(List);

impl rd_kafka_MemberAssignment_t {
    fn of(partitions: &[TopicPartition]) -> Self {
        let mut list = List::default();
        for at in partitions {
            list.add_with(at, RD_KAFKA_OFFSET_INVALID, RD_KAFKA_RESP_ERR_NO_ERROR);
        }
        Self(list)
    }
}

pub(super) fn described(
    answers: KeyedResults<String, GroupDescription>,
) -> Array<rd_kafka_ConsumerGroupDescription_t> {
    let result = |(group, answer): (String, Result<GroupDescription, Error>)| match answer {
        Ok(found) if found.protocol_type.is_empty() || found.protocol_type == CONSUMER => {
            of_group(&group, &found)
        }
        // A group of Kafka Connect, for instance. Programs show the text, which is librdkafka's.
        Ok(found) => {
            let reason = format!("GroupId {group} is not a consumer group ({}).", found.protocol_type);
            let error = rd_kafka_error_t::new(RD_KAFKA_RESP_ERR__INVALID_ARG, &reason);
            rd_kafka_ConsumerGroupDescription_t { error: Some(error), ..nothing(&group) }
        }
        // As brokers before 4.0 have it: librdkafka asks them in a version that knows no other way (KIP-1043).
        Err(error) if error.broker_code() == Some(ErrorCode::GroupIdNotFound) => {
            rd_kafka_ConsumerGroupDescription_t {
                simple: true,
                state: RD_KAFKA_CONSUMER_GROUP_STATE_DEAD,
                kind: RD_KAFKA_CONSUMER_GROUP_TYPE_CLASSIC,
                coordinator: Some(rd_kafka_Node_t::nowhere()),
                ..nothing(&group)
            }
        }
        Err(error) => {
            rd_kafka_ConsumerGroupDescription_t { error: Some(refusal(&group, &error)), ..nothing(&group) }
        }
    };
    Array::new(answers.into_iter().map(result).collect())
}

/// Returns the error of a group. Programs show the texts, which are librdkafka's: brokers with the newer request have messages for it.
/// An error that is no answer about the group, as that of its coordinator's lookup, has no name of a request.
#[expect(clippy::unnecessary_box_returns, reason = "C gets it")]
fn refusal(group: &str, error: &Error) -> Box<rd_kafka_error_t> {
    let text = match error {
        Error::Refused { message, .. } => format!("ConsumerGroupDescribe: {message}"),
        Error::Broker { what, .. } if *what == format!("group `{group}`") => {
            format!("DescribeConsumerGroups: {}", description(code(error)).to_string_lossy())
        }
        error => return error_object(error),
    };
    rd_kafka_error_t::new(code(error), &text).retriable(error.is_retriable())
}

fn nothing(group: &str) -> rd_kafka_ConsumerGroupDescription_t {
    rd_kafka_ConsumerGroupDescription_t {
        group: c_string(group),
        error: None,
        simple: false,
        assignor: CString::default(),
        state: RD_KAFKA_CONSUMER_GROUP_STATE_UNKNOWN,
        kind: RD_KAFKA_CONSUMER_GROUP_TYPE_UNKNOWN,
        coordinator: None,
        operations: None,
        members: Vec::new(),
    }
}

fn of_group(name: &str, group: &GroupDescription) -> rd_kafka_ConsumerGroupDescription_t {
    let member = |member: &MemberDescription| rd_kafka_MemberDescription_t {
        member: c_string(&member.member),
        instance: member.instance.as_deref().map(c_string),
        client_id: c_string(&member.client_id),
        host: c_string(&slashed(&member.host)),
        assignment: rd_kafka_MemberAssignment_t::of(&member.assignment),
        target: member.target.as_deref().map(rd_kafka_MemberAssignment_t::of),
    };
    rd_kafka_ConsumerGroupDescription_t {
        group: c_string(name),
        error: None,
        simple: group.protocol_type.is_empty(),
        assignor: c_string(&group.protocol),
        state: number(GROUP_STATES, &group.state),
        kind: number(GROUP_TYPES, &group.kind),
        coordinator: Some(rd_kafka_Node_t::of(&group.coordinator_node)),
        operations: codes(group.authorized_operations.as_deref()),
        members: group.members.iter().map(member).collect(),
    }
}

/// Operations as C's numbers.
pub(super) fn codes(operations: Option<&[AclOperation]>) -> Option<Vec<rd_kafka_AclOperation_t>> {
    operations.map(|operations| operations.iter().map(|operation| operation.code().into()).collect())
}

readers! {
    rd_kafka_ConsumerGroupDescription_group_id(rd_kafka_ConsumerGroupDescription_t) -> *const c_char
        [null()] |group| group.group.as_ptr();
    rd_kafka_ConsumerGroupDescription_error(rd_kafka_ConsumerGroupDescription_t) -> *const rd_kafka_error_t
        [null()] |group| error_pointer(group.error.as_deref());
    rd_kafka_ConsumerGroupDescription_is_simple_consumer_group(rd_kafka_ConsumerGroupDescription_t) -> c_int
        [0] |group| group.simple.into();
    rd_kafka_ConsumerGroupDescription_partition_assignor(rd_kafka_ConsumerGroupDescription_t) -> *const c_char
        [null()] |group| group.assignor.as_ptr();
    rd_kafka_ConsumerGroupDescription_state(rd_kafka_ConsumerGroupDescription_t) -> rd_kafka_consumer_group_state_t
        [0] |group| group.state;
    rd_kafka_ConsumerGroupDescription_type(rd_kafka_ConsumerGroupDescription_t) -> rd_kafka_consumer_group_type_t
        [0] |group| group.kind;
    rd_kafka_ConsumerGroupDescription_coordinator(rd_kafka_ConsumerGroupDescription_t) -> *const rd_kafka_Node_t
        [null()] |group| group.coordinator.as_ref().map_or(null(), std::ptr::from_ref);
    rd_kafka_ConsumerGroupDescription_member_count(rd_kafka_ConsumerGroupDescription_t) -> usize
        [0] |group| group.members.len();
    rd_kafka_MemberDescription_consumer_id(rd_kafka_MemberDescription_t) -> *const c_char
        [null()] |member| member.member.as_ptr();
    rd_kafka_MemberDescription_group_instance_id(rd_kafka_MemberDescription_t) -> *const c_char
        [null()] |member| optional(member.instance.as_ref());
    rd_kafka_MemberDescription_client_id(rd_kafka_MemberDescription_t) -> *const c_char
        [null()] |member| member.client_id.as_ptr();
    rd_kafka_MemberDescription_host(rd_kafka_MemberDescription_t) -> *const c_char
        [null()] |member| member.host.as_ptr();
    rd_kafka_MemberDescription_assignment(rd_kafka_MemberDescription_t) -> *const rd_kafka_MemberAssignment_t
        [null()] |member| std::ptr::from_ref(&member.assignment);
    rd_kafka_MemberDescription_target_assignment(rd_kafka_MemberDescription_t) -> *const rd_kafka_MemberAssignment_t
        [null()] |member| member.target.as_ref().map_or(null(), std::ptr::from_ref);
    rd_kafka_MemberAssignment_partitions(rd_kafka_MemberAssignment_t) -> *const rd_kafka_topic_partition_list_t
        [null()] |assignment| assignment.0.as_ptr();
}

array_readers! {
    rd_kafka_ConsumerGroupDescription_authorized_operations(rd_kafka_ConsumerGroupDescription_t)
        -> *const rd_kafka_AclOperation_t, |group| operations(group.operations.as_deref());
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_ConsumerGroupDescription_member(
    grpdesc: *const rd_kafka_ConsumerGroupDescription_t,
    idx: usize,
) -> *const rd_kafka_MemberDescription_t {
    // SAFETY: `grpdesc` is NULL or a `rd_kafka_ConsumerGroupDescription_t` of this library, not yet destroyed
    // (rdkafka.h, `rd_kafka_ConsumerGroupDescription_member`).
    let group = unsafe { grpdesc.as_ref() };
    group.and_then(|group| group.members.get(idx)).map_or(null(), std::ptr::from_ref)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(error: &Error) -> String {
        refusal("billing", error).text().to_string_lossy().into_owned()
    }

    #[test]
    fn the_error_of_a_group_names_the_request_that_was_answered() {
        let refused =
            |what: &str| Error::Broker { what: what.into(), code: ErrorCode::GroupAuthorizationFailed };
        let reason = "Broker: Group authorization failed";
        assert_eq!(text_of(&refused("group `billing`")), format!("DescribeConsumerGroups: {reason}"));
        assert_eq!(text_of(&refused("coordinator of group `billing`")), reason);
        let hidden = Error::Refused {
            what: "group `billing`".into(),
            code: ErrorCode::TopicAuthorizationFailed,
            message: "The group uses hidden topics.".into(),
        };
        assert_eq!(text_of(&hidden), "ConsumerGroupDescribe: The group uses hidden topics.");
    }
}
