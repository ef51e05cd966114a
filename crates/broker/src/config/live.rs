//! Settings that change while the broker runs: of brokers, groups and client metrics. They are kept in the journal.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use ottla_protocol::ErrorCode;

use super::settings::{Mode, Scope, find};
use super::{BrokerConfig, TopicConfig};
use crate::cluster::{Cluster, OpenError, Refusal, lock};
use crate::data_dir;

/// Keys of the journal: `config/<kind>/<name>`.
const CONFIG_KEY: &str = "config/";
/// Resources of one kind that have settings: each takes memory for good.
const RESOURCES_MAX: usize = 10_000;

/// The kinds of resources whose settings are kept here, by their numbers in the protocol.
pub(crate) const BROKER: i8 = 4;
pub(crate) const CLIENT_METRICS: i8 = 16;
pub(crate) const GROUP: i8 = 32;

/// Settings by name.
pub(crate) type Values = BTreeMap<String, String>;

/// The settings of all resources, and the configuration that results for the broker.
#[derive(Debug)]
pub(crate) struct LiveConfig {
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    resources: BTreeMap<(i8, String), Values>,
    broker: Arc<BrokerConfig>,
}

impl LiveConfig {
    /// No resource has settings; the broker has those of its start.
    pub(crate) fn new(config: &BrokerConfig) -> Self {
        let broker = Arc::new(config.clone());
        Self { state: RwLock::new(State { resources: BTreeMap::new(), broker }) }
    }

    fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The configuration of the broker with the changes of its run.
    pub(crate) fn broker(&self) -> Arc<BrokerConfig> {
        self.look(|state| state.broker.clone())
    }

    /// The settings of a resource.
    pub(crate) fn values(&self, kind: i8, name: &str) -> Values {
        self.look(|state| state.resources.get(&(kind, name.to_owned())).cloned().unwrap_or_default())
    }

    /// The names of the resources of a kind that have settings.
    pub(crate) fn names(&self, kind: i8) -> Vec<String> {
        let names = |state: &State| {
            let keys = state.resources.keys().filter(|(of, _)| *of == kind);
            keys.map(|(_, name)| name.clone()).collect()
        };
        self.look(names)
    }

    fn put(&self, started_with: &BrokerConfig, kind: i8, name: &str, values: Values) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let key = (kind, name.to_owned());
        if values.is_empty() {
            state.resources.remove(&key);
        } else {
            state.resources.insert(key, values);
        }
        if kind == BROKER {
            let mut broker = started_with.clone();
            // All nodes share the logs, so that the first node's settings count for them.
            for name in ["", "1"] {
                for (name, value) in state.resources.get(&(BROKER, name.to_owned())).into_iter().flatten() {
                    if let Err(error) = broker.set(name, value) {
                        tracing::warn!(error, "a setting from the journal has no effect");
                    }
                }
            }
            state.broker = Arc::new(broker);
        }
    }
}

impl Cluster {
    /// Reads the settings from the journal. The topics are not loaded yet.
    pub(crate) fn load_live_config(&self) -> Result<(), OpenError> {
        let mut found = Vec::new();
        for (key, value) in lock(&self.journal).iter_prefix(CONFIG_KEY.as_bytes()) {
            let text = String::from_utf8_lossy(key).into_owned();
            let bad =
                |reason: String| OpenError::Record { journal: data_dir::META_DIR, key: text.clone(), reason };
            let rest = text.strip_prefix(CONFIG_KEY).unwrap_or_default();
            let resource = rest.split_once('/').and_then(|(kind, name)| Some((kind.parse().ok()?, name)));
            let (kind, name): (i8, &str) = resource.ok_or_else(|| bad("the key names no resource".into()))?;
            let values: Values = serde_json::from_slice(value).map_err(|error| bad(error.to_string()))?;
            found.push((kind, name.to_owned(), values));
        }
        for (kind, name, values) in found {
            self.live.put(&self.config, kind, &name, values);
        }
        Ok(())
    }

    /// Changes the settings of a broker, a group or a subscription to metrics. They are durable when this returns, and apply
    /// at once. Blocks for a sync.
    pub(crate) fn configure_resource(
        &self,
        kind: i8,
        name: &str,
        change: impl FnOnce(&Values) -> Result<Values, Refusal>,
        dry_run: bool,
    ) -> Result<(), Refusal> {
        let _change = lock(&self.topic_changes);
        let before = self.live.values(kind, name);
        let values = change(&before)?;
        check(kind, name, &before, &values)?;
        let names = self.live.names(kind);
        if names.len() >= RESOURCES_MAX && !names.iter().any(|known| known == name) {
            let reason = format!("{RESOURCES_MAX} resources of kind {kind} have settings: delete some first");
            return Err((ErrorCode::PolicyViolation, reason));
        }
        if dry_run {
            return Ok(());
        }
        let key = Bytes::from(format!("{CONFIG_KEY}{kind}/{name}"));
        let json = serde_json::to_vec(&values)
            .map_err(|error| (ErrorCode::UnknownServerError, error.to_string()))?;
        let value = (!values.is_empty()).then(|| json.into());
        self.put_durably(&[(key, value)])?;
        self.live.put(&self.config, kind, name, values);
        if kind == BROKER {
            self.apply_to_logs();
        }
        Ok(())
    }

    /// Gives every log the settings that hold now.
    fn apply_to_logs(&self) {
        for topic in self.topics() {
            let config = self.log_config(&topic.name, &topic.config);
            for partition in &topic.partitions {
                partition.log().update_config(config.clone());
            }
        }
    }

    /// The defaults of topic settings, with the changes of this run.
    pub(crate) fn topic_defaults(&self) -> TopicConfig {
        self.live.broker().topic_defaults.clone()
    }
}

/// Checks the settings that changed.
fn check(kind: i8, name: &str, before: &Values, values: &Values) -> Result<(), Refusal> {
    let scope = match kind {
        BROKER => Scope::Broker,
        GROUP => Scope::Group,
        _ => Scope::ClientMetrics,
    };
    if name.is_empty() && scope != Scope::Broker {
        return Err((ErrorCode::InvalidRequest, format!("a resource of kind {kind} needs a name")));
    }
    let removed = before.keys().filter(|key| !values.contains_key(*key));
    let set = values.iter().filter(|(key, value)| before.get(*key) != Some(*value)).map(|(key, _)| key);
    let mut scratch = BrokerConfig::default();
    for key in set.chain(removed) {
        let Some(setting) = find(scope, key) else {
            return Err((ErrorCode::InvalidConfig, format!("no setting of this resource is called `{key}`")));
        };
        let refuse = |why: &str| Err((ErrorCode::InvalidRequest, format!("`{key}` {why}")));
        match (scope, setting.mode) {
            (Scope::Broker, Mode::ReadOnly) => return refuse("cannot change while the broker runs"),
            (Scope::Broker, Mode::PerBroker) if name.is_empty() => {
                return refuse("can be set for single brokers only");
            }
            _ => {}
        }
        let Some(value) = values.get(key) else { continue };
        let checked = if scope == Scope::Broker { scratch.set(key, value) } else { setting.check(value) };
        checked.map_err(|reason| (ErrorCode::InvalidConfig, reason))?;
    }
    Ok(())
}
