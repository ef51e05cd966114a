//! Partitions and positions on the command line: `TOPIC[:PARTITION]`, and `beginning|end|OFFSET|TIME`.

use std::collections::{BTreeMap, BTreeSet};

use ottla_client::{
    Admin, DescribeOptions, ErrorCode, FoundOffset, KeyedResults, OffsetAt, TopicDescription, TopicPartition,
};

use crate::failure::Failure;
use crate::failures::Failures;
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
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    Ok(match text {
        "beginning" | "earliest" => Target::Listed(OffsetAt::Earliest),
        "end" | "latest" => Target::Listed(OffsetAt::Latest),
        _ => match text.parse::<i64>().ok().filter(|offset| *offset >= 0) {
            Some(offset) => Target::Offset(offset),
            None if is_number => {
                return Err(format!("`{text}` is no offset: use a whole number from 0 to {}", i64::MAX));
            }
            None => Target::Listed(OffsetAt::Timestamp(time::parse_ms(text)?)),
        },
    })
}

/// Parses `TOPIC[:PARTITION]`.
pub(crate) fn topic_and_partition(text: &str) -> Result<TopicAndPartition, String> {
    let Some((name, partition)) = text.split_once(':') else { return Ok((topic_name(text)?, None)) };
    let number = partition.parse().ok().filter(|number| *number >= 0);
    let number = number.ok_or_else(|| {
        format!("`{partition}` is not a partition: use a number from 0 to {}, as in orders:0", i32::MAX)
    })?;
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

/// The end offsets of partitions, for a listing.
#[derive(Debug, Default)]
pub(crate) struct KnownEnds {
    ends: BTreeMap<TopicPartition, i64>,
    unknown: BTreeSet<TopicPartition>,
}

impl KnownEnds {
    /// Looks up the end offsets. A partition without a leader, or whose leader refuses, is a failure that does not hide the others. One
    /// that does not exist has no end.
    pub(crate) async fn of(
        admin: &Admin,
        partitions: &BTreeSet<TopicPartition>,
        failures: &mut Failures,
    ) -> Result<Self, Failure> {
        let mut names: Vec<&str> = partitions.iter().map(|at| &*at.topic).collect();
        names.dedup();
        let described = admin.describe_topics_with(&names, DescribeOptions::default()).await?;
        let mut known = Self::default();
        let mut ask = Vec::new();
        for (name, topic) in described.topics {
            let of_topic = partitions.iter().filter(|at| *at.topic == *name);
            match topic {
                Ok(topic) => {
                    let (led, without): (Vec<_>, Vec<_>) =
                        of_topic.partition(|at| !has_no_leader(&topic, at));
                    ask.extend(led.into_iter().map(|at| (at.clone(), OffsetAt::Latest)));
                    if let Some(failure) = without_leader(&name, &without) {
                        failures.push(failure);
                        known.unknown.extend(without.into_iter().cloned());
                    }
                }
                Err(error) if error.broker_code() == Some(ErrorCode::UnknownTopicOrPartition) => {}
                Err(error) => {
                    failures.push(error);
                    known.unknown.extend(of_topic.cloned());
                }
            }
        }
        if ask.is_empty() {
            return Ok(known);
        }
        for (at, found) in admin.list_offsets_each(&ask).await? {
            match found {
                Ok(found) => {
                    known.ends.insert(at, found.offset);
                }
                Err(error) if error.broker_code() == Some(ErrorCode::UnknownTopicOrPartition) => {}
                Err(error) => {
                    failures.push(error);
                    known.unknown.insert(at);
                }
            }
        }
        Ok(known)
    }

    /// The end offset of a partition; `None` if it does not exist, or the offset is unknown.
    pub(crate) fn end(&self, at: &TopicPartition) -> Option<i64> {
        self.ends.get(at).copied()
    }

    /// Returns `true` for a partition whose end offset could not be looked up.
    pub(crate) fn is_unknown(&self, at: &TopicPartition) -> bool {
        self.unknown.contains(at)
    }
}

fn has_no_leader(topic: &TopicDescription, at: &TopicPartition) -> bool {
    topic.partitions.iter().any(|found| found.partition == at.partition && found.leader.is_none())
}

/// The failure for partitions of a topic without a leader.
fn without_leader(topic: &str, partitions: &[&TopicPartition]) -> Option<Failure> {
    let numbers: Vec<String> = partitions.iter().map(|at| at.partition.to_string()).collect();
    let text = match numbers.as_slice() {
        [] => return None,
        [number] => format!("partition {number} has no leader: its end offset is unknown"),
        numbers => format!("partitions {} have no leader: their end offsets are unknown", numbers.join(", ")),
    };
    Some(Failure::failed(format!("topic `{topic}` {text}")))
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
