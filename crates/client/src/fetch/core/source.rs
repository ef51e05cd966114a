//! Fetches from one broker: the leader of partitions, or a preferred replica.

use std::time::Duration;

use tokio::time::Instant;

use crate::fetch::cursors::Slot;
use crate::fetch::fetch_size::FetchSize;
use crate::fetch::session::Session;
use crate::watchdog::cause::StallReason;

/// A fetch without a response for this long waits for records at the broker. Partitions that are added then do not
/// wait for it.
const LONG_POLL_AFTER: Duration = Duration::from_millis(5);

/// Fetching from one broker.
#[derive(Debug, Default)]
pub(in crate::fetch) struct Source {
    /// Partitions to add to the next fetch, or to request at another offset.
    pub(super) queued: Vec<Slot>,
    pub(super) session: Session,
    /// The fetch in the session that was not answered yet.
    pub(in crate::fetch) in_flight: Option<InFlight>,
    /// The partitions of the fetch outside the session that was not answered yet.
    pub(super) outside_session: Option<Session>,
    /// The time until which no fetch is sent outside the session, because the last one failed.
    pub(super) outside_blocked_until: Option<Instant>,
    pub(super) fetch_size: FetchSize,
    /// Failed fetches in a row.
    pub(super) failures: u32,
    /// The time until which no fetch is sent, because of failures.
    pub(in crate::fetch) blocked_until: Option<Instant>,
    /// Responses in a row without records that came early or with errors.
    pub(super) useless_responses: u32,
    /// Responses so far.
    pub(in crate::fetch) responses: u64,
    /// Requests without a response since the last response.
    pub(super) unanswered: u32,
    /// Why the last fetch failed.
    pub(in crate::fetch) last_error: Option<StallReason>,
    /// `true` if the next fetch waits for room in the budget.
    pub(in crate::fetch) waits_for_room: bool,
    /// `true` if the next fetch starts a new session.
    pub(super) restart_session: bool,
}

/// A fetch in the session that was sent.
#[derive(Clone, Copy, Debug)]
pub(in crate::fetch) struct InFlight {
    pub(super) sent_at: Instant,
    /// The time at which the broker stops waiting for records.
    pub(in crate::fetch) due: Instant,
    /// Bytes of records that the response may contain.
    pub(super) records_bytes: usize,
}

impl Source {
    /// Returns `true` if any fetch waits for its response.
    pub(super) fn is_fetching(&self) -> bool {
        self.in_flight.is_some() || self.outside_session.is_some()
    }

    /// The time at which partitions can be fetched outside the session, if any are queued behind a fetch that waits
    /// for records.
    pub(super) fn outside_session_at(&self, is_arriving: bool) -> Option<Instant> {
        let earliest = self.in_flight.as_ref()?.sent_at + LONG_POLL_AFTER;
        let is_needed = !self.queued.is_empty() && self.outside_session.is_none() && !is_arriving;
        is_needed.then(|| self.outside_blocked_until.map_or(earliest, |until| until.max(earliest)))
    }
}
