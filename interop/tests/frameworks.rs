//! Programs on Spring for Apache Kafka and on Apache Flink that copy a topic in transactions, while they and the broker are
//! killed: each record arrives once, in the order of its partition.
//!
//! `cargo xtask soak frameworks` runs them against Apache Kafka 4.3 as well.

#![allow(clippy::disallowed_methods, reason = "real time: the moments of the kills are chosen")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ottla_client::{Admin, Config, Isolation, NewTopic, OffsetAt, Producer, Record, TopicPartition};
use ottla_interop::{
    Failure, KafkaCluster, KafkaJars, OttlaBroker, Peer, Process, application_arguments, application_kills,
    flink_jars, kafka_for_applications, require, run, spring_jars, workspace_root,
};

use crate::applications::{committed, in_runtime};

/// Kills in CI: one of the program, and one of the broker.
const KILLS: u32 = 2;
/// Records between two kills.
const RECORDS: usize = 300;
const PARTITIONS: i32 = 2;
const SOURCE: &str = "source";
const SINK: &str = "sink";
/// Sessions and transactions of a killed program have to end first.
const PROGRESS_WITHIN: Duration = Duration::from_secs(120);
const COMPILED_WITHIN: Duration = Duration::from_secs(120);

#[derive(Clone, Copy)]
enum Framework {
    Spring,
    Flink,
}

#[test]
fn spring_copies_each_record_once_through_kills() -> Result<(), Failure> {
    require!(Peer::Spring);
    require!(Peer::NewestJava);
    on_both(Framework::Spring)
}

#[test]
fn flink_copies_each_record_once_through_kills() -> Result<(), Failure> {
    require!(Peer::Flink);
    require!(Peer::NewestJava);
    on_both(Framework::Flink)
}

/// A broker that can be killed and started again at the same address.
enum Broker {
    Kafka(KafkaCluster),
    Ottla {
        /// `None` while it is down.
        broker: Option<OttlaBroker>,
        address: String,
        data: tempfile::TempDir,
    },
}

impl Broker {
    fn ottla() -> Result<Self, Failure> {
        let data = scratch()?;
        let broker = start_ottla(data.path(), "127.0.0.1:0")?;
        let address = broker.bootstrap();
        Ok(Self::Ottla { broker: Some(broker), address, data })
    }

    fn bootstrap(&self) -> String {
        match self {
            Self::Kafka(cluster) => cluster.bootstrap(),
            Self::Ottla { address, .. } => address.clone(),
        }
    }

    fn kill(&mut self) -> Result<(), Failure> {
        match self {
            Self::Kafka(cluster) => {
                cluster.kill_node(1)?;
                cluster.start_node(1)
            }
            Self::Ottla { broker, address, data } => {
                broker.take().map_or(Ok(()), OttlaBroker::kill)?;
                *broker = Some(start_ottla(data.path(), address)?);
                Ok(())
            }
        }
    }
}

fn start_ottla(data: &Path, address: &str) -> Result<OttlaBroker, Failure> {
    let properties = application_arguments();
    let mut args = vec!["--listen", address];
    args.extend(properties.iter().map(String::as_str));
    OttlaBroker::start_on(data, &args)
}

fn scratch() -> Result<tempfile::TempDir, Failure> {
    tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))
}

/// A soak runs the story against Apache Kafka 4.3 as well.
fn on_both(framework: Framework) -> Result<(), Failure> {
    let kills = application_kills().unwrap_or(KILLS);
    if application_kills().is_some() {
        // With ten kills, Spring's partition 0 made no progress for minutes, as Kafka Streams does: see tests/streams.rs.
        story(framework, Broker::Kafka(kafka_for_applications()?), KILLS)?;
        println!("Apache Kafka 4.3: passed");
    }
    story(framework, Broker::ottla()?, kills)
}

/// Every other kill hits the broker.
fn story(framework: Framework, mut broker: Broker, kills: u32) -> Result<(), Failure> {
    let scratch = scratch()?;
    let topics = Topics::create(&broker.bootstrap());
    let program = Program::new(framework, &broker.bootstrap(), scratch.path())?;
    let mut running = program.start()?;
    let mut sent = 0;
    for kill in 0..kills {
        topics.produce(sent..sent + RECORDS);
        sent += RECORDS;
        topics.await_progress().map_err(|failure| running.quoted(&failure))?;
        if kill % 2 == 0 {
            running.kill()?;
            running = program.start()?;
        } else {
            broker.kill()?;
        }
    }
    topics.produce(sent..sent + RECORDS);
    sent += RECORDS;
    topics.await_end(sent).map_err(|failure| running.quoted(&failure))?;
    let cluster: &dyn ottla_interop::Cluster = match &broker {
        Broker::Kafka(cluster) => cluster,
        Broker::Ottla { broker, .. } => broker.as_ref().ok_or_else(|| Failure::new("the broker is down"))?,
    };
    for (partition, records) in committed(cluster, SINK, PARTITIONS, sent) {
        let found: Vec<String> = records
            .iter()
            .map(|record| String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).into_owned())
            .collect();
        let expected: Vec<String> =
            (0..sent).filter(|n| *n as i32 % PARTITIONS == partition).map(|n| n.to_string()).collect();
        assert_eq!(found, expected, "partition {partition}");
    }
    running.kill().map(drop)
}

/// A Java program, compiled.
struct Program {
    framework: Framework,
    bootstrap: String,
    jars: KafkaJars,
    classes: std::path::PathBuf,
    checkpoints: std::path::PathBuf,
}

impl Program {
    fn new(framework: Framework, bootstrap: &str, scratch: &Path) -> Result<Self, Failure> {
        let (jars, source) = match framework {
            Framework::Spring => (spring_jars()?, "Spring.java"),
            Framework::Flink => (flink_jars()?, "Flink.java"),
        };
        let (classes, checkpoints) = (scratch.join("classes"), scratch.join("checkpoints"));
        for dir in [&classes, &checkpoints] {
            std::fs::create_dir(dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
        }
        // Flink loads classes by name, which a program run from its source does not have.
        let mut compiler = Command::new("java");
        compiler.args(["-m", "jdk.compiler/com.sun.tools.javac.Main", "-cp", &listed(jars.dir())?]);
        compiler.arg("-d").arg(&classes).arg(workspace_root().join("interop/java").join(source));
        run("javac", &mut compiler, b"", COMPILED_WITHIN)?.succeeded()?;
        Ok(Self { framework, bootstrap: bootstrap.to_owned(), jars, classes, checkpoints })
    }

    fn start(&self) -> Result<Process, Failure> {
        let mut java = self.jars.java_with_classes(&self.classes, 512);
        match self.framework {
            Framework::Spring => java.args(["Spring", &*self.bootstrap, "copy-"]),
            Framework::Flink => java.args(["Flink", &*self.bootstrap]).arg(&self.checkpoints),
        };
        Process::spawn("copying program", &mut java)
    }
}

/// The jars of a directory: the compiler does not expand `*`.
fn listed(dir: &Path) -> Result<String, Failure> {
    let files =
        std::fs::read_dir(dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
    let paths = files.flatten().map(|file| file.path());
    let jars = paths.filter(|path| path.extension().is_some_and(|extension| extension == "jar"));
    Ok(jars.map(|path| path.display().to_string()).collect::<Vec<_>>().join(":"))
}

/// The topics of the story.
struct Topics {
    bootstrap: String,
}

impl Topics {
    fn create(bootstrap: &str) -> Self {
        let topics = Self { bootstrap: bootstrap.to_owned() };
        in_runtime(async {
            let admin = Admin::new(topics.config()).expect("an admin");
            let new = [SOURCE, SINK].map(|name| NewTopic::new(name).partitions(PARTITIONS).replication(1));
            admin.create_topics(&new).await.expect("created");
        });
        topics
    }

    fn config(&self) -> Config {
        let mut config = Config::new(self.bootstrap.clone());
        config.isolation_level = Isolation::ReadCommitted;
        config
    }

    fn produce(&self, numbers: std::ops::Range<usize>) {
        in_runtime(async {
            let producer = Producer::new(self.config()).expect("a producer");
            for n in numbers {
                let record = Record::to(SOURCE).partition(n as i32 % PARTITIONS);
                producer.send_unobserved(record.value(&n.to_string())).await.expect("taken");
            }
            producer.flush(PROGRESS_WITHIN).await.expect("acknowledged");
        });
    }

    /// The sum of the sink's last stable offsets: records and markers.
    fn stable_end(&self) -> i64 {
        in_runtime(async {
            let admin = Admin::new(self.config()).expect("an admin");
            let ends = (0..PARTITIONS).map(|index| (TopicPartition::new(SINK, index), OffsetAt::Latest));
            let found = admin.list_offsets(&ends.collect::<Vec<_>>()).await.expect("offsets");
            found.values().sum()
        })
    }

    /// Waits for a transaction that is committed.
    fn await_progress(&self) -> Result<(), Failure> {
        let before = self.stable_end();
        ottla_interop::wait_until("a committed transaction", PROGRESS_WITHIN, || {
            (self.stable_end() > before).then_some(())
        })
    }

    /// Waits until the sink may have so many records: markers count as well.
    fn await_end(&self, count: usize) -> Result<(), Failure> {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        ottla_interop::wait_until("all records", PROGRESS_WITHIN, || {
            (self.stable_end() >= count).then_some(())
        })
    }
}
