//! A user without ACLs: Java's producer, consumer and share consumer print Kafka's refusals until `kafka-acls` allows each step.

use ottla_interop::{Failure, Output, Peer, console, require};

use super::cluster::{ADMIN, Login, SecuredCluster};
use super::tools::ACLS;
use crate::both_brokers::{Kind, on_both};

on_both! {
    on_kafka: #[cfg(feature = "soaks")],
    javas_producer_needs_its_acls,
    javas_consumers_need_their_acls,
}

/// `kafka-console-share-consumer.sh`
pub(super) const SHARE_CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleShareConsumer";

fn acls(cluster: &SecuredCluster, options: &str) -> Result<(), Failure> {
    let args: Vec<&str> = options.split_whitespace().collect();
    cluster.tool(&ADMIN, ACLS, &args, "")?.succeeded().map(drop)
}

/// The authorization errors in the log and the output of a tool, without repetitions.
fn refusals(output: &Output) -> Vec<String> {
    let text = output.stdout_text() + "\n" + &output.stderr_text();
    let mut refusals: Vec<String> = text
        .lines()
        .filter_map(|line| {
            let (before, message) = line.split_once("AuthorizationException: ")?;
            let class = before.rsplit(['.', ' ']).next().unwrap_or_default();
            Some(format!("{class}AuthorizationException: {message}"))
        })
        .collect();
    refusals.sort();
    refusals.dedup();
    refusals
}

fn javas_producer_needs_its_acls(kind: Kind) -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let cluster = SecuredCluster::shared(kind)?;
    let (topic, user) = ("produced-with-acls", Login::scram("pia"));
    cluster.create_topic(topic, 1);
    cluster.create_topic("produced-elsewhere", 1);
    cluster.add_user(user.user)?;
    let produce = || cluster.tool(&user, console::PRODUCER, &["--topic", topic], "a line\n");
    let no_topic = ["TopicAuthorizationException: Not authorized to access topics: [produced-with-acls]"];
    assert_eq!(refusals(&produce()?), no_topic);
    acls(&cluster, "--add --allow-principal User:pia --operation Describe --topic produced-with-acls")?;
    cluster.wait_for_acls("pia", 1)?;
    // An idempotent producer needs the right to write to any topic.
    assert_eq!(refusals(&produce()?), ["ClusterAuthorizationException: Cluster authorization failed."]);
    acls(&cluster, "--add --allow-principal User:pia --operation Write --topic produced-elsewhere")?;
    cluster.wait_for_acls("pia", 2)?;
    assert_eq!(refusals(&produce()?), no_topic);
    acls(&cluster, "--add --allow-principal User:pia --producer --topic produced-with-acls")?;
    cluster.wait_for_acls("pia", 4)?;
    assert_eq!(refusals(&produce()?.succeeded()?), Vec::<String>::new());
    acls(&cluster, "--add --deny-principal User:pia --operation Write --topic produced-with-acls")?;
    cluster.wait_for_acls("pia", 5)?;
    assert_eq!(refusals(&produce()?), no_topic);
    let read = ["--topic", topic, "--from-beginning", "--timeout-ms", "10000"];
    assert_eq!(cluster.tool(&ADMIN, console::CONSUMER, &read, "")?.lines(), ["a line"]);
    Ok(())
}

fn javas_consumers_need_their_acls(kind: Kind) -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let cluster = SecuredCluster::shared(kind)?;
    let topic = "consumed-with-acls";
    cluster.create_topic(topic, 1);
    cluster.tool(&ADMIN, console::PRODUCER, &["--topic", topic], "a line\n")?.succeeded()?;
    // The groups of one consumer each: classic, of the new protocol, and share.
    let groups = ["classic-with-acls", "new-with-acls", "share-with-acls"];
    let earliest = ["--alter", "--entity-type", "groups", "--entity-name", groups[2]];
    let earliest = [&earliest[..], &["--add-config", "share.auto.offset.reset=earliest"]].concat();
    cluster.tool(&ADMIN, console::CONFIGS, &earliest, "")?.succeeded()?;
    let consume = |user: &str| -> Result<[Output; 3], Failure> {
        let consume = |class: &str, group: &str, more: &[&str]| {
            let args = ["--topic", topic, "--group", group, "--max-messages", "1", "--timeout-ms", "20000"];
            cluster.tool(&Login::scram(user), class, &[&args[..], more].concat(), "")
        };
        let new = ["--from-beginning", "--command-property", "group.protocol=consumer"];
        Ok([
            consume(console::CONSUMER, groups[0], &["--from-beginning"])?,
            consume(console::CONSUMER, groups[1], &new)?,
            consume(SHARE_CONSUMER, groups[2], &[])?,
        ])
    };

    // One may use the groups, and describe the topic.
    cluster.add_user("gina")?;
    acls(&cluster, "--add --allow-principal User:gina --operation Describe --topic consumed-with-acls")?;
    for group in groups {
        acls(&cluster, &format!("--add --allow-principal User:gina --operation Read --group {group}"))?;
    }
    cluster.wait_for_acls("gina", 4)?;
    for (output, group) in consume("gina")?.iter().zip(groups) {
        let no_topic = ["TopicAuthorizationException: Not authorized to access topics: [consumed-with-acls]"];
        assert_eq!(refusals(output), no_topic, "{group}");
    }
    // The other one may read the topic, and at last use the groups.
    cluster.add_user("carl")?;
    acls(&cluster, "--add --allow-principal User:carl --operation Read --topic consumed-with-acls")?;
    cluster.wait_for_acls("carl", 1)?;
    for (output, group) in consume("carl")?.iter().zip(groups) {
        let no_group = format!("GroupAuthorizationException: Not authorized to access group: {group}");
        assert_eq!(refusals(output), [no_group], "{group}");
    }
    acls(
        &cluster,
        "--add --allow-principal User:carl --operation Read --group * --resource-pattern-type literal",
    )?;
    cluster.wait_for_acls("carl", 2)?;
    for (output, group) in consume("carl")?.iter().zip(groups) {
        assert_eq!(refusals(output), Vec::<String>::new(), "{group}");
        assert_eq!(output.lines(), ["a line"], "{group}");
    }
    Ok(())
}
