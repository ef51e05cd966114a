//! Operations of a queue: the application gets each as a callback, a message or an event.

use std::any::Any;
use std::ffi::{CString, c_void};
use std::sync::Arc;

use ottla_client::{LogLine, OffsetAndMetadata, Report, ThrottleEvent, TopicPartition};

use crate::callbacks::prepared::CallbackArguments;
use crate::ffi::*;
use crate::messages::message::OwnedMessage;
use crate::produce::delivery_reports::free_payloads;

pub(crate) enum Op {
    /// A fetched record, the end of a partition, or an error of the consumer.
    Message(OwnedMessage),
    /// The delivery reports of one batch; the first `done` are made.
    DeliveryReport {
        report: Report,
        done: usize,
    },
    /// The group assigns (`RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS`) or revokes; `lost` if other members may have the partitions.
    Rebalance {
        err: rd_kafka_resp_err_t,
        partitions: Vec<TopicPartition>,
        lost: bool,
    },
    /// The result of a commit.
    CommitResult(CommitResult),
    /// An error of the client as such.
    Error {
        code: rd_kafka_resp_err_t,
        text: CString,
        fatal: bool,
    },
    Stats(CString),
    /// A broker throttles the client.
    Throttled(ThrottleEvent),
    /// The result of a share consumer's acknowledgements.
    Acknowledged(Box<dyn CallbackArguments>),
    Log(LogLine),
    /// A token for SASL/OAUTHBEARER is wanted; with `sasl.oauthbearer.config`. No other request is added while this one exists.
    TokenRefresh(CString, #[expect(dead_code, reason = "it counts by its existence")] Arc<()>),
    /// The result of a request of the admin interface.
    Result(Outcome),
    /// For tests of queues.
    #[cfg(test)]
    Nothing,
}

pub(crate) type CommittedOffset = (TopicPartition, OffsetAndMetadata, rd_kafka_resp_err_t);

pub(crate) struct CommitResult {
    pub(crate) err: rd_kafka_resp_err_t,
    /// The offsets of the commit, each with its own error.
    pub(crate) offsets: Vec<CommittedOffset>,
    /// The arguments of `rd_kafka_commit_queue`; `None` selects the configuration's function.
    pub(crate) reply: Option<CommitReply>,
}

/// The function and the opaque of one commit. Without a function its result is an event with this opaque, and no call.
#[derive(Clone, Copy)]
pub(crate) struct CommitReply {
    pub(crate) function: Option<CommitCall>,
    pub(crate) opaque: Opaque,
}

pub(crate) type CommitCall = unsafe extern "C" fn(
    *mut rd_kafka_t,
    rd_kafka_resp_err_t,
    *mut rd_kafka_topic_partition_list_t,
    *mut c_void,
);

/// A pointer of the application's that means nothing to us.
#[derive(Clone, Copy)]
pub(crate) struct Opaque(pub(crate) *mut c_void);

// SAFETY: it is never followed, only handed back.
unsafe impl Send for Opaque {}
// SAFETY: as above.
unsafe impl Sync for Opaque {}

impl Default for Opaque {
    fn default() -> Self {
        Self(std::ptr::null_mut())
    }
}

/// The outcome of an admin request; the accessors of its event type read `result`.
pub(crate) struct Outcome {
    pub(crate) kind: rd_kafka_event_type_t,
    pub(crate) err: rd_kafka_resp_err_t,
    pub(crate) text: CString,
    pub(crate) opaque: Opaque,
    pub(crate) result: Box<dyn Any + Send>,
}

impl Op {
    /// The type of its event; `RD_KAFKA_EVENT_NONE` if it has none.
    pub(crate) fn event_type(&self) -> rd_kafka_event_type_t {
        match self {
            Self::Message(_) => RD_KAFKA_EVENT_FETCH,
            Self::DeliveryReport { .. } => RD_KAFKA_EVENT_DR,
            Self::Rebalance { .. } => RD_KAFKA_EVENT_REBALANCE,
            Self::CommitResult(_) => RD_KAFKA_EVENT_OFFSET_COMMIT,
            Self::Error { .. } => RD_KAFKA_EVENT_ERROR,
            Self::Stats(_) => RD_KAFKA_EVENT_STATS,
            Self::Log(_) => RD_KAFKA_EVENT_LOG,
            Self::TokenRefresh(..) => RD_KAFKA_EVENT_OAUTHBEARER_TOKEN_REFRESH,
            Self::Throttled(_) | Self::Acknowledged(_) => RD_KAFKA_EVENT_NONE,
            Self::Result(outcome) => outcome.kind,
            #[cfg(test)]
            Self::Nothing => RD_KAFKA_EVENT_NONE,
        }
    }

    /// Drops an operation that the application does not get, with the payloads that were handed over for it.
    pub(crate) fn discard(self) {
        if let Self::DeliveryReport { report, done } = &self {
            free_payloads(report, *done);
        }
    }
}
