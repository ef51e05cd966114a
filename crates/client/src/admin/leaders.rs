//! Requests to the leaders of many partitions: one request per leader, repeated if the leader has moved.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use futures_util::future::join_all;
use ottla_protocol::messages::metadata::MetadataResponse;
use ottla_protocol::{ErrorCode, Request};

use super::operation::{Operation, Target};
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
    let mut answers = Answers::new();
    let mut left: Vec<TopicPartition> = partitions.into_iter().collect();
    left.sort();
    left.dedup();
    while !left.is_empty() {
        let mut problems = BTreeMap::new();
        ask_once(operation, question, &left, &mut answers, &mut problems).await?;
        left.retain(|at| !answers.contains_key(at));
        if left.is_empty() {
            break;
        }
        if !operation.may_go_on().await {
            let rest = left.drain(..).map(|at| {
                let problem = problems.remove(&at).unwrap_or_else(|| operation.timed_out());
                (at, Err(problem))
            });
            answers.extend(rest);
        }
    }
    Ok(answers)
}

/// Sends one request to every leader at the same time. Retriable errors go to `problems`, all other results to
/// `answers`.
async fn ask_once<Q: Question>(
    operation: &Operation,
    question: &Q,
    left: &[TopicPartition],
    answers: &mut Answers<Q::Answer>,
    problems: &mut BTreeMap<TopicPartition, Error>,
) -> Result<(), Error> {
    let mut topics: Vec<&str> = left.iter().map(|at| &*at.topic).collect();
    topics.dedup();
    let metadata = operation.metadata(Some(&topics), false).await?;
    let mut by_leader: BTreeMap<i32, ByTopic> = BTreeMap::new();
    for at in left {
        match leader(&metadata, at) {
            Ok(Some(leader)) => {
                let topics = by_leader.entry(leader).or_default();
                topics.entry(at.topic.to_string()).or_default().push(at.clone());
            }
            Ok(None) => {
                let code = ErrorCode::LeaderNotAvailable;
                problems.insert(at.clone(), Error::Broker { what: question.what(at), code });
            }
            Err(error) => drop(answers.insert(at.clone(), Err(error))),
        }
    }
    let asking = by_leader.into_iter().map(|(leader, topics)| async move {
        let make = |_version: i16| question.request(&topics);
        // One attempt, because the next one may have to go to another leader.
        let once = operation.once(Target::Node(leader), question.versions(), make).await;
        (topics, once)
    });
    for (topics, answered) in join_all(asking).await {
        match answered {
            Ok(response) => {
                for (at, answer) in question.answers(response) {
                    match answer {
                        Ok(answer) => drop(answers.insert(at, Ok(answer))),
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
