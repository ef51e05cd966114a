//! `ottla cluster`.

use ottla_client::{
    ClusterDescription, DescribeOptions, Error, FeatureDescription, QuorumDescription, QuorumReplica,
    Timeouts,
};
use serde_json::{Value, json};

use crate::connect::runtime;
use crate::failure::Failure;
use crate::json_log::json_line;
use crate::listing::{Format, Listing, ListingArgs};
use crate::output::print;
use crate::printable::printable;

/// Prints the id, the controller, the nodes, the features and the quorum of the cluster
///
/// Example: `ottla cluster --output json`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    listing: ListingArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let admin = args.listing.admin().await?;
        let cluster = admin.describe_cluster_with(DescribeOptions::default()).await?;
        let features = admin.describe_features(Timeouts::default()).await?;
        let quorum = match admin.describe_quorum(Timeouts::default()).await {
            Ok(quorum) => Some(quorum),
            // A cluster with ZooKeeper has none.
            Err(Error::Unsupported { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let nodes = nodes(&cluster);
        let features = self::features(&features);
        print(&match args.listing.format() {
            Format::Json => {
                let object = json!({
                    "cluster_id": cluster.id,
                    "controller": cluster.controller,
                    "nodes": nodes.objects(),
                    "features": features.objects(),
                    "quorum": quorum.as_ref().map(quorum_object),
                });
                json_line(&object) + "\n"
            }
            Format::Table => {
                let unknown = || "unknown".to_owned();
                let controller = cluster.controller.map_or_else(unknown, |id| id.to_string());
                let id = cluster.id.clone().unwrap_or_else(unknown);
                let id = printable(&id);
                format!(
                    "cluster {id}  controller {controller}\n\n{}\n{}\n{}",
                    nodes.render(Format::Table),
                    features.render(Format::Table),
                    quorum
                        .as_ref()
                        .map_or_else(|| "no quorum: the brokers use ZooKeeper\n".into(), quorum_text)
                )
            }
        })
    })
}

fn nodes(cluster: &ClusterDescription) -> Listing<4> {
    let mut listing = Listing::new(["node", "host", "port", "rack"]);
    for node in &cluster.brokers {
        listing.row([json!(node.id), json!(node.host), json!(node.port), json!(node.rack)]);
    }
    listing
}

fn features(features: &[FeatureDescription]) -> Listing<4> {
    let mut listing = Listing::new(["feature", "finalized", "supported_min", "supported_max"]);
    for feature in features {
        let (min, max) = (feature.supported.map(|(min, _)| min), feature.supported.map(|(_, max)| max));
        listing.row([json!(feature.name), json!(feature.finalized), json!(min), json!(max)]);
    }
    listing
}

fn quorum_object(quorum: &QuorumDescription) -> Value {
    let replicas = |replicas: &[QuorumReplica]| {
        let objects = replicas.iter().map(|replica| {
            json!({
                "node": replica.id,
                "log_end_offset": replica.log_end_offset,
                "lag": (quorum.high_watermark - replica.log_end_offset).max(0),
                "caught_up_ms": replica.caught_up_ms,
            })
        });
        objects.collect::<Vec<_>>()
    };
    json!({
        "leader": quorum.leader,
        "leader_epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "voters": replicas(&quorum.voters),
        "observers": replicas(&quorum.observers),
    })
}

fn quorum_text(quorum: &QuorumDescription) -> String {
    let mut text = format!(
        "quorum  leader {}  epoch {}  high watermark {}\n",
        quorum.leader, quorum.leader_epoch, quorum.high_watermark
    );
    let mut listing = Listing::new(["node", "role", "log_end_offset"]);
    for (role, replicas) in [("voter", &quorum.voters), ("observer", &quorum.observers)] {
        for replica in replicas {
            listing.row([json!(replica.id), json!(role), json!(replica.log_end_offset)]);
        }
    }
    text += &listing.render(Format::Table);
    text
}
