//! The target assignment of a group: Kafka's assignors `uniform` and `range`, by their results.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_protocol::Uuid;

use super::member::Place;

/// The assignor `uniform` evens the numbers out so often at most, if subscriptions differ.
const ROUNDS_MAX: usize = 16;

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
    let mut owners: BTreeMap<Place, usize> = BTreeMap::new();
    for (at, member) in members.iter().enumerate() {
        let exists = |place: &Place| topics.get(&place.0).is_some_and(|count| (0..*count).contains(&place.1));
        for place in member.before.iter().filter(|place| exists(place) && member.topics.contains(&place.0)) {
            owners.entry(*place).or_insert(at);
        }
    }
    if members.iter().all(|member| member.topics == members[0].topics) {
        return uniform_with_equal_subscriptions(members, topics, &owners);
    }
    distribute(members, topics, &mut owners);
    let mut targets = vec![BTreeSet::new(); members.len()];
    for (place, owner) in owners {
        targets[owner].insert(place);
    }
    targets
}

/// Each member has its share, and some have one partition more: those that had it before come first. A member gives up only what exceeds
/// its share (Kafka's `UniformHomogeneousAssignmentBuilder`).
fn uniform_with_equal_subscriptions(
    members: &[Candidate],
    topics: &BTreeMap<Uuid, i32>,
    owners: &BTreeMap<Place, usize>,
) -> Vec<BTreeSet<Place>> {
    let Some(first) = members.first() else { return Vec::new() };
    let mut kept: Vec<Vec<Place>> = vec![Vec::new(); members.len()];
    let mut free: Vec<Place> = Vec::new();
    for (topic, partitions) in topics.iter().filter(|(topic, _)| first.topics.contains(topic)) {
        for place in (0..*partitions).map(|partition| (*topic, partition)) {
            match owners.get(&place) {
                Some(owner) => kept[*owner].push(place),
                None => free.push(place),
            }
        }
    }
    let total = free.len() + owners.len();
    let (share, mut larger) = (total / members.len(), total % members.len());
    let mut wanted = Vec::with_capacity(members.len());
    for (at, kept) in kept.iter_mut().enumerate() {
        let most = share + usize::from(larger > 0);
        free.extend(kept.drain(most.min(kept.len())..));
        // The last members get one more in any case.
        let is_larger = larger > 0 && (kept.len() == most || members.len() - at <= larger);
        larger -= usize::from(is_larger);
        wanted.push((share + usize::from(is_larger)).saturating_sub(kept.len()));
    }
    let mut free = free.into_iter();
    for (kept, wanted) in kept.iter_mut().zip(wanted) {
        kept.extend(free.by_ref().take(wanted));
    }
    kept.into_iter().map(|places| places.into_iter().collect()).collect()
}

/// Gives each partition to a subscriber with few partitions, and evens the numbers out (Kafka's `UniformHeterogeneousAssignmentBuilder`).
fn distribute(members: &[Candidate], topics: &BTreeMap<Uuid, i32>, owners: &mut BTreeMap<Place, usize>) {
    let mut subscribers: BTreeMap<Uuid, Vec<usize>> = BTreeMap::new();
    for (at, member) in members.iter().enumerate() {
        for topic in member.topics.iter().filter(|topic| topics.contains_key(topic)) {
            subscribers.entry(*topic).or_default().push(at);
        }
    }
    let mut loads = vec![0; members.len()];
    for owner in owners.values() {
        loads[*owner] += 1;
    }
    // Topics with many partitions for each subscriber come first: the others even the numbers out.
    let mut order: Vec<(Uuid, Vec<usize>)> = subscribers.into_iter().collect();
    let size = |topic: &Uuid, others: &[usize]| i64::from(topics[topic]) * others.len() as i64;
    order.sort_by(|(a, of_a), (b, of_b)| {
        let by_size = size(b, of_a).cmp(&size(a, of_b));
        by_size.then_with(|| of_a.len().cmp(&of_b.len())).then_with(|| a.cmp(b))
    });
    for (topic, subscribers) in &order {
        let places = (0..topics[topic]).map(|partition| (*topic, partition));
        let free: Vec<Place> = places.filter(|place| !owners.contains_key(place)).collect();
        if free.is_empty() {
            continue;
        }
        let mut by_load: BTreeSet<(usize, usize)> = subscribers.iter().map(|at| (loads[*at], *at)).collect();
        for place in free {
            let Some((load, to)) = by_load.pop_first() else { break };
            by_load.insert((load + 1, to));
            loads[to] = load + 1;
            owners.insert(place, to);
        }
    }
    for _ in 0..ROUNDS_MAX {
        let moves = order.iter().map(|(topic, subscribers)| balance(*topic, subscribers, &mut loads, owners));
        if moves.sum::<usize>() == 0 {
            break;
        }
    }
}

/// Moves partitions of a topic from the subscribers that have the most partitions to those that have the fewest. Returns how many.
fn balance(
    topic: Uuid,
    subscribers: &[usize],
    loads: &mut [usize],
    owners: &mut BTreeMap<Place, usize>,
) -> usize {
    let (mut least, mut most) = (usize::MAX, 0);
    for at in subscribers {
        (least, most) = (least.min(loads[*at]), most.max(loads[*at]));
    }
    if most.saturating_sub(least) <= 1 {
        return 0;
    }
    let mut movable: BTreeMap<usize, Vec<Place>> = BTreeMap::new();
    for (place, owner) in owners.range((topic, 0)..=(topic, i32::MAX)) {
        movable.entry(*owner).or_default().push(*place);
    }
    let mut by_load: BTreeSet<(usize, usize)> = subscribers.iter().map(|at| (loads[*at], *at)).collect();
    let mut moves = 0;
    while let (Some((least, to)), Some((most, from))) = (by_load.first().copied(), by_load.last().copied()) {
        if most - least <= 1 {
            break;
        }
        let Some(place) = movable.get_mut(&from).and_then(Vec::pop) else {
            // It has nothing of this topic to give up.
            by_load.pop_last();
            continue;
        };
        by_load.pop_first();
        by_load.pop_last();
        by_load.extend([(least + 1, to), (most - 1, from)]);
        (loads[to], loads[from]) = (least + 1, most - 1);
        owners.insert(place, to);
        moves += 1;
    }
    moves
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

    /// A member gave up a partition of its share, and was given another one.
    #[test]
    fn uniform_moves_no_partition_of_a_members_share() {
        let of = |partitions: std::ops::Range<i32>| -> Vec<Place> {
            partitions.map(|partition| (TOPICS[0], partition)).collect()
        };
        let topics = BTreeMap::from([(TOPICS[0], 7), (TOPICS[1], 0)]);
        let before = [of(0..4), of(4..7), vec![], vec![], vec![]];
        for is_equal in [true, false] {
            let mut members: Vec<Candidate> =
                before.iter().map(|before| candidate(&TOPICS[..1], before)).collect();
            if !is_equal {
                members.push(candidate(&TOPICS[1..], &[]));
            }
            let targets = assign(Assignor::Uniform, &members, &topics);
            assert!(targets[..2].iter().zip(&members).all(|(target, it)| target.is_subset(&it.before)));
            let mut sizes: Vec<usize> = targets[..5].iter().map(BTreeSet::len).collect();
            sizes.sort_unstable();
            assert_eq!(sizes, [1, 1, 1, 2, 2]);
        }
    }

    /// In random groups, each partition has one subscriber, and no move to another one evens the numbers out. Assigned again, all members
    /// keep what they have.
    #[test]
    fn uniform_balances_random_groups() {
        for seed in 0..2_000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let topics = BTreeMap::from(TOPICS.map(|topic| (topic, rng.i32(0..9))));
            let subscriptions = [&TOPICS[..], &TOPICS[..1], &TOPICS[1..], &[]];
            let kinds = if rng.bool() { 1 } else { subscriptions.len() };
            let mut members: Vec<Candidate> =
                (0..rng.usize(1..8)).map(|_| candidate(subscriptions[rng.usize(0..kinds)], &[])).collect();
            for _ in 0..3 {
                let targets = assign(Assignor::Uniform, &members, &topics);
                assert_eq!(assign(Assignor::Uniform, &members, &topics), targets, "seed {seed}");
                for (topic, partitions) in &topics {
                    let all = members.iter().zip(&targets);
                    let subscribers: Vec<&BTreeSet<Place>> = all
                        .filter_map(|(member, target)| member.topics.contains(topic).then_some(target))
                        .collect();
                    let fewest = subscribers.iter().map(|target| target.len()).min();
                    for place in (0..*partitions).map(|partition| (*topic, partition)) {
                        let mut owners = targets.iter().filter(|target| target.contains(&place));
                        let owner = owners.next().map(BTreeSet::len);
                        assert!(owner <= fewest.map(|fewest| fewest + 1), "seed {seed}: {targets:?}");
                        assert!(owner.is_some() || subscribers.is_empty(), "seed {seed}: {targets:?}");
                        assert!(owners.next().is_none(), "seed {seed}: {targets:?}");
                    }
                }
                for (member, target) in members.iter_mut().zip(targets) {
                    assert!(target.iter().all(|(topic, _)| member.topics.contains(topic)), "seed {seed}");
                    member.before = target;
                }
                let again = assign(Assignor::Uniform, &members, &topics);
                assert!(again.iter().zip(&members).all(|(target, it)| *target == it.before), "seed {seed}");
                members.push(candidate(subscriptions[rng.usize(0..kinds)], &[]));
                members.swap_remove(rng.usize(0..members.len()));
                members.push(candidate(subscriptions[rng.usize(0..kinds)], &[]));
            }
        }
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
