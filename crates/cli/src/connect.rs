//! Arguments and first contact of all commands that connect to a broker.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ottla_client::{Admin, Client, ClusterDescription, Config};
use tokio::runtime::Runtime;

use crate::failure::Failure;
use crate::properties::{self, key_value};
use crate::security_args::SecurityArgs;
use crate::warnings;

/// The default bootstrap server.
const DEFAULT_BROKERS: &str = "127.0.0.1:9092";

/// Time limit of the first contact.
const CONTACT_WITHIN: Duration = Duration::from_secs(10);

/// Default time limit of one connection attempt; a property overrides it.
const CONNECT_TIMEOUT_MS: &str = "5000";

/// The address of the cluster, and the client's properties.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectArgs {
    /// Bootstrap servers, as `host` or `host:port`, separated by commas [default: 127.0.0.1:9092]
    #[arg(short, long, env = "OTTLA_BROKERS", value_name = "HOST:PORT,...")]
    pub(crate) brokers: Option<String>,
    /// A client property, by librdkafka's or Java's name; may be repeated
    #[arg(short = 'X', long = "property", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) properties: Vec<(String, String)>,
    /// A properties file, in Java's or kcat's format
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    security: SecurityArgs,
}

impl ConnectArgs {
    /// The configuration: the defaults in `ours`, overridden by the file, then by `-X`, then by the other options.
    pub(crate) fn config(&self, ours: &[(&str, &str)]) -> Result<Config, Failure> {
        let mut config = Config::new(DEFAULT_BROKERS);
        config.set("socket.connection.setup.timeout.ms", CONNECT_TIMEOUT_MS)?;
        config.set_all(ours.iter().copied())?;
        for property in properties::collect(self.config.as_deref(), &self.properties)? {
            config.set(&property.name, &property.value).map_err(|error| match error {
                ottla_client::Error::Config(text) => Failure::Usage(property.located(&text)),
                error => error.into(),
            })?;
        }
        if let Some(brokers) = &self.brokers {
            config.set("bootstrap.servers", brokers)?;
        }
        self.security.apply(&mut config)?;
        warnings::watch(&mut config, false)?;
        Ok(config)
    }
}

impl ConnectArgs {
    /// The arguments again, for a process of the same program.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut all = Vec::new();
        if let Some(brokers) = &self.brokers {
            all.extend(["--brokers".to_owned(), brokers.clone()]);
        }
        for (key, value) in &self.properties {
            all.extend(["-X".to_owned(), format!("{key}={value}")]);
        }
        if let Some(config) = &self.config {
            all.extend(["--config".to_owned(), config.display().to_string()]);
        }
        all.extend(self.security.arguments());
        all
    }
}

/// A runtime for the calls of this thread. The client's engine has its own.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start a runtime: {error}")))
}

/// Creates a client and waits for a broker's answer, so that an unreachable cluster is reported early.
pub(crate) async fn contact(config: Config) -> Result<(Client, ClusterDescription), Failure> {
    let brokers = config.bootstrap_servers.clone();
    let client = Client::new(config)?;
    let admin = client.admin();
    match tokio::time::timeout(CONTACT_WITHIN, admin.describe_cluster()).await {
        Ok(cluster) => Ok((client, cluster?)),
        Err(_) => Err(Failure::failed(format!(
            "no broker answered at {brokers} within {} s (run `ottla doctor -b {brokers}` to find the cause)",
            CONTACT_WITHIN.as_secs()
        ))),
    }
}

/// An admin client of a cluster that answers.
pub(crate) async fn admin(connect: &ConnectArgs) -> Result<Admin, Failure> {
    Ok(contact(connect.config(&[])?).await?.0.admin())
}
