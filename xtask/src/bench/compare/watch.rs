//! Finds whether the broker or the machine was the limit, by their CPU time while a peer runs.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::param::clock_ticks_per_second;

use super::super::machine::ticks;

/// Five times the clock of /proc. A JVM has some eighty threads, and each look reads a file for each.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Looks that lie closer together say nothing about business: the clock of /proc has steps of 10 ms.
const PHASE_MIN_S: f64 = 0.15;

const THREAD_BOUND: f64 = 0.95;
const MACHINE_BOUND: f64 = 0.90;

/// CPU times at one moment, in clock ticks.
#[derive(Clone, Debug)]
struct Look {
    /// Seconds since 1970.
    at: f64,
    machine_busy: u64,
    machine: u64,
    threads: BTreeMap<(u32, u32), u64>,
}

/// Looks in the order of time.
pub(super) struct Looks(Vec<Look>);

/// The busy share of one processor or of all in a phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Busy {
    /// Of the brokers' busiest thread.
    pub(super) thread: f64,
    pub(super) machine: f64,
    /// All that the brokers used.
    pub(super) brokers: Duration,
}

impl Busy {
    pub(super) fn broker_bound(self) -> bool {
        self.thread > THREAD_BOUND || self.machine > MACHINE_BOUND
    }
}

/// Runs `work`, and meanwhile looks at the processes and the machine.
pub(super) fn during<T>(processes: &[u32], work: impl FnOnce() -> T) -> (T, Looks) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut looks = Vec::new();
            while !done.load(Ordering::Acquire) {
                looks.extend(look(processes));
                std::thread::sleep(LOOK_EVERY);
            }
            looks.extend(look(processes));
            Looks(looks)
        });
        let result = work();
        done.store(true, Ordering::Release);
        (result, looks.join().expect("looking does not panic"))
    })
}

impl Looks {
    /// Between two moments, in seconds since 1970; `None` when they lie too close together.
    pub(super) fn between(&self, began: f64, ended: f64) -> Option<Busy> {
        let first = self.0.iter().find(|look| look.at >= began)?;
        let last = self.0.iter().rfind(|look| look.at <= ended)?;
        if last.at - first.at < PHASE_MIN_S {
            return None;
        }
        let ticks = |look: &Look, thread| look.threads.get(thread).copied().unwrap_or(0);
        let spent = |thread| ticks(last, thread).saturating_sub(ticks(first, thread));
        let per_second = clock_ticks_per_second() as f64;
        let (mut busiest, mut all) = (0, 0);
        for thread in last.threads.keys() {
            busiest = busiest.max(spent(thread));
            all += spent(thread);
        }
        let machine = last.machine.saturating_sub(first.machine).max(1);
        Some(Busy {
            thread: busiest as f64 / per_second / (last.at - first.at),
            machine: last.machine_busy.saturating_sub(first.machine_busy) as f64 / machine as f64,
            brokers: Duration::from_secs_f64(
                all as f64 / per_second * (ended - began) / (last.at - first.at),
            ),
        })
    }
}

fn look(processes: &[u32]) -> Option<Look> {
    let (machine_busy, machine) = machine_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
    let mut threads = BTreeMap::new();
    for process in processes {
        for entry in fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten() {
            // A thread may end between the listing and the look.
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let (Some(id), Some(ticks)) = (id, ticks(&stat)) {
                threads.insert((*process, id), ticks);
            }
        }
    }
    let at = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
    Some(Look { at, machine_busy, machine, threads })
}

/// `cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL ..`: busy, and all. Time that the host took is not idle.
fn machine_ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line.split_whitespace().take(8).filter_map(|field| field.parse().ok()).collect();
    let all: u64 = fields.iter().sum();
    Some((all - fields.get(3)? - fields.get(4)?, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn business_is_that_of_the_looks_within_the_phase() {
        let per_second = clock_ticks_per_second();
        let look = |second: u64, busy_threads: u64| Look {
            at: 1000.0 + second as f64,
            machine_busy: second * per_second,
            machine: second * 2 * per_second,
            threads: BTreeMap::from([((1, 1), busy_threads * per_second), ((1, 2), 7)]),
        };
        let looks = Looks(vec![look(0, 0), look(1, 0), look(2, 1), look(3, 2), look(4, 2)]);
        let busy = looks.between(1000.5, 1003.5).unwrap();
        assert!((busy.thread - 1.0).abs() < 1e-9 && (busy.machine - 0.5).abs() < 1e-9, "{busy:?}");
        assert_eq!(busy.brokers, Duration::from_secs(3), "two seconds of looks stand for three of the phase");
        assert!(busy.broker_bound());
        assert!(looks.between(1000.5, 1001.2).is_none(), "one look is no phase");
    }

    #[test]
    fn the_machine_is_busy_with_all_that_is_not_idle() {
        assert_eq!(machine_ticks("cpu  10 1 5 80 4 0 1 2 0 0\ncpu0 1"), Some((19, 103)));
        let ((), looks) = during(&[std::process::id()], || ());
        assert!(!looks.0.is_empty());
    }
}
