//! rust-rdkafka with `dynamic-linking`, on the original and on our library.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use ottla_interop::{
    Cluster, Failure, KafkaCluster, Librdkafka, Peer, on_both_libraries, our_prefix, require, run,
    target_dir, workspace_root,
};

on_both_libraries! { Librdkafka;
    produce_and_consume
    streams
    groups
    statistics_and_logs
    admin
    mock
    failures
}

#[test]
fn transactions_of_ours_on_kafka() -> Result<(), Failure> {
    require!(Peer::Java);
    tell("transactions", &Librdkafka::ours()?, &*KafkaCluster::shared()?)
}

#[test]
fn transactions_of_reference_on_kafka() -> Result<(), Failure> {
    require!(Peer::Librdkafka);
    require!(Peer::Java);
    tell("transactions", &Librdkafka::reference()?, &*KafkaCluster::shared()?)
}

macro_rules! told_in_rust {
    ($($story:ident)+) => {
        $(fn $story(library: &Librdkafka, cluster: &dyn Cluster) -> Result<(), Failure> {
            tell(stringify!($story), library, cluster)
        })+
    };
}

told_in_rust! {
    produce_and_consume
    streams
    groups
    statistics_and_logs
    admin
    mock
    failures
}

/// The topics of each story, with their partitions.
const TOPICS: &[(&str, &str, u32)] = &[
    ("produce_and_consume", "rs-parts", 2),
    ("streams", "rs-streams", 3),
    ("groups", "rs-group", 4),
    ("statistics_and_logs", "rs-statistics", 1),
    ("transactions", "rs-transactions", 1),
];

/// A cold build of the binding and what it needs.
const BUILT_WITHIN: Duration = Duration::from_secs(600);
/// Each wait inside a story has a deadline of 30 seconds; this one is for what hangs without one.
const STORY_WITHIN: Duration = Duration::from_secs(120);

fn tell(story: &str, library: &Librdkafka, cluster: &dyn Cluster) -> Result<(), Failure> {
    for &(_, topic, partitions) in TOPICS.iter().filter(|&&(owner, ..)| owner == story) {
        cluster.create_topic(topic, partitions)?;
    }
    let mut stories = Command::new(program()?);
    stories.arg(story).arg(cluster.bootstrap());
    run("rust stories", library.load(&mut stories), b"", STORY_WITHIN)?.succeeded().map(|_| ())
}

/// Built once, linked with ours: which library it runs on is said when it starts.
fn program() -> Result<PathBuf, Failure> {
    static PROGRAM: OnceLock<Result<PathBuf, Failure>> = OnceLock::new();
    let build = || {
        Librdkafka::ours()?;
        let target = target_dir().join("interop/rust");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--locked", "--quiet"]).current_dir(workspace_root().join("interop/rust"));
        cargo.env("CARGO_TARGET_DIR", &target);
        cargo.env("PKG_CONFIG_PATH", our_prefix().join("lib/pkgconfig"));
        run("cargo", &mut cargo, b"", BUILT_WITHIN)?.succeeded()?;
        Ok(target.join("debug/stories"))
    };
    PROGRAM.get_or_init(build).clone()
}
