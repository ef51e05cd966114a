//! A short story of a producer, a reader and a group member, in which one connection breaks after a given byte.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ottla_broker::{Broker, Clock, Durability, Syncer};
use ottla_client::{Client, Config, Consumer, OffsetReset, Polled, Record, StartAt, TopicPartition};
use ottla_log::storage::mem::MemStorage;
use ottla_testkit::{EPOCH_MS, Network, NetworkFaults, PlannedCut, Trace};
use tokio::task::JoinSet;

use crate::topics::TOPICS;

const TOPIC: &str = TOPICS[0];
const PARTITIONS: i32 = 2;
/// Records of each partition, which are sent in rounds.
const ROUNDS: i64 = 4;
const GROUP: &str = "billing";
/// Virtual time for each part of the story. It covers the time-outs of connections that stall.
const WITHIN: Duration = Duration::from_secs(120);

/// The bytes of each connection: to the broker, and back.
pub type Traffic = BTreeMap<u64, [u64; 2]>;

/// Runs the story. The traffic of a run without a cut has the positions where connections can be cut.
///
/// # Errors
/// The first wrong result of a client: a record that is lost, doubled or out of order, a commit that is lost, or no end in time.
pub fn run(cut: Option<PlannedCut>) -> Result<Traffic, String> {
    ottla_testkit::run(7, async |_| scenario(cut).await)
}

async fn scenario(cut: Option<PlannedCut>) -> Result<Traffic, String> {
    let net = Network::new(7, NetworkFaults::none(Duration::from_micros(100)), Trace::begin(false));
    let broker = Broker::builder()
        .storage(Arc::new(MemStorage::new()))
        .nodes(1)
        .no_listener()
        .clock(Clock::Fixed(Arc::new(EPOCH_MS.into())))
        .syncer(Syncer::Inline(Duration::ZERO))
        .seed(7)
        .configure(|config| config.durability = Durability::Os)
        .topic(TOPIC, PARTITIONS)
        .start()
        .await
        .expect("an empty disk is fine");
    let mut tasks = JoinSet::new();
    tasks.spawn_local(net.serve(broker.cluster(), 1));
    if let Some(cut) = cut {
        net.plan_cut(cut);
    }
    in_time("the producer", produce(&net)).await?;
    in_time("the reader", read(&net)).await?;
    in_time("the member", consume(&net)).await?;
    in_time("the committed offsets", check_committed(&net)).await?;
    tasks.shutdown().await;
    if let Some(why) = net.frozen() {
        return Err(why);
    }
    Ok(net.traffic())
}

async fn in_time<V>(who: &str, part: impl Future<Output = Result<V, String>>) -> Result<V, String> {
    let done = tokio::time::timeout(WITHIN, part).await;
    done.unwrap_or_else(|_| Err(format!("no end within {WITHIN:?}"))).map_err(|why| format!("{who}: {why}"))
}

/// A client with its engine, which ends with the set.
fn client(net: &Network, name: &str) -> Result<(Client, JoinSet<()>), String> {
    let mut config = Config::new("node-1:9092");
    name.clone_into(&mut config.client_id);
    config.socket_timeout = Duration::from_secs(3);
    config.auto_offset_reset = OffsetReset::Earliest;
    config.enable_auto_commit = false;
    // A JoinGroup request waits for other members this long, also on a connection that has stalled.
    config.max_poll_interval = Duration::from_secs(10);
    config.session_timeout = Duration::from_secs(6);
    if name == GROUP {
        config.group_id = Some(GROUP.to_owned());
    }
    let (client, engine) = Client::with_engine(config, Arc::new(net.clone()), 7).map_err(text)?;
    let mut tasks = JoinSet::new();
    tasks.spawn_local(async move { drop(engine.run().await) });
    Ok((client, tasks))
}

async fn produce(net: &Network) -> Result<(), String> {
    let (client, _tasks) = client(net, "producer")?;
    let producer = client.producer();
    for round in 0..ROUNDS {
        let mut deliveries = Vec::new();
        for partition in 0..PARTITIONS {
            let value = round.to_string();
            let record = Record::to(TOPIC).partition(partition).value(&value).timestamp_ms(EPOCH_MS);
            deliveries.push(producer.enqueue(record).await.map_err(text)?);
        }
        for delivery in deliveries {
            let written = delivery.await.map_err(text)?;
            if written.offset != Some(round) {
                return Err(format!("record {round} is at {:?}", written.offset));
            }
        }
    }
    Ok(())
}

fn partitions() -> Vec<TopicPartition> {
    (0..PARTITIONS).map(|partition| TopicPartition::new(TOPIC, partition)).collect()
}

async fn read(net: &Network) -> Result<(), String> {
    let (client, _tasks) = client(net, "reader")?;
    let mut consumer = client.consumer();
    let all: Vec<_> = partitions().into_iter().map(|partition| (partition, StartAt::Beginning)).collect();
    consumer.assign(&all).await.map_err(text)?;
    let mut next = vec![0; PARTITIONS as usize];
    while next.iter().any(|next| *next < ROUNDS) {
        for (partition, value) in poll(&mut consumer).await {
            if value != next[partition] {
                return Err(format!("partition {partition}: {value} instead of {}", next[partition]));
            }
            next[partition] += 1;
        }
    }
    Ok(())
}

/// The values of one poll. Errors are the application's to see, and the next poll continues.
async fn poll(consumer: &mut Consumer) -> Vec<(usize, i64)> {
    match consumer.poll(Duration::from_millis(500)).await {
        Ok(Some(Polled::Records(batch))) => {
            let records = batch.to_owned_records().unwrap_or_default();
            let value = |bytes: &[u8]| std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
            let values = records.iter().map(|record| record.value.as_deref().and_then(value).unwrap_or(-1));
            values.map(|value| (batch.partition() as usize, value)).collect()
        }
        Ok(_) => Vec::new(),
        Err(_) => {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Vec::new()
        }
    }
}

/// Reads everything as a group member and commits at the end. A member that lost its membership may read records again.
async fn consume(net: &Network) -> Result<(), String> {
    let (client, _tasks) = client(net, GROUP)?;
    let mut consumer = client.consumer();
    consumer.subscribe(&[TOPIC]).await.map_err(text)?;
    let mut next = vec![0; PARTITIONS as usize];
    loop {
        for (partition, value) in poll(&mut consumer).await {
            if value > next[partition] {
                return Err(format!("partition {partition}: {value} instead of {}", next[partition]));
            }
            next[partition] = next[partition].max(value + 1);
        }
        if next.iter().all(|next| *next == ROUNDS) && consumer.commit().await.is_ok() {
            break;
        }
    }
    // Its connection may be cut while it leaves; the session would end then.
    let _ = consumer.close(Duration::from_secs(10)).await;
    Ok(())
}

async fn check_committed(net: &Network) -> Result<(), String> {
    let (client, _tasks) = client(net, GROUP)?;
    let consumer = client.consumer();
    loop {
        if let Ok(committed) = consumer.committed(&partitions()).await {
            let expected: BTreeMap<_, _> =
                partitions().into_iter().map(|partition| (partition, ROUNDS)).collect();
            return if committed == expected { Ok(()) } else { Err(format!("{committed:?} are committed")) };
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
