//! Errors of a consumer as messages, with the texts of the original: programs search for them.

use std::borrow::Cow;
use std::sync::Weak;

use ottla_client::{Error, ErrorCode, GroupHabits, GroupProtocol, PartitionRequest};

use crate::client::client_errors::fatal_text;
use crate::client::handle::Handle;
use crate::errors::error_mapping::{of as code_of, of_protocol as code_of_broker};
use crate::errors::error_object::description;
use crate::ffi::*;
use crate::messages::message::OwnedMessage;

/// The partition of a message about no partition, as in the original.
pub(crate) const NO_PARTITION: i32 = 0;

/// Returns the message that reports an error of the consumer.
pub(crate) fn error_message(handle: &Weak<Handle>, error: &Error) -> OwnedMessage {
    let (topic, partition, offset) = match error {
        Error::Corrupt { topic, partition, offset, .. }
        | Error::OffsetOutOfRange { topic, partition, offset }
        | Error::LogTruncated { topic, partition, offset, .. }
        | Error::Partition { topic, partition, offset, .. } => (Some(topic), *partition, *offset),
        Error::NotAssigned { topic, partition } | Error::NoStartOffset { topic, partition, .. } => {
            (Some(topic), *partition, RD_KAFKA_OFFSET_INVALID)
        }
        _ => (None, NO_PARTITION, RD_KAFKA_OFFSET_INVALID),
    };
    let handle = handle.upgrade();
    let topic = topic.and_then(|name| Some(handle.as_ref()?.topic(name)));
    if let (Error::Broker { code, .. }, Some(handle)) = (error, &handle)
        && ends_consumer(handle, *code)
    {
        // For instance, another member has the identity: this consumer cannot be used any more.
        let (cause, text) = (code_of(error), error.to_string());
        handle.note_fatal(cause, &text);
        let text = fatal_text(cause, &text);
        return OwnedMessage::error(RD_KAFKA_RESP_ERR__FATAL, &text, topic, partition, offset);
    }
    // Programs search the text of a reset for the description of its cause.
    let cause = match error {
        Error::OffsetOutOfRange { offset: 0.., .. } => Some(RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE),
        Error::OffsetOutOfRange { .. } => Some(RD_KAFKA_RESP_ERR__NO_OFFSET),
        Error::NoStartOffset { code, .. } => Some(code_of_broker(*code)),
        _ => None,
    };
    let (code, text) = match cause {
        Some(cause) => (
            RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET,
            format!("{error} ({})", description(cause).to_string_lossy()),
        ),
        None => (code_of(error), text_of(handle.as_deref(), error)),
    };
    OwnedMessage::error(code, &text, topic, partition, offset)
}

/// Returns `true` if the refusal of a member ends its consumer.
fn ends_consumer(handle: &Handle, code: ErrorCode) -> bool {
    let is_new_protocol = handle.config.group_protocol == GroupProtocol::Consumer;
    code == ErrorCode::FencedInstanceId || is_new_protocol && GroupHabits::Librdkafka.ends_member(code)
}

fn text_of(handle: Option<&Handle>, error: &Error) -> String {
    let described = |code| description(code_of_broker(code)).to_string_lossy();
    match error {
        Error::Partition { request, topic, partition, offset, code } => {
            format!("{}: {}", failed(handle, *request, topic, *partition, *offset, *code), described(*code))
        }
        Error::PollIntervalExceeded { max_ms } => {
            format!("Application maximum poll interval ({max_ms}ms) exceeded")
        }
        Error::Broker { what, code } => format!("{}: {}", refused(what), described(*code)),
        error => error.to_string(),
    }
}

/// The request of a group's member that failed. The client's advice stays, where there is some.
fn refused(what: &str) -> Cow<'_, str> {
    match what.split_once(" of group `") {
        Some((request @ ("JoinGroup" | "SyncGroup"), group)) if !group.contains("`: ") => {
            format!("{request} failed").into()
        }
        Some(("coordinator", _)) => "FindCoordinator response error".into(),
        Some(_) | None => what.into(),
    }
}

/// The request about a partition that failed.
fn failed(
    handle: Option<&Handle>,
    request: PartitionRequest,
    topic: &str,
    partition: i32,
    offset: i64,
    code: ErrorCode,
) -> String {
    match request {
        PartitionRequest::Fetch { node, .. } if code == ErrorCode::TopicAuthorizationFailed => {
            format!("Fetch from broker {node} failed")
        }
        PartitionRequest::Fetch { node, leader_epoch } => {
            format!("Fetch from broker {node} failed at offset {offset} (leader epoch {leader_epoch})")
        }
        PartitionRequest::ListOffsets => {
            let name = if offset == RD_KAFKA_OFFSET_BEGINNING { "BEGINNING" } else { "END" };
            format!("Failed to query logical offset {name}")
        }
        PartitionRequest::OffsetFetch => {
            let group = handle.and_then(|handle| handle.config.group_id.as_deref()).unwrap_or_default();
            format!("Failed to fetch committed offset for group \"{group}\" topic {topic} [{partition}]")
        }
    }
}
