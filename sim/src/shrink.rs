//! Shrinks a failing run: options are made simpler, one at a time, as long as it still fails.

use crate::options::Options;
use crate::scenario::{Mode, Report, run_with};

/// Maximum number of runs of one shrinking.
pub const RUNS_MAX: usize = 400;
/// Seeds that a simpler candidate is tried with: its own run differs, and may miss the fault by chance.
const SEEDS_EACH: u64 = 3;

/// A run that fails, with options that are as simple as was found.
#[derive(Debug)]
pub struct Shrunk {
    /// The report of the shrunk run.
    pub report: Report,
    /// The number of runs that the search took.
    pub runs: usize,
}

/// Shrinks a failed run. `fails` decides whether a report counts as the same failure.
pub fn shrink(failed: Report, mode: Mode, fails: impl Fn(&Report) -> bool) -> Shrunk {
    let mut best = failed;
    let mut runs = 0;
    loop {
        let before = best.options.clone();
        for (name, simplest) in Options::SIMPLEST.all() {
            shrink_option(&mut best, name, simplest, mode, &mut runs, &fails);
        }
        if best.options == before || runs >= RUNS_MAX {
            return Shrunk { report: best, runs };
        }
    }
}

/// Tries the simplest value of an option, and then values between it and the current one.
fn shrink_option(
    best: &mut Report,
    name: &'static str,
    simplest: i64,
    mode: Mode,
    runs: &mut usize,
    fails: &impl Fn(&Report) -> bool,
) {
    let value_of =
        |options: &Options| options.all().into_iter().find(|(own, _)| *own == name).map(|(_, value)| value);
    let Some(mut current) = value_of(&best.options) else { return };
    let mut candidate = simplest;
    while candidate != current && *runs < RUNS_MAX {
        let mut options = best.options.clone();
        options.set(name, candidate).expect("the name is from the list of options");
        let found = (0..SEEDS_EACH).find_map(|step| {
            *runs += 1;
            let report = run_with(best.seed + step, &options, mode);
            fails(&report).then_some(report)
        });
        if let Some(report) = found {
            *best = report;
            current = candidate;
        }
        // Towards the current value, by half of the way.
        let next = candidate + (current - candidate) / 2;
        if next == candidate {
            return;
        }
        candidate = next;
    }
}
