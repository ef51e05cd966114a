//! `ottla broker`.

use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use ottla_broker::{Broker, BrokerBuilder, BrokerConfig, Durability, KafkaLevel, StartError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::consume::interrupted;
use super::server_properties::ServerProperties;
use crate::allocator::limit_heaps;
use crate::control::{ControlAddress, ControlServer, NewNode};
use crate::failure::{Failure, sentence};
use crate::properties::{self, key_value};
use crate::topic_spec::TopicSpec;

/// The address of the first node without flags.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9092);

/// Runs a broker until SIGTERM or Ctrl-C
///
/// Prints `listening on HOST:PORT` for each node once it accepts connections.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The data directory; created if it is missing. Not needed with --durability memory
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Address of the first node; each further node uses the next port, or with port 0 any free port
    /// [default: 127.0.0.1:9092, or `listeners` of --config]
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    /// The address that clients connect to, if it is not the listener's address
    #[arg(long, value_name = "HOST[:PORT]")]
    advertise: Option<String>,
    /// The number of brokers that clients see
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=1000))]
    nodes: i32,
    /// The storage that holds an acknowledged record: disk, the system's page cache, or only memory [default: disk]
    #[arg(long, value_name = "disk|os|memory")]
    durability: Option<Durability>,
    /// A topic to create at the start if it is missing; may be repeated
    #[arg(long, value_name = "NAME[:PARTITIONS]")]
    topic: Vec<TopicSpec>,
    /// A broker property, by Apache Kafka's name; may be repeated
    #[arg(short = 'X', long = "property", value_name = "KEY=VALUE", value_parser = key_value)]
    properties: Vec<(String, String)>,
    /// A file of broker properties: Apache Kafka's server.properties. Flags win over it; -X, too
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Answers the API versions and features of an older release of Apache Kafka: 0.11, 2.8, 3.9, 4.1 or 4.3 [default: 4.3]
    #[arg(long, value_name = "VERSION")]
    as_version: Option<KafkaLevel>,
    /// Threads that serve connections
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Lets tests make the broker misbehave, over HTTP and JSON at a unix socket or a port of this machine: see `ottla fault`
    #[arg(long, value_name = "unix:PATH|HOST:PORT")]
    control: Option<ControlAddress>,
    /// The file for the token of a --control port, which is readable by its owner alone
    #[arg(long, value_name = "FILE", requires = "control")]
    control_token: Option<PathBuf>,
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let mut addresses = text
        .to_socket_addrs()
        .map_err(|error| format!("`{text}`: {}; expected HOST:PORT", sentence(&error)))?;
    addresses.next().ok_or_else(|| format!("`{text}`: no address"))
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut config = BrokerConfig::default();
    let properties = properties::collect(args.config.as_deref(), &args.properties)?;
    let server = ServerProperties::read(&properties, &mut config)?;
    if let Some(level) = args.as_version {
        config.as_version = level;
    }
    let data = args.data.clone().or_else(|| server.data.clone());
    let listen = args.listen.or(server.listen).unwrap_or(LISTEN_DEFAULT);
    // An address of the file belongs to its listener.
    let of_file = server.advertise.clone().filter(|_| args.listen.is_none());
    let advertise = args.advertise.clone().or(of_file);
    if let Some(durability) = args.durability {
        config.durability = durability;
    }
    if data.is_none() && config.durability != Durability::Memory {
        return Err(Failure::usage(
            "--data DIR is missing: say where to keep the data, or --durability memory",
        ));
    }
    if let Some(warning) = server.warning() {
        eprintln!("ottla: warning: {warning}");
    }
    warn_of_strangers(listen);
    raise_file_limit();
    limit_heaps(args.threads);
    let mut builder = match args.threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        threads => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(threads.into());
            builder
        }
    };
    let runtime =
        builder.enable_all().build().map_err(|error| Failure::failed(format!("no runtime: {error}")))?;
    let mut builder = Broker::builder().config(config).nodes(args.nodes).listen(listen);
    if let Some(data) = data {
        builder = builder.data_dir(data);
    }
    if let Some(advertise) = advertise {
        builder = builder.advertise(advertise);
    }
    for topic in &args.topic {
        builder = builder.topic(&topic.name, topic.partitions.unwrap_or(-1));
    }
    runtime.block_on(serve(builder, args))
}

async fn serve(builder: BrokerBuilder, args: &Args) -> Result<(), Failure> {
    // A signal stops the broker cleanly, even before the listeners are open.
    let stop = interrupted();
    let mut stop = std::pin::pin!(stop);
    let mut broker = tokio::select! {
        biased;
        signal = &mut stop => return signal,
        broker = builder.start() => broker.map_err(start_failed)?,
    };
    let mut control = args.control(&broker).await?;
    announce(broker.addresses())?;
    let signal = loop {
        tokio::select! {
            biased;
            signal = &mut stop => break signal,
            NewNode { id, done } = next_node(&mut control) => drop(done.send(broker.add_node(id).await)),
        }
    };
    drop(control);
    broker.stop().await;
    signal
}

impl Args {
    async fn control(&self, broker: &Broker) -> Result<Option<ControlServer>, Failure> {
        let Some(address) = &self.control else { return Ok(None) };
        let token = self.control_token.as_deref();
        ControlServer::start(address, token, broker.cluster().clone()).await.map(Some)
    }
}

/// The next node that a test adds.
async fn next_node(control: &mut Option<ControlServer>) -> NewNode {
    match control {
        Some(control) => match control.new_nodes.recv().await {
            Some(node) => node,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

fn announce(addresses: &[SocketAddr]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let lines: String = addresses.iter().map(|address| format!("listening on {address}\n")).collect();
    match out.write_all(lines.as_bytes()).and_then(|()| out.flush()) {
        // The process that started the broker may not read its output.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(|error| Failure::output(&error)),
    }
}

pub(super) fn start_failed(error: StartError) -> Failure {
    match error {
        StartError::Advertise(_) | StartError::Topic { .. } => Failure::usage(error.to_string()),
        error => Failure::failed(error.to_string()),
    }
}

/// Allows as many open files as the system does: partitions and connections need them.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

fn warn_of_strangers(listen: SocketAddr) {
    if !listen.ip().is_loopback() {
        eprintln!(
            "ottla: warning: no authentication: everyone who reaches {listen} can read and write all data"
        );
    }
}
