//! Topics, changed: created, grown and deleted.

use std::collections::BTreeMap;
use std::rc::Rc;

use ottla_protocol::Uuid;
use ottla_protocol::messages::create_partitions::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic,
};
use ottla_protocol::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreatableTopicResult,
    CreateTopicsRequest,
};
use ottla_protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};

use super::operation::{Operation, Repeat, Target, wrong_controller};
use super::{Admin, Change, Each, Timeouts, first_error, in_order, owned, refused};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::topic_name::{check_all, check_topic_name};

const CREATE_TOPICS_VERSION_MAX: i16 = 7;
const CREATE_PARTITIONS_VERSION_MAX: i16 = 3;
const DELETE_TOPICS_VERSION_MAX: i16 = 6;

/// The broker decides: from CreateTopics version 4 on.
const BROKER_DEFAULT_SINCE: i16 = 4;

/// A topic to be created.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// How many partitions; `None` leaves it to the broker.
    pub partitions: Option<i32>,
    /// How many copies of each; `None` leaves it to the broker.
    pub replication: Option<i16>,
    /// Settings that differ from the broker's.
    pub configs: Vec<(String, String)>,
    /// The brokers of each partition, the preferred leader first. If there are any, they are all that is said of
    /// partitions and copies.
    pub assignments: Vec<Vec<i32>>,
}

impl NewTopic {
    /// A topic with the broker's defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Sets how many partitions it gets.
    #[must_use]
    pub fn partitions(mut self, count: i32) -> Self {
        self.partitions = Some(count);
        self
    }

    /// Sets how many copies there are of each partition.
    #[must_use]
    pub fn replication(mut self, factor: i16) -> Self {
        self.replication = Some(factor);
        self
    }

    /// Adds a setting, by Kafka's name.
    #[must_use]
    pub fn config(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.configs.push((name.into(), value.into()));
        self
    }

    /// Adds a partition on these brokers, the preferred leader first.
    #[must_use]
    pub fn assigned(mut self, brokers: impl Into<Vec<i32>>) -> Self {
        self.assignments.push(brokers.into());
        self
    }
}

/// A topic as it was created, or would be.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct CreatedTopic {
    /// Its id; zero on brokers before 2.8, and when nothing was created.
    pub id: Uuid,
    /// How many partitions it has, if the broker tells.
    pub partitions: Option<i32>,
    /// How many copies there are of each, if the broker tells.
    pub replication: Option<i16>,
}

/// More partitions for a topic.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NewPartitions {
    /// The topic.
    pub topic: String,
    /// How many it is to have then.
    pub total: i32,
    /// The brokers of each new partition, the preferred leader first; empty leaves it to the broker.
    pub assignments: Vec<Vec<i32>>,
}

impl NewPartitions {
    /// Partitions of `topic` up to a total of `total`, on whatever brokers.
    pub fn new(topic: impl Into<String>, total: i32) -> Self {
        Self { topic: topic.into(), total, assignments: Vec::new() }
    }
}

impl Admin {
    /// Creates topics.
    ///
    /// # Errors
    /// Every topic is tried; the error is that of the first one that failed. See
    /// [`create_topics_with`](Self::create_topics_with) for all of them.
    pub async fn create_topics(&self, topics: &[NewTopic]) -> Result<(), Error> {
        check_all(topics.iter().map(|topic| &*topic.name))?;
        let topics = topics.to_vec();
        let work = |cluster: Rc<Cluster>| async move {
            let operation = Operation::hasty(cluster, "create_topics");
            first_error(create(&operation, &topics, false).await?)
        };
        self.ask("create_topics", work).await
    }

    /// Creates topics, or only checks whether they could be; answers per topic, in the order asked for.
    ///
    /// A creation whose connection broke is not repeated: it may have been made.
    ///
    /// # Errors
    /// When no topic has an answer of its own: the controller was not reached in time, or did not answer.
    pub async fn create_topics_with(
        &self,
        topics: &[NewTopic],
        change: Change,
    ) -> Result<Each<String, CreatedTopic>, Error> {
        let topics = topics.to_vec();
        let work = move |cluster: Rc<Cluster>| async move {
            let operation = Operation::new(cluster, "create_topics", change.timeouts);
            create(&operation, &topics, change.validate_only).await
        };
        self.ask("create_topics", work).await
    }

    /// Deletes topics with everything in them.
    ///
    /// # Errors
    /// Every topic is tried; the error is that of the first one that failed.
    pub async fn delete_topics(&self, names: &[&str]) -> Result<(), Error> {
        check_all(names.iter().copied())?;
        let names = owned(names);
        let work = |cluster: Rc<Cluster>| async move {
            let operation = Operation::hasty(cluster, "delete_topics");
            first_error(delete(&operation, names).await?)
        };
        self.ask("delete_topics", work).await
    }

    /// Deletes topics with everything in them; answers per topic, in the order asked for.
    ///
    /// # Errors
    /// When no topic has an answer of its own: the controller was not reached in time, or did not answer.
    pub async fn delete_topics_with(
        &self,
        names: &[&str],
        timeouts: Timeouts,
    ) -> Result<Each<String, ()>, Error> {
        let names = owned(names);
        let work = move |cluster: Rc<Cluster>| async move {
            delete(&Operation::new(cluster, "delete_topics", timeouts), names).await
        };
        self.ask("delete_topics", work).await
    }

    /// Gives a topic more partitions: `total` of them then.
    pub async fn create_partitions(&self, topic: &str, total: i32) -> Result<(), Error> {
        check_topic_name(topic)?;
        let wanted = [NewPartitions::new(topic, total)];
        let work = |cluster: Rc<Cluster>| async move {
            let operation = Operation::hasty(cluster, "create_partitions");
            first_error(grow(&operation, &wanted, false).await?)
        };
        self.ask("create_partitions", work).await
    }

    /// Gives topics more partitions, or only checks whether they could be given; answers per topic, in the order asked
    /// for.
    ///
    /// # Errors
    /// When no topic has an answer of its own: the controller was not reached in time, or did not answer.
    pub async fn create_partitions_with(
        &self,
        topics: &[NewPartitions],
        change: Change,
    ) -> Result<Each<String, ()>, Error> {
        let topics = topics.to_vec();
        let work = move |cluster: Rc<Cluster>| async move {
            let operation = Operation::new(cluster, "create_partitions", change.timeouts);
            grow(&operation, &topics, change.validate_only).await
        };
        self.ask("create_partitions", work).await
    }
}

async fn create(
    operation: &Operation,
    topics: &[NewTopic],
    validate_only: bool,
) -> Result<Each<String, CreatedTopic>, Error> {
    let make = |version: i16| CreateTopicsRequest {
        topics: topics.iter().map(|topic| creatable(topic, version)).collect(),
        timeout_ms: operation.at_broker_ms(),
        validate_only,
    };
    let versions = 0..=CREATE_TOPICS_VERSION_MAX;
    let response = operation
        .call(Target::Controller, versions, Repeat::No, make, |response| {
            wrong_controller(response.topics.iter().map(|topic| topic.error_code))
        })
        .await?;
    let answers = response.topics.into_iter().map(|topic| (topic.name.clone(), created(operation, topic)));
    Ok(in_order(topics.iter().map(|topic| topic.name.clone()), answers.collect(), "creating topic"))
}

fn created(operation: &Operation, topic: CreatableTopicResult) -> Result<CreatedTopic, Error> {
    if !operation.is_done(topic.error_code) {
        let what = format!("creating topic `{}`", topic.name);
        refused(&what, topic.error_code, topic.error_message.as_deref())?;
    }
    Ok(CreatedTopic {
        id: topic.topic_id,
        partitions: Some(topic.num_partitions).filter(|count| *count >= 0),
        replication: Some(topic.replication_factor).filter(|factor| *factor >= 0),
    })
}

fn creatable(topic: &NewTopic, version: i16) -> CreatableTopic {
    // Older brokers do not know "as the broker thinks fit", and all want it where brokers are named.
    let assigned = !topic.assignments.is_empty();
    let unsaid = if version >= BROKER_DEFAULT_SINCE || assigned { -1 } else { 1 };
    let assignment = |(index, brokers): (i32, &Vec<i32>)| CreatableReplicaAssignment {
        partition_index: index,
        broker_ids: brokers.clone(),
    };
    CreatableTopic {
        name: topic.name.clone(),
        num_partitions: topic.partitions.filter(|_| !assigned).unwrap_or(i32::from(unsaid)),
        replication_factor: topic.replication.filter(|_| !assigned).unwrap_or(unsaid),
        assignments: (0..).zip(&topic.assignments).map(assignment).collect(),
        configs: topic
            .configs
            .iter()
            .map(|(name, value)| CreatableTopicConfig { name: name.clone(), value: Some(value.clone()) })
            .collect(),
    }
}

async fn delete(operation: &Operation, names: Vec<String>) -> Result<Each<String, ()>, Error> {
    let make = |version: i16| {
        let mut request = DeleteTopicsRequest { timeout_ms: operation.at_broker_ms(), ..Default::default() };
        if version >= 6 {
            let state = |name: &String| DeleteTopicState { name: Some(name.clone()), ..Default::default() };
            request.topics = names.iter().map(state).collect();
        } else {
            request.topic_names.clone_from(&names);
        }
        request
    };
    let versions = 0..=DELETE_TOPICS_VERSION_MAX;
    let response = operation
        .call(Target::Controller, versions, Repeat::No, make, |response| {
            wrong_controller(response.responses.iter().map(|topic| topic.error_code))
        })
        .await?;
    let answers = response.responses.into_iter().map(|topic| {
        let name = topic.name.unwrap_or_default();
        let deleted = match topic.error_code {
            code if operation.is_done(code) => Ok(()),
            code => refused(&format!("deleting topic `{name}`"), code, None),
        };
        (name, deleted)
    });
    let answers: BTreeMap<_, _> = answers.collect();
    Ok(in_order(names.iter().cloned(), answers, "deleting topic"))
}

async fn grow(
    operation: &Operation,
    topics: &[NewPartitions],
    validate_only: bool,
) -> Result<Each<String, ()>, Error> {
    let assignment = |brokers: &Vec<i32>| CreatePartitionsAssignment { broker_ids: brokers.clone() };
    let wanted = |topic: &NewPartitions| CreatePartitionsTopic {
        name: topic.topic.clone(),
        count: topic.total,
        assignments: (!topic.assignments.is_empty())
            .then(|| topic.assignments.iter().map(assignment).collect()),
    };
    let make = |_version: i16| CreatePartitionsRequest {
        topics: topics.iter().map(wanted).collect(),
        timeout_ms: operation.at_broker_ms(),
        validate_only,
    };
    let versions = 0..=CREATE_PARTITIONS_VERSION_MAX;
    let response = operation
        .call(Target::Controller, versions, Repeat::No, make, |response| {
            wrong_controller(response.results.iter().map(|result| result.error_code))
        })
        .await?;
    let totals: BTreeMap<&str, i32> = topics.iter().map(|topic| (&*topic.topic, topic.total)).collect();
    let answers = response.results.into_iter().map(|result| {
        let total = totals.get(&*result.name).copied().unwrap_or_default();
        let grown = match result.error_code {
            code if operation.is_done(code) => Ok(()),
            code => {
                let what = format!("giving topic `{}` {total} partitions", result.name);
                refused(&what, code, result.error_message.as_deref())
            }
        };
        (result.name, grown)
    });
    let answers: BTreeMap<_, _> = answers.collect();
    Ok(in_order(topics.iter().map(|topic| topic.topic.clone()), answers, "partitions of topic"))
}
