//! Measures the parts of an append of one small record, without and with a pause before each, beside raw writes:
//! `cargo run --release -p ottla-log --example append_cost DIR`.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a measurement of real time")]

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_log::storage::fs::FsStorage;
use ottla_log::{LogConfig, SharedLog};
use ottla_wire::{BatchBuilder, Seal};

const NOW_MS: i64 = 1_700_000_000_000;
const TIMES: usize = 4_000;
/// The pause of `ottla bench minikafka`, in which the caches are used by others.
const PAUSE: Duration = Duration::from_micros(200);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let dir = std::env::args().nth(1).ok_or("usage: append_cost DIR")?;
    let storage = Arc::new(FsStorage::new(&dir)?);
    let (log, _) = SharedLog::open(storage, "append-0", LogConfig::default(), NOW_MS)?;
    let mut raw = File::options().append(true).create(true).open(Path::new(&dir).join("raw"))?;
    let batch = sealed()?;
    println!("median ns            without a pause  after {} us", PAUSE.as_micros());
    let mut at = 0;
    row("write, 1 byte", || Ok(raw.write_all(b"x")?))?;
    row(&format!("pwrite, {} bytes", batch.len()), || {
        at += batch.len() as u64;
        Ok(raw.write_all_at(&batch, at)?)
    })?;
    row("encoding the batch", || sealed().map(drop))?;
    row("append_record", || Ok(log.append_record(NOW_MS, None, Some(b"x")).map(drop)?))?;
    Ok(())
}

/// One record of one byte as a batch, with its checksum.
fn sealed() -> Result<Vec<u8>> {
    let mut batch = BatchBuilder::new();
    batch.push(NOW_MS, None, Some(b"x"), &[]);
    Ok(batch.seal(&Seal::default())?.to_bytes().to_vec())
}

fn row(name: &str, mut act: impl FnMut() -> Result<()>) -> Result<()> {
    let mut medians = [Duration::ZERO; 2];
    for (median, pause) in medians.iter_mut().zip([Duration::ZERO, PAUSE]) {
        let mut all = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
            let began = Instant::now();
            act()?;
            all.push(began.elapsed());
        }
        all.sort_unstable();
        *median = all[TIMES / 2];
    }
    println!("{name:20} {:15} {:15}", medians[0].as_nanos(), medians[1].as_nanos());
    Ok(())
}
