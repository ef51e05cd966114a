//! `ottla logdirs`.

use ottla_client::{Admin, LogDirDescription, LogDirReplica, Timeouts};
use serde_json::json;

use crate::connect::runtime;
use crate::failure::Failure;
use crate::listing::{Listing, ListingArgs};
use crate::output::note;
use crate::topic_args::topic_name;

/// Prints the log directories of the brokers, with the sizes of their logs and volumes
///
/// Example: `ottla logdirs --replicas --topic orders`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Prints only this node; may be repeated
    #[arg(long, value_name = "ID")]
    node: Vec<i32>,
    /// Counts only replicas of this topic; may be repeated
    #[arg(short, long, value_name = "TOPIC", value_parser = topic_name)]
    topic: Vec<String>,
    /// Prints the replicas instead of the directories
    #[arg(long)]
    replicas: bool,
    #[command(flatten)]
    listing: ListingArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let admin = args.listing.admin().await?;
        check_nodes(&admin, &args.node).await?;
        let names: Vec<&str> = args.topic.iter().map(String::as_str).collect();
        if !names.is_empty() {
            // Fails for a topic that does not exist.
            admin.describe_topics(&names).await?;
        }
        let nodes = Some(&*args.node).filter(|nodes| !nodes.is_empty());
        let mut described = Vec::new();
        let mut failed = None;
        for (node, dirs) in admin.describe_log_dirs(nodes, Timeouts::default()).await? {
            match dirs {
                Ok(dirs) => described.extend(dirs.into_iter().map(|dir| (node, dir))),
                Err(error) => {
                    note(&format!("ottla: the log directories of node {node} are missing"));
                    failed.get_or_insert(error);
                }
            }
        }
        if args.replicas {
            print_replicas(args, &described)?;
        } else {
            print_dirs(args, &described)?;
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    })
}

/// Fails for a node that the cluster does not have, or that is down: the request would wait for it.
async fn check_nodes(admin: &Admin, nodes: &[i32]) -> Result<(), Failure> {
    if nodes.is_empty() {
        return Ok(());
    }
    let known: Vec<i32> = admin.describe_cluster().await?.brokers.iter().map(|node| node.id).collect();
    let Some(absent) = nodes.iter().find(|node| !known.contains(node)) else { return Ok(()) };
    let known: Vec<String> = known.iter().map(ToString::to_string).collect();
    Err(Failure::failed(format!(
        "there is no node {absent}, or it is down: the cluster has {}",
        known.join(", ")
    )))
}

impl Args {
    fn counts(&self, replica: &LogDirReplica) -> bool {
        self.topic.is_empty() || self.topic.iter().any(|topic| **topic == *replica.partition.topic)
    }
}

fn print_dirs(args: &Args, described: &[(i32, LogDirDescription)]) -> Result<(), Failure> {
    let mut listing =
        Listing::new(["node", "path", "replicas", "bytes", "volume_bytes", "volume_free_bytes", "error"]);
    for (node, dir) in described {
        let counted = || dir.replicas.iter().filter(|replica| args.counts(replica));
        listing.row([
            json!(node),
            json!(dir.path),
            json!(counted().count()),
            json!(counted().map(|replica| replica.bytes).sum::<i64>()),
            json!(dir.total_bytes),
            json!(dir.usable_bytes),
            json!(dir.error.as_ref().map(ToString::to_string)),
        ]);
    }
    listing.print(args.listing.format())
}

fn print_replicas(args: &Args, described: &[(i32, LogDirDescription)]) -> Result<(), Failure> {
    let mut listing = Listing::new(["node", "path", "topic", "partition", "bytes", "lag", "future"]);
    for (node, dir) in described {
        for replica in dir.replicas.iter().filter(|replica| args.counts(replica)) {
            listing.row([
                json!(node),
                json!(dir.path),
                json!(&*replica.partition.topic),
                json!(replica.partition.partition),
                json!(replica.bytes),
                json!(replica.lag),
                json!(replica.future),
            ]);
        }
    }
    listing.print(args.listing.format())
}
