//! `ottla bench patterns`: the four consumer modes, with JSON decoding of `{"id": N}`.

mod against;
mod crash;
mod live;
mod member;
mod totals;
mod waits;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ottla_client::{Client, Config, OffsetAt, Record, TopicPartition};
use ottla_parallel::{Builder, Mode, Order, Processor};

use self::totals::{HandlerCost, Totals, WorkerTotals, start};
use super::consume_group::share_from_beginning;
use super::measure::{Measured, Phase, rounded};
use super::progress::Progress;
use super::{BenchSetup, CommonArgs, new_group, prepare};
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
/// --live measures latencies and the lag behind a producer, --crash and --rebalance losses, repeats and order, --waits
/// waiting handlers, and --against all of it beside another library.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Modes to measure, separated by commas: sync, batch, multi-async, multi-batch [default: all]
    #[arg(long, value_delimiter = ',', value_parser = parse_mode)]
    mode: Vec<Mode>,
    /// Number of workers in the multi modes
    #[arg(long, default_value_t = 8)]
    workers: usize,
    /// Order to keep: none, partition, key [default: partition with one worker, none with several]
    #[arg(long, value_parser = parse_order)]
    order: Option<Order>,
    /// Reads in new share groups, which accept each message
    #[arg(long, conflicts_with_all = ["order", "untracked", "waits", "live", "crash", "rebalance", "against"])]
    share: bool,
    /// Turns off tracking and commits, to measure their cost
    #[arg(long)]
    untracked: bool,
    /// Time in microseconds that an async handler waits for each message (sync and multi-async)
    #[arg(long, default_value_t = 0)]
    wait_us: u64,
    /// Time in microseconds that each message blocks its worker [default: 0; 2000 with --crash and --rebalance]
    #[arg(long, conflicts_with = "wait_us")]
    block_us: Option<u64>,
    /// Longest time in milliseconds that a batch waits for more messages while all workers are busy
    #[arg(long, value_name = "MS")]
    batch_wait_ms: Option<u64>,
    /// Number of times the topic is read, each time in a new group
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Measures waiting handlers instead: 1 to 1,000 concurrent async handlers that wait 1 ms, and 1 to 200 blocking
    /// handlers that wait 10 ms
    #[arg(long, conflicts_with_all = ["live", "rounds", "untracked"])]
    waits: bool,
    /// Measures each mode's latency and lag behind a producer of this many messages per second, in separate topics
    #[arg(long, value_name = "RATE", conflicts_with_all = ["fill", "rounds", "untracked"], value_parser = clap::value_parser!(u64).range(1..))]
    live: Option<u64>,
    /// Duration of --live in seconds [default: 60; 10 with --against]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Reads 6,000 messages of 30 keys in a process that is killed this number of times, and counts lost and repeated
    /// messages and those that were overtaken by another one of their key
    #[arg(long, value_name = "KILLS", conflicts_with_all = ["live", "waits", "fill", "rounds", "untracked"], value_parser = clap::value_parser!(u64).range(1..=1000))]
    crash: Option<u64>,
    /// As --crash, but the process leaves the group in an orderly way, and another one has joined before
    #[arg(long, value_name = "TIMES", conflicts_with_all = ["crash", "live", "waits", "fill", "rounds", "untracked"], value_parser = clap::value_parser!(u64).range(1..=1000))]
    rebalance: Option<u64>,
    /// Runs each measurement with another library too and prints both side by side; `cargo xtask peer sarama` builds it
    #[arg(long, value_name = "PEER", value_parser = ["sarama"], conflicts_with_all = ["live", "waits", "crash", "rebalance", "untracked"])]
    against: Option<String>,
    /// Produces messages until the topic has --count, with this number of keys (0: without keys)
    #[arg(long, value_name = "KEYS")]
    fill: Option<u64>,
    /// Joins this group and notes each handled message in --handled, until standard input ends
    #[arg(long, value_name = "GROUP", requires = "handled", hide = true)]
    member: Option<String>,
    /// The file of the handled messages
    #[arg(long, value_name = "FILE", hide = true)]
    handled: Option<PathBuf>,
    #[command(flatten)]
    common: CommonArgs,
}

impl Args {
    fn modes(&self) -> Vec<Mode> {
        if self.mode.is_empty() { Mode::ALL.to_vec() } else { self.mode.clone() }
    }

    fn handler_cost(&self) -> HandlerCost {
        HandlerCost {
            wait: Duration::from_micros(self.wait_us),
            block: Duration::from_micros(self.block_us.unwrap_or(0)),
        }
    }

    /// The settings that all measurements share.
    fn builder(&self, config: Config, mode: Mode, topic: &str) -> Builder {
        let mut builder = Processor::builder(config, mode).topics([topic]).workers(self.workers);
        if let Some(order) = self.order {
            builder = builder.order(order);
        }
        if let Some(wait) = self.batch_wait_ms {
            builder = builder.batch_wait(Duration::from_millis(wait));
        }
        if self.untracked {
            builder = builder.untracked();
        }
        if self.share {
            builder = builder.share_group();
        }
        builder
    }
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

const fn order_name(order: Order) -> &'static str {
    match order {
        Order::None => "none",
        Order::Partition => "partition",
        Order::Key => "key",
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let config = args.common.config()?;
    if let (Some(group), Some(file)) = (&args.member, &args.handled) {
        return member::run(args, config, group, file);
    }
    let prepared = prepare(&args.common, config.clone())?;
    let modes = args.modes();
    if let Some(rate) = args.live {
        return live::run(args, &prepared.client, &config, &modes, rate);
    }
    if args.crash.is_some() || args.rebalance.is_some() {
        return crash::run(args, &prepared.client);
    }
    if let Some(peer) = &args.against {
        return against::run(args, &prepared, peer);
    }
    fill(args, &prepared)?;
    if args.waits {
        return waits::run(args, &config);
    }
    let mut progress = Progress::start()?;
    for mode in modes {
        progress.phase(mode.name(), args.common.count);
        measure(args, mode, &prepared.client, &config, &progress)?;
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
    produce(&prepared.client, topic, there..args.common.count, keys)
}

/// Produces `{"id":N}`, with the key `N % keys` if there are keys.
fn produce(client: &Client, topic: &str, ids: Range<u64>, keys: u64) -> Result<(), Failure> {
    let producer = client.producer();
    let sender = producer.topic(topic);
    for id in ids {
        let value = format!("{{\"id\":{id}}}");
        let key = if keys > 0 { (id % keys).to_string() } else { String::new() };
        let record = Record::to(topic).value(&value);
        sender.send_unobserved_blocking(&if keys > 0 { record.key(&key) } else { record })?;
    }
    producer.flush_blocking(WRITE_WITHIN)?;
    Ok(())
}

/// Runs all rounds of a mode. Reports their total and the time from the first to the last.
fn measure(
    args: &Args,
    mode: Mode,
    client: &Client,
    config: &Config,
    progress: &Progress,
) -> Result<(), Failure> {
    let began = Instant::now();
    let mut measured = round(args, mode, client, config.clone(), progress)?;
    for _ in 1..args.rounds {
        if progress.is_interrupted() {
            break;
        }
        let next = round(args, mode, client, config.clone(), progress)?;
        measured.messages += next.messages;
        measured.bytes += next.bytes;
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
    let outcome = match (args.untracked, args.share) {
        (true, _) => "untracked",
        (false, true) => "accepted",
        (false, false) => "committed",
    };
    let count = measured.messages;
    let title = format!("{} from {}: {count} messages decoded, {outcome}", mode.name(), args.common.topic);
    progress.report(&title, fields, args.common.json)
}

/// Reads the whole topic once.
fn round(
    args: &Args,
    mode: Mode,
    client: &Client,
    mut config: Config,
    progress: &Progress,
) -> Result<Measured, Failure> {
    let count = args.common.count;
    let group = new_group(mode.name());
    config.set_all([("group.id", &*group), ("auto.offset.reset", "earliest")])?;
    if args.share {
        share_from_beginning(client, &group)?;
    }
    let builder = args.builder(config, mode, &args.common.topic);
    let totals: Arc<Totals> = Arc::default();
    let phase = Phase::start();
    let processor = start(mode, builder, WorkerTotals::of(&totals), args.handler_cost())?;
    let (mut handled, mut moved) = (0, Instant::now());
    while handled < count && !progress.is_interrupted() {
        progress.show(handled);
        std::thread::park_timeout(CHECK_INTERVAL);
        let now = processor.metrics().handled;
        if now > handled {
            (handled, moved) = (now, Instant::now());
        } else if moved.elapsed() > SILENCE_MAX || processor.is_stopped() {
            return Err(stop_silent(processor, mode, handled, count));
        }
    }
    let mut measured = phase.end(handled, 0);
    processor.stop();
    processor.join()?;
    totals.await_all();
    measured.bytes = totals.bytes.load(Ordering::Relaxed);
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

/// Stops a processor that receives no messages any more. Returns the reason.
fn stop_silent(processor: Processor, mode: Mode, handled: u64, count: u64) -> Failure {
    processor.stop();
    match processor.join() {
        Ok(()) => Failure::failed(format!("{}: received only {handled} of {count} messages", mode.name())),
        Err(error) => error.into(),
    }
}
