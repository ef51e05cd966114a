//! Ottla's broker beside Apache Kafka 4.3: the same configurations, and clients of every age.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::Duration;

use ottla_interop::{
    Failure, KafkaCluster, KafkaOptions, OttlaBroker, Peer, console, java_client, newest_jars, require, run,
    workspace_root,
};

const SOON: Duration = Duration::from_secs(60);

/// The table of settings is Kafka's: names, types, defaults, how they change, and the brokers' names of topic settings.
#[test]
fn the_table_of_settings_is_kafkas() -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let mut java = newest_jars()?.java(256);
    java.arg(workspace_root().join("interop/java/Settings.java"));
    let printed = run("Settings", &mut java, b"", SOON)?.succeeded()?.stdout_text();
    let path = workspace_root().join("crates/broker/src/config/kafka-4.3.tsv");
    let table = fs::read_to_string(&path).map_err(|error| Failure::new(error.to_string()))?;
    let mut scope = "";
    let mut ours = BTreeSet::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            scope = section;
            continue;
        }
        let columns: Vec<&str> = line.split('\t').collect();
        ours.insert(format!("{scope}\t{}\t{}\t{}\t{}", columns[0], columns[1], columns[2], columns[4]));
    }
    let kafkas: BTreeSet<String> = printed.lines().map(str::to_owned).collect();
    let differences: Vec<&String> = ours.symmetric_difference(&kafkas).collect();
    assert!(differences.is_empty(), "{differences:#?}");
    assert!(kafkas.len() > 350, "{}", kafkas.len());
    Ok(())
}

/// A value that is not the default, for every topic setting that allows one.
const TOPIC_SETTINGS: &[&str] = &[
    "cleanup.policy=compact,delete",
    "compression.gzip.level=6",
    "compression.lz4.level=10",
    "compression.type=zstd",
    "compression.zstd.level=5",
    "delete.retention.ms=1000",
    "file.delete.delay.ms=2000",
    "flush.messages=10",
    "flush.ms=20",
    "follower.replication.throttled.replicas=0:1",
    "index.interval.bytes=2048",
    "leader.replication.throttled.replicas=*",
    "local.retention.bytes=-1",
    "local.retention.ms=1000",
    "max.compaction.lag.ms=100000",
    "max.message.bytes=2000000",
    "message.timestamp.after.max.ms=5000",
    "message.timestamp.before.max.ms=6000",
    "message.timestamp.type=LogAppendTime",
    "min.cleanable.dirty.ratio=0.25",
    "min.compaction.lag.ms=7",
    "min.insync.replicas=2",
    "preallocate=true",
    "remote.log.copy.disable=false",
    "remote.log.delete.on.disable=false",
    "remote.storage.enable=false",
    "retention.bytes=100000000",
    "retention.ms=86400000",
    "segment.bytes=2000000",
    "segment.index.bytes=100000",
    "segment.jitter.ms=3",
    "segment.ms=8000000",
    "unclean.leader.election.enable=true",
];

/// `name=value` and whether it is sensitive, of each line that kafka-configs prints.
fn described(bootstrap: &str, args: &[&str]) -> Result<BTreeSet<String>, Failure> {
    let printed =
        tool(bootstrap, console::CONFIGS, &[&["--describe"], args].concat())?.succeeded()?.stdout_text();
    let settings = printed.lines().filter_map(|line| line.trim().split_once(" synonyms="));
    Ok(settings.map(|(setting, _)| setting.to_owned()).collect())
}

fn tool(bootstrap: &str, class: &str, args: &[&str]) -> Result<ottla_interop::Output, Failure> {
    let mut java = newest_jars()?.java(256);
    java.args([class, "--bootstrap-server", bootstrap]).args(args);
    run(class, &mut java, b"", SOON)
}

#[test]
fn kafka_topics_and_kafka_configs_do_the_same_as_with_kafka() -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let kafka = KafkaCluster::start_with(1, &KafkaOptions { newest: true, ..KafkaOptions::default() })?;
    let ottla = OttlaBroker::start(&[])?;
    let both = [kafka.bootstrap(), ottla.bootstrap()];
    let same = |args: &[&str]| -> Result<BTreeSet<String>, Failure> {
        let [kafkas, ottlas] = [described(&both[0], args)?, described(&both[1], args)?];
        assert_eq!(ottlas, kafkas, "{args:?}");
        Ok(kafkas)
    };
    for bootstrap in &both {
        let create = ["--create", "--topic", "orders", "--partitions", "1"];
        let configs = TOPIC_SETTINGS.iter().flat_map(|setting| ["--config", *setting]);
        tool(bootstrap, console::TOPICS, &create.into_iter().chain(configs).collect::<Vec<_>>())?
            .succeeded()?;
        for (kind, name, settings) in [
            ("topics", "orders", "retention.ms=5000,cleanup.policy=[compact]"),
            ("groups", "billing", "consumer.session.timeout.ms=50000"),
            ("client-metrics", "slow", "interval.ms=1000,metrics=[org.apache.kafka.]"),
        ] {
            let entity = ["--alter", "--entity-type", kind, "--entity-name", name, "--add-config", settings];
            tool(bootstrap, console::CONFIGS, &entity)?.succeeded()?;
        }
        let brokers = ["--alter", "--entity-type", "brokers", "--entity-default", "--add-config"];
        let live =
            "log.retention.ms=90000,log.cleaner.backoff.ms=1000,max.connections=500,min.insync.replicas=1";
        tool(bootstrap, console::CONFIGS, &[&brokers[..], &[live]].concat())?.succeeded()?;
        for refused in ["retention.ms=-2", "compression.type=best", "segment.ms=0", "no.such.setting=1"] {
            let topic =
                ["--alter", "--entity-type", "topics", "--entity-name", "orders", "--add-config", refused];
            let printed = tool(bootstrap, console::CONFIGS, &topic)?.failed()?;
            let text = printed.stdout_text() + &printed.stderr_text();
            assert!(text.contains("InvalidConfigurationException"), "{bootstrap} {refused}: {text}");
        }
        let read_only = [&brokers[..], &["num.partitions=3"]].concat();
        let printed = tool(bootstrap, console::CONFIGS, &read_only)?.failed()?;
        assert!((printed.stdout_text() + &printed.stderr_text()).contains("InvalidRequestException"));
    }
    let topic = same(&["--all", "--entity-type", "topics", "--entity-name", "orders"])?;
    assert_eq!(topic.len(), TOPIC_SETTINGS.len());
    assert!(topic.contains("min.cleanable.dirty.ratio=0.25 sensitive=false"), "{topic:?}");
    assert_eq!(same(&["--entity-type", "brokers", "--entity-default"])?.len(), 4);
    same(&["--entity-type", "groups", "--entity-name", "billing"])?;
    same(&["--entity-type", "client-metrics", "--entity-name", "slow"])?;
    Ok(())
}

/// Produces and consumes with the client of each release, at a broker of that level.
#[test]
fn a_client_of_each_age_works_with_a_broker_of_its_level() -> Result<(), Failure> {
    require!(Peer::NewestJava);
    for (level, version) in
        [("0.11", "0.11.0.3"), ("2.8", "2.8.2"), ("3.9", "3.9.1"), ("4.1", "4.1.0"), ("4.3", "4.3.1")]
    {
        let broker = OttlaBroker::start(&["--as-version", level, "--topic", "orders:1"])?;
        let mut java = Command::new("java");
        java.args(["-XX:+UseSerialGC", "-Xmx128m", "-cp"]).arg(java_client(version)?);
        java.arg(workspace_root().join("interop/java/RoundTrip.java")).arg(broker.bootstrap());
        let printed =
            run(&format!("the client of {version}"), &mut java, b"", SOON)?.succeeded()?.stdout_text();
        assert_eq!(printed.lines().last(), Some("transactional 3 consumed 8"), "{version}: {printed}");
    }
    Ok(())
}
