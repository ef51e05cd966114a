//! CreateTopics, DeleteTopics, CreatePartitions.

use std::collections::{BTreeMap, BTreeSet};

use ottla_protocol::messages::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic, CreatePartitionsTopicResult,
};
use ottla_protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse,
};
use ottla_protocol::messages::delete_topics::{
    DeletableTopicResult, DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse,
};
use ottla_protocol::{ErrorCode, Uuid};

use super::describe_configs::{BrokerProperties, topic_chain};
use super::throttling::MutationCharge;
use super::{Api, RequestContext};
use crate::cluster::{Cluster, Refusal, storage_refusal};
use crate::config::{Scope, TopicConfig, settings};
use crate::quotas::Throttled;
use crate::security::acl::{Operation, ResourceType};
use crate::topics::{NewTopic, Topic};

/// From these versions on, clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
const CREATE_STRICT_FROM: i16 = 6;
const DELETE_STRICT_FROM: i16 = 5;
const GROW_STRICT_FROM: i16 = 3;
/// From this version on, clients know TOPIC_DELETION_DISABLED.
const DELETION_DISABLED_FROM: i16 = 3;

impl Api for CreateTopicsRequest {
    async fn handle(self, context: RequestContext) -> CreateTopicsResponse {
        let (topics, dry_run) = (self.topics, self.validate_only);
        let mut charge = context.mutation_charge(CREATE_STRICT_FROM, dry_run);
        let create =
            move |cluster: &Cluster| (create_all(cluster, topics, dry_run, &mut charge), charge.pause());
        let (mut topics, throttle) = context.cluster().change_topics(create).await;
        hide_settings(&context, &mut topics);
        let mut response = CreateTopicsResponse { topics, ..Default::default() };
        response.throttle(throttle);
        response
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> CreateTopicsResponse {
        let topics = self.topics.into_iter().map(|topic| CreatableTopicResult {
            name: topic.name,
            error_code: code,
            error_message: Some(code.message().to_owned()),
            ..Default::default()
        });
        CreateTopicsResponse { topics: topics.collect(), ..Default::default() }
    }
}

/// Removes the settings of new topics from clients that may not describe them (KIP-525). Their list is empty, and not null, as in Kafka.
fn hide_settings(context: &RequestContext, topics: &mut [CreatableTopicResult]) {
    for topic in topics.iter_mut().filter(|topic| topic.error_code == ErrorCode::None) {
        // As in Kafka, nothing is logged: the client has not requested them.
        if context.may_see(Operation::DescribeConfigs, ResourceType::Topic, &topic.name) {
            continue;
        }
        topic.topic_config_error_code = ErrorCode::TopicAuthorizationFailed;
        topic.configs = Some(Vec::new());
        (topic.num_partitions, topic.replication_factor) = (-1, -1);
    }
}

fn create_all(
    cluster: &Cluster,
    topics: Vec<CreatableTopic>,
    dry_run: bool,
    charge: &mut MutationCharge,
) -> Vec<CreatableTopicResult> {
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for topic in &topics {
        *uses.entry(topic.name.clone()).or_default() += 1;
    }
    // Like Kafka's, the answer has one result for a name, however often the request has it.
    let mut answered: BTreeSet<&str> = BTreeSet::new();
    let topics: Vec<&CreatableTopic> = topics.iter().filter(|topic| answered.insert(&topic.name)).collect();
    let checked = topics.iter().map(|topic| check(cluster, topic, uses[&topic.name]));
    let checked: Vec<Result<NewTopic, Refusal>> = checked.collect();
    let new = checked.iter().flatten().cloned().collect();
    let created = cluster.create_topics(new, dry_run, &mut |partitions| charge.admit(partitions));
    let mut created = created.into_iter();
    let created = checked.into_iter().map(|topic| {
        let topic = topic?;
        created.next().unwrap_or_else(|| Err(storage_refusal("no result"))).map(|created| (topic, created))
    });
    let properties = BrokerProperties::of_topics(cluster);
    let results = topics.iter().zip(created).map(|(asked, created)| match created {
        Ok((new, topic)) => result_of(cluster, &properties, asked, new.partitions, &topic, dry_run),
        Err((error_code, reason)) => CreatableTopicResult {
            name: asked.name.clone(),
            error_code,
            error_message: Some(reason),
            ..Default::default()
        },
    });
    results.collect()
}

fn check(cluster: &Cluster, topic: &CreatableTopic, uses: usize) -> Result<NewTopic, Refusal> {
    let CreatableTopic { name, num_partitions, replication_factor, assignments, configs } = topic;
    if uses > 1 {
        let reason = format!("topic `{name}` is {uses} times in this request");
        return Err((ErrorCode::InvalidRequest, reason));
    }
    // Programs that create a topic unless it exists know no other error for one that does.
    cluster.check_may_create(name)?;
    let mut config = TopicConfig::default();
    for setting in configs {
        let Some(value) = &setting.value else {
            let reason = format!("topic `{name}`: the setting `{}` has no value", setting.name);
            return Err((ErrorCode::InvalidConfig, reason));
        };
        config.set(&setting.name, value).map_err(|reason| (ErrorCode::InvalidConfig, reason))?;
    }
    cluster.check_config(&config)?;
    let replication = check_assignments(cluster, topic)?.unwrap_or(i32::from(*replication_factor));
    if replication < 1 && replication != -1 {
        let reason = format!("topic `{name}`: replication factor {replication}; use 1 or more, or -1");
        return Err((ErrorCode::InvalidReplicationFactor, reason));
    }
    let chosen = assignments.iter().map(|assigned| (assigned.partition_index, assigned.broker_ids.clone()));
    let partitions = if assignments.is_empty() { *num_partitions } else { assignments.len() as i32 };
    Ok(NewTopic { name: name.clone(), partitions, config, replication, assignments: chosen.collect() })
}

/// Returns the replication factor of an assignment: the same number of different nodes for each partition, from 0 up.
fn check_assignments(cluster: &Cluster, topic: &CreatableTopic) -> Result<Option<i32>, Refusal> {
    let Some(first) = topic.assignments.first() else { return Ok(None) };
    if (topic.num_partitions, topic.replication_factor) != (-1, -1) {
        let CreatableTopic { name, num_partitions, replication_factor, .. } = topic;
        let reason = format!(
            "topic `{name}`: beside an assignment, {num_partitions} partitions and replication factor \
             {replication_factor} must both be -1"
        );
        return Err((ErrorCode::InvalidRequest, reason));
    }
    let replicas = first.broker_ids.len();
    let mut indexes: Vec<i32> = topic.assignments.iter().map(|assigned| assigned.partition_index).collect();
    indexes.sort_unstable();
    let is_sound = |nodes: &[i32]| {
        let unique: BTreeSet<i32> = nodes.iter().copied().collect();
        nodes.len() == replicas
            && unique.len() == replicas
            && unique.iter().all(|id| cluster.node(*id).is_some())
    };
    let numbered = indexes.iter().zip(0..).all(|(index, expected)| *index == expected);
    if replicas > 0 && numbered && topic.assignments.iter().all(|assigned| is_sound(&assigned.broker_ids)) {
        for assigned in &topic.assignments {
            cluster.check_one_is_up(&topic.name, assigned.partition_index, &assigned.broker_ids)?;
        }
        return Ok(Some(replicas as i32));
    }
    let reason = format!(
        "topic `{}`: an assignment has partitions from 0 up, each with the same number of different nodes of {:?}",
        topic.name,
        cluster.nodes()
    );
    Err((ErrorCode::InvalidReplicaAssignment, reason))
}

fn result_of(
    cluster: &Cluster,
    properties: &BrokerProperties<'_>,
    asked: &CreatableTopic,
    partitions: i32,
    topic: &Topic,
    dry_run: bool,
) -> CreatableTopicResult {
    let num_partitions = match (dry_run, partitions) {
        (true, -1) => cluster.config.partitions_default,
        (true, count) => count,
        (false, _) => topic.partitions.len() as i32,
    };
    let is_set = |name: &str| topic.config.values().contains_key(name);
    let described =
        settings(Scope::Topic).iter().filter(|setting| setting.is_described(is_set(setting.name)));
    let configs = described.map(|setting| {
        let effective = topic_chain(properties, &topic.config, setting).into_iter().next();
        let (value, config_source) = effective.map_or((None, -1), |(_, value, source)| (value, source as i8));
        CreatableTopicConfigs { name: setting.name.into(), value, config_source, ..Default::default() }
    });
    CreatableTopicResult {
        name: asked.name.clone(),
        topic_id: if dry_run { Uuid::ZERO } else { topic.id },
        num_partitions,
        replication_factor: i16::try_from(topic.replication).unwrap_or(i16::MAX),
        configs: Some(configs.collect()),
        ..Default::default()
    }
}

impl Api for DeleteTopicsRequest {
    async fn handle(self, context: RequestContext) -> DeleteTopicsResponse {
        if !context.cluster().config.delete_topics {
            let is_known = context.version >= DELETION_DISABLED_FROM;
            let code = if is_known { ErrorCode::TopicDeletionDisabled } else { ErrorCode::InvalidRequest };
            return self.refuse(&context, code);
        }
        let topics = named(self);
        let mut charge = context.mutation_charge(DELETE_STRICT_FROM, false);
        let delete = move |cluster: &Cluster| (delete_all(cluster, topics, &mut charge), charge.pause());
        let (responses, throttle) = context.cluster().change_topics(delete).await;
        let mut response = DeleteTopicsResponse { responses, ..Default::default() };
        response.throttle(throttle);
        response
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DeleteTopicsResponse {
        let responses = named(self).into_iter().map(|topic| DeletableTopicResult {
            name: topic.name,
            topic_id: topic.topic_id,
            error_code: code,
            error_message: Some(code.message().to_owned()),
        });
        DeleteTopicsResponse { responses: responses.collect(), ..Default::default() }
    }
}

/// The topic that an item of DeleteTopics means.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deleted<'a> {
    Named(&'a str),
    WithId(Uuid),
}

impl<'a> Deleted<'a> {
    /// `None` if the item has a name and an id, or neither: it could mean two topics, of which the client may delete one.
    pub(super) fn of(item: &'a DeleteTopicState) -> Option<Self> {
        match (&item.name, item.topic_id) {
            (Some(name), Uuid::ZERO) => Some(Self::Named(name)),
            (None, id) if id != Uuid::ZERO => Some(Self::WithId(id)),
            _ => None,
        }
    }

    /// The name of the topic.
    fn name(self, cluster: &Cluster) -> Result<String, Refusal> {
        match self {
            Self::Named(name) => Ok(name.to_owned()),
            Self::WithId(id) => cluster
                .topic_by_id(id)
                .map(|topic| topic.name.to_string())
                .ok_or((ErrorCode::UnknownTopicId, format!("no topic has the id {id}"))),
        }
    }
}

fn delete_all(
    cluster: &Cluster,
    topics: Vec<DeleteTopicState>,
    charge: &mut MutationCharge,
) -> Vec<DeletableTopicResult> {
    let unclear = || {
        let reason = "a topic is deleted by its name or by its id, and not by both".to_owned();
        Err((ErrorCode::InvalidRequest, reason))
    };
    let names =
        topics.iter().map(|topic| Deleted::of(topic).map_or_else(unclear, |deleted| deleted.name(cluster)));
    let names: Vec<Result<String, Refusal>> = names.collect();
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names.iter().flatten() {
        *uses.entry(name).or_default() += 1;
    }
    let mut answered: BTreeSet<&str> = BTreeSet::new();
    let mut results = Vec::with_capacity(topics.len());
    for (topic, name) in topics.iter().zip(&names) {
        let deleted = match name {
            Ok(name) if uses.get(&**name).is_some_and(|uses| *uses > 1) => {
                // Like Kafka's, the answer has one result for a topic, however often the request has it.
                if !answered.insert(name) {
                    continue;
                }
                Err((ErrorCode::InvalidRequest, "the topic is in this request more than once".to_owned()))
            }
            Ok(name) => cluster.delete_topic(name, &mut |partitions| charge.admit(partitions)),
            Err(refusal) => Err(refusal.clone()),
        };
        results.push(match deleted {
            Ok(gone) => DeletableTopicResult {
                name: Some(gone.name.to_string()),
                topic_id: gone.id,
                ..Default::default()
            },
            Err((error_code, reason)) => DeletableTopicResult {
                name: topic.name.clone(),
                topic_id: topic.topic_id,
                error_code,
                error_message: Some(reason),
            },
        });
    }
    results
}

/// Before version 6 topics came by name only.
fn named(request: DeleteTopicsRequest) -> Vec<DeleteTopicState> {
    let names = request.topic_names.into_iter();
    let by_name = names.map(|name| DeleteTopicState { name: Some(name), ..Default::default() });
    request.topics.into_iter().chain(by_name).collect()
}

impl Api for CreatePartitionsRequest {
    async fn handle(self, context: RequestContext) -> CreatePartitionsResponse {
        let (topics, dry_run) = (self.topics, self.validate_only);
        let mut charge = context.mutation_charge(GROW_STRICT_FROM, dry_run);
        let grow = move |cluster: &Cluster| (grow_all(cluster, topics, dry_run, &mut charge), charge.pause());
        let (results, throttle) = context.cluster().change_topics(grow).await;
        let mut response = CreatePartitionsResponse { results, ..Default::default() };
        response.throttle(throttle);
        response
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> CreatePartitionsResponse {
        let results = self.topics.into_iter().map(|topic| CreatePartitionsTopicResult {
            name: topic.name,
            error_code: code,
            error_message: None,
        });
        CreatePartitionsResponse { results: results.collect(), ..Default::default() }
    }
}

fn grow_all(
    cluster: &Cluster,
    topics: Vec<CreatePartitionsTopic>,
    dry_run: bool,
    charge: &mut MutationCharge,
) -> Vec<CreatePartitionsTopicResult> {
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for topic in &topics {
        *uses.entry(topic.name.clone()).or_default() += 1;
    }
    let results = topics.into_iter().filter_map(|topic| {
        // None is left of a topic that is answered.
        let grown = match uses.remove(&topic.name)? {
            1 => {
                let chosen =
                    topic.assignments.map(|chosen| chosen.into_iter().map(|one| one.broker_ids).collect());
                let admit = &mut |partitions| charge.admit(partitions);
                cluster.grow_topic(&topic.name, topic.count, chosen, dry_run, admit)
            }
            uses => {
                let reason = format!("topic `{}` is {uses} times in this request", topic.name);
                Err((ErrorCode::InvalidRequest, reason))
            }
        };
        let (error_code, error_message) = match grown {
            Ok(()) => (ErrorCode::None, None),
            Err((code, reason)) => (code, Some(reason)),
        };
        Some(CreatePartitionsTopicResult { name: topic.name, error_code, error_message })
    });
    results.collect()
}
