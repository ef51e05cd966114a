//! Partitions and positions on the command line: `TOPIC[:PARTITION]`, and `beginning|end|OFFSET|TIME`.

use std::collections::{BTreeMap, BTreeSet};

use ottla_client::{Admin, ErrorCode, FoundOffset, KeyedResults, OffsetAt, TopicPartition};

use crate::failure::Failure;
use crate::time;
use crate::topic_args::topic_name;

/// A topic, or one partition of it.
pub(crate) type TopicAndPartition = (String, Option<i32>);

/// A position in a log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Target {
    Listed(OffsetAt),
    Offset(i64),
}

/// Parses `beginning`, `end`, an offset, or a time.
pub(crate) fn parse_target(text: &str) -> Result<Target, String> {
    Ok(match text {
        "beginning" | "earliest" => Target::Listed(OffsetAt::Earliest),
        "end" | "latest" => Target::Listed(OffsetAt::Latest),
        _ => match text.parse::<i64>().ok().filter(|offset| *offset >= 0) {
            Some(offset) => Target::Offset(offset),
            None => Target::Listed(OffsetAt::Timestamp(time::parse_ms(text)?)),
        },
    })
}

/// Parses `TOPIC[:PARTITION]`.
pub(crate) fn topic_and_partition(text: &str) -> Result<TopicAndPartition, String> {
    let Some((name, partition)) = text.split_once(':') else { return Ok((topic_name(text)?, None)) };
    let number = partition.parse().ok().filter(|number| *number >= 0);
    let number = number
        .ok_or_else(|| format!("`{partition}` is not a partition: use a number from 0, as in orders:0"))?;
    Ok((topic_name(name)?, Some(number)))
}

/// The partitions that the arguments name, which must exist.
pub(crate) async fn partitions_of(
    admin: &Admin,
    topics: &[TopicAndPartition],
) -> Result<BTreeSet<TopicPartition>, Failure> {
    let mut partitions = BTreeSet::new();
    for (name, only) in topics {
        let described = admin.describe_topics(&[name]).await?;
        let all: BTreeSet<i32> = described
            .iter()
            .flat_map(|topic| &topic.partitions)
            .map(|partition| partition.partition)
            .collect();
        if let Some(absent) = only.filter(|only| !all.contains(only)) {
            return Err(Failure::failed(format!(
                "topic `{name}` has no partition {absent}: it has {}",
                all.len()
            )));
        }
        let chosen = all.into_iter().filter(|partition| only.is_none_or(|only| only == *partition));
        partitions.extend(chosen.map(|partition| TopicPartition::new(name, partition)));
    }
    Ok(partitions)
}

/// The offsets of partitions. One that does not exist has none; every other error is one of the whole call. A time after the last
/// record has the end offset.
pub(crate) async fn offsets(
    admin: &Admin,
    partitions: &BTreeSet<TopicPartition>,
    which: OffsetAt,
) -> Result<BTreeMap<TopicPartition, i64>, Failure> {
    let ask: Vec<_> = partitions.iter().map(|at| (at.clone(), which)).collect();
    let mut offsets = existing(admin.list_offsets_each(&ask).await?)?;
    let past_end: Vec<_> = offsets.extract_if(.., |_, offset| *offset < 0).collect();
    if !past_end.is_empty() {
        let ask: Vec<_> = past_end.into_iter().map(|(at, _)| (at, OffsetAt::Latest)).collect();
        offsets.extend(existing(admin.list_offsets_each(&ask).await?)?);
    }
    Ok(offsets)
}

/// The offsets of the partitions that exist.
fn existing(
    results: KeyedResults<TopicPartition, FoundOffset>,
) -> Result<BTreeMap<TopicPartition, i64>, Failure> {
    let mut offsets = BTreeMap::new();
    for (at, found) in results {
        match found {
            Ok(found) => {
                offsets.insert(at, found.offset);
            }
            Err(error) if error.broker_code() == Some(ErrorCode::UnknownTopicOrPartition) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(offsets)
}
