//! `ottla topics delete-records`.

use std::collections::{BTreeMap, BTreeSet};

use ottla_client::{Admin, DeleteBefore, Error, ErrorCode, OffsetAt, Timeouts, TopicPartition};
use serde_json::json;

use crate::failure::Failure;
use crate::failures::Failures;
use crate::listing::{Listing, ListingArgs};
use crate::output::note;
use crate::partition_args::{
    Target, TopicAndPartition, offsets, parse_target, partitions_of, topic_and_partition,
};

/// Deletes the records before a position, for good
///
/// Example: `ottla topics delete-records orders:0 --before 1000`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topics, or with :PARTITION one partition
    #[arg(required = true, value_name = "TOPIC[:PARTITION]", value_parser = topic_and_partition)]
    topics: Vec<TopicAndPartition>,
    /// The first record to keep: an offset, a time, or end to delete all
    #[arg(long, value_name = "OFFSET|TIME|end", value_parser = parse_target)]
    before: Target,
    /// Prints the first offsets that would be kept, and deletes nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    listing: ListingArgs,
}

pub(super) async fn run(args: &Args) -> Result<(), Failure> {
    let admin = args.listing.admin().await?;
    let partitions = partitions_of(&admin, &args.topics).await?;
    let starts = offsets(&admin, &partitions, OffsetAt::Earliest).await?;
    let new = positions(&admin, args.before, &partitions).await?;
    let mut listing = Listing::new(["topic", "partition", "first_before", "first"]);
    let mut row = |at: &TopicPartition, first: Option<i64>| {
        listing.row([json!(&*at.topic), json!(at.partition), json!(starts.get(at)), json!(first)]);
    };
    let mut failed = Vec::new();
    let mut failures = Failures::default();
    if args.dry_run {
        let ends = offsets(&admin, &partitions, OffsetAt::Latest).await?;
        for (at, offset) in &new {
            // The broker refuses such an offset.
            if let Some(end) = ends.get(at).filter(|end| offset > *end) {
                row(at, None);
                failures.push(past_end(at, *offset, *end));
                continue;
            }
            row(at, Some((*offset).max(starts.get(at).copied().unwrap_or(0))));
        }
        note("dry run: nothing was deleted");
    } else {
        let before: Vec<_> =
            new.iter().map(|(at, offset)| (at.clone(), DeleteBefore::Offset(*offset))).collect();
        for (at, result) in admin.delete_records(&before, Timeouts::default()).await? {
            row(&at, result.as_ref().ok().copied());
            if let Err(error) = result {
                failed.push((at, error));
            }
        }
    }
    failures.print_listing(&listing, args.listing.format());
    for (at, error) in failed {
        failures.push(failure(&admin, &at, new.get(&at).copied(), error).await);
    }
    failures.result()
}

async fn failure(admin: &Admin, at: &TopicPartition, before: Option<i64>, error: Error) -> Failure {
    if error.broker_code() != Some(ErrorCode::OffsetOutOfRange) {
        return error.into();
    }
    let end = match offsets(admin, &BTreeSet::from([at.clone()]), OffsetAt::Latest).await {
        Ok(end) => end.get(at).copied().unwrap_or(-1),
        Err(failure) => return failure,
    };
    past_end(at, before.unwrap_or(-1), end)
}

/// The failure for an offset past the end.
fn past_end(at: &TopicPartition, before: i64, end: i64) -> Failure {
    Failure::failed(format!(
        "topic `{}` partition {}: cannot delete before {before}, because the log ends at {end}; `--before end` deletes all \
         records",
        at.topic, at.partition
    ))
}

/// The first offset to keep of each partition.
async fn positions(
    admin: &Admin,
    before: Target,
    partitions: &BTreeSet<TopicPartition>,
) -> Result<BTreeMap<TopicPartition, i64>, Failure> {
    match before {
        Target::Offset(offset) => Ok(partitions.iter().map(|at| (at.clone(), offset)).collect()),
        Target::Listed(which) => offsets(admin, partitions, which).await,
    }
}
