//! Share groups: their start offsets take the place of committed offsets.

use std::collections::{BTreeMap, BTreeSet};

use ottla_client::{
    Admin, Error, ShareGroupDescription, ShareGroupOffset, ShareMemberDescription, Timeouts, TopicPartition,
};
use serde_json::{Value, json};

use super::or_dash;
use crate::failure::Failure;
use crate::failures::Failures;
use crate::json_log::json_line;
use crate::listing::{Format, Listing};
use crate::output::counted;
use crate::partition_args::{KnownEnds, TopicAndPartition};
use crate::printable::printable;
use crate::table::Table;

/// The text or the JSON of a share group.
pub(super) async fn describe(
    admin: &Admin,
    group: &ShareGroupDescription,
    json: bool,
    failures: &mut Failures,
) -> Result<String, Failure> {
    let partitions = partitions(admin, group, failures).await?;
    Ok(if json { json_line(&to_json(group, &partitions)) } else { to_text(group, &partitions) })
}

/// The start offsets of a group.
pub(super) async fn starts(admin: &Admin, group: &str) -> Result<BTreeMap<TopicPartition, i64>, Failure> {
    Ok(known(admin, group).await?.into_iter().map(|(at, known)| (at, known.start_offset)).collect())
}

/// The sum of a group's known lags, or `None` if none is known.
pub(super) async fn lag(admin: &Admin, group: &str) -> Result<Option<i64>, Error> {
    Ok(known(admin, group).await?.values().filter_map(|known| known.lag).reduce(i64::saturating_add))
}

/// Sets start offsets.
pub(super) async fn alter(
    admin: &Admin,
    group: &str,
    new: &BTreeMap<TopicPartition, i64>,
) -> Result<(), Error> {
    let new: Vec<_> = new.iter().map(|(at, offset)| (at.clone(), *offset)).collect();
    let altered = admin.alter_share_group_offsets(group, &new, Timeouts::default()).await?;
    altered.into_iter().try_for_each(|(_, result)| result)
}

/// Deletes the start offsets and record states of topics.
pub(super) async fn delete_offsets(
    admin: &Admin,
    group: &str,
    topics: &[TopicAndPartition],
    format: Format,
) -> Result<(), Failure> {
    if let Some((topic, Some(partition))) = topics.iter().find(|(_, partition)| partition.is_some()) {
        return Err(Failure::failed(format!(
            "`{group}` is a share group, which loses the offsets of whole topics only: \
             use --topic {topic} without :{partition}"
        )));
    }
    let starts = starts(admin, group).await?;
    let names: BTreeSet<&str> = topics.iter().map(|(topic, _)| &**topic).collect();
    let of = |name: &str| starts.keys().filter(|at| *at.topic == *name).collect::<Vec<_>>();
    if let Some(name) = names.iter().find(|name| of(name).is_empty()) {
        return Err(Failure::failed(format!(
            "share group `{group}` has no start offset of topic `{name}`: \
             `ottla groups describe {group}` prints its offsets"
        )));
    }
    let names: Vec<&str> = names.into_iter().collect();
    let deleted = admin.delete_share_group_offsets(group, &names, Timeouts::default()).await?;
    let mut listing = Listing::new(["topic", "partition", "deleted"]);
    for (topic, result) in &deleted {
        for at in of(topic) {
            listing.row([json!(&*at.topic), json!(at.partition), json!(result.is_ok())]);
        }
    }
    let printed = listing.print(format);
    deleted.into_iter().try_for_each(|(_, result)| result)?;
    printed
}

/// The offsets of the partitions that have a start offset.
async fn known(admin: &Admin, group: &str) -> Result<BTreeMap<TopicPartition, ShareGroupOffset>, Error> {
    let listed = admin.list_share_group_offsets(group, None, Timeouts::default()).await?;
    let found = listed.into_iter().map(|(at, offset)| Ok(offset?.map(|offset| (at, offset))));
    found.filter_map(Result::transpose).collect()
}

/// A partition with a start offset, or that is assigned to members.
struct SharePartition<'a> {
    at: TopicPartition,
    start: Option<i64>,
    end: Option<i64>,
    lag: Option<i64>,
    members: Vec<&'a ShareMemberDescription>,
}

async fn partitions<'a>(
    admin: &Admin,
    group: &'a ShareGroupDescription,
    failures: &mut Failures,
) -> Result<Vec<SharePartition<'a>>, Failure> {
    let known = known(admin, &group.group).await?;
    let mut members: BTreeMap<&TopicPartition, Vec<&ShareMemberDescription>> = BTreeMap::new();
    for member in &group.members {
        for at in &member.assignment {
            members.entry(at).or_default().push(member);
        }
    }
    let all: BTreeSet<TopicPartition> =
        known.keys().chain(members.keys().copied()).map(TopicPartition::clone).collect();
    let ends = KnownEnds::of(admin, &all, failures).await?;
    let partition = |at: TopicPartition| SharePartition {
        start: known.get(&at).map(|known| known.start_offset),
        lag: known.get(&at).and_then(|known| known.lag),
        end: ends.end(&at),
        members: members.remove(&at).unwrap_or_default(),
        at,
    };
    Ok(all.into_iter().map(partition).collect())
}

/// The sum of the known lags, or `None` if none is known.
fn total(partitions: &[SharePartition<'_>]) -> Option<i64> {
    partitions.iter().filter_map(|partition| partition.lag).reduce(i64::saturating_add)
}

fn to_text(group: &ShareGroupDescription, partitions: &[SharePartition<'_>]) -> String {
    let ShareGroupDescription { group: id, state, members, coordinator, assignor, .. } = group;
    let count = counted(members.len() as u64, "member");
    let [id, state, assignor] = [id, state, assignor].map(|it| printable(it));
    let mut text =
        format!("{id}  share group  {state}  {count}  coordinator {coordinator}  assignor {assignor}\n");
    let mut table = Table::new(["TOPIC", "PARTITION", "START", "END", "LAG", "MEMBER", "CLIENT", "HOST"]);
    for partition in partitions {
        // A row for each of the members, with the offsets in the first.
        for index in 0..partition.members.len().max(1) {
            let offset = |offset| if index == 0 { or_dash(offset) } else { String::new() };
            let member = partition.members.get(index);
            let of_member = |text: fn(&ShareMemberDescription) -> &String| {
                member.map_or("-".into(), |member| text(member).clone())
            };
            table.row([
                partition.at.topic.to_string(),
                partition.at.partition.to_string(),
                offset(partition.start),
                offset(partition.end),
                offset(partition.lag),
                of_member(|member| &member.member),
                of_member(|member| &member.client_id),
                of_member(|member| &member.host),
            ]);
        }
    }
    text += &table.render();
    for member in members.iter().filter(|member| member.assignment.is_empty()) {
        let [member, client, host] =
            [&member.member, &member.client_id, &member.host].map(|it| printable(it));
        text += &format!("{member} ({client} at {host}) has no partitions\n");
    }
    let unknown = partitions.iter().filter(|partition| partition.lag.is_none()).count();
    text + &match total(partitions) {
        None => "total lag unknown: the group has not read a partition yet\n".into(),
        Some(total) if unknown == 0 => format!("total lag {total}\n"),
        Some(total) => {
            format!(
                "total lag {total}; unknown in {unknown} of {}\n",
                counted(partitions.len() as u64, "partition")
            )
        }
    }
}

fn to_json(group: &ShareGroupDescription, partitions: &[SharePartition<'_>]) -> Value {
    let member = |member: &ShareMemberDescription| json!({ "member": member.member, "client": member.client_id, "host": member.host });
    let partition = |partition: &SharePartition<'_>| {
        json!({
            "topic": &*partition.at.topic,
            "partition": partition.at.partition,
            "start": partition.start,
            "end": partition.end,
            "lag": partition.lag,
            "members": partition.members.iter().map(|member| &member.member).collect::<Vec<_>>(),
        })
    };
    json!({
        "group": group.group,
        "state": group.state,
        "type": "share",
        "coordinator": group.coordinator,
        "assignor": group.assignor,
        "members": group.members.iter().map(member).collect::<Vec<_>>(),
        "partitions": partitions.iter().map(partition).collect::<Vec<_>>(),
        "total_lag": total(partitions),
    })
}
