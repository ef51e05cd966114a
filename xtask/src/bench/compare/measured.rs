//! The cost of a run at full speed, next to the floor.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::process::Command;
use std::time::Duration;

use ottla_interop::{Failure, run as run_command};
use serde_json::Value;

use super::super::ottla::Report;
use super::super::table::{Samples, median};
use super::{Compare, watch};

/// The batch limit of every peer: librdkafka's default, and as good as franz-go's.
pub(super) const BATCH_BYTES: &str = "1000000";

/// The bytes of a record in a log besides its value.
pub(super) const RECORD_BYTES: u64 = 12;

const FLOOR_WITHIN: Duration = Duration::from_secs(60);

/// The floor program's CPU, by the row's name.
pub(super) type Floors = BTreeMap<String, Samples>;

impl Compare<'_> {
    /// The floor for a row, between the row's peers and the next row's; `field` is of the program's output.
    pub(super) fn floor(
        &self,
        row: &str,
        count: u64,
        size: usize,
        field: &str,
        floors: &mut Floors,
    ) -> Result<(), Failure> {
        let Some(program) = &self.floor else { return Ok(()) };
        let mut command = Command::new(program);
        command.args([count.to_string(), BATCH_BYTES.to_owned(), size.to_string()]);
        let output = run_command("floor", &mut command, b"", FLOOR_WITHIN)?.succeeded()?.stdout_text();
        let fields: Value = serde_json::from_str(&output)
            .map_err(|error| Failure::new(format!("floor: no JSON: {error}: {output}")))?;
        let ns = fields[field].as_f64().unwrap_or_default();
        println!("  {row} floor: {ns:.0} ns");
        floors.entry(row.to_owned()).or_default().add("client_ns", ns);
        Ok(())
    }
}

/// Adds what a client reported, and what was busy meanwhile, to its samples.
pub(super) fn take(
    row: &str,
    client: impl Display,
    report: &Report,
    looks: &watch::Looks,
    samples: &mut Samples,
) -> Result<(), Failure> {
    let (cpu, rate) = (report.number("/cpu_ns_per_msg")?, report.number("/msgs_per_s")?);
    let messages = report.number("/messages")?;
    let busy = looks.between(report.number("/began_s")?, report.number("/ended_s")?);
    samples.add("client_ns", cpu);
    samples.add("million_per_s", rate / 1e6);
    let mut how_busy = String::from("too short to see what was busy");
    if let Some(busy) = busy {
        samples.add("thread", busy.thread * 100.0);
        samples.add("machine", busy.machine * 100.0);
        samples.add("broker_ns", busy.brokers.as_nanos() as f64 / messages);
        samples.add("bound", f64::from(u8::from(busy.broker_bound())));
        how_busy =
            format!("broker thread {:.0} %, machine {:.0} % busy", busy.thread * 100.0, busy.machine * 100.0);
    }
    println!("  {row} {client}: {cpu:.0} ns, {:.2} M/s, {how_busy}", rate / 1e6);
    Ok(())
}

pub(super) fn of<C: Copy + Eq>(clients: &[(C, Samples)], client: C) -> Option<&Samples> {
    clients.iter().find(|(own, _)| *own == client).map(|(_, samples)| samples)
}

/// `a`'s median through `b`'s.
pub(super) fn medians_ratio<C: Copy + Eq>(clients: &[(C, Samples)], a: C, b: C, field: &str) -> Option<f64> {
    Some(of(clients, a)?.median(field)? / of(clients, b)?.median(field)?)
}

/// The peers whose rate the broker limited.
pub(super) fn broker_bound<C: Display>(clients: &[(C, Samples)]) -> Option<String> {
    let bound = clients.iter().filter(|(_, samples)| median(samples.of("bound")) > Some(0.0));
    let names: Vec<_> = bound.map(|(client, _)| client.to_string()).collect();
    (!names.is_empty()).then(|| format!("broker-bound: {}", names.join(", ")))
}

/// The busiest broker thread and the machine, in percent.
pub(super) fn how_busy(samples: Option<&Samples>) -> String {
    let percent = |field| {
        let middle = samples.and_then(|samples| samples.median(field));
        middle.map_or_else(|| "?".to_owned(), |percent| format!("{percent:.0}"))
    };
    format!("{} / {}", percent("thread"), percent("machine"))
}

pub(super) fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "NOT met" }
}
