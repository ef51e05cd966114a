//! What the fetcher knows of each partition at one moment, for the watchdog. Nothing is kept for it beside what fetching
//! keeps anyway.

use ottla_protocol::ErrorCode;
use tokio::time::Instant;

use super::cursor::{Cursor, Position};
use super::fetcher::Fetcher;
use crate::config::Isolation;
use crate::consumer::TopicPartition;
use crate::stats::Reach;
use crate::watchdog::cause::Trouble;
use crate::watchdog::consumer::{Fetching, PartitionFacts, QueueFacts};

impl Fetcher {
    /// Says what it knows if somebody has asked, and does what was asked for.
    pub(super) fn answer_survey(&mut self, now: Instant) {
        let cursors = self.cursors.clone();
        let wish = &cursors.survey;
        for node in wish.restart.borrow_mut().drain(..) {
            if let Some(source) = self.sources.get_mut(&node) {
                source.restart = true;
            }
        }
        if wish.wanted.replace(false) {
            *wish.found.borrow_mut() = self.survey(now);
            wish.answered.notify_one();
        }
    }

    fn survey(&self, now: Instant) -> Vec<PartitionFacts> {
        let waiting = self.inbox.waiting();
        let mut table = self.cursors.table();
        let mut found = Vec::with_capacity(table.len());
        for slot in table.all() {
            let Some(cursor) = table.get_mut(slot) else { continue };
            let mut queue: QueueFacts = waiting.get(&slot).copied().unwrap_or_default();
            let place = &cursor.place;
            let position = place.position();
            if let Position::At(fetched) = cursor.position {
                // Taken out of the queue, and not handed out yet.
                queue.waits |= position.is_some_and(|position| position < fetched);
            }
            let ends = place.ends();
            let end = match self.cluster.config.isolation {
                Isolation::ReadCommitted => ends.last_stable,
                Isolation::ReadUncommitted => ends.high_watermark,
            };
            let fetching = self.fetching(cursor, queue.waits, now);
            let trouble = cursor.trouble.clone().or_else(|| match fetching {
                Fetching::Stopped => None,
                Fetching::NoLeader { .. } => self.topic_trouble(&cursor.place.at),
                _ => self.source_trouble(cursor),
            });
            found.push(PartitionFacts {
                at: cursor.place.at.clone(),
                turn: cursor.place.turn(),
                paused: cursor.paused || cursor.place.is_paused(),
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
        let TopicPartition { topic, partition } = &cursor.place.at;
        let voided = cursor.turn != cursor.place.turn();
        if cursor.position == Position::Failed || voided {
            return Fetching::Stopped;
        }
        let is_blocked = |until: Option<Instant>| until.is_some_and(|until| until > now);
        if is_blocked(cursor.blocked_until) {
            return Fetching::Blocked;
        }
        let Some(leader) = self.cluster.leader(topic, *partition) else {
            let reachable = self.cluster.topic(topic).is_some() || self.cluster.observer.is_connected();
            return Fetching::NoLeader { reachable };
        };
        let node = cursor.session_at.or(cursor.listed_at).unwrap_or(leader);
        if let Reach::Trying(text) = self.cluster.observer.reach(node) {
            return Fetching::NotConnected { node, text };
        }
        let source = self.sources.get(&node);
        let what = match cursor.position {
            Position::Unresolved(_) | Position::Resolving(_) => Some("ListOffsets"),
            Position::Validating(_) => Some("OffsetForLeaderEpoch"),
            Position::At(_) | Position::Failed => None,
        };
        if let Some(what) = what {
            return Fetching::Asked { what, node, due: cursor.asked_at, answers: 0 };
        }
        if waits && cursor.listed_at.is_none() && cursor.session_at.is_none() {
            return Fetching::Ahead;
        }
        match source {
            Some(source) if is_blocked(source.blocked_until) => Fetching::Blocked,
            Some(source) if source.short && !source.busy => Fetching::NoRoom,
            Some(source) => Fetching::Asked { what: "Fetch", node, due: source.due, answers: source.answers },
            None => Fetching::Asked { what: "Fetch", node, due: None, answers: 0 },
        }
    }

    fn source_trouble(&self, cursor: &Cursor) -> Option<Trouble> {
        let TopicPartition { topic, partition } = &cursor.place.at;
        let node = cursor.session_at.or(cursor.listed_at);
        let node = node.or_else(|| self.cluster.leader(topic, *partition))?;
        self.sources.get(&node)?.trouble.clone()
    }

    fn topic_trouble(&self, at: &TopicPartition) -> Option<Trouble> {
        let layout = self.cluster.topic(&at.topic)?;
        (layout.error != ErrorCode::None).then(|| Trouble::of_code(layout.error))
    }
}
