//! `ottla topics partitions`, and the partitions of `ottla topics describe`.

use std::collections::{BTreeMap, BTreeSet};

use ottla_client::{Admin, OffsetAt, PartitionDescription, Timeouts, TopicDescription, TopicPartition};
use serde_json::{Value, json};

use super::described;
use crate::failure::Failure;
use crate::failures::Failures;
use crate::listing::{Listing, ListingArgs};
use crate::partition_args::offsets;
use crate::topic_args::topic_name;

/// Prints the partitions of topics in one table, with their offsets and sizes
///
/// Example: `ottla topics partitions --problems`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topics [default: all but the internal ones]
    #[arg(value_name = "TOPIC", value_parser = topic_name)]
    topics: Vec<String>,
    /// Prints only partitions without a leader, or with fewer replicas in sync than replicas
    #[arg(long)]
    problems: bool,
    #[command(flatten)]
    listing: ListingArgs,
}

pub(super) async fn run(args: &Args) -> Result<(), Failure> {
    let admin = args.listing.admin().await?;
    let mut names = args.topics.clone();
    if names.is_empty() {
        let listed = admin.list_topics().await?.into_iter();
        names = listed.filter(|topic| !topic.internal).map(|topic| topic.name).collect();
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut failures = Failures::default();
    let mut topics = described(&admin, &names, &mut failures).await;
    if args.problems {
        for topic in &mut topics {
            topic.partitions.retain(has_problem);
        }
    }
    let ends = Ends::of(&admin, &topics).await?;
    let sizes = sizes(&admin).await;
    let mut listing = Listing::new([
        "topic",
        "partition",
        "leader",
        "leader_epoch",
        "replicas",
        "isr",
        "first",
        "end",
        "bytes",
    ]);
    for topic in &topics {
        for partition in &topic.partitions {
            let at = TopicPartition::new(&topic.name, partition.partition);
            let [number, leader, epoch, replicas, isr, first, end] = ends.row(&at, partition);
            let bytes = json!(sizes.get(&at));
            listing.row([json!(topic.name), number, leader, epoch, replicas, isr, first, end, bytes]);
        }
    }
    failures.print_listing(&listing, args.listing.format());
    failures.result()
}

fn has_problem(partition: &PartitionDescription) -> bool {
    partition.leader.is_none() || partition.isr.len() < partition.replicas.len()
}

/// The first and the end offsets of partitions that have a leader.
pub(super) struct Ends {
    first: BTreeMap<TopicPartition, i64>,
    end: BTreeMap<TopicPartition, i64>,
}

impl Ends {
    pub(super) async fn of(admin: &Admin, topics: &[TopicDescription]) -> Result<Self, Failure> {
        let led = topics.iter().flat_map(|topic| {
            let led = topic.partitions.iter().filter(|partition| partition.leader.is_some());
            led.map(|partition| TopicPartition::new(&topic.name, partition.partition))
        });
        let led: BTreeSet<TopicPartition> = led.collect();
        Ok(Self {
            first: offsets(admin, &led, OffsetAt::Earliest).await?,
            end: offsets(admin, &led, OffsetAt::Latest).await?,
        })
    }

    /// Number, leader, epoch, replicas, replicas in sync, first and end offset.
    pub(super) fn row(&self, at: &TopicPartition, partition: &PartitionDescription) -> [Value; 7] {
        [
            json!(partition.partition),
            json!(partition.leader),
            json!(partition.leader_epoch),
            json!(partition.replicas),
            json!(partition.isr),
            json!(self.first.get(at)),
            json!(self.end.get(at)),
        ]
    }
}

/// The bytes of the largest replica of each partition. Empty if no broker reports them.
async fn sizes(admin: &Admin) -> BTreeMap<TopicPartition, i64> {
    let described = admin.describe_log_dirs(None, Timeouts::default()).await.unwrap_or_default();
    let mut sizes: BTreeMap<TopicPartition, i64> = BTreeMap::new();
    let dirs = described.into_iter().filter_map(|(_, dirs)| dirs.ok()).flatten();
    for replica in dirs.flat_map(|dir| dir.replicas).filter(|replica| !replica.future) {
        let size = sizes.entry(replica.partition).or_default();
        *size = replica.bytes.max(*size);
    }
    sizes
}
