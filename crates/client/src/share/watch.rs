//! The stalls of a share consumer, for the watchdog: five looks per `stall_after`.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::acknowledgements::TopicIdPartition;
use super::core::ShareCore;
use super::links::ShareLinks;
use super::member::Member;
use super::queue::ShareQueue;
use crate::cluster::Cluster;
use crate::cluster::brokers::Lane;
use crate::group::poll_activity::{LastPoll, PollActivity};
use crate::stats::{ConsumerStalls, Reachability};
use crate::types::TopicPartition;
use crate::watchdog::LOOKS;
use crate::watchdog::cause::StallReason;
use crate::watchdog::consumer::{ConsumerFacts, ConsumerWatch, Fetching, PartitionFacts, QueueFacts};

pub(super) struct ShareWatch {
    cluster: Rc<Cluster>,
    queue: Arc<ShareQueue>,
    polls: Arc<PollActivity>,
    stalls: ConsumerStalls,
    watch: ConsumerWatch,
    last_poll: LastPoll,
    next: Option<Instant>,
}

impl ShareWatch {
    pub(super) fn new(cluster: &Rc<Cluster>, links: &ShareLinks) -> Self {
        let after = cluster.observer.stall_after;
        let now = Instant::now();
        Self {
            cluster: cluster.clone(),
            queue: links.queue.clone(),
            polls: links.polls.clone(),
            stalls: ConsumerStalls::new(cluster.observer.clone()),
            watch: ConsumerWatch::default(),
            last_poll: LastPoll::new(&links.polls, now),
            next: (!after.is_zero()).then(|| now + after / LOOKS),
        }
    }

    /// Looks at the consumer if it is time. Returns the time of the next look; `None` without a watchdog.
    pub(super) fn look(&mut self, now: Instant, core: &ShareCore, member: &Member) -> Option<Instant> {
        let next = self.next?;
        if now < next {
            return Some(next);
        }
        let after = self.cluster.observer.stall_after;
        self.next = Some(now + after / LOOKS);
        let poll_age = self.last_poll.age(&self.polls, now);
        let facts = self.facts(now, poll_age, after, core, member);
        self.stalls.set(self.watch.look(now, after, &facts).stalls);
        self.next
    }

    fn facts(
        &self,
        now: Instant,
        poll_age: Duration,
        after: Duration,
        core: &ShareCore,
        member: &Member,
    ) -> ConsumerFacts {
        let waiting = self.queue.waiting();
        let looks = self.polls.count();
        let partitions = core.assigned().iter().map(|(key, at)| {
            let records = waiting.get(key).map_or(0, |(records, _)| *records);
            let queue = QueueFacts { id: 0, looks, records, waits: records > 0 };
            self.partition(now, core, *key, at, queue)
        });
        ConsumerFacts {
            partitions: partitions.collect(),
            poll_age,
            budget_used: self.queue.budget.used(),
            budget_max: self.queue.budget.max(),
            queued_bytes: waiting.values().map(|(_, bytes)| bytes).sum(),
            group: Some(member.status.facts(&member.coordinator, &self.cluster.observer, poll_age, after)),
        }
    }

    fn partition(
        &self,
        now: Instant,
        core: &ShareCore,
        key: TopicIdPartition,
        at: &TopicPartition,
        queue: QueueFacts,
    ) -> PartitionFacts {
        let info = self.cluster.leader_info(&at.topic, at.partition);
        let node = info.filter(|info| info.topic_id == key.topic_id).map(|info| info.leader);
        let leader = node.and_then(|node| core.leaders.get(&node));
        let fetching = match (node, leader) {
            (None, _) => Fetching::NoLeader {
                reachable: self.cluster.topic(&at.topic).is_some() || self.cluster.observer.is_connected(),
            },
            (Some(node), leader) => match (self.cluster.observer.reach(node), leader) {
                (Reachability::Trying(text), _) => Fetching::NotConnected { node, text },
                (_, Some(leader)) if leader.blocked_until.is_some_and(|until| until > now) => {
                    Fetching::Blocked
                }
                (_, Some(leader)) if leader.waits_for_room => Fetching::NoRoom,
                (_, leader) => Fetching::Asked {
                    what: "ShareFetch",
                    node,
                    due: leader
                        .and_then(|leader| leader.in_flight.as_ref())
                        .map(|sent| self.cluster.brokers.due_behind_throttle(node, Lane::Share, sent.due)),
                    answers: leader.map_or(0, |leader| leader.responses),
                },
            },
        };
        let topic_trouble = || {
            let layout = self.cluster.topic(&at.topic)?;
            (layout.error != ottla_protocol::ErrorCode::None).then(|| StallReason::of_code(layout.error))
        };
        PartitionFacts {
            at: at.clone(),
            // A share group has no position: a response is progress.
            turn: leader.map_or(0, |leader| leader.responses),
            paused: false,
            position: None,
            end: None,
            queue,
            fetching,
            trouble: leader.and_then(|leader| leader.last_error.clone()).or_else(topic_trouble),
        }
    }
}
