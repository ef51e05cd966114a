//! Connections to Apache Kafka with TLS, SCRAM and a transaction are cut after chosen bytes, in both directions: each
//! transaction commits once.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

#[path = "cutting/exact.rs"]
mod exact;

use std::sync::Arc;
use std::time::Duration;

use exact::{ExactCut, Plan};
use ottla_client::{
    Admin, Client, Config, Consumer, Isolation, Mechanism, NewTopic, OffsetAt, Polled, Record, Secret,
    SecurityProtocol, StartAt, TopicPartition,
};
use ottla_interop::{Failure, KafkaCluster, Peer, require};

use crate::peers::certificates::Authority;
use crate::peers::{PASSWORD, start};

const TOPIC: &str = "cuts";
const PATIENCE: Duration = Duration::from_secs(60);
/// Step between the bytes that are tried; `cargo xtask soak kafka-cuts` tries more.
const STRIDE: usize = 293;
const RECORDS: usize = 3;

#[test]
fn a_transaction_over_tls_and_scram_survives_a_cut_after_any_byte() -> Result<(), Failure> {
    require!(Peer::Java);
    let stride = std::env::var("OTTLA_CUT_STRIDE").map_or(STRIDE, |text| text.parse().expect("a step"));
    let files = tempfile::tempdir().map_err(|error| Failure::new(error.to_string()))?;
    let authority = Authority::new("authority");
    let kafka = start(&authority, files.path())?;
    let config = login(&kafka, &authority);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(|error| Failure::new(error.to_string()))?.block_on(async {
        let admin = Admin::new(config.clone()).expect("an admin");
        admin.create_topics(&[NewTopic::new(TOPIC).partitions(1).replication(1)]).await.expect("created");
        admin.await_topic(TOPIC, PATIENCE).await.expect("known to the broker");
        // The first run starts the transaction coordinator.
        transact(&config, 0, None).await;
        let traffic = transact(&config, 1, None).await;
        let plans = traffic.iter().enumerate().flat_map(|(connection, bytes)| {
            let of = move |way| (0..=bytes[way]).map(move |after| Plan { connection, way, after });
            of(0).chain(of(1))
        });
        let all: Vec<Plan> = plans.collect();
        let mut runs = 2;
        for plan in all.iter().step_by(stride) {
            transact(&config, runs, Some(*plan)).await;
            runs += 1;
        }
        println!("{} connections, {} of {} cuts", traffic.len(), runs - 2, all.len());
        let expected: Vec<String> =
            (0..runs).flat_map(|run| (0..RECORDS).map(move |number| format!("{run}.{number}"))).collect();
        assert_eq!(committed(&config).await, expected);
    });
    Ok(())
}

fn login(kafka: &KafkaCluster, authority: &Authority) -> Config {
    let mut config = Config::new(kafka.listener("LOGIN").to_string());
    config.security.protocol = SecurityProtocol::SaslSsl;
    config.security.tls.ca_pem = Some(authority.pem.clone());
    config.security.sasl.mechanism = Some(Mechanism::ScramSha256);
    config.security.sasl.username = Some("alice".into());
    config.security.sasl.password = Some(Secret::new(PASSWORD));
    config.retry_backoff = Duration::from_millis(10);
    config.reconnect_backoff = Duration::from_millis(10);
    config.isolation_level = Isolation::ReadCommitted;
    config
}

/// One transaction of a new client. Returns the bytes of each connection.
async fn transact(config: &Config, run: usize, plan: Option<Plan>) -> Vec<[u64; 2]> {
    let connector = Arc::new(ExactCut::new(plan));
    let mut config = config.clone();
    config.set("transactional.id", &format!("cut-{run}")).expect("a name");
    let client = Client::with_connector(config, connector.clone()).expect("a client");
    let producer = client.producer();
    let done = async {
        producer.init_transactions(PATIENCE).await.map_err(|error| error.to_string())?;
        producer.begin_transaction().map_err(|error| error.to_string())?;
        for number in 0..RECORDS {
            let value = format!("{run}.{number}");
            let sent = producer.send(Record::to(TOPIC).value(&value)).await;
            sent.map_err(|error| error.to_string())?;
        }
        producer.commit_transaction(PATIENCE).await.map_err(|error| error.to_string())
    };
    let done: Result<(), String> = done.await;
    if let Err(error) = done {
        panic!("run {run}, {plan:?}: {error}");
    }
    connector.traffic()
}

/// The values of all committed transactions, in order.
async fn committed(config: &Config) -> Vec<String> {
    let admin = Admin::new(config.clone()).expect("an admin");
    let at = TopicPartition::new(TOPIC, 0);
    let ends = admin.list_offsets(&[(at.clone(), OffsetAt::Latest)]).await.expect("the end");
    let mut consumer = Consumer::new(config.clone()).expect("a consumer");
    consumer.assign(&[(at.clone(), StartAt::Beginning)]).await.expect("assigned");
    let mut values = Vec::new();
    let reading = async {
        while consumer.positions().get(&at).is_none_or(|position| *position < ends[&at]) {
            let polled = consumer.poll(Duration::from_millis(100)).await.expect("a poll without error");
            let Some(Polled::Records(batch)) = polled else { continue };
            values.extend(batch.iter().map(|record| {
                let value = record.expect("a sound record").value.expect("a value");
                String::from_utf8_lossy(value).into_owned()
            }));
        }
    };
    let done = tokio::time::timeout(PATIENCE, reading).await;
    assert!(done.is_ok(), "{} values in time", values.len());
    values
}
