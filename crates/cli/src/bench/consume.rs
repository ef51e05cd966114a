//! `ottla bench consume`: from the socket to every record's bytes.

use std::time::Duration;

use ottla_client::{Admin, Client, Consumer, Next, OffsetAt, Polled, StartAt, TopicPartition};

use super::measure::Phase;
use super::payload::Sums;
use super::progress::Progress;
use super::{Common, Prepared, prepare};
use crate::connect::runtime;
use crate::failure::Failure;

/// How long one poll waits: a signal is noticed in between.
const POLL: Duration = Duration::from_millis(200);

/// A topic that gives nothing in so many polls, which are 10 s, has nothing more.
const SILENT_POLLS_MAX: u32 = 50;

/// Measures consuming
///
/// Reads --count messages from the beginning of the topic. Every record is decoded, offsets are checked to be
/// contiguous in each partition, lengths and first and last bytes are added up.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Messages before the measured phase, from the beginning too [default: a tenth of --count, at most 100000]
    #[arg(long)]
    warmup: Option<u64>,
    /// The sum that `bench produce` printed; a different one is a failure. Compared when the whole topic is read
    #[arg(long, value_name = "SUM")]
    sum: Option<Sums>,
    /// Does not check that every message has --size bytes
    #[arg(long)]
    any_size: bool,
    /// Asks for each message by a call of its own, instead of for batches
    #[arg(long)]
    one_by_one: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Prepared { client, partitions, .. } = &prepare(&args.common, args.common.config()?)?;
    let starts = starts(client, args, *partitions)?;
    let warmup = args.warmup.unwrap_or((args.common.count / 10).min(100_000));
    let mut consumer = Consumer::of(client);
    let mut progress = Progress::start()?;
    if warmup > 0 {
        progress.phase("warm-up", warmup);
        read(&mut consumer, &starts, warmup, args, &progress)?;
        progress.check()?;
    }

    progress.phase("consume", args.common.count);
    let phase = Phase::start();
    let sums = read(&mut consumer, &starts, args.common.count, args, &progress)?;
    let measured = phase.end(sums.messages, sums.lengths);

    if let Some(expected) = args.sum
        && expected != sums
        && !progress.is_interrupted()
    {
        return Err(Failure::failed(format!("the messages' sum is {sums}, expected was {expected}")));
    }
    let title = format!(
        "consume from {} ({partitions} partitions): {} messages {} after {warmup} for warm-up; offsets contiguous, {}; \
         sum {sums}",
        args.common.topic,
        sums.messages,
        if args.one_by_one { "one by one" } else { "in batches" },
        if args.any_size { "of any size".to_owned() } else { format!("each of {} bytes", args.common.size) },
    );
    progress.report(&title, measured.json(), args.common.json)
}

/// The first offset of each partition; an error if there is not enough in them.
fn starts(client: &Client, args: &Args, partitions: usize) -> Result<Vec<(TopicPartition, i64)>, Failure> {
    runtime()?.block_on(async {
        let admin = Admin::of(client);
        let at = |offset| {
            let partition = |partition| (TopicPartition::new(&args.common.topic, partition), offset);
            (0..partitions as i32).map(partition).collect::<Vec<_>>()
        };
        let first = admin.list_offsets(&at(OffsetAt::Earliest)).await?;
        let end = admin.list_offsets(&at(OffsetAt::Latest)).await?;
        let there: i64 = end.values().sum::<i64>() - first.values().sum::<i64>();
        if (there as u64) < args.common.count {
            return Err(Failure::failed(format!(
                "topic `{}` has {there} messages and {} are to be read: run `ottla bench produce` first",
                args.common.topic, args.common.count
            )));
        }
        Ok(first.into_iter().collect())
    })
}

/// Reads `count` messages from the starts on.
fn read(
    consumer: &mut Consumer,
    starts: &[(TopicPartition, i64)],
    count: u64,
    args: &Args,
    progress: &Progress,
) -> Result<Sums, Failure> {
    let assigned: Vec<_> = starts.iter().map(|(at, offset)| (at.clone(), StartAt::Offset(*offset))).collect();
    runtime()?.block_on(consumer.assign(&assigned))?;
    let mut check = Check {
        // By partition number, as the topic's partitions are numbered from 0 on.
        next: starts.iter().map(|(_, offset)| *offset).collect(),
        size: (!args.any_size).then_some(args.common.size as usize),
        sums: Sums::default(),
    };
    if args.one_by_one {
        read_one_by_one(consumer, count, &mut check, progress)?;
    } else {
        read_batches(consumer, count, &mut check, progress)?;
    }
    Ok(check.sums)
}

fn read_one_by_one(
    consumer: &mut Consumer,
    count: u64,
    check: &mut Check,
    progress: &Progress,
) -> Result<(), Failure> {
    let mut silent = 0;
    while check.sums.messages < count && !progress.is_interrupted() {
        match consumer.next_record_blocking(POLL)? {
            Some(Next::Record(record)) => {
                silent = 0;
                check.record(record.partition(), record.offset(), record.value())?;
                progress.show(check.sums.messages);
            }
            Some(_) => {}
            None if silent < SILENT_POLLS_MAX => silent += 1,
            None => return Err(check.silence(count)),
        }
    }
    Ok(())
}

/// Stops within the batch that holds the last one.
fn read_batches(
    consumer: &mut Consumer,
    count: u64,
    check: &mut Check,
    progress: &Progress,
) -> Result<(), Failure> {
    let mut silent = 0;
    while check.sums.messages < count && !progress.is_interrupted() {
        let Some(polled) = consumer.poll_blocking(POLL)? else {
            silent += 1;
            if silent > SILENT_POLLS_MAX {
                return Err(check.silence(count));
            }
            continue;
        };
        let Polled::Records(batch) = polled else { continue };
        silent = 0;
        for record in &batch {
            let record = record?;
            check.record(batch.partition(), record.offset, record.value)?;
            progress.show(check.sums.messages);
            if check.sums.messages == count {
                break;
            }
        }
    }
    Ok(())
}

/// What every message must be, and what they add up to.
struct Check {
    /// The offset that comes next in each partition.
    next: Vec<i64>,
    /// Bytes of each message; `None` is any number.
    size: Option<usize>,
    sums: Sums,
}

impl Check {
    #[inline]
    fn record(&mut self, partition: i32, offset: i64, value: Option<&[u8]>) -> Result<(), Failure> {
        let expected = &mut self.next[partition as usize];
        if offset != *expected {
            return Err(Failure::failed(format!(
                "partition {partition}: offset {offset} came where {expected} was expected"
            )));
        }
        *expected += 1;
        let value = value.unwrap_or_default();
        if let Some(size) = self.size.filter(|size| value.len() != *size) {
            let length = value.len();
            return Err(Failure::failed(format!(
                "partition {partition} offset {offset}: {length} bytes, expected {size}"
            )));
        }
        self.sums.add(value);
        Ok(())
    }

    fn silence(&self, count: u64) -> Failure {
        let (seconds, read) = ((POLL * SILENT_POLLS_MAX).as_secs(), self.sums.messages);
        Failure::failed(format!("nothing came for {seconds} s after {read} of {count} messages"))
    }
}
