//! The `synced` file: up to where the log was durable. Opening compares it with what it finds, so that records that
//! were acknowledged and are gone are an error and not a shorter log.
//!
//! ```text
//! 3 slots, at 0, 512 and 1024: version i16 = 2 | crc32c u32 of what follows | sequence i64 | synced i64 | start i64
//! ```
//!
//! The sound slot with the highest sequence counts. A write goes to a slot that is neither the newest durable one nor
//! being synced, so a torn write always leaves a durable slot, and a flipped bit costs one slot.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::checkpoint::SYNCED;
use crate::storage::{File, Open, Storage, read_file};

/// A log that is appended to syncs its `synced` file at most this often. After a power cut a loss of records that were
/// acknowledged within this time may go unnoticed, and only then.
pub(crate) const NOTE_INTERVAL_MS: i64 = 1000;

const VERSION: i16 = 2;
/// Version 1 had one slot of one number, and was never synced.
const VERSION_1: i16 = 1;
const CRC_AT: usize = 2;
const BODY_AT: usize = 6;
const SLOT_BYTES: usize = 30;
const SLOTS: usize = 3;
/// Each slot has a sector of its own.
const SLOT_STRIDE: usize = 512;
const FILE_BYTES_MAX: u64 = 64 << 10;
/// A sequence counts writes. No file has had so many, and more can follow.
const SEQUENCE_END: i64 = i64::MAX / 2;

/// The newest version [`load`] understands.
pub(crate) const fn version() -> i16 {
    VERSION
}

/// The durable offset and the start offset that a log has recorded.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Note {
    /// All records below were durable.
    pub(crate) synced: i64,
    /// Records below were deleted.
    pub(crate) start: i64,
}

/// The content of the file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Found {
    /// There is no file.
    #[default]
    Missing,
    /// There is a file without a sound slot.
    Damaged,
    /// Version 1, which did not know the start offset.
    Old {
        /// All records below were durable.
        synced: i64,
    },
    /// The newest sound slot.
    Slot {
        /// Its number.
        slot: usize,
        /// Its sequence.
        sequence: i64,
        /// Its content.
        note: Note,
    },
    /// A later program wrote it.
    Newer(i16),
}

impl Found {
    /// The durable offset, if it is known.
    pub(crate) fn synced(&self) -> Option<i64> {
        match self {
            Self::Missing | Self::Damaged | Self::Newer(_) => None,
            Self::Old { synced } => Some(*synced),
            Self::Slot { note, .. } => Some(note.synced),
        }
    }

    /// The start offset, if it is known.
    pub(crate) fn start(&self) -> Option<i64> {
        match self {
            Self::Slot { note, .. } => Some(note.start),
            Self::Missing | Self::Damaged | Self::Old { .. } | Self::Newer(_) => None,
        }
    }
}

/// Reads the file of the log in `dir`.
pub(crate) fn load(storage: &dyn Storage, dir: &str) -> io::Result<Found> {
    let bytes = match read_file(storage, &format!("{dir}/{SYNCED}"), FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Missing),
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
            return Ok(Found::Damaged);
        }
        Err(error) => return Err(error),
    };
    let mut newest = Found::Damaged;
    for slot in 0..SLOTS {
        let from = (slot * SLOT_STRIDE).min(bytes.len());
        let found = decode(&bytes[from..], slot);
        newest = match (newest, found) {
            (_, Found::Newer(version)) => return Ok(Found::Newer(version)),
            (Found::Slot { sequence: known, .. }, Found::Slot { sequence, .. }) if known > sequence => newest,
            (_, Found::Slot { .. }) | (Found::Damaged, Found::Old { .. }) => found,
            _ => newest,
        };
    }
    Ok(newest)
}

fn decode(bytes: &[u8], slot: usize) -> Found {
    let Some((head, body)) = bytes.split_first_chunk::<BODY_AT>() else { return Found::Damaged };
    let version = i16::from_be_bytes([head[0], head[1]]);
    let crc = u32::from_be_bytes([head[CRC_AT], head[CRC_AT + 1], head[CRC_AT + 2], head[CRC_AT + 3]]);
    if let (VERSION_1, 0, Some(old)) = (version, slot, body.first_chunk::<8>())
        && ottla_wire::crc::crc32c(old) == crc
    {
        return Found::Old { synced: i64::from_be_bytes(*old) };
    }
    let Some(body) = body.get(..SLOT_BYTES - BODY_AT) else { return Found::Damaged };
    if checksum(version, body) != crc {
        return Found::Damaged;
    }
    if version > VERSION {
        return Found::Newer(version);
    }
    let number = |at: usize| body[at..].first_chunk::<8>().map_or(0, |bytes| i64::from_be_bytes(*bytes));
    let (sequence, note) = (number(0), Note { synced: number(8), start: number(16) });
    if !(0..SEQUENCE_END).contains(&sequence) || note.synced < 0 || note.start < 0 {
        return Found::Damaged;
    }
    Found::Slot { slot, sequence, note }
}

fn checksum(version: i16, body: &[u8]) -> u32 {
    let mut crc = ottla_wire::crc::Crc32c::new();
    crc.update(&version.to_be_bytes());
    crc.update(body);
    crc.finish()
}

fn encode(sequence: i64, note: Note) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    bytes[..CRC_AT].copy_from_slice(&VERSION.to_be_bytes());
    for (at, number) in [(6, sequence), (14, note.synced), (22, note.start)] {
        bytes[at..at + 8].copy_from_slice(&number.to_be_bytes());
    }
    let crc = checksum(VERSION, &bytes[BODY_AT..]);
    bytes[CRC_AT..BODY_AT].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// The file of an open log. Its owner writes; a sync that runs elsewhere makes a slot durable.
#[derive(Debug)]
pub(crate) struct SyncedFile {
    storage: Arc<dyn Storage>,
    path: String,
    slots: Mutex<Slots>,
}

#[derive(Debug)]
struct Slots {
    /// `None` while it is closed.
    file: Option<Arc<dyn File>>,
    sequence: i64,
    newest: usize,
    written: Option<Note>,
    /// The newest slot known to be durable: never written to.
    durable: Option<usize>,
    /// The slot that a sync under way makes durable.
    syncing: Option<usize>,
    /// When the last sync began, in the time of the appends.
    synced_ms: i64,
    /// The next sync includes the file, whenever the last one was.
    due: bool,
}

impl SyncedFile {
    /// Opens the file, creating it if it is missing. `sound` says that the newest slot is durable.
    pub(crate) fn open(
        storage: &Arc<dyn Storage>,
        dir: &str,
        found: &Found,
        sound: bool,
        now_ms: i64,
    ) -> io::Result<Self> {
        let path = format!("{dir}/{SYNCED}");
        // After a clean close nothing is written before the first append.
        let file = if sound && matches!(found, Found::Slot { .. }) {
            None
        } else {
            Some(storage.open(&path, Open::Create)?)
        };
        let (newest, sequence, written) = match found {
            Found::Slot { slot, sequence, note } => (*slot, *sequence, Some(*note)),
            Found::Missing | Found::Damaged | Found::Old { .. } | Found::Newer(_) => (0, 0, None),
        };
        let known = !matches!(found, Found::Missing | Found::Damaged);
        if let Some(file) = file.as_ref().filter(|_| known && !sound) {
            // After a kill the newest slot may be in the page cache only.
            file.sync_data()?;
        }
        let slots = Slots {
            file,
            sequence,
            newest,
            written,
            durable: known.then_some(newest),
            syncing: None,
            synced_ms: now_ms,
            due: false,
        };
        Ok(Self { storage: storage.clone(), path, slots: Mutex::new(slots) })
    }

    /// Closes the file until it is needed.
    pub(crate) fn pause(&self) {
        self.lock().file = None;
    }

    fn file(&self, slots: &mut Slots) -> io::Result<Arc<dyn File>> {
        if let Some(file) = &slots.file {
            return Ok(file.clone());
        }
        let file = self.storage.open(&self.path, Open::Create)?;
        slots.file = Some(file.clone());
        Ok(file)
    }

    /// Writes without a sync; a later [`SyncedFile::begin_sync`] makes it durable.
    pub(crate) fn write(&self, note: Note) -> io::Result<()> {
        let mut slots = self.lock();
        if slots.written == Some(note) {
            return Ok(());
        }
        self.write_slot(&mut slots, note)
    }

    /// Writes and syncs.
    pub(crate) fn store(&self, note: Note) -> io::Result<()> {
        self.store_in(&mut self.lock(), note)
    }

    /// Stores a higher start offset with the durable offset that was written last: it may have changed since the caller had the log.
    pub(crate) fn store_start(&self, start: i64) -> io::Result<()> {
        let mut slots = self.lock();
        let written = slots.written.unwrap_or_default();
        self.store_in(&mut slots, Note { start: start.max(written.start), ..written })
    }

    fn store_in(&self, slots: &mut Slots, note: Note) -> io::Result<()> {
        if slots.written == Some(note) && slots.durable == Some(slots.newest) {
            return Ok(());
        }
        self.write_slot(slots, note)?;
        self.file(slots)?.sync_data()?;
        slots.durable = Some(slots.newest);
        Ok(())
    }

    /// Writes every slot and syncs each: for a promise that is taken back, which no older slot may bring up again.
    pub(crate) fn replace(&self, note: Note) -> io::Result<()> {
        let mut slots = self.lock();
        for _ in 0..SLOTS {
            let sequence = slots.sequence + 1;
            let slot = (slots.newest + 1) % SLOTS;
            let file = self.file(&mut slots)?;
            file.write_at(&encode(sequence, note), (slot * SLOT_STRIDE) as u64)?;
            file.sync_data()?;
            (slots.sequence, slots.newest, slots.durable, slots.written) =
                (sequence, slot, Some(slot), Some(note));
        }
        Ok(())
    }

    /// The next sync of the log syncs this file as well.
    pub(crate) fn set_due(&self) {
        self.lock().due = true;
    }

    /// The part of a sync of the log that makes the newest slot durable, if it is time for one.
    pub(crate) fn begin_sync(self: &Arc<Self>, now_ms: i64) -> Option<SlotSync> {
        let mut slots = self.lock();
        let dirty = slots.durable != Some(slots.newest);
        // A wall clock that went back must not stop the notes until it has caught up.
        let since = now_ms.saturating_sub(slots.synced_ms);
        let is_time = slots.due || !(0..NOTE_INTERVAL_MS).contains(&since);
        if !dirty || !is_time || slots.syncing.is_some() {
            return None;
        }
        slots.syncing = Some(slots.newest);
        (slots.synced_ms, slots.due) = (now_ms, false);
        Some(SlotSync { of: self.clone(), done: false })
    }

    fn write_slot(&self, slots: &mut Slots, note: Note) -> io::Result<()> {
        let is_free = |slot: &usize| slots.durable != Some(*slot) && slots.syncing != Some(*slot);
        let Some(slot) = (0..SLOTS).find(is_free) else { return Ok(()) };
        let sequence = slots.sequence + 1;
        self.file(slots)?.write_at(&encode(sequence, note), (slot * SLOT_STRIDE) as u64)?;
        (slots.sequence, slots.newest, slots.written) = (sequence, slot, Some(note));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sync of one slot; see [`SyncedFile::begin_sync`].
#[derive(Debug)]
pub(crate) struct SlotSync {
    of: Arc<SyncedFile>,
    done: bool,
}

impl SlotSync {
    /// Syncs. A failure costs nothing but the age of what is durable: the durable slot was not touched.
    pub(crate) fn run(mut self) {
        let file = self.of.file(&mut self.of.lock());
        match file.and_then(|file| file.sync_data()) {
            Ok(()) => self.done = true,
            Err(error) => tracing::warn!(%error, "cannot sync a `synced` file"),
        }
    }
}

impl Drop for SlotSync {
    fn drop(&mut self) {
        let mut slots = self.of.lock();
        if let Some(slot) = slots.syncing.take().filter(|_| self.done) {
            slots.durable = Some(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::mem::MemStorage;

    fn note(synced: i64) -> Note {
        Note { synced, start: 1 }
    }

    fn storage_of(disk: &MemStorage) -> Arc<dyn Storage> {
        Arc::new(disk.clone())
    }

    fn found(disk: &MemStorage) -> Option<i64> {
        load(disk, "d").expect("memory does not fail").synced()
    }

    #[test]
    fn a_torn_or_flipped_slot_leaves_an_older_one() {
        let disk = MemStorage::new();
        disk.create_dir("d").expect("created");
        assert_eq!(found(&disk), None);
        let file = SyncedFile::open(&storage_of(&disk), "d", &Found::Missing, true, 0).expect("opened");
        file.store(note(5)).expect("stored");
        file.write(note(9)).expect("written");
        assert_eq!(found(&disk), Some(9));
        let sound = disk.contents("d/synced").expect("there");
        for at in 0..sound.len() {
            for bit in 0..8 {
                let mut bad = sound.clone();
                bad[at] ^= 1 << bit;
                disk.set_contents("d/synced", &bad);
                assert!([Some(5), Some(9)].contains(&found(&disk)), "byte {at}");
            }
            disk.set_contents("d/synced", &sound[..at]);
            assert!([None, Some(5), Some(9)].contains(&found(&disk)), "cut at {at}");
        }
    }

    #[test]
    fn a_durable_slot_survives_every_power_cut() {
        for seed in 0..300 {
            let rng = &mut fastrand::Rng::with_seed(seed);
            let disk = MemStorage::forgetful();
            disk.create_dir("d").expect("created");
            disk.sync_dir("").expect("synced");
            let file = Arc::new(
                SyncedFile::open(&storage_of(&disk), "d", &Found::Missing, true, 0).expect("opened"),
            );
            file.store(note(0)).expect("stored");
            disk.sync_dir("d").expect("synced");
            let mut durable = 0;
            let steps = rng.i64(0..40);
            for n in 1..=steps {
                file.write(note(n)).expect("written");
                if let Some(sync) = file.begin_sync(n * 300) {
                    if rng.bool() {
                        file.write(note(n + 100)).expect("written during a sync");
                        file.write(note(n)).expect("written during a sync");
                    }
                    sync.run();
                    durable = n;
                }
            }
            disk.crash(rng);
            let found = found(&disk).expect("a sound slot");
            assert!(found >= durable, "seed {seed}: {found}, durable was {durable}");
        }
    }

    #[test]
    fn notes_are_made_durable_after_the_clock_went_back() {
        let disk = MemStorage::new();
        disk.create_dir("d").expect("created");
        let file =
            SyncedFile::open(&storage_of(&disk), "d", &Found::Missing, true, 10_000_000).expect("opened");
        let file = Arc::new(file);
        file.write(note(5)).expect("written");
        assert!(file.begin_sync(10_000_999).is_none(), "less than a second");
        file.begin_sync(9_000_000).expect("time for a sync").run();
        file.write(note(6)).expect("written");
        assert!(file.begin_sync(9_000_999).is_none(), "less than a second after that");
        file.begin_sync(9_001_000).expect("time for a sync").run();
    }

    #[test]
    fn version_1_is_read_and_survives_the_first_write() {
        let disk = MemStorage::new();
        disk.create_dir("d").expect("created");
        let mut old = 1_i16.to_be_bytes().to_vec();
        old.extend(ottla_wire::crc::crc32c(&7_i64.to_be_bytes()).to_be_bytes());
        old.extend(7_i64.to_be_bytes());
        disk.set_contents("d/synced", &old);
        let was = load(&disk, "d").expect("read");
        assert!(matches!(was, Found::Old { synced: 7 }));
        let file = SyncedFile::open(&storage_of(&disk), "d", &was, false, 0).expect("opened");
        file.store(note(8)).expect("stored");
        assert_eq!(found(&disk), Some(8));
        assert_eq!(disk.contents("d/synced").expect("there")[..14], old);
    }

    /// Found by the fuzz target `journal`: the next sequence overflowed.
    #[test]
    fn a_slot_with_impossible_numbers_is_damaged() {
        for (sequence, synced, start) in [(i64::MAX, 5, 0), (-1, 5, 0), (3, -1, 0), (3, 5, -1)] {
            let bytes = encode(sequence, Note { synced, start });
            assert!(matches!(decode(&bytes, 0), Found::Damaged), "{sequence} {synced} {start}");
        }
        assert!(matches!(
            decode(&encode(3, Note { synced: 5, start: 1 }), 0),
            Found::Slot { sequence: 3, .. }
        ));
    }
}
