//! A share consumer's acknowledgements, against the embedded broker.

use std::time::{Duration, Instant};

use ottla_broker::{ApiKey, Broker, BrokerThread, Fault, FaultRule};
use ottla_client::{
    AcknowledgeType, AlterOptions, Client, Config, ConfigChange, ConfigResource, Error, ErrorCode, Producer,
    Record, ShareBatch, ShareConsumer, TopicPartition,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// More requests than a test sends.
const NEVER: u32 = 1_000_000;

/// A broker whose topic `orders` has this many records in one partition, and a member of a group that reads them.
fn sharing(records: i32) -> (BrokerThread, ShareConsumer) {
    sharing_with(records, &[])
}

fn sharing_with(records: i32, properties: &[(&str, &str)]) -> (BrokerThread, ShareConsumer) {
    sharing_as(records, properties, Config::new)
}

/// [`sharing_with`], with the configuration for these bootstrap servers.
fn sharing_as(
    records: i32,
    properties: &[(&str, &str)],
    config_for: impl FnOnce(String) -> Config,
) -> (BrokerThread, ShareConsumer) {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let consumer = sharing_on(&broker, records, properties, config_for);
    (broker, consumer)
}

/// Writes this many records to the topic `orders` of a broker, and returns a member of a group that reads them.
fn sharing_on(
    broker: &BrokerThread,
    records: i32,
    properties: &[(&str, &str)],
    config_for: impl FnOnce(String) -> Config,
) -> ShareConsumer {
    let mut config = config_for(broker.bootstrap_servers());
    let producer = Producer::new(config.clone()).expect("a producer");
    for _ in 0..records {
        let _unawaited = producer.enqueue_blocking(Record::to("orders").value("paid")).expect("taken");
    }
    producer.flush_blocking(PATIENCE).expect("written");
    config.set_all([("group.id", "workers"), ("share.acknowledgement.mode", "explicit")]).expect("known");
    config.set_all(properties.iter().copied()).expect("known");
    let client = Client::new(config).expect("a client");
    let earliest = ("share.auto.offset.reset".to_owned(), ConfigChange::Set("earliest".into()));
    let changes = [(ConfigResource::group("workers"), vec![earliest])];
    let admin = client.admin();
    let altered = block_on(admin.incremental_alter_configs(&changes, AlterOptions::default()));
    altered.expect("answered").into_iter().for_each(|(_, result)| result.expect("altered"));
    let mut consumer = client.share_consumer().expect("a share consumer");
    consumer.subscribe_blocking(&["orders"], PATIENCE).expect("subscribed");
    consumer
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

/// Takes records of a poll that lasts.
fn take(consumer: &mut ShareConsumer) -> ShareBatch {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(batch) = consumer.take_ready().expect("no error") {
            return batch;
        }
        assert!(Instant::now() < deadline, "records come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Polls ten records, acknowledges them, and continues the poll until the acknowledgements are settled.
fn acknowledge_in_a_poll_that_lasts(acknowledge: impl FnOnce(&mut ShareConsumer) -> Result<(), Error>) {
    let (broker, mut consumer) = sharing(10);
    assert_eq!(broker.cluster().requests(ApiKey::ShareAcknowledge), 0, "the count starts here");
    let results = consumer.acknowledgement_results();
    consumer.begin_poll().expect("begun");
    assert_eq!(take(&mut consumer).len(), 10);

    acknowledge(&mut consumer).expect("delivered");
    let deadline = Instant::now() + PATIENCE;
    let settled = loop {
        assert!(consumer.take_ready().expect("no error").is_none(), "the topic has no more");
        if let Some(settled) = results.try_next() {
            break settled;
        }
        assert!(Instant::now() < deadline, "the result comes");
        std::thread::sleep(Duration::from_millis(2));
    };
    assert_eq!((settled.ranges, settled.result.is_ok()), (vec![0..=9], true));
    assert_eq!(broker.cluster().requests(ApiKey::ShareAcknowledge), 0);
}

/// A request of their own would delay the fetch: a leader gets one request at a time.
#[test]
fn the_fetch_of_a_poll_that_lasts_carries_the_acknowledgements() {
    let at = TopicPartition::new("orders", 0);
    acknowledge_in_a_poll_that_lasts(|consumer| {
        consumer.acknowledge_offsets(&at, 0..=9, AcknowledgeType::Accept)
    });
}

/// They waited for the next poll.
#[test]
fn the_fetch_of_a_poll_that_lasts_carries_the_acknowledgements_of_the_rest() {
    acknowledge_in_a_poll_that_lasts(|consumer| consumer.acknowledge_rest(AcknowledgeType::Accept));
}

#[test]
fn records_are_acknowledged_by_ranges_up_to_one_that_is_not_delivered() {
    let (_broker, mut consumer) = sharing(10);
    consumer.begin_poll().expect("begun");
    assert_eq!(take(&mut consumer).len(), 10);

    let at = TopicPartition::new("orders", 0);
    let refused = consumer.acknowledge_offsets(&at, 7..=12, AcknowledgeType::Accept);
    let Err(Error::IllegalState(text)) = &refused else { panic!("{refused:?}") };
    assert!(text.contains("orders-0") && text.contains("offset 10"), "{text}");
    consumer.acknowledge_offsets(&at, 0..=6, AcknowledgeType::Release).expect("delivered");
    consumer.begin_poll().expect("all records are acknowledged, those before the refused one as well");

    let again = take(&mut consumer);
    let delivered: Vec<_> = again.ranges().collect();
    assert_eq!(delivered, [(0..=6, 2)], "the released records; records 7 to 9 were accepted");
}

/// The results went to the commit whose caller had stopped waiting, and the next commit reported none.
#[test]
fn the_results_of_a_commit_that_timed_out_are_in_the_next_one() {
    for comes_after_the_response in [false, true] {
        let (broker, mut consumer) = sharing(10);
        let settled = consumer.acknowledgement_results();
        consumer.begin_poll().expect("begun");
        assert_eq!(take(&mut consumer).len(), 10);
        let at = TopicPartition::new("orders", 0);
        consumer.acknowledge_offsets(&at, 0..=9, AcknowledgeType::Accept).expect("delivered");
        let fault = Fault::FailAfter(ErrorCode::InvalidRecordState, Duration::from_millis(500));
        broker.cluster().intercept(ApiKey::ShareAcknowledge, None, NEVER, fault);
        let late = consumer.commit_blocking(Duration::from_millis(50));
        assert!(matches!(late, Err(Error::TimedOut { .. })), "{late:?}");

        let deadline = Instant::now() + PATIENCE;
        while comes_after_the_response && settled.try_next().is_none() {
            assert!(Instant::now() < deadline, "the result comes");
            std::thread::sleep(Duration::from_millis(2));
        }
        let results = consumer.commit_blocking(PATIENCE).expect("in time");
        let error = results.get(&at).and_then(|result| result.as_ref().err());
        assert_eq!(
            error.and_then(Error::broker_code),
            Some(ErrorCode::InvalidRecordState),
            "{comes_after_the_response}: {results:?}"
        );
        let reported_once = consumer.commit_blocking(PATIENCE).expect("in time");
        assert!(reported_once.is_empty(), "{reported_once:?}");
    }
}

/// One silent leader made the acknowledgements of all partitions time out, also if it was silent to earlier ones only.
#[test]
fn a_commit_of_unsent_acknowledgements_has_the_results_of_the_leaders_that_answer() {
    let broker = Broker::builder().memory().nodes(2).topic("orders", 2).spawn().expect("a broker in memory");
    let cluster = broker.cluster();
    assert!(cluster.set_leader("orders", 0, 1) && cluster.set_leader("orders", 1, 2));
    let producer = Producer::new(Config::new(broker.bootstrap_servers())).expect("a producer");
    for number in 0..20 {
        let record = Record::to("orders").partition(number % 2).value("paid");
        let _unawaited = producer.enqueue_blocking(record).expect("taken");
    }
    producer.flush_blocking(PATIENCE).expect("written");
    let mut consumer = sharing_on(&broker, 0, &[], Config::new);
    consumer.begin_poll().expect("begun");
    let mut taken = 0;
    while taken < 20 {
        taken += take(&mut consumer).len();
    }
    consumer.end_poll();
    let [first, second] = [0, 1].map(|partition| TopicPartition::new("orders", partition));
    let accept = AcknowledgeType::Accept;

    cluster.intercept(ApiKey::ShareAcknowledge, Some(2), NEVER, Fault::Hang);
    consumer.acknowledge_offsets(&second, 0..=4, accept).expect("delivered");
    consumer.commit_unobserved();
    consumer.acknowledge_offsets(&first, 0..=4, accept).expect("delivered");
    let results = consumer.commit_unsent_blocking(PATIENCE).expect("answered");
    assert!(results.len() == 1 && matches!(results.get(&first), Some(Ok(()))), "{results:?}");

    for at in [&first, &second] {
        consumer.acknowledge_offsets(at, 5..=9, accept).expect("delivered");
    }
    let results = consumer.commit_unsent_blocking(Duration::from_secs(5)).expect("answered");
    assert!(matches!(results.get(&first), Some(Ok(()))), "{results:?}");
    assert!(matches!(results.get(&second), Some(Err(Error::TimedOut { .. }))), "{results:?}");
}

/// librdkafka's test 0180. Heartbeats open six connections in this time at most.
#[test]
fn an_idle_connection_to_a_leader_with_a_session_is_opened_again_at_once() {
    let (broker, mut consumer) = sharing_with(1, &[("connections.max.idle.ms", "100")]);
    consumer.begin_poll().expect("begun");
    assert_eq!(take(&mut consumer).len(), 1);
    let connections = || broker.cluster().requests(ApiKey::ApiVersions);
    let (before, deadline) = (connections(), Instant::now() + PATIENCE / 2);
    while connections() < before + 10 {
        assert!(Instant::now() < deadline, "{} connections", connections() - before);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A member of a group, with librdkafka's defaults, and a broker with two topics.
fn member() -> (BrokerThread, ShareConsumer) {
    let broker = Broker::builder()
        .memory()
        .topic("orders", 1)
        .topic("refunds", 2)
        .spawn()
        .expect("a broker in memory");
    let mut config = Config::librdkafka();
    config.bootstrap_servers = broker.bootstrap_servers();
    config.set("group.id", "workers").expect("a known property");
    let consumer = Client::new(config).expect("a client").share_consumer().expect("a share consumer");
    (broker, consumer)
}

fn wait_for_partitions(consumer: &ShareConsumer, topic: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !block_on(consumer.assignment()).expect("known").iter().any(|at| &*at.topic == topic) {
        assert!(Instant::now() < deadline, "an assignment with {topic}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The engine continued to fetch for it, and locked records that other members could have handled.
#[test]
fn nothing_is_fetched_for_a_poll_whose_future_was_dropped() {
    let (broker, mut consumer) = sharing_with(0, &[("fetch.wait.max.ms", "20")]);
    let fetches = || broker.cluster().requests(ApiKey::ShareFetch);
    let before = fetches();
    wait_for_partitions(&consumer, "orders");
    block_on(async {
        let is_fetching = async {
            while fetches() == before {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::select! {
            polled = consumer.poll(PATIENCE) => panic!("{polled:?}"),
            () = is_fetching => {}
        }
    });
    // One may be sent at this moment.
    let most = fetches() + 1;
    std::thread::sleep(Duration::from_secs(1));
    assert!(fetches() <= most, "{} fetches, {most} at most", fetches());
}

/// The consumer waited for the coordinator and did nothing else.
#[test]
fn acknowledgements_are_sent_while_the_coordinator_does_not_confirm_the_leave() {
    let (broker, mut consumer) = sharing(10);
    consumer.begin_poll().expect("begun");
    assert_eq!(take(&mut consumer).len(), 10);
    broker.cluster().intercept(ApiKey::ShareGroupHeartbeat, None, NEVER, Fault::Hang);
    let left = consumer.subscribe_blocking(&[], Duration::from_millis(100));
    assert!(matches!(left, Err(Error::TimedOut { .. })), "{left:?}");

    let at = TopicPartition::new("orders", 0);
    consumer.acknowledge_offsets(&at, 0..=9, AcknowledgeType::Accept).expect("delivered");
    let results = consumer.commit_blocking(PATIENCE / 3).expect("in time");
    assert!(matches!(results.get(&at), Some(Ok(()))), "{results:?}");
}

/// The member left only after all leaders had confirmed the end of their sessions. The group kept its partitions until its session
/// timed out.
#[test]
fn a_consumer_that_is_closed_leaves_the_group_although_a_leader_is_silent() {
    let broker = Broker::builder().memory().nodes(2).topic("orders", 1).spawn().expect("a broker in memory");
    let cluster = broker.cluster();
    assert!(cluster.set_leader("orders", 0, 2) && cluster.set_coordinator("workers", 1));
    let mut consumer = sharing_on(&broker, 10, &[], Config::new);
    consumer.begin_poll().expect("begun");
    assert_eq!(take(&mut consumer).len(), 10);
    assert_eq!(cluster.share_group_members("workers").map(|members| members.len()), Some(1));

    cluster.intercept(ApiKey::ShareAcknowledge, Some(2), NEVER, Fault::Hang);
    let closed = consumer.close_blocking(Duration::from_millis(500));
    assert!(closed.is_ok() || matches!(closed, Err(Error::TimedOut { .. })), "{closed:?}");
    // The session times out after 45 seconds.
    let deadline = Instant::now() + PATIENCE / 3;
    while cluster.share_group_members("workers").is_some_and(|members| !members.is_empty()) {
        assert!(Instant::now() < deadline, "the member is still in the group");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_subscription_right_after_an_unsubscribe_starts_a_membership() {
    let (_broker, mut consumer) = member();
    for _ in 0..20 {
        // None of them waits for its reply, so that the commands arrive together.
        let _ = consumer.subscribe_blocking(&["orders"], Duration::ZERO);
        let _ = consumer.subscribe_blocking(&[], Duration::ZERO);
    }
    let _ = consumer.subscribe_blocking(&["refunds"], Duration::ZERO);
    wait_for_partitions(&consumer, "refunds");
}

/// The whole assignment waited for the name of each topic, and a heartbeat requested it again ten times a second.
#[test]
fn a_topic_without_a_name_keeps_no_other_topic_from_a_member() {
    let (broker, mut consumer) = member();
    let cluster = broker.cluster();
    // The client knows the name of this topic, and looks up the other one by its id.
    let producer = consumer.client().producer();
    producer.send_blocking(Record::to("orders").value("paid")).expect("acknowledged");
    let unknown = Fault::Fail(ErrorCode::UnknownTopicId);
    let rule = FaultRule::new(ApiKey::Metadata, unknown).topic("refunds").times(NEVER);
    cluster.add_fault(rule).expect("a sound rule");
    consumer.subscribe_blocking(&["orders", "refunds"], PATIENCE).expect("subscribed");
    wait_for_partitions(&consumer, "orders");
    let heartbeats = cluster.requests(ApiKey::ShareGroupHeartbeat);
    std::thread::sleep(Duration::from_secs(1));
    let heartbeats = cluster.requests(ApiKey::ShareGroupHeartbeat) - heartbeats;
    assert!(heartbeats < 4, "{heartbeats} heartbeats");

    cluster.clear_intercepts_of(ApiKey::Metadata);
    wait_for_partitions(&consumer, "refunds");
    let partitions = block_on(consumer.assignment()).expect("known");
    assert_eq!(partitions.len(), 3, "{partitions:?}");
}

fn wait_until(what: &str, within: Duration, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + within;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The member sent none until the request timeout of 30 seconds, and the group removed it.
#[test]
fn heartbeats_continue_while_a_broker_does_not_answer_the_lookup_of_names() {
    let builder = Broker::builder().memory().topic("orders", 1).configure(|config| {
        for key in ["group.share.min.heartbeat.interval.ms", "group.share.heartbeat.interval.ms"] {
            config.set(key, "50").expect("a property");
        }
    });
    let broker = builder.spawn().expect("a broker in memory");
    let cluster = broker.cluster();
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("group.id", "workers").expect("a known property");
    // A request for metadata is repeated after twice this time.
    config.stall_after = Duration::from_millis(500);
    let mut consumer = Client::new(config).expect("a client").share_consumer().expect("a share consumer");
    let rule = FaultRule::new(ApiKey::Metadata, Fault::Hang).topic("orders").times(NEVER);
    cluster.add_fault(rule).expect("a sound rule");
    let heartbeats = || cluster.requests(ApiKey::ShareGroupHeartbeat);
    assert_eq!(heartbeats(), 0, "the count starts here");
    consumer.subscribe_blocking(&["orders"], PATIENCE).expect("subscribed");
    let has_asked = || cluster.faults().iter().any(|(_, rule)| rule.count < NEVER);
    wait_until("a lookup", PATIENCE, has_asked);
    let before = heartbeats();
    wait_until("heartbeats", PATIENCE / 4, || heartbeats() >= before + 5);

    cluster.clear_intercepts_of(ApiKey::Metadata);
    wait_for_partitions(&consumer, "orders");
}

#[test]
fn a_subscription_during_a_heartbeat_that_is_refused_is_sent() {
    let (broker, mut consumer) = member();
    let code = ErrorCode::InvalidRequest;
    let fault = Fault::FailAfter(code, Duration::from_millis(300));
    broker.cluster().intercept(ApiKey::ShareGroupHeartbeat, None, 1, fault);
    consumer.subscribe_blocking(&["orders"], PATIENCE).expect("subscribed");
    let deadline = Instant::now() + PATIENCE;
    while broker.cluster().requests(ApiKey::ShareGroupHeartbeat) == 0 {
        assert!(Instant::now() < deadline, "a heartbeat");
        std::thread::sleep(Duration::from_millis(1));
    }
    consumer.subscribe_blocking(&["refunds"], PATIENCE).expect("subscribed");
    wait_for_partitions(&consumer, "refunds");
    assert!(consumer.poll_blocking(Duration::ZERO).expect("not refused").is_none());
}

/// With librdkafka's defaults, the polls after the refusal dropped the acknowledgements: the records were delivered again when their
/// locks ended.
#[test]
fn acknowledgements_are_sent_after_the_group_has_refused_the_member() {
    let (broker, mut consumer) = sharing_as(1, &[], |servers| {
        let mut config = Config::librdkafka();
        config.bootstrap_servers = servers;
        config
    });
    let results = consumer.acknowledgement_results();
    consumer.begin_poll().expect("begun");
    assert_eq!(take(&mut consumer).len(), 1);
    let code = ErrorCode::InvalidRequest;
    broker.cluster().intercept(ApiKey::ShareGroupHeartbeat, None, NEVER, Fault::Fail(code));
    // The heartbeat with the subscription is sent at once.
    consumer.subscribe_blocking(&["orders"], PATIENCE).expect("subscribed");
    let deadline = Instant::now() + PATIENCE;
    while consumer.refusal().is_none() {
        assert!(Instant::now() < deadline, "the group refuses the member");
        drop(consumer.take_ready());
        std::thread::sleep(Duration::from_millis(2));
    }

    let at = TopicPartition::new("orders", 0);
    consumer.acknowledge_offsets(&at, 0..=0, AcknowledgeType::Accept).expect("delivered");
    let settled = loop {
        assert!(consumer.take_ready().is_err(), "each poll returns the refusal");
        if let Some(settled) = results.try_next() {
            break settled;
        }
        assert!(Instant::now() < deadline, "the result comes");
        std::thread::sleep(Duration::from_millis(2));
    };
    assert_eq!((settled.ranges, settled.result.is_ok()), (vec![0..=0], true));
}

#[test]
fn a_share_consumer_without_the_right_to_read_a_topic_stays_a_member() {
    let (broker, mut consumer) = member();
    let code = ErrorCode::TopicAuthorizationFailed;
    broker.cluster().intercept(ApiKey::ShareGroupHeartbeat, None, NEVER, Fault::Fail(code));
    consumer.subscribe_blocking(&["orders"], PATIENCE).expect("subscribed");
    let error = consumer.poll_blocking(PATIENCE).expect_err("forbidden");
    assert_eq!(error.broker_code(), Some(code), "{error}");
    let heartbeats = broker.cluster().requests(ApiKey::ShareGroupHeartbeat);
    assert!(consumer.poll_blocking(Duration::from_millis(500)).expect("reported once").is_none());

    broker.cluster().clear_intercepts();
    wait_for_partitions(&consumer, "orders");
    assert!(broker.cluster().requests(ApiKey::ShareGroupHeartbeat) > heartbeats);
}
