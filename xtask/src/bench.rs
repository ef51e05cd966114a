//! `cargo xtask bench`: what a message costs our client and our broker, next to Apache Kafka's broker and to the floor.
//!
//! Everything is measured in one run and repeated, one subject after the other, so that whatever else the machine does
//! falls upon all of them.

pub(crate) mod compaction;
pub(crate) mod compare;
mod figures;
pub(crate) mod groups;
pub(crate) mod lab;
mod machine;
mod ottla;
pub(crate) mod pairs;
mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use ottla_interop::{Failure, KafkaCluster, KafkaOptions, Peer, run as run_command, target_dir};
use serde_json::{Value, json};

use self::figures::{Figures, Subject};
use self::ottla::{Broker, Ottla, Report};
use crate::shell::{self, cargo};

const BUILD_WITHIN: Duration = Duration::from_secs(30 * 60);
const FLOOR_WITHIN: Duration = Duration::from_secs(5 * 60);

/// Messages before each measured phase. The brokers' CPU is theirs too, so they are counted in its divisor.
const WARMUP: u64 = 100_000;
/// The bytes of a message in the log, rounded up.
const LOG_BYTES_MAX: u64 = 140;
const STARTS: usize = 11;
const CLOSED_LOOP: u64 = 10_000;
const OPEN_LOOP: u64 = 3_000;

pub(crate) struct Options {
    count: u64,
    repeat: usize,
    kafka: bool,
    json: Option<PathBuf>,
}

impl Options {
    pub(crate) fn parse(args: &[&str]) -> Result<Self, String> {
        let mut options = Self { count: 3_000_000, repeat: 3, kafka: true, json: None };
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let mut value = || args.next().copied().ok_or_else(|| format!("{arg} needs a value"));
            match arg {
                "--count" => options.count = number(arg, value()?)?,
                "--repeat" => options.repeat = number(arg, value()?)?,
                "--without-kafka" => options.kafka = false,
                "--json" => options.json = Some(value()?.into()),
                other => return Err(format!("bench does not know {other}")),
            }
        }
        Ok(options)
    }
}

fn number<N: std::str::FromStr + PartialOrd + From<u8>>(name: &str, text: &str) -> Result<N, String> {
    let number = text.parse().ok().filter(|number| *number >= N::from(1));
    number.ok_or_else(|| format!("{name}: {text} is not a number from 1 on"))
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let built = shell::run(&mut cargo(&["build", "--release", "--package", "ottla"]), BUILD_WITHIN);
    if !built.is_ok_and(|build| build.status.success()) {
        eprintln!("bench: no release build");
        return ExitCode::FAILURE;
    }
    match measure(options) {
        Ok(figures) => {
            println!("{}", figures.table());
            let Some(path) = &options.json else { return ExitCode::SUCCESS };
            let all = json!({
                "count": options.count, "repeat": options.repeat, "figures": figures.json(),
            });
            match std::fs::write(path, format!("{all:#}\n")) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("bench: {}: {error}", path.display());
                    ExitCode::FAILURE
                }
            }
        }
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Builds `packages` with optimisations and prints the tables of a measurement. Without packages nothing is built: another binary is
/// as its builder has built it.
fn print_tables(
    name: &str,
    packages: &[&str],
    measure: impl FnOnce() -> Result<String, Failure>,
) -> ExitCode {
    if !packages.is_empty() {
        let built = shell::run(&mut cargo(&[&["build", "--release"], packages].concat()), BUILD_WITHIN);
        if !built.is_ok_and(|build| build.status.success()) {
            eprintln!("bench {name}: no release build");
            return ExitCode::FAILURE;
        }
    }
    match measure() {
        Ok(tables) => {
            println!("{tables}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("bench {name}: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn start_kafka() -> Result<KafkaCluster, Failure> {
    // A node that does not sign off has to wait at its next start until its old session is over, nine seconds.
    let properties = &[("controlled.shutdown.enable", "true")];
    KafkaCluster::start_with(1, &KafkaOptions { properties, warm: true, ..KafkaOptions::default() })
}

fn measure(options: &Options) -> Result<Figures, Failure> {
    let scratch = tempfile::Builder::new()
        .prefix("ottla-bench-")
        .tempdir()
        .map_err(|error| Failure::new(format!("a directory to measure in: {error}")))?;
    let dir = scratch.path();
    let ottla = Ottla { binary: target_dir().join("release/ottla") };
    let floor = machine::floor(dir)?;
    let mut figures = Figures::default();
    let kafka = match options.kafka.then(|| Peer::Java.require()) {
        Some(Ok(())) => Some(start_kafka()?),
        Some(Err(missing)) => {
            println!("Apache Kafka: skipped: {missing}");
            None
        }
        None => None,
    };
    let data = dir.join("ottla");
    let mut bench =
        Bench { ottla, options, scratch: dir.to_owned(), data, ours: None, kafka, figures: &mut figures };
    bench.at_rest(dir)?;
    bench.ours = Some(bench.ottla.broker(&bench.data, "os")?);
    println!("pass 0 (warm-up, not counted)");
    let mut unused = Figures::default();
    std::mem::swap(bench.figures, &mut unused);
    bench.pass(0)?;
    std::mem::swap(bench.figures, &mut unused);
    for pass in 1..=options.repeat {
        println!("pass {pass} of {}", options.repeat);
        if let Some(floor) = &floor {
            bench.floor(floor)?;
        }
        bench.pass(pass)?;
        bench.latency(pass)?;
        bench.minikafka()?;
    }
    bench.starts_with_data()?;
    Ok(figures)
}

struct Bench<'a> {
    ottla: Ottla,
    options: &'a Options,
    scratch: PathBuf,
    data: PathBuf,
    ours: Option<Broker>,
    kafka: Option<KafkaCluster>,
    figures: &'a mut Figures,
}

impl Bench<'_> {
    /// Start and memory of brokers that have nothing to do.
    fn at_rest(&mut self, dir: &Path) -> Result<(), Failure> {
        for durability in ["os", "disk"] {
            for n in 0..STARTS {
                let broker = self.ottla.broker(&dir.join(format!("start-{durability}-{n}")), durability)?;
                let what = format!("start to first Metadata answer, empty data directory, {durability}, ms");
                self.figures.add(&what, Subject::Ottla, broker.ready_after.as_secs_f64() * 1e3);
                if n == 0 && durability == "os" {
                    let idle = machine::idle_memory_mb(broker.process_id())?;
                    self.figures.add("idle resident memory, MB", Subject::Ottla, idle);
                }
                broker.stop()?;
            }
        }
        let Some(kafka) = &mut self.kafka else { return Ok(()) };
        kafka.stop_node(1)?;
        let started = Instant::now();
        kafka.start_node(1)?;
        let what = "start to first Metadata answer, empty data directory, os, ms";
        self.figures.add(what, Subject::Kafka, started.elapsed().as_secs_f64() * 1e3);
        if let Some(process) = kafka.process_id(1) {
            self.figures.add("idle resident memory, MB", Subject::Kafka, machine::idle_memory_mb(process)?);
        }
        Ok(())
    }

    /// Starts on the data of the passes.
    fn starts_with_data(&mut self) -> Result<(), Failure> {
        let mut broker = self.ours.take();
        for _ in 0..STARTS {
            if let Some(broker) = broker.take() {
                broker.stop()?;
            }
            let started = self.ottla.broker(&self.data, "os")?;
            let ms = started.ready_after.as_secs_f64() * 1e3;
            self.figures.add(
                "start to first Metadata answer, with the passes' data, os, ms",
                Subject::Ottla,
                ms,
            );
            broker = Some(started);
        }
        broker.map_or(Ok(()), Broker::stop)
    }

    fn floor(&mut self, program: &Path) -> Result<(), Failure> {
        let mut command = Command::new(program);
        command.arg(self.options.count.to_string());
        let output = run_command("floor", &mut command, b"", FLOOR_WITHIN)?.succeeded()?.stdout_text();
        let fields: Value = serde_json::from_str(&output)
            .map_err(|error| Failure::new(format!("floor: no JSON: {error}: {output}")))?;
        for phase in ["produce", "consume"] {
            let ns = fields[format!("{phase}_ns")].as_f64().unwrap_or_default();
            for partitions in [1, 2] {
                self.figures.add(&client_row(phase, partitions), Subject::Floor, ns);
            }
            if phase == "consume" {
                self.figures.add(&client_row(RESTARTED, 1), Subject::Floor, ns);
            }
        }
        Ok(())
    }

    fn data_of(&self, subject: Subject) -> PathBuf {
        match &self.kafka {
            Some(kafka) if subject == Subject::Kafka => kafka.log_dir(1),
            _ => self.data.clone(),
        }
    }

    fn subjects(&self) -> Vec<Subject> {
        if self.kafka.is_some() { vec![Subject::Ottla, Subject::Kafka] } else { vec![Subject::Ottla] }
    }

    fn at(&self, subject: Subject) -> Result<(String, u32), Failure> {
        let at = match subject {
            Subject::Ottla => self.ours.as_ref().map(|broker| (broker.bootstrap(), broker.process_id())),
            Subject::Kafka => {
                self.kafka.as_ref().and_then(|kafka| Some((kafka.bootstrap(), kafka.process_id(1)?)))
            }
            Subject::Floor => None,
        };
        at.ok_or_else(|| Failure::new(format!("{subject:?}: no broker runs")))
    }

    fn pass(&mut self, pass: usize) -> Result<(), Failure> {
        for partitions in [1, 2] {
            for subject in self.subjects() {
                self.produce_and_consume(pass, subject, partitions)?;
            }
        }
        Ok(())
    }

    fn produce_and_consume(&mut self, pass: usize, subject: Subject, partitions: u32) -> Result<(), Failure> {
        let topic = format!("bench-{pass}-{partitions}");
        let (count, warmup) = (self.options.count.to_string(), WARMUP.to_string());
        let parts = partitions.to_string();
        let mut args = vec!["produce", "--topic", &topic, "--count", &count, "--warmup", &warmup];
        args.extend(["--partitions", &parts, "--acks", "all"]);
        let total = self.options.count + WARMUP;
        let data = self.data_of(subject);
        let touched = machine::Touched::new(&self.scratch, total * LOG_BYTES_MAX)?;
        let produced = touched.during(&data, || self.phase("produce", subject, partitions, &args, total))?;

        // The whole topic, and compared with what was sent.
        let (whole, sum) = (total.to_string(), produced.sum()?.to_owned());
        let args = ["consume", "--topic", &topic, "--count", &whole, "--warmup", &warmup, "--sum", &sum];
        self.phase("consume", subject, partitions, &args, total + WARMUP)?;
        if subject == Subject::Ottla && partitions == 1 {
            if let Some(broker) = self.ours.take() {
                broker.stop()?;
            }
            self.ours = Some(self.ottla.broker(&self.data, "os")?);
            self.phase(RESTARTED, subject, partitions, &args, total + WARMUP)?;
        }
        // The last pass's topics stay, for the starts with data.
        if pass < self.options.repeat || subject == Subject::Kafka {
            let (bootstrap, _) = self.at(subject)?;
            self.ottla.command(&["topics", "delete", &topic, "--brokers", &bootstrap])?;
        }
        Ok(())
    }

    /// One benchmark with the CPU that the broker used meanwhile for `messages`.
    fn phase(
        &mut self,
        phase: &str,
        subject: Subject,
        partitions: u32,
        args: &[&str],
        messages: u64,
    ) -> Result<Report, Failure> {
        let (bootstrap, process) = self.at(subject)?;
        let before = machine::cpu(process)?;
        let report = self.ottla.bench(&[args, &["--brokers", &bootstrap]].concat())?;
        let broker = machine::cpu(process)?.saturating_sub(before).as_nanos() as f64 / messages as f64;
        let client = report.number("/cpu_ns_per_msg")?;
        let rate = report.number("/msgs_per_s")? / 1e6;
        println!(
            "  {subject:?}: {phase}, {partitions} partition(s): client {client:.0} ns, broker {broker:.0} ns, {rate:.2} M/s"
        );
        let name = partition_name(partitions);
        self.figures.add(&client_row(phase, partitions), subject, client);
        self.figures.add(&format!("broker CPU, {phase}, {name}, ns per message"), subject, broker);
        self.figures.add(&format!("{phase}, {name}, million messages per second"), subject, rate);
        Ok(report)
    }

    fn latency(&mut self, pass: usize) -> Result<(), Failure> {
        for subject in self.subjects() {
            for (name, rate, count) in
                [("one after the other", "0", CLOSED_LOOP), ("1000 per second", "1000", OPEN_LOOP)]
            {
                let (bootstrap, _) = self.at(subject)?;
                let (topic, count) = (format!("latency-{pass}-{rate}"), count.to_string());
                let args = ["latency", "--topic", &topic, "--count", &count, "--rate", rate];
                let report = self.ottla.bench(&[&args[..], &["--brokers", &bootstrap]].concat())?;
                for (kind, path) in [("acknowledged", "ack_us"), ("read", "e2e_us")] {
                    for (percentile, field) in [("median", "p50"), ("99 %", "p99")] {
                        let what = format!("latency until {kind}, {name}, {percentile}, us");
                        self.figures.add(&what, subject, report.number(&format!("/{path}/{field}"))?);
                    }
                }
            }
        }
        Ok(())
    }

    /// Our log next to a raw file, which is the floor here.
    fn minikafka(&mut self) -> Result<(), Failure> {
        let report = self.ottla.bench(&["minikafka"])?;
        for (name, field) in [
            ("reader spins, no pause", "spin"),
            ("reader spins, paced", "spin_paced"),
            ("reader waits, paced", "wait_paced"),
        ] {
            for (clock, part) in [("write's end", "after_write"), ("write's beginning", "with_write")] {
                let what = format!("minikafka, {name}, from the {clock}, ns");
                for (subject, side) in [(Subject::Ottla, "log_ns"), (Subject::Floor, "file_ns")] {
                    self.figures.add(&what, subject, report.number(&format!("/{field}/{side}/{part}"))?);
                }
            }
        }
        Ok(())
    }
}

const RESTARTED: &str = "consume after a restart of the broker";

fn client_row(phase: &str, partitions: u32) -> String {
    format!("client CPU, {phase}, {}, ns per message", partition_name(partitions))
}

fn partition_name(partitions: u32) -> String {
    if partitions == 1 { "1 partition".to_owned() } else { format!("{partitions} partitions") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_nonsense_is_refused() {
        let options = Options::parse(&["--count", "5", "--json", "x.json", "--without-kafka"]).unwrap();
        assert_eq!((options.count, options.repeat, options.kafka), (5, 3, false));
        assert!(Options::parse(&["--count", "0"]).is_err());
        assert!(Options::parse(&["--repeat"]).is_err());
        assert!(Options::parse(&["--loud"]).is_err());
    }
}
