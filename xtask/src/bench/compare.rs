//! `cargo xtask compare`: our client next to librdkafka and franz-go, against Apache Kafka's broker and ours.
//!
//! One run, the same payload files, each peer in turn and everything repeated, so that whatever else the machine does
//! falls upon all of them. `bench/compare/README.md` explains the numbers and their limits.

mod abi;
mod brokers;
mod consume;
mod latency;
mod measured;
mod patterns;
mod payload;
mod peers;
mod share;
mod throughput;
mod tls;
mod transactions;
mod watch;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ottla_interop::Failure;
use serde_json::{Value, json};

use self::brokers::{Brokers, Kind, Version};
use self::payload::Payloads;
use self::peers::Peers;
pub(super) use self::peers::{librdkafka_program, our_binary};
use super::number;

pub(crate) struct Options {
    quick: bool,
    /// Parts of names; without any everything is wanted.
    only: Vec<String>,
    json: Option<PathBuf>,
    repeat: Option<usize>,
}

impl Options {
    pub(crate) fn parse(args: &[&str]) -> Result<Self, String> {
        let mut options = Self { quick: false, only: Vec::new(), json: None, repeat: None };
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let mut value = || args.next().copied().ok_or_else(|| format!("{arg} needs a value"));
            match arg {
                "--quick" => options.quick = true,
                "--only" => options.only.extend(value()?.split(',').map(str::to_owned)),
                "--json" => options.json = Some(value()?.into()),
                "--repeat" => options.repeat = Some(number(arg, value()?)?),
                other => return Err(format!("compare does not know {other}")),
            }
        }
        Ok(options)
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part))
    }

    /// How often something is measured that usually is `full` or, in a hurry, `quick` times.
    fn repeats(&self, full: usize, quick: usize) -> usize {
        self.repeat.unwrap_or(if self.quick { quick } else { full })
    }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    match measure(options) {
        Ok(outcome) => outcome.report(options.json.as_deref()),
        Err(failure) => {
            eprintln!("compare: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Builds a peer that `ottla` itself starts.
pub(crate) fn build_peer(name: &str) -> ExitCode {
    match peers::standalone(name) {
        Ok(program) => {
            println!("{}", program.display());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("peer: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// The options and peers of all parts.
struct Compare<'a> {
    options: &'a Options,
    peers: Peers,
    payloads: Payloads,
    /// The floor program, where there is a C compiler for it.
    floor: Option<PathBuf>,
    scratch: &'a Path,
    topics: usize,
    outcome: Outcome,
}

impl Compare<'_> {
    /// A name that no topic has had.
    fn topic(&mut self) -> String {
        self.topics += 1;
        format!("compare-{}", self.topics)
    }
}

/// The figures, and the errors: one failed peer must not cost an hour of figures.
#[derive(Default)]
struct Outcome {
    tables: String,
    json: Vec<Value>,
    failures: Vec<String>,
}

fn measure(options: &Options) -> Result<Outcome, Failure> {
    let scratch = tempfile::Builder::new()
        .prefix("ottla-compare-")
        .tempdir()
        .map_err(|error| Failure::new(format!("a directory to measure in: {error}")))?;
    let peers = Peers::build()?;
    let payloads = Payloads::write(scratch.path())?;
    let floor = super::machine::floor(scratch.path())?;
    let mut compare = Compare {
        options,
        peers,
        payloads,
        floor,
        scratch: scratch.path(),
        topics: 0,
        outcome: Outcome::default(),
    };
    // Only the brokers that are being measured run.
    for (kind, nodes) in [(Kind::Kafka, 2), (Kind::Kafka, 1), (Kind::Ottla, 1)] {
        let cells = throughput::cells(kind, nodes, options);
        let reading = consume::rows(kind, nodes, options);
        let latencies = latency::names(kind, nodes).into_iter().filter(|name| options.wants(name));
        let latencies: Vec<_> = latencies.collect();
        let patterns = patterns::wanted(kind, nodes, options);
        let abi = abi::wanted(kind, nodes, options);
        if cells.is_empty() && reading.is_empty() && latencies.is_empty() && !patterns && !abi {
            continue;
        }
        let data = compare.scratch.join(format!("{kind}-{nodes}"));
        let Some(brokers) = Brokers::start(kind, Version::Usual, nodes, &compare.peers, &data)? else {
            continue;
        };
        compare.throughput(&brokers, &cells);
        compare.consume(&brokers, &reading)?;
        if patterns {
            compare.patterns(&brokers)?;
        }
        if abi {
            compare.abi(&brokers, kind)?;
        }
        for name in latencies {
            compare.latency(&brokers, &name)?;
        }
        brokers.stop()?;
    }
    if transactions::wanted(options) {
        compare.transactions()?;
    }
    if share::wanted(options) {
        compare.share()?;
    }
    if tls::wanted(options) {
        compare.tls()?;
    }
    Ok(compare.outcome)
}

impl Outcome {
    fn failed(&mut self, what: impl fmt::Display) {
        println!("  FAILED: {what}");
        self.failures.push(what.to_string());
    }

    fn report(&self, path: Option<&Path>) -> ExitCode {
        println!("\n{}", self.tables);
        let mut code = ExitCode::SUCCESS;
        if let Some(path) = path {
            let all = json!({ "measured": self.json, "failures": self.failures });
            if let Err(error) = std::fs::write(path, format!("{all:#}\n")) {
                eprintln!("compare: {}: {error}", path.display());
                code = ExitCode::FAILURE;
            }
        }
        if !self.failures.is_empty() {
            eprintln!("compare: {} measurements failed:", self.failures.len());
            self.failures.iter().for_each(|failure| eprintln!("  {failure}"));
            code = ExitCode::FAILURE;
        }
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_choose_what_is_measured_and_how_often() {
        let full = Options::parse(&[]).unwrap();
        assert!(full.wants("kafka-2/test1/100") && full.repeats(3, 1) == 3);
        let part = Options::parse(&["--quick", "--only", "latency", "--json", "f"]).unwrap();
        assert!(!part.wants("kafka-2/test1/100") && part.repeats(3, 1) == 1);
        let parts = Options::parse(&["--only", "kafka-2,test1", "--only", "/p1"]).unwrap();
        assert!(
            ["kafka-2/lz4/100", "ottla-1/test1/100", "ottla-1/consume/p100/100"]
                .iter()
                .all(|name| parts.wants(name))
        );
        assert!(!parts.wants("ottla-1/test2/100"));
        assert_eq!(Options::parse(&["--repeat", "7"]).unwrap().repeats(3, 1), 7);
        assert!(Options::parse(&["--repeat", "0"]).is_err());
    }
}
