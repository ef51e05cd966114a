//! CreateTopics, DeleteTopics, CreatePartitions.

use ottla_protocol::messages::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopicResult,
};
use ottla_protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse,
};
use ottla_protocol::messages::delete_topics::{
    DeletableTopicResult, DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse,
};
use ottla_protocol::{ErrorCode, Uuid};

use super::{Api, RequestContext};
use crate::cluster::{Cluster, Refusal};
use crate::config::{TOPIC_SETTINGS, TopicConfig};

impl Api for CreateTopicsRequest {
    async fn handle(self, context: RequestContext) -> CreateTopicsResponse {
        let cluster = context.cluster();
        let dry_run = self.validate_only;
        let topics = self.topics.into_iter().map(|topic| {
            let name = topic.name.clone();
            create(cluster, topic, dry_run).unwrap_or_else(|(error_code, reason)| CreatableTopicResult {
                name,
                error_code,
                error_message: Some(reason),
                configs: None,
                ..Default::default()
            })
        });
        CreateTopicsResponse { topics: topics.collect(), ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> CreateTopicsResponse {
        let topics = self.topics.into_iter().map(|topic| CreatableTopicResult {
            name: topic.name,
            error_code: code,
            configs: None,
            ..Default::default()
        });
        CreateTopicsResponse { topics: topics.collect(), ..Default::default() }
    }
}

fn create(cluster: &Cluster, topic: CreatableTopic, dry_run: bool) -> Result<CreatableTopicResult, Refusal> {
    let CreatableTopic { name, num_partitions, replication_factor, assignments, configs } = topic;
    if !matches!(replication_factor, -1 | 1) {
        let reason =
            format!("topic `{name}`: replication factor {replication_factor}; this broker keeps 1 copy");
        return Err((ErrorCode::InvalidReplicationFactor, reason));
    }
    if assignments.iter().any(|assignment| assignment.broker_ids.len() != 1) {
        let reason = format!("topic `{name}`: every partition has exactly 1 replica here");
        return Err((ErrorCode::InvalidReplicaAssignment, reason));
    }
    let mut config = TopicConfig::default();
    for setting in configs {
        let value = setting.value.unwrap_or_default();
        config.set(&setting.name, &value).map_err(|reason| (ErrorCode::InvalidConfig, reason))?;
    }
    let count = if assignments.is_empty() { num_partitions } else { assignments.len() as i32 };
    let topic = cluster.create_topic(&name, count, config, dry_run)?;
    for assignment in assignments {
        // Chosen leaders are honoured where such a node is up.
        let _ = cluster.move_leader(&name, assignment.partition_index, assignment.broker_ids[0]);
    }
    let partitions = if dry_run {
        if count == -1 { cluster.config.partitions_default } else { count }
    } else {
        topic.partitions.len() as i32
    };
    let configs = TOPIC_SETTINGS.iter().map(|setting| {
        let (value, source) = topic.config.effective(setting.name, &cluster.config.topic_defaults);
        CreatableTopicConfigs {
            name: setting.name.into(),
            value: Some(value),
            config_source: source.code(),
            ..Default::default()
        }
    });
    Ok(CreatableTopicResult {
        name,
        topic_id: if dry_run { Uuid::ZERO } else { topic.id },
        num_partitions: partitions,
        replication_factor: 1,
        configs: Some(configs.collect()),
        ..Default::default()
    })
}

impl Api for DeleteTopicsRequest {
    async fn handle(self, context: RequestContext) -> DeleteTopicsResponse {
        let cluster = context.cluster();
        let responses = named(self).into_iter().map(|topic| {
            let name = match &topic.name {
                Some(name) => Ok(name.clone()),
                None => cluster
                    .topic_by_id(topic.topic_id)
                    .map(|topic| topic.name.to_string())
                    .ok_or((ErrorCode::UnknownTopicId, format!("no topic has the id {}", topic.topic_id))),
            };
            match name.and_then(|name| cluster.delete_topic(&name)) {
                Ok(gone) => DeletableTopicResult {
                    name: Some(gone.name.to_string()),
                    topic_id: gone.id,
                    ..Default::default()
                },
                Err((error_code, reason)) => DeletableTopicResult {
                    name: topic.name,
                    topic_id: topic.topic_id,
                    error_code,
                    error_message: Some(reason),
                },
            }
        });
        DeleteTopicsResponse { responses: responses.collect(), ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DeleteTopicsResponse {
        let responses = named(self).into_iter().map(|topic| DeletableTopicResult {
            name: topic.name,
            topic_id: topic.topic_id,
            error_code: code,
            ..Default::default()
        });
        DeleteTopicsResponse { responses: responses.collect(), ..Default::default() }
    }
}

/// Before version 6 topics came by name only.
fn named(request: DeleteTopicsRequest) -> Vec<DeleteTopicState> {
    let names = request.topic_names.into_iter();
    let by_name = names.map(|name| DeleteTopicState { name: Some(name), ..Default::default() });
    request.topics.into_iter().chain(by_name).collect()
}

impl Api for CreatePartitionsRequest {
    async fn handle(self, context: RequestContext) -> CreatePartitionsResponse {
        let dry_run = self.validate_only;
        let results = self.topics.into_iter().map(|topic| {
            let grown = context.cluster().grow_topic(&topic.name, topic.count, dry_run);
            let (error_code, error_message) = match grown {
                Ok(()) => (ErrorCode::None, None),
                Err((code, reason)) => (code, Some(reason)),
            };
            CreatePartitionsTopicResult { name: topic.name, error_code, error_message }
        });
        CreatePartitionsResponse { results: results.collect(), ..Default::default() }
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
