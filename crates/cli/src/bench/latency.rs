//! `ottla bench latency`: measures the time from a message's due time to its acknowledgement and to its consumption.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use ottla_client::{Client, Consumer, Delivery, OffsetAt, Polled, Producer, Record, StartAt, TopicPartition};

use super::measure::{Phase, histogram, percentiles_us};
use super::payload::Pool;
use super::progress::Progress;
use super::{BenchSetup, CommonArgs, ProducerArgs, described_topic, prepare};
use crate::connect::runtime;
use crate::failure::Failure;

/// Size of a message's stamp: its due time in nanoseconds since the start, and its number.
const STAMP_BYTES: usize = 16;

/// Time limit for the last messages.
const END_WITHIN: Duration = Duration::from_secs(30);

/// Longer waits sleep; shorter ones spin.
const SPIN: Duration = Duration::from_micros(80);

/// Measures latency
///
/// With a rate, the loop is open: each message has a fixed due time, and its latency counts from that time even if it
/// is sent late. With --rate 0, the loop is closed: each message is sent after the previous one is acknowledged. The
/// same process consumes the messages.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    producing: ProducerArgs,
    /// Messages per second; 0 sends each message after the previous acknowledgement
    #[arg(long, default_value_t = 1000)]
    rate: u64,
    /// Measures acknowledgements only and does not consume
    #[arg(long)]
    acks_only: bool,
    #[command(flatten)]
    common: CommonArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let pool = args.producing.pool(&args.common)?;
    if pool.size() < STAMP_BYTES && !args.acks_only {
        return Err(Failure::usage(format!(
            "--size: latency needs messages of at least {STAMP_BYTES} bytes"
        )));
    }
    let config = args.producing.config(&args.common)?;
    let described = ProducerArgs::describe(&config);
    let BenchSetup { client, partitions, .. } = &prepare(&args.common, config)?;
    let warmup = args.producing.warmup(&args.common, 10_000);
    let mut consumer =
        if args.acks_only { None } else { Some(at_end(client, &args.common.topic, *partitions)?) };
    let producer = client.producer();
    let mut progress = Progress::start()?;
    let once = |progress: &Progress, consumer: &mut Option<Consumer>, from, count| {
        let (producer, pool, base) = (&producer, &pool, Instant::now());
        Pass { args, producer, pool, from, count, base, progress }.run(consumer.as_mut())
    };
    if warmup > 0 {
        progress.phase("warm-up", warmup);
        once(&progress, &mut consumer, 0, warmup)?;
        progress.check()?;
    }

    progress.phase("latency", args.common.count);
    let phase = Phase::start();
    let (acks, ends) = once(&progress, &mut consumer, warmup, args.common.count)?;
    let measured = phase.end(acks.len(), acks.len() * pool.size() as u64);

    let mut fields = measured.json();
    fields.insert("ack_us".into(), percentiles_us(&acks));
    if !args.acks_only {
        fields.insert("e2e_us".into(), percentiles_us(&ends));
    }
    let loop_kind = match args.rate {
        0 => "closed loop: each message is sent after the previous acknowledgement".to_owned(),
        rate => format!("open loop at {rate} per second: latency counts from the due time"),
    };
    let title = format!(
        "latency through {}: {} messages of {} bytes after {warmup} for warm-up, {described}; \
         {loop_kind}",
        described_topic(&args.common.topic, *partitions),
        acks.len(),
        pool.size(),
    );
    progress.report(&title, fields, args.common.json)
}

/// A consumer that is positioned at the end of every partition.
fn at_end(client: &Client, topic: &str, partitions: usize) -> Result<Consumer, Failure> {
    runtime()?.block_on(async {
        let wanted: Vec<_> = (0..partitions as i32)
            .map(|partition| (TopicPartition::new(topic, partition), OffsetAt::Latest))
            .collect();
        let ends = client.admin().list_offsets(&wanted).await?;
        let starts: Vec<_> = ends.into_iter().map(|(at, end)| (at, StartAt::Offset(end))).collect();
        let mut consumer = client.consumer();
        consumer.assign(&starts).await?;
        Ok(consumer)
    })
}

/// Sends the messages `from..from + count` in one thread and reads them in another.
struct Pass<'a> {
    args: &'a Args,
    producer: &'a Producer,
    pool: &'a Pool,
    from: u64,
    count: u64,
    base: Instant,
    progress: &'a Progress,
}

impl Pass<'_> {
    fn run(&self, consumer: Option<&mut Consumer>) -> Result<(Histogram<u64>, Histogram<u64>), Failure> {
        std::thread::scope(|scope| {
            let sender = scope.spawn(move || match self.args.rate {
                0 => self.send_closed(),
                rate => self.send_open(rate),
            });
            let ends = consumer.map_or_else(|| Ok(histogram()), |consumer| self.consume(consumer));
            let acks = join(sender)?;
            Ok((acks, ends?))
        })
    }

    fn send_open(&self, rate: u64) -> Result<Histogram<u64>, Failure> {
        let topic = self.producer.topic(&self.args.common.topic);
        let mut acks = histogram();
        let mut waiting = VecDeque::new();
        let mut body = Vec::new();
        for index in 0..self.count {
            if self.progress.is_interrupted() {
                break;
            }
            self.progress.show(index);
            let due_ns = (u128::from(index) * 1_000_000_000 / u128::from(rate)) as u64;
            self.take_until(self.base + Duration::from_nanos(due_ns), &mut waiting, &mut acks)?;
            self.fill(&mut body, due_ns, self.from + index);
            let record = Record::to(&self.args.common.topic).value(&body);
            waiting.push_back((due_ns, topic.enqueue_blocking(&record)?));
        }
        for (due_ns, delivery) in waiting {
            if self.progress.is_interrupted() && delivery.try_offset().is_none() {
                continue;
            }
            settle(&delivery)?;
            acks.saturating_record(self.elapsed_ns().saturating_sub(due_ns));
        }
        Ok(acks)
    }

    /// Takes acknowledgements until `end`. A separate thread would be woken for each message that is sent.
    fn take_until(
        &self,
        until: Instant,
        waiting: &mut VecDeque<(u64, Delivery)>,
        acks: &mut Histogram<u64>,
    ) -> Result<(), Failure> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let pause = left.saturating_sub(SPIN);
            let Some((due_ns, delivery)) = waiting.front() else {
                if pause.is_zero() {
                    std::hint::spin_loop();
                } else {
                    std::thread::sleep(pause);
                }
                continue;
            };
            if !pause.is_zero() {
                drop(delivery.wait(pause));
            }
            match delivery.try_offset() {
                None => std::hint::spin_loop(),
                Some(Ok(_)) => {
                    acks.saturating_record(self.elapsed_ns().saturating_sub(*due_ns));
                    waiting.pop_front();
                }
                Some(Err(error)) => return Err(error.clone().into()),
            }
        }
    }

    fn send_closed(&self) -> Result<Histogram<u64>, Failure> {
        let topic = self.producer.topic(&self.args.common.topic);
        let mut acks = histogram();
        let mut body = Vec::new();
        for index in 0..self.count {
            if self.progress.is_interrupted() {
                break;
            }
            self.progress.show(index);
            let due_ns = self.elapsed_ns();
            self.fill(&mut body, due_ns, self.from + index);
            let record = Record::to(&self.args.common.topic).value(&body);
            settle(&topic.enqueue_blocking(&record)?)?;
            acks.saturating_record(self.elapsed_ns() - due_ns);
        }
        Ok(acks)
    }

    fn consume(&self, consumer: &mut Consumer) -> Result<Histogram<u64>, Failure> {
        let mut ends = histogram();
        let mut seen = 0;
        let mut deadline = Instant::now() + END_WITHIN;
        while seen < self.count && !self.progress.is_interrupted() {
            let Some(Polled::Records(batch)) = consumer.poll_blocking(Duration::from_millis(200))? else {
                if Instant::now() > deadline {
                    let missing = self.count - seen;
                    return Err(Failure::failed(format!(
                        "{missing} of {} messages did not arrive",
                        self.count
                    )));
                }
                continue;
            };
            let now_ns = self.elapsed_ns();
            deadline = Instant::now() + END_WITHIN;
            for record in &batch {
                let Some((due_ns, number)) = stamp_of(record?.value) else { continue };
                // Ignores messages of other producers and of the warm-up.
                if (self.from..self.from + self.count).contains(&number) {
                    ends.saturating_record(now_ns.saturating_sub(due_ns));
                    seen += 1;
                }
            }
        }
        Ok(ends)
    }

    fn fill(&self, body: &mut Vec<u8>, due_ns: u64, number: u64) {
        let message = self.pool.message(number);
        body.clear();
        if self.args.acks_only {
            body.extend_from_slice(message);
        } else {
            body.extend_from_slice(&due_ns.to_le_bytes());
            body.extend_from_slice(&number.to_le_bytes());
            body.extend_from_slice(&message[STAMP_BYTES..]);
        }
    }

    fn elapsed_ns(&self) -> u64 {
        self.base.elapsed().as_nanos() as u64
    }
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T, Failure>>) -> Result<T, Failure> {
    thread.join().unwrap_or_else(|_| Err(Failure::failed("a thread of the benchmark panicked")))
}

fn settle(delivery: &Delivery) -> Result<(), Failure> {
    match delivery.wait(END_WITHIN) {
        Some(Ok(_)) => Ok(()),
        Some(Err(error)) => Err(error.into()),
        None => Err(Failure::failed(format!("no acknowledgement within {} s", END_WITHIN.as_secs()))),
    }
}

fn stamp_of(value: Option<&[u8]>) -> Option<(u64, u64)> {
    let (due, rest) = value?.split_first_chunk::<8>()?;
    let (number, _) = rest.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*due), u64::from_le_bytes(*number)))
}
