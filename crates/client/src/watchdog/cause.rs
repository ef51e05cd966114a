//! Why a consumer gets no further: a closed list, so that a program can act on each.

use std::fmt;

use ottla_protocol::ErrorCode;

use crate::error::Error;

/// Why a consumer gets no further.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Cause {
    /// The group has no coordinator, or it is not ready.
    NoCoordinator,
    /// The partition has no leader, or its topic is not known.
    NoLeader,
    /// The broker that is needed cannot be connected to.
    NoConnection,
    /// The broker answered with an error that passes; it is asked again after a pause.
    BackOff,
    /// The group shares the partitions out anew, and other members are waited for.
    Rebalance,
    /// The position does not exist, and `auto.offset.reset` is `error`: seek.
    OffsetOutOfRange,
    /// The broker does not take this client for who it says it is, or does not let it.
    Unauthorized,
    /// What polls returned is still held, and takes all of `queued.max.messages.kbytes`: drop it.
    BudgetHeld,
    /// What came waits in the queue: poll.
    NotPolled,
    /// The broker does not answer, or not for this partition.
    NoAnswer,
    /// It was stopped by another error, which a poll returned or will return: seek past it.
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

/// What went wrong last.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub(crate) cause: Cause,
    pub(crate) text: String,
}

impl Trouble {
    pub(crate) fn of(error: &Error) -> Self {
        let cause = match error {
            Error::Broker { code, .. } | Error::Refused { code, .. } => cause_of(*code),
            Error::Unreachable { .. } | Error::Transport { .. } => Cause::NoConnection,
            Error::TimedOut { .. } => Cause::NoAnswer,
            Error::Tls { .. } | Error::Authentication { .. } => Cause::Unauthorized,
            Error::OffsetOutOfRange { .. } | Error::LogTruncated { .. } => Cause::OffsetOutOfRange,
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
        | ErrorCode::UnknownTopicId => Cause::NoLeader,
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
