//! What lies in a queue until the application takes it: by a callback, as a message, or as an event.

use std::any::Any;
use std::ffi::{CString, c_void};

use ottla_client::{LogLine, OffsetAndMetadata, Report, Throttled, TopicPartition};

use crate::ffi::*;
use crate::message::Owned;

pub(crate) enum Op {
    /// A fetched record, the end of a partition, or an error of the consumer.
    Message(Owned),
    /// What became of one batch's records; the first `done` of them are reported.
    Delivered {
        report: Report,
        done: usize,
    },
    /// The group gives (`RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS`) or takes back; `lost` when they are somebody else's already.
    Rebalance {
        err: rd_kafka_resp_err_t,
        partitions: Vec<TopicPartition>,
        lost: bool,
    },
    /// What became of a commit.
    Committed(Committed),
    /// An error of the client as such.
    Error {
        code: rd_kafka_resp_err_t,
        text: CString,
        fatal: bool,
    },
    Stats(CString),
    /// A broker asks to be left alone for a while.
    Throttled(Throttled),
    Log(LogLine),
    /// A token for SASL/OAUTHBEARER is wanted; with `sasl.oauthbearer.config`.
    TokenWanted(CString),
    #[allow(dead_code, reason = "for the admin interface")]
    /// The result of a request of the admin interface.
    Result(Outcome),
    /// For tests of queues.
    #[cfg(test)]
    Nothing,
}

pub(crate) struct Committed {
    pub(crate) err: rd_kafka_resp_err_t,
    pub(crate) offsets: Vec<(TopicPartition, OffsetAndMetadata)>,
    /// Who asked for this one commit; otherwise it is whoever the configuration names.
    pub(crate) call: Option<(CommitCall, Opaque)>,
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

/// What an admin request came to; `result` is for the accessors of that kind of event.
pub(crate) struct Outcome {
    pub(crate) kind: rd_kafka_event_type_t,
    pub(crate) err: rd_kafka_resp_err_t,
    pub(crate) text: CString,
    pub(crate) opaque: Opaque,
    #[allow(dead_code, reason = "for the admin interface")]
    pub(crate) result: Box<dyn Any + Send>,
}

impl Op {
    /// Which kind of event it is for who reads events; `RD_KAFKA_EVENT_NONE` for what is none.
    pub(crate) fn event_type(&self) -> rd_kafka_event_type_t {
        match self {
            Self::Message(_) => RD_KAFKA_EVENT_FETCH,
            Self::Delivered { .. } => RD_KAFKA_EVENT_DR,
            Self::Rebalance { .. } => RD_KAFKA_EVENT_REBALANCE,
            Self::Committed(_) => RD_KAFKA_EVENT_OFFSET_COMMIT,
            Self::Error { .. } => RD_KAFKA_EVENT_ERROR,
            Self::Stats(_) => RD_KAFKA_EVENT_STATS,
            Self::Log(_) => RD_KAFKA_EVENT_LOG,
            Self::TokenWanted(_) => RD_KAFKA_EVENT_OAUTHBEARER_TOKEN_REFRESH,
            Self::Throttled(_) => RD_KAFKA_EVENT_NONE,
            Self::Result(outcome) => outcome.kind,
            #[cfg(test)]
            Self::Nothing => RD_KAFKA_EVENT_NONE,
        }
    }
}
