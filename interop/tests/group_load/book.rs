//! Records the actions of a group's members and checks them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use super::load::Written;

/// Maximum wait of a committed record without a reported reason.
pub(crate) const PATIENCE_WITHOUT_A_WORD: Duration = Duration::from_secs(4);

/// A reported reason for waiting records.
#[derive(Debug)]
struct Note {
    at: Instant,
    /// The partition, or `None` for all.
    partition: Option<usize>,
    what: String,
}

/// The records of one group.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) name: String,
    /// The owner of a partition in a generation.
    owners: BTreeMap<(i32, usize), usize>,
    /// The time at which each record was first handled.
    seen: Vec<BTreeMap<u64, Instant>>,
    handled: usize,
    /// The offsets that one member received of one partition during one assignment.
    runs: Vec<Run>,
    notes: Vec<Note>,
    pub(crate) broken: Vec<String>,
}

#[derive(Debug)]
struct Run {
    member: usize,
    partition: usize,
    numbers: Vec<u64>,
}

/// The figures of one group.
pub(crate) struct Figures {
    pub(crate) handled: usize,
    pub(crate) generations: usize,
    /// The number of long waits with a reason.
    pub(crate) stalls: usize,
    /// The longest of them, with its reason.
    pub(crate) longest: (Duration, String),
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { handled, generations, stalls, longest: (longest, reason) } = self;
        write!(
            f,
            "{handled} handled, {generations} generations, {stalls} waits of {PATIENCE_WITHOUT_A_WORD:?} or more, the longest {longest:.1?} ({reason})"
        )
    }
}

impl Book {
    pub(crate) fn new(name: &str, partitions: usize) -> Self {
        Self { name: name.to_owned(), seen: vec![BTreeMap::new(); partitions], ..Self::default() }
    }

    /// Starts a new run of a partition: its records must be in order from here.
    pub(crate) fn begins(&mut self, member: usize, partition: usize) {
        self.runs.push(Run { member, partition, numbers: Vec::new() });
    }

    /// Records the owner of these partitions in this generation.
    pub(crate) fn owns(&mut self, member: usize, generation: i32, partitions: &[usize]) {
        for &partition in partitions {
            let owner = *self.owners.entry((generation, partition)).or_insert(member);
            if owner != member {
                self.broken.push(format!(
                    "partition {partition} is owned by members {owner} and {member} in generation {generation}"
                ));
            }
        }
    }

    pub(crate) fn handles(&mut self, member: usize, partition: usize, number: u64) {
        self.handled += 1;
        self.seen[partition].entry(number).or_insert_with(Instant::now);
        let run = self.runs.iter_mut().rev().find(|run| run.member == member && run.partition == partition);
        match run {
            Some(run) => run.numbers.push(number),
            None => {
                self.broken
                    .push(format!("member {member} got records of partition {partition}, not its own"));
            }
        }
    }

    pub(crate) fn note(&mut self, partition: Option<usize>, what: String) {
        self.notes.push(Note { at: Instant::now(), partition, what });
    }

    pub(crate) fn partitions(&self) -> usize {
        self.seen.len()
    }

    /// The number of different handled records.
    pub(crate) fn count(&self) -> usize {
        self.seen.iter().map(BTreeMap::len).sum()
    }

    /// The last events that the members received.
    pub(crate) fn last_notes(&self, count: usize) -> Vec<String> {
        let line = |note: &Note| format!("{:.1?} ago: {}", note.at.elapsed(), note.what);
        self.notes.iter().rev().take(count).rev().map(line).collect()
    }

    /// Committed records that were not handled.
    pub(crate) fn missing(&self, written: &Written) -> Vec<(usize, u64)> {
        let of = |(partition, numbers): (usize, &Vec<(u64, Instant)>)| {
            let seen = &self.seen[partition];
            let missing = numbers.iter().filter(|(number, _)| !seen.contains_key(number));
            missing.map(|(number, _)| (partition, *number)).collect::<Vec<_>>()
        };
        written.committed.iter().enumerate().flat_map(of).collect()
    }

    /// Compares the records with the producer's.
    pub(crate) fn check(&mut self, written: &Written) -> Figures {
        for (partition, number) in self.missing(written) {
            self.broken.push(format!("partition {partition}: {number} is lost"));
        }
        let mut figures =
            Figures { handled: self.handled, generations: 0, stalls: 0, longest: Default::default() };
        figures.generations =
            self.owners.keys().map(|(generation, _)| *generation).collect::<BTreeSet<_>>().len();
        for (partition, numbers) in written.committed.iter().enumerate() {
            let order: BTreeMap<u64, usize> =
                numbers.iter().enumerate().map(|(at, (number, _))| (*number, at)).collect();
            self.check_runs(partition, numbers, &order);
            self.check_waits(partition, numbers, &mut figures);
        }
        figures
    }

    /// Each run must be a contiguous part of the committed records.
    fn check_runs(&mut self, partition: usize, numbers: &[(u64, Instant)], order: &BTreeMap<u64, usize>) {
        for run in self.runs.iter().filter(|run| run.partition == partition) {
            let mut expected: Option<usize> = None;
            for number in &run.numbers {
                let member = run.member;
                let Some(at) = order.get(number) else {
                    self.broken
                        .push(format!("partition {partition}: {number} was aborted, member {member} got it"));
                    continue;
                };
                if let Some(expected) = expected.filter(|expected| expected != at) {
                    let missed = numbers.get(expected).map(|(number, _)| *number);
                    self.broken.push(format!(
                        "partition {partition}: member {member} got {number} where {missed:?} comes next"
                    ));
                }
                expected = Some(at + 1);
            }
        }
    }

    /// A record that waits for long after the previous one is handled must have a reported reason.
    fn check_waits(&mut self, partition: usize, numbers: &[(u64, Instant)], figures: &mut Figures) {
        let mut before: Option<Instant> = None;
        for (number, committed) in numbers {
            let Some(seen) = self.seen[partition].get(number) else { continue };
            let since = before.map_or(*committed, |before| before.max(*committed));
            let waited = seen.saturating_duration_since(since);
            before = Some(before.map_or(*seen, |before| before.max(*seen)));
            if waited < PATIENCE_WITHOUT_A_WORD {
                continue;
            }
            let explains = |note: &&Note| {
                note.partition.is_none_or(|of| of == partition) && since <= note.at && note.at <= *seen
            };
            match self.notes.iter().find(explains) {
                Some(note) => {
                    figures.stalls += 1;
                    if waited > figures.longest.0 {
                        figures.longest = (waited, note.what.clone());
                    }
                }
                None => self.broken.push(format!(
                    "partition {partition}: {number} waited {waited:?} without a reported reason"
                )),
            }
        }
    }
}
