//! `ottla bench patterns --member`: one member of a group in a process of its own, which `--crash` kills.

use std::fs::OpenOptions;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ottla_client::Config;
use serde_json::json;

use super::totals::{Totals, WorkerTotals, start};
use super::{Args, CHECK_INTERVAL};
use crate::bench::measure::{Phase, percentiles_us};
use crate::failure::Failure;
use crate::output::print;

/// A killed member leaves the group after this time; peers use the same.
pub(super) const SESSION_TIMEOUT_MS: &str = "6000";

/// Handles the topic's messages until standard input ends, and prints its measurements as one JSON object.
pub(super) fn run(args: &Args, mut config: Config, group: &str, handled: &Path) -> Result<(), Failure> {
    let mode = args.modes()[0];
    config.set_all([
        ("group.id", group),
        ("auto.offset.reset", "earliest"),
        ("session.timeout.ms", SESSION_TIMEOUT_MS),
        ("heartbeat.interval.ms", "1000"),
    ])?;
    let file = OpenOptions::new().append(true).create(true).open(handled);
    let file = file.map_err(|error| Failure::file(handled, &error))?;
    let totals: Arc<Totals> = Arc::default();
    let tally = WorkerTotals::noting(&totals, file);
    let phase = Phase::start();
    let builder = args.builder(config, mode, &args.common.topic);
    let processor = start(mode, builder, tally, args.handler_cost())?;
    let ended = until_input_ends();
    while !ended.load(Ordering::Relaxed) && !processor.is_stopped() {
        std::thread::park_timeout(CHECK_INTERVAL);
    }
    let measured = phase.end(processor.metrics().handled, 0);
    processor.stop();
    processor.join()?;
    totals.await_all();
    let mut fields = measured.json();
    fields.insert("latency_us".into(), totals.latencies().map_or(json!(null), |it| percentiles_us(&it)));
    print(&format!("{}\n", serde_json::Value::Object(fields)))
}

fn until_input_ends() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let noted = ended.clone();
    std::thread::spawn(move || {
        let mut bytes = [0; 64];
        while std::io::stdin().read(&mut bytes).is_ok_and(|read| read > 0) {}
        noted.store(true, Ordering::Relaxed);
    });
    ended
}
