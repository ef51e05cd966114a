//! Measures the rate of compaction: `cargo run --release -p ottla-log --example compaction_rate [MIB] [DIR]`.
//!
//! A log of so many MiB is written, and compacted once. The rate counts the bytes of the segments once, although both
//! passes read them: that is how Apache Kafka's cleaner counts.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark measures real time and prints it"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use ottla_log::storage::fs::FsStorage;
use ottla_log::{AppendOptions, Check, CompactionOptions, Log, LogConfig, Origin};
use ottla_wire::{BatchBuilder, Compression, Seal};

const NOW_MS: i64 = 1_700_000_000_000;
/// As `ottla produce` and Java's producer fill them.
const BATCH_BYTES: usize = 16 * 1024;
const KEY_BYTES: usize = 16;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mib: u64 = args.next().map_or(Ok(512), |mib| mib.parse())?;
    let base = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    println!(
        "record      codec   keys       log MiB  left MiB   seconds     MiB/s  CPU seconds  MiB per CPU second"
    );
    for record_bytes in [100, 1000] {
        for (compression, keys_part) in
            [(Compression::None, 10), (Compression::None, 2), (Compression::Lz4, 10), (Compression::Zstd, 10)]
        {
            let scratch = tempfile::Builder::new().prefix("compaction-").tempdir_in(&base)?;
            let records = (mib << 20) / record_bytes as u64;
            let keys = records / keys_part;
            let config = LogConfig {
                segment_bytes: 64 << 20,
                compact: true,
                tail_cache_bytes: 0,
                ..LogConfig::default()
            };
            let storage = Arc::new(FsStorage::new(scratch.path())?);
            let (mut log, _) = Log::open(storage, "rate-0", config, NOW_MS)?;
            fill(&mut log, records, keys, record_bytes, compression)?;
            log.roll(NOW_MS)?;
            log.sync_now()?;
            let options = CompactionOptions {
                now_ms: NOW_MS,
                age_ms: NOW_MS,
                first_dirty: 0,
                stable_end: i64::MAX,
                map_bytes_max: 256 << 20,
                secret: [1, 2],
                aborted: Vec::new(),
                segment_bytes_max: None,
            };
            let (begun, cpu_before) = (Instant::now(), cpu_seconds());
            let report = log.compact(options)?;
            let seconds = begun.elapsed().as_secs_f64();
            let cpu = cpu_seconds() - cpu_before;
            let in_mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            println!(
                "{record_bytes:>4} bytes  {:<6} {:>9} {:>9.0} {:>9.0} {seconds:>9.2} {:>9.0} {cpu:>12.2} {:>19.0}",
                compression.name(),
                report.keys,
                in_mib(report.bytes_before),
                in_mib(report.bytes_after),
                in_mib(report.bytes_before) / seconds,
                in_mib(report.bytes_before) / cpu,
            );
        }
    }
    Ok(())
}

/// Returns the processor time of this thread; 0 where the system does not tell it. A busy machine does not change it much.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = stat.split_whitespace().next().and_then(|text| text.parse::<f64>().ok());
    nanoseconds.unwrap_or(0.0) / 1e9
}

/// Appends records of random keys.
fn fill(
    log: &mut Log,
    records: u64,
    keys: u64,
    record_bytes: usize,
    compression: Compression,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut rng = fastrand::Rng::with_seed(7);
    // Text that compresses as JSON does: about three times.
    let text: Vec<u8> = (0..1 << 20).map(|_| rng.u8(b'a'..b'i')).collect();
    let mut builder = BatchBuilder::new();
    for n in 0..records {
        let key = format!("{:0KEY_BYTES$}", rng.u64(0..keys));
        let from = rng.usize(0..text.len() - record_bytes);
        builder.push(NOW_MS, Some(key.as_bytes()), Some(&text[from..from + record_bytes - KEY_BYTES]), &[]);
        if builder.len() >= BATCH_BYTES || n + 1 == records {
            let sealed = std::mem::take(&mut builder).seal(&Seal { compression, ..Seal::default() })?;
            let options = AppendOptions {
                origin: Origin::Coordinator,
                check: Check::Trusted,
                ..AppendOptions::default()
            };
            log.append(NOW_MS, BytesMut::from(&sealed.to_bytes()[..]), options)?;
        }
    }
    Ok(())
}
