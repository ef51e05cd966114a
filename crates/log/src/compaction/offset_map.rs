//! The newest offset of each key in the dirty part of a log, in bounded memory.

use super::key_hash::{KeyHash, KeyHasher};

/// Bytes of an entry: the 16 bytes of the hash, and the offset.
pub(crate) const ENTRY_BYTES: usize = 24;
/// The map is full when four fifths of its entries are used: a key that is not in it then costs 13 probes of neighbours.
const LOAD: (usize, usize) = (4, 5);
/// Entries of a map before it grows: it is in the cache of the processor while there are few keys.
const ENTRIES_FIRST: usize = 1 << 16;
/// The size of the smallest map. A pass makes progress with any size; this one fits into a page.
const ENTRIES_MIN: usize = 128;

/// Offsets by key. A key is its hash: see [`KeyHash`].
#[derive(Debug)]
pub(crate) struct OffsetMap {
    /// Two words of the hash, and the offset plus 1; an empty entry is all zeros, which costs no memory until it is used.
    entries: Vec<[u64; 3]>,
    used: usize,
    used_max: usize,
    /// The map doubles up to this size.
    entries_max: usize,
    hasher: KeyHasher,
}

impl OffsetMap {
    /// Returns a map for `keys` keys, or for as many as fit into `bytes_max`.
    pub(crate) fn new(keys: u64, bytes_max: usize, hasher: KeyHasher) -> Self {
        let most = (bytes_max / ENTRY_BYTES).max(ENTRIES_MIN);
        let wanted =
            usize::try_from(keys).unwrap_or(usize::MAX).saturating_add(1).saturating_mul(LOAD.1) / LOAD.0;
        let entries_max = wanted.clamp(ENTRIES_MIN, most);
        // A map that doubles has its old entries beside the new ones. One that may need all of the memory has it at once.
        let grows = entries_max <= most / 3 * 2;
        let mut entries = entries_max;
        // Halves of the largest size, so that the last doubling has half as many old entries as new ones.
        while grows && entries > ENTRIES_FIRST {
            entries = entries.div_ceil(2);
        }
        Self { entries: vec![[0; 3]; entries], used: 0, used_max: used_max(entries), entries_max, hasher }
    }

    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// Returns the memory of the map in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.len() * ENTRY_BYTES
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash(key)
    }

    /// Reads the entries of keys that are used next: the processor waits for all of them together. An entry can lie on two
    /// lines of its cache.
    #[inline]
    pub(crate) fn touch(&self, keys: impl Iterator<Item = KeyHash>) {
        let words = keys.map(|key| {
            let [first, _, last] = self.entries[self.home(key)];
            first ^ last
        });
        std::hint::black_box(words.fold(0, |sum, word| sum ^ word));
    }

    /// Stores the offset of a key, which is higher than earlier ones. Returns the earlier one; `None` if the key is new and
    /// the map is full.
    #[inline]
    #[expect(
        clippy::option_option,
        reason = "the outer Option is the room, the inner one the earlier offset"
    )]
    pub(crate) fn put(&mut self, key: KeyHash, offset: i64) -> Option<Option<i64>> {
        let mut at = self.find(key);
        if self.entries[at][2] == 0 {
            if self.used == self.used_max {
                if self.entries.len() == self.entries_max {
                    return None;
                }
                self.grow();
                at = self.find(key);
            }
            self.used += 1;
        }
        let older = std::mem::replace(&mut self.entries[at], [key.0[0], key.0[1], offset as u64 + 1]);
        Some(offset_of(older))
    }

    #[cold]
    fn grow(&mut self) {
        let entries = (self.entries.len() * 2).min(self.entries_max);
        let old = std::mem::replace(&mut self.entries, vec![[0; 3]; entries]);
        self.used_max = used_max(entries);
        // In the order of their hashes, so that the new entries are written nearly one after the other.
        for entry in old.into_iter().filter(|entry| entry[2] != 0) {
            let at = self.find(KeyHash([entry[0], entry[1]]));
            self.entries[at] = entry;
        }
    }

    /// Returns the newest offset of a key.
    #[inline]
    pub(crate) fn get(&self, key: KeyHash) -> Option<i64> {
        offset_of(self.entries[self.find(key)])
    }

    /// Returns the entry where the search for a key begins.
    #[inline]
    fn home(&self, key: KeyHash) -> usize {
        ((u128::from(key.0[0]) * self.entries.len() as u128) >> 64) as usize
    }

    /// Returns the entry of a key, or the empty one where it belongs. There is always an empty one.
    #[inline]
    fn find(&self, key: KeyHash) -> usize {
        let count = self.entries.len();
        let mut at = self.home(key);
        loop {
            let entry = &self.entries[at];
            if entry[2] == 0 || [entry[0], entry[1]] == key.0 {
                return at;
            }
            at += 1;
            if at == count {
                at = 0;
            }
        }
    }
}

/// The offset of an entry; `None` if it is empty.
#[inline]
fn offset_of(entry: [u64; 3]) -> Option<i64> {
    (entry[2] != 0).then(|| entry[2] as i64 - 1)
}

fn used_max(entries: usize) -> usize {
    entries / LOAD.1 * LOAD.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(keys: u64, bytes_max: usize) -> OffsetMap {
        OffsetMap::new(keys, bytes_max, KeyHasher::new([7, 9]))
    }

    #[test]
    fn the_newest_offset_of_each_key_is_found() {
        let mut map = map(10_000, 1 << 30);
        for offset in 0..30_000_i64 {
            let key = map.hash(&(offset % 10_000).to_be_bytes());
            assert!(map.put(key, offset).is_some());
        }
        assert_eq!(map.len(), 10_000);
        for n in 0..10_000_i64 {
            assert_eq!(map.get(map.hash(&n.to_be_bytes())), Some(20_000 + n));
        }
        assert_eq!(map.get(map.hash(b"another")), None);
        assert_eq!(map.get(map.hash(b"")), None);
    }

    #[test]
    fn the_offset_0_is_an_offset() {
        let mut map = map(1, 0);
        let key = map.hash(b"k");
        assert!(map.put(key, 0).is_some());
        assert_eq!(map.get(key), Some(0));
    }

    #[test]
    fn the_memory_is_bounded_and_a_full_map_takes_known_keys_only() {
        let mut map = map(u64::MAX, 10_000 * ENTRY_BYTES);
        assert!(map.bytes() <= 10_000 * ENTRY_BYTES);
        let mut added = 0;
        while map.put(map.hash(&(added as u64).to_be_bytes()), 1).is_some() {
            added += 1;
        }
        assert_eq!((added, map.len()), (8_000, 8_000));
        assert_eq!(map.put(map.hash(&5_u64.to_be_bytes()), 99), Some(Some(1)), "a known key");
        assert_eq!(map.get(map.hash(&5_u64.to_be_bytes())), Some(99));
        assert_eq!(map.get(map.hash(&8_000_u64.to_be_bytes())), None);
    }

    #[test]
    fn a_map_of_few_keys_stays_small_and_grows_with_them() {
        let mut map = map(10_000_000, 1 << 30);
        let first = map.bytes();
        assert!(first < 2 << 20);
        for offset in 0..300_000_i64 {
            assert!(map.put(map.hash(&(offset / 2).to_be_bytes()), offset).is_some());
        }
        assert!((150_000 * ENTRY_BYTES..8 << 20).contains(&map.bytes()), "{}", map.bytes());
        for key in 0..150_000_i64 {
            assert_eq!(map.get(map.hash(&key.to_be_bytes())), Some(2 * key + 1));
        }
    }

    #[test]
    fn a_map_that_doubles_stays_within_its_memory() {
        let bytes_max = 40 << 20;
        for keys in [70_000, 100_000, 525_000, 600_000, 930_000, 5_000_000] {
            let mut map = map(keys, bytes_max);
            let mut old = 0;
            for key in 0..keys {
                let before = map.bytes();
                if map.put(map.hash(&key.to_be_bytes()), 1).is_none() {
                    break;
                }
                if map.bytes() > before {
                    old = before;
                }
                assert!(
                    old + map.bytes() <= bytes_max || old == 0 && map.bytes() <= bytes_max,
                    "{keys} keys"
                );
            }
        }
    }

    #[test]
    fn a_small_log_has_a_small_map() {
        assert!(map(1_000, 64 << 20).bytes() < 40_000);
    }
}
