//! `ottla consume`.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_client::{
    Admin, Batch, Client, Config, Consumer, Event, OffsetAt, OffsetReset, Polled, StartAt, TopicPartition,
};

use crate::connect::{ConnectArgs, contact, runtime};
use crate::failure::Failure;
use crate::format::{Format, Shown};
use crate::metrics::MetricsArgs;
use crate::output::Output;
use crate::signals;
use crate::time;
use crate::topic_args::TopicArg;

/// How long committing and leaving the group may take at the end.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);

/// How long to wait for records before looking around.
const POLL: Duration = Duration::from_millis(200);

/// Prints the records of a topic
///
/// Without a group it reads all partitions, with one those that the group assigns. Ctrl-C commits and leaves.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    topic: TopicArg,
    /// Reads as a member of this group, and commits what was printed
    #[arg(short = 'G', short_alias = 'g', long)]
    group: Option<String>,
    /// Where to start: beginning, end, an offset, -N for the last N records of each partition, or a time like
    /// 2026-01-31T12:00:00Z or s@ (or @) and milliseconds since 1970. With a group: where it has no committed offset;
    /// stored is where it has one [default: beginning]
    #[arg(short = 'o', long, alias = "offset", value_parser = Start::parse, allow_negative_numbers = true)]
    #[arg(value_name = "beginning|end|stored|OFFSET|-N|TIME")]
    from: Option<Start>,
    /// Stops at the end that each partition has at the start
    #[arg(short, long)]
    exit_at_end: bool,
    /// Stops after so many printed records
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
    /// One JSON object per record
    #[arg(short = 'J', long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// Where to start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Start {
    At(StartAt),
    /// So many records before the end of each partition.
    Last(i64),
    /// At the committed offset.
    Stored,
}

/// What a record must contain.
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
    let config = config(args)?;
    runtime()?.block_on(async {
        let (client, _) = contact(config).await?;
        let _metrics = args.metrics.serve(&client)?;
        let mut consumer = Consumer::of(&client);
        let mut reading = Reading::new(args, &client);
        let read = reading.run(&mut consumer).await;
        let flushed = reading.output.flush();
        let closed = match args.group {
            Some(_) => consumer.close(CLOSE_WITHIN).await.map_err(Failure::from),
            None => Ok(()),
        };
        read.and(flushed).and(closed)
    })
}

fn config(args: &Args) -> Result<Config, Failure> {
    // Whoever reads a topic that does not exist has misspelt it.
    let mut config =
        args.connect.config(&[("allow.auto.create.topics", "false"), ("auto.offset.reset", "earliest")])?;
    args.metrics.apply(&mut config)?;
    if let Some(group) = &args.group {
        config.set("group.id", group)?;
        match args.from {
            None | Some(Start::Stored) => {}
            Some(Start::At(StartAt::Beginning)) => config.set("auto.offset.reset", "earliest")?,
            Some(Start::At(StartAt::End)) => config.set("auto.offset.reset", "latest")?,
            Some(Start::At(_) | Start::Last(_)) => {
                return Err(Failure::usage(
                    "--from an offset or a time does not go with --group: use `ottla groups reset-offsets`",
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
    format: Format,
    admin: Admin,
    output: Output,
    text: Vec<u8>,
    printed: u64,
    /// With `--exit-at-end`: where each assigned partition is done. None before there is an assignment.
    ends: Option<BTreeMap<TopicPartition, i64>>,
}

impl<'a> Reading<'a> {
    fn new(args: &'a Args, client: &Client) -> Self {
        let lines =
            Format::Text(vec![crate::format::Piece::Value, crate::format::Piece::Literal(b"\n".to_vec())]);
        let format = if args.json { Format::Json } else { args.format.clone().unwrap_or(lines) };
        Self {
            args,
            format,
            admin: Admin::of(client),
            output: Output::new(),
            text: Vec::new(),
            printed: 0,
            ends: None,
        }
    }

    async fn run(&mut self, consumer: &mut Consumer) -> Result<(), Failure> {
        let partitions = self.partitions().await?;
        if self.args.group.is_some() {
            consumer.subscribe(&[self.args.topic.name()]).await?;
        } else {
            let assigned = self.starts(partitions).await?;
            if self.args.exit_at_end {
                self.ends = Some(self.ends_after(&assigned).await?);
            }
            consumer.assign(&assigned).await?;
        }
        let mut interrupted = Box::pin(interrupted());
        loop {
            if self.ends.as_ref().is_some_and(BTreeMap::is_empty) {
                return Ok(());
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
                Some(Polled::Event(event)) => self.on_event(consumer, event).await?,
                // Nothing came for a while: what was printed is to be seen.
                Some(_) | None => self.output.flush()?,
            }
            self.drop_reached(&consumer.positions());
        }
    }

    /// The partitions that were asked for.
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

    /// Where each partition is read from.
    async fn starts(
        &self,
        partitions: Vec<TopicPartition>,
    ) -> Result<Vec<(TopicPartition, StartAt)>, Failure> {
        let count = match self.args.from.unwrap_or(Start::At(StartAt::Beginning)) {
            Start::At(start) => return Ok(partitions.into_iter().map(|at| (at, start)).collect()),
            // `config` has refused it.
            Start::Stored => 0,
            Start::Last(count) => count,
        };
        let ask = |which| partitions.iter().map(|at| (at.clone(), which)).collect::<Vec<_>>();
        let first = self.admin.list_offsets(&ask(OffsetAt::Earliest)).await?;
        let ends = self.admin.list_offsets(&ask(OffsetAt::Latest)).await?;
        let start = |(at, end): (TopicPartition, i64)| {
            let first = first.get(&at).copied().unwrap_or(0);
            (at, StartAt::Offset(end.saturating_sub(count).max(first)))
        };
        Ok(ends.into_iter().map(start).collect())
    }

    /// The ends of partitions, of those that have anything between their start and their end.
    async fn ends_after(
        &self,
        starts: &[(TopicPartition, StartAt)],
    ) -> Result<BTreeMap<TopicPartition, i64>, Failure> {
        let ask = |which| starts.iter().map(|(at, _)| (at.clone(), which)).collect::<Vec<_>>();
        let mut ends = self.admin.list_offsets(&ask(OffsetAt::Latest)).await?;
        let mut from = self.admin.list_offsets(&ask(OffsetAt::Earliest)).await?;
        let timed = |(at, start): &(TopicPartition, StartAt)| match start {
            StartAt::Timestamp(ms) => Some((at.clone(), OffsetAt::Timestamp(*ms))),
            _ => None,
        };
        let timed: Vec<_> = starts.iter().filter_map(timed).collect();
        if !timed.is_empty() {
            from.extend(self.admin.list_offsets(&timed).await?);
        }
        for (at, start) in starts {
            let (Some(end), Some(from)) = (ends.get(at).copied(), from.get(at).copied()) else { continue };
            let from = match start {
                StartAt::End => end,
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

    async fn on_event(&mut self, consumer: &Consumer, event: Event) -> Result<(), Failure> {
        tracing::info!(?event, "assignment");
        if !self.args.exit_at_end {
            return Ok(());
        }
        match event {
            Event::Assigned(partitions) => {
                let mut ends = BTreeMap::new();
                if !partitions.is_empty() {
                    let reset = consumer.client().config().offset_reset;
                    let start =
                        if reset == OffsetReset::Earliest { StartAt::Beginning } else { StartAt::End };
                    let committed = consumer.committed(&partitions).await?;
                    let all: Vec<_> = partitions.iter().map(|at| (at.clone(), StartAt::Beginning)).collect();
                    ends = self.ends_after(&all).await?;
                    if start == StartAt::End {
                        ends.retain(|at, _| committed.contains_key(at));
                    }
                    ends.retain(|at, end| committed.get(at).is_none_or(|done| done < end));
                }
                self.ends.get_or_insert_default().extend(ends);
            }
            Event::Revoked(partitions) | Event::Lost(partitions) => {
                // What is left after a rebalance is known when the next assignment comes.
                let left = self.ends.take().unwrap_or_default();
                let left: BTreeMap<_, _> =
                    left.into_iter().filter(|(at, _)| !partitions.contains(at)).collect();
                self.ends = (!left.is_empty()).then_some(left);
            }
            _ => {}
        }
        Ok(())
    }

    /// Forgets the ends of partitions that have been read up to there.
    fn drop_reached(&mut self, positions: &BTreeMap<TopicPartition, i64>) {
        if let Some(ends) = &mut self.ends {
            ends.retain(|at, end| positions.get(at).is_none_or(|position| position < end));
        }
    }

    /// Prints a batch; whether that was the last of it.
    fn print(&mut self, consumer: &mut Consumer, batch: &Batch) -> Result<bool, Failure> {
        let at = TopicPartition { topic: batch.topic().clone(), partition: batch.partition() };
        let end = self.ends.as_ref().map(|ends| ends.get(&at).copied().unwrap_or(0));
        for record in batch {
            let record = record?;
            if end.is_some_and(|end| record.offset >= end) {
                // What came after the start is for the next reader of the group.
                consumer.done_until(&at, record.offset);
                break;
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
            if !self.args.filter.iter().all(|filter| filter.takes(&shown)) {
                continue;
            }
            self.text.clear();
            self.format.render(&shown, &mut self.text);
            self.output.write(&self.text)?;
            self.printed += 1;
            if self.args.count == Some(self.printed) {
                consumer.done_until(&at, record.offset + 1);
                return Ok(true);
            }
        }
        if let Some(ends) = &mut self.ends
            && ends.get(&at).is_some_and(|end| batch.next_offset() >= *end)
        {
            ends.remove(&at);
        }
        if batch.next_offset() >= batch.high_watermark() {
            self.output.flush()?;
        }
        Ok(false)
    }
}

/// Resolves when the user or the system asks us to stop.
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
