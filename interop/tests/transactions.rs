//! Transactions of the Ottla client against Apache Kafka 4.1, in the classic protocol and in KIP-890's, and against the Ottla
//! broker.
//!
//! Every test runs against three clusters: Kafka with the default `transaction.version` 2, Kafka with level 1, and ours.

#[path = "transactions/fault_proxy.rs"]
mod fault_proxy;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use fault_proxy::{Api, FaultProxy, ProxyFault, SharedFaultProxy, TRANSACTIONAL};
use ottla_client::{
    Admin, Client, Config, Consumer, ErrorCode, Event, GroupMetadata, Isolation, NewTopic, OffsetAt,
    OffsetReset, Polled, ProduceErrorKind, Producer, Record, StartAt, TopicPartition, TransactionErrorKind,
};
use ottla_interop::{
    Cluster, Failure, KafkaCluster, KafkaOptions, OttlaBroker, Peer, console, java_tool, require,
};

/// Timeout of each transactional operation and each poll.
const PATIENCE: Duration = Duration::from_secs(60);

macro_rules! in_both_protocols {
    ($($story:ident)+) => {
        mod kip_890 {
            $(#[test]
            fn $story() -> Result<(), super::Failure> {
                super::require!(super::Peer::Java);
                super::run(super::$story(&*super::KafkaCluster::shared()?, 2));
                Ok(())
            })+
        }

        mod ottla {
            $(#[test]
            fn $story() -> Result<(), super::Failure> {
                super::require!(super::Peer::Java);
                let checks_often = ["-X", "transaction.abort.timed.out.transaction.cleanup.interval.ms=500"];
                super::run(super::$story(&super::OttlaBroker::start(&checks_often)?, 2));
                Ok(())
            })+
        }

        mod classic {
            $(#[test]
            fn $story() -> Result<(), super::Failure> {
                super::require!(super::Peer::Java);
                super::run(super::$story(&*super::classic_cluster()?, 1));
                Ok(())
            })+
        }
    };
}

in_both_protocols! {
    committed_and_aborted_transactions_across_two_topics
    offsets_are_the_groups_when_the_transaction_commits
    a_newer_producer_fences_the_older
    a_transaction_that_takes_too_long_is_fenced
    a_failed_record_can_be_aborted_and_the_next_transaction_commits
    many_small_transactions_follow_one_another
    calls_in_the_wrong_order_fail_and_change_nothing
    a_commit_that_times_out_can_be_repeated
    a_request_without_response_is_retried_without_duplicates
    a_commit_of_unknown_outcome_is_not_reported_as_done
    error_responses_have_their_consequence
}

/// A cluster at `transaction.version` 1 that all running tests share.
fn classic_cluster() -> Result<Arc<KafkaCluster>, Failure> {
    static SHARED: Mutex<Weak<KafkaCluster>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cluster) = shared.upgrade() {
        return Ok(cluster);
    }
    let options = KafkaOptions { features: &["transaction.version=1"], ..KafkaOptions::default() };
    let cluster = Arc::new(KafkaCluster::start_with(1, &options)?);
    *shared = Arc::downgrade(&cluster);
    Ok(cluster)
}

fn run(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(story);
}

async fn committed_and_aborted_transactions_across_two_topics(cluster: &dyn Cluster, level: i16) {
    let [orders, invoices] = [format!("orders-{level}"), format!("invoices-{level}")];
    create(cluster, &[NewTopic::new(&orders).partitions(2), NewTopic::new(&invoices).partitions(1)]).await;
    let producer = transactional(cluster, "across-topics").await;
    for (number, commits) in [(0, true), (1, false), (2, true), (3, false)] {
        producer.begin_transaction().expect("ready");
        for n in 0..10 {
            let value = format!("{number}.{n}");
            producer
                .send_unobserved(Record::to(&orders).partition(n % 2).value(&value))
                .await
                .expect("taken");
            producer.send_unobserved(Record::to(&invoices).value(&value)).await.expect("taken");
        }
        if commits {
            producer.commit_transaction(PATIENCE).await.expect("committed");
        } else {
            // The records are in the log: the abort must make them invisible.
            producer.flush(PATIENCE).await.expect("written");
            producer.abort_transaction(PATIENCE).await.expect("aborted");
        }
    }
    let expected = |numbers: &[i32]| {
        let mut all: Vec<String> =
            numbers.iter().flat_map(|number| (0..10).map(move |n| format!("{number}.{n}"))).collect();
        all.sort();
        all
    };
    for topic in [&orders, &invoices] {
        assert_eq!(java_reads(cluster, topic, "read_committed", 20), expected(&[0, 2]), "{topic}");
        assert_eq!(java_reads(cluster, topic, "read_uncommitted", 40), expected(&[0, 1, 2, 3]), "{topic}");
        let committed = ottla_reads(cluster, topic, Isolation::ReadCommitted, 20).await;
        assert_eq!(committed, expected(&[0, 2]), "{topic}");
        let all = ottla_reads(cluster, topic, Isolation::ReadUncommitted, 40).await;
        assert_eq!(all, expected(&[0, 1, 2, 3]), "{topic}");
    }
}

async fn offsets_are_the_groups_when_the_transaction_commits(cluster: &dyn Cluster, level: i16) {
    let [from, to] = [format!("from-{level}"), format!("to-{level}")];
    let group = format!("movers-{level}");
    create(cluster, &[NewTopic::new(&from).partitions(1), NewTopic::new(&to).partitions(1)]).await;
    let filler = Producer::new(Config::new(cluster.bootstrap())).expect("a producer");
    for n in 0..5 {
        filler.send(Record::to(&from).value(&n.to_string())).await.expect("written");
    }
    let mut config = Config::new(cluster.bootstrap());
    config.group_id = Some(group.clone());
    config.enable_auto_commit = false;
    config.auto_offset_reset = OffsetReset::Earliest;
    let mut consumer = Consumer::new(config).expect("a consumer");
    consumer.subscribe(&[&from]).await.expect("subscribed");
    let next = loop {
        match consumer.poll(PATIENCE).await.expect("a poll without error") {
            Some(Polled::Records(batch)) if batch.next_offset() == 5 => break batch.next_offset(),
            Some(Polled::Records(_) | Polled::Event(Event::Assigned(_))) => {}
            other => panic!("{other:?}"),
        }
    };
    let member = consumer.group_metadata().await.expect("a member");
    assert!(member.generation > 0 && !member.member_id.is_empty(), "{member:?}");

    let at = TopicPartition::new(&from, 0);
    let offsets = BTreeMap::from([(at.clone(), next)]);
    let committed = async || {
        let offsets = consumer.committed(std::slice::from_ref(&at)).await.expect("the group's offsets");
        offsets.get(&at).copied()
    };
    let producer = transactional(cluster, "offsets").await;
    producer.begin_transaction().expect("ready");
    producer.send_unobserved(Record::to(&to).value("moved")).await.expect("taken");
    producer.send_offsets_to_transaction(&offsets, &member, PATIENCE).await.expect("sent");
    producer.abort_transaction(PATIENCE).await.expect("aborted");
    assert_eq!(committed().await, None, "the transaction was aborted");

    producer.begin_transaction().expect("ready");
    producer.send_unobserved(Record::to(&to).value("moved")).await.expect("taken");
    producer.send_offsets_to_transaction(&offsets, &member, PATIENCE).await.expect("sent");
    let admin = Admin::new(Config::new(cluster.bootstrap())).expect("an admin");
    let seen = admin.group_offsets(&group, None).await.expect("the group's offsets");
    assert!(seen.is_empty(), "not committed yet: {seen:?}");
    producer.commit_transaction(PATIENCE).await.expect("committed");
    assert_eq!(committed().await, Some(5));

    // A transaction may consist of offsets only. Offsets of a member that has left its group are rejected.
    producer.begin_transaction().expect("ready");
    let mut zombie = member.clone();
    zombie.generation += 1;
    let refused = producer.send_offsets_to_transaction(&offsets, &zombie, PATIENCE).await;
    let refused = refused.expect_err("another generation");
    assert!(refused.requires_abort() && !refused.is_fatal(), "{refused}");
    producer.commit_transaction(PATIENCE).await.expect_err("only an abort is allowed");
    producer.abort_transaction(PATIENCE).await.expect("aborted");
    producer.begin_transaction().expect("ready");
    let offsets = BTreeMap::from([(at.clone(), 4)]);
    producer.send_offsets_to_transaction(&offsets, &member, PATIENCE).await.expect("sent");
    producer.commit_transaction(PATIENCE).await.expect("committed");
    assert_eq!(committed().await, Some(4));
    assert_eq!(ottla_reads(cluster, &to, Isolation::ReadCommitted, 1).await, ["moved"]);
}

async fn a_newer_producer_fences_the_older(cluster: &dyn Cluster, level: i16) {
    let topic = format!("fenced-{level}");
    create(cluster, &[NewTopic::new(&topic).partitions(1)]).await;
    let older = transactional(cluster, "zombie").await;
    older.begin_transaction().expect("ready");
    older.send(Record::to(&topic).value("of the older")).await.expect("written");

    let newer = transactional(cluster, "zombie").await;
    let error = older.commit_transaction(PATIENCE).await.expect_err("fenced");
    assert!(error.is_fatal() && !error.outcome_is_unknown(), "{error}");
    assert!(matches!(error.kind, TransactionErrorKind::Fenced { .. }), "{error}");
    for error in [
        older.begin_transaction().expect_err("fatal stays"),
        older.abort_transaction(PATIENCE).await.expect_err("fatal stays"),
        older.init_transactions(PATIENCE).await.expect_err("fatal stays"),
    ] {
        assert!(error.is_fatal(), "{error}");
    }
    let refused = older.send(Record::to(&topic).value("late")).await.expect_err("fatal stays");
    assert!(matches!(refused.kind, ProduceErrorKind::Transaction(_)), "{refused}");

    newer.begin_transaction().expect("ready");
    newer.send_unobserved(Record::to(&topic).value("of the newer")).await.expect("taken");
    newer.commit_transaction(PATIENCE).await.expect("committed");
    assert_eq!(ottla_reads(cluster, &topic, Isolation::ReadCommitted, 1).await, ["of the newer"]);

    // A fenced producer that produces instead of committing gets the error from its record.
    newer.begin_transaction().expect("ready");
    newer.send(Record::to(&topic).value("aborted with its producer")).await.expect("written");
    let newest = transactional(cluster, "zombie").await;
    let error = newer.send(Record::to(&topic).value("late")).await.expect_err("fenced");
    let fenced = |code| matches!(code, ErrorCode::InvalidProducerEpoch | ErrorCode::ProducerFenced);
    assert!(matches!(error.kind, ProduceErrorKind::Broker { code, .. } if fenced(code)), "{error}");
    let error = newer.commit_transaction(PATIENCE).await.expect_err("fenced");
    assert!(error.is_fatal(), "{error}");
    drop(newest);
}

async fn a_transaction_that_takes_too_long_is_fenced(cluster: &dyn Cluster, level: i16) {
    let topic = format!("slow-{level}");
    create(cluster, &[NewTopic::new(&topic).partitions(1)]).await;
    let mut config = Config::new(cluster.bootstrap());
    config.set("transactional.id", "slow").expect("a name");
    config.set("transaction.timeout.ms", "3000").expect("within its range");
    config.set("delivery.timeout.ms", "30000").expect("within its range");
    let producer = Producer::new(config).expect("a producer");
    producer.init_transactions(PATIENCE).await.expect("initialized");
    producer.begin_transaction().expect("ready");
    producer.send(Record::to(&topic).value("too slow")).await.expect("written");
    // The coordinator's marker advances the last stable offset.
    let admin = Admin::new(Config::new(cluster.bootstrap())).expect("an admin");
    let end = [(TopicPartition::new(&topic, 0), OffsetAt::Latest)];
    let marked = async {
        while admin.list_offsets(&end).await.expect("the stable end").values().all(|offset| *offset < 2) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, marked).await.expect("an abort by the coordinator");
    let error = producer.commit_transaction(PATIENCE).await.expect_err("aborted by the coordinator");
    assert!(error.is_fatal() || error.requires_abort(), "{error}");
    assert!(!error.outcome_is_unknown(), "{error}");
    let next = transactional(cluster, "slow").await;
    next.begin_transaction().expect("ready");
    next.send_unobserved(Record::to(&topic).value("in time")).await.expect("taken");
    next.commit_transaction(PATIENCE).await.expect("committed");
    assert_eq!(ottla_reads(cluster, &topic, Isolation::ReadCommitted, 1).await, ["in time"]);
}

async fn a_failed_record_can_be_aborted_and_the_next_transaction_commits(cluster: &dyn Cluster, level: i16) {
    let [small, orders] = [format!("small-{level}"), format!("after-small-{level}")];
    let limited = NewTopic::new(&small).partitions(1).config("max.message.bytes", "1000");
    create(cluster, &[limited, NewTopic::new(&orders).partitions(1)]).await;
    let producer = transactional(cluster, "too-large").await;
    producer.begin_transaction().expect("ready");
    producer.send(Record::to(&orders).value("aborted")).await.expect("written");
    let large = "x".repeat(5000);
    let error = producer.send(Record::to(&small).value(&large)).await.expect_err("too large for the topic");
    assert!(
        matches!(error.kind, ProduceErrorKind::Broker { code: ErrorCode::MessageTooLarge, .. }),
        "{error}"
    );
    let refused = producer.send(Record::to(&orders).value("late")).await.expect_err("it can only be aborted");
    assert!(matches!(refused.kind, ProduceErrorKind::Transaction(_)), "{refused}");
    let error = producer.commit_transaction(PATIENCE).await.expect_err("a record failed");
    assert!(error.requires_abort() && error.to_string().contains(&small), "{error}");
    producer.abort_transaction(PATIENCE).await.expect("aborted");

    for value in ["first", "second"] {
        producer.begin_transaction().expect("ready");
        producer.send_unobserved(Record::to(&orders).value(value)).await.expect("taken");
        producer.send_unobserved(Record::to(&small).value(value)).await.expect("taken");
        producer.commit_transaction(PATIENCE).await.expect("committed");
    }
    for topic in [&orders, &small] {
        assert_eq!(ottla_reads(cluster, topic, Isolation::ReadCommitted, 2).await, ["first", "second"]);
    }
}

/// The coordinator may still be writing the markers of one transaction when the next begins.
async fn many_small_transactions_follow_one_another(cluster: &dyn Cluster, level: i16) {
    let topic = format!("many-{level}");
    create(cluster, &[NewTopic::new(&topic).partitions(3)]).await;
    let producer = transactional(cluster, "many").await;
    let mut expected = Vec::new();
    for number in 0..30 {
        producer.begin_transaction().expect("ready");
        for n in 0..20 {
            let value = format!("{number:02}.{n:02}");
            producer.send_unobserved(Record::to(&topic).partition(n % 3).value(&value)).await.expect("taken");
            if number % 3 != 2 {
                expected.push(value);
            }
        }
        if number % 3 == 2 {
            // Any number of the records may have been sent.
            producer.abort_transaction(PATIENCE).await.expect("aborted");
        } else {
            producer.commit_transaction(PATIENCE).await.expect("committed");
        }
    }
    assert_eq!(ottla_reads(cluster, &topic, Isolation::ReadCommitted, expected.len()).await, expected);
}

async fn calls_in_the_wrong_order_fail_and_change_nothing(cluster: &dyn Cluster, level: i16) {
    let topic = format!("order-of-calls-{level}");
    create(cluster, &[NewTopic::new(&topic).partitions(1)]).await;
    let mut config = Config::new(cluster.bootstrap());
    config.transactional_id = Some("wrong-order".into());
    let producer = Producer::new(config).expect("a producer");
    let outside = async || {
        let refused = producer.send(Record::to(&topic).value("outside")).await.expect_err("no transaction");
        assert!(matches!(refused.kind, ProduceErrorKind::Transaction(_)), "{refused}");
    };
    outside().await;
    let early = producer.begin_transaction().expect_err("not initialized");
    assert!(early.to_string().contains("before init_transactions"), "{early}");
    producer.init_transactions(PATIENCE).await.expect("initialized");
    outside().await;
    producer.commit_transaction(PATIENCE).await.expect_err("nothing to commit");
    producer.abort_transaction(PATIENCE).await.expect_err("nothing to abort");
    let offsets = BTreeMap::from([(TopicPartition::new(&topic, 0), 1)]);
    let group = GroupMetadata::new("nobody");
    let refused = producer.send_offsets_to_transaction(&offsets, &group, PATIENCE).await;
    assert!(!refused.expect_err("no transaction").requires_abort());

    producer.begin_transaction().expect("ready");
    producer.begin_transaction().expect_err("one at a time");
    producer.commit_transaction(PATIENCE).await.expect("an empty transaction");
    producer.begin_transaction().expect("ready");
    producer.send_unobserved(Record::to(&topic).value("inside")).await.expect("taken");
    producer.commit_transaction_blocking(PATIENCE).expect("committed");
    outside().await;
    assert_eq!(ottla_reads(cluster, &topic, Isolation::ReadCommitted, 1).await, ["inside"]);

    let plain = Producer::new(Config::new(cluster.bootstrap())).expect("a producer");
    let error = plain.begin_transaction().expect_err("no transactional.id");
    assert!(error.to_string().contains("transactional.id"), "{error}");
}

async fn a_commit_that_times_out_can_be_repeated(cluster: &dyn Cluster, level: i16) {
    let topic = format!("impatient-{level}");
    create(cluster, &[NewTopic::new(&topic).partitions(1)]).await;
    let producer = transactional(cluster, "impatient").await;
    let mut expected = Vec::new();
    let mut timed_out = 0;
    // A timer may be a millisecond late, and a nearby broker is faster than that at times.
    while timed_out < 5 && expected.len() < 100 {
        let value = expected.len().to_string();
        producer.begin_transaction().expect("ready");
        producer.send_unobserved(Record::to(&topic).value(&value)).await.expect("taken");
        expected.push(value);
        let mut timeout = Duration::ZERO;
        while let Err(error) = producer.commit_transaction(timeout).await {
            assert!(error.is_retriable() && timeout < PATIENCE, "{error}");
            assert!(matches!(error.kind, TransactionErrorKind::TimedOut { .. }), "{error}");
            timed_out += 1;
            timeout = timeout * 2 + Duration::from_millis(1);
        }
    }
    assert!(timed_out >= 5, "no time at all is hardly ever enough");
    let count = expected.len();
    assert_eq!(ottla_reads(cluster, &topic, Isolation::ReadCommitted, count).await, expected);
}

/// Each kind of request once: the broker executes it, and the connection is cut before the response.
async fn a_request_without_response_is_retried_without_duplicates(cluster: &dyn Cluster, level: i16) {
    let topic = format!("lost-answers-{level}");
    create(cluster, &[NewTopic::new(&topic).partitions(1)]).await;
    let group = format!("lost-answers-{level}");
    let mut expected = Vec::new();
    for (number, key) in TRANSACTIONAL.into_iter().enumerate() {
        let (producer, proxy) =
            producer_through_proxy(cluster, &format!("lost-{}", key as i16), ProxyFault::Cut(key));
        producer.init_transactions(PATIENCE).await.expect("initialized");
        for round in 0..3 {
            let value = format!("{number}.{round}");
            producer.begin_transaction().expect("ready");
            producer.send_unobserved(Record::to(&topic).value(&value)).await.expect("taken");
            let offsets = BTreeMap::from([(TopicPartition::new(&topic, 0), round)]);
            let group = GroupMetadata::new(&group);
            producer.send_offsets_to_transaction(&offsets, &group, PATIENCE).await.expect("sent");
            if round == 1 {
                producer.abort_transaction(PATIENCE).await.expect("aborted");
            } else {
                producer.commit_transaction(PATIENCE).await.expect("committed");
                expected.push(value);
            }
        }
        // KIP-890 has no separate requests for adding partitions.
        let added = matches!(key, Api::AddPartitionsToTxn | Api::AddOffsetsToTxn);
        assert_eq!(proxy.is_done(), level == 1 || !added, "{key:?}");
    }
    assert_eq!(ottla_reads(cluster, &topic, Isolation::ReadCommitted, expected.len()).await, expected);
}

/// The coordinator commits, and the response is an unknown error.
async fn a_commit_of_unknown_outcome_is_not_reported_as_done(cluster: &dyn Cluster, level: i16) {
    let topic = format!("unknown-{level}");
    create(cluster, &[NewTopic::new(&topic).partitions(1)]).await;
    let error = ProxyFault::Answer(Api::EndTxn, ErrorCode::UnknownServerError);
    let (producer, proxy) = producer_through_proxy(cluster, "unknown", error);
    producer.init_transactions(PATIENCE).await.expect("initialized");
    producer.begin_transaction().expect("ready");
    producer.send_unobserved(Record::to(&topic).value("first")).await.expect("taken");
    let committed = producer.commit_transaction(PATIENCE).await;
    if level == 1 {
        let error = committed.expect_err("the outcome is unknown");
        assert!(error.outcome_is_unknown() && error.requires_init() && !error.is_retriable(), "{error}");
        producer.begin_transaction().expect_err("it must be initialized again first");
        producer.abort_transaction(PATIENCE).await.expect_err("it may be committed");
        producer.init_transactions(PATIENCE).await.expect("a new start");
    } else {
        committed.expect("the retry under the same epoch reports the outcome");
    }
    assert!(proxy.is_done());
    producer.begin_transaction().expect("ready");
    producer.send_unobserved(Record::to(&topic).value("second")).await.expect("taken");
    producer.commit_transaction(PATIENCE).await.expect("committed");
    assert_eq!(ottla_reads(cluster, &topic, Isolation::ReadCommitted, 2).await, ["first", "second"]);
}

async fn error_responses_have_their_consequence(cluster: &dyn Cluster, level: i16) {
    let topic = format!("answers-{level}");
    create(cluster, &[NewTopic::new(&topic).partitions(1)]).await;
    for (number, (code, consequence)) in [
        (ErrorCode::CoordinatorLoadInProgress, "committed"),
        (ErrorCode::NotCoordinator, "committed"),
        (ErrorCode::ConcurrentTransactions, "committed"),
        (ErrorCode::TransactionAbortable, "abort"),
        (ErrorCode::InvalidProducerEpoch, "fatal"),
        (ErrorCode::TransactionalIdAuthorizationFailed, "fatal"),
        (ErrorCode::Unknown(9999), "init"),
    ]
    .into_iter()
    .enumerate()
    {
        let error = ProxyFault::Answer(Api::EndTxn, code);
        let (producer, proxy) = producer_through_proxy(cluster, &format!("answers-{number}"), error);
        producer.init_transactions(PATIENCE).await.expect("initialized");
        producer.begin_transaction().expect("ready");
        producer.send_unobserved(Record::to(&topic).value("v")).await.expect("taken");
        let found = match producer.commit_transaction(PATIENCE).await {
            Ok(()) => "committed",
            Err(error) if error.requires_abort() => "abort",
            Err(error) if error.requires_init() => "init",
            Err(error) if error.is_fatal() => "fatal",
            Err(error) => panic!("{code}: {error}"),
        };
        assert_eq!(found, consequence, "{code}");
        assert!(proxy.is_done(), "{code}");
    }
}

fn producer_through_proxy(cluster: &dyn Cluster, id: &str, fault: ProxyFault) -> (Producer, Arc<FaultProxy>) {
    let proxy = Arc::new(FaultProxy::new(fault));
    let mut config = Config::new(cluster.bootstrap());
    config.set("transactional.id", id).expect("a name");
    let client = Client::with_connector(config, Arc::new(SharedFaultProxy(proxy.clone()))).expect("a client");
    (client.producer(), proxy)
}

async fn transactional(cluster: &dyn Cluster, id: &str) -> Producer {
    let mut config = Config::new(cluster.bootstrap());
    config.set("transactional.id", id).expect("a name");
    let producer = Producer::new(config).expect("a producer");
    producer.init_transactions(PATIENCE).await.expect("initialized");
    producer
}

async fn create(cluster: &dyn Cluster, topics: &[NewTopic]) {
    let admin = Admin::new(Config::new(cluster.bootstrap())).expect("an admin");
    admin.create_topics(topics).await.expect("created");
    for topic in topics {
        admin.await_topic(&topic.name, PATIENCE).await.expect("known to the broker");
    }
}

/// The values of a topic, sorted. Reads until `count` have arrived, and then to the end.
async fn ottla_reads(cluster: &dyn Cluster, topic: &str, isolation: Isolation, count: usize) -> Vec<String> {
    let mut config = Config::new(cluster.bootstrap());
    config.isolation_level = isolation;
    let admin = Admin::new(config.clone()).expect("an admin");
    let partitions = admin.await_topic(topic, PATIENCE).await.expect("known to the broker");
    let at = |partition| TopicPartition::new(topic, partition);
    let all: Vec<_> = (0..partitions as i32).map(|partition| (at(partition), StartAt::Beginning)).collect();
    let ends: Vec<_> = all.iter().map(|(at, _)| (at.clone(), OffsetAt::Latest)).collect();
    let ends = admin.list_offsets(&ends).await.expect("the ends");
    let mut consumer = Consumer::new(config).expect("a consumer");
    consumer.assign(&all).await.expect("assigned");
    let mut values = Vec::new();
    let reading = async {
        let is_at_end = |consumer: &Consumer| {
            let positions = consumer.positions();
            ends.iter()
                .all(|(at, end)| *end == 0 || positions.get(at).is_some_and(|position| position >= end))
        };
        while values.len() < count || !is_at_end(&consumer) {
            if let Some(Polled::Records(batch)) =
                consumer.poll(Duration::from_millis(100)).await.expect("a poll without error")
            {
                values.extend(batch.iter().map(|record| {
                    let value = record.expect("a sound record").value.expect("a value");
                    String::from_utf8_lossy(value).into_owned()
                }));
            }
        }
    };
    let done = tokio::time::timeout(PATIENCE, reading).await;
    values.sort();
    assert!(done.is_ok(), "{count} records of {topic} expected, {}: {values:?}", values.len());
    values
}

/// The values of a topic, sorted, as Java's console consumer sees them.
fn java_reads(cluster: &dyn Cluster, topic: &str, isolation: &str, count: usize) -> Vec<String> {
    let bootstrap = cluster.bootstrap();
    let from = ["--bootstrap-server", &bootstrap, "--topic", topic, "--from-beginning"];
    // In each topic an aborted transaction precedes the last committed one: if it were visible, its values would be
    // here.
    let count = count.to_string();
    let end = ["--isolation-level", isolation, "--max-messages", &count, "--timeout-ms", "20000"];
    let read = java_tool(console::CONSUMER, &[&from[..], &end].concat(), b"").expect("the tool ran");
    let mut values = read.lines();
    values.sort();
    values
}
