//! The steps and the memory of groups with many members, patterns and partitions.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::{ErrorCode, Uuid};
use tokio::time::Instant;

use super::assignor::Assignor;
use super::group::{Beat, BeatAnswer, ConsumerGroup, GroupSettings, Refusal, TopicLookup};
use super::patterns::ResolvedPattern;
use crate::memory::KeptMemory;

pub(super) const GROUP: &str = "billing";

/// Topics that count how often one of them is looked up.
#[derive(Default)]
pub(super) struct Topics {
    version: u64,
    by_name: BTreeMap<String, (Uuid, i32)>,
    lookups: Cell<usize>,
}

impl Topics {
    pub(super) fn put(&mut self, name: &str, partitions: i32) {
        self.version += 1;
        let id = Uuid((self.by_name.len() as u128 + 1).to_be_bytes());
        self.by_name.insert(name.to_owned(), (id, partitions));
    }

    pub(super) fn id(&self, name: &str) -> Uuid {
        self.by_name[name].0
    }

    fn names(&self) -> BTreeSet<Arc<str>> {
        self.by_name.keys().map(|name| Arc::<str>::from(name.as_str())).collect()
    }
}

impl TopicLookup for Topics {
    fn version(&self) -> u64 {
        self.version
    }

    fn by_name(&self, name: &str) -> Option<(Uuid, i32)> {
        self.lookups.set(self.lookups.get() + 1);
        self.by_name.get(name).copied()
    }

    fn name_of(&self, id: Uuid) -> Option<String> {
        self.by_name.iter().find(|(_, (known, _))| *known == id).map(|(name, _)| name.clone())
    }
}

pub(super) fn settings() -> GroupSettings {
    GroupSettings {
        session_timeout: Duration::from_secs(45),
        heartbeat_interval: Duration::from_secs(5),
        rebalance_heartbeat_interval: Duration::from_secs(1),
        assignment_interval: Duration::ZERO,
        members_max: 1_000,
        assignors: vec![Assignor::Uniform],
    }
}

pub(super) fn new_group(memory: &KeptMemory) -> ConsumerGroup {
    let kept = memory.keep(ConsumerGroup::bytes(GROUP)).expect("there is room");
    ConsumerGroup::new(memory.clone(), kept)
}

/// A member that joins with these names.
pub(super) fn join(id: &str, names: &[&str]) -> Beat {
    Beat {
        member_id: id.into(),
        rebalance_timeout_ms: Some(30_000),
        names: Some(names.iter().map(|name| (*name).to_owned()).collect()),
        owned: Some(BTreeSet::new()),
        ..Beat::default()
    }
}

fn send(group: &mut ConsumerGroup, now_ms: i64, beat: Beat, topics: &Topics) -> Result<BeatAnswer, Refusal> {
    group.heartbeat(Instant::now(), now_ms, beat, &settings(), topics)
}

/// Each join looked up all topics once for every member.
#[test]
fn the_topics_of_equal_subscriptions_are_looked_up_once() {
    let mut topics = Topics::default();
    for at in 0..500 {
        topics.put(&format!("t{at}"), 1);
    }
    let mut group = new_group(&KeptMemory::new(64 << 20));
    let resolved = ResolvedPattern { topics: topics.names(), ..Default::default() };
    let resolved = BTreeMap::from([(".*".to_owned(), resolved)]);
    let joins = |at: usize| Beat {
        pattern: Some(".*".into()),
        resolved: resolved.clone(),
        ..join(&format!("m{at:03}"), &[])
    };
    for at in 0..199 {
        send(&mut group, 1_000, joins(at), &topics).expect("a member");
    }
    topics.lookups.set(0);
    send(&mut group, 1_000, joins(199), &topics).expect("a member");
    // For the hash of the topics, for the assignor, and for the step of the member.
    assert!(topics.lookups.get() <= 3 * 500, "{} lookups", topics.lookups.get());
    assert_eq!(group.targets.values().map(BTreeSet::len).sum::<usize>(), 500);
}

/// Names and topics are those that a walk over all members finds.
#[test]
fn shared_subscriptions_have_the_topics_of_each_member() {
    let mut topics = Topics::default();
    for name in ["a", "b", "c", "d"] {
        topics.put(name, 2);
    }
    let mut group = new_group(&KeptMemory::new(64 << 20));
    let pattern = |names: &[&str]| ResolvedPattern {
        topics: names.iter().map(|name| Arc::<str>::from(*name)).collect(),
        ..Default::default()
    };
    let resolved = BTreeMap::from([("[bc]".to_owned(), pattern(&["b", "c"])), ("d".into(), pattern(&["d"]))]);
    let joins = |id: &str, names: &[&str], pattern: &str| Beat {
        pattern: Some(pattern.into()),
        resolved: resolved.clone(),
        ..join(id, names)
    };
    // The pattern of the last one is not matched yet.
    let members: [(&str, &[&str], &str, &[&str]); 5] = [
        ("m1", &["a"], "[bc]", &["a", "b", "c"]),
        ("m2", &["a"], "", &["a"]),
        ("m3", &["a"], "[bc]", &["a", "b", "c"]),
        ("m4", &[], "d", &["d"]),
        ("m5", &["unknown"], "x", &[]),
    ];
    for (id, names, pattern, _) in members {
        send(&mut group, 1_000, joins(id, names, pattern), &topics).expect("a member");
    }
    assert_eq!(group.all_names(), BTreeSet::from(["a", "b", "c", "d", "unknown"]));
    let (candidates, all) = group.candidates(&topics);
    assert_eq!(all.len(), 4);
    for ((id, _, _, expected), candidate) in members.iter().zip(&candidates) {
        let expected: BTreeSet<Uuid> = expected.iter().map(|name| topics.by_name[*name].0).collect();
        assert_eq!(*candidate.topics, expected, "{id}");
    }
    assert!(Arc::ptr_eq(&candidates[0].topics, &candidates[2].topics));
}

/// 10,000 groups of a topic without partitions yet grew to 11 GB when it was created with 10,000, and no other group had room.
#[test]
fn targets_of_new_partitions_are_limited_by_the_memory() {
    let max = 8 << 20;
    let memory = KeptMemory::new(max);
    let mut topics = Topics::default();
    let mut groups: Vec<ConsumerGroup> = (0..30).map(|_| new_group(&memory)).collect();
    for group in &mut groups {
        send(group, 1_000, join("m", &["t"]), &topics).expect("a member");
    }
    topics.put("t", 5_000);
    let beat = |epoch| Beat { member_id: "m".into(), epoch, ..Beat::default() };
    let mut served = Vec::new();
    for (at, group) in groups.iter_mut().enumerate() {
        match send(group, 10_000, beat(2), &topics) {
            Ok(answer) => {
                assert_eq!(answer.assignment.map(|places| places.len()), Some(5_000));
                served.push(at);
            }
            Err(refusal) => assert_eq!(refusal.code, ErrorCode::GroupMaxSizeReached),
        }
        assert!(memory.used_bytes() <= max, "{} bytes", memory.used_bytes());
    }
    assert!((5..20).contains(&served.len()), "{} groups have room", served.len());
    // The group is tried again when others have gone, after some time.
    let mut last = groups.pop().expect("a group");
    groups.clear();
    assert!(send(&mut last, 14_999, beat(2), &topics).is_err());
    let answer = send(&mut last, 15_000, beat(2), &topics).expect("there is room");
    assert_eq!(answer.assignment.map(|places| places.len()), Some(5_000));
}

/// A member that has partitions does not lose them because a new topic has no room.
#[test]
fn a_group_keeps_its_targets_if_there_is_no_room_for_new_ones() {
    let memory = KeptMemory::new(1 << 20);
    let mut topics = Topics::default();
    topics.put("t", 4);
    let mut group = new_group(&memory);
    send(&mut group, 1_000, join("m1", &["t", "u"]), &topics).expect("a member");
    topics.put("u", 10_000);
    let beat = Beat { member_id: "m1".into(), epoch: 2, ..Beat::default() };
    let answer = send(&mut group, 10_000, beat, &topics).expect("it keeps its partitions");
    assert_eq!((answer.epoch, answer.assignment), (2, None));
    let refused = send(&mut group, 10_001, join("m2", &["t", "u"]), &topics);
    assert_eq!(refused.map_err(|refusal| refusal.code), Err(ErrorCode::GroupMaxSizeReached));
    assert!(!group.members.contains_key("m2") && group.members.contains_key("m1"));
    assert_eq!(group.target("m1").count(), 4);
}

/// The topics that patterns matched were not counted: 1,000 patterns and 5,000 topics took 300 MB.
#[test]
fn topics_that_patterns_match_are_limited_by_the_memory() {
    let memory = KeptMemory::new(256 << 10);
    let mut topics = Topics::default();
    let mut group = new_group(&memory);
    let used = memory.used_bytes();
    let joins = |id: &str, names: &BTreeSet<Arc<str>>| {
        let found = ResolvedPattern { topics: names.clone(), ..Default::default() };
        let resolved = BTreeMap::from([(".*".to_owned(), found)]);
        Beat { pattern: Some(".*".into()), resolved, ..join(id, &[]) }
    };
    let many: BTreeSet<Arc<str>> = (0..10_000).map(|at| Arc::<str>::from(format!("t{at}"))).collect();
    let refused = send(&mut group, 1_000, joins("m1", &many), &topics);
    assert_eq!(refused.map_err(|refusal| refusal.code), Err(ErrorCode::GroupMaxSizeReached));
    assert!(group.members.is_empty() && group.patterns.is_empty());
    assert_eq!(memory.used_bytes(), used);
    topics.put("t1", 4);
    let epoch = send(&mut group, 1_000, joins("m1", &topics.names()), &topics).expect("a member").epoch;
    let one = memory.used_bytes();
    // The group keeps the topics that it has if there is no room for more.
    let beat = Beat { epoch, names: None, owned: None, ..joins("m1", &many) };
    send(&mut group, 2_000, beat, &topics).expect("a heartbeat");
    assert_eq!((memory.used_bytes(), group.target("m1").count()), (one, 4));
    send(&mut group, 3_000, Beat { member_id: "m1".into(), epoch: -1, ..Beat::default() }, &topics)
        .expect("the member leaves");
    assert_eq!(memory.used_bytes(), used);
}
