//! `ottla bench transactions`: commits one transaction after the other.

use std::time::{Duration, Instant};

use ottla_client::{Producer, Record};

use super::measure::{Phase, histogram, percentiles_us};
use super::payload::Pool;
use super::progress::Progress;
use super::{BenchSetup, CommonArgs, ProducerArgs, described_topic, new_group, prepare};
use crate::connect::runtime;
use crate::failure::Failure;

/// Time limit of a step of a transaction.
const STEP_WITHIN: Duration = Duration::from_secs(30);

/// Measures transactions
///
/// Each transaction has --records messages and is committed before the next one begins. The rate counts transactions. The
/// latency is the time from the beginning to the end of the commit.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Messages of a transaction
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    records: u64,
    #[command(flatten)]
    producing: ProducerArgs,
    #[command(flatten)]
    common: CommonArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let pool = args.producing.pool(&args.common)?;
    let mut config = args.producing.config(&args.common)?;
    config.set("transactional.id", &new_group("transactions"))?;
    let described = ProducerArgs::describe(&config);
    let BenchSetup { client, partitions, .. } = &prepare(&args.common, config)?;
    let producer = client.producer();
    let runtime = runtime()?;
    runtime.block_on(producer.init_transactions(STEP_WITHIN)).map_err(failed)?;
    let warmup = args.producing.warmup(&args.common, 1_000);
    let mut progress = Progress::start()?;
    progress.phase("warm-up", warmup);
    runtime.block_on(commits(&producer, args, &pool, warmup, &progress))?;
    progress.check()?;

    progress.phase("transactions", args.common.count);
    let phase = Phase::start();
    let latencies = runtime.block_on(commits(&producer, args, &pool, args.common.count, &progress))?;
    let bytes = latencies.len() * args.records * pool.size() as u64;
    let mut fields = phase.end(latencies.len(), bytes).json();
    fields.insert("commit_us".into(), percentiles_us(&latencies));
    let title = format!(
        "transactions on {}: {} of {} messages of {} bytes after {warmup} for warm-up, {described}",
        described_topic(&args.common.topic, *partitions),
        latencies.len(),
        args.records,
        pool.size(),
    );
    progress.report(&title, fields, args.common.json)
}

async fn commits(
    producer: &Producer,
    args: &Args,
    pool: &Pool,
    count: u64,
    progress: &Progress,
) -> Result<hdrhistogram::Histogram<u64>, Failure> {
    let mut latencies = histogram();
    let mut messages = pool.messages(0);
    for _ in 0..count {
        if progress.is_interrupted() {
            break;
        }
        progress.show(latencies.len());
        let began = Instant::now();
        producer.begin_transaction().map_err(failed)?;
        for message in messages.by_ref().take(args.records as usize) {
            // The commit fails if it was not written.
            producer.send_unobserved(Record::to(&args.common.topic).value(message)).await?;
        }
        producer.commit_transaction(STEP_WITHIN).await.map_err(failed)?;
        latencies.saturating_record(began.elapsed().as_nanos() as u64);
    }
    Ok(latencies)
}

fn failed(error: ottla_client::TransactionError) -> Failure {
    Failure::failed(error.to_string())
}
