//! One API that always fails with one error: a client must not send requests faster than its backoff allows.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ottla_broker::{ApiKey, Broker, Clock, Cluster, Durability, ErrorCode, Fault, Syncer};
use ottla_client::{Client, Config, OffsetReset, Polled, Record};
use ottla_log::storage::mem::MemStorage;
use ottla_testkit::{EPOCH_MS, Network, NetworkFaults, Trace};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::rates::{BusiestWindow, Rates};
use crate::topics::TOPICS;

/// The APIs that a producer, a group member and a member of a share group use.
pub const APIS: [ApiKey; 17] = [
    ApiKey::ApiVersions,
    ApiKey::Fetch,
    ApiKey::FindCoordinator,
    ApiKey::Heartbeat,
    ApiKey::InitProducerId,
    ApiKey::JoinGroup,
    ApiKey::LeaveGroup,
    ApiKey::ListOffsets,
    ApiKey::Metadata,
    ApiKey::OffsetCommit,
    ApiKey::OffsetFetch,
    ApiKey::OffsetForLeaderEpoch,
    ApiKey::Produce,
    ApiKey::ShareAcknowledge,
    ApiKey::ShareFetch,
    ApiKey::ShareGroupHeartbeat,
    ApiKey::SyncGroup,
];
/// Virtual time without faults, so that every dialogue has started.
const HEALTHY: Duration = Duration::from_millis(500);
/// Virtual duration of the fault.
const FAULTY: Duration = Duration::from_secs(5);
/// Of that time, the member that joins late leaves after this part.
const LATE_MEMBER: Duration = Duration::from_millis(4000);
const PARTITIONS: i32 = 3;
/// The producer, the reader and the two kinds of members, and those of the first three that begin late.
const CLIENTS: u64 = 7;
/// Sessions of share groups as short as those of the group member.
const QUICK_SHARE_GROUPS: [(&str, &str); 5] = [
    // The wall clock does not advance.
    ("group.share.assignment.interval.ms", "0"),
    ("group.share.min.session.timeout.ms", "1000"),
    ("group.share.session.timeout.ms", "2000"),
    ("group.share.min.heartbeat.interval.ms", "100"),
    ("group.share.heartbeat.interval.ms", "100"),
];
const TOPIC: &str = TOPICS[0];
const LATE_MEMBER_NAME: &str = "late-member";

/// The number of requests while one API failed.
#[derive(Debug)]
pub struct ErrorReport {
    /// The largest number of requests of any API in one window.
    pub busiest: BusiestWindow,
    /// Requests of the failing API that moved no records.
    pub requests: u64,
    /// All requests of the failing API.
    pub met: u64,
    /// The faults that no request has met, if their number was limited.
    pub unmet: usize,
    /// Records that the reader received meanwhile.
    pub records: u64,
    /// The records that moved after the connections were cut, in the second half of the time.
    pub late: Moved,
    /// The reason why the traffic was stopped, if it was.
    pub frozen: Option<String>,
}

/// Records that were appended, and received by each consumer.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// Records in the log.
    pub appended: i64,
    /// Records that the reader received.
    pub read: u64,
    /// Records that the group member received.
    pub consumed: u64,
    /// Records that the member of the share group received.
    pub shared: u64,
}

/// Runs the same with an API that fails once.
pub fn run_with_error_once(api: ApiKey, fault: Fault, seed: u64) -> ErrorReport {
    run(api, seed, PARTITIONS, |cluster| cluster.intercept(api, None, 1, fault))
}

/// Runs a producer, a reader, a group member and a member of a share group against a broker whose `api` fails with `fault` after some time.
///
/// Then another producer, reader and member begin, partitions get new leader epochs, and the second member leaves: so every API of
/// [`APIS`] is used while it fails.
pub fn run_with_error(api: ApiKey, fault: Fault, seed: u64) -> ErrorReport {
    run(api, seed, PARTITIONS, |cluster| cluster.intercept(api, None, u32::MAX, fault))
}

/// Like `run_with_error`, with a broker whose fetch responses report an error for the last partition: a requested one, or
/// (`requested: false`) one that the reader did not request.
pub fn run_with_fetch_error(code: ErrorCode, requested: bool, seed: u64) -> ErrorReport {
    let read = if requested { PARTITIONS } else { PARTITIONS - 1 };
    run(ApiKey::Fetch, seed, read, |cluster| cluster.set_fetch_error(TOPIC, PARTITIONS - 1, code))
}

fn run(api: ApiKey, seed: u64, read: i32, fail: impl FnOnce(&Cluster)) -> ErrorReport {
    ottla_testkit::run(seed, async |_| scenario(api, seed, read, fail).await)
}

async fn scenario(api: ApiKey, seed: u64, read: i32, fail: impl FnOnce(&Cluster)) -> ErrorReport {
    let trace = Trace::begin(false);
    let net = Network::new(seed, NetworkFaults::none(Duration::from_micros(100)), trace);
    let rates = Rates::new(net.clone());
    let broker = Broker::builder()
        .storage(Arc::new(MemStorage::new()))
        .nodes(1)
        .no_listener()
        .clock(Clock::Fixed(Arc::new(EPOCH_MS.into())))
        .syncer(Syncer::Inline(Duration::ZERO))
        .seed(seed)
        .configure(|config| {
            config.durability = Durability::Os;
            for (name, value) in QUICK_SHARE_GROUPS {
                config.set(name, value).expect("a value in range");
            }
        })
        .topic(TOPIC, PARTITIONS)
        .start()
        .await
        .expect("an empty disk is fine");
    broker.cluster().observe_requests(Arc::new(rates.clone()));
    let cluster = broker.cluster();
    let mut tasks = JoinSet::new();
    tasks.spawn_local(net.serve(cluster.clone(), 1));
    let clients = Clients { net: net.clone(), seed };
    tasks.spawn_local(produce(clients.clone(), "producer"));
    let records = Rc::new(Cell::new(0));
    tasks.spawn_local(consume(clients.clone(), "reader", read, None, records.clone()));
    let consumed = Rc::new(Cell::new(0));
    tasks.spawn_local(consume(clients.clone(), "member", read, Some("billing"), consumed.clone()));
    let shared = Rc::new(Cell::new(0));
    tasks.spawn_local(share(clients.clone(), shared.clone()));
    let moved = || Moved {
        appended: (0..PARTITIONS)
            .filter_map(|partition| cluster.offsets_of(TOPIC, partition))
            .map(|(_, end)| end)
            .sum(),
        read: records.get(),
        consumed: consumed.get(),
        shared: shared.get(),
    };
    tokio::time::sleep(HEALTHY).await;
    let before = rates.total(api);
    let records_before = records.get();
    // Counts are from here on.
    let met_before = cluster.requests(api);
    fail(&cluster);
    for partition in 0..PARTITIONS {
        cluster.reelect_leader(TOPIC, partition, 1);
    }
    let late = Clients { seed: seed + 1, ..clients };
    tasks.spawn_local(produce(late.clone(), "late-producer"));
    tasks.spawn_local(consume(late.clone(), "late-reader", read, None, Rc::default()));
    tasks.spawn_local(consume(late, LATE_MEMBER_NAME, read, Some("billing"), consumed.clone()));
    // The first half uses existing connections, the second half new ones.
    tokio::time::sleep(FAULTY / 2).await;
    net.cut("node-1", 1000);
    let before_late = moved();
    tokio::time::sleep(FAULTY / 2).await;
    let after = moved();
    let late = Moved {
        appended: after.appended - before_late.appended,
        read: after.read - before_late.read,
        consumed: after.consumed - before_late.consumed,
        shared: after.shared - before_late.shared,
    };
    let requests = rates.total(api) - before;
    let busiest = rates.busiest().into_values().max_by_key(|busiest| busiest.requests).unwrap_or_default();
    let frozen = net.frozen();
    let limited = cluster.faults().into_iter().filter(|(_, rule)| rule.count < u32::MAX);
    let unmet = limited.count();
    let met = cluster.requests(api) - met_before;
    tasks.shutdown().await;
    ErrorReport { busiest, requests, met, unmet, records: records.get() - records_before, late, frozen }
}

/// Maximum number of requests of one API while it fails: each client sends one per backoff and partition.
pub fn requests_max() -> u64 {
    let windows = FAULTY.as_millis() / crate::rates::WINDOW.as_millis();
    // The readers and the members request each partition.
    windows as u64 * CLIENTS * PARTITIONS as u64
}

fn config(name: &str) -> Config {
    let mut config = Config::new("node-1:9092");
    name.clone_into(&mut config.client_id);
    config.socket_timeout = Duration::from_secs(1);
    config.metadata_max_age = Duration::from_secs(1);
    config
}

/// The parts that the clients of a run have in common.
#[derive(Clone)]
struct Clients {
    net: Network,
    seed: u64,
}

impl Clients {
    /// A client with its engine, which ends with the set.
    fn start(&self, config: Config) -> (Client, JoinSet<()>) {
        let started = Client::with_engine(config, Arc::new(self.net.clone()), self.seed);
        let (client, engine) = started.expect("a sound configuration");
        let mut tasks = JoinSet::new();
        tasks.spawn_local(async move { drop(engine.run().await) });
        (client, tasks)
    }
}

async fn produce(clients: Clients, name: &str) {
    let (client, _tasks) = clients.start(config(name));
    let producer = client.producer();
    let began = Instant::now();
    while began.elapsed() < HEALTHY + FAULTY {
        for partition in 0..PARTITIONS {
            // A full queue is not checked here, and neither are delivery results.
            let record = Record::to(TOPIC).partition(partition).value("one").timestamp_ms(EPOCH_MS);
            let _ = tokio::time::timeout(Duration::from_millis(10), producer.enqueue(record)).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn consume(clients: Clients, name: &str, read: i32, group: Option<&str>, records: Rc<Cell<u64>>) {
    let mut config = config(name);
    config.session_timeout = Duration::from_secs(2);
    config.heartbeat_interval = Duration::from_millis(100);
    config.auto_commit_interval = Duration::from_millis(100);
    config.auto_offset_reset = OffsetReset::Earliest;
    config.group_id = group.map(str::to_owned);
    let (client, _tasks) = clients.start(config);
    let began = Instant::now();
    let mut consumer = client.consumer();
    let started = if group.is_some() {
        consumer.subscribe(&[TOPIC]).await
    } else {
        let all: Vec<_> = (0..read)
            .map(|partition| {
                (ottla_client::TopicPartition::new(TOPIC, partition), ottla_client::StartAt::Beginning)
            })
            .collect();
        consumer.assign(&all).await
    };
    drop(started);
    while name != LATE_MEMBER_NAME || began.elapsed() < LATE_MEMBER {
        match consumer.poll(Duration::from_millis(100)).await {
            Ok(Some(Polled::Records(batch))) => records.set(records.get() + batch.iter().count() as u64),
            Ok(_) => {}
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    // Its session ends if the request fails.
    drop(consumer.close(Duration::from_secs(1)).await);
}

async fn share(clients: Clients, records: Rc<Cell<u64>>) {
    let mut config = config("sharer");
    config.group_id = Some("sharers".into());
    let (client, _tasks) = clients.start(config);
    let mut consumer = client.share_consumer().expect("a group");
    drop(consumer.subscribe(&[TOPIC]).await);
    loop {
        match consumer.poll(Duration::from_millis(100)).await {
            Ok(Some(batch)) => {
                records.set(records.get() + batch.len() as u64);
                drop(tokio::time::timeout(Duration::from_secs(1), consumer.commit()).await);
                // A commit is a request that moves no records.
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
            Ok(None) => {}
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// All faults of the matrix: each code that Kafka defines, an undefined code, and closed connections.
pub fn faults() -> Vec<Fault> {
    let codes = ErrorCode::KNOWN.iter().copied().filter(|code| *code != ErrorCode::None);
    let unknown = ErrorCode::from_i16(9999);
    codes.chain([unknown]).map(Fault::Fail).chain([Fault::Cut, Fault::CutAfter]).collect()
}
