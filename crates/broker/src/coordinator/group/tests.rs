//! Stories of classic groups, without a clock, a lock or a socket.

use super::*;
use crate::config::BrokerConfig;
use crate::coordinator::groups::{Groups, Joining};
use crate::coordinator::shared_names::SharedNames;
use crate::memory::KeptMemory;

const SESSION: Duration = Duration::from_secs(60);
const REBALANCE: Duration = Duration::from_secs(5);

fn request(member_id: &str, protocol: &str) -> Join {
    Join {
        member_id: member_id.into(),
        instance_id: None,
        client_id: "client".into(),
        client_host: "host".into(),
        protocol_type: CONSUMER.into(),
        protocols: vec![(protocol.into(), Bytes::new())],
        session_timeout: SESSION,
        rebalance_timeout: REBALANCE,
        knows_skip_assignment: true,
    }
}

/// A request of a static member.
fn request_of(instance_id: &str, member_id: &str) -> Join {
    Join { instance_id: Some(instance_id.into()), ..request(member_id, "range") }
}

/// A request to join with another subscription than that of [`request`].
fn changed(member_id: &str) -> Join {
    Join { protocols: vec![("range".into(), Bytes::from_static(b"changed"))], ..request(member_id, "range") }
}

/// A group at a time.
struct Story {
    group: Group,
    now: Instant,
    memory: KeptMemory,
    names: SharedNames,
}

impl Story {
    fn new() -> Self {
        let memory = KeptMemory::new(1 << 20);
        Self {
            group: Group::new(memory.keep_known(0)),
            now: Instant::now(),
            memory,
            names: SharedNames::default(),
        }
    }

    fn join(&mut self, join: Join) -> oneshot::Receiver<JoinAnswer> {
        self.join_after(join, RebalanceWaits::default())
    }

    fn join_after(&mut self, join: Join, waits: RebalanceWaits) -> oneshot::Receiver<JoinAnswer> {
        let (answer, receiver) = oneshot::channel();
        let kept = self.memory.keep_known(0);
        self.group.join(self.now, (join, kept), answer, waits, &self.names);
        receiver
    }

    /// Joins when no other member has to.
    fn joined(&mut self, join: Join) -> Joined {
        answer(&mut self.join(join))
    }

    /// Sends SyncGroup. The leader assigns to each member its own id.
    fn sync(&mut self, member_id: &str) -> oneshot::Receiver<SyncAnswer> {
        let (answer, receiver) = oneshot::channel();
        let to_itself = |id: &Arc<str>| (id.to_string(), Bytes::copy_from_slice(id.as_bytes()));
        let assignments = self.group.members.keys().map(to_itself).collect();
        self.group.sync(self.now, member_id, (assignments, self.memory.keep_known(0)), answer);
        receiver
    }

    /// Lets time pass in which the members send heartbeats.
    fn pass(&mut self, time: Duration, heard: &[&str]) {
        self.now += time;
        for id in heard {
            self.group.hear(self.now, id);
        }
        self.group.tick(self.now);
    }

    fn ids(&self) -> Vec<&str> {
        self.group.members.keys().map(|id| &**id).collect()
    }

    /// Members that have formed a group. The first one is the leader.
    fn formed(joins: Vec<Join>) -> Self {
        let mut story = Self::new();
        let mut joins = joins.into_iter();
        let first = joins.next().expect("a member");
        let again = Join { instance_id: first.instance_id.clone(), ..request(&first.member_id, "range") };
        let leader = story.joined(first).leader;
        let others: Vec<_> = joins.map(|join| story.join(join)).collect();
        assert_eq!(story.joined(again).leader, leader);
        for mut other in others {
            assert_eq!(answer(&mut other).leader, leader);
        }
        story
    }

    /// Two members that have their assignments.
    fn stable(first: Join, second: Join) -> Self {
        let ids = [&first, &second].map(|join| join.member_id.clone());
        let mut story = Self::formed(vec![first, second]);
        for id in &ids {
            assert!(answer(&mut story.sync(id)).assignment == *id);
        }
        story
    }
}

/// The answer that a member has now.
fn answer<T>(receiver: &mut oneshot::Receiver<Result<T, ErrorCode>>) -> T {
    receiver.try_recv().expect("an answer").expect("no error")
}

fn groups(members_max: usize) -> Groups {
    let mut config = BrokerConfig::default();
    config.set("group.max.size", &members_max.to_string()).expect("a setting");
    Groups::new(&config, fastrand::Rng::with_seed(1))
}

/// The id that a new member must join with.
fn id_of_new_member(groups: &Groups) -> String {
    match groups.join("g", request("", "range"), true) {
        Joining::ComeBackAs(id) => id,
        _ => panic!("no id"),
    }
}

fn join(
    groups: &Groups,
    member_id: &str,
    protocol: &str,
) -> Result<oneshot::Receiver<JoinAnswer>, ErrorCode> {
    match groups.join("g", request(member_id, protocol), true) {
        Joining::Wait(answer) => Ok(answer),
        Joining::Refused(code) => Err(code),
        _ => panic!("neither an answer that follows nor a refusal"),
    }
}

fn is_formed(mut answer: oneshot::Receiver<JoinAnswer>) -> bool {
    answer.try_recv().is_ok_and(|answer| answer.is_ok())
}

/// Such a member left an id, for which each rebalance waited until the id expired.
#[test]
fn a_new_member_with_other_protocols_gets_no_id() {
    let groups = groups(10);
    let first = id_of_new_member(&groups);
    assert!(join(&groups, &first, "range").is_ok_and(is_formed));
    let code = ErrorCode::InconsistentGroupProtocol;
    assert_eq!(join(&groups, "", "other").map(is_formed), Err(code));
    // One that has its id already loses it.
    let second = id_of_new_member(&groups);
    assert_eq!(join(&groups, &second, "other").map(is_formed), Err(code));
    assert_eq!(join(&groups, &second, "range").map(is_formed), Err(ErrorCode::UnknownMemberId));
    let Joining::Wait(answer) = groups.join("g", changed(&first), true) else {
        panic!("the member is refused")
    };
    assert!(is_formed(answer), "the group waits for the member that was refused");
}

#[test]
fn a_new_member_of_a_full_group_gets_no_id() {
    let groups = groups(1);
    let ids = [id_of_new_member(&groups), id_of_new_member(&groups)];
    let first = join(&groups, &ids[0], "range").expect("there is room");
    let code = ErrorCode::GroupMaxSizeReached;
    assert_eq!(join(&groups, &ids[1], "range").map(is_formed), Err(code));
    assert!(is_formed(first), "the group waits for the member that was refused");
    assert_eq!(join(&groups, "", "range").map(is_formed), Err(code));
    assert_eq!(join(&groups, &ids[1], "range").map(is_formed), Err(code));
}

/// As in Kafka: a member that is gone must not keep its successor from joining.
#[test]
fn while_members_join_those_that_have_not_joined_do_not_fill_the_group() {
    let groups = groups(2);
    let ids = [id_of_new_member(&groups), id_of_new_member(&groups)];
    let first = join(&groups, &ids[0], "range").expect("there is room");
    let second = join(&groups, &ids[1], "range").expect("there is room");
    assert!(is_formed(first) && is_formed(second));
    let Joining::Wait(first) = groups.join("g", changed(&ids[0]), true) else {
        panic!("the member is refused")
    };
    let third = id_of_new_member(&groups);
    let third = join(&groups, &third, "range").expect("the second member has not joined");
    assert_eq!(join(&groups, &ids[1], "range").map(is_formed), Err(ErrorCode::GroupMaxSizeReached));
    assert!(is_formed(first) && is_formed(third));
}

/// KIP-345: the instance returns under another id and keeps its partitions.
#[test]
fn a_static_member_that_has_not_joined_again_stays_in_the_next_generation() {
    let mut story = Story::stable(request("a", "range"), request_of("desk", "s"));
    let mut first = story.join(changed("a"));
    story.pass(REBALANCE, &["s"]);
    let joined = answer(&mut first);
    assert_eq!((joined.generation, &*joined.leader, joined.members.len()), (3, "a", 2));
    assert_eq!(answer(&mut story.sync("a")).assignment, "a");
    let returned = story.joined(request_of("desk", "s2"));
    assert_eq!(returned.generation, 3, "it causes no rebalance");
    assert_eq!(answer(&mut story.sync("s2")).assignment, "s");
}

#[test]
fn a_leader_is_elected_among_the_members_that_have_joined() {
    let mut story = Story::stable(request_of("desk", "s"), request("b", "range"));
    let mut second = story.join(changed("b"));
    story.pass(REBALANCE, &["s"]);
    let joined = answer(&mut second);
    assert_eq!((&*joined.leader, joined.members.len()), ("b", 2));
}

#[test]
fn a_group_of_which_no_static_member_has_joined_forms_later() {
    let mut story = Story::stable(request("a", "range"), request_of("desk", "s"));
    story.group.leave(story.now, "a").expect("a member");
    for _ in 0..3 {
        story.pass(REBALANCE, &["s"]);
        assert_eq!((story.group.state.name(), story.ids()), ("PreparingRebalance", vec!["s"]));
    }
    let joined = story.joined(request_of("desk", "s"));
    assert_eq!((joined.generation, &*joined.leader), (3, "s"));
    // Its session ends the wait, too.
    let mut story = Story::stable(request("a", "range"), request_of("desk", "s"));
    story.group.leave(story.now, "a").expect("a member");
    story.pass(SESSION, &[]);
    assert_eq!((story.group.state, story.group.generation), (State::Empty, 3));
}

/// The timer of all groups would run without a pause.
#[test]
fn a_group_that_forms_later_waits_although_its_rebalance_timeout_is_zero() {
    let at_once = |join: Join| Join { rebalance_timeout: Duration::ZERO, ..join };
    let mut story = Story::new();
    story.joined(at_once(request_of("desk", "s")));
    answer(&mut story.sync("s"));
    let _second = story.join(at_once(request("b", "range")));
    story.group.leave(story.now, "b").expect("a member");
    let next = story.group.tick(story.now).expect("a deadline");
    assert!(next > story.now && story.ids() == ["s"]);
}

/// Its heartbeats kept the partitions that it never used.
#[test]
fn a_member_that_sends_heartbeats_and_no_sync_is_removed() {
    let mut story = Story::formed(vec![request("a", "range"), request("b", "range")]);
    answer(&mut story.sync("a"));
    story.pass(REBALANCE / 2, &["a", "b"]);
    assert_eq!((story.group.state, story.ids()), (State::Stable, vec!["a", "b"]));
    story.pass(REBALANCE / 2, &["a", "b"]);
    assert_eq!((story.group.state.name(), story.ids()), ("PreparingRebalance", vec!["a"]));
    // It joins as any other member.
    let _joining = story.join(request("b", "range"));
    assert_eq!(story.joined(request("a", "range")).members.len(), 2);
    for id in ["a", "b"] {
        answer(&mut story.sync(id));
    }
    story.pass(2 * REBALANCE, &["a", "b"]);
    assert_eq!((story.group.state, story.ids()), (State::Stable, vec!["a", "b"]));
}

#[test]
fn each_member_without_a_sync_is_removed_with_the_leader() {
    let members = ["a", "b", "c"].map(|id| request(id, "range"));
    let mut story = Story::formed(members.into());
    let mut waiting = story.sync("b");
    story.pass(REBALANCE, &["a", "b", "c"]);
    assert_eq!(story.ids(), ["b"]);
    let refused = waiting.try_recv().expect("an answer").map(|synced| synced.assignment);
    assert_eq!(refused, Err(ErrorCode::RebalanceInProgress));
}

/// The rebalance of each such request made the other members join again.
#[test]
fn a_leader_that_repeats_its_join_before_its_sync_has_the_same_generation() {
    let mut story = Story::formed(vec![request("a", "range"), request("b", "range")]);
    let again = story.joined(request("a", "range"));
    assert_eq!((again.generation, &*again.leader, again.members.len()), (2, "a", 2));
    let mut waiting = story.sync("b");
    answer(&mut story.sync("a"));
    assert_eq!(answer(&mut waiting).assignment, "b");
    // Later, the topics may have changed.
    let _joining = story.join(request("a", "range"));
    assert_eq!(story.group.state.name(), "PreparingRebalance");
}

/// Members that had just joined were in the record: after a restart the same request got the generation, without a partition.
#[test]
fn a_record_that_is_written_while_members_join_has_those_of_the_generation() {
    let mut story = Story::stable(request("a", "range"), request("b", "range"));
    let _new = story.join(request("c", "range"));
    assert_eq!((story.group.state.name(), story.ids().len()), ("PreparingRebalance", 3));
    let record = story.group.to_record(0);
    let ids: Vec<&str> = record.members.iter().map(|member| member.member_id.as_str()).collect();
    assert_eq!((ids, record.leader.as_deref()), (vec!["a", "b"], Some("a")));
    let group = Group::from_record("g", record, story.now, &story.memory, &story.names);
    let mut later = Story { group, ..Story::new() };
    let _again = later.join(request("c", "range"));
    assert_eq!(later.group.state.name(), "PreparingRebalance");
    // The members of a generation that has formed are all in the record.
    let _other = later.join(request("b", "range"));
    let answered = later.joined(request("a", "range"));
    assert_eq!(answered.members.len(), 3);
    answer(&mut later.sync("a"));
    assert_eq!(later.group.to_record(0).members.len(), 3);
}

/// The record had the other member alone: after a restart it kept its assignment, and the other partitions had no owner for good.
#[test]
fn a_record_that_is_written_after_a_member_of_the_generation_has_changed_or_left_has_no_members() {
    let mut joined_again = Story::stable(request("a", "range"), request("b", "range"));
    let _changed = joined_again.join(changed("b"));
    let mut left = Story::stable(request("a", "range"), request("b", "range"));
    left.group.leave(left.now, "b").expect("a member");
    // The members of this generation have no assignments yet.
    let mut unassigned = Story::formed(vec![request("a", "range"), request("b", "range")]);
    let _new = unassigned.join(request("c", "range"));
    for story in [joined_again, left, unassigned] {
        assert_eq!(story.group.state.name(), "PreparingRebalance");
        let record = story.group.to_record(0);
        assert_eq!((record.members.len(), &record.leader, &record.protocol), (0, &None, &None));
        assert_eq!(record.generation, story.group.generation);
        let later = Group::from_record("g", record, story.now, &story.memory, &story.names);
        assert_eq!(later.state.name(), "Empty", "its members join again");
    }
}

/// KIP-134: members that start one after another within the delay had a generation each, as the delay of the first one had passed.
#[test]
fn new_members_prolong_the_initial_delay_of_an_empty_group_up_to_the_rebalance_timeout() {
    const DELAY: Duration = Duration::from_secs(2);
    let mut story = Story::new();
    let waits = RebalanceWaits { initial: DELAY, full: false };
    let mut first = story.join_after(request("a", "range"), waits);
    let mut others = Vec::new();
    // At 1 and 3 seconds. The times end after 2, 4 and 5 seconds: the last one is what the rebalance timeout leaves.
    for id in ["b", "c"] {
        story.pass(DELAY / 2, &[]);
        others.push(story.join_after(request(id, "range"), waits));
        story.pass(DELAY / 2, &[]);
        assert_eq!(story.group.state.name(), "PreparingRebalance", "{id} may have successors");
    }
    assert!(first.try_recv().is_err(), "the group has formed early");
    assert_eq!(story.group.next_deadline(), Some(story.now + REBALANCE.saturating_sub(2 * DELAY)));
    others.push(story.join_after(request("d", "range"), waits));
    story.pass(REBALANCE.saturating_sub(2 * DELAY), &[]);
    assert_eq!(answer(&mut first).members.len(), 4);
    for other in &mut others {
        assert_eq!(answer(other).generation, 1);
    }
}

#[test]
fn without_new_members_the_initial_delay_ends_once_and_with_full_waits_always() {
    const DELAY: Duration = Duration::from_secs(2);
    for (full, again) in [(false, "a"), (true, "b")] {
        let mut story = Story::new();
        let waits = RebalanceWaits { initial: DELAY, full };
        let _first = story.join_after(request("a", "range"), waits);
        // The first member on another connection is no new member.
        let mut joined = story.join_after(request(again, "range"), waits);
        story.pass(DELAY, &[]);
        assert_eq!(answer(&mut joined).generation, 1);
    }
}
