//! `cargo xtask bench groups`: large groups and many groups on our broker, the large ones next to Apache Kafka 4.3.
//!
//! The load is `crates/protocol/examples/group_load.rs`. Only the broker's CPU is measured. Passes alternate between the
//! subjects, so that other work on the machine affects all of them.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use ottla_interop::{Failure, KafkaCluster, KafkaOptions, Peer, run, target_dir};

use super::ottla::{Broker, Ottla, Report};
use super::table::{Samples, markdown, ratio};
use super::{machine, number, print_tables};

/// The variable with the path of another binary.
const BINARY: &str = "OTTLA_BIN";
const TOPIC: &str = "reach";
const LOAD_WITHIN: Duration = Duration::from_secs(10 * 60);
/// The groups of the broker that has few.
const FEW: usize = 10;
const RESTARTS: usize = 5;
/// The heartbeat intervals of the large group in ms: a short one, and the default.
const INTERVALS: [&str; 2] = ["1000", "5000"];

pub(crate) struct Options {
    members: usize,
    groups: usize,
    requests: usize,
    repeat: usize,
    kafka: bool,
}

impl Options {
    pub(crate) fn parse(args: &[&str]) -> Result<Self, String> {
        let mut options = Self { members: 1000, groups: 100_000, requests: 20_000, repeat: 3, kafka: true };
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let mut value = || number::<u32>(arg, args.next().ok_or_else(|| format!("{arg} needs a value"))?);
            match arg {
                "--members" => options.members = value()? as usize,
                "--groups" => options.groups = value()? as usize,
                "--requests" => options.requests = value()? as usize,
                "--repeat" => options.repeat = value()? as usize,
                "--without-kafka" => options.kafka = false,
                other => return Err(format!("bench groups does not know {other}")),
            }
        }
        Ok(options)
    }
}

pub(crate) fn run_all(options: &Options) -> ExitCode {
    let load = ["--package", "ottla-protocol", "--example", "group_load"];
    let ottla = ["--package", "ottla", "--bin", "ottla"];
    let ottla = if std::env::var_os(BINARY).is_none() { &ottla[..] } else { &[] };
    print_tables("groups", &[&load[..], ottla].concat(), || measure(options))
}

fn measure(options: &Options) -> Result<String, Failure> {
    let scratch = tempfile::Builder::new().prefix("ottla-groups-").tempdir_in(target_dir());
    let scratch = scratch.map_err(|error| Failure::new(format!("a directory to measure in: {error}")))?;
    let binary = std::env::var_os(BINARY).map(PathBuf::from);
    let binary = binary.unwrap_or_else(|| target_dir().join("release/ottla"));
    let bench = Bench {
        options,
        ottla: Ottla { binary },
        load: target_dir().join("release/examples/group_load"),
        dir: scratch.path().to_owned(),
    };
    let kafka = options.kafka && Peer::Java.require().inspect_err(|missing| println!("{missing}")).is_ok();
    let mut tables = String::new();
    for interval in INTERVALS {
        tables += &bench.convergence(interval, kafka)?;
    }
    Ok(tables + &bench.starts()? + &bench.requests()?)
}

struct Bench<'a> {
    options: &'a Options,
    ottla: Ottla,
    load: PathBuf,
    dir: PathBuf,
}

impl Bench<'_> {
    fn load(&self, address: &str, args: &[&str]) -> Result<Report, Failure> {
        let mut command = Command::new(&self.load);
        command.arg(address).args(args);
        let output = run("group_load", &mut command, b"", LOAD_WITHIN)?.succeeded()?;
        Report::parse("group_load", output.stdout_text())
    }

    /// Starts our broker with room for all groups. Members that join an empty group do not wait for others.
    fn broker(&self, data: &str, interval: &str) -> Result<Broker, Failure> {
        let properties = ["memory.max.bytes=8589934592", "group.initial.rebalance.delay.ms=0"];
        let intervals = intervals(interval);
        let mut args = Vec::new();
        for property in properties.into_iter().chain(intervals.iter().map(String::as_str)) {
            args.extend(["-X", property]);
        }
        self.ottla.broker_with(&self.dir.join(data), "os", &args)
    }

    /// The time until the members of one group have a partition each, and the broker's CPU for it.
    fn convergence(&self, interval: &str, kafka: bool) -> Result<String, Failure> {
        let members = self.options.members.to_string();
        let ours = self.broker(&format!("large-{interval}"), interval)?;
        let pairs = intervals(interval);
        let mut properties: Vec<(&str, &str)> =
            pairs.iter().filter_map(|property| property.split_once('=')).collect();
        properties.push(("offsets.topic.replication.factor", "1"));
        let options =
            KafkaOptions { properties: &properties, warm: true, newest: true, ..KafkaOptions::default() };
        let kafka = if kafka { Some(KafkaCluster::start_with(1, &options)?) } else { None };
        let mut subjects = vec![("Ottla", ours.bootstrap(), ours.process_id(), Samples::default())];
        if let Some(kafka) = &kafka {
            let process = kafka.process_id(1).ok_or_else(|| Failure::new("Kafka does not run"))?;
            subjects.push(("Apache Kafka 4.3.1", kafka.bootstrap(), process, Samples::default()));
        }
        for (_, address, _, _) in &subjects {
            self.load(address, &["topic", TOPIC, &members])?;
        }
        // The first pass warms up, and is not counted.
        for pass in 0..=self.options.repeat {
            for (name, address, process, samples) in &mut subjects {
                let group = format!("large-{pass}");
                let before = machine::cpu(*process)?;
                let report = self.load(address, &["converge", &group, TOPIC, &members])?;
                let cpu = machine::cpu(*process)?.saturating_sub(before).as_secs_f64() * 1e3;
                let (ms, beats) = (report.number("/ms")?, report.number("/heartbeats")?);
                println!(
                    "{name}, interval {interval}, pass {pass}: {ms} ms, CPU {cpu:.0} ms, {beats} heartbeats"
                );
                self.load(address, &["leave", &group, &members])?;
                if pass > 0 {
                    for (field, sample) in [("ms", ms), ("cpu", cpu), ("beats", beats)] {
                        samples.add(field, sample);
                    }
                }
            }
        }
        ours.stop()?;
        let base = subjects.last().and_then(|(_, _, _, samples)| samples.median("cpu"));
        let row = |(name, _, _, samples): &(&str, String, u32, Samples)| {
            let [ms, cpu, beats] = ["ms", "cpu", "beats"].map(|field| samples.spread(field));
            vec![(*name).to_owned(), ms, cpu, ratio(samples.median("cpu"), base), beats]
        };
        let title = format!("{members} members and partitions, a heartbeat each {interval} ms");
        let rows: Vec<_> = subjects.iter().map(row).collect();
        Ok(markdown(&title, &["broker", "converged, ms", "CPU, ms", "CPU / Kafka's", "heartbeats"], &rows))
    }

    /// Starts with many groups, with and without members.
    fn starts(&self) -> Result<String, Failure> {
        let count = self.options.groups.to_string();
        let mut rows = Vec::new();
        for (kind, title) in [("commit", "an offset each"), ("join", "an offset and a member each")] {
            let mut broker = self.prepared(kind, &count)?;
            let mut samples = Samples::default();
            for _ in 0..RESTARTS {
                broker.stop()?;
                let started = std::time::Instant::now();
                broker = self.broker(kind, INTERVALS[1])?;
                self.load(&broker.bootstrap(), &["list", &count])?;
                samples.add("listed", started.elapsed().as_secs_f64() * 1e3);
                samples.add("ready", broker.ready_after.as_secs_f64() * 1e3);
                samples.add("memory", machine::idle_memory_mb(broker.process_id())?);
            }
            broker.stop()?;
            let [ready, listed, memory] = ["ready", "listed", "memory"].map(|field| samples.spread(field));
            rows.push(vec![format!("{count}, {title}"), ready, listed, memory]);
        }
        let header = ["groups", "first Metadata answer, ms", "all listed, ms", "resident memory, MB"];
        Ok(markdown("Starts with many groups", &header, &rows))
    }

    /// A broker with so many groups, on a data directory of the command's name.
    fn prepared(&self, command: &str, count: &str) -> Result<Broker, Failure> {
        let broker = self.broker(command, INTERVALS[1])?;
        let address = broker.bootstrap();
        self.load(&address, &["topic", TOPIC, "1"])?;
        let ids = self.ids(Path::new(command));
        let args = [command, count, &ids];
        self.load(&address, if command == "join" { &args } else { &args[..2] })?;
        Ok(broker)
    }

    /// The file of the ids of the members of a broker's groups.
    fn ids(&self, data: &Path) -> String {
        self.dir.join(data).with_extension("ids").display().to_string()
    }

    /// The CPU for requests of the members of few and of many groups.
    fn requests(&self) -> Result<String, Failure> {
        let mut subjects = Vec::new();
        for count in [FEW, self.options.groups] {
            let data = format!("requests-{count}");
            let broker = self.broker(&data, INTERVALS[1])?;
            let ids = self.ids(Path::new(&data));
            self.load(&broker.bootstrap(), &["topic", TOPIC, "1"])?;
            self.load(&broker.bootstrap(), &["join", &count.to_string(), &ids])?;
            subjects.push((broker, ids, Samples::default()));
        }
        let requests = self.options.requests.to_string();
        let kinds = [("heartbeats", "Heartbeat"), ("rejoins", "JoinGroup")];
        // Heartbeats come first: a member that joins again has another generation.
        for (kind, name) in kinds {
            for pass in 0..=2 * self.options.repeat {
                for (broker, ids, samples) in &mut subjects {
                    let before = machine::cpu(broker.process_id())?;
                    self.load(&broker.bootstrap(), &[kind, &requests, ids])?;
                    let cpu = machine::cpu(broker.process_id())?.saturating_sub(before);
                    let us = cpu.as_secs_f64() * 1e6 / self.options.requests as f64;
                    println!("{name}, {ids}, pass {pass}: {us:.1} us");
                    if pass > 0 {
                        samples.add(kind, us);
                    }
                }
            }
        }
        let row = |(kind, name): (&str, &str)| {
            let [few, many] = [&subjects[0].2, &subjects[1].2];
            let ratio = ratio(many.median(kind), few.median(kind));
            vec![name.to_owned(), few.spread(kind), many.spread(kind), ratio]
        };
        let rows: Vec<_> = kinds.into_iter().map(row).collect();
        subjects.into_iter().try_for_each(|(broker, _, _)| broker.stop())?;
        let many = format!("{} groups", self.options.groups);
        let header = ["broker CPU per request, µs", &format!("{FEW} groups"), &many, "ratio"];
        Ok(markdown("Requests next to few and many groups", &header, &rows))
    }
}

/// The lower limit of heartbeat intervals, and the interval.
fn intervals(interval: &str) -> [String; 2] {
    ["group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"]
        .map(|name| format!("{name}={interval}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_nonsense_is_refused() {
        let options = Options::parse(&["--members", "5", "--groups", "7", "--without-kafka"]).unwrap();
        assert_eq!((options.members, options.groups, options.kafka), (5, 7, false));
        assert!(Options::parse(&["--members", "0"]).is_err());
        assert!(Options::parse(&["--repeat"]).is_err());
    }
}
