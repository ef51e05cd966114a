//! Processors in each mode against the embedded broker.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ottla_client::Record;
use ottla_parallel::{BatchFailure, Error, Failure, GiveUp, Mode, Order, Processor, Retry};
use support::*;

const ORDERS: [Order; 3] = [Order::None, Order::Partition, Order::Key];

#[test]
fn every_record_is_handled_once_and_committed_in_every_mode_and_order() {
    for mode in Mode::ALL {
        for order in ORDERS {
            let broker = broker("orders", 3);
            produce(broker.bootstrap_servers(), "orders", 50, 10_000);
            let seen = Seen::default();
            let noted = seen.clone();
            let processor = start(builder(&broker, mode, order), mode, move |record| {
                noted.note(record.key(), record.partition(), record.offset(), record.value());
                Ok(())
            });
            await_that("all handled", || seen.len() >= 10_000);
            processor.stop();
            processor.join().expect("stopped");
            assert_eq!((seen.len(), seen.distinct()), (10_000, 10_000), "{mode:?} {order:?}");
            if order != Order::None || mode == Mode::Sync {
                seen.assert_key_order();
            }
            let config = member(broker.bootstrap_servers(), "workers");
            assert_eq!(committed(config, "orders", 3), 10_000, "{mode:?} {order:?}");
        }
    }
}

#[test]
fn no_batch_exceeds_its_maximum_in_any_order() {
    for order in ORDERS {
        let broker = broker("orders", 1);
        produce(broker.bootstrap_servers(), "orders", 3, 1_000);
        let (most, count) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (largest, counted) = (most.clone(), count.clone());
        let processor = builder(&broker, Mode::MultiBatch, order)
            .batch(30)
            .start_batches(move |messages| {
                largest.fetch_max(messages.iter().count(), Ordering::Relaxed);
                counted.fetch_add(messages.len(), Ordering::Relaxed);
                Ok(())
            })
            .expect("a processor");
        await_that("all handled", || count.load(Ordering::Relaxed) >= 1_000);
        processor.stop();
        processor.join().expect("stopped");
        assert_eq!(most.load(Ordering::Relaxed), 30, "{order:?}");
    }
}

#[test]
fn a_large_compressed_batch_is_split_and_each_record_is_handled_once() {
    let broker = broker("orders", 1);
    let mut config = ottla_client::Config::new(broker.bootstrap_servers());
    config.set_all([("compression.type", "gzip"), ("batch.size", "100000")]).expect("properties");
    let producer = ottla_client::Producer::new(config).expect("a producer");
    let (padding, count) = (" ".repeat(10_000), 500);
    for number in 0..count {
        let value = format!("{number}{padding}");
        let _unawaited = producer.enqueue_blocking(Record::to("orders").value(&value)).expect("taken");
    }
    producer.flush_blocking(PATIENCE).expect("written");
    let handled = Arc::new(AtomicUsize::new(0));
    let counted = handled.clone();
    let processor = builder(&broker, Mode::MultiAsync, Order::None)
        .start_each(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .expect("a processor");
    await_that("all handled", || handled.load(Ordering::Relaxed) >= count || processor.is_stopped());
    processor.stop();
    processor.join().expect("stopped");
    assert_eq!(handled.load(Ordering::Relaxed), count);
    assert_eq!(committed(member(broker.bootstrap_servers(), "workers"), "orders", 1), count as i64);
}

#[test]
fn async_handlers_run_concurrently() {
    for order in ORDERS {
        let broker = broker("orders", 4);
        produce(broker.bootstrap_servers(), "orders", 40, 2_000);
        let (seen, most) = (Seen::default(), Arc::new(AtomicUsize::new(0)));
        let (noted, at_once, highest) = (seen.clone(), Arc::new(AtomicUsize::new(0)), most.clone());
        let processor = builder(&broker, Mode::MultiAsync, order)
            .workers(100)
            .start_each_async(async move |message| {
                highest.fetch_max(at_once.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(1)).await;
                at_once.fetch_sub(1, Ordering::Relaxed);
                noted.note(message.key(), message.partition(), message.offset(), message.value());
                Ok(())
            })
            .expect("a processor");
        await_that("all handled", || seen.len() >= 2_000);
        processor.stop();
        processor.join().expect("stopped");
        assert_eq!(seen.distinct(), 2_000);
        let at_least = match order {
            Order::None => 50,
            Order::Partition => 3,
            Order::Key => 15,
        };
        let most = most.load(Ordering::Relaxed);
        assert!(most >= at_least && most <= 100, "{order:?}: {most} at once");
        if order != Order::None {
            seen.assert_key_order();
        }
    }
}

#[test]
fn a_poison_record_becomes_a_dead_letter_and_blocks_no_other() {
    for mode in Mode::ALL {
        for retry in
            [Retry::never(), Retry::times(2).delay(Duration::from_millis(5)), Retry::times(1).holding()]
        {
            let broker = broker("orders", 2);
            produce(broker.bootstrap_servers(), "orders", 10, 1_000);
            let (seen, tries) = (Seen::default(), Arc::new(AtomicUsize::new(0)));
            let (noted, tried) = (seen.clone(), tries.clone());
            let holding = retry == Retry::times(1).holding();
            let times = if holding {
                2
            } else if retry == Retry::never() {
                1
            } else {
                3
            };
            let builder =
                builder(&broker, mode, Order::Key).retry(retry).give_up(GiveUp::DeadLetter("dead".into()));
            let is_poison = |record: &ottla_client::RecordView<'_>| {
                record.key() == Some(b"k3") && record.value() == Some(b"50")
            };
            let processor = match mode {
                Mode::Sync | Mode::MultiAsync => builder.start_each(move |message| {
                    if is_poison(message) {
                        tried.fetch_add(1, Ordering::Relaxed);
                        return Err(Failure::new("no such order"));
                    }
                    noted.note(message.key(), message.partition(), message.offset(), message.value());
                    Ok(())
                }),
                Mode::Batch | Mode::MultiBatch => builder.start_batches(move |messages| {
                    let mut failed = Vec::new();
                    for (index, record) in messages.iter().enumerate() {
                        if is_poison(&record) {
                            tried.fetch_add(1, Ordering::Relaxed);
                            failed.push((index, Failure::new("no such order")));
                        } else {
                            noted.note(record.key(), record.partition(), record.offset(), record.value());
                        }
                    }
                    if failed.is_empty() { Ok(()) } else { Err(BatchFailure::records(failed)) }
                }),
            }
            .expect("a processor");
            await_that("all handled but one", || seen.len() >= 999 && processor.metrics().dead_letters == 1);
            processor.stop();
            processor.join().expect("stopped");
            assert_eq!((seen.distinct(), tries.load(Ordering::Relaxed)), (999, times), "{mode:?}");
            let config = member(broker.bootstrap_servers(), "workers");
            assert_eq!(committed(config.clone(), "orders", 2), 1_000);
            let dead = read_all(config, "dead", 1);
            assert_eq!(dead.len(), 1);
            let record = &dead[0].1;
            assert_eq!(
                (record.key.as_deref(), record.value.as_deref()),
                (Some(&b"k3"[..]), Some(&b"50"[..]))
            );
            let header = |name: &str| {
                let value =
                    record.headers.iter().find(|(its, _)| its == name).and_then(|(_, value)| value.clone());
                String::from_utf8(value.expect("a header").to_vec()).expect("text")
            };
            assert_eq!(header("ottla.error.topic"), "orders");
            assert_eq!(header("ottla.error.reason"), "no such order");
            assert_eq!(header("ottla.error.attempts"), times.to_string());
            assert_eq!(header("ottla.error.kind"), "failed");
            let (_, offset) = (header("ottla.error.partition"), header("ottla.error.offset"));
            assert!(offset.parse::<i64>().is_ok());
        }
    }
}

#[test]
fn an_undecodable_record_becomes_a_dead_letter_without_retries() {
    let broker = broker("orders", 1);
    produce(broker.bootstrap_servers(), "orders", 0, 10);
    let processor = builder(&broker, Mode::MultiAsync, Order::None)
        .retry(Retry::forever())
        .give_up(GiveUp::DeadLetter("dead".into()))
        .start_each(|message| match message.value() {
            Some(b"7") => Err(Failure::undecodable("not a letter")),
            Some(b"8") => panic!("eight"),
            _ => Ok(()),
        })
        .expect("a processor");
    await_that("one dead letter, one panic again and again", || {
        let metrics = processor.metrics();
        metrics.handled == 8 && metrics.dead_letters == 1 && metrics.retries >= 2
    });
    let metrics = processor.metrics();
    assert_eq!(
        metrics.partitions[0].blocking.map(|(offset, _)| offset),
        Some(8),
        "the panic is not passed over"
    );
    processor.stop();
    processor.join().expect("stopped");
    assert_eq!(committed(member(broker.bootstrap_servers(), "workers"), "orders", 1), 8);
}

#[test]
fn a_given_up_record_stops_the_processor_and_is_not_committed() {
    let broker = broker("orders", 1);
    produce(broker.bootstrap_servers(), "orders", 0, 100);
    for mode in [Mode::Sync, Mode::MultiAsync] {
        let processor = builder(&broker, mode, Order::Partition)
            .retry(Retry::never())
            .start_each(|message| if message.offset() == 41 { Err(Failure::new("no")) } else { Ok(()) })
            .expect("a processor");
        let Err(Error::Record { offset, attempts, reason, .. }) = processor.join() else {
            panic!("it stops with the record's error");
        };
        assert_eq!((offset, attempts, &*reason), (41, 1, "no"));
        assert_eq!(committed(member(broker.bootstrap_servers(), "workers"), "orders", 1), 41);
    }
}

/// A fatal failure neither skips nor writes a dead letter: `ottla run --skip` once lost all records when its program
/// did not exist.
#[test]
fn a_fatal_failure_stops_the_processor_for_every_give_up_setting() {
    let broker = broker("orders", 1);
    produce(broker.bootstrap_servers(), "orders", 0, 100);
    for give_up in [GiveUp::Skip, GiveUp::DeadLetter("dead".into()), GiveUp::Stop] {
        let processor = builder(&broker, Mode::MultiAsync, Order::Partition)
            .retry(Retry::times(3))
            .give_up(give_up)
            .start_each(
                |message| if message.offset() >= 41 { Err(Failure::fatal("no program")) } else { Ok(()) },
            )
            .expect("a processor");
        let metrics = processor.metrics_source();
        let Err(Error::Handler { offset, reason, .. }) = processor.join() else {
            panic!("it stops with the handler's error");
        };
        assert_eq!((offset, &*reason), (41, "no program"));
        let metrics = metrics();
        assert_eq!((metrics.retries, metrics.skipped, metrics.dead_letters), (0, 0, 0));
        assert_eq!(committed(member(broker.bootstrap_servers(), "workers"), "orders", 1), 41);
    }
}

#[test]
fn a_stuck_worker_appears_in_the_metrics_and_holds_back_only_the_commit() {
    let broker = broker("orders", 2);
    produce(broker.bootstrap_servers(), "orders", 100, 2_000);
    let (seen, release) = (Seen::default(), Arc::new(AtomicBool::new(false)));
    let (noted, released) = (seen.clone(), release.clone());
    let processor = builder(&broker, Mode::MultiAsync, Order::Key)
        .start_each(move |message| {
            if message.partition() == 0 && message.offset() == 5 {
                await_that("released", || released.load(Ordering::Relaxed));
            }
            noted.note(message.key(), message.partition(), message.offset(), message.value());
            Ok(())
        })
        .expect("a processor");
    // The records in the stuck record's lane wait with it; all others are handled.
    await_that("the others are handled", || seen.len() > 1_500);
    await_that("the age is seen", || {
        let metrics = processor.metrics();
        let stuck = metrics.partitions.iter().find(|partition| partition.at.partition == 0);
        let blocking = stuck.and_then(|partition| partition.blocking);
        let done = metrics.partitions.iter().find(|partition| partition.at.partition == 1);
        assert!(stuck.is_some_and(|partition| partition.committed.is_none_or(|committed| committed <= 5)));
        blocking.is_some_and(|(offset, age)| offset == 5 && age >= Duration::from_millis(100))
            && done.is_some_and(|partition| partition.blocking.is_none())
    });
    let text = processor.metrics().prometheus_text();
    assert!(text.contains("ottla_processor_blocking_offset{topic=\"orders\",partition=\"0\"} 5\n"), "{text}");
    release.store(true, Ordering::Relaxed);
    await_that("all handled", || seen.len() == 2_000);
    processor.stop();
    processor.join().expect("stopped");
    assert_eq!(committed(member(broker.bootstrap_servers(), "workers"), "orders", 2), 2_000);
}

#[test]
fn every_record_is_handled_in_key_order_while_members_join_and_leave() {
    for mode in Mode::ALL {
        let broker = broker("orders", 6);
        produce(broker.bootstrap_servers(), "orders", 60, 6_000);
        let seen = Seen::default();
        let member = || {
            let noted = seen.clone();
            let order = if mode == Mode::Sync || mode == Mode::Batch { Order::Partition } else { Order::Key };
            let builder = builder(&broker, mode, order).batch(20);
            start(builder, mode, move |record| {
                std::thread::park_timeout(Duration::from_micros(300));
                noted.note(record.key(), record.partition(), record.offset(), record.value());
                Ok(())
            })
        };
        let first = member();
        await_that("the first is at work", || seen.len() > 300);
        let second = member();
        await_that("the second has partitions", || !second.metrics().partitions.is_empty());
        await_that("both are at work", || second.metrics().handled > 100);
        first.stop();
        first.join().expect("the first has left");
        await_that("all handled", || seen.distinct() == 6_000);
        second.stop();
        second.join().expect("the second has left");
        seen.assert_key_order();
        // Records finished after an unfinished one are handled again by the next owner. With one worker per partition
        // there are none. With several workers a record is handled at most once per assignment of its partition: to
        // the first member, to the second, and after the first has left.
        if mode == Mode::Sync || mode == Mode::Batch {
            assert_eq!(seen.len(), 6_000, "{mode:?}: records done twice");
        }
        assert!(seen.most_often() <= 3, "{mode:?}: a record done {} times", seen.most_often());
        let config = support::member(broker.bootstrap_servers(), "workers");
        assert_eq!(committed(config, "orders", 6), 6_000);
    }
}

#[test]
fn results_after_the_drain_deadline_are_dropped() {
    let broker = broker("orders", 1);
    produce(broker.bootstrap_servers(), "orders", 0, 10);
    let (begun, release) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (begins, released) = (begun.clone(), release.clone());
    let processor = builder(&broker, Mode::MultiAsync, Order::Partition)
        .drain(Duration::from_millis(50))
        .start_each(move |message| {
            if message.offset() == 3 {
                begins.store(true, Ordering::Relaxed);
                await_that("released", || released.load(Ordering::Relaxed));
            }
            Ok(())
        })
        .expect("a processor");
    await_that("it is stuck", || begun.load(Ordering::Relaxed));
    let exchange = processor.client().clone();
    processor.stop();
    processor.join().expect("stopped without the stuck worker");
    release.store(true, Ordering::Relaxed);
    drop(exchange);
    assert_eq!(committed(member(broker.bootstrap_servers(), "workers"), "orders", 1), 3);
}

#[test]
fn in_flight_records_are_bounded_and_a_full_partition_blocks_no_other() {
    let broker = broker("orders", 2);
    produce(broker.bootstrap_servers(), "orders", 50, 20_000);
    let release = Arc::new(AtomicBool::new(false));
    let released = release.clone();
    let processor = builder(&broker, Mode::MultiAsync, Order::Partition)
        .records_in_flight(1_000)
        .start_each(move |message| {
            if message.partition() == 0 && message.offset() == 0 {
                await_that("released", || released.load(Ordering::Relaxed));
            }
            Ok(())
        })
        .expect("a processor");
    await_that("the full one is paused, and the other one through", || {
        let metrics = processor.metrics();
        let in_flight: usize = metrics.partitions.iter().map(|partition| partition.in_flight).sum();
        assert!(in_flight <= 1_000, "{in_flight}");
        let paused = metrics.partitions.iter().any(|it| it.at.partition == 0 && it.paused);
        let through = metrics
            .partitions
            .iter()
            .any(|it| it.at.partition == 1 && it.blocking.is_none() && it.finished > Some(1_000));
        paused && through
    });
    release.store(true, Ordering::Relaxed);
    await_that("all handled", || processor.metrics().handled == 20_000);
    processor.stop();
    processor.join().expect("stopped");
}

#[test]
fn an_open_circuit_breaker_pauses_all_handling() {
    let broker = broker("orders", 1);
    produce(broker.bootstrap_servers(), "orders", 0, 1_000);
    let (outage, tries) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (is_out, tried) = (outage.clone(), tries.clone());
    let processor = builder(&broker, Mode::MultiAsync, Order::None)
        .retry(Retry::times(1000).delay(Duration::from_millis(1)).delay_max(Duration::from_millis(5)))
        .circuit_breaker(10, Duration::from_millis(50))
        .start_each(move |_| {
            tried.fetch_add(1, Ordering::Relaxed);
            if is_out.load(Ordering::Relaxed) { Err(Failure::new("database away")) } else { Ok(()) }
        })
        .expect("a processor");
    await_that("it has opened a few times", || processor.metrics().breaker_opened >= 3);
    assert!(tries.load(Ordering::Relaxed) < 500, "{} tries in an outage", tries.load(Ordering::Relaxed));
    outage.store(false, Ordering::Relaxed);
    await_that("all handled", || processor.metrics().handled == 1_000);
    assert!(processor.metrics().breaker_closed);
    processor.stop();
    processor.join().expect("stopped");
}

#[test]
fn outputs_are_written_before_their_record_is_done() {
    let broker = broker("orders", 2);
    produce(broker.bootstrap_servers(), "orders", 20, 3_000);
    let processor = builder(&broker, Mode::MultiAsync, Order::Key)
        .retry(Retry::times(5).delay(Duration::from_millis(1)).holding())
        .start_each({
            let failed = Arc::new(AtomicUsize::new(0));
            move |message| {
                message.send(
                    &Record::to("invoices")
                        .key(message.key().unwrap_or_default())
                        .value(message.value().unwrap_or_default()),
                );
                if message.offset() % 100 == 7 && message.attempt() == 1 {
                    failed.fetch_add(1, Ordering::Relaxed);
                    return Err(Failure::new("what was sent before is not written"));
                }
                Ok(())
            }
        })
        .expect("a processor");
    let config = member(broker.bootstrap_servers(), "workers");
    await_that("all handled", || processor.metrics().handled == 3_000);
    processor.stop();
    processor.join().expect("stopped");
    assert_eq!(committed(config.clone(), "orders", 2), 3_000);
    let written = read_all(config, "invoices", 1);
    assert_eq!(written.len(), 3_000, "none twice, though some were tried twice");
    let seen = Seen::default();
    for (_, record) in &written {
        seen.note(record.key.as_deref(), 0, record.offset, record.value.as_deref());
    }
    seen.assert_key_order();
}

#[test]
fn a_batch_at_the_memory_limit_does_not_wait_for_more() {
    let broker = broker("orders", 1);
    produce(broker.bootstrap_servers(), "orders", 10, 20_000);
    for order in ORDERS {
        let seen = Seen::default();
        let noted = seen.clone();
        // A batch of 1000 records exceeds the memory limit, so waiting a minute is pointless.
        let builder =
            Processor::builder(member(broker.bootstrap_servers(), &format!("{order:?}")), Mode::MultiBatch)
                .topics(["orders"])
                .order(order)
                .bytes_in_flight(4_000)
                .batch_wait(Duration::from_secs(60));
        let processor = start(builder, Mode::MultiBatch, move |record| {
            noted.note(record.key(), record.partition(), record.offset(), record.value());
            Ok(())
        });
        await_that("nearly all handled", || seen.len() > 19_000);
        processor.stop();
        processor.join().expect("stopped");
    }
}

#[test]
fn a_late_worker_does_not_block_the_lanes_of_the_next_assignment() {
    let broker = broker("orders", 2);
    produce(broker.bootstrap_servers(), "orders", 20, 400);
    for order in [Order::Partition, Order::Key] {
        let group = format!("late-{order:?}");
        let config = || member(broker.bootstrap_servers(), &group);
        let (seen, release) = (Seen::default(), Arc::new(AtomicBool::new(false)));
        let (noted, released) = (seen.clone(), release.clone());
        let first = Processor::builder(config(), Mode::MultiAsync)
            .topics(["orders"])
            .order(order)
            .drain(Duration::from_millis(50))
            .start_each(move |message| {
                if message.offset() == 7 && !released.load(Ordering::Relaxed) {
                    await_that("released", || released.load(Ordering::Relaxed));
                }
                noted.note(message.key(), message.partition(), message.offset(), message.value());
                Ok(())
            })
            .expect("a processor");
        await_that("it is stuck in both partitions", || {
            let metrics = first.metrics();
            let stuck = |offset: Option<(i64, Duration)>| offset.is_some_and(|(offset, _)| offset == 7);
            metrics.partitions.len() == 2 && metrics.partitions.iter().all(|it| stuck(it.blocking))
        });
        // A second member takes a partition and gives it back while the first member's worker still handles its
        // record.
        let other = seen.clone();
        let second = Processor::builder(config(), Mode::Sync)
            .topics(["orders"])
            .start_each(move |message| {
                other.note(message.key(), message.partition(), message.offset(), message.value());
                Ok(())
            })
            .expect("a processor");
        await_that("the second handles what the first was late with", || second.metrics().handled > 100);
        let partition = second.metrics().partitions[0].at.partition;
        second.stop();
        second.join().expect("stopped");
        produce(broker.bootstrap_servers(), "orders", 20, 400);
        let count = || seen.all().iter().filter(|(_, its, _, _)| *its == partition).count();
        let before = count();
        await_that("the first member resumes that partition", || count() > before + 50);
        release.store(true, Ordering::Relaxed);
        await_that("all is committed", || committed(config(), "orders", 2) >= seen.distinct() as i64);
        first.stop();
        first.join().expect("stopped");
    }
}

#[test]
fn an_idle_worker_takes_an_incomplete_batch_at_once() {
    for mode in [Mode::Batch, Mode::MultiBatch] {
        for order in ORDERS {
            let broker = broker("orders", 3);
            produce(broker.bootstrap_servers(), "orders", 5, 70);
            let seen = Seen::default();
            let noted = seen.clone();
            // The test fails if a batch waits for this long.
            let builder = builder(&broker, mode, order).batch(1_000).batch_wait(Duration::from_secs(3_600));
            let processor = start(builder, mode, move |record| {
                noted.note(record.key(), record.partition(), record.offset(), record.value());
                Ok(())
            });
            await_that("all handled", || seen.len() >= 70);
            assert_eq!(seen.distinct(), 70, "{mode:?} {order:?}");
            processor.stop();
            processor.join().expect("stopped");
        }
    }
}

#[test]
fn finished_records_are_committed_within_the_interval_or_early_when_they_are_many() {
    let default = None;
    let never = Some(Duration::from_secs(3_600));
    // Few records wait for the default interval; 2,000 do not wait for a long one.
    for (group, interval, count) in [("few", default, 10), ("many", never, 2_000)] {
        let broker = broker("orders", 1);
        produce(broker.bootstrap_servers(), "orders", 5, count);
        let config = || {
            let mut config = member(broker.bootstrap_servers(), group);
            config.set("auto.commit.interval.ms", "3600000").expect("a known property");
            config
        };
        let mut builder = Processor::builder(config(), Mode::MultiAsync).topics(["orders"]);
        if let Some(interval) = interval {
            builder = builder.commit_interval(interval);
        }
        let processor = builder.start_each(|_| Ok(())).expect("a processor");
        let wanted = if interval.is_some() { 1_000 } else { count as i64 };
        await_that("it is committed", || committed(config(), "orders", 1) >= wanted);
        processor.stop();
        processor.join().expect("stopped");
    }
}

#[test]
fn a_graceful_rebalance_repeats_no_record_in_any_mode_and_order() {
    for mode in Mode::ALL {
        for order in ORDERS {
            let broker = broker("orders", 4);
            produce(broker.bootstrap_servers(), "orders", 40, 2_000);
            let seen = Seen::default();
            let member = || {
                let noted = seen.clone();
                let handler = move |record: &ottla_client::RecordView<'_>| {
                    noted.note(record.key(), record.partition(), record.offset(), record.value());
                    std::thread::park_timeout(Duration::from_micros(500));
                    Ok(())
                };
                start(builder(&broker, mode, order).batch(50), mode, handler)
            };
            let first = member();
            await_that("some are handled", || seen.len() >= 300);
            let second = member();
            await_that("the second member has its part", || !second.metrics().partitions.is_empty());
            await_that("all are handled", || seen.distinct() >= 2_000);
            for processor in [first, second] {
                processor.stop();
                processor.join().expect("stopped");
            }
            assert_eq!((seen.len(), seen.distinct()), (2_000, 2_000), "{mode:?} {order:?}");
            if order != Order::None {
                seen.assert_key_order();
            }
        }
    }
}

/// One record of the batch that was given up made later records of its partition overtake those that are retried.
#[test]
fn a_batch_holds_its_partition_while_a_record_is_retried_and_another_is_given_up() {
    let broker = broker("orders", 1);
    produce(broker.bootstrap_servers(), "orders", 1, 100);
    let (seen, first_batch) = (Seen::default(), Arc::new(AtomicUsize::new(0)));
    let (noted, size) = (seen.clone(), first_batch.clone());
    let processor = Processor::builder(member(broker.bootstrap_servers(), "workers"), Mode::MultiBatch)
        .topics(["orders"])
        .order(Order::Partition)
        .batch(10)
        .give_up(GiveUp::DeadLetter("dead".into()))
        .retry(Retry::times(3).delay(Duration::from_millis(50)).holding())
        .start_batches(move |messages| {
            let is_first = size.load(Ordering::Relaxed) == 0;
            for message in messages.iter().skip(if is_first { 2 } else { 0 }) {
                noted.note(message.key(), message.partition(), message.offset(), message.value());
            }
            if !is_first {
                return Ok(());
            }
            size.store(messages.iter().count(), Ordering::Relaxed);
            let failures = [(0, Failure::new("not yet")), (1, Failure::refused("never"))];
            Err(BatchFailure::records(failures))
        })
        .expect("a processor");
    await_that("all but the one that is given up are handled", || seen.distinct() == 99);
    processor.stop();
    processor.join().expect("stopped");
    let first_batch = first_batch.load(Ordering::Relaxed) as i64;
    let offsets: Vec<i64> = seen.all().iter().map(|(_, _, offset, _)| *offset).collect();
    let before = offsets.iter().take_while(|offset| **offset != 0);
    assert!(before.copied().all(|offset| offset < first_batch), "{offsets:?} after a batch of {first_batch}");
}

/// Several workers keep no order by default: a failed record is retried later, and the records after it go on.
#[test]
fn a_failed_record_is_overtaken_by_default_and_holds_its_key_if_asked() {
    for (order, waits) in [(None, false), (Some(Order::Key), true)] {
        let broker = broker("orders", 1);
        produce(broker.bootstrap_servers(), "orders", 1, 100);
        let (seen, failed) = (Seen::default(), Arc::new(AtomicBool::new(false)));
        let (noted, fails) = (seen.clone(), failed.clone());
        let mut builder = Processor::builder(member(broker.bootstrap_servers(), "workers"), Mode::MultiAsync)
            .topics(["orders"])
            .retry(Retry::times(3).delay(Duration::from_millis(50)).holding());
        if let Some(order) = order {
            builder = builder.order(order);
        }
        let processor = builder
            .start_each(move |message| {
                if message.offset() == 0 && !fails.swap(true, Ordering::Relaxed) {
                    return Err(Failure::new("not yet"));
                }
                noted.note(message.key(), message.partition(), message.offset(), message.value());
                Ok(())
            })
            .expect("a processor");
        await_that("all are handled", || seen.distinct() == 100);
        processor.stop();
        processor.join().expect("stopped");
        let first = seen.all().first().map(|(_, _, offset, _)| *offset);
        assert_eq!(first == Some(0), waits, "{order:?}: {first:?} came first");
        assert_eq!(committed(member(broker.bootstrap_servers(), "workers"), "orders", 1), 100);
    }
}
