//! DescribeConfigs and ListConfigResources: the settings of topics, brokers, groups and client metrics, and where their
//! values are from.

use std::collections::{BTreeMap, BTreeSet};

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResponse,
    DescribeConfigsResult, DescribeConfigsSynonym,
};
use ottla_protocol::messages::list_config_resources::{
    ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse,
};

use super::configs::{BROKER_LOGGER, TOPIC, check_broker, no_such_kind, unknown_topic};
use super::{Api, RequestContext};
use crate::cluster::{Cluster, Refusal};
use crate::config::live::{BROKER, CLIENT_METRICS, GROUP, Values, is_custom, is_throttle};
use crate::config::{
    Mode, Scope, Setting, TopicConfig, broker_effect, find_setting, setting_of_listener, settings,
};
use crate::request_memory::descriptions_max;
use crate::topics::check_name;

/// The origin of a value, with its number in DescribeConfigs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(i8)]
pub(super) enum Source {
    Topic = 1,
    DynamicBroker = 2,
    DynamicDefaultBroker = 3,
    StaticBroker = 4,
    Default = 5,
    ClientMetrics = 7,
    Group = 8,
}

/// The type of a setting that is not known.
const UNKNOWN_KIND: i8 = 0;
/// The type of a limit of replication.
const LONG_KIND: i8 = 5;

/// Every value that a setting has, the effective one first.
type Chain = Vec<(&'static str, Option<String>, Source)>;

impl Api for DescribeConfigsRequest {
    async fn handle(self, context: RequestContext) -> DescribeConfigsResponse {
        let (synonyms, documentation) = (self.include_synonyms, self.include_documentation);
        // The connection has charged them.
        let bytes_max = descriptions_max(context.cluster().config.memory_bytes_max);
        let mut bytes = 0;
        let mut is_full = false;
        let of_topics = BrokerProperties::of_topics(context.cluster());
        let results = self.resources.into_iter().map(|resource| {
            let (resource_type, resource_name) = (resource.resource_type, resource.resource_name.clone());
            let described = if bytes < bytes_max {
                describe_all(&context, &resource, documentation, &of_topics)
            } else {
                Err(too_many(bytes_max))
            };
            let (error_code, mut error_message, mut configs) = match described {
                Ok(configs) => (ErrorCode::None, None, configs),
                Err((code, reason)) => (code, Some(reason), Vec::new()),
            };
            if bytes >= bytes_max {
                // One explanation is enough: tens of thousands would take more memory than the descriptions.
                error_message = error_message.filter(|_| !is_full);
                is_full = true;
            }
            for config in &mut configs {
                if !synonyms {
                    config.synonyms = Vec::new();
                }
            }
            bytes += configs.iter().map(bytes_of).sum::<usize>();
            DescribeConfigsResult { error_code, error_message, resource_type, resource_name, configs }
        });
        DescribeConfigsResponse { results: results.collect(), ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DescribeConfigsResponse {
        let results = self.resources.into_iter().map(|resource| DescribeConfigsResult {
            error_code: code,
            error_message: Some(code.message().to_owned()),
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
            ..Default::default()
        });
        DescribeConfigsResponse { results: results.collect(), ..Default::default() }
    }
}

/// The refusal of a resource whose description does not fit into the response any more.
fn too_many(bytes_max: usize) -> Refusal {
    let reason = format!(
        "the descriptions before this one take {bytes_max} bytes, the limit for a response (a quarter of \
         memory.max.bytes): describe fewer resources at a time"
    );
    (ErrorCode::PolicyViolation, reason)
}

/// The memory of a description, with the overhead of its allocations.
fn bytes_of(config: &DescribeConfigsResourceResult) -> usize {
    const ALLOCATION_BYTES: usize = 16;
    let text = |text: &Option<String>| text.as_ref().map_or(0, |text| text.len() + ALLOCATION_BYTES);
    let synonym = |synonym: &DescribeConfigsSynonym| {
        size_of::<DescribeConfigsSynonym>() + synonym.name.len() + ALLOCATION_BYTES + text(&synonym.value)
    };
    let synonyms: usize = config.synonyms.iter().map(synonym).sum();
    size_of::<DescribeConfigsResourceResult>()
        + config.name.len()
        + ALLOCATION_BYTES
        + text(&config.value)
        + text(&config.documentation)
        + synonyms
}

/// The settings of a resource, also those of a broker's listeners and those that are none of its properties.
fn describe_all(
    context: &RequestContext,
    resource: &DescribeConfigsResource,
    documentation: bool,
    of_topics: &BrokerProperties<'_>,
) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
    let mut described = describe(context, resource, documentation, of_topics)?;
    if resource.resource_type == BROKER {
        described.extend(listener_settings(context.cluster(), resource, documentation));
        described.extend(custom_settings(context.cluster(), resource));
    }
    Ok(described)
}

fn describe(
    context: &RequestContext,
    resource: &DescribeConfigsResource,
    documentation: bool,
    of_topics: &BrokerProperties<'_>,
) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
    let name = &resource.resource_name;
    let cluster = context.cluster();
    let live = &cluster.live;
    // Like Kafka, no keys are all keys.
    let keys = resource.configuration_keys.as_deref().filter(|keys| !keys.is_empty());
    let wanted = |setting: &&Setting| keys.is_none_or(|keys| keys.iter().any(|key| key == setting.name));
    let of = |scope: Scope, chain: &dyn Fn(&'static Setting) -> Chain| {
        let described = settings(scope).iter().filter(wanted).map(|setting| {
            let text = || if scope == Scope::Broker { broker_effect(setting) } else { setting.text() };
            let text = documentation.then(text);
            let read_only = scope == Scope::Broker && setting.mode == Mode::ReadOnly;
            result(setting, chain(setting), text, read_only)
        });
        let is_asked_for = keys.is_some();
        let described = described.filter(|result| !result.synonyms.is_empty());
        Ok(described.filter(|result| is_asked_for || is_described(scope, result)).collect())
    };
    match resource.resource_type {
        TOPIC => {
            check_name(name)?;
            let topic = cluster.topic(name).ok_or_else(|| unknown_topic(name))?;
            of(Scope::Topic, &|setting| topic_chain(of_topics, &topic.config, setting))
        }
        // Only what is set for all brokers.
        BROKER if name.is_empty() => {
            let values = live.values(BROKER, "");
            of(Scope::Broker, &|setting| {
                let value = values.get(setting.name);
                value
                    .map(|value| (setting.name, Some(value.clone()), Source::DynamicDefaultBroker))
                    .into_iter()
                    .collect()
            })
        }
        BROKER => {
            check_broker(cluster, BROKER, name)?;
            let properties = BrokerProperties::of_node(cluster, name);
            of(Scope::Broker, &|setting| broker_chain(&properties, setting))
        }
        GROUP if !name.is_empty() => {
            let values = live.values(GROUP, name);
            let properties = BrokerProperties::of_first_node(cluster);
            of(Scope::Group, &|setting| group_chain(&properties, &values, setting))
        }
        CLIENT_METRICS if !name.is_empty() => {
            let values = live.values(CLIENT_METRICS, name);
            of(Scope::ClientMetrics, &|setting| {
                let set = values.get(setting.name);
                let set = set.map(|value| (setting.name, Some(value.clone()), Source::ClientMetrics));
                // As in Kafka, the default is no synonym of a value that is set.
                vec![set.unwrap_or_else(|| default_of(setting))]
            })
        }
        GROUP | CLIENT_METRICS => {
            Err((ErrorCode::InvalidRequest, "groups and client metrics are described by name".into()))
        }
        BROKER_LOGGER => {
            Err((ErrorCode::InvalidRequest, "the log levels of this broker cannot be described".into()))
        }
        other => Err(no_such_kind(other)),
    }
}

/// The properties of single listeners, with those of all listeners as synonyms.
fn listener_settings(
    cluster: &Cluster,
    resource: &DescribeConfigsResource,
    documentation: bool,
) -> Vec<DescribeConfigsResourceResult> {
    let node = &resource.resource_name;
    let keys = resource.configuration_keys.as_deref().filter(|keys| !keys.is_empty());
    let properties = BrokerProperties::of_node(cluster, node);
    let is_of_all = node.is_empty();
    let none = Values::new();
    let own = if is_of_all { &none } else { &properties.of_broker };
    let given: BTreeMap<&str, &str> = cluster.config.properties_of_listeners().collect();
    let stored = own.keys().chain(properties.of_all.keys()).map(String::as_str);
    let names: BTreeSet<&str> = stored.chain(given.keys().copied().filter(|_| !is_of_all)).collect();
    let wanted = names.into_iter().filter(|name| keys.is_none_or(|keys| keys.iter().any(|key| key == name)));
    let described = wanted.filter_map(|name| {
        let setting = setting_of_listener(name)?;
        let sources = [
            (own.get(name).map(String::as_str), Source::DynamicBroker),
            (properties.of_all.get(name).map(String::as_str), Source::DynamicDefaultBroker),
            (given.get(name).copied().filter(|_| !is_of_all), Source::StaticBroker),
        ];
        let synonym = |(value, source): (Option<&str>, Source)| {
            let value = value?.to_owned();
            let value = (!setting.is_sensitive()).then_some(value);
            Some(DescribeConfigsSynonym { name: name.to_owned(), value, source: source as i8 })
        };
        let mut synonyms: Vec<_> = sources.into_iter().filter_map(synonym).collect();
        let first = synonyms.first()?.clone();
        let chain = if is_of_all { Chain::new() } else { broker_chain(&properties, setting) };
        let text = documentation.then(|| broker_effect(setting));
        let of_listeners = result(setting, chain, text, true);
        synonyms.extend(of_listeners.synonyms);
        Some(DescribeConfigsResourceResult {
            name: name.to_owned(),
            value: first.value,
            config_source: first.source,
            synonyms,
            ..of_listeners
        })
    });
    described.collect()
}

/// The settings of a broker that are none of its properties. As in Kafka, values of unknown ones are not shown: they could be secrets.
fn custom_settings(
    cluster: &Cluster,
    resource: &DescribeConfigsResource,
) -> Vec<DescribeConfigsResourceResult> {
    let name = &resource.resource_name;
    let keys = resource.configuration_keys.as_deref().filter(|keys| !keys.is_empty());
    let of_all = cluster.live.values(BROKER, "");
    let own = if name.is_empty() { Values::new() } else { cluster.live.values(BROKER, name) };
    // The source that counts is the first.
    let mut found: BTreeMap<&str, Vec<(&str, i8)>> = BTreeMap::new();
    for (values, source) in [(&own, Source::DynamicBroker), (&of_all, Source::DynamicDefaultBroker)] {
        for (key, value) in values.iter().filter(|(key, _)| is_custom(key)) {
            if keys.is_none_or(|keys| keys.contains(key)) {
                found.entry(key).or_default().push((value, source as i8));
            }
        }
    }
    let described = found.into_iter().map(|(key, sources)| {
        let shown = |value: &str| is_throttle(key).then(|| value.to_owned());
        let first = sources.first().copied();
        DescribeConfigsResourceResult {
            name: key.into(),
            value: first.and_then(|(value, _)| shown(value)),
            read_only: !is_throttle(key),
            config_source: first.map_or(0, |(_, source)| source),
            is_sensitive: !is_throttle(key),
            synonyms: sources
                .into_iter()
                .map(|(value, source)| DescribeConfigsSynonym {
                    name: key.into(),
                    value: shown(value),
                    source,
                })
                .collect(),
            config_type: if is_throttle(key) { LONG_KIND } else { UNKNOWN_KIND },
            documentation: None,
        }
    });
    described.collect()
}

/// Returns whether a description of all settings has this one.
fn is_described(scope: Scope, result: &DescribeConfigsResourceResult) -> bool {
    let is_set = result.config_source != Source::Default as i8;
    find_setting(scope, &result.name).is_none_or(|setting| setting.is_described(is_set))
}

fn result(
    setting: &Setting,
    chain: Chain,
    text: Option<&str>,
    read_only: bool,
) -> DescribeConfigsResourceResult {
    let shown = |value: Option<String>| value.filter(|_| !setting.is_sensitive());
    let (value, source) = match chain.first() {
        Some((_, value, source)) => (value.clone(), *source),
        None => (None, Source::Default),
    };
    let synonyms = chain.into_iter().map(|(name, value, source)| DescribeConfigsSynonym {
        name: name.into(),
        value: shown(value),
        source: source as i8,
    });
    DescribeConfigsResourceResult {
        name: setting.name.into(),
        value: shown(value),
        read_only,
        config_source: source as i8,
        is_sensitive: setting.is_sensitive(),
        synonyms: synonyms.collect(),
        config_type: setting.kind as i8,
        documentation: text.map(str::to_owned),
    }
}

fn default_of(setting: &'static Setting) -> (&'static str, Option<String>, Source) {
    (setting.name, setting.default.map(str::to_owned), Source::Default)
}

/// The values of a group's setting: the group's own, and those of the broker's property for all groups.
fn group_chain(properties: &BrokerProperties<'_>, values: &Values, setting: &'static Setting) -> Chain {
    let own = values.get(setting.name).map(|value| (setting.name, Some(value.clone()), Source::Group));
    let for_all = find_setting(Scope::Broker, &format!("group.{}", setting.name));
    let of_broker = for_all.map(|for_all| broker_chain(properties, for_all));
    own.into_iter().chain(of_broker.unwrap_or_else(|| vec![default_of(setting)])).collect()
}

/// The properties of a broker, read once for all settings of a request.
pub(super) struct BrokerProperties<'a> {
    /// The id of the node.
    node: String,
    rack: Option<String>,
    of_broker: Values,
    of_all: Values,
    given: &'a Values,
    topic_defaults: TopicConfig,
}

impl<'a> BrokerProperties<'a> {
    /// Those of a node.
    fn of_node(cluster: &'a Cluster, node: &str) -> Self {
        Self {
            node: node.to_owned(),
            rack: node.parse().ok().and_then(|id| cluster.rack(id)),
            of_broker: cluster.live.values(BROKER, node),
            of_all: cluster.live.values(BROKER, ""),
            given: &cluster.config.given,
            topic_defaults: cluster.topic_defaults(),
        }
    }

    /// Those that hold for topics: all nodes share the logs, so the first node's settings count.
    pub(super) fn of_topics(cluster: &'a Cluster) -> Self {
        Self::of_first_node(cluster)
    }

    fn of_first_node(cluster: &'a Cluster) -> Self {
        Self::of_node(cluster, &cluster.nodes.first_id().to_string())
    }

    /// The values that a property has, without its default.
    fn chain(&self, name: &'static str) -> Chain {
        // Each node has its own id, although the process has one configuration.
        if matches!(name, "node.id" | "broker.id") {
            return vec![(name, Some(self.node.clone()), Source::StaticBroker)];
        }
        // The same for its rack.
        if name == "broker.rack" {
            let rack = self.rack.iter().map(|rack| (name, Some(rack.clone()), Source::StaticBroker));
            return rack.collect();
        }
        let sources = [
            (&self.of_broker, Source::DynamicBroker),
            (&self.of_all, Source::DynamicDefaultBroker),
            (self.given, Source::StaticBroker),
        ];
        let value =
            |(values, source): (&Values, Source)| Some((name, Some(values.get(name)?.clone()), source));
        sources.into_iter().filter_map(value).collect()
    }
}

fn broker_chain(properties: &BrokerProperties<'_>, setting: &'static Setting) -> Chain {
    let mut chain = properties.chain(setting.name);
    chain.push(default_of(setting));
    chain
}

/// The values of a topic's setting: the topic's own, the broker's, the default.
pub(super) fn topic_chain(
    properties: &BrokerProperties<'_>,
    config: &TopicConfig,
    setting: &'static Setting,
) -> Chain {
    let own = config.values().get(setting.name);
    let mut chain: Chain =
        own.map(|value| (setting.name, Some(value.clone()), Source::Topic)).into_iter().collect();
    let own_values = chain.len();
    for synonym in &setting.synonyms {
        chain.extend(properties.chain(synonym));
    }
    // A property in hours or minutes is the setting's default in milliseconds.
    let defaults = &properties.topic_defaults;
    if own_values == 0
        && let (Some(effective), Some(first)) = (defaults.values().get(setting.name), chain.first_mut())
    {
        first.1 = Some(effective.clone());
    }
    // Settings of an embedded broker have no property's name.
    if chain.len() == own_values
        && let Some(value) = defaults.values().get(setting.name)
    {
        chain.push((setting.name, Some(value.clone()), Source::StaticBroker));
    }
    let (name, default, source) = default_of(setting);
    chain.push((setting.synonyms.first().copied().unwrap_or(name), default, source));
    chain
}

impl Api for ListConfigResourcesRequest {
    async fn handle(self, context: RequestContext) -> ListConfigResourcesResponse {
        const KINDS: [i8; 5] = [TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP];
        if self.resource_types.iter().any(|kind| !KINDS.contains(kind)) {
            return self.refuse(&context, ErrorCode::UnsupportedVersion);
        }
        let cluster = context.cluster();
        let kinds = match (context.version, self.resource_types.is_empty()) {
            // Version 0 lists the client metrics (KIP-1000).
            (0, _) => vec![CLIENT_METRICS],
            (_, true) => KINDS.to_vec(),
            (_, false) => KINDS.into_iter().filter(|kind| self.resource_types.contains(kind)).collect(),
        };
        let resources = kinds.into_iter().flat_map(|resource_type| {
            let names: Vec<String> = match resource_type {
                TOPIC => cluster.topics().iter().map(|topic| topic.name.to_string()).collect(),
                BROKER | BROKER_LOGGER => cluster.nodes_up().map(|node| node.id.to_string()).collect(),
                _ => cluster.live.names(resource_type),
            };
            names.into_iter().map(move |resource_name| ConfigResource { resource_name, resource_type })
        });
        ListConfigResourcesResponse { config_resources: resources.collect(), ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> ListConfigResourcesResponse {
        ListConfigResourcesResponse { error_code: code, ..Default::default() }
    }
}
