//! Damaged or missing ranges of a segment.

use crate::segment_name::{LOG_SUFFIX, file_name};

/// Damaged bytes with sound batches behind them. They stay where they are, and reads of them fail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BadRange {
    /// Base offset of the segment, which names its file.
    pub segment: i64,
    /// The position in the file at which the damage starts.
    pub position: u64,
    /// The number of damaged bytes; 0 when they are missing.
    pub bytes: u64,
    /// The first offset that cannot be read.
    pub offset: i64,
    /// The first offset after it that can be read.
    pub next_offset: i64,
    /// `true` if readers skip the range instead of failing, because `ottla log skip` accepted its loss.
    pub skipped: bool,
}

/// The position of a range that has no place in a file.
const NOWHERE: u64 = u64::MAX;

impl std::fmt::Display for BadRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { segment, position, bytes, offset, next_offset, .. } = *self;
        write!(f, "offsets {offset} to {}", next_offset - 1)?;
        if self.is_accepted_gap() {
            return Ok(());
        }
        write!(f, " ({bytes} bytes at position {position} of {})", file_name(segment, LOG_SUFFIX))
    }
}

impl BadRange {
    /// Offsets that are gone and whose loss was accepted: readers continue behind them.
    pub(crate) fn accepted_gap(segment: i64, offset: i64, next_offset: i64) -> Self {
        Self { segment, position: NOWHERE, bytes: 0, offset, next_offset, skipped: true }
    }

    pub(crate) fn is_accepted_gap(&self) -> bool {
        self.position == NOWHERE
    }
}
