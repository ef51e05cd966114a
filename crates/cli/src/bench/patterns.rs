//! `ottla bench patterns`: the four consuming patterns, each with JSON decoding of `{"id": N}`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ottla_client::{Admin, Config, OffsetAt, Producer, Record, TopicPartition};
use ottla_parallel::{Builder, Failure as Failed, Mode, Order, Processor};
use serde::Deserialize;

use super::measure::{Phase, report, rounded};
use super::{Common, Prepared, prepare};
use crate::connect::runtime;
use crate::failure::Failure;

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
    fill(args, &prepared)?;
    let modes = if args.mode.is_empty() { Mode::ALL.to_vec() } else { args.mode.clone() };
    for mode in modes {
        measure(args, mode, config.clone())?;
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

/// What one worker has added up; told when the worker is gone.
struct Tally {
    sum: u64,
    all: Arc<AtomicU64>,
}

impl Clone for Tally {
    fn clone(&self) -> Self {
        Self { sum: 0, all: self.all.clone() }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.all.fetch_add(self.sum, Ordering::Relaxed);
    }
}

impl Tally {
    #[inline]
    fn take(&mut self, value: Option<&[u8]>) -> Result<(), Failed> {
        let message: Message =
            serde_json::from_slice(value.unwrap_or_default()).map_err(Failed::undecodable)?;
        self.sum += message.id;
        Ok(())
    }
}

fn measure(args: &Args, mode: Mode, mut config: Config) -> Result<(), Failure> {
    let count = args.common.count;
    let unique = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let group = format!("patterns-{}-{unique}", mode.name());
    config.set_all([("group.id", &*group), ("auto.offset.reset", "earliest")])?;
    let mut builder = Processor::builder(config, mode).topics([&*args.common.topic]).workers(args.workers);
    if let Some(order) = args.order {
        builder = builder.order(order);
    }
    if args.untracked {
        builder = builder.untracked();
    }
    let sum = Arc::new(AtomicU64::new(0));
    let phase = Phase::start();
    let processor = start(args, mode, builder, Tally { sum: 0, all: sum.clone() })?;
    let (mut handled, mut moved) = (0, Instant::now());
    while handled < count {
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
    let cores = measured.cpu.as_secs_f64() / measured.wall.as_secs_f64().max(1e-9);
    processor.stop();
    processor.join()?;
    let ended = Instant::now();
    while Arc::strong_count(&sum) > 1 && ended.elapsed() < SILENCE_MAX {
        std::thread::park_timeout(LOOK_EVERY);
    }
    let (sum, expected) = (sum.load(Ordering::Relaxed), count * (count - 1) / 2);
    if sum != expected {
        return Err(Failure::failed(format!("{}: the ids' sum is {sum}, not {expected}", mode.name())));
    }
    let mut fields = measured.json();
    fields.insert("mode".into(), mode.name().into());
    fields.insert("cores".into(), rounded(cores, 2).into());
    let tracked = if args.untracked { "untracked" } else { "committed" };
    let title = format!("{} from {}: {count} messages decoded, {tracked}", mode.name(), args.common.topic);
    report(&title, fields, args.common.json)
}

fn start(args: &Args, mode: Mode, builder: Builder, mut tally: Tally) -> Result<Processor, Failure> {
    let (wait, block) = (Duration::from_micros(args.wait_us), Duration::from_micros(args.block_us));
    let started = match mode {
        Mode::Batch | Mode::MultiBatch => builder.start_batches(move |messages| {
            messages.iter().try_for_each(|record| tally.take(record.value()))?;
            Ok(())
        }),
        Mode::Sync | Mode::MultiAsync if !wait.is_zero() => builder.start_each_async(async move |message| {
            tokio::time::sleep(wait).await;
            tally.take(message.value())
        }),
        Mode::Sync | Mode::MultiAsync if !block.is_zero() => builder.start_each(move |message| {
            std::thread::sleep(block);
            tally.take(message.value())
        }),
        Mode::Sync | Mode::MultiAsync => builder.start_each(move |message| tally.take(message.value())),
    };
    Ok(started?)
}
