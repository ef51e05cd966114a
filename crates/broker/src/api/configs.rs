//! DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, for topics; brokers have nothing that can be changed
//! while they run.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsResource as ReplaceResource,
    AlterConfigsResourceResponse as ReplaceResourceResponse, AlterConfigsResponse,
};
use ottla_protocol::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResponse,
    DescribeConfigsResult, DescribeConfigsSynonym,
};
use ottla_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterConfigsResourceResponse, AlterableConfig, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};

use super::{Api, RequestContext};
use crate::cluster::{Cluster, Refusal};
use crate::config::{TOPIC_SETTINGS, TopicConfig};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;
/// The type number of lists.
const LIST: i8 = 7;

impl Api for DescribeConfigsRequest {
    async fn handle(self, context: RequestContext) -> DescribeConfigsResponse {
        let (synonyms, documentation) = (self.include_synonyms, self.include_documentation);
        let results = self.resources.into_iter().map(|resource| {
            let (resource_type, resource_name) = (resource.resource_type, resource.resource_name.clone());
            let (error_code, error_message, configs) =
                match describe(&context, &resource, synonyms, documentation) {
                    Ok(configs) => (ErrorCode::None, None, configs),
                    Err((code, reason)) => (code, Some(reason), Vec::new()),
                };
            DescribeConfigsResult { error_code, error_message, resource_type, resource_name, configs }
        });
        DescribeConfigsResponse { results: results.collect(), ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DescribeConfigsResponse {
        let results = self.resources.into_iter().map(|resource| DescribeConfigsResult {
            error_code: code,
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
            ..Default::default()
        });
        DescribeConfigsResponse { results: results.collect(), ..Default::default() }
    }
}

fn describe(
    context: &RequestContext,
    resource: &DescribeConfigsResource,
    synonyms: bool,
    documentation: bool,
) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
    let name = &resource.resource_name;
    let cluster = context.cluster();
    let config = match resource.resource_type {
        TOPIC => cluster.topic(name).map(|topic| topic.config.clone()).ok_or_else(|| unknown(name))?,
        // The broker's settings are the defaults of its topics.
        BROKER => cluster.config.topic_defaults.clone(),
        other => return Err(no_such_kind(other)),
    };
    let wanted = |name: &str| {
        resource.configuration_keys.as_ref().is_none_or(|keys| keys.iter().any(|key| key == name))
    };
    let described = TOPIC_SETTINGS.iter().filter(|setting| wanted(setting.name)).map(|setting| {
        let (value, source) = config.effective(setting.name, &cluster.config.topic_defaults);
        let synonym = DescribeConfigsSynonym {
            name: setting.name.into(),
            value: Some(value.clone()),
            source: source.code(),
        };
        DescribeConfigsResourceResult {
            name: setting.name.into(),
            value: Some(value),
            read_only: resource.resource_type == BROKER,
            config_source: source.code(),
            synonyms: if synonyms { vec![synonym] } else { Vec::new() },
            config_type: setting.kind,
            documentation: documentation.then(|| setting.text.to_owned()),
            ..Default::default()
        }
    });
    Ok(described.collect())
}

impl Api for AlterConfigsRequest {
    async fn handle(self, context: RequestContext) -> AlterConfigsResponse {
        let (resources, dry_run) = (self.resources, self.validate_only);
        let change = move |cluster: &Cluster| {
            let responses = resources.into_iter().map(|resource| {
                let (resource_type, resource_name) = (resource.resource_type, resource.resource_name.clone());
                let (error_code, error_message) = match replace(cluster, resource, dry_run) {
                    Ok(()) => (ErrorCode::None, None),
                    Err((code, reason)) => (code, Some(reason)),
                };
                ReplaceResourceResponse { error_code, error_message, resource_type, resource_name }
            });
            responses.collect()
        };
        AlterConfigsResponse {
            responses: context.cluster().change_topics(change).await,
            ..Default::default()
        }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> AlterConfigsResponse {
        let responses = self.resources.into_iter().map(|resource| ReplaceResourceResponse {
            error_code: code,
            error_message: None,
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
        });
        AlterConfigsResponse { responses: responses.collect(), ..Default::default() }
    }
}

/// Settings that the request does not name get their defaults.
fn replace(cluster: &Cluster, resource: ReplaceResource, dry_run: bool) -> Result<(), Refusal> {
    let name = resource.resource_name;
    if resource.resource_type != TOPIC {
        return Err(no_such_kind(resource.resource_type));
    }
    let mut config = TopicConfig::default();
    for setting in resource.configs {
        let Some(value) = setting.value else {
            let reason = format!("`{}` has no value: leave it out for its default", setting.name);
            return Err((ErrorCode::InvalidRequest, reason));
        };
        config.set(&setting.name, &value).map_err(|reason| (ErrorCode::InvalidConfig, reason))?;
    }
    cluster.configure_topic(&name, |_| Ok(config), dry_run)
}

impl Api for IncrementalAlterConfigsRequest {
    async fn handle(self, context: RequestContext) -> IncrementalAlterConfigsResponse {
        let (resources, dry_run) = (self.resources, self.validate_only);
        let change = move |cluster: &Cluster| {
            let responses = resources.into_iter().map(|resource| {
                let (resource_type, resource_name) = (resource.resource_type, resource.resource_name.clone());
                let (error_code, error_message) = match alter(cluster, resource, dry_run) {
                    Ok(()) => (ErrorCode::None, None),
                    Err((code, reason)) => (code, Some(reason)),
                };
                AlterConfigsResourceResponse { error_code, error_message, resource_type, resource_name }
            });
            responses.collect()
        };
        IncrementalAlterConfigsResponse {
            responses: context.cluster().change_topics(change).await,
            ..Default::default()
        }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> IncrementalAlterConfigsResponse {
        let responses = self.resources.into_iter().map(|resource| AlterConfigsResourceResponse {
            error_code: code,
            error_message: None,
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
        });
        IncrementalAlterConfigsResponse { responses: responses.collect(), ..Default::default() }
    }
}

fn alter(cluster: &Cluster, resource: AlterConfigsResource, dry_run: bool) -> Result<(), Refusal> {
    let name = resource.resource_name;
    if resource.resource_type != TOPIC {
        return Err(no_such_kind(resource.resource_type));
    }
    let defaults = &cluster.config.topic_defaults;
    let change = |config: &TopicConfig| changed(config, resource.configs, defaults);
    cluster.configure_topic(&name, change, dry_run)
}

/// The settings of a topic after these changes.
fn changed(
    config: &TopicConfig,
    changes: Vec<AlterableConfig>,
    defaults: &TopicConfig,
) -> Result<TopicConfig, Refusal> {
    let mut values = config.values().clone();
    for change in changes {
        match change.config_operation {
            SET => drop(values.insert(change.name, change.value.unwrap_or_default())),
            DELETE => drop(values.remove(&change.name)),
            APPEND | SUBTRACT if is_list(&change.name) => {
                let (known, _) = config.effective(&change.name, defaults);
                let before = values.get(&change.name).cloned().unwrap_or(known);
                let items = change.value.unwrap_or_default();
                let list = if change.config_operation == APPEND {
                    appended(&before, &items)
                } else {
                    subtracted(&before, &items)
                };
                values.insert(change.name, list);
            }
            _ => {
                let reason = format!("`{}` is not a list: only set and delete make sense", change.name);
                return Err((ErrorCode::InvalidConfig, reason));
            }
        }
    }
    let mut config = TopicConfig::default();
    for (name, value) in &values {
        config.set(name, value).map_err(|reason| (ErrorCode::InvalidConfig, reason))?;
    }
    Ok(config)
}

fn is_list(name: &str) -> bool {
    TOPIC_SETTINGS.iter().any(|setting| setting.name == name && setting.kind == LIST)
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn appended(list: &str, more: &str) -> String {
    let mut all: Vec<&str> = items(list).collect();
    for item in items(more) {
        if !all.contains(&item) {
            all.push(item);
        }
    }
    all.join(",")
}

fn subtracted(list: &str, less: &str) -> String {
    items(list).filter(|item| !items(less).any(|other| other == *item)).collect::<Vec<_>>().join(",")
}

fn unknown(name: &str) -> Refusal {
    (ErrorCode::UnknownTopicOrPartition, format!("topic `{name}` does not exist"))
}

fn no_such_kind(kind: i8) -> Refusal {
    (ErrorCode::InvalidRequest, format!("resources of kind {kind} have no settings here: use topics (2)"))
}
