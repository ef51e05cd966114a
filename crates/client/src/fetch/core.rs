//! The decisions of fetching: which broker gets a Fetch request, for which partitions and how many bytes, and what each
//! response means for the cursors. Sync: no clock, lock, channel or runtime.

pub(super) mod action;
#[cfg(test)]
mod created_again;
#[cfg(test)]
mod damaged;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod model;
mod response;
#[cfg(test)]
mod retries;
pub(super) mod source;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use tokio::time::Instant;

pub(crate) use self::action::CursorRef;
use self::action::{Action, EpochQuestion, FetchSettings, FetchSpec, FetchView};
use self::source::{InFlight, Source};
use super::cursor::{Cursor, Position};
use super::cursors::{Slot, Table};
use super::session::{RequestedPartition, Session};
use crate::cluster::LeaderInfo;
use crate::error::Error;
use crate::types::StartAt;
use crate::types::TopicPartition;
use crate::watchdog::cause::StallReason;

/// A fetch outside the session waits this long for records at the broker: the next such fetch cannot be sent before.
const OUTSIDE_SESSION_WAIT: Duration = Duration::from_millis(20);

/// Bytes of a response besides its records: for the response, and for each requested partition.
const RESPONSE_BYTES: usize = 256;
const PARTITION_BYTES: usize = 96;

/// The fetch state of one consumer.
///
/// It owns a [`Source`] per broker and the times at which cursors must be looked at again. The cursors are shared with
/// the group's tasks, so each method takes their [`Table`]. Time is an argument, and facts about the cluster, the
/// inbox and the budget come through a [`FetchView`]. Everything that must happen outside is returned as an
/// [`Action`].
///
/// The owner calls the methods in this order, again and again:
///
/// 1. `on_*` and [`FetchCore::restart_session`], any number of times, for each event since the last round:
///    [`on_fetched`](Self::on_fetched), [`on_fetched_outside_session`](Self::on_fetched_outside_session),
///    [`on_offset`](Self::on_offset), [`on_topic_awaited`](Self::on_topic_awaited),
///    [`on_epoch_end`](Self::on_epoch_end). After each one, [`poll_action`](Self::poll_action) until it returns
///    `None`: what comes next must see the delivered records and the new leaders.
/// 2. [`update`](Self::update) once. It reads the changes of the table.
/// 3. [`poll_action`](Self::poll_action) until it returns `None`. The owner performs each action before the next call:
///    a fetch reserves its bytes before the next fetch is sized. Two actions have a result that goes back into the
///    core at once: [`Action::LearnLeader`] into [`on_leader_hint`](Self::on_leader_hint), and
///    [`Action::FreeParked`] into [`on_parked_freed`](Self::on_parked_freed).
/// 4. [`wake_at`](Self::wake_at) returns the time of the next round, if nothing happens earlier.
///
/// Each [`Action::Fetch`] is answered by exactly one call of `on_fetched` or `on_fetched_outside_session`, whatever
/// happens to the request; a broker gets at most one fetch of each kind at a time.
#[derive(Debug)]
pub(super) struct FetchCore {
    settings: FetchSettings,
    sources: BTreeMap<i32, Source>,
    /// The times at which cursors must be checked again.
    timers: BTreeSet<(Instant, Slot)>,
    /// Actions that were not polled yet.
    actions: VecDeque<Action>,
    /// Brokers that can be sent a fetch in this round.
    candidates: VecDeque<Candidate>,
    /// ListOffsets questions of this round, by leader.
    questions: BTreeMap<i32, Vec<(CursorRef, StartAt)>>,
    /// Cursors of this round that wait for their topic's metadata.
    unknown_topics: BTreeMap<Arc<str>, Vec<(CursorRef, StartAt)>>,
    /// The last request for metadata because a partition had no leader.
    leader_requested_at: Option<Instant>,
    wake_at: Option<Instant>,
    /// Rotates the partitions of full requests, because brokers fill a response in their order.
    rotation: usize,
}

/// A broker that can be sent a fetch.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    node: i32,
    outside_session: bool,
    /// `true` if parked records were already dropped to make room for it.
    freed_parked: bool,
}

/// The size of the next fetch from a broker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Share {
    /// This many bytes of the budget.
    Bytes(usize),
    /// The budget has no room now.
    NoRoom,
    /// The budget may have this much room after parked records are dropped.
    AfterParked(usize),
}

impl FetchCore {
    pub(super) fn new(settings: FetchSettings) -> Self {
        Self {
            settings,
            sources: BTreeMap::new(),
            timers: BTreeSet::new(),
            actions: VecDeque::new(),
            candidates: VecDeque::new(),
            questions: BTreeMap::new(),
            unknown_topics: BTreeMap::new(),
            leader_requested_at: None,
            wake_at: None,
            rotation: 0,
        }
    }

    /// Checks the cursors that changed, and determines the brokers that can be sent a fetch. `drained` are the
    /// partitions whose inbox was full and has room again.
    pub(super) fn update(&mut self, now: Instant, table: &mut Table, drained: &[Slot], view: &dyn FetchView) {
        while let Some((at, slot)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, slot));
            table.touch(slot);
        }
        for (node, slot) in table.take_removed() {
            self.remove_from_session(node, slot);
        }
        for slot in drained {
            table.touch(*slot);
        }
        for slot in table.take_touched() {
            if let Some(cursor) = table.get_mut(slot) {
                self.assign_source(cursor, now, view);
            }
        }
        for (leader, questions) in std::mem::take(&mut self.questions) {
            self.actions.push_back(Action::ListOffsets { leader, questions });
        }
        for (topic, cursors) in std::mem::take(&mut self.unknown_topics) {
            self.actions.push_back(Action::AwaitTopic { topic, cursors });
        }
        self.find_candidates(now, view);
    }

    /// The next action to perform, or `None` if there is nothing to do before the next event.
    pub(super) fn poll_action(
        &mut self,
        now: Instant,
        table: &mut Table,
        view: &dyn FetchView,
    ) -> Option<Action> {
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        while let Some(candidate) = self.candidates.pop_front() {
            if let Some(action) = self.try_fetch(candidate, now, table, view) {
                return Some(action);
            }
        }
        None
    }

    /// The latest time for the next call of [`FetchCore::update`].
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.wake_at
    }

    /// The state of fetching from one broker.
    pub(super) fn source(&self, node: i32) -> Option<&Source> {
        self.sources.get(&node)
    }

    /// Begins a new session with a broker: the next fetch names all partitions again.
    pub(super) fn restart_session(&mut self, node: i32) {
        if let Some(source) = self.sources.get_mut(&node) {
            source.restart_session = true;
        }
    }

    /// Parked records were dropped: each partition must be fetched again from this offset.
    pub(super) fn on_parked_freed(&mut self, rewound: Vec<(Slot, i64)>, table: &mut Table) {
        if let Some(candidate) = self.candidates.front_mut() {
            candidate.freed_parked = true;
        }
        for (slot, from) in rewound {
            if let Some(cursor) = table.get_mut(slot) {
                cursor.position = Position::At(from);
            }
        }
    }

    fn find_candidates(&mut self, now: Instant, view: &dyn FetchView) {
        self.candidates.clear();
        self.wake_at = self.timers.first().map(|(at, _)| *at);
        for (node, source) in &self.sources {
            let outside_session = source.in_flight.is_some();
            let wait_until = if outside_session {
                let Some(at) = source.outside_session_at(view.is_arriving(*node)) else { continue };
                Some(at)
            } else if source.queued.is_empty() && source.session.len() == 0 {
                continue;
            } else {
                source.blocked_until
            };
            if let Some(until) = wait_until.filter(|until| *until > now) {
                self.wake_at = Some(self.wake_at.map_or(until, |at| at.min(until)));
            } else {
                let candidate = Candidate { node: *node, outside_session, freed_parked: false };
                self.candidates.push_back(candidate);
            }
        }
        // Partitions that wait for a fetch in flight come first: the application has waited longer for them.
        self.candidates.make_contiguous().sort_by_key(|candidate| !candidate.outside_session);
    }

    fn try_fetch(
        &mut self,
        candidate: Candidate,
        now: Instant,
        table: &mut Table,
        view: &dyn FetchView,
    ) -> Option<Action> {
        let Candidate { node, outside_session, freed_parked } = candidate;
        let share = self.share(node, freed_parked, view);
        if let Share::AfterParked(bytes) = share {
            self.candidates.push_front(candidate);
            return Some(Action::FreeParked { bytes });
        }
        let bytes = if let Share::Bytes(bytes) = share { bytes } else { 0 };
        let spec = if outside_session {
            self.fetch_outside_session(node, bytes.min(view.budget_room() / 2), now, table, view)
        } else {
            let source = self.sources.get_mut(&node)?;
            source.waits_for_room = bytes == 0;
            self.fetch(node, bytes, now, table, view)
        };
        spec.map(Action::Fetch)
    }

    /// The bytes of the next fetch from a broker.
    ///
    /// Brokers that wait for records reserve at most half of the budget together, so that there is always room for one
    /// that has records.
    fn share(&self, node: i32, freed_parked: bool, view: &dyn FetchView) -> Share {
        let settings = &self.settings;
        let Some(source) = self.sources.get(&node) else { return Share::NoRoom };
        let partitions = source.queued.len() + source.session.len();
        let fetched_from =
            self.sources.values().filter(|source| source.in_flight.is_some() || source.session.len() > 0);
        let fair = settings.budget_bytes_max / (2 * fetched_from.count()).max(4);
        let overhead = RESPONSE_BYTES + (partitions * PARTITION_BYTES).min(fair / 2);
        let size = source.fetch_size.bytes().max(settings.fetch_min_bytes).min(settings.fetch_max_bytes);
        let wanted = (size + overhead).min(fair.max(overhead + 1));
        // A small fetch costs as much as a large one. The budget notifies when there is more room.
        let worthwhile = wanted.min(settings.max_partition_fetch_bytes + overhead);
        let room = view.budget_room();
        if room >= worthwhile {
            return Share::Bytes(wanted.min(room));
        }
        let starving = view.is_inbox_empty();
        if starving && !freed_parked {
            return Share::AfterParked(worthwhile);
        }
        // A budget that is smaller than one fetch still allows one response at a time, besides the one that the
        // application holds.
        let alone = starving && !self.sources.values().any(Source::is_fetching);
        if alone && view.budget_held() <= 1 { Share::Bytes(worthwhile) } else { Share::NoRoom }
    }

    /// Determines which broker the cursor is fetched from now, and queues it there.
    fn assign_source(&mut self, cursor: &mut Cursor, now: Instant, view: &dyn FetchView) {
        let node = self.source_of(cursor, now, view);
        if let Some(old) = cursor.session_at
            && node != Some(old)
        {
            cursor.session_at = None;
            self.remove_from_session(old, cursor.slot);
        }
        if let Some(node) = node
            && cursor.queued_at != Some(node)
        {
            cursor.queued_at = Some(node);
            self.sources.entry(node).or_default().queued.push(cursor.slot);
        }
    }

    /// The broker to fetch from, if the partition can be fetched now.
    fn source_of(&mut self, cursor: &mut Cursor, now: Instant, view: &dyn FetchView) -> Option<i32> {
        if let Some(until) = cursor.blocked_until.filter(|until| *until > now) {
            self.timers.insert((until, cursor.slot));
            return None;
        }
        if let Position::Unresolved(start) = cursor.position {
            self.resolve(cursor, start, now, view);
        }
        let offset = cursor.fetchable(now)?;
        if view.is_inbox_full(cursor.slot) {
            return None;
        }
        let Some(LeaderInfo { leader, leader_epoch, topic_id }) = view.leader_info(&cursor.progress.at)
        else {
            self.actions.push_back(Action::WantTopic(cursor.progress.at.topic.clone()));
            self.request_leader(cursor, now);
            return None;
        };
        cursor.reset_leader_requests();
        if !cursor.is_in_topic(topic_id) {
            self.on_topic_created_again(cursor, offset, now, view);
            return None;
        }
        if let Some(epoch) = cursor.epoch_to_validate(leader_epoch) {
            cursor.position = Position::Validating(offset);
            cursor.requested_at = Some(now);
            let cursor = CursorRef::of(cursor);
            let question = EpochQuestion { cursor, offset, leader, leader_epoch, epoch };
            self.actions.push_back(Action::OffsetForLeaderEpoch(question));
            return None;
        }
        // A replica that the leader prefers for us, until that expires (KIP-392).
        match cursor.replica {
            Some((node, until)) if until > now && view.knows_node(node) => {
                self.timers.insert((until, cursor.slot));
                Some(node)
            }
            _ => {
                cursor.replica = None;
                Some(leader)
            }
        }
    }

    /// Requests the offset at which a partition starts. The group's task resolves committed offsets, not the leader.
    fn resolve(&mut self, cursor: &mut Cursor, start: StartAt, now: Instant, view: &dyn FetchView) {
        if start == StartAt::Committed {
            return;
        }
        let TopicPartition { topic, partition } = &cursor.progress.clone().at;
        let known = view.is_topic_known(topic);
        let leader = view.leader_info(&cursor.progress.at).map(|info| info.leader);
        cursor.requested_at = Some(now);
        if known && leader.is_none() {
            let what = format!("offsets of topic `{topic}` partition {partition}");
            let error = Error::Broker { what, code: ErrorCode::LeaderNotAvailable };
            cursor.last_error = Some(StallReason::of(&error));
            return self.request_leader(cursor, now);
        }
        cursor.reset_leader_requests();
        cursor.position = Position::Resolving(start);
        let question = (CursorRef::of(cursor), start);
        match leader.filter(|_| known) {
            Some(leader) => self.questions.entry(leader).or_default().push(question),
            None => self.unknown_topics.entry(topic.clone()).or_default().push(question),
        }
    }

    /// Requests metadata for a partition without a leader: at once, and again after pauses that grow. Each response wakes the fetcher,
    /// so that a request per check would follow each response. The cursor is not blocked: it is fetched once there is a leader.
    fn request_leader(&mut self, cursor: &mut Cursor, now: Instant) {
        // A request for another partition brings the metadata of this one as well, so it counts: otherwise, partitions would request
        // in turn, each after a short pause of its own.
        let is_covered = match cursor.leader_requests {
            0 => self.leader_requested_at == Some(now),
            _ => self.leader_requested_at != cursor.leader_requested_at,
        };
        if is_covered {
            cursor.leader_requests = cursor.leader_requests.saturating_add(1);
            cursor.leader_requested_at = self.leader_requested_at;
        }
        let pause = match cursor.leader_requests {
            0 => Duration::ZERO,
            requests => self.settings.leader_pause(requests - 1),
        };
        let due = self.leader_requested_at.map_or(now, |at| at + pause);
        if due > now {
            self.timers.insert((due, cursor.slot));
            return;
        }
        self.leader_requested_at = Some(now);
        cursor.leader_requested_at = Some(now);
        self.timers.insert((now + self.settings.leader_pause(cursor.leader_requests), cursor.slot));
        cursor.leader_requests = cursor.leader_requests.saturating_add(1);
        self.actions.push_back(Action::RefreshMetadata);
    }

    /// Blocks a cursor that is being checked.
    pub(super) fn block_until(&mut self, cursor: &mut Cursor, until: Instant) {
        cursor.blocked_until = Some(until);
        self.timers.insert((until, cursor.slot));
    }

    fn remove_from_session(&mut self, node: i32, slot: Slot) {
        if let Some(source) = self.sources.get_mut(&node) {
            source.session.forget(slot);
        }
    }

    /// The next fetch in a broker's session: all partitions of the session, and those that are queued.
    fn fetch(
        &mut self,
        node: i32,
        bytes: usize,
        now: Instant,
        table: &mut Table,
        view: &dyn FetchView,
    ) -> Option<FetchSpec> {
        let source = self.sources.get_mut(&node).filter(|_| bytes > 0)?;
        for slot in source.queued.drain(..) {
            // The cursor may be queued at another broker by now, or its slot belong to another partition.
            let Some(cursor) = table.get_mut(slot).filter(|cursor| cursor.queued_at == Some(node)) else {
                continue;
            };
            cursor.queued_at = None;
            let Some(offset) = cursor.fetchable(now) else { continue };
            let known = view.leader_info(&cursor.progress.at);
            let Some(known) = known.filter(|known| cursor.is_in_topic(known.topic_id)) else { continue };
            cursor.session_at = Some(node);
            let requested = RequestedPartition { offset, leader_epoch: known.leader_epoch };
            source.session.want(slot, &cursor.progress, known.topic_id, requested);
        }
        if source.session.len() == 0 {
            return None;
        }
        if std::mem::take(&mut source.restart_session) {
            source.session.restart();
        }
        let settings = &self.settings;
        self.rotation = self.rotation.wrapping_add(1);
        let request = source.session.request(self.rotation, settings.max_partition_fetch_bytes as i32);
        let records_bytes = records_bytes(bytes, source.session.len());
        assert!(source.in_flight.is_none(), "a broker gets one fetch in its session at a time");
        let due = now + settings.fetch_wait_max;
        source.in_flight = Some(InFlight { sent_at: now, due, records_bytes });
        let (wait, unanswered) = (settings.fetch_wait_max, source.unanswered);
        Some(FetchSpec { node, outside_session: false, wait, bytes, records_bytes, unanswered, request })
    }

    /// Creates a fetch outside the session, on another connection, for partitions that were added or drained while
    /// the fetch in the session waits for records. After its response, they join the session.
    fn fetch_outside_session(
        &mut self,
        node: i32,
        bytes: usize,
        now: Instant,
        table: &mut Table,
        view: &dyn FetchView,
    ) -> Option<FetchSpec> {
        let source = self.sources.get_mut(&node).filter(|_| bytes > 0)?;
        let mut session = Session::default();
        source.queued.retain(|slot| {
            let Some(cursor) = table.get_mut(*slot).filter(|cursor| cursor.queued_at == Some(node)) else {
                return false;
            };
            let Some(offset) = cursor.fetchable(now) else {
                cursor.queued_at = None;
                return false;
            };
            // The fetch in flight requests exactly this.
            if source.session.requests(*slot, &cursor.progress, offset) {
                return true;
            }
            let known = view.leader_info(&cursor.progress.at);
            let Some(known) = known.filter(|known| cursor.is_in_topic(known.topic_id)) else { return true };
            source.session.forget(*slot);
            cursor.session_at = None;
            let requested = RequestedPartition { offset, leader_epoch: known.leader_epoch };
            session.want(*slot, &cursor.progress, known.topic_id, requested);
            // `queued_at` stays set until the response comes, so that the partition is in one request only.
            false
        });
        if session.len() == 0 {
            return None;
        }
        let settings = &self.settings;
        let request = session.request_without_session(settings.max_partition_fetch_bytes as i32);
        let in_flight = source.in_flight.as_ref();
        let left = in_flight.map_or(Duration::ZERO, |fetch| fetch.due.saturating_duration_since(now));
        // An overdue response may still take long. Without a wait, the fetch would be repeated again and again.
        let wait = if left.is_zero() { OUTSIDE_SESSION_WAIT } else { left.min(OUTSIDE_SESSION_WAIT) };
        let records_bytes = records_bytes(bytes, session.len());
        assert!(source.outside_session.is_none(), "a broker gets one fetch outside its session at a time");
        source.outside_session = Some(session);
        let unanswered = source.unanswered;
        Some(FetchSpec { node, outside_session: true, wait, bytes, records_bytes, unanswered, request })
    }
}

/// The bytes of records in a fetch that reserves `bytes`; the rest is for the response's other fields.
fn records_bytes(bytes: usize, partitions: usize) -> usize {
    let overhead = RESPONSE_BYTES + (partitions * PARTITION_BYTES).min(bytes / 2);
    bytes.saturating_sub(overhead).max(1)
}
