//! The broker's machine: its disk survives crashes, its process does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ottla_broker::{Broker, Clock, Cluster, Durability, Syncer, serve};
use ottla_log::storage::mem::MemStorage;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::net::{Network, Pipe};
use crate::options::Options;
use crate::rates::Rates;
use crate::trace::Trace;

/// The topic of all clients.
pub(crate) const TOPIC: &str = "orders";
/// Number of nodes in the broker's process.
pub(crate) const NODES: i32 = 2;
/// The wall clock at the start of a run: 2023-11-14.
pub(crate) const EPOCH_MS: i64 = 1_700_000_000_000;

/// A broker process, its connections and its disk.
#[derive(Debug)]
pub(crate) struct Host {
    options: Options,
    rng: fastrand::Rng,
    net: Network,
    trace: Trace,
    disk: MemStorage,
    wall: Arc<AtomicI64>,
    broker: Option<Broker>,
    tasks: JoinSet<()>,
    started: Instant,
    rates: Rates,
}

impl Host {
    pub(crate) fn new(options: Options, seed: u64, net: Network, trace: Trace, rates: Rates) -> Self {
        Self {
            options,
            rng: fastrand::Rng::with_seed(seed),
            net,
            trace,
            disk: MemStorage::forgetful(),
            wall: Arc::new(AtomicI64::new(EPOCH_MS)),
            broker: None,
            tasks: JoinSet::new(),
            started: Instant::now(),
            rates,
        }
    }

    /// Starts the process on the current disk.
    pub(crate) async fn start(&mut self) -> Result<(), String> {
        let (sync_delay, segment_bytes) = (self.options.sync_delay, self.options.segment_bytes);
        let broker = Broker::builder()
            .storage(Arc::new(self.disk.clone()))
            .nodes(NODES)
            .no_listener()
            .clock(Clock::Fixed(self.wall.clone()))
            .syncer(Syncer::Inline(sync_delay))
            .seed(self.rng.u64(..))
            .configure(|config| {
                config.durability = Durability::Disk;
                config.auto_create_topics = false;
                let defaults = &mut config.topic_defaults;
                defaults.set("segment.bytes", &segment_bytes.to_string()).expect("a size in range");
            })
            .topic(TOPIC, self.options.partitions)
            .start()
            .await
            .map_err(|error| error.to_string())?;
        broker.cluster().observe_requests(Arc::new(self.rates.clone()));
        let ends: Vec<_> = (0..self.options.partitions)
            .map(|partition| broker.cluster().offsets_of(TOPIC, partition).map_or(-1, |(_, end)| end))
            .collect();
        self.trace.note(format_args!("broker: up with {ends:?}"));
        for node in 1..=NODES {
            let accepted = self.net.listen(&format!("node-{node}"));
            self.tasks.spawn(accept(accepted, broker.cluster().clone(), node));
        }
        self.tasks.spawn(tick(self.wall.clone(), self.started));
        self.broker = Some(broker);
        Ok(())
    }

    /// Kills the process. With `power_cut`, each unsynced write may be lost.
    pub(crate) async fn crash(&mut self, power_cut: bool) {
        self.trace.note(format_args!("broker: crash, power cut: {power_cut}"));
        // No task of the process runs between these lines: it ends at one instant.
        self.tasks.abort_all();
        self.broker = None;
        if power_cut {
            self.disk.crash(&mut self.rng);
        } else {
            let disk = self.disk.fork();
            // Handles of the killed process must not access the disk of the new one.
            self.disk.crash(&mut self.rng);
            self.disk = disk;
        }
        self.tasks.shutdown().await;
    }

    /// Stops the process cleanly.
    pub(crate) async fn stop(&mut self) {
        self.trace.note(format_args!("broker: stop"));
        self.tasks.shutdown().await;
        if let Some(broker) = self.broker.take() {
            broker.stop().await;
        }
    }

    pub(crate) fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.broker.as_ref().map(Broker::cluster)
    }

    pub(crate) fn disk(&self) -> &MemStorage {
        &self.disk
    }

    /// The offset after the last record of a partition.
    pub(crate) fn end_of(&self, partition: i32) -> i64 {
        let offsets = self.cluster().and_then(|cluster| cluster.offsets_of(TOPIC, partition));
        offsets.map_or(0, |(_, end)| end)
    }
}

async fn accept(mut accepted: mpsc::UnboundedReceiver<Pipe>, cluster: Arc<Cluster>, node: i32) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            pipe = accepted.recv() => match pipe {
                Some(pipe) => { connections.spawn(serve(pipe, cluster.clone(), node)); }
                None => return,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// The broker's wall clock follows virtual time.
async fn tick(wall: Arc<AtomicI64>, started: Instant) {
    loop {
        wall.store(EPOCH_MS + started.elapsed().as_millis() as i64, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
