//! Apache Kafka 4.3's tools for share groups, against the broker and against Apache Kafka: both print the same.

use std::process::Command;
use std::time::Duration;

use ottla_interop::{
    Failure, KafkaCluster, KafkaOptions, OttlaBroker, Output, Peer, Process, console, newest_jars, require,
    run, wait_until,
};

const SOON: Duration = Duration::from_secs(90);

/// `kafka-share-groups.sh`
const SHARE_GROUPS: &str = "org.apache.kafka.tools.consumer.group.ShareGroupCommand";
/// `kafka-groups.sh`
const ALL_GROUPS: &str = "org.apache.kafka.tools.GroupsCommand";
/// `kafka-features.sh`
const FEATURES: &str = "org.apache.kafka.tools.FeatureCommand";
/// `kafka-console-share-consumer.sh`
const SHARE_CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleShareConsumer";

/// A broker under test.
struct Seat {
    name: &'static str,
    bootstrap: String,
}

fn java(class: &str, bootstrap: &str, args: &[&str]) -> Result<Command, Failure> {
    let mut java = newest_jars()?.java(256);
    java.args([class, "--bootstrap-server", bootstrap]).args(args);
    Ok(java)
}

fn tool(seat: &Seat, class: &str, args: &[&str], input: &[u8]) -> Result<Output, Failure> {
    run(class, &mut java(class, &seat.bootstrap, args)?, input, SOON)
}

/// The rows that a tool prints, sorted, without empty ones; the address of the broker is `HOST`. The reasons of errors are left
/// out: their words are each broker's own.
fn printed(seat: &Seat, class: &str, args: &[&str]) -> Result<Vec<String>, Failure> {
    let output = tool(seat, class, args, b"")?;
    let text = format!("{}\n{}", output.stdout_text(), String::from_utf8_lossy(&output.stderr));
    let text = text.replace(&seat.bootstrap, "HOST");
    let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let rows = rows.filter(|row| !row.is_empty() && !row.starts_with("at "));
    let mut rows: Vec<String> = rows.map(|row| without_reason(&row).to_owned()).collect();
    rows.sort();
    Ok(rows)
}

fn without_reason(row: &str) -> &str {
    let before = |name: &str| Some(&row[..row.rfind(&format!("{name}: "))? + name.len()]);
    before("Exception").or_else(|| before("Error")).unwrap_or(row)
}

/// The tools of a group that never had a member, from its creation by an altered offset to its deletion.
fn tools(seat: &Seat) -> Result<Vec<(String, Vec<String>)>, Failure> {
    let mut steps = Vec::new();
    let mut step = |class: &str, args: &[&str]| -> Result<(), Failure> {
        let name = class.rsplit('.').next().unwrap_or(class);
        steps.push((format!("{name} {}", args.join(" ")), printed(seat, class, args)?));
        Ok(())
    };
    let group = ["--group", "share-tools"];
    let create = ["--create", "--topic", "share-tools-topic", "--partitions", "1"];
    tool(seat, console::TOPICS, &create, b"")?.succeeded()?;
    let produce = ["--topic", "share-tools-topic", "--sync"];
    tool(seat, console::PRODUCER, &produce, b"a\nb\nc\nd\n")?.succeeded()?;
    step(SHARE_GROUPS, &["--list"])?;
    step(SHARE_GROUPS, &[&group[..], &["--describe"]].concat())?;
    step(SHARE_GROUPS, &[&group[..], &["--delete"]].concat())?;
    let reset = ["--reset-offsets", "--topic", "share-tools-topic"];
    step(SHARE_GROUPS, &[&group[..], &reset, &["--to-earliest", "--dry-run"]].concat())?;
    step(SHARE_GROUPS, &[&group[..], &reset, &["--to-earliest", "--execute"]].concat())?;
    step(SHARE_GROUPS, &["--list"])?;
    step(SHARE_GROUPS, &["--list", "--state"])?;
    step(ALL_GROUPS, &["--list"])?;
    step(ALL_GROUPS, &["--list", "--share"])?;
    step(ALL_GROUPS, &["--list", "--consumer"])?;
    for what in [&[][..], &["--offsets"], &["--offsets", "--verbose"], &["--members"], &["--state"]] {
        step(SHARE_GROUPS, &[&group[..], &["--describe"], what].concat())?;
    }
    step(SHARE_GROUPS, &[&group[..], &reset, &["--to-latest", "--execute"]].concat())?;
    step(SHARE_GROUPS, &[&group[..], &["--describe"]].concat())?;
    step(SHARE_GROUPS, &[&group[..], &["--delete-offsets", "--topic", "share-tools-topic"]].concat())?;
    step(SHARE_GROUPS, &[&group[..], &["--delete-offsets", "--topic", "missing"]].concat())?;
    step(SHARE_GROUPS, &[&group[..], &["--describe"]].concat())?;
    step(SHARE_GROUPS, &[&group[..], &["--delete"]].concat())?;
    step(SHARE_GROUPS, &["--list"])?;
    Ok(steps)
}

/// A Kafka of this release for share groups of one broker.
fn kafka() -> Result<KafkaCluster, Failure> {
    let properties = [
        ("share.coordinator.state.topic.replication.factor", "1"),
        ("share.coordinator.state.topic.min.isr", "1"),
    ];
    let options = KafkaOptions { newest: true, properties: &properties, ..KafkaOptions::default() };
    KafkaCluster::start_with(1, &options)
}

#[test]
fn the_tools_print_the_same_on_both_brokers() -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let ottla = OttlaBroker::start(&[])?;
    let ours = tools(&Seat { name: "ottla", bootstrap: ottla.bootstrap() })?;
    let kafka = kafka()?;
    let theirs = tools(&Seat { name: "kafka", bootstrap: kafka.bootstrap() })?;
    for ((step, ours), (_, theirs)) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs, "{step}");
    }
    // The tools have reached the group.
    let output_of = |start: &str| ours.iter().find(|(step, _)| step.starts_with(start)).map(|(_, rows)| rows);
    let described = output_of("ShareGroupCommand --group share-tools --describe --offsets").expect("a step");
    assert!(
        described.iter().any(|row| row.starts_with("share-tools share-tools-topic 0 0 ")),
        "{described:?}"
    );
    Ok(())
}

/// The feature that Java's clients of share groups look at.
#[test]
fn the_feature_of_share_groups_is_kafkas() -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let ottla = OttlaBroker::start(&[])?;
    let kafka = kafka()?;
    let share_version = |seat: &Seat| -> Result<Option<String>, Failure> {
        let rows = printed(seat, FEATURES, &["describe"])?;
        let row = rows.into_iter().find(|row| row.contains("share.version"));
        Ok(row.and_then(|row| Some(row.split(" Epoch").next()?.to_owned())))
    };
    let ours = share_version(&Seat { name: "ottla", bootstrap: ottla.bootstrap() })?;
    let theirs = share_version(&Seat { name: "kafka", bootstrap: kafka.bootstrap() })?;
    assert!(ours.is_some(), "the broker has the feature");
    assert_eq!(ours, theirs);
    Ok(())
}

/// The rows of members and of the state, while a consumer of Java runs: without its id and address.
#[test]
fn a_running_member_is_described() -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let ottla = OttlaBroker::start(&[])?;
    let seat = Seat { name: "ottla", bootstrap: ottla.bootstrap() };
    tool(&seat, console::TOPICS, &["--create", "--topic", "shared", "--partitions", "3"], b"")?
        .succeeded()?;
    let consumer = ["--topic", "shared", "--group", "share-running"];
    let mut consumer = Process::spawn(seat.name, &mut java(SHARE_CONSUMER, &seat.bootstrap, &consumer)?)?;
    let members = ["--describe", "--members", "--group", "share-running"];
    wait_until("the member has its partitions", SOON, || {
        printed(&seat, SHARE_GROUPS, &members).ok()?.into_iter().find(|row| row.contains("shared:0,1,2"))
    })?;
    let state = printed(&seat, SHARE_GROUPS, &["--describe", "--state", "--group", "share-running"])?;
    assert!(state.iter().any(|row| row.contains("Stable") && row.ends_with(" 1")), "{state:?}");
    let delete = printed(&seat, SHARE_GROUPS, &["--delete", "--group", "share-running"])?;
    assert!(delete.iter().any(|row| row.contains("GroupNotEmptyException")), "{delete:?}");
    consumer.stop()?;
    wait_until("the member has left", SOON, || {
        let state = ["--describe", "--state", "--group", "share-running"];
        printed(&seat, SHARE_GROUPS, &state).ok()?.into_iter().find(|row| row.contains("Empty"))
    })?;
    Ok(())
}
