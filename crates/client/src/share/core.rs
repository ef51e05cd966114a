//! The decisions of a share consumer: which leader gets which request, and what each response means. Sync: no clock, lock,
//! channel or runtime.

mod response;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::time::Instant;

use super::acknowledgements::{AckRange, PartitionAcks, TopicIdPartition};
use super::queue::{AckOutcome, AcquiredChunk, Demand};
use super::session::{AcknowledgePart, FetchPart, ShareSession};
use crate::config::{Config, ShareAcquireMode};
use crate::error::Error;
use crate::types::TopicPartition;
use crate::watchdog::cause::StallReason;

/// The most bytes of one response. Whole batches of `max.poll.records` records are usually far below it.
const FETCH_BYTES_MAX: usize = 1 << 20;
/// The duration of acquisition locks until a response has it: the default of brokers.
const LOCK_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Bounds of the pause after a failed request, which doubles.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The part of the configuration that decisions need.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShareSettings {
    pub(super) acquire_mode: ShareAcquireMode,
    pub(super) max_poll_records: usize,
    pub(super) fetch_max_bytes: usize,
    pub(super) fetch_wait_max: Duration,
    pub(super) retry_backoff: Duration,
}

impl ShareSettings {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            acquire_mode: config.share_acquire_mode,
            max_poll_records: config.max_poll_records,
            fetch_max_bytes: config.fetch_max_bytes,
            fetch_wait_max: config.fetch_wait_max,
            retry_backoff: config.retry_backoff,
        }
    }

    fn pause(&self, failures: u32) -> Duration {
        self.retry_backoff.saturating_mul(1 << failures.min(5)).min(PAUSE_MAX)
    }
}

/// Facts at the moment of a decision.
pub(super) trait ShareView {
    /// The leader of a partition; `None` if it is unknown, or if the topic has another id by now.
    fn leader(&self, key: TopicIdPartition, at: &TopicPartition) -> Option<i32>;
    /// Bytes of the budget that are free.
    fn room(&self) -> usize;
}

/// Work for the owner of a [`ShareCore`], in the order in which it must be performed.
#[derive(Debug)]
pub(super) enum ShareAction {
    /// Send this ShareFetch. The result goes into [`ShareCore::on_fetched`].
    Fetch(FetchRequest),
    /// Send this ShareAcknowledge. The result goes into [`ShareCore::on_acknowledged`].
    Acknowledge(AcknowledgeRequest),
    /// Give the records of one response to the polling thread.
    Deliver(Vec<AcquiredChunk>),
    /// Acknowledgements are settled.
    Settle(AckOutcome),
    /// The leader has released its records: remove those that no poll has returned.
    DropChunks { node: i32 },
    /// A response names another leader.
    LearnLeader { at: TopicPartition, named_by: i32, leader: i32, leader_epoch: i32 },
    /// Request fresh metadata soon.
    RefreshMetadata,
    /// Report an error to the application.
    Report(Error),
}

/// A ShareFetch request to send.
#[derive(Debug)]
pub(super) struct FetchRequest {
    pub(super) node: i32,
    pub(super) session: FetchPart,
    /// The time that the broker may wait for records.
    pub(super) wait: Duration,
    /// Bytes of the budget to reserve for the response.
    pub(super) bytes: usize,
    pub(super) max_records: usize,
    pub(super) unanswered: u32,
}

/// A ShareAcknowledge request to send.
#[derive(Debug)]
pub(super) struct AcknowledgeRequest {
    pub(super) node: i32,
    pub(super) session: AcknowledgePart,
    pub(super) renews: bool,
}

/// A leader of assigned partitions, or of records that are not acknowledged.
#[derive(Debug, Default)]
pub(super) struct ShareLeader {
    session: ShareSession,
    /// Acknowledgements that no request carries yet.
    pending: Vec<PartitionAcks>,
    pub(super) in_flight: Option<InFlight>,
    /// `true` if the next fetch may be sent ahead of a poll: the last one had records.
    prefetches: bool,
    /// Failed requests in a row.
    failures: u32,
    /// Responses without records in a row that came before the end of their wait.
    useless_responses: u32,
    pub(super) blocked_until: Option<Instant>,
    unanswered: u32,
    pub(super) responses: u64,
    pub(super) last_error: Option<StallReason>,
    pub(super) waits_for_room: bool,
}

impl ShareLeader {
    fn has_due_acks(&self, now: Instant) -> bool {
        self.pending.iter().any(|acks| acks.is_due(now))
    }

    /// Takes the acknowledgements that wait for the end of no pause.
    fn take_due_acks(&mut self, now: Instant) -> Vec<PartitionAcks> {
        self.pending.extract_if(.., |acks| acks.is_due(now)).collect()
    }

    /// The end of the first pause of acknowledgements.
    fn next_retry(&self, now: Instant) -> Option<Instant> {
        self.pending.iter().filter_map(|acks| acks.retry_at).filter(|at| *at > now).min()
    }
}

/// A request without a response so far.
#[derive(Debug)]
pub(super) struct InFlight {
    acks: Vec<PartitionAcks>,
    is_fetch: bool,
    closes: bool,
    /// The time at which the broker stops waiting for records.
    pub(super) due: Instant,
}

/// The fetch and acknowledgement state of one share consumer.
///
/// It owns a session per leader. The owner calls [`update`](Self::update) after each event, performs the actions that
/// [`poll_action`](Self::poll_action) returns, and calls `on_fetched` or `on_acknowledged` once for each request, whatever
/// happens to it. A leader gets one request at a time, because each one carries the next epoch of the session.
#[derive(Debug)]
pub(super) struct ShareCore {
    settings: ShareSettings,
    assigned: BTreeMap<TopicIdPartition, TopicPartition>,
    /// The names of all partitions that were assigned: records may be acquired after the end of the assignment.
    names: BTreeMap<TopicIdPartition, TopicPartition>,
    pub(super) leaders: BTreeMap<i32, ShareLeader>,
    actions: VecDeque<ShareAction>,
    /// `true` if acknowledgements do not wait for a fetch that carries them.
    commits: bool,
    /// `true` if the sessions are being closed.
    closes: bool,
    /// In the mode `record_limit`, the leader that was fetched from last.
    last_fetched: Option<i32>,
    /// The duration of acquisition locks.
    lock_timeout: Duration,
    wake_at: Option<Instant>,
}

impl ShareCore {
    pub(super) fn new(settings: ShareSettings) -> Self {
        Self {
            settings,
            assigned: BTreeMap::new(),
            names: BTreeMap::new(),
            leaders: BTreeMap::new(),
            actions: VecDeque::new(),
            commits: false,
            closes: false,
            last_fetched: None,
            lock_timeout: LOCK_TIMEOUT_DEFAULT,
            wake_at: None,
        }
    }

    /// Replaces the assignment.
    pub(super) fn assign(&mut self, assigned: BTreeMap<TopicIdPartition, TopicPartition>) {
        self.names.extend(assigned.iter().map(|(key, at)| (*key, at.clone())));
        self.assigned = assigned;
    }

    pub(super) fn assigned(&self) -> &BTreeMap<TopicIdPartition, TopicPartition> {
        &self.assigned
    }

    /// The leaders that have a session, in ascending order.
    pub(super) fn leaders_with_session(&self) -> impl Iterator<Item = i32> + Clone {
        self.leaders.iter().filter(|(_, leader)| leader.session.is_open()).map(|(node, _)| *node)
    }

    /// Sends pending acknowledgements without waiting for a fetch, until all are settled.
    pub(super) fn commit(&mut self) {
        self.commits = true;
    }

    /// Closes the sessions with the pending acknowledgements. No fetch follows.
    pub(super) fn close(&mut self) {
        self.closes = true;
    }

    /// Returns `true` after [`close`](Self::close), once all sessions are closed.
    pub(super) fn is_closed(&self) -> bool {
        self.closes && self.leaders.is_empty()
    }

    /// Returns `true` if acknowledgements with these ids are not settled.
    pub(super) fn has_unsettled(&self, ids: &RangeInclusive<u64>) -> bool {
        self.unsettled(ids).next().is_some()
    }

    /// The partitions with acknowledgements of these ids that are not settled; one may come several times.
    pub(super) fn unsettled(&self, ids: &RangeInclusive<u64>) -> impl Iterator<Item = &TopicPartition> {
        let all = self.leaders.values().flat_map(|leader| {
            let sent = leader.in_flight.iter().flat_map(|in_flight| &in_flight.acks);
            leader.pending.iter().chain(sent)
        });
        let ids = ids.clone();
        all.filter(move |acks| ids.contains(&acks.id)).map(|acks| &acks.at)
    }

    /// The time at which [`update`](Self::update) must be called again.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.wake_at
    }

    pub(super) fn poll_action(&mut self) -> Option<ShareAction> {
        self.actions.pop_front()
    }

    /// Decides which requests are sent now.
    pub(super) fn update(&mut self, now: Instant, demand: Demand, view: &dyn ShareView) {
        for acks in demand.acks {
            let session = self.leaders.get_mut(&acks.node).filter(|leader| leader.session.is_open());
            if view.leader(acks.key, &acks.at).is_some_and(|leader| leader != acks.node) {
                self.actions.push_back(lost_leader(acks));
            } else if let Some(leader) = session {
                leader.pending.push(acks);
            } else {
                self.actions.push_back(without_session(acks));
            }
        }
        self.wake_at = None;
        let wanted = self.wanted_by_leader(view);
        for node in wanted.keys() {
            self.leaders.entry(*node).or_default();
        }
        let none = BTreeSet::new();
        let mut room = view.room();
        for node in self.in_turn() {
            let wanted = wanted.get(&node).unwrap_or(&none);
            let may_prefetch = !demand.polls_only && !demand.queued.contains_key(&node);
            self.update_leader(node, now, wanted, demand.is_waiting, may_prefetch, &mut room);
        }
        let retries = self.leaders.values().filter(|leader| leader.in_flight.is_none());
        let next_retry = retries.filter_map(|leader| leader.next_retry(now)).min();
        self.wake_at = self.wake_at.into_iter().chain(next_retry).min();
        let is_needed = |leader: &ShareLeader| leader.in_flight.is_some() || !leader.pending.is_empty();
        self.leaders.retain(|node, leader| {
            leader.session.is_open() || wanted.contains_key(node) && !self.closes || is_needed(leader)
        });
        if self.leaders.values().all(|leader| !is_needed(leader)) {
            self.commits = false;
        }
    }

    fn wanted_by_leader(&self, view: &dyn ShareView) -> BTreeMap<i32, BTreeSet<TopicIdPartition>> {
        let mut wanted: BTreeMap<i32, BTreeSet<TopicIdPartition>> = BTreeMap::new();
        if !self.closes {
            for (key, at) in &self.assigned {
                if let Some(node) = view.leader(*key, at) {
                    wanted.entry(node).or_default().insert(*key);
                }
            }
        }
        wanted
    }

    /// The leaders, beginning after the one that was fetched from last.
    fn in_turn(&self) -> Vec<i32> {
        let mut nodes: Vec<i32> = self.leaders.keys().copied().collect();
        let first = nodes.partition_point(|node| Some(*node) <= self.last_fetched);
        nodes.rotate_left(first);
        nodes
    }

    fn update_leader(
        &mut self,
        node: i32,
        now: Instant,
        wanted: &BTreeSet<TopicIdPartition>,
        is_waiting: bool,
        may_prefetch: bool,
        room: &mut usize,
    ) {
        let is_limited = self.settings.acquire_mode == ShareAcquireMode::RecordLimit;
        let is_fetching = |leader: &ShareLeader| leader.in_flight.as_ref().is_some_and(|sent| sent.is_fetch);
        let others_fetch = is_limited && self.leaders.values().any(is_fetching);
        let Some(leader) = self.leaders.get_mut(&node) else { return };
        if leader.in_flight.is_some() {
            return;
        }
        if let Some(until) = leader.blocked_until.filter(|until| *until > now) {
            if !wanted.is_empty() || !leader.pending.is_empty() || self.closes {
                self.wake_at = Some(self.wake_at.map_or(until, |at| at.min(until)));
            }
            return;
        }
        let is_open = leader.session.is_open();
        let has_acks = leader.has_due_acks(now);
        if self.closes && is_open {
            return self.acknowledge(node, now, true);
        }
        if !is_open && wanted.is_empty() {
            return self.fail_pending(node);
        }
        let is_urgent =
            |acks: &PartitionAcks| acks.is_due(now) && (acks.renews() || !wanted.contains(&acks.key));
        if is_open && has_acks && (self.commits || leader.pending.iter().any(is_urgent)) {
            return self.acknowledge(node, now, false);
        }
        // A session opens without records to wait for, so that it can carry acknowledgements soon.
        let waits = is_waiting && (is_open || !has_acks);
        let is_ahead = !is_limited && leader.prefetches && may_prefetch;
        let is_due = is_waiting && !others_fetch || is_ahead || (!is_open && has_acks);
        leader.waits_for_room = false;
        if is_due && !wanted.is_empty() {
            let bytes = self.settings.fetch_max_bytes.min(FETCH_BYTES_MAX);
            if *room >= bytes {
                *room -= bytes;
                return self.fetch(node, now, wanted, waits, bytes);
            }
            leader.waits_for_room = true;
        }
        if is_open && has_acks {
            self.acknowledge(node, now, false);
        }
    }

    fn fetch(
        &mut self,
        node: i32,
        now: Instant,
        wanted: &BTreeSet<TopicIdPartition>,
        waits: bool,
        bytes: usize,
    ) {
        let Some(leader) = self.leaders.get_mut(&node) else { return };
        let acks = if leader.session.is_open() { leader.take_due_acks(now) } else { Vec::new() };
        let session = leader.session.fetch(wanted, &acks);
        let wait = if waits { self.settings.fetch_wait_max } else { Duration::ZERO };
        leader.in_flight = Some(InFlight { acks, is_fetch: true, closes: false, due: now + wait });
        leader.prefetches = false;
        self.last_fetched = Some(node);
        let (max_records, unanswered) = (self.settings.max_poll_records, leader.unanswered);
        let request = FetchRequest { node, session, wait, bytes, max_records, unanswered };
        self.actions.push_back(ShareAction::Fetch(request));
    }

    fn acknowledge(&mut self, node: i32, now: Instant, closes: bool) {
        let Some(leader) = self.leaders.get_mut(&node) else { return };
        let mut due = leader.take_due_acks(now);
        if closes {
            due.append(&mut leader.pending);
        }
        let (mut renewals, mut others) = (Vec::new(), Vec::new());
        for (of_batch, rest) in due.into_iter().map(PartitionAcks::split_renewals) {
            renewals.extend(of_batch);
            others.extend(rest);
        }
        let acks = if closes {
            // Closing releases the records, so that nothing is left to renew.
            self.actions.extend(renewals.into_iter().map(|acks| settled(acks, Err(Error::Closed))));
            others
        } else if others.is_empty() {
            renewals
        } else {
            // They follow in the next request: a broker that renews no locks, or not in this group, refuses all of a request.
            leader.pending.append(&mut renewals);
            others
        };
        let renews = acks.iter().any(PartitionAcks::renews);
        let session = leader.session.acknowledge(&acks, closes);
        leader.in_flight = Some(InFlight { acks, is_fetch: false, closes, due: now });
        self.actions.push_back(ShareAction::Acknowledge(AcknowledgeRequest { node, session, renews }));
    }

    /// The session is lost and none follows: the broker has released the records.
    fn fail_pending(&mut self, node: i32) {
        let Some(leader) = self.leaders.get_mut(&node) else { return };
        self.actions.extend(std::mem::take(&mut leader.pending).into_iter().map(without_session));
    }
}

/// The action that settles acknowledgements of records that the broker has released with their session.
fn without_session(acks: PartitionAcks) -> ShareAction {
    let what = format!("acknowledging records of {}", acks.at);
    settled(acks, Err(Error::Broker { what, code: ottla_protocol::ErrorCode::InvalidShareSessionEpoch }))
}

/// The action that settles acknowledgements of records that the broker has released with the leadership.
fn lost_leader(acks: PartitionAcks) -> ShareAction {
    let what = format!("acknowledging records of {}", acks.at);
    settled(acks, Err(Error::Broker { what, code: ottla_protocol::ErrorCode::NotLeaderOrFollower }))
}

/// The action that settles acknowledgements.
fn settled(acks: PartitionAcks, result: Result<(), Error>) -> ShareAction {
    let PartitionAcks { id, at, ranges, .. } = acks;
    let ranges: Vec<AckRange> = ranges;
    ShareAction::Settle(AckOutcome { id, at, ranges, result })
}
