//! `rd_kafka_mock_cluster_t`: the embedded broker, in memory, with as many nodes as are asked for.

pub mod brokers;
pub mod groups;
pub mod requests;
pub mod telemetry;
pub mod topics;

use std::ffi::{CString, c_char, c_int};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use ottla_broker::{ApiKey, Broker, BrokerThread, Cluster, KafkaLevel, MockSubscription};
use ottla_client::{Config, Error};

use crate::client::handle::Handle;
use crate::conf::rd_kafka_conf_t;
use crate::ffi::c_strings::c_string;
use crate::ffi::panic::on_panic;
use crate::ffi::*;

/// The number of partitions of an automatically created topic.
const PARTITIONS_DEFAULT: i32 = 4;
/// The number of replicas that metadata names for it, at most one on each broker.
const REPLICAS_DEFAULT: usize = 3;
/// The time that the first members of a group wait for others, as in Apache Kafka.
const GROUP_INITIAL_DELAY: Duration = Duration::from_secs(3);
/// The replicas of the coordinators' topics. No broker of the original takes over for another one.
const INTERNAL_REPLICAS: i32 = 1;
/// The original's coordinators do not abort transactions that are open for too long.
const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// The longest wait for the listener of a broker.
const LISTEN_WITHIN: Duration = Duration::from_secs(5);
/// The release whose requests the original's mock cluster knows at most: it has no transactions of KIP-890.
const LEVEL: KafkaLevel = KafkaLevel::V3_9;

/// The requests of groups that came after that release, with the versions that the original knows.
const NEWER_APIS: [(ApiKey, (i16, i16)); 4] = [
    (ApiKey::ConsumerGroupHeartbeat, (0, 1)),
    (ApiKey::ShareGroupHeartbeat, (1, 1)),
    (ApiKey::ShareFetch, (1, 1)),
    (ApiKey::ShareAcknowledge, (1, 1)),
];

/// A cluster. `rd_kafka_mock_cluster_t` points to one in a box.
pub(crate) struct MockCluster {
    broker: BrokerThread,
    bootstraps: CString,
    client: AtomicPtr<rd_kafka_t>,
    started: Instant,
    /// It goes with its client, and not before.
    owned: bool,
}

impl MockCluster {
    fn start(brokers: i32, owned: bool) -> Result<Box<Self>, String> {
        if brokers < 1 {
            return Err(format!("a mock cluster of {brokers} brokers: there must be one at least"));
        }
        let builder = Broker::builder().memory().nodes(brokers);
        let configured = builder.configure(|config| {
            config.partitions_default = PARTITIONS_DEFAULT;
            config.offsets_topic_replication = INTERNAL_REPLICAS;
            config.transaction_log_replication = INTERNAL_REPLICAS;
            config.share_coordinator.state_topic_replication = INTERNAL_REPLICAS;
            config.group_initial_delay = GROUP_INITIAL_DELAY;
            config.as_version = LEVEL;
            config.transaction_timeout_check = NEVER;
            groups::without_limits(config);
        });
        let broker = configured.spawn();
        let broker = broker.map_err(|error| format!("the mock cluster does not start: {error}"))?;
        broker.cluster().set_commits_have_leader_epoch(true);
        broker.cluster().set_mock_fetches(true);
        broker.cluster().set_topic_errors_keep_partitions(true);
        broker.cluster().set_replicas_shown_by_default(REPLICAS_DEFAULT);
        broker.cluster().set_group_full_waits(true);
        broker.cluster().set_times_unknown(true);
        broker.cluster().set_unreachable_hidden(true);
        broker.cluster().set_mock_subscription(MockSubscription::default());
        for (api, versions) in NEWER_APIS {
            broker.cluster().set_versions(api, Some(versions));
        }
        let bootstraps = c_string(&broker.bootstrap_servers());
        Ok(Box::new(Self {
            broker,
            bootstraps,
            client: AtomicPtr::default(),
            started: Instant::now(),
            owned,
        }))
    }

    /// The cluster that `test.mock.num.brokers` asks for; the client is sent there and nowhere else.
    pub(crate) fn of_conf(conf: &rd_kafka_conf_t, config: &mut Config) -> Result<Option<Box<Self>>, Error> {
        let brokers = i32::try_from(conf.mock_brokers()).unwrap_or(i32::MAX);
        if brokers == 0 {
            return Ok(None);
        }
        let mock = Self::start(brokers, true).map_err(Error::Config)?;
        config.set("bootstrap.servers", &mock.broker.bootstrap_servers())?;
        config.set("security.protocol", "plaintext")?;
        let lag = Duration::from_millis(conf.mock_rtt_ms());
        if !lag.is_zero() {
            for node in 1..=brokers {
                mock.cluster().set_lag(node, lag);
            }
        }
        Ok(Some(mock))
    }

    pub(crate) fn set_client(&self, rk: *mut rd_kafka_t) {
        self.client.store(rk, Ordering::Release);
    }

    fn cluster(&self) -> Arc<Cluster> {
        self.broker.cluster()
    }

    fn as_raw(&self) -> *mut rd_kafka_mock_cluster_t {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// # Safety
    /// `raw` is NULL or a cluster that lives.
    unsafe fn of<'a>(raw: *const rd_kafka_mock_cluster_t) -> Option<&'a Self> {
        // SAFETY: `raw` is NULL or a mock cluster, not yet destroyed (the contract of this function, above).
        unsafe { raw.cast::<Self>().as_ref() }
    }

    /// Cuts a node off, or lets clients reach it again. Returns when its listener has followed, as the original does.
    fn set_reachable(&self, node: i32, reachable: bool) -> bool {
        let is_there = self.cluster().set_reachable(node, reachable);
        self.broker.block_on(move |cluster| async move {
            // A listener that cannot open again is in the broker's log.
            drop(tokio::time::timeout(LISTEN_WITHIN, cluster.listeners_followed(node)).await);
        });
        is_there
    }

    /// Does something with each node that C's `broker_id` means: -1 is all.
    fn each_node(&self, broker_id: i32, each: impl Fn(&Self, i32) -> bool) -> rd_kafka_resp_err_t {
        let nodes = if broker_id == -1 { self.cluster().nodes() } else { vec![broker_id] };
        let missing = nodes.into_iter().filter(|node| !each(self, *node)).count();
        if missing == 0 { RD_KAFKA_RESP_ERR_NO_ERROR } else { RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE }
    }
}

/// Runs `body` with the cluster; `default` is the answer without one.
unsafe fn with<T: Copy>(
    mcluster: *const rd_kafka_mock_cluster_t,
    default: T,
    body: impl FnOnce(&MockCluster) -> T,
) -> T {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (required by the C functions that call this).
    unsafe { MockCluster::of(mcluster) }.map_or(default, body)
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_cluster_new(
    rk: *mut rd_kafka_t,
    broker_cnt: c_int,
) -> *mut rd_kafka_mock_cluster_t {
    if Handle::of(rk, FUNCTION).is_none() {
        crate::errors::error_object::set_last_error(RD_KAFKA_RESP_ERR__INVALID_ARG);
        return null_mut();
    }
    let Ok(cluster) = MockCluster::start(broker_cnt, false) else {
        crate::errors::error_object::set_last_error(RD_KAFKA_RESP_ERR__FAIL);
        return null_mut();
    };
    cluster.set_client(rk);
    Box::into_raw(cluster).cast()
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_cluster_destroy(mcluster: *mut rd_kafka_mock_cluster_t) {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_cluster_destroy`).
    let owned = unsafe { MockCluster::of(mcluster) }.is_none_or(|cluster| cluster.owned);
    if !owned {
        // SAFETY: from `rd_kafka_mock_cluster_new`, given back once (rdkafka_mock.h,
        // `rd_kafka_mock_cluster_destroy`).
        drop(unsafe { Box::from_raw(mcluster.cast::<MockCluster>()) });
    }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_cluster_handle(
    mcluster: *const rd_kafka_mock_cluster_t,
) -> *mut rd_kafka_t {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_cluster_handle`).
    unsafe { with(mcluster, null_mut(), |cluster| cluster.client.load(Ordering::Acquire)) }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_handle_mock_cluster(rk: *const rd_kafka_t) -> *mut rd_kafka_mock_cluster_t {
    let handle = Handle::of(rk, FUNCTION);
    handle.as_deref().and_then(|handle| handle.mock.as_deref()).map_or(null_mut(), MockCluster::as_raw)
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_cluster_bootstraps(
    mcluster: *const rd_kafka_mock_cluster_t,
) -> *const c_char {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_cluster_bootstraps`).
    unsafe { with(mcluster, null(), |cluster| cluster.bootstraps.as_ptr()) }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_group_initial_rebalance_delay_ms(
    mcluster: *mut rd_kafka_mock_cluster_t,
    delay_ms: i32,
) {
    let delay = Duration::from_millis(u64::try_from(delay_ms).unwrap_or_default());
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_group_initial_rebalance_delay_ms`).
    unsafe { with(mcluster, (), |cluster| cluster.cluster().set_group_initial_delay(delay)) };
}
