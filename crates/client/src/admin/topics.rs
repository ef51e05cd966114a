//! Topics: creation, deletion and new partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ottla_protocol::Uuid;
use ottla_protocol::messages::create_partitions::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic,
};
use ottla_protocol::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreatableTopicResult,
    CreateTopicsRequest, CreateTopicsResponse,
};
use ottla_protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse};

use super::operation::{Operation, wrong_controller};
use super::{Admin, AlterOptions, KeyedResults, Timeouts, first_error, in_order, owned, refused};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::types::topic_name::{check_all, check_topic_name};

const CREATE_TOPICS_VERSION_MAX: i16 = 7;
const CREATE_PARTITIONS_VERSION_MAX: i16 = 3;
const DELETE_TOPICS_VERSION_MAX: i16 = 6;

/// The first version of CreateTopics with the broker's defaults.
const BROKER_DEFAULT_SINCE: i16 = 4;

/// A topic to create.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// The number of partitions; `None` for the broker's default.
    pub partitions: Option<i32>,
    /// The replication factor; `None` for the broker's default.
    pub replication: Option<i16>,
    /// Configurations that differ from the broker's defaults. Brokers refuse one without a value.
    pub configs: Vec<(String, Option<String>)>,
    /// The brokers of each partition, the preferred leader first. If it is not empty, it replaces the number of
    /// partitions and the replication factor.
    pub assignments: Vec<Vec<i32>>,
}

impl NewTopic {
    /// Creates a description with the broker's defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Sets the number of partitions.
    #[must_use]
    pub fn partitions(mut self, count: i32) -> Self {
        self.partitions = Some(count);
        self
    }

    /// Sets the replication factor.
    #[must_use]
    pub fn replication(mut self, factor: i16) -> Self {
        self.replication = Some(factor);
        self
    }

    /// Adds a configuration, by Kafka's name.
    #[must_use]
    pub fn config(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.configs.push((name.into(), Some(value.into())));
        self
    }

    /// Adds a partition on these brokers, the preferred leader first.
    #[must_use]
    pub fn assigned(mut self, brokers: impl Into<Vec<i32>>) -> Self {
        self.assignments.push(brokers.into());
        self
    }
}

/// A topic that was created, or validated.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct CreatedTopic {
    /// Its id; zero on brokers before 2.8, and if the topic was only validated.
    pub id: Uuid,
    /// The number of partitions, if the broker reports it.
    pub partitions: Option<i32>,
    /// The replication factor, if the broker reports it.
    pub replication: Option<i16>,
}

/// New partitions for a topic.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NewPartitions {
    /// The topic.
    pub topic: String,
    /// The new total number of partitions.
    pub total: i32,
    /// The brokers of each new partition, the preferred leader first; empty for the broker's choice.
    pub assignments: Vec<Vec<i32>>,
}

impl NewPartitions {
    /// Describes new partitions of `topic`, up to `total`, on brokers that the cluster selects.
    pub fn new(topic: impl Into<String>, total: i32) -> Self {
        Self { topic: topic.into(), total, assignments: Vec::new() }
    }
}

impl Admin {
    /// Creates topics.
    ///
    /// # Errors
    /// The error of the first topic that failed, after an attempt for each topic.
    /// [`create_topics_with`](Self::create_topics_with) returns all errors.
    pub async fn create_topics(&self, topics: &[NewTopic]) -> Result<(), Error> {
        check_all(topics.iter().map(|topic| &*topic.name))?;
        let topics = topics.to_vec();
        let work = |cluster: Rc<Cluster>| async move {
            let operation = Operation::hasty(cluster, "create_topics");
            first_error(create(&operation, &topics, false).await?)
        };
        self.ask("create_topics", work).await
    }

    /// Creates topics, or only validates them. Returns a result per topic, in the order of the request.
    ///
    /// A request whose connection broke is not repeated, because the topics may exist already.
    ///
    /// # Errors
    /// The whole call fails if the controller is not reached in time, or does not respond.
    pub async fn create_topics_with(
        &self,
        topics: &[NewTopic],
        change: AlterOptions,
    ) -> Result<KeyedResults<String, CreatedTopic>, Error> {
        let topics = topics.to_vec();
        let work = move |cluster: Rc<Cluster>| async move {
            let operation = Operation::new(cluster, "create_topics", change.timeouts);
            create(&operation, &topics, change.validate_only).await
        };
        self.ask("create_topics", work).await
    }

    /// Deletes topics with all their records.
    ///
    /// # Errors
    /// The error of the first topic that failed, after an attempt for each topic.
    pub async fn delete_topics(&self, names: &[&str]) -> Result<(), Error> {
        check_all(names.iter().copied())?;
        let names = owned(names);
        let work = |cluster: Rc<Cluster>| async move {
            let operation = Operation::hasty(cluster, "delete_topics");
            first_error(delete(&operation, names).await?)
        };
        self.ask("delete_topics", work).await
    }

    /// Deletes topics with all their records. Returns a result per topic, in the order of the request.
    ///
    /// # Errors
    /// The whole call fails if the controller is not reached in time, or does not respond.
    pub async fn delete_topics_with(
        &self,
        names: &[&str],
        timeouts: Timeouts,
    ) -> Result<KeyedResults<String, ()>, Error> {
        let names = owned(names);
        let work = move |cluster: Rc<Cluster>| async move {
            delete(&Operation::new(cluster, "delete_topics", timeouts), names).await
        };
        self.ask("delete_topics", work).await
    }

    /// Increases the number of partitions of a topic to `total`.
    pub async fn create_partitions(&self, topic: &str, total: i32) -> Result<(), Error> {
        check_topic_name(topic)?;
        let wanted = [NewPartitions::new(topic, total)];
        let work = |cluster: Rc<Cluster>| async move {
            let operation = Operation::hasty(cluster, "create_partitions");
            first_error(grow(&operation, &wanted, false).await?)
        };
        self.ask("create_partitions", work).await
    }

    /// Increases the number of partitions of topics, or only validates the change. Returns a result per topic, in the
    /// order of the request.
    ///
    /// # Errors
    /// The whole call fails if the controller is not reached in time, or does not respond.
    pub async fn create_partitions_with(
        &self,
        topics: &[NewPartitions],
        change: AlterOptions,
    ) -> Result<KeyedResults<String, ()>, Error> {
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
) -> Result<KeyedResults<String, CreatedTopic>, Error> {
    let names = || topics.iter().map(|topic| topic.name.clone());
    let make = |left: &BTreeSet<String>, version: i16| {
        let topics = topics.iter().filter(|topic| left.contains(&topic.name));
        CreateTopicsRequest {
            topics: topics.map(|topic| creatable(topic, version)).collect(),
            timeout_ms: operation.at_broker_ms(),
            validate_only,
        }
    };
    let again = |response: &CreateTopicsResponse| {
        wrong_controller(response.topics.iter().map(|topic| topic.error_code))
    };
    let results = |response: CreateTopicsResponse| {
        let topics = response.topics.into_iter();
        topics.map(|topic| (topic.name.clone(), created(operation, topic))).collect::<Vec<_>>()
    };
    let changed = operation.change_topics(names(), CREATE_TOPICS_VERSION_MAX, make, again, results);
    Ok(in_order(names(), changed.await?, "creating topic"))
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
    // Older brokers have no default values; with assigned brokers, every version requires the numbers to be unset.
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
            .map(|(name, value)| CreatableTopicConfig { name: name.clone(), value: value.clone() })
            .collect(),
    }
}

async fn delete(operation: &Operation, names: Vec<String>) -> Result<KeyedResults<String, ()>, Error> {
    let make = |left: &BTreeSet<String>, version: i16| {
        let mut request = DeleteTopicsRequest { timeout_ms: operation.at_broker_ms(), ..Default::default() };
        let names = names.iter().filter(|name| left.contains(*name)).cloned();
        if version >= 6 {
            let state = |name| DeleteTopicState { name: Some(name), ..Default::default() };
            request.topics = names.map(state).collect();
        } else {
            request.topic_names = names.collect();
        }
        request
    };
    let again = |response: &DeleteTopicsResponse| {
        wrong_controller(response.responses.iter().map(|topic| topic.error_code))
    };
    let results = |response: DeleteTopicsResponse| {
        let deleted = response.responses.into_iter().map(|topic| {
            let name = topic.name.unwrap_or_default();
            let deleted = match topic.error_code {
                code if operation.is_done(code) => Ok(()),
                code => refused(&format!("deleting topic `{name}`"), code, None),
            };
            (name, deleted)
        });
        deleted.collect::<Vec<_>>()
    };
    let asked = names.iter().cloned();
    let changed = operation.change_topics(asked, DELETE_TOPICS_VERSION_MAX, make, again, results);
    Ok(in_order(names.iter().cloned(), changed.await?, "deleting topic"))
}

async fn grow(
    operation: &Operation,
    topics: &[NewPartitions],
    validate_only: bool,
) -> Result<KeyedResults<String, ()>, Error> {
    let assignment = |brokers: &Vec<i32>| CreatePartitionsAssignment { broker_ids: brokers.clone() };
    let wanted = |topic: &NewPartitions| CreatePartitionsTopic {
        name: topic.topic.clone(),
        count: topic.total,
        assignments: (!topic.assignments.is_empty())
            .then(|| topic.assignments.iter().map(assignment).collect()),
    };
    let names = || topics.iter().map(|topic| topic.topic.clone());
    let make = |left: &BTreeSet<String>, _version: i16| {
        let topics = topics.iter().filter(|topic| left.contains(&topic.topic));
        CreatePartitionsRequest {
            topics: topics.map(wanted).collect(),
            timeout_ms: operation.at_broker_ms(),
            validate_only,
        }
    };
    let again = |response: &CreatePartitionsResponse| {
        wrong_controller(response.results.iter().map(|result| result.error_code))
    };
    let totals: BTreeMap<&str, i32> = topics.iter().map(|topic| (&*topic.topic, topic.total)).collect();
    let results = |response: CreatePartitionsResponse| {
        let grown = response.results.into_iter().map(|result| {
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
        grown.collect::<Vec<_>>()
    };
    let changed = operation.change_topics(names(), CREATE_PARTITIONS_VERSION_MAX, make, again, results);
    Ok(in_order(names(), changed.await?, "partitions of topic"))
}
