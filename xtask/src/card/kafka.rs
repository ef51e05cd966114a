//! The clusters of the suites: Apache Kafka with its tools under the names of their scripts, or the Ottla broker.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ottla_interop::{Cluster, Failure, KafkaCluster, KafkaOptions, OttlaBroker, console, java_command};

use super::suite::{ONE_PARTITION, Side};
use super::toxiproxy::Toxiproxy;

const NODES: usize = 3;

/// The version of Apache Kafka below a suite for libraries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Apache {
    V4_1,
    /// The newest, with share groups.
    Newest,
}

impl Apache {
    /// For `TEST_KAFKA_VERSION`.
    fn version(self) -> &'static str {
        match self {
            Self::V4_1 => "4.1.0",
            Self::Newest => "4.3.1",
        }
    }
}

/// A running cluster with the environment that librdkafka's tests read.
pub(super) struct Kafka {
    nodes: Nodes,
    version: Apache,
    /// A directory with `bin/kafka-topics.sh` and others.
    tools: PathBuf,
    /// Proxies in front of the nodes, if the tests need them.
    proxies: Option<Toxiproxy>,
}

enum Nodes {
    Apache(KafkaCluster),
    Ottla(OttlaBroker),
    /// Each test starts its own.
    OfTests(Side),
}

/// The cluster that a suite for brokers needs.
pub(super) struct ClusterNeeds {
    pub(super) nodes: usize,
    /// The properties of each node, of Apache Kafka and of Ottla.
    pub(super) properties: Vec<(&'static str, &'static str)>,
    /// The program for proxies in front of the nodes.
    pub(super) toxiproxy: Option<PathBuf>,
}

impl Kafka {
    /// Starts the cluster that a scenario of the tests needs; `dir` holds its tools.
    pub(super) fn start(version: Apache, scenario: &str, dir: &Path) -> Result<Self, Failure> {
        let properties = properties_of(scenario);
        let racks = [[("broker.rack", "RACK1")], [("broker.rack", "RACK2")], [("broker.rack", "RACK3")]];
        let options = KafkaOptions {
            properties: &properties,
            node_properties: &[&racks[0], &racks[1], &racks[2]],
            warm: true,
            newest: version == Apache::Newest,
            ..KafkaOptions::default()
        };
        let tools = dir.join("kafka");
        write_tools(&tools)?;
        let nodes = Nodes::Apache(KafkaCluster::start_with(NODES, &options)?);
        Ok(Self { nodes, version, tools, proxies: None })
    }

    /// Starts the Ottla broker with the settings of [`Kafka::start`].
    pub(super) fn start_ottla(scenario: &str, dir: &Path) -> Result<Self, Failure> {
        let tools = dir.join("kafka");
        write_tools(&tools)?;
        // Kafka's default. The first members of a group wait for the others.
        let mut properties = properties_of(scenario);
        properties.push(("group.initial.rebalance.delay.ms", "3000"));
        properties.push(("broker.rack", "RACK1,RACK2,RACK3"));
        let needs = ClusterNeeds { nodes: NODES, properties, toxiproxy: None };
        let nodes = Nodes::Ottla(start_ottla(&needs, None)?);
        Ok(Self { nodes, version: Apache::Newest, tools, proxies: None })
    }

    /// Starts Apache Kafka 4.3 or the Ottla broker for a suite that compares them.
    pub(super) fn start_side(side: Side, needs: &ClusterNeeds, dir: &Path) -> Result<Self, Failure> {
        let first_port = needs.toxiproxy.as_ref().map(|_| Toxiproxy::free_ports()).transpose()?;
        let nodes = match side {
            Side::Original => Nodes::Apache(start_apache(needs, first_port)?),
            Side::Ours => Nodes::Ottla(start_ottla(needs, first_port)?),
        };
        let mut kafka = Self { nodes, version: Apache::Newest, tools: dir.to_owned(), proxies: None };
        if let (Some(program), Some(first_port)) = (&needs.toxiproxy, first_port) {
            kafka.proxies = Some(Toxiproxy::start(program, first_port, &kafka.addresses(), dir)?);
        }
        Ok(kafka)
    }

    /// No cluster: each test starts one of this side.
    pub(super) fn of_tests(side: Side, dir: &Path) -> Self {
        Self { nodes: Nodes::OfTests(side), version: Apache::Newest, tools: dir.to_owned(), proxies: None }
    }

    /// The original's side is Apache Kafka, ours is Ottla.
    pub(super) fn side(&self) -> Side {
        match &self.nodes {
            Nodes::Apache(_) => Side::Original,
            Nodes::Ottla(_) => Side::Ours,
            Nodes::OfTests(side) => *side,
        }
    }

    pub(super) fn bootstrap(&self) -> String {
        match &self.nodes {
            Nodes::Apache(cluster) => cluster.bootstrap(),
            Nodes::Ottla(broker) => Cluster::bootstrap(broker),
            Nodes::OfTests(_) => String::new(),
        }
    }

    /// The address of each node, the first node's first.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        match &self.nodes {
            Nodes::Apache(cluster) => cluster.addresses(),
            Nodes::Ottla(broker) => broker.addresses().to_vec(),
            Nodes::OfTests(_) => Vec::new(),
        }
    }

    pub(super) fn proxies(&self) -> Option<&Toxiproxy> {
        self.proxies.as_ref()
    }

    /// Sets the variables that the tests' own launcher sets.
    pub(super) fn describe_to(&self, command: &mut Command) {
        command.env("TEST_KAFKA_VERSION", self.version.version()).env("KAFKA_PATH", &self.tools);
        command.env("BROKERS", self.bootstrap());
        for (address, id) in self.addresses().iter().zip(1..) {
            command.env(format!("BROKER_ADDRESS_{id}"), address.to_string());
        }
    }
}

/// The properties of the brokers of a scenario.
fn properties_of(scenario: &str) -> Vec<(&'static str, &'static str)> {
    let creates_topics = if scenario == "noautocreate" { "false" } else { "true" };
    let partitions = if scenario == ONE_PARTITION { "1" } else { "4" };
    let of_scenario = [("auto.create.topics.enable", creates_topics), ("num.partitions", partitions)];
    [&of_scenario, PROPERTIES].concat()
}

fn start_apache(needs: &ClusterNeeds, first_port: Option<u16>) -> Result<KafkaCluster, Failure> {
    const INTERNAL: &str = "INTERNAL";
    let ports: Vec<u16> = first_port.map_or_else(Vec::new, |first| (first..).take(needs.nodes).collect());
    let replicas = needs.nodes.to_string();
    let mut properties = vec![
        ("default.replication.factor", replicas.as_str()),
        ("offsets.topic.replication.factor", &replicas),
        ("transaction.state.log.replication.factor", &replicas),
        ("share.coordinator.state.topic.replication.factor", &replicas),
    ];
    properties.extend(&needs.properties);
    if !ports.is_empty() {
        properties.push(("inter.broker.listener.name", INTERNAL));
    }
    let options = KafkaOptions {
        properties: &properties,
        listeners: if ports.is_empty() { &[] } else { &[(INTERNAL, "PLAINTEXT")] },
        advertised_ports: &ports,
        warm: true,
        newest: true,
        ..KafkaOptions::default()
    };
    KafkaCluster::start_with(needs.nodes, &options)
}

fn start_ottla(needs: &ClusterNeeds, first_port: Option<u16>) -> Result<OttlaBroker, Failure> {
    let mut args = vec!["--nodes".to_owned(), needs.nodes.to_string()];
    for (key, value) in &needs.properties {
        args.extend(["-X".to_owned(), format!("{key}={value}")]);
    }
    if let Some(port) = first_port {
        args.extend(["--advertise".to_owned(), format!("127.0.0.1:{port}")]);
    }
    OttlaBroker::start(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// As the tests' own clusters: replicated, access lists, fetches from followers, short sessions.
const PROPERTIES: &[(&str, &str)] = &[
    ("default.replication.factor", "3"),
    ("offsets.topic.replication.factor", "3"),
    ("transaction.state.log.replication.factor", "3"),
    ("share.coordinator.state.topic.replication.factor", "3"),
    ("share.coordinator.state.topic.min.isr", "2"),
    ("group.share.min.record.lock.duration.ms", "1000"),
    ("replica.selector.class", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
    ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ("allow.everyone.if.no.acl.found", "true"),
    ("connections.max.reauth.ms", "10000"),
    ("log.retention.bytes", "1000000000"),
];

const TOOLS: &[(&str, &str)] = &[
    ("kafka-topics.sh", console::TOPICS),
    ("kafka-configs.sh", console::CONFIGS),
    ("kafka-acls.sh", "org.apache.kafka.tools.AclCommand"),
];

/// The jars from Maven come without scripts.
fn write_tools(tools: &Path) -> Result<(), Failure> {
    let bin = tools.join("bin");
    fs::create_dir_all(&bin).map_err(|error| Failure::new(format!("{}: {error}", bin.display())))?;
    for (script, class) in TOOLS {
        let java = java_command(class, &[])?;
        let words: Vec<String> = java.get_args().map(|word| quoted(&word.to_string_lossy())).collect();
        let text = format!("#!/bin/sh\nexec java {} \"$@\"\n", words.join(" "));
        let path = bin.join(script);
        let write = fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)));
        write.map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    }
    Ok(())
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_script_are_quoted() {
        assert_eq!(quoted("/a dir/*"), "'/a dir/*'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
