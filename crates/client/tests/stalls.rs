//! The watchdog: each thing that can get stuck is said once, with what is being tried, and once more when it is over.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

use std::net::TcpListener;
use std::time::Duration;

use ottla_broker::{Broker, BrokerThread, Fault};
use ottla_client::{Client, Config, Delivery, Producer, Record, Stall, StallReport};
use ottla_protocol::ApiKey;

/// Generous: nothing here takes long unless it is broken.
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
    Producer::of(client).try_send(Record::to("orders").value("x")).expect("taken")
}

fn wait(delivery: &Delivery) {
    delivery.wait(PATIENCE).expect("in time").expect("written");
}

/// The next report about what `wanted` says yes to.
fn next(client: &Client, wanted: impl Fn(&Stall) -> bool) -> StallReport {
    loop {
        let report = client.stalls().next_blocking(PATIENCE).expect("a report in time");
        if wanted(&report.stall) {
            return report;
        }
    }
}

/// A stall that is said, ends by what `mend` does, and is said to have ended; nothing more is said of it.
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
    // Nobody knows the topic until it is made.
    let delivery = Producer::of(&client).try_send(Record::to("late").value("x")).expect("taken");
    let admin = ottla_client::Admin::of(&client);
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
    // A port that nobody listens on any more.
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
        config.buffer_records_max = 10;
    });
    let producer = Producer::of(&client);
    for _ in 0..10 {
        producer.topic("orders").try_post(&Record::to("orders").value("x")).expect("there is room for ten");
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
