//! The engine's half of consuming: one fetch at a time to each broker, as long as there is room. Answers are taken in next
//! door, in `answers`.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::fetch::{FetchRequest, FetchResponse};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::budget::Reservation;
use super::cursor::{Cursor, Position, StartAt};
use super::cursors::{Cursors, Slot};
use super::epochs::end_of_epoch;
use super::inbox::Inbox;
use super::offsets::{isolation_code, resolve};
use super::place::Place;
use super::portion::Portion;
use super::session::{Asking, Session, Wish};
use crate::alarm::Alarm;
use crate::cluster::brokers::Lane;
use crate::cluster::{Cluster, Whereabouts};
use crate::config::{Config, OffsetReset};
use crate::consumer::TopicPartition;
use crate::error::Error;
use crate::watchdog::cause::Trouble;

/// What the fetcher's tasks have found out.
pub(super) enum Event {
    Fetched {
        node: i32,
        result: Result<FetchResponse, Error>,
    },
    FetchedAside {
        node: i32,
        result: Result<FetchResponse, Error>,
    },
    /// The topic is known by now: it can be asked where to begin.
    Known {
        asked: Asked,
        start: StartAt,
    },
    Resolved {
        asked: Asked,
        start: StartAt,
        result: Result<i64, Error>,
    },
    Validated {
        asked: Asked,
        leader_epoch: i32,
        offset: i64,
        result: Result<Option<i64>, Error>,
    },
}

/// Which cursor a question is about, as it was then.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) slot: Slot,
    pub(super) place: Arc<Place>,
    pub(super) turn: u64,
}

impl Asked {
    fn of(cursor: &Cursor) -> Self {
        Self { slot: cursor.slot, place: cursor.place.clone(), turn: cursor.turn }
    }
}

/// What is fetched from one broker: the leader of partitions, or a replica nearby.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// Partitions that want something new.
    list: Vec<Slot>,
    pub(super) session: Session,
    /// Whether a fetch is under way.
    pub(super) busy: bool,
    pub(super) under_way: Option<UnderWay>,
    pub(super) portion: Portion,
    /// What is fetched beside it, outside the session.
    pub(super) aside: Option<Session>,
    /// Failures in a row, and until when nothing is asked for because of them.
    pub(super) failures: u32,
    pub(super) blocked_until: Option<Instant>,
    /// Responses in a row that brought no records, and came before the broker's waiting time was over or with errors.
    pub(super) fruitless: u32,
    /// Until when nothing is fetched outside the session because such a fetch failed.
    pub(super) aside_blocked_until: Option<Instant>,
    /// When the answer to the fetch under way was due at the latest.
    pub(super) due: Option<Instant>,
    /// Answers so far, and requests without one since the last.
    pub(super) answers: u64,
    pub(super) unanswered: u32,
    /// Why the last fetch failed.
    pub(super) trouble: Option<Trouble>,
    /// Whether a fetch waits for room.
    pub(super) short: bool,
    /// Whether the next fetch begins a new session.
    pub(super) restart: bool,
}

/// A fetch that was sent.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) sent_at: Instant,
    /// Bytes of records that it may bring.
    pub(super) asked: usize,
    /// Knows whether the answer comes already.
    pub(super) room: Rc<Reservation>,
}

/// A fetch of which nothing has come after so long waits for records, and what is to be fetched too does not wait for it.
const WAITS_AFTER: Duration = Duration::from_millis(5);

/// How long such a fetch waits for records itself, and so keeps the next one from being sent.
const ASIDE_WAIT: Duration = Duration::from_millis(20);

/// What a response takes besides its records: for itself, and for each partition that is asked for.
const RESPONSE_BYTES: usize = 256;
const PARTITION_BYTES: usize = 96;

/// The task that fetches for one consumer.
pub(crate) struct Fetcher {
    pub(super) cluster: Rc<Cluster>,
    pub(super) cursors: Rc<Cursors>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) sources: BTreeMap<i32, Source>,
    /// Cursors that are to be told where to begin.
    unresolved: Vec<(Asked, StartAt)>,
    /// Cursors that wait for a moment.
    timers: BTreeSet<(Instant, Slot)>,
    events_in: mpsc::UnboundedSender<Event>,
    tasks: JoinSet<()>,
    turn: usize,
}

impl Fetcher {
    /// Runs until its owner drops it.
    pub(crate) async fn run(cluster: Rc<Cluster>, cursors: Rc<Cursors>, inbox: Arc<Inbox>) {
        let (events_in, mut events) = mpsc::unbounded_channel();
        let mut changes = cluster.changes();
        let mut fetcher = Self {
            cluster,
            cursors: cursors.clone(),
            inbox: inbox.clone(),
            sources: BTreeMap::new(),
            unresolved: Vec::new(),
            timers: BTreeSet::new(),
            events_in,
            tasks: JoinSet::new(),
            turn: 0,
        };
        let mut alarm = Alarm::new();
        loop {
            let now = Instant::now();
            let wake_at = fetcher.pump(now);
            fetcher.answer_survey(now);
            alarm.set(wake_at);
            tokio::select! {
                biased;
                Some(event) = events.recv() => fetcher.on_event(event),
                () = cursors.changed.notified() => {}
                () = inbox.emptied.notified() => {}
                () = changes.changed() => cursors.table().touch_all(),
                Some(_) = fetcher.tasks.join_next() => {}
                () = alarm.rings() => {}
            }
        }
    }

    /// Starts what can be started, and says when to look again.
    fn pump(&mut self, now: Instant) -> Option<Instant> {
        let cursors = self.cursors.clone();
        let mut table = cursors.table();
        while let Some((at, slot)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, slot));
            table.touch(slot);
        }
        for (node, slot) in table.take_left() {
            self.leave(node, slot);
        }
        for slot in self.inbox.take_drained() {
            table.touch(slot);
        }
        for slot in table.take_touched() {
            if let Some(cursor) = table.get_mut(slot) {
                self.look_at(cursor, now);
            }
        }
        drop(table);
        self.resolve();
        let mut wake_at = self.timers.first().map(|(at, _)| *at);
        let (mut ready, mut aside) = (Vec::new(), Vec::new());
        for (node, source) in &self.sources {
            let wait_until = if source.busy {
                let Some(at) = source.aside_at() else { continue };
                Some(at)
            } else if source.list.is_empty() && source.session.len() == 0 {
                continue;
            } else {
                source.blocked_until
            };
            match wait_until.filter(|until| *until > now) {
                Some(until) => wake_at = Some(wake_at.map_or(until, |at| at.min(until))),
                None if source.busy => aside.push(*node),
                None => ready.push(*node),
            }
        }
        for node in aside {
            self.fetch_aside(node, now);
        }
        for node in ready {
            let share = self.share(node);
            if let Some(source) = self.sources.get_mut(&node) {
                source.short = share.is_none();
            }
            if let Some(bytes) = share {
                self.fetch(node, bytes, now);
            }
        }
        wake_at
    }

    /// How much the next fetch from a broker may bring; nothing if it has to wait for room.
    ///
    /// Brokers that wait for records reserve at most half of the budget together, so that a busy one always has some.
    fn share(&self, node: i32) -> Option<usize> {
        let config = &self.cluster.config;
        let budget = &self.inbox.budget;
        let source = self.sources.get(&node)?;
        let partitions = source.list.len() + source.session.len();
        let asking = self.sources.values().filter(|source| source.busy || source.session.len() > 0).count();
        let fair = budget.max() / (2 * asking).max(4);
        let overhead = RESPONSE_BYTES + (partitions * PARTITION_BYTES).min(fair / 2);
        let portion = source.portion.bytes().max(config.fetch_bytes_min).min(config.fetch_bytes_max);
        let wanted = (portion + overhead).min(fair.max(overhead + 1));
        // A sliver would bring a sliver: better to wait for more, and room is announced when it is there.
        let worthwhile = wanted.min(config.partition_fetch_bytes_max + overhead);
        let starving = self.inbox.is_empty();
        if budget.room() < worthwhile && starving {
            self.rewind_parked(worthwhile);
        }
        let room = budget.room();
        if room >= worthwhile {
            return Some(wanted.min(room));
        }
        // However small the budget, one response at a time there must be: besides the one in the application's hands.
        let alone = starving && !self.sources.values().any(|source| source.busy || source.aside.is_some());
        (alone && budget.held() <= 1).then_some(worthwhile)
    }

    /// What is kept of paused partitions must not keep the others from being fetched.
    fn rewind_parked(&self, room: usize) {
        for (slot, from) in self.inbox.drop_parked(room) {
            if let Some(cursor) = self.cursors.table().get_mut(slot) {
                cursor.position = Position::At(from);
            }
        }
    }

    /// Finds out what a cursor waits for, and puts it where that comes from.
    fn look_at(&mut self, cursor: &mut Cursor, now: Instant) {
        let node = self.source_of(cursor, now);
        if let Some(old) = cursor.session_at
            && node != Some(old)
        {
            cursor.session_at = None;
            self.leave(old, cursor.slot);
        }
        if let Some(node) = node
            && cursor.listed_at != Some(node)
        {
            cursor.listed_at = Some(node);
            self.sources.entry(node).or_default().list.push(cursor.slot);
        }
    }

    /// The broker to fetch from, if there is something to be fetched now.
    fn source_of(&mut self, cursor: &mut Cursor, now: Instant) -> Option<i32> {
        if let Some(until) = cursor.blocked_until.filter(|until| *until > now) {
            self.timers.insert((until, cursor.slot));
            return None;
        }
        // Where the group left off is not the leader's to say: whoever assigned it so finds out.
        if let Position::Unresolved(start) = cursor.position
            && start != StartAt::Committed
        {
            cursor.position = Position::Resolving(start);
            cursor.asked_at = Some(now);
            self.unresolved.push((Asked::of(cursor), start));
        }
        let offset = cursor.fetchable(now)?;
        if self.inbox.is_full(cursor.slot) {
            return None;
        }
        let at = &cursor.place.at;
        let Some(Whereabouts { leader, leader_epoch, .. }) =
            self.cluster.whereabouts(&at.topic, at.partition)
        else {
            self.cluster.want(&at.topic);
            self.cluster.refresh();
            return None;
        };
        if let Some(epoch) = cursor.unproven(leader_epoch) {
            cursor.position = Position::Validating(offset);
            cursor.asked_at = Some(now);
            self.validate(cursor, offset, leader, leader_epoch, epoch);
            return None;
        }
        // A replica that is nearer, as long as the leader's word for it holds (KIP-392).
        match cursor.replica {
            Some((node, until)) if until > now && self.cluster.brokers.knows(node) => {
                self.timers.insert((until, cursor.slot));
                Some(node)
            }
            _ => {
                cursor.replica = None;
                Some(leader)
            }
        }
    }

    fn leave(&mut self, node: i32, slot: Slot) {
        if let Some(source) = self.sources.get_mut(&node) {
            source.session.forget(slot);
        }
    }

    fn fetch(&mut self, node: i32, bytes: usize, now: Instant) {
        let Some(source) = self.sources.get_mut(&node) else { return };
        let mut table = self.cursors.table();
        for slot in source.list.drain(..) {
            // It may have gone to another broker, or its slot to another partition.
            let Some(cursor) = table.get_mut(slot).filter(|cursor| cursor.listed_at == Some(node)) else {
                continue;
            };
            cursor.listed_at = None;
            let Some(offset) = cursor.fetchable(now) else { continue };
            let TopicPartition { topic, partition } = &cursor.place.at;
            let Some(known) = self.cluster.whereabouts(topic, *partition) else { continue };
            cursor.session_at = Some(node);
            let wish = Wish { offset, leader_epoch: known.leader_epoch };
            source.session.want(slot, &cursor.place, known.topic_id, wish);
        }
        drop(table);
        if source.session.len() == 0 {
            return;
        }
        let config = self.cluster.config.clone();
        source.due = Some(now + config.fetch_wait_max);
        if std::mem::take(&mut source.restart) {
            source.session.restart();
        }
        let patience = config.patience(source.unanswered);
        self.turn = self.turn.wrapping_add(1);
        let asking = source.session.request(self.turn, config.partition_fetch_bytes_max as i32);
        let overhead = RESPONSE_BYTES + (source.session.len() * PARTITION_BYTES).min(bytes / 2);
        let records_bytes = bytes.saturating_sub(overhead).max(1);
        let room: Rc<Reservation> = Rc::new(self.inbox.budget.reserve(bytes));
        source.busy = true;
        source.under_way = Some(UnderWay { sent_at: now, asked: records_bytes, room: room.clone() });
        let wait = config.fetch_wait_max;
        let (cluster, events) = (self.cluster.clone(), self.events_in.clone());
        self.tasks.spawn_local(async move {
            let ask = Ask { node, lane: Lane::Fetch, wait, records_bytes, patience };
            let result = ask.send(&cluster, asking, room).await;
            let _ = events.send(Event::Fetched { node, result });
        });
    }

    /// Fetches what was added or drained while a fetch waits for records of others: outside the session, on a connection
    /// of its own, until that fetch is over. Then it joins the others.
    fn fetch_aside(&mut self, node: i32, now: Instant) {
        let Some(bytes) = self.share(node).map(|bytes| bytes.min(self.inbox.budget.room() / 2)) else {
            return;
        };
        let Some(source) = self.sources.get_mut(&node).filter(|_| bytes > 0) else { return };
        let mut session = Session::default();
        let mut table = self.cursors.table();
        source.list.retain(|slot| {
            let Some(cursor) = table.get_mut(*slot).filter(|cursor| cursor.listed_at == Some(node)) else {
                return false;
            };
            let Some(offset) = cursor.fetchable(now) else {
                cursor.listed_at = None;
                return false;
            };
            // The fetch under way has asked for just that.
            if source.session.asks(*slot, &cursor.place, offset) {
                return true;
            }
            let TopicPartition { topic, partition } = &cursor.place.at;
            let Some(known) = self.cluster.whereabouts(topic, *partition) else { return true };
            source.session.forget(*slot);
            cursor.session_at = None;
            let wish = Wish { offset, leader_epoch: known.leader_epoch };
            session.want(*slot, &cursor.place, known.topic_id, wish);
            // It stays listed until the answer comes, so that nobody else fetches it.
            false
        });
        drop(table);
        if session.len() == 0 {
            return;
        }
        let config = &self.cluster.config;
        let asking = session.request_without_session(config.partition_fetch_bytes_max as i32);
        let left = source.due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now));
        // An answer that is overdue may take long yet: not to wait would be to ask again and again.
        let wait = if left.is_zero() { ASIDE_WAIT } else { left.min(ASIDE_WAIT) };
        let overhead = RESPONSE_BYTES + (session.len() * PARTITION_BYTES).min(bytes / 2);
        let records_bytes = bytes.saturating_sub(overhead).max(1);
        let patience = config.patience(source.unanswered);
        source.aside = Some(session);
        let room = Rc::new(self.inbox.budget.reserve(bytes));
        let (cluster, events) = (self.cluster.clone(), self.events_in.clone());
        self.tasks.spawn_local(async move {
            let ask = Ask { node, lane: Lane::FetchMore, wait, records_bytes, patience };
            let result = ask.send(&cluster, asking, room).await;
            let _ = events.send(Event::FetchedAside { node, result });
        });
    }

    /// Asks the leader whether its log has what was read so far.
    fn validate(&mut self, cursor: &Cursor, offset: i64, leader: i32, leader_epoch: i32, epoch: i32) {
        let (cluster, events) = (self.cluster.clone(), self.events_in.clone());
        let asked = Asked::of(cursor);
        self.tasks.spawn_local(async move {
            let result = end_of_epoch(&cluster, &asked.place.at, leader, leader_epoch, epoch).await;
            let _ = events.send(Event::Validated { asked, leader_epoch, offset, result });
        });
    }

    /// Asks where to begin: each leader once for all its partitions. Topics that are not known yet are waited for first.
    fn resolve(&mut self) {
        let mut at_leaders: BTreeMap<i32, Vec<(Asked, StartAt)>> = BTreeMap::new();
        let mut unknown: BTreeMap<Arc<str>, Vec<(Asked, StartAt)>> = BTreeMap::new();
        for (asked, start) in std::mem::take(&mut self.unresolved) {
            let TopicPartition { topic, partition } = &asked.place.at;
            if !self.cluster.topic(topic).is_some_and(|layout| layout.is_whole()) {
                unknown.entry(topic.clone()).or_default().push((asked, start));
            } else if let Some(leader) = self.cluster.leader(topic, *partition) {
                at_leaders.entry(leader).or_default().push((asked, start));
            } else {
                self.cluster.refresh();
                let what = format!("offsets of topic `{topic}` partition {partition}");
                let result = Err(Error::Broker { what, code: ErrorCode::LeaderNotAvailable });
                let _ = self.events_in.send(Event::Resolved { asked, start, result });
            }
        }
        for (leader, asked) in at_leaders {
            let (cluster, events) = (self.cluster.clone(), self.events_in.clone());
            self.tasks.spawn_local(async move {
                let to = |place: &Place, start: StartAt| match start {
                    StartAt::Committed => reset_to(place.reset(&cluster.config), &cluster.config),
                    other => other,
                };
                let questions: Vec<_> = asked
                    .iter()
                    .map(|(asked, start)| (asked.place.at.clone(), to(&asked.place, *start)))
                    .collect();
                let answers = resolve(&cluster, leader, &questions).await;
                for ((asked, start), result) in asked.into_iter().zip(answers) {
                    let _ = events.send(Event::Resolved { asked, start, result });
                }
            });
        }
        for (topic, asked) in unknown {
            let (cluster, events) = (self.cluster.clone(), self.events_in.clone());
            let deadline = Instant::now() + cluster.config.request_timeout;
            self.tasks.spawn_local(async move {
                let known = cluster.await_topic(&topic, deadline).await;
                for (asked, start) in asked {
                    let _ = events.send(match &known {
                        Ok(_) => Event::Known { asked, start },
                        Err(error) => Event::Resolved { asked, start, result: Err(error.clone()) },
                    });
                }
            });
        }
    }
}

impl Source {
    /// When something may be fetched beside what is under way, if there is anything.
    fn aside_at(&self) -> Option<Instant> {
        let UnderWay { sent_at, room, .. } = self.under_way.as_ref()?;
        let wanted = !self.list.is_empty() && self.aside.is_none() && !room.is_begun();
        let earliest = *sent_at + WAITS_AFTER;
        wanted.then(|| self.aside_blocked_until.map_or(earliest, |until| until.max(earliest)))
    }
}

/// A fetch, beside what it asks for.
struct Ask {
    node: i32,
    lane: Lane,
    /// How long the broker may wait for records.
    wait: Duration,
    records_bytes: usize,
    patience: Option<Duration>,
}

impl Ask {
    async fn send(
        self,
        cluster: &Rc<Cluster>,
        asking: Asking,
        room: Rc<Reservation>,
    ) -> Result<FetchResponse, Error> {
        let config = &cluster.config;
        let connection = cluster.brokers.connection(self.node, self.lane).await?;
        let request = |_| FetchRequest {
            max_wait_ms: self.wait.as_millis() as i32,
            min_bytes: config.fetch_bytes_min as i32,
            max_bytes: self.records_bytes as i32,
            isolation_level: isolation_code(config.isolation),
            session_id: asking.id,
            session_epoch: asking.epoch,
            topics: asking.topics,
            forgotten_topics_data: asking.forgotten,
            rack_id: config.rack.clone(),
            ..Default::default()
        };
        let timeout = config.request_timeout + self.wait;
        let pending = connection.begin_in(asking.version_max, request, Some(room.clone()))?;
        let answering = pending.answer(timeout);
        tokio::pin!(answering);
        if let Some(patience) = self.patience {
            let patience = patience + self.wait;
            match tokio::time::timeout(patience, &mut answering).await {
                Ok(result) => return result,
                Err(_) if !room.is_begun() => return Err(connection.give_up("Fetch", patience)),
                // It is on its way: a large one takes its time.
                Err(_) => {}
            }
        }
        answering.await
    }
}

/// No offset at all: fetching it is answered with "out of range", which `auto.offset.reset=error` passes on.
const NO_OFFSET: i64 = -1;

/// Where `auto.offset.reset` leads.
pub(crate) fn reset_to(reset: OffsetReset, config: &Config) -> StartAt {
    match reset {
        OffsetReset::Earliest => StartAt::Beginning,
        OffsetReset::Latest => StartAt::End,
        OffsetReset::ByDuration(ago) => StartAt::Timestamp(config.clock.now_ms() - ago.as_millis() as i64),
        OffsetReset::Error => StartAt::Offset(NO_OFFSET),
    }
}
