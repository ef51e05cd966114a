//! `ottla groups list`.

use std::collections::{BTreeMap, BTreeSet};

use ottla_client::{Admin, GroupFilter, GroupListing, Timeouts, TopicPartition};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::share;
use crate::choices::{GROUP_STATES, GROUP_TYPES, completed, group_state, group_type};
use crate::failure::Failure;
use crate::failures::Failures;
use crate::listing::{Listing, ListingArgs};
use crate::output::note;
use crate::partition_args::KnownEnds;

/// Groups whose offsets are fetched at a time.
const AT_ONCE: usize = 16;
/// The type of share groups, which commit no offsets: brokers report their lag.
const SHARE: &str = "share";

/// Prints every group with its state, type and lag
///
/// The lag is the sum over the partitions with a committed offset, or a start offset of a share group. Without any, or if a
/// partition has no leader, it is unknown. Example:
/// `ottla groups list --state stable`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Prints only groups in this state; may be repeated
    #[arg(long, value_name = "STATE", value_parser = completed(group_state, GROUP_STATES), hide_possible_values = true)]
    state: Vec<String>,
    /// Prints only groups of this type: classic, consumer, share or streams; may be repeated
    #[arg(long = "type", value_name = "TYPE", value_parser = completed(group_type, GROUP_TYPES), hide_possible_values = true)]
    kind: Vec<String>,
    /// Leaves out the lag, which takes a request for each group
    #[arg(long)]
    no_lag: bool,
    #[command(flatten)]
    listing: ListingArgs,
}

pub(super) async fn run(args: &Args) -> Result<(), Failure> {
    let admin = args.listing.admin().await?;
    let filter = GroupFilter { states: args.state.clone(), kinds: args.kind.clone() };
    let listed = admin.list_groups_with(filter, Timeouts::default()).await?;
    let mut failures = Failures::default();
    let lags =
        if args.no_lag { BTreeMap::new() } else { lags(&admin, &listed.groups, &mut failures).await? };
    let mut listing = Listing::new(["group", "state", "type", "protocol", "coordinator", "lag"]);
    let known = |text: String| if text.is_empty() { Value::Null } else { text.into() };
    for group in listed.groups {
        let lag = json!(lags.get(&group.group));
        listing.row([
            json!(group.group),
            known(group.state),
            known(group.kind),
            known(group.protocol_type),
            json!(group.coordinator),
            lag,
        ]);
    }
    failures.print_listing(&listing, args.listing.format());
    for (node, error) in listed.errors {
        note(&format!("ottla: the groups of node {node} are missing"));
        failures.push(error);
    }
    failures.result()
}

/// The lag of each group that has offsets. A group whose offsets cannot be fetched, or a partition without a leader, is a failure
/// that does not hide the others.
async fn lags(
    admin: &Admin,
    groups: &[GroupListing],
    failures: &mut Failures,
) -> Result<BTreeMap<String, i64>, Failure> {
    let mut committed = Vec::with_capacity(groups.len());
    let mut lags = BTreeMap::new();
    let mut asking = JoinSet::new();
    let mut groups = groups.iter();
    loop {
        while asking.len() < AT_ONCE {
            let Some(group) = groups.next() else { break };
            let (admin, name, is_share) = (admin.clone(), group.group.clone(), group.kind == SHARE);
            asking.spawn(async move {
                let progress = if is_share {
                    share::lag(&admin, &name).await.map(Progress::Lag)
                } else {
                    admin.group_offsets(&name, None).await.map(Progress::Committed)
                };
                (name, progress)
            });
        }
        let Some(answer) = asking.join_next().await else { break };
        let (name, progress) =
            answer.map_err(|error| Failure::failed(format!("a request was not sent: {error}")))?;
        match progress {
            Ok(Progress::Committed(offsets)) => committed.push((name, offsets)),
            Ok(Progress::Lag(lag)) => lags.extend(lag.map(|lag| (name, lag))),
            Err(error) => {
                note(&format!("ottla: the lag of group `{name}` is unknown"));
                failures.push(error);
            }
        }
    }
    let partitions: BTreeSet<TopicPartition> =
        committed.iter().flat_map(|(_, offsets)| offsets.keys().cloned()).collect();
    let ends = KnownEnds::of(admin, &partitions, failures).await?;
    let lag = |(name, offsets): (String, BTreeMap<TopicPartition, i64>)| {
        // The sum of the others would be too small.
        if offsets.keys().any(|at| ends.is_unknown(at)) {
            return None;
        }
        // A deleted topic has no end.
        let lags = offsets.iter().filter_map(|(at, offset)| Some((ends.end(at)? - offset).max(0)));
        lags.reduce(i64::saturating_add).map(|lag| (name, lag))
    };
    lags.extend(committed.into_iter().filter_map(lag));
    Ok(lags)
}

/// The progress of a group, as the coordinator reports it.
enum Progress {
    Committed(BTreeMap<TopicPartition, i64>),
    /// The lag of a share group; `None` if it is unknown.
    Lag(Option<i64>),
}
