//! Statistics under load: they fit their schema, agree with each other, and agree with what the broker saw.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads and files")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ottla_broker::{Broker, BrokerThread, Fault};
use ottla_client::statistics::{Snapshot, Window};
use ottla_client::{Client, Config, ErrorCode, OffsetAndMetadata, Polled, Record, StartAt, TopicPartition};
use ottla_protocol::ApiKey;
use serde_json::Value;

/// The time limit for all records to be delivered and read.
const PATIENCE: Duration = Duration::from_secs(30);
const RECORDS: u64 = 20_000;

fn client(broker: &BrokerThread, properties: &[(&str, &str)]) -> Client {
    let mut config = Config::new(broker.bootstrap_servers());
    config.set_all(properties.iter().copied()).expect("valid properties");
    Client::new(config).expect("a client")
}

/// Collects snapshots until `is_last` accepts one, and returns all of them in order.
fn snapshots(client: &Client, is_last: impl Fn(&Snapshot) -> bool) -> Vec<Arc<Snapshot>> {
    let statistics = client.statistics();
    let mut all = Vec::new();
    for _ in 0..600 {
        let snapshot = statistics.next_blocking(PATIENCE).expect("one each interval");
        all.push(snapshot.clone());
        if is_last(&snapshot) {
            return all;
        }
    }
    panic!("not seen within {} intervals: {}", all.len(), all.last().expect("some").to_json());
}

/// The sum of each window over all snapshots; windows restart with each interval.
fn total<'a>(windows: impl Iterator<Item = &'a Window>) -> (u64, u64) {
    windows.fold((0, 0), |(cnt, sum), window| (cnt + window.cnt, sum + window.sum))
}

fn assert_sound(window: &Window) {
    let ordered =
        [window.min, window.p50, window.p75, window.p90, window.p95, window.p99, window.p99_99, window.max];
    assert!(ordered.is_sorted(), "{window:?}");
    assert!((window.cnt == 0) == (window.hdrsize == 0) || window.cnt == 0, "{window:?}");
    assert_eq!(window.outofrange, 0);
    if let Some(average) = window.sum.checked_div(window.cnt) {
        assert_eq!(window.avg, average);
        assert!(window.min <= average && average <= window.max);
    }
}

/// They were in no topic, and the client's sum was zero.
#[test]
fn records_count_before_the_first_metadata() {
    let closed =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let mut config = Config::new(closed.to_string());
    config.set("statistics.interval.ms", "100").expect("a property");
    let client = Client::new(config).expect("a client");
    let producer = client.producer();
    for _ in 0..10 {
        producer.send_unobserved_blocking(Record::to("orders").value("a record")).expect("taken");
    }
    let all = snapshots(&client, |it| it.msg_cnt == 10);
    let last = all.last().expect("the last");
    assert_eq!(last.topics["orders"].partitions["-1"].msgq_cnt, 10, "{}", last.to_json());
}

#[test]
fn the_numbers_under_load_agree_with_each_other_and_with_the_broker() {
    let broker = Broker::builder().memory().topic("orders", 3).spawn().expect("a broker in memory");
    let served = broker.cluster();
    assert_eq!(served.requests(ApiKey::Produce), 0);
    let client = client(&broker, &[("statistics.interval.ms", "50"), ("batch.num.messages", "500")]);
    let producer = client.producer();
    let orders = producer.topic("orders");
    for n in 0..RECORDS {
        orders
            .send_unobserved_blocking(Record::to("orders").partition((n % 3) as i32).value("a record"))
            .expect("taken");
    }
    producer.flush_blocking(PATIENCE).expect("all acknowledged");

    let all = snapshots(&client, |it| it.txmsgs == RECORDS && it.msg_cnt == 0);
    let last = all.last().expect("the last");
    let partitions: Vec<_> = last.topics["orders"].partitions.values().collect();
    assert_eq!(partitions.len(), 3);
    assert_eq!(partitions.iter().map(|partition| partition.txmsgs).sum::<u64>(), RECORDS);
    assert_eq!(partitions.iter().map(|partition| partition.txbytes).sum::<u64>(), last.txmsg_bytes);
    assert!(
        partitions.iter().all(|partition| partition.txmsgs == partition.msgs && partition.msgs_inflight == 0)
    );

    let topics = || all.iter().filter_map(|snapshot| snapshot.topics.get("orders"));
    let (batches, records) = total(topics().map(|topic| &topic.batchcnt));
    assert_eq!(records, RECORDS);
    assert_eq!(total(topics().map(|topic| &topic.batchsize)), (batches, last.txmsg_bytes));

    let brokers = || all.iter().flat_map(|snapshot| snapshot.brokers.values());
    assert_eq!(total(brokers().map(|broker| &broker.int_latency)).0, RECORDS, "weighted by records");
    let produced = served.requests(ApiKey::Produce);
    let of_last: Vec<_> = last.brokers.values().collect();
    assert_eq!(of_last.iter().filter_map(|broker| broker.req.get("Produce")).sum::<u64>(), produced);
    assert!(produced <= batches, "a request has a batch at least");
    assert_eq!(total(brokers().map(|broker| &broker.throttle)).0, produced);
    assert!(last.tx >= produced && last.tx == last.rx, "every request was answered");
    assert_eq!(of_last.iter().map(|broker| broker.tx).sum::<u64>(), last.tx);
    assert_eq!(total(brokers().map(|broker| &broker.rtt)).0, last.rx);
    assert_eq!(total(brokers().map(|broker| &broker.outbuf_latency)).0, last.tx);
    assert!(last.tx_bytes > last.txmsg_bytes && last.rx_bytes > 0);
    for window in brokers().flat_map(|it| [&it.int_latency, &it.outbuf_latency, &it.rtt, &it.throttle]) {
        assert_sound(window);
    }
    for window in topics().flat_map(|it| [&it.batchsize, &it.batchcnt]) {
        assert_sound(window);
    }
    let leader = of_last.iter().find(|broker| broker.nodeid == partitions[0].leader).expect("it leads");
    assert_eq!((leader.state.as_str(), leader.toppars.len()), ("UP", 3));
    assert_eq!(last.eos.as_ref().expect("idempotent").idemp_state, "Assigned");
    // Counters never decrease.
    assert!(all.is_sorted_by_key(|it| (it.txmsgs, it.age)) && all.is_sorted_by_key(|it| it.tx));
    for snapshot in &all {
        assert_valid(snapshot);
    }
    assert!(!client.prometheus_text().is_empty());
}

#[test]
fn share_consumers_are_counted_together_and_after_their_end() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let client = client(&broker, &[("statistics.interval.ms", "50"), ("group.id", "billing")]);
    let before = snapshots(&client, |_| true);
    assert!(before[0].share.is_none(), "{}", before[0].to_json());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for round in 1..=2 {
        let mut consumer = client.share_consumer().expect("a group");
        runtime.block_on(consumer.subscribe(&["orders"])).expect("subscribed");
        // A group begins with the next record.
        while consumer.acquisition_lock_timeout().is_none() {
            consumer.poll_blocking(Duration::from_millis(50)).expect("no error");
        }
        let delivery = client.producer().try_enqueue(Record::to("orders").value("a record")).expect("taken");
        delivery.wait(PATIENCE).expect("in time").expect("written");
        let batch = consumer.poll_blocking(PATIENCE).expect("no error").expect("in time");
        assert_eq!(batch.len(), 1);
        drop(batch);
        for (_, result) in consumer.commit_blocking(PATIENCE).expect("answered") {
            result.expect("stored");
        }
        consumer.close_blocking(PATIENCE).expect("closed");
        let is_all = |snapshot: &Snapshot| snapshot.share.as_ref().is_some_and(|it| it.acknowledged == round);
        let all = snapshots(&client, is_all);
        let last = all.last().expect("the last");
        let share = last.share.as_ref().expect("a share consumer");
        assert_eq!((share.records, share.batches, share.failed), (round, round, 0));
        assert_eq!(last.client_type, "consumer");
        assert_valid(last);
        assert!(client.prometheus_text().contains("ottla_share_acknowledged_records_total{"));
    }
}

#[test]
fn what_is_polled_is_counted_and_lag_goes_to_nothing() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let client = client(&broker, &[("statistics.interval.ms", "50")]);
    let producer = client.producer();
    let orders = producer.topic("orders");
    for _ in 0..1000 {
        orders.send_unobserved_blocking(Record::to("orders").value("a record")).expect("taken");
    }
    producer.flush_blocking(PATIENCE).expect("acknowledged");
    let mut consumer = client.consumer();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let at = [(TopicPartition::new("orders", 0), StartAt::Offset(400))];
    runtime.block_on(consumer.assign(&at)).expect("assigned");
    let mut polled = 0;
    while polled < 600 {
        if let Some(Polled::Records(batch)) = consumer.poll_blocking(PATIENCE).expect("no error") {
            polled += batch.iter().count();
        }
    }
    // The records of the last batch are processed when the next one is wanted.
    assert!(consumer.poll_blocking(Duration::from_millis(1)).expect("no error").is_none());
    let all = snapshots(&client, |it| {
        it.rxmsgs >= 600 && it.topics["orders"].partitions["0"].consumer_lag_stored == 0
    });
    let last = all.last().expect("the last");
    let partition = &last.topics["orders"].partitions["0"];
    assert_eq!((last.rxmsgs, partition.rxmsgs, partition.msgs), (600, 600, 600));
    assert_eq!((partition.app_offset, partition.hi_offset, partition.lo_offset), (1000, 1000, 0));
    assert_eq!((partition.stored_offset, partition.eof_offset, partition.ls_offset), (1000, 1000, 1000));
    assert_eq!((partition.committed_offset, partition.consumer_lag), (-1001, -1), "there is no group");
    assert_eq!((last.client_type.as_str(), partition.fetch_state.as_str()), ("consumer", "active"));
    assert!(last.rxmsg_bytes > 0);
    assert_valid(last);
}

#[test]
fn a_group_s_lag_counts_from_its_committed_offset() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let properties =
        [("statistics.interval.ms", "20"), ("group.id", "readers"), ("enable.auto.commit", "false")];
    let client = client(&broker, &properties);
    let orders = client.producer().topic("orders");
    for _ in 0..10 {
        orders.send_unobserved_blocking(Record::to("orders").value("a record")).expect("taken");
    }
    client.producer().flush_blocking(PATIENCE).expect("acknowledged");
    let mut consumer = client.consumer();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let at = [(TopicPartition::new("orders", 0), StartAt::Beginning)];
    runtime.block_on(consumer.assign(&at)).expect("assigned");
    let mut polled = 0;
    while polled < 10 {
        if let Some(Polled::Records(batch)) = consumer.poll_blocking(PATIENCE).expect("no error") {
            polled += batch.iter().count();
        }
    }
    let offset = OffsetAndMetadata::from(4);
    runtime.block_on(consumer.commit_offsets(&[(at[0].0.clone(), offset)])).expect("committed");
    // The first snapshots can be older than the topic.
    let is_committed = |it: &Snapshot| {
        let partition = it.topics.get("orders").and_then(|topic| topic.partitions.get("0"));
        partition.is_some_and(|partition| partition.committed_offset == 4)
    };
    let all = snapshots(&client, is_committed);
    let partition = &all.last().expect("the last").topics["orders"].partitions["0"];
    assert_eq!((partition.consumer_lag, partition.commited_offset), (6, 4));
}

/// The states come from the state machine itself.
#[test]
fn the_idempotent_producer_says_where_it_stands() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let cluster = broker.cluster();
    let properties =
        [("statistics.interval.ms", "20"), ("enable.gapless.guarantee", "true"), ("retry.backoff.ms", "5")];
    let client = client(&broker, &properties);
    let producer = client.producer();
    let send = || producer.try_enqueue(Record::to("orders").value("v"));
    let eos = |snapshot: &Snapshot| snapshot.eos.clone().expect("idempotent");
    let state = |wanted: &'static str| move |snapshot: &Snapshot| eos(snapshot).idemp_state == wanted;
    let last = |all: Vec<Arc<Snapshot>>| eos(all.last().expect("one at least"));

    let begun = last(snapshots(&client, state("Init")));
    assert_eq!((begun.producer_id, begun.producer_epoch, begun.epoch_cnt), (-1, -1, 0));
    assert!(begun.txn_state == "Init" && !begun.txn_may_enq);
    cluster.intercept(ApiKey::InitProducerId, None, 1, Fault::Delay(Duration::from_millis(200)));
    let first = send().expect("taken");
    snapshots(&client, state("WaitPID"));
    first.wait(PATIENCE).expect("in time").expect("written");
    let assigned = last(snapshots(&client, state("Assigned")));
    assert!(assigned.producer_id >= 0 && assigned.idemp_stateage >= 0);
    assert_eq!((assigned.producer_epoch, assigned.epoch_cnt), (0, 1));

    // The broker has lost the producer's state: the partition's batches continue under the next epoch.
    cluster.intercept(ApiKey::Produce, None, 1, Fault::Fail(ErrorCode::OutOfOrderSequenceNumber));
    send().expect("taken").wait(PATIENCE).expect("in time").expect("written");
    let raised = last(snapshots(&client, |snapshot| eos(snapshot).producer_epoch == 1));
    assert_eq!((raised.producer_id, raised.epoch_cnt), (assigned.producer_id, 2));

    cluster.intercept(ApiKey::Produce, None, 1, Fault::Fail(ErrorCode::MessageTooLarge));
    send().expect("taken").wait(PATIENCE).expect("in time").expect_err("refused");
    snapshots(&client, state("FatalError"));
}

#[test]
fn prometheus_gets_the_same_numbers() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let client = client(&broker, &[("statistics.interval.ms", "50")]);
    let producer = client.producer();
    let delivery = producer.try_enqueue(Record::to("orders").value("x")).expect("taken");
    delivery.wait(PATIENCE).expect("in time").expect("written");
    snapshots(&client, |it| it.txmsgs == 1);
    let text = client.prometheus_text();
    let mut known = std::collections::BTreeSet::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, kind) = head.split_once(' ').expect("a name and a kind");
            assert!(known.insert(name.to_owned()), "{name} is said twice");
            assert!(["counter", "gauge", "summary"].contains(&kind));
        } else if !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').expect("a series and a value");
            value.parse::<f64>().expect("a number");
            let name = series.split('{').next().expect("a name");
            let family = name.trim_end_matches("_sum").trim_end_matches("_count");
            assert!(known.contains(family), "{line}");
        }
    }
    let value = |start: &str, labels: &str| {
        let found = text.lines().find(|line| line.starts_with(start) && line.contains(labels));
        found.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    assert_eq!(value("ottla_partition_sent_records_total{", "partition=\"0\""), Some(1));
    assert_eq!(value("ottla_topic_batch_records_count{", "topic=\"orders\""), Some(1));
    assert!(text.contains("ottla_broker_rtt_microseconds{") && text.contains("quantile=\"0.99\""));
}

#[test]
fn nothing_is_given_while_the_interval_is_0() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let client = client(&broker, &[]);
    let delivery = client.producer().try_enqueue(Record::to("orders").value("x")).expect("taken");
    delivery.wait(PATIENCE).expect("in time").expect("written");
    assert!(client.statistics().next_blocking(Duration::from_millis(200)).is_none());
    assert!(client.prometheus_text().is_empty());
}

/// Validates the JSON against docs/statistics-schema.json, and reads it back.
fn assert_valid(snapshot: &Snapshot) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/statistics-schema.json");
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("the schema")).expect("JSON");
    let json = snapshot.to_json();
    let value: Value = serde_json::from_str(&json).expect("JSON");
    validate(&schema, &schema, &value, "$").unwrap_or_else(|why| panic!("{why} in {json}"));
    let read: Snapshot = serde_json::from_str(&json).expect("it reads back");
    assert_eq!(read.to_json(), json);
}

/// Validates the parts of JSON Schema that the schema uses.
fn validate(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    if let Some(target) = schema["$ref"].as_str() {
        let target =
            root.pointer(target.trim_start_matches('#')).ok_or_else(|| format!("{target} is nowhere"))?;
        return validate(root, target, value, at);
    }
    let kind = schema["type"].as_str().ok_or_else(|| format!("{at}: the schema has no type"))?;
    let fits = match kind {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "object" => value.is_object(),
        other => return Err(format!("{at}: the type {other}")),
    };
    if !fits {
        return Err(format!("{at} is no {kind}"));
    }
    if let (Some(min), Some(number)) = (schema["minimum"].as_i64(), value.as_i64())
        && number < min
    {
        return Err(format!("{at} is below {min}"));
    }
    let Some(members) = value.as_object() else { return Ok(()) };
    for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !members.contains_key(required) {
            return Err(format!("{at}.{required} is missing"));
        }
    }
    for (key, member) in members {
        let of_key = &schema["properties"][key];
        let member_schema = if of_key.is_null() { &schema["additionalProperties"] } else { of_key };
        if !member_schema.is_object() {
            return Err(format!("{at}.{key} is not in the schema"));
        }
        validate(root, member_schema, member, &format!("{at}.{key}"))?;
    }
    Ok(())
}
