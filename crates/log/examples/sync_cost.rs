//! Measures the cost of one group commit on a disk:
//! `cargo run --release -p ottla-log --example sync_cost DIR [SECONDS]`.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a measurement of real time")]

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ottla_log::storage::fs::FsStorage;
use ottla_log::{LogConfig, SharedLog, Visible};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("usage: sync_cost DIR [SECONDS]")?;
    let seconds: u64 = args.next().map_or(Ok(5), |text| text.parse())?;
    let storage = Arc::new(FsStorage::new(dir)?);
    let config = LogConfig { visible: Visible::Synced, ..LogConfig::default() };
    let now_ms = || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as i64);
    let (log, _) = SharedLog::open(storage, "sync-cost-0", config, now_ms())?;
    let mut took = Vec::new();
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        log.append_record(now_ms(), None, Some(&[7; 1000]))?;
        let started = Instant::now();
        log.sync()?;
        took.push(started.elapsed());
    }
    let total: Duration = took.iter().sum();
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    println!(
        "{} syncs in {seconds} s: mean {:?}, median {:?}, 99 % {:?}, longest {:?}",
        took.len(),
        total / took.len() as u32,
        at(0.5),
        at(0.99),
        at(1.0)
    );
    Ok(())
}
