//! Appending: checks the batches, assigns their offsets, writes them with one call, and records them.

use bytes::BytesMut;
use ottla_wire::TimestampType;
use ottla_wire::batch::{self, BatchHeader};

use crate::append_options::{AppendOptions, Origin};
use crate::cache::Span;
use crate::cache_total::SharedBuffer;
use crate::check::Checker;
use crate::config::Visible;
use crate::epochs;
use crate::error::{AppendError, LogError};
use crate::log::{Log, Unsynced};
use crate::marker::{Completed, Control, TransactionOutcome};
use crate::producer_map::ProducerMap;
use crate::producers::{Producer, Verdict, Written, judge};
use crate::txn_index::AbortedTransaction;

/// The number of headers whose memory the next append reuses; nearly every append has fewer batches.
const HEADERS_KEPT_MAX: usize = 64;

/// The offsets of an append.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Appended {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Offset of the last record.
    pub last_offset: i64,
    /// The broker's timestamp, if the log writes it to the batches.
    pub log_append_time: Option<i64>,
    /// The first offset of the log.
    pub log_start_offset: i64,
    /// Records appended.
    pub records: u64,
    /// Bytes appended.
    pub bytes: usize,
    /// The batch was in the log already, at these offsets; nothing was appended.
    pub duplicate: bool,
}

/// The result of the checks of a whole buffer.
struct Checked {
    /// The headers of the batches, as they are written.
    headers: Vec<BatchHeader>,
    last_offset: i64,
    records: u64,
    max_timestamp: i64,
    duplicate: Option<Written>,
    /// The content of a control batch, which is alone.
    control: Option<Control>,
}

impl Log {
    /// Appends one or several whole v2 batches and returns their offsets.
    ///
    /// Either all of them are appended or none. They are in the file when this returns, but not durable: see
    /// [`Log::pending_sync`]. A batch that its producer sent before is not appended again.
    pub fn append(
        &mut self,
        now_ms: i64,
        batches: BytesMut,
        options: AppendOptions,
    ) -> Result<Appended, AppendError> {
        self.append_part(now_ms, batches, options, None)
    }

    /// [`Log::append`] of batches that are a part of a larger buffer: while they are cached, the buffer stays.
    pub fn append_part(
        &mut self,
        now_ms: i64,
        mut batches: BytesMut,
        options: AppendOptions,
        buffer: Option<SharedBuffer>,
    ) -> Result<Appended, AppendError> {
        if let Some(reason) = &self.offline {
            return Err(AppendError::Offline { dir: self.dir.to_string(), reason: reason.clone() });
        }
        let base_offset = self.end_offset();
        let mut headers = std::mem::take(&mut self.headers);
        headers.clear();
        let checked = self.check_and_stamp(now_ms, &mut batches, base_offset, options, headers)?;
        let log_append_time = (self.config.timestamp_type == TimestampType::LogAppendTime).then_some(now_ms);
        if let Some(written) = checked.duplicate {
            return Ok(Appended {
                base_offset: written.base_offset,
                last_offset: written.last_offset,
                log_append_time: log_append_time.map(|_| written.timestamp),
                log_start_offset: self.start_offset,
                records: 0,
                bytes: 0,
                duplicate: true,
            });
        }
        if options.origin == Origin::Client {
            self.check_fits_segment(batches.len())?;
        }
        self.open_active()
            .and_then(|()| self.make_room(now_ms, batches.len(), &checked))
            .map_err(|source| self.append_failed(base_offset, source))?;
        let position = self.active().size;
        let Checked { last_offset, records, control, .. } = checked;
        match control {
            None => self.write(&batches, position, base_offset)?,
            Some(control) => self.write_control(&checked.headers[0], control, &batches, position)?,
        }
        self.book(now_ms, checked.headers, position, control);
        let appended = Appended {
            base_offset,
            last_offset,
            log_append_time,
            log_start_offset: self.start_offset,
            records,
            bytes: batches.len(),
            duplicate: false,
        };
        self.sync.now_ms = now_ms;
        if self.sync.synced_offset == base_offset {
            self.sync.unsynced_since_ms = now_ms;
        }
        let end_offset = last_offset + 1;
        let span = Span { base_offset, end_offset, segment: self.active().base_offset, position };
        if let Some(ring) = &self.ring {
            ring.push(base_offset, end_offset, &batches);
        }
        self.cache.push(span, batches, buffer);
        self.tail.set_end(end_offset);
        if self.config.visible == Visible::End {
            self.tail.advance_visible(end_offset);
        }
        Ok(appended)
    }

    /// Checks every batch and sets its offset, its leader epoch and, with `LogAppendTime`, its timestamp.
    fn check_and_stamp(
        &self,
        now_ms: i64,
        batches: &mut BytesMut,
        base_offset: i64,
        options: AppendOptions,
        headers: Vec<BatchHeader>,
    ) -> Result<Checked, AppendError> {
        let checker = Checker { dir: &self.dir, config: &self.config, now_ms, options };
        if batches.is_empty() {
            return Err(checker.not_allowed("no batch at all"));
        }
        let mut checked = Checked {
            headers,
            last_offset: base_offset - 1,
            records: 0,
            max_timestamp: -1,
            duplicate: None,
            control: None,
        };
        // Producers as this buffer leaves them: only a buffer of several batches needs to know.
        let mut staged: ProducerMap<Producer> = ProducerMap::default();
        let mut at = 0;
        while at < batches.len() {
            let left = batches.len() - at;
            let (mut header, batch) = checker.next(&mut batches[at..])?;
            let alone = at == 0 && batch.len() == left;
            if header.is_control() {
                if !alone {
                    return Err(checker.not_allowed("a control batch with other batches"));
                }
                let control = Control::of_batch(&header, batch).map_err(|source| checker.invalid(source))?;
                checked.control = Some(control);
            }
            match (self.verdict(&header, options, &staged)?, &mut checked.duplicate) {
                (None, None) => {}
                (Some(written), None) if at == 0 => checked.duplicate = Some(written),
                (Some(written), Some(all)) => {
                    all.last_offset = written.last_offset;
                    all.last_sequence = written.last_sequence;
                }
                // Part of it is in the log and part is not: no client would ever make that.
                (written, _) => return Err(self.out_of_order(&header, written.map(|w| w.last_sequence))),
            }
            header.base_offset = checked.last_offset + 1;
            // A reader's next offset must exist as well.
            let distance = i64::from(header.last_offset_delta) + 1;
            if header.base_offset.checked_add(distance).is_none() {
                return Err(self.no_offset_left());
            }
            if self.config.timestamp_type == TimestampType::LogAppendTime {
                batch::set_log_append_time(batch, now_ms);
                header.max_timestamp = now_ms;
            }
            batch::set_base_offset(batch, header.base_offset);
            header.partition_leader_epoch = options.leader_epoch;
            batch::set_leader_epoch(batch, options.leader_epoch);
            if !alone && header.has_producer_id() && checked.duplicate.is_none() {
                let staged = staged.entry(header.producer_id).or_insert_with(|| {
                    let known = self.producers.get(header.producer_id).cloned();
                    known.unwrap_or_else(|| Producer::new(header.producer_epoch, now_ms))
                });
                staged.note(&header, header.base_offset, now_ms);
            }
            checked.last_offset = header.last_offset();
            checked.records += header.record_count as u64;
            checked.max_timestamp = checked.max_timestamp.max(header.max_timestamp);
            at += header.total_bytes();
            checked.headers.push(header);
        }
        Ok(checked)
    }

    /// Returns the earlier append of a duplicate batch; `None` if the batch follows its producer's last one.
    fn verdict(
        &self,
        header: &BatchHeader,
        options: AppendOptions,
        staged: &ProducerMap<Producer>,
    ) -> Result<Option<Written>, AppendError> {
        // As in Kafka, only clients' batches are compared with their producer's last ones.
        let is_ordered = options.origin == Origin::Client;
        if !header.has_producer_id() || header.is_control() || !(is_ordered || header.is_transactional()) {
            return Ok(None);
        }
        let known = staged.get(&header.producer_id).or_else(|| self.producers.get(header.producer_id));
        let verdict = if is_ordered { judge(known, header) } else { Verdict::Append };
        let is_of_transaction = header.is_transactional() || known.is_some_and(Producer::is_in_transaction);
        // A duplicate is in the log, whatever has become of its transaction.
        if is_of_transaction && !matches!(verdict, Verdict::Duplicate(_)) {
            self.check_transaction(header, known, options)?;
        }
        match verdict {
            Verdict::Append => Ok(None),
            Verdict::Duplicate(written) => Ok(Some(written)),
            Verdict::Fenced { current } => Err(AppendError::InvalidProducerEpoch {
                dir: self.dir.to_string(),
                producer_id: header.producer_id,
                current,
                found: header.producer_epoch,
            }),
            Verdict::OutOfOrder { last } => Err(self.out_of_order(header, last)),
        }
    }

    /// As in Kafka (`UnifiedLog.append`), a segment has room for all batches of a client's append. Coordinators know no other way to
    /// write their records, so theirs make a larger segment.
    fn check_fits_segment(&self, bytes: usize) -> Result<(), AppendError> {
        let max = self.config.segment_bytes;
        if bytes as u64 <= u64::from(max) {
            return Ok(());
        }
        Err(AppendError::ListTooLarge { dir: self.dir.to_string(), bytes, max })
    }

    /// Starts another segment if these batches do not belong into this one.
    fn make_room(&mut self, now_ms: i64, bytes: usize, checked: &Checked) -> std::io::Result<()> {
        if self.marked_clean {
            self.drop_clean_mark(false)?;
        }
        let age_max_ms = self.config.segment_ms_max() - self.roll_jitter_ms();
        let active = self.active();
        if active.size == 0 {
            return Ok(());
        }
        let since = match active.first_timestamp {
            Some(first) if checked.max_timestamp >= 0 => checked.max_timestamp - first,
            _ => now_ms - active.created_ms,
        };
        let full = active.size + bytes as u64 > u64::from(self.config.segment_bytes)
            || since > age_max_ms
            || active.is_index_full(self.config.segment_index_bytes)
            || i32::try_from(checked.last_offset - active.base_offset).is_err();
        if full { self.roll_now(now_ms) } else { Ok(()) }
    }

    /// Writes a control batch. The entry of an abort is in the transaction index before its marker is in the log.
    #[cold]
    fn write_control(
        &mut self,
        header: &BatchHeader,
        control: Control,
        batch: &[u8],
        position: u64,
    ) -> Result<(), AppendError> {
        let open = self.producers.get(header.producer_id).and_then(Producer::transaction_first);
        let aborted = match (control, open) {
            (Control::Marker { outcome: TransactionOutcome::Abort, .. }, Some(first)) => {
                AbortedTransaction::ending(&self.producers, header, first)
            }
            _ => return self.write(batch, position, header.base_offset),
        };
        let (storage, dir) = (self.storage.clone(), self.dir.clone());
        let segment = self.active_mut();
        let base_offset = segment.base_offset;
        let noted = segment.aborted.append(&*storage, &dir, base_offset, &aborted);
        noted.map_err(|source| self.append_failed(header.base_offset, source))?;
        let written = self.write(batch, position, header.base_offset);
        if written.is_err() {
            self.active_mut().aborted.take_back(&*storage, &dir, base_offset);
        }
        written
    }

    fn write(&mut self, batches: &[u8], position: u64, base_offset: i64) -> Result<(), AppendError> {
        if position + batches.len() as u64 > u64::from(i32::MAX as u32) {
            return Err(AppendError::TooLarge {
                dir: self.dir.to_string(),
                what: "an append",
                bytes: batches.len(),
                max: i32::MAX as usize,
            });
        }
        let file = self.active().log();
        let Err(source) = file.write_at(batches, position) else { return Ok(()) };
        // A part of the write may be in the file. It is removed, because the next append may not overwrite all of it.
        if let Err(error) = file.set_len(position) {
            let reason = format!("a failed write ({source}) could not be taken back: {error}");
            let LogError::Offline { dir, reason } = self.go_offline(reason) else {
                unreachable!("go_offline returns this error")
            };
            return Err(AppendError::Offline { dir, reason });
        }
        Err(self.append_failed(base_offset, source))
    }

    /// Records the batches that were written at `position`, in memory and in the indexes.
    #[inline]
    fn book(&mut self, now_ms: i64, headers: Vec<BatchHeader>, mut position: u64, control: Option<Control>) {
        let interval = self.config.index_interval_bytes;
        let producers_max = self.producer_count.max(self.config.producers_max);
        self.producers.observe_clock(now_ms, self.config.producer_step_ms_max());
        for header in &headers {
            let segment = self.segments.last_mut().expect("a log has a segment from the moment it is open");
            assert_eq!(header.base_offset, segment.end_offset, "the offsets of a log are contiguous");
            segment.note(&*self.storage, header, position, interval);
            self.producers.note(header, header.base_offset, now_ms, producers_max);
            if self.epochs.note(header.partition_leader_epoch, header.base_offset) {
                self.store_epochs();
            }
            position += header.total_bytes() as u64;
        }
        self.producer_count.set(self.producers.len());
        if !self.verifications.is_empty() || control.is_some() {
            self.book_transactions(&headers, control);
        }
        if headers.capacity() <= HEADERS_KEPT_MAX {
            self.headers = headers;
        }
    }

    /// Ends the transaction of a marker. A guard is used once.
    #[cold]
    fn book_transactions(&mut self, headers: &[BatchHeader], control: Option<Control>) {
        for header in headers.iter().filter(|header| header.is_transactional() || header.is_control()) {
            self.verifications.remove(header.producer_id);
        }
        let (Some(Control::Marker { coordinator_epoch, .. }), [header]) = (control, headers) else { return };
        if let Some(first_offset) = self.producers.end_transaction(header.producer_id, coordinator_epoch) {
            self.complete(Completed { first_offset, last_offset: header.base_offset });
        }
    }

    /// Stores the epochs after a new one has begun. The file becomes durable with the batch, because recovery may not
    /// read the log back to the start of the epoch.
    #[cold]
    fn store_epochs(&mut self) {
        match self.epochs.store(&*self.storage, &self.dir) {
            Ok(file) => {
                self.sync.dir_changes += 1;
                let (segment, change) = (self.active().base_offset, self.sync.dir_changes);
                self.sync.older.push(Unsynced { segment, change, file });
            }
            // The batches carry their epochs: without the file recovery reads them there.
            Err(error) => {
                tracing::warn!(dir = &*self.dir, %error, "cannot write the leader epochs");
                let _ = self.storage.remove(&self.path(epochs::FILE_NAME));
            }
        }
    }

    #[cold]
    fn no_offset_left(&self) -> AppendError {
        let reason = format!("no offset is left after {}", self.end_offset());
        AppendError::Offline { dir: self.dir.to_string(), reason }
    }

    #[cold]
    fn append_failed(&self, offset: i64, source: std::io::Error) -> AppendError {
        AppendError::Storage { dir: self.dir.to_string(), offset, source }
    }

    #[cold]
    fn out_of_order(&self, header: &BatchHeader, last: Option<i32>) -> AppendError {
        AppendError::OutOfOrderSequence {
            dir: self.dir.to_string(),
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            last,
            found: header.base_sequence,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ottla_wire::{BatchBuilder, Seal};

    use super::*;
    use crate::checkpoint;
    use crate::config::LogConfig;
    use crate::storage::Storage;
    use crate::storage::mem::MemStorage;

    fn batch(count: u32) -> BytesMut {
        let mut builder = BatchBuilder::new();
        for _ in 0..count {
            builder.push(0, None, Some(b"value"), &[]);
        }
        let sealed = builder.seal(&Seal::default()).expect("sealed");
        BytesMut::from(&sealed.to_bytes()[..])
    }

    /// Found by the fuzz target `journal`: the sum overflowed.
    #[test]
    fn a_log_at_the_last_offset_refuses_batches() {
        let disk = MemStorage::new();
        disk.create_dir("d").expect("created");
        let last = checkpoint::body(&[i64::MAX - 2]);
        checkpoint::store(&disk, "d", checkpoint::START_OFFSET, &last).expect("stored");
        let (mut log, _) = Log::open(Arc::new(disk), "d", LogConfig::default(), 0).expect("opened");
        let options = AppendOptions::default();
        let refused = log.append(0, batch(3), options).expect_err("one offset too few").to_string();
        assert!(refused.contains("no offset is left"), "{refused}");
        assert_eq!(log.append(0, batch(2), options).expect("they fit").last_offset, i64::MAX - 1);
        assert!(log.append(0, batch(1), options).is_err());
    }
}
