//! `ottla log tail`: prints segment files that this or another process writes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::{Buf, Bytes, BytesMut};
use ottla_wire::{BatchHeader, Records};

use super::TailArgs;
use super::dir_watch::DirWatch;
use crate::commands::consume::interrupted;
use crate::failure::Failure;
use crate::format::{Format, Piece, Shown};
use crate::signals::Interrupt;
use crate::stoppable_output::StoppableOutput;

/// Bytes of a segment that are read at a time.
const READ_BYTES: usize = 256 << 10;
/// Maximum size of a decompressed batch.
const DECOMPRESSED_BYTES_MAX: usize = 64 << 20;

/// Prints the records of a log, and with `--follow` waits for more.
pub(super) async fn tail(args: &TailArgs) -> Result<(), Failure> {
    let interrupt = Interrupt::watch_and(|_| {})?;
    let mut output = StoppableOutput::new(interrupt.clone())?;
    match print(args, &interrupt, &mut output).await {
        // The reader of the output does not read.
        Err(failure @ Failure::Interrupted(_)) => Err(failure),
        // The records before a damaged one are printed.
        read => {
            let flushed = output.flush();
            read.and(flushed)
        }
    }
}

async fn print(args: &TailArgs, interrupt: &Interrupt, output: &mut StoppableOutput) -> Result<(), Failure> {
    let lines = Format::Text(vec![Piece::Value, Piece::Literal(b"\n".to_vec())]);
    let format = if args.json { Format::Json } else { args.format.clone().unwrap_or(lines) };
    // Watched before the first read, so that no change is missed.
    let watch = if args.follow { Some(DirWatch::start(&args.dir)) } else { None };
    let mut tail = SegmentTail::open(&args.dir, args.from)?;
    let mut stop = Box::pin(interrupted());
    let mut text = Vec::new();
    let name = args.dir.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let (topic, partition) = topic_and_partition(&name);
    loop {
        while let Some(batch) = tail.next()? {
            if interrupt.is_set() {
                output.flush()?;
                return interrupt.check();
            }
            // Consumers do not see the markers of transactions either.
            if BatchHeader::parse(&batch).is_ok_and(|header| header.is_control()) {
                continue;
            }
            let records = Records::of_batch(&batch, DECOMPRESSED_BYTES_MAX)
                .map_err(|error| Failure::failed(format!("{}: {error}", tail.path.display())))?;
            for record in &records {
                let record =
                    record.map_err(|error| Failure::failed(format!("{}: {error}", tail.path.display())))?;
                if record.offset < args.from {
                    continue;
                }
                text.clear();
                let shown = Shown {
                    topic,
                    partition,
                    offset: record.offset,
                    timestamp_ms: record.timestamp,
                    key: record.key,
                    value: record.value,
                    headers: record.headers,
                };
                format.render(&shown, &mut text);
                output.write(&text)?;
            }
        }
        output.flush()?;
        let Some(watch) = &watch else { return tail.at_end() };
        tokio::select! {
            signal = &mut stop => return signal,
            () = watch.changed() => {}
        }
    }
}

/// The topic and the partition of a directory's name, as in `orders-0`. A bare log has partition 0.
fn topic_and_partition(name: &str) -> (&str, i32) {
    let split = name.rsplit_once('-').and_then(|(topic, number)| Some((topic, number.parse::<u32>().ok()?)));
    let named = split.and_then(|(topic, number)| Some((topic, i32::try_from(number).ok()?)));
    named.unwrap_or((name, 0))
}

/// Reads segment files without opening the log, because another process may be writing it.
struct SegmentTail {
    dir: PathBuf,
    path: PathBuf,
    base: i64,
    file: File,
    position: u64,
    next_offset: i64,
    bytes: Bytes,
}

impl SegmentTail {
    fn open(dir: &Path, from: i64) -> Result<Self, Failure> {
        let segments = segments(dir)?;
        let base = segments.iter().rev().find(|base| **base <= from).or(segments.first()).copied();
        let Some(base) = base else {
            return Err(Failure::failed(format!("{}: no segment files: not a log", dir.display())));
        };
        let path = segment_path(dir, base);
        let file = File::open(&path).map_err(|error| Failure::file(&path, &error))?;
        Ok(Self {
            dir: dir.to_owned(),
            path,
            base,
            file,
            position: 0,
            next_offset: from,
            bytes: Bytes::new(),
        })
    }

    /// Returns the next whole batch that ends at the requested offset or later; `None` at the end.
    fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let parsed = BatchHeader::parse(&self.bytes).ok();
            let whole = parsed.filter(|header| header.total_bytes() <= self.bytes.len());
            let Some(header) = whole else {
                // The rest of the buffer is a part of a batch: read more, at least the whole batch.
                let wanted =
                    BatchHeader::parse(&self.bytes).map_or(READ_BYTES, |header| header.total_bytes());
                let wanted = wanted.max(READ_BYTES);
                if self.fill(wanted)? || self.advance(wanted)? {
                    continue;
                }
                return Ok(None);
            };
            let batch = self.bytes.slice(..header.total_bytes());
            let is_wanted = header.last_offset() >= self.next_offset;
            if is_wanted && let Err(error) = header.verify_crc(&batch) {
                // In reserved space, the read may come between two writes of the batch.
                if self.fill(self.bytes.len())? {
                    continue;
                }
                return Err(Failure::failed(format!("{}: {error}", self.path.display())));
            }
            self.bytes.advance(batch.len());
            self.position += batch.len() as u64;
            if is_wanted {
                self.next_offset = header.next_offset();
                return Ok(Some(batch));
            }
        }
    }

    /// Reads from the position. Returns `true` if the bytes have changed: a batch in space that was reserved for it adds none.
    fn fill(&mut self, wanted: usize) -> Result<bool, Failure> {
        let mut bytes = BytesMut::zeroed(wanted);
        let mut filled = 0;
        while filled < wanted {
            let read = self.file.read_at(&mut bytes[filled..], self.position + filled as u64);
            match read.map_err(|error| Failure::file(&self.path, &error))? {
                0 => break,
                read => filled += read,
            }
        }
        bytes.truncate(filled);
        let has_changed = self.bytes != bytes;
        self.bytes = bytes.freeze();
        Ok(has_changed)
    }

    /// Advances to the next segment, if there is one. Returns an error if the rest of the current one is not a whole batch.
    fn advance(&mut self, wanted: usize) -> Result<bool, Failure> {
        let Some(base) = segments(&self.dir)?.into_iter().find(|base| *base > self.base) else {
            return Ok(false);
        };
        // A batch may have been written between the last read and the start of the next segment.
        if self.fill(wanted)? {
            return Ok(true);
        }
        self.at_end()?;
        let path = segment_path(&self.dir, base);
        self.file = File::open(&path).map_err(|error| Failure::file(&path, &error))?;
        (self.base, self.path, self.position, self.bytes) = (base, path, 0, Bytes::new());
        Ok(true)
    }

    /// Returns an error if the last bytes are not a whole batch.
    fn at_end(&self) -> Result<(), Failure> {
        // Space that is reserved for later batches contains zeros.
        if self.bytes.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        Err(Failure::failed(format!(
            "{}: {} bytes from position {} on are not a whole batch",
            self.path.display(),
            self.bytes.len(),
            self.position
        )))
    }
}

/// Returns the base offsets of a directory's segments, in order.
fn segments(dir: &Path) -> Result<Vec<i64>, Failure> {
    let entries = std::fs::read_dir(dir).map_err(|error| Failure::file(dir, &error))?;
    let base = |name: &str| name.strip_suffix(".log")?.parse::<i64>().ok();
    let names = entries.flatten().filter_map(|entry| base(entry.file_name().to_str()?));
    let mut bases: Vec<i64> = names.collect();
    bases.sort_unstable();
    Ok(bases)
}

fn segment_path(dir: &Path, base: i64) -> PathBuf {
    dir.join(format!("{base:020}.log"))
}

#[cfg(test)]
mod tests {
    use ottla_wire::{BatchBuilder, Seal, batch};

    use super::*;

    fn batch_of(offset: i64, value: &[u8]) -> BytesMut {
        let mut builder = BatchBuilder::new();
        builder.push(1, None, Some(value), &[]);
        let mut bytes = BytesMut::from(&builder.seal(&Seal::default()).expect("no codec").to_bytes()[..]);
        batch::set_base_offset(&mut bytes, offset);
        bytes
    }

    /// A batch in a preallocated segment was not seen, and then was "not a whole batch" when the next segment began.
    #[test]
    fn a_batch_in_reserved_space_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let segment =
            |base| File::options().write(true).create_new(true).open(segment_path(dir.path(), base));
        let reserved = vec![0; 2 * READ_BYTES];
        let first = segment(0).expect("a file");
        first.write_all_at(&reserved, 0).expect("written");
        let mut tail = SegmentTail::open(dir.path(), 0).expect("a segment");
        let mut position = 0;
        // A batch that is larger than one read, too.
        for (offset, value) in [(0, vec![b'x'; 10]), (1, vec![b'x'; READ_BYTES])] {
            assert!(tail.next().expect("readable").is_none());
            let batch = batch_of(offset, &value);
            first.write_all_at(&batch, position).expect("written");
            position += batch.len() as u64;
            assert_eq!(tail.next().expect("readable").as_deref(), Some(&batch[..]));
        }
        assert!(tail.next().expect("readable").is_none());
        // The last batch of the segment comes just before the next segment.
        let (last, next) = (batch_of(2, b"last"), batch_of(3, b"next"));
        first.write_all_at(&last, position).expect("written");
        segment(3).expect("a file").write_all_at(&next, 0).expect("written");
        for batch in [last, next] {
            assert_eq!(tail.next().expect("readable").as_deref(), Some(&batch[..]));
        }
        assert!(tail.next().expect("readable").is_none());
    }
}
