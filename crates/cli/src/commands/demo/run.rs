//! One thread produces, another consumes in a group; both compute checksums.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use ottla_client::{Client, Consumer, Delivery, Polled, Record};
use ottla_wire::crc::crc32c;

use super::input::Input;
use crate::connect::runtime;
use crate::failure::Failure;
use crate::signals::Interrupt;

/// Time limit for the remaining lines after everything is sent.
const REMAINING_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);
/// The total is not yet known.
const UNKNOWN: u64 = u64::MAX;

/// The lines that one side has processed. The checksum does not depend on the order, which is checked separately.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct ProcessedLines {
    pub(super) lines: u64,
    pub(super) bytes: u64,
    pub(super) checksum: u64,
}

impl ProcessedLines {
    fn add(&mut self, number: u64, line: &[u8]) {
        self.lines += 1;
        self.bytes += line.len() as u64;
        // The checksum includes the number, so that swapped lines change it.
        let mixed = u64::from(crc32c(line)) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.checksum = self.checksum.wrapping_add(mixed.wrapping_mul(0xff51_afd7_ed55_8ccd));
    }
}

/// The result of the demo.
pub(super) struct Outcome {
    pub(super) produced: ProcessedLines,
    pub(super) consumed: ProcessedLines,
    pub(super) produced_in: Duration,
    pub(super) consumed_in: Duration,
    pub(super) latencies: Histogram<u64>,
}

impl Outcome {
    pub(super) fn verify(&self) -> Result<(), Failure> {
        let (sent, read) = (self.produced, self.consumed);
        if sent == read {
            return Ok(());
        }
        Err(Failure::failed(format!(
            "what came out is not what went in: {} lines of {} bytes with checksum {:016x} were sent, {} of {} with \
             {:016x} read",
            sent.lines, sent.bytes, sent.checksum, read.lines, read.bytes, read.checksum
        )))
    }
}

/// Lines produced and consumed so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) produced: u64,
    pub(super) consumed: u64,
}

pub(super) struct Run<'a> {
    client: Client,
    topic: &'a str,
    started: Instant,
    produced: AtomicU64,
    consumed: AtomicU64,
    /// The number of lines, after the last one is sent.
    total: AtomicU64,
    interrupt: Interrupt,
}

impl<'a> Run<'a> {
    pub(super) fn new(client: Client, topic: &'a str, interrupt: Interrupt) -> Self {
        Self {
            client,
            topic,
            started: Instant::now(),
            produced: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
            total: AtomicU64::new(UNKNOWN),
            interrupt,
        }
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            produced: self.produced.load(Ordering::Relaxed),
            consumed: self.consumed.load(Ordering::Relaxed),
        }
    }

    pub(super) fn run(&self, input: Input) -> Result<Outcome, Failure> {
        let mut consumer = self.client.consumer();
        runtime()?.block_on(consumer.subscribe(&[self.topic]))?;
        // The consumer joins its group before the first line, so that joining is not measured.
        while !matches!(consumer.poll_blocking(POLL)?, Some(Polled::Event(_))) {
            self.interrupt.check()?;
            if self.started.elapsed() > REMAINING_WITHIN {
                return Err(Failure::failed("the consumer did not get its partitions"));
            }
        }
        let sending = Instant::now();
        let (produced, consumed) = std::thread::scope(|scope| {
            let consuming = scope.spawn(|| self.consume(consumer, sending));
            let produced = self.produce(input, sending);
            // The consumer waits for this total.
            let sent = produced.as_ref().map_or(0, |(seen, _)| seen.lines);
            self.total.store(sent, Ordering::Release);
            let consumed = consuming.join().unwrap_or_else(|_| Err(Failure::failed("the consumer panicked")));
            (produced, consumed)
        });
        let (produced, produced_in) = produced?;
        let (consumed, consumed_in, latencies) = consumed?;
        Ok(Outcome { produced, consumed, produced_in, consumed_in, latencies })
    }

    fn produce(&self, mut input: Input, sending: Instant) -> Result<(ProcessedLines, Duration), Failure> {
        let producer = self.client.producer();
        let topic = producer.topic(self.topic);
        let mut window: VecDeque<Delivery> = VecDeque::new();
        let mut seen = ProcessedLines::default();
        while let Some(line) = input.next()? {
            self.interrupt.check()?;
            let number = seen.lines;
            let (number_text, sent_ns) = (number.to_string(), sending.elapsed().as_nanos().to_string());
            let record =
                Record::to(self.topic).value(line).header("line", &number_text).header("sent_ns", &sent_ns);
            window.push_back(topic.enqueue_blocking(&record)?);
            seen.add(number, line);
            if number.is_multiple_of(64) {
                self.take_done(&mut window)?;
            }
        }
        producer.flush_blocking(REMAINING_WITHIN)?;
        self.take_done(&mut window)?;
        match window.len() {
            0 => Ok((seen, sending.elapsed())),
            left => Err(Failure::failed(format!("{left} lines were not acknowledged"))),
        }
    }

    fn take_done(&self, window: &mut VecDeque<Delivery>) -> Result<(), Failure> {
        while let Some(outcome) = window.front().and_then(Delivery::try_offset) {
            outcome.map_err(Clone::clone)?;
            window.pop_front();
            self.produced.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn consume(
        &self,
        mut consumer: Consumer,
        sending: Instant,
    ) -> Result<(ProcessedLines, Duration, Histogram<u64>), Failure> {
        let mut latencies = crate::bench::measure::histogram();
        let mut seen = ProcessedLines::default();
        let mut order = Order::default();
        let mut last = sending.elapsed();
        let mut silent_since = Instant::now();
        while seen.lines < self.total.load(Ordering::Acquire) {
            self.interrupt.check()?;
            let Some(polled) = consumer.poll_blocking(POLL)? else {
                let all_sent = self.total.load(Ordering::Acquire) != UNKNOWN;
                if all_sent && silent_since.elapsed() > REMAINING_WITHIN {
                    return Err(Failure::failed(format!("received no more lines after {}", seen.lines)));
                }
                continue;
            };
            silent_since = Instant::now();
            let Polled::Records(batch) = polled else { continue };
            last = sending.elapsed();
            for record in &batch {
                let record = record?;
                let value = record.value.unwrap_or_default();
                let header = |name: &[u8]| {
                    let found = record.headers.iter().find(|(found, _)| *found == name);
                    found.and_then(|(_, value)| std::str::from_utf8(value?).ok()?.parse::<u64>().ok())
                };
                let (Some(number), Some(sent_ns)) = (header(b"line"), header(b"sent_ns")) else {
                    return Err(Failure::failed(format!("offset {}: a header is missing", record.offset)));
                };
                order.check(batch.partition(), record.offset, number)?;
                seen.add(number, value);
                latencies.saturating_record((last.as_nanos() as u64).saturating_sub(sent_ns));
            }
            self.consumed.store(seen.lines, Ordering::Relaxed);
        }
        consumer.close_blocking(Duration::from_secs(10))?;
        Ok((seen, last, latencies))
    }
}

/// Checks that offsets have no gaps and that line numbers increase in each partition: no duplicates, no reordering.
#[derive(Default)]
struct Order {
    partitions: Vec<(i64, Option<u64>)>,
}

impl Order {
    fn check(&mut self, partition: i32, offset: i64, number: u64) -> Result<(), Failure> {
        let at = partition.max(0) as usize;
        if self.partitions.len() <= at {
            self.partitions.resize(at + 1, (0, None));
        }
        let (next, last) = &mut self.partitions[at];
        if offset != *next {
            return Err(Failure::failed(format!(
                "partition {partition}: received offset {offset}, expected {next}"
            )));
        }
        if last.is_some_and(|last| last >= number) {
            return Err(Failure::failed(format!(
                "partition {partition} offset {offset}: line {number} came after line {}",
                last.unwrap_or_default()
            )));
        }
        (*next, *last) = (offset + 1, Some(number));
        Ok(())
    }
}
