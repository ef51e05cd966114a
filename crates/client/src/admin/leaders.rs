//! Requests to the leaders of many partitions: one request per leader, repeated if the leader has moved.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
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

/// Sends requests until every partition has a result, or the deadline. A leader that does not respond uses up the time of its own
/// partitions only: the others are looked up and asked again meanwhile.
pub(super) async fn ask<Q: Question>(
    operation: &Operation,
    question: &Q,
    partitions: impl IntoIterator<Item = TopicPartition>,
) -> Result<Answers<Q::Answer>, Error> {
    let partitions: BTreeSet<TopicPartition> = partitions.into_iter().collect();
    let returns_codes = Q::RETURNS_CODES && !operation.cluster.config.retry_admin_codes;
    let known = if returns_codes { known_leaders(operation, &partitions) } else { None };
    let first = match known {
        Some(leaders) => ask_each(leaders, &Attempts::default()),
        None => {
            look_up(partitions.into_iter().map(|at| (at, None)).collect(), Attempts::default(), Pause::No)
        }
    };
    let mut results =
        Results { operation, question, returns_codes, answers: Answers::new(), failure: None, not_found: 0 };
    let mut steps: FuturesUnordered<_> =
        first.into_iter().map(|step| take(operation, question, step)).collect();
    while let Some(taken) = steps.next().await {
        for step in results.add(taken) {
            steps.push(take(operation, question, step));
        }
    }
    let Results { answers, failure, not_found, .. } = results;
    match failure {
        Some(error) if not_found == answers.len() => Err(error),
        // The results that are there are reported.
        _ => Ok(answers),
    }
}

/// Partitions without a result, with the error of the last attempt.
type Left = BTreeMap<TopicPartition, Option<Error>>;

/// The backoff before a step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Pause {
    Yes,
    No,
}

/// A step towards the results of some partitions.
enum Step {
    LookUp {
        left: Left,
        attempts: Attempts,
        pause: Pause,
    },
    Ask {
        leader: i32,
        topics: ByTopic,
        attempts: Attempts,
    },
    /// Looks up leaders for the next call: the results are there.
    Refresh(BTreeSet<TopicPartition>),
}

/// A step that was taken, with the response `R` of a leader.
enum Taken<R> {
    OutOfTime { left: Left, attempts: Attempts },
    LookedUp { left: Left, attempts: Attempts, found: Result<MetadataResponse, Error> },
    Asked { topics: ByTopic, attempts: Attempts, answered: Result<R, Error> },
    Refreshed,
}

async fn take<Q: Question>(
    operation: &Operation,
    question: &Q,
    step: Step,
) -> Taken<<Q::Request as Request>::Response> {
    match step {
        Step::LookUp { left, attempts, pause } => {
            if pause == Pause::Yes && !operation.may_go_on(&attempts).await {
                return Taken::OutOfTime { left, attempts };
            }
            let found = operation.metadata(Some(&topics_of(left.keys())), false).await;
            Taken::LookedUp { left, attempts, found }
        }
        Step::Ask { leader, topics, attempts } => {
            let make = |_version: i16| question.request(&topics);
            // One attempt, because the next one may have to go to another leader.
            let answered = operation.once(Target::Node(leader), question.versions(), &attempts, make).await;
            Taken::Asked { topics, attempts, answered }
        }
        Step::Refresh(moved) => {
            drop(operation.metadata(Some(&topics_of(&moved)), false).await);
            Taken::Refreshed
        }
    }
}

fn look_up(left: Left, attempts: Attempts, pause: Pause) -> Vec<Step> {
    if left.is_empty() { Vec::new() } else { vec![Step::LookUp { left, attempts, pause }] }
}

/// A request to each leader. Each has attempts of its own from here on.
fn ask_each(leaders: ByLeader, attempts: &Attempts) -> Vec<Step> {
    let ask = |(leader, topics)| Step::Ask { leader, topics, attempts: attempts.clone() };
    leaders.into_iter().map(ask).collect()
}

/// Partitions by their leader.
type ByLeader = BTreeMap<i32, ByTopic>;

fn insert(by_leader: &mut ByLeader, leader: i32, at: &TopicPartition) {
    let topics = by_leader.entry(leader).or_default();
    topics.entry(at.topic.to_string()).or_default().push(at.clone());
}

/// The last known leaders, if each partition has one.
fn known_leaders(operation: &Operation, partitions: &BTreeSet<TopicPartition>) -> Option<ByLeader> {
    let mut by_leader = ByLeader::new();
    for at in partitions {
        insert(&mut by_leader, operation.cluster.leader(&at.topic, at.partition)?, at);
    }
    Some(by_leader)
}

/// The topics of sorted partitions.
fn topics_of<'a>(partitions: impl IntoIterator<Item = &'a TopicPartition>) -> Vec<&'a str> {
    let mut topics: Vec<&str> = partitions.into_iter().map(|at| &*at.topic).collect();
    topics.dedup();
    topics
}

/// The results so far.
struct Results<'a, Q: Question> {
    operation: &'a Operation,
    question: &'a Q,
    /// `true` if an error in a response is a result.
    returns_codes: bool,
    answers: Answers<Q::Answer>,
    /// The first error of a look-up, and the number of partitions whose leaders were not found because of one.
    failure: Option<Error>,
    not_found: usize,
}

impl<Q: Question> Results<'_, Q> {
    /// Adds the results of a step, and returns the next steps.
    fn add(&mut self, taken: Taken<<Q::Request as Request>::Response>) -> Vec<Step> {
        match taken {
            Taken::OutOfTime { left, attempts } => {
                for (at, problem) in left {
                    let problem = problem.unwrap_or_else(|| self.operation.timed_out(&attempts));
                    self.answers.insert(at, Err(problem));
                }
                Vec::new()
            }
            Taken::LookedUp { left, attempts, found: Ok(metadata) } => {
                self.looked_up(left, attempts, &metadata)
            }
            Taken::LookedUp { left, found: Err(error), .. } => {
                self.not_found += left.len();
                self.answers.extend(left.into_keys().map(|at| (at, Err(error.clone()))));
                self.failure.get_or_insert(error);
                Vec::new()
            }
            Taken::Asked { topics, attempts, answered: Ok(response) } => {
                self.answered(topics, attempts, response)
            }
            Taken::Asked { topics, attempts, answered: Err(error) } => {
                let mut left = Left::new();
                for at in topics.into_values().flatten() {
                    self.sort_in(at, error.clone(), &mut left);
                }
                look_up(left, attempts, Pause::Yes)
            }
            Taken::Refreshed => Vec::new(),
        }
    }

    /// Partitions without a leader are looked up again.
    fn looked_up(&mut self, left: Left, attempts: Attempts, metadata: &MetadataResponse) -> Vec<Step> {
        let (mut by_leader, mut without) = (ByLeader::new(), Left::new());
        for at in left.into_keys() {
            match leader(metadata, &at) {
                Ok(Some(leader)) => insert(&mut by_leader, leader, &at),
                Ok(None) => {
                    let code = ErrorCode::LeaderNotAvailable;
                    let problem = Error::Broker { what: self.question.what(&at), code };
                    without.insert(at, Some(problem));
                }
                Err(error) => drop(self.answers.insert(at, Err(error))),
            }
        }
        let mut steps = ask_each(by_leader, &attempts);
        steps.extend(look_up(without, attempts, Pause::Yes));
        steps
    }

    /// Partitions with a retriable error, or without an answer, are looked up again.
    fn answered(
        &mut self,
        topics: ByTopic,
        attempts: Attempts,
        response: <Q::Request as Request>::Response,
    ) -> Vec<Step> {
        let mut left: Left = topics.into_values().flatten().map(|at| (at, None)).collect();
        let mut moved = BTreeSet::new();
        for (at, answer) in self.question.answers(response) {
            if left.remove(&at).is_none() {
                // Not asked for.
                continue;
            }
            match answer {
                Ok(answer) => drop(self.answers.insert(at, Ok(answer))),
                Err(code) => {
                    let error = Error::Broker { what: self.question.what(&at), code };
                    if self.returns_codes && code.is_retriable() {
                        moved.insert(at.clone());
                        self.answers.insert(at, Err(error));
                    } else {
                        self.sort_in(at, error, &mut left);
                    }
                }
            }
        }
        let mut steps = look_up(left, attempts, Pause::Yes);
        if !moved.is_empty() {
            steps.push(Step::Refresh(moved));
        }
        steps
    }

    /// An error that may pass leaves the partition without a result.
    fn sort_in(&mut self, at: TopicPartition, error: Error, left: &mut Left) {
        if self.operation.passes(&error) {
            left.insert(at, Some(error));
        } else {
            self.answers.insert(at, Err(error));
        }
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
