//! The offsets up to which partitions were compacted, in Kafka's file `cleaner-offset-checkpoint`.
//!
//! ```text
//! 0                       the version
//! 2                       the number of lines that follow
//! orders 0 1200           topic, partition, first offset that was not cleaned
//! orders 1 900
//! ```
//!
//! A point that is lost costs time: the next compaction cleans the log from its start. A point is stored after the
//! segments below it were replaced durably, so that no point is ahead of its log.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ottla_log::storage::{Storage, read_file, replace_file};

/// Kafka's name for the file.
pub(crate) const FILE_NAME: &str = "cleaner-offset-checkpoint";
const VERSION: &str = "0";
/// A line has at most 280 bytes: the points of 200,000 partitions.
const BYTES_MAX: u64 = 64 << 20;

pub(crate) type Points = BTreeMap<(String, i32), i64>;

/// The cleaner points of all partitions.
#[derive(Debug)]
pub(crate) struct CleanerPoints {
    storage: Arc<dyn Storage>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    points: Points,
    /// `true` while the file may have other points: those of deleted topics too.
    is_dirty: bool,
}

impl CleanerPoints {
    /// Reads the file. Without a sound one there are no points.
    pub(crate) fn load(storage: Arc<dyn Storage>) -> Self {
        let read = match read_file(&*storage, FILE_NAME, BYTES_MAX) {
            Ok(bytes) => {
                let points = decode(&bytes);
                if points.is_none() {
                    tracing::warn!("{FILE_NAME} is damaged: compacted topics are cleaned from their start");
                }
                points
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Points::new()),
            Err(error) => {
                tracing::warn!(%error, "cannot read {FILE_NAME}: compacted topics are cleaned from their start");
                None
            }
        };
        let is_dirty = read.is_none();
        Self { storage, state: Mutex::new(State { points: read.unwrap_or_default(), is_dirty }) }
    }

    /// Returns the first offset of a partition that was not cleaned; 0 if no point is known.
    pub(crate) fn of(&self, topic: &str, partition: i32) -> i64 {
        self.lock().points.get(&(topic.to_owned(), partition)).copied().unwrap_or(0)
    }

    /// Stores the point of a partition durably.
    pub(crate) fn set(&self, topic: &str, partition: i32, offset: i64) -> io::Result<()> {
        let mut state = self.lock();
        state.points.insert((topic.to_owned(), partition), offset);
        self.store(&mut state)
    }

    /// Forgets the points of topics that are deleted, durably: a topic of the same name begins without a point.
    pub(crate) fn retain(&self, exists: impl Fn(&str, i32) -> bool) -> io::Result<()> {
        let mut state = self.lock();
        let before = state.points.len();
        state.points.retain(|(topic, partition), _| exists(topic, *partition));
        if state.points.len() == before && !state.is_dirty { Ok(()) } else { self.store(&mut state) }
    }

    /// Stores the points again if that has failed before. A topic must not be created without it: after a restart it would have the
    /// point of a deleted topic of its name. Records below a point count as compacted, so that old values of keys would stay.
    pub(crate) fn store_if_dirty(&self) -> io::Result<()> {
        let mut state = self.lock();
        if state.is_dirty { self.store(&mut state) } else { Ok(()) }
    }

    fn store(&self, state: &mut State) -> io::Result<()> {
        state.is_dirty = true;
        replace_file(&*self.storage, "", FILE_NAME, encode(&state.points).as_bytes())?;
        state.is_dirty = false;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn encode(points: &Points) -> String {
    let mut text = format!("{VERSION}\n{}\n", points.len());
    for ((topic, partition), offset) in points {
        let _ = writeln!(text, "{topic} {partition} {offset}");
    }
    text
}

/// `None` if the bytes are not a whole file.
pub(crate) fn decode(bytes: &[u8]) -> Option<Points> {
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let mut lines = text.split('\n');
    if lines.next()? != VERSION {
        return None;
    }
    let count: usize = lines.next()?.parse().ok()?;
    let mut points = Points::new();
    for line in lines {
        let mut parts = line.split(' ');
        let (topic, partition, offset) = (parts.next()?, parts.next()?, parts.next()?);
        let (partition, offset): (i32, i64) = (partition.parse().ok()?, offset.parse().ok()?);
        if parts.next().is_some() || partition < 0 || offset < 0 {
            return None;
        }
        points.insert((topic.to_owned(), partition), offset);
    }
    (points.len() == count).then_some(points)
}

#[cfg(test)]
mod tests {
    use ottla_log::storage::mem::{Fault, MemStorage};

    use super::*;

    fn load(disk: &MemStorage) -> CleanerPoints {
        CleanerPoints::load(Arc::new(disk.clone()))
    }

    #[test]
    fn the_file_is_kafkas_and_survives_a_power_cut() {
        let disk = MemStorage::forgetful();
        let points = load(&disk);
        assert_eq!(points.of("orders", 0), 0);
        points.set("orders", 1, 900).expect("stored");
        points.set("orders", 0, 1200).expect("stored");
        assert_eq!(disk.contents(FILE_NAME).expect("there"), b"0\n2\norders 0 1200\norders 1 900\n");
        disk.crash(&mut fastrand::Rng::with_seed(1));
        let points = load(&disk);
        assert_eq!((points.of("orders", 0), points.of("orders", 1)), (1200, 900));
        points.retain(|_, partition| partition == 1).expect("stored");
        assert_eq!((load(&disk).of("orders", 0), load(&disk).of("orders", 1)), (0, 900));
    }

    /// The point was gone from memory only: the next `retain` had nothing to store, and a new topic got it after a restart.
    #[test]
    fn points_of_deleted_topics_are_removed_after_a_failure() {
        for again in [|points: &CleanerPoints| points.retain(|_, _| true), CleanerPoints::store_if_dirty] {
            let disk = MemStorage::new();
            let points = load(&disk);
            points.set("orders", 0, 1200).expect("stored");
            disk.fail_nth(0, Fault::NoSpace, true);
            points.retain(|_, _| false).expect_err("the disk is full");
            again(&points).expect_err("it still is");
            disk.heal();
            assert_eq!(load(&disk).of("orders", 0), 1200);
            again(&points).expect("stored");
            assert_eq!(load(&disk).of("orders", 0), 0);
            let before = disk.ops();
            again(&points).expect("nothing to store");
            assert_eq!(disk.ops(), before);
        }
    }

    #[test]
    fn a_damaged_file_has_no_points() {
        let disk = MemStorage::new();
        let good = "0\n2\na 0 5\nb 0 7\n";
        disk.set_contents(FILE_NAME, good.as_bytes());
        assert_eq!(load(&disk).of("b", 0), 7);
        for end in 0..good.len() {
            disk.set_contents(FILE_NAME, &good.as_bytes()[..end]);
            assert_eq!(load(&disk).of("a", 0), 0, "{end} bytes");
        }
        for bad in
            ["1\n1\na 0 5\n", "0\n1\na 0 -5\n", "0\n1\na 0 5 6\n", "0\n1\na x 5\n", "0\n2\na 0 5\na 0 6\n"]
        {
            disk.set_contents(FILE_NAME, bad.as_bytes());
            assert_eq!(load(&disk).of("a", 0), 0, "{bad:?}");
        }
    }
}
