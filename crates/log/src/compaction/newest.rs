//! A bit for each dirty offset: the first pass sets it for the newest record of each key, so that the second pass needs
//! neither the hash of a key nor the map for these records.

/// The newest offsets of the keys of a range. It covers as many offsets as its memory allows; the map has the others.
#[derive(Debug)]
pub(crate) struct NewestOffsets {
    first: i64,
    end: i64,
    words: Vec<u64>,
}

impl NewestOffsets {
    /// Bits for the offsets from `first` to `end`, or for the first ones that fit into `bytes_max`.
    pub(crate) fn new(first: i64, end: i64, bytes_max: usize) -> Self {
        let most = bytes_max / size_of::<u64>();
        let wanted = u64::try_from(end.saturating_sub(first)).unwrap_or(0).div_ceil(64);
        let words = usize::try_from(wanted).unwrap_or(usize::MAX).min(most);
        let bits = i64::try_from(words).unwrap_or(i64::MAX).saturating_mul(64);
        // Pages of zeros cost no memory until a bit is set.
        Self { first, end: end.min(first.saturating_add(bits)), words: vec![0; words] }
    }

    /// Returns the memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.words.len() * size_of::<u64>()
    }

    /// Returns `true` if all offsets from `first` to `last` have bits.
    pub(crate) fn covers(&self, first: i64, last: i64) -> bool {
        first >= self.first && last < self.end
    }

    /// The record at `newest` replaces the one at `older` as the newest of its key.
    #[inline]
    pub(crate) fn replace(&mut self, older: Option<i64>, newest: i64) {
        if let Some((word, bit)) = older.and_then(|older| self.place(older)) {
            self.words[word] &= !bit;
        }
        if let Some((word, bit)) = self.place(newest) {
            self.words[word] |= bit;
        }
    }

    /// All records from `first` to `last` count as the newest of their keys.
    pub(crate) fn keep_all(&mut self, first: i64, last: i64) {
        for offset in first.max(self.first)..=last.min(self.end - 1) {
            self.replace(None, offset);
        }
    }

    /// Returns `true` if the record at a covered offset is the newest of its key.
    #[inline]
    pub(crate) fn has(&self, offset: i64) -> bool {
        self.place(offset).is_some_and(|(word, bit)| self.words[word] & bit != 0)
    }

    /// Returns `true` if a record at one of the covered offsets from `first` to `last` is the newest of its key.
    pub(crate) fn has_any(&self, first: i64, last: i64) -> bool {
        self.words_of(first, last).any(|word| word != 0)
    }

    /// Counts the covered offsets from `first` to `last` whose records are the newest of their keys.
    pub(crate) fn count(&self, first: i64, last: i64) -> u64 {
        self.words_of(first, last).map(|word| u64::from(word.count_ones())).sum()
    }

    /// The words of the covered offsets from `first` to `last`, without the bits of others.
    fn words_of(&self, first: i64, last: i64) -> impl Iterator<Item = u64> {
        let range = self.place(first).zip(self.place(last)).filter(|_| first <= last);
        range.into_iter().flat_map(move |((from, first_bit), (to, last_bit))| {
            let (below, above) = (first_bit - 1, last_bit | (last_bit - 1));
            self.words[from..=to].iter().enumerate().map(move |(at, word)| {
                let word = if at == 0 { word & !below } else { *word };
                if from + at == to { word & above } else { word }
            })
        })
    }

    /// The word and the bit of an offset, if it has one.
    #[inline]
    fn place(&self, offset: i64) -> Option<(usize, u64)> {
        (self.first..self.end).contains(&offset).then(|| {
            let at = (offset - self.first) as usize;
            (at / 64, 1 << (at % 64))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_record_takes_the_place_of_the_older_one() {
        let mut newest = NewestOffsets::new(1000, 1300, 1 << 10);
        newest.replace(None, 1000);
        newest.replace(None, 1299);
        newest.replace(Some(1000), 1100);
        newest.replace(Some(10), 1200);
        let set: Vec<i64> = (990..1310).filter(|offset| newest.has(*offset)).collect();
        assert_eq!(set, [1100, 1200, 1299]);
        assert_eq!((newest.count(1000, 1299), newest.count(1000, 1298), newest.count(1101, 1200)), (3, 2, 1));
    }

    #[test]
    fn a_range_has_a_newest_record_if_one_of_its_offsets_is_set() {
        for set in [0, 1, 62, 63, 64, 65, 127, 128, 200, 255, 299] {
            let mut newest = NewestOffsets::new(-7, 293, 1 << 10);
            newest.replace(None, set - 7);
            for first in -7..293 {
                for last in first..293 {
                    let has_any = (first..=last).contains(&(set - 7));
                    assert_eq!(newest.has_any(first, last), has_any, "{first} to {last}");
                    assert_eq!(newest.count(first, last), u64::from(has_any), "{first} to {last}");
                }
            }
        }
    }

    #[test]
    fn memory_limits_the_offsets_with_bits() {
        let newest = NewestOffsets::new(5, i64::MAX, 16);
        assert_eq!(newest.bytes(), 16);
        assert!(newest.covers(5, 5 + 127) && !newest.covers(5, 5 + 128) && !newest.covers(4, 5));
        let none = NewestOffsets::new(5, 1000, 0);
        assert!(!none.covers(5, 5) && !none.has(5) && !none.has_any(5, 900));
        assert_eq!(NewestOffsets::new(5, 3, 1 << 10).bytes(), 0);
    }
}
