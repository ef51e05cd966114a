//! confluent-kafka-go with `-tags dynamic`, built against our headers, on the original and on our library.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use ottla_interop::{
    Cluster, Failure, KafkaCluster, Librdkafka, Peer, on_both_libraries, our_prefix, require, run,
    target_dir, workspace_root,
};

on_both_libraries! { Go;
    produce_and_consume
    groups
    admin
    mock
    failures
}

macro_rules! on_kafka_alone {
    ($($test:ident $library:ident $story:ident)+) => {
        $(#[test]
        fn $test() -> Result<(), Failure> {
            require!(Peer::Go);
            require!(Peer::Librdkafka);
            require!(Peer::Java);
            tell(stringify!($story), &Librdkafka::$library()?, &*KafkaCluster::shared()?)
        })+
    };
}

on_kafka_alone! {
    transactions_of_ours_on_kafka ours transactions
    transactions_of_reference_on_kafka reference transactions
    next_generation_of_ours_on_kafka ours next_generation
    next_generation_of_reference_on_kafka reference next_generation
}

macro_rules! told_in_go {
    ($($story:ident)+) => {
        $(fn $story(library: &Librdkafka, cluster: &dyn Cluster) -> Result<(), Failure> {
            tell(stringify!($story), library, cluster)
        })+
    };
}

told_in_go! {
    produce_and_consume
    groups
    admin
    mock
    failures
}

/// The topics of each story, with their partitions.
const TOPICS: &[(&str, &str, u32)] = &[
    ("produce_and_consume", "go-parts", 2),
    ("groups", "go-group", 4),
    ("next_generation", "go-next", 4),
    ("transactions", "go-transactions", 1),
];

/// Compiling the binding the first time includes its download.
const BUILT_WITHIN: Duration = Duration::from_secs(600);
/// Each wait inside a story has a deadline of 30 seconds; this one is for what hangs without one.
const STORY_WITHIN: Duration = Duration::from_secs(120);

fn tell(story: &str, library: &Librdkafka, cluster: &dyn Cluster) -> Result<(), Failure> {
    for &(_, topic, partitions) in TOPICS.iter().filter(|&&(owner, ..)| owner == story) {
        cluster.create_topic(topic, partitions)?;
    }
    let mut stories = Command::new(program()?);
    stories.arg(story).arg(cluster.bootstrap());
    run("go stories", library.load(&mut stories), b"", STORY_WITHIN)?.succeeded().map(|_| ())
}

/// Built once, linked with ours: which library it runs on is said when it starts.
fn program() -> Result<PathBuf, Failure> {
    static PROGRAM: OnceLock<Result<PathBuf, Failure>> = OnceLock::new();
    let build = || {
        Librdkafka::ours()?;
        let program = target_dir().join("interop/go-stories");
        let mut go = Command::new("go");
        go.args(["build", "-tags", "dynamic", "-o"]).arg(&program).arg(".");
        go.current_dir(workspace_root().join("interop/go"));
        go.env("PKG_CONFIG_PATH", our_prefix().join("lib/pkgconfig")).env("GOFLAGS", "-mod=readonly");
        run("go", &mut go, b"", BUILT_WITHIN)?.succeeded()?;
        Ok(program)
    };
    PROGRAM.get_or_init(build).clone()
}
