//! What every command that talks to a broker has in common: where it is, properties, and the first contact.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ottla_client::{Admin, Client, ClusterDescription, Config};
use tokio::runtime::Runtime;

use crate::failure::Failure;
use crate::properties::{self, key_value};
use crate::warnings;

/// Where a broker is looked for when nobody says.
const DEFAULT_BROKERS: &str = "127.0.0.1:9092";

/// How long the first contact may take.
const CONTACT_WITHIN: Duration = Duration::from_secs(10);

/// How long one attempt to connect may take, unless a property says otherwise.
const CONNECT_TIMEOUT_MS: &str = "5000";

/// Where the cluster is, and how to talk to it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectArgs {
    /// Brokers to ask for the cluster, as `host` or `host:port`, separated by commas [default: 127.0.0.1:9092]
    #[arg(short, long, env = "OTTLA_BROKERS", value_name = "HOST:PORT,...")]
    pub(crate) brokers: Option<String>,
    /// A client property, by librdkafka's or Java's name; may be repeated
    #[arg(short = 'X', long = "property", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) properties: Vec<(String, String)>,
    /// A file of properties: Java's or kcat's
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

impl ConnectArgs {
    /// The configuration: `ours` first, over it the file, `-X` and `--brokers`.
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
        warnings::watch(&mut config, false)?;
        Ok(config)
    }
}

/// A runtime for the calls of this thread; the client's engine has its own.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no runtime: {error}")))
}

/// Makes a client and sees that a broker answers: an unreachable one is reported now, and not when retries end.
pub(crate) async fn contact(config: Config) -> Result<(Client, ClusterDescription), Failure> {
    let brokers = config.bootstrap_servers.clone();
    let client = Client::new(config)?;
    let admin = Admin::of(&client);
    match tokio::time::timeout(CONTACT_WITHIN, admin.describe_cluster()).await {
        Ok(cluster) => Ok((client, cluster?)),
        Err(_) => Err(Failure::failed(format!(
            "no broker answered at {brokers} within {} s (`ottla doctor -b {brokers}` finds causes)",
            CONTACT_WITHIN.as_secs()
        ))),
    }
}

/// An admin of a cluster that answers.
pub(crate) async fn admin(connect: &ConnectArgs) -> Result<Admin, Failure> {
    Ok(Admin::of(&contact(connect.config(&[])?).await?.0))
}
