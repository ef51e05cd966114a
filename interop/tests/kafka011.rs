//! The Ottla client against Apache Kafka 0.11, the oldest supported broker.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_client::{
    Admin, Client, Config, Consumer, Error, NewTopic, OffsetAt, OwnedRecord, Persisted, Polled, Record,
    StartAt, TopicPartition,
};
use ottla_interop::{Failure, OldKafka, Peer, ottla, require};

/// Timeout of each operation against Kafka 0.11.
const PATIENCE: Duration = Duration::from_secs(60);

/// Fixed versions of that release, instead of a request for them.
const NOT_ASKED: &[(&str, &str)] =
    &[("api.version.request", "false"), ("broker.version.fallback", "0.11.0.3")];

macro_rules! against_kafka_0_11 {
    ($($story:ident)+) => {
        mod kafka_0_11 {
            $(#[test]
            fn $story() -> Result<(), super::Failure> {
                super::require!(super::Peer::OldJava);
                super::run(super::$story(&super::OldKafka::shared()?.bootstrap()));
                Ok(())
            })+
        }
    };
}

against_kafka_0_11! {
    records_come_back_as_they_were_sent
    each_codec_of_its_time_comes_back
    zstd_is_refused_with_the_reason
    a_group_goes_on_where_it_committed
    topics_are_created_described_and_deleted
    offsets_are_listed_by_time
    transactions_commit_and_abort
    offsets_are_committed_in_a_transaction
    a_broker_that_is_not_asked_is_spoken_to_as_its_release
    the_doctor_finds_nothing_wrong
    the_command_works
}

/// Plain and idempotent producers: offsets, keys, headers, timestamps and nulls.
async fn records_come_back_as_they_were_sent(bootstrap: &str) {
    for idempotence in ["false", "true"] {
        let topic = &format!("records-{idempotence}");
        create(bootstrap, topic, 2).await;
        let client = client(bootstrap, &[("enable.idempotence", idempotence)]);
        let producer = client.producer();
        let first = Record::to(topic).partition(1).key("k").value("v").timestamp_ms(1_500_000_000_000);
        let written = producer.send(first.header("trace", "a1").header("n", "")).await.expect("written");
        assert_eq!((written.partition, written.offset), (1, Some(0)));
        for n in 1..1_000 {
            let value = n.to_string();
            producer.send_unobserved(Record::to(topic).partition(1).value(&value)).await.expect("taken");
        }
        producer.flush(PATIENCE).await.expect("all written");
        let tombstone = producer.send(Record::to(topic).partition(1).key("k")).await.expect("written");
        assert_eq!(tombstone.offset, Some(1_000), "enable.idempotence={idempotence}");

        let records = read(&client, topic, 1, 1_001).await;
        let first = &records[0];
        assert_eq!(first.timestamp_ms, 1_500_000_000_000);
        assert_eq!((first.key.as_deref(), first.value.as_deref()), (Some(&b"k"[..]), Some(&b"v"[..])));
        let headers: Vec<_> =
            first.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
        assert_eq!(headers, [("trace", Some(&b"a1"[..])), ("n", Some(&b""[..]))]);
        assert_eq!(records[1_000].value, None, "a tombstone");
        for (offset, record) in records.iter().enumerate().take(1_000).skip(1) {
            assert_eq!(record.offset, offset as i64);
            assert_eq!(record.value.as_deref(), Some(offset.to_string().as_bytes()));
        }
    }
}

async fn each_codec_of_its_time_comes_back(bootstrap: &str) {
    for codec in ["gzip", "snappy", "lz4"] {
        let topic = &format!("codec-{codec}");
        create(bootstrap, topic, 1).await;
        let client = client(bootstrap, &[("compression.type", codec)]);
        let producer = client.producer();
        let value = |n: usize| format!("{n:05} {codec} {}", "of the log ".repeat(n % 9));
        for n in 0..2_000 {
            producer.send_unobserved(Record::to(topic).value(&value(n))).await.expect("taken");
        }
        producer.flush(PATIENCE).await.expect("all written");
        let records = read(&client, topic, 0, 2_000).await;
        for (n, record) in records.iter().enumerate() {
            assert_eq!(record.value.as_deref(), Some(value(n).as_bytes()), "{codec}");
        }
    }
}

async fn zstd_is_refused_with_the_reason(bootstrap: &str) {
    create(bootstrap, "codec-zstd", 1).await;
    let producer = client(bootstrap, &[("compression.type", "zstd")]).producer();
    let value = "of the log ".repeat(100);
    let error = producer.send(Record::to("codec-zstd").value(&value)).await.expect_err("refused");
    let text = error.to_string();
    assert!(text.contains("zstd") && text.contains("2.1") && text.contains("version 3"), "{text}");
    assert_eq!(error.persisted, Persisted::NotWritten);
    assert!(!error.is_retriable(), "{text}");
}

async fn a_group_goes_on_where_it_committed(bootstrap: &str) {
    create(bootstrap, "group", 2).await;
    let settings =
        [("group.id", "readers"), ("enable.auto.commit", "false"), ("auto.offset.reset", "earliest")];
    let producer = client(bootstrap, &[]).producer();
    let at = |partition| TopicPartition::new("group", partition);
    let mut expected = BTreeMap::new();
    for round in 0..2 {
        for n in 0..20 {
            let value = (round * 20 + n).to_string();
            producer.send(Record::to("group").partition(n % 2).value(&value)).await.expect("written");
        }
        let mut consumer = client(bootstrap, &settings).consumer();
        consumer.subscribe(&["group"]).await.expect("subscribed");
        let mut values: Vec<i32> = poll_values(&mut consumer, 20).await;
        values.sort_unstable();
        assert_eq!(values, (round * 20..round * 20 + 20).collect::<Vec<_>>(), "only what is new");
        consumer.commit().await.expect("committed");
        expected = BTreeMap::from([0, 1].map(|partition| (at(partition), 10 * (i64::from(round) + 1))));
        assert_eq!(consumer.committed(&[at(0), at(1)]).await.expect("the group's offsets"), expected);
        consumer.close(PATIENCE).await.expect("left the group");
    }
    let admin = admin(bootstrap);
    assert_eq!(admin.group_offsets("readers", None).await.expect("offsets"), expected);
    assert!(admin.list_groups().await.expect("groups").iter().any(|listed| listed.group == "readers"));
    let described = admin.describe_groups(&["readers"]).await.expect("the group");
    assert_eq!((described[0].state.as_str(), described[0].members.len()), ("Empty", 0));
}

async fn topics_are_created_described_and_deleted(bootstrap: &str) {
    let admin = admin(bootstrap);
    let topic = NewTopic::new("made").partitions(3).replication(1).config("retention.ms", "3600000");
    admin.create_topics(std::slice::from_ref(&topic)).await.expect("created");
    assert_eq!(admin.await_topic("made", PATIENCE).await.expect("known"), 3);
    let again = admin.create_topics(&[topic]).await.expect_err("it is there");
    assert!(again.to_string().contains("TOPIC_ALREADY_EXISTS"), "{again}");
    let described = admin.describe_topics(&["made"]).await.expect("described");
    assert_eq!(described[0].partitions.len(), 3);
    assert!(described[0].partitions.iter().all(|partition| partition.leader == Some(1)));
    let configs = admin.describe_topic_configs("made").await.expect("settings");
    let retention = configs.iter().find(|entry| entry.name == "retention.ms").expect("listed");
    assert_eq!((retention.value.as_deref(), retention.default), (Some("3600000"), false));
    let cluster = admin.describe_cluster().await.expect("described");
    assert_eq!((cluster.brokers.len(), cluster.controller), (1, Some(1)));
    // 0.11 does not know these requests: the error must identify the broker and the missing request.
    let error = admin.create_partitions("made", 4).await.expect_err("from 1.0 on");
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    assert!(error.to_string().contains("CreatePartitions: we speak"), "{error}");

    admin.delete_topics(&["made"]).await.expect("deleted");
    let gone = async {
        while admin.list_topics().await.expect("topics").iter().any(|listed| listed.name == "made") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("gone in time");
}

async fn offsets_are_listed_by_time(bootstrap: &str) {
    create(bootstrap, "times", 1).await;
    let producer = client(bootstrap, &[]).producer();
    for n in 0..5 {
        let record = Record::to("times").value("v").timestamp_ms(1_500_000_000_000 + n * 1_000);
        producer.send(record).await.expect("written");
    }
    let at = TopicPartition::new("times", 0);
    for (asked, offset) in [
        (OffsetAt::Earliest, 0),
        (OffsetAt::Latest, 5),
        (OffsetAt::Timestamp(1_500_000_001_500), 2),
        (OffsetAt::Timestamp(1_600_000_000_000), 5),
    ] {
        let listed = admin(bootstrap).list_offsets(&[(at.clone(), asked)]).await.expect("offsets");
        assert_eq!(listed[&at], offset, "{asked:?}");
    }
}

async fn transactions_commit_and_abort(bootstrap: &str) {
    for topic in ["orders", "invoices"] {
        create(bootstrap, topic, 1).await;
    }
    let producer = client(bootstrap, &[("transactional.id", "old")]).producer();
    producer.init_transactions(PATIENCE).await.expect("initialised");
    for (number, commits) in [(0, true), (1, false), (2, true)] {
        producer.begin_transaction().expect("ready");
        for topic in ["orders", "invoices"] {
            producer.send_unobserved(Record::to(topic).value(&number.to_string())).await.expect("taken");
        }
        if commits {
            producer.commit_transaction(PATIENCE).await.expect("committed");
        } else {
            producer.flush(PATIENCE).await.expect("written");
            producer.abort_transaction(PATIENCE).await.expect("aborted");
        }
    }
    for topic in ["orders", "invoices"] {
        let committed = client(bootstrap, &[("isolation.level", "read_committed")]);
        let values = |records: &[OwnedRecord]| -> Vec<_> {
            records.iter().map(|record| record.value.clone().expect("a value")).collect()
        };
        assert_eq!(values(&read(&committed, topic, 0, 2).await), ["0", "2"]);
        let all = client(bootstrap, &[("isolation.level", "read_uncommitted")]);
        assert_eq!(values(&read(&all, topic, 0, 3).await), ["0", "1", "2"]);
    }
}

async fn offsets_are_committed_in_a_transaction(bootstrap: &str) {
    create(bootstrap, "moved", 1).await;
    let settings =
        [("group.id", "movers"), ("enable.auto.commit", "false"), ("auto.offset.reset", "earliest")];
    let producer = client(bootstrap, &[("transactional.id", "mover")]).producer();
    producer.init_transactions(PATIENCE).await.expect("initialised");
    let mut consumer = client(bootstrap, &settings).consumer();
    let at = TopicPartition::new("moved", 0);
    producer.begin_transaction().expect("ready");
    producer.send(Record::to("moved").value("7")).await.expect("written");
    producer.commit_transaction(PATIENCE).await.expect("committed");
    consumer.subscribe(&["moved"]).await.expect("subscribed");
    assert_eq!(poll_values(&mut consumer, 1).await, [7]);

    let group = consumer.group_metadata().await.expect("a member");
    producer.begin_transaction().expect("ready");
    let offsets = BTreeMap::from([(at.clone(), 1)]);
    producer.send_offsets_to_transaction(&offsets, &group, PATIENCE).await.expect("with the transaction");
    producer.commit_transaction(PATIENCE).await.expect("committed");
    // The marker reaches the coordinator's partition after the commit's response.
    let arrived = async {
        while consumer.committed(std::slice::from_ref(&at)).await.expect("offsets").get(&at) != Some(&1) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, arrived).await.expect("committed in time");
    consumer.close(PATIENCE).await.expect("left the group");
}

async fn a_broker_that_is_not_asked_is_spoken_to_as_its_release(bootstrap: &str) {
    create(bootstrap, "unasked", 1).await;
    let settings = [NOT_ASKED, &[("group.id", "unasked"), ("auto.offset.reset", "earliest")]].concat();
    let client = client(bootstrap, &settings);
    let producer = client.producer();
    for n in 0..10 {
        producer.send(Record::to("unasked").value(&n.to_string())).await.expect("written");
    }
    let mut consumer = client.consumer();
    consumer.subscribe(&["unasked"]).await.expect("subscribed");
    assert_eq!(poll_values(&mut consumer, 10).await, (0..10).collect::<Vec<_>>());
    consumer.commit().await.expect("committed");
    consumer.close(PATIENCE).await.expect("left the group");
    let admin = client.admin();
    admin.describe_topic_configs("unasked").await.expect("settings");
    admin.delete_topics(&["unasked"]).await.expect("deleted");
}

async fn the_doctor_finds_nothing_wrong(bootstrap: &str) {
    // Beside other tests this controller takes seconds for a change.
    let patient = ["-X", "socket.timeout.ms=60000"];
    let doctor = ["doctor", "--json", "--write", "--brokers", bootstrap];
    let output = ottla(&[&doctor[..], &patient].concat(), b"").expect("a run");
    let text = output.stdout_text();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("speaks as Apache Kafka 0.11 or newer"), "{text}");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let steps = report["steps"].as_array().expect("steps");
    let names: Vec<_> = steps.iter().filter_map(|step| step["step"].as_str()).collect();
    for name in ["metadata", "advertised", "create-topic", "produce", "fetch", "delete-topic", "client"] {
        assert!(names.contains(&name), "{names:?}");
    }
}

async fn the_command_works(bootstrap: &str) {
    let command = |args: &[&str], stdin: &[u8]| {
        let output = ottla(&[args, &["--brokers", bootstrap]].concat(), stdin).expect("a run");
        output.succeeded().expect("success").lines()
    };
    command(&["topics", "create", "lines", "--partitions", "2"], b"");
    command(&["produce", "lines", "-K", ":"], b"a:1\nb:2\nc:3\n");
    let consume = ["consume", "lines", "--from", "beginning", "--exit-at-end", "--format", "%k=%s\n"];
    let mut read = command(&consume, b"");
    read.sort();
    assert_eq!(read, ["a=1", "b=2", "c=3"]);
    let read = command(&[&consume[..], &["--group", "of-the-command"]].concat(), b"");
    assert_eq!(read.len(), 3);
    assert!(command(&["topics", "describe", "lines"], b"").iter().any(|line| line.contains("lines")));
    assert!(command(&["groups", "list"], b"").iter().any(|line| line.contains("of-the-command")));
    command(&["groups", "describe", "of-the-command"], b"");
    command(&["topics", "delete", "lines"], b"");
}

fn run(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(story);
}

fn client(bootstrap: &str, properties: &[(&str, &str)]) -> Client {
    let mut config = Config::new(bootstrap);
    config.set_all(properties.iter().copied()).expect("valid properties");
    Client::new(config).expect("a client")
}

fn admin(bootstrap: &str) -> Admin {
    client(bootstrap, &[]).admin()
}

async fn create(bootstrap: &str, topic: &str, partitions: i32) {
    let admin = admin(bootstrap);
    // Explicit numbers: brokers before 2.4 have no defaults in this request.
    admin.create_topics(&[NewTopic::new(topic).partitions(partitions)]).await.expect("created");
    admin.await_topic(topic, PATIENCE).await.expect("known to the broker");
}

/// The first `count` records of a partition; fails if more follow.
async fn read(client: &Client, topic: &str, partition: i32, count: usize) -> Vec<OwnedRecord> {
    let mut consumer = client.consumer();
    consumer.assign(&[(TopicPartition::new(topic, partition), StartAt::Beginning)]).await.expect("assigned");
    let mut records = Vec::new();
    while records.len() < count {
        match consumer.poll(PATIENCE).await.expect("a poll without error") {
            Some(Polled::Records(batch)) => records.extend(batch.to_owned_records().expect("sound records")),
            Some(_) => {}
            None => panic!("{} of {count} records of {topic}", records.len()),
        }
    }
    assert_eq!(records.len(), count);
    records
}

async fn poll_values(consumer: &mut Consumer, count: usize) -> Vec<i32> {
    let mut values = Vec::new();
    while values.len() < count {
        match consumer.poll(PATIENCE).await.expect("a poll without error") {
            Some(Polled::Records(batch)) => {
                for record in batch.to_owned_records().expect("sound records") {
                    let value = record.value.expect("a value");
                    values.push(
                        std::str::from_utf8(&value)
                            .ok()
                            .and_then(|text| text.parse().ok())
                            .expect("a number"),
                    );
                }
            }
            Some(_) => {}
            None => panic!("{} of {count} records", values.len()),
        }
    }
    values
}
