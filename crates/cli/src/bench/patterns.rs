//! `ottla bench patterns`: the four consuming patterns, each with JSON decoding of `{"id": N}`.

mod live;
mod waits;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ottla_client::{Admin, Config, OffsetAt, Producer, Record, TopicPartition};
use ottla_parallel::{Builder, Failure as Failed, Mode, Order, Processor};
use serde::Deserialize;

use super::measure::{Measured, Phase, rounded};
use super::progress::Progress;
use super::{Common, Prepared, prepare};
use crate::connect::runtime;
use crate::failure::Failure;
use crate::output::note;

/// A topic that gives nothing for so long has nothing more.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// How often it is looked how far a pattern is.
const LOOK_EVERY: Duration = Duration::from_millis(1);

const WRITE_WITHIN: Duration = Duration::from_secs(120);

/// Measures the four consuming patterns
///
/// Each mode reads --count messages `{"id": N}` from the beginning of the topic, in a new group, decodes them, and commits
/// what is done. The ids' sum is checked. --fill produces what is missing first.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Which patterns, separated by commas: sync, batch, multi-async, multi-batch [default: all]
    #[arg(long, value_delimiter = ',', value_parser = parse_mode)]
    mode: Vec<Mode>,
    /// How many workers the modes that fan out have
    #[arg(long, default_value_t = 8)]
    workers: usize,
    /// What is handled in order: none, partition, key [default: partition with one worker, none with several]
    #[arg(long, value_parser = parse_order)]
    order: Option<Order>,
    /// Nothing is tracked and nothing is committed: what that costs is the difference
    #[arg(long)]
    untracked: bool,
    /// Each message is waited for so long, in microseconds, by an async handler (multi-async)
    #[arg(long, default_value_t = 0)]
    wait_us: u64,
    /// Each message blocks its worker for so long, in microseconds (multi-async)
    #[arg(long, default_value_t = 0, conflicts_with = "wait_us")]
    block_us: u64,
    /// Reads the topic so often, each time in a new group: more messages than the disk holds
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Measures handlers that wait instead: async ones 1 ms, 1 to 1,000 at a time, and blocking ones 10 ms, 1 to 200
    #[arg(long, conflicts_with_all = ["live", "rounds", "untracked"])]
    waits: bool,
    /// Measures how far each mode is behind a producer of so many messages per second, in topics of its own
    #[arg(long, value_name = "RATE", conflicts_with_all = ["fill", "rounds", "untracked"], value_parser = clap::value_parser!(u64).range(1..))]
    live: Option<u64>,
    /// For how long --live produces
    #[arg(long, default_value_t = 60, requires = "live", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Produces messages until the topic has --count of them, with so many keys (0: without keys)
    #[arg(long, value_name = "KEYS")]
    fill: Option<u64>,
}

#[derive(Deserialize)]
struct Message {
    id: u64,
}

pub(crate) fn parse_mode(text: &str) -> Result<Mode, String> {
    let known = Mode::ALL.into_iter().find(|mode| mode.name() == text);
    known.ok_or_else(|| format!("`{text}` is none of sync, batch, multi-async, multi-batch"))
}

pub(crate) fn parse_order(text: &str) -> Result<Order, String> {
    match text {
        "none" => Ok(Order::None),
        "partition" => Ok(Order::Partition),
        "key" => Ok(Order::Key),
        _ => Err(format!("`{text}` is none of none, partition, key")),
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

/// Sees to it that the topic has enough messages.
fn fill(args: &Args, prepared: &Prepared) -> Result<(), Failure> {
    let topic = &args.common.topic;
    let admin = Admin::of(&prepared.client);
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
    let producer = Producer::of(&prepared.client);
    let sender = producer.topic(topic);
    for id in there..args.common.count {
        let value = format!("{{\"id\":{id}}}");
        let key = if keys > 0 { (id % keys).to_string() } else { String::new() };
        let record = Record::to(topic).value(&value);
        sender.post_blocking(&if keys > 0 { record.key(&key) } else { record })?;
    }
    producer.flush_blocking(WRITE_WITHIN)?;
    Ok(())
}

/// What all workers have added up.
#[derive(Default)]
struct Totals {
    sum: AtomicU64,
    waits: AtomicU64,
    waited_ns: AtomicU64,
}

/// What one worker has added up; told when the worker is gone.
#[derive(Default)]
struct Tally {
    sum: u64,
    waits: u64,
    waited: Duration,
    all: Arc<Totals>,
}

impl Clone for Tally {
    fn clone(&self) -> Self {
        Self { all: self.all.clone(), ..Self::default() }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.all.sum.fetch_add(self.sum, Ordering::Relaxed);
        self.all.waits.fetch_add(self.waits, Ordering::Relaxed);
        self.all.waited_ns.fetch_add(self.waited.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Tally {
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

    /// A timer wakes later than it was asked to: how much is told.
    fn waited_since(&mut self, began: Instant) {
        self.waits += 1;
        self.waited += began.elapsed();
    }
}

impl Totals {
    /// Once every worker is gone, and has told what it has.
    fn await_all(self: &Arc<Self>) {
        let began = Instant::now();
        while Arc::strong_count(self) > 1 && began.elapsed() < SILENCE_MAX {
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    fn mean_wait(&self) -> Duration {
        let waits = self.waits.load(Ordering::Relaxed).max(1);
        Duration::from_nanos(self.waited_ns.load(Ordering::Relaxed) / waits)
    }
}

/// A name that no other run has.
fn group(kind: &str) -> String {
    let unique = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("patterns-{kind}-{unique}")
}

/// All rounds of a mode: what they took together, and how long it was from the first to the last.
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
    let processor = start(mode, builder, Tally::of(&totals), wait, block)?;
    let (mut handled, mut moved) = (0, Instant::now());
    while handled < count && !progress.is_interrupted() {
        progress.show(handled);
        std::thread::park_timeout(LOOK_EVERY);
        let now = processor.metrics().handled;
        if now > handled {
            (handled, moved) = (now, Instant::now());
        } else if moved.elapsed() > SILENCE_MAX || processor.is_stopped() {
            processor.stop();
            processor.join()?;
            return Err(Failure::failed(format!(
                "{}: {handled} of {count} messages, and no more",
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
        return Err(Failure::failed(format!("{}: the ids' sum is {sum}, not {expected}", mode.name())));
    }
    Ok(measured)
}

/// With handlers that add up; in the modes without batches they wait first, or block.
fn start(
    mode: Mode,
    builder: Builder,
    mut tally: Tally,
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
            // tokio's timers count milliseconds: one of them would take two.
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
