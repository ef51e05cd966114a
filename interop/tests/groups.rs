//! Groups on Apache Kafka 4.1, while records are produced: members join, leave, stall and die in each protocol and
//! with each assignor, also together with Java's console consumer.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

#[path = "../../crates/client/tests/seats/mod.rs"]
mod seats;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use ottla_client::{
    Admin, Cause, Client, Config, Consumer, Error, ErrorCode, Event, NewTopic, Polled, Producer, Record,
    Stall,
};
use ottla_interop::{
    Cluster, Failure, KafkaCluster, KafkaOptions, Peer, Process, console, java_command, require,
};
use seats::{PATIENCE, Seats, block_on};

const PARTITIONS: usize = 6;

/// Session timeouts of seconds.
const QUICK: &[(&str, &str)] = &[
    ("group.min.session.timeout.ms", "500"),
    ("group.consumer.min.session.timeout.ms", "1000"),
    ("group.consumer.session.timeout.ms", "3000"),
    ("group.consumer.min.heartbeat.interval.ms", "100"),
    ("group.consumer.heartbeat.interval.ms", "300"),
];

fn kafka() -> Result<KafkaCluster, Failure> {
    KafkaCluster::start_with(1, &KafkaOptions { properties: QUICK, ..KafkaOptions::default() })
}

const CONSUMER: (&str, &str) = ("group.protocol", "consumer");

fn config(cluster: &KafkaCluster, group: &str, properties: &[(&str, &str)]) -> Config {
    let mut config = Config::new(cluster.bootstrap());
    let quick = [
        ("group.id", group),
        ("auto.offset.reset", "earliest"),
        ("max.poll.interval.ms", "3000"),
        ("auto.commit.interval.ms", "500"),
        ("metadata.max.age.ms", "500"),
    ];
    config.set_all(quick).expect("known properties");
    config.set_all(properties.iter().copied()).expect("known properties");
    if !properties.contains(&CONSUMER) {
        config.set("session.timeout.ms", "3000").expect("known");
        config.set("heartbeat.interval.ms", "200").expect("known");
    }
    config
}

/// Produces to all partitions until it is stopped.
struct Load {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicI32>,
    thread: std::thread::JoinHandle<()>,
}

impl Load {
    fn start(cluster: &KafkaCluster, topic: &str) -> Self {
        let (stop, count) = (Arc::<AtomicBool>::default(), Arc::<AtomicI32>::default());
        let producer = Producer::new(Config::new(cluster.bootstrap())).expect("a producer");
        let topic = topic.to_owned();
        let (stops, counts) = (stop.clone(), count.clone());
        let thread = std::thread::spawn(move || {
            while !stops.load(Ordering::Relaxed) {
                let number = counts.fetch_add(1, Ordering::Relaxed);
                let value = number.to_string();
                let record = Record::to(&topic).partition(number % PARTITIONS as i32).value(&value);
                let _unawaited = producer.enqueue_blocking(record).expect("taken");
                std::thread::sleep(Duration::from_millis(2));
            }
            producer.flush_blocking(PATIENCE).expect("written");
        });
        Self { stop, count, thread }
    }

    fn stop(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the producer's thread");
        self.count.load(Ordering::Relaxed) as usize
    }
}

#[test]
fn members_come_and_go_in_each_protocol_and_assignor() -> Result<(), Failure> {
    require!(Peer::Java);
    let cluster = kafka()?;
    let classic = ["range", "roundrobin", "sticky", "cooperative-sticky"];
    for strategy in classic {
        members_come_and_go(&cluster, strategy, &[("partition.assignment.strategy", strategy)])?;
    }
    for assignor in ["uniform", "range"] {
        members_come_and_go(
            &cluster,
            &format!("new-{assignor}"),
            &[CONSUMER, ("group.remote.assignor", assignor)],
        )?;
    }
    Ok(())
}

fn members_come_and_go(
    cluster: &KafkaCluster,
    name: &str,
    properties: &[(&str, &str)],
) -> Result<(), Failure> {
    cluster.create_topic(name, PARTITIONS as u32)?;
    let load = Load::start(cluster, name);
    let join = |seats: &mut Seats, seat: &str| seats.join(seat, config(cluster, name, properties), &[name]);
    let mut seats = Seats::default();
    join(&mut seats, "a");
    seats.settle(&format!("{name}: one owns all"), PARTITIONS);
    join(&mut seats, "b");
    join(&mut seats, "c");
    seats.settle(&format!("{name}: three share"), PARTITIONS);
    seats.leave("b");
    seats.settle(&format!("{name}: one left"), PARTITIONS);
    seats.seat("c").stalls = true;
    seats.settle(&format!("{name}: one stalls"), PARTITIONS);
    seats.seat("c").stalls = false;
    seats.drive(&format!("{name}: it gets an error"), |seats| {
        seats.list[1].errors.iter().any(|error| matches!(error, Error::PollIntervalExceeded { .. }))
    });
    seats.settle(&format!("{name}: and comes back"), PARTITIONS);
    seats.kill("c");
    seats.settle(&format!("{name}: one died"), PARTITIONS);
    let written = load.stop();
    seats.drive(&format!("{name}: all {written} records were seen"), |seats| seats.seen.len() == written);
    let errors = &seats.seat("a").errors;
    assert!(errors.is_empty(), "{name}: {errors:?}");
    seats.leave("a");
    Ok(())
}

#[test]
fn java_and_ottla_share_a_group_in_both_protocols() -> Result<(), Failure> {
    require!(Peer::Java);
    let cluster = kafka()?;
    for (name, properties) in [("mixed-classic", &[][..]), ("mixed-new", &[CONSUMER][..])] {
        cluster.create_topic(name, PARTITIONS as u32)?;
        let bootstrap = cluster.bootstrap();
        let protocol = if properties.is_empty() { "classic" } else { "consumer" };
        let property = format!("group.protocol={protocol}");
        let console = ["--bootstrap-server", &bootstrap, "--topic", name, "--group", name];
        let more = ["--from-beginning", "--consumer-property", &property];
        let printed = ["--property", "print.partition=true", "--property", "print.offset=true"];
        let mut java = Process::spawn(
            "console consumer",
            &mut java_command(console::CONSUMER, &[&console[..], &more, &printed].concat())?,
        )?;
        let load = Load::start(&cluster, name);
        java.wait_for_line("Offset:1", PATIENCE)?;
        let mut seats = Seats::default();
        seats.join("ours", config(&cluster, name, properties), &[name]);
        seats.drive(&format!("{name}: half each"), |seats| seats.list[0].owned.len() == PARTITIONS / 2);
        seats.drive_for(Duration::from_secs(2));
        assert_eq!(seats.owned_by("ours").len(), PARTITIONS / 2, "{name}");
        java.stop()?;
        seats.settle(&format!("{name}: Java's left"), PARTITIONS);
        let written = load.stop();
        let javas: BTreeSet<(i32, i64)> =
            String::from_utf8_lossy(&java.stdout()).lines().filter_map(partition_and_offset).collect();
        let of_partition = |number: usize| ((number % PARTITIONS) as i32, (number / PARTITIONS) as i64);
        let all: BTreeSet<(i32, i64)> = (0..written).map(of_partition).collect();
        let by_both = |seats: &Seats| {
            let ours = seats.seen.keys().map(|(at, offset)| (at.partition, *offset));
            ours.chain(javas.iter().copied()).collect::<BTreeSet<_>>()
        };
        seats.drive(&format!("{name}: every record was seen by one of them"), |seats| by_both(seats) == all);
        let ours = seats.seen.len();
        assert!(!javas.is_empty() && ours > 0, "{name}: {} by Java's, {ours} by ours", javas.len());
        seats.leave("ours");
    }
    Ok(())
}

/// Parses a line of the console consumer, `Partition:1<tab>Offset:2<tab>value`.
fn partition_and_offset(line: &str) -> Option<(i32, i64)> {
    let mut columns = line.split('\t');
    let partition = columns.next()?.strip_prefix("Partition:")?.parse().ok()?;
    let offset = columns.next()?.strip_prefix("Offset:")?.parse().ok()?;
    Some((partition, offset))
}

#[test]
fn the_coordinator_shares_out_in_the_new_protocol() -> Result<(), Failure> {
    require!(Peer::Java);
    let cluster = kafka()?;
    excluded_properties_are_refused(&cluster);
    the_server_matches_patterns(&cluster)?;
    a_static_member_is_waited_for(&cluster, "static-new", &[CONSUMER])?;
    a_static_member_is_waited_for(&cluster, "static-classic", &[])?;
    what_the_broker_does_not_have_is_an_error(&cluster);
    an_unpolled_revocation_is_a_stall(&cluster)?;
    Ok(())
}

fn excluded_properties_are_refused(cluster: &KafkaCluster) {
    for (name, value) in [
        ("session.timeout.ms", "6000"),
        ("heartbeat.interval.ms", "1000"),
        ("partition.assignment.strategy", "range"),
    ] {
        let refused =
            Consumer::new(config(cluster, "refused", &[CONSUMER, (name, value)])).expect_err("refused");
        assert!(refused.to_string().contains(name), "{refused}");
    }
    let mut classic = config(cluster, "refused", &[]);
    classic.set("group.remote.assignor", "uniform").expect("known");
    assert!(Consumer::new(classic).is_err());
}

fn the_server_matches_patterns(cluster: &KafkaCluster) -> Result<(), Failure> {
    cluster.create_topic("orders-eu", 2)?;
    let mut seats = Seats::default();
    for name in ["a", "b"] {
        seats.join(name, config(cluster, "patterns", &[CONSUMER]), &["^orders-"]);
    }
    seats.settle("what there is", 2);
    let admin = Admin::new(Config::new(cluster.bootstrap())).expect("an admin");
    let topic = |name: &str| NewTopic { partitions: Some(2), ..NewTopic::new(name) };
    block_on(admin.create_topics(&[topic("orders-us"), topic("refunds")])).expect("created");
    seats.settle("a new topic matches", 4);
    Ok(())
}

/// A static member that closes and returns within its session gets its partitions back without a rebalance. Of two
/// members with the same instance id one is fenced: the second in the new protocol, the first in the classic one.
fn a_static_member_is_waited_for(
    cluster: &KafkaCluster,
    topic: &str,
    properties: &[(&str, &str)],
) -> Result<(), Failure> {
    cluster.create_topic(topic, 4)?;
    let mut seats = Seats::default();
    let named = |name: &str| {
        let mut config = config(cluster, topic, properties);
        config.set("group.instance.id", name).expect("known");
        config
    };
    seats.join("a", named("one"), &[topic]);
    seats.join("b", named("two"), &[topic]);
    seats.settle("two share", 4);
    let (had, events) = (seats.owned_by("b"), seats.seat("a").events.len());
    seats.leave("b");
    seats.join("b", named("two"), &[topic]);
    seats.drive("back where it was", |seats| seats.owned_by("b") == had);
    assert_eq!(seats.seat("a").events.len(), events, "{topic}: {:?}", seats.seat("a").events);

    // This test does not check if the first member still handles its partitions.
    seats.seat("b").owned.clear();
    seats.join("c", named("two"), &[topic]);
    let classic = properties.is_empty();
    let expected = if classic { ErrorCode::FencedInstanceId } else { ErrorCode::UnreleasedInstanceId };
    seats.drive("one of that name is fenced", |seats| {
        let is_fenced = |error: &Error| {
            matches!(error, Error::Broker { code, what } if *code == expected && what.contains("`two`"))
        };
        seats.list[if classic { 1 } else { 2 }].errors.iter().any(is_fenced)
    });
    Ok(())
}

/// The watchdog works in the new protocol as in the classic one.
fn an_unpolled_revocation_is_a_stall(cluster: &KafkaCluster) -> Result<(), Failure> {
    cluster.create_topic("watched", 2)?;
    let member = || {
        let mut config = config(cluster, "watched", &[CONSUMER, ("max.poll.interval.ms", "60000")]);
        config.stall_after = Duration::from_secs(1);
        let client = Client::new(config).expect("a client");
        let mut consumer = client.consumer();
        block_on(consumer.subscribe(&["watched"])).expect("subscribed");
        (client, consumer)
    };
    let poll_until_assigned = |consumer: &mut Consumer, count: usize| {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            assert!(std::time::Instant::now() < deadline, "not assigned in time");
            let polled = consumer.poll_blocking(Duration::from_millis(100)).expect("no error");
            if matches!(polled, Some(Polled::Event(Event::Assigned(partitions))) if partitions.len() == count)
            {
                return;
            }
        }
    };
    let await_stall = |client: &Client, wanted: Cause, over: bool| loop {
        let report = client.stalls().next_blocking(PATIENCE).expect("a report in time");
        match report.stall {
            Stall::Group { ref group, cause }
                if **group == *"watched" && cause == wanted && report.over == over =>
            {
                return report;
            }
            _ => {}
        }
    };
    let (first, mut owner) = member();
    poll_until_assigned(&mut owner, 2);
    let (second, mut joiner) = member();
    let polled = await_stall(&first, Cause::NotPolled, false);
    assert!(polled.trying.contains("revocation"), "{polled}");
    // So far the coordinator has assigned nothing to the other member, which cannot know that more will follow.
    let polled = joiner.poll_blocking(Duration::from_secs(2)).expect("no error");
    let nothing = |polled: &Polled| matches!(polled, Polled::Event(Event::Assigned(partitions)) if partitions.is_empty());
    assert!(polled.as_ref().is_some_and(nothing) && second.stalls().try_next().is_none(), "{polled:?}");
    // It receives the revocation, and completes it with its next poll.
    for _ in 0..2 {
        let _event = owner.poll_blocking(Duration::from_secs(1)).expect("no error");
    }
    poll_until_assigned(&mut joiner, 1);
    await_stall(&first, Cause::NotPolled, true);
    Ok(())
}

/// Without a broker the members' watchdogs report a stall.
#[test]
fn a_coordinator_that_is_gone_is_a_stall_in_the_new_protocol() -> Result<(), Failure> {
    require!(Peer::Java);
    let mut cluster = kafka()?;
    cluster.create_topic("orders", 1)?;
    let mut config = config(&cluster, "left-alone", &[CONSUMER]);
    config.stall_after = Duration::from_secs(1);
    let client = Client::new(config).expect("a client");
    let mut consumer = client.consumer();
    block_on(consumer.subscribe(&["orders"])).expect("subscribed");
    while !matches!(
        consumer.poll_blocking(PATIENCE).expect("no error"),
        Some(Polled::Event(Event::Assigned(_)))
    ) {}
    cluster.kill_node(1)?;
    let await_stall = |over: bool| loop {
        let report = client.stalls().next_blocking(PATIENCE).expect("a report in time");
        if matches!(report.stall, Stall::Group { cause: Cause::NoConnection, .. }) && report.over == over {
            return;
        }
    };
    await_stall(false);
    cluster.start_node(1)?;
    await_stall(true);
    Ok(())
}

fn what_the_broker_does_not_have_is_an_error(cluster: &KafkaCluster) {
    let mut seats = Seats::default();
    seats.join("a", config(cluster, "odd", &[CONSUMER, ("group.remote.assignor", "odd")]), &["static-new"]);
    seats.drive("the assignor is refused", |seats| {
        let refused =
            |error: &Error| matches!(error, Error::Broker { code: ErrorCode::UnsupportedAssignor, .. });
        seats.list[0].errors.iter().any(refused)
    });
}
