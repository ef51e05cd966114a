//! What the members of one group did, and whether that is what they may do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use super::load::Written;

/// So long a committed record may wait for no reason that anybody was told of.
pub(crate) const PATIENCE_WITHOUT_A_WORD: Duration = Duration::from_secs(4);

/// Something that explains why records waited.
#[derive(Debug)]
struct Note {
    at: Instant,
    /// Of one partition, or of all.
    partition: Option<usize>,
    what: String,
}

/// The book of one group.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) name: String,
    /// Who owned a partition in a generation.
    owners: BTreeMap<(i32, usize), usize>,
    /// When each record was first handled.
    seen: Vec<BTreeMap<u64, Instant>>,
    handled: usize,
    /// What one member got of one partition between its assignment and its loss.
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
    /// How often a record waited for long, with a reason.
    pub(crate) stalls: usize,
    /// The longest of them, and its reason.
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

    /// A member was given a partition: what it gets from now on is in order.
    pub(crate) fn begins(&mut self, member: usize, partition: usize) {
        self.runs.push(Run { member, partition, numbers: Vec::new() });
    }

    /// A member owns these partitions in this generation.
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

    /// How many different records were handled.
    pub(crate) fn count(&self) -> usize {
        self.seen.iter().map(BTreeMap::len).sum()
    }

    /// The last things that the members were told.
    pub(crate) fn last_notes(&self, count: usize) -> Vec<String> {
        let line = |note: &Note| format!("{:.1?} ago: {}", note.at.elapsed(), note.what);
        self.notes.iter().rev().take(count).rev().map(line).collect()
    }

    /// What was committed and not handled.
    pub(crate) fn missing(&self, written: &Written) -> Vec<(usize, u64)> {
        let of = |(partition, numbers): (usize, &Vec<(u64, Instant)>)| {
            let seen = &self.seen[partition];
            let missing = numbers.iter().filter(|(number, _)| !seen.contains_key(number));
            missing.map(|(number, _)| (partition, *number)).collect::<Vec<_>>()
        };
        written.committed.iter().enumerate().flat_map(of).collect()
    }

    /// Compares with what was written.
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

    /// Each run is a piece of what was committed, without a gap and nothing in between.
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

    /// A record that waits long, although the one before it is through, does so for a reason that was said.
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
                None => self
                    .broken
                    .push(format!("partition {partition}: {number} waited {waited:?} and nobody said why")),
            }
        }
    }
}
