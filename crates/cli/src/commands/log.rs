//! `ottla log`: a log without a broker.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ottla_log::storage::fs::{self, FsStorage};
use ottla_log::{LogConfig, SharedLog};
use ottla_wire::{BatchBuilder, BatchHeader, Compression, Records, Seal};

use super::consume::interrupted;
use crate::connect::runtime;
use crate::failure::Failure;
use crate::format::{Format, Piece, Shown};
use crate::lines::Lines;
use crate::output::Output;
use crate::signals::Interrupt;
use crate::stoppable_output::StoppableOutput;
use crate::time;

/// A batch is appended when it has this size.
const BATCH_BYTES: usize = 64 << 10;
/// The longest line: the log's largest batch, with room for the headers of batch and record.
const LINE_BYTES_MAX: usize = (1 << 20) - 1024;
/// Bytes of a segment that are read at a time.
const READ_BYTES: usize = 256 << 10;
/// The interval at which `--follow` checks the files.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The file that marks a data directory.
const LOCK_NAME: &str = ".lock";
/// Maximum size of a decompressed batch.
const DECOMPRESSED_BYTES_MAX: usize = 64 << 20;

/// Appends to a bare log, or prints one: a directory of segments in Kafka's format, without a broker
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Log {
    /// Appends lines to a log, which is created if it is missing
    Append(AppendArgs),
    /// Prints a log; also one that a broker or another process is writing
    Tail(TailArgs),
    /// Checks the data directory of a stopped broker, and with --accept-loss repairs it
    ///
    /// Without --accept-loss nothing is changed; the exit code is 1 when damage was found, 0 when there is none.
    Repair(RepairArgs),
    /// Lists the damaged ranges of a partition, and with --accept-loss lets consumers pass them
    ///
    /// Consumers of a damaged range receive KAFKA_STORAGE_ERROR and wait. After --accept-loss they continue behind it.
    /// The exit code is 1 while there is a range that is not skipped.
    Skip(SkipArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SkipArgs {
    /// The partition's directory in the data directory of a stopped broker
    dir: PathBuf,
    /// Only the range that holds this offset
    #[arg(long)]
    offset: Option<i64>,
    /// Gives up the records of the listed ranges
    #[arg(long)]
    accept_loss: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AppendArgs {
    /// The log's directory
    dir: PathBuf,
    /// Lines of this file instead of standard input
    #[arg(short = 'l', long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Compression of the batches: none, gzip, snappy, lz4, zstd
    #[arg(short = 'z', long, default_value = "none")]
    codec: Compression,
    /// Does not wait for the disk at the end
    #[arg(long)]
    no_sync: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TailArgs {
    /// The log's directory
    dir: PathBuf,
    /// The first offset to print; by default the first of the log
    #[arg(long, default_value_t = 0)]
    from: i64,
    /// At the end, waits for more records, until Ctrl-C
    #[arg(short = 'F', long)]
    follow: bool,
    /// kcat's format [default: %s\n]
    #[arg(short, long, value_parser = Format::parse, conflicts_with = "json")]
    format: Option<Format>,
    /// One JSON object per record
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RepairArgs {
    /// The data directory of a stopped broker, or one partition or journal directory in it
    dir: PathBuf,
    /// Keeps the sound records and gives up the rest; make a copy of the directory first
    #[arg(long)]
    accept_loss: bool,
}

pub(crate) fn run(log: &Log) -> Result<(), Failure> {
    match log {
        Log::Append(args) => append(args),
        Log::Tail(args) => runtime()?.block_on(tail(args)),
        Log::Repair(args) => repair(args),
        Log::Skip(args) => skip(args),
    }
}

fn append(args: &AppendArgs) -> Result<(), Failure> {
    let mut lines = match &args.file {
        Some(path) => Lines::of_file(path, LINE_BYTES_MAX)?,
        None => Lines::of_stdin(LINE_BYTES_MAX),
    };
    let root = args.dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = args.dir.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Failure::usage(format!("{} names no directory", args.dir.display())))?;
    std::fs::create_dir_all(&args.dir).map_err(|error| Failure::file(&args.dir, &error))?;
    let _lock = fs::lock(&args.dir).map_err(|error| Failure::failed(error.to_string()))?;
    // A directory inside a broker's data directory belongs to the broker, so its lock is required.
    let broker_lock = root.join(LOCK_NAME).exists().then(|| fs::lock(root)).transpose();
    let _broker_lock = broker_lock.map_err(|error| Failure::failed(error.to_string()))?;
    let storage = FsStorage::new(root).map_err(|error| Failure::file(root, &error))?;
    let failed =
        |error: &dyn std::fmt::Display| Failure::failed(format!("log {}: {error}", args.dir.display()));
    let (log, report) = SharedLog::open(Arc::new(storage), name, LogConfig::default(), time::now_ms())
        .map_err(|e| failed(&e))?;
    tracing::info!(?report, "opened");
    let first = log.with(|log| log.end_offset());
    let mut batch = BatchBuilder::new();
    let seal = |batch: BatchBuilder| -> Result<(), Failure> {
        let sealed = batch
            .seal(&Seal { compression: args.codec, ..Seal::default() })
            .map_err(|error| failed(&error))?;
        log.append_sealed(time::now_ms(), sealed).map(|_| ()).map_err(|error| failed(&error))
    };
    while let Some(line) = lines.next()? {
        if !batch.is_empty() && batch.len() + line.len() > BATCH_BYTES {
            seal(std::mem::replace(&mut batch, BatchBuilder::new()))?;
        }
        batch.push(time::now_ms(), None, Some(line), &[]);
    }
    if !batch.is_empty() {
        seal(batch)?;
    }
    if !args.no_sync {
        log.sync().map_err(|error| failed(&error))?;
    }
    let end = log.with(|log| log.end_offset());
    if let Ok(closed) = log.close() {
        closed.map_err(|error| failed(&error))?;
    }
    let durable = if args.no_sync { "" } else { ", on disk" };
    eprintln!("{} records appended, the log ends at {end}{durable}", end - first);
    Ok(())
}

fn repair(args: &RepairArgs) -> Result<(), Failure> {
    let report = ottla_broker::repair(&args.dir, args.accept_loss, time::now_ms())
        .map_err(|error| Failure::failed(error.to_string()))?;
    let mut text = Vec::new();
    for damage in &report.damage {
        text.extend(format!("{}: damaged\n", damage.place).into_bytes());
        for what in &damage.what {
            text.extend(format!("  {what}\n").into_bytes());
        }
        let saved = if report.repaired { "saved" } else { "can be saved" };
        text.extend(format!("  {saved}: {}\n", damage.saved).into_bytes());
        if let Some(step) = &damage.next_step {
            text.extend(format!("  do this first: {step}\n").into_bytes());
        }
    }
    for note in &report.notes {
        text.extend(format!("{note}\n").into_bytes());
    }
    text.extend(
        format!("{} journals and partitions checked, {} damaged\n", report.checked, report.damage.len())
            .into_bytes(),
    );
    let mut output = Output::new();
    output.write(&text)?;
    output.flush()?;
    if report.needs_operator() {
        let count = report.damage.iter().filter(|damage| damage.next_step.is_some()).count();
        return Err(Failure::failed(format!(
            "{}: {count} damaged places need your decision and were left alone: see `do this first` above",
            args.dir.display()
        )));
    }
    if report.damage.is_empty() || report.repaired {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "{} is damaged; nothing was changed; copy it, then run `ottla log repair --accept-loss {}`",
        args.dir.display(),
        args.dir.display()
    )))
}

fn skip(args: &SkipArgs) -> Result<(), Failure> {
    let SkipArgs { dir, offset, accept_loss } = args;
    let ranges = ottla_broker::skip_damage(dir, *offset, *accept_loss, time::now_ms())
        .map_err(|error| Failure::failed(error.to_string()))?;
    let place = dir.display();
    let mut output = Output::new();
    for range in &ranges {
        let (first, last) = (range.offset, range.next_offset - 1);
        let (segment, position, bytes) = (range.segment, range.position, range.bytes);
        let what = if *accept_loss { "skipped" } else { "damaged" };
        let line = format!(
            "{place}: offsets {first} to {last} {what}: {bytes} bytes at {position} of {segment:020}.log\n"
        );
        output.write(line.as_bytes())?;
    }
    let records: i64 = ranges.iter().map(|range| range.next_offset - range.offset).sum();
    let end = match (ranges.is_empty(), offset) {
        (true, Some(offset)) => format!("offset {offset} is in no damaged range of {place}\n"),
        (true, None) => format!("{place}: no damaged range\n"),
        (false, _) => format!("{records} records in {} damaged ranges\n", ranges.len()),
    };
    output.write(end.as_bytes())?;
    output.flush()?;
    if ranges.is_empty() || *accept_loss {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "nothing was changed; `ottla log skip --accept-loss {place}` lets consumers pass these ranges"
    )))
}

async fn tail(args: &TailArgs) -> Result<(), Failure> {
    let lines = Format::Text(vec![Piece::Value, Piece::Literal(b"\n".to_vec())]);
    let format = if args.json { Format::Json } else { args.format.clone().unwrap_or(lines) };
    let mut tail = SegmentTail::open(&args.dir, args.from)?;
    let mut stop = Box::pin(interrupted());
    let interrupt = Interrupt::watch_and(|_| {})?;
    let mut output = StoppableOutput::new(interrupt.clone())?;
    let mut text = Vec::new();
    let topic = args.dir.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    loop {
        while let Some(batch) = tail.next()? {
            if interrupt.is_set() {
                output.flush()?;
                return interrupt.check();
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
                    topic: &topic,
                    partition: 0,
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
        if !args.follow {
            return tail.at_end();
        }
        tokio::select! {
            signal = &mut stop => return signal,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
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
                if self.fill(wanted.max(READ_BYTES))? || self.advance()? {
                    continue;
                }
                return Ok(None);
            };
            let batch = self.bytes.split_to(header.total_bytes());
            self.position += batch.len() as u64;
            if header.last_offset() < self.next_offset {
                continue;
            }
            header
                .verify_crc(&batch)
                .map_err(|error| Failure::failed(format!("{}: {error}", self.path.display())))?;
            self.next_offset = header.next_offset();
            return Ok(Some(batch));
        }
    }

    /// Reads from the position. Returns `true` if there are new bytes.
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
        let more = filled > self.bytes.len();
        self.bytes = bytes.freeze();
        Ok(more)
    }

    /// Advances to the next segment, if there is one.
    fn advance(&mut self) -> Result<bool, Failure> {
        let Some(base) = segments(&self.dir)?.into_iter().find(|base| *base > self.base) else {
            return Ok(false);
        };
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
