//! Tests of `debug` and `log_level`: the lines that they enable, and their destination.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ottla_broker::{Broker, BrokerThread};
use ottla_client::{Client, Config, Context, LogCallback, LogLine, Polled, Purge, Record};

/// The time limit for log lines to appear.
const PATIENCE: Duration = Duration::from_secs(30);

fn broker() -> BrokerThread {
    Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory")
}

fn send(client: &Client) {
    let delivery = client.producer().try_enqueue(Record::to("orders").value("secret value")).expect("taken");
    delivery.wait(PATIENCE).expect("in time").expect("written");
}

/// The log lines of a client with these properties after it has sent a record.
fn lines(properties: &[(&str, &str)]) -> Vec<LogLine> {
    let broker = broker();
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("log.queue", "true").expect("a flag");
    config.set_all(properties.iter().copied()).expect("valid properties");
    let client = Client::new(config).expect("a client");
    let queue = client.log_lines();
    send(&client);
    drop(client);
    std::iter::from_fn(|| queue.try_next()).collect()
}

/// The number that follows `name` in a line.
fn number(text: &str, name: &str) -> String {
    let (_, rest) = text.split_once(name).unwrap_or_else(|| panic!("no {name} in {text}"));
    rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect()
}

#[test]
fn debug_shows_batches_requests_and_round_trips() {
    let lines = lines(&[("debug", "msg,protocol")]);
    assert!(
        lines.iter().all(|line| {
            line.level == 7 && matches!(line.context, Some(Context::Msg | Context::Protocol))
        })
    );
    let delivered: Vec<_> = lines.iter().filter(|line| line.facility == "MSGSET").collect();
    assert_eq!(delivered.len(), 1);
    assert!(
        delivered[0].text.starts_with("orders [0]: MessageSet with 1 message(s) (")
            && delivered[0].text.ends_with(" bytes) delivered"),
        "{}",
        delivered[0]
    );
    let produce = |facility: &str, name: &str| {
        let found = lines.iter().find(|line| line.facility == facility && line.text.contains(name));
        found.unwrap_or_else(|| panic!("no {name}")).text.clone()
    };
    let sent = produce("SEND", ": Sent ProduceRequest (v");
    let received = produce("RECV", ": Received ProduceResponse (v");
    // librdkafka's name of a connection: host:port/id, without a scheme in plaintext.
    assert!(sent.starts_with("127.0.0.1:") && sent.contains("/1: Sent"), "{sent}");
    assert_eq!(number(&sent, "CorrId "), number(&received, "CorrId "));
    assert_eq!(number(&sent, "(v"), number(&received, "(v"));
    assert!(sent.contains(" bytes @ 0, "), "{sent}");
    assert!(
        received.ends_with("ms)") && number(&received, "rtt ").parse::<f64>().is_ok_and(|ms| ms < 30_000.0),
        "{received}"
    );
    // Every response has its request, and the contents of records are not logged.
    let count = |facility| lines.iter().filter(|line| line.facility == facility).count();
    assert_eq!(count("SEND"), count("RECV"));
    assert!(!lines.iter().any(|line| line.text.contains("secret value")));
}

#[test]
fn log_level_silences_what_is_less_serious() {
    assert!(lines(&[]).is_empty(), "nothing is said of what goes well");
    assert!(lines(&[("debug", "all"), ("log_level", "6")]).is_empty());
    assert!(!lines(&[("debug", "all"), ("log_level", "7")]).is_empty());
}

#[test]
fn every_context_has_something_to_say_and_no_secret_is_said() {
    let lines = lines(&[("debug", "all"), ("client.id", "till-4")]);
    for context in [
        Context::Generic,
        Context::Broker,
        Context::Topic,
        Context::Metadata,
        Context::Feature,
        Context::Queue,
        Context::Msg,
        Context::Protocol,
        Context::Eos,
        Context::Conf,
    ] {
        assert!(lines.iter().any(|line| line.context == Some(context)), "{}", context.name());
    }
    assert!(lines.iter().all(|line| line.client.starts_with("till-4#")));
}

/// Debug lines of topics, queues, features, metadata and the admin client.
#[test]
fn debug_follows_topics_queues_and_admin_calls() {
    let broker = Broker::builder().memory().nodes(2).topic("orders", 1).spawn().expect("a broker in memory");
    let mut config = Config::new(broker.bootstrap_servers());
    config
        .set_all([
            ("log.queue", "true"),
            ("debug", "topic,queue,metadata,admin"),
            ("metadata.max.age.ms", "50"),
        ])
        .expect("valid properties");
    config.queue_buffering_max_messages = 1;
    let client = Client::new(config).expect("a client");
    let queue = client.log_lines();
    let producer = client.producer();
    let mut seen: Vec<LogLine> = Vec::new();
    let mut wait_for = |context: Context, wanted: &str| {
        let is_it = |line: &LogLine| line.context == Some(context) && line.text.contains(wanted);
        while !seen.iter().any(is_it) {
            let line = queue.next_blocking(PATIENCE);
            seen.push(line.unwrap_or_else(|| panic!("no line with {wanted}: {seen:?}")));
        }
    };
    let first = producer.try_enqueue(Record::to("orders").value("v")).expect("taken");
    let second = producer.try_enqueue(Record::to("orders").value("v"));
    if second.is_err() {
        wait_for(Context::Queue, "orders [-1]: a record is not taken: the send buffer is full");
    }
    first.wait(PATIENCE).expect("in time").expect("written");
    wait_for(Context::Metadata, "asking for 1 topic(s): orders");
    wait_for(Context::Topic, "orders: 1 partition(s), topic id ");
    wait_for(Context::Topic, "orders [0]: led by node ");
    wait_for(Context::Queue, "orders: 1 record(s) that had no partition go to 1 of them");
    assert!(broker.cluster().set_leader("orders", 0, 2));
    wait_for(Context::Topic, "orders [0]: led by node 2, leader epoch ");
    producer.purge(Purge { queued: true, in_flight: false });
    wait_for(Context::Queue, "the application purges: queued true, in flight false");
    let admin = client.admin();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(admin.delete_topics(&["nowhere"])).expect_err("there is none");
    wait_for(Context::Admin, "delete_topics: begun");
    wait_for(Context::Admin, "delete_topics: deleting topic `nowhere`: ");
}

#[test]
fn a_callback_takes_the_lines_instead() {
    let broker = broker();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("debug", "protocol").expect("a context");
    let at_callback = seen.clone();
    config.log_callback = Some(LogCallback::new(move |line| {
        at_callback.lock().expect("no panic there").push(line.to_string());
    }));
    let client = Client::new(config).expect("a client");
    send(&client);
    drop(client);
    let seen = seen.lock().expect("no panic there");
    assert!(seen.iter().any(|line| line.starts_with("%7|SEND|ottla#")), "{seen:?}");
}

/// Debug lines of a consumer, its group and its fetches.
#[test]
fn debug_follows_a_consumer_into_its_group() {
    let broker = broker();
    let mut config = Config::new(broker.bootstrap_servers());
    let properties = [
        ("log.queue", "true"),
        ("debug", "consumer,cgrp,fetch,assignor"),
        ("group.id", "billing"),
        ("auto.offset.reset", "earliest"),
    ];
    config.set_all(properties).expect("valid properties");
    let client = Client::new(config).expect("a client");
    let queue = client.log_lines();
    send(&client);
    let mut consumer = client.consumer();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(consumer.subscribe(&["orders"])).expect("subscribed");
    while !matches!(consumer.poll_blocking(PATIENCE).expect("no error").expect("in time"), Polled::Records(_))
    {
    }
    let lines: Vec<LogLine> = std::iter::from_fn(|| queue.try_next()).collect();
    for (context, wanted) in [
        (Context::Consumer, "subscribe: "),
        (Context::Cgrp, "Group \"billing\": coordinated by node 1"),
        (Context::Cgrp, "Group \"billing\": changed state to Joining"),
        (Context::Cgrp, "Group \"billing\": changed state to Settled"),
        (Context::Fetch, "orders [0]: from offset 0 at node 1; offsets 0 to 1"),
        (Context::Assignor, " 1 partition(s): orders-0"),
    ] {
        let is_it = |line: &LogLine| line.context == Some(context) && line.text.contains(wanted);
        assert!(lines.iter().any(is_it), "no line with {wanted}: {lines:?}");
    }
}

/// librdkafka's test 0121.
#[test]
fn bootstrap_servers_of_two_clusters_are_warned_of() {
    let (first, second) = (broker(), broker());
    let mut config = Config::new(first.bootstrap_servers());
    config.set("log.queue", "true").expect("a flag");
    let client = Client::new(config).expect("a client");
    let queue = client.log_lines();
    client.metadata_blocking(Some(&[]), PATIENCE).expect("the first cluster answers");
    let one = client.metadata_blocking(Some(&[]), PATIENCE).expect("an answer").cluster_id;
    assert!(one.is_some());
    client.add_bootstrap_servers(&second.bootstrap_servers()).expect("an address");
    drop(first);
    let deadline = std::time::Instant::now() + PATIENCE;
    while client.metadata_blocking(Some(&[]), PATIENCE).is_ok_and(|metadata| metadata.cluster_id == one) {
        assert!(std::time::Instant::now() < deadline, "the other cluster does not answer in {PATIENCE:?}");
    }
    let warned = std::iter::from_fn(|| queue.try_next()).filter(|line| line.facility == "CLUSTERID");
    let warned: Vec<_> = warned.collect();
    assert!(warned.len() == 1 && warned[0].text.contains("reports different ClusterId"), "{warned:?}");
}
