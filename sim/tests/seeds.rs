//! Seeded runs of the real client and broker, and a test that the seed determines a run.

mod common;

use std::hash::{BuildHasher, RandomState};

use common::slice::run_slice;
use common::{Watchdog, check, explain, number, run_all};
use ottla_sim::{Mode, Options, run, run_with};

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

#[test]
fn every_seed_keeps_what_was_acknowledged_in_order_and_comes_to_its_end() {
    if std::env::var_os("OTTLA_SIM_LOG").is_some() {
        tracing_subscriber::fmt()
            .without_time()
            .with_env_filter(tracing_subscriber::EnvFilter::from_env("OTTLA_SIM_LOG"))
            .init();
    }
    if let Some(minutes) = number("OTTLA_SIM_MINUTES") {
        assert_eq!(run_slice(minutes), Vec::<u64>::new(), "failed seeds");
        return;
    }
    let options = std::env::var("OTTLA_SIM_OPTIONS").ok();
    let options = options.map(|text| Options::parse(&text).expect("options in their text form"));
    let seeds = seeds();
    if let [seed] = seeds[..] {
        let _watchdog = Watchdog::start(seed);
        let mode = Mode { traced: true, ..Mode::default() };
        let report = options.map_or_else(|| run(seed), |options| run_with(seed, &options, mode));
        report.trace.iter().for_each(|line| println!("{line}"));
        assert!(check(&report).is_ok(), "{}", explain(report));
        return;
    }
    let totals = run_all(seeds, number("OTTLA_SIM_DENSITY").unwrap_or(1) as i64);
    totals.print();
    assert!(totals.failed.is_empty(), "failed seeds: {:?}", totals.failed);
    assert!(totals.acked > 0 && totals.read >= totals.acked, "the runs did something");
    assert!(totals.committed > 0 || totals.seeds < 50, "half of the seeds have transactions");
    assert!(totals.accepted > 0 || totals.seeds < 50, "half of the seeds have a share group");
}

/// Seeds that once did not finish. A restarted broker assigned a client's fetch session to another client, whose
/// responses named a partition that the client had not requested. The client ignored it and fetched again at once.
const LIVELOCKED: [u64; 3] = [32_247_601, 50_000_196, 90_000_167];

#[test]
fn seeds_that_were_in_a_livelock_come_to_their_end() {
    for seed in LIVELOCKED {
        let _watchdog = Watchdog::start(seed);
        let report = run(seed);
        assert!(check(&report).is_ok(), "{}", explain(report));
    }
}

/// A seed whose reader is started again four times in a few milliseconds, each time with connections of its own.
const RESTARTED: u64 = 782_444_592_422;

#[test]
fn clients_that_are_started_again_are_not_taken_for_one_busy_client() {
    let _watchdog = Watchdog::start(RESTARTED);
    let report = run(RESTARTED);
    assert!(check(&report).is_ok(), "{}", explain(report));
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

/// Tokio catches the panics of tasks: a run in which one answered no request any more succeeded.
#[test]
fn a_panic_of_a_task_is_an_anomaly() {
    let options = Options::draw(&mut fastrand::Rng::with_seed(7));
    let report = run_with(7, &options, Mode { panics: true, ..Mode::default() });
    let names: Vec<String> = report.anomalies.iter().map(ottla_sim::checker::Anomaly::name).collect();
    assert_eq!(names, ["Panicked"], "{:?}", report.anomalies);
    assert_eq!(check(&report), Err(()));
}
