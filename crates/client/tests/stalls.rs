//! The watchdog reports each stall once, with the current attempt, and once more when it is over.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

#[path = "stalls/share.rs"]
mod share;

use std::net::TcpListener;
use std::time::Duration;

use ottla_broker::{Broker, BrokerThread, Fault};
use ottla_client::{
    Cause, Client, Config, Consumer, Delivery, ErrorCode, Polled, Record, Stall, StallReport, StartAt,
    TopicPartition,
};
use ottla_protocol::ApiKey;

/// The time limit for a stall report.
const PATIENCE: Duration = Duration::from_secs(30);
const STALL_AFTER: Duration = Duration::from_millis(400);

fn client(servers: &str, tune: impl FnOnce(&mut Config)) -> Client {
    let mut config = Config::new(servers);
    config.stall_after = STALL_AFTER;
    config.log_queue = true;
    tune(&mut config);
    Client::new(config).expect("a client")
}

fn broker() -> BrokerThread {
    Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory")
}

fn send(client: &Client) -> Delivery {
    client.producer().try_enqueue(Record::to("orders").value("x")).expect("taken")
}

fn wait(delivery: &Delivery) {
    delivery.wait(PATIENCE).expect("in time").expect("written");
}

/// The next report about a stall that `wanted` selects.
fn next(client: &Client, wanted: impl Fn(&Stall) -> bool) -> StallReport {
    loop {
        let report = client.stalls().next_blocking(PATIENCE).expect("a report in time");
        if wanted(&report.stall) {
            return report;
        }
    }
}

/// Expects one report of a stall, ends the stall with `mend`, and expects one report of its end.
fn said_once(client: &Client, wanted: impl Fn(&Stall) -> bool, mend: impl FnOnce()) -> StallReport {
    let began = next(client, &wanted);
    assert!(!began.over && began.lasted >= STALL_AFTER, "{began}");
    assert!(!began.trying.is_empty());
    mend();
    let ended = next(client, &wanted);
    assert!(ended.over && ended.stall == began.stall && ended.lasted >= began.lasted, "{ended}");
    while let Some(report) = client.stalls().try_next() {
        assert!(!wanted(&report.stall), "said again: {report}");
    }
    let lines: Vec<_> = std::iter::from_fn(|| client.log_lines().try_next()).collect();
    let warned = lines.iter().filter(|line| line.facility == "STALL" && line.text == began.to_string());
    assert!(warned.clone().count() == 1 && warned.clone().all(|line| line.level == 4), "{lines:?}");
    began
}

#[test]
fn a_partition_without_a_leader_is_a_stall() {
    let broker = broker();
    let client = client(&broker.bootstrap_servers(), |config| {
        config.set("allow.auto.create.topics", "false").expect("a flag");
    });
    // The topic is unknown until it is created.
    let delivery = client.producer().try_enqueue(Record::to("late").value("x")).expect("taken");
    let admin = client.admin();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let stall = said_once(
        &client,
        |stall| matches!(stall, Stall::NoLeader { topic, .. } if &**topic == "late"),
        || {
            let topic = ottla_client::NewTopic::new("late");
            runtime.block_on(admin.create_topics(&[topic])).expect("created");
            wait(&delivery);
        },
    );
    assert!(stall.trying.contains("metadata") && stall.trying.contains("1 records wait"), "{stall}");
}

#[test]
fn a_broker_that_cannot_be_reached_is_a_stall() {
    // A port without a listener.
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number").port();
    let client = client(&format!("127.0.0.1:{port}"), |_| {});
    let delivery = send(&client);
    let address = format!("127.0.0.1:{port}");
    let mut late = None;
    let stall = said_once(
        &client,
        |stall| matches!(stall, Stall::NoConnection { broker } if **broker == *address),
        || {
            let listen = address.parse().expect("an address");
            late =
                Some(Broker::builder().memory().topic("orders", 1).listen(listen).spawn().expect("a broker"));
            wait(&delivery);
        },
    );
    assert!(stall.trying.contains("attempt") && stall.trying.contains("refused"), "{stall}");
}

#[test]
fn a_broker_that_goes_down_is_a_stall_until_it_is_back() {
    let broker = broker();
    let client = client(&broker.bootstrap_servers(), |_| {});
    wait(&send(&client));
    broker.cluster().take_down(1);
    let delivery = send(&client);
    said_once(
        &client,
        |stall| matches!(stall, Stall::NoConnection { .. }),
        || {
            broker.cluster().take_up(1);
            wait(&delivery);
        },
    );
}

#[test]
fn a_request_that_is_not_answered_is_a_stall() {
    let broker = broker();
    let client = client(&broker.bootstrap_servers(), |_| {});
    wait(&send(&client));
    broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::Delay(Duration::from_millis(1500)));
    let delivery = send(&client);
    let stall = said_once(
        &client,
        |stall| matches!(stall, Stall::NoAnswer { request: "Produce", .. }),
        || wait(&delivery),
    );
    assert!(stall.to_string().contains("no answer to Produce (CorrId "), "{stall}");
}

#[test]
fn reports_that_nobody_reads_are_a_stall() {
    let broker = broker();
    let client = client(&broker.bootstrap_servers(), |config| {
        config.delivery_reports = true;
        config.queue_buffering_max_messages = 10;
    });
    let producer = client.producer();
    for _ in 0..10 {
        producer
            .topic("orders")
            .try_send_unobserved(Record::to("orders").value("x"))
            .expect("there is room for ten");
    }
    let stall = said_once(
        &client,
        |stall| *stall == Stall::ReportsUnread,
        || {
            let reports = producer.reports().expect("they are on");
            let mut read = 0;
            while read < 10 {
                read += reports.next_blocking(PATIENCE).expect("a report").len();
            }
        },
    );
    assert!(stall.trying.contains("reports wait"), "{stall}");
}

#[test]
fn what_goes_well_is_no_stall() {
    let broker = broker();
    let client = client(&broker.bootstrap_servers(), |config| config.stall_after = Duration::from_millis(50));
    for _ in 0..100 {
        wait(&send(&client));
    }
    let none = client.stalls().next_blocking(Duration::from_millis(200));
    assert!(none.is_none(), "{none:?}");
}

fn first() -> TopicPartition {
    TopicPartition::new("orders", 0)
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

/// A client that has sent `records`, and a consumer of the only partition, from `start`.
fn reader(
    broker: &BrokerThread,
    records: usize,
    start: StartAt,
    tune: impl FnOnce(&mut Config),
) -> (Client, Consumer) {
    let client = client(&broker.bootstrap_servers(), tune);
    for _ in 0..records {
        wait(&send(&client));
    }
    let mut consumer = client.consumer();
    run(consumer.assign(&[(first(), start)])).expect("assigned");
    (client, consumer)
}

/// A member of the group `billing`.
fn member(broker: &BrokerThread, properties: &[(&str, &str)]) -> (Client, Consumer) {
    let client = client(&broker.bootstrap_servers(), |config| {
        let quick = [("group.id", "billing"), ("auto.offset.reset", "earliest")];
        config.set_all(quick).expect("known properties");
        config.set_all(properties.iter().copied()).expect("known properties");
    });
    let mut consumer = client.consumer();
    run(consumer.subscribe(&["orders"])).expect("subscribed");
    (client, consumer)
}

/// Polls until a record arrives, and skips events.
fn poll_record(consumer: &mut Consumer) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while std::time::Instant::now() < deadline {
        if let Ok(Some(Polled::Records(batch))) = consumer.poll_blocking(Duration::from_millis(100)) {
            assert!(batch.iter().next().is_some());
            return;
        }
    }
    panic!("no record in time");
}

/// Polls until all records of the partition were returned.
fn poll_all(consumer: &mut Consumer) {
    while consumer.lag(&first()).is_none_or(|lag| lag > 0) {
        poll_record(consumer);
    }
}

fn consuming(because: Cause) -> impl Fn(&Stall) -> bool {
    move |stall| matches!(stall, Stall::Consuming { topic, partition: 0, cause } if &**topic == "orders" && *cause == because)
}

fn in_group(because: Cause) -> impl Fn(&Stall) -> bool {
    move |stall| matches!(stall, Stall::Group { group, cause } if &**group == "billing" && *cause == because)
}

const ALWAYS: u32 = u32::MAX;

#[test]
fn a_group_without_a_coordinator_is_a_stall() {
    let broker = broker();
    let fault = Fault::Fail(ErrorCode::CoordinatorNotAvailable);
    broker.cluster().intercept(ApiKey::FindCoordinator, None, ALWAYS, fault);
    let (client, mut consumer) = member(&broker, &[]);
    wait(&send(&client));
    let stall = said_once(&client, in_group(Cause::NoCoordinator), || {
        broker.cluster().clear_intercepts();
        poll_record(&mut consumer);
    });
    assert!(stall.trying.contains("looking for the coordinator"), "{stall}");
}

#[test]
fn a_consumed_topic_that_nobody_knows_has_no_leader() {
    let broker = Broker::builder().memory().spawn().expect("a broker in memory");
    let (client, mut consumer) = reader(&broker, 0, StartAt::Beginning, |config| {
        config.set("allow.auto.create.topics", "false").expect("a flag");
    });
    let stall = said_once(&client, consuming(Cause::NoLeader), || {
        let topic = ottla_client::NewTopic::new("orders");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(client.admin().create_topics(&[topic])).expect("created");
        wait(&send(&client));
        poll_all(&mut consumer);
    });
    assert!(stall.to_string().contains("topic `orders` partition 0: no leader"), "{stall}");
    assert!(stall.trying.contains("metadata"), "{stall}");
}

#[test]
fn a_consumer_without_a_connection_to_the_leader_is_a_stall() {
    let broker = broker();
    let client = client(&broker.bootstrap_servers(), |_| {});
    wait(&send(&client));
    broker.cluster().take_down(1);
    let mut consumer = client.consumer();
    run(consumer.assign(&[(first(), StartAt::Offset(0))])).expect("assigned");
    let stall = said_once(&client, consuming(Cause::NoConnection), || {
        broker.cluster().take_up(1);
        poll_all(&mut consumer);
    });
    assert!(stall.trying.contains("connect") && stall.trying.contains("offset 0, lag unknown"), "{stall}");
}

/// A thousand partitions of one unreachable broker are one stall.
#[test]
fn many_partitions_that_are_stuck_by_one_broker_are_said_together() {
    let broker = Broker::builder().memory().topic("orders", 1000).spawn().expect("a broker in memory");
    let client = client(&broker.bootstrap_servers(), |_| {});
    let mut consumer = client.consumer();
    let all: Vec<_> =
        (0..1000).map(|partition| (TopicPartition::new("orders", partition), StartAt::Offset(0))).collect();
    run(consumer.assign(&all)).expect("assigned");
    for partition in [0, 999] {
        let record = Record::to("orders").partition(partition).value("x");
        wait(&client.producer().try_enqueue(record).expect("taken"));
    }
    for _ in 0..2 {
        poll_record(&mut consumer);
    }
    broker.cluster().take_down(1);
    run(consumer.assign(&all)).expect("assigned");
    let many =
        |stall: &Stall| matches!(stall, Stall::ConsumingMany { node: Some(1), cause: Cause::NoConnection });
    let stall = next(&client, many);
    // A partition of which a response came late is stuck for a shorter time, and joins the others later.
    let count = stall.trying.split_once(" partitions: ").and_then(|(count, _)| count.parse::<usize>().ok());
    let count = count.filter(|count| *count > 900).unwrap_or_else(|| panic!("{stall}"));
    assert!(stall.trying.contains(&format!(" and {} more; the first: offset ", count - 3)), "{stall}");
    std::thread::sleep(STALL_AFTER * 2);
    let more: Vec<_> = std::iter::from_fn(|| client.stalls().try_next()).collect();
    let single = |report: &&StallReport| matches!(report.stall, Stall::Consuming { .. });
    assert_eq!(more.iter().filter(single).count(), 0, "{more:?}");
    broker.cluster().take_up(1);
    for _ in 0..2 {
        poll_record(&mut consumer);
    }
    assert!(next(&client, many).over);
}

#[test]
fn fetching_that_is_put_off_again_and_again_is_a_stall() {
    let broker = broker();
    let fault = Fault::Fail(ErrorCode::ThrottlingQuotaExceeded);
    broker.cluster().intercept(ApiKey::Fetch, None, ALWAYS, fault);
    let (client, mut consumer) = reader(&broker, 1, StartAt::Offset(0), |_| {});
    let stall = said_once(&client, consuming(Cause::BackOff), || {
        broker.cluster().clear_intercepts();
        poll_all(&mut consumer);
    });
    assert!(stall.trying.contains("the last problem"), "{stall}");
}

#[test]
fn a_rebalance_that_nobody_ends_is_a_stall_of_both_sides() {
    let broker = broker();
    let (first, mut owner) = member(&broker, &[("heartbeat.interval.ms", "50")]);
    wait(&send(&first));
    poll_all(&mut owner);
    // The member must revoke its partition, and does not poll.
    let (second, mut joiner) = member(&broker, &[]);
    let polled = said_once(&first, in_group(Cause::NotPolled), || {
        let waiting = said_once(&second, in_group(Cause::Rebalance), || {
            let deadline = std::time::Instant::now() + PATIENCE;
            let mut settled = 0;
            while settled < 2 {
                assert!(std::time::Instant::now() < deadline, "the rebalance does not end");
                for consumer in [&mut owner, &mut joiner] {
                    let polled = consumer.poll_blocking(Duration::from_millis(20)).expect("no error");
                    let event = matches!(polled, Some(Polled::Event(ottla_client::Event::Assigned(_))));
                    settled += usize::from(event);
                }
            }
        });
        assert!(
            waiting.trying.contains("JoinGroup") && waiting.trying.contains("other members"),
            "{waiting}"
        );
    });
    assert!(polled.trying.contains("revocation"), "{polled}");
}

#[test]
fn an_offset_that_does_not_exist_is_a_stall_until_the_application_seeks() {
    let broker = broker();
    let (client, mut consumer) = reader(&broker, 1, StartAt::Offset(1000), |config| {
        config.set("auto.offset.reset", "error").expect("a known value");
    });
    consumer.poll_blocking(PATIENCE).expect_err("out of range");
    let stall = said_once(&client, consuming(Cause::OffsetOutOfRange), || {
        run(consumer.seek(&first(), StartAt::Beginning)).expect("assigned");
        poll_all(&mut consumer);
    });
    assert!(stall.trying.contains("seek"), "{stall}");
}

#[test]
fn what_is_not_allowed_is_a_stall() {
    let broker = broker();
    broker.cluster().intercept(ApiKey::Fetch, None, ALWAYS, Fault::Fail(ErrorCode::TopicAuthorizationFailed));
    let (client, mut consumer) = reader(&broker, 1, StartAt::Offset(0), |_| {});
    said_once(&client, consuming(Cause::Unauthorized), || {
        // Fetching resumes once the client is authorized again; a seek would start another stall before that.
        broker.cluster().clear_intercepts();
        poll_all(&mut consumer);
    });
    let fault = Fault::Fail(ErrorCode::GroupAuthorizationFailed);
    broker.cluster().intercept(ApiKey::FindCoordinator, None, ALWAYS, fault);
    let (client, mut consumer) = member(&broker, &[]);
    said_once(&client, in_group(Cause::Unauthorized), || {
        broker.cluster().clear_intercepts();
        poll_record(&mut consumer);
    });
}

#[test]
fn memory_that_the_application_does_not_let_go_of_is_a_stall() {
    let broker = broker();
    let client = client(&broker.bootstrap_servers(), |config| {
        config.set("queued.max.messages.kbytes", "100").expect("a number");
        config.set("fetch.message.max.bytes", "20000").expect("a number");
    });
    let value = vec![b'v'; 19_000];
    for _ in 0..20 {
        wait(&client.producer().try_enqueue(Record::to("orders").value(&value)).expect("taken"));
    }
    let mut consumer = client.consumer();
    run(consumer.assign(&[(first(), StartAt::Beginning)])).expect("assigned");
    let mut held = Vec::new();
    while let Some(polled) = consumer.poll_blocking(STALL_AFTER).expect("no error") {
        held.push(polled);
        assert!(held.len() < 20, "all of it was given: the budget is none");
    }
    let stall = said_once(&client, consuming(Cause::BudgetHeld), || {
        held.clear();
        poll_all(&mut consumer);
    });
    assert!(stall.trying.contains("dropped") && stall.trying.contains("of 102400 bytes"), "{stall}");
}

#[test]
fn records_that_nobody_polls_are_a_stall() {
    let broker = broker();
    let (client, mut consumer) = reader(&broker, 3, StartAt::Beginning, |_| {});
    let stall = said_once(&client, consuming(Cause::NotPolled), || poll_all(&mut consumer));
    assert!(
        stall.trying.starts_with("offset 0, lag ") && stall.trying.contains("wait in the queue"),
        "{stall}"
    );
}

/// The delay exceeds the time limit, so that only a dropped connection ends the stall.
#[test]
fn a_fetch_that_is_not_answered_is_a_stall_that_mends_itself() {
    let broker = broker();
    let delay = Fault::Delay(PATIENCE * 2);
    broker.cluster().intercept(ApiKey::Fetch, None, 1, delay);
    let (client, mut consumer) = reader(&broker, 1, StartAt::Offset(0), |_| {});
    let stall = said_once(&client, consuming(Cause::NoAnswer), || poll_all(&mut consumer));
    assert!(stall.trying.contains("connection is dropped"), "{stall}");
    broker.cluster().intercept(ApiKey::OffsetFetch, None, 1, delay);
    let (client, mut consumer) = member(&broker, &[]);
    let stall = said_once(&client, in_group(Cause::NoAnswer), || poll_record(&mut consumer));
    assert!(stall.trying.contains("OffsetFetch"), "{stall}");
}

#[test]
fn a_consumer_that_has_everything_and_one_that_is_paused_are_no_stalls() {
    let broker = broker();
    let (client, mut consumer) = reader(&broker, 3, StartAt::Beginning, |_| {});
    poll_all(&mut consumer);
    let none = client.stalls().next_blocking(STALL_AFTER * 3);
    assert!(none.is_none(), "{none:?}");
    consumer.pause(&[first()]);
    wait(&send(&client));
    let none = client.stalls().next_blocking(STALL_AFTER * 3);
    assert!(none.is_none(), "{none:?}");
}
