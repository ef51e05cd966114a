//! The stalls of one consumer, decided from collected facts. Sync, without a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::cause::{Cause, StallReason};
use super::{ActiveStall, Stall};
use crate::types::TopicPartition;

/// A snapshot of one partition.
#[derive(Debug)]
pub(crate) struct PartitionFacts {
    pub(crate) at: TopicPartition,
    /// Changes after each seek and each new assignment.
    pub(crate) turn: u64,
    pub(crate) paused: bool,
    /// The next offset for the application.
    pub(crate) position: Option<i64>,
    /// The end of the partition for this consumer.
    pub(crate) end: Option<i64>,
    pub(crate) queue: QueueFacts,
    pub(crate) fetching: Fetching,
    pub(crate) trouble: Option<StallReason>,
}

/// The records that wait in a partition's queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueFacts {
    pub(crate) id: usize,
    /// The number of polls of the queue.
    pub(crate) looks: u64,
    /// Waiting records; the queue no longer contains a chunk that is being read.
    pub(crate) records: u64,
    /// `true` if a record or an error waits.
    pub(crate) waits: bool,
}

/// The state of the fetches of a partition.
#[derive(Debug)]
pub(crate) enum Fetching {
    /// Fetching resumes only after a seek or a new assignment.
    Stopped,
    NoLeader {
        /// `true` if a broker that could report the leader is reachable.
        reachable: bool,
    },
    NotConnected {
        node: i32,
        /// The attempts, their number and the result.
        text: String,
    },
    /// A pause until the next attempt.
    Blocked,
    /// The budget has no room for a fetch.
    NoRoom,
    /// A request is in progress, or about to be sent.
    Asked {
        what: &'static str,
        node: i32,
        /// The time at which the response is due.
        due: Option<Instant>,
        /// Responses from this broker so far.
        answers: u64,
    },
    /// Enough records wait for the application; no fetch is needed.
    Ahead,
}

/// A snapshot of the consumer.
#[derive(Debug)]
pub(crate) struct ConsumerFacts {
    pub(crate) partitions: Vec<PartitionFacts>,
    /// The time since the last poll; zero while a poll waits.
    pub(crate) poll_age: Duration,
    pub(crate) budget_used: usize,
    pub(crate) budget_max: usize,
    /// Bytes of the budget that wait to be polled.
    pub(crate) queued_bytes: usize,
    pub(crate) group: Option<GroupFacts>,
}

/// The consumer's state in its group.
#[derive(Debug)]
pub(crate) struct GroupFacts {
    pub(crate) group: Arc<str>,
    /// `true` if a change of the assignment is in progress.
    pub(crate) unsettled: bool,
    /// The time since which the group makes no progress.
    pub(crate) since: Instant,
    /// The reason, if known.
    pub(crate) trouble: Option<StallReason>,
}

/// The stalls to report and the actions to take.
#[derive(Debug, Default)]
pub(crate) struct WatchResult {
    pub(crate) stalls: Vec<ActiveStall>,
    /// Brokers that respond without data for a partition: their fetch sessions are restarted.
    pub(crate) restart: Vec<i32>,
}

/// The progress of each partition at earlier checks.
#[derive(Debug, Default)]
pub(crate) struct ConsumerWatch {
    partitions: BTreeMap<TopicPartition, TrackedPartition>,
    queues: BTreeMap<usize, (u64, Instant)>,
    /// Causes that were reported for many partitions at once, until no partition has them.
    many: BTreeSet<SharedCause>,
    group: Option<(Cause, Option<Cause>)>,
}

/// A cause that many partitions can share, with the broker if it concerns one.
type SharedCause = (Option<i32>, Cause);

/// Above this number, partitions with the same cause are reported together.
const FEW: usize = 10;
/// The number of partitions that such a report names.
const NAMED: usize = 3;

#[derive(Debug)]
struct TrackedPartition {
    turn: u64,
    position: Option<i64>,
    since: Instant,
    /// The broker and its number of responses at the last progress.
    answers: Option<(i32, u64)>,
    cause: Option<Cause>,
    /// Another cause that was found once. A single check is not enough, because attempts start and end.
    rival: Option<Cause>,
    restarted: bool,
}

enum Diagnosis {
    /// The partition waits for its turn; the last poll of its queue was this long ago.
    Goes(Duration),
    /// No new finding: the previous cause holds.
    Unsure,
    Stuck(Cause, String),
}

/// The consumer's own queue.
const MAIN_QUEUE: usize = 0;
/// Responses without data for a partition that is behind, after which its fetch session is restarted.
const ANSWERS_ENOUGH: u64 = 3;

impl ConsumerWatch {
    /// Returns the partitions without progress for at least `after`.
    pub(crate) fn look(&mut self, now: Instant, after: Duration, facts: &ConsumerFacts) -> WatchResult {
        self.look_at_queues(now, facts);
        let mut result = WatchResult::default();
        let still = |at: &TopicPartition| facts.partitions.iter().any(|partition| partition.at == *at);
        if self.partitions.len() > facts.partitions.len() {
            self.partitions.retain(|at, _| still(at));
        }
        let mut stuck = BTreeMap::new();
        for partition in &facts.partitions {
            self.look_at(now, after, facts, partition, &mut stuck, &mut result.restart);
        }
        self.say(now, after, stuck, &mut result.stalls);
        self.look_at_group(now, after, facts, &mut result);
        result
    }

    /// A queue is alive if it is polled, or if records of it are returned.
    fn look_at_queues(&mut self, now: Instant, facts: &ConsumerFacts) {
        for partition in &facts.partitions {
            let QueueFacts { id, looks, .. } = partition.queue;
            let moved = self
                .partitions
                .get(&partition.at)
                .is_some_and(|known| known.position != partition.position && known.turn == partition.turn);
            let seen = self.queues.entry(id).or_insert((looks, now));
            if seen.0 != looks || moved {
                *seen = (looks, now);
            }
        }
    }

    /// The time since the last poll of a queue.
    fn idle(&self, now: Instant, queue: usize, poll_age: Duration) -> Duration {
        let idle = self.queues.get(&queue).map_or(Duration::ZERO, |seen| now - seen.1);
        if queue == MAIN_QUEUE { idle.min(poll_age) } else { idle }
    }

    fn look_at(
        &mut self,
        now: Instant,
        after: Duration,
        facts: &ConsumerFacts,
        partition: &PartitionFacts,
        stuck: &mut BTreeMap<SharedCause, Vec<(TopicPartition, Instant, String)>>,
        restart: &mut Vec<i32>,
    ) {
        let PartitionFacts { at, turn, position, .. } = partition;
        let stopped = matches!(partition.fetching, Fetching::Stopped);
        let behind = position.is_none_or(|position| partition.end.is_none_or(|end| position < end));
        if partition.paused || !(behind || stopped) {
            self.partitions.remove(at);
            return;
        }
        let idle = self.idle(now, partition.queue.id, facts.poll_age);
        let answers = match partition.fetching {
            Fetching::Asked { node, answers, .. } => Some((node, answers)),
            _ => None,
        };
        let fresh = || TrackedPartition {
            turn: *turn,
            position: *position,
            since: now,
            answers,
            cause: None,
            rival: None,
            restarted: false,
        };
        let known = self.partitions.entry(at.clone()).or_insert_with(fresh);
        if known.turn != *turn || known.position != *position {
            *known = fresh();
        }
        if known.answers.map(|(node, _)| node) != answers.map(|(node, _)| node) && answers.is_some() {
            known.answers = answers;
        }
        match decide(now, after, facts, partition, known, idle) {
            Diagnosis::Goes(ago) => (known.since, known.cause) = (known.since.max(now - ago), None),
            Diagnosis::Unsure => {}
            Diagnosis::Stuck(cause, _) if known.cause.is_some_and(|old| old != cause) => {
                if known.rival.replace(cause) == Some(cause) {
                    (known.cause, known.rival) = (Some(cause), None);
                }
            }
            Diagnosis::Stuck(cause, _) => (known.cause, known.rival) = (Some(cause), None),
        }
        let lasted = now - known.since;
        // Partitions that are about to reach the limit count when many are reported together.
        let Some(cause) = known.cause.filter(|_| lasted >= after / 2) else { return };
        if let (Cause::NoAnswer, Fetching::Asked { node, answers, .. }, Some((_, before)), false) =
            (cause, &partition.fetching, known.answers, known.restarted)
            && *answers >= before + ANSWERS_ENOUGH
            && lasted >= after
        {
            known.restarted = true;
            restart.push(*node);
        }
        let trying = match decide(now, after, facts, partition, known, idle) {
            Diagnosis::Stuck(found, text) if found == cause => text,
            _ => partition.trouble.as_ref().map_or_else(|| "trying again".into(), |last| last.text.clone()),
        };
        let lag = position.zip(partition.end).map(|(position, end)| end - position);
        let numbers = format!("offset {}, lag {}; ", or_unknown(*position), or_unknown(lag));
        let node = match partition.fetching {
            Fetching::Asked { node, .. } | Fetching::NotConnected { node, .. } => Some(node),
            _ => None,
        };
        // Causes in the application concern no broker.
        let node = node.filter(|_| !matches!(cause, Cause::NotPolled | Cause::BudgetHeld));
        stuck.entry((node, cause)).or_default().push((at.clone(), known.since, numbers + &trying));
    }

    /// Reports a few stalled partitions one by one, and many together.
    fn say(
        &mut self,
        now: Instant,
        after: Duration,
        stuck: BTreeMap<SharedCause, Vec<(TopicPartition, Instant, String)>>,
        stalls: &mut Vec<ActiveStall>,
    ) {
        self.many.retain(|blame| stuck.contains_key(blame));
        self.many.extend(stuck.iter().filter(|(_, all)| all.len() > FEW).map(|(blame, _)| *blame));
        for ((node, cause), all) in stuck {
            let mut long = all.iter().filter(|(_, since, _)| now - *since >= after).peekable();
            let Some((_, _, text)) = long.peek() else { continue };
            if !self.many.contains(&(node, cause)) {
                stalls.extend(long.map(|(at, since, text)| ActiveStall {
                    stall: Stall::Consuming { topic: at.topic.clone(), partition: at.partition, cause },
                    since: Some(*since),
                    trying: text.clone(),
                }));
                continue;
            }
            let names: Vec<String> = all.iter().take(NAMED).map(|(at, _, _)| at.to_string()).collect();
            let (count, more) = (all.len(), all.len() - names.len());
            let trying =
                format!("{count} partitions: {} and {more} more; the first: {text}", names.join(", "));
            let since = all.iter().map(|(_, since, _)| *since).min();
            stalls.push(ActiveStall { stall: Stall::ConsumingMany { node, cause }, since, trying });
        }
    }

    fn look_at_group(
        &mut self,
        now: Instant,
        after: Duration,
        facts: &ConsumerFacts,
        result: &mut WatchResult,
    ) {
        let Some(GroupFacts { group, since, trouble: Some(trouble), .. }) = &facts.group else {
            self.group = None;
            return;
        };
        let (cause, rival) = self.group.get_or_insert((trouble.cause, None));
        if *cause == trouble.cause {
            *rival = None;
        } else if rival.replace(trouble.cause) == Some(trouble.cause) {
            (*cause, *rival) = (trouble.cause, None);
        }
        if now.saturating_duration_since(*since) >= after {
            let stall = Stall::Group { group: group.clone(), cause: *cause };
            result.stalls.push(ActiveStall { stall, since: Some(*since), trying: trouble.text.clone() });
        }
    }
}

fn decide(
    now: Instant,
    after: Duration,
    facts: &ConsumerFacts,
    partition: &PartitionFacts,
    known: &TrackedPartition,
    idle: Duration,
) -> Diagnosis {
    let trouble = partition.trouble.as_ref();
    let last = || trouble.map_or_else(|| "none is known".to_owned(), |trouble| trouble.text.clone());
    let queue = &partition.queue;
    match &partition.fetching {
        Fetching::Stopped if facts.group.as_ref().is_some_and(|group| group.unsettled) => Diagnosis::Stuck(
            Cause::Rebalance,
            "the group takes it back; waiting for the application and the group".into(),
        ),
        Fetching::Stopped => Diagnosis::Stuck(
            trouble.map_or(Cause::Stopped, |trouble| trouble.cause),
            format!("nothing before a seek; the error: {}", last()),
        ),
        _ if queue.waits && idle < after => Diagnosis::Goes(idle),
        // The application has its error, or finds it with the next poll.
        Fetching::Ahead | Fetching::Blocked | Fetching::Asked { .. }
            if trouble.is_some_and(|trouble| trouble.cause == Cause::Unauthorized) =>
        {
            let text = format!("fetching again after pauses; the error: {}", last());
            Diagnosis::Stuck(Cause::Unauthorized, text)
        }
        Fetching::Ahead => Diagnosis::Stuck(Cause::NotPolled, not_polled(queue, idle)),
        _ if queue.waits => Diagnosis::Stuck(Cause::NotPolled, not_polled(queue, idle)),
        Fetching::NoLeader { reachable: true } => {
            let cause = trouble.map(|trouble| trouble.cause).filter(|cause| *cause == Cause::Unauthorized);
            let text = format!("asking for metadata; the last problem: {}", last());
            Diagnosis::Stuck(cause.unwrap_or(Cause::NoLeader), text)
        }
        Fetching::NoLeader { reachable: false } => {
            Diagnosis::Stuck(Cause::NoConnection, "connecting to any broker, to find the leader".into())
        }
        Fetching::NotConnected { text, .. } => match trouble {
            Some(StallReason { cause: Cause::Unauthorized, .. }) => {
                Diagnosis::Stuck(Cause::Unauthorized, format!("connecting again; {}", last()))
            }
            _ => Diagnosis::Stuck(Cause::NoConnection, text.clone()),
        },
        Fetching::Blocked => {
            let cause = trouble.map_or(Cause::BackOff, |trouble| trouble.cause);
            Diagnosis::Stuck(cause, format!("asking again after a pause; the last problem: {}", last()))
        }
        Fetching::NoRoom => no_room(after, facts),
        Fetching::Asked { what, node, due, answers } => {
            if trouble.is_some_and(|trouble| trouble.cause == Cause::Unauthorized) {
                return Diagnosis::Stuck(Cause::Unauthorized, format!("asking again; {}", last()));
            }
            let ignored = known.answers.is_some_and(|(_, before)| *answers >= before + ANSWERS_ENOUGH);
            if ignored && trouble.is_none() && partition.end.is_some() {
                let text =
                    format!("node {node} answers, but not for this partition: a new fetch session begins");
                return Diagnosis::Stuck(Cause::NoAnswer, text);
            }
            match due.map(|due| now.saturating_duration_since(due)).filter(|late| *late >= after) {
                Some(late) => {
                    let ms = late.as_millis();
                    let text = format!(
                        "{what} to node {node} has been due for {ms} ms; then the connection is dropped and it goes again"
                    );
                    Diagnosis::Stuck(Cause::NoAnswer, text)
                }
                None => trouble.map_or(Diagnosis::Unsure, |StallReason { cause, text }| {
                    Diagnosis::Stuck(*cause, format!("asking again; the last problem: {text}"))
                }),
            }
        }
    }
}

/// The consumer's memory budget is used up.
fn no_room(after: Duration, facts: &ConsumerFacts) -> Diagnosis {
    let (used, max, queued) = (facts.budget_used, facts.budget_max, facts.queued_bytes);
    let numbers = format!("{used} of {max} bytes are in use, {queued} of them wait in the queue");
    if queued < used / 2 {
        return Diagnosis::Stuck(
            Cause::BudgetHeld,
            format!("nothing before something is dropped: {numbers}"),
        );
    }
    if facts.poll_age < after {
        return Diagnosis::Goes(facts.poll_age);
    }
    Diagnosis::Stuck(Cause::NotPolled, format!("nothing before a poll: {numbers}"))
}

fn not_polled(queue: &QueueFacts, idle: Duration) -> String {
    let ms = idle.as_millis();
    format!(
        "nothing before a poll: {} records wait in the queue; the last poll was {ms} ms ago",
        queue.records
    )
}

fn or_unknown(number: Option<i64>) -> String {
    number.map_or_else(|| "unknown".into(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(5);

    fn asked(answers: u64) -> Fetching {
        Fetching::Asked { what: "Fetch", node: 1, due: None, answers }
    }

    fn facts(position: i64, records: u64, looks: u64, fetching: Fetching) -> ConsumerFacts {
        let queue = QueueFacts { id: 0, looks, records, waits: records > 0 };
        let at = TopicPartition::new("orders", 0);
        let (position, end) = (Some(position), Some(10));
        let partition =
            PartitionFacts { at, turn: 0, paused: false, position, end, queue, fetching, trouble: None };
        let (partitions, poll_age) = (vec![partition], Duration::from_secs(60));
        let (budget_used, budget_max, queued_bytes) = (0, 100, 0);
        ConsumerFacts { partitions, poll_age, budget_used, budget_max, queued_bytes, group: None }
    }

    /// The causes and the restarted brokers, checked once per second.
    fn causes(looks: impl IntoIterator<Item = ConsumerFacts>) -> Vec<(Option<Cause>, Vec<i32>)> {
        let (begin, mut watch) = (Instant::now(), ConsumerWatch::default());
        let look = |(second, facts): (usize, ConsumerFacts)| {
            let result = watch.look(begin + Duration::from_secs(second as u64), AFTER, &facts);
            let found = result.stalls.first().map(|found| match found.stall {
                Stall::Consuming { cause, .. } => cause,
                _ => panic!("{found:?}"),
            });
            (found, result.restart)
        };
        looks.into_iter().enumerate().map(look).collect()
    }

    #[test]
    fn only_what_stays_where_it_is_and_is_behind_is_stuck() {
        let unread = |_| facts(3, 7, 0, Fetching::Ahead);
        let found = causes((0..6).map(unread));
        assert!(found[..5].iter().all(|(cause, _)| cause.is_none()));
        assert_eq!(found[5].0, Some(Cause::NotPolled));
        // The queue is polled now and then, or records are read, or all records are read.
        let looked = causes((0..20).map(|i| facts(3, 7, i / 4, Fetching::Ahead)));
        let moved = causes((0..20).map(|i| facts(i / 4, 7, 0, Fetching::Ahead)));
        let through = causes((0..20).map(|_| facts(10, 0, 0, asked(0))));
        for found in [looked, moved, through] {
            assert!(found.iter().all(|(cause, _)| cause.is_none()), "{found:?}");
        }
    }

    #[test]
    fn one_attempt_among_failures_is_no_other_cause() {
        let text = || "attempt 3".to_owned();
        let flapping = (0..10).map(|i| {
            let fetching =
                if i % 2 == 0 { Fetching::NotConnected { node: 1, text: text() } } else { Fetching::Blocked };
            facts(3, 0, 0, fetching)
        });
        let found = causes(flapping);
        assert!(found[5..].iter().all(|(cause, _)| *cause == Some(Cause::NoConnection)), "{found:?}");
        let lasting = (0..10).map(|i| {
            let fetching =
                if i < 6 { Fetching::NotConnected { node: 1, text: text() } } else { Fetching::Blocked };
            facts(3, 0, 0, fetching)
        });
        let found = causes(lasting);
        assert_eq!((found[6].0, found[7].0), (Some(Cause::NoConnection), Some(Cause::BackOff)));
    }

    #[test]
    fn a_session_that_forgets_a_partition_is_begun_anew_once() {
        let found = causes((0..20).map(|i| facts(3, 0, 0, asked(i))));
        assert_eq!(found[5], (Some(Cause::NoAnswer), vec![1]));
        assert!(
            found[6..].iter().all(|(cause, restart)| *cause == Some(Cause::NoAnswer) && restart.is_empty())
        );
    }
}
