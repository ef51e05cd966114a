//! The target assignment of a group: Kafka's assignors `uniform` and `range`, by their results.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_protocol::Uuid;

use super::member::Place;

/// An assignor.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Assignor {
    /// Members have equally many partitions as far as their subscriptions allow, and keep those they have.
    Uniform,
    /// Each member has a range of every topic's partitions: topics of equal size are partitioned alike.
    Range,
}

impl Assignor {
    /// Kafka's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Range => "range",
        }
    }

    /// The assignor of that name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        [Self::Uniform, Self::Range].into_iter().find(|assignor| assignor.name() == name)
    }
}

/// A member that gets partitions.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) instance_id: Option<String>,
    /// Members with equal subscriptions share the set.
    pub(crate) topics: Arc<BTreeSet<Uuid>>,
    /// Its target before.
    pub(crate) before: BTreeSet<Place>,
}

/// The target of each member, in the order of `members`. `topics` are the numbers of partitions.
pub(crate) fn assign(
    assignor: Assignor,
    members: &[Candidate],
    topics: &BTreeMap<Uuid, i32>,
) -> Vec<BTreeSet<Place>> {
    match assignor {
        Assignor::Uniform => uniform(members, topics),
        Assignor::Range => range(members, topics),
    }
}

/// Static members come first, so that a restarted one has the same range again (Kafka's `RangeAssignor`).
fn range(members: &[Candidate], topics: &BTreeMap<Uuid, i32>) -> Vec<BTreeSet<Place>> {
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|at| (members[*at].instance_id.is_none(), members[*at].instance_id.as_deref(), *at));
    let mut targets = vec![BTreeSet::new(); members.len()];
    let is_same = members.iter().all(|member| member.topics == members[0].topics);
    let mut of_topic = Vec::new();
    for (topic, partitions) in topics {
        // With equal subscriptions, the subscribers of a topic are all members or none.
        if is_same && members.first().is_none_or(|member| !member.topics.contains(topic)) {
            continue;
        }
        let subscribers = if is_same {
            &order
        } else {
            of_topic.clear();
            of_topic.extend(order.iter().copied().filter(|at| members[*at].topics.contains(topic)));
            &of_topic
        };
        assign_ranges((*topic, *partitions), subscribers, &mut targets);
    }
    targets
}

/// Assigns the partitions of a topic. With fewer partitions than subscribers, the last ones get none.
fn assign_ranges((topic, partitions): (Uuid, i32), subscribers: &[usize], targets: &mut [BTreeSet<Place>]) {
    let count = (subscribers.len() as i32).max(1);
    let (share, extra) = (partitions / count, partitions % count);
    let mut next = 0;
    for (index, member) in subscribers.iter().enumerate() {
        if next == partitions {
            break;
        }
        let end = next + share + i32::from((index as i32) < extra);
        targets[*member].extend((next..end).map(|partition| (topic, partition)));
        next = end;
    }
}

fn uniform(members: &[Candidate], topics: &BTreeMap<Uuid, i32>) -> Vec<BTreeSet<Place>> {
    if members.is_empty() {
        return Vec::new();
    }
    let mut owners: BTreeMap<Place, usize> = BTreeMap::new();
    for (at, member) in members.iter().enumerate() {
        let exists = |place: &Place| topics.get(&place.0).is_some_and(|count| (0..*count).contains(&place.1));
        for place in member.before.iter().filter(|place| exists(place) && member.topics.contains(&place.0)) {
            owners.entry(*place).or_insert(at);
        }
    }
    let is_same = members.iter().all(|member| member.topics == members[0].topics);
    // With equal subscriptions, the subscribers of a topic are all members: no list of them is read.
    let listed = if is_same { 1 } else { members.len() };
    let mut subscribers: BTreeMap<Uuid, Vec<usize>> = BTreeMap::new();
    for (at, member) in members.iter().enumerate().take(listed) {
        for topic in member.topics.iter().filter(|topic| topics.contains_key(topic)) {
            subscribers.entry(*topic).or_default().push(at);
        }
    }
    let mut loads = Loads::new(members.len(), &owners);
    // Topics with few subscribers first: their partitions have the least choice.
    let mut order: Vec<(&Uuid, &Vec<usize>)> = subscribers.iter().collect();
    order.sort_by_key(|(topic, subscribers)| (subscribers.len(), **topic));
    for (topic, subscribers) in &order {
        for partition in 0..topics[topic] {
            let place = (**topic, partition);
            if owners.contains_key(&place) {
                continue;
            }
            let to = loads.lightest(subscribers, is_same);
            owners.insert(place, to);
            loads.add(to, 1);
        }
    }
    // A move to a member that has at least two fewer lowers the sum of the squares of the loads: this ends.
    loop {
        let mut has_moved = false;
        for (place, owner) in &mut owners {
            let to = loads.lightest(&subscribers[&place.0], is_same);
            if loads.of(to) + 1 < loads.of(*owner) {
                loads.add(*owner, -1);
                loads.add(to, 1);
                *owner = to;
                has_moved = true;
            }
        }
        if !has_moved {
            break;
        }
    }
    let mut targets = vec![BTreeSet::new(); members.len()];
    for (place, owner) in owners {
        targets[owner].insert(place);
    }
    targets
}

/// The number of partitions of each member, and the members in its order.
struct Loads {
    loads: Vec<i64>,
    order: BTreeSet<(i64, usize)>,
}

impl Loads {
    fn new(members: usize, owners: &BTreeMap<Place, usize>) -> Self {
        let mut loads = vec![0; members];
        for owner in owners.values() {
            loads[*owner] += 1;
        }
        let order = loads.iter().copied().enumerate().map(|(at, load)| (load, at)).collect();
        Self { loads, order }
    }

    fn of(&self, member: usize) -> i64 {
        self.loads[member]
    }

    fn add(&mut self, member: usize, change: i64) {
        self.order.remove(&(self.loads[member], member));
        self.loads[member] += change;
        self.order.insert((self.loads[member], member));
    }

    /// The member with the fewest partitions. `are_all` if `among` are all members.
    fn lightest(&self, among: &[usize], are_all: bool) -> usize {
        let first = self.order.first().filter(|_| are_all).map(|(_, at)| *at);
        let of_some = || among.iter().copied().min_by_key(|at| (self.loads[*at], *at));
        first.or_else(of_some).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPICS: [Uuid; 2] = [Uuid([1; 16]), Uuid([2; 16])];

    fn candidate(topics: &[Uuid], before: &[Place]) -> Candidate {
        let topics = Arc::new(topics.iter().copied().collect());
        Candidate { instance_id: None, topics, before: before.iter().copied().collect() }
    }

    #[test]
    fn range_partitions_topics_of_equal_size_alike() {
        let topics = TOPICS.into_iter().map(|topic| (topic, 5)).collect();
        let mut members = vec![candidate(&TOPICS, &[]), candidate(&TOPICS, &[])];
        members[1].instance_id = Some("i".into());
        let targets = assign(Assignor::Range, &members, &topics);
        let of_topic = |at: usize, topic| {
            targets[at].iter().filter(|place| place.0 == topic).map(|place| place.1).collect::<Vec<_>>()
        };
        assert_eq!((of_topic(1, TOPICS[0]), of_topic(0, TOPICS[0])), (vec![0, 1, 2], vec![3, 4]));
        assert_eq!(of_topic(1, TOPICS[1]), vec![0, 1, 2]);
    }

    /// The members were filtered for each topic, and each of them got a range of it, also an empty one.
    #[test]
    fn range_with_equal_subscriptions_assigns_as_with_different_ones() {
        let topics: BTreeMap<Uuid, i32> = [(TOPICS[0], 2), (TOPICS[1], 7)].into();
        let mut members = vec![candidate(&TOPICS, &[]), candidate(&TOPICS, &[]), candidate(&TOPICS, &[])];
        let of_equal = assign(Assignor::Range, &members, &topics);
        let counts = |targets: &[BTreeSet<Place>], topic: Uuid| -> Vec<usize> {
            targets.iter().map(|target| target.iter().filter(|place| place.0 == topic).count()).collect()
        };
        assert_eq!(counts(&of_equal, TOPICS[0]), [1, 1, 0]);
        assert_eq!(counts(&of_equal, TOPICS[1]), [3, 2, 2]);
        members.push(candidate(&[], &[]));
        assert_eq!(assign(Assignor::Range, &members, &topics)[..3], of_equal);
        assert!(assign(Assignor::Range, &[], &topics).is_empty());
    }

    #[test]
    fn uniform_keeps_what_members_have_and_balances() {
        let topics = BTreeMap::from([(TOPICS[0], 7)]);
        let all: Vec<Place> = (0..7).map(|partition| (TOPICS[0], partition)).collect();
        let members = [candidate(&TOPICS[..1], &all), candidate(&TOPICS[..1], &[])];
        let targets = assign(Assignor::Uniform, &members, &topics);
        assert_eq!((targets[0].len(), targets[1].len()), (4, 3));
        let again: Vec<_> = targets
            .iter()
            .map(|target| candidate(&TOPICS[..1], &target.iter().copied().collect::<Vec<_>>()))
            .collect();
        assert_eq!(assign(Assignor::Uniform, &again, &topics), targets);
    }

    #[test]
    fn uniform_respects_different_subscriptions() {
        let topics = BTreeMap::from([(TOPICS[0], 4), (TOPICS[1], 2)]);
        let members = [candidate(&TOPICS, &[]), candidate(&TOPICS[..1], &[]), candidate(&[], &[])];
        let targets = assign(Assignor::Uniform, &members, &topics);
        assert_eq!((targets[0].len(), targets[1].len(), targets[2].len()), (3, 3, 0));
        assert!(targets[1].iter().all(|place| place.0 == TOPICS[0]));
    }
}
