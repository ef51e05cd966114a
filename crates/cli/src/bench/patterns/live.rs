//! `ottla bench patterns --live`: measures each mode's lag behind a producer with a fixed rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ottla_client::{Client, Config, NewTopic, Producer, Record};
use ottla_parallel::{Mode, Processor};
use serde_json::json;

use super::{Args, SILENCE_MAX, WRITE_WITHIN, WorkerTotals, group, start};
use crate::bench::TOPIC_WITHIN;
use crate::bench::measure::{Phase, report, rounded};
use crate::connect::runtime;
use crate::failure::Failure;

/// Interval at which the producer catches up with the clock.
const TICK: Duration = Duration::from_millis(1);

/// Interval at which the lag is checked.
const LAG_EVERY: Duration = Duration::from_millis(20);

/// A lag above the amount that is produced in this time counts as unbounded.
const LAG_MAX: Duration = Duration::from_secs(1);

/// The progress of a producer.
#[derive(Default)]
struct ProducerProgress {
    count: AtomicU64,
    ended: AtomicBool,
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
        let topic = format!("{}-live-{}", args.common.topic, group(mode.name()));
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
    let sent: Arc<ProducerProgress> = Arc::default();
    let producer =
        produce(config.clone(), topic.to_owned(), rate, Duration::from_secs(args.seconds), sent.clone());
    config.set_all([("group.id", topic), ("auto.offset.reset", "earliest")])?;
    let mut builder = Processor::builder(config, mode).topics([topic]).workers(args.workers);
    if let Some(order) = args.order {
        builder = builder.order(order);
    }
    let phase = Phase::start();
    let processor = start(mode, builder, WorkerTotals::default(), Duration::ZERO, Duration::ZERO)?;
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
            processor.stop();
            processor.join()?;
            return Err(Failure::failed(format!(
                "{}: received only {handled} of {count} messages",
                mode.name()
            )));
        }
    }
    let caught_up = ended_at.map_or(Duration::ZERO, |at| at.elapsed());
    let count = sent.count.load(Ordering::Acquire);
    let measured = phase.end(count, 0);
    processor.stop();
    processor.join()?;
    producer.join().map_err(|_| Failure::failed("the producer's thread panicked"))??;
    let (first, second) = lags.max_of_halves();
    let lag_max = (rate as f64 * LAG_MAX.as_secs_f64()) as u64;
    let mut fields = measured.json();
    let cores = measured.cpu.as_secs_f64() / measured.wall.as_secs_f64().max(1e-9);
    fields.insert("mode".into(), mode.name().into());
    fields.insert("cores".into(), rounded(cores, 2).into());
    fields.insert("lag_max".into(), json!({ "first_half": first, "second_half": second }));
    fields.insert("caught_up_ms".into(), rounded(caught_up.as_secs_f64() * 1e3, 1).into());
    fields.insert("bounded".into(), (second <= lag_max).into());
    let asked = rate * args.seconds;
    let title = format!(
        "{}: {count} of {asked} messages in {} s, including the producer's work; a lag of at most {lag_max} is bounded",
        mode.name(),
        args.seconds
    );
    report(&title, fields, args.common.json)
}

/// Sends `{"id":N}` at this rate. Late messages are sent at once.
fn produce(
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
            let (began, mut id) = (Instant::now(), 0);
            while began.elapsed() < within {
                let due = (rate as f64 * began.elapsed().as_secs_f64()) as u64;
                while id < due {
                    let value = format!("{{\"id\":{id}}}");
                    sender.send_unobserved_blocking(Record::to(&topic).value(&value))?;
                    id += 1;
                }
                sent.count.store(id, Ordering::Release);
                std::thread::sleep(TICK);
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
