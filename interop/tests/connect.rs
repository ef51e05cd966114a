//! Kafka Connect 4.3 in distributed mode at the Ottla broker: a file source and a file sink, restarts, and exactly-once.
//!
//! `cargo xtask soak connect` runs it against Apache Kafka 4.3 as well, with more kills of the worker.

#![allow(clippy::disallowed_methods, reason = "real time: a worker is killed while its source grows")]

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ottla_client::{Admin, Config, ConfigEntry, OwnedRecord};
use ottla_interop::probe::free_ports;
use ottla_interop::{
    Cluster, Failure, Peer, Process, application_jars, application_kills, on_application_brokers, require,
    wait_until,
};

use crate::applications::{committed, in_runtime};

const SOON: Duration = Duration::from_secs(60);

/// Kills of the worker in CI.
const KILLS: u32 = 1;

/// Lines that are appended at once.
const LINES: usize = 200;

/// The topics in which the workers keep their state. A worker refuses one that is not compacted.
const INTERNAL_TOPICS: [&str; 3] = ["connect-configs", "connect-offsets", "connect-status"];

#[test]
fn a_file_source_and_a_file_sink_survive_restarts_and_kills_of_their_worker() -> Result<(), Failure> {
    require!(Peer::Applications);
    on_application_brokers(|broker| {
        let scratch = tempfile::tempdir().map_err(|error| failure("a scratch directory", &error))?;
        let story = Story::new(broker, scratch.path());
        let mut lines = 0;
        let mut worker = story.worker(&[])?;
        story.append(&mut lines)?;
        worker.configure("source", &story.source())?;
        worker.configure("sink", &story.sink())?;
        story.await_sink(lines)?;
        for topic in INTERNAL_TOPICS {
            assert_eq!(setting(broker, topic, "cleanup.policy"), "compact", "{topic}");
        }

        // A worker that stops in peace has committed: the next one repeats no line.
        worker.process.stop()?;
        story.append(&mut lines)?;
        let mut worker = story.worker(&[])?;
        story.await_sink(lines)?;
        worker.process.stop()?;

        story.worker_is_killed_in_transactions(&mut lines)
    })
}

/// A worker stops if the topic for its offsets loses old keys.
#[test]
fn a_worker_refuses_a_topic_that_is_not_compacted() -> Result<(), Failure> {
    require!(Peer::Applications);
    on_application_brokers(|broker| {
        let scratch = tempfile::tempdir().map_err(|error| failure("a scratch directory", &error))?;
        broker.create_topic("connect-offsets", 4)?;
        let mut worker = Story::new(broker, scratch.path()).spawn(&[])?;
        worker.process.wait_for_line("'cleanup.policy=compact'", SOON)?;
        worker.process.kill().map(|_| ())
    })
}

struct Story<'a> {
    broker: &'a dyn Cluster,
    dir: &'a Path,
}

/// A worker with its REST interface on a port of its own.
struct Worker {
    process: Process,
    port: u16,
}

impl<'a> Story<'a> {
    fn new(broker: &'a dyn Cluster, dir: &'a Path) -> Self {
        Self { broker, dir }
    }

    /// Appends lines while workers with an exactly-once source are killed: each line is in the topic once.
    fn worker_is_killed_in_transactions(&self, lines: &mut usize) -> Result<(), Failure> {
        let kills = application_kills().unwrap_or(KILLS);
        let enabled = ["exactly.once.source.support=enabled"];
        let mut worker = self.worker(&enabled)?;
        // The sink's reads, and so its file, are at least once after a kill.
        worker.rest("DELETE", "/connectors/sink", "")?;
        for kill in 0..kills {
            let before = *lines;
            for part in 0..10 {
                self.append(lines)?;
                std::thread::sleep(Duration::from_millis(50));
                if part == 4 {
                    // The worker is at work with lines of this round.
                    lines_of_topic(self.broker, before + 1);
                }
            }
            worker.process.kill()?;
            println!("kill {kill} after {lines} lines");
            worker = self.worker(&enabled)?;
        }
        self.append(lines)?;
        let expected: Vec<String> = (0..*lines).map(line).collect();
        let found = lines_of_topic(self.broker, *lines);
        let wrong = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        assert_eq!(wrong, None, "the first line that is not the one of the file");
        assert_eq!(found.len(), expected.len(), "each line once");
        worker.process.stop()?;
        println!("{lines} lines, {kills} kills");
        Ok(())
    }

    fn input(&self) -> PathBuf {
        self.dir.join("source.txt")
    }

    fn output(&self) -> PathBuf {
        self.dir.join("sink.txt")
    }

    fn append(&self, lines: &mut usize) -> Result<(), Failure> {
        let text: String = (*lines..*lines + LINES).map(|number| line(number) + "\n").collect();
        let mut file = OpenOptions::new().create(true).append(true).open(self.input());
        file.as_mut().map_or_else(
            |error| Err(failure("source.txt", error)),
            |file| file.write_all(text.as_bytes()).map_err(|error| failure("source.txt", &error)),
        )?;
        *lines += LINES;
        Ok(())
    }

    /// Waits until the file of the sink has `count` lines, and requires exactly those of the source.
    fn await_sink(&self, count: usize) -> Result<(), Failure> {
        let written = || fs::read_to_string(self.output()).unwrap_or_default();
        wait_until(&format!("{count} lines of the sink"), SOON, || {
            (written().lines().count() >= count).then_some(())
        })?;
        let expected: String = (0..count).map(|number| line(number) + "\n").collect();
        assert!(written() == expected, "the sink has other lines than the source");
        Ok(())
    }

    fn source(&self) -> String {
        format!(
            r#"{{"connector.class": "FileStreamSource", "tasks.max": "1", "topic": "lines", "file": "{}",
                "transaction.boundary": "poll"}}"#,
            self.input().display()
        )
    }

    fn sink(&self) -> String {
        format!(
            r#"{{"connector.class": "FileStreamSink", "tasks.max": "1", "topics": "lines", "file": "{}",
                "consumer.override.isolation.level": "read_committed"}}"#,
            self.output().display()
        )
    }

    /// Starts a worker, and waits until it is in its group.
    fn worker(&self, extra: &[&str]) -> Result<Worker, Failure> {
        let mut worker = self.spawn(extra)?;
        let ready = wait_until("the worker in its group", SOON, || match worker.process.try_exit() {
            Some(status) => Some(Err(Failure::new(format!("the worker has stopped: {status}")))),
            None => worker.rest("GET", "/connectors", "").ok().map(Ok),
        });
        match ready.flatten() {
            Ok(_) => Ok(worker),
            Err(failure) => Err(worker.process.quoted(&failure)),
        }
    }

    fn spawn(&self, extra: &[&str]) -> Result<Worker, Failure> {
        let port = free_ports(1).map_err(|error| failure("a port", &error))?[0];
        let mut text = format!(
            "bootstrap.servers={}\nlisteners=http://127.0.0.1:{port}\ngroup.id=connect\n",
            self.broker.bootstrap()
        );
        for (topic, kind) in INTERNAL_TOPICS.iter().zip(["config", "offset", "status"]) {
            let _ = writeln!(text, "{kind}.storage.topic={topic}\n{kind}.storage.replication.factor=1");
        }
        text += "offset.storage.partitions=4\nstatus.storage.partitions=2\noffset.flush.interval.ms=200\n";
        text += "key.converter=org.apache.kafka.connect.storage.StringConverter\n";
        text += "value.converter=org.apache.kafka.connect.storage.StringConverter\n";
        text += "connector.client.config.override.policy=All\nplugin.discovery=service_load\n";
        // A killed worker's tasks start as soon as its session has ended.
        text += "session.timeout.ms=3000\nheartbeat.interval.ms=500\nscheduled.rebalance.max.delay.ms=0\n";
        text += &extra.join("\n");
        let properties = self.dir.join("worker.properties");
        fs::write(&properties, text).map_err(|error| failure("worker.properties", &error))?;
        let mut java = application_jars()?.java(512);
        java.arg("org.apache.kafka.connect.cli.ConnectDistributed").arg(&properties);
        java.current_dir(self.dir);
        Ok(Worker { process: Process::spawn("Connect", &mut java)?, port })
    }
}

impl Worker {
    /// Creates a connector. The worker answers 409 while its group rebalances.
    fn configure(&self, name: &str, config: &str) -> Result<(), Failure> {
        let path = format!("/connectors/{name}/config");
        wait_until(&format!("the connector {name}"), SOON, || self.rest("PUT", &path, config).ok()).map(drop)
    }

    /// The body of an answer with success.
    fn rest(&self, method: &str, path: &str, body: &str) -> Result<String, Failure> {
        let ask = || {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            write!(
                stream,
                "{method} {path} HTTP/1.1\r\nHost: worker\r\nConnection: close\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer: String = ask().map_err(|error: std::io::Error| failure(path, &error))?;
        if answer.starts_with("HTTP/1.1 2") { Ok(answer) } else { Err(Failure::new(answer)) }
    }
}

fn line(number: usize) -> String {
    format!("line {number}")
}

fn failure(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(format!("{what}: {error}"))
}

fn setting(broker: &dyn Cluster, topic: &str, name: &str) -> String {
    in_runtime(async {
        let admin = Admin::new(Config::new(broker.bootstrap())).expect("an admin");
        let all: Vec<ConfigEntry> = admin.describe_topic_configs(topic).await.expect("described");
        let found = all.into_iter().find(|entry| entry.name == name).expect("a setting of topics");
        found.value.expect("a value")
    })
}

/// The committed values of the topic `lines`: at least `count`, and what else comes within a second.
fn lines_of_topic(broker: &dyn Cluster, count: usize) -> Vec<String> {
    let records = committed(broker, "lines", 1, count).remove(&0).unwrap_or_default();
    let value = |record: &OwnedRecord| record.value.as_ref().map(|value| value.to_vec()).unwrap_or_default();
    records.iter().map(|record| String::from_utf8_lossy(&value(record)).into_owned()).collect()
}
