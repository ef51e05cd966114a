//! Stories of one group, by the rules of Kafka's `GroupMetadataManager`.

use std::time::Duration;

use ottla_protocol::ErrorCode;
use tokio::time::Instant;

use super::group::{Beat, BeatAnswer, ConsumerGroup, GroupSettings, Refusal};
use super::limit_tests::{GROUP, Topics, join, new_group, settings};
use super::member::MemberState;
use crate::memory::KeptMemory;

/// A group with its topics.
struct Story {
    group: ConsumerGroup,
    topics: Topics,
    settings: GroupSettings,
    now_ms: i64,
}

impl Story {
    /// A group whose members subscribe to topics with these numbers of partitions.
    fn new(topics: &[(&str, i32)]) -> Self {
        let mut all = Topics::default();
        for (name, partitions) in topics {
            all.put(name, *partitions);
        }
        let group = new_group(&KeptMemory::new(1 << 20));
        Self { group, topics: all, settings: settings(), now_ms: 1_000_000 }
    }

    fn beat(&mut self, beat: Beat) -> Result<BeatAnswer, Refusal> {
        self.group.heartbeat(Instant::now(), self.now_ms, beat, &self.settings, &self.topics)
    }

    fn join(&mut self, id: &str, names: &[&str]) -> BeatAnswer {
        self.beat(join(id, names)).expect("the member joins")
    }

    /// The types of the records since the last call, and whether each has a value.
    fn records(&mut self) -> Vec<(u8, bool)> {
        let records = self.group.records(GROUP).expect("short names");
        self.group.changed.clear();
        records.iter().map(|record| (record.key[1], record.value.is_some())).collect()
    }
}

/// A beat of a member with an instance id.
fn of_instance(instance: &str, beat: Beat) -> Beat {
    Beat { instance_id: Some(instance.into()), ..beat }
}

/// Kafka's coordinator did not load the partition: the record of the member was removed first.
#[test]
fn the_record_of_a_member_is_removed_after_those_of_its_assignments() {
    let mut story = Story::new(&[("t", 2)]);
    let leaves = |id: &str, epoch| of_instance("i", Beat { member_id: id.into(), epoch, ..Beat::default() });
    story.beat(of_instance("i", join("b", &["t"]))).expect("the member joins");
    story.beat(leaves("b", -2)).expect("it leaves for a while");
    story.records();
    story.beat(of_instance("i", join("a", &["t"]))).expect("the member returns under another id");
    // The current assignment, the target assignment and the member of the old id, and then those of the new one.
    let replaced = [(8, false), (7, false), (5, false), (5, true), (7, true), (8, true)];
    assert_eq!(story.records(), replaced);
    story.beat(leaves("a", -1)).expect("it leaves");
    // The epochs of the group and of its target assignment follow.
    assert_eq!(story.records(), [(8, false), (7, false), (5, false), (3, true), (6, true)]);
}

/// The member was fenced, and gave up everything: its epoch had grown with the answer that did not arrive.
#[test]
fn a_member_that_gives_up_more_partitions_keeps_its_epoch() {
    let mut story = Story::new(&[("t", 4)]);
    let epoch = story.join("a", &["t"]).epoch;
    story.join("b", &["t"]);
    let beat = Beat { member_id: "a".into(), epoch, ..Beat::default() };
    let kept = story.beat(beat.clone()).expect("a heartbeat").assignment.expect("it gives up two");
    assert_eq!(kept.len(), 2);
    story.join("c", &["t"]);
    story.join("d", &["t"]);
    let given_up = Beat { owned: Some(kept.clone()), ..beat };
    for _ in 0..2 {
        let answer = story.beat(given_up.clone()).expect("a heartbeat, and its repetition");
        assert_eq!(answer.epoch, epoch, "it has to give up another one first");
    }
    let last = story.group.members["a"].assigned.keys().copied().collect();
    let answer = story.beat(Beat { owned: Some(last), ..given_up }).expect("a heartbeat");
    assert_eq!(answer.epoch, story.group.epoch);
}

/// The group waited for the end of the rebalance timeout, and removed the member: it had nothing more to report.
#[test]
fn a_member_may_give_up_a_topic_before_it_unsubscribes() {
    let mut story = Story::new(&[("t", 2), ("u", 1)]);
    story.settings.assignment_interval = Duration::from_secs(10);
    let joined = story.join("a", &["t", "u"]);
    let of_t = story.topics.id("t");
    let mut kept = joined.assignment.expect("an assignment");
    kept.retain(|(topic, _)| *topic == of_t);
    let beat = Beat { member_id: "a".into(), epoch: joined.epoch, ..Beat::default() };
    let names = Some(["t".to_owned()].into());
    let changes = Beat { names, owned: Some(kept.clone()), ..beat.clone() };
    let answer = story.beat(changes).expect("another subscription");
    assert_eq!((answer.epoch, answer.assignment), (joined.epoch, Some(kept)));
    story.now_ms += 10_000;
    assert_eq!(story.beat(beat).expect("a heartbeat").epoch, story.group.epoch);
}

/// The next member waited for the assignment interval: the end of the last one counted as an assignment.
#[test]
fn a_member_that_joins_right_after_the_last_one_left_has_its_partitions_at_once() {
    let mut story = Story::new(&[("t", 2)]);
    story.settings.assignment_interval = Duration::from_secs(10);
    let epoch = story.join("a", &["t"]).epoch;
    story.now_ms += 10_000;
    story.beat(Beat { member_id: "a".into(), epoch: -1, ..Beat::default() }).expect("it leaves");
    assert_eq!((story.group.epoch, story.group.assignment_epoch), (epoch + 1, epoch + 1));
    let joined = story.join("b", &["t"]);
    assert_eq!((joined.epoch, joined.assignment.map(|places| places.len())), (epoch + 2, Some(2)));
}

/// It stayed dynamic, and its next heartbeat with the instance id was that of an unknown member.
#[test]
fn a_member_that_joins_again_with_an_instance_id_becomes_static() {
    let mut story = Story::new(&[("t", 2)]);
    let epoch = story.join("a", &["t"]).epoch;
    let stays = |instance| of_instance(instance, Beat { member_id: "a".into(), epoch, ..Beat::default() });
    let refused = story.beat(stays("i")).expect_err("it has not joined with the instance id");
    assert_eq!(refused.code, ErrorCode::UnknownMemberId);
    for instance in ["i", "j"] {
        story.records();
        let joined = story.beat(of_instance(instance, join("a", &["t"]))).expect("it joins again");
        assert_eq!((joined.epoch, story.records()), (epoch, vec![(5, true)]));
        assert_eq!(story.beat(stays(instance)).expect("a heartbeat").epoch, epoch);
    }
    assert_eq!(story.beat(stays("i")).map_err(|refusal| refusal.code), Err(ErrorCode::UnknownMemberId));
}

/// Only members that join were refused, and a static member took the place of its predecessor.
#[test]
fn a_full_group_refuses_all_members_that_it_does_not_have() {
    let mut story = Story::new(&[("t", 2)]);
    story.settings.members_max = 1;
    let epoch = story.beat(of_instance("i", join("a", &["t"]))).expect("the member joins").epoch;
    let stays = |id: &str| of_instance("i", Beat { member_id: id.into(), epoch, ..Beat::default() });
    let mut code = |beat| story.beat(beat).map(|answer| answer.epoch).map_err(|refusal| refusal.code);
    assert_eq!(code(stays("b")), Err(ErrorCode::GroupMaxSizeReached));
    assert_eq!(code(Beat { epoch: -2, ..stays("a") }), Ok(-2));
    assert_eq!(code(of_instance("i", join("b", &["t"]))), Err(ErrorCode::GroupMaxSizeReached));
    assert_eq!(code(of_instance("i", join("a", &["t"]))), Ok(epoch));
}

/// Its session began again, and its commits and its record were other ones than Kafka's.
#[test]
fn a_static_member_that_leaves_for_a_while_keeps_its_session_and_its_state() {
    let mut story = Story::new(&[("t", 4)]);
    let epoch = story.beat(of_instance("i", join("a", &["t"]))).expect("the member joins").epoch;
    story.join("b", &["t"]);
    let stays = of_instance("i", Beat { member_id: "a".into(), epoch, ..Beat::default() });
    story.beat(stays.clone()).expect("it has to give up two partitions");
    let heard_at = story.group.members["a"].heard_at;
    let (later, leaves) = (heard_at + Duration::from_secs(10), Beat { epoch: -2, ..stays });
    let left = story.group.heartbeat(later, story.now_ms, leaves, &story.settings, &story.topics);
    assert_eq!(left.expect("it leaves").epoch, -2);
    let member = &story.group.members["a"];
    assert_eq!((member.epoch, member.previous_epoch), (-2, epoch));
    assert_eq!(member.state, MemberState::UnrevokedPartitions);
    assert_eq!(member.assigned.values().collect::<Vec<_>>(), [&0, &0]);
    assert_eq!(member.deadline(story.settings.session_timeout), heard_at + story.settings.session_timeout);
    // The other member has the partitions that it had to give up, and it returns with the others.
    let both = story.beat(Beat { member_id: "b".into(), epoch: epoch + 1, ..Beat::default() });
    assert_eq!(both.expect("a heartbeat").assignment.map(|places| places.len()), Some(2));
    let returned = story.beat(of_instance("i", join("c", &["t"]))).expect("it returns");
    assert_eq!((returned.epoch, returned.assignment.map(|places| places.len())), (epoch + 1, Some(2)));
}

/// The group had another epoch, and all members an assignment to agree on.
#[test]
fn another_preferred_assignor_applies_to_the_next_assignment() {
    let mut story = Story::new(&[("t", 2), ("u", 2)]);
    let epoch = story.join("a", &["t", "u"]).epoch;
    let beat = Beat { member_id: "a".into(), epoch, assignor: Some("range".into()), ..Beat::default() };
    assert_eq!(story.beat(beat).expect("a heartbeat").epoch, epoch);
    assert_eq!((story.group.epoch, story.group.preferred_assignor()), (epoch, Some("range")));
    story.join("b", &["t", "u"]);
    // Each has partition 0 or 1 of both topics.
    let partitions = |id: &str| story.group.target(id).map(|place| place.1).collect::<Vec<_>>();
    assert_eq!([partitions("a"), partitions("b")], [[0, 0], [1, 1]]);
}
