//! Arguments and first contact of all commands that connect to a broker.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ottla_client::{Admin, Client, ClusterDescription, Config, TcpConnector};
use tokio::runtime::Runtime;

use crate::failure::{ADVICE, Failure, remember_user};
use crate::other_tools;
use crate::properties::{self, Property, key_value};
use crate::security_args::SecurityArgs;
use crate::warnings;

/// The default bootstrap server.
const DEFAULT_BROKERS: &str = "127.0.0.1:9092";

/// The environment variable with the bootstrap servers of commands that are given none.
const BROKERS_VARIABLE: &str = "OTTLA_BROKERS";

/// The names of the property with the bootstrap servers.
const BROKERS_PROPERTIES: [&str; 2] = ["bootstrap.servers", "metadata.broker.list"];

/// Time limit of the first contact.
const CONTACT_WITHIN: Duration = Duration::from_secs(10);

/// Default time limit of one connection attempt; a property overrides it.
const CONNECT_TIMEOUT_MS: &str = "5000";

/// The address of the cluster, and the client's properties.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectArgs {
    /// Bootstrap servers, as `host` or `host:port`, separated by commas [default: the variable OTTLA_BROKERS, or
    /// 127.0.0.1:9092]
    #[arg(short, long, visible_aliases = ["bootstrap-server", "bootstrap-servers"], value_name = "HOST:PORT,...")]
    pub(crate) brokers: Option<String>,
    /// A client property, by librdkafka's or Java's name; may be repeated: the last value of a key applies
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
        self.config_with(ours, std::env::var_os(BROKERS_VARIABLE).as_deref())
    }

    /// The configuration with this value of [`BROKERS_VARIABLE`], which everything on the command line overrides.
    fn config_with(&self, ours: &[(&str, &str)], variable: Option<&OsStr>) -> Result<Config, Failure> {
        let mut config = Config::new(DEFAULT_BROKERS);
        config.set("socket.connection.setup.timeout.ms", CONNECT_TIMEOUT_MS)?;
        config.set_all(ours.iter().copied())?;
        let properties = properties::collect(self.config.as_deref(), &self.properties)?;
        let is_given = properties.iter().any(names_brokers) || self.brokers.is_some();
        if let Some(brokers) = variable.filter(|brokers| !brokers.is_empty() && !is_given) {
            let brokers = brokers.to_string_lossy();
            check_variable(&brokers)?;
            config.set("bootstrap.servers", &brokers)?;
        }
        for property in &properties {
            config.set(&property.name, &property.value).map_err(|error| match error {
                ottla_client::Error::Config(text) => {
                    Failure::Usage(property.located(&other_tools::with_remedy(&property.name, text)))
                }
                error => error.into(),
            })?;
        }
        if let Some(brokers) = &self.brokers {
            // A file may name another cluster than the option, but the command line may not name two.
            let mut typed = properties.iter().filter(|property| property.at.is_none());
            if let Some(other) = typed.find(|other| names_brokers(other) && other.value != *brokers) {
                return Err(Failure::usage(format!(
                    "--brokers {brokers} and -X {}={} name different servers: use one of them",
                    other.name, other.value
                )));
            }
            config.set("bootstrap.servers", brokers)?;
        }
        self.security.apply(&mut config)?;
        if let Some(user) = &config.security.sasl.username {
            remember_user(user);
        }
        warnings::watch(&mut config, false)?;
        Ok(config)
    }
}

/// Checks the servers of [`BROKERS_VARIABLE`]. The errors of a client name its property, which is not on the command line.
fn check_variable(brokers: &str) -> Result<(), Failure> {
    match Client::with_engine(Config::new(brokers), Arc::new(TcpConnector::default()), 0) {
        Err(ottla_client::Error::Config(text)) => {
            let problem = text.strip_prefix("bootstrap.servers: ").unwrap_or(&text);
            Err(Failure::usage(format!("{BROKERS_VARIABLE}: {problem}")))
        }
        created => created.map(drop).map_err(Failure::from),
    }
}

fn names_brokers(property: &Property) -> bool {
    BROKERS_PROPERTIES.contains(&&*property.name)
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
            "no broker answered at {brokers} within {} s ({ADVICE})",
            CONTACT_WITHIN.as_secs()
        ))),
    }
}

/// An admin client of a cluster that answers. As in Kafka's tools, the end of a partition is after the records of open
/// transactions.
pub(crate) async fn admin(connect: &ConnectArgs) -> Result<Admin, Failure> {
    Ok(contact(connect.config(&[("isolation.level", "read_uncommitted")])?).await?.0.admin())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        connect: ConnectArgs,
    }

    fn servers(variable: &str, args: &[&str]) -> Result<String, String> {
        let connect = Cli::parse_from([&["ottla"], args].concat()).connect;
        let config = connect.config_with(&[], Some(OsStr::new(variable)));
        config.map(|config| config.bootstrap_servers).map_err(|failure| failure.to_string())
    }

    #[test]
    fn every_argument_wins_over_the_environment() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("client.properties");
        std::fs::write(&file, "bootstrap.servers=file:1\n").expect("written");
        let file = file.to_str().expect("UTF-8");
        for (variable, args, expected) in [
            ("", &[][..], DEFAULT_BROKERS),
            ("variable:1", &[], "variable:1"),
            ("variable:1", &["--config", file], "file:1"),
            ("variable:1", &["-X", "bootstrap.servers=property:1"], "property:1"),
            ("variable:1", &["-X", "metadata.broker.list=property:1"], "property:1"),
            ("variable:1", &["-b", "option:1", "--config", file], "option:1"),
        ] {
            assert_eq!(servers(variable, args).as_deref(), Ok(expected), "{args:?}");
        }
    }

    /// The error named `bootstrap.servers`, which was nowhere on the command line.
    #[test]
    fn wrong_servers_in_the_environment_are_those_of_the_variable() {
        for variable in ["a:x", "a:1,:2", "http://a:1"] {
            let refused = servers(variable, &[]).expect_err("no servers");
            assert!(refused.starts_with("OTTLA_BROKERS: `"), "{refused}");
        }
    }

    #[test]
    fn two_different_clusters_on_the_command_line_are_refused() {
        let refused = servers("", &["-b", "a:1", "-X", "bootstrap.servers=b:1"]).expect_err("two clusters");
        assert!(refused.contains("a:1") && refused.contains("b:1"), "{refused}");
        assert_eq!(servers("", &["-b", "a:1", "-X", "bootstrap.servers=a:1"]).as_deref(), Ok("a:1"));
    }
}
