//! Transactional calls that run out of time or are refused, against the embedded broker.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it waits")]

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread, Fault, KafkaLevel, Listener, SaslMechanism, SaslSettings};
use ottla_client::{
    Admin, Client, Config, ErrorCode, GroupMetadata, OffsetAndMetadata, Producer, Record, Timeouts,
    TopicPartition, TransactionError, TransactionErrorKind,
};
use ottla_protocol::ApiKey;

use crate::seats::block_on;

/// The time limit of what is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// The response comes a good deal later than the call ends.
const LATE: Duration = Duration::from_secs(1);
const SHORT: Duration = Duration::from_millis(50);

fn broker() -> BrokerThread {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    broker.cluster().requests(ApiKey::EndTxn);
    broker
}

/// A producer between transactions.
fn initialized(broker: &BrokerThread) -> Producer {
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("transactional.id", "payments").expect("an id");
    let producer = Producer::new(config).expect("a producer");
    producer.init_transactions_blocking(PATIENCE).expect("initialized");
    producer
}

/// A producer in a transaction with one record.
fn in_transaction(broker: &BrokerThread) -> Producer {
    let producer = initialized(broker);
    begin(&producer);
    producer
}

fn begin(producer: &Producer) {
    producer.begin_transaction().expect("begun");
    producer.send_blocking(Record::to("orders").value("paid")).expect("acknowledged");
}

fn timed_out(ended: Result<(), TransactionError>) -> TransactionError {
    let error = ended.expect_err("the response is late");
    assert!(matches!(error.kind, TransactionErrorKind::TimedOut { .. }) && error.is_retriable(), "{error}");
    error
}

/// Commits that run out of time, until the coordinator has the request.
fn commit_until_asked(broker: &BrokerThread, producer: &Producer) -> TransactionError {
    loop {
        let error = timed_out(producer.commit_transaction_blocking(SHORT));
        if broker.cluster().requests(ApiKey::EndTxn) > 0 {
            return error;
        }
    }
}

#[test]
fn a_commit_that_ran_out_of_time_has_one_request_and_its_answer() {
    let broker = broker();
    let producer = in_transaction(&broker);
    broker.cluster().intercept(ApiKey::EndTxn, None, 1, Fault::AnswerAfter(LATE));
    assert!(commit_until_asked(&broker, &producer).outcome_is_unknown());
    let other = producer.begin_transaction().expect_err("the outcome is not known");
    assert!(matches!(other.kind, TransactionErrorKind::State { .. }), "{other}");
    producer.commit_transaction_blocking(PATIENCE).expect("committed");
    assert_eq!(broker.cluster().requests(ApiKey::EndTxn), 1);
    begin(&producer);
    producer.commit_transaction_blocking(PATIENCE).expect("committed");
    assert_eq!(broker.cluster().requests(ApiKey::EndTxn), 2);
}

#[test]
fn a_commit_that_was_refused_after_its_call_ran_out_of_time_is_refused_when_repeated() {
    let broker = broker();
    let producer = in_transaction(&broker);
    let refused = ErrorCode::InvalidTxnState;
    broker.cluster().intercept(ApiKey::EndTxn, None, 1, Fault::FailAfter(refused, LATE));
    commit_until_asked(&broker, &producer);
    let error = producer.commit_transaction_blocking(PATIENCE).expect_err("refused");
    assert!(
        matches!(error.kind, TransactionErrorKind::Coordinator { code, .. } if code == refused),
        "{error}"
    );
    assert!(error.is_fatal(), "{error}");
    assert_eq!(broker.cluster().requests(ApiKey::EndTxn), 1);
}

#[test]
fn a_refused_commit_that_nobody_repeated_is_not_the_next_commits_answer() {
    let broker = broker();
    let producer = in_transaction(&broker);
    let refused = Fault::FailAfter(ErrorCode::TransactionAbortable, LATE);
    broker.cluster().intercept(ApiKey::EndTxn, None, 1, refused);
    commit_until_asked(&broker, &producer);
    // The abort is allowed once the commit is refused.
    let deadline = Instant::now() + PATIENCE;
    while producer.abort_transaction_blocking(PATIENCE).is_err() {
        assert!(Instant::now() < deadline, "the commit was not refused in time");
        thread::sleep(Duration::from_millis(5));
    }
    begin(&producer);
    producer.commit_transaction_blocking(PATIENCE).expect("committed");
}

#[test]
fn offsets_have_their_leader_epoch_and_their_metadata() {
    let broker = broker();
    let producer = in_transaction(&broker);
    let at = TopicPartition::new("orders", 0);
    let offset =
        OffsetAndMetadata { offset: 1, leader_epoch: Some(0), metadata: "of the night shift".into() };
    let group = GroupMetadata::new("readers");
    let offsets = [(at.clone(), offset.clone())].into();
    producer.send_offsets_to_transaction_blocking(&offsets, &group, PATIENCE).expect("sent");
    producer.commit_transaction_blocking(PATIENCE).expect("committed");

    let admin = Admin::new(Config::new(broker.bootstrap_servers())).expect("an admin");
    let wanted = [at];
    let listed = block_on(admin.list_group_offsets("readers", Some(&wanted), true, Timeouts::default()));
    let (_, committed) = listed.expect("listed").pop().expect("one partition");
    assert_eq!(committed.expect("readable"), Some(offset));
}

#[test]
fn offsets_that_ran_out_of_time_have_the_code_of_the_last_answer() {
    let broker = broker();
    let producer = in_transaction(&broker);
    let busy = ErrorCode::CoordinatorNotAvailable;
    broker.cluster().intercept(ApiKey::TxnOffsetCommit, None, u32::MAX, Fault::Fail(busy));
    let offsets = [(TopicPartition::new("orders", 0), 1)].into();
    let group = GroupMetadata::new("readers");
    let error = timed_out(producer.send_offsets_to_transaction_blocking(&offsets, &group, LATE));
    assert!(
        matches!(error.kind, TransactionErrorKind::TimedOut { code: Some(code), .. } if code == busy),
        "{error}"
    );
}

/// The first code without a meaning ended the producer for good.
#[test]
fn a_producer_is_initialized_after_its_coordinator_could_not_be_found() {
    let broker = broker();
    let unknown = Fault::Fail(ErrorCode::Unknown(9999));
    broker.cluster().intercept(ApiKey::FindCoordinator, Some(1), 2, unknown);
    let producer = in_transaction(&broker);
    producer.commit_transaction_blocking(PATIENCE).expect("committed");
    assert_eq!(broker.cluster().intercepts_left(ApiKey::FindCoordinator, 1), 0);
}

/// The coordinator has nothing to commit, and refuses it with INVALID_TXN_STATE, which ended the producer for good.
#[test]
fn offsets_that_ran_out_of_time_before_they_arrived_leave_nothing_to_commit() {
    for (level, first) in
        [(KafkaLevel::V3_9, ApiKey::AddOffsetsToTxn), (KafkaLevel::default(), ApiKey::TxnOffsetCommit)]
    {
        let builder = Broker::builder().memory().topic("orders", 1);
        let broker = builder.configure(move |config| config.as_version = level).spawn().expect("a broker");
        let producer = initialized(&broker);
        producer.begin_transaction().expect("begun");
        broker.cluster().intercept(first, None, u32::MAX, Fault::Cut);
        let offsets = [(TopicPartition::new("orders", 0), 1)].into();
        let group = GroupMetadata::new("readers");
        timed_out(producer.send_offsets_to_transaction_blocking(&offsets, &group, LATE));
        broker.cluster().clear_intercepts();
        producer.commit_transaction_blocking(PATIENCE).expect("nothing is in it");
        begin(&producer);
        producer.send_offsets_to_transaction_blocking(&offsets, &group, PATIENCE).expect("sent");
        producer.commit_transaction_blocking(PATIENCE).expect("committed");
    }
}

/// The coordinator replaces a producer id whose epochs are used up, and answers the producers before with this error.
/// A request for an epoch that did not name the producer's own would have fenced the successor (KIP-360).
#[test]
fn a_producer_whose_id_was_replaced_is_fenced_and_does_not_fence_its_successor() {
    let broker = broker();
    let zombie = in_transaction(&broker);
    let successor = initialized(&broker);
    let replaced = Fault::Fail(ErrorCode::InvalidProducerIdMapping);
    broker.cluster().intercept(ApiKey::EndTxn, None, 1, replaced);
    let error = zombie.abort_transaction_blocking(PATIENCE).expect_err("another producer has the id");
    assert!(matches!(error.kind, TransactionErrorKind::Fenced { .. }), "{error}");
    assert!(error.is_fatal(), "{error}");
    begin(&successor);
    successor.commit_transaction_blocking(PATIENCE).expect("committed");
}

/// The request for an epoch named the producer's own, which these versions of InitProducerId cannot carry: the producer failed for good.
#[test]
fn a_producer_of_an_old_broker_continues_after_the_coordinator_forgot_its_id() {
    // Before KIP-890, the client adds the partitions to the transaction.
    let builder = Broker::builder().memory().topic("orders", 1);
    let builder = builder.configure(|config| config.as_version = KafkaLevel::V3_9);
    let broker = builder.spawn().expect("a broker in memory");
    assert!(broker.cluster().set_versions(ApiKey::InitProducerId, Some((0, 2))));
    let producer = initialized(&broker);
    let forgotten = Fault::Fail(ErrorCode::InvalidProducerIdMapping);
    broker.cluster().intercept(ApiKey::AddPartitionsToTxn, None, 1, forgotten);
    producer.begin_transaction().expect("begun");
    producer.send_blocking(Record::to("orders").value("lost")).expect_err("the transaction is lost");
    producer.abort_transaction_blocking(PATIENCE).expect("aborted, with a new epoch");
    begin(&producer);
    producer.commit_transaction_blocking(PATIENCE).expect("committed");
}

/// The first login decided: the producer failed for good, also if only the source of its tokens was down.
#[test]
fn a_producer_whose_login_failed_is_initialized_with_other_credentials() {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let sasl = SaslSettings::new([SaslMechanism::Plain]).user("alice", "new");
    let broker = Broker::builder()
        .memory()
        .topic("orders", 1)
        .listener(Listener::new("PLAIN", any_port))
        .listener(Listener::new("SECURE", any_port).sasl(sasl))
        .spawn()
        .expect("a broker in memory");
    let mut config = Config::new(broker.bootstrap_servers_of("SECURE").expect("the listener"));
    let properties = [
        ("transactional.id", "payments"),
        ("security.protocol", "sasl_plaintext"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "alice"),
        ("sasl.password", "old"),
    ];
    config.set_all(properties).expect("known properties");
    let client = Client::new(config).expect("a client");
    let producer = client.producer();
    let error = producer.init_transactions_blocking(PATIENCE).expect_err("another password");
    assert!(error.is_retriable() && error.to_string().contains("Invalid username or password"), "{error}");
    client.set_sasl_credentials("alice", "new".into()).expect("PLAIN has use for them");
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = producer.init_transactions_blocking(PATIENCE) {
        assert!(error.is_retriable() && Instant::now() < deadline, "{error}");
    }
    begin(&producer);
    producer.commit_transaction_blocking(PATIENCE).expect("committed");
}

/// The commit succeeded, and a new transaction could begin.
#[test]
fn a_producer_that_is_ended_commits_nothing() {
    let broker = broker();
    let producer = in_transaction(&broker);
    assert!(producer.end("a test"));
    let calls = [
        producer.commit_transaction_blocking(PATIENCE),
        producer.abort_transaction_blocking(PATIENCE),
        producer.begin_transaction(),
        producer.init_transactions_blocking(PATIENCE),
    ];
    for result in calls {
        let error = result.expect_err("the producer has ended");
        assert!(matches!(error.kind, TransactionErrorKind::Ended(_)) && error.is_fatal(), "{error}");
        assert!(error.to_string().contains("a test"), "{error}");
    }
    assert_eq!(broker.cluster().requests(ApiKey::EndTxn), 0);
}
