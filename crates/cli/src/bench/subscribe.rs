//! `ottla bench subscribe`: measures how soon the only member of a new group receives a record.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use ottla_client::{Config, Consumer, Polled};

use super::measure::{Phase, histogram, percentiles_us};
use super::progress::Progress;
use super::{CommonArgs, new_group, prepare};
use crate::connect::runtime;
use crate::failure::Failure;

/// Time limit for the first record, and for leaving the group.
const WITHIN: Duration = Duration::from_secs(30);

/// Measures joining a group
///
/// Repeats --count times: a consumer with its own client and a new group subscribes to the topic, which must contain
/// a message. It leaves after the first message. The measured time includes the creation of the client, the
/// connections and the lookup of the coordinator, but not leaving.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of groups before the measured ones
    #[arg(long, default_value_t = 1)]
    warmup: u64,
    #[command(flatten)]
    common: CommonArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let config = args.common.config()?;
    prepare(&args.common, config.clone())?;
    let groups = new_group("subscribe");
    let mut progress = Progress::start()?;
    let join_all = |progress: &Progress, from, count| -> Result<Histogram<u64>, Failure> {
        let mut latencies = histogram();
        for number in from..from + count {
            if progress.is_interrupted() {
                break;
            }
            progress.show(latencies.len());
            let latency = join(&config, &args.common.topic, &format!("{groups}-{number}"))?;
            latencies.saturating_record(latency.as_nanos() as u64);
        }
        Ok(latencies)
    };
    join_all(&progress, 0, args.warmup)?;
    progress.check()?;

    progress.phase("groups", args.common.count);
    let phase = Phase::start();
    let latencies = join_all(&progress, args.warmup, args.common.count)?;
    let mut fields = phase.end(latencies.len(), 0).json();
    fields.insert("first_us".into(), percentiles_us(&latencies));
    let title = format!(
        "first record of {} in a new group of one: {} groups after {} for warm-up",
        args.common.topic,
        latencies.len(),
        args.warmup,
    );
    progress.report(&title, fields, args.common.json)
}

fn join(config: &Config, topic: &str, group: &str) -> Result<Duration, Failure> {
    let mut config = config.clone();
    config.set_all([("group.id", group), ("auto.offset.reset", "earliest")])?;
    let runtime = runtime()?;
    let began = Instant::now();
    let mut consumer = Consumer::new(config)?;
    runtime.block_on(consumer.subscribe(&[topic]))?;
    let deadline = began + WITHIN;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match consumer.poll_blocking(left)? {
            Some(Polled::Records(_)) => break,
            Some(_) => {}
            None => {
                return Err(Failure::failed(format!(
                    "group {group}: no record of {topic} within {} s",
                    WITHIN.as_secs()
                )));
            }
        }
    }
    let latency = began.elapsed();
    consumer.close_blocking(WITHIN)?;
    Ok(latency)
}
