//! `ottla clients`: the metrics that clients push to the broker (KIP-714).

use std::collections::BTreeMap;

use ottla_client::{Admin, AlterOptions, ConfigChange, ConfigResource, ConfigResourceType, DescribeConfigs};
use serde_json::{Value, json};

use super::fault::ControlArgs;
use crate::connect::{ConnectArgs, admin, runtime};
use crate::failure::Failure;
use crate::listing::{Listing, OutputArgs};
use crate::output::print;

/// Shows the metrics that clients push, and asks clients for them
///
/// Kafka's Java client, librdkafka and others push their own metrics to the broker that asks for them. Ask first:
/// `ottla clients subscribe all --metrics '*' --interval-ms 10000`, before the clients start: without a subscription, a broker does not
/// tell clients that it takes metrics.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Clients {
    /// Prints the clients that were asked for metrics or have pushed some
    List {
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Prints the values of each client's last push
    Metrics {
        /// Only metrics whose names contain this
        #[arg(long, value_name = "TEXT", default_value = "")]
        name: String,
        /// Only the client with this client.id
        #[arg(long, value_name = "ID")]
        client_id: Option<String>,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Asks clients for metrics; replaces the subscription of this name
    Subscribe {
        /// The name of the subscription, for `unsubscribe`
        name: String,
        /// Prefixes of the names of metrics, or `*` for all
        #[arg(long, value_name = "PREFIX", required = true, value_delimiter = ',')]
        metrics: Vec<String>,
        /// The time between two pushes of a client
        #[arg(long, value_name = "MS", default_value_t = 60_000)]
        interval_ms: u32,
        /// Only clients that match all of these: `client_id=till-.*`, `client_software_name=...`
        #[arg(long = "match", value_name = "KEY=REGEX")]
        matches: Vec<String>,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Removes a subscription
    Unsubscribe {
        /// The name of the subscription
        name: String,
        #[command(flatten)]
        connect: ConnectArgs,
    },
}

pub(crate) fn run(clients: &Clients) -> Result<(), Failure> {
    match clients {
        Clients::List { output, control } => list(&pushed(control)?, *output),
        Clients::Metrics { name, client_id, output, control } => {
            metrics(&pushed(control)?, name, client_id.as_deref(), *output)
        }
        Clients::Subscribe { name, metrics, interval_ms, matches, connect } => {
            let set =
                |text: String| if text.is_empty() { ConfigChange::Delete } else { ConfigChange::Set(text) };
            let changes = [
                ("metrics", set(metrics.join(","))),
                ("interval.ms", set(interval_ms.to_string())),
                ("match", set(matches.join(","))),
            ];
            change(name, changes, connect)
        }
        Clients::Unsubscribe { name, connect } => {
            runtime()?.block_on(async { check_subscription(&admin(connect).await?, name).await })?;
            change(name, ["metrics", "interval.ms", "match"].map(|key| (key, ConfigChange::Delete)), connect)
        }
    }
}

/// The clients, as the control address has them.
fn pushed(control: &ControlArgs) -> Result<Vec<Value>, Failure> {
    let mut answer = control.call("GET", "/clients", &Value::Null)?;
    match answer["clients"].take() {
        Value::Array(clients) => Ok(clients),
        _ => {
            Err(Failure::failed("the broker does not list its clients: it is of another version".to_owned()))
        }
    }
}

fn list(clients: &[Value], output: OutputArgs) -> Result<(), Failure> {
    let columns =
        ["client_id", "software", "address", "client_instance_id", "interval_ms", "pushes", "pushed_at_ms"];
    let mut listing = Listing::new(columns);
    for client in clients {
        listing.row(columns.map(|column| client[column].clone()));
    }
    listing.print(output.output)
}

fn metrics(
    clients: &[Value],
    name: &str,
    client_id: Option<&str>,
    output: OutputArgs,
) -> Result<(), Failure> {
    let mut listing = Listing::new(["client_id", "metric", "labels", "value"]);
    let of_client = |client: &&Value| client_id.is_none_or(|id| client["client_id"] == id);
    for client in clients.iter().filter(of_client) {
        for sample in client["metrics"].as_array().into_iter().flatten() {
            let metric = sample["name"].as_str().unwrap_or_default();
            if metric.contains(name) {
                let labels: BTreeMap<String, String> =
                    serde_json::from_value(sample["labels"].clone()).unwrap_or_default();
                let labels: Vec<String> =
                    labels.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
                listing.row([
                    client["client_id"].clone(),
                    json!(metric),
                    json!(labels.join(" ")),
                    sample["value"].clone(),
                ]);
            }
        }
    }
    listing.print(output.output)
}

/// Fails for a name without a subscription, which is probably misspelt.
async fn check_subscription(admin: &Admin, name: &str) -> Result<(), Failure> {
    let resource = ConfigResource::new(ConfigResourceType::ClientMetrics, name);
    for (_, entries) in admin.describe_configs(&[resource], DescribeConfigs::default()).await? {
        if entries?.iter().all(|entry| entry.default) {
            return Err(Failure::failed(format!("there is no subscription `{name}`")));
        }
    }
    Ok(())
}

fn change(name: &str, changes: [(&str, ConfigChange); 3], connect: &ConnectArgs) -> Result<(), Failure> {
    let resource = ConfigResource::new(ConfigResourceType::ClientMetrics, name);
    let changes = changes.map(|(key, change)| (key.to_owned(), change)).to_vec();
    runtime()?.block_on(async {
        let admin = admin(connect).await?;
        let changed =
            admin.incremental_alter_configs(&[(resource, changes)], AlterOptions::default()).await?;
        for (_, changed) in changed {
            changed?;
        }
        print(&format!(
            "changed {name}; clients that connect from now on notice at once, and others when they ask again or connect again\n"
        ))
    })
}
