//! Share groups over TLS with SCRAM and ACLs, at both clusters with security.

use std::collections::BTreeSet;
use std::process::Command;

use ottla_client::ShareConsumer;
use ottla_interop::{Failure, Peer, Process, console, require, wheel, workspace_root};

use super::cluster::{ADMIN, Login, SecuredCluster};
use super::refusals::SHARE_CONSUMER;
use super::tools::ACLS;
use crate::both_brokers::{Kind, on_both};
use crate::foreign::in_runtime;
use crate::mixed_share_group::{each_record_comes_once, franz_go, produce};
use crate::peers::PASSWORD;

on_both! {
    on_kafka: #[cfg(feature = "soaks")],
    kafkas_console_share_consumer_reads_all_lines,
    ours_javas_franz_gos_and_librdkafkas_share_a_group,
}

/// `kafka-verifiable-share-consumer.sh`
const VERIFIABLE: &str = "org.apache.kafka.tools.VerifiableShareConsumer";

/// Creates a topic, and with Kafka's tools a group of this name that starts at the beginning and users that may read it.
fn prepare(cluster: &SecuredCluster, name: &str, partitions: i32, users: &[&str]) -> Result<(), Failure> {
    cluster.create_topic(name, partitions);
    let group = ["--alter", "--entity-type", "groups", "--entity-name", name];
    let earliest = ["--add-config", "share.auto.offset.reset=earliest"];
    cluster.tool(&ADMIN, console::CONFIGS, &[&group[..], &earliest].concat(), "")?.succeeded()?;
    let principals: Vec<String> = users.iter().map(|user| format!("User:{user}")).collect();
    let mut allow = vec!["--add", "--operation", "Read", "--topic", name, "--group", name];
    allow.extend(principals.iter().flat_map(|principal| ["--allow-principal", principal]));
    cluster.tool(&ADMIN, ACLS, &allow, "")?.succeeded()?;
    for user in users {
        cluster.add_user(user)?;
        cluster.wait_for_acls(user, 2)?;
    }
    Ok(())
}

fn kafkas_console_share_consumer_reads_all_lines(kind: Kind) -> Result<(), Failure> {
    const LINES: usize = 300;
    require!(Peer::NewestJava);
    let cluster = SecuredCluster::shared(kind)?;
    prepare(&cluster, "share-lines", 2, &["sharer"])?;
    produce(&cluster.client(), "share-lines", 0..LINES);
    let count = LINES.to_string();
    let args = ["--topic", "share-lines", "--group", "share-lines", "--max-messages", &count];
    let args = [&args[..], &["--timeout-ms", "60000"]].concat();
    let read = cluster.tool(&Login::scram("sharer"), SHARE_CONSUMER, &args, "")?.succeeded()?.lines();
    assert_eq!(read.len(), LINES, "each line once");
    let numbers: BTreeSet<usize> = read.iter().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(numbers, (0..LINES).collect());
    Ok(())
}

fn ours_javas_franz_gos_and_librdkafkas_share_a_group(kind: Kind) -> Result<(), Failure> {
    const NAME: &str = "share-mixed";
    require!(Peer::NewestJava);
    require!(Peer::Go);
    require!(Peer::Librdkafka);
    let cluster = SecuredCluster::shared(kind)?;
    prepare(&cluster, NAME, 4, &["ours", "java", "franz-go", "librdkafka"])?;
    let mut config = cluster.config("ours");
    config.set("group.id", NAME).expect("known");
    let mut ours = ShareConsumer::new(config).expect("a consumer");
    in_runtime(ours.subscribe(&[NAME])).expect("subscribed");

    let args = ["--topic", NAME, "--group-id", NAME, "--acknowledgement-mode", "sync", "--verbose"];
    let mut java = cluster.java(&Login::scram("java"), VERIFIABLE, &args)?;
    let scratch = tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))?;
    let mut go = Command::new(franz_go(scratch.path())?);
    go.args([&cluster.address(), NAME, NAME]);
    let login = Login { user: "franz-go", mechanism: "SCRAM-SHA-256", secret: PASSWORD };
    let mut python = Command::new("python3");
    python.arg(workspace_root().join("interop/foreign/python/share_member.py"));
    python.env("PYTHONPATH", wheel()?).env("PYTHONDONTWRITEBYTECODE", "1");
    python.arg(cluster.librdkafka_properties(&Login::scram("librdkafka"))?).args([NAME, NAME]);
    let programs = vec![
        Process::spawn("verifiable share consumer", &mut java)?,
        Process::spawn("franz-go", cluster.franz_go(&mut go, &login))?,
        Process::spawn("confluent-kafka", &mut python)?,
    ];
    each_record_comes_once(&cluster.client(), NAME, vec![ours], programs)
}
