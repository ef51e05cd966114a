//! Requests to the leaders of many partitions: one request per leader, repeated if the leader has moved.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use futures_util::future::join_all;
use ottla_protocol::messages::metadata::MetadataResponse;
use ottla_protocol::{ErrorCode, Request};

use super::operation::{Attempts, Operation, Target};
use crate::error::Error;
use crate::types::TopicPartition;

/// Partitions of one leader, by topic.
pub(super) type ByTopic = BTreeMap<String, Vec<TopicPartition>>;
pub(super) type Answers<V> = BTreeMap<TopicPartition, Result<V, Error>>;

/// A request to partition leaders and the interpretation of its response.
pub(super) trait Question {
    type Request: Request;
    type Answer;

    /// The versions that support the request.
    const VERSIONS: RangeInclusive<i16>;

    /// `true` if a response with an error that may pass is the result without
    /// [`Config::retry_admin_codes`](crate::Config::retry_admin_codes).
    const RETURNS_CODES: bool = false;

    fn versions(&self) -> RangeInclusive<i16> {
        Self::VERSIONS
    }

    fn request(&self, partitions: &ByTopic) -> Self::Request;

    fn answers(
        &self,
        response: <Self::Request as Request>::Response,
    ) -> Vec<(TopicPartition, Result<Self::Answer, ErrorCode>)>;

    /// The subject of the request, for an error message.
    fn what(&self, at: &TopicPartition) -> String;
}

/// Sends requests until every partition has a result, or the deadline.
pub(super) async fn ask<Q: Question>(
    operation: &Operation,
    question: &Q,
    partitions: impl IntoIterator<Item = TopicPartition>,
) -> Result<Answers<Q::Answer>, Error> {
    let (mut answers, attempts) = (Answers::new(), Attempts::default());
    let mut left: Vec<TopicPartition> = partitions.into_iter().collect();
    left.sort();
    left.dedup();
    let returns_codes = Q::RETURNS_CODES && !operation.cluster.config.retry_admin_codes;
    let mut known = if returns_codes { known_leaders(operation, &left) } else { None };
    while !left.is_empty() {
        let mut problems = BTreeMap::new();
        let leaders = match known.take() {
            Some(leaders) => leaders,
            None => match current_leaders(operation, question, &left, &mut answers, &mut problems).await {
                Ok(leaders) => leaders,
                Err(error) if answers.is_empty() => return Err(error),
                // The results that are there are reported.
                Err(error) => {
                    answers.extend(left.into_iter().map(|at| (at, Err(error.clone()))));
                    return Ok(answers);
                }
            },
        };
        ask_once(operation, question, &attempts, leaders, returns_codes, &mut answers, &mut problems).await?;
        left.retain(|at| !answers.contains_key(at));
        if left.is_empty() {
            break;
        }
        if !operation.may_go_on(&attempts).await {
            let rest = left.drain(..).map(|at| {
                let problem = problems.remove(&at).unwrap_or_else(|| operation.timed_out(&attempts));
                (at, Err(problem))
            });
            answers.extend(rest);
        }
    }
    Ok(answers)
}

/// Partitions by their leader.
type ByLeader = BTreeMap<i32, ByTopic>;

fn insert(by_leader: &mut ByLeader, leader: i32, at: &TopicPartition) {
    let topics = by_leader.entry(leader).or_default();
    topics.entry(at.topic.to_string()).or_default().push(at.clone());
}

/// The last known leaders, if each partition has one.
fn known_leaders(operation: &Operation, partitions: &[TopicPartition]) -> Option<ByLeader> {
    let mut by_leader = ByLeader::new();
    for at in partitions {
        insert(&mut by_leader, operation.cluster.leader(&at.topic, at.partition)?, at);
    }
    Some(by_leader)
}

/// The leaders from fresh metadata. Partitions without one go to `problems` or, for good, to `answers`.
async fn current_leaders<Q: Question>(
    operation: &Operation,
    question: &Q,
    left: &[TopicPartition],
    answers: &mut Answers<Q::Answer>,
    problems: &mut BTreeMap<TopicPartition, Error>,
) -> Result<ByLeader, Error> {
    let metadata = operation.metadata(Some(&topics_of(left)), false).await?;
    let mut by_leader = ByLeader::new();
    for at in left {
        match leader(&metadata, at) {
            Ok(Some(leader)) => insert(&mut by_leader, leader, at),
            Ok(None) => {
                let code = ErrorCode::LeaderNotAvailable;
                problems.insert(at.clone(), Error::Broker { what: question.what(at), code });
            }
            Err(error) => drop(answers.insert(at.clone(), Err(error))),
        }
    }
    Ok(by_leader)
}

/// The topics of sorted partitions.
fn topics_of(partitions: &[TopicPartition]) -> Vec<&str> {
    let mut topics: Vec<&str> = partitions.iter().map(|at| &*at.topic).collect();
    topics.dedup();
    topics
}

/// Sends one request to every leader at the same time. Retriable errors go to `problems`, all other results to
/// `answers`. With `returns_codes`, an error in a response is a result, and the leaders are looked up for the next call.
async fn ask_once<Q: Question>(
    operation: &Operation,
    question: &Q,
    attempts: &Attempts,
    by_leader: ByLeader,
    returns_codes: bool,
    answers: &mut Answers<Q::Answer>,
    problems: &mut BTreeMap<TopicPartition, Error>,
) -> Result<(), Error> {
    let mut moved = Vec::new();
    let asking = by_leader.into_iter().map(|(leader, topics)| async move {
        let make = |_version: i16| question.request(&topics);
        // One attempt, because the next one may have to go to another leader.
        let once = operation.once(Target::Node(leader), question.versions(), attempts, make).await;
        (topics, once)
    });
    for (topics, answered) in join_all(asking).await {
        match answered {
            Ok(response) => {
                for (at, answer) in question.answers(response) {
                    match answer {
                        Ok(answer) => drop(answers.insert(at, Ok(answer))),
                        Err(code) if returns_codes && code.is_retriable() => {
                            let error = Error::Broker { what: question.what(&at), code };
                            moved.push(at.clone());
                            answers.insert(at, Err(error));
                        }
                        Err(code) => {
                            let error = Error::Broker { what: question.what(&at), code };
                            sort_in(operation, at, error, answers, problems);
                        }
                    }
                }
            }
            Err(error) => {
                for at in topics.into_values().flatten() {
                    sort_in(operation, at, error.clone(), answers, problems);
                }
            }
        }
    }
    if !moved.is_empty() {
        moved.sort();
        // For the next call: the answers are there.
        drop(operation.metadata(Some(&topics_of(&moved)), false).await);
    }
    Ok(())
}

fn sort_in<V>(
    operation: &Operation,
    at: TopicPartition,
    error: Error,
    answers: &mut Answers<V>,
    problems: &mut BTreeMap<TopicPartition, Error>,
) {
    if operation.passes(&error) {
        problems.insert(at, error);
    } else {
        answers.insert(at, Err(error));
    }
}

/// The partition's leader, if it has one.
///
/// # Errors
/// A topic that no broker knows is an error: a wait would only hide a misspelt name.
fn leader(metadata: &MetadataResponse, at: &TopicPartition) -> Result<Option<i32>, Error> {
    let topic = metadata.topics.iter().find(|topic| topic.name.as_deref() == Some(&*at.topic));
    let code = topic.map_or(ErrorCode::UnknownTopicOrPartition, |topic| topic.error_code);
    if code == ErrorCode::UnknownTopicOrPartition || !(code.is_none() || code.is_retriable()) {
        return Err(Error::Broker { what: format!("topic `{}`", at.topic), code });
    }
    let Some(topic) = topic.filter(|topic| topic.error_code.is_none()) else { return Ok(None) };
    let Some(partition) = topic.partitions.iter().find(|found| found.partition_index == at.partition) else {
        let (partition, partitions) = (at.partition, topic.partitions.len());
        return Err(Error::UnknownPartition { topic: at.topic.to_string(), partition, partitions });
    };
    Ok((partition.leader_id >= 0).then_some(partition.leader_id))
}
