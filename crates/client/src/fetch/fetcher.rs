//! The task that fetches for one consumer. It awaits, calls the core and performs the core's actions; all decisions are
//! in [`FetchCore`].

use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::fetch::FetchResponse;
use tokio::time::Instant;

use super::budget::Reservation;
use super::core::FetchCore;
use super::core::action::{Action, CursorRef, EpochEnd, EpochQuestion, FetchSettings, FetchSpec, FetchView};
use super::cursors::{Cursors, Slot};
use super::epochs::end_of_epoch;
use super::inbox::Inbox;
use super::offsets::resolve;
use super::request::send_fetch;
use crate::cluster::{Cluster, LeaderInfo};
use crate::config::{Config, OffsetReset};
use crate::error::Error;
use crate::log::Context;
use crate::loop_timer::LoopTimer;
use crate::types::{StartAt, TopicPartition};

/// The result of a request.
enum Event {
    Fetched { node: i32, outside_session: bool, result: Result<FetchResponse, Error> },
    OffsetsListed { questions: Vec<(CursorRef, StartAt)>, answers: Vec<Result<i64, Error>> },
    TopicAwaited { cursors: Vec<(CursorRef, StartAt)>, result: Result<(), Error> },
    EpochEnd { question: EpochQuestion, result: Result<EpochEnd, Error> },
}

/// Fetches for one consumer.
pub(crate) struct Fetcher {
    pub(super) core: FetchCore,
    pub(super) cursors: Rc<Cursors>,
    pub(super) surroundings: Surroundings,
    /// Requests that wait for their responses. They are polled here: a task for each would be woken first.
    requests: FuturesUnordered<Pin<Box<dyn Future<Output = Event>>>>,
}

/// The state outside the core that its decisions depend on.
pub(super) struct Surroundings {
    pub(super) cluster: Rc<Cluster>,
    pub(super) inbox: Arc<Inbox>,
    /// The memory for the responses to the fetches in sessions, by broker.
    reservations: BTreeMap<i32, Rc<Reservation>>,
}

impl Fetcher {
    /// Runs until its owner drops it.
    pub(crate) async fn run(cluster: Rc<Cluster>, cursors: Rc<Cursors>, inbox: Arc<Inbox>) {
        let mut changes = cluster.changes();
        let settings = FetchSettings::new(&cluster.config, inbox.budget.max());
        let mut fetcher = Self {
            core: FetchCore::new(settings),
            cursors: cursors.clone(),
            surroundings: Surroundings { cluster, inbox: inbox.clone(), reservations: BTreeMap::new() },
            requests: FuturesUnordered::new(),
        };
        let mut timer = LoopTimer::new();
        loop {
            let now = Instant::now();
            fetcher.update(now);
            fetcher.answer_snapshot_request(now);
            timer.set(fetcher.core.wake_at());
            tokio::select! {
                biased;
                Some(event) = fetcher.requests.next() => fetcher.on_event(event),
                () = cursors.changed.notified() => {}
                () = inbox.emptied.notified() => {}
                () = changes.changed() => cursors.table().touch_all(),
                () = timer.expired() => {}
            }
        }
    }

    fn update(&mut self, now: Instant) {
        let drained = self.surroundings.inbox.take_drained();
        self.core.update(now, &mut self.cursors.table(), &drained, &self.surroundings);
        self.perform_actions(now);
    }

    fn on_event(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Fetched { node, outside_session, result } => {
                self.on_fetched(node, outside_session, result, now);
            }
            Event::OffsetsListed { questions, answers } => {
                let mut table = self.cursors.table();
                for ((cursor, start), result) in questions.iter().zip(answers) {
                    self.core.on_offset(cursor, *start, result, now, &mut table);
                }
            }
            Event::TopicAwaited { cursors, result } => {
                self.core.on_topic_awaited(&cursors, result, now, &mut self.cursors.table());
            }
            Event::EpochEnd { question, result } => {
                let table = &mut self.cursors.table();
                self.core.on_epoch_end(&question, result, now, table, &self.surroundings);
            }
        }
        self.perform_actions(now);
    }

    fn on_fetched(
        &mut self,
        node: i32,
        outside_session: bool,
        result: Result<FetchResponse, Error>,
        now: Instant,
    ) {
        let Surroundings { cluster, reservations, .. } = &mut self.surroundings;
        if let Ok(response) = &result
            && response.error_code == ErrorCode::None
        {
            cluster.observer.throttled(node, response.throttle_time_ms);
            for node in &response.node_endpoints {
                cluster.brokers.learn(node.node_id, &node.host, node.port as u16);
            }
        }
        let table = &mut self.cursors.table();
        if outside_session {
            self.core.on_fetched_outside_session(node, result, now, table, &self.surroundings);
        } else {
            let arrived_at = reservations.remove(&node).and_then(|reservation| reservation.begun_at());
            self.core.on_fetched(node, result, arrived_at, now, table, &self.surroundings);
        }
    }

    fn perform_actions(&mut self, now: Instant) {
        loop {
            let action = self.core.poll_action(now, &mut self.cursors.table(), &self.surroundings);
            let Some(action) = action else { return };
            self.perform(action, now);
        }
    }

    fn perform(&mut self, action: Action, now: Instant) {
        let Surroundings { cluster, inbox, .. } = &self.surroundings;
        match action {
            Action::Fetch(spec) => self.fetch(spec),
            Action::ListOffsets { leader, questions } => {
                let cluster = cluster.clone();
                self.requests.push(Box::pin(async move {
                    let partitions: Vec<_> = questions
                        .iter()
                        .map(|(cursor, start)| (cursor.progress.at.clone(), *start))
                        .collect();
                    let answers = resolve(&cluster, leader, &partitions).await;
                    Event::OffsetsListed { questions, answers }
                }));
            }
            Action::AwaitTopic { topic, cursors } => {
                let cluster = cluster.clone();
                let deadline = now + cluster.config.socket_timeout;
                self.requests.push(Box::pin(async move {
                    let result = cluster.await_topic(&topic, deadline).await.map(|_| ());
                    Event::TopicAwaited { cursors, result }
                }));
            }
            Action::OffsetForLeaderEpoch(question) => {
                let cluster = cluster.clone();
                self.requests.push(Box::pin(async move {
                    let result = end_of_epoch(&cluster, &question).await;
                    Event::EpochEnd { question, result }
                }));
            }
            Action::WantTopic(topic) => cluster.want(&topic),
            Action::RefreshMetadata => cluster.refresh(),
            Action::LearnLeader(hint) => {
                let TopicPartition { topic, partition } = &hint.cursor.progress.at;
                let learned =
                    cluster.learn_leader(topic, *partition, hint.named_by, hint.leader, hint.leader_epoch);
                self.core.on_leader_hint(&hint, learned, now, &mut self.cursors.table());
            }
            Action::ForgetLeader(at) => cluster.forget_leader(&at.topic, at.partition),
            Action::Deliver { slot, item } => inbox.push_to(slot, item),
            Action::DeliverIn { slot, generation, item } => inbox.push_in(slot, Some(generation), item),
            Action::ReportError(error) => inbox.push(super::inbox::Item::Error(error)),
            Action::Purge(slot) => inbox.purge(slot),
            Action::FreeParked { bytes } => {
                self.core.on_parked_freed(inbox.drop_parked(bytes), &mut self.cursors.table());
            }
            Action::RecordEnds { node, at, offset, ends } => {
                let watermarks = (ends.log_start, ends.high_watermark);
                cluster.observer.fetched(node, &at.topic, at.partition, offset, watermarks);
            }
            Action::LogFailure { node, reason } => {
                let text = || format!("fetch from node {node}: {reason}");
                cluster.observer.log.debug(Context::Fetch, "FETCHERR", text);
            }
        }
    }

    fn fetch(&mut self, spec: FetchSpec) {
        let Surroundings { cluster, inbox, reservations } = &mut self.surroundings;
        let reservation = Rc::new(inbox.budget.reserve(spec.bytes));
        let FetchSpec { node, outside_session, .. } = spec;
        if !outside_session {
            reservations.insert(node, reservation.clone());
        }
        let cluster = cluster.clone();
        self.requests.push(Box::pin(async move {
            let result = send_fetch(&cluster, spec, reservation).await;
            Event::Fetched { node, outside_session, result }
        }));
    }
}

impl FetchView for Surroundings {
    fn leader_info(&self, at: &TopicPartition) -> Option<LeaderInfo> {
        self.cluster.leader_info(&at.topic, at.partition)
    }

    fn is_topic_known(&self, topic: &str) -> bool {
        self.cluster.topic(topic).is_some_and(|layout| layout.is_whole())
    }

    fn knows_node(&self, node: i32) -> bool {
        self.cluster.brokers.knows(node)
    }

    fn is_inbox_full(&self, slot: Slot) -> bool {
        self.inbox.is_full(slot)
    }

    fn is_inbox_empty(&self) -> bool {
        self.inbox.is_empty()
    }

    fn budget_room(&self) -> usize {
        self.inbox.budget.room()
    }

    fn budget_held(&self) -> usize {
        self.inbox.budget.held()
    }

    fn is_arriving(&self, node: i32) -> bool {
        self.reservations.get(&node).is_some_and(|reservation| reservation.is_begun())
    }

    fn start_of(&self, reset: OffsetReset) -> StartAt {
        reset_to(reset, &self.cluster.config)
    }
}

/// No offset: a fetch from it is answered with "out of range", which `auto.offset.reset=error` reports.
const NO_OFFSET: i64 = -1;

/// The start that `auto.offset.reset` leads to.
pub(crate) fn reset_to(reset: OffsetReset, config: &Config) -> StartAt {
    match reset {
        OffsetReset::Earliest => StartAt::Beginning,
        OffsetReset::Latest => StartAt::End,
        OffsetReset::ByDuration(ago) => {
            let ago_ms = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
            // Negative timestamps have other meanings.
            StartAt::Timestamp(config.clock.now_ms().saturating_sub(ago_ms).max(0))
        }
        OffsetReset::Error => StartAt::Offset(NO_OFFSET),
    }
}
