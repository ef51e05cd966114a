//! `ottla bench produce`: measures a record from the call to its delivery result.

use std::time::{Duration, Instant};

use ottla_client::{Client, ProduceError, Producer, Record, Reports};

use super::measure::Phase;
use super::payload::{Pool, Sums};
use super::progress::{END_WITHIN, Progress};
use super::{BenchSetup, CommonArgs, ProducerArgs, described_topic, prepare};
use crate::failure::Failure;
use crate::time;

/// Interval, in records, of taking delivery results, reading the clock and keeping the rate.
const STRIDE: u64 = 256;

/// Time limit for the last acknowledgements.
const FLUSH_WITHIN: Duration = Duration::from_secs(120);

/// Measures producing
///
/// Measures from the first send to the last acknowledgement and checks every delivery result. Prints a checksum of
/// all messages, including the warm-up; `bench consume --sum` compares it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    producing: ProducerArgs,
    /// Messages per second; 0 is full speed
    #[arg(long, default_value_t = 0)]
    rate: u64,
    #[command(flatten)]
    common: CommonArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut config = args.producing.config(&args.common)?;
    let described = ProducerArgs::describe(&config);
    config.delivery_reports = true;
    let BenchSetup { client, partitions, .. } = &prepare(&args.common, config)?;
    let pool = args.producing.pool(&args.common)?;
    let size = pool.size();
    let mut progress = Progress::start()?;
    let mut bench = Bench::new(client, args, &pool)?;
    let warmup = args.producing.warmup(&args.common, 100_000);
    progress.phase("warm-up", warmup);
    bench.send(0, warmup, 0, &progress)?;
    progress.check()?;

    progress.phase("produce", args.common.count);
    let phase = Phase::start();
    let acknowledged = bench.send(warmup, args.common.count, args.rate, &progress)?;
    let measured = phase.end(acknowledged, acknowledged * size as u64);

    let mut sums = Sums::default();
    let all = (warmup + acknowledged) as usize;
    pool.messages(0).take(all).for_each(|message| sums.add(message));
    let title = format!(
        "produce to {}: {} messages of {size} bytes after {warmup} for warm-up, {described}, \
         {}; sum {sums}",
        described_topic(&args.common.topic, *partitions),
        acknowledged,
        if args.rate == 0 { "at full speed".to_owned() } else { format!("at {} per second", args.rate) },
    );
    progress.report(&title, measured.json(), args.common.json)
}

struct Bench<'a> {
    producer: Producer,
    pool: &'a Pool,
    topic: &'a str,
    reports: Reports,
    acknowledged: u64,
}

impl<'a> Bench<'a> {
    fn new(client: &Client, args: &'a Args, pool: &'a Pool) -> Result<Self, Failure> {
        let producer = client.producer();
        Ok(Self { reports: producer.reports()?, producer, pool, topic: &args.common.topic, acknowledged: 0 })
    }

    /// Sends `count` messages from number `from` and takes their results. Returns the number of acknowledged
    /// messages, which is below `count` only after a signal.
    fn send(&mut self, from: u64, count: u64, rate: u64, progress: &Progress) -> Result<u64, Failure> {
        let topic = self.producer.topic(self.topic);
        let mut record = Record::to(self.topic);
        let started = Instant::now();
        let before = self.acknowledged;
        let mut messages = self.pool.messages(from);
        let mut sent = 0;
        while sent < count && !progress.is_interrupted() {
            let stride = STRIDE.min(count - sent);
            record.timestamp_ms = Some(time::now_ms());
            for message in messages.by_ref().take(stride as usize) {
                record.value = Some(message);
                topic.send_unobserved_blocking(&record)?;
            }
            sent += stride;
            self.take_done()?;
            progress.show(self.acknowledged - before);
            if rate > 0 {
                let due = started + Duration::from_secs_f64(sent as f64 / rate as f64);
                let early = due.saturating_duration_since(Instant::now());
                if early > Duration::from_micros(50) {
                    std::thread::sleep(early);
                }
            }
        }
        if progress.is_interrupted() {
            // Messages that are still in flight after this do not count.
            let _ = self.producer.flush_blocking(END_WITHIN);
        } else {
            self.producer.flush_blocking(FLUSH_WITHIN)?;
        }
        self.take_done()?;
        let got = self.acknowledged - before;
        if got != count && !progress.is_interrupted() {
            return Err(Failure::failed(format!("{got} of {count} messages were acknowledged")));
        }
        Ok(got)
    }

    #[inline]
    fn take_done(&mut self) -> Result<(), ProduceError> {
        while let Some(report) = self.reports.try_next() {
            report.result().map_err(Clone::clone)?;
            self.acknowledged += report.iter().filter(|record| record.tag.is_none()).count() as u64;
        }
        Ok(())
    }
}
