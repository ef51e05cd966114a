//! The events that a test observes: requests with API, client, response time and whether they moved records, and the records of share groups.

use std::fmt::Debug;
use std::time::Duration;

use ottla_protocol::{ApiKey, ErrorTally};

/// A request that was answered, or whose connection was closed instead.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredRequest<'a> {
    /// The node that received the request.
    pub node: i32,
    /// The API.
    pub api: ApiKey,
    /// The version of the request.
    pub version: i16,
    /// The client that sent it.
    pub client_id: &'a str,
    /// The time from the arrival of the request to its response, with the delays that tests have set.
    pub took: Duration,
    /// `true` for a fetch that returned records and for a produce request that appended records. Always `false` for
    /// other APIs.
    pub moved_records: bool,
    /// The error codes of the response.
    pub errors: ErrorTally,
    /// `false` if the client receives no whole response: the connection is closed or hangs, or the request wants none.
    pub is_sent: bool,
}

/// Records of a share group at their leader.
#[derive(Clone, Copy, Debug)]
pub struct ShareEvent<'a> {
    /// The group.
    pub group: &'a str,
    /// The member id.
    pub member: &'a str,
    /// The topic.
    pub topic: &'a str,
    /// The partition.
    pub partition: i32,
    /// The event.
    pub kind: ShareEventKind,
}

/// An event of records of a share group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ShareEventKind {
    /// The member has acquired records: they are in the response to its fetch.
    Acquired {
        /// The first offset.
        first: i64,
        /// The last offset.
        last: i64,
        /// The number of deliveries, with this one.
        delivery_count: i16,
        /// The duration of the lock.
        lock: Duration,
        /// The epoch of the leader.
        leader_epoch: i32,
    },
    /// The leader takes an acknowledgement of the member. It is not stored yet.
    Acknowledged {
        /// The first offset.
        first: i64,
        /// The last offset.
        last: i64,
        /// The type, with Kafka's number.
        acknowledge_type: i8,
    },
    /// The session of the member has ended. All of its locks in the partition end.
    Released,
}

/// Receives every answered request: see [`Cluster::observe_requests`](crate::Cluster::observe_requests).
pub trait RequestObserver: Debug + Send + Sync {
    /// Receives an answered request.
    fn on_answered(&self, request: AnsweredRequest<'_>);

    /// Receives what happens to records of share groups, in the order in which it happens.
    fn on_share_event(&self, _event: ShareEvent<'_>) {}
}
