//! Seeded runs of the real client and broker, and a test that the seed determines a run.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ottla_sim::rates::BusiestWindow;
use ottla_sim::{Report, run};

/// Number of trace lines to show for a failed run.
const TRACE_LINES_SHOWN: usize = 80;
/// Number of anomalies of each kind to show.
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

/// The requested seeds; by default two hundred fixed seeds and fifty random ones.
fn seeds() -> Vec<u64> {
    if let Some(seed) = number("OTTLA_SIM_SEED") {
        return vec![seed];
    }
    let fixed = number("OTTLA_SIM_FROM").unwrap_or(1)..;
    let fixed = fixed.take(number("OTTLA_SIM_SEEDS").unwrap_or(200) as usize);
    let mut random = fastrand::Rng::with_seed(entropy());
    // Short enough to type.
    let random = std::iter::repeat_with(move || random.u64(0..1 << 40));
    fixed.chain(random.take(number("OTTLA_SIM_RANDOM").unwrap_or(50) as usize)).collect()
}

/// Random seeds; each failure prints its own.
fn entropy() -> u64 {
    RandomState::new().hash_one(0)
}

/// Ends the process if a seed does not finish. It detects loops without requests, which the simulation's own limits
/// do not see.
struct Watchdog(#[expect(dead_code, reason = "dropping it ends the thread")] mpsc::Sender<()>);

impl Watchdog {
    /// Real time limit of one seed: a thousand times its usual duration.
    const PATIENCE: Duration = Duration::from_secs(120);

    #[expect(clippy::disallowed_methods, reason = "the watchdog measures real time")]
    fn now() -> Instant {
        Instant::now()
    }

    fn start(seed: u64) -> Self {
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

#[test]
fn every_seed_keeps_what_was_acknowledged_in_order_and_comes_to_its_end() {
    if std::env::var_os("OTTLA_SIM_LOG").is_some() {
        tracing_subscriber::fmt()
            .without_time()
            .with_env_filter(tracing_subscriber::EnvFilter::from_env("OTTLA_SIM_LOG"))
            .init();
    }
    let (mut acked, mut read) = (0, 0);
    let mut busiest: BTreeMap<i16, BusiestWindow> = BTreeMap::new();
    let began = Watchdog::now();
    let mut failures = Vec::new();
    for seed in seeds() {
        let watchdog = Watchdog::start(seed);
        let report = run(seed);
        drop(watchdog);
        acked += report.acked;
        read += report.read;
        for (api, busy) in &report.busiest {
            let most = busiest.entry(*api).or_default();
            if busy.requests > most.requests {
                *most = busy.clone();
                let _ = write!(most.what, " of seed {seed}");
            }
        }
        if let Err(failure) = check(&report) {
            println!("{failure}");
            failures.push(seed);
        } else if number("OTTLA_SIM_SEED").is_some() {
            report.trace.iter().for_each(|line| println!("{line}"));
        }
    }
    for busy in busiest.values() {
        println!("{}", busy.what);
    }
    let per_second = (acked + read) as f64 / began.elapsed().as_secs_f64();
    println!("{acked} records acknowledged, {read} reads: {per_second:.0} operations per second");
    assert!(failures.is_empty(), "failed seeds: {failures:?}");
    assert!(acked > 0 && read >= acked, "the runs did something");
}

/// Seeds that once did not finish. A restarted broker assigned a client's fetch session to another client, whose
/// responses named a partition that the client had not requested. The client ignored it and fetched again at once.
const LIVELOCKED: [u64; 3] = [32_247_601, 50_000_196, 90_000_167];

#[test]
fn seeds_that_were_in_a_livelock_come_to_their_end() {
    for seed in LIVELOCKED {
        let _watchdog = Watchdog::start(seed);
        let checked = check(&run(seed));
        assert!(checked.is_ok(), "{}", checked.unwrap_err());
    }
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
