//! What an answer means for the cursors that it is about.

use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::fetch::{FetchResponse, PartitionData};
use ottla_wire::Chain;
use tokio::time::Instant;

use super::cursor::{Answer, Cursor, Next, Position, StartAt};
use super::fetcher::{Asked, Event, Fetcher, reset_to};
use super::inbox::Item;
use super::place::Ends;
use super::session::Session;
use crate::config::{Config, OffsetReset};
use crate::consumer::{Event as ToApplication, TopicPartition};
use crate::error::Error;
use crate::log::Context;
use crate::watchdog::cause::{Cause, Trouble};

/// How long a consumer waits after it was refused as who it is, or has refused the broker.
const SECURITY_PAUSE: Duration = Duration::from_secs(1);

/// What a response brought.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    /// Partitions with records.
    chunks: usize,
    /// Partitions with an error.
    errors: usize,
    /// Partitions that were not requested.
    foreign: usize,
}

impl Taken {
    /// Whether it brought no records, but errors or what nobody requested.
    const fn is_fruitless(self) -> bool {
        self.chunks == 0 && (self.errors > 0 || self.foreign > 0)
    }
}

impl Fetcher {
    pub(super) fn on_event(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Fetched { node, result } => self.on_fetched(node, result, now),
            Event::FetchedAside { node, result } => self.on_fetched_aside(node, result, now),
            Event::Known { asked, start } => {
                self.change(&asked, |cursor| cursor.position = Position::Unresolved(start));
            }
            Event::Resolved { asked, start, result } => self.on_resolved(&asked, start, result, now),
            Event::Validated { asked, leader_epoch, offset, result } => {
                self.on_validated(&asked, leader_epoch, offset, result, now);
            }
        }
    }

    /// Changes the cursor that was asked for, if it is still as it was then.
    fn change(&self, asked: &Asked, change: impl FnOnce(&mut Cursor)) {
        let mut table = self.cursors.table();
        let same =
            |cursor: &&mut Cursor| Arc::ptr_eq(&cursor.place, &asked.place) && cursor.turn == asked.turn;
        if let Some(cursor) = table.get_mut(asked.slot).filter(same) {
            change(cursor);
            table.touch(asked.slot);
        }
    }

    fn on_resolved(&self, asked: &Asked, start: StartAt, result: Result<i64, Error>, now: Instant) {
        self.change(asked, |cursor| cursor.trouble = result.as_ref().err().map(Trouble::of));
        self.change(asked, |cursor| match result {
            Ok(offset) => {
                cursor.asked_at = None;
                cursor.go_to(offset);
            }
            Err(error) if error.is_retriable() => {
                cursor.position = Position::Unresolved(start);
                cursor.blocked_until = Some(now + self.cluster.config.retry_backoff);
            }
            // The application is told, and the certificate or password may be mended yet.
            Err(error) if error.is_security() => {
                cursor.position = Position::Unresolved(start);
                cursor.blocked_until = Some(now + SECURITY_PAUSE);
                self.inbox.push(Item::Error(error));
            }
            Err(error) => {
                cursor.position = Position::Failed;
                self.inbox.push_to(asked.slot, Item::Error(error));
            }
        });
    }

    fn on_validated(
        &self,
        asked: &Asked,
        leader_epoch: i32,
        offset: i64,
        result: Result<Option<i64>, Error>,
        now: Instant,
    ) {
        self.change(asked, |cursor| {
            cursor.position = Position::At(offset);
            cursor.trouble = result.as_ref().err().map(Trouble::of);
            match result {
                Ok(Some(end)) if end < offset => self.on_truncated(cursor, offset, end),
                Ok(_) => cursor.proven_at = leader_epoch,
                Err(error) => {
                    tracing::debug!(%error, at = %cursor.place.at, "is the log still the same?");
                    self.block(cursor, now);
                }
            }
        });
    }

    /// The leader's log ends, or goes on otherwise, before what was read.
    fn on_truncated(&self, cursor: &mut Cursor, offset: i64, end: i64) {
        let at = cursor.place.at.clone();
        if cursor.place.reset(&self.cluster.config) == OffsetReset::Error {
            cursor.position = Position::Failed;
            let (topic, partition) = (at.topic.to_string(), at.partition);
            let error = Error::LogTruncated { topic, partition, offset, end };
            cursor.trouble = Some(Trouble::of(&error));
            return self.inbox.push_to(cursor.slot, Item::Error(error));
        }
        tracing::warn!(%at, offset, end, "the log was truncated: going on at its end");
        let handed_out = cursor.place.position().unwrap_or(offset);
        cursor.seek(StartAt::Offset(end.min(handed_out)));
        self.inbox.purge(cursor.slot);
    }

    fn on_fetched(&mut self, node: i32, result: Result<FetchResponse, Error>, now: Instant) {
        let Some(source) = self.sources.get_mut(&node) else { return };
        source.busy = false;
        if let (Some(fetch), Ok(response)) = (source.under_way.take(), &result) {
            let began = fetch.room.begun_at().unwrap_or(now);
            let (waited, came_for) = (began - fetch.sent_at, now - began);
            source.portion.answered(fetch.asked, bytes_of(response), waited, came_for);
        }
        let due = source.due.take();
        source.answers += u64::from(result.is_ok());
        source.trouble = match &result {
            Ok(response) if response.error_code == ErrorCode::None => None,
            Ok(response) => Some(Trouble::of_code(response.error_code)),
            Err(error) => Some(Trouble::of(error)),
        };
        let unanswered = source.trouble.as_ref().is_some_and(|trouble| trouble.cause == Cause::NoAnswer);
        // One that takes long is slow, and would be given up again.
        let slow =
            due.zip(self.cluster.config.patience(0)).is_some_and(|(due, patience)| due + patience <= now);
        source.unanswered = match (unanswered, slow) {
            (true, _) => source.unanswered + 1,
            (false, true) => source.unanswered,
            (false, false) => 0,
        };
        let (error, id) = result
            .as_ref()
            .map_or((ErrorCode::NetworkException, 0), |response| (response.error_code, response.session_id));
        let goes_on = source.session.on_answer(error, id);
        let problem = match &result {
            Ok(_) if error == ErrorCode::None => None,
            Ok(_) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem {
            self.cluster
                .observer
                .log
                .debug(Context::Fetch, "FETCHERR", || format!("fetch from node {node}: {problem}"));
            // A session that the broker has given up is begun anew at once, anything else after a pause.
            if !is_about_session(error) || source.failures > 0 {
                let pause = pause(&self.cluster.config, source.failures);
                source.blocked_until = Some(now + pause);
            }
            source.failures += 1;
            if result.is_err() || error.needs_metadata_refresh() {
                self.cluster.refresh();
            }
            // Their leaders may be others by now.
            let mut table = self.cursors.table();
            for slot in source.session.slots() {
                if let Some(cursor) = table.get_mut(slot) {
                    cursor.replica = None;
                }
                table.touch(slot);
            }
            return;
        }
        source.failures = 0;
        source.blocked_until = None;
        if let Ok(response) = result {
            self.observer_hears(node, &response);
            if let Some(source) = self.sources.get(&node) {
                let taken = self.on_response(node, &source.session, response, now);
                let is_early = due.is_some_and(|due| now < due);
                self.bound_rate(node, taken, is_early, now);
            }
        }
        if !goes_on && let Some(source) = self.sources.get(&node) {
            let mut table = self.cursors.table();
            source.session.slots().into_iter().for_each(|slot| table.touch(slot));
        }
    }

    /// What was fetched beside a fetch that waits: from here on it is fetched with the others.
    fn on_fetched_aside(&mut self, node: i32, result: Result<FetchResponse, Error>, now: Instant) {
        let aside = self.sources.get_mut(&node).and_then(|source| source.aside.take());
        let Some(mut session) = aside else { return };
        let mut table = self.cursors.table();
        let mut moved = Vec::new();
        for slot in session.slots() {
            // It may have gone to another broker, or its slot to another partition.
            let is_here =
                |cursor: &&mut Cursor| session.has(slot, &cursor.place) && cursor.listed_at == Some(node);
            match table.get_mut(slot).filter(is_here) {
                Some(cursor) => {
                    cursor.listed_at = None;
                    table.touch(slot);
                }
                None => moved.push(slot),
            }
        }
        drop(table);
        for slot in moved {
            session.forget(slot);
        }
        let problem = match result {
            Ok(response) if response.error_code == ErrorCode::None => {
                self.observer_hears(node, &response);
                let taken = self.on_response(node, &session, response, now);
                if taken.is_fruitless() {
                    self.block_aside(node, now);
                }
                return;
            }
            Ok(response) => response.error_code.to_string(),
            Err(error) => error.to_string(),
        };
        self.cluster
            .observer
            .log
            .debug(Context::Fetch, "FETCHERR", || format!("fetch from node {node}: {problem}"));
        self.cluster.refresh();
        self.block_aside(node, now);
        let mut table = self.cursors.table();
        for slot in session.slots() {
            if let Some(cursor) = table.get_mut(slot) {
                self.block(cursor, now);
                cursor.replica = None;
            }
        }
    }

    /// Sends nothing outside the session for a moment.
    fn block_aside(&mut self, node: i32, now: Instant) {
        if let Some(source) = self.sources.get_mut(&node) {
            source.aside_blocked_until = Some(now + pause(&self.cluster.config, 0));
        }
    }

    /// Keeps responses that bring nothing from being requested again at once: one may be chance, the next one waits for
    /// the back-off. A response that names partitions that were not requested means that the broker has another idea
    /// of the session than we do: a new one is begun.
    fn bound_rate(&mut self, node: i32, taken: Taken, is_early: bool, now: Instant) {
        let Some(source) = self.sources.get_mut(&node) else { return };
        if taken.foreign > 0 {
            tracing::debug!(
                node,
                partitions = taken.foreign,
                "a response for another session: a new one begins"
            );
            source.session.restart();
        }
        if !taken.is_fruitless() && (taken.chunks > 0 || !is_early) {
            source.fruitless = 0;
            return;
        }
        if source.fruitless > 0 {
            source.blocked_until = Some(now + pause(&self.cluster.config, source.fruitless - 1));
        }
        source.fruitless += 1;
    }

    fn observer_hears(&self, node: i32, response: &FetchResponse) {
        self.cluster.observer.throttled(node, response.throttle_time_ms);
        for node in &response.node_endpoints {
            self.cluster.brokers.learn(node.node_id, &node.host, node.port as u16);
        }
    }

    fn on_response(&self, node: i32, session: &Session, response: FetchResponse, now: Instant) -> Taken {
        let mut taken = Taken::default();
        let mut table = self.cursors.table();
        for topic in response.responses {
            for answer in topic.partitions {
                taken.errors += usize::from(answer.error_code != ErrorCode::None);
                let found = session.find(topic.topic_id, &topic.topic, answer.partition_index);
                let Some((slot, member)) = found else {
                    let leaving = session.is_leaving(topic.topic_id, &topic.topic, answer.partition_index);
                    taken.foreign += usize::from(!leaving);
                    continue;
                };
                let asked = member.wish.offset;
                let same =
                    |cursor: &&mut Cursor| Arc::ptr_eq(&cursor.place, &member.place) && cursor.is_at(asked);
                if let Some(cursor) = table.get_mut(slot).filter(same) {
                    taken.chunks += usize::from(self.on_answer(node, cursor, asked, answer, now));
                    table.touch(slot);
                }
            }
        }
        taken
    }

    /// Takes in one partition's answer; `true` if it brought records.
    fn on_answer(
        &self,
        node: i32,
        cursor: &mut Cursor,
        asked: i64,
        answer: PartitionData,
        now: Instant,
    ) -> bool {
        let TopicPartition { topic, partition } = &cursor.place.at.clone();
        let config = &self.cluster.config;
        let hint = answer.current_leader.clone();
        let slot = cursor.slot;
        let fail = |error| self.inbox.push_to(slot, Item::Error(error));
        if cursor.replica.is_some() && answer.error_code != ErrorCode::None {
            // Only the leader's word counts: a replica may lag behind, or be none any more.
            cursor.replica = None;
            // Should the leader send us there again, and again in vain, then not in a circle without a pause.
            self.block_from_second(cursor, now);
            return false;
        }
        let preferred = answer.preferred_read_replica;
        if preferred >= 0 && preferred != node && answer.error_code == ErrorCode::None {
            cursor.replica = Some((preferred, now + config.metadata_max_age));
            return false;
        }
        let ends = Ends {
            log_start: answer.log_start_offset,
            last_stable: answer.last_stable_offset,
            high_watermark: answer.high_watermark,
        };
        let aborted = answer.aborted_transactions.unwrap_or_default();
        let mut aborted: Vec<_> =
            aborted.iter().map(|entry| (entry.first_offset, entry.producer_id)).collect();
        // Kafka sorts them, not everybody does (FAULTS C18).
        aborted.sort_unstable();
        let records = answer.records.and_then(|chain| chain.to_bytes().ok());
        let watermarks = (ends.log_start, ends.high_watermark);
        self.cluster.observer.fetched(node, topic, *partition, asked, watermarks);
        let answer = Answer { asked, error: answer.error_code, ends, records, aborted };
        let mut brought_records = false;
        match cursor.on_answer(answer, config.decompressed_bytes_max) {
            Next::Deliver(chunk) => {
                brought_records = true;
                self.inbox.push_to(slot, Item::Chunk(chunk));
            }
            Next::Nothing => {}
            // The new leader may be asked at once (KIP-951), but brokers that name each other not in a circle.
            Next::Retry { refresh: true }
                if self.cluster.learn_leader(topic, *partition, node, hint.leader_id, hint.leader_epoch) =>
            {
                self.block_from_second(cursor, now);
            }
            Next::Retry { refresh } => {
                self.block(cursor, now);
                if refresh {
                    self.cluster.forget_leader(topic, *partition);
                }
            }
            Next::OutOfRange(offset) => match cursor.place.reset(config) {
                OffsetReset::Error => {
                    cursor.position = Position::Failed;
                    fail(Error::OffsetOutOfRange { topic: topic.to_string(), partition: *partition, offset });
                }
                reset => {
                    tracing::info!(%topic, partition, offset, ?reset, "offset out of range");
                    let attempts = cursor.attempts;
                    cursor.seek(reset_to(reset, config));
                    cursor.attempts = attempts;
                    // The offset that the broker names next may be out of range again.
                    self.block_from_second(cursor, now);
                }
            },
            Next::Fail(code) => {
                fail(Error::Broker { what: format!("fetch of topic `{topic}` partition {partition}"), code });
            }
            Next::Corrupt(offset, reason) => {
                fail(Error::Corrupt { topic: topic.to_string(), partition: *partition, offset, reason });
            }
        }
        if config.partition_end_events
            && let Some(offset) = cursor.arrives(config.isolation)
        {
            let at = cursor.place.at.clone();
            self.inbox.push_to(slot, Item::Event(ToApplication::EndOfPartition { at, offset }));
        }
        brought_records
    }

    /// Lets the first attempt after a success go at once, and each further one after a pause.
    fn block_from_second(&self, cursor: &mut Cursor, now: Instant) {
        if cursor.attempts > 0 {
            self.block(cursor, now);
        } else {
            cursor.attempts = 1;
        }
    }

    /// Asks again after a pause.
    fn block(&self, cursor: &mut Cursor, now: Instant) {
        cursor.blocked_until = Some(now + pause(&self.cluster.config, cursor.attempts));
        cursor.attempts += 1;
    }
}

/// How long to wait after so many failures: as the property says, or longer each time.
fn pause(config: &Config, attempts: u32) -> Duration {
    match config.fetch_error_backoff {
        Some(set) => set.max(Duration::from_millis(1)),
        None => config.retry_backoff.saturating_mul(2 << attempts.min(5)).min(Duration::from_secs(1)),
    }
}

const fn is_about_session(error: ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::FetchSessionIdNotFound
            | ErrorCode::InvalidFetchSessionEpoch
            | ErrorCode::FetchSessionTopicIdError
    )
}

/// Bytes of records in an answer.
fn bytes_of(response: &FetchResponse) -> usize {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    partitions.filter_map(|answer| answer.records.as_ref()).map(Chain::len).sum()
}
