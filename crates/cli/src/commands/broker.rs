//! `ottla broker`.

mod endpoint;
mod notify;
mod ready;
mod ready_fd;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ottla_broker::{Broker, BrokerBuilder, BrokerConfig, Durability, KafkaLevel, Listener, StartError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Runtime;

use self::endpoint::Endpoint;
use self::ready::{Facts, Ready};
use self::ready_fd::ReadyFd;
use super::server_properties::ServerProperties;
use crate::LogFormat;
use crate::allocator::{give_back, limit_heaps};
use crate::choices::{DURABILITIES, VERSIONS, completed};
use crate::control::{ControlAddress, ControlServer};
use crate::failure::Failure;
use crate::metrics::listen_address;
use crate::output::{counted, note};
use crate::properties::{self, Property, key_value};
use crate::signals::{EndAtSignal, Signals};
use crate::topic_spec::TopicSpec;

/// The address of the first node without flags.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9092);

/// Runs a broker until SIGTERM, SIGHUP or Ctrl-C
///
/// Prints `listening on HOST:PORT` for each node once it accepts connections. Example:
/// `ottla broker --data data --topic orders:3`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The data directory; created if it is missing. Not needed with --durability memory
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Address of the first node; each further node uses the next port, or with port 0 any free port
    /// [default: 127.0.0.1:9092, or `listeners` of --config]
    #[arg(long, value_name = "HOST:PORT", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// The address that clients connect to, if it is not the listener's address
    #[arg(long, value_name = "HOST[:PORT]")]
    advertise: Option<String>,
    /// The number of brokers that clients see
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=1000))]
    nodes: i32,
    /// The storage that holds an acknowledged record: disk, the system's page cache, or only memory [default: disk]
    #[arg(long, value_name = "disk|os|memory", value_parser = completed(str::parse::<Durability>, DURABILITIES), hide_possible_values = true)]
    durability: Option<Durability>,
    /// A topic to create at the start if it is missing; may be repeated
    #[arg(long, value_name = "NAME[:PARTITIONS]")]
    topic: Vec<TopicSpec>,
    /// A broker property, by Apache Kafka's name; may be repeated: the last value of a key applies
    #[arg(short = 'X', long = "property", value_name = "KEY=VALUE", value_parser = key_value)]
    properties: Vec<(String, String)>,
    /// A file of broker properties: Apache Kafka's server.properties. Flags win over it; -X, too
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Answers the API versions and features of an older release of Apache Kafka: 0.11, 2.8, 3.9, 4.1 or 4.3 [default: 4.3]
    #[arg(long, value_name = "VERSION", value_parser = completed(str::parse::<KafkaLevel>, VERSIONS), hide_possible_values = true)]
    as_version: Option<KafkaLevel>,
    /// The release whose feature levels a new data directory begins with, as in kafka-storage.sh format: 4.1, 3.9-IV0
    #[arg(long, value_name = "VERSION")]
    release_version: Option<String>,
    /// The level of a feature that a new data directory begins with, as in kafka-storage.sh format; may be repeated
    #[arg(long, value_name = "NAME=LEVEL", value_parser = feature_level)]
    feature: Vec<(String, i16)>,
    /// The form of the log on standard error
    #[arg(long, value_enum, value_name = "text|json", default_value = "text", hide_possible_values = true)]
    pub(crate) log_format: LogFormat,
    /// Threads that serve connections
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    #[command(flatten)]
    security: SecurityArgs,
    #[command(flatten)]
    operation: OperationArgs,
}

/// The clients that may connect.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Security")]
struct SecurityArgs {
    /// Listens with TLS and SCRAM only. The directory gets an authority, a certificate, two users, and ready-made configurations
    /// of their clients; created if it is missing
    #[arg(long, value_name = "DIR", conflicts_with = "insecure")]
    secure: Option<PathBuf>,
    /// Allows a listener beyond loopback that needs no authentication: everyone who reaches it can read and write all data
    #[arg(long)]
    insecure: bool,
}

/// The interface for scripts and supervisors.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Operation")]
struct OperationArgs {
    /// Prints one line of JSON instead, with the addresses, the cluster id and the process id
    #[arg(long)]
    print_json: bool,
    /// Writes the same JSON to this file descriptor and closes it
    #[arg(long, value_name = "N")]
    ready_fd: Option<i32>,
    /// Serves /metrics for Prometheus, /healthz and /readyz at this address; port 0 selects a free port
    #[arg(long, value_name = "HOST:PORT", value_parser = listen_address)]
    metrics_listen: Option<SocketAddr>,
    /// The most series of a metric by partition or by group; the others are counted in ottla_series_left_out
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    metrics_series_max: u32,
    /// Seconds in which requests that have arrived are answered after SIGTERM or Ctrl-C; a second signal ends the broker at
    /// once
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=3600))]
    drain_timeout: u64,
    /// Lets tests make the broker misbehave, over HTTP and JSON at a unix socket or a port of this machine: see `ottla fault`
    #[arg(long, value_name = "unix:PATH|HOST:PORT")]
    control: Option<ControlAddress>,
    /// The file for the token of a --control port, which is readable by its owner alone
    #[arg(long, value_name = "FILE", requires = "control")]
    control_token: Option<PathBuf>,
    /// Appends a line of JSON for each request to this file, with its API, client, time and errors
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let operation = &args.operation;
    // Before this process opens files of its own.
    let ready =
        Ready { print_json: operation.print_json, fd: operation.ready_fd.map(ReadyFd::take).transpose()? };
    let mut config = BrokerConfig::default();
    let properties = properties::collect(args.config.as_deref(), &args.properties)?;
    let server = ServerProperties::read(&properties, args.data.as_deref(), &mut config)?;
    if let Some(level) = args.as_version {
        config.as_version = level;
    }
    args.set_features(&mut config);
    args.check(&properties)?;
    let data = server.data.clone();
    args.check_listener_properties(&config)?;
    let listeners = args.listeners(&config)?;
    if let Some(durability) = args.durability {
        config.durability = durability;
    }
    if data.is_none() && config.durability != Durability::Memory {
        return Err(Failure::usage(
            "--data DIR is missing: say where to keep the data, or --durability memory",
        ));
    }
    if let (Some(dir), Durability::Memory) = (&args.data, config.durability) {
        return Err(stores_nothing(dir));
    }
    let data = data.filter(|_| config.durability != Durability::Memory);
    args.check_secure_dir(data.as_deref())?;
    if let Some(warning) = server.warning() {
        args.warn(&warning);
    }
    raise_file_limit();
    limit_heaps(args.threads);
    let endpoint = args.endpoint()?;
    let metrics = endpoint.as_ref().map(Endpoint::metrics_url);
    let facts = Facts { data: data.as_deref(), durability: config.durability, metrics, control: None };
    let mut builder = Broker::builder().config(config).nodes(args.nodes);
    match &args.security.secure {
        Some(dir) => {
            builder = builder.secure(dir).listen(args.listen.unwrap_or(LISTEN_DEFAULT));
            if let Some(advertise) = &args.advertise {
                builder = builder.advertise(advertise);
            }
        }
        None => builder = listeners.into_iter().fold(builder, BrokerBuilder::listener),
    }
    if let Some(data) = &data {
        builder = builder.data_dir(data);
    }
    for topic in &args.topic {
        builder = builder.topic(&topic.name, topic.partitions.unwrap_or(-1));
    }
    let drain_limit = Duration::from_secs(operation.drain_timeout);
    let start = Start { ready, facts, endpoint, drain_limit, args };
    runtime(args.threads)?.block_on(serve(builder, start))
}

/// The parts of a start that are no settings of the broker.
struct Start<'a> {
    ready: Ready,
    facts: Facts<'a>,
    endpoint: Option<Endpoint>,
    drain_limit: Duration,
    args: &'a Args,
}

impl Args {
    /// Refuses arguments of which one would be ignored. A file of properties may have what a flag overrides.
    fn check(&self, properties: &[Property]) -> Result<(), Failure> {
        let typed = |names: &[&str]| {
            let mut typed = properties.iter().filter(|property| property.at.is_none());
            typed.find(|property| names.contains(&&*property.name)).map(|property| property.name.clone())
        };
        let twice = |flag: &str, name: String| {
            Err(Failure::usage(format!("{flag} and -X {name} exclude each other: use one of them")))
        };
        if let (Some(_), Some(name)) = (&self.data, typed(&["log.dirs", "log.dir"])) {
            return twice("--data", name);
        }
        if let (Some(_), Some(name)) = (self.listen, typed(&["listeners"])) {
            return twice("--listen", name);
        }
        if let (Some(_), Some(name)) = (&self.advertise, typed(&["advertised.listeners"])) {
            return twice("--advertise", name);
        }
        for (index, topic) in self.topic.iter().enumerate() {
            let earlier = self.topic[..index].iter().find(|earlier| earlier.name == topic.name);
            if earlier.is_some_and(|earlier| earlier.partitions != topic.partitions) {
                return Err(Failure::usage(format!(
                    "--topic {}: it is named twice, with different numbers of partitions",
                    topic.name
                )));
            }
        }
        Ok(())
    }

    /// Refuses the data directory as that of `--secure`: the broker locks each of them.
    fn check_secure_dir(&self, data: Option<&Path>) -> Result<(), Failure> {
        let (Some(data), Some(secure)) = (data, &self.security.secure) else { return Ok(()) };
        let place = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
        if place(data) != place(secure) {
            return Ok(());
        }
        let secure = secure.display();
        Err(Failure::usage(format!(
            "--secure {secure}: this is the data directory; use one of its own, such as --secure {secure}/secure"
        )))
    }

    /// Sets the feature levels of a new data directory.
    fn set_features(&self, config: &mut BrokerConfig) {
        if let Some(name) = &self.release_version {
            config.set_release_version(name);
        }
        for (feature, level) in &self.feature {
            config.set_feature_level(feature, *level);
        }
    }

    /// Refuses properties that have no effect on the default listener: clients would find a listener without security.
    fn check_listener_properties(&self, config: &BrokerConfig) -> Result<(), Failure> {
        let Some(name) = config.property_without_listeners() else { return Ok(()) };
        let problem = format!("`{name}` has no effect without `listeners`");
        if self.listen.is_none() && self.security.secure.is_none() {
            return Err(Failure::usage(format!("{problem}: set that property, too")));
        }
        self.warn(&problem);
        Ok(())
    }

    /// The listeners of the flags, or of the properties. None with `--secure`, which makes its own.
    fn listeners(&self, config: &BrokerConfig) -> Result<Vec<Listener>, Failure> {
        let of_properties =
            if self.listen.is_some() { None } else { config.listeners().map_err(Failure::Usage)? };
        if self.security.secure.is_some() {
            return match of_properties {
                Some(_) => Err(Failure::usage(
                    "--secure makes its own listener: remove `listeners`, or use --listen",
                )),
                None => Ok(Vec::new()),
            };
        }
        let mut listeners = of_properties
            .unwrap_or_else(|| vec![Listener::new("PLAINTEXT", self.listen.unwrap_or(LISTEN_DEFAULT))]);
        if let (Some(advertise), Some(first)) = (&self.advertise, listeners.first_mut()) {
            first.advertise = Some(advertise.clone());
        }
        for listener in &listeners {
            let address = listener.address;
            if address.ip().is_loopback() || listener.requires_authentication() {
                continue;
            }
            let danger =
                format!("no authentication: everyone who reaches {address} can read and write all data");
            if !self.security.insecure {
                return Err(Failure::Usage(format!("{danger}; use --secure DIR, or --insecure to allow it")));
            }
            self.warn(&danger);
        }
        Ok(listeners)
    }

    /// Starts the endpoint of `--metrics-listen`, which answers while the broker starts.
    fn endpoint(&self) -> Result<Option<Endpoint>, Failure> {
        let operation = &self.operation;
        let Some(address) = operation.metrics_listen else { return Ok(None) };
        let endpoint = Endpoint::start(address, operation.metrics_series_max as usize)?;
        if !endpoint.address().ip().is_loopback() {
            self.warn(&format!(
                "no authentication: everyone who reaches {} can read the names and the sizes of topics and groups",
                endpoint.address()
            ));
        }
        match self.log_format {
            LogFormat::Text => note(&format!("metrics at {}", endpoint.metrics_url())),
            LogFormat::Json => {
                tracing::info!(target: "ottla", url = endpoint.metrics_url(), "metrics are served");
            }
        }
        Ok(Some(endpoint))
    }

    /// Starts the control address.
    async fn control(&self, broker: &Broker) -> Result<Option<ControlServer>, Failure> {
        let Some(address) = &self.operation.control else { return Ok(None) };
        let token = self.operation.control_token.as_deref();
        let control = ControlServer::start(address, token, broker.control()).await?;
        match self.log_format {
            LogFormat::Text => note(&format!("control at {}", control.address())),
            LogFormat::Json => {
                tracing::info!(target: "ottla", address = %control.address(), "the broker is controlled");
            }
        }
        Ok(Some(control))
    }

    /// Warns of topics that exist with another number of partitions than that of `--topic`.
    fn warn_of_partitions(&self, broker: &Broker) {
        for TopicSpec { name, partitions } in &self.topic {
            let existing = broker.cluster().partitions_of(name);
            if let (Some(wanted), Some(existing)) = (*partitions, existing)
                && usize::try_from(wanted) != Ok(existing)
            {
                let has = counted(existing as u64, "partition");
                self.warn(&format!("--topic {name}:{wanted}: the topic exists and has {has}"));
            }
        }
    }

    /// Prints a warning about the arguments.
    fn warn(&self, text: &str) {
        match self.log_format {
            LogFormat::Text => note(&format!("ottla: warning: {text}")),
            LogFormat::Json => tracing::warn!(target: "ottla", "{text}"),
        }
    }
}

/// Parses `NAME=LEVEL`.
fn feature_level(text: &str) -> Result<(String, i16), String> {
    let (name, level) = key_value(text)?;
    let number = level
        .trim()
        .parse::<i16>()
        .map_err(|_| format!("`{level}` is no level: use a number, such as {name}=1"))?;
    Ok((name, number))
}

fn runtime(threads: u16) -> Result<Runtime, Failure> {
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        threads => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(threads.into());
            builder
        }
    };
    builder.enable_all().build().map_err(|error| Failure::failed(format!("no runtime: {error}")))
}

async fn serve(builder: BrokerBuilder, start: Start<'_>) -> Result<(), Failure> {
    let Start { ready, mut facts, endpoint, drain_limit, args } = start;
    let mut signals = Signals::handle()?;
    // The recovery of the logs blocks this thread. The next start repeats it, as after a kill.
    let starting = EndAtSignal::start()?;
    let mut broker = builder.start().await.map_err(start_failed)?;
    // This can block the thread, too: a pipe is opened when it has a reader.
    if let Some(file) = &args.operation.trace {
        broker.cluster().trace_requests(file).map_err(|error| Failure::file(file, &error))?;
    }
    // From here on, a signal stops the broker in an orderly way.
    drop(starting);
    give_back();
    args.warn_of_partitions(&broker);
    if let Some(endpoint) = &endpoint {
        endpoint.show(broker.control());
    }
    let control = args.control(&broker).await?;
    facts.control = control.as_ref().map(|control| control.address().absolute().to_string());
    ready.announce(&broker, &facts)?;
    tokio::select! {
        biased;
        _ = signals.next() => {}
        _ = broker.serve_control() => {}
    }
    drop(control);
    notify::stopping();
    let stop = async {
        let open = broker.drain(drain_limit).await;
        if open > 0 {
            tracing::warn!(
                open,
                limit_s = drain_limit.as_secs(),
                "connections are cut: --drain-timeout is over"
            );
        }
        broker.stop().await;
    };
    tokio::select! {
        biased;
        // The next start recovers the logs, as after a kill.
        signal = signals.next() => std::process::exit(128 + i32::from(signal)),
        () = stop => Ok(()),
    }
}

/// The failure for a data directory of a broker that stores nothing.
pub(super) fn stores_nothing(dir: &Path) -> Failure {
    Failure::usage(format!(
        "--data {} and durability memory exclude each other: nothing would be stored there",
        dir.display()
    ))
}

pub(super) fn start_failed(error: StartError) -> Failure {
    match error {
        StartError::Advertise(_)
        | StartError::Topic { .. }
        | StartError::Listener { .. }
        | StartError::Property(_) => Failure::usage(error.to_string()),
        StartError::Listen { ref source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
            Failure::failed(format!(
                "{error}: another process listens there; choose another port with --listen HOST:PORT, or any free one \
                 with port 0"
            ))
        }
        StartError::DataDir { ref dir, .. } if dir.is_file() => {
            Failure::failed(format!("data directory {}: is a file, not a directory", dir.display()))
        }
        StartError::DataDir { ref source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            Failure::failed(format!(
                "{error}: this process runs as user {}; run it as the owner of the directory, or change the owner with chown",
                rustix::process::geteuid().as_raw()
            ))
        }
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
