//! The error codes of a message, counted while it is encoded.

use crate::error_code::ErrorCode;

/// Different codes that are counted by themselves. A response rarely has more than two.
const CODES_MAX: usize = 4;

/// The error codes of a message other than [`ErrorCode::None`], with the number of their occurrences.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ErrorTally {
    /// The first entries are in use: those with a count.
    codes: [(ErrorCode, u32); CODES_MAX],
    others: u32,
}

impl Default for ErrorTally {
    fn default() -> Self {
        Self { codes: [(ErrorCode::None, 0); CODES_MAX], others: 0 }
    }
}

impl ErrorTally {
    /// Counts a code.
    #[cold]
    pub(crate) fn add(&mut self, code: ErrorCode) {
        let entry = self.codes.iter_mut().find(|(known, count)| *known == code || *count == 0);
        match entry {
            Some((known, count)) => (*known, *count) = (code, count.saturating_add(1)),
            None => self.others = self.others.saturating_add(1),
        }
    }

    /// Returns `true` without any error code.
    pub const fn is_empty(&self) -> bool {
        self.codes[0].1 == 0
    }

    /// The codes in the order of their first occurrences, with their counts. Codes after the fourth are counted
    /// together, as [`ErrorCode::UnknownServerError`].
    pub fn iter(&self) -> impl Iterator<Item = (ErrorCode, u32)> {
        let others = (ErrorCode::UnknownServerError, self.others);
        self.codes.into_iter().chain([others]).filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fifth_code_is_counted_with_all_later_ones() {
        let mut tally = ErrorTally::default();
        assert!(tally.is_empty());
        for code in [3, 6, 3, 1, 7, 25, 3, 16] {
            tally.add(ErrorCode::from_i16(code));
        }
        let counted: Vec<(i16, u32)> = tally.iter().map(|(code, count)| (code.code(), count)).collect();
        assert_eq!(counted, [(3, 3), (6, 1), (1, 1), (7, 1), (-1, 2)]);
    }
}
