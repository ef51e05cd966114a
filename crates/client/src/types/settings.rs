//! Values of properties.

use std::time::Duration;

use ottla_protocol::ErrorCode;

/// The condition under which a broker acknowledges a record.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Acks {
    /// None: the record counts as delivered when it is written to the socket.
    None,
    /// The leader has appended the record.
    Leader,
    /// All in-sync replicas have the record; on an Ottla broker, it is on disk.
    #[default]
    All,
}

impl Acks {
    pub(crate) const fn code(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Leader => 1,
            Self::All => -1,
        }
    }
}

/// The offset to start from when a group has no committed offset, or the position no longer exists.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OffsetReset {
    /// The oldest record.
    Earliest,
    /// The next record to be written.
    #[default]
    Latest,
    /// The first record of at most this age (KIP-1106).
    ByDuration(Duration),
    /// None: the poll returns an error.
    Error,
}

/// The visibility of transactional records.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Isolation {
    /// All records.
    ReadUncommitted,
    /// Only records of committed transactions.
    #[default]
    ReadCommitted,
}

/// The way in which the group's assignment is applied to the consumer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Rebalance {
    /// The consumer applies it: it fetches assigned partitions at once, and releases revoked ones at the next poll,
    /// when the application has processed their records.
    #[default]
    Polled,
    /// The consumer applies it, without events and without waiting for a poll. With [`GroupHabits::Librdkafka`], a member keeps its
    /// membership when the application changes the assignment; the group's next assignment replaces that.
    Silent,
    /// The application applies it. After [`Event::Assigned`](crate::Event::Assigned), it calls `assign` or
    /// `incremental_assign`. After `Revoked` and `Lost`, it calls `assign` without partitions or
    /// `incremental_unassign`. Any thread may call them, with other partitions and offsets. The group waits for the
    /// application for at most `max.poll.interval.ms`. Until that call, lost partitions stay assigned without being fetched
    /// or committed. After `unsubscribe`, a poll returns `Revoked`, and the call that removes the partitions lets the
    /// consumer leave its group.
    Application,
}

/// The behaviour of a member of a group where clients differ.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum GroupHabits {
    /// A member joins although none of its topics exists. Its first heartbeat comes after an interval. A static member
    /// never leaves.
    #[default]
    Java,
    /// A member joins when the first of its topics exists, and sends a heartbeat at once. A static member leaves when it unsubscribes, and does not
    /// leave when it is closed. A consumer looks up its coordinator when it is created. The partitions of deleted topics are lost.
    /// With `cooperative-sticky`, a member that has too many partitions gives up its first ones. In the new protocol topics that
    /// do not exist are not reported, and more refusals are final. A broker's UNKNOWN_SERVER_ERROR for a partition is reported, once
    /// until the partition has another answer, and the request is repeated. A rebalance, and a lookup of committed offsets, waits for
    /// the commits that the application has begun. A pause of a partition outlasts its assignment.
    Librdkafka,
}

impl GroupHabits {
    /// Returns `true` if a member of the new protocol (KIP-848) does not join again after the coordinator refused it with this code.
    pub fn ends_member(self, code: ErrorCode) -> bool {
        let is_final_in_librdkafka = matches!(
            code,
            ErrorCode::GroupIdNotFound
                | ErrorCode::InvalidRequest
                | ErrorCode::GroupMaxSizeReached
                | ErrorCode::UnsupportedAssignor
                | ErrorCode::UnreleasedInstanceId
                | ErrorCode::GroupAuthorizationFailed
        );
        code == ErrorCode::FencedInstanceId || self == Self::Librdkafka && is_final_in_librdkafka
    }
}

/// The rebalance protocol of a group.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum GroupProtocol {
    /// The group's leader assigns partitions.
    #[default]
    Classic,
    /// The coordinator assigns partitions (KIP-848).
    Consumer,
}

/// The way in which a share consumer acknowledges records (`share.acknowledgement.mode`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ShareAcknowledgementMode {
    /// The next poll or commit accepts the records of the last poll.
    #[default]
    Implicit,
    /// The application acknowledges each record before it polls again.
    Explicit,
}

/// The records that a share consumer acquires at once (`share.acquire.mode`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ShareAcquireMode {
    /// Whole batches, ahead of the next poll; a poll may return more than `max.poll.records`.
    #[default]
    BatchOptimized,
    /// At most `max.poll.records`, and only during a poll.
    RecordLimit,
}
