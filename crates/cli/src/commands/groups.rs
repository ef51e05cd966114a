//! `ottla groups`.

mod delete_offsets;
pub(super) mod kind;
mod list;
mod reset;
mod share;

use std::collections::{BTreeMap, BTreeSet};

use ottla_client::{
    Admin, Error, ErrorCode, GroupDescription, MemberDescription, ShareGroupDescription, TopicPartition,
};
use serde_json::{Value, json};

use crate::connect::{ConnectArgs, admin, runtime};
use crate::failure::Failure;
use crate::failures::Failures;
use crate::json_log::json_line;
use crate::listing::{Format, OutputArgs};
use crate::output::counted;
use crate::partition_args::KnownEnds;
use crate::printable::printable;
use crate::table::Table;

/// The state of a group that does not exist.
const DEAD: &str = "Dead";

/// Lists and describes groups, and changes or deletes their offsets
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Groups {
    List(list::Args),
    /// Prints members, offsets and lag
    ///
    /// The offsets are those that a group has committed. A share group has start offsets: it has completed all records before them.
    /// Example: `ottla groups describe billing`
    Describe {
        /// The groups
        #[arg(required = true, value_name = "GROUP")]
        groups: Vec<String>,
        /// The same as --output json
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    ResetOffsets(reset::Args),
    DeleteOffsets(delete_offsets::Args),
    /// Deletes groups of any type without members, and their offsets
    ///
    /// Example: `ottla groups delete billing`
    Delete {
        /// The groups
        #[arg(required = true, value_name = "GROUP")]
        groups: Vec<String>,
        #[command(flatten)]
        connect: ConnectArgs,
    },
}

pub(crate) fn run(groups: &Groups) -> Result<(), Failure> {
    runtime()?.block_on(async {
        match groups {
            Groups::List(args) => list::run(args).await,
            Groups::Describe { groups, json, output, connect } => {
                let json = *json || output.output == Format::Json;
                describe(&admin(connect).await?, groups, json).await
            }
            Groups::ResetOffsets(args) => reset::run(args).await,
            Groups::DeleteOffsets(args) => delete_offsets::run(args).await,
            Groups::Delete { groups, connect } => delete(&admin(connect).await?, groups).await,
        }
    })
}

async fn describe(admin: &Admin, groups: &[String], json: bool) -> Result<(), Failure> {
    let mut text = String::new();
    let mut failures = Failures::default();
    for name in groups {
        let described = match describe_one(admin, name, json, &mut failures).await {
            Ok(described) => described,
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        };
        if json {
            text += &format!("{described}\n");
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text += &described;
    }
    failures.print(&text);
    failures.result()
}

async fn describe_one(
    admin: &Admin,
    name: &str,
    json: bool,
    failures: &mut Failures,
) -> Result<String, Failure> {
    match find(admin, name).await? {
        None => Err(unknown(name)),
        Some(Group::Share(group)) => share::describe(admin, &group, json, failures).await,
        Some(Group::Committing(group)) => {
            let lags = Lags::of(admin, &group, failures).await?;
            Ok(if json { json_line(&to_json(&group, &lags)) } else { to_text(&group, &lags) })
        }
    }
}

/// A group by the way in which it stores its progress.
#[derive(Debug)]
enum Group {
    /// A group that commits offsets, of the classic or the KIP-848 protocol.
    Committing(GroupDescription),
    /// A group with start offsets and states of records (KIP-932).
    Share(ShareGroupDescription),
}

impl Group {
    /// The number of members.
    fn member_count(&self) -> usize {
        match self {
            Self::Committing(group) => group.members.len(),
            Self::Share(group) => group.members.len(),
        }
    }
}

/// The description of a group, or `None` if it does not exist.
async fn find(admin: &Admin, group: &str) -> Result<Option<Group>, Failure> {
    let found = match admin.describe_groups(&[group]).await {
        Ok(found) => found.into_iter().next(),
        Err(Error::Broker { code: ErrorCode::GroupIdNotFound, .. }) => None,
        Err(error) => return Err(error.into()),
    };
    // Brokers before KIP-1043 describe an unknown group as dead.
    if let Some(found) = found.filter(|group| group.state != DEAD) {
        return Ok(Some(Group::Committing(found)));
    }
    match admin.describe_share_groups(&[group]).await {
        Ok(found) => Ok(found.into_iter().next().filter(|group| group.state != DEAD).map(Group::Share)),
        Err(Error::Broker { code: ErrorCode::GroupIdNotFound, .. } | Error::Unsupported { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn unknown(group: &str) -> Failure {
    Failure::failed(format!("group `{group}` does not exist: `ottla groups list` prints the groups"))
}

/// The lag of a group, for each partition that it has committed or that is assigned to a member.
struct Lags {
    partitions: Vec<Lag>,
}

struct Lag {
    at: TopicPartition,
    committed: Option<i64>,
    end: Option<i64>,
    /// The index of the member to which the partition is assigned.
    owner: Option<usize>,
}

impl Lag {
    /// The number of records after the committed offset, or `None` without a committed offset or an end.
    fn records(&self) -> Option<i64> {
        self.committed.zip(self.end).map(|(committed, end)| (end - committed).max(0))
    }
}

impl Lags {
    async fn of(admin: &Admin, group: &GroupDescription, failures: &mut Failures) -> Result<Self, Failure> {
        let committed = admin.group_offsets(&group.group, None).await?;
        let owners: BTreeMap<&TopicPartition, usize> = group
            .members
            .iter()
            .enumerate()
            .flat_map(|(index, member)| member.assignment.iter().map(move |at| (at, index)))
            .collect();
        let mut partitions: BTreeSet<TopicPartition> = committed.keys().cloned().collect();
        partitions.extend(owners.keys().map(|at| (*at).clone()));
        let ends = KnownEnds::of(admin, &partitions, failures).await?;
        let lag = |at: TopicPartition| Lag {
            committed: committed.get(&at).copied(),
            end: ends.end(&at),
            owner: owners.get(&at).copied(),
            at,
        };
        Ok(Self { partitions: partitions.into_iter().map(lag).collect() })
    }

    /// The sum of the known lags, or `None` if none is known.
    fn total(&self) -> Option<i64> {
        let known = self.partitions.iter().filter_map(Lag::records);
        known.fold(None, |total, lag| Some(total.unwrap_or(0) + lag))
    }

    fn total_text(&self) -> String {
        let count = self.partitions.len();
        let unknown = self.partitions.iter().filter(|lag| lag.records().is_none()).count();
        let all_uncommitted =
            self.partitions.iter().all(|lag| lag.records().is_some() || lag.committed.is_none());
        match self.total() {
            None if all_uncommitted => "total lag unknown: the group has no committed offsets\n".into(),
            None => "total lag unknown\n".into(),
            Some(total) if unknown == 0 => format!("total lag {total}\n"),
            Some(total) => format!(
                "total lag {total} in {} of {}; unknown in {unknown}{}\n",
                count - unknown,
                counted(count as u64, "partition"),
                if all_uncommitted { " without a committed offset" } else { "" }
            ),
        }
    }
}

fn to_text(group: &GroupDescription, lags: &Lags) -> String {
    let mut text = format!(
        "{}  {}  {}  coordinator {}",
        printable(&group.group),
        printable(&group.state),
        counted(group.members.len() as u64, "member"),
        group.coordinator
    );
    if !group.protocol.is_empty() {
        text += &format!("  assignor {}", printable(&group.protocol));
    }
    text.push('\n');
    let mut table = Table::new(["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "CLIENT", "HOST"]);
    for lag in &lags.partitions {
        let member = lag.owner.and_then(|index| group.members.get(index));
        table.row([
            lag.at.topic.to_string(),
            lag.at.partition.to_string(),
            or_dash(lag.committed),
            or_dash(lag.end),
            or_dash(lag.records()),
            member.map_or("-".into(), |member| member.member.clone()),
            member.map_or("-".into(), |member| member.client_id.clone()),
            member.map_or("-".into(), |member| member.host.clone()),
        ]);
    }
    text += &table.render();
    for member in group.members.iter().filter(|member| member.assignment.is_empty()) {
        let [member, client, host] =
            [&member.member, &member.client_id, &member.host].map(|it| printable(it));
        text += &format!("{member} ({client} at {host}) has no partitions\n");
    }
    text + &lags.total_text()
}

fn to_json(group: &GroupDescription, lags: &Lags) -> Value {
    let member = |member: &MemberDescription| json!({ "member": member.member, "client": member.client_id, "host": member.host });
    let partition = |lag: &Lag| {
        json!({
            "topic": &*lag.at.topic,
            "partition": lag.at.partition,
            "committed": lag.committed,
            "end": lag.end,
            "lag": lag.records(),
            "member": lag.owner.and_then(|index| group.members.get(index)).map(|member| &member.member),
        })
    };
    json!({
        "group": group.group,
        "state": group.state,
        "type": Some(&group.kind).filter(|kind| !kind.is_empty()),
        "coordinator": group.coordinator,
        "assignor": Some(&group.protocol).filter(|protocol| !protocol.is_empty()),
        "members": group.members.iter().map(member).collect::<Vec<_>>(),
        "partitions": lags.partitions.iter().map(partition).collect::<Vec<_>>(),
        "total_lag": lags.total(),
    })
}

fn or_dash(number: Option<i64>) -> String {
    number.map_or("-".into(), |number| number.to_string())
}

async fn delete(admin: &Admin, groups: &[String]) -> Result<(), Failure> {
    let mut failures = Failures::default();
    for group in groups {
        match admin.delete_groups(&[group]).await {
            Ok(()) => failures.print(&format!("deleted {group}\n")),
            Err(error) if error.broker_code() == Some(ErrorCode::NonEmptyGroup) => {
                failures.push(not_empty(admin, group, error).await);
            }
            Err(error) => failures.push(error),
        }
    }
    failures.result()
}

/// The failure for a group that has members.
async fn not_empty(admin: &Admin, group: &str, error: Error) -> Failure {
    match find(admin, group).await.ok().flatten().map(|found| found.member_count()) {
        // The members may have left in the meantime.
        None | Some(0) => error.into(),
        Some(members) => has_members(group, members),
    }
}

/// The failure of a change that the members of a group prevent.
fn has_members(group: &str, members: usize) -> Failure {
    let them = if members == 1 { "it" } else { "them" };
    let members = counted(members as u64, "active member");
    Failure::failed(format!("group `{group}` has {members}: stop {them} first"))
}
