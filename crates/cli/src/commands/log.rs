//! `ottla log`: a log without a broker.

mod dir_watch;
mod import;
mod tail;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ottla_log::storage::fs::{self, FsStorage};
use ottla_log::{LogConfig, SharedLog};
use ottla_wire::{BatchBuilder, Compression, Seal};

use crate::choices::{CODECS, completed};
use crate::connect::runtime;
use crate::failure::Failure;
use crate::format::Format;
use crate::lines::{LineLimit, Lines};
use crate::output::{Output, counted, note};
use crate::signals::{Interrupt, end_at_next};
use crate::time;

/// A batch is appended when it has this size, or when the input pauses.
const BATCH_BYTES: usize = 64 << 10;
/// The longest line: the log's largest batch, with room for the headers of batch and record.
const LINE_LIMIT: LineLimit = LineLimit {
    bytes_max: (1 << 20) - 1024,
    remedy: "a log of `ottla log append` has no longer ones: split the line",
};
/// The file that marks a data directory.
const LOCK_NAME: &str = ".lock";

/// Appends to a bare log, or prints one: a directory of segments in Kafka's format, without a broker
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Log {
    /// Appends lines to a log, which is created if it is missing
    Append(AppendArgs),
    /// Prints a log; also one that a broker or another process is writing
    ///
    /// Records of open and aborted transactions are printed, too, and markers of transactions are not.
    Tail(TailArgs),
    /// Checks the data directory of a stopped broker, and with --accept-loss repairs it
    ///
    /// Without --accept-loss nothing is changed; the exit code is 1 when damage was found, 0 when there is none.
    Repair(RepairArgs),
    /// Copies topics, committed offsets and transactions of a stopped Apache Kafka into a data directory
    ///
    /// The directories of Apache Kafka are only read. Each batch is checked. A topic that exists already is refused, and then
    /// nothing is imported. Settings of Apache Kafka's server.properties are not imported: start the broker with --config
    /// server.properties, or topics without retention.ms lose records that are older than 7 days.
    Import(import::ImportArgs),
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
    #[arg(short = 'z', long, default_value = "none", value_parser = completed(str::parse::<Compression>, CODECS), hide_possible_values = true)]
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
    #[arg(short = 'o', long, default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
    from: i64,
    /// At the end, waits for more records, until Ctrl-C
    #[arg(short = 'F', long)]
    follow: bool,
    /// kcat's format [default: %s\n]
    #[arg(short, long, value_parser = Format::parse, conflicts_with = "json")]
    format: Option<Format>,
    /// One JSON object per record
    #[arg(short = 'J', long)]
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
        Log::Tail(args) => runtime()?.block_on(tail::tail(args)),
        Log::Repair(args) => repair(args),
        Log::Skip(args) => skip(args),
        Log::Import(args) => import::import(args),
    }
}

fn append(args: &AppendArgs) -> Result<(), Failure> {
    let lines = match &args.file {
        Some(path) => Lines::of_file(path, LINE_LIMIT)?,
        None => Lines::of_stdin(LINE_LIMIT),
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
    let (log, report) = SharedLog::open(Arc::new(storage), name, LogConfig::default(), time::now_ms())
        .map_err(|error| Failure::failed(format!("log {}: {error}", args.dir.display())))?;
    tracing::info!(?report, "opened");
    let appending = Arc::new(Appending {
        first: log.with(|log| log.end_offset()),
        dir: args.dir.clone(),
        codec: args.codec,
        syncs: !args.no_sync,
        log: Mutex::new(Some(log)),
    });
    let of_signals = appending.clone();
    let _interrupt = Interrupt::watch_and(move |signal| of_signals.end_interrupted(signal))?;
    // After an error, the lines before it are synced and reported, too.
    let appended = appending.append_all(lines);
    let closed = appending.close();
    if let Ok(Some(summary)) = &closed {
        note(summary);
    }
    appended.and(closed.map(drop))
}

/// A log that lines are appended to. The thread of signals may close it.
struct Appending {
    /// `None` after the log is closed.
    log: Mutex<Option<SharedLog>>,
    dir: PathBuf,
    /// The end of the log before the first line.
    first: i64,
    codec: Compression,
    syncs: bool,
}

impl Appending {
    fn lock(&self) -> MutexGuard<'_, Option<SharedLog>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> Failure {
        Failure::failed(format!("log {}: {error}", self.dir.display()))
    }

    fn append_all(&self, mut lines: Lines) -> Result<(), Failure> {
        let mut batch = BatchBuilder::new();
        loop {
            // A reader of the log sees the lines that are there, while the next one has not been written.
            if !batch.is_empty() && !lines.has_whole_line() {
                self.append(std::mem::replace(&mut batch, BatchBuilder::new()))?;
            }
            let Some(line) = lines.next()? else { return Ok(()) };
            if !batch.is_empty() && batch.len() + line.len() > BATCH_BYTES {
                self.append(std::mem::replace(&mut batch, BatchBuilder::new()))?;
            }
            batch.push(time::now_ms(), None, Some(line), &[]);
        }
    }

    fn append(&self, batch: BatchBuilder) -> Result<(), Failure> {
        let seal = Seal { compression: self.codec, ..Seal::default() };
        let sealed = batch.seal(&seal).map_err(|error| self.failed(&error))?;
        // After a signal, its thread has the lock until the process ends.
        let open = self.lock();
        let Some(log) = &*open else { return Ok(()) };
        log.append_sealed(time::now_ms(), sealed).map_err(|error| self.failed(&error))?;
        if self.syncs {
            // After a crash only the last segment is scanned.
            log.sync_closed().map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    /// Syncs and closes the log, and returns the summary.
    fn close(&self) -> Result<Option<String>, Failure> {
        self.lock().take().map(|log| self.finish(log)).transpose()
    }

    fn finish(&self, log: SharedLog) -> Result<String, Failure> {
        if self.syncs {
            log.sync().map_err(|error| self.failed(&error))?;
        }
        let end = log.with(|log| log.end_offset());
        if let Ok(closed) = log.close() {
            closed.map_err(|error| self.failed(&error))?;
        }
        let durable = if self.syncs { ", on disk" } else { "" };
        let appended = counted((end - self.first).unsigned_abs(), "record");
        Ok(format!("{appended} appended, the log ends at {end}{durable}"))
    }

    /// After a signal, closes the log, prints the summary, and ends the process. The next signal ends it at once.
    fn end_interrupted(&self, signal: u8) {
        end_at_next(signal);
        let mut open = self.lock();
        let interrupted = Failure::Interrupted(signal);
        if let Some(log) = open.take() {
            match self.finish(log) {
                Ok(summary) => note(&summary),
                Err(failure) => note(&format!("ottla: {failure}")),
            }
            note(&format!("ottla: {interrupted}"));
        }
        std::process::exit(i32::from(interrupted.exit_code()));
    }
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
        (false, _) => format!(
            "{} in {}\n",
            counted(records.unsigned_abs(), "record"),
            counted(ranges.len() as u64, "damaged range")
        ),
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
