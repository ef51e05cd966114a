//! `ottla bench minikafka`: measures how long a message takes from one thread to another, through a file and through
//! our log.
//!
//! The experiment is from the minikafka article. One thread appends messages of one byte to a file and another reads
//! them. The time from the end of the write to the end of the read is averaged over 128 messages.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ottla_log::storage::fs::FsStorage;
use ottla_log::{LogConfig, SharedLog};
use ottla_wire::{BatchBuilder, Seal};
use rustix::fs::{Advice, fadvise, inotify};
use serde_json::{Map, Value, json};

use super::measure::rounded;
use crate::failure::Failure;
use crate::output::print;
use crate::table::Table;
use crate::time;

/// Number of messages, as in the article.
const MESSAGES: usize = 128;
/// Pause between messages, so that the reader has to wait.
const PAUSE: Duration = Duration::from_micros(200);
/// Time limit of a reader for one message.
const MESSAGE_WITHIN: Duration = Duration::from_secs(10);
/// Record size of the log whose old offsets are read.
const OLD_RECORD_BYTES: usize = 1000;
/// Number of reads at old offsets.
const OLD_READS: usize = 64;

/// Measures the log itself: one thread appends, another reads
///
/// Runs the article's experiment with a raw file and with our log, which adds offsets and checksums. Readers spin or
/// wait. Also compares reads of old offsets with a cold page cache and reads of the tail.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory to write to; a tmpfs has no cold page cache [default: the system's temporary directory]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Number of repetitions of each experiment; the median is printed
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: u32,
    /// Size of the log for reads of old offsets, in MiB
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    old_mib: u32,
    /// Prints one JSON object as the last line
    #[arg(long)]
    json: bool,
}

/// The way in which the reader waits for a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Reader {
    Spins,
    Waits,
}

/// Average nanoseconds per message.
#[derive(Clone, Copy, Debug)]
struct Delay {
    /// Measured from the end of the write, as in the article.
    after_write: f64,
    /// Measured from the beginning of the write.
    with_write: f64,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let scratch = tempfile::Builder::new()
        .prefix("ottla-minikafka-")
        .tempdir_in(&parent)
        .map_err(|error| Failure::file(&parent, &error))?;
    let mut table =
        Table::new(["EXPERIMENT", "FILE_NS", "LOG_NS", "FILE_NS_WITH_WRITE", "LOG_NS_WITH_WRITE"]);
    let mut fields = Map::new();
    for (name, reader, pause) in [
        ("spin", Reader::Spins, Duration::ZERO),
        ("spin_paced", Reader::Spins, PAUSE),
        ("wait_paced", Reader::Waits, PAUSE),
    ] {
        let (mut files, mut logs) = (Vec::new(), Vec::new());
        for round in 0..args.repeat {
            let dir = scratch.path().join(format!("{name}-{round}"));
            std::fs::create_dir(&dir).map_err(|error| Failure::file(&dir, &error))?;
            files.push(through_file(&dir, reader, pause)?);
            logs.push(through_log(&dir, reader, pause)?);
        }
        let (file, log) = (median(&files), median(&logs));
        let ns = |number: f64| format!("{number:.0}");
        table.row([
            name.to_owned(),
            ns(file.after_write),
            ns(log.after_write),
            ns(file.with_write),
            ns(log.with_write),
        ]);
        fields.insert(name.into(), json!({ "file_ns": of(file), "log_ns": of(log) }));
    }
    let text = format!(
        "minikafka: {MESSAGES} messages of one byte from thread to thread, average delay in ns, median of {} runs in {}\n\
         (spin: without a pause, as in the article; paced: {} us between messages; with write: from before the write)\n{}",
        args.repeat,
        parent.display(),
        PAUSE.as_micros(),
        table.render()
    );
    print(&text)?;
    fields.insert("old_reads_us".into(), old_reads(scratch.path(), args.old_mib)?);
    if args.json {
        print(&format!("{}\n", Value::Object(fields)))?;
    }
    Ok(())
}

fn of(delay: Delay) -> Value {
    json!({ "after_write": rounded(delay.after_write, 1), "with_write": rounded(delay.with_write, 1) })
}

fn median(delays: &[Delay]) -> Delay {
    let middle = |pick: fn(&Delay) -> f64| {
        let mut numbers: Vec<f64> = delays.iter().map(pick).collect();
        numbers.sort_by(f64::total_cmp);
        numbers[numbers.len() / 2]
    };
    Delay { after_write: middle(|delay| delay.after_write), with_write: middle(|delay| delay.with_write) }
}

/// One experiment: `write` appends message number n, `read` returns the number of the next message.
fn experiment(
    pause: Duration,
    mut write: impl FnMut(u8) -> Result<(), Failure> + Send,
    mut read: impl FnMut() -> Result<u8, Failure> + Send,
) -> Result<Delay, Failure> {
    let base = Instant::now();
    let ready = AtomicBool::new(false);
    let elapsed = || base.elapsed().as_nanos() as i64;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = [0i64; MESSAGES];
            ready.store(true, Ordering::Release);
            for (expected, seen) in seen.iter_mut().enumerate() {
                let number = read()?;
                *seen = elapsed();
                if usize::from(number) != expected {
                    return Err(Failure::failed(format!("received message {number}, expected {expected}")));
                }
            }
            Ok(seen)
        });
        while !ready.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        let (mut begun, mut written) = ([0i64; MESSAGES], [0i64; MESSAGES]);
        for number in 0..MESSAGES {
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
            begun[number] = elapsed();
            write(number as u8)?;
            written[number] = elapsed();
        }
        let seen = reader.join().unwrap_or_else(|_| Err(Failure::failed("the reader panicked")))?;
        let average = |from: &[i64]| {
            seen.iter().zip(from).map(|(seen, from)| (seen - from) as f64).sum::<f64>() / MESSAGES as f64
        };
        Ok(Delay { after_write: average(&written), with_write: average(&begun) })
    })
}

fn through_file(dir: &Path, reader: Reader, pause: Duration) -> Result<Delay, Failure> {
    let path = dir.join("messages");
    let failed = |error: std::io::Error| Failure::file(&path, &error);
    let mut out = File::options().append(true).create(true).open(&path).map_err(failed)?;
    let input = File::open(&path).map_err(failed)?;
    let watch = match reader {
        Reader::Spins => None,
        Reader::Waits => Some(watch(&path).map_err(|errno| failed(errno.into()))?),
    };
    let write = |number: u8| out.write_all(&[number]).map_err(failed);
    let mut offset = 0;
    let read = move || {
        let mut byte = [0];
        loop {
            if input.read_at(&mut byte, offset).map_err(failed)? == 1 {
                offset += 1;
                return Ok(byte[0]);
            }
            if let Some(mut watch) = watch.as_ref() {
                // Any event suffices: the file is read again. Events that came earlier are still queued.
                watch.read(&mut [0; 4096]).map_err(failed)?;
            }
        }
    };
    experiment(pause, write, read)
}

/// A file descriptor that becomes readable when the file at `path` is written to.
fn watch(path: &Path) -> rustix::io::Result<File> {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    inotify::add_watch(&watch, path, inotify::WatchFlags::MODIFY)?;
    Ok(watch.into())
}

fn through_log(dir: &Path, reader: Reader, pause: Duration) -> Result<Delay, Failure> {
    let log = open_log(dir)?;
    let now_ms = time::now_ms();
    let mut tail = log.reader(0);
    let write = |number: u8| log.append_record(now_ms, None, Some(&[number])).map(|_| ()).map_err(log_failed);
    let read = move || {
        let batch = loop {
            let batch = match reader {
                Reader::Spins => tail.try_next(),
                Reader::Waits => tail.next_blocking(MESSAGE_WITHIN),
            };
            if let Some(batch) = batch.map_err(log_failed)? {
                break batch;
            }
        };
        batch.header.verify_crc(&batch.bytes).map_err(log_failed)?;
        let records = batch.records(1 << 20).map_err(log_failed)?;
        let record = records.iter().next().transpose().map_err(log_failed)?;
        let value = record.and_then(|record| record.value?.first().copied());
        value.ok_or_else(|| Failure::failed("a record has no value"))
    };
    let delay = experiment(pause, write, read)?;
    drop(log);
    // The written records must be visible to a later process too.
    let recovered = open_log(dir)?.with(|log| log.end_offset());
    if recovered != MESSAGES as i64 {
        return Err(Failure::failed(format!("the log has {recovered} records after it was reopened")));
    }
    Ok(delay)
}

fn open_log(dir: &Path) -> Result<SharedLog, Failure> {
    let storage = FsStorage::new(dir).map_err(|error| Failure::file(dir, &error))?;
    let opened = SharedLog::open(Arc::new(storage), "log", LogConfig::default(), time::now_ms());
    opened.map(|(log, _)| log).map_err(log_failed)
}

fn log_failed(error: impl std::fmt::Display) -> Failure {
    Failure::failed(format!("log: {error}"))
}

/// Reads old offsets with an empty page cache, the same offsets again, and the tail.
fn old_reads(dir: &Path, mib: u32) -> Result<Value, Failure> {
    let dir = dir.join("old");
    std::fs::create_dir(&dir).map_err(|error| Failure::file(&dir, &error))?;
    let log = open_log(&dir)?;
    let value = vec![b'x'; OLD_RECORD_BYTES];
    let records = (u64::from(mib) << 20) / OLD_RECORD_BYTES as u64;
    let mut left = records;
    while left > 0 {
        let mut batch = BatchBuilder::new();
        let count = left.min(16);
        (0..count).for_each(|_| batch.push(time::now_ms(), None, Some(&value), &[]));
        log.append_sealed(time::now_ms(), batch.seal(&Seal::default()).map_err(log_failed)?)
            .map_err(log_failed)?;
        left -= count;
    }
    log.sync().map_err(log_failed)?;
    // The newest records are in memory anyway: only the oldest three quarters are read.
    let mut rng = fastrand_like(17);
    let offsets: Vec<i64> = (0..OLD_READS).map(|_| (rng() % (records * 3 / 4).max(1)) as i64).collect();
    empty_page_cache(&dir.join("log"))?;
    let cold = read_each(&log, &offsets)?;
    let warm = read_each(&log, &offsets)?;
    let path = dir.join("records");
    let raw = RawRecords::write(&path, &value, records).map_err(|error| Failure::file(&path, &error))?;
    empty_page_cache(&dir)?;
    let file_cold = raw.read_each(&offsets).map_err(|error| Failure::file(&path, &error))?;
    let file_warm = raw.read_each(&offsets).map_err(|error| Failure::file(&path, &error))?;
    let tail = read_tail(&log, &value)?;
    let mut table = Table::new(["READING", "MEDIAN_US", "MAX_US"]);
    let mut fields = Map::new();
    for (name, mut times) in [
        ("file_old_cold", file_cold),
        ("old_cold", cold),
        ("file_old_warm", file_warm),
        ("old_warm", warm),
        ("tail", tail),
    ] {
        times.sort_unstable();
        let us = |time: Duration| rounded(time.as_nanos() as f64 / 1e3, 2);
        let (median, max) = (us(times[times.len() / 2]), us(times[times.len() - 1]));
        table.row([name.to_owned(), format!("{median:.2}"), format!("{max:.2}")]);
        fields.insert(name.into(), json!({ "median": median, "max": max }));
    }
    print(&format!(
        "\n{OLD_READS} reads at random offsets of {mib} MiB of log: page cache emptied, then again; and of the tail\n{}",
        table.render()
    ))?;
    Ok(Value::Object(fields))
}

/// A file of records of one size, without offsets and checksums: the peer of reads at old offsets.
struct RawRecords {
    file: File,
    record_bytes: usize,
}

impl RawRecords {
    fn write(path: &Path, value: &[u8], records: u64) -> std::io::Result<Self> {
        let mut out = BufWriter::new(File::create(path)?);
        (0..records).try_for_each(|_| out.write_all(value))?;
        out.flush()?;
        Ok(Self { file: File::open(path)?, record_bytes: value.len() })
    }

    /// Reads the record at each offset, whose position follows from its size.
    fn read_each(&self, offsets: &[i64]) -> std::io::Result<Vec<Duration>> {
        let mut record = vec![0; self.record_bytes];
        let mut times = Vec::new();
        for offset in offsets {
            let started = Instant::now();
            self.file.read_exact_at(&mut record, *offset as u64 * self.record_bytes as u64)?;
            times.push(started.elapsed());
        }
        Ok(times)
    }
}

/// Asks the system to drop the files of a directory from its page cache.
fn empty_page_cache(dir: &Path) -> Result<(), Failure> {
    for entry in std::fs::read_dir(dir).map_err(|error| Failure::file(dir, &error))?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            continue;
        }
        let file = File::open(&path).map_err(|error| Failure::file(&path, &error))?;
        file.sync_all().map_err(|error| Failure::file(&path, &error))?;
        fadvise(&file, 0, None, Advice::DontNeed).map_err(|errno| Failure::file(&path, &errno.into()))?;
    }
    Ok(())
}

fn read_each(log: &SharedLog, offsets: &[i64]) -> Result<Vec<Duration>, Failure> {
    let mut reader = log.reader(0);
    let mut times = Vec::new();
    for offset in offsets {
        let started = Instant::now();
        reader.seek(*offset);
        let batch = reader.try_next().map_err(log_failed)?;
        times.push(started.elapsed());
        if batch.is_none_or(|batch| batch.header.last_offset() < *offset) {
            return Err(Failure::failed(format!("log: offset {offset} was not found")));
        }
    }
    Ok(times)
}

fn read_tail(log: &SharedLog, value: &[u8]) -> Result<Vec<Duration>, Failure> {
    let mut reader = log.reader(log.with(|log| log.end_offset()));
    let mut times = Vec::new();
    for _ in 0..OLD_READS {
        log.append_record(time::now_ms(), None, Some(value)).map_err(log_failed)?;
        let started = Instant::now();
        let batch = reader.try_next().map_err(log_failed)?;
        times.push(started.elapsed());
        batch.ok_or_else(|| Failure::failed("log: the tail was not found"))?;
    }
    Ok(times)
}

/// A reproducible random sequence (xorshift).
fn fastrand_like(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed | 0x9e37_79b9_0000_0001;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}
