//! Apache Kafka 0.11, the oldest broker that our client supports: one node and its ZooKeeper, on ephemeral loopback
//! ports.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tempfile::TempDir;

use crate::failure::Failure;
use crate::jars::old_jars;
use crate::probe::{free_ports, wait_for_brokers, with_free_ports};
use crate::process::Process;

/// About 5 s for both on an idle machine.
const READY_WITHIN: Duration = Duration::from_secs(90);

/// A running broker. Dropping it stops the broker and then its ZooKeeper, each by its own process id.
pub struct OldKafka {
    address: SocketAddr,
    // In the order in which they are stopped; the data is removed last.
    _broker: Process,
    _zookeeper: Process,
    data: TempDir,
}

impl OldKafka {
    /// Starts a broker and waits until it answers.
    pub fn start() -> Result<Self, Failure> {
        with_free_ports(Self::try_start)
    }

    /// A broker that all running tests of this process share. The last one to drop it stops it.
    pub fn shared() -> Result<Arc<Self>, Failure> {
        static SHARED: Mutex<Weak<OldKafka>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(broker) = shared.upgrade() {
            return Ok(broker);
        }
        let broker = Arc::new(Self::start()?);
        *shared = Arc::downgrade(&broker);
        Ok(broker)
    }

    /// The value for `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        self.address.to_string()
    }

    /// The directory of the partitions.
    pub fn log_dir(&self) -> PathBuf {
        self.data.path().join("log")
    }

    fn try_start() -> Result<Self, Failure> {
        let data = tempfile::Builder::new()
            .prefix("ottla-kafka-0.11-")
            .tempdir()
            .map_err(|error| Failure::new(format!("a directory for Kafka: {error}")))?;
        let ports = free_ports(2).map_err(|error| Failure::new(format!("ports for Kafka: {error}")))?;
        let [address, zookeeper_address] =
            [ports[0], ports[1]].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let zookeeper_port = zookeeper_address.port().to_string();
        let snapshots = data.path().join("zookeeper");
        let own = [
            ("dataDir", &*snapshots.to_string_lossy()),
            ("clientPort", &zookeeper_port),
            ("clientPortAddress", "127.0.0.1"),
        ];
        let config = write_properties(data.path(), "zookeeper.properties", &own)?;
        let zookeeper = run("zookeeper", "org.apache.zookeeper.server.ZooKeeperServerMain", &config, 128)?;

        let listeners = format!("PLAINTEXT://{address}");
        let zookeeper_connect = zookeeper_address.to_string();
        let log_dir = data.path().join("log");
        let own = [
            ("listeners", &*listeners),
            ("zookeeper.connect", &zookeeper_connect),
            ("log.dirs", &log_dir.to_string_lossy()),
        ];
        let own: Vec<_> = own.into_iter().chain(PROPERTIES.iter().copied()).collect();
        let config = write_properties(data.path(), "server.properties", &own)?;
        // The broker retries until its ZooKeeper answers.
        let mut broker = run("kafka 0.11", "kafka.Kafka", &config, 256)?;
        broker.wait_for_line(", started", READY_WITHIN).map_err(|failure| zookeeper.quoted(&failure))?;
        wait_for_brokers(address, 1, READY_WITHIN).map_err(|failure| broker.quoted(&failure))?;
        Ok(Self { address, _broker: broker, _zookeeper: zookeeper, data })
    }
}

fn run(name: &str, class: &str, config: &Path, heap_mb_max: u32) -> Result<Process, Failure> {
    Process::spawn(name, old_jars()?.java(heap_mb_max).arg(class).arg(config))
}

fn write_properties(dir: &Path, name: &str, properties: &[(&str, &str)]) -> Result<PathBuf, Failure> {
    let text = properties.iter().fold(String::new(), |mut text, (key, value)| {
        let _ = writeln!(text, "{key}={value}");
        text
    });
    let file = dir.join(name);
    fs::write(&file, text).map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
    Ok(file)
}

/// Few, unreplicated internal partitions, groups without an initial delay, automatic topic creation, and topic
/// deletion.
const PROPERTIES: &[(&str, &str)] = &[
    ("broker.id", "1"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("offsets.topic.num.partitions", "4"),
    ("offsets.topic.replication.factor", "1"),
    ("transaction.state.log.num.partitions", "4"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    ("delete.topic.enable", "true"),
    ("controlled.shutdown.enable", "false"),
];
