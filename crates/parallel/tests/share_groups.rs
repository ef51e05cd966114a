//! Processors in share groups: each record is handled by one member and acknowledged for what happened to it.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ottla_broker::{ApiKey, Broker, BrokerThread, Fault};
use ottla_client::{
    AcknowledgeType, AlterOptions, Client, Config, ConfigChange, ConfigResource, Record, ShareConsumer,
    ShareGroupOffset, Timeouts,
};
use ottla_parallel::{Builder, Error, Failure, GiveUp, Mode, Order, Processor, Retry, ShareMetrics};

use support::{PATIENCE, Seen, await_that, produce, produce_from, read_all, start};

/// A broker whose share group `workers` begins with the first record.
fn broker(partitions: i32, properties: &[(&str, &str)]) -> BrokerThread {
    let _already =
        tracing_subscriber::fmt().with_env_filter("ottla_parallel=info").with_test_writer().try_init();
    let properties: Vec<(String, String)> =
        properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let builder = Broker::builder().memory().topic("orders", partitions).topic("dead", 1);
    let builder = builder.configure(move |config| {
        let quick = [
            ("group.share.min.record.lock.duration.ms", "1000"),
            ("group.share.min.heartbeat.interval.ms", "50"),
            ("group.share.heartbeat.interval.ms", "50"),
        ];
        for (key, value) in quick {
            config.set(key, value).expect("a property");
        }
        for (key, value) in &properties {
            config.set(key, value).expect("a property");
        }
    });
    let broker = builder.spawn().expect("a broker in memory");
    let client = Client::new(Config::new(broker.bootstrap_servers())).expect("a client");
    alter_group(&client, "share.auto.offset.reset", "earliest");
    broker
}

fn alter_group(client: &Client, key: &str, value: &str) {
    let change = (key.to_owned(), ConfigChange::Set(value.into()));
    let changes = [(ConfigResource::group("workers"), vec![change])];
    let altered = block_on(client.admin().incremental_alter_configs(&changes, AlterOptions::default()));
    altered.expect("an answer").into_iter().for_each(|(_, result)| result.expect("altered"));
}

fn pass(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        std::thread::park_timeout(left);
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(future)
}

fn member(broker: &BrokerThread) -> Config {
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("group.id", "workers").expect("a property");
    config
}

fn builder(broker: &BrokerThread, mode: Mode) -> Builder {
    Processor::builder(member(broker), mode)
        .topics(["orders"])
        .share_group()
        .batch_wait(Duration::from_millis(5))
}

fn share(processor: &Processor) -> ShareMetrics {
    processor.metrics().share.expect("a share group")
}

fn stop(processor: Processor) -> ShareMetrics {
    let metrics = processor.metrics_source();
    processor.stop();
    processor.join().expect("stopped");
    metrics().share.expect("a share group")
}

/// The sum of the group's start offsets: all records before them are accepted, rejected or archived.
fn start_offsets(broker: &BrokerThread) -> i64 {
    let client = Client::new(member(broker)).expect("a client");
    let admin = client.admin();
    let offsets = block_on(admin.list_share_group_offsets("workers", None, Timeouts::default()));
    let of = |(_, offset): (_, Result<Option<_>, _>)| offset.expect("described").map_or(0, start_of);
    offsets.expect("an answer").into_iter().map(of).sum()
}

fn start_of(offset: ShareGroupOffset) -> i64 {
    offset.start_offset.max(0)
}

/// The delivery counts of the next records that another member of the group gets.
fn deliveries(broker: &BrokerThread, count: usize) -> Vec<i16> {
    let mut consumer = ShareConsumer::new(member(broker)).expect("a member");
    consumer.subscribe_blocking(&["orders"], PATIENCE).expect("subscribed");
    let (mut counts, deadline) = (Vec::new(), Instant::now() + PATIENCE);
    while counts.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} records", counts.len());
        let Some(batch) = consumer.poll_blocking(Duration::from_millis(50)).expect("polled") else {
            continue;
        };
        for record in &batch {
            counts.push(record.delivery_count());
        }
    }
    consumer.close_blocking(PATIENCE).expect("closed");
    counts
}

#[test]
fn two_processors_of_any_mode_handle_each_record_of_one_partition_once() {
    for mode in Mode::ALL {
        let broker = broker(1, &[]);
        let (first, second) = (Seen::default(), Seen::default());
        let processors: Vec<Processor> = [&first, &second]
            .map(|seen| {
                let seen = seen.clone();
                start(builder(&broker, mode), mode, move |record| {
                    seen.note(record.key(), record.partition(), record.offset(), record.value());
                    Ok(())
                })
            })
            .into();
        // Until both have records.
        let mut produced = 0;
        let deadline = Instant::now() + PATIENCE;
        while first.len() == 0 || second.len() == 0 || produced < 2_000 {
            assert!(Instant::now() < deadline, "{mode:?}: one processor has no record");
            produce_from(broker.bootstrap_servers(), "orders", 0, produced, 100);
            produced += 100;
        }
        await_that("all handled", || first.len() + second.len() >= produced);
        let ends: Vec<ShareMetrics> = processors.into_iter().map(stop).collect();
        assert_eq!(first.len() + second.len(), produced, "{mode:?}");
        let mut offsets: Vec<i64> =
            first.all().into_iter().chain(second.all()).map(|(_, _, offset, _)| offset).collect();
        offsets.sort_unstable();
        assert!(offsets.into_iter().eq(0..produced as i64), "{mode:?}: a record was handled twice");
        let accepted: u64 = ends.iter().map(|end| end.accepted).sum();
        assert_eq!((accepted, ends[0].lost + ends[1].lost), (produced as u64, 0), "{mode:?}");
        assert_eq!(start_offsets(&broker), produced as i64, "{mode:?}");
    }
}

#[test]
fn a_handler_slower_than_the_lock_keeps_its_record() {
    let broker = broker(1, &[("group.share.record.lock.duration.ms", "1000")]);
    produce(broker.bootstrap_servers(), "orders", 0, 20);
    let seen = Seen::default();
    let processors: Vec<Processor> = (0..2)
        .map(|_| {
            let seen = seen.clone();
            start(builder(&broker, Mode::MultiAsync), Mode::MultiAsync, move |record| {
                seen.note(record.key(), record.partition(), record.offset(), record.value());
                if record.offset() == 3 {
                    // Three locks.
                    pass(Duration::from_secs(3));
                }
                Ok(())
            })
        })
        .collect();
    await_that("all accepted", || processors.iter().map(|it| share(it).accepted).sum::<u64>() == 20);
    let ends: Vec<ShareMetrics> = processors.into_iter().map(stop).collect();
    assert_eq!((seen.len(), seen.most_often()), (20, 1));
    assert!(ends.iter().map(|end| end.renewed).sum::<u64>() >= 3, "{ends:?}");
    assert_eq!(ends.iter().map(|end| end.lost).sum::<u64>(), 0, "{ends:?}");
    assert_eq!(start_offsets(&broker), 20);
}

/// The acknowledgement waits for the response to the renewal. It was forgotten then, and the group delivered the record again.
#[test]
fn a_handler_that_ends_while_its_lock_is_renewed_has_its_record_accepted() {
    let broker = broker(1, &[("group.share.record.lock.duration.ms", "4000")]);
    produce(broker.bootstrap_servers(), "orders", 0, 1);
    // The first acknowledgement is the renewal, after half of the lock.
    broker.cluster().intercept(ApiKey::ShareAcknowledge, None, 1, Fault::AnswerAfter(Duration::from_secs(1)));
    let processor = builder(&broker, Mode::MultiAsync)
        .start_each(|_| {
            pass(Duration::from_millis(2_500));
            Ok(())
        })
        .expect("a processor");
    await_that("accepted", || share(&processor).accepted == 1);
    let end = stop(processor);
    assert_eq!((end.renewed, end.lost, end.released), (1, 0, 0), "{end:?}");
    assert_eq!(start_offsets(&broker), 1);
}

#[test]
fn in_a_group_without_renewals_a_handler_within_the_lock_is_enough() {
    let broker = broker(1, &[("group.share.record.lock.duration.ms", "2000")]);
    alter_group(&Client::new(member(&broker)).expect("a client"), "share.renew.acknowledge.enable", "false");
    produce(broker.bootstrap_servers(), "orders", 0, 1);
    let counts = Arc::new(std::sync::Mutex::new(Vec::new()));
    let counted = counts.clone();
    let processor = builder(&broker, Mode::MultiAsync)
        .start_each(move |message| {
            counted.lock().expect("no panic").push(message.delivery_count());
            // Longer than half of the lock.
            pass(Duration::from_millis(1_300));
            Ok(())
        })
        .expect("a processor");
    await_that("accepted", || share(&processor).accepted == 1);
    let end = stop(processor);
    // The refused renewal ended the first delivery.
    assert_eq!((end.renewed, &counts.lock().expect("no panic")[..]), (1, &[Some(1), Some(2)][..]), "{end:?}");
    assert_eq!(start_offsets(&broker), 1);
}

#[test]
fn records_that_their_handler_refuses_do_not_open_the_circuit_breaker() {
    let broker = broker(1, &[]);
    produce(broker.bootstrap_servers(), "orders", 0, 100);
    let processor = builder(&broker, Mode::MultiAsync)
        .circuit_breaker(3, Duration::from_secs(60))
        .start_each(|_| Err(Failure::refused("not ours")))
        .expect("a processor");
    await_that("all rejected", || share(&processor).rejected == 100);
    assert_eq!((processor.metrics().breaker_opened, processor.metrics().failures), (0, 100));
    stop(processor);
}

#[test]
fn a_record_whose_retries_are_used_up_is_accepted_once_its_dead_letter_is_written() {
    let broker = broker(1, &[]);
    produce(broker.bootstrap_servers(), "orders", 0, 10);
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = attempts.clone();
    let processor = builder(&broker, Mode::MultiAsync)
        .retry(Retry::times(2).delay(Duration::from_millis(5)))
        .give_up(GiveUp::DeadLetter("dead".into()))
        .start_each(move |message| {
            if message.offset() != 4 {
                return Ok(());
            }
            counted.fetch_add(1, Ordering::Relaxed);
            Err(Failure::new("no such customer"))
        })
        .expect("a processor");
    await_that("all accepted", || share(&processor).accepted == 10);
    let end = stop(processor);
    assert_eq!((end.rejected, end.released, attempts.load(Ordering::Relaxed)), (0, 0, 3));
    let letters = read_all(member(&broker), "dead", 1);
    let headers: Vec<(&str, Option<&[u8]>)> =
        letters[0].1.headers.iter().map(|(name, value)| (&**name, value.as_deref())).collect();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].1.value.as_deref(), Some(&b"4"[..]));
    assert!(headers.contains(&("ottla.error.attempts", Some(b"3"))), "{headers:?}");
    assert!(headers.contains(&("ottla.error.group", Some(b"workers"))), "{headers:?}");
    assert_eq!(start_offsets(&broker), 10);
}

#[test]
fn without_a_dead_letter_topic_a_record_whose_retries_are_used_up_is_rejected() {
    let broker = broker(1, &[]);
    produce(broker.bootstrap_servers(), "orders", 0, 10);
    let processor = builder(&broker, Mode::MultiAsync)
        .retry(Retry::times(1).delay(Duration::from_millis(5)))
        .start_each(|message| if message.offset() == 4 { Err(Failure::new("no")) } else { Ok(()) })
        .expect("a processor");
    await_that("one rejected", || share(&processor).rejected == 1 && share(&processor).accepted == 9);
    assert_eq!(processor.metrics().skipped, 1);
    let text = processor.metrics().prometheus_text();
    assert!(text.contains("ottla_processor_share_rejected_total 1\n"), "{text}");
    stop(processor);
    assert_eq!(start_offsets(&broker), 10);
}

#[test]
fn a_stop_waits_for_running_handlers_and_releases_all_other_records() {
    let broker = broker(1, &[]);
    produce(broker.bootstrap_servers(), "orders", 0, 50);
    let (begun, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, opened) = (begun.clone(), gate.clone());
    let processor = builder(&broker, Mode::Sync)
        .start_each(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            await_that("the gate opens", || opened.load(Ordering::Relaxed));
            Ok(())
        })
        .expect("a processor");
    await_that("the first is begun", || begun.load(Ordering::Relaxed) == 1);
    let stopped = Instant::now();
    processor.stop();
    gate.store(true, Ordering::Relaxed);
    let metrics = processor.metrics_source();
    processor.join().expect("stopped");
    let end = metrics().share.expect("a share group");
    assert_eq!((begun.load(Ordering::Relaxed), end.accepted, end.released), (1, 1, 49), "{end:?}");
    assert_eq!(deliveries(&broker, 49), [2; 49]);
    assert!(stopped.elapsed() < Duration::from_secs(20), "released, not expired after 30 s");
}

#[test]
fn a_processor_that_stops_for_a_record_releases_it() {
    let broker = broker(1, &[]);
    produce(broker.bootstrap_servers(), "orders", 0, 1);
    let processor = builder(&broker, Mode::MultiAsync)
        .retry(Retry::never())
        .give_up(GiveUp::Stop)
        .start_each(|_| Err(Failure::new("no")))
        .expect("a processor");
    let ended = processor.join();
    assert!(matches!(ended, Err(Error::Record { offset: 0, attempts: 1, .. })), "{ended:?}");
    assert_eq!(deliveries(&broker, 1), [2]);
}

/// Adjacent records were taken for one batch, which does not exist. None was handled, and their locks were renewed without end.
#[test]
fn records_that_come_again_are_handled_together_with_new_ones() {
    let broker = broker(1, &[]);
    produce(broker.bootstrap_servers(), "orders", 0, 10);
    let mut config = member(&broker);
    config.set("share.acknowledgement.mode", "explicit").expect("a property");
    let mut consumer = ShareConsumer::new(config).expect("a member");
    consumer.subscribe_blocking(&["orders"], PATIENCE).expect("subscribed");
    let mut released = 0;
    await_that("another member has records", || {
        let batch = consumer.poll_blocking(Duration::from_millis(50)).expect("polled");
        released = batch.map_or(0, |batch| batch.len());
        released > 0
    });
    consumer.acknowledge_rest(AcknowledgeType::Release).expect("acknowledged");
    // Without a commit before: a fetch after it could acquire the released records again, and their delivery would count.
    consumer.close_blocking(PATIENCE).expect("closed");
    produce_from(broker.bootstrap_servers(), "orders", 0, 10, 10);
    let counts = Arc::new(std::sync::Mutex::new(Vec::new()));
    let counted = counts.clone();
    let processor = builder(&broker, Mode::MultiAsync)
        .start_each(move |message| {
            counted.lock().expect("no panic").push((message.offset(), message.delivery_count()));
            Ok(())
        })
        .expect("a processor");
    await_that("all accepted", || share(&processor).accepted == 20);
    stop(processor);
    let mut counts = counts.lock().expect("no panic").clone();
    counts.sort_unstable();
    let expected = |offset: i64| (offset, Some(if offset < released as i64 { 2_i16 } else { 1 }));
    assert_eq!(counts, (0..20).map(expected).collect::<Vec<_>>());
}

#[test]
fn an_open_circuit_breaker_leaves_records_to_other_members_until_a_trial_succeeds() {
    let broker = broker(1, &[("group.share.delivery.count.limit", "10")]);
    produce(broker.bootstrap_servers(), "orders", 0, 200);
    let (outage, tries) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (is_out, tried) = (outage.clone(), tries.clone());
    let cut_off = builder(&broker, Mode::MultiAsync)
        .workers(4)
        .retry(Retry::forever().delay(Duration::from_millis(1)))
        .circuit_breaker(5, Duration::from_millis(50))
        .circuit_breaker_pause_max(Duration::from_millis(200))
        .start_each(move |_| {
            tried.fetch_add(1, Ordering::Relaxed);
            if is_out.load(Ordering::Relaxed) { Err(Failure::new("database away")) } else { Ok(()) }
        })
        .expect("a processor");
    await_that("it opens", || cut_off.metrics().breaker_opened >= 1);
    await_that("it releases", || share(&cut_off).released > 0);
    let seen = Seen::default();
    let healthy = {
        let seen = seen.clone();
        start(builder(&broker, Mode::MultiAsync), Mode::MultiAsync, move |record| {
            seen.note(record.key(), record.partition(), record.offset(), record.value());
            Ok(())
        })
    };
    await_that("it opens again", || cut_off.metrics().breaker_opened >= 3);
    assert!(!cut_off.metrics().breaker_closed);
    // All but those that wait for their retry.
    await_that("the other member has the rest", || seen.len() >= 150);
    outage.store(false, Ordering::Relaxed);
    await_that("all accepted", || share(&cut_off).accepted + share(&healthy).accepted == 200);
    assert!(cut_off.metrics().breaker_closed);
    assert!(tries.load(Ordering::Relaxed) < 150, "{} tries", tries.load(Ordering::Relaxed));
    assert_eq!(seen.most_often(), 1);
    stop(cut_off);
    stop(healthy);
    assert_eq!(start_offsets(&broker), 200);
}

#[test]
fn a_record_is_accepted_once_its_outputs_are_written() {
    let broker = broker(2, &[]);
    produce(broker.bootstrap_servers(), "orders", 0, 100);
    let processor = builder(&broker, Mode::MultiAsync)
        .start_each(|message| {
            message.send(&Record::to("dead").value(message.value().unwrap_or_default()));
            Ok(())
        })
        .expect("a processor");
    await_that("all accepted", || share(&processor).accepted == 100);
    assert_eq!(read_all(member(&broker), "dead", 1).len(), 100);
    stop(processor);
    assert_eq!(start_offsets(&broker), 100);
}

#[test]
fn settings_that_a_share_group_cannot_keep_are_refused() {
    let broker = broker(1, &[]);
    let of = |change: fn(Builder) -> Builder| {
        let started = change(builder(&broker, Mode::MultiAsync)).start_each(|_| Ok(()));
        started.err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(of(|it| it.order(Order::Key)).contains("a share group has no order: Order::Key"));
    assert!(of(|it| it.order(Order::Partition)).contains("a share group has no order: Order::Partition"));
    assert!(of(|it| it.exactly_once("billing-1")).contains("exactly_once needs a consumer group"));
    assert!(of(|it| it.topics(["^orders.*"])).contains("regular expression `^orders.*`"));
    assert!(of(|it| it.circuit_breaker(0, Duration::ZERO)).contains("at least one failure"));
    let shorter = of(|it| {
        it.circuit_breaker(1, Duration::from_secs(2)).circuit_breaker_pause_max(Duration::from_secs(1))
    });
    assert!(shorter.contains("shorter than its first pause"), "{shorter}");
    assert_eq!(of(|it| it.order(Order::None)), "");
}
