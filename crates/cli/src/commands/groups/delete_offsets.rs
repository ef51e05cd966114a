//! `ottla groups delete-offsets`.

use std::collections::BTreeSet;

use ottla_client::{Admin, Error, ErrorCode, Timeouts, TopicPartition};
use serde_json::json;

use super::{Group, find, share, unknown};
use crate::failure::Failure;
use crate::failures::Failures;
use crate::listing::{Listing, ListingArgs};
use crate::partition_args::{TopicAndPartition, topic_and_partition};

/// Deletes a group's committed offsets of topics that no member subscribes to
///
/// A share group must have no members; it loses the states of all records of whole topics. Example: `ottla groups delete-offsets billing --topic orders`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The group
    group: String,
    /// A topic, or with :PARTITION one partition of it; may be repeated
    #[arg(short, long, required = true, value_name = "TOPIC[:PARTITION]", value_parser = topic_and_partition)]
    topic: Vec<TopicAndPartition>,
    #[command(flatten)]
    listing: ListingArgs,
}

pub(super) async fn run(args: &Args) -> Result<(), Failure> {
    let admin = args.listing.admin().await?;
    let group = &args.group;
    match find(&admin, group).await? {
        None => return Err(unknown(group)),
        Some(Group::Share(_)) => {
            return share::delete_offsets(&admin, group, &args.topic, args.listing.format()).await;
        }
        Some(Group::Committing(_)) => {}
    }
    let partitions = chosen(&admin, args).await?;
    let deleted = admin.delete_group_offsets(&args.group, &partitions, Timeouts::default()).await?;
    let mut listing = Listing::new(["topic", "partition", "deleted"]);
    let mut failures = Failures::default();
    for (at, result) in deleted {
        listing.row([json!(&*at.topic), json!(at.partition), json!(result.is_ok())]);
        match result {
            Ok(()) => {}
            Err(Error::Broker { code: ErrorCode::GroupSubscribedToTopic, .. }) => {
                failures.push(Failure::failed(format!(
                    "members of group `{}` subscribe to topic `{}`: stop them first",
                    args.group, at.topic
                )));
            }
            Err(error) => failures.push(error),
        }
    }
    failures.print_listing(&listing, args.listing.format());
    failures.result()
}

/// The partitions of the arguments that have committed offsets.
async fn chosen(admin: &Admin, args: &Args) -> Result<Vec<TopicPartition>, Failure> {
    let group = &args.group;
    let committed = admin.group_offsets(group, None).await?;
    // A topic and one of its partitions may both be named.
    let mut partitions = BTreeSet::new();
    for (topic, only) in &args.topic {
        let is_meant = |at: &&TopicPartition| {
            *at.topic == **topic && only.is_none_or(|partition| partition == at.partition)
        };
        let found: Vec<_> = committed.keys().filter(is_meant).cloned().collect();
        if found.is_empty() {
            let partition = only.map(|partition| format!(" partition {partition}")).unwrap_or_default();
            return Err(Failure::failed(format!(
                "group `{group}` has no committed offset of topic `{topic}`{partition}: \
                 `ottla groups describe {group}` prints its offsets"
            )));
        }
        partitions.extend(found);
    }
    Ok(partitions.into_iter().collect())
}
