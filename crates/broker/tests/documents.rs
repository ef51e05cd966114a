//! The generated document of the broker's APIs and settings.
//!
//! `cargo xtask compat` regenerates it.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may read the environment and files")]
#![allow(clippy::format_push_string, reason = "what is written once need not save a copy")]

use std::fs;
use std::path::Path;

use ottla_broker::{
    BrokerConfig, KafkaLevel, Mode, Scope, Setting, advertised_apis, broker_effect, settings,
};

/// If set, the document is written instead of compared.
const WRITE: &str = "OTTLA_WRITE_DOCUMENTS";

#[test]
fn broker_md_is_made_of_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/BROKER.md");
    let expected = document();
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, expected).expect("written");
        return;
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "docs/BROKER.md is stale: run `cargo xtask compat`");
}

fn document() -> String {
    let mut out = String::from(
        "# The broker: APIs and configurations\n\n\
         Made by `cargo xtask compat` from the tables of `crates/broker`; do not edit.\n\n\
         `ottla broker` follows Apache Kafka 4.3. It has the configurations of Kafka by name, type, default and allowed\n\
         values. All of them are accepted, stored and described; the tables say which have an effect.\n\n\
         **One copy.** A topic may have a replication factor up to `--nodes`. Metadata then lists several nodes,\n\
         `min.insync.replicas` counts the nodes that are up, and the leader fails over. All nodes are one process with\n\
         one copy of the data on one disk: a replication factor does not protect it.\n\n\
         ## APIs\n\n\
         The highest version of each API by `--as-version`; the lowest is the same for all. Releases before 4.1\n\
         have no finalized features; 4.1 and 4.3 have `transaction.version` 2, which UpdateFeatures changes, and\n\
         `group.version` 1.\n\n\
         Groups of the new protocol (KIP-848) have everything, including the online migration from and to the classic\n\
         protocol. Patterns have the syntax of RE2 without `\\p{..}` and `\\Q..\\E`.\n\n\
         ApiVersions announces a finalized feature only if clients can rely on it. `metadata.version` is missing: it is the level of the records in KRaft's\n\
         metadata log, and this broker has no such log. Java's clients of 4.3 decide by `transaction.version` alone; for\n\
         everything else they read the versions of the APIs.\n\n\
         Some answers of administrative APIs differ from Apache Kafka's:\n\n\
         - AlterPartitionReassignments: the nodes share one copy of the data, so that a change is complete when it is answered.\n\
           ListPartitionReassignments lists none, and a cancellation has nothing to cancel. One of the new replicas must be up.\n\
         - DescribeLogDirs: all nodes share the data directory; each reports the partitions of which it is a replica.\n\
           AlterReplicaLogDirs accepts that directory only.\n\
         - AlterClientQuotas: quotas are stored and described. They are not enforced. `ip` is an address, not a host name.\n\
         - AlterUserScramCredentials: credentials are stored, as salted keys. No listener authenticates with them.\n\
         - UpdateFeatures: `transaction.version` can be changed, `group.version` cannot.\n\
         - DescribeQuorum: the quorum has one voter, the controller. AddRaftVoter and RemoveRaftVoter are refused as with\n\
           `kraft.version` 0.\n\
         - UnregisterBroker removes a node that is down; a node that runs is refused.\n\
         - ACLs: there is no authorizer, and the requests get SECURITY_DISABLED. Delegation tokens: no connection is\n\
           authenticated, and the requests get DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.\n\
         - GetTelemetrySubscriptions and PushTelemetry are missing, as from a broker of Kafka without a receiver of client metrics.\n\n\
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
    out += "\n## Topics\n\n| Configuration | Default | Broker's default | Effect |\n|---|---|---|---|\n";
    for setting in settings(Scope::Topic) {
        let synonyms: Vec<String> = setting.synonyms.iter().map(|name| format!("`{name}`")).collect();
        out += &row(setting, &synonyms.join(", "), setting.effect.unwrap_or("none"));
    }
    out += "\n## Broker\n\n\
            For `--config server.properties` and `-X`; `ottla properties --broker` lists them, too. The third column says how\n\
            a configuration changes while the broker runs, as in Kafka.\n\n\
            | Configuration | Default | Changes | Effect |\n|---|---|---|---|\n";
    for setting in settings(Scope::Broker) {
        let changes = match setting.mode {
            Mode::ReadOnly => "at the start",
            Mode::PerBroker => "per broker",
            Mode::ClusterWide => "at any time",
        };
        let effect = if BrokerConfig::has_effect(setting.name) { broker_effect(setting) } else { "none" };
        out += &row(setting, changes, effect);
    }
    for (title, scope) in [("Groups", Scope::Group), ("Client metrics", Scope::ClientMetrics)] {
        out +=
            &format!("\n## {title}\n\n| Configuration | Default | Changes | Effect |\n|---|---|---|---|\n");
        for setting in settings(scope) {
            out += &row(setting, "at any time", setting.effect.unwrap_or("none"));
        }
    }
    out
}

fn row(setting: &Setting, third: &str, effect: &str) -> String {
    let default = setting.default.filter(|default| !default.is_empty()).map(|default| format!("`{default}`"));
    format!("| `{}` | {} | {third} | {effect} |\n", setting.name, default.unwrap_or_default())
}
