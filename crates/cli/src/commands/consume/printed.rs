//! The printed records of a batch: only those that the output has accepted are processed.

/// The end of each printed record in the output, and the position after it in the batch.
#[derive(Debug, Default)]
pub(super) struct Printed {
    ends: Vec<(u64, i64)>,
}

impl Printed {
    /// Remembers that the output has the bytes of the records before `next` up to this position. A record that a filter
    /// omits adds no bytes.
    pub(super) fn push(&mut self, output_position: u64, next: i64) {
        match self.ends.last_mut() {
            Some(last) if last.0 == output_position => last.1 = next,
            _ => self.ends.push((output_position, next)),
        }
    }

    /// Returns the position after the last record of which the output has accepted all bytes.
    pub(super) fn next(&self, accepted: u64) -> Option<i64> {
        let count = self.ends.partition_point(|(end, _)| *end <= accepted);
        self.ends.get(..count)?.last().map(|(_, next)| *next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_after_its_last_byte() {
        let mut printed = Printed::default();
        assert_eq!(printed.next(100), None);
        // The records 10, 11 and 13 have ten bytes each; filters omit 12 and 14.
        for (end, next) in [(10, 11), (20, 12), (20, 13), (30, 14), (30, 15)] {
            printed.push(end, next);
        }
        for (accepted, next) in [
            (0, None),
            (9, None),
            (10, Some(11)),
            (19, Some(11)),
            (20, Some(13)),
            (29, Some(13)),
            (30, Some(15)),
        ] {
            assert_eq!(printed.next(accepted), next, "{accepted}");
        }
    }
}
