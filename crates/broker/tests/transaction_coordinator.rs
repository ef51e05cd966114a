//! Transactions of our client at the embedded broker: commits, aborts, fencing, timeouts, offsets, restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use ottla_broker::{ApiKey, Broker, BrokerThread, Clock, ErrorCode, Fault as RequestFault, KafkaLevel};
use ottla_client::{
    Admin, Config, Consumer, GroupMetadata, Isolation, OffsetAt, Polled, Producer, Record, StartAt,
    TopicPartition, TransactionErrorKind,
};
use ottla_log::check_log;
use ottla_log::storage::Storage;
use ottla_log::storage::mem::{Fault, MemStorage, OpKind};

use crate::panicking_disk::{HAS_WRITTEN, PanicsBehindAppends};

const PATIENCE: Duration = Duration::from_secs(30);
const ORDERS: &str = "orders";

fn is_segment(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "log")
}

fn on(disk: &MemStorage) -> BrokerThread {
    let broker = Broker::builder().storage(Arc::new(disk.clone())).topic(ORDERS, 2);
    let quick = Duration::from_millis(20);
    broker.configure(|config| config.transaction_timeout_check = quick).spawn().expect("a broker")
}

fn run(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(story);
}

async fn transactional(broker: &BrokerThread, id: &str) -> Producer {
    producer_with(broker, id, &[]).await
}

async fn producer_with(broker: &BrokerThread, id: &str, settings: &[(&str, &str)]) -> Producer {
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("transactional.id", id).expect("a name");
    for (name, value) in settings {
        config.set(name, value).expect("a setting");
    }
    let producer = Producer::new(config).expect("a producer");
    producer.init_transactions(PATIENCE).await.expect("initialized");
    producer
}

/// The values of the topic, sorted. Reads until `count` have arrived, and then to the end.
async fn read(broker: &BrokerThread, isolation: Isolation, count: usize) -> Vec<String> {
    let mut config = Config::new(broker.bootstrap_servers());
    config.isolation_level = isolation;
    let admin = Admin::new(config.clone()).expect("an admin");
    let partitions = [0, 1].map(|index| TopicPartition::new(ORDERS, index));
    let ends = partitions.clone().map(|at| (at, OffsetAt::Latest));
    let ends = admin.list_offsets(&ends).await.expect("the ends");
    let mut consumer = Consumer::new(config).expect("a consumer");
    consumer.assign(&partitions.map(|at| (at, StartAt::Beginning))).await.expect("assigned");
    let mut values = Vec::new();
    let reading = async {
        let is_at_end = |consumer: &Consumer| {
            let positions = consumer.positions();
            ends.iter()
                .all(|(at, end)| *end == 0 || positions.get(at).is_some_and(|position| position >= end))
        };
        while values.len() < count || !is_at_end(&consumer) {
            let polled = consumer.poll(Duration::from_millis(100)).await.expect("a poll without error");
            if let Some(Polled::Records(batch)) = polled {
                values.extend(batch.iter().map(|record| {
                    let value = record.expect("a sound record").value.expect("a value");
                    String::from_utf8_lossy(value).into_owned()
                }));
            }
        }
    };
    let done = tokio::time::timeout(PATIENCE, reading).await;
    values.sort();
    assert!(done.is_ok(), "{count} records expected, {}: {values:?}", values.len());
    values
}

async fn send(producer: &Producer, partition: i32, value: &str) {
    producer.send(Record::to(ORDERS).partition(partition).value(value)).await.expect("written");
}

#[test]
fn committed_records_are_read_and_aborted_ones_are_not() {
    let broker = on(&MemStorage::forgetful());
    run(async {
        let producer = transactional(&broker, "till-1").await;
        for (value, commits) in [("a", true), ("b", false), ("c", true)] {
            producer.begin_transaction().expect("ready");
            send(&producer, 0, value).await;
            send(&producer, 1, value).await;
            if commits {
                producer.commit_transaction(PATIENCE).await.expect("committed");
            } else {
                producer.abort_transaction(PATIENCE).await.expect("aborted");
            }
        }
        assert_eq!(read(&broker, Isolation::ReadCommitted, 4).await, ["a", "a", "c", "c"]);
        assert_eq!(read(&broker, Isolation::ReadUncommitted, 6).await, ["a", "a", "b", "b", "c", "c"]);
    });
    broker.stop();
}

/// The change that was decided stayed pending: each later request got CONCURRENT_TRANSACTIONS.
#[test]
fn a_panic_while_a_decision_is_stored_does_not_block_the_id() {
    let disk = MemStorage::forgetful();
    let broker = on(&disk);
    run(async {
        let producer = transactional(&broker, "till-1").await;
        producer.begin_transaction().expect("ready");
        send(&producer, 0, "a").await;
        let mut panics_left = 1;
        let is_of_state = |path: &str| path.starts_with("__transaction_state-");
        disk.inject(move |op| {
            if op.kind == OpKind::Write && is_of_state(op.path) && panics_left > 0 {
                panics_left -= 1;
                panic!("a defect of the storage");
            }
            None
        });
        producer.commit_transaction(PATIENCE).await.expect("committed");
        assert_eq!(read(&broker, Isolation::ReadCommitted, 1).await, ["a"]);
    });
    disk.heal();
    broker.stop();
}

/// The partition before got another marker after each panic, and the one behind had none.
#[test]
fn a_panic_at_the_marker_of_one_partition_repeats_and_holds_up_no_other_marker() {
    let disk = MemStorage::forgetful();
    let broker = Broker::builder().storage(Arc::new(disk.clone())).topic(ORDERS, 3);
    let broker = broker.spawn().expect("a broker");
    run(async {
        let producer = transactional(&broker, "till-1").await;
        producer.begin_transaction().expect("ready");
        for partition in 0..3 {
            send(&producer, partition, "a").await;
        }
        let panics = Arc::new(AtomicU32::new(0));
        let panicked = panics.clone();
        disk.inject(move |op| {
            let is_marker =
                op.kind == OpKind::Write && op.path.starts_with("orders-1/") && is_segment(op.path);
            if is_marker && panicked.load(Ordering::Relaxed) < 2 {
                panicked.fetch_add(1, Ordering::Relaxed);
                panic!("a defect of the storage");
            }
            None
        });
        producer.commit_transaction(PATIENCE).await.expect("the decision is stored");
        // It waits for the completion.
        let next = transactional(&broker, "till-1").await;
        assert_eq!(panics.load(Ordering::Relaxed), 2);
        let admin = Admin::new(Config::new(broker.bootstrap_servers())).expect("an admin");
        let ends = [0, 1, 2].map(|index| (TopicPartition::new(ORDERS, index), OffsetAt::Latest));
        let ends = admin.list_offsets(&ends).await.expect("the ends");
        let ends: Vec<i64> = ends.values().copied().collect();
        assert_eq!(ends, [2, 2, 2], "one record and one marker each");
        drop(next);
    });
    disk.heal();
    broker.stop();
}

/// Each attempt appended another marker before it panicked: one every five seconds, without an end.
#[test]
fn a_panic_behind_the_append_of_a_marker_does_not_repeat_it() {
    let disk = MemStorage::new();
    let broker = Broker::builder().storage(Arc::new(PanicsBehindAppends(disk.clone()))).topic(ORDERS, 1);
    let broker = broker.spawn().expect("a broker");
    run(async {
        let producer = transactional(&broker, "till-1").await;
        producer.begin_transaction().expect("ready");
        send(&producer, 0, "a").await;
        disk.inject(|op| {
            let is_marker =
                op.kind == OpKind::Write && op.path.starts_with("orders-0/") && is_segment(op.path);
            if is_marker {
                HAS_WRITTEN.set(true);
            }
            None
        });
        producer.commit_transaction(PATIENCE).await.expect("the decision is stored");
        // It waits for the completion.
        let next = transactional(&broker, "till-1").await;
        let admin = Admin::new(Config::new(broker.bootstrap_servers())).expect("an admin");
        let ends = admin.list_offsets(&[(TopicPartition::new(ORDERS, 0), OffsetAt::Latest)]).await;
        let ends: Vec<i64> = ends.expect("the ends").values().copied().collect();
        assert_eq!(ends, [2], "one record and one marker");
        drop(next);
    });
    disk.heal();
    broker.stop();
}

/// The number of records in the log of the coordinator.
fn state_records(disk: &MemStorage) -> i64 {
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let paths = disk.paths();
    let dirs = paths.iter().filter_map(|path| path.split_once('/')).map(|(dir, _)| dir);
    let dirs: BTreeSet<&str> = dirs.filter(|dir| dir.starts_with("__transaction_state-")).collect();
    dirs.into_iter().map(|dir| check_log(&storage, dir).expect("checked").end_offset).sum()
}

/// Each attempt appended another completion before it panicked: one every five seconds, without an end.
#[test]
fn a_panic_behind_the_append_of_a_completion_does_not_repeat_it() {
    let records = [false, true].map(|panics| {
        let disk = MemStorage::new();
        let broker = Broker::builder().storage(Arc::new(PanicsBehindAppends(disk.clone()))).topic(ORDERS, 1);
        let broker = broker.spawn().expect("a broker");
        let has_panicked = Arc::new(AtomicBool::new(!panics));
        run(async {
            let producer = transactional(&broker, "till-1").await;
            producer.begin_transaction().expect("ready");
            send(&producer, 0, "a").await;
            let (mut has_marker, is_done) = (false, has_panicked.clone());
            disk.inject(move |op| {
                if op.kind == OpKind::Write && is_segment(op.path) {
                    has_marker |= op.path.starts_with("orders-0/");
                    let is_completion = has_marker && op.path.starts_with("__transaction_state-");
                    if is_completion && !is_done.swap(true, Ordering::Relaxed) {
                        HAS_WRITTEN.set(true);
                    }
                }
                None
            });
            producer.commit_transaction(PATIENCE).await.expect("the decision is stored");
            // It waits for the completion.
            drop(transactional(&broker, "till-1").await);
        });
        disk.heal();
        broker.stop();
        assert!(has_panicked.load(Ordering::Relaxed), "the completion was not seen");
        state_records(&disk)
    });
    assert_eq!(records[0], records[1], "without and with the panic");
}

/// The change was dropped although the log had it: a start after a crash committed a transaction that was open before, or the record
/// was in the log twice.
#[test]
fn a_panic_behind_the_append_of_a_decision_does_not_drop_it() {
    let records = [false, true].map(|panics| {
        let disk = MemStorage::new();
        let broker = Broker::builder().storage(Arc::new(PanicsBehindAppends(disk.clone()))).topic(ORDERS, 1);
        let broker = broker.spawn().expect("a broker");
        let has_panicked = Arc::new(AtomicBool::new(!panics));
        run(async {
            let producer = transactional(&broker, "till-1").await;
            producer.begin_transaction().expect("ready");
            send(&producer, 0, "a").await;
            let is_done = has_panicked.clone();
            disk.inject(move |op| {
                let is_decision = op.kind == OpKind::Write
                    && is_segment(op.path)
                    && op.path.starts_with("__transaction_state-");
                if is_decision && !is_done.swap(true, Ordering::Relaxed) {
                    HAS_WRITTEN.set(true);
                }
                None
            });
            producer.commit_transaction(PATIENCE).await.expect("committed");
            // It waits for the completion.
            drop(transactional(&broker, "till-1").await);
        });
        disk.heal();
        broker.stop();
        assert!(has_panicked.load(Ordering::Relaxed), "the decision was not seen");
        state_records(&disk)
    });
    assert_eq!(records[0], records[1], "without and with the panic");
}

/// The removals of the ids after the one with the panic stayed pending: each later request got CONCURRENT_TRANSACTIONS.
#[test]
fn a_panic_while_an_idle_id_is_removed_does_not_block_the_others() {
    let disk = MemStorage::forgetful();
    let began_ms = 1_700_000_000_000;
    let now_ms = Arc::new(AtomicI64::new(began_ms));
    let builder = Broker::builder().storage(Arc::new(disk.clone())).topic(ORDERS, 2);
    let builder = builder.clock(Clock::Fixed(now_ms.clone())).configure(|config| {
        config.transactional_id_expiration = Duration::from_secs(60);
        config.transactional_id_expiration_check = Duration::from_millis(20);
    });
    let broker = builder.spawn().expect("a broker");
    let ids = ["till-1", "till-2", "till-3"];
    let has_panicked = Arc::new(AtomicBool::new(false));
    run(async {
        for id in ids {
            drop(transactional(&broker, id).await);
        }
        let panicked = has_panicked.clone();
        disk.inject(move |op| {
            let is_tombstone = op.kind == OpKind::Write
                && op.path.starts_with("__transaction_state-")
                && is_segment(op.path);
            let is_first = is_tombstone && !panicked.swap(true, Ordering::Relaxed);
            assert!(!is_first, "a defect of the storage");
            None
        });
        now_ms.store(began_ms + 61_000, Ordering::Relaxed);
        let appended = async {
            while !has_panicked.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, appended).await.expect("the first tombstone is appended");
        for id in ids {
            transactional(&broker, id).await;
        }
    });
    disk.heal();
    broker.stop();
}

/// The wait for the offset floor of the coordinator's partition ended at once with an error, and was repeated without a
/// pause: the broker's thread answered no client any more.
#[test]
fn a_coordinator_that_cannot_sync_the_journal_refuses_and_others_are_served() {
    let disk = MemStorage::forgetful();
    let broker = on(&disk);
    let mut answered = false;
    run(async {
        // It creates `__transaction_state`.
        transactional(&broker, "till-1").await;
        let is_of_journal = |path: &str| path.starts_with("__ottla-meta");
        disk.inject(move |op| (op.kind == OpKind::SyncData && is_of_journal(op.path)).then_some(Fault::Io));
        let mut config = Config::new(broker.bootstrap_servers());
        config.set("transactional.id", "till-2").expect("a name");
        let producer = Producer::new(config.clone()).expect("a producer");
        let error = producer.init_transactions(Duration::from_secs(2)).await.expect_err("not durable");
        assert!(error.is_retriable(), "{error}");
        let admin = Admin::new(Config::new(broker.bootstrap_servers())).expect("an admin");
        let ends = [(TopicPartition::new(ORDERS, 0), OffsetAt::Latest)];
        let answer = tokio::time::timeout(PATIENCE, admin.list_offsets(&ends)).await;
        answered = matches!(answer, Ok(Ok(_)));
        disk.heal();
    });
    if !answered {
        // Its thread would never stop.
        std::mem::forget(broker);
        panic!("the broker does not answer others within {PATIENCE:?}");
    }
    broker.stop();
}

/// A marker was appended, then its offset could not be reserved; the coordinator tried again, and appended it again.
#[test]
fn a_marker_whose_offset_cannot_be_reserved_is_appended_once() {
    let disk = MemStorage::forgetful();
    let broker = on(&disk);
    run(async {
        let producer = transactional(&broker, "till-1").await;
        producer.begin_transaction().expect("ready");
        send(&producer, 0, "a").await;
    });
    // After a clean stop no offset above the end of a log is reserved.
    broker.stop();
    let broker = on(&disk);
    let refused = Arc::new(AtomicU32::new(0));
    let refusals = refused.clone();
    // The first entry reserves offsets of the coordinator's own partition, the next ones are those of the marker.
    let mut entries = 0;
    disk.inject(move |op| {
        if op.kind != OpKind::Write || !op.path.starts_with("__ottla-meta") {
            return None;
        }
        entries += 1;
        (entries > 1).then(|| refusals.fetch_add(1, Ordering::Relaxed)).map(|_| Fault::NoSpace)
    });
    run(async {
        let mut config = Config::new(broker.bootstrap_servers());
        config.set("transactional.id", "till-1").expect("a name");
        let producer = Producer::new(config).expect("a producer");
        let init = async {
            // It ends the transaction that its predecessor left open.
            producer.init_transactions(PATIENCE).await.expect("initialized");
        };
        let heal = async {
            while refused.load(Ordering::Relaxed) < 4 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            disk.heal();
        };
        let both = async { tokio::join!(init, heal) };
        tokio::time::timeout(PATIENCE, both).await.expect("the transaction ends");
        let admin = Admin::new(Config::new(broker.bootstrap_servers())).expect("an admin");
        let ends = [(TopicPartition::new(ORDERS, 0), OffsetAt::Latest)];
        let ends = admin.list_offsets(&ends).await.expect("the ends");
        assert_eq!(ends.values().copied().collect::<Vec<_>>(), [2], "one record and one marker");
    });
    broker.stop();
}

/// The marker ended the guard of the batch, which was refused with INVALID_TXN_STATE.
#[test]
fn a_batch_that_waits_for_the_marker_of_the_transaction_before_is_written() {
    let disk = MemStorage::forgetful();
    let broker = Broker::builder().storage(Arc::new(disk.clone())).topic(ORDERS, 1);
    // The request waits for the end of the transaction before.
    let broker = broker.configure(|config| config.transaction_wait_max = PATIENCE).spawn().expect("a broker");
    run(async {
        let producer = transactional(&broker, "till-1").await;
        producer.begin_transaction().expect("ready");
        send(&producer, 0, "first").await;
        disk.inject(|op| {
            let is_marker =
                op.kind == OpKind::Write && op.path.starts_with("orders-0") && is_segment(op.path);
            is_marker.then_some(Fault::Io)
        });
        producer.commit_transaction(PATIENCE).await.expect("the decision is stored");
        let cluster = broker.cluster();
        cluster.requests(ApiKey::Produce);
        producer.begin_transaction().expect("ready");
        let heal = async {
            while cluster.requests(ApiKey::Produce) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            disk.heal();
        };
        let both = async { tokio::join!(send(&producer, 0, "second"), heal) };
        tokio::time::timeout(PATIENCE * 2, both).await.expect("the marker is written, and then the batch");
        producer.commit_transaction(PATIENCE).await.expect("committed");
    });
    broker.stop();
}

/// They were appended in one turn of the thread that serves all clients.
#[test]
fn between_the_markers_of_many_partitions_other_tasks_have_their_turns() {
    const PARTITIONS: i32 = 200;
    let disk = MemStorage::forgetful();
    run(async {
        let builder = Broker::builder().storage(Arc::new(disk.clone())).topic(ORDERS, PARTITIONS);
        let broker = builder.start().await.expect("a broker");
        let mut config = Config::new(broker.bootstrap_servers());
        config.set("transactional.id", "till-1").expect("a name");
        let producer = Producer::new(config).expect("a producer");
        producer.init_transactions(PATIENCE).await.expect("initialized");
        producer.begin_transaction().expect("ready");
        for partition in 0..PARTITIONS {
            send(&producer, partition, "a").await;
        }
        let [turns, markers, most] = [0; 3].map(|zero| Arc::new(AtomicU32::new(zero)));
        let (turns_now, appended, most_in_a_turn) = (turns.clone(), markers.clone(), most.clone());
        let (mut turn, mut in_this_turn) = (0, 0);
        disk.inject(move |op| {
            if op.kind == OpKind::Write && op.path.starts_with(ORDERS) && is_segment(op.path) {
                let now = turns_now.load(Ordering::Relaxed);
                in_this_turn = if now == turn { in_this_turn + 1 } else { 1 };
                turn = now;
                most_in_a_turn.fetch_max(in_this_turn, Ordering::Relaxed);
                appended.fetch_add(1, Ordering::Relaxed);
            }
            None
        });
        // The broker runs in this thread, too.
        let other = async {
            while markers.load(Ordering::Relaxed) < PARTITIONS as u32 {
                turns.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        };
        let both = async { tokio::join!(producer.commit_transaction(PATIENCE), other) };
        let (committed, ()) = tokio::time::timeout(PATIENCE * 2, both).await.expect("all markers");
        committed.expect("committed");
        assert!(most.load(Ordering::Relaxed) <= PARTITIONS as u32 / 4, "{most:?} markers in one turn");
        disk.heal();
        drop(producer);
        broker.stop().await;
    });
}

#[test]
fn a_newer_producer_fences_the_older_and_aborts_its_transaction() {
    let broker = on(&MemStorage::forgetful());
    run(async {
        let older = transactional(&broker, "zombie").await;
        older.begin_transaction().expect("ready");
        send(&older, 0, "of the older").await;
        let newer = transactional(&broker, "zombie").await;
        let error = older.commit_transaction(PATIENCE).await.expect_err("fenced");
        assert!(matches!(error.kind, TransactionErrorKind::Fenced { .. }), "{error}");
        newer.begin_transaction().expect("ready");
        send(&newer, 0, "of the newer").await;
        newer.commit_transaction(PATIENCE).await.expect("committed");
        assert_eq!(read(&broker, Isolation::ReadCommitted, 1).await, ["of the newer"]);
    });
    broker.stop();
}

#[test]
fn a_transaction_that_takes_too_long_is_aborted() {
    let broker = on(&MemStorage::forgetful());
    run(async {
        let slow = producer_with(&broker, "slow", &[("transaction.timeout.ms", "1000")]).await;
        slow.begin_transaction().expect("ready");
        send(&slow, 0, "too slow").await;
        let admin = Admin::new(Config::new(broker.bootstrap_servers())).expect("an admin");
        let end = [(TopicPartition::new(ORDERS, 0), OffsetAt::Latest)];
        let aborted = async {
            while admin.list_offsets(&end).await.expect("the end").values().all(|offset| *offset < 2) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, aborted).await.expect("the marker of the coordinator");
        slow.commit_transaction(PATIENCE).await.expect_err("aborted by the coordinator");
        let next = transactional(&broker, "slow").await;
        next.begin_transaction().expect("ready");
        send(&next, 0, "in time").await;
        next.commit_transaction(PATIENCE).await.expect("committed");
        assert_eq!(read(&broker, Isolation::ReadCommitted, 1).await, ["in time"]);
    });
    broker.stop();
}

#[test]
fn offsets_count_when_their_transaction_commits() {
    let broker = on(&MemStorage::forgetful());
    run(async {
        let admin = Admin::new(Config::new(broker.bootstrap_servers())).expect("an admin");
        let producer = transactional(&broker, "mover").await;
        let group = GroupMetadata::new("movers");
        let at = TopicPartition::new(ORDERS, 0);
        let offset_is = async |expected: Option<i64>| {
            let offsets = admin.group_offsets("movers", None).await.expect("the group's offsets");
            assert_eq!(offsets.get(&at).copied(), expected);
        };
        for (offset, commits, expected) in [(5, false, None), (6, true, Some(6)), (7, false, Some(6))] {
            producer.begin_transaction().expect("ready");
            let offsets = BTreeMap::from([(at.clone(), offset)]);
            producer.send_offsets_to_transaction(&offsets, &group, PATIENCE).await.expect("sent");
            if commits {
                producer.commit_transaction(PATIENCE).await.expect("committed");
            } else {
                producer.abort_transaction(PATIENCE).await.expect("aborted");
            }
            // The next transaction waits for the markers of this one.
            producer.begin_transaction().expect("ready");
            send(&producer, 0, "next").await;
            producer.commit_transaction(PATIENCE).await.expect("committed");
            offset_is(expected).await;
        }
    });
    broker.stop();
}

#[test]
fn committed_transactions_survive_a_power_cut_and_open_ones_can_go_on() {
    let disk = MemStorage::forgetful();
    for seed in 0..8 {
        let broker = on(&disk);
        let value = seed.to_string();
        run(async {
            // The producer before was cut in the middle of a transaction.
            let producer = transactional(&broker, "survivor").await;
            producer.begin_transaction().expect("ready");
            send(&producer, 0, &value).await;
            send(&producer, 1, &value).await;
            producer.commit_transaction(PATIENCE).await.expect("committed");
            producer.begin_transaction().expect("ready");
            send(&producer, 0, "never committed").await;
            // The client does not abort: the connection is cut.
            std::mem::forget(producer);
        });
        // The markers of the commit may be under way.
        disk.crash(&mut fastrand::Rng::with_seed(seed));
        broker.stop();
        disk.crash(&mut fastrand::Rng::with_seed(seed));
    }
    let broker = on(&disk);
    run(async {
        let last = transactional(&broker, "survivor").await;
        let mut expected: Vec<String> =
            (0..8).flat_map(|seed| [seed.to_string(), seed.to_string()]).collect();
        expected.sort();
        assert_eq!(read(&broker, Isolation::ReadCommitted, expected.len()).await, expected);
        drop(last);
    });
    broker.stop();
}

#[test]
fn an_abort_reports_that_the_producer_is_fenced_when_it_raises_its_epoch() {
    // Without KIP-890 the end of a transaction raises no epoch.
    let builder = Broker::builder().memory().topic(ORDERS, 2);
    let builder = builder.configure(|config| config.as_version = KafkaLevel::V3_9);
    let broker = builder.spawn().expect("a broker");
    run(async {
        let producer = producer_with(&broker, "till-1", &[]).await;
        producer.begin_transaction().expect("ready");
        send(&producer, 0, "first").await;
        let cluster = broker.cluster();
        let forgotten = RequestFault::Fail(ErrorCode::UnknownProducerId);
        cluster.intercept(ApiKey::Produce, None, 1, forgotten);
        let fenced = RequestFault::Fail(ErrorCode::ProducerFenced);
        cluster.intercept(ApiKey::InitProducerId, None, 1, fenced);
        let record = Record::to(ORDERS).partition(0).value("second");
        producer.send(record).await.expect_err("the sequence is broken");
        let aborted = producer.abort_transaction(PATIENCE).await.expect_err("the epoch is not raised");
        assert!(matches!(aborted.kind, TransactionErrorKind::Fenced { .. }), "{aborted}");
        assert!(producer.begin_transaction().is_err(), "a fenced producer stays one");
    });
    broker.stop();
}
