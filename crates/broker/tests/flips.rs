//! Every file of a data directory, with a flipped bit, cut short, or removed: the broker refuses to start and names the
//! file, or it serves exactly what was acknowledged, or it answers `KAFKA_STORAGE_ERROR` for the damaged partition.
//!
//! `OTTLA_FLIP_STRIDE=1` flips a bit in every byte: `cargo xtask soak flips`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ottla_protocol::ErrorCode;

use crate::common::world::{
    PRODUCED, Served, View, connect, copy, files, fill, last_batch_of, produce, start, view,
};

/// The number of bytes between two flipped bits; `OTTLA_FLIP_STRIDE` overrides it.
const STRIDE: usize = 53;

/// The outcome of one damaged file.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Outcome {
    Refused,
    Exact,
    Reported,
}

struct Trial<'a> {
    /// The directory as it was.
    sound: &'a Path,
    scratch: &'a Path,
    expected: &'a View,
    producer: (i64, i16),
}

impl Trial<'_> {
    /// Damages one file in a copy, starts a broker on it, and looks.
    fn run(&self, file: &str, what: &str, damage: impl FnOnce(&Path)) -> Outcome {
        let dir = self.scratch.join("trial");
        let _ = fs::remove_dir_all(&dir);
        copy(self.sound, &dir);
        damage(&dir.join(file));
        let context = format!("{file}: {what}");
        let broker = match start(&dir) {
            Ok(broker) => broker,
            Err(error) => {
                let text = error.to_string();
                let names = file.split('/').all(|part| text.contains(part));
                assert!(names, "{context}: refused without naming the file: {text}");
                return Outcome::Refused;
            }
        };
        let mut connection = connect(&broker);
        let found = view(&mut connection);
        let outcome = self.judge(file, &context, &found);
        let (name, index) = PRODUCED;
        let place = (name.to_owned(), index);
        if found.partitions[&place] == self.expected.partitions[&place] {
            let (again, offset) = last_batch_of(self.producer);
            let answer = produce(&mut connection, name, index, &again);
            assert_eq!(answer, (ErrorCode::None, offset), "{context}: a retry was not recognised");
        }
        broker.stop();
        outcome
    }

    fn judge(&self, file: &str, context: &str, found: &View) -> Outcome {
        assert_eq!(found.topics, self.expected.topics, "{context}: topics");
        let mut outcome = Outcome::Exact;
        if found.committed.is_empty() {
            assert!(file.starts_with("__consumer_offsets-"), "{context}: the group is not served");
            outcome = Outcome::Reported;
        } else {
            assert_eq!(found.committed, self.expected.committed, "{context}: committed offsets");
        }
        for (place, expected) in &self.expected.partitions {
            let served = &found.partitions[place];
            if served == expected {
                continue;
            }
            let dir = format!("{}-{}/", place.0, place.1);
            assert!(
                file.starts_with(&dir),
                "{context}: the sound partition {place:?} differs: {}",
                brief(served)
            );
            let Served::All { records: all, .. } = expected else { panic!("the story begins sound") };
            let prefix = |records: &[(i64, Vec<u8>)]| all.starts_with(records);
            outcome = match served {
                Served::Offline => Outcome::Reported,
                Served::Damaged { records, .. } if prefix(records) => Outcome::Reported,
                other => panic!("{context}: {place:?} serves {}", brief(other)),
            };
        }
        outcome
    }
}

/// Without the values.
fn brief(served: &Served) -> String {
    format!("{served:?}").chars().take(200).collect()
}

fn stride() -> usize {
    std::env::var("OTTLA_FLIP_STRIDE").map_or(STRIDE, |stride| stride.parse().expect("a stride")).max(1)
}

/// Runs all trials on one directory and prints the number of each outcome.
fn every_damage(sound: &Path, scratch: &Path, producer: (i64, i16), name: &str) {
    let expected = {
        let dir = scratch.join("reference");
        copy(sound, &dir);
        let broker = start(&dir).expect("a sound directory");
        let expected = view(&mut connect(&broker));
        broker.stop();
        expected
    };
    assert!(
        expected
            .partitions
            .values()
            .all(|served| matches!(served, Served::All { records, .. } if records.len() > 15))
    );
    assert!(
        expected.committed.values().all(|(offset, note)| *offset >= 0 && note.as_deref() == Some("note 2"))
    );
    let trial = Trial { sound, scratch, expected: &expected, producer };
    let mut flips: BTreeMap<Outcome, u32> = BTreeMap::new();
    let mut cuts: BTreeMap<Outcome, u32> = BTreeMap::new();
    let stride = stride();
    // Positions of all files in one row, so that a stride meets small files as well.
    let mut at = stride / 2;
    for file in files(sound) {
        let len = fs::metadata(sound.join(&file)).expect("there").len() as usize;
        while at < len {
            let outcome = trial.run(&file, &format!("bit {} of byte {at} flipped", at % 8), |path| {
                let mut bytes = fs::read(path).expect("there");
                bytes[at] ^= 1 << (at % 8);
                fs::write(path, bytes).expect("written");
            });
            *flips.entry(outcome).or_default() += 1;
            at += stride;
        }
        at -= len;
        if len > 0 {
            for less in [1, 7, len / 2] {
                let outcome = trial.run(&file, &format!("cut by {less} of {len}"), |path| {
                    let file = fs::OpenOptions::new().write(true).open(path).expect("there");
                    file.set_len(len.saturating_sub(less) as u64).expect("cut");
                });
                *cuts.entry(outcome).or_default() += 1;
            }
        }
        let outcome = trial.run(&file, "removed", |path| fs::remove_file(path).expect("removed"));
        *cuts.entry(outcome).or_default() += 1;
    }
    println!("{name}: flips {flips:?}, cuts and removals {cuts:?}");
}

#[test]
fn no_damaged_file_makes_acknowledged_data_disappear_silently() {
    // Thousands of starts: a file system in memory has real files as well.
    let tmp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let tmp = tmp.expect("a scratch directory");
    let (clean, killed) = (tmp.path().join("clean"), tmp.path().join("killed"));
    let producer = fill(&clean, &killed);
    every_damage(&clean, &tmp.path().join("a"), producer, "after a clean stop");
    every_damage(&killed, &tmp.path().join("b"), producer, "after a kill");
}
