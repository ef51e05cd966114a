//! Apache Kafka 4.1 or 4.3 in KRaft mode, one or two nodes, on ephemeral loopback ports.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tempfile::TempDir;

use crate::failure::Failure;
use crate::jars::{KafkaJars, jars, newest_jars};
use crate::probe::{free_ports, wait_for_brokers, with_free_ports};
use crate::process::{Process, run};
use crate::tools::console;

/// About 4 s on an idle machine; several times that on a loaded one with two nodes.
const READY_WITHIN: Duration = Duration::from_secs(90);
const FORMAT_WITHIN: Duration = Duration::from_secs(60);

/// Any 16 bytes in base64; the same for every node of a cluster.
const CLUSTER_ID: &str = "b3R0bGEtaW50ZXJvcC0wMA";

/// Options of a cluster, beyond the default of one node with a fast start.
#[derive(Clone, Debug, Default)]
pub struct KafkaOptions<'a> {
    /// Lines for every `server.properties`. They override ours.
    pub properties: &'a [(&'a str, &'a str)],
    /// Lines for single nodes, the first node's first.
    pub node_properties: &'a [&'a [(&'a str, &'a str)]],
    /// Additional listeners, each a name and a security protocol, on separate ports.
    pub listeners: &'a [(&'a str, &'a str)],
    /// Ports of proxies in front of the nodes, the first node's first: clients get them in place of the nodes' own.
    /// Nodes reach each other through a listener of [`KafkaOptions::listeners`] that `inter.broker.listener.name` selects.
    pub advertised_ports: &'a [u16],
    /// Initial SCRAM credentials, in the format of `kafka-storage.sh --add-scram`.
    pub scram: &'a [&'a str],
    /// Full JIT and a larger heap, for benchmarks; the start is slower.
    pub warm: bool,
    /// Runs Apache Kafka 4.3 instead of 4.1.
    pub newest: bool,
    /// Feature levels (`name=level`) that differ from the newest.
    pub features: &'a [&'a str],
    /// Arguments of each node's JVM, such as system properties.
    pub jvm: &'a [&'a str],
}

/// A running cluster. Dropping it stops every node by its own process id.
pub struct KafkaCluster {
    nodes: Vec<Node>,
    // After the nodes, so that they stop before their data is removed.
    _data: TempDir,
}

struct Node {
    id: usize,
    port: u16,
    controller_port: u16,
    listeners: Vec<(String, String, u16)>,
    dir: PathBuf,
    warm: bool,
    newest: bool,
    jvm: Vec<String>,
    process: Option<Process>,
}

impl KafkaCluster {
    /// Starts `nodes` nodes and waits until each knows all of them. The first is both broker and controller.
    pub fn start(nodes: usize) -> Result<Self, Failure> {
        Self::start_with(nodes, &KafkaOptions::default())
    }

    /// [`start`](Self::start) with other properties or a warm JVM.
    pub fn start_with(nodes: usize, options: &KafkaOptions) -> Result<Self, Failure> {
        with_free_ports(|| Self::try_start(nodes, options))
    }

    /// A one-node cluster that all running tests of this process share. The last one to drop it stops it.
    pub fn shared() -> Result<Arc<Self>, Failure> {
        static SHARED: Mutex<Weak<KafkaCluster>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cluster) = shared.upgrade() {
            return Ok(cluster);
        }
        let cluster = Arc::new(Self::start(1)?);
        *shared = Arc::downgrade(&cluster);
        Ok(cluster)
    }

    /// The value for `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        let addresses: Vec<String> = self.nodes.iter().map(|node| node.address().to_string()).collect();
        addresses.join(",")
    }

    /// The address of each node's client listener, node 1 first.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Node::address).collect()
    }

    /// The address of an additional listener of node 1, by its name in [`KafkaOptions::listeners`].
    pub fn listener(&self, name: &str) -> SocketAddr {
        let found = self.nodes[0].listeners.iter().find(|(listed, _, _)| listed == name);
        (Ipv4Addr::LOCALHOST, found.expect("a listener of the options").2).into()
    }

    /// The directory of the partitions of node `id` (from 1).
    pub fn log_dir(&self, id: usize) -> PathBuf {
        self.nodes[id - 1].dir.join("data")
    }

    /// The process id of node `id` (from 1), while it runs.
    pub fn process_id(&self, id: usize) -> Option<u32> {
        self.nodes[id - 1].process.as_ref().map(Process::id)
    }

    /// Waits for the first line with `pattern` in the output of node `id` (from 1).
    pub fn wait_for_line(&mut self, id: usize, pattern: &str, within: Duration) -> Result<String, Failure> {
        match self.nodes[id - 1].process.as_mut() {
            Some(process) => process.wait_for_line(pattern, within),
            None => Err(Failure::new(format!("node {id} of Kafka does not run"))),
        }
    }

    /// Stops node `id` (from 1) with SIGTERM.
    pub fn stop_node(&mut self, id: usize) -> Result<(), Failure> {
        match self.nodes[id - 1].process.take() {
            Some(mut process) => process.stop().map(|_| ()),
            None => Ok(()),
        }
    }

    /// Kills node `id` (from 1) with SIGKILL.
    pub fn kill_node(&mut self, id: usize) -> Result<(), Failure> {
        match self.nodes[id - 1].process.take() {
            Some(mut process) => process.kill().map(|_| ()),
            None => Ok(()),
        }
    }

    /// Starts a stopped node `id` (from 1) on its data and its ports, and waits until it answers.
    pub fn start_node(&mut self, id: usize) -> Result<(), Failure> {
        let node = &mut self.nodes[id - 1];
        node.spawn()?;
        node.wait_until_ready(1)
    }

    fn try_start(nodes: usize, options: &KafkaOptions) -> Result<Self, Failure> {
        let data = tempfile::Builder::new()
            .prefix("ottla-kafka-")
            .tempdir()
            .map_err(|error| Failure::new(format!("a directory for Kafka: {error}")))?;
        let ports_each = 2 + options.listeners.len();
        let ports = free_ports(nodes * ports_each)
            .map_err(|error| Failure::new(format!("ports for Kafka: {error}")))?;
        // After the directory, so that nodes stop before it is removed, on a failure too.
        let mut cluster: Vec<Node> = ports
            .chunks_exact(ports_each)
            .zip(1..)
            .map(|(ports, id)| Node {
                id,
                port: ports[0],
                controller_port: ports[1],
                listeners: (options.listeners.iter().zip(&ports[2..]))
                    .map(|((name, protocol), port)| ((*name).to_owned(), (*protocol).to_owned(), *port))
                    .collect(),
                dir: data.path().join(format!("node-{id}")),
                warm: options.warm,
                newest: options.newest,
                jvm: options.jvm.iter().map(|argument| (*argument).to_owned()).collect(),
                process: None,
            })
            .collect();
        let controller_port = cluster[0].controller_port;
        for node in &cluster {
            node.configure(controller_port, options)?;
        }
        // Each format command starts a JVM: run them in parallel.
        std::thread::scope(|scope| {
            let formats: Vec<_> = cluster.iter().map(|node| scope.spawn(|| node.format(options))).collect();
            formats.into_iter().try_for_each(|format| format.join().expect("format does not panic"))
        })?;
        for node in &mut cluster {
            node.spawn()?;
        }
        for node in &mut cluster {
            node.wait_until_ready(nodes)?;
        }
        Ok(Self { nodes: cluster, _data: data })
    }
}

impl Node {
    fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    fn jars(&self) -> Result<KafkaJars, Failure> {
        if self.newest { newest_jars() } else { jars() }
    }

    fn properties_file(&self) -> PathBuf {
        self.dir.join("server.properties")
    }

    fn configure(&self, voter_port: u16, options: &KafkaOptions) -> Result<(), Failure> {
        let mut text = String::new();
        let data = self.dir.join("data");
        let mut clients = format!("PLAINTEXT://{}", self.address());
        let advertised_port = options.advertised_ports.get(self.id - 1).copied().unwrap_or(self.port);
        let mut advertised = format!("PLAINTEXT://127.0.0.1:{advertised_port}");
        let mut protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT".to_owned();
        for (name, protocol, port) in &self.listeners {
            let _ = write!(clients, ",{name}://127.0.0.1:{port}");
            let _ = write!(advertised, ",{name}://127.0.0.1:{port}");
            let _ = write!(protocols, ",{name}:{protocol}");
        }
        let (roles, listeners) = if self.id == 1 {
            ("broker,controller", format!("{clients},CONTROLLER://127.0.0.1:{}", self.controller_port))
        } else {
            ("broker", clients.clone())
        };
        let own = [
            ("process.roles", roles),
            ("node.id", &self.id.to_string()),
            ("listeners", &listeners),
            ("advertised.listeners", &advertised),
            ("listener.security.protocol.map", &protocols),
            ("controller.quorum.voters", &format!("1@127.0.0.1:{voter_port}")),
            ("log.dirs", &data.to_string_lossy()),
        ];
        let of_node = options.node_properties.get(self.id - 1).copied().unwrap_or_default();
        for (key, value) in own.iter().chain(PROPERTIES).chain(options.properties).chain(of_node) {
            let _ = writeln!(text, "{key}={value}");
        }
        fs::create_dir_all(&self.dir)
            .and_then(|()| fs::write(self.properties_file(), text))
            .map_err(|error| Failure::new(format!("{}: {error}", self.dir.display())))
    }

    fn format(&self, options: &KafkaOptions) -> Result<(), Failure> {
        let mut java = self.jars()?.java(128);
        java.args([console::STORAGE, "format", "-t", CLUSTER_ID, "-c"]).arg(self.properties_file());
        java.args(options.scram.iter().flat_map(|credentials| ["--add-scram", *credentials]));
        java.args(options.features.iter().flat_map(|feature| ["--feature", *feature]));
        run("StorageTool", &mut java, b"", FORMAT_WITHIN)?.succeeded().map(|_| ())
    }

    fn spawn(&mut self) -> Result<(), Failure> {
        let jars = self.jars()?;
        let mut java = if self.warm { jars.warm_java(1024) } else { jars.java(512) };
        java.args(&self.jvm).arg("kafka.Kafka").arg(self.properties_file());
        java.current_dir::<&Path>(&self.dir);
        self.process = Some(Process::spawn(&format!("kafka node {}", self.id), &mut java)?);
        Ok(())
    }

    fn wait_until_ready(&mut self, brokers: usize) -> Result<(), Failure> {
        let address = self.address();
        let process = self.process.as_mut().expect("spawned before it is waited for");
        process.wait_for_line("Kafka Server started", READY_WITHIN)?;
        wait_for_brokers(address, brokers, READY_WITHIN).map_err(|failure| process.quoted(&failure))
    }
}

/// Properties of every node: few, unreplicated internal partitions, groups without an initial delay, automatic topic
/// creation.
const PROPERTIES: &[(&str, &str)] = &[
    ("controller.listener.names", "CONTROLLER"),
    ("auto.create.topics.enable", "true"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("offsets.topic.num.partitions", "4"),
    ("offsets.topic.replication.factor", "1"),
    ("transaction.state.log.num.partitions", "4"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    // The default interval for overdue transactions is 10 s.
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "500"),
    ("share.coordinator.state.topic.num.partitions", "4"),
    ("share.coordinator.state.topic.replication.factor", "1"),
    ("share.coordinator.state.topic.min.isr", "1"),
    // A test cluster need not move leaders before it stops.
    ("controlled.shutdown.enable", "false"),
];
