//! A share group next to a plain group: our only member of each reads the same topic, from Apache Kafka and from our broker.

use std::fmt;

use ottla_interop::Failure;
use serde_json::{Value, json};

use super::super::ottla::Report;
use super::super::table::{Samples, markdown, ratio};
use super::brokers::{Brokers, Kind, Version};
use super::measured::{medians_ratio, met, of};
use super::{Compare, Options};

/// Our targets: the cost of a message next to a plain group's, and the rate next to Apache Kafka's.
const GROUP_MAX: f64 = 2.0;
const KAFKA_MIN: f64 = 3.0;

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Reader {
    Group,
    Share,
}

const READERS: [Reader; 2] = [Reader::Group, Reader::Share];

impl Reader {
    const fn option(self) -> &'static str {
        match self {
            Self::Group => "--group",
            Self::Share => "--share",
        }
    }
}

impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Group => "group",
            Self::Share => "share group",
        })
    }
}

type Measured = (Kind, Vec<(Reader, Samples)>);

pub(super) fn wanted(options: &Options) -> bool {
    options.wants("share")
}

impl Compare<'_> {
    /// One cluster after the other, each with its own topic of the same content.
    pub(super) fn share(&mut self) -> Result<(), Failure> {
        let count: u64 = if self.options.quick { 500_000 } else { 3_000_000 };
        let mut measured: Vec<Measured> = Vec::new();
        for kind in [Kind::Kafka, Kind::Ottla] {
            let data = self.scratch.join(format!("share-{kind}"));
            let started = Brokers::start(kind, Version::Newest, 1, &self.peers, &data)?;
            let Some(brokers) = started else { continue };
            let topic = self.topic();
            brokers.create_topic(&self.peers.ottla, &topic, 1)?;
            let (bootstrap, count) = (brokers.bootstrap(), count.to_string());
            let common = ["--brokers", &*bootstrap, "--topic", &*topic, "--count", &*count];
            self.peers.ottla.bench(&[&["produce", "--warmup", "0"], &common[..]].concat())?;
            let mut readers: Vec<_> = READERS.map(|reader| (reader, Samples::default())).into();
            // The first pass is for the JVM, which compiles what it has seen often.
            for pass in 0..=self.options.repeats(5, 2) {
                for (reader, samples) in &mut readers {
                    let mut unused = Samples::default();
                    let samples = if pass == 0 { &mut unused } else { samples };
                    match self.peers.ottla.bench(&[&["consume", reader.option()], &common[..]].concat()) {
                        Ok(report) => take(kind, *reader, &report, samples)?,
                        Err(failure) => {
                            self.outcome.failed(format!("{}/share {reader}: {failure}", brokers.name));
                        }
                    }
                }
            }
            brokers.stop()?;
            measured.push((kind, readers));
        }
        self.outcome.tables += &table(count, &measured);
        self.outcome.json.extend(measured.iter().map(|(kind, readers)| json(*kind, readers)));
        Ok(())
    }
}

fn take(kind: Kind, reader: Reader, report: &Report, samples: &mut Samples) -> Result<(), Failure> {
    let (rate, cpu) = (report.number("/msgs_per_s")?, report.number("/cpu_ns_per_msg")?);
    samples.add("million_per_s", rate / 1e6);
    samples.add("client_ns", cpu);
    println!("  {kind}-1/share {reader}: {:.2} M/s, {cpu:.0} ns", rate / 1e6);
    Ok(())
}

fn table(count: u64, measured: &[Measured]) -> String {
    let header = [
        "broker",
        "group M/s",
        "share group M/s",
        "of Kafka's",
        "group ns",
        "share group ns",
        "times",
        "twice the CPU of a group, 3 times Kafka's rate",
    ];
    let kafka_rate = (measured.iter().find(|(kind, _)| *kind == Kind::Kafka))
        .and_then(|(_, readers)| of(readers, Reader::Share)?.median("million_per_s"));
    let rows: Vec<_> = measured.iter().map(|(kind, readers)| row(*kind, readers, kafka_rate)).collect();
    markdown(&format!("share groups: {count} messages of 100 B, one partition, one member"), &header, &rows)
}

fn row(kind: Kind, readers: &[(Reader, Samples)], kafka_rate: Option<f64>) -> Vec<String> {
    let spread =
        |reader, field| of(readers, reader).map_or_else(String::new, |samples| samples.spread(field));
    let rate = of(readers, Reader::Share).and_then(|samples| samples.median("million_per_s"));
    let times = medians_ratio(readers, Reader::Share, Reader::Group, "client_ns");
    let is_fast = rate.zip(kafka_rate).map(|(rate, kafka_rate)| rate >= KAFKA_MIN * kafka_rate);
    let says = |good: Option<bool>| good.map_or("?", met);
    let rate_says = if kind == Kind::Kafka { String::new() } else { format!(", {}", says(is_fast)) };
    vec![
        kind.to_string(),
        spread(Reader::Group, "million_per_s"),
        spread(Reader::Share, "million_per_s"),
        ratio(rate, kafka_rate),
        spread(Reader::Group, "client_ns"),
        spread(Reader::Share, "client_ns"),
        times.map_or_else(String::new, |times| format!("{times:.2}")),
        format!("{}{rate_says}", says(times.map(|times| times <= GROUP_MAX))),
    ]
}

fn json(kind: Kind, readers: &[(Reader, Samples)]) -> Value {
    let readers = readers.iter().map(|(reader, samples)| (reader.to_string(), samples.json()));
    json!({ "name": format!("{kind}-1/share"), "peers": Value::Object(readers.collect()) })
}
