//! `ottla bench patterns`: the four consumer modes, with JSON decoding of `{"id": N}`.

mod live;
mod waits;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ottla_client::{Config, OffsetAt, Record, TopicPartition};
use ottla_parallel::{Builder, Failure as Failed, Mode, Order, Processor};
use serde::Deserialize;

use super::measure::{Measured, Phase, rounded};
use super::progress::Progress;
use super::{BenchSetup, CommonArgs, prepare};
use crate::connect::runtime;
use crate::failure::Failure;
use crate::output::note;

/// Time without messages after which the topic is considered exhausted.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Interval at which progress is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

const WRITE_WITHIN: Duration = Duration::from_secs(120);

/// Measures the four consumer modes
///
/// Each mode reads --count messages `{"id": N}` from the beginning of the topic, in a new group, decodes them and
/// commits finished messages. The sum of the ids is checked. --fill produces missing messages first.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: CommonArgs,
    /// Modes to measure, separated by commas: sync, batch, multi-async, multi-batch [default: all]
    #[arg(long, value_delimiter = ',', value_parser = parse_mode)]
    mode: Vec<Mode>,
    /// Number of workers in the multi modes
    #[arg(long, default_value_t = 8)]
    workers: usize,
    /// Order to keep: none, partition, key [default: partition with one worker, none with several]
    #[arg(long, value_parser = parse_order)]
    order: Option<Order>,
    /// Turns off tracking and commits, to measure their cost
    #[arg(long)]
    untracked: bool,
    /// Time in microseconds that an async handler waits for each message (multi-async)
    #[arg(long, default_value_t = 0)]
    wait_us: u64,
    /// Time in microseconds that each message blocks its worker (multi-async)
    #[arg(long, default_value_t = 0, conflicts_with = "wait_us")]
    block_us: u64,
    /// Number of times the topic is read, each time in a new group
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Measures waiting handlers instead: 1 to 1,000 concurrent async handlers that wait 1 ms, and 1 to 200 blocking
    /// handlers that wait 10 ms
    #[arg(long, conflicts_with_all = ["live", "rounds", "untracked"])]
    waits: bool,
    /// Measures the lag of each mode behind a producer of this many messages per second, in separate topics
    #[arg(long, value_name = "RATE", conflicts_with_all = ["fill", "rounds", "untracked"], value_parser = clap::value_parser!(u64).range(1..))]
    live: Option<u64>,
    /// Duration of --live in seconds
    #[arg(long, default_value_t = 60, requires = "live", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Produces messages until the topic has --count, with this number of keys (0: without keys)
    #[arg(long, value_name = "KEYS")]
    fill: Option<u64>,
}

#[derive(Deserialize)]
struct Message {
    id: u64,
}

pub(crate) fn parse_mode(text: &str) -> Result<Mode, String> {
    let known = Mode::ALL.into_iter().find(|mode| mode.name() == text);
    known.ok_or_else(|| format!("`{text}` is not one of sync, batch, multi-async, multi-batch"))
}

pub(crate) fn parse_order(text: &str) -> Result<Order, String> {
    match text {
        "none" => Ok(Order::None),
        "partition" => Ok(Order::Partition),
        "key" => Ok(Order::Key),
        _ => Err(format!("`{text}` is not one of none, partition, key")),
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let config = args.common.config()?;
    let prepared = prepare(&args.common, config.clone())?;
    let modes = if args.mode.is_empty() { Mode::ALL.to_vec() } else { args.mode.clone() };
    if let Some(rate) = args.live {
        return live::run(args, &prepared.client, &config, &modes, rate);
    }
    fill(args, &prepared)?;
    if args.waits {
        return waits::run(args, &config);
    }
    let mut progress = Progress::start()?;
    for mode in modes {
        progress.phase(mode.name(), args.common.count);
        measure(args, mode, &config, &progress)?;
    }
    Ok(())
}

/// Ensures that the topic has enough messages.
fn fill(args: &Args, prepared: &BenchSetup) -> Result<(), Failure> {
    let topic = &args.common.topic;
    let admin = prepared.client.admin();
    let ends = (0..prepared.partitions as i32)
        .map(|partition| (TopicPartition::new(topic, partition), OffsetAt::Latest))
        .collect::<Vec<_>>();
    let there: i64 = runtime()?.block_on(admin.list_offsets(&ends))?.values().sum();
    let there = there as u64;
    let Some(keys) = args.fill else {
        if there == args.common.count {
            return Ok(());
        }
        let count = args.common.count;
        return Err(Failure::failed(format!(
            "topic `{topic}` has {there} messages, not {count}: add --fill 0"
        )));
    };
    let producer = prepared.client.producer();
    let sender = producer.topic(topic);
    for id in there..args.common.count {
        let value = format!("{{\"id\":{id}}}");
        let key = if keys > 0 { (id % keys).to_string() } else { String::new() };
        let record = Record::to(topic).value(&value);
        sender.send_unobserved_blocking(&if keys > 0 { record.key(&key) } else { record })?;
    }
    producer.flush_blocking(WRITE_WITHIN)?;
    Ok(())
}

/// The totals of all workers.
#[derive(Default)]
struct Totals {
    sum: AtomicU64,
    waits: AtomicU64,
    waited_ns: AtomicU64,
}

/// The totals of one worker, added to [`Totals`] when the worker is dropped.
#[derive(Default)]
struct WorkerTotals {
    sum: u64,
    waits: u64,
    waited: Duration,
    all: Arc<Totals>,
}

impl Clone for WorkerTotals {
    fn clone(&self) -> Self {
        Self { all: self.all.clone(), ..Self::default() }
    }
}

impl Drop for WorkerTotals {
    fn drop(&mut self) {
        self.all.sum.fetch_add(self.sum, Ordering::Relaxed);
        self.all.waits.fetch_add(self.waits, Ordering::Relaxed);
        self.all.waited_ns.fetch_add(self.waited.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl WorkerTotals {
    fn of(all: &Arc<Totals>) -> Self {
        Self { all: all.clone(), ..Self::default() }
    }

    #[inline]
    fn take(&mut self, value: Option<&[u8]>) -> Result<(), Failed> {
        let message: Message =
            serde_json::from_slice(value.unwrap_or_default()).map_err(Failed::undecodable)?;
        self.sum += message.id;
        Ok(())
    }

    /// Records the actual wait: timers fire late.
    fn waited_since(&mut self, began: Instant) {
        self.waits += 1;
        self.waited += began.elapsed();
    }
}

impl Totals {
    /// Waits until every worker has been dropped and has added its totals.
    fn await_all(self: &Arc<Self>) {
        let began = Instant::now();
        while Arc::strong_count(self) > 1 && began.elapsed() < SILENCE_MAX {
            std::thread::park_timeout(CHECK_INTERVAL);
        }
    }

    fn mean_wait(&self) -> Duration {
        let waits = self.waits.load(Ordering::Relaxed).max(1);
        Duration::from_nanos(self.waited_ns.load(Ordering::Relaxed) / waits)
    }
}

/// A unique group name.
fn group(kind: &str) -> String {
    let unique = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("patterns-{kind}-{unique}")
}

/// Runs all rounds of a mode. Reports their total and the time from the first to the last.
fn measure(args: &Args, mode: Mode, config: &Config, progress: &Progress) -> Result<(), Failure> {
    let began = Instant::now();
    let mut measured = round(args, mode, config.clone(), progress)?;
    for _ in 1..args.rounds {
        if progress.is_interrupted() {
            break;
        }
        let next = round(args, mode, config.clone(), progress)?;
        measured.messages += next.messages;
        measured.wall += next.wall;
        measured.cpu += next.cpu;
        measured.max_rss_kb = next.max_rss_kb;
        note(&format!(
            "{}: {} messages in {:.1} s",
            mode.name(),
            measured.messages,
            began.elapsed().as_secs_f64()
        ));
    }
    let cores = measured.cpu.as_secs_f64() / measured.wall.as_secs_f64().max(1e-9);
    let mut fields = measured.json();
    fields.insert("mode".into(), mode.name().into());
    fields.insert("cores".into(), rounded(cores, 2).into());
    if args.rounds > 1 {
        fields.insert("rounds".into(), args.rounds.into());
        fields.insert("elapsed_s".into(), rounded(began.elapsed().as_secs_f64(), 3).into());
    }
    let (count, tracked) = (measured.messages, if args.untracked { "untracked" } else { "committed" });
    let title = format!("{} from {}: {count} messages decoded, {tracked}", mode.name(), args.common.topic);
    progress.report(&title, fields, args.common.json)
}

/// Reads the whole topic once.
fn round(args: &Args, mode: Mode, mut config: Config, progress: &Progress) -> Result<Measured, Failure> {
    let count = args.common.count;
    config.set_all([("group.id", &*group(mode.name())), ("auto.offset.reset", "earliest")])?;
    let mut builder = Processor::builder(config, mode).topics([&*args.common.topic]).workers(args.workers);
    if let Some(order) = args.order {
        builder = builder.order(order);
    }
    if args.untracked {
        builder = builder.untracked();
    }
    let totals: Arc<Totals> = Arc::default();
    let phase = Phase::start();
    let (wait, block) = (Duration::from_micros(args.wait_us), Duration::from_micros(args.block_us));
    let processor = start(mode, builder, WorkerTotals::of(&totals), wait, block)?;
    let (mut handled, mut moved) = (0, Instant::now());
    while handled < count && !progress.is_interrupted() {
        progress.show(handled);
        std::thread::park_timeout(CHECK_INTERVAL);
        let now = processor.metrics().handled;
        if now > handled {
            (handled, moved) = (now, Instant::now());
        } else if moved.elapsed() > SILENCE_MAX || processor.is_stopped() {
            processor.stop();
            processor.join()?;
            return Err(Failure::failed(format!(
                "{}: received only {handled} of {count} messages",
                mode.name()
            )));
        }
    }
    let measured = phase.end(handled, 0);
    processor.stop();
    processor.join()?;
    totals.await_all();
    if progress.is_interrupted() {
        return Ok(measured);
    }
    let (sum, expected) = (totals.sum.load(Ordering::Relaxed), count * (count - 1) / 2);
    if sum != expected {
        return Err(Failure::failed(format!(
            "{}: the sum of the ids is {sum}, expected {expected}",
            mode.name()
        )));
    }
    Ok(measured)
}

/// Starts a processor whose handlers add up ids. In the modes of single messages they first wait or block.
fn start(
    mode: Mode,
    builder: Builder,
    mut tally: WorkerTotals,
    wait: Duration,
    block: Duration,
) -> Result<Processor, Failure> {
    let started = match mode {
        Mode::Batch | Mode::MultiBatch => builder.start_batches(move |messages| {
            messages.iter().try_for_each(|record| tally.take(record.value()))?;
            Ok(())
        }),
        Mode::Sync | Mode::MultiAsync if !wait.is_zero() => builder.start_each_async(async move |message| {
            let began = Instant::now();
            // tokio's timers count in milliseconds: 1 ms would take 2.
            futures_timer::Delay::new(wait).await;
            tally.waited_since(began);
            tally.take(message.value())
        }),
        Mode::Sync | Mode::MultiAsync if !block.is_zero() => builder.start_each(move |message| {
            let began = Instant::now();
            std::thread::sleep(block);
            tally.waited_since(began);
            tally.take(message.value())
        }),
        Mode::Sync | Mode::MultiAsync => builder.start_each(move |message| tally.take(message.value())),
    };
    Ok(started?)
}
