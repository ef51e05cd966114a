//! `ottla bench patterns --live`: measures each mode's latency and lag behind a producer with a fixed rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ottla_client::{Client, Config, NewTopic, Producer, Record};
use ottla_parallel::Mode;
use serde_json::json;

use super::totals::{Totals, WorkerTotals, now_ns, start};
use super::{Args, SILENCE_MAX, WRITE_WITHIN, stop_silent};
use crate::bench::TOPIC_WITHIN;
use crate::bench::measure::{Phase, percentiles_us, report, rounded};
use crate::bench::new_group;
use crate::connect::runtime;
use crate::failure::Failure;

/// Longest interval at which the producer catches up with the clock.
const TICK: Duration = Duration::from_millis(1);
/// The rate from which it does so; at lower rates it wakes for each message.
const TICKS_PER_S: u64 = 1000;

/// Default duration.
const SECONDS: u64 = 60;

/// Interval at which the lag is checked.
const LAG_EVERY: Duration = Duration::from_millis(20);

/// A lag above the amount that is produced in this time counts as unbounded.
const LAG_MAX: Duration = Duration::from_secs(1);

/// The progress of a producer.
#[derive(Default)]
pub(super) struct ProducerProgress {
    pub(super) count: AtomicU64,
    pub(super) ended: AtomicBool,
}

/// Lags while the producer was running. They do not grow in a mode that keeps up.
#[derive(Default)]
struct Lags(Vec<u64>);

impl Lags {
    fn max_of_halves(&self) -> (u64, u64) {
        let (first, second) = self.0.split_at(self.0.len() / 2);
        let max = |lags: &[u64]| lags.iter().max().copied().unwrap_or(0);
        (max(first), max(second))
    }
}

pub(super) fn run(
    args: &Args,
    client: &Client,
    config: &Config,
    modes: &[Mode],
    rate: u64,
) -> Result<(), Failure> {
    for mode in modes {
        let topic = format!("{}-live-{}", args.common.topic, new_group(mode.name()));
        let admin = client.admin();
        runtime()?.block_on(async {
            admin.create_topics(&[NewTopic::new(&topic).partitions(args.common.partitions)]).await?;
            admin.await_topic(&topic, TOPIC_WITHIN).await
        })?;
        let measured = measure(args, config.clone(), *mode, &topic, rate);
        runtime()?.block_on(admin.delete_topics(&[&topic]))?;
        measured?;
    }
    Ok(())
}

fn measure(args: &Args, mut config: Config, mode: Mode, topic: &str, rate: u64) -> Result<(), Failure> {
    let seconds = args.seconds.unwrap_or(SECONDS);
    let sent: Arc<ProducerProgress> = Arc::default();
    let producer =
        produce(config.clone(), topic.to_owned(), rate, Duration::from_secs(seconds), sent.clone());
    config.set_all([("group.id", topic), ("auto.offset.reset", "earliest")])?;
    let builder = args.builder(config, mode, topic);
    let phase = Phase::start();
    let totals: Arc<Totals> = Arc::default();
    let processor = start(mode, builder, WorkerTotals::of(&totals), args.handler_cost())?;
    let (mut lags, mut handled, mut moved) = (Lags::default(), 0, Instant::now());
    let mut ended_at = None;
    loop {
        std::thread::park_timeout(LAG_EVERY);
        let ended = sent.ended.load(Ordering::Acquire);
        let now = processor.metrics().handled;
        let count = sent.count.load(Ordering::Acquire);
        if !ended {
            lags.0.push(count.saturating_sub(now));
        } else if now >= count {
            break;
        } else {
            ended_at.get_or_insert_with(Instant::now);
        }
        if now > handled || count == 0 {
            (handled, moved) = (now, Instant::now());
        } else if moved.elapsed() > SILENCE_MAX || processor.is_stopped() {
            return Err(stop_silent(processor, mode, handled, count));
        }
    }
    let caught_up = ended_at.map_or(Duration::ZERO, |at| at.elapsed());
    let count = sent.count.load(Ordering::Acquire);
    let mut measured = phase.end(count, 0);
    processor.stop();
    processor.join()?;
    totals.await_all();
    measured.bytes = totals.bytes.load(Ordering::Relaxed);
    producer.join().map_err(|_| Failure::failed("the producer's thread panicked"))??;
    let (first, second) = lags.max_of_halves();
    let lag_max = (rate as f64 * LAG_MAX.as_secs_f64()) as u64;
    let mut fields = measured.json();
    let cores = measured.cpu.as_secs_f64() / measured.wall.as_secs_f64().max(1e-9);
    fields.insert("mode".into(), mode.name().into());
    fields.insert("cores".into(), rounded(cores, 2).into());
    fields.insert("lag_max".into(), json!({ "first_half": first, "second_half": second }));
    fields.insert("caught_up_ms".into(), rounded(caught_up.as_secs_f64() * 1e3, 1).into());
    if let Some(latencies) = totals.latencies() {
        fields.insert("latency_us".into(), percentiles_us(&latencies));
    }
    fields.insert("bounded".into(), (second <= lag_max).into());
    let asked = rate * seconds;
    let title = format!(
        "{}: {count} of {asked} messages in {seconds} s, including the producer's work; a lag of at most {lag_max} is bounded",
        mode.name()
    );
    report(&title, fields, args.common.json)
}

/// Sends `{"id":N,"due":T}` at this rate. T is the time at which the message is due, in nanoseconds since 1970: late
/// messages are sent at once, and their delay is part of their latency.
pub(super) fn produce(
    config: Config,
    topic: String,
    rate: u64,
    within: Duration,
    sent: Arc<ProducerProgress>,
) -> std::thread::JoinHandle<Result<(), Failure>> {
    std::thread::spawn(move || {
        let send = || -> Result<(), Failure> {
            let producer = Producer::new(config)?;
            let sender = producer.topic(&topic);
            let (began, began_ns, mut id) = (Instant::now(), now_ns(), 0);
            let due_after = |id: u64| Duration::from_secs_f64(id as f64 / rate as f64);
            while began.elapsed() < within {
                let now = began.elapsed();
                while due_after(id) <= now {
                    let due = began_ns + due_after(id).as_nanos() as u64;
                    let value = format!("{{\"id\":{id},\"due\":{due}}}");
                    sender.send_unobserved_blocking(Record::to(&topic).value(&value))?;
                    id += 1;
                }
                sent.count.store(id, Ordering::Release);
                let wait = due_after(id).saturating_sub(began.elapsed());
                std::thread::sleep(if rate < TICKS_PER_S { wait } else { TICK });
            }
            producer.flush_blocking(WRITE_WITHIN)?;
            Ok(())
        };
        let done = send();
        sent.ended.store(true, Ordering::Release);
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_that_grows_shows_in_the_second_half() {
        assert_eq!(Lags(vec![5, 9, 3, 30, 20]).max_of_halves(), (9, 30));
        assert_eq!(Lags::default().max_of_halves(), (0, 0));
    }
}
