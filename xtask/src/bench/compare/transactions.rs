//! Transactions of one record: Java's producer on Apache Kafka next to our client on our broker.

use std::time::Duration;

use ottla_interop::{Failure, newest_jars, run, workspace_root};
use serde_json::json;

use super::super::machine::cpu;
use super::super::ottla::{Ottla, Report};
use super::super::table::{Samples, markdown, ratio};
use super::brokers::{Brokers, Kind, Version};
use super::measured::{medians_ratio, met, of};
use super::{Compare, Options};

/// Our target: the processor time of client and broker, as a part of Apache Kafka's.
const KAFKA_PART_MAX: f64 = 0.5;
/// Java compiles what it has run often.
const WARMUP: u64 = 1_000;
const JAVA_HEAP_MB: u32 = 512;
const JAVA_WITHIN: Duration = Duration::from_secs(300);

type Measured = (Kind, Samples);

pub(super) fn wanted(options: &Options) -> bool {
    options.wants("transactions")
}

impl Compare<'_> {
    /// Both clusters run, so that the passes alternate.
    pub(super) fn transactions(&mut self) -> Result<(), Failure> {
        let count: u64 = if self.options.quick { 1_000 } else { 3_000 };
        let mut clusters = Vec::new();
        for kind in [Kind::Kafka, Kind::Ottla] {
            let data = self.scratch.join(format!("transactions-{kind}"));
            if let Some(brokers) = Brokers::start(kind, Version::Newest, 1, &self.peers, &data)? {
                let topic = self.topic();
                brokers.create_topic(&self.peers.ottla, &topic, 1)?;
                clusters.push((kind, brokers, topic, Samples::default()));
            }
        }
        // The first pass warms up.
        for pass in 0..=self.options.repeats(5, 2) {
            for (kind, brokers, topic, samples) in &mut clusters {
                let broker = brokers.process_ids().first().copied();
                let broker = broker.ok_or_else(|| Failure::new(format!("{}: not running", brokers.name)))?;
                let before = cpu(broker)?;
                let bootstrap = brokers.bootstrap();
                let done = match kind {
                    Kind::Kafka => of_java(&bootstrap, topic, count),
                    Kind::Ottla => of_ottla(&self.peers.ottla, &bootstrap, topic, count),
                };
                let report = match done {
                    Ok(report) => report,
                    Err(failure) => {
                        self.outcome.failed(format!("{}/transactions: {failure}", brokers.name));
                        continue;
                    }
                };
                let spent = cpu(broker)?.saturating_sub(before);
                let broker_us = spent.as_nanos() as f64 / (count + WARMUP) as f64 / 1e3;
                let client_us = report.number("/cpu_ns_per_msg")? / 1e3;
                let rate = report.number("/msgs_per_s")?;
                println!(
                    "  {kind}-1/transactions: client {client_us:.1} us, broker {broker_us:.1} us, {rate:.0}/s"
                );
                if pass > 0 {
                    samples.add("client_us", client_us);
                    samples.add("broker_us", broker_us);
                    samples.add("both_us", client_us + broker_us);
                    samples.add("per_s", rate);
                }
            }
        }
        let mut measured: Vec<Measured> = Vec::new();
        for (kind, brokers, _, samples) in clusters {
            brokers.stop()?;
            measured.push((kind, samples));
        }
        self.outcome.tables += &table(count, &measured);
        let json = |(kind, samples): &Measured| json!({ "name": format!("{kind}-1/transactions"), "samples": samples.json() });
        self.outcome.json.extend(measured.iter().map(json));
        Ok(())
    }
}

fn of_ottla(ottla: &Ottla, bootstrap: &str, topic: &str, count: u64) -> Result<Report, Failure> {
    let (count, warmup) = (count.to_string(), WARMUP.to_string());
    let args = ["--brokers", bootstrap, "--topic", topic, "--count", &*count, "--warmup", &*warmup];
    ottla.bench(&[&["transactions"], &args[..]].concat())
}

/// Runs the same with Java's producer.
fn of_java(bootstrap: &str, topic: &str, count: u64) -> Result<Report, Failure> {
    let mut java = newest_jars()?.warm_java(JAVA_HEAP_MB);
    java.arg(workspace_root().join("bench/compare/Transactions.java"));
    java.args([bootstrap, topic, &count.to_string(), &WARMUP.to_string()]);
    let output = run("Transactions.java", &mut java, b"", JAVA_WITHIN)?.succeeded()?;
    Report::parse("Transactions.java", output.stdout_text())
}

fn table(count: u64, measured: &[Measured]) -> String {
    let part = medians_ratio(measured, Kind::Ottla, Kind::Kafka, "both_us");
    let kafka = of(measured, Kind::Kafka).and_then(|samples| samples.median("both_us"));
    let rows = measured.iter().map(|(kind, samples)| {
        let says = match (*kind, part) {
            (Kind::Ottla, Some(part)) => met(part <= KAFKA_PART_MAX).to_owned(),
            _ => String::new(),
        };
        vec![
            kind.to_string(),
            samples.spread("client_us"),
            samples.spread("broker_us"),
            ratio(samples.median("both_us"), kafka),
            samples.spread("per_s"),
            says,
        ]
    });
    let header =
        ["cluster", "client us", "broker us", "both, of Kafka's", "per second", "at most half of Kafka's"];
    let title = format!(
        "{count} transactions of one record of 100 B: Java's producer on Kafka, our client on our broker"
    );
    markdown(&title, &header, &rows.collect::<Vec<_>>())
}
