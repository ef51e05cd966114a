//! Which leader epoch each offset was written under (KIP-101), in Kafka's `leader-epoch-checkpoint` file.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use crate::storage::{File, Open, Storage, read_file, replace_file};

/// Kafka's name for the file.
pub(crate) const FILE_NAME: &str = "leader-epoch-checkpoint";
const BYTES_MAX: u64 = 1 << 20;

/// Epochs with the first offset written under each; both rise.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Epochs {
    entries: Vec<(i32, i64)>,
}

impl Epochs {
    /// Notes that records from `offset` on are of `epoch`; returns whether that was news.
    #[inline]
    pub(crate) fn note(&mut self, epoch: i32, offset: i64) -> bool {
        if epoch < 0 || self.latest().is_some_and(|latest| latest >= epoch) {
            return false;
        }
        // Later ones of lower epochs are of records that a truncation removed.
        self.entries.retain(|(_, start)| *start < offset);
        self.entries.push((epoch, offset));
        true
    }

    /// Notes a batch that was missing when the epochs of those behind it were noted.
    pub(crate) fn note_restored(&mut self, epoch: i32, offset: i64) {
        let at = self.entries.partition_point(|(known, _)| *known < epoch);
        let follows = at.checked_sub(1).is_none_or(|before| self.entries[before].1 < offset);
        if epoch < 0 || !follows {
            return;
        }
        match self.entries.get_mut(at) {
            Some((known, start)) if *known == epoch => *start = offset.min(*start),
            Some((_, start)) if *start <= offset => {}
            Some(_) | None => self.entries.insert(at, (epoch, offset)),
        }
    }

    pub(crate) fn latest(&self) -> Option<i32> {
        self.entries.last().map(|(epoch, _)| *epoch)
    }

    /// The epoch `offset` was written under.
    pub(crate) fn of(&self, offset: i64) -> Option<i32> {
        let at = self.entries.partition_point(|(_, start)| *start <= offset);
        at.checked_sub(1).map(|at| self.entries[at].0)
    }

    /// The last epoch up to `epoch`, and the offset at which it ended: what `OffsetForLeaderEpoch` answers.
    pub(crate) fn end_of(&self, epoch: i32, log_end: i64) -> Option<(i32, i64)> {
        let latest = self.latest()?;
        if epoch > latest {
            return None;
        }
        if epoch == latest {
            return Some((epoch, log_end));
        }
        let at = self.entries.partition_point(|(known, _)| *known <= epoch);
        let end = self.entries[at].1;
        Some((at.checked_sub(1).map_or(epoch, |before| self.entries[before].0), end))
    }

    /// Forgets what starts at `end` or later.
    pub(crate) fn truncate(&mut self, end: i64) {
        self.entries.retain(|(_, start)| *start < end);
    }

    /// Notes that `epoch` was used although no record of it is left below `end`, where the log ends. The next leader begins above it:
    /// consumers may have read the lost records, and would take others of the same epoch for a continuation.
    pub(crate) fn note_used(&mut self, epoch: i32, end: i64) {
        if self.latest().is_none_or(|latest| latest < epoch) {
            self.entries.push((epoch, end));
        }
    }

    /// Forgets epochs that ended before `start`.
    pub(crate) fn forget_before(&mut self, start: i64) {
        let gone = self.entries.partition_point(|(_, offset)| *offset <= start).saturating_sub(1);
        self.entries.drain(..gone);
        if let Some(first) = self.entries.first_mut() {
            first.1 = first.1.max(start);
        }
    }

    /// Writes the file, which the caller has to sync.
    pub(crate) fn store(&self, storage: &dyn Storage, dir: &str) -> io::Result<Arc<dyn File>> {
        let text = self.encode();
        let file = storage.open(&format!("{dir}/{FILE_NAME}"), Open::Empty)?;
        file.write_at(text.as_bytes(), 0)?;
        Ok(file)
    }

    /// Replaces the file durably. After an error it is as before.
    pub(crate) fn replace(&self, storage: &dyn Storage, dir: &str) -> io::Result<()> {
        replace_file(storage, dir, FILE_NAME, self.encode().as_bytes())
    }

    fn encode(&self) -> String {
        let mut text = format!("0\n{}\n", self.entries.len());
        for (epoch, offset) in &self.entries {
            let _ = writeln!(text, "{epoch} {offset}");
        }
        text
    }

    /// Reads the file; `None` if there is none or it is damaged: the batches know their epochs as well.
    pub(crate) fn load(storage: &dyn Storage, dir: &str) -> Option<Self> {
        let bytes = read_file(storage, &format!("{dir}/{FILE_NAME}"), BYTES_MAX).ok()?;
        let text = std::str::from_utf8(&bytes).ok()?;
        let mut lines = text.lines();
        if lines.next()? != "0" {
            return None;
        }
        let count: usize = lines.next()?.parse().ok()?;
        let mut epochs = Self::default();
        for line in lines {
            let (epoch, offset) = line.split_once(' ')?;
            let (epoch, offset) = (epoch.parse().ok()?, offset.parse().ok()?);
            let rises = epochs.entries.last().is_none_or(|last| last.1 < offset);
            if !rises || !epochs.note(epoch, offset) {
                return None;
            }
        }
        (epochs.entries.len() == count && text.ends_with('\n')).then_some(epochs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::mem::MemStorage;

    #[test]
    fn an_epoch_ends_where_the_next_one_starts() {
        let mut epochs = Epochs::default();
        assert_eq!(epochs.end_of(0, 50), None);
        for (epoch, offset) in [(2, 0), (5, 20), (6, 30)] {
            assert!(epochs.note(epoch, offset));
        }
        assert!(!epochs.note(6, 40) && !epochs.note(-1, 40));
        let end = |epoch| epochs.end_of(epoch, 50);
        assert_eq!(end(1), Some((1, 0)));
        assert_eq!(end(2), Some((2, 20)));
        assert_eq!(end(4), Some((2, 20)));
        assert_eq!(end(5), Some((5, 30)));
        assert_eq!(end(6), Some((6, 50)));
        assert_eq!(end(7), None);
        assert_eq!((epochs.of(19), epochs.of(20), epochs.of(99)), (Some(2), Some(5), Some(6)));
        epochs.forget_before(25);
        assert_eq!(epochs.of(25), Some(5));
        epochs.truncate(30);
        assert_eq!(epochs.latest(), Some(5));
        // A stale entry of records that were cut off gives way to the batch that took their place.
        epochs.note(6, 40);
        assert!(epochs.note(8, 35));
        assert_eq!((epochs.of(40), epochs.end_of(5, 50)), (Some(8), Some((5, 35))));
    }

    #[test]
    fn an_epoch_begins_with_a_batch_that_is_restored() {
        let mut epochs = Epochs::default();
        for (epoch, offset) in [(2, 10), (5, 20), (6, 30)] {
            epochs.note(epoch, offset);
        }
        let known = epochs.clone();
        // Batches inside their epochs, and those that do not fit in.
        for (epoch, offset) in [(2, 15), (5, 20), (6, 40), (3, 20), (5, 10), (-1, 0)] {
            epochs.note_restored(epoch, offset);
            assert_eq!(epochs, known, "{epoch} at {offset}");
        }
        for (epoch, offset) in [(1, 5), (4, 15), (5, 18), (7, 35)] {
            epochs.note_restored(epoch, offset);
        }
        assert_eq!(epochs.entries, [(1, 5), (2, 10), (4, 15), (5, 18), (6, 30), (7, 35)]);
    }

    #[test]
    fn the_file_is_kafkas_and_damage_is_seen() {
        let disk = MemStorage::new();
        disk.create_dir("d").expect("created");
        let mut epochs = Epochs::default();
        epochs.note(0, 0);
        epochs.note(3, 17);
        epochs.store(&disk, "d").expect("stored");
        let path = "d/leader-epoch-checkpoint";
        assert_eq!(disk.contents(path).expect("there"), b"0\n2\n0 0\n3 17\n");
        assert_eq!(Epochs::load(&disk, "d"), Some(epochs));
        for bad in [&b"0\n2\n0 0\n3 1"[..], b"0\n3\n0 0\n3 17\n", b"1\n0\n", b"", b"0\n2\n3 0\n0 17\n"] {
            disk.set_contents(path, bad);
            assert_eq!(Epochs::load(&disk, "d"), None, "{bad:?}");
        }
    }
}
