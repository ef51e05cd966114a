//! A snapshot of the state of each partition, for the watchdog. It is built on request from the state of fetching.

use ottla_protocol::ErrorCode;
use tokio::time::Instant;

use super::cursor::{Cursor, Position};
use super::fetcher::Fetcher;
use crate::cluster::brokers::Lane;
use crate::config::Isolation;
use crate::stats::Reachability;
use crate::types::TopicPartition;
use crate::watchdog::cause::StallReason;
use crate::watchdog::consumer::{Fetching, PartitionFacts, QueueFacts};

impl Fetcher {
    /// Answers the watchdog's request for a snapshot, if there is one, and begins the new sessions that it wants.
    pub(super) fn answer_snapshot_request(&mut self, now: Instant) {
        let request = &self.cursors.snapshot;
        for node in request.restart.borrow_mut().drain(..) {
            self.core.restart_session(node);
        }
        if request.wanted.replace(false) {
            *request.found.borrow_mut() = self.take_snapshot(now);
            request.answered.notify_one();
        }
    }

    fn take_snapshot(&self, now: Instant) -> Vec<PartitionFacts> {
        let waiting = self.surroundings.inbox.waiting();
        let mut table = self.cursors.table();
        let mut found = Vec::with_capacity(table.len());
        for slot in table.all() {
            let Some(cursor) = table.get_mut(slot) else { continue };
            let mut queue: QueueFacts = waiting.get(&slot).copied().unwrap_or_default();
            let progress = &cursor.progress;
            let position = progress.position();
            if let Position::At(fetched) = cursor.position {
                // The polling thread has a chunk whose records were not all given to the application.
                queue.waits |= position.is_some_and(|position| position < fetched);
            }
            let ends = progress.ends();
            let end = match self.surroundings.cluster.config.isolation_level {
                Isolation::ReadCommitted => ends.last_stable,
                Isolation::ReadUncommitted => ends.high_watermark,
            };
            let fetching = self.fetching(cursor, queue.waits, now);
            let trouble = cursor.last_error.clone().or_else(|| match fetching {
                Fetching::Stopped => None,
                Fetching::NoLeader { .. } => self.topic_trouble(&cursor.progress.at),
                _ => self.source_trouble(cursor),
            });
            found.push(PartitionFacts {
                at: cursor.progress.at.clone(),
                turn: cursor.progress.generation(),
                paused: cursor.paused || cursor.progress.is_paused(),
                position,
                end: Some(end).filter(|end| *end >= 0),
                queue,
                fetching,
                trouble,
            });
        }
        found
    }

    fn fetching(&self, cursor: &Cursor, waits: bool, now: Instant) -> Fetching {
        let TopicPartition { topic, partition } = &cursor.progress.at;
        let voided = cursor.generation != cursor.progress.generation();
        if cursor.position == Position::Failed || voided {
            return Fetching::Stopped;
        }
        let is_blocked = |until: Option<Instant>| until.is_some_and(|until| until > now);
        if is_blocked(cursor.blocked_until) {
            return Fetching::Blocked;
        }
        let Some(leader) = self.surroundings.cluster.leader(topic, *partition) else {
            let reachable = self.surroundings.cluster.topic(topic).is_some()
                || self.surroundings.cluster.observer.is_connected();
            return Fetching::NoLeader { reachable };
        };
        let node = cursor.session_at.or(cursor.queued_at).unwrap_or(leader);
        if let Reachability::Trying(text) = self.surroundings.cluster.observer.reach(node) {
            return Fetching::NotConnected { node, text };
        }
        let (source, brokers) = (self.core.source(node), &self.surroundings.cluster.brokers);
        let what = match cursor.position {
            Position::Unresolved(_) | Position::Resolving(_) => Some("ListOffsets"),
            Position::Validating(_) => Some("OffsetForLeaderEpoch"),
            Position::At(_) | Position::Failed => None,
        };
        if let Some(what) = what {
            return Fetching::Asked { what, node, due: cursor.requested_at, answers: 0 };
        }
        if waits && cursor.queued_at.is_none() && cursor.session_at.is_none() {
            return Fetching::Ahead;
        }
        match source {
            Some(source) if is_blocked(source.blocked_until) => Fetching::Blocked,
            Some(source) if source.waits_for_room && source.in_flight.is_none() => Fetching::NoRoom,
            Some(source) => Fetching::Asked {
                what: "Fetch",
                node,
                due: source.in_flight.map(|fetch| brokers.due_behind_throttle(node, Lane::Fetch, fetch.due)),
                answers: source.responses,
            },
            None => Fetching::Asked { what: "Fetch", node, due: None, answers: 0 },
        }
    }

    fn source_trouble(&self, cursor: &Cursor) -> Option<StallReason> {
        let TopicPartition { topic, partition } = &cursor.progress.at;
        let node = cursor.session_at.or(cursor.queued_at);
        let node = node.or_else(|| self.surroundings.cluster.leader(topic, *partition))?;
        self.core.source(node)?.last_error.clone()
    }

    fn topic_trouble(&self, at: &TopicPartition) -> Option<StallReason> {
        let layout = self.surroundings.cluster.topic(&at.topic)?;
        (layout.error != ErrorCode::None).then(|| StallReason::of_code(layout.error))
    }
}
