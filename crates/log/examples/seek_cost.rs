//! Measures a seek to a random old offset, and a sequential read, beside a raw file:
//! `cargo run --release -p ottla-log --example seek_cost DIR [RECORDS_PER_BATCH]`.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a measurement of real time")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_log::storage::fs::FsStorage;
use ottla_log::{LogConfig, SharedLog};
use ottla_wire::{BatchBuilder, Seal};

const NOW_MS: i64 = 1_700_000_000_000;
const RECORD_BYTES: usize = 1000;
const RECORDS: usize = 64_000;
const SEEKS: usize = 2_000;
/// The first passes fill the page cache.
const PASSES: usize = 5;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("usage: seek_cost DIR [RECORDS_PER_BATCH]")?;
    let batch: usize = args.next().map_or(Ok(16), |text| text.parse())?;
    let log = filled(&dir, batch)?;
    let raw_path = Path::new(&dir).join("raw");
    std::fs::write(&raw_path, vec![7; RECORDS * RECORD_BYTES])?;
    let raw = File::open(&raw_path)?;

    let mut reader = log.reader(0);
    let (mut seeks, mut raw_reads) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..PASSES {
        seeks = median(|offset| {
            reader.seek(offset as i64);
            let batch = reader.try_next()?.ok_or("no batch")?;
            assert!(batch.header.base_offset <= offset as i64);
            Ok(())
        })?;
        raw_reads = median(|offset| {
            let mut record = [0; RECORD_BYTES];
            Ok(raw.read_exact_at(&mut record, (offset * RECORD_BYTES) as u64)?)
        })?;
    }
    let started = Instant::now();
    reader.seek(0);
    let mut bytes = 0;
    while let Some(batch) = reader.try_next()? {
        bytes += batch.bytes.len();
    }
    let mb_per_s = bytes as f64 / 1e6 / started.elapsed().as_secs_f64();
    println!(
        "{batch} records per batch: seek {seeks:?}, raw file {raw_reads:?}, in order {mb_per_s:.0} MB/s"
    );
    Ok(())
}

/// A log with [`RECORDS`] records, which was closed and opened again, so that reads are from its file.
fn filled(dir: &str, per_batch: usize) -> Result<SharedLog> {
    let storage = Arc::new(FsStorage::new(dir)?);
    let name = format!("seek-cost-{per_batch}");
    let open = || SharedLog::open(storage.clone(), &name, LogConfig::default(), NOW_MS);
    let (log, _) = open()?;
    while log.with(|log| log.end_offset()) < RECORDS as i64 {
        let mut batch = BatchBuilder::new();
        (0..per_batch).for_each(|_| batch.push(NOW_MS, None, Some(&[7; RECORD_BYTES]), &[]));
        log.append_sealed(NOW_MS, batch.seal(&Seal::default())?)?;
    }
    log.close().map_err(|_| "a reader is left")??;
    Ok(open()?.0)
}

/// The median time of a read at a random offset.
fn median(mut read: impl FnMut(usize) -> Result<()>) -> Result<Duration> {
    let mut took = Vec::with_capacity(SEEKS);
    // Any fixed sequence of offsets that jumps.
    for number in 0..SEEKS {
        let offset = number * 48_271 % RECORDS;
        let started = Instant::now();
        read(offset)?;
        took.push(started.elapsed());
    }
    took.sort_unstable();
    Ok(took[SEEKS / 2])
}
