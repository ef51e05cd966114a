//! Random members of both protocols, topics, losses and restarts: a partition never has two owners, and in the end each has one.

mod classic;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ottla_protocol::{ErrorCode, Uuid};
use tokio::time::Instant;

use super::assignor::Assignor;
use super::group::{Beat, ConsumerGroup, GroupSettings, TopicLookup};
use super::member::Place;
use super::patterns::ResolvedPattern;
use super::records::StoredConsumerGroup;
use crate::memory::KeptMemory;
use ottla_protocol::messages::consumer_offsets::OffsetsKey;

const GROUP: &str = "billing";
const SESSION: Duration = Duration::from_secs(45);

#[derive(Default)]
struct Topics {
    version: u64,
    by_name: BTreeMap<String, (Uuid, i32)>,
}

impl TopicLookup for Topics {
    fn version(&self) -> u64 {
        self.version
    }

    fn by_name(&self, name: &str) -> Option<(Uuid, i32)> {
        self.by_name.get(name).copied()
    }

    fn name_of(&self, id: Uuid) -> Option<String> {
        self.by_name.iter().find(|(_, (known, _))| *known == id).map(|(name, _)| name.clone())
    }
}

/// A member as a client: the partitions that it uses.
#[derive(Clone, Debug, Default)]
struct Client {
    epoch: i32,
    instance_id: Option<String>,
    names: BTreeSet<String>,
    owned: BTreeSet<Place>,
    target: BTreeSet<Place>,
    reports: bool,
    /// The last answer did not arrive: the next heartbeat has all fields, as those of Kafka's clients.
    repeats: bool,
    /// Present if the client has the classic protocol.
    classic: Option<classic::Assignor>,
}

struct World {
    rng: fastrand::Rng,
    topics: Topics,
    group: ConsumerGroup,
    log: Vec<(OffsetsKey, Option<bytes::Bytes>)>,
    clients: BTreeMap<String, Client>,
    now: Instant,
    now_ms: i64,
    next: u32,
    settings: GroupSettings,
}

fn new_group() -> ConsumerGroup {
    let memory = KeptMemory::new(64 << 20);
    let kept = memory.keep(ConsumerGroup::bytes(GROUP)).expect("there is room");
    ConsumerGroup::new(memory, kept)
}

impl World {
    #[allow(clippy::disallowed_methods, reason = "the start of a virtual time")]
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let first = if rng.bool() { Assignor::Uniform } else { Assignor::Range };
        let settings = GroupSettings {
            session_timeout: SESSION,
            heartbeat_interval: Duration::from_secs(5),
            rebalance_heartbeat_interval: Duration::from_secs(1),
            assignment_interval: Duration::from_secs(rng.u64(0..2)),
            members_max: 100,
            assignors: vec![first],
        };
        let mut world = Self {
            rng,
            topics: Topics::default(),
            group: new_group(),
            log: Vec::new(),
            clients: BTreeMap::new(),
            now: Instant::now(),
            now_ms: 1_000_000,
            next: 0,
            settings,
        };
        world.grow_topic();
        world
    }

    fn grow_topic(&mut self) {
        let name = ["orders", "returns", "bills"][self.rng.usize(..3)].to_owned();
        let id = Uuid([name.len() as u8; 16]);
        let more = self.rng.i32(1..5);
        self.topics.by_name.entry(name).or_insert((id, 0)).1 += more;
        self.topics.version += 1;
    }

    fn join(&mut self) {
        self.next += 1;
        let instance_id = self.rng.bool().then(|| format!("i{}", self.rng.u8(..3)));
        let mut names: BTreeSet<String> = ["orders".to_owned()].into();
        if self.rng.bool() {
            names.extend(["returns".to_owned(), "bills".to_owned()]);
        }
        let mut client = Client { instance_id, names, ..Client::default() };
        if self.rng.u8(..3) == 0 {
            // A classic member would take over the instance of a member that lives.
            client.instance_id = None;
            client.classic = Some(classic::Assignor::any(&mut self.rng));
        }
        let id = format!("m{}", self.next);
        self.clients.insert(id.clone(), client);
        self.beat(&id, false);
    }

    /// Sends a heartbeat; with `lost` the answer does not arrive.
    fn beat(&mut self, id: &str, lost: bool) {
        let Some(client) = self.clients.get(id).cloned() else { return };
        if client.classic.is_some() {
            return self.beat_classic(id, lost);
        }
        let joins = client.epoch == 0;
        let beat = Beat {
            member_id: id.into(),
            epoch: client.epoch,
            instance_id: client.instance_id.clone(),
            rebalance_timeout_ms: (joins || client.repeats).then_some(30_000),
            names: (joins || client.reports || client.repeats).then(|| client.names.clone()),
            owned: (joins || client.reports || client.repeats).then(|| client.owned.clone()),
            ..Beat::default()
        };
        let answer = self.group.heartbeat(self.now, self.now_ms, beat, &self.settings, &self.topics);
        self.save();
        let client = self.clients.get_mut(id).expect("it was there");
        client.repeats = lost;
        if lost {
            return;
        }
        match answer {
            Ok(answer) => {
                client.epoch = answer.epoch;
                client.reports = false;
                if let Some(assignment) = answer.assignment {
                    client.target = assignment;
                }
                // A client gives up first, and uses new partitions after the answer that assigns them.
                let target = client.target.clone();
                if client.owned != target {
                    client.owned = target;
                    client.reports = true;
                }
            }
            Err(refusal) => match refusal.code {
                ErrorCode::FencedMemberEpoch | ErrorCode::UnknownMemberId => {
                    client.owned.clear();
                    client.target.clear();
                    client.epoch = 0;
                }
                ErrorCode::UnreleasedInstanceId | ErrorCode::FencedInstanceId => {
                    self.clients.remove(id);
                }
                code => panic!("{code}: {}", refusal.message),
            },
        }
        self.check();
    }

    fn leave(&mut self, id: &str) {
        let Some(client) = self.clients.remove(id) else { return };
        if client.classic.is_some() {
            let left = self.group.leave_classic(id, None);
            assert!(left.is_ok() || client.epoch == 0, "{left:?}");
            return self.save();
        }
        let for_now = client.instance_id.is_some() && self.rng.bool();
        let epoch = if for_now { -2 } else { -1 };
        let beat = Beat { member_id: id.into(), epoch, instance_id: client.instance_id, ..Beat::default() };
        let left = self.group.heartbeat(self.now, self.now_ms, beat, &self.settings, &self.topics);
        assert!(left.is_ok_and(|left| left.epoch == epoch) || client.epoch == 0);
        self.save();
    }

    fn advance(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.now_ms += seconds as i64 * 1000;
        self.group.tick(self.now, &self.settings);
        self.save();
        let members = &self.group.members;
        // A client whose session is over stops: max.poll.interval.ms and the session bound the time of its use.
        self.clients.retain(|id, _| members.contains_key(id));
    }

    fn save(&mut self) {
        for record in self.group.records(GROUP).expect("short names") {
            let key = OffsetsKey::from_bytes(record.key).expect("a known key");
            // A compacted log has the last record of each key.
            self.log.retain(|(known, _)| *known != key);
            self.log.push((key, record.value));
        }
        self.group.changed.clear();
    }

    fn restart(&mut self) {
        let mut stored = StoredConsumerGroup::default();
        for (key, value) in self.log.clone() {
            match key {
                OffsetsKey::ConsumerGroup(kind, _) => stored.apply(kind, value),
                OffsetsKey::ConsumerGroupPart(kind, key) => stored.apply_part(kind, key.part, value),
                key => panic!("{key:?}"),
            }
            .expect("our own records");
        }
        if stored.is_gone() {
            return;
        }
        let memory = KeptMemory::new(64 << 20);
        let read = ConsumerGroup::from_stored(GROUP, stored, self.now, &memory);
        let state_of = |group: &ConsumerGroup| {
            let members = group.members.iter();
            let members = members.map(|(id, it)| {
                (
                    id.clone(),
                    it.profile.clone(),
                    it.epoch,
                    it.previous_epoch,
                    it.state,
                    it.assigned.clone(),
                    it.revoking.clone(),
                )
            });
            (
                group.epoch,
                group.assignment_epoch,
                members.collect::<Vec<_>>(),
                group.targets.clone(),
                group.owners.clone(),
            )
        };
        let (read_all, known) = (state_of(&read), state_of(&self.group));
        assert_eq!(read_all.2, known.2, "members");
        assert_eq!(
            (read_all.0, read_all.1, &read_all.3, &read_all.4),
            (known.0, known.1, &known.3, &known.4)
        );
        self.group = read;
    }

    /// No partition is in use by two clients.
    fn check(&self) {
        let mut users: BTreeMap<Place, &String> = BTreeMap::new();
        for (id, client) in &self.clients {
            for place in &client.owned {
                if let Some(other) = users.insert(*place, id) {
                    panic!("{place:?} is in use by `{other}` and `{id}`");
                }
            }
        }
    }

    fn any(&mut self) -> Option<String> {
        let ids: Vec<String> = self.clients.keys().cloned().collect();
        (!ids.is_empty()).then(|| ids[self.rng.usize(..ids.len())].clone())
    }
}

#[test]
fn a_partition_never_has_two_owners_and_in_the_end_each_has_one() {
    for seed in 0..150 {
        let mut world = World::new(seed);
        for _ in 0..150 {
            match world.rng.u8(..20) {
                0..3 => world.join(),
                3 => {
                    if let Some(id) = world.any() {
                        world.leave(&id);
                    }
                }
                4 => world.grow_topic(),
                5 => world.restart(),
                6 => world.advance(1),
                7 => {
                    // A client is gone without a word.
                    if let Some(id) = world.any() {
                        world.clients.remove(&id);
                    }
                }
                8 => {
                    if let Some(id) = world.any() {
                        let client = world.clients.get_mut(&id).expect("it is there");
                        client.names = ["bills".to_owned()].into();
                        client.reports = true;
                    }
                }
                action => {
                    if let Some(id) = world.any() {
                        world.beat(&id, action == 9);
                    }
                }
            }
        }
        world.join();
        for _ in 0..40 {
            // A client that joins and receives its assignment takes several requests.
            for id in world.clients.keys().cloned().collect::<Vec<_>>() {
                world.beat(&id, false);
            }
            world.advance(5);
            for id in world.clients.keys().cloned().collect::<Vec<_>>() {
                world.beat(&id, false);
            }
            if world.clients.is_empty() {
                world.join();
            }
        }
        let subscribed: BTreeSet<&String> = world.clients.values().flat_map(|it| &it.names).collect();
        let mut wanted = BTreeSet::new();
        for (id, partitions) in subscribed.iter().filter_map(|name| world.topics.by_name(name)) {
            wanted.extend((0..partitions).map(|partition| (id, partition)));
        }
        let used: BTreeSet<Place> =
            world.clients.values().flat_map(|client| client.owned.iter().copied()).collect();
        assert_eq!(used, wanted, "seed {seed}: {}", world.group.state());
        assert_eq!(world.group.state(), "Stable", "seed {seed}");
    }
}

fn join(id: &str, instance: Option<&str>) -> Beat {
    Beat {
        member_id: id.into(),
        instance_id: instance.map(str::to_owned),
        rebalance_timeout_ms: Some(30_000),
        names: Some(["orders".to_owned()].into()),
        owned: Some(BTreeSet::new()),
        ..Beat::default()
    }
}

fn world_of_four() -> World {
    let mut world = World::new(1);
    world.topics.by_name = BTreeMap::from([("orders".to_owned(), (Uuid([1; 16]), 4))]);
    world.topics.version += 1;
    world.settings.assignment_interval = Duration::ZERO;
    world
}

impl World {
    fn send(&mut self, beat: Beat) -> Result<(i32, Option<usize>), ErrorCode> {
        let answer = self.group.heartbeat(self.now, self.now_ms, beat, &self.settings, &self.topics);
        answer.map(|it| (it.epoch, it.assignment.map(|it| it.len()))).map_err(|refusal| refusal.code)
    }
}

#[test]
fn a_static_member_returns_with_its_partitions_and_without_a_new_epoch() {
    let mut world = world_of_four();
    // KAFKA-20268: the first epoch of a member is 2.
    assert_eq!(world.send(join("a", Some("desk"))), Ok((2, Some(4))));
    for id in ["a", "b"] {
        assert_eq!(world.send(join(id, Some("desk"))), Err(ErrorCode::UnreleasedInstanceId), "{id}");
    }
    let leave = |id: &str| Beat { epoch: -2, ..join(id, Some("desk")) };
    assert_eq!(world.send(leave("b")), Err(ErrorCode::FencedInstanceId));
    for id in ["a", "c"] {
        assert_eq!(world.send(leave("a")), Ok((-2, None)));
        assert_eq!(world.send(join(id, Some("desk"))), Ok((2, Some(4))), "{id}");
    }
    assert_eq!(world.group.epoch, 2);
    let old = Beat { member_id: "a".into(), epoch: 2, ..Beat::default() };
    assert_eq!(world.send(old), Err(ErrorCode::UnknownMemberId));
}

/// A static member that was replaced is fenced. It got UNKNOWN_MEMBER_ID and joined again.
#[test]
fn a_replaced_static_member_is_fenced() {
    let mut world = world_of_four();
    world.send(join("a", Some("desk"))).expect("a member");
    world.send(Beat { epoch: -2, ..join("a", Some("desk")) }).expect("a member");
    world.send(join("b", Some("desk"))).expect("a member");
    let stay = |id: &str, instance: &str, epoch| Beat {
        member_id: id.into(),
        epoch,
        instance_id: Some(instance.into()),
        ..Beat::default()
    };
    assert_eq!(world.send(stay("a", "desk", 2)), Err(ErrorCode::FencedInstanceId));
    assert_eq!(world.send(stay("a", "shelf", 2)), Err(ErrorCode::UnknownMemberId));
    assert_eq!(world.send(stay("b", "shelf", 2)), Err(ErrorCode::UnknownMemberId));
    assert_eq!(world.send(stay("b", "desk", 2)), Ok((2, None)));
    assert_eq!(world.send(stay("b", "desk", 3)), Err(ErrorCode::FencedMemberEpoch));
}

/// KAFKA-19233.
#[test]
fn a_known_member_may_join_again_with_epoch_0() {
    let mut world = world_of_four();
    assert_eq!(world.send(join("a", None)), Ok((2, Some(4))));
    assert_eq!(world.send(join("a", None)), Ok((2, Some(4))));
    let later = Beat { member_id: "a".into(), epoch: 3, ..Beat::default() };
    assert_eq!(world.send(later), Err(ErrorCode::FencedMemberEpoch));
}

/// KAFKA-20442.
#[test]
fn an_empty_group_has_nothing_left_to_assign() {
    let mut world = world_of_four();
    world.send(join("a", None)).expect("a member");
    assert_eq!(world.send(Beat { epoch: -1, ..join("a", None) }), Ok((-1, None)));
    assert_eq!((world.group.epoch, world.group.assignment_epoch, world.group.state()), (3, 3, "Empty"));
}

/// KAFKA-20066.
#[test]
fn an_older_epoch_commits_partitions_that_the_member_has_had_since() {
    let mut world = world_of_four();
    world.send(join("a", None)).expect("a member");
    world.send(join("b", None)).expect("a member");
    let places: BTreeSet<Place> = (0..4).map(|partition| (Uuid([1; 16]), partition)).collect();
    let a = |epoch, owned| Beat { member_id: "a".into(), epoch, owned, ..Beat::default() };
    assert_eq!(world.send(a(2, Some(places))), Ok((2, Some(2))), "it has to give up two");
    let kept: BTreeSet<Place> = world.group.members["a"].assigned.keys().copied().collect();
    assert_eq!(world.send(a(2, Some(kept.clone()))), Ok((3, None)));
    let group = &world.group;
    let commit = |member: &str, epoch, places: &BTreeSet<Place>| {
        group.check_commit(member, epoch, true, places.iter().map(|place| (Some(place.0), place.1)))
    };
    let lost = (0..4).map(|at| (Uuid([1; 16]), at)).filter(|it| !kept.contains(it)).collect();
    assert_eq!((commit("a", 2, &kept), commit("a", 3, &lost)), (Ok(()), Ok(())));
    assert_eq!(commit("a", 2, &lost), Err(ErrorCode::StaleMemberEpoch));
    assert_eq!(commit("a", 4, &kept), Err(ErrorCode::StaleMemberEpoch));
    assert_eq!(commit("x", 2, &kept), Err(ErrorCode::UnknownMemberId));
}

#[test]
fn a_member_that_does_not_give_up_in_time_is_removed() {
    let mut world = world_of_four();
    world.send(join("a", None)).expect("a member");
    world.send(join("b", None)).expect("a member");
    let beat = |id: &str, epoch| Beat { member_id: id.into(), epoch, ..Beat::default() };
    assert_eq!(world.send(beat("a", 2)), Ok((2, Some(2))));
    for _ in 0..5 {
        world.advance(5);
        assert_eq!(world.send(beat("a", 2)), Ok((2, None)));
        assert_eq!(world.send(beat("b", 3)), Ok((3, None)));
    }
    world.advance(5);
    assert_eq!(world.send(beat("a", 2)), Err(ErrorCode::UnknownMemberId));
    assert_eq!(world.send(beat("b", 3)), Ok((4, Some(4))));
}

/// With the interval of five seconds, a start of many members takes ten: most learn twice that others have changed.
#[test]
fn heartbeats_are_frequent_until_every_member_has_its_target() {
    let mut world = world_of_four();
    let is_frequent = |world: &mut World, beat: Beat| {
        let answer = world.group.heartbeat(world.now, world.now_ms, beat, &world.settings, &world.topics);
        answer.expect("a member").is_rebalancing
    };
    let beat = |id: &str, epoch| Beat { member_id: id.into(), epoch, ..Beat::default() };
    assert!(is_frequent(&mut world, join("a", None)), "others may join as well");
    world.advance(5);
    assert!(!is_frequent(&mut world, beat("a", 2)));
    assert!(is_frequent(&mut world, join("b", None)), "it has no partitions yet");
    world.advance(5);
    assert!(is_frequent(&mut world, beat("b", 3)), "it still has none");
    assert!(is_frequent(&mut world, beat("a", 2)), "it has to give up two");
    let kept = world.group.members["a"].assigned.keys().copied().collect();
    assert!(!is_frequent(&mut world, Beat { owned: Some(kept), ..beat("a", 2) }));
    assert!(!is_frequent(&mut world, beat("b", 3)), "it has both");
    world.save();
    world.restart();
    assert!(!is_frequent(&mut world, beat("a", 3)), "a group that was loaded has not changed");
}

#[test]
fn a_pattern_follows_new_topics() {
    let mut world = world_of_four();
    let resolved = |names: &[&str]| {
        let topics = names.iter().map(|name| std::sync::Arc::<str>::from(*name)).collect();
        BTreeMap::from([("o.*".to_owned(), ResolvedPattern { topics, ..Default::default() })])
    };
    let joins =
        Beat { names: None, pattern: Some("o.*".into()), resolved: resolved(&["orders"]), ..join("a", None) };
    assert_eq!(world.send(joins), Ok((2, Some(4))));
    world.topics.by_name.insert("other".into(), (Uuid([9; 16]), 2));
    world.topics.version += 1;
    let beat =
        Beat { member_id: "a".into(), epoch: 2, resolved: resolved(&["orders", "other"]), ..Beat::default() };
    assert_eq!(world.send(beat), Ok((3, Some(6))));
}
