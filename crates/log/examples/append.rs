//! How fast one thread appends: small batches and large ones, to files and to memory.
//!
//! ```text
//! cargo run --release -p ottla-log --example append -- /tmp/somewhere
//! ```
#![allow(clippy::disallowed_methods, reason = "an example measures real time")]

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use ottla_log::storage::{Storage, fs::FsStorage, mem::MemStorage};
use ottla_log::{AppendOptions, Log, LogConfig};
use ottla_wire::{BatchBuilder, Seal};

fn main() -> Result<(), Box<dyn Error>> {
    let dir =
        std::env::args_os().nth(1).map_or_else(|| std::env::temp_dir().join("ottla-append"), Into::into);
    let fs = FsStorage::new(&dir)?;
    let config = LogConfig { retention_bytes: Some(0), segment_bytes: 128 << 20, ..LogConfig::default() };
    for (name, storage) in
        [("files", Arc::new(fs) as Arc<dyn Storage>), ("memory", Arc::new(MemStorage::new()))]
    {
        for (records, value_bytes, count) in [(1, 1, 200_000), (100, 100, 20_000), (1000, 1000, 500)] {
            let mut builder = BatchBuilder::new();
            for n in 0..records {
                builder.push(n, None, Some(&vec![n as u8; value_bytes]), &[]);
            }
            let batch = builder.seal(&Seal::default())?.to_bytes();
            let (mut log, _) = Log::open(storage.clone(), "append-0", config.clone(), 0)?;
            let mut spent = std::time::Duration::ZERO;
            for n in 0..count {
                let bytes = BytesMut::from(&batch[..]);
                let start = Instant::now();
                log.append(0, bytes, AppendOptions::default())?;
                spent += start.elapsed();
                if n % 100 == 99 {
                    drop(log.enforce_retention(0)?);
                }
            }
            let per = spent.as_nanos() as u64 / count;
            println!(
                "{name}: batches of {} bytes: {per} ns each, {} MB/s",
                batch.len(),
                batch.len() as u64 * 1000 / per
            );
            log.delete()?;
        }
    }
    Ok(())
}
