//! The target assignment of a share group: the rules of Kafka's `SimpleAssignor`.
//!
//! - Each partition of a subscribed topic has a member.
//! - With more partitions than members, a partition has one member. With more members, each partition has equally many, so that some
//!   members have two. The sizes differ by one at most: over all partitions if all members have the same subscription, per topic
//!   otherwise.
//! - As in Kafka, a partition may have fewer members than others, but not none, if the members that could read it have it already.
//! - Members keep partitions as far as the sizes allow.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ottla_protocol::Uuid;

use crate::coordinator::consumer_group::member::Place;

/// A member: the topics that it subscribes to, and the partitions that it has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Candidate {
    pub(crate) topics: BTreeSet<Uuid>,
    pub(crate) current: BTreeSet<Place>,
}

/// Returns the partitions of each member. `partitions` are those that may be assigned, by topic.
pub(crate) fn assign(
    members: &BTreeMap<String, Candidate>,
    partitions: &BTreeMap<Uuid, BTreeSet<i32>>,
) -> BTreeMap<String, BTreeSet<Place>> {
    let mut targets: BTreeMap<String, BTreeSet<Place>> =
        members.keys().map(|id| (id.clone(), BTreeSet::new())).collect();
    let places_of = |topic: &Uuid| {
        let indexes = partitions.get(topic).into_iter().flatten();
        let topic = *topic;
        indexes.map(move |index| (topic, *index))
    };
    let mut subscriptions = members.values().map(|member| &member.topics);
    let first = subscriptions.next();
    if subscriptions.all(|topics| Some(topics) == first) {
        let pool: Vec<Place> = first.into_iter().flatten().flat_map(places_of).collect();
        share_out(&pool, &members.iter().collect::<Vec<_>>(), &mut targets);
        return targets;
    }
    let mut subscribers: BTreeMap<Uuid, Vec<(&String, &Candidate)>> = BTreeMap::new();
    for (id, member) in members {
        for topic in &member.topics {
            subscribers.entry(*topic).or_default().push((id, member));
        }
    }
    // Topics of few members first: later ones even the sizes out.
    let mut topics: Vec<_> = subscribers.into_iter().collect();
    topics.sort_by_key(|(topic, subscribers)| (subscribers.len(), *topic));
    for (topic, subscribers) in topics {
        share_out(&places_of(&topic).collect::<Vec<_>>(), &subscribers, &mut targets);
    }
    targets
}

/// Adds the places of a pool, which is sorted, to the targets of the members that share it.
fn share_out(
    pool: &[Place],
    members: &[(&String, &Candidate)],
    targets: &mut BTreeMap<String, BTreeSet<Place>>,
) {
    let (Some(first), Some(last)) = (pool.first(), pool.last()) else { return };
    if members.is_empty() {
        return;
    }
    // The places that each member has, by their index in the pool.
    let held = members.iter().map(|(_, member)| {
        let places = member.current.range(*first..=*last);
        places.filter_map(|place| pool.binary_search(place).ok()).collect::<Vec<_>>()
    });
    let held: Vec<Vec<usize>> = held.collect();
    let loads: Vec<usize> = members.iter().map(|(id, _)| targets.get(*id).map_or(0, BTreeSet::len)).collect();
    for ((id, _), places) in members.iter().zip(spread(&held, pool.len(), &loads)) {
        if let Some(target) = targets.get_mut(*id) {
            target.extend(places.into_iter().map(|place| pool[place]));
        }
    }
}

/// Returns the places of each member. All places have equally many members, unless a member that wants more has the place already. The
/// numbers of places of members differ by one at most. `held` are the places that the members had; of the members that get one more than
/// others, those with the lowest `loads` come first.
fn spread(held: &[Vec<usize>], places: usize, loads: &[usize]) -> Vec<Vec<usize>> {
    let members = held.len();
    let sharing = members.div_ceil(places);
    let (size, mut larger) = (sharing * places / members, sharing * places % members);
    let mut rooms = vec![sharing; places];
    let mut chosen: Vec<Vec<usize>> = vec![Vec::new(); members];
    for (chosen, held) in chosen.iter_mut().zip(held) {
        for place in held {
            if chosen.len() < size && rooms[*place] > 0 {
                rooms[*place] -= 1;
                chosen.push(*place);
            }
        }
    }
    for (chosen, held) in chosen.iter_mut().zip(held) {
        if larger == 0 {
            break;
        }
        if chosen.len() < size {
            continue;
        }
        if let Some(place) = held.iter().find(|place| rooms[**place] > 0 && !chosen.contains(place)) {
            rooms[*place] -= 1;
            larger -= 1;
            chosen.push(*place);
        }
    }
    let mut order: Vec<usize> = (0..members).collect();
    order.sort_by_key(|member| (loads[*member], *member));
    // The members that get more, and the number of places.
    let mut wanting = VecDeque::new();
    for member in order {
        let has = chosen[member].len();
        let is_larger = has <= size && larger > 0;
        larger -= usize::from(is_larger);
        let wanted = (size + usize::from(is_larger)).saturating_sub(has);
        if wanted > 0 {
            wanting.push_back((member, wanted));
        }
    }
    for (place, room) in rooms.into_iter().enumerate() {
        for _ in 0..room {
            // A place of one member has none yet.
            let lacks = |(member, _): &(usize, usize)| sharing == 1 || !chosen[*member].contains(&place);
            let found = wanting.iter().position(lacks).and_then(|at| wanting.remove(at));
            let Some((member, wanted)) = found else { break };
            chosen[member].push(place);
            if wanted > 1 {
                wanting.push_back((member, wanted - 1));
            }
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Uuid = Uuid([1; 16]);
    const B: Uuid = Uuid([2; 16]);

    fn partitions(counts: &[(Uuid, i32)]) -> BTreeMap<Uuid, BTreeSet<i32>> {
        counts.iter().map(|(topic, count)| (*topic, (0..*count).collect())).collect()
    }

    fn member(topics: &[Uuid], current: &[Place]) -> Candidate {
        Candidate { topics: topics.iter().copied().collect(), current: current.iter().copied().collect() }
    }

    fn members(list: &[(&str, Candidate)]) -> BTreeMap<String, Candidate> {
        list.iter().map(|(id, member)| ((*id).to_owned(), member.clone())).collect()
    }

    #[test]
    fn partitions_are_divided_and_with_more_members_shared() {
        let two = members(&[("m1", member(&[A], &[])), ("m2", member(&[A], &[]))]);
        let targets = assign(&two, &partitions(&[(A, 4)]));
        assert_eq!(targets["m1"].len(), 2);
        assert_eq!(targets["m2"].len(), 2);
        let targets = assign(&two, &partitions(&[(A, 1)]));
        assert_eq!((targets["m1"].len(), targets["m2"].len()), (1, 1));
        assert!(assign(&two, &BTreeMap::new()).values().all(BTreeSet::is_empty));
        assert!(assign(&BTreeMap::new(), &partitions(&[(A, 1)])).is_empty());
    }

    #[test]
    fn members_keep_what_they_have() {
        let three = members(&[
            ("m1", member(&[A], &[(A, 0), (A, 1), (A, 2)])),
            ("m2", member(&[A], &[(A, 3), (A, 4), (A, 5)])),
            ("m3", member(&[A], &[])),
        ]);
        let targets = assign(&three, &partitions(&[(A, 6)]));
        assert_eq!(targets["m1"], [(A, 0), (A, 1)].into());
        assert_eq!(targets["m2"], [(A, 3), (A, 4)].into());
        assert_eq!(targets["m3"], [(A, 2), (A, 5)].into());
    }

    /// Each member had one partition: some partitions had more members than others.
    #[test]
    fn partitions_have_equally_many_members() {
        for (group, places, readers) in [(3, 2, 2), (5, 4, 2), (7, 3, 3), (6, 3, 2), (2, 4, 1)] {
            let group: BTreeMap<String, Candidate> =
                (0..group).map(|at| (format!("m{at}"), member(&[A], &[]))).collect();
            let targets = assign(&group, &partitions(&[(A, places)]));
            for place in (0..places).map(|index| (A, index)) {
                let count = targets.values().filter(|target| target.contains(&place)).count();
                assert_eq!(count, readers, "{targets:?}");
            }
            let sizes = || targets.values().map(BTreeSet::len);
            assert!(sizes().max() <= sizes().min().map(|least| least + 1), "{targets:?}");
        }
    }

    /// As in Kafka, no member moves for the one that could have two: it has the other partition already.
    #[test]
    fn a_partition_may_have_fewer_members_because_of_those_that_others_keep() {
        let three = members(&[
            ("m1", member(&[A], &[])),
            ("m2", member(&[A], &[(A, 1)])),
            ("m3", member(&[A], &[(A, 1)])),
        ]);
        let targets = assign(&three, &partitions(&[(A, 2)]));
        assert_eq!(targets["m1"], [(A, 0)].into());
        assert_eq!(targets["m2"], [(A, 1)].into());
        assert_eq!(targets["m3"], [(A, 1)].into());
    }

    /// Each place was looked up at each member, under the lock of all share groups.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "it measures time")]
    fn large_groups_are_assigned_in_time() {
        let began = std::time::Instant::now();
        for (group, places) in [(4_000, 80_000), (40_000, 8_000)] {
            let counts = partitions(&[(A, places)]);
            let group: BTreeMap<String, Candidate> =
                (0..group).map(|at| (format!("m{at}"), member(&[A], &[]))).collect();
            let targets = assign(&group, &counts);
            let again: BTreeMap<String, Candidate> = targets
                .iter()
                .map(|(id, target)| (id.clone(), Candidate { topics: [A].into(), current: target.clone() }))
                .collect();
            assert!(assign(&again, &counts) == targets, "members keep what they have");
        }
        // A lookup for each pair took a minute.
        assert!(began.elapsed().as_secs() < 120, "{:?}", began.elapsed());
    }

    /// In random groups, every partition has a member and no member has more than its share.
    #[test]
    fn every_partition_is_assigned_and_no_member_has_too_many() {
        for seed in 0..2_000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let counts = partitions(&[(A, rng.i32(0..8)), (B, rng.i32(0..8))]);
            let is_equal = rng.bool();
            let current = |rng: &mut fastrand::Rng| -> BTreeSet<Place> {
                (0..rng.usize(0..5)).map(|_| ([A, B][rng.usize(0..2)], rng.i32(0..8))).collect()
            };
            let group: BTreeMap<String, Candidate> = (0..rng.usize(1..8))
                .map(|at| {
                    let topics: &[Uuid] =
                        if is_equal { &[A, B] } else { [&[A][..], &[B], &[A, B]][rng.usize(0..3)] };
                    let topics = topics.iter().copied().collect();
                    (format!("m{at}"), Candidate { topics, current: current(&mut rng) })
                })
                .collect();
            let targets = assign(&group, &counts);
            assert_eq!(targets.len(), group.len());
            let first = group.values().next().map(|it| it.topics.clone()).unwrap_or_default();
            let pools: Vec<Vec<Uuid>> = if group.values().all(|it| it.topics == first) {
                vec![first.into_iter().collect()]
            } else {
                vec![vec![A], vec![B]]
            };
            for pool in &pools {
                let places: BTreeSet<Place> = pool
                    .iter()
                    .flat_map(|topic| counts[topic].iter().map(|index| (*topic, *index)))
                    .collect();
                let subscribers: Vec<&String> =
                    group.iter().filter(|(_, it)| it.topics.contains(&pool[0])).map(|(id, _)| id).collect();
                if subscribers.is_empty() || places.is_empty() {
                    continue;
                }
                let sizes: Vec<usize> = subscribers
                    .iter()
                    .map(|id| targets[*id].iter().filter(|place| places.contains(place)).count())
                    .collect();
                let readers = |place: &Place| targets.values().filter(|it| it.contains(place)).count();
                let readers_max = subscribers.len().div_ceil(places.len());
                let all = readers_max * places.len();
                let (share, most) = (all / subscribers.len(), all.div_ceil(subscribers.len()));
                assert!(sizes.iter().all(|size| (share..=most).contains(size)), "seed {seed}: {sizes:?}");
                assert!(
                    places.iter().all(|place| (1..=readers_max).contains(&readers(place))),
                    "seed {seed}: {targets:?}"
                );
            }
            for (id, target) in &targets {
                assert!(target.iter().all(|(topic, _)| group[id].topics.contains(topic)), "seed {seed}");
            }
            // The result is stable: computed again from itself it does not change.
            let again: BTreeMap<String, Candidate> = group
                .iter()
                .map(|(id, it)| {
                    (id.clone(), Candidate { topics: it.topics.clone(), current: targets[id].clone() })
                })
                .collect();
            assert_eq!(assign(&again, &counts), targets, "seed {seed}");
        }
    }
}
