//! Runs a model many times.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::Runner;
use shuttle::scheduler::{PctScheduler, RandomScheduler};

/// Multiplies the executions of each model.
const VARIABLE: &str = "OTTLA_MODEL_FACTOR";
const SEED: u64 = 15;
/// Most defects of synchronisation need at most three switches at certain points.
const SWITCHES: usize = 3;

/// Runs `model` with every order of its threads that switches a running thread at most `switches` times, and with every
/// value that a load may return. With [`VARIABLE`] above 1, one more switch.
pub fn loom(name: &str, switches: usize, model: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches + usize::from(factor() > 1));
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("{name}: {} executions", executions.load(Ordering::Relaxed));
}

/// Runs `model` with random orders of its threads, `executions` times; with [`VARIABLE`] as many times more. The seed is
/// fixed, so that a failure comes again.
pub fn shuttle(name: &str, executions: usize, model: impl Fn() + Send + Sync + 'static) {
    let executions = executions * factor();
    let model = Arc::new(model);
    let again = model.clone();
    let random = RandomScheduler::new_from_seed(SEED, executions.div_ceil(2));
    Runner::new(random, shuttle::Config::default()).run(move || model());
    // The other half has few switches at random points, which finds rare orders of many steps.
    let rare = PctScheduler::new_from_seed(SEED, SWITCHES, executions / 2);
    Runner::new(rare, shuttle::Config::default()).run(move || again());
    println!("{name}: {executions} executions");
}

fn factor() -> usize {
    let text = std::env::var(VARIABLE).unwrap_or_else(|_| "1".to_owned());
    text.parse()
        .ok()
        .filter(|factor| *factor > 0)
        .unwrap_or_else(|| panic!("{VARIABLE}={text}: expected a count from 1"))
}
