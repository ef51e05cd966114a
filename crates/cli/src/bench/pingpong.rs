//! `ottla bench pingpong`: produces and flushes one message at a time.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use ottla_client::{Producer, Record};

use super::measure::{Phase, histogram, percentiles_us};
use super::payload::Pool;
use super::progress::Progress;
use super::{BenchSetup, CommonArgs, ProducerArgs, described_topic, prepare};
use crate::failure::Failure;

/// Time limit of one round trip.
const FLUSH_WITHIN: Duration = Duration::from_secs(30);

/// Measures round trips
///
/// Produces and flushes each message before the next one. The rate counts round trips. The latency is the time from
/// the call to the end of the flush.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    producing: ProducerArgs,
    #[command(flatten)]
    common: CommonArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let pool = args.producing.pool(&args.common)?;
    let config = args.producing.config(&args.common)?;
    let described = ProducerArgs::describe(&config);
    let BenchSetup { client, partitions, .. } = &prepare(&args.common, config)?;
    let producer = client.producer();
    let warmup = args.producing.warmup(&args.common, 10_000);
    let mut progress = Progress::start()?;
    progress.phase("warm-up", warmup);
    round_trips(&producer, args, &pool, 0, warmup, &progress)?;
    progress.check()?;

    progress.phase("round trips", args.common.count);
    let phase = Phase::start();
    let latencies = round_trips(&producer, args, &pool, warmup, args.common.count, &progress)?;
    let measured = phase.end(latencies.len(), latencies.len() * pool.size() as u64);

    let mut fields = measured.json();
    fields.insert("ack_us".into(), percentiles_us(&latencies));
    let title = format!(
        "round trips through {}: {} messages of {} bytes after {warmup} for warm-up, \
         {described}",
        described_topic(&args.common.topic, *partitions),
        latencies.len(),
        pool.size(),
    );
    progress.report(&title, fields, args.common.json)
}

fn round_trips(
    producer: &Producer,
    args: &Args,
    pool: &Pool,
    from: u64,
    count: u64,
    progress: &Progress,
) -> Result<Histogram<u64>, Failure> {
    let topic = producer.topic(&args.common.topic);
    let mut latencies = histogram();
    for message in pool.messages(from).take(count as usize) {
        if progress.is_interrupted() {
            break;
        }
        progress.show(latencies.len());
        let began = Instant::now();
        let delivery = topic.enqueue_blocking(Record::to(&args.common.topic).value(message))?;
        producer.flush_blocking(FLUSH_WITHIN)?;
        match delivery.try_offset() {
            Some(Ok(_)) => latencies.saturating_record(began.elapsed().as_nanos() as u64),
            Some(Err(error)) => return Err(error.clone().into()),
            None => return Err(Failure::failed("a flushed message has no delivery result")),
        }
    }
    Ok(latencies)
}
