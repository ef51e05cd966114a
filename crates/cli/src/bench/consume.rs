//! `ottla bench consume`: measures consumption, including the access to every record's bytes.

use std::time::Duration;

use ottla_client::{Client, Consumer, OffsetAt, Polled, PolledRecord, StartAt, TopicPartition};

use super::consume_group::read as read_in_group;
use super::measure::{Measured, Phase};
use super::payload::Sums;
use super::progress::Progress;
use super::{BenchSetup, CommonArgs, described_topic, prepare};
use crate::connect::runtime;
use crate::failure::Failure;

/// Duration of one poll. Signals are checked between polls.
pub(super) const POLL: Duration = Duration::from_millis(200);

/// Number of empty polls, 10 s in total, after which the topic is considered exhausted.
pub(super) const SILENT_POLLS_MAX: u32 = 50;

/// Measures consuming
///
/// Reads --count messages from the beginning of the topic and decodes each one. Checks that the offsets of each
/// partition are contiguous. Adds up message lengths and first and last bytes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of messages to read before the measurement [default: a tenth of --count, at most 100000]
    #[arg(long)]
    warmup: Option<u64>,
    /// The checksum that `bench produce` printed. A different checksum is a failure. It is compared if the whole
    /// topic is read
    #[arg(long, value_name = "SUM")]
    sum: Option<Sums>,
    /// Accepts messages that do not have --size bytes
    #[arg(long)]
    any_size: bool,
    /// Polls single messages instead of batches
    #[arg(long)]
    one_by_one: bool,
    /// Reads as the only member of a new group. The messages for warm-up are the first of the topic, and count towards --count
    #[arg(long, conflicts_with_all = ["one_by_one", "share"])]
    group: bool,
    /// Reads as the only member of a new share group, and accepts each message. The messages for warm-up as with --group
    #[arg(long, conflicts_with = "one_by_one")]
    pub(super) share: bool,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let BenchSetup { client, partitions, .. } = &prepare(&args.common, args.common.config()?)?;
    let starts = starts(client, args, *partitions)?;
    let warmup = args.warmup.unwrap_or((args.common.count / 10).min(100_000));
    let mut progress = Progress::start()?;
    let (sums, measured) = if args.group || args.share {
        progress.phase("consume", args.common.count);
        read_in_group(client, args, args.common.config()?, Check::new(&starts, args), warmup, &progress)?
    } else {
        read_twice(client, args, &starts, warmup, &mut progress)?
    };

    if let Some(expected) = args.sum
        && expected != sums
        && !progress.is_interrupted()
    {
        return Err(Failure::failed(format!("the checksum is {sums}, expected {expected}")));
    }
    let title = format!(
        "consume from {}: {} messages {} after {warmup} for warm-up; offsets contiguous, {}; \
         sum {sums}",
        described_topic(&args.common.topic, *partitions),
        sums.messages,
        if args.one_by_one { "one by one" } else { "in batches" },
        if args.any_size { "of any size".to_owned() } else { format!("each of {} bytes", args.common.size) },
    );
    progress.report(&title, measured.json(), args.common.json)
}

/// Reads the topic's first messages for warm-up, and then all of them.
fn read_twice(
    client: &Client,
    args: &Args,
    starts: &[(TopicPartition, i64)],
    warmup: u64,
    progress: &mut Progress,
) -> Result<(Sums, Measured), Failure> {
    let mut consumer = client.consumer();
    if warmup > 0 {
        progress.phase("warm-up", warmup);
        read(&mut consumer, starts, warmup, args, progress)?;
        progress.check()?;
    }
    progress.phase("consume", args.common.count);
    let phase = Phase::start();
    let sums = read(&mut consumer, starts, args.common.count, args, progress)?;
    Ok((sums, phase.end(sums.messages, sums.lengths)))
}

/// The first offset of each partition. Fails if the partitions have too few messages.
fn starts(client: &Client, args: &Args, partitions: usize) -> Result<Vec<(TopicPartition, i64)>, Failure> {
    runtime()?.block_on(async {
        let admin = client.admin();
        let at = |offset| {
            let partition = |partition| (TopicPartition::new(&args.common.topic, partition), offset);
            (0..partitions as i32).map(partition).collect::<Vec<_>>()
        };
        let first = admin.list_offsets(&at(OffsetAt::Earliest)).await?;
        let end = admin.list_offsets(&at(OffsetAt::Latest)).await?;
        let there: i64 = end.values().sum::<i64>() - first.values().sum::<i64>();
        if (there as u64) < args.common.count {
            return Err(Failure::failed(format!(
                "topic `{}` has {there} messages, but {} are needed: run `ottla bench produce` first",
                args.common.topic, args.common.count
            )));
        }
        Ok(first.into_iter().collect())
    })
}

/// Reads `count` messages from the start offsets.
fn read(
    consumer: &mut Consumer,
    starts: &[(TopicPartition, i64)],
    count: u64,
    args: &Args,
    progress: &Progress,
) -> Result<Sums, Failure> {
    let assigned: Vec<_> = starts.iter().map(|(at, offset)| (at.clone(), StartAt::Offset(*offset))).collect();
    runtime()?.block_on(consumer.assign(&assigned))?;
    let mut check = Check::new(starts, args);
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
            Some(PolledRecord::Record(record)) => {
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

/// Stops inside the batch that contains the last message.
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

/// Checks each message and sums up all of them.
pub(super) struct Check {
    /// The next expected offset of each partition.
    next: Vec<i64>,
    /// Expected size of each message; `None` accepts any size.
    size: Option<usize>,
    pub(super) sums: Sums,
}

impl Check {
    fn new(starts: &[(TopicPartition, i64)], args: &Args) -> Self {
        Self {
            // Indexed by partition: a topic's partitions are numbered from 0.
            next: starts.iter().map(|(_, offset)| *offset).collect(),
            size: (!args.any_size).then_some(args.common.size as usize),
            sums: Sums::default(),
        }
    }

    #[inline]
    pub(super) fn record(
        &mut self,
        partition: i32,
        offset: i64,
        value: Option<&[u8]>,
    ) -> Result<(), Failure> {
        let expected = &mut self.next[partition as usize];
        if offset != *expected {
            return Err(Failure::failed(format!(
                "partition {partition}: received offset {offset}, expected {expected}"
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

    pub(super) fn silence(&self, count: u64) -> Failure {
        let (seconds, read) = ((POLL * SILENT_POLLS_MAX).as_secs(), self.sums.messages);
        Failure::failed(format!("received no message for {seconds} s, after {read} of {count}"))
    }
}
