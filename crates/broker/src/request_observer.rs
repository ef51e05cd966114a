//! Requests as a test sees them: what was answered, to whom, and whether it brought anything.

use std::fmt::Debug;
use std::time::Duration;

use ottla_protocol::ApiKey;

/// A request that was answered, or whose connection was closed instead.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredRequest<'a> {
    /// The node it was sent to.
    pub node: i32,
    /// The API.
    pub api: ApiKey,
    /// The client that sent it.
    pub client_id: &'a str,
    /// The time from its arrival to its answer.
    pub took: Duration,
    /// Whether it moved records: a fetch that returned some, a produce request that appended some. Always `false` for other
    /// APIs.
    pub moved_records: bool,
}

/// Receives every answered request: see [`Cluster::observe_requests`](crate::Cluster::observe_requests).
pub trait RequestObserver: Debug + Send + Sync {
    /// A request was answered.
    fn on_answered(&self, request: AnsweredRequest<'_>);
}
