//! Causes of a consumer's stall: a closed list, so that a program can act on each.

use std::fmt;

use ottla_protocol::ErrorCode;

use crate::error::Error;

/// The cause of a consumer's stall.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Cause {
    /// The group has no coordinator, or it is not ready.
    NoCoordinator,
    /// The partition has no leader, or its topic is not known.
    NoLeader,
    /// The client cannot connect to the broker.
    NoConnection,
    /// The broker responded with a transient error; the client retries after a pause.
    BackOff,
    /// The group rebalances and waits for other members.
    Rebalance,
    /// The position does not exist, and `auto.offset.reset` is `error`: seek.
    OffsetOutOfRange,
    /// The broker does not authenticate or authorize this client.
    Unauthorized,
    /// Records of earlier polls use all of `queued.max.messages.kbytes`: drop them.
    BudgetHeld,
    /// Records wait in the queue: poll.
    NotPolled,
    /// The broker does not respond, or not for this partition.
    NoAnswer,
    /// Another error, which a poll returns, stopped the partition: seek past it.
    Stopped,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCoordinator => "no coordinator",
            Self::NoLeader => "no leader",
            Self::NoConnection => "no connection",
            Self::BackOff => "in back-off",
            Self::Rebalance => "waiting in a rebalance",
            Self::OffsetOutOfRange => "offset out of range",
            Self::Unauthorized => "not authorized",
            Self::BudgetHeld => "memory is used up by what the application holds",
            Self::NotPolled => "nobody polls",
            Self::NoAnswer => "no answer from the broker",
            Self::Stopped => "stopped by an error",
        })
    }
}

/// The last problem, with its cause.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct StallReason {
    pub(crate) cause: Cause,
    pub(crate) text: String,
}

impl StallReason {
    pub(crate) fn of(error: &Error) -> Self {
        let cause = match error {
            Error::Broker { code, .. } | Error::Refused { code, .. } | Error::Partition { code, .. } => {
                cause_of(*code)
            }
            Error::Unreachable { .. } | Error::Transport { .. } | Error::UnknownHost { .. } => {
                Cause::NoConnection
            }
            Error::TimedOut { .. } => Cause::NoAnswer,
            Error::Tls { .. } | Error::Authentication { .. } => Cause::Unauthorized,
            Error::OffsetOutOfRange { .. } | Error::NoStartOffset { .. } | Error::LogTruncated { .. } => {
                Cause::OffsetOutOfRange
            }
            Error::PollIntervalExceeded { .. } => Cause::NotPolled,
            _ => Cause::Stopped,
        };
        Self { cause, text: error.to_string() }
    }

    pub(crate) fn of_code(code: ErrorCode) -> Self {
        Self { cause: cause_of(code), text: code.to_string() }
    }
}

fn cause_of(code: ErrorCode) -> Cause {
    match code {
        ErrorCode::TopicAuthorizationFailed
        | ErrorCode::GroupAuthorizationFailed
        | ErrorCode::ClusterAuthorizationFailed
        | ErrorCode::SaslAuthenticationFailed => Cause::Unauthorized,
        ErrorCode::NotCoordinator
        | ErrorCode::CoordinatorNotAvailable
        | ErrorCode::CoordinatorLoadInProgress => Cause::NoCoordinator,
        ErrorCode::LeaderNotAvailable
        | ErrorCode::NotLeaderOrFollower
        | ErrorCode::UnknownTopicOrPartition
        | ErrorCode::UnknownTopicId
        | ErrorCode::InconsistentTopicId => Cause::NoLeader,
        ErrorCode::OffsetOutOfRange => Cause::OffsetOutOfRange,
        ErrorCode::RebalanceInProgress
        | ErrorCode::IllegalGeneration
        | ErrorCode::UnknownMemberId
        | ErrorCode::StaleMemberEpoch
        | ErrorCode::FencedMemberEpoch => Cause::Rebalance,
        code if code.is_retriable() => Cause::BackOff,
        _ => Cause::Stopped,
    }
}
