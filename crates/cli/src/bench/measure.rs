//! Clocks, memory, and the output of results.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::output::print;
use crate::table::Table;

/// The largest latency that the histogram distinguishes: one minute, in nanoseconds.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Measures wall time and the process's CPU time from its start.
pub(super) struct Phase {
    wall: Instant,
    began: Duration,
    cpu: Duration,
}

impl Phase {
    pub(super) fn start() -> Self {
        forget_peak_memory();
        let cpu = process_cpu();
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { wall: Instant::now(), began, cpu }
    }

    pub(super) fn end(&self, messages: u64, bytes: u64) -> Measured {
        let wall = self.wall.elapsed();
        Measured {
            messages,
            bytes,
            wall,
            began: self.began,
            cpu: process_cpu().saturating_sub(self.cpu),
            max_rss_kb: max_rss_kb(),
        }
    }
}

/// The cost of a phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) wall: Duration,
    /// Start of the phase since 1970, to correlate it with observations of other processes.
    pub(super) began: Duration,
    pub(super) cpu: Duration,
    pub(super) max_rss_kb: u64,
}

impl Measured {
    /// The fields common to all benchmarks' JSON.
    pub(super) fn json(&self) -> Map<String, Value> {
        let seconds = self.wall.as_secs_f64().max(1e-9);
        let fields = json!({
            "messages": self.messages,
            "bytes": self.bytes,
            "wall_s": rounded(seconds, 6),
            "msgs_per_s": (self.messages as f64 / seconds).round(),
            "mb_per_s": rounded(self.bytes as f64 / 1e6 / seconds, 3),
            "cpu_ns_per_msg": rounded(self.cpu.as_nanos() as f64 / self.messages.max(1) as f64, 1),
            "max_rss_kb": self.max_rss_kb,
            "began_s": rounded(self.began.as_secs_f64(), 6),
            "ended_s": rounded(self.began.as_secs_f64() + seconds, 6),
        });
        match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }
}

/// Prints the fields as a table; with `json` also as the last line.
pub(super) fn report(title: &str, fields: Map<String, Value>, json: bool) -> Result<(), Failure> {
    let mut table = Table::new(["MEASURE", "VALUE"]);
    let mut rows = |name: &str, value: &Value| match value {
        Value::Object(inner) => inner.iter().for_each(|(part, value)| {
            table.row([format!("{name}.{part}"), value.to_string()]);
        }),
        value => table.row([name.to_owned(), value.to_string()]),
    };
    fields.iter().for_each(|(name, value)| rows(name, value));
    let mut text = format!("{title}\n{}", table.render());
    if json {
        text += &format!("{}\n", Value::Object(fields));
    }
    print(&text)
}

/// A histogram of latencies in nanoseconds.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("bounds and digits are valid for the crate")
}

/// Percentiles in microseconds.
pub(super) fn percentiles_us(histogram: &Histogram<u64>) -> Value {
    let at = |quantile: f64| rounded(histogram.value_at_quantile(quantile) as f64 / 1e3, 2);
    json!({
        "p50": at(0.5),
        "p90": at(0.9),
        "p99": at(0.99),
        "p99_9": at(0.999),
        "max": rounded(histogram.max() as f64 / 1e3, 2),
    })
}

pub(super) fn rounded(number: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (number * scale).round() / scale
}

fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Peak memory counts from here; where the system does not allow it, from the start of the process.
fn forget_peak_memory() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Peak memory of the phase; 0 if the system does not report it.
fn max_rss_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok()).unwrap_or(0)
}
