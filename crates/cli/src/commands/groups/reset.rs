//! `ottla groups reset-offsets`: prints a plan, and sets offsets only with `--execute`.

use std::collections::{BTreeMap, BTreeSet};

use ottla_client::{Admin, OffsetAt, TopicPartition};

use super::{Group, find, has_members, or_dash, share, unknown};
use crate::connect::{ConnectArgs, admin};
use crate::failure::{Failure, remember_operation};
use crate::output::{counted, note, print};
use crate::partition_args::{
    Target, TopicAndPartition, offsets, parse_target, partitions_of, topic_and_partition,
};
use crate::table::Table;
use crate::time;

/// Plans new offsets for a group without members, and sets them with --execute
///
/// A share group forgets the states of all records after its new start offset.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("where").required(true))]
pub(crate) struct Args {
    /// The group
    group: String,
    /// Limits the change to this topic, or with :PARTITION to one partition; may be repeated [default: all with
    /// committed offsets]
    #[arg(short, long, value_name = "TOPIC[:PARTITION]", value_parser = topic_and_partition)]
    topic: Vec<TopicAndPartition>,
    /// beginning, end, an offset, or a time
    #[arg(long, group = "where", value_parser = parse_target, value_name = "beginning|end|OFFSET|TIME")]
    to: Option<Target>,
    /// Resets to the oldest records
    #[arg(long, group = "where")]
    to_earliest: bool,
    /// Resets to the end
    #[arg(long, group = "where")]
    to_latest: bool,
    /// Resets to this offset, or the nearest existing one
    #[arg(long, group = "where", value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    to_offset: Option<i64>,
    /// Resets to the first records at or after this time: 2026-01-31T12:00:00Z, or @ and milliseconds since 1970
    #[arg(long, group = "where", value_parser = time::parse_ms, value_name = "TIME")]
    to_time: Option<i64>,
    /// Sets the offsets; without it only the plan is printed
    #[arg(long)]
    execute: bool,
    /// Only prints the plan; this is the default
    #[arg(long, conflicts_with = "execute")]
    dry_run: bool,
    /// Creates the group if it does not exist
    #[arg(long)]
    create: bool,
    /// Creates a share group
    #[arg(long, requires = "create")]
    share: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

impl Args {
    fn target(&self) -> Target {
        match (self.to, self.to_offset, self.to_time) {
            (Some(target), _, _) => target,
            (_, Some(offset), _) => Target::Offset(offset),
            (_, _, Some(time)) => Target::Listed(OffsetAt::Timestamp(time)),
            _ if self.to_latest => Target::Listed(OffsetAt::Latest),
            // clap requires one of them; this is the last.
            _ => Target::Listed(OffsetAt::Earliest),
        }
    }
}

pub(super) async fn run(args: &Args) -> Result<(), Failure> {
    if args.create && args.group.is_empty() {
        return Err(Failure::usage("--create: the group has no name"));
    }
    if args.execute {
        remember_operation("read");
    }
    let admin = admin(&args.connect).await?;
    let kind = check_group(&admin, args).await?;
    let committed = match kind {
        Kind::Committing => admin.group_offsets(&args.group, None).await?,
        Kind::Share => share::starts(&admin, &args.group).await?,
    };
    let partitions = chosen(&admin, args, kind, &committed).await?;
    let plan = plan(&admin, args.target(), &partitions, &committed).await?;
    match print(&table(&plan)) {
        // A reader that does not read the plan does not prevent the change.
        Err(Failure::OutputClosed) if args.execute => {}
        printed => printed?,
    }
    let new: BTreeMap<TopicPartition, i64> =
        plan.iter().filter_map(|step| Some((step.at.clone(), step.new?))).collect();
    if !args.execute {
        note("dry run: add --execute to set these offsets");
        return Ok(());
    }
    if new.is_empty() {
        return Err(Failure::failed(format!("group `{}`: no offsets to set", args.group)));
    }
    match kind {
        Kind::Committing => admin.alter_group_offsets(&args.group, &new).await?,
        Kind::Share => share::alter(&admin, &args.group, &new).await?,
    }
    let partitions = counted(new.len() as u64, "partition");
    print(&format!("set the offsets of {partitions} of group `{}`\n", args.group))
}

/// The two kinds of offsets.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Committing,
    Share,
}

impl Kind {
    /// Kafka's name of the offsets.
    const fn offsets(self) -> &'static str {
        match self {
            Self::Committing => "committed offsets",
            Self::Share => "start offsets",
        }
    }
}

/// Offsets are set only for an existing group without members: members would overwrite them.
async fn check_group(admin: &Admin, args: &Args) -> Result<Kind, Failure> {
    let group = &args.group;
    let found = find(admin, group).await?;
    match found.as_ref().map(Group::member_count) {
        None if args.create && args.share => return Ok(Kind::Share),
        None if args.create => return Ok(Kind::Committing),
        None => return Err(Failure::failed(format!("{}; --create creates it", unknown(group)))),
        Some(0) => {}
        Some(members) => return Err(has_members(group, members)),
    }
    match found {
        Some(Group::Share(_)) => Ok(Kind::Share),
        Some(Group::Committing(_)) if args.share => Err(Failure::failed(format!(
            "group `{group}` is not a share group: leave out --share to set its committed offsets"
        ))),
        Some(Group::Committing(_)) | None => Ok(Kind::Committing),
    }
}

/// The change of a partition's offset.
#[derive(Debug, Eq, PartialEq)]
struct Step {
    at: TopicPartition,
    current: Option<i64>,
    /// The new offset; `None` leaves it unchanged.
    new: Option<i64>,
    start: Option<i64>,
    end: Option<i64>,
    note: String,
}

async fn plan(
    admin: &Admin,
    target: Target,
    partitions: &BTreeSet<TopicPartition>,
    committed: &BTreeMap<TopicPartition, i64>,
) -> Result<Vec<Step>, Failure> {
    let starts = offsets(admin, partitions, OffsetAt::Earliest).await?;
    let ends = offsets(admin, partitions, OffsetAt::Latest).await?;
    let found = match target {
        Target::Listed(OffsetAt::Earliest) => starts.clone(),
        Target::Listed(OffsetAt::Latest) => ends.clone(),
        Target::Listed(which) => offsets(admin, partitions, which).await?,
        Target::Offset(offset) => partitions.iter().map(|at| (at.clone(), offset)).collect(),
    };
    let step = |at: &TopicPartition| {
        step(
            at.clone(),
            target,
            committed.get(at).copied(),
            found.get(at).copied(),
            starts.get(at).copied().zip(ends.get(at).copied()),
        )
    };
    Ok(partitions.iter().map(step).collect())
}

/// The change of one partition. `wanted` may be outside the log, which spans `start` to `end`.
fn step(
    at: TopicPartition,
    target: Target,
    current: Option<i64>,
    wanted: Option<i64>,
    log: Option<(i64, i64)>,
) -> Step {
    let Some(((start, end), wanted)) = log.zip(wanted) else {
        let note = "the partition does not exist: unchanged".into();
        return Step { at, current, new: None, start: None, end: None, note };
    };
    let new = wanted.clamp(start, end.max(start));
    let by_time = matches!(target, Target::Listed(OffsetAt::Timestamp(_)));
    let note = match wanted {
        _ if by_time && new == end => "no record at or after this time: end of the log".into(),
        _ if wanted < start => format!("clamped: {wanted} is before the log start"),
        _ if wanted > end => format!("clamped: {wanted} is past the log end"),
        _ if current == Some(new) => "unchanged".into(),
        _ => String::new(),
    };
    Step { at, current, new: Some(new), start: Some(start), end: Some(end), note }
}

fn table(plan: &[Step]) -> String {
    let mut table = Table::new(["TOPIC", "PARTITION", "CURRENT", "NEW", "LOG-START", "LOG-END", "NOTE"]);
    for step in plan {
        table.row([
            step.at.topic.to_string(),
            step.at.partition.to_string(),
            or_dash(step.current),
            or_dash(step.new.or(step.current)),
            or_dash(step.start),
            or_dash(step.end),
            step.note.clone(),
        ]);
    }
    table.render()
}

/// The partitions from the arguments, or those with offsets of the group.
async fn chosen(
    admin: &Admin,
    args: &Args,
    kind: Kind,
    committed: &BTreeMap<TopicPartition, i64>,
) -> Result<BTreeSet<TopicPartition>, Failure> {
    if args.topic.is_empty() {
        if committed.is_empty() {
            let (group, offsets) = (&args.group, kind.offsets());
            return Err(Failure::failed(format!("group `{group}` has no {offsets}: use --topic")));
        }
        return Ok(committed.keys().cloned().collect());
    }
    partitions_of(admin, &args.topic).await
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

    #[test]
    fn an_offset_outside_of_the_log_is_clamped_and_the_note_says_so() {
        let at = || TopicPartition::new("orders", 0);
        let decided = |wanted, current| {
            let step = step(at(), Target::Offset(wanted), current, Some(wanted), Some((10, 20)));
            (step.new, step.note)
        };
        assert_eq!(decided(5, None), (Some(10), "clamped: 5 is before the log start".into()));
        assert_eq!(decided(21, None), (Some(20), "clamped: 21 is past the log end".into()));
        assert_eq!(decided(20, Some(1)), (Some(20), String::new()));
        assert_eq!(decided(15, Some(15)), (Some(15), "unchanged".into()));
        let gone = step(at(), Target::Offset(5), Some(3), Some(5), None);
        assert_eq!((gone.new, gone.note.as_str()), (None, "the partition does not exist: unchanged"));
        let time = Target::Listed(OffsetAt::Timestamp(1));
        assert_eq!(
            step(at(), time, None, Some(20), Some((10, 20))).note,
            "no record at or after this time: end of the log"
        );
    }
}
