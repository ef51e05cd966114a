//! Stories of one share group, without a broker.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ottla_protocol::messages::consumer_offsets::OffsetsKey;
use ottla_protocol::{ErrorCode, Uuid};
use tokio::time::Instant;

use super::group::{Outcome, ShareAnswer, ShareBeat, ShareGroup, ShareGroupSettings};
use super::records::StoredShareGroup;
use crate::coordinator::consumer_group::group::{Refusal, TopicLookup};
use crate::coordinator::consumer_group::member::Place;
use crate::memory::KeptMemory;

const ORDERS: Uuid = Uuid([1; 16]);
const REFUNDS: Uuid = Uuid([2; 16]);
const BILLS: Uuid = Uuid([3; 16]);

/// Topics by name.
#[derive(Default)]
struct Topics {
    version: u64,
    /// The number of names that were looked up.
    lookups: Cell<usize>,
    all: BTreeMap<&'static str, (Uuid, i32)>,
}

impl Topics {
    fn put(&mut self, name: &'static str, id: Uuid, partitions: i32) {
        self.all.insert(name, (id, partitions));
        self.version += 1;
    }
}

impl TopicLookup for Topics {
    fn version(&self) -> u64 {
        self.version
    }

    fn by_name(&self, name: &str) -> Option<(Uuid, i32)> {
        self.lookups.set(self.lookups.get() + 1);
        self.all.get(name).copied()
    }

    fn name_of(&self, id: Uuid) -> Option<String> {
        self.all.iter().find(|(_, (known, _))| *known == id).map(|(name, _)| (*name).to_owned())
    }
}

/// A group with its topics, its clock, and the records that were written.
struct Story {
    group: ShareGroup,
    topics: Topics,
    now: Instant,
    now_ms: i64,
    settings: ShareGroupSettings,
    /// Initializations fail with this code.
    fails: bool,
    failure: ErrorCode,
    memory: KeptMemory,
    log: Vec<crate::internal_topics::InternalRecord>,
}

impl Story {
    fn new() -> Self {
        let memory = KeptMemory::new(1 << 20);
        let mut topics = Topics::default();
        topics.put("orders", ORDERS, 4);
        let seconds = Duration::from_secs;
        let kept = memory.keep_known(ShareGroup::bytes("g"));
        Self {
            group: ShareGroup::new(memory.clone(), kept),
            topics,
            now: Instant::now(),
            now_ms: 1_000_000,
            settings: ShareGroupSettings {
                session_timeout: seconds(45),
                heartbeat_interval: seconds(5),
                assignment_interval: seconds(1),
                members_max: 3,
            },
            fails: false,
            failure: ErrorCode::PolicyViolation,
            memory,
            log: Vec::new(),
        }
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.now_ms += seconds as i64 * 1000;
    }

    fn save(&mut self) {
        self.log.extend(self.group.records("g").expect("the records fit"));
        self.group.changed.clear();
    }

    fn beat(&mut self, id: &str, epoch: i32, names: Option<&[&str]>) -> Result<ShareAnswer, Refusal> {
        let names = names.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let beat = ShareBeat { member_id: id.into(), epoch, names, ..ShareBeat::default() };
        let outcome = self.group.heartbeat(self.now, self.now_ms, &beat, &self.settings, &self.topics);
        self.save();
        match outcome? {
            Outcome::Answer(answer) => Ok(answer),
            Outcome::Initialize { places, is_news } => {
                if self.fails {
                    let failed = places.into_iter().map(|place| (place, self.failure)).collect();
                    self.group.note_failed(self.settings.heartbeat_interval, &failed);
                } else {
                    self.group.finish_initializing(&places);
                }
                let answer = self.group.settle(self.now_ms, id, is_news, &self.settings, &self.topics);
                self.save();
                answer
            }
        }
    }

    fn join(&mut self, id: &str, names: &[&str]) -> ShareAnswer {
        self.beat(id, 0, Some(names)).expect("the member joins")
    }

    /// A heartbeat of each member with its own epoch, until nothing changes.
    fn settle_all(&mut self) {
        for _ in 0..3 {
            self.wait(5);
            let members: Vec<(String, i32)> =
                self.group.members.iter().map(|(id, member)| (id.clone(), member.epoch)).collect();
            for (id, epoch) in members {
                self.beat(&id, epoch, None).expect("a heartbeat");
            }
        }
    }

    fn assigned(&self, id: &str) -> BTreeSet<Place> {
        self.group.members[id].assigned.clone()
    }

    /// The group as the next start reads it.
    fn restart(&mut self) {
        let mut stored = StoredShareGroup::default();
        for record in &self.log {
            let value = record.value.clone();
            match OffsetsKey::from_bytes(record.key.clone()).expect("a key") {
                OffsetsKey::ShareGroup(kind, _) => stored.apply(kind, value).expect("a record"),
                OffsetsKey::ShareGroupMember(kind, key) => {
                    stored.apply_member(kind, key.member_id, value).expect("a record");
                }
                other => panic!("{other:?} is no record of a share group"),
            }
        }
        self.group = ShareGroup::from_stored("g", stored, self.now, &self.memory);
    }
}

fn code(result: Result<ShareAnswer, Refusal>) -> ErrorCode {
    result.map_or_else(|refusal| refusal.code, |_| ErrorCode::None)
}

#[test]
fn a_member_gets_partitions_when_their_state_is_initialized() {
    let mut story = Story::new();
    story.fails = true;
    let answer = story.join("m1", &["orders"]);
    // KAFKA-20268: the first epoch of a member is 2.
    assert_eq!((answer.epoch, answer.assignment), (2, Some(BTreeSet::new())));
    story.fails = false;
    story.wait(30);
    let answer = story.beat("m1", 2, None).expect("a heartbeat");
    assert_eq!(answer.epoch, 3);
    assert_eq!(answer.assignment, Some((0..4).map(|index| (ORDERS, index)).collect()));
    // Nothing is news any more.
    story.wait(5);
    let before = story.log.len();
    assert_eq!(story.beat("m1", 3, None).expect("a heartbeat").assignment, None);
    assert_eq!(story.log.len(), before, "a heartbeat without news costs no record");
    assert_eq!(story.group.state(), "Stable");
}

/// Each heartbeat copied the names of all members and looked each of them up.
#[test]
fn a_heartbeat_without_news_looks_up_no_topic() {
    let mut story = Story::new();
    story.topics.put("refunds", REFUNDS, 2);
    story.join("m1", &["orders", "refunds"]);
    story.join("m2", &["orders", "refunds"]);
    story.settle_all();
    let epoch = story.group.members["m1"].epoch;
    story.topics.lookups.set(0);
    story.beat("m1", epoch, None).expect("a heartbeat");
    assert_eq!(story.topics.lookups.get(), 0);
    // A new partition is found nevertheless.
    story.topics.put("refunds", REFUNDS, 3);
    story.settle_all();
    assert_eq!(story.group.initialized()[&REFUNDS].len(), 3);
    // So is the topic of a new subscription.
    story.topics.put("bills", BILLS, 1);
    story.settle_all();
    story.join("m2", &["bills"]);
    assert_eq!(story.group.initialized()[&BILLS].len(), 1);
}

/// After an import without `__share_group_state`, members were given partitions that they could never fetch.
#[test]
fn partitions_whose_state_is_lost_are_initialized_again() {
    let mut story = Story::new();
    story.join("m1", &["orders"]);
    story.settle_all();
    story.restart();
    story.group.initialize_again(|(_, index)| index == 1);
    let initialized = |story: &Story| story.group.initialized().values().map(BTreeSet::len).sum::<usize>();
    assert_eq!(initialized(&story), 3);
    story.settle_all();
    assert_eq!(initialized(&story), 4);
    assert_eq!(story.assigned("m1"), (0..4).map(|index| (ORDERS, index)).collect());
}

#[test]
fn members_divide_partitions_and_take_over_those_of_members_that_leave() {
    let mut story = Story::new();
    story.join("m1", &["orders"]);
    story.wait(5);
    story.join("m2", &["orders"]);
    story.settle_all();
    assert_eq!((story.assigned("m1").len(), story.assigned("m2").len()), (2, 2));
    assert!(story.assigned("m1").is_disjoint(&story.assigned("m2")));
    let left = story.beat("m2", -1, None).expect("it leaves");
    assert_eq!(left.epoch, -1);
    story.settle_all();
    assert_eq!(story.assigned("m1").len(), 4);
    assert_eq!(code(story.beat("m2", -1, None)), ErrorCode::UnknownMemberId);
    story.beat("m1", -1, None).expect("it leaves");
    assert_eq!(story.group.state(), "Empty");
}

#[test]
fn new_partitions_and_topics_are_assigned() {
    let mut story = Story::new();
    story.join("m1", &["orders", "refunds"]);
    story.settle_all();
    assert_eq!(story.assigned("m1").len(), 4);
    story.topics.put("orders", ORDERS, 6);
    story.topics.put("refunds", REFUNDS, 1);
    story.settle_all();
    assert_eq!(story.assigned("m1").len(), 7);
    assert_eq!(story.group.initialized()[&ORDERS].len(), 6);
    // A deleted topic.
    story.topics.all.remove("refunds");
    story.topics.version += 1;
    assert!(story.group.forget_topic(REFUNDS));
    story.settle_all();
    assert_eq!(story.assigned("m1").len(), 6);
}

#[test]
fn epochs_are_checked() {
    let mut story = Story::new();
    assert_eq!(code(story.beat("m1", 3, None)), ErrorCode::UnknownMemberId);
    let epoch = story.join("m1", &["orders"]).epoch;
    assert_eq!(code(story.beat("m1", epoch + 1, None)), ErrorCode::FencedMemberEpoch);
    assert_eq!(code(story.beat("m1", epoch, None)), ErrorCode::None);
    story.wait(5);
    story.join("m2", &["orders"]);
    story.wait(5);
    let next = story.beat("m1", epoch, None).expect("a heartbeat").epoch;
    assert!(next > epoch);
    // The response was lost.
    assert_eq!(story.beat("m1", epoch, None).expect("the epoch before").epoch, next);
    // A member that starts again.
    assert_eq!(story.join("m1", &["orders"]).epoch, next);
    story.join("m3", &["orders"]);
    assert_eq!(code(story.beat("m4", 0, Some(&["orders"]))), ErrorCode::GroupMaxSizeReached);
}

#[test]
fn a_member_without_heartbeats_is_removed() {
    let mut story = Story::new();
    story.join("m1", &["orders"]);
    story.wait(30);
    story.join("m2", &["orders"]);
    let next = story.group.tick(story.now, &story.settings).expect("a deadline");
    assert_eq!(next - story.now, Duration::from_secs(15));
    story.wait(15);
    story.group.tick(story.now, &story.settings);
    assert!(!story.group.members.contains_key("m1"));
    story.settle_all();
    assert_eq!(story.assigned("m2").len(), 4);
}

#[test]
fn an_initialization_without_a_result_is_tried_again_later() {
    let mut story = Story::new();
    let beat = ShareBeat {
        member_id: "m1".into(),
        names: Some(["orders".to_owned()].into()),
        ..ShareBeat::default()
    };
    let heartbeat = |story: &mut Story| {
        story.group.heartbeat(story.now, story.now_ms, &beat, &story.settings, &story.topics)
    };
    assert!(matches!(heartbeat(&mut story), Ok(Outcome::Initialize { places, .. }) if places.len() == 4));
    story.wait(5);
    assert!(matches!(heartbeat(&mut story), Ok(Outcome::Answer(_))), "it is under way");
    story.wait(25);
    assert!(matches!(heartbeat(&mut story), Ok(Outcome::Initialize { places, .. }) if places.len() == 4));
}

/// Each heartbeat began the initializations again that `memory.max.bytes` had no room for, and wrote a record of all partitions.
#[test]
fn an_initialization_that_fails_is_not_tried_again_with_each_heartbeat() {
    let mut story = Story::new();
    story.fails = true;
    let epoch = story.join("m1", &["orders"]).epoch;
    story.wait(5);
    let written = story.log.len();
    let beat = ShareBeat { member_id: "m1".into(), epoch, ..ShareBeat::default() };
    let heartbeat = |story: &mut Story| {
        story.group.heartbeat(story.now, story.now_ms, &beat, &story.settings, &story.topics)
    };
    assert!(matches!(heartbeat(&mut story), Ok(Outcome::Answer(_))), "no initialization begins");
    story.save();
    assert_eq!(story.log.len(), written, "no record");
    // The second attempt is no news for the record.
    story.wait(25);
    assert!(matches!(heartbeat(&mut story), Ok(Outcome::Initialize { places, .. }) if places.len() == 4));
    story.save();
    assert_eq!(story.log.len(), written, "no record");
}

/// A failure that passes at once left a group without partitions for half a minute.
#[test]
fn an_initialization_that_fails_for_a_passing_reason_is_tried_again_after_an_interval() {
    let mut story = Story::new();
    (story.fails, story.failure) = (true, ErrorCode::CoordinatorNotAvailable);
    let epoch = story.join("m1", &["orders"]).epoch;
    story.fails = false;
    story.wait(4);
    let epoch = story.beat("m1", epoch, None).expect("a heartbeat").epoch;
    assert!(story.group.initialized().is_empty(), "the interval is not over");
    story.wait(1);
    story.beat("m1", epoch, None).expect("a heartbeat");
    assert_eq!(story.group.initialized()[&ORDERS].len(), 4);
}

/// The partitions were not counted, and 10,000 groups could note 10,000 each.
#[test]
fn partitions_of_a_group_are_counted_and_wait_until_there_is_room() {
    let mut story = Story::new();
    let used = story.memory.used_bytes();
    story.topics.put("orders", ORDERS, 50_000);
    let answer = story.join("m1", &["orders"]);
    assert_eq!(answer.assignment, Some(BTreeSet::new()));
    assert!(story.group.state_partitions.is_empty());
    assert!(story.memory.used_bytes() < used + 10_000);
    story.topics.put("orders", ORDERS, 100);
    story.settle_all();
    assert_eq!(story.group.initialized()[&ORDERS].len(), 100);
    let counted = story.memory.used_bytes();
    assert!(story.group.forget_topic(ORDERS));
    assert!(story.memory.used_bytes() < counted);
}

#[test]
fn a_group_continues_after_a_restart() {
    let mut story = Story::new();
    story.join("m1", &["orders"]);
    story.wait(5);
    story.join("m2", &["orders"]);
    story.settle_all();
    let (epoch, assigned) = (story.group.members["m1"].epoch, story.assigned("m1"));
    story.restart();
    assert_eq!(story.assigned("m1"), assigned);
    assert_eq!(story.group.members["m1"].epoch, epoch);
    let answer = story.beat("m1", epoch, None).expect("a heartbeat");
    assert_eq!((answer.epoch, answer.assignment), (epoch, None));
    story.settle_all();
    assert_eq!(story.group.members["m1"].epoch, epoch, "no new assignment");
    // The next start repeats an initialization that was under way or has failed.
    story.topics.put("refunds", REFUNDS, 2);
    story.fails = true;
    story.join("m1", &["orders", "refunds"]);
    story.restart();
    story.fails = false;
    story.settle_all();
    assert_eq!(story.group.initialized()[&REFUNDS].len(), 2);
    // Nothing is left of members that left.
    for id in ["m1", "m2"] {
        story.beat(id, -1, None).expect("it leaves");
    }
    story.restart();
    assert!(story.group.members.is_empty() && story.group.targets.is_empty());
    assert_eq!(story.group.initialized().len(), 2, "the offsets stay");
}

/// Random lives of a group: each partition of a subscribed topic is assigned once everything is calm.
#[test]
fn every_partition_is_assigned_after_any_history() {
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut story = Story::new();
        story.topics.put("refunds", REFUNDS, 2);
        for _ in 0..30 {
            let id = ["m1", "m2", "m3"][rng.usize(0..3)];
            let names = [&["orders"][..], &["refunds"], &["orders", "refunds"]][rng.usize(0..3)];
            match rng.u8(0..10) {
                0..=3 => drop(story.beat(id, 0, Some(names))),
                4..=5 => drop(story.beat(id, -1, None)),
                6 => story.restart(),
                7 => story.fails = rng.bool(),
                8 => story.topics.put("orders", ORDERS, rng.i32(story.topics.all["orders"].1..9)),
                _ => story.wait(rng.u64(0..20)),
            }
        }
        story.fails = false;
        story.wait(31);
        story.settle_all();
        let assigned: BTreeSet<Place> =
            story.group.members.values().flat_map(|member| member.assigned.iter().copied()).collect();
        for name in story.group.subscribed_names() {
            let (id, count) = story.topics.all[name];
            for index in 0..count {
                assert!(assigned.contains(&(id, index)), "seed {seed}: {name}-{index}");
            }
        }
    }
}

/// A member joins while the offsets of its topic are deleted: their states are initialized again.
#[test]
fn a_member_that_joins_during_a_deletion_gets_its_partitions() {
    let mut story = Story::new();
    story.join("m1", &["orders"]);
    story.beat("m1", -1, None).expect("it leaves");
    assert_eq!(story.group.begin_deleting(ORDERS).map(|places| places.len()), Some(4));
    story.join("m1", &["orders"]);
    story.group.finish_deleting(ORDERS);
    assert!(story.group.initialized().is_empty());
    story.settle_all();
    assert_eq!(story.group.initialized()[&ORDERS].len(), 4);
    assert_eq!(story.assigned("m1").len(), 4);
}

/// Kafka's coordinator did not load the partition: the record of the member was removed first.
#[test]
fn the_record_of_a_member_is_removed_after_those_of_its_assignments() {
    let mut story = Story::new();
    story.join("m1", &["orders"]);
    let before = story.log.len();
    story.beat("m1", -1, None).expect("it leaves");
    let kinds: Vec<(u8, bool)> =
        story.log[before..].iter().map(|record| (record.key[1], record.value.is_some())).collect();
    // The current assignment, the target assignment, the member, and the epoch of the group.
    assert_eq!(kinds, [(14, false), (13, false), (10, false), (11, true)]);
}

/// It kept the partitions of the old topic until the next assignment.
#[test]
fn a_member_has_no_partitions_of_topics_that_it_does_not_subscribe_to_any_more() {
    let mut story = Story::new();
    story.topics.put("refunds", REFUNDS, 2);
    let joined = story.join("m1", &["orders"]);
    assert_eq!(joined.assignment.map(|places| places.len()), Some(4));
    let changed = story.beat("m1", joined.epoch, Some(&["refunds"])).expect("a heartbeat");
    // The next assignment is not due.
    assert_eq!((changed.epoch, changed.assignment), (joined.epoch, Some(BTreeSet::new())));
    story.wait(1);
    let later = story.beat("m1", joined.epoch, None).expect("a heartbeat");
    assert_eq!(later.assignment.map(|places| places.len()), Some(2));
}
