//! The generated documents: the broker's APIs and settings, and its metrics; and the dashboard of the metrics.
//!
//! `cargo xtask compat` regenerates it.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may read the environment and files")]
#![allow(clippy::format_push_string, reason = "what is written once need not save a copy")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ottla_broker::{
    BrokerConfig, KafkaLevel, MetricKind, Mode, Scope, Setting, advertised_apis, broker_effect, metrics,
    settings,
};

/// If set, the document is written instead of compared.
const WRITE: &str = "OTTLA_WRITE_DOCUMENTS";

#[test]
fn broker_md_is_made_of_the_tables() {
    compare("BROKER.md", &document());
}

#[test]
fn metrics_md_is_made_of_the_table() {
    compare("METRICS.md", &metrics_document());
}

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

fn compare(name: &str, expected: &str) {
    let path = docs(name);
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, expected).expect("written");
        return;
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "docs/{name} is stale: run `cargo xtask compat`");
}

fn metrics_document() -> String {
    let mut out = String::from(
        "# The broker: metrics\n\n\
         Made by `cargo xtask compat` from the table in `crates/broker/src/metrics/table.rs`; do not edit.\n\n\
         `ottla broker --metrics-listen HOST:PORT` serves them at `/metrics` in Prometheus' text format, and\n\
         `Cluster::metrics_text` returns them to a program with an embedded broker. [OPERATIONS.md](OPERATIONS.md) describes the\n\
         endpoint, and [grafana-dashboard.json](grafana-dashboard.json) is a dashboard for Grafana.\n\n\
         Counters begin at 0 with the process. A metric by API appears with its first request. The cost of a text is bounded: it is\n\
         made at most once per second, on a thread that serves no clients; metrics with the label `partition` or `group` have at\n\
         most `--metrics-series-max` series each, the first ones by name, and the lag is computed for at most as many groups.\n\
         Share groups get the places that other groups leave.\n\
         The metrics that clients push have at most 50,000 series together.\n\n\
         | Metric | Kind | Labels | Meaning |\n|---|---|---|---|\n",
    );
    for metric in metrics() {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        out += &format!(
            "| `{}` | {} | {} | {} |\n",
            metric.name,
            metric.kind.name(),
            labels.join(", "),
            metric.help
        );
    }
    out
}

/// The names of metrics in a query.
fn names_in(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("ottla_"))
}

#[test]
fn the_dashboard_has_only_metrics_that_exist_and_all_of_them() {
    let text = fs::read_to_string(docs("grafana-dashboard.json")).expect("readable");
    let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("a list");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("a list"));
    let queries: Vec<&str> = targets.map(|target| target["expr"].as_str().expect("a text")).collect();
    let used: BTreeSet<&str> = queries.iter().flat_map(|query| names_in(query)).collect();
    let series = metrics().iter().flat_map(|metric| match metric.kind {
        MetricKind::Histogram => {
            ["_bucket", "_sum", "_count"].map(|end| metric.name.to_owned() + end).to_vec()
        }
        _ => vec![metric.name.to_owned()],
    });
    let existing: Vec<String> = series.collect();
    for name in &used {
        assert!(existing.iter().any(|other| other == name), "{name} does not exist");
    }
    let missing: Vec<&String> = existing.iter().filter(|name| !used.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "not in the dashboard: {missing:?}");
}

/// Each metric is in the text once.
#[test]
fn a_text_has_all_metrics_of_the_table_in_its_order() {
    let broker = ottla_broker::Broker::builder().memory().topic("orders", 1).spawn().expect("a broker");
    let text = broker.cluster().metrics_text(10);
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let expected: Vec<String> =
        metrics().iter().map(|metric| format!("{} {}", metric.name, metric.kind.name())).collect();
    assert_eq!(types.collect::<Vec<_>>(), expected);
}

/// The chapter about reassignments in progress.
const REASSIGNMENTS: &str = "\n## Reassignments\n\n\
     A replication throttle makes a reassignment last, so that tools which watch, cancel or hurry one can be tested. Without a throttle a\n\
     reassignment is complete when it is answered.\n\n\
     ```text\n\
     kafka-reassign-partitions.sh --bootstrap-server localhost:9092 --execute --throttle 1000 --reassignment-json-file move.json\n\
     ```\n\n\
     - A throttle applies to an added replica if `follower.replication.throttled.replicas` of the topic lists it, or\n\
     \x20 `leader.replication.throttled.replicas` the leader, and the broker of that replica or leader has\n\
     \x20 `follower.replication.throttled.rate` or `leader.replication.throttled.rate`. The lower rate counts.\n\
     - An added replica joins the replicas in sync when the time has passed in which the bytes of the partition's log are copied at that\n\
     \x20 rate. Nothing is copied: the nodes share the log. Each partition has the whole rate; in Kafka the partitions of a broker share it.\n\
     - The reassignment is complete when all added replicas are in sync. The broker looks ten times a second.\n\
     - A change of the throttle applies to what is left, and without a throttle nothing is left. The copy to a node that is down, or from a\n\
     \x20 partition without a leader, waits.\n\
     - Until then, Metadata has the new replicas, and after them those that are removed; ListPartitionReassignments has both. A replica that\n\
     \x20 is not in sync leads only after an unclean election, and a leader that is removed leads until the end.\n\
     - A cancellation returns to the original replicas, in the order of the cancelled reassignment, as in Kafka. It is refused with\n\
     \x20 INVALID_REPLICA_ASSIGNMENT while none of them is up, and with NO_REASSIGNMENT_IN_PROGRESS after the end.\n\
     - Other replicas for a partition whose reassignment is in progress replace those that it adds. Kafka lists replaced ones as removed\n\
     \x20 until the end.\n\
     - The new replicas are stored at the beginning: a restart completes a reassignment, and so does a restore of a snapshot.\n";

/// The chapter about features.
const FEATURES: &str = "\n## Features\n\n\
     The features of Apache Kafka (KIP-584) have levels. ApiVersions has the levels that the node supports and those of the\n\
     cluster. UpdateFeatures and `kafka-features.sh` change the levels of the cluster, with Kafka's rules and errors. Releases\n\
     before 4.1 have no features here (`--as-version`).\n\n\
     | Feature | Levels in 4.1 | Levels in 4.3 | New cluster | Effect |\n|---|---|---|--:|---|\n\
     | `transaction.version` | 0 to 2 | 0 to 2 | 2 | With 2, Java's clients and Ottla's use the transactions of KIP-890. |\n\
     | `group.version` | 0 to 1 | 0 to 1 | 1 | With 0, requests of consumer groups of the new protocol get UNSUPPORTED_VERSION. |\n\
     | `share.version` | none | 0 to 1 | 1 | With 0, requests of share groups get UNSUPPORTED_VERSION. |\n\
     | `metadata.version` | 7 to 27 | 7 to 30 | the highest | Below 11 (3.5-IV2), AlterUserScramCredentials gets UNSUPPORTED_VERSION. |\n\
     | `kraft.version` | 0 to 1 | 0 to 1 | 0 | none |\n\
     | `eligible.leader.replicas.version` | 0 to 1 | 0 to 1 | 0 | none |\n\
     | `streams.version` | none | 0 to 1 | 0 | none |\n\n\
     - In Apache Kafka, `metadata.version` is the format of the records in KRaft's metadata log. This broker has no such log, and its\n\
       journal has the same format at each level. A downgrade is refused where the records of Kafka differ.\n\
     - `kraft.version`, `eligible.leader.replicas.version` and `streams.version` are stored and shown, so that\n\
       `kafka-features.sh upgrade --release-version 4.3` succeeds. This broker has no quorum that can change, no eligible leader\n\
       replicas and no streams groups. Levels above 0 are logged as a warning.\n\
       `eligible.leader.replicas.version` 1 needs `metadata.version` 23, as in Kafka.\n\
     - A new cluster can begin with the levels of a release, as with `kafka-storage.sh format`: `ottla broker --release-version 3.9`.\n\
       `--feature group.version=1` sets one level and can be repeated. A data directory that exists keeps its levels.\n\
     - The levels of a data directory are stored with the first change, or at once with one of these options. Without a stored level,\n\
       `metadata.version` is the highest of the release.\n\
     - `unstable.feature.versions.enable` adds `metadata.version` 31 (4.4-IV0), which Kafka 4.3 has for tests.\n";

/// The chapter about dead-letter queues.
const DEAD_LETTERS: &str = "\n## Dead-letter queues of share groups (Apache Kafka 4.4)\n\n\
     Apache Kafka has them since 4.4 (KIP-1191). Here they are an option: a share group without\n\
     `errors.deadletterqueue.topic.name` has none. Their configurations are described once they are set, and to clients that ask\n\
     for them by name. `share.version` stays 1; Kafka requires 2.\n\n\
     ```text\n\
     kafka-topics.sh --bootstrap-server localhost:9092 --create --topic dlq.billing \\\n\
     \x20   --config errors.deadletterqueue.group.enable=true\n\
     kafka-configs.sh --bootstrap-server localhost:9092 --alter --entity-type groups --entity-name billing \\\n\
     \x20   --add-config errors.deadletterqueue.topic.name=dlq.billing\n\
     ```\n\n\
     A record that a member rejects, or that was delivered as often as `share.delivery.count.limit` allows, gets a dead\n\
     letter: a record in the dead-letter topic with the headers `__dlq.errors.topic`, `.partition`, `.offset`, `.group`,\n\
     `.delivery.count` and `.message`. With `errors.deadletterqueue.copy.record.enable` it has the key and the value of the\n\
     original, too; the original's headers are not copied. The partition of the letter is that of the original, modulo the\n\
     number of partitions.\n\n\
     - The name of the topic begins with `errors.deadletterqueue.topic.name.prefix`, and the topic has\n\
     \x20 `errors.deadletterqueue.group.enable=true`. A missing topic is created only with\n\
     \x20 `errors.deadletterqueue.auto.create.topics.enable`.\n\
     - Letters are written after the answer to the member. A letter is written at least once, also after a kill, and its record\n\
     \x20 is never delivered again. A second letter for one record is possible.\n\
     - The start offset of the share partition waits for the letters. Records that wait count as in flight\n\
     \x20 (`share.partition.max.record.locks`).\n\
     - If the topic breaks a rule, the records are archived without letters, and the broker logs an error. If it cannot be\n\
     \x20 written, the broker tries five times within about 15 seconds before it does that.\n\
     - A copy is left out if it does not fit into the topic's `max.message.bytes`, if the original was deleted, or if the batch\n\
     \x20 of the original inflates to more than 16 MiB. The letter still has its headers.\n\
     - After a restart, letters that were not written follow when a member reads the partition.\n\
     - The broker needs no ACL for the dead-letter topic.\n";

fn document() -> String {
    let mut out = String::from(
        "# The broker: APIs and configurations\n\n\
         Made by `cargo xtask compat` from the tables of `crates/broker`; do not edit.\n\n\
         `ottla broker` follows Apache Kafka 4.3. It has the configurations of Kafka by name and type, and a few of its own.\n\
         The defaults are Kafka's, except for `group.initial.rebalance.delay.ms`, `group.min.session.timeout.ms`,\n\
         `group.max.size`, `group.consumer.max.size`, `max.connections` and `log.cleaner.dedupe.buffer.size`; some ranges\n\
         are wider. They are accepted, stored and described, except for values that this broker cannot honour, such as\n\
         `remote.storage.enable=true` and other authorizers. The tables say which have an effect.\n\n\
         **One copy.** A topic may have a replication factor up to `--nodes`. Metadata then lists several nodes,\n\
         `min.insync.replicas` counts the nodes that are up, and the leader fails over. A partition has no leader while all nodes of its\n\
         replicas are stopped; the first of them that starts leads it. All nodes are one process with\n\
         one copy of the data on one disk: a replication factor does not protect it.\n\n\
         **Ids of nodes.** The first node has the id that `node.id` or `broker.id` sets, 1 by default. Further nodes of `--nodes` have the ids\n\
         after it. Use these ids in commands that name a broker, such as `kafka-configs.sh --entity-type brokers --entity-name 1`, and in\n\
         replica assignments. A start with another `node.id` renames the nodes: the replicas and the configurations that are stored for the\n\
         first node belong to the first node then, too. Apache Kafka refuses such a start.\n\n\
         **Racks.** `broker.rack` is the rack of all nodes, or a list with the rack of each: `broker.rack=a,b,c` with `--nodes 3`. An empty\n\
         entry is a node without a rack, and a rack has no comma in its name. With `replica.selector.class`, the leader of a partition\n\
         redirects consumers with a `client.rack` to a replica in that rack (KIP-392). The replicas of new partitions\n\
         are in different racks.\n\n\
         ## APIs\n\n\
         The highest version of each API by `--as-version`; the lowest is the same for all.\n\n\
         Groups of the new protocol (KIP-848) have everything, including the online migration from and to the classic\n\
         protocol. Patterns have the syntax of RE2.\n\n\
         Share groups (KIP-932) are in `__consumer_offsets`, and the states of their partitions in `__share_group_state`, which is\n\
         pruned as in Kafka. A member gets its partitions with the first heartbeat: their states are initialized before it is\n\
         answered. An initialization that fails, for instance because `memory.max.bytes` has no room, is tried again 30 seconds after\n\
         its start.\n\n\
         Some answers of administrative APIs differ from Apache Kafka's:\n\n\
         - AlterPartitionReassignments: the nodes share one copy of the data, so that a change is complete when it is answered, unless a\n\
           replication throttle applies ([Reassignments](#reassignments)). One of the new replicas must be up.\n\
         - DescribeLogDirs: all nodes share the data directory; each reports the partitions of which it is a replica.\n\
           AlterReplicaLogDirs accepts that directory only.\n\
         - DeleteTopics: `__consumer_offsets`, `__transaction_state` and `__share_group_state` are refused with INVALID_TOPIC_EXCEPTION: they\n\
           have the state of groups and transactions. Kafka deletes them. CreatePartitions is refused for them, too.\n\
         - AlterClientQuotas: quotas are enforced with Kafka's precedence. The bytes of a fetch are those of its records, and\n\
           `request_percentage` is the time of one processor: the time of the thread that serves the client, and the processor time that work for\n\
           its requests takes on other threads. `ip` is an address, not a host name.\n\
         - AlterUserScramCredentials: credentials are stored, as salted keys. Listeners with SCRAM authenticate with them.\n\
         - DescribeQuorum: the quorum has one voter, the controller. AddRaftVoter and RemoveRaftVoter are refused as with\n\
           `kraft.version` 0, at each level of that feature.\n\
         - UnregisterBroker removes a node that is down; a node that runs is refused. Another node then leads the partitions whose only\n\
           replica it had. In Kafka they stay without a leader.\n\
         - ACLs need `authorizer.class.name`; without it, the requests get SECURITY_DISABLED. With it, the rules are those of\n\
           Kafka's StandardAuthorizer. Denied operations are logged, each once per minute with the number of repetitions, and\n\
           after 200 different ones in a minute the others are only counted.\n\
         - Delegation tokens are not supported, and the requests get DELEGATION_TOKEN_AUTH_DISABLED after a login, and\n\
           DELEGATION_TOKEN_REQUEST_NOT_ALLOWED without one.\n\
         - GetTelemetrySubscriptions and PushTelemetry are listed while there is a subscription to client metrics.\n\n\
         | Key | API | from | 0.11 | 2.8 | 3.9 | 4.1 | 4.3 |\n|--:|---|--:|--:|--:|--:|--:|--:|\n",
    );
    for (key, (min, _)) in advertised_apis(KafkaLevel::V4_3) {
        out += &format!("| {} | {} | {min} |", key.code(), key.name());
        for level in KafkaLevel::ALL {
            let found = advertised_apis(level).into_iter().find(|(other, _)| *other == key);
            let max = found.map_or("-".to_owned(), |(_, (_, max))| max.to_string());
            out += &format!(" {max} |");
        }
        out += "\n";
    }
    out += REASSIGNMENTS;
    out += FEATURES;
    out += DEAD_LETTERS;
    out += "\n## Topics\n\n| Configuration | Default | Broker's default | Effect |\n|---|---|---|---|\n";
    for setting in settings(Scope::Topic) {
        let synonyms: Vec<String> = setting.synonyms.iter().map(|name| format!("`{name}`")).collect();
        out += &row(setting, &synonyms.join(", "), setting.effect.unwrap_or("none"));
    }
    out += &of_brokers();
    out += &of_groups_and_metrics();
    out
}

fn of_groups_and_metrics() -> String {
    let mut out = String::new();
    for (title, scope) in [("Groups", Scope::Group), ("Client metrics", Scope::ClientMetrics)] {
        out +=
            &format!("\n## {title}\n\n| Configuration | Default | Changes | Effect |\n|---|---|---|---|\n");
        for setting in settings(scope) {
            out += &row(setting, "at any time", setting.effect.unwrap_or("none"));
        }
    }
    out
}

/// The configurations of brokers.
fn of_brokers() -> String {
    let mut out = String::from(
        "\n## Broker\n\n\
         For `--config server.properties` and `-X`; `ottla properties --broker` lists them, too. The third column says how\n\
         Kafka changes a configuration while it runs. Those with `at any time` take effect then, set for all brokers or for the first one. Of those\n\
         `per broker`, only the certificates and keys of one listener of one node do, as `listener.name.NAME.ssl.keystore.location`\n\
         ([SECURITY.md](SECURITY.md#the-broker)). Without the prefix of a listener these are refused. The others are refused with the prefix of\n\
         a listener that exists. Without a prefix they are stored and described, but the listeners keep the values of the start (`--config`, `-X`).\n\
         As in Kafka, settings with other names are stored for plugins: up to 100 for each broker, and 100 for all brokers together. They have no\n\
         effect, and their values are not described.\n\n\
         | Configuration | Default | Changes | Effect |\n|---|---|---|---|\n",
    );
    for setting in settings(Scope::Broker) {
        let changes = match setting.mode {
            Mode::ReadOnly => "at the start",
            Mode::PerBroker => "per broker",
            Mode::ClusterWide => "at any time",
        };
        let effect = if BrokerConfig::has_effect(setting.name) { broker_effect(setting) } else { "none" };
        out += &row(setting, changes, effect);
    }
    out
}

fn row(setting: &Setting, third: &str, effect: &str) -> String {
    let default = setting.default.filter(|default| !default.is_empty()).map(|default| format!("`{default}`"));
    format!("| `{}` | {} | {third} | {effect} |\n", setting.name, default.unwrap_or_default())
}
