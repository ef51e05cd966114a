//! Seeded runs of the real client and broker, and the proof that a seed is all there is to a run.

use std::fmt::Write;

use ottla_sim::{Report, run};

/// Lines of a trace that are shown when a run fails.
const TRACE_LINES_SHOWN: usize = 80;
/// Anomalies of one kind that are shown.
const ANOMALIES_SHOWN: usize = 3;

fn check(report: &Report) -> Result<(), String> {
    if report.anomalies.is_empty() {
        return Ok(());
    }
    let mut text = format!("seed {} failed; OTTLA_SIM_SEED={} runs it alone\n", report.seed, report.seed);
    let from = report.trace.len().saturating_sub(TRACE_LINES_SHOWN);
    let shown = report.trace.iter().take(1).chain(&report.trace[from.max(1)..]);
    for line in shown {
        let _ = writeln!(text, "{line}");
    }
    let mut shown: Vec<std::mem::Discriminant<_>> = Vec::new();
    for anomaly in &report.anomalies {
        let kind = std::mem::discriminant(anomaly);
        if shown.iter().filter(|other| **other == kind).count() < ANOMALIES_SHOWN {
            let _ = writeln!(text, "  {anomaly:?}");
        }
        shown.push(kind);
    }
    let _ = writeln!(text, "  {} anomalies in all", report.anomalies.len());
    Err(text)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a whole number"))
}

/// The seeds asked for; by default two hundred, the same every time.
fn seeds() -> Vec<u64> {
    if let Some(seed) = number("OTTLA_SIM_SEED") {
        return vec![seed];
    }
    let from = number("OTTLA_SIM_FROM").unwrap_or(1);
    (from..from + number("OTTLA_SIM_SEEDS").unwrap_or(200)).collect()
}

#[test]
fn every_seed_keeps_what_was_acknowledged_in_order_and_comes_to_its_end() {
    if std::env::var_os("OTTLA_SIM_LOG").is_some() {
        tracing_subscriber::fmt()
            .without_time()
            .with_env_filter(tracing_subscriber::EnvFilter::from_env("OTTLA_SIM_LOG"))
            .init();
    }
    let (mut acked, mut read) = (0, 0);
    let mut failures = Vec::new();
    for seed in seeds() {
        let report = run(seed);
        acked += report.acked;
        read += report.read;
        if let Err(failure) = check(&report) {
            println!("{failure}");
            failures.push(seed);
        } else if number("OTTLA_SIM_SEED").is_some() {
            report.trace.iter().for_each(|line| println!("{line}"));
        }
    }
    println!("{acked} records acknowledged, {read} reads");
    assert!(failures.is_empty(), "failed seeds: {failures:?}");
    assert!(acked > 0 && read >= acked, "the runs did something");
}

#[test]
fn the_same_seed_gives_the_same_run_twice_and_another_seed_another() {
    let mut traces = Vec::new();
    for seed in [3, 11, 42, 1234] {
        let (first, second) = (run(seed), run(seed));
        let differ = first.trace.iter().zip(&second.trace).position(|(a, b)| a != b);
        if let Some(at) = differ {
            panic!("seed {seed}, line {at}:\n  {}\n  {}", first.trace[at], second.trace[at]);
        }
        assert_eq!(first.trace.len(), second.trace.len(), "seed {seed}");
        traces.push(first.trace);
    }
    for (at, trace) in traces.iter().enumerate() {
        assert!(traces[..at].iter().all(|other| other[1..] != trace[1..]), "two seeds, one run");
    }
}
