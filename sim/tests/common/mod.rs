//! Running many seeds on all cores, and printing failures.
#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod slice;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ottla_sim::rates::BusiestWindow;
use ottla_sim::shrink::shrink;
use ottla_sim::{Mode, Options, Report, run_with};

/// Number of trace lines to show for a failed run.
const TRACE_LINES_SHOWN: usize = 80;
/// Number of anomalies of each kind to show.
const ANOMALIES_SHOWN: usize = 3;

/// An environment variable with a number.
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a whole number"))
}

/// `Err` for a run with anomalies.
pub(crate) fn check(report: &Report) -> Result<(), ()> {
    if report.anomalies.is_empty() { Ok(()) } else { Err(()) }
}

/// Shrinks a failed run, and describes it with the command that repeats it.
pub(crate) fn explain(failed: Report) -> String {
    let seed = failed.seed;
    let mut text = format!("seed {seed} failed; OTTLA_SIM_SEED={seed} runs it alone\n");
    describe(&failed, &mut text);
    let names: Vec<String> = failed.anomalies.iter().map(ottla_sim::checker::Anomaly::name).collect();
    let shrunk = shrink(failed, Mode::default(), |report| {
        report.anomalies.iter().any(|anomaly| names.contains(&anomaly.name()))
    });
    let (seed, options) = (shrunk.report.seed, shrunk.report.options.clone());
    let again = run_with(seed, &options, Mode { traced: true, ..Mode::default() });
    let _ = writeln!(text, "the smallest run that fails, after {} runs:", shrunk.runs);
    let _ = writeln!(text, "OTTLA_SIM_SEED={seed} OTTLA_SIM_OPTIONS=\"{options}\"");
    let from = again.trace.len().saturating_sub(TRACE_LINES_SHOWN);
    let shown = again.trace.iter().take(1).chain(&again.trace[from.max(1)..]);
    shown.for_each(|line| {
        let _ = writeln!(text, "{line}");
    });
    describe(&again, &mut text);
    text
}

fn describe(report: &Report, text: &mut String) {
    let mut shown: Vec<std::mem::Discriminant<_>> = Vec::new();
    for anomaly in &report.anomalies {
        let kind = std::mem::discriminant(anomaly);
        if shown.iter().filter(|other| **other == kind).count() < ANOMALIES_SHOWN {
            let _ = writeln!(text, "  {anomaly:?}");
        }
        shown.push(kind);
    }
    let _ = writeln!(text, "  {} anomalies in all", report.anomalies.len());
}

/// Ends the process if a seed does not finish. It detects loops without requests, which the simulation's own limits
/// do not see.
pub(crate) struct Watchdog(#[expect(dead_code, reason = "dropping it ends the thread")] mpsc::Sender<()>);

impl Watchdog {
    /// Real time limit of one seed: a thousand times its usual duration.
    const PATIENCE: Duration = Duration::from_secs(120);

    #[expect(clippy::disallowed_methods, reason = "the watchdog measures real time")]
    pub(crate) fn now() -> Instant {
        Instant::now()
    }

    pub(crate) fn start(seed: u64) -> Self {
        let (alive, ended) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            if ended.recv_timeout(Self::PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!(
                    "seed {seed} did not end within {:?}; OTTLA_SIM_SEED={seed} runs it alone",
                    Self::PATIENCE
                );
                std::process::abort();
            }
        });
        Self(alive)
    }
}

/// The results of many runs.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) seeds: usize,
    pub(crate) acked: usize,
    pub(crate) read: usize,
    pub(crate) committed: usize,
    pub(crate) accepted: usize,
    pub(crate) busiest: BTreeMap<i16, BusiestWindow>,
    pub(crate) failed: Vec<u64>,
    pub(crate) took: Duration,
}

impl Totals {
    fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.acked += report.acked;
        self.read += report.read;
        self.committed += report.committed;
        self.accepted += report.accepted;
        for (api, busy) in &report.busiest {
            let most = self.busiest.entry(*api).or_default();
            if busy.requests > most.requests {
                *most = busy.clone();
                let _ = write!(most.what, " of seed {}", report.seed);
            }
        }
    }

    pub(crate) fn print(&self) {
        for busy in self.busiest.values() {
            println!("{}", busy.what);
        }
        let per_second = (self.acked + self.read) as f64 / self.took.as_secs_f64().max(0.001);
        let (seeds, acked, read, committed) = (self.seeds, self.acked, self.read, self.committed);
        let accepted = self.accepted;
        println!(
            "{seeds} seeds, {acked} records acknowledged, {read} reads, {committed} transactions committed, \
             {accepted} records accepted by share groups: {per_second:.0} operations per second"
        );
    }
}

/// Runs the seeds on every core, with the density of `Options::denser`. Failures are shrunk and printed.
pub(crate) fn run_all(seeds: impl IntoIterator<Item = u64, IntoIter: Send>, density: i64) -> Totals {
    let began = Watchdog::now();
    let seeds = Mutex::new(seeds.into_iter());
    let totals = Mutex::new(Totals::default());
    let threads = std::thread::available_parallelism().map_or(1, Into::into);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Some(seed) = seeds.lock().unwrap_or_else(PoisonError::into_inner).next() else {
                        return;
                    };
                    let watchdog = Watchdog::start(seed);
                    let options = Options::draw(&mut fastrand::Rng::with_seed(seed)).denser(density);
                    let run = || run_with(seed, &options, Mode::default());
                    let Ok(report) = std::panic::catch_unwind(run) else {
                        println!("seed {seed} panicked; OTTLA_SIM_SEED={seed} runs it alone");
                        totals.lock().unwrap_or_else(PoisonError::into_inner).failed.push(seed);
                        continue;
                    };
                    drop(watchdog);
                    let failed = check(&report).is_err();
                    {
                        let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
                        totals.add(&report);
                        totals.failed.extend(failed.then_some(seed));
                    }
                    if failed {
                        println!("{}", explain(report));
                    }
                }
            });
        }
    });
    let mut totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    totals.failed.sort_unstable();
    totals.took = began.elapsed();
    totals
}
