//! The broker's machine: its disk and its clock survive crashes, its process does not.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ottla_broker::{
    AnsweredRequest, Broker, BrokerConfig, Cluster, Durability, RequestObserver, StartError, Syncer,
    TopicConfig,
};
use ottla_log::storage::mem::MemStorage;
use ottla_testkit::{Network, Trace, WallClock};
use tokio::task::JoinSet;

use crate::checker::History;
use crate::compacted::{BALANCES, SETTINGS};
use crate::options::{Options, ms};
use crate::rates::Rates;
use crate::share::{SharedShareHistory, Witness};
use crate::topics::GROUPS;
use crate::world::World;

/// Number of nodes in the broker's process.
pub(crate) const NODES: i32 = 2;
/// Records are kept for so long: longer than any jump of the clock, and than the age of producers' timestamps.
const RETENTION_MS: i64 = 400 * 24 * 3_600_000;

/// The running process, shared with the observer of committed offsets.
pub(crate) type Running = Rc<RefCell<Option<Arc<Cluster>>>>;

/// A broker process, its connections and its disk.
#[derive(Debug)]
pub(crate) struct Host {
    options: Rc<Options>,
    rng: fastrand::Rng,
    net: Network,
    trace: Trace,
    disk: MemStorage,
    wall: WallClock,
    broker: Option<Broker>,
    running: Running,
    tasks: JoinSet<()>,
    rates: Rates,
    history: Rc<RefCell<History>>,
    share: SharedShareHistory,
    /// The disk reports syncs that it did not make: for the proof that the checker finds that.
    syncs_ignored: bool,
}

impl Host {
    pub(crate) fn new(world: &World, seed: u64, rates: Rates, share: SharedShareHistory) -> Self {
        let World { options, net, trace, history, .. } = world.clone();
        Self {
            options,
            rng: fastrand::Rng::with_seed(seed),
            net,
            trace,
            disk: MemStorage::forgetful(),
            wall: WallClock::start(),
            broker: None,
            running: Running::default(),
            tasks: JoinSet::new(),
            rates,
            history,
            share,
            syncs_ignored: false,
        }
    }

    /// The task that answers the next request panics.
    pub(crate) fn panic_at_next_request(&self) {
        if let Some(cluster) = self.cluster() {
            cluster.observe_requests(Arc::new(PanicOnce::default()));
        }
    }

    /// From now on, syncs have no effect.
    pub(crate) fn ignore_syncs(&mut self) {
        self.syncs_ignored = true;
        self.disk.ignore_syncs();
    }

    /// Starts the process on the current disk.
    pub(crate) async fn start(&mut self) -> Result<(), String> {
        let seed = self.rng.u64(..);
        let broker = self.open(&self.disk, seed).await.map_err(|error| error.to_string())?;
        broker.cluster().observe_requests(Arc::new(self.rates.clone()));
        if self.options.has_share_group() {
            self.share.lock().restarted();
            let witness = Witness { history: self.share.clone(), options: (*self.options).clone() };
            broker.cluster().observe_requests(Arc::new(witness));
        }
        let slots = 0..self.options.slots();
        let ends: Vec<_> = slots.map(|slot| end_of(&self.options, &broker.cluster(), slot)).collect();
        self.trace.note(format_args!("broker: up with {ends:?}"));
        observe_commits(&self.options, &broker.cluster(), &mut self.history.borrow_mut(), true);
        *self.running.borrow_mut() = Some(broker.cluster());
        for node in 1..=NODES {
            self.tasks.spawn(self.net.serve(broker.cluster(), node));
        }
        self.broker = Some(broker);
        Ok(())
    }

    /// Starts a broker on `disk`, without listeners.
    pub(crate) async fn open(&self, disk: &MemStorage, seed: u64) -> Result<Broker, StartError> {
        let options = &self.options;
        let mut builder = Broker::builder()
            .storage(Arc::new(disk.clone()))
            .nodes(NODES)
            .no_listener()
            .clock(self.wall.of_broker())
            .syncer(Syncer::Inline(ms(options.sync_delay)))
            .seed(seed)
            .configure(|config| {
                config.durability = Durability::Disk;
                config.auto_create_topics = false;
                // A node takes over for another one.
                config.replication_default = NODES;
                // Often enough that a jump of the clock meets it.
                config.retention_check = Duration::from_secs(1);
                config.cleaner_backoff = Duration::from_millis(300);
                // Few partitions, so that several groups share one, and segments that are closed.
                config.offsets_topic_partitions = 3;
                config.offsets_topic_segment_bytes =
                    u32::try_from(options.segment_bytes).expect("a value in range");
                config.transaction_log_partitions = 3;
                config.transaction_log_segment_bytes = config.offsets_topic_segment_bytes;
                config.transaction_timeout_check = Duration::from_millis(500);
                configure_share_groups(config, options);
                let kind = if options.log_append_time > 0 { "LogAppendTime" } else { "CreateTime" };
                let settings = [
                    ("segment.bytes", options.segment_bytes.to_string()),
                    ("message.timestamp.type", kind.to_owned()),
                    ("retention.ms", RETENTION_MS.to_string()),
                ];
                for (name, value) in settings {
                    config.topic_defaults.set(name, &value).expect("a value in range");
                }
            });
        for (name, partitions) in options.topics().chain(options.transactional_topics()) {
            builder = builder.topic(name, partitions);
        }
        if options.has_compacted_topic() {
            let mut settings = TopicConfig::default();
            for (name, value) in SETTINGS {
                settings.set(name, value).expect("a value in range");
            }
            builder = builder.topic_with(BALANCES, 1, settings);
        }
        builder.start().await
    }

    /// Kills the process. With `power_cut`, each unsynced write may be lost.
    pub(crate) async fn crash(&mut self, power_cut: bool) {
        self.trace.note(format_args!("broker: crash, power cut: {power_cut}"));
        // No task of the process runs between these lines: it ends at one instant.
        self.tasks.abort_all();
        *self.running.borrow_mut() = None;
        self.broker = None;
        if power_cut {
            self.disk.crash(&mut self.rng);
        } else {
            let disk = self.disk.fork();
            // Handles of the killed process must not access the disk of the new one.
            self.disk.crash(&mut self.rng);
            self.replace_disk(disk);
        }
        self.tasks.shutdown().await;
    }

    /// Stops the process cleanly.
    pub(crate) async fn stop(&mut self) {
        self.trace.note(format_args!("broker: stop"));
        self.tasks.shutdown().await;
        *self.running.borrow_mut() = None;
        if let Some(broker) = self.broker.take() {
            broker.stop().await;
        }
    }

    /// Puts another disk into a machine that is off.
    pub(crate) fn replace_disk(&mut self, disk: MemStorage) {
        self.disk = disk;
        if self.syncs_ignored {
            self.disk.ignore_syncs();
        }
    }

    /// Moves the wall clock.
    pub(crate) fn jump(&mut self, by: Duration, back: bool) {
        let by = by.as_millis() as i64;
        let skew = self.wall.jump_ms(if back { -by } else { by });
        self.trace.note(format_args!("clock: {} by {by} ms, after {skew}", if back { "back" } else { "on" }));
    }

    pub(crate) fn cluster(&self) -> Option<Arc<Cluster>> {
        self.broker.as_ref().map(Broker::cluster)
    }

    pub(crate) fn running(&self) -> Running {
        self.running.clone()
    }

    pub(crate) fn disk(&self) -> &MemStorage {
        &self.disk
    }

    /// The offset after the last record of a slot.
    pub(crate) fn end_of(&self, slot: i32) -> i64 {
        self.cluster().map_or(0, |cluster| end_of(&self.options, &cluster, slot).max(0))
    }
}

/// An observer that panics at its first request.
#[derive(Debug, Default)]
struct PanicOnce(AtomicBool);

impl RequestObserver for PanicOnce {
    fn on_answered(&self, _request: AnsweredRequest<'_>) {
        assert!(self.0.swap(true, Ordering::Relaxed), "a deliberate panic");
    }
}

/// Sessions and locks of seconds, and a log of states that is pruned.
fn configure_share_groups(config: &mut BrokerConfig, options: &Options) {
    config.share_coordinator.state_topic_partitions = 3;
    config.share_coordinator.state_topic_segment_bytes = config.offsets_topic_segment_bytes;
    config.share_coordinator.updates_per_snapshot = 5;
    config.share_coordinator.prune_interval = Duration::from_secs(1);
    config.share_coordinator.cold_snapshot_interval = Duration::from_secs(2);
    let (lock_ms, deliveries_max) = (options.lock_duration.to_string(), options.deliveries_max.to_string());
    let settings = [
        ("group.share.min.session.timeout.ms", "1000"),
        ("group.share.session.timeout.ms", "3000"),
        ("group.share.min.heartbeat.interval.ms", "100"),
        ("group.share.heartbeat.interval.ms", "300"),
        ("group.share.assignment.interval.ms", "100"),
        ("group.share.min.record.lock.duration.ms", "1000"),
        ("group.share.record.lock.duration.ms", &lock_ms),
        ("group.share.delivery.count.limit", &deliveries_max),
    ];
    for (name, value) in settings {
        config.set(name, value).expect("a value in range");
    }
}

fn end_of(options: &Options, cluster: &Cluster, slot: i32) -> i64 {
    let (topic, partition) = options.place(slot);
    cluster.offsets_of(topic, partition).map_or(-1, |(_, end)| end)
}

/// Records the committed offsets of every group. `restarted`: the broker has just started.
pub(crate) fn observe_commits(options: &Options, cluster: &Cluster, history: &mut History, restarted: bool) {
    for (group, name) in (0..).zip(GROUPS) {
        for slot in 0..options.slots() {
            let (topic, partition) = options.place(slot);
            let offset = cluster.committed_offset(name, topic, partition);
            history.committed(group, slot, offset.unwrap_or(-1), restarted);
        }
    }
}
