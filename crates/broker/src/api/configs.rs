//! AlterConfigs and IncrementalAlterConfigs, for topics, brokers, groups and client metrics.

use std::collections::{BTreeMap, BTreeSet};

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsResource as ReplaceResource,
    AlterConfigsResourceResponse as ReplaceResourceResponse, AlterConfigsResponse,
};
use ottla_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterConfigsResourceResponse, AlterableConfig, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};

use super::repeats::{repeated, with_new_ones, without};
use super::{Api, RequestContext};
use crate::cluster::{Cluster, Refusal};
use crate::config::live::{BROKER, CLIENT_METRICS, GROUP, Values};
use crate::config::{Kind, Scope, TopicConfig, find_setting};

/// Kinds of resources; `config::live` has the others.
pub(super) const TOPIC: i8 = 2;
pub(super) const BROKER_LOGGER: i8 = 8;

/// The operations of IncrementalAlterConfigs.
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

impl Api for AlterConfigsRequest {
    async fn handle(self, context: RequestContext) -> AlterConfigsResponse {
        let (resources, dry_run) = (self.resources, self.validate_only);
        let repeated = repeated(resources.iter().map(|one| (one.resource_type, one.resource_name.clone())));
        let change = move |cluster: &Cluster| {
            let responses = resources.into_iter().map(|resource| {
                let (resource_type, resource_name) = (resource.resource_type, resource.resource_name.clone());
                let changed = check_single(&repeated, (resource_type, &resource_name))
                    .and_then(|()| replace(cluster, resource, dry_run));
                let (error_code, error_message) = match changed {
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
            error_message: Some(code.message().to_owned()),
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
        });
        AlterConfigsResponse { responses: responses.collect(), ..Default::default() }
    }
}

/// Refuses a resource that the request has more than once: none of its changes applies.
fn check_single(repeated: &BTreeSet<(i8, String)>, (kind, name): (i8, &str)) -> Result<(), Refusal> {
    if repeated.is_empty() || !repeated.contains(&(kind, name.to_owned())) {
        return Ok(());
    }
    Err((ErrorCode::InvalidRequest, format!("`{name}` is in this request more than once")))
}

/// Refuses a resource of AlterConfigs that names a setting twice or has one without a value. As in Kafka, this is an error of the request,
/// whatever the client may do: it is found without a look at the resource.
pub(super) fn check_replacement(resource: &ReplaceResource) -> Result<(), Refusal> {
    let settings = resource.configs.iter().map(|setting| (&*setting.name, setting.value.is_some()));
    check_settings(settings, "leave it out")
}

/// The same for IncrementalAlterConfigs, where a deletion needs no value.
pub(super) fn check_changes(resource: &AlterConfigsResource) -> Result<(), Refusal> {
    let has_value = |change: &AlterableConfig| change.value.is_some() || change.config_operation == DELETE;
    check_settings(resource.configs.iter().map(|change| (&*change.name, has_value(change))), "delete it")
}

/// Checks settings, of which each has the value that it needs or not.
fn check_settings<'a>(
    settings: impl Iterator<Item = (&'a str, bool)>,
    for_default: &str,
) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    for (name, has_value) in settings {
        if !seen.insert(name) {
            let reason = format!("`{name}` is twice in the changes of one resource");
            return Err((ErrorCode::InvalidRequest, reason));
        }
        if !has_value {
            return Err(without_value(name, for_default));
        }
    }
    Ok(())
}

fn without_value(name: &str, for_default: &str) -> Refusal {
    (ErrorCode::InvalidRequest, format!("`{name}` has no value: {for_default} for its default"))
}

/// Settings that the request does not name get their defaults.
fn replace(cluster: &Cluster, resource: ReplaceResource, dry_run: bool) -> Result<(), Refusal> {
    check_replacement(&resource)?;
    let (kind, name) = (resource.resource_type, resource.resource_name);
    let settings = resource.configs.into_iter();
    let values: Values = settings.filter_map(|setting| Some((setting.name, setting.value?))).collect();
    match kind {
        TOPIC => cluster.configure_topic(&name, |before| topic_config(before, &values), dry_run),
        BROKER | GROUP | CLIENT_METRICS => {
            check_broker(cluster, kind, &name)?;
            cluster.configure_resource(kind, &name, |_| Ok(values), dry_run)
        }
        other => Err(no_such_kind(other)),
    }
}

impl Api for IncrementalAlterConfigsRequest {
    async fn handle(self, context: RequestContext) -> IncrementalAlterConfigsResponse {
        let (resources, dry_run) = (self.resources, self.validate_only);
        let repeated = repeated(resources.iter().map(|one| (one.resource_type, one.resource_name.clone())));
        let change = move |cluster: &Cluster| {
            let responses = resources.into_iter().map(|resource| {
                let (resource_type, resource_name) = (resource.resource_type, resource.resource_name.clone());
                let changed = check_single(&repeated, (resource_type, &resource_name))
                    .and_then(|()| alter(cluster, resource, dry_run));
                let (error_code, error_message) = match changed {
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
            error_message: Some(code.message().to_owned()),
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
        });
        IncrementalAlterConfigsResponse { responses: responses.collect(), ..Default::default() }
    }
}

fn alter(cluster: &Cluster, resource: AlterConfigsResource, dry_run: bool) -> Result<(), Refusal> {
    check_changes(&resource)?;
    let (kind, name, changes) = (resource.resource_type, resource.resource_name, resource.configs);
    match kind {
        TOPIC => {
            let defaults = cluster.topic_defaults();
            let change = |config: &TopicConfig| {
                let values = changed(Scope::Topic, config.values(), changes, defaults.values())?;
                topic_config(config, &values)
            };
            cluster.configure_topic(&name, change, dry_run)
        }
        BROKER | GROUP | CLIENT_METRICS => {
            check_broker(cluster, kind, &name)?;
            let scope = match kind {
                BROKER => Scope::Broker,
                GROUP => Scope::Group,
                _ => Scope::ClientMetrics,
            };
            // Kafka appends to what the broker was started with.
            let empty = BTreeMap::new();
            let defaults = if kind == BROKER { &cluster.config.given } else { &empty };
            let change = |values: &Values| changed(scope, values, changes, defaults);
            cluster.configure_resource(kind, &name, change, dry_run)
        }
        other => Err(no_such_kind(other)),
    }
}

/// Refuses the name of a broker that is no node.
pub(super) fn check_broker(cluster: &Cluster, kind: i8, name: &str) -> Result<(), Refusal> {
    let exists = || name.parse().is_ok_and(|id| cluster.node(id).is_some());
    if kind != BROKER || name.is_empty() || exists() {
        return Ok(());
    }
    let reason = format!("broker `{name}` does not exist: the brokers are {:?}", cluster.nodes());
    Err((ErrorCode::InvalidRequest, reason))
}

/// The settings of a topic. Values that it has are not checked again: earlier versions allowed longer ones.
fn topic_config(before: &TopicConfig, values: &Values) -> Result<TopicConfig, Refusal> {
    let (kept, set): (Vec<_>, Vec<_>) =
        values.iter().partition(|(name, value)| before.values().get(*name) == Some(*value));
    let kept = kept.into_iter().map(|(name, value)| (name.clone(), value.clone()));
    let mut config = TopicConfig::from_values(kept.collect());
    for (name, value) in set {
        config.set(name, value).map_err(|reason| (ErrorCode::InvalidConfig, reason))?;
    }
    Ok(config)
}

/// The settings of a resource after these changes, of which each names another one.
fn changed(
    scope: Scope,
    values: &Values,
    changes: Vec<AlterableConfig>,
    defaults: &Values,
) -> Result<Values, Refusal> {
    let mut values = values.clone();
    for change in changes {
        let setting = find_setting(scope, &change.name);
        match (change.config_operation, change.value) {
            (DELETE, _) => drop(values.remove(&change.name)),
            (SET, Some(value)) => drop(values.insert(change.name, value)),
            (APPEND | SUBTRACT, Some(items)) if setting.is_some_and(|setting| setting.kind == Kind::List) => {
                let default = setting.and_then(|setting| setting.default).unwrap_or_default();
                let known = values.get(&change.name).or_else(|| defaults.get(&change.name));
                let before = known.map_or(default, String::as_str);
                let list = if change.config_operation == APPEND {
                    appended(before, &items)
                } else {
                    subtracted(before, &items)
                };
                values.insert(change.name, list);
            }
            (_, None) => return Err(without_value(&change.name, "delete it")),
            (APPEND | SUBTRACT, Some(_)) => {
                let reason = format!("`{}` is not a list: use set and delete", change.name);
                return Err((ErrorCode::InvalidConfig, reason));
            }
            (other, Some(_)) => {
                let reason = format!("`{}`: {other} is not an operation: use 0 to 3", change.name);
                return Err((ErrorCode::InvalidRequest, reason));
            }
        }
    }
    Ok(values)
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn appended(list: &str, more: &str) -> String {
    with_new_ones(items(list).collect(), items(more)).join(",")
}

fn subtracted(list: &str, less: &str) -> String {
    without(items(list).collect(), items(less)).join(",")
}

pub(super) fn unknown_topic(name: &str) -> Refusal {
    (ErrorCode::UnknownTopicOrPartition, format!("topic `{name}` does not exist"))
}

pub(super) fn no_such_kind(kind: i8) -> Refusal {
    let reason = format!(
        "resources of kind {kind} have no settings here: use topics (2), brokers (4), client metrics (16), groups (32)"
    );
    (ErrorCode::InvalidRequest, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All changes of a topic failed if an earlier version had stored a number with very many zeros.
    #[test]
    fn a_stored_value_that_is_too_long_now_stays_until_it_changes() {
        let long = format!("{}2000", "0".repeat(100));
        let mut values = Values::from([("retention.ms".to_owned(), long)]);
        let before = TopicConfig::from_values(values.clone());
        values.insert("segment.ms".to_owned(), "5000".to_owned());
        let config = topic_config(&before, &values).expect("allowed");
        assert_eq!(config.values(), &values);
        assert!(topic_config(&TopicConfig::default(), &values).is_err(), "a new value is checked");
    }
}
