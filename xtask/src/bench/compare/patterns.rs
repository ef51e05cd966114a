//! The four consuming patterns of a group with eight workers, each message decoded from JSON: next to Sarama, and next to
//! ourselves without tracking what is done.

use std::fmt;

use ottla_interop::Failure;
use serde_json::{Value, json};

use super::super::table::{Samples, markdown, ratio};
use super::brokers::{Brokers, Kind};
use super::measured::{medians_ratio, met, of};
use super::{Compare, Options};

const MODES: [&str; 4] = ["sync", "batch", "multi-async", "multi-batch"];

/// Fewer than there are workers: some of the patterns have more to do than partitions.
const PARTITIONS: u32 = 4;

/// Our targets: the ratio to Sarama's rate, to its CPU per message, and the cost of tracking.
const RATE_MIN: f64 = 3.0;
const CPU_MAX: f64 = 0.25;
const TRACKING_MAX: f64 = 1.05;

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Reader {
    Ottla,
    Untracked,
    Sarama,
}

impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ottla => "Ottla",
            Self::Untracked => "Ottla, untracked",
            Self::Sarama => "Sarama",
        })
    }
}

/// `true` if a cluster is measured; the part needs one node.
pub(super) fn wanted(kind: Kind, nodes: usize, options: &Options) -> bool {
    nodes == 1 && options.wants(&format!("{kind}-{nodes}/patterns"))
}

type Measured = (&'static str, Vec<(Reader, Samples)>);

impl Compare<'_> {
    pub(super) fn patterns(&mut self, brokers: &Brokers) -> Result<(), Failure> {
        let count: u64 = if self.options.quick { 500_000 } else { 5_000_000 };
        let topic = self.topic();
        brokers.create_topic(&self.peers.ottla, &topic, PARTITIONS)?;
        println!("{}: filling {topic} with {count} messages of JSON", brokers.name);
        let bootstrap = brokers.bootstrap();
        let (text, fill) = (count.to_string(), ["--fill", "0"]);
        let common = ["--brokers", &*bootstrap, "--topic", &*topic, "--count", &*text];
        self.peers.ottla.bench(&[&["patterns", "--mode", "sync"], &common[..], &fill].concat())?;
        let mut readers = vec![Reader::Ottla, Reader::Untracked];
        if self.peers.has_sarama() {
            readers.push(Reader::Sarama);
        }
        let samples = || readers.iter().map(|reader| (*reader, Samples::default())).collect();
        let mut measured: Vec<Measured> = MODES.map(|mode| (mode, samples())).into();
        // Three of each tell the peers apart; what tracking costs is less than passes differ by.
        for pass in 0..=self.options.repeats(10, 2) {
            for (mode, readers) in &mut measured {
                let first = pass % readers.len();
                readers.rotate_left(first);
                for (reader, samples) in &mut *readers {
                    let mut unused = Samples::default();
                    let samples = if pass == 0 { &mut unused } else { samples };
                    let args = [&["--mode", mode], &common[..]].concat();
                    if let Err(failure) = self.pattern(&brokers.name, *reader, mode, &args, samples) {
                        self.outcome.failed(format!("{}/patterns {mode} {reader}: {failure}", brokers.name));
                    }
                }
                readers.sort_by_key(|(reader, _)| *reader);
            }
        }
        brokers.delete_topic(&self.peers.ottla, &topic)?;
        self.outcome.tables += &table(&brokers.name, count, &measured);
        self.outcome.json.extend(measured.iter().map(|(mode, readers)| json(&brokers.name, mode, readers)));
        Ok(())
    }

    fn pattern(
        &self,
        name: &str,
        reader: Reader,
        mode: &str,
        args: &[&str],
        samples: &mut Samples,
    ) -> Result<(), Failure> {
        let report = match reader {
            Reader::Ottla => self.peers.ottla.bench(&[&["patterns"], args].concat())?,
            Reader::Untracked => self.peers.ottla.bench(&[&["patterns", "--untracked"], args].concat())?,
            Reader::Sarama => self.peers.sarama(args)?,
        };
        let (rate, cpu, cores) =
            (report.number("/msgs_per_s")?, report.number("/cpu_ns_per_msg")?, report.number("/cores")?);
        samples.add("million_per_s", rate / 1e6);
        samples.add("client_ns", cpu);
        samples.add("cores", cores);
        println!("  {name}/patterns {mode} {reader}: {:.2} M/s, {cpu:.0} ns, {cores:.2} cores", rate / 1e6);
        Ok(())
    }
}

fn table(name: &str, count: u64, measured: &[Measured]) -> String {
    let rows: Vec<_> = measured.iter().map(|(mode, readers)| row(mode, readers)).collect();
    let header = [
        "mode",
        "Ottla M/s",
        "Sarama M/s",
        "times",
        "Ottla ns",
        "Sarama ns",
        "of it",
        "cores, Ottla",
        "cores, Sarama",
        "tracking",
        "3 times the rate, 1/4 of the CPU, 5 % for tracking",
    ];
    markdown(
        &format!("{name}: patterns, {count} messages, 8 workers, {PARTITIONS} partitions"),
        &header,
        &rows,
    )
}

fn row(mode: &str, readers: &[(Reader, Samples)]) -> Vec<String> {
    let spread =
        |reader, field| of(readers, reader).map_or_else(String::new, |samples| samples.spread(field));
    let median = |reader, field| of(readers, reader).and_then(|samples| samples.median(field));
    let through = |a, b, field| medians_ratio(readers, a, b, field);
    let rate = through(Reader::Ottla, Reader::Sarama, "million_per_s");
    let cpu = through(Reader::Ottla, Reader::Sarama, "client_ns");
    let tracking = through(Reader::Ottla, Reader::Untracked, "client_ns");
    let says = |number: Option<f64>, good: fn(f64) -> bool| number.map_or("?", |number| met(good(number)));
    vec![
        mode.to_owned(),
        spread(Reader::Ottla, "million_per_s"),
        spread(Reader::Sarama, "million_per_s"),
        ratio(median(Reader::Ottla, "million_per_s"), median(Reader::Sarama, "million_per_s")),
        spread(Reader::Ottla, "client_ns"),
        spread(Reader::Sarama, "client_ns"),
        ratio(median(Reader::Ottla, "client_ns"), median(Reader::Sarama, "client_ns")),
        spread(Reader::Ottla, "cores"),
        spread(Reader::Sarama, "cores"),
        tracking.map_or_else(String::new, |tracking| format!("{:+.1} %", (tracking - 1.0) * 100.0)),
        [
            says(rate, |rate| rate >= RATE_MIN),
            says(cpu, |cpu| cpu <= CPU_MAX),
            says(tracking, |tracking| tracking <= TRACKING_MAX),
        ]
        .join(", "),
    ]
}

fn json(name: &str, mode: &str, readers: &[(Reader, Samples)]) -> Value {
    let peers = readers.iter().map(|(reader, samples)| (reader.to_string(), samples.json()));
    json!({ "name": format!("{name}/patterns/{mode}"), "peers": Value::Object(peers.collect()) })
}
