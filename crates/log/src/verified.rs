//! The parts of a file whose batches were checked.

use std::sync::{Mutex, PoisonError};

/// Ranges of one segment that are remembered: readers go on where they are, so that there are few.
const RANGES_MAX: usize = 1024;

/// The parts of a segment's file whose batches were checked since the log was opened.
#[derive(Debug)]
pub(crate) struct Verified {
    /// Bytes from here on were written by this process.
    written_from: u64,
    /// Sorted, and apart from each other.
    ranges: Mutex<Vec<(u64, u64)>>,
}

impl Verified {
    /// Nothing of the first `size` bytes is checked.
    pub(crate) fn nothing_of(size: u64) -> Self {
        Self { written_from: size, ranges: Mutex::default() }
    }

    /// Returns whether all these bytes are checked.
    pub(crate) fn covers(&self, from: u64, to: u64) -> bool {
        let to = to.min(self.written_from);
        if from >= to {
            return true;
        }
        let ranges = self.lock();
        let after = ranges.partition_point(|range| range.0 <= from);
        after > 0 && to <= ranges[after - 1].1
    }

    pub(crate) fn add(&self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let mut ranges = self.lock();
        let mut merged = (from, to);
        ranges.retain(|range| {
            let apart = range.1 < merged.0 || merged.1 < range.0;
            if !apart {
                merged = (merged.0.min(range.0), merged.1.max(range.1));
            }
            apart
        });
        let at = ranges.partition_point(|range| range.0 < merged.0);
        ranges.insert(at, merged);
        if ranges.len() > RANGES_MAX {
            // Checked once more when it is read again.
            let shortest = ranges.iter().enumerate().min_by_key(|(_, range)| range.1 - range.0);
            if let Some(at) = shortest.map(|(at, _)| at) {
                ranges.remove(at);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(u64, u64)>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A batch that is not what was written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Unsound {
    /// Its position in the file.
    pub(crate) position: u64,
    /// The offset that it should begin with.
    pub(crate) expected: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checked_ranges_grow_together() {
        let verified = Verified::nothing_of(100);
        assert!(!verified.covers(0, 10) && verified.covers(100, 500));
        verified.add(10, 20);
        verified.add(40, 60);
        assert!(verified.covers(10, 20) && !verified.covers(10, 21) && !verified.covers(9, 12));
        verified.add(20, 40);
        assert!(verified.covers(10, 60));
        verified.add(0, 5);
        verified.add(60, 100);
        assert!(verified.covers(10, 4000) && !verified.covers(3, 12));
        verified.add(0, 100);
        assert!(verified.covers(0, u64::MAX));
    }
}
