//! Stories of groups in the classic protocol, against the embedded broker.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ottla_broker::{ApiKey, Broker, BrokerThread, Fault, FaultRule};
use ottla_client::assignor::{Assignment, Assignor, Member, Topics};
use ottla_client::{
    Admin, Config, Consumer, Error, ErrorCode, Event, GroupHabits, NewTopic, Polled, Producer, Record,
    StartAt, TopicPartition,
};

use crate::seats::{PATIENCE, Seats, block_on};

fn broker(topic: &str, partitions: i32) -> BrokerThread {
    Broker::builder().memory().nodes(2).topic(topic, partitions).spawn().expect("a broker in memory")
}

fn member(broker: &BrokerThread, properties: &[(&str, &str)]) -> Config {
    let mut config = Config::new(broker.bootstrap_servers());
    let quick = [
        ("group.id", "billing"),
        ("auto.offset.reset", "earliest"),
        ("heartbeat.interval.ms", "50"),
        ("session.timeout.ms", "1500"),
        ("metadata.max.age.ms", "200"),
    ];
    config.set_all(quick).expect("known properties");
    config.set_all(properties.iter().copied()).expect("known properties");
    config
}

fn produce(broker: &BrokerThread, topic: &str, partitions: i32, count: i32) {
    let producer = Producer::new(Config::new(broker.bootstrap_servers())).expect("a producer");
    for number in 0..count {
        let record = Record::to(topic).partition(number % partitions).value("v");
        let _unawaited = producer.enqueue_blocking(record).expect("taken");
    }
    producer.flush_blocking(PATIENCE).expect("written");
}

fn revoked(events: &[Event]) -> usize {
    let count = |event: &Event| if let Event::Revoked(partitions) = event { partitions.len() } else { 0 };
    events.iter().map(count).sum()
}

#[test]
fn a_group_uses_the_assignor_that_its_members_prefer() {
    for strategy in ["range", "roundrobin", "sticky", "cooperative-sticky", "range,cooperative-sticky"] {
        let broker = broker("orders", 7);
        produce(&broker, "orders", 7, 700);
        let config = || member(&broker, &[("partition.assignment.strategy", strategy)]);
        let mut seats = Seats::default();
        seats.join("a", config(), &["orders"]);
        seats.settle("one member owns all", 7);
        seats.join("b", config(), &["orders"]);
        seats.settle("two share", 7);
        seats.join("c", config(), &["orders"]);
        seats.settle("three share", 7);
        let chosen = block_on(Admin::new(config()).expect("an admin").describe_groups(&["billing"]));
        let chosen = chosen.expect("described")[0].protocol.clone();
        assert_eq!(Some(&*chosen), strategy.split(',').next());
        seats.leave("b");
        seats.settle("two share again", 7);
        if strategy == "cooperative-sticky" {
            // The member owned seven, then four, then three or two partitions: it lost only the revoked ones.
            assert!(revoked(&seats.seat("a").events) <= 5, "{:?}", seats.seat("a").events);
        }
        seats.kill("c");
        seats.settle("the session of one runs out", 7);
        produce(&broker, "orders", 7, 70);
        seats.drive("every record was seen", |seats| seats.seen.len() == 770);
        assert!(seats.seat("a").errors.is_empty(), "{:?}", seats.seat("a").errors);
    }
}

/// Assigns all partitions to the last member.
#[derive(Debug)]
struct LastWins;

impl Assignor for LastWins {
    fn name(&self) -> &'static str {
        "last-wins"
    }

    fn assign(&self, topics: &Topics, members: &BTreeMap<String, Member>) -> Assignment {
        let all = topics.iter().flat_map(|(topic, partitions)| {
            (0..partitions.len()).map(|partition| TopicPartition::new(topic, partition as i32))
        });
        members.keys().rev().take(1).map(|id| (id.clone(), all.clone().collect())).collect()
    }
}

#[test]
fn an_assignor_of_ones_own_is_used_by_its_name() {
    let broker = broker("orders", 3);
    let unknown = Consumer::new(member(&broker, &[("partition.assignment.strategy", "last-wins")]));
    assert!(unknown.expect_err("unknown").to_string().contains("`last-wins`"));
    let mut seats = Seats::default();
    for name in ["a", "b"] {
        let mut config = member(&broker, &[("partition.assignment.strategy", "last-wins")]);
        config.assignor(LastWins);
        seats.join(name, config, &["orders"]);
    }
    seats.drive("one owns all, the other stands by", |seats| {
        let shares: BTreeSet<usize> = seats.list.iter().map(|seat| seat.owned.len()).collect();
        shares == BTreeSet::from([0, 3]) && seats.list.iter().all(|seat| !seat.events.is_empty())
    });
}

#[test]
fn a_static_member_comes_back_to_its_partitions() {
    let broker = broker("orders", 4);
    let named = |name: &str| member(&broker, &[("group.instance.id", name), ("session.timeout.ms", "20000")]);
    let mut seats = Seats::default();
    seats.join("a", named("one"), &["orders"]);
    seats.join("b", named("two"), &["orders"]);
    seats.settle("two share", 4);
    let had = seats.owned_by("b");

    // A static member closes and rejoins: no other member got its partitions.
    let before = seats.seat("a").events.len();
    seats.leave("b");
    seats.drive_for(Duration::from_millis(500));
    seats.join("b", named("two"), &["orders"]);
    seats.drive("back where it was", |seats| seats.owned_by("b") == had);
    let took = |event: &Event| matches!(event, Event::Assigned(partitions) if partitions.len() > 2);
    assert!(!seats.seat("a").events[before..].iter().any(took), "{:?}", seats.seat("a").events);

    // Another member with the same `group.instance.id` joins, and the first one gets an error.
    seats.seat("b").owned.clear();
    seats.join("c", named("two"), &["orders"]);
    seats.drive("the first of that name is fenced", |seats| {
        let fenced = |error: &Error| {
            matches!(error, Error::Broker { code: ErrorCode::FencedInstanceId, what } if what.contains("`two`"))
        };
        seats.list[1].errors.iter().any(fenced)
    });
    seats.drive("the second has its partitions", |seats| seats.owned_by("c") == had);
}

/// The coordinator keeps the assignment when a static leader returns (KIP-814). The leader then watched no topic, and no other member
/// does.
#[test]
fn a_static_leader_that_returns_notices_that_a_topic_grows() {
    let broker = broker("orders", 2);
    let admin = Admin::new(member(&broker, &[])).expect("an admin");
    let named = |name: &str| member(&broker, &[("group.instance.id", name), ("session.timeout.ms", "20000")]);
    let mut seats = Seats::default();
    // The first member leads the group.
    seats.join("a", named("one"), &["orders"]);
    seats.settle("one owns all", 2);
    seats.join("b", named("two"), &["orders"]);
    seats.settle("two share", 2);
    let had = seats.owned_by("a");
    seats.leave("a");
    seats.join("a", named("one"), &["orders"]);
    seats.drive("back where it was", |seats| seats.owned_by("a") == had);
    block_on(admin.create_partitions("orders", 4)).expect("created");
    seats.settle("both get a new partition", 4);
}

#[test]
fn patterns_and_partition_counts_are_looked_at_again_with_the_metadata() {
    let broker = broker("orders-eu", 2);
    let admin = Admin::new(member(&broker, &[])).expect("an admin");
    let mut seats = Seats::default();
    seats.join("a", member(&broker, &[]), &["^orders-"]);
    seats.join("b", member(&broker, &[]), &["^orders-"]);
    seats.settle("two share what there is", 2);
    let topic = |name: &str| NewTopic { partitions: Some(2), ..NewTopic::new(name) };
    block_on(admin.create_topics(&[topic("orders-us"), topic("refunds")])).expect("created");
    seats.settle("a new topic matches", 4);
    block_on(admin.create_partitions("orders-us", 4)).expect("created");
    seats.settle("a topic grows", 6);
    let all: BTreeSet<_> =
        seats.list.iter().flat_map(|seat| &seat.owned).map(|at| at.topic.clone()).collect();
    assert_eq!(all, ["orders-eu", "orders-us"].map(Arc::from).into());
}

/// librdkafka's test 0109: the request for the name created the topic, and the pattern that it matches was never reported.
#[test]
fn a_topic_beside_a_pattern_is_not_created_but_reported() {
    let broker = broker("orders", 1);
    let mut seats = Seats::default();
    let creating = member(&broker, &[("allow.auto.create.topics", "true")]);
    seats.join("a", creating, &["refunds", "^orders", "^refunds"]);
    for missing in ["refunds", "^refunds"] {
        seats.drive("the missing part is reported", |seats| {
            let is_reported =
                |event: &Event| matches!(event, Event::TopicUnavailable { topic, .. } if &**topic == missing);
            seats.list[0].events.iter().any(is_reported)
        });
    }
    seats.settle("the rest is read", 1);
    let admin = Admin::new(member(&broker, &[])).expect("an admin");
    let listed = block_on(admin.list_topics()).expect("listed");
    assert!(!listed.iter().any(|topic| topic.name == "refunds"), "{listed:?}");

    block_on(admin.create_topics(&[NewTopic { partitions: Some(1), ..NewTopic::new("refunds") }]))
        .expect("created");
    seats.settle("the topic is read once it exists", 2);
}

/// Node 1 has the replica of partition 0, node 2 that of partition 1. A member without a rack would match both: the order of
/// the member ids would decide.
#[test]
fn a_group_with_racks_rebalances_when_the_racks_of_replicas_change() {
    let broker = broker("orders", 2);
    let racks = |first, second| {
        assert!(broker.cluster().set_rack(1, Some(first)) && broker.cluster().set_rack(2, Some(second)));
    };
    racks("east", "west");
    let rangewise = ("partition.assignment.strategy", "range");
    let mut seats = Seats::default();
    seats.join("a", member(&broker, &[rangewise, ("client.rack", "east")]), &["orders"]);
    seats.settle("one member", 2);
    seats.join("b", member(&broker, &[rangewise, ("client.rack", "west")]), &["orders"]);
    let second = |partition| BTreeSet::from([TopicPartition::new("orders", partition)]);
    seats.drive("the member in the west has the partition there", |seats| seats.owned_by("b") == second(1));
    racks("west", "east");
    seats.drive("the replicas have changed places", |seats| seats.owned_by("b") == second(0));

    // A node that is down keeps its rack: the group does not rebalance.
    let joins = broker.cluster().requests(ApiKey::JoinGroup);
    broker.cluster().set_hidden(1, true);
    let until = Instant::now() + Duration::from_secs(1);
    seats.drive("metadata without the node", |_| Instant::now() > until);
    assert_eq!(broker.cluster().requests(ApiKey::JoinGroup), joins);
}

#[test]
fn the_racks_of_replicas_are_nothing_to_a_group_without_racks() {
    let broker = broker("orders", 2);
    let mut seats = Seats::default();
    seats.join("a", member(&broker, &[]), &["orders"]);
    seats.settle("one member", 2);
    let joins = broker.cluster().requests(ApiKey::JoinGroup);
    assert!(broker.cluster().set_rack(1, Some("east")));
    let until = Instant::now() + Duration::from_secs(1);
    seats.drive("new metadata", |_| Instant::now() > until);
    assert_eq!(broker.cluster().requests(ApiKey::JoinGroup), joins);
}

#[test]
fn a_group_gives_up_a_topic_that_is_deleted() {
    let broker = broker("orders", 2);
    let admin = Admin::new(member(&broker, &[])).expect("an admin");
    block_on(admin.create_topics(&[NewTopic { partitions: Some(3), ..NewTopic::new("refunds") }]))
        .expect("created");
    // Otherwise the metadata requests of the members create it again.
    let stays_deleted = [("allow.auto.create.topics", "false")];
    let mut seats = Seats::default();
    seats.join("a", member(&broker, &stays_deleted), &["orders", "refunds"]);
    seats.join("b", member(&broker, &stays_deleted), &["orders", "refunds"]);
    seats.settle("two topics", 5);
    broker.cluster().remove_topic("refunds").expect("deleted");
    seats.settle("one topic", 2);
}

/// librdkafka's test 0113 waits for an empty assignment, also with a pattern.
#[test]
fn a_cooperative_member_gives_up_the_only_topic_that_exists_when_it_is_deleted() {
    let broker = broker("orders", 2);
    let admin = Admin::new(member(&broker, &[])).expect("an admin");
    let cooperative =
        [("allow.auto.create.topics", "false"), ("partition.assignment.strategy", "cooperative-sticky")];
    let names = ["orders", "refunds"];
    let cases = [
        (GroupHabits::Java, names),
        (GroupHabits::Librdkafka, names),
        (GroupHabits::Librdkafka, ["^orders", "^refunds"]),
    ];
    for (habits, topics) in cases {
        let mut seats = Seats::default();
        let mut config = member(&broker, &cooperative);
        config.group_habits = habits;
        seats.join("a", config, &topics);
        seats.settle("it has the topic", 2);
        broker.cluster().remove_topic("orders").expect("deleted");
        seats.settle("it has nothing", 0);
        let events = &seats.list[0].events;
        let lost =
            events.iter().any(|event| matches!(event, Event::Lost(partitions) if partitions.len() == 2));
        let expected = if habits == GroupHabits::Java { (2, false) } else { (0, true) };
        assert_eq!((revoked(events), lost), expected, "{habits:?} {topics:?}: {events:?}");
        let again = NewTopic { partitions: Some(2), ..NewTopic::new("orders") };
        block_on(admin.create_topics(&[again])).expect("created");
        seats.settle(&format!("{habits:?} {topics:?} have the topic again"), 2);
        seats.leave("a");
    }
}

/// librdkafka's test 0139: a broker that does not know the topic for a moment. The position would start again.
#[test]
fn a_group_keeps_a_topic_that_is_missing_for_a_moment() {
    let broker = broker("orders", 2);
    let mut seats = Seats::default();
    seats.join("a", member(&broker, &[("metadata.max.age.ms", "60000")]), &["orders"]);
    seats.settle("it has the topic", 2);
    let cluster = broker.cluster();
    let (joins, metadata) = (cluster.requests(ApiKey::JoinGroup), cluster.requests(ApiKey::Metadata));
    let set_error = |code| {
        cluster.set_topic_error("orders", code);
        cluster.set_fetch_error("orders", 0, code);
    };
    set_error(ErrorCode::UnknownTopicOrPartition);
    seats.drive("the topic is missing", |_| cluster.requests(ApiKey::Metadata) >= metadata + 2);
    set_error(ErrorCode::None);
    produce(&broker, "orders", 2, 2);
    seats.drive("records", |seats| seats.seen.len() == 2);
    assert_eq!(cluster.requests(ApiKey::JoinGroup), joins);
}

/// The leader of a group took one answer without the topic for its number of partitions: the members lost all of them.
#[test]
fn an_answer_without_the_topic_takes_no_partitions_from_a_group() {
    let broker = broker("orders", 4);
    let config = |name| {
        let own = [("client.id", name), ("metadata.max.age.ms", "60000")];
        let mut config = member(&broker, &own);
        config.set("partition.assignment.strategy", "cooperative-sticky").expect("a known property");
        config
    };
    let mut seats = Seats::default();
    seats.join("a", config("a"), &["orders"]);
    seats.settle("one member owns all", 4);
    let cluster = broker.cluster();
    let missing = Fault::Fail(ErrorCode::UnknownTopicOrPartition);
    let rule = FaultRule::new(ApiKey::Metadata, missing).client_id("a").topic("orders");
    cluster.add_fault(rule).expect("a sound rule");
    seats.join("b", config("b"), &["orders"]);
    seats.settle("two share", 4);
    assert!(cluster.faults().is_empty(), "the leader has not asked for the topic");
    let events = &seats.list[0].events;
    assert_eq!(revoked(events), 2, "{events:?}");
    assert!(!events.iter().any(|event| matches!(event, Event::Lost(_))), "{events:?}");
}

#[test]
fn topics_of_the_blacklist_are_absent() {
    let broker = broker("orders-eu", 2);
    let admin = Admin::new(member(&broker, &[])).expect("an admin");
    let topic = |name: &str| NewTopic { partitions: Some(2), ..NewTopic::new(name) };
    block_on(admin.create_topics(&[topic("orders-us"), topic("orders-internal"), topic("audit")]))
        .expect("created");
    let config = || member(&broker, &[("topic.blacklist", "-internal$, ^aud")]);
    let mut seats = Seats::default();
    seats.join("a", config(), &["^orders-", "audit"]);
    seats.settle("what is not hidden", 4);
    seats.drive_for(Duration::from_millis(500));
    let topics: BTreeSet<_> = seats.owned_by("a").iter().map(|at| at.topic.to_string()).collect();
    assert_eq!(topics, ["orders-eu", "orders-us"].map(str::to_owned).into());
    let blind = Admin::new(config()).expect("an admin");
    assert!(block_on(blind.describe_topics(&["audit"])).is_err());

    let broken = config().set("topic.blacklist", "a[").expect_err("no expression");
    assert!(broken.to_string().contains("`a[`"), "{broken}");
}

#[test]
fn who_does_not_poll_is_told_so_and_comes_back_with_its_next_poll() {
    let broker = broker("orders", 4);
    let config = || member(&broker, &[("max.poll.interval.ms", "1500"), ("enable.auto.commit", "false")]);
    let mut seats = Seats::default();
    seats.join("a", config(), &["orders"]);
    seats.join("b", config(), &["orders"]);
    seats.settle("two share", 4);
    produce(&broker, "orders", 4, 40);
    seats.drive("all was seen", |seats| seats.seen.len() == 40);

    let one_of_b = seats.owned_by("b").first().cloned().expect("it has two");
    seats.seat("b").stalls = true;
    seats.drive("the other gets all", |seats| seats.list[0].owned.len() == 4);
    // The late commit is refused: another member owns the partition now.
    block_on(seats.seat("a").consumer.as_mut().expect("a consumer").commit()).expect("its own by now");
    let late = [(one_of_b.clone(), 1.into())];
    let late = block_on(seats.seat("b").consumer.as_mut().expect("a consumer").commit_offsets(&late));
    assert!(matches!(late, Err(Error::NotAssigned { .. })), "{late:?}");
    let committed = block_on(seats.seat("a").consumer.as_mut().expect("a consumer").committed(&[one_of_b]));
    assert!(
        committed.as_ref().is_ok_and(|offsets| offsets.values().all(|offset| *offset != 1)),
        "{committed:?}"
    );
    let b = seats.seat("b");
    let first = b.consumer.as_mut().expect("a consumer").poll_blocking(PATIENCE);
    assert!(matches!(first, Err(Error::PollIntervalExceeded { max_ms: 1500 })), "{first:?}");
    b.stalls = false;
    let events = b.events.len();
    seats.settle("two share again", 4);
    assert!(matches!(seats.seat("b").events[events], Event::Lost(_)), "{:?}", seats.seat("b").events);
}

/// The member waited for a poll that begins after its LeaveGroup request, and the poll for its records.
#[test]
fn a_poll_that_begins_while_the_member_leaves_brings_it_back() {
    let broker = broker("orders", 2);
    let mut seats = Seats::default();
    seats.join("a", member(&broker, &[("max.poll.interval.ms", "1500")]), &["orders"]);
    seats.settle("it owns all", 2);
    broker.cluster().intercept(ApiKey::LeaveGroup, None, 1, Fault::AnswerAfter(Duration::from_secs(2)));
    let consumer = seats.seat("a").consumer.as_mut().expect("a consumer");
    let deadline = Instant::now() + PATIENCE;
    while !consumer.control().has_unseen_loss() {
        assert!(Instant::now() < deadline, "the member does not notice that it is late");
        std::thread::sleep(Duration::from_millis(5));
    }
    let late = consumer.poll_blocking(PATIENCE);
    assert!(matches!(late, Err(Error::PollIntervalExceeded { max_ms: 1500 })), "{late:?}");
    let lost = consumer.poll_blocking(PATIENCE);
    assert!(matches!(lost, Ok(Some(Polled::Event(Event::Lost(_))))), "{lost:?}");
    let assigned = consumer.poll_blocking(PATIENCE);
    assert!(matches!(assigned, Ok(Some(Polled::Event(Event::Assigned(_))))), "{assigned:?}");
}

/// The coordinator would accept the commit, because the member is in the current generation and only the members know
/// the owner of a partition. The client must refuse it.
#[test]
fn a_commit_of_a_partition_that_was_given_away_is_refused() {
    let broker = broker("orders", 2);
    let config = || {
        let cooperative = ("partition.assignment.strategy", "cooperative-sticky");
        member(&broker, &[cooperative, ("enable.auto.commit", "false")])
    };
    produce(&broker, "orders", 2, 20);
    let mut seats = Seats::default();
    seats.join("a", config(), &["orders"]);
    seats.drive("all was seen", |seats| seats.seen.len() == 20);
    seats.join("b", config(), &["orders"]);
    seats.settle("two share", 2);
    let (kept, given) = (seats.owned_by("a"), seats.owned_by("b"));
    let (kept, given) = (kept.first().expect("one"), given.first().expect("one"));
    fn consumer<'a>(seats: &'a mut Seats, name: &str) -> &'a mut Consumer {
        seats.seat(name).consumer.as_mut().expect("a consumer")
    }
    block_on(consumer(&mut seats, "b").commit_offsets(&[(given.clone(), 7.into())])).expect("its own");
    let late = block_on(consumer(&mut seats, "a").commit_offsets(&[(given.clone(), 3.into())]));
    assert!(matches!(late, Err(Error::NotAssigned { .. })), "{late:?}");
    assert!(matches!(consumer(&mut seats, "a").store_offset(given, 4), Err(Error::NotAssigned { .. })));
    block_on(consumer(&mut seats, "a").commit_offsets(&[(kept.clone(), 5.into())])).expect("its own");
    let committed = block_on(consumer(&mut seats, "a").committed(&[kept.clone(), given.clone()]));
    let expected = BTreeMap::from([(kept.clone(), 5), (given.clone(), 7)]);
    assert_eq!(committed.expect("an answer"), expected);
}

/// The close ended the commit before its request was sent.
#[test]
fn a_commit_that_nothing_waits_for_is_finished_by_the_close_that_follows() {
    let broker = broker("orders", 1);
    produce(&broker, "orders", 1, 10);
    let at = TopicPartition::new("orders", 0);
    let config = || member(&broker, &[("enable.auto.commit", "false")]);
    let committed = || {
        let consumer = Consumer::new(config()).expect("a consumer");
        block_on(consumer.committed(std::slice::from_ref(&at))).expect("an answer").get(&at).copied()
    };
    // The commit needs the coordinator, which is not known yet.
    broker.cluster().intercept(ApiKey::FindCoordinator, None, 1, Fault::Delay(Duration::from_millis(200)));
    let mut alone = Consumer::new(config()).expect("a consumer");
    block_on(alone.assign(&[(at.clone(), StartAt::Beginning)])).expect("assigned");
    drop(alone.begin_commit(Some(&[(at.clone(), 3.into())])));
    alone.close_blocking(PATIENCE).expect("closed");
    assert_eq!(committed(), Some(3));

    let mut seats = Seats::default();
    seats.join("a", config(), &["orders"]);
    seats.settle("it owns all", 1);
    let consumer = seats.seat("a").consumer.as_mut().expect("a consumer");
    consumer.store_offset(&at, 5).expect("its own");
    drop(consumer.begin_commit(None));
    seats.leave("a");
    assert_eq!(committed(), Some(5));
}

/// The member left the group while its commit was repeated, and without an automatic commit.
#[test]
fn commits_are_finished_before_another_assignment_replaces_the_groups() {
    for automatic in ["false", "true"] {
        let broker = broker("orders", 2);
        let later = ("auto.commit.interval.ms", "3600000");
        let mut seats = Seats::default();
        seats.join("a", member(&broker, &[("enable.auto.commit", automatic), later]), &["orders"]);
        seats.settle("it owns all", 2);
        let loading = Fault::Fail(ErrorCode::CoordinatorLoadInProgress);
        broker.cluster().intercept(ApiKey::OffsetCommit, None, 3, loading);
        let consumer = seats.seat("a").consumer.as_mut().expect("a consumer");
        let [done, next] = [0, 1].map(|partition| TopicPartition::new("orders", partition));
        consumer.store_offset(&done, 5).expect("its own");
        if automatic == "false" {
            drop(consumer.begin_commit(None));
        }
        block_on(consumer.assign(&[(next, StartAt::Beginning)])).expect("assigned");
        let committed = block_on(consumer.committed(std::slice::from_ref(&done))).expect("an answer");
        assert_eq!(committed.get(&done), Some(&5), "enable.auto.commit={automatic}");
    }
}

#[test]
fn a_handler_may_take_longer_than_the_session() {
    let broker = broker("orders", 4);
    let mut seats = Seats::default();
    for name in ["a", "b"] {
        seats.join(name, member(&broker, &[("session.timeout.ms", "600")]), &["orders"]);
    }
    seats.settle("two share", 4);
    let events = seats.seat("a").events.len();
    std::thread::sleep(Duration::from_secs(2));
    seats.drive_for(Duration::from_millis(500));
    assert_eq!(seats.seat("a").events.len(), events, "{:?}", seats.seat("a").events);
    assert!(seats.list.iter().all(|seat| seat.errors.is_empty()));
}

#[test]
fn unsubscribing_is_bounded_and_commits_and_a_listener_hears_of_changes() {
    let broker = broker("orders", 2);
    produce(&broker, "orders", 2, 10);
    let mut seats = Seats::default();
    seats.join("a", member(&broker, &[]), &["orders"]);
    let heard = Arc::<Mutex<Vec<Event>>>::default();
    let hears = heard.clone();
    let listener = move |event: &Event| hears.lock().expect("not poisoned").push(event.clone());
    seats.seat("a").consumer.as_mut().expect("a consumer").on_rebalance(listener);
    seats.drive("all was seen", |seats| seats.seen.len() == 10);
    assert_eq!(*heard.lock().expect("not poisoned"), seats.seat("a").events);

    let consumer = seats.seat("a").consumer.as_mut().expect("a consumer");
    block_on(consumer.unsubscribe(PATIENCE)).expect("unsubscribed");
    assert!(consumer.positions().is_empty());
    let both = [0, 1].map(|partition| TopicPartition::new("orders", partition));
    let committed = block_on(consumer.committed(&both)).expect("an answer");
    assert_eq!(committed.values().sum::<i64>(), 10);

    // Without a broker, the call ends at its time limit.
    block_on(consumer.subscribe(&["orders"])).expect("subscribed");
    seats.seat("a").owned.clear();
    seats.settle("back", 2);
    for node in [1, 2] {
        broker.cluster().take_down(node);
    }
    let began = Instant::now();
    let consumer = seats.seat("a").consumer.as_mut().expect("a consumer");
    let _ = block_on(consumer.unsubscribe(Duration::from_secs(2)));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

/// The refusal reached the application as an error. A heartbeat with the same refusal makes the member join again.
#[test]
fn a_member_of_the_new_protocol_that_is_refused_its_offsets_joins_again() {
    for code in [ErrorCode::UnknownMemberId, ErrorCode::FencedMemberEpoch] {
        let broker = broker("orders", 1);
        produce(&broker, "orders", 1, 1);
        broker.cluster().intercept(ApiKey::OffsetFetch, None, 1, Fault::Fail(code));
        assert_eq!(broker.cluster().requests(ApiKey::OffsetFetch), 0);
        let mut config = Config::new(broker.bootstrap_servers());
        config
            .set_all([
                ("group.id", "billing"),
                ("group.protocol", "consumer"),
                ("auto.offset.reset", "earliest"),
            ])
            .expect("known properties");
        let mut consumer = Consumer::new(config).expect("a consumer");
        block_on(consumer.subscribe(&["orders"])).expect("subscribed");
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "{code}: no record");
            match consumer.poll_blocking(Duration::from_millis(100)) {
                Ok(Some(Polled::Records(_))) => break,
                Ok(_) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert!(broker.cluster().requests(ApiKey::OffsetFetch) >= 2, "{code}");
    }
}

/// The member joined again each time that the lookup of its offsets failed, and with it the whole group.
#[test]
fn a_member_whose_offsets_are_unstable_looks_them_up_again_in_its_generation() {
    let broker = broker("orders", 2);
    // About four attempts belong to one lookup.
    let unstable = Fault::Fail(ErrorCode::UnstableOffsetCommit);
    broker.cluster().intercept(ApiKey::OffsetFetch, None, 10, unstable);
    let own = [("socket.timeout.ms", "1000"), ("session.timeout.ms", "20000")];
    let mut seats = Seats::default();
    seats.join("a", member(&broker, &own), &["orders"]);
    seats.settle("it owns all", 2);
    let a = seats.seat("a");
    let metadata = block_on(a.consumer.as_ref().expect("a consumer").group_metadata()).expect("a member");
    assert_eq!(metadata.generation, 1);
    assert!(a.errors.is_empty(), "{:?}", a.errors);
}

#[test]
fn a_group_survives_the_move_of_its_coordinator() {
    let broker = broker("orders", 4);
    let mut seats = Seats::default();
    for name in ["a", "b"] {
        seats.join(name, member(&broker, &[]), &["orders"]);
    }
    seats.settle("two share", 4);
    produce(&broker, "orders", 4, 40);
    seats.forgetful = true;
    for node in [2, 1, 2] {
        broker.cluster().set_coordinator("billing", node);
        seats.drive_for(Duration::from_millis(300));
    }
    seats.drive("every record was seen", |seats| seats.seen.len() == 40);
    seats.settle("two share still", 4);
}
