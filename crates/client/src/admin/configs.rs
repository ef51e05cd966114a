//! Configurations of topics, brokers and groups: described, replaced and altered.

use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::future::join_all;
use ottla_protocol::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsResource as ReplaceResource, AlterableConfig as ReplacedConfig,
};
use ottla_protocol::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult,
};
use ottla_protocol::messages::describe_configs_0::{DescribeConfigsRequest0, DescribeConfigsResourceResult0};
use ottla_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};

use super::operation::{Operation, Repeat, Target, wrong_controller};
use super::{
    Admin, AlterOptions, ConfigResourceType, ConfigSource, KeyedResults, Timeouts, in_order, plain, refused,
};
use crate::cluster::Cluster;
use crate::error::Error;

const DESCRIBE_CONFIGS_VERSION_MAX: i16 = 4;
const ALTER_CONFIGS_VERSION_MAX: i16 = 2;
const INCREMENTAL_ALTER_CONFIGS_VERSION_MAX: i16 = 1;
/// The first version of DescribeConfigs with documentation.
const DOCUMENTATION_SINCE: i16 = 3;

/// A resource that has a configuration.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ConfigResource {
    /// The kind of resource.
    pub kind: ConfigResourceType,
    /// Its name, or node id.
    pub name: String,
}

impl ConfigResource {
    /// The resource of this kind and name.
    pub fn new(kind: ConfigResourceType, name: impl Into<String>) -> Self {
        Self { kind, name: name.into() }
    }

    /// A topic.
    pub fn topic(name: impl Into<String>) -> Self {
        Self::new(ConfigResourceType::Topic, name)
    }

    /// A broker.
    pub fn broker(id: i32) -> Self {
        Self::new(ConfigResourceType::Broker, id.to_string())
    }

    /// A group.
    pub fn group(id: impl Into<String>) -> Self {
        Self::new(ConfigResourceType::Group, id)
    }

    /// The broker that must serve requests for this resource, if only one can.
    fn broker_id(&self) -> Option<i32> {
        match self.kind {
            ConfigResourceType::Broker | ConfigResourceType::BrokerLogger => self.name.parse().ok(),
            ConfigResourceType::Topic
            | ConfigResourceType::ClientMetrics
            | ConfigResourceType::Group
            | ConfigResourceType::Unknown(_) => None,
        }
    }
}

/// `TOPIC orders`.
impl std::fmt::Display for ConfigResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// A configuration entry.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ConfigEntry {
    /// Kafka's name.
    pub name: String,
    /// Its value; `None` is null, or a secret.
    pub value: Option<String>,
    /// `true` if the value is a default that neither the topic nor the broker overrides.
    pub default: bool,
    /// `true` if the value cannot be changed.
    pub read_only: bool,
    /// `true` if brokers do not disclose the value.
    pub sensitive: bool,
    /// The source of the value; unknown on brokers before 1.1, unless the value is the default.
    pub source: ConfigSource,
    /// The values in order of precedence, the effective one first, if requested.
    pub synonyms: Vec<ConfigSynonym>,
    /// The documentation, if requested and reported (from 2.6 on).
    pub documentation: Option<String>,
}

/// One of the values that a configuration falls back to.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ConfigSynonym {
    /// The name of the fallback.
    pub name: String,
    /// Its value; `None` is null, or a secret.
    pub value: Option<String>,
    /// The source of the value.
    pub source: ConfigSource,
}

/// Options of [`Admin::describe_configs`].
#[derive(Clone, Copy, Debug, Default)]
pub struct DescribeConfigs {
    /// The time limits.
    pub timeouts: Timeouts,
    /// `true` to request the fallbacks of each value.
    pub synonyms: bool,
    /// `true` to request the documentation of each configuration.
    pub documentation: bool,
}

/// A change of one configuration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ConfigChange {
    /// Sets the value.
    Set(String),
    /// Restores the default.
    Delete,
    /// Appends to the list.
    Append(String),
    /// Removes from the list.
    Subtract(String),
}

impl ConfigChange {
    fn alterable(&self, name: &str) -> AlterableConfig {
        let (config_operation, value) = match self {
            Self::Set(value) => (0, Some(value.clone())),
            Self::Delete => (1, None),
            Self::Append(value) => (2, Some(value.clone())),
            Self::Subtract(value) => (3, Some(value.clone())),
        };
        AlterableConfig { name: name.to_owned(), config_operation, value }
    }
}

impl Admin {
    /// Returns all configurations of a topic, by name.
    pub async fn describe_topic_configs(&self, topic: &str) -> Result<Vec<ConfigEntry>, Error> {
        let resources = [ConfigResource::topic(topic)];
        let work = |cluster: Rc<Cluster>| async move {
            let operation = Operation::hasty(cluster, "describe_topic_configs");
            let described = describe(&operation, &resources, DescribeConfigs::default()).await?;
            described.into_iter().next().map_or_else(|| Ok(Vec::new()), |(_, entries)| entries).map_err(plain)
        };
        self.ask("describe_topic_configs", work).await
    }

    /// Returns all configurations of these resources, by name, with a result per resource in the order of the
    /// request.
    ///
    /// A broker's configurations are requested from that broker.
    ///
    /// # Errors
    /// The whole call fails if no broker responds in time.
    pub async fn describe_configs(
        &self,
        resources: &[ConfigResource],
        what: DescribeConfigs,
    ) -> Result<KeyedResults<ConfigResource, Vec<ConfigEntry>>, Error> {
        let resources = resources.to_vec();
        let work = move |cluster: Rc<Cluster>| async move {
            describe(&Operation::new(cluster, "describe_configs", what.timeouts), &resources, what).await
        };
        self.ask("describe_configs", work).await
    }

    /// Replaces all configurations of resources: a configuration that is not named gets its default. Prefer
    /// [`incremental_alter_configs`](Self::incremental_alter_configs) if the brokers support it (from 2.3 on).
    ///
    /// # Errors
    /// The whole call fails if the broker does not respond in time, or does not support the request.
    pub async fn alter_configs(
        &self,
        resources: &[(ConfigResource, Vec<(String, String)>)],
        change: AlterOptions,
    ) -> Result<KeyedResults<ConfigResource, ()>, Error> {
        let resources = resources.to_vec();
        let work = move |cluster: Rc<Cluster>| async move {
            let operation = Operation::new(cluster, "alter_configs", change.timeouts);
            replace(&operation, &resources, change.validate_only).await
        };
        self.ask("alter_configs", work).await
    }

    /// Changes single configurations and keeps all others. Returns a result per resource, in the order of the
    /// request.
    ///
    /// # Errors
    /// The whole call fails if the broker does not respond in time, or does not support the request.
    pub async fn incremental_alter_configs(
        &self,
        resources: &[(ConfigResource, Vec<(String, ConfigChange)>)],
        change: AlterOptions,
    ) -> Result<KeyedResults<ConfigResource, ()>, Error> {
        let resources = resources.to_vec();
        let work = move |cluster: Rc<Cluster>| async move {
            let operation = Operation::new(cluster, "incremental_alter_configs", change.timeouts);
            alter(&operation, &resources, change.validate_only).await
        };
        self.ask("incremental_alter_configs", work).await
    }
}

/// Groups resources by the broker that serves them: `None` for those that any broker serves. A call without resources needs
/// a broker, too.
fn by_broker<T>(items: &[T], resource: impl Fn(&T) -> &ConfigResource) -> BTreeMap<Option<i32>, Vec<&T>> {
    let mut by_broker: BTreeMap<Option<i32>, Vec<&T>> = BTreeMap::new();
    for item in items {
        by_broker.entry(resource(item).broker_id()).or_default().push(item);
    }
    if items.is_empty() {
        by_broker.insert(None, Vec::new());
    }
    by_broker
}

type Answers<V> = BTreeMap<ConfigResource, Result<V, Error>>;

/// The brokers of a call that have not answered.
struct Failures {
    brokers: usize,
    failed: usize,
}

impl Failures {
    fn of<T>(by_broker: &BTreeMap<Option<i32>, Vec<&T>>) -> Self {
        Self { brokers: by_broker.len(), failed: 0 }
    }

    /// Reports a broker's failure for each of its resources. The whole call fails with the last broker's error if no
    /// broker answers.
    fn add<V>(
        &mut self,
        answers: &mut Answers<V>,
        of: impl Iterator<Item = ConfigResource>,
        error: Error,
    ) -> Result<(), Error> {
        self.failed += 1;
        if self.failed == self.brokers {
            return Err(error);
        }
        answers.extend(of.map(|resource| (resource, Err(error.clone()))));
        Ok(())
    }
}

async fn describe(
    operation: &Operation,
    resources: &[ConfigResource],
    what: DescribeConfigs,
) -> Result<KeyedResults<ConfigResource, Vec<ConfigEntry>>, Error> {
    let by_broker = by_broker(resources, |resource| resource);
    let mut failures = Failures::of(&by_broker);
    let mut answers = Answers::new();
    // At the same time: one that is down must not use up the time of the others.
    let asking = by_broker.into_iter().map(|(broker, resources)| async move {
        let target = broker.map_or(Target::Any, Target::Node);
        let described = describe_at(operation, target, &resources, what).await;
        (resources, described)
    });
    for (resources, described) in join_all(asking).await {
        match described {
            Ok(described) => answers.extend(described),
            Err(error) => failures.add(&mut answers, resources.into_iter().cloned(), error)?,
        }
    }
    Ok(in_order(resources.iter().cloned(), answers, "settings of"))
}

async fn describe_at(
    operation: &Operation,
    target: Target<'_>,
    resources: &[&ConfigResource],
    what: DescribeConfigs,
) -> Result<Answers<Vec<ConfigEntry>>, Error> {
    let wanted = |resource: &&ConfigResource| DescribeConfigsResource {
        resource_type: resource.kind.code(),
        resource_name: resource.name.clone(),
        configuration_keys: None,
    };
    let wanted: Vec<_> = resources.iter().map(wanted).collect();
    let make = |version: i16| DescribeConfigsRequest {
        resources: wanted.clone(),
        include_synonyms: what.synonyms,
        include_documentation: what.documentation && version >= DOCUMENTATION_SINCE,
    };
    let versions = 0..=DESCRIBE_CONFIGS_VERSION_MAX;
    let results: Vec<_> = match operation.call(target, versions, Repeat::Yes, make, |_| None).await {
        Ok(response) => {
            let results = response.results.into_iter().map(|result| {
                let entries: Vec<_> = result.configs.into_iter().map(config_entry).collect();
                let (code, message) = (result.error_code, result.error_message);
                (result.resource_type, result.resource_name, code, message, entries)
            });
            results.collect()
        }
        // Brokers before 1.1 support only version 0, in which a value either is the default or is not.
        Err(Error::Unsupported { .. }) => {
            let make = |_version: i16| DescribeConfigsRequest0 { resources: wanted.clone() };
            let response = operation.call(target, 0..=0, Repeat::Yes, make, |_| None).await?;
            let results = response.results.into_iter().map(|result| {
                let entries: Vec<_> = result.configs.into_iter().map(config_entry_0).collect();
                let (code, message) = (result.error_code, result.error_message);
                (result.resource_type, result.resource_name, code, message, entries)
            });
            results.collect()
        }
        Err(error) => return Err(error),
    };
    let answer =
        |(kind, name, code, message, mut entries): (i8, String, _, Option<String>, Vec<ConfigEntry>)| {
            let resource = ConfigResource::new(ConfigResourceType::from_code(kind), name);
            let refused = refused(&format!("settings of {resource}"), code, message.as_deref());
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            (resource, refused.map(|()| entries))
        };
    Ok(results.into_iter().map(answer).collect())
}

fn config_entry_0(entry: DescribeConfigsResourceResult0) -> ConfigEntry {
    ConfigEntry {
        name: entry.name,
        value: entry.value,
        default: entry.is_default,
        read_only: entry.read_only,
        sensitive: entry.is_sensitive,
        source: if entry.is_default { ConfigSource::Default } else { ConfigSource::Unknown(0) },
        synonyms: Vec::new(),
        documentation: None,
    }
}

fn config_entry(entry: DescribeConfigsResourceResult) -> ConfigEntry {
    let source = ConfigSource::from_code(entry.config_source);
    let synonyms = entry.synonyms.into_iter().map(|synonym| ConfigSynonym {
        name: synonym.name,
        value: synonym.value,
        source: ConfigSource::from_code(synonym.source),
    });
    ConfigEntry {
        name: entry.name,
        value: entry.value,
        default: source == ConfigSource::Default,
        read_only: entry.read_only,
        sensitive: entry.is_sensitive,
        source,
        synonyms: synonyms.collect(),
        documentation: entry.documentation,
    }
}

async fn replace(
    operation: &Operation,
    resources: &[(ConfigResource, Vec<(String, String)>)],
    validate_only: bool,
) -> Result<KeyedResults<ConfigResource, ()>, Error> {
    let by_broker = by_broker(resources, |(resource, _)| resource);
    let mut failures = Failures::of(&by_broker);
    let mut answers = Answers::new();
    let asking = by_broker.into_iter().map(|(broker, resources)| async move {
        let target = broker.map_or(Target::Controller, Target::Node);
        let make = |_version: i16| AlterConfigsRequest {
            resources: resources
                .iter()
                .map(|(resource, values)| ReplaceResource {
                    resource_type: resource.kind.code(),
                    resource_name: resource.name.clone(),
                    configs: values
                        .iter()
                        .map(|(name, value)| ReplacedConfig {
                            name: name.clone(),
                            value: Some(value.clone()),
                        })
                        .collect(),
                })
                .collect(),
            validate_only,
        };
        let versions = 0..=ALTER_CONFIGS_VERSION_MAX;
        let answered = operation.call(target, versions, Repeat::Yes, make, |response| {
            wrong_controller(response.responses.iter().map(|answer| answer.error_code))
        });
        let answered = answered.await;
        (resources, answered)
    });
    for (resources, answered) in join_all(asking).await {
        match answered {
            Ok(response) => answers.extend(response.responses.into_iter().map(|answer| {
                let kind = ConfigResourceType::from_code(answer.resource_type);
                altered(kind, answer.resource_name, answer.error_code, answer.error_message.as_deref())
            })),
            Err(error) => {
                let of = resources.into_iter().map(|(resource, _)| resource.clone());
                failures.add(&mut answers, of, error)?;
            }
        }
    }
    Ok(in_order(resources.iter().map(|(resource, _)| resource.clone()), answers, "changing"))
}

async fn alter(
    operation: &Operation,
    resources: &[(ConfigResource, Vec<(String, ConfigChange)>)],
    validate_only: bool,
) -> Result<KeyedResults<ConfigResource, ()>, Error> {
    let by_broker = by_broker(resources, |(resource, _)| resource);
    let mut failures = Failures::of(&by_broker);
    let mut answers = Answers::new();
    let asking = by_broker.into_iter().map(|(broker, resources)| async move {
        let target = broker.map_or(Target::Controller, Target::Node);
        let make = |_version: i16| IncrementalAlterConfigsRequest {
            resources: resources
                .iter()
                .map(|(resource, changes)| AlterConfigsResource {
                    resource_type: resource.kind.code(),
                    resource_name: resource.name.clone(),
                    configs: changes.iter().map(|(name, change)| change.alterable(name)).collect(),
                })
                .collect(),
            validate_only,
        };
        let versions = 0..=INCREMENTAL_ALTER_CONFIGS_VERSION_MAX;
        // Appending twice has the effect of appending once: lists have no duplicates.
        let answered = operation.call(target, versions, Repeat::Yes, make, |response| {
            wrong_controller(response.responses.iter().map(|answer| answer.error_code))
        });
        let answered = answered.await;
        (resources, answered)
    });
    for (resources, answered) in join_all(asking).await {
        match answered {
            Ok(response) => answers.extend(response.responses.into_iter().map(|answer| {
                let kind = ConfigResourceType::from_code(answer.resource_type);
                altered(kind, answer.resource_name, answer.error_code, answer.error_message.as_deref())
            })),
            Err(error) => {
                let of = resources.into_iter().map(|(resource, _)| resource.clone());
                failures.add(&mut answers, of, error)?;
            }
        }
    }
    Ok(in_order(resources.iter().map(|(resource, _)| resource.clone()), answers, "changing"))
}

fn altered(
    kind: ConfigResourceType,
    name: String,
    code: ottla_protocol::ErrorCode,
    message: Option<&str>,
) -> (ConfigResource, Result<(), Error>) {
    let resource = ConfigResource::new(kind, name);
    let altered = refused(&format!("changing {resource}"), code, message);
    (resource, altered)
}
