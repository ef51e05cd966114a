//! Apache Kafka 4.3's verifiable producer and consumer: the broker is killed while they run, and static members of a group are
//! restarted one after the other. `cargo xtask soak foreign` runs them with Apache Kafka 4.3 as well.

#![allow(clippy::disallowed_methods, reason = "real time: programs and kills are paced")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ottla_interop::{
    Cluster, Failure, OttlaBroker, Peer, Process, application_kills, kafka_for_applications, newest_jars,
    on_application_brokers, require, wait_until,
};
use serde_json::Value;

/// `kafka-verifiable-producer.sh`
const PRODUCER: &str = "org.apache.kafka.tools.VerifiableProducer";
/// `kafka-verifiable-consumer.sh`
const CONSUMER: &str = "org.apache.kafka.tools.VerifiableConsumer";
/// A JVM starts meanwhile, or members find their broker again.
const SOON: Duration = Duration::from_secs(90);
const RECORDS: usize = 3_000;
const PER_SECOND: usize = 500;
const KILLS: usize = 3;
const MEMBERS: usize = 3;
const PARTITIONS: u32 = 6;

#[test]
fn what_a_verifiable_producer_has_acknowledged_is_read_after_kills_of_the_broker() -> Result<(), Failure> {
    require!(Peer::NewestJava);
    if application_kills().is_some() {
        let mut kafka = kafka_for_applications()?;
        kafka.create_topic("verified", 2)?;
        read_after_kills(&kafka.bootstrap(), || {
            kafka.kill_node(1)?;
            kafka.start_node(1)
        })?;
        println!("Apache Kafka 4.3: passed");
    }
    let data = tempfile::tempdir().map_err(|error| Failure::new(format!("a data directory: {error}")))?;
    let first = OttlaBroker::start_on(data.path(), &["--listen", "127.0.0.1:0", "--topic", "verified:2"])?;
    let (bootstrap, address) = (first.bootstrap(), first.addresses()[0].to_string());
    let mut broker = Some(first);
    read_after_kills(&bootstrap, || {
        broker.take().map_or(Ok(()), OttlaBroker::kill)?;
        broker = Some(OttlaBroker::start_on(data.path(), &["--listen", &address])?);
        Ok(())
    })?;
    broker.map_or(Ok(()), OttlaBroker::stop)
}

/// `kill` kills the broker and starts it again on its data and its address.
fn read_after_kills(bootstrap: &str, mut kill: impl FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
    let mut consumer = start(CONSUMER, bootstrap, "verified", &["--group-id", "verifiers", "--verbose"])?;
    wait_until("an assignment", SOON, || (!owned(&consumer).is_empty()).then_some(()))?;
    let (count, pace) = (RECORDS.to_string(), PER_SECOND.to_string());
    let args = ["--max-messages", &count, "--throughput", &pace];
    let mut producer = start(PRODUCER, bootstrap, "verified", &args)?;
    for number in 1..=KILLS {
        let reached = number * RECORDS / (KILLS + 2);
        wait_until(&format!("{reached} acknowledged records"), SOON, || {
            (acknowledged(&producer).len() >= reached).then_some(())
        })?;
        kill()?;
    }
    producer.wait(SOON)?;
    // The program repeats no request: records of the moments without a broker have failed.
    let expected = acknowledged(&producer);
    assert!(expected.len() > RECORDS / 2, "{} acknowledged", expected.len());
    wait_until("every acknowledged record", SOON, || {
        let read = records(&consumer, "record_data");
        expected.iter().all(|(at, value)| read.get(at) == Some(value)).then_some(())
    })?;
    consumer.stop().map(|_| ())
}

#[test]
fn static_members_that_are_restarted_in_turn_disturb_no_other_member() -> Result<(), Failure> {
    require!(Peer::NewestJava);
    on_application_brokers(|cluster| {
        restart_in_turn(cluster, "classic")?;
        restart_in_turn(cluster, "consumer")
    })
}

fn restart_in_turn(cluster: &dyn Cluster, protocol: &str) -> Result<(), Failure> {
    let topic = format!("static-{protocol}");
    cluster.create_topic(&topic, PARTITIONS)?;
    let bootstrap = cluster.bootstrap();
    let member = |at: usize| {
        let id = format!("member-{at}");
        let args = ["--group-id", &topic, "--group-instance-id", &id, "--group-protocol", protocol];
        start(CONSUMER, &bootstrap, &topic, &args)
    };
    let mut members = (0..MEMBERS).map(member).collect::<Result<Vec<_>, _>>()?;
    wait_until("a share for each member", SOON, || {
        let owned: Vec<_> = members.iter().map(owned).collect();
        let all: BTreeSet<i64> = owned.iter().flatten().copied().collect();
        let is_settled = owned.iter().all(|share| share.len() == PARTITIONS as usize / MEMBERS);
        (is_settled && all.len() == PARTITIONS as usize).then_some(())
    })?;
    let before: Vec<_> = members.iter().map(owned).collect();
    for at in 0..MEMBERS {
        let changes = |members: &[Process]| -> Vec<usize> {
            let others = members.iter().enumerate().filter(|(other, _)| *other != at);
            others.map(|(_, member)| changes_of(member)).collect()
        };
        let unchanged = changes(&members);
        members[at].stop()?;
        members[at] = member(at)?;
        wait_until("the restarted member's share", SOON, || {
            (owned(&members[at]) == before[at]).then_some(())
        })?;
        assert_eq!(
            changes(&members),
            unchanged,
            "{protocol}: the others keep theirs when member {at} restarts"
        );
    }
    for mut member in members {
        member.stop()?;
    }
    Ok(())
}

fn start(class: &str, bootstrap: &str, topic: &str, args: &[&str]) -> Result<Process, Failure> {
    let mut java = newest_jars()?.java(256);
    java.args([class, "--bootstrap-server", bootstrap, "--topic", topic]).args(args);
    if class == CONSUMER {
        java.args(["--reset-policy", "earliest"]);
    }
    Process::spawn(class.rsplit('.').next().unwrap_or(class), &mut java)
}

/// The events that a program has printed, a line of JSON each. The last line may be a part of one.
fn events(program: &Process) -> Vec<Value> {
    let text = String::from_utf8_lossy(&program.stdout()).into_owned();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The values of records in events of this name, by partition and offset.
fn records(program: &Process, name: &str) -> BTreeMap<(i64, i64), String> {
    let record = |event: &Value| {
        let at = (event["partition"].as_i64()?, event["offset"].as_i64()?);
        Some((at, event["value"].as_str()?.to_owned()))
    };
    events(program).iter().filter(|event| event["name"] == name).filter_map(record).collect()
}

fn acknowledged(producer: &Process) -> BTreeMap<(i64, i64), String> {
    records(producer, "producer_send_success")
}

/// The partitions that a member has, by its events.
fn owned(member: &Process) -> BTreeSet<i64> {
    let mut owned = BTreeSet::new();
    for event in events(member) {
        let named = event["partitions"].as_array().into_iter().flatten();
        let partitions: Vec<i64> = named.filter_map(|of| of["partition"].as_i64()).collect();
        match event["name"].as_str() {
            Some("partitions_assigned") => owned.extend(partitions),
            Some("partitions_revoked") => partitions.iter().for_each(|partition| _ = owned.remove(partition)),
            _ => {}
        }
    }
    owned
}

/// The number of changes of a member's partitions.
fn changes_of(member: &Process) -> usize {
    let is_change = |event: &&Value| {
        ["partitions_assigned", "partitions_revoked"].contains(&event["name"].as_str().unwrap_or_default())
    };
    events(member).iter().filter(is_change).count()
}
