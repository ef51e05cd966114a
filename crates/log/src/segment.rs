//! One segment: the log file, its indexes, and metadata of its batches.

mod times;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use ottla_wire::batch::BatchHeader;

use crate::bad_range::BadRange;
use crate::index::{Index, IndexEntry, IndexView, Loaded, OffsetEntry, TimeEntry};
use crate::scan::{LOOKUP_CHUNK_BYTES, Window, walk};
use crate::segment_name::{INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, file_name};
use crate::storage::{File, Open, Storage};
use crate::txn_index::TxnIndex;
use crate::verified::{Unsound, Verified};

/// A timestamp, and the last offset of the first batch that reached it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Largest {
    pub(crate) timestamp: i64,
    pub(crate) offset: i64,
}

impl Largest {
    pub(crate) const NONE: Self = Self { timestamp: -1, offset: -1 };
}

/// The newest timestamp in the first `size` bytes of a segment; `None` for batches without timestamps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewestOf {
    pub(crate) size: u64,
    pub(crate) timestamp: Option<i64>,
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) base_offset: i64,
    /// The offset after the last batch.
    pub(crate) end_offset: i64,
    pub(crate) size: u64,
    pub(crate) created_ms: i64,
    /// The time by which it is closed earlier, once that was drawn.
    pub(crate) roll_jitter_ms: Option<i64>,
    /// Timestamp of the first batch, from which `segment.ms` counts.
    pub(crate) first_timestamp: Option<i64>,
    /// `true` once its first batches were read for that timestamp: they may have none.
    pub(crate) is_first_read: bool,
    /// `None` until an old segment was looked at.
    pub(crate) largest: Option<Largest>,
    /// `true` if `largest` is only that of an empty time index. No checksum covers the index: it may have lost its entries.
    is_largest_unread: bool,
    /// The last entry of a time index that was loaded, until a lookup by time has found the batch that it names. No checksum covers the
    /// index: the entry may have another timestamp.
    unconfirmed: Option<TimeEntry>,
    /// The newest timestamp of its batches, if they were read for it.
    pub(crate) newest: Option<NewestOf>,
    /// The aborted transactions that end in it.
    pub(crate) aborted: TxnIndex,
    bytes_since_index: u64,
    files: Option<Files>,
    pub(crate) verified: Arc<Verified>,
    /// The time of the last use, as a count of uses.
    pub(crate) used: u64,
}

#[derive(Debug)]
struct Files {
    /// `None` while the files are closed and the bounds of the indexes stay in memory.
    log: Option<Arc<dyn File>>,
    offsets: Index<OffsetEntry>,
    times: Index<TimeEntry>,
    /// Set by a lookup that found a wrong index entry.
    misled: Arc<AtomicBool>,
}

/// The log file of a segment, for a sync.
#[derive(Debug)]
pub(crate) enum FileToSync {
    Open(Arc<dyn File>),
    Closed(Arc<dyn Storage>, String),
}

impl FileToSync {
    /// Returns the file; `None` if it is missing, as that of a segment that was deleted meanwhile.
    pub(crate) fn open(&self) -> io::Result<Option<Arc<dyn File>>> {
        let (storage, path) = match self {
            Self::Open(file) => return Ok(Some(file.clone())),
            Self::Closed(storage, path) => (storage, path),
        };
        match storage.open(path, Open::Existing) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Segment {
    /// Creates the file of a new segment. Its name is durable once the directory is synced.
    pub(crate) fn create(
        storage: &dyn Storage,
        dir: &str,
        base_offset: i64,
        now_ms: i64,
    ) -> io::Result<Self> {
        let log = storage.open(&path(dir, base_offset, LOG_SUFFIX), Open::Empty)?;
        let mut segment = Self::existing(base_offset, base_offset, 0, now_ms);
        segment.largest = Some(Largest::NONE);
        segment.files = Some(Files {
            log: Some(log),
            offsets: Index::empty(path(dir, base_offset, INDEX_SUFFIX)),
            times: Index::empty(path(dir, base_offset, TIME_INDEX_SUFFIX)),
            misled: Arc::default(),
        });
        Ok(segment)
    }

    /// A segment that is on disk already; its files are opened when they are needed.
    pub(crate) fn existing(base_offset: i64, end_offset: i64, size: u64, now_ms: i64) -> Self {
        Self {
            base_offset,
            end_offset,
            size,
            created_ms: now_ms,
            roll_jitter_ms: None,
            first_timestamp: None,
            is_first_read: false,
            largest: None,
            is_largest_unread: false,
            unconfirmed: None,
            newest: None,
            aborted: TxnIndex::default(),
            bytes_since_index: 0,
            files: None,
            verified: Arc::new(Verified::nothing_of(size)),
            used: 0,
        }
    }

    /// Returns `true` if its first batches must be read for their timestamp.
    pub(crate) fn lacks_first_timestamp(&self) -> bool {
        self.first_timestamp.is_none() && !self.is_first_read && self.size > 0
    }

    pub(crate) fn is_open(&self) -> bool {
        self.files.as_ref().is_some_and(|files| files.log.is_some())
    }

    /// Closes the files of the segment that is written to, until the next [`Segment::open`].
    pub(crate) fn pause(&mut self) {
        if let Some(files) = &mut self.files {
            files.log = None;
            files.offsets.close_file();
            files.times.close_file();
        }
    }

    /// Closes the files of a segment that is not written to.
    pub(crate) fn close(&mut self) {
        self.files = None;
    }

    /// The log file, once [`Segment::open`] has been called.
    pub(crate) fn log(&self) -> &Arc<dyn File> {
        self.files().log.as_ref().expect("opened by create or open before it is used")
    }

    /// The log file for a sync, which opens it if it is closed.
    pub(crate) fn file_to_sync(&self, storage: &Arc<dyn Storage>, dir: &str) -> FileToSync {
        match self.files.as_ref().and_then(|files| files.log.clone()) {
            Some(file) => FileToSync::Open(file),
            None => FileToSync::Closed(storage.clone(), path(dir, self.base_offset, LOG_SUFFIX)),
        }
    }

    /// The log and the indexes that have files.
    pub(crate) fn open_files(&self) -> Vec<Arc<dyn File>> {
        let files = self.files();
        [files.log.clone(), files.offsets.file(), files.times.file()].into_iter().flatten().collect()
    }

    /// Marks the indexes as unchecked; the next use checks them again. The log file stays open.
    pub(crate) fn close_indexes(&mut self) {
        self.files().misled.store(true, Ordering::Relaxed);
    }

    fn files(&self) -> &Files {
        self.files.as_ref().expect("opened by create or open before it is used")
    }

    fn files_mut(&mut self) -> &mut Files {
        self.files.as_mut().expect("opened by create or open before it is used")
    }

    /// Opens the log file alone, for a scan that rebuilds the indexes: see [`Segment::install`].
    pub(crate) fn open_log(&mut self, storage: &dyn Storage, dir: &str) -> io::Result<()> {
        let log = storage.open(&path(dir, self.base_offset, LOG_SUFFIX), Open::Existing)?;
        self.files = Some(Files {
            log: Some(log),
            offsets: Index::empty(path(dir, self.base_offset, INDEX_SUFFIX)),
            times: Index::empty(path(dir, self.base_offset, TIME_INDEX_SUFFIX)),
            misled: Arc::default(),
        });
        Ok(())
    }

    /// Opens the files and rebuilds missing or damaged indexes. Returns `true` if an index was rebuilt.
    pub(crate) fn open(
        &mut self,
        storage: &dyn Storage,
        dir: &str,
        interval: u32,
        bad: &[BadRange],
    ) -> io::Result<bool> {
        if let Some(files) = &mut self.files {
            if files.log.is_none() {
                let log = storage.open(&path(dir, self.base_offset, LOG_SUFFIX), Open::Existing)?;
                files.offsets.reopen_file(storage)?;
                files.times.reopen_file(storage)?;
                files.log = Some(log);
            }
            let rebuild = files.misled.swap(false, Ordering::Relaxed);
            if rebuild {
                self.rebuild(storage, dir, interval, bad)?;
            }
            return Ok(rebuild);
        }
        let log = storage.open(&path(dir, self.base_offset, LOG_SUFFIX), Open::Existing)?;
        let offset_path = path(dir, self.base_offset, INDEX_SUFFIX);
        let offsets = match Index::<OffsetEntry>::load(storage, offset_path.clone())? {
            Loaded::Sound(index) if self.offsets_fit(&index) => Some(index),
            // A segment this small has no entry and no file.
            Loaded::Missing if self.size <= u64::from(interval) => Some(Index::empty(offset_path)),
            _ => None,
        };
        let time_path = path(dir, self.base_offset, TIME_INDEX_SUFFIX);
        let times = match Index::<TimeEntry>::load(storage, time_path)? {
            Loaded::Sound(index) if self.times_fit(&index) => Some(index),
            // There is no file before the first timestamp.
            Loaded::Missing if self.largest == Some(Largest::NONE) => {
                Some(Index::empty(path(dir, self.base_offset, TIME_INDEX_SUFFIX)))
            }
            _ => None,
        };
        let sound = offsets.is_some() && times.is_some();
        self.files = Some(Files {
            log: Some(log),
            offsets: offsets.unwrap_or_else(|| Index::empty(path(dir, self.base_offset, INDEX_SUFFIX))),
            times: times.unwrap_or_else(|| Index::empty(path(dir, self.base_offset, TIME_INDEX_SUFFIX))),
            misled: Arc::default(),
        });
        if sound {
            let last = self.files().times.last();
            let is_unread = self.largest.is_none() || self.is_largest_unread;
            self.is_largest_unread = last.is_none() && self.size > 0 && is_unread;
            let largest = Some(last.map_or(Largest::NONE, |entry| self.largest_of(entry)));
            if self.largest != largest {
                self.unconfirmed = last;
            }
            self.largest = largest;
            self.bytes_since_index =
                self.size - self.files().offsets.last().map_or(0, |entry| u64::from(entry.position));
        } else {
            self.rebuild(storage, dir, interval, bad)?;
        }
        Ok(!sound)
    }

    fn offsets_fit(&self, index: &Index<OffsetEntry>) -> bool {
        index.last().is_none_or(|last| {
            u64::from(last.position) < self.size
                && self.base_offset + i64::from(last.relative_offset) < self.end_offset
        })
    }

    fn times_fit(&self, index: &Index<TimeEntry>) -> bool {
        match index.last() {
            // The largest timestamp is the last entry of a closed segment. With a lower one, entries are missing.
            Some(last) => {
                self.base_offset + i64::from(last.relative_offset) < self.end_offset
                    && self.largest.is_none_or(|largest| last.timestamp >= largest.timestamp)
            }
            // A closed segment has an entry of its largest timestamp, unless no record has a timestamp. Reads of records need no
            // time index: see `confirm_largest` for what does.
            None => self.largest.is_none_or(|largest| largest == Largest::NONE),
        }
    }

    /// Returns `true` if only an empty time index says that no record has a timestamp.
    pub(crate) fn is_largest_unread(&self) -> bool {
        self.is_largest_unread
    }

    /// Records the newest timestamp of the batches in the first bytes. This process has appended those behind.
    pub(crate) fn note_newest(&mut self, newest: NewestOf) {
        // An empty time index has lost nothing then.
        self.is_largest_unread &= newest.timestamp.is_some();
        self.newest = Some(newest);
        self.extend_newest();
    }

    /// Reads the batches of an open segment if its largest timestamp is unread.
    pub(crate) fn confirm_largest(
        &mut self,
        storage: &dyn Storage,
        dir: &str,
        interval: u32,
        bad: &[BadRange],
    ) -> io::Result<()> {
        if self.is_largest_unread() { self.rebuild(storage, dir, interval, bad) } else { Ok(()) }
    }

    fn largest_of(&self, entry: TimeEntry) -> Largest {
        Largest { timestamp: entry.timestamp, offset: self.base_offset + i64::from(entry.relative_offset) }
    }

    /// Rebuilds both indexes from the batches. `bad` can have ranges of other segments.
    pub(crate) fn rebuild(
        &mut self,
        storage: &dyn Storage,
        dir: &str,
        interval: u32,
        bad: &[BadRange],
    ) -> io::Result<()> {
        tracing::info!(dir, segment = self.base_offset, "rebuilds the indexes of a segment");
        let mut built = IndexBuilder::new(self.base_offset, interval);
        let log = self.log().clone();
        let bad: Vec<BadRange> =
            bad.iter().filter(|range| range.segment == self.base_offset).copied().collect();
        let walked = walk(&*log, 0, self.size, &bad, |header, position| built.note(header, position))?;
        if let Err(position) = walked {
            tracing::warn!(
                dir,
                segment = self.base_offset,
                position,
                "a segment is damaged: its index ends before the damage"
            );
        }
        self.install(storage, dir, built);
        Ok(())
    }

    /// Installs the index entries that a scan of the whole segment has collected.
    pub(crate) fn install(&mut self, storage: &dyn Storage, dir: &str, mut built: IndexBuilder) {
        built.finish();
        self.largest = Some(built.largest);
        self.is_largest_unread = false;
        self.unconfirmed = None;
        self.first_timestamp = built.first_timestamp;
        self.bytes_since_index = built.bytes_since_index;
        let base_offset = self.base_offset;
        let files = self.files_mut();
        // Without an index lookups start at the front: slow, but right, and a full disk is no reason to stop reading.
        if let Err(error) = files.offsets.replace(storage, &built.offsets) {
            tracing::warn!(dir, segment = base_offset, %error, "cannot write the offset index");
            files.offsets = discard(storage, path(dir, base_offset, INDEX_SUFFIX));
        }
        if let Err(error) = files.times.replace(storage, &built.times) {
            tracing::warn!(dir, segment = base_offset, %error, "cannot write the time index");
            files.times = discard(storage, path(dir, base_offset, TIME_INDEX_SUFFIX));
        }
    }

    /// Records a batch that was written at `position`, the end of the segment.
    #[inline]
    pub(crate) fn note(&mut self, storage: &dyn Storage, header: &BatchHeader, position: u64, interval: u32) {
        let largest = self.largest.get_or_insert(Largest::NONE);
        if header.max_timestamp > largest.timestamp && header.record_count > 0 {
            *largest = Largest { timestamp: header.max_timestamp, offset: header.last_offset() };
        }
        if self.first_timestamp.is_none() && header.max_timestamp >= 0 {
            self.first_timestamp = Some(header.max_timestamp);
        }
        if self.bytes_since_index > u64::from(interval) {
            self.index(storage, header.last_offset(), position);
        }
        self.bytes_since_index += header.total_bytes() as u64;
        self.size = position + header.total_bytes() as u64;
        self.end_offset = header.next_offset();
    }

    /// Adds the batches that this process has appended since the timestamps were read: a segment that grows is not read again.
    pub(crate) fn extend_newest(&mut self) {
        if let (Some(newest), Some(largest)) = (&mut self.newest, self.largest)
            && newest.size < self.size
        {
            let appended = Some(largest.timestamp).filter(|timestamp| *timestamp >= 0);
            *newest = NewestOf { size: self.size, timestamp: newest.timestamp.max(appended) };
        }
    }

    fn index(&mut self, storage: &dyn Storage, last_offset: i64, position: u64) {
        let (base_offset, largest) = (self.base_offset, self.largest.unwrap_or(Largest::NONE));
        let files = self.files_mut();
        let entry =
            OffsetEntry { relative_offset: (last_offset - base_offset) as i32, position: position as u32 };
        let written = files
            .offsets
            .append(storage, entry)
            .and_then(|()| append_time(files, storage, base_offset, largest));
        match written {
            Ok(()) => self.bytes_since_index = 0,
            // The next batch tries again: an index without this entry is still an index.
            Err(error) => tracing::warn!(segment = base_offset, %error, "cannot write an index entry"),
        }
    }

    /// Returns `true` if an index has no room for another entry below `bytes_max`.
    pub(crate) fn is_index_full(&self, bytes_max: u32) -> bool {
        let files = self.files();
        let max = u64::from(bytes_max);
        files.offsets.len_bytes() + OffsetEntry::BYTES as u64 > max
            || files.times.len_bytes() + 2 * TimeEntry::BYTES as u64 > max
    }

    /// Closes the segment for appends and adds the largest timestamp to the time index as its last entry.
    pub(crate) fn finish(&mut self, storage: &dyn Storage) -> io::Result<()> {
        self.extend_newest();
        let (base_offset, largest) = (self.base_offset, self.largest.unwrap_or(Largest::NONE));
        let files = self.files_mut();
        append_time(files, storage, base_offset, largest)?;
        files.offsets.trim()?;
        files.times.trim()
    }

    /// Truncates the segment at `position`, which removes the batch there and all later ones.
    pub(crate) fn truncate(&mut self, position: u64, end_offset: i64) -> io::Result<()> {
        let base_offset = self.base_offset;
        self.log().set_len(position)?;
        let files = self.files_mut();
        files.offsets.truncate(|entry| u64::from(entry.position) >= position)?;
        files.times.truncate(|entry| base_offset + i64::from(entry.relative_offset) >= end_offset)?;
        let indexed = files.offsets.last().map_or(0, |entry| u64::from(entry.position));
        self.size = position;
        self.end_offset = end_offset;
        self.newest = None;
        self.bytes_since_index = position - indexed;
        Ok(())
    }

    /// Returns the current state of the segment for a reader.
    pub(crate) fn view(&self, bad: &[BadRange]) -> SegmentView {
        let files = self.files();
        SegmentView {
            base_offset: self.base_offset,
            end_offset: self.end_offset,
            size: self.size,
            log: self.log().clone(),
            offsets: files.offsets.view(),
            times: files.times.view(),
            bad: bad.iter().filter(|range| range.segment == self.base_offset).copied().collect(),
            verified: self.verified.clone(),
            misled: files.misled.clone(),
        }
    }

    /// Paths of all its files.
    pub(crate) fn paths(dir: &str, base_offset: i64) -> [String; 4] {
        // The log goes first: indexes without one are swept away when the log is opened.
        [LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX]
            .map(|suffix| path(dir, base_offset, suffix))
    }
}

fn append_time(
    files: &mut Files,
    storage: &dyn Storage,
    base_offset: i64,
    largest: Largest,
) -> io::Result<()> {
    if largest.timestamp < 0 {
        return Ok(());
    }
    let relative_offset = (largest.offset - base_offset) as i32;
    files.times.append(storage, TimeEntry { timestamp: largest.timestamp, relative_offset })
}

/// Returns an index without entries or a file, after a failed write. The first entries alone look like a whole index: without the
/// file, the next opening rebuilds it.
fn discard<E: IndexEntry>(storage: &dyn Storage, path: String) -> Index<E> {
    let _ = storage.remove(&path);
    Index::empty(path)
}

fn path(dir: &str, base_offset: i64, suffix: &str) -> String {
    format!("{dir}/{}", file_name(base_offset, suffix))
}

/// Collects the index entries of a segment while its batches are walked, as [`Segment::note`] would write them.
#[derive(Debug)]
pub(crate) struct IndexBuilder {
    base_offset: i64,
    interval: u32,
    pub(crate) offsets: Vec<OffsetEntry>,
    pub(crate) times: Vec<TimeEntry>,
    pub(crate) largest: Largest,
    pub(crate) first_timestamp: Option<i64>,
    /// `true` if a batch is a control batch, so that the segment may have a transaction index.
    pub(crate) has_control: bool,
    bytes_since_index: u64,
}

impl IndexBuilder {
    pub(crate) fn new(base_offset: i64, interval: u32) -> Self {
        Self {
            base_offset,
            interval,
            offsets: Vec::new(),
            times: Vec::new(),
            largest: Largest::NONE,
            first_timestamp: None,
            has_control: false,
            bytes_since_index: 0,
        }
    }

    pub(crate) fn note(&mut self, header: &BatchHeader, position: u64) {
        self.has_control |= header.is_control();
        // An empty batch has the time of records that compaction has removed.
        if header.max_timestamp > self.largest.timestamp && header.record_count > 0 {
            self.largest = Largest { timestamp: header.max_timestamp, offset: header.last_offset() };
        }
        if self.first_timestamp.is_none() && header.max_timestamp >= 0 && header.record_count > 0 {
            self.first_timestamp = Some(header.max_timestamp);
        }
        if self.bytes_since_index > u64::from(self.interval) {
            let relative_offset = (header.last_offset() - self.base_offset) as i32;
            self.offsets.push(OffsetEntry { relative_offset, position: position as u32 });
            self.push_time();
            self.bytes_since_index = 0;
        }
        self.bytes_since_index += header.total_bytes() as u64;
    }

    fn push_time(&mut self) {
        let entry = TimeEntry {
            timestamp: self.largest.timestamp,
            relative_offset: (self.largest.offset - self.base_offset) as i32,
        };
        if entry.timestamp >= 0 && self.times.last().is_none_or(|last| last.precedes(entry)) {
            self.times.push(entry);
        }
    }

    /// Adds the entry of the largest timestamp, which ends the index of a closed segment.
    pub(crate) fn finish(&mut self) {
        self.push_time();
    }
}

/// The reasons why a lookup in a segment failed.
#[derive(Debug)]
pub(crate) enum LookupError {
    Io(io::Error),
    /// Known damage.
    Bad(BadRange),
    /// Damage at this position that was not known before.
    Damaged(u64),
    /// A batch that failed its check before it was served for the first time.
    Unsound(Unsound),
}

impl From<io::Error> for LookupError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A segment as it was at one moment. It can be read while the log grows, and after the log was dropped.
#[derive(Clone, Debug)]
pub(crate) struct SegmentView {
    pub(crate) base_offset: i64,
    pub(crate) end_offset: i64,
    pub(crate) size: u64,
    pub(crate) log: Arc<dyn File>,
    offsets: IndexView<OffsetEntry>,
    times: IndexView<TimeEntry>,
    pub(crate) bad: Vec<BadRange>,
    pub(crate) verified: Arc<Verified>,
    misled: Arc<AtomicBool>,
}

impl SegmentView {
    /// The first batch whose last offset is `target` or above, and its position.
    pub(crate) fn locate(&self, target: i64) -> Result<Option<(u64, BatchHeader)>, LookupError> {
        self.locate_in(&mut self.window(), target)
    }

    /// [`SegmentView::locate`], with the bytes from the batch's header on in the window.
    pub(crate) fn locate_in(
        &self,
        window: &mut Window<'_>,
        target: i64,
    ) -> Result<Option<(u64, BatchHeader)>, LookupError> {
        let start = self.position_in(window, target)?;
        self.find_from(window, start, target, |header| header.last_offset() >= target)
    }

    /// Returns the position of an indexed batch at or below `target`, from which a search starts.
    pub(crate) fn position_below(&self, target: i64) -> Result<u64, LookupError> {
        self.position_in(&mut self.window(), target)
    }

    pub(crate) fn window(&self) -> Window<'_> {
        Window::new(&*self.log, self.size, LOOKUP_CHUNK_BYTES)
    }

    /// [`SegmentView::position_below`], with the bytes from that position on in the window.
    fn position_in(&self, window: &mut Window<'_>, target: i64) -> Result<u64, LookupError> {
        let entry = self
            .offsets
            .last_where(|entry: OffsetEntry| self.base_offset + i64::from(entry.relative_offset) <= target)?;
        let Some(entry) = entry else { return Ok(0) };
        let position = u64::from(entry.position);
        match window.header(position)? {
            Ok(header) if header.last_offset() == self.base_offset + i64::from(entry.relative_offset) => {
                Ok(position)
            }
            _ => {
                self.misled.store(true, Ordering::Relaxed);
                Ok(0)
            }
        }
    }

    fn find_from(
        &self,
        window: &mut Window<'_>,
        start: u64,
        target: i64,
        is_it: impl Fn(&BatchHeader) -> bool,
    ) -> Result<Option<(u64, BatchHeader)>, LookupError> {
        let mut at = start;
        loop {
            if let Some(bad) = self.bad.iter().find(|bad| bad.position == at) {
                if !bad.skipped && (bad.offset..bad.next_offset).contains(&target) {
                    return Err(LookupError::Bad(*bad));
                }
                at += bad.bytes;
            }
            if at >= self.size {
                return Ok(None);
            }
            let Ok(header) = window.header(at)? else { return Err(LookupError::Damaged(at)) };
            if is_it(&header) {
                return Ok(Some((at, header)));
            }
            at += header.total_bytes() as u64;
        }
    }

    /// Returns an offset above those of all whole batches that end at or before `position`.
    pub(crate) fn offset_at(&self, position: u64) -> io::Result<i64> {
        let indexed = self.offsets.last_where(|entry: OffsetEntry| u64::from(entry.position) <= position)?;
        let mut at = indexed.map_or(0, |entry| u64::from(entry.position));
        let mut window = self.window();
        while at < self.size {
            // Behind damage the end of the segment is the only offset that is known.
            let Ok(header) = window.header(at)? else { return Ok(self.end_offset) };
            at += header.total_bytes() as u64;
            if at > position {
                return Ok(header.base_offset);
            }
        }
        Ok(self.end_offset)
    }

    /// Returns the end of the sound bytes that begin at `position`.
    pub(crate) fn sound_until(&self, position: u64) -> u64 {
        let bad = self.bad.iter().map(|bad| bad.position).filter(|at| *at > position).min();
        bad.unwrap_or(self.size).min(self.size)
    }

    /// Reads one batch into memory.
    pub(crate) fn load(&self, position: u64, header: &BatchHeader) -> io::Result<Bytes> {
        let mut bytes = BytesMut::zeroed(header.total_bytes());
        self.log.read_exact_at(&mut bytes, position)?;
        Ok(bytes.freeze())
    }
}
