//! A soak in slices: seeds in order, for some minutes. A file has the next seed and the totals, so that the next slice
//! continues.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::{Totals, Watchdog, run_all};

/// The first seed of a soak: above those of the test.
const FIRST: u64 = 1_000_000;
/// See `Options::density`.
const DENSITY: i64 = 3;
/// Interval at which the file is written and progress is printed.
const PART: Duration = Duration::from_secs(20);

/// The content of the file.
#[derive(Debug, Default)]
struct State {
    next: u64,
    seeds: u64,
    operations: u64,
    seconds: u64,
    failed: Vec<u64>,
}

impl State {
    fn load(path: &PathBuf) -> Self {
        let mut state = Self { next: FIRST, ..Self::default() };
        let text = std::fs::read_to_string(path).unwrap_or_default();
        for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
            let number = || value.parse().expect("a number of an earlier slice");
            match name {
                "next" => state.next = number(),
                "seeds" => state.seeds = number(),
                "operations" => state.operations = number(),
                "seconds" => state.seconds = number(),
                _ => state
                    .failed
                    .extend(value.split_whitespace().map(|seed| seed.parse::<u64>().expect("a seed"))),
            }
        }
        state
    }

    fn store(&self, path: &PathBuf) {
        let mut text = String::new();
        let Self { next, seeds, operations, seconds, failed } = self;
        let _ = writeln!(text, "next={next}\nseeds={seeds}\noperations={operations}\nseconds={seconds}");
        let failed: Vec<String> = failed.iter().map(u64::to_string).collect();
        let _ = writeln!(text, "failed={}", failed.join(" "));
        std::fs::write(path, text).expect("the file of the totals can be written");
    }

    fn add(&mut self, totals: &Totals, next: u64) {
        self.next = next;
        self.seeds += totals.seeds as u64;
        self.operations += (totals.acked + totals.read) as u64;
        self.seconds += totals.took.as_secs();
        self.failed.extend(&totals.failed);
    }
}

/// Runs seeds for this time, and returns those that failed in this slice.
pub(crate) fn run_slice(minutes: u64) -> Vec<u64> {
    let path = std::env::var_os("OTTLA_SIM_STATE").map_or_else(|| "sim-seeds.txt".into(), PathBuf::from);
    let until = Watchdog::now() + Duration::from_secs(minutes * 60);
    let mut state = State::load(&path);
    let before = state.failed.len();
    while Watchdog::now() < until {
        let part = Seeds { next: Mutex::new(state.next), until: until.min(Watchdog::now() + PART) };
        let totals = run_all(std::iter::from_fn(|| part.next()), DENSITY);
        let next = *part.next.lock().expect("no thread has panicked");
        state.add(&totals, next);
        state.store(&path);
        println!(
            "{} seeds, {} operations in {} s, {} failed; the next seed is {}",
            state.seeds,
            state.operations,
            state.seconds,
            state.failed.len(),
            state.next
        );
    }
    println!("the totals are in {}", path.display());
    state.failed.split_off(before)
}

/// Seeds in order until a time.
struct Seeds {
    next: Mutex<u64>,
    until: Instant,
}

impl Seeds {
    fn next(&self) -> Option<u64> {
        if Watchdog::now() >= self.until {
            return None;
        }
        let mut next = self.next.lock().expect("no thread has panicked");
        *next += 1;
        Some(*next - 1)
    }
}
