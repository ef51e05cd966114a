//! Times of snapshots, restores and forks of a broker with 100 topics: `cargo run --release -p ottla-broker --example snapshot_times`.

#![allow(clippy::disallowed_methods, reason = "a measurement")]

use std::time::{Duration, Instant};

use ottla_broker::Broker;
use ottla_client::{Config, Producer, Record};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut builder = Broker::builder().memory();
    for number in 0..100 {
        builder = builder.topic(format!("topic-{number}"), 1);
    }
    let broker = builder.spawn()?;
    let producer = Producer::new(Config::new(broker.bootstrap_servers()))?;
    let value = "v".repeat(1000);
    for records in [0, 10_000, 90_000] {
        for number in 0..records {
            let topic = format!("topic-{}", number % 100);
            let _unawaited = producer.enqueue_blocking(Record::to(&topic).value(&value))?;
        }
        producer.flush_blocking(Duration::from_secs(60))?;
        let (mut taken, mut restored, mut forked) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..21 {
            let began = Instant::now();
            let snapshot = broker.snapshot()?;
            taken.push(began.elapsed());
            broker.restore(&snapshot)?;
            restored.push(began.elapsed());
            let began = Instant::now();
            drop(broker.fork()?);
            forked.push(began.elapsed());
        }
        for times in [&mut taken, &mut restored, &mut forked] {
            times.sort();
        }
        let (taken, restored, forked) = (taken[10], restored[10], forked[10]);
        println!(
            "{records} more records of 1 kB: snapshot {taken:?}, with its restore {restored:?}, fork and its end {forked:?}"
        );
    }
    Ok(())
}
