//! One thread appends, another reads at the tail: how long after `append` returned is the record seen?
//!
//! ```text
//! cargo run --release -p ottla-log --example tail -- /tmp/somewhere
//! ```
//!
//! Needs a core for each of the two; then a spinning reader sees a record well below a microsecond after the append.
#![allow(clippy::disallowed_methods, reason = "an example measures real time")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ottla_log::storage::fs::FsStorage;
use ottla_log::{LogConfig, SharedLog};

const RECORDS: u64 = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args_os().nth(1).map_or_else(|| std::env::temp_dir().join("ottla-tail"), Into::into);
    let now_ms = 1_700_000_000_000;
    let storage = Arc::new(FsStorage::new(&dir)?);
    let (log, report) = SharedLog::open(storage, "tail-0", LogConfig::default(), now_ms)?;
    println!("opened {} at offset {} ({report:?})", dir.display(), log.tail().end());

    let start = Instant::now();
    let returned_at: Arc<[AtomicU64]> = (0..RECORDS).map(|_| AtomicU64::new(0)).collect();
    let mut reader = log.reader(log.tail().end());
    let watching = returned_at.clone();
    let reading = std::thread::spawn(move || {
        let mut delays = Vec::with_capacity(RECORDS as usize);
        for returned in watching.iter() {
            let batch = loop {
                match reader.try_next() {
                    Ok(Some(batch)) => break batch,
                    Ok(None) => std::hint::spin_loop(),
                    Err(error) => panic!("{error}"),
                }
            };
            let seen = start.elapsed().as_nanos() as u64;
            std::hint::black_box(batch);
            // Often the record is seen before the writer has even noted the time.
            let mut at = returned.load(Ordering::Acquire);
            while at == 0 {
                std::hint::spin_loop();
                at = returned.load(Ordering::Acquire);
            }
            delays.push(seen.saturating_sub(at));
        }
        delays
    });

    let mut appends = Vec::with_capacity(RECORDS as usize);
    for returned in returned_at.iter() {
        let before = Instant::now();
        log.append_record(now_ms, None, Some(b"x"))?;
        let after = start.elapsed();
        appends.push(before.elapsed().as_nanos() as u64);
        returned.store(after.as_nanos() as u64, Ordering::Release);
        // A pause, so that each record finds a reader that waits for it.
        while start.elapsed() < after + Duration::from_micros(5) {
            std::hint::spin_loop();
        }
    }
    let mut delays = reading.join().map_err(|_| "the reader panicked")?;
    for (name, times) in [("append", &mut appends), ("seen after append returned", &mut delays)] {
        times.sort_unstable();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        println!(
            "{name}: median {} ns, 90 % {} ns, 99 % {} ns, worst {} us",
            at(0.5),
            at(0.9),
            at(0.99),
            at(1.0) / 1000
        );
    }
    log.with(|log| log.size_bytes());
    if let Ok(closed) = log.close() {
        closed?;
    }
    Ok(())
}
