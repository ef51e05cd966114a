//! `ottla groups`.

use std::collections::{BTreeMap, BTreeSet};

use ottla_client::{Admin, Error, ErrorCode, GroupDescription, OffsetAt, TopicPartition};

use crate::connect::{ConnectArgs, admin, runtime};
use crate::failure::Failure;
use crate::output::print;
use crate::table::Table;
use crate::time;

/// Lists, describes, resets and deletes consumer groups
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Groups {
    /// Prints every group with its state
    List {
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Prints members, committed offsets and lag
    Describe {
        /// The groups
        #[arg(required = true, value_name = "GROUP")]
        groups: Vec<String>,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Sets the committed offsets of a group that has no members
    ResetOffsets(ResetArgs),
    /// Deletes groups that have no members, with their offsets
    Delete {
        /// The groups
        #[arg(required = true, value_name = "GROUP")]
        groups: Vec<String>,
        #[command(flatten)]
        connect: ConnectArgs,
    },
}

/// Where to set the offsets of which topics.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("where").required(true))]
pub(crate) struct ResetArgs {
    /// The group
    group: String,
    /// Only this topic, or with :PARTITION only that; may be repeated. Otherwise all that have committed offsets
    #[arg(short, long, value_name = "TOPIC[:PARTITION]")]
    topic: Vec<String>,
    /// beginning, end, an offset, or a time
    #[arg(long, group = "where", value_parser = parse_target, value_name = "beginning|end|OFFSET|TIME")]
    to: Option<Target>,
    /// To the oldest records
    #[arg(long, group = "where")]
    to_earliest: bool,
    /// To the end
    #[arg(long, group = "where")]
    to_latest: bool,
    /// To this offset, or the nearest that exists
    #[arg(long, group = "where", value_name = "OFFSET")]
    to_offset: Option<i64>,
    /// To the first records from this time on: 2026-01-31T12:00:00Z, or @ and milliseconds since 1970
    #[arg(long, group = "where", value_parser = time::parse_ms, value_name = "TIME")]
    to_time: Option<i64>,
    /// Only prints what would be set
    #[arg(long)]
    dry_run: bool,
    /// Sets the offsets; the default, here for those who are used to saying it
    #[arg(long, conflicts_with = "dry_run")]
    execute: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Target {
    Listed(OffsetAt),
    Offset(i64),
}

fn parse_target(text: &str) -> Result<Target, String> {
    Ok(match text {
        "beginning" | "earliest" => Target::Listed(OffsetAt::Earliest),
        "end" | "latest" => Target::Listed(OffsetAt::Latest),
        _ => match text.parse::<i64>().ok().filter(|offset| *offset >= 0) {
            Some(offset) => Target::Offset(offset),
            None => Target::Listed(OffsetAt::Timestamp(time::parse_ms(text)?)),
        },
    })
}

impl ResetArgs {
    fn target(&self) -> Target {
        match (self.to, self.to_offset, self.to_time) {
            (Some(target), _, _) => target,
            (_, Some(offset), _) => Target::Offset(offset),
            (_, _, Some(time)) => Target::Listed(OffsetAt::Timestamp(time)),
            _ if self.to_latest => Target::Listed(OffsetAt::Latest),
            // clap demands one of them; this is the last.
            _ => Target::Listed(OffsetAt::Earliest),
        }
    }
}

pub(crate) fn run(groups: &Groups) -> Result<(), Failure> {
    runtime()?.block_on(async {
        match groups {
            Groups::List { connect } => list(&admin(connect).await?).await,
            Groups::Describe { groups, connect } => describe(&admin(connect).await?, groups).await,
            Groups::ResetOffsets(args) => reset(&admin(&args.connect).await?, args).await,
            Groups::Delete { groups, connect } => delete(&admin(connect).await?, groups).await,
        }
    })
}

async fn list(admin: &Admin) -> Result<(), Failure> {
    let mut table = Table::new(["GROUP", "STATE", "TYPE", "PROTOCOL", "COORDINATOR"]);
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    for group in admin.list_groups().await? {
        table.row([
            group.group,
            or_dash(group.state),
            or_dash(group.kind),
            or_dash(group.protocol_type),
            group.coordinator.to_string(),
        ]);
    }
    print(&table.render())
}

async fn describe(admin: &Admin, groups: &[String]) -> Result<(), Failure> {
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let mut text = String::new();
    for group in admin.describe_groups(&groups).await? {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &describe_one(admin, &group).await?;
    }
    print(&text)
}

async fn describe_one(admin: &Admin, group: &GroupDescription) -> Result<String, Failure> {
    let committed = admin.group_offsets(&group.group, None).await?;
    let owners: BTreeMap<&TopicPartition, usize> = group
        .members
        .iter()
        .enumerate()
        .flat_map(|(index, member)| member.assignment.iter().map(move |at| (at, index)))
        .collect();
    let mut partitions: BTreeSet<TopicPartition> = committed.keys().cloned().collect();
    partitions.extend(owners.keys().map(|at| (*at).clone()));
    let ends = ends(admin, &partitions).await?;

    let mut text = format!(
        "{}  {}  {} members  coordinator {}",
        group.group,
        group.state,
        group.members.len(),
        group.coordinator
    );
    if !group.protocol.is_empty() {
        text += &format!("  assignor {}", group.protocol);
    }
    text.push('\n');
    let mut table = Table::new(["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "CLIENT", "HOST"]);
    let mut total = 0;
    for at in &partitions {
        let (done, end) = (committed.get(at), ends.get(at));
        let lag = done.zip(end).map(|(done, end)| (end - done).max(0));
        total += lag.unwrap_or(0);
        let member = owners.get(at).and_then(|index| group.members.get(*index));
        let number = |number: Option<i64>| number.map_or("-".into(), |number| number.to_string());
        table.row([
            at.topic.to_string(),
            at.partition.to_string(),
            number(done.copied()),
            number(end.copied()),
            number(lag),
            member.map_or("-".into(), |member| member.member.clone()),
            member.map_or("-".into(), |member| member.client_id.clone()),
            member.map_or("-".into(), |member| member.host.clone()),
        ]);
    }
    text += &table.render();
    for member in group.members.iter().filter(|member| member.assignment.is_empty()) {
        text += &format!("{} ({} at {}) has no partitions\n", member.member, member.client_id, member.host);
    }
    text += &format!("total lag {total}\n");
    Ok(text)
}

/// The ends of partitions; a topic that was deleted since has none.
async fn ends(
    admin: &Admin,
    partitions: &BTreeSet<TopicPartition>,
) -> Result<BTreeMap<TopicPartition, i64>, Failure> {
    let ask: Vec<_> = partitions.iter().map(|at| (at.clone(), OffsetAt::Latest)).collect();
    match admin.list_offsets(&ask).await {
        Ok(ends) => return Ok(ends),
        Err(Error::Broker { code: ErrorCode::UnknownTopicOrPartition, .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let mut ends = BTreeMap::new();
    for one in ask {
        if let Ok(found) = admin.list_offsets(&[one]).await {
            ends.extend(found);
        }
    }
    Ok(ends)
}

async fn reset(admin: &Admin, args: &ResetArgs) -> Result<(), Failure> {
    refuse_members(admin, &args.group).await?;
    let committed = admin.group_offsets(&args.group, None).await?;
    let partitions = chosen(admin, args, &committed).await?;
    let new = match args.target() {
        Target::Listed(offset) => {
            let ask: Vec<_> = partitions.iter().map(|at| (at.clone(), offset)).collect();
            admin.list_offsets(&ask).await?
        }
        Target::Offset(offset) => {
            let ask = |which| partitions.iter().map(|at| (at.clone(), which)).collect::<Vec<_>>();
            let first = admin.list_offsets(&ask(OffsetAt::Earliest)).await?;
            let end = admin.list_offsets(&ask(OffsetAt::Latest)).await?;
            let nearest = |(at, end): (TopicPartition, i64)| {
                let first = first.get(&at).copied().unwrap_or(0);
                (at, offset.clamp(first, end.max(first)))
            };
            end.into_iter().map(nearest).collect()
        }
    };
    if !args.dry_run {
        admin.alter_group_offsets(&args.group, &new).await?;
    }
    let mut table = Table::new(["TOPIC", "PARTITION", "WAS", "NOW"]);
    for (at, offset) in &new {
        let was = committed.get(at).map_or("-".into(), i64::to_string);
        table.row([at.topic.to_string(), at.partition.to_string(), was, offset.to_string()]);
    }
    print(&table.render())?;
    if args.dry_run {
        eprintln!("nothing was changed: this was a dry run");
    }
    Ok(())
}

/// Offsets are set for a group without members only: members would overwrite them.
async fn refuse_members(admin: &Admin, group: &str) -> Result<(), Failure> {
    match admin.describe_groups(&[group]).await {
        Ok(found) => match found.first().map(|group| group.members.len()) {
            Some(members) if members > 0 => {
                Err(Failure::failed(format!("group `{group}` has {members} members: stop them first")))
            }
            _ => Ok(()),
        },
        // A group that has never been is made by its first offsets.
        Err(Error::Broker { code: ErrorCode::GroupIdNotFound, .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The partitions that the arguments name, or those with committed offsets.
async fn chosen(
    admin: &Admin,
    args: &ResetArgs,
    committed: &BTreeMap<TopicPartition, i64>,
) -> Result<Vec<TopicPartition>, Failure> {
    if args.topic.is_empty() {
        if committed.is_empty() {
            let group = &args.group;
            return Err(Failure::failed(format!("group `{group}` has no committed offsets: name a --topic")));
        }
        return Ok(committed.keys().cloned().collect());
    }
    let mut partitions = BTreeSet::new();
    for topic in &args.topic {
        if let Some((name, partition)) = topic.split_once(':') {
            let partition = partition
                .parse()
                .map_err(|_| Failure::usage(format!("--topic {topic}: `{partition}` is not a partition")))?;
            partitions.insert(TopicPartition::new(name, partition));
        } else {
            let described = admin.describe_topics(&[topic]).await?;
            let found = described.iter().flat_map(|topic| &topic.partitions);
            partitions.extend(found.map(|partition| TopicPartition::new(topic, partition.partition)));
        }
    }
    Ok(partitions.into_iter().collect())
}

async fn delete(admin: &Admin, groups: &[String]) -> Result<(), Failure> {
    for group in groups {
        admin.delete_groups(&[group]).await?;
        print(&format!("deleted {group}\n"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_word_an_offset_or_a_time() {
        assert_eq!(parse_target("beginning"), Ok(Target::Listed(OffsetAt::Earliest)));
        assert_eq!(parse_target("latest"), Ok(Target::Listed(OffsetAt::Latest)));
        assert_eq!(parse_target("42"), Ok(Target::Offset(42)));
        assert_eq!(parse_target("@42"), Ok(Target::Listed(OffsetAt::Timestamp(42))));
        assert!(parse_target("-3").is_err());
        assert!(parse_target("soon").is_err());
    }
}
