//! The requests that a test observes: API, client, response time, and whether they moved records.

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
    /// The time from the arrival of the request to its response.
    pub took: Duration,
    /// `true` for a fetch that returned records and for a produce request that appended records. Always `false` for
    /// other APIs.
    pub moved_records: bool,
    /// The error codes of the response.
    pub errors: ErrorTally,
    /// `false` if the client receives no response: the connection is closed or hangs, or the request wants none.
    pub is_sent: bool,
}

/// Receives every answered request: see [`Cluster::observe_requests`](crate::Cluster::observe_requests).
pub trait RequestObserver: Debug + Send + Sync {
    /// Receives an answered request.
    fn on_answered(&self, request: AnsweredRequest<'_>);
}
