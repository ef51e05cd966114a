//! The last small batches of a shared log, which readers at its tail read without a lock.
//!
//! An append holds the log's lock while it writes into the page cache, and a busy writer takes the lock again at once.
//! A reader would wait for the lock and sleep. The ring stores a batch in atomic words, so that a reader transfers only
//! the batch's own cache lines between cores; each costs about 100 ns.
//!
//! A slot is a sequence lock: its turn is odd while it is written. A reader that sees the turn change reads the batch
//! from another place. There is one writer at a time, because the writer holds the log's lock.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

use bytes::{BufMut, Bytes, BytesMut};

/// The number of appends in the ring. A reader that is further behind reads the log. A power of two.
const SLOTS: usize = 64;
/// Words of eight bytes in a slot. Larger appends are read under the log's lock.
const WORDS: usize = 32;

/// The newest small appends.
#[derive(Debug)]
pub(crate) struct Ring {
    slots: Box<[Slot]>,
    /// The number of appends, which determines the slot of the next one.
    appends: AtomicU64,
}

#[derive(Debug)]
struct Slot {
    /// Twice the number of the append in the slot, plus 2; one less while it is written; 0 if the slot is empty.
    turn: AtomicU64,
    base_offset: AtomicI64,
    end_offset: AtomicI64,
    bytes: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl Default for Ring {
    fn default() -> Self {
        let slot = || Slot {
            turn: AtomicU64::new(0),
            base_offset: AtomicI64::new(0),
            end_offset: AtomicI64::new(0),
            bytes: AtomicU64::new(0),
            words: [const { AtomicU64::new(0) }; WORDS],
        };
        Self { slots: (0..SLOTS).map(|_| slot()).collect(), appends: AtomicU64::new(0) }
    }
}

impl Ring {
    /// Adds the bytes of one append before it becomes visible. The caller holds the log's lock.
    pub(crate) fn push(&self, base_offset: i64, end_offset: i64, bytes: &[u8]) {
        let number = self.appends.load(Ordering::Relaxed);
        let slot = &self.slots[number as usize % SLOTS];
        let turn = number * 2 + 2;
        slot.turn.store(turn - 1, Ordering::Relaxed);
        // A reader sees the odd turn before any word of the new batch.
        fence(Ordering::Release);
        // A batch that is too large leaves an empty slot, so that readers use the log instead.
        let kept = bytes.len() <= WORDS * 8;
        slot.base_offset.store(if kept { base_offset } else { -1 }, Ordering::Relaxed);
        slot.end_offset.store(if kept { end_offset } else { -1 }, Ordering::Relaxed);
        slot.bytes.store(bytes.len() as u64, Ordering::Relaxed);
        if kept {
            for (word, chunk) in slot.words.iter().zip(bytes.chunks(8)) {
                let mut padded = [0; 8];
                padded[..chunk.len()].copy_from_slice(chunk);
                word.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
            }
        }
        slot.turn.store(turn, Ordering::Release);
        self.appends.store(number + 1, Ordering::Release);
    }

    /// Returns the bytes of the append with `offset`, if the ring has it and it ends at `visible` or before.
    ///
    /// `hint` is the number of the append that probably has it, because a reader reads one append after another.
    pub(crate) fn read(&self, offset: i64, visible: i64, hint: &mut u64) -> Option<Bytes> {
        if let Some(found) = self.read_slot(*hint, offset, visible) {
            *hint += 1;
            return Some(found);
        }
        let newest = self.appends.load(Ordering::Acquire);
        let oldest = newest.saturating_sub(SLOTS as u64);
        let (number, found) = (oldest..newest)
            .rev()
            .find_map(|number| Some((number, self.read_slot(number, offset, visible)?)))?;
        *hint = number + 1;
        Some(found)
    }

    fn read_slot(&self, number: u64, offset: i64, visible: i64) -> Option<Bytes> {
        let slot = &self.slots[number as usize % SLOTS];
        let turn = number * 2 + 2;
        if slot.turn.load(Ordering::Acquire) != turn {
            return None;
        }
        let base_offset = slot.base_offset.load(Ordering::Relaxed);
        let end_offset = slot.end_offset.load(Ordering::Relaxed);
        let len = slot.bytes.load(Ordering::Relaxed) as usize;
        if !(base_offset..end_offset).contains(&offset) || end_offset > visible || len > WORDS * 8 {
            return None;
        }
        let mut bytes = BytesMut::with_capacity(len.next_multiple_of(8));
        for word in &slot.words[..len.div_ceil(8)] {
            bytes.put_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        // The words are read before the second read of the turn.
        fence(Ordering::Acquire);
        if slot.turn.load(Ordering::Relaxed) != turn {
            return None;
        }
        bytes.truncate(len);
        Some(bytes.freeze())
    }

    /// Clears the ring after a truncation of the log. The caller holds the log's lock.
    pub(crate) fn clear(&self) {
        for slot in &self.slots {
            slot.turn.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_of_an_offset_is_found_by_hint_and_without() {
        let ring = Ring::default();
        for number in 0..100_i64 {
            ring.push(number * 2, number * 2 + 2, &[number as u8; 70]);
        }
        let read = |offset, visible| ring.read(offset, visible, &mut 0).map(|bytes| (bytes.len(), bytes[0]));
        assert_eq!(read(195, 200), Some((70, 97)), "by the offset inside");
        assert_eq!(read(195, 195), None, "not visible");
        assert_eq!(read(71, 200), None, "too old");
        assert_eq!(read(200, 200), None, "not there yet");
        ring.push(200, 300, &[0; 5000]);
        assert_eq!(read(250, 300), None, "too large to be kept");
        let mut hint = 97;
        let following: Vec<u8> = [194, 196, 198]
            .iter()
            .filter_map(|offset| Some(ring.read(*offset, 300, &mut hint)?[0]))
            .collect();
        assert_eq!((following, hint), (vec![97, 98, 99], 100));
        ring.clear();
        assert_eq!(read(198, 300), None);
    }

    #[test]
    fn a_reader_never_sees_half_a_batch() {
        const APPENDS: i64 = 200_000;
        let ring = Ring::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..APPENDS {
                    ring.push(number, number + 1, &number.to_le_bytes().repeat(1 + number as usize % 30));
                }
            });
            let (mut offset, mut hint, mut seen) = (0, 0, 0);
            while offset < APPENDS {
                let newest = ring.appends.load(Ordering::Acquire) as i64;
                if let Some(bytes) = ring.read(offset, newest, &mut hint) {
                    assert_eq!(bytes.len(), 8 * (1 + offset as usize % 30));
                    assert!(bytes.chunks(8).all(|word| word == offset.to_le_bytes()), "offset {offset}");
                    seen += 1;
                    offset += 1;
                } else {
                    // Overtaken: as far behind as the ring is long, the log itself would be read.
                    offset = offset.max(newest - 1);
                }
            }
            // However often it was overtaken: the last append stays, and ends the loop only by being read.
            assert!(seen > 0);
        });
    }
}
