//! `ottla consume`.

mod first_signal;
mod group_ends;
mod printed;
mod read_ends;
mod settling;
mod share;
mod start_range;
mod topic_watch;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use clap::builder::NonEmptyStringValueParser;
use ottla_client::{
    Admin, Batch, Client, Config, Consumer, Event, GroupProtocol, OffsetAt, OffsetReset, Polled, StartAt,
    TopicPartition,
};

use self::first_signal::FirstSignal;
use self::printed::Printed;
use self::read_ends::ReadEnds;
use self::settling::{Settling, is_incremental};
use self::topic_watch::TopicWatch;
use super::groups;
use crate::connect::{ConnectArgs, contact, runtime};
use crate::failure::{Failure, remember_operation};
use crate::format::{Format, Shown};
use crate::metrics::MetricsArgs;
use crate::output::note;
use crate::signals::{self, Interrupt};
use crate::stoppable_output::StoppableOutput;
use crate::time;
use crate::topic_args::TopicArg;

/// Time limit for the last commit and for leaving the group.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);

/// Time without a leader after which the command warns about a partition. A change of the leader takes less.
const LEADERS_WITHIN: Duration = Duration::from_millis(700);

/// The interval of the checks for missing leaders.
const LEADERS_EVERY: Duration = Duration::from_millis(100);

/// Timeout of one poll; signals and leaders are checked between two polls.
const POLL: Duration = Duration::from_millis(200);

/// Prints the records of a topic
///
/// Without a group it reads all partitions; with a group it reads the assigned ones. Ctrl-C commits and leaves; a
/// second Ctrl-C ends the command at once.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    topic: TopicArg,
    /// Reads as a member of this group, and commits the printed records [default: -X group.id]
    #[arg(short = 'G', short_alias = 'g', long, value_parser = NonEmptyStringValueParser::new())]
    group: Option<String>,
    /// Reads as a member of the share group named with --group: each record goes to one member, and printing accepts it. A new
    /// group begins with records that are written afterwards; `ottla groups reset-offsets --create --share` sets another start
    #[arg(long, requires = "group", conflicts_with_all = ["from", "exit_at_end"])]
    share: bool,
    /// The start position: beginning, end, an offset, -N for the last N records of each partition, or a time like
    /// 2026-01-31T12:00:00Z or s@ (or @) and milliseconds since 1970. With a group, beginning and end apply to partitions
    /// without a committed offset, stored is the committed offset, and `ottla groups reset-offsets` sets any other
    /// position [default: beginning]
    #[arg(short = 'o', long, alias = "offset", value_parser = Start::parse, allow_negative_numbers = true)]
    #[arg(value_name = "beginning|end|stored|OFFSET|-N|TIME")]
    from: Option<Start>,
    /// Stops at the end that each partition has at the start
    #[arg(short, long)]
    exit_at_end: bool,
    /// Stops after this number of printed records
    #[arg(short, short_alias = 'n', long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Only these partitions
    #[arg(short, long, allow_negative_numbers = true, conflicts_with = "group", value_delimiter = ',', value_parser = clap::value_parser!(i32).range(0..))]
    partition: Vec<i32>,
    /// Only records that contain this text in key or value; key=TEXT and value=TEXT look in one of them; may be
    /// repeated
    #[arg(long, value_parser = parse_filter)]
    filter: Vec<Filter>,
    /// kcat's format: %t topic, %p partition, %o offset, %T timestamp, %k key, %s value, %h headers [default: %s\n]
    #[arg(short, long, value_parser = Format::parse, conflicts_with = "json")]
    format: Option<Format>,
    /// One JSON object per record; a key or value that is not UTF-8 is base64, in key_base64 or value_base64
    #[arg(short = 'J', long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// The start position.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Start {
    At(StartAt),
    /// This number of records before the end of each partition.
    Last(i64),
    /// At the committed offset.
    Stored,
}

/// Text that a record must contain in its key or value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Filter {
    key: bool,
    value: bool,
    text: Vec<u8>,
}

#[expect(clippy::unnecessary_wraps, reason = "clap wants a result")]
fn parse_filter(text: &str) -> Result<Filter, String> {
    let (key, value, text) = match text.split_once('=') {
        Some(("key", text)) => (true, false, text),
        Some(("value", text)) => (false, true, text),
        _ => (true, true, text),
    };
    Ok(Filter { key, value, text: text.as_bytes().to_vec() })
}

impl Filter {
    fn takes(&self, record: &Shown<'_>) -> bool {
        let holds = |part: Option<&[u8]>| {
            part.is_some_and(|part| {
                self.text.is_empty() || part.windows(self.text.len()).any(|window| window == self.text)
            })
        };
        (self.key && holds(record.key)) || (self.value && holds(record.value))
    }
}

impl Start {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "beginning" | "earliest" => Ok(Self::At(StartAt::Beginning)),
            "end" | "latest" => Ok(Self::At(StartAt::End)),
            "stored" => Ok(Self::Stored),
            _ => {
                // kcat's form of a time.
                let time = text.strip_prefix('s').filter(|rest| rest.starts_with('@')).unwrap_or(text);
                if time::looks_like_time(time) {
                    return time::parse_ms(time).map(|ms| Self::At(StartAt::Timestamp(ms)));
                }
                match text.parse::<i64>() {
                    Ok(offset) if offset >= 0 && !text.starts_with('-') => {
                        Ok(Self::At(StartAt::Offset(offset)))
                    }
                    Ok(last) if last < 0 && last > i64::MIN => Ok(Self::Last(-last)),
                    _ => Err(format!(
                        "`{text}` is none of beginning, end, stored, an offset, -N for the last N, a time"
                    )),
                }
            }
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    remember_operation("read");
    let config = config(args)?;
    let group = group_of(args, &config);
    runtime()?.block_on(async {
        let (client, _) = contact(config).await?;
        let _metrics = args.metrics.serve(&client)?;
        // Before the output watches for signals too: a signal that only the output sees would not end the command.
        let interrupted = interrupted();
        let mut reading = Reading::new(args, group.clone(), &client)?;
        let read = if args.share {
            share::run(&client, &mut reading, interrupted).await
        } else {
            read(&client, &mut reading, interrupted).await
        };
        match (read, group) {
            (Err(failure @ Failure::Failed(_)), Some(group)) => {
                Err(groups::kind::explain(&client.admin(), &group, args.share, failure).await)
            }
            (read, _) => read,
        }
    })
}

async fn read(
    client: &Client,
    reading: &mut Reading<'_>,
    interrupted: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let mut consumer = client.consumer();
    let mut first_signal = FirstSignal::new(interrupted);
    let read = reading.run(&mut consumer, first_signal.wait()).await;
    let flushed = reading.output.flush();
    let is_stuck = matches!(read.as_ref().and(flushed.as_ref()), Err(Failure::Interrupted(_)));
    let closed = match reading.group {
        // A write that waits for the reader does not delay the end: nothing more is committed.
        Some(_) if !is_stuck => first_signal.close(consumer.close(CLOSE_WITHIN)).await,
        Some(_) | None => Ok(()),
    };
    read.and(flushed).and(closed)
}

/// The group of `--group`, or of the property `group.id`.
fn group_of(args: &Args, config: &Config) -> Option<String> {
    let group = config.group_id.clone().filter(|group| !group.is_empty());
    if args.partition.is_empty() {
        return group;
    }
    if let Some(group) = group {
        note(&format!("ottla: warning: --partition reads without a group: group.id `{group}` is not used"));
    }
    None
}

fn config(args: &Args) -> Result<Config, Failure> {
    // A topic that does not exist is probably misspelt, so it is not created.
    let mut config =
        args.connect.config(&[("allow.auto.create.topics", "false"), ("auto.offset.reset", "earliest")])?;
    args.metrics.apply(&mut config)?;
    if args.share {
        config.set("share.acknowledgement.mode", "explicit")?;
    }
    if let Some(group) = &args.group {
        config.set("group.id", group)?;
    }
    if !args.partition.is_empty() {
        // A `group.id` among the properties is not used: its committed offsets are those of its members.
        config.set("enable.auto.commit", "false")?;
    }
    let is_member =
        args.partition.is_empty() && config.group_id.as_ref().is_some_and(|group| !group.is_empty());
    if is_member {
        match args.from {
            None | Some(Start::Stored) => {}
            Some(Start::At(StartAt::Beginning)) => config.set("auto.offset.reset", "earliest")?,
            Some(Start::At(StartAt::End)) => config.set("auto.offset.reset", "latest")?,
            Some(Start::At(_) | Start::Last(_)) => {
                return Err(Failure::usage(
                    "--from an offset or a time does not go with a group: use `ottla groups reset-offsets`",
                ));
            }
        }
    } else if args.from == Some(Start::Stored) {
        return Err(Failure::usage("--from stored is where a group has committed: name it with --group"));
    }
    Ok(config)
}

struct Reading<'a> {
    args: &'a Args,
    group: Option<String>,
    format: Format,
    admin: Admin,
    output: StoppableOutput,
    text: Vec<u8>,
    printed: u64,
    /// With `--exit-at-end`: the offset at which each assigned partition is done. `None` before the first assignment.
    ends: Option<ReadEnds>,
    /// With `--exit-at-end`: the partitions that the group has assigned.
    assigned: BTreeSet<TopicPartition>,
    /// With `--exit-at-end`: the last rebalance, if it may assign further partitions.
    settling: Option<Settling>,
    /// Partitions without a leader: nothing can be read from them.
    offline: Vec<TopicPartition>,
    watch: TopicWatch,
}

impl<'a> Reading<'a> {
    fn new(args: &'a Args, group: Option<String>, client: &Client) -> Result<Self, Failure> {
        let lines =
            Format::Text(vec![crate::format::Piece::Value, crate::format::Piece::Literal(b"\n".to_vec())]);
        let format = if args.json { Format::Json } else { args.format.clone().unwrap_or(lines) };
        Ok(Self {
            args,
            watch: TopicWatch::new(args.topic.name(), group.is_some()),
            group,
            format,
            admin: client.admin(),
            output: StoppableOutput::new(Interrupt::watch_and(|_| {})?)?,
            text: Vec::new(),
            printed: 0,
            ends: None,
            assigned: BTreeSet::new(),
            settling: None,
            offline: Vec::new(),
        })
    }

    async fn run(
        &mut self,
        consumer: &mut Consumer,
        interrupted: impl Future<Output = Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let mut interrupted = Box::pin(interrupted);
        tokio::select! {
            biased;
            signal = &mut interrupted => return signal,
            begun = self.begin(consumer) => begun?,
        }
        loop {
            if self.ends.as_ref().is_some_and(ReadEnds::are_reached) {
                let has_settled = tokio::select! {
                    biased;
                    signal = &mut interrupted => return signal,
                    has_settled = self.has_settled(consumer) => has_settled,
                };
                if has_settled {
                    return self.check_complete();
                }
            }
            let polled = tokio::select! {
                biased;
                signal = &mut interrupted => return signal,
                polled = consumer.poll(POLL) => polled?,
            };
            match polled {
                Some(Polled::Records(batch)) => {
                    if self.print(consumer, &batch)? {
                        return Ok(());
                    }
                }
                Some(Polled::Event(event)) => tokio::select! {
                    biased;
                    signal = &mut interrupted => return signal,
                    done = self.on_event(consumer, event) => done?,
                },
                // No records arrived during the poll: the printed ones are flushed.
                Some(_) | None => self.on_idle().await?,
            }
            self.pause_reached(consumer);
        }
    }

    /// Flushes the printed records, and checks that the topic still exists: the client waits for it without an event.
    async fn on_idle(&mut self) -> Result<(), Failure> {
        self.output.flush()?;
        self.watch.check(&self.admin).await
    }

    /// Subscribes to the topic, or assigns its partitions with their start positions.
    async fn begin(&mut self, consumer: &mut Consumer) -> Result<(), Failure> {
        let partitions = self.partitions().await?;
        self.find_offline(&partitions).await?;
        if self.group.is_some() {
            consumer.subscribe(&[self.args.topic.name()]).await?;
            return Ok(());
        }
        let mut assigned = self.starts(partitions).await?;
        let refuses = consumer.client().config().auto_offset_reset == OffsetReset::Error;
        start_range::keep_within(&self.admin, &mut assigned, &self.offline, refuses).await?;
        if self.args.exit_at_end {
            let ends = self.ends_after(&assigned).await?;
            self.ends.get_or_insert_default().add(ends);
        }
        consumer.assign(&assigned).await?;
        self.pause_finished(consumer, assigned.iter().map(|(at, _)| at));
        Ok(())
    }

    /// Returns `true` if no rebalance may assign further partitions.
    async fn has_settled(&self, consumer: &Consumer) -> bool {
        match &self.settling {
            Some(settling) => settling.is_over(consumer, &self.admin, &self.assigned).await,
            None => true,
        }
    }

    /// With `--exit-at-end`, partitions that could not be read are a failure.
    fn check_complete(&self) -> Result<(), Failure> {
        if self.offline.is_empty() {
            return Ok(());
        }
        let numbers: Vec<String> = self.offline.iter().map(|at| at.partition.to_string()).collect();
        Err(Failure::failed(format!(
            "topic `{}`: not read, because they have no leader (LEADER_NOT_AVAILABLE): partitions {}",
            self.args.topic.name(),
            numbers.join(", ")
        )))
    }

    /// Waits a moment for partitions that have no leader. Warns of those that have none afterwards.
    async fn find_offline(&mut self, partitions: &[TopicPartition]) -> Result<(), Failure> {
        let topic = self.args.topic.name();
        let deadline = Instant::now() + LEADERS_WITHIN;
        self.offline = loop {
            let described = self.admin.describe_topics(&[topic]).await?;
            let leaders = described.iter().flat_map(|topic| &topic.partitions);
            let without: Vec<i32> = leaders.filter(|it| it.leader.is_none()).map(|it| it.partition).collect();
            let offline = partitions.iter().filter(|at| without.contains(&at.partition)).cloned();
            let offline: Vec<TopicPartition> = offline.collect();
            if offline.is_empty() || Instant::now() >= deadline {
                break offline;
            }
            tokio::time::sleep(LEADERS_EVERY).await;
        };
        for at in &self.offline {
            note(&format!(
                "ottla: warning: topic `{topic}` partition {} has no leader (LEADER_NOT_AVAILABLE): nothing can be read \
                 from it",
                at.partition
            ));
        }
        Ok(())
    }

    /// Returns the requested partitions.
    async fn partitions(&self) -> Result<Vec<TopicPartition>, Failure> {
        let topic = self.args.topic.name();
        let described = self.admin.describe_topics(&[topic]).await?;
        let count = described.first().map_or(0, |topic| topic.partitions.len());
        if let Some(absent) = self.args.partition.iter().find(|at| !(0..count as i32).contains(at)) {
            return Err(Failure::failed(format!(
                "topic `{topic}` has no partition {absent}: it has {count}"
            )));
        }
        let all =
            (0..count as i32).filter(|at| self.args.partition.is_empty() || self.args.partition.contains(at));
        Ok(all.map(|partition| TopicPartition::new(topic, partition)).collect())
    }

    /// Returns the start position of each partition.
    async fn starts(
        &self,
        partitions: Vec<TopicPartition>,
    ) -> Result<Vec<(TopicPartition, StartAt)>, Failure> {
        let count = match self.args.from.unwrap_or(Start::At(StartAt::Beginning)) {
            Start::At(start) => return Ok(partitions.into_iter().map(|at| (at, start)).collect()),
            // `config` has rejected it.
            Start::Stored => 0,
            Start::Last(count) => count,
        };
        let online = partitions.iter().filter(|at| !self.offline.contains(at));
        let ask = |which| online.clone().map(|at| (at.clone(), which)).collect::<Vec<_>>();
        let first = self.admin.list_offsets(&ask(OffsetAt::Earliest)).await?;
        let ends = self.admin.list_offsets(&ask(OffsetAt::Latest)).await?;
        let start = |(at, end): (TopicPartition, i64)| {
            let first = first.get(&at).copied().unwrap_or(0);
            (at, StartAt::Offset(end.saturating_sub(count).max(first)))
        };
        // The client looks up the ends of the others once they have a leader.
        let before_end = StartAt::BeforeEnd(u32::try_from(count).unwrap_or(u32::MAX));
        let offline = self.offline.iter().map(|at| (at.clone(), before_end));
        Ok(ends.into_iter().map(start).chain(offline).collect())
    }

    /// Returns the ends of the partitions that have records between their start and their end.
    async fn ends_after(
        &self,
        starts: &[(TopicPartition, StartAt)],
    ) -> Result<BTreeMap<TopicPartition, i64>, Failure> {
        let online = starts.iter().filter(|(at, _)| !self.offline.contains(at));
        let ask = |which| online.clone().map(|(at, _)| (at.clone(), which)).collect::<Vec<_>>();
        let mut ends = self.admin.list_offsets(&ask(OffsetAt::Latest)).await?;
        let mut from = self.admin.list_offsets(&ask(OffsetAt::Earliest)).await?;
        let timed = |(at, start): &(TopicPartition, StartAt)| match start {
            StartAt::Timestamp(ms) => Some((at.clone(), OffsetAt::Timestamp(*ms))),
            _ => None,
        };
        let timed: Vec<_> = online.clone().filter_map(timed).collect();
        if !timed.is_empty() {
            from.extend(self.admin.list_offsets(&timed).await?);
        }
        for (at, start) in starts {
            let (Some(end), Some(from)) = (ends.get(at).copied(), from.get(at).copied()) else { continue };
            let from = match start {
                StartAt::End => end,
                StartAt::BeforeEnd(count) => from.max(end - i64::from(*count)),
                StartAt::Offset(offset) => from.max(*offset),
                StartAt::Beginning
                | StartAt::Timestamp(_)
                | StartAt::OffsetInEpoch { .. }
                | StartAt::Committed => from,
            };
            if from >= end {
                ends.remove(at);
            }
        }
        Ok(ends)
    }

    async fn on_event(&mut self, consumer: &mut Consumer, event: Event) -> Result<(), Failure> {
        tracing::info!(?event, "assignment");
        if !self.args.exit_at_end {
            return Ok(());
        }
        match event {
            Event::Assigned(partitions) => {
                self.assigned.extend(partitions.iter().cloned());
                if consumer.client().config().group_protocol == GroupProtocol::Consumer {
                    self.settling = Some(Settling::begin(consumer, false).await);
                }
                self.find_offline(&partitions).await?;
                let online = partitions.iter().filter(|at| !self.offline.contains(at)).cloned();
                let online: Vec<TopicPartition> = online.collect();
                let ends = group_ends::unread(consumer, &self.admin, &online).await?;
                self.ends.get_or_insert_default().add(ends);
                self.pause_finished(consumer, &partitions);
            }
            Event::Revoked(ref partitions) | Event::Lost(ref partitions) => {
                self.assigned.retain(|at| !partitions.contains(at));
                if let Some(ends) = &mut self.ends {
                    ends.remove(partitions);
                }
                // After a loss and an eager revocation, the next assignment names the partitions that remain. After an
                // incremental revocation there may be none.
                if matches!(event, Event::Revoked(_)) && is_incremental(consumer.client().config()) {
                    self.settling = Some(Settling::begin(consumer, true).await);
                } else if self.assigned.is_empty() {
                    self.ends = None;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Pauses those of the partitions that have nothing to read.
    fn pause_finished<'b>(
        &self,
        consumer: &Consumer,
        partitions: impl IntoIterator<Item = &'b TopicPartition>,
    ) {
        if let Some(ends) = &self.ends {
            let finished = partitions.into_iter().filter(|at| !ends.is_unread(at));
            consumer.pause(&finished.cloned().collect::<Vec<_>>());
        }
    }

    /// Pauses partitions that have been read up to their end.
    fn pause_reached(&mut self, consumer: &Consumer) {
        if let Some(ends) = &mut self.ends {
            let positions = consumer.positions().into_iter();
            let reached = positions.filter(|(at, next)| ends.advance(at, *next)).map(|(at, _)| at);
            consumer.pause(&reached.collect::<Vec<_>>());
        }
    }

    /// Prints a batch. Returns `true` if it contains the last requested record.
    ///
    /// A group's records are processed after the output has accepted their bytes. The next member reads the others again.
    fn print(&mut self, consumer: &mut Consumer, batch: &Batch) -> Result<bool, Failure> {
        let mut printed = Printed::default();
        let mut shown = self.show_batch(batch, &mut printed);
        let is_end = batch.next_offset() >= batch.high_watermark();
        if self.group.is_some() || is_end || shown.is_err() {
            let flushed = self.output.flush();
            shown = shown.and_then(|shown| flushed.map(|()| shown));
        }
        if let Some(ends) = &mut self.ends
            && ends.advance(batch.at(), batch.next_offset())
        {
            // Records written after the start are for the next reader of the group.
            consumer.pause(std::slice::from_ref(batch.at()));
        }
        match shown {
            Ok(Progress::Whole) => Ok(false),
            Ok(Progress::Until(next)) => {
                consumer.done_until(batch.at(), next);
                Ok(false)
            }
            Ok(Progress::Last(next)) => {
                consumer.done_until(batch.at(), next);
                Ok(true)
            }
            Err(failure) => {
                let next = printed.next(self.output.accepted()).unwrap_or_else(|| batch.first_offset());
                consumer.done_until(batch.at(), next);
                Err(failure)
            }
        }
    }

    fn show_batch(&mut self, batch: &Batch, printed: &mut Printed) -> Result<Progress, Failure> {
        let at = batch.at();
        let end = self.ends.as_ref().map(|ends| ends.of(at).unwrap_or_else(|| batch.first_offset()));
        for record in batch {
            let record = record?;
            if let Some(end) = end.filter(|end| record.offset >= *end) {
                return Ok(Progress::Until(end));
            }
            let shown = Shown {
                topic: &at.topic,
                partition: at.partition,
                offset: record.offset,
                timestamp_ms: record.timestamp,
                key: record.key,
                value: record.value,
                headers: record.headers,
            };
            let is_last = self.show(&shown)?;
            if self.group.is_some() {
                printed.push(self.output.position(), record.offset + 1);
            }
            if is_last {
                return Ok(Progress::Last(record.offset + 1));
            }
        }
        Ok(Progress::Whole)
    }
}

/// The part of a batch that was printed.
enum Progress {
    /// All its records.
    Whole,
    /// The records before this offset, where reading ends.
    Until(i64),
    /// The records before this offset, including the last requested one.
    Last(i64),
}

impl Reading<'_> {
    /// Prints a record, unless a filter omits it. Returns `true` if it is the last requested one.
    fn show(&mut self, shown: &Shown<'_>) -> Result<bool, Failure> {
        if !self.args.filter.iter().all(|filter| filter.takes(shown)) {
            return Ok(false);
        }
        self.text.clear();
        self.format.render(shown, &mut self.text);
        self.output.write(&self.text)?;
        self.printed += 1;
        Ok(self.args.count == Some(self.printed))
    }
}

/// Resolves when the user or the system requests a stop.
pub(crate) fn interrupted() -> impl Future<Output = Result<(), Failure>> {
    let interrupted = signals::interrupted();
    async move { interrupted.await.map(drop) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_a_word_an_offset_or_a_time() {
        for (text, expected) in [
            ("beginning", Start::At(StartAt::Beginning)),
            ("end", Start::At(StartAt::End)),
            ("stored", Start::Stored),
            ("12", Start::At(StartAt::Offset(12))),
            ("-12", Start::Last(12)),
            ("@12", Start::At(StartAt::Timestamp(12))),
            ("s@12", Start::At(StartAt::Timestamp(12))),
            ("2026-01-31T12:00:00Z", Start::At(StartAt::Timestamp(1_769_860_800_000))),
        ] {
            assert_eq!(Start::parse(text), Ok(expected), "{text}");
        }
        for text in ["", "start", "-0", "-", "--1", "2026-99-31", "s@x", "e@12", "-9223372036854775808"] {
            assert!(Start::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn filters_look_where_they_are_told() {
        let headers = ottla_wire::HeadersRef::default();
        let shown =
            |key, value| Shown { topic: "t", partition: 0, offset: 0, timestamp_ms: 0, key, value, headers };
        let record = shown(Some(&b"alpha"[..]), Some(&b"beta=2"[..]));
        for (filter, takes) in [
            ("lph", true),
            ("bet", true),
            ("key=bet", false),
            ("value=bet", true),
            ("beta=2", true),
            ("gamma", false),
            ("value=", true),
        ] {
            assert_eq!(parse_filter(filter).expect("valid").takes(&record), takes, "{filter}");
        }
        assert!(!parse_filter("key=a").expect("valid").takes(&shown(None, None)));
    }
}
