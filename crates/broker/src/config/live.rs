//! Settings that change while the broker runs: of brokers, groups and client metrics. `cluster::live_config` keeps them in
//! the journal.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use ottla_protocol::ErrorCode;

use super::connections_per_ip::ConnectionsPerIp;
use super::group_limits::check_limits;
use super::listener_changes::{is_of_one_broker, needs_listener, setting_of_listener};
use super::listener_properties::is_of_listener;
use super::settings::{Mode, Scope, check_length, find};
use super::{BrokerConfig, number};

/// The kinds of resources whose settings are kept here, by their numbers in the protocol.
pub(crate) const BROKER: i8 = 4;
pub(crate) const CLIENT_METRICS: i8 = 16;
pub(crate) const GROUP: i8 = 32;

/// The settings of a broker, or of all brokers, that are none of its properties; and as many of listeners.
const CUSTOM_SETTINGS_MAX: usize = 100;
/// The longest of their names.
const CUSTOM_NAME_BYTES_MAX: usize = 255;
/// The values of the properties of a broker's listeners together: room for a few bundles of authorities.
const LISTENERS_BYTES_MAX: usize = 4 << 20;

/// Kafka's text for a setting of one broker that is set for all of them.
const NEEDS_BROKER: &str =
    "Cannot update these configs at default cluster level, broker id must be specified";
/// Kafka's text for a certificate without the prefix of its listener.
const NEEDS_LISTENER: &str =
    "These security configs can be dynamically updated only per-listener using the listener prefix";

const CLEANER_THREADS: &str = "log.cleaner.threads";
const CLEANER_BUFFER: &str = "log.cleaner.dedupe.buffer.size";
/// Kafka's default of the buffer, which is larger than the one here.
const CLEANER_BUFFER_BYTES: i64 = 128 << 20;

/// Settings by name.
pub(crate) type Values = BTreeMap<String, String>;

/// The settings of all resources, and the configuration that results for the broker.
#[derive(Debug)]
pub(crate) struct LiveConfig {
    state: RwLock<State>,
    /// Changes with every change of a setting.
    version: AtomicU64,
    /// Changes with every change of a subscription to clients' metrics.
    subscriptions_version: AtomicU64,
}

#[derive(Debug)]
struct State {
    resources: BTreeMap<(i8, String), Values>,
    /// The configuration of the broker's start.
    started_with: BrokerConfig,
    broker: Arc<BrokerConfig>,
}

impl LiveConfig {
    /// No resource has settings; the broker has those of its start.
    pub(crate) fn new(config: &BrokerConfig) -> Self {
        let broker = Arc::new(config.clone());
        let state = RwLock::new(State { resources: BTreeMap::new(), started_with: config.clone(), broker });
        Self { state, version: AtomicU64::new(0), subscriptions_version: AtomicU64::new(0) }
    }

    fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The configuration of the broker with the changes of its run.
    pub(crate) fn broker(&self) -> Arc<BrokerConfig> {
        self.look(|state| state.broker.clone())
    }

    /// A number that changes with every change of a setting: what was read before is read again.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// A number that changes with every change of a subscription to clients' metrics.
    pub(crate) fn subscriptions_version(&self) -> u64 {
        self.subscriptions_version.load(Ordering::Acquire)
    }

    /// The settings of a resource.
    pub(crate) fn values(&self, kind: i8, name: &str) -> Values {
        self.look(|state| state.resources.get(&(kind, name.to_owned())).cloned().unwrap_or_default())
    }

    /// The names of the resources of a kind that have settings.
    pub(crate) fn names(&self, kind: i8) -> Vec<String> {
        let names = |state: &State| {
            let keys = state.resources.range((kind, String::new())..).map(|(key, _)| key);
            keys.take_while(|(of, _)| *of == kind).map(|(_, name)| name.clone()).collect()
        };
        self.look(names)
    }

    /// Changes the configuration as if the broker had been started with the change.
    pub(crate) fn change_start(&self, change: impl FnOnce(&mut BrokerConfig)) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut state.started_with);
        state.combine();
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Refuses a change of a broker, or of all brokers if `name` is empty, after which no client could connect. A setting that is deleted
    /// gets the value of all brokers or of the start, and not its default.
    pub(crate) fn check_connections(
        &self,
        name: &str,
        before: &Values,
        values: &Values,
    ) -> Result<(), String> {
        if !ConnectionsPerIp::differ(before, values) {
            return Ok(());
        }
        self.look(|state| {
            let resources = state.with_change(name, values).into_iter().flatten();
            state.started_with.connections_per_ip.clone().check_with(resources)
        })
    }

    /// Refuses a cleaner with too little memory for its threads, as Kafka does. Here it has one, whatever their number is.
    pub(crate) fn check_cleaner(&self, name: &str, before: &Values, values: &Values) -> Result<(), String> {
        if [CLEANER_THREADS, CLEANER_BUFFER].into_iter().all(|name| before.get(name) == values.get(name)) {
            return Ok(());
        }
        self.look(|state| {
            let [of_all, own] = state.with_change(name, values);
            let number = |setting: &str, default: i64| {
                let changed = own.and_then(|own| own.get(setting)).or_else(|| of_all?.get(setting));
                let value = changed.or_else(|| state.started_with.given.get(setting));
                value.and_then(|value| value.trim().parse().ok()).unwrap_or(default)
            };
            let (threads, bytes) = (number(CLEANER_THREADS, 1), number(CLEANER_BUFFER, CLEANER_BUFFER_BYTES));
            if bytes / threads.max(1) > 1 << 20 {
                return Ok(());
            }
            Err(format!("{CLEANER_BUFFER} must be at least 1MB per cleaner thread."))
        })
    }

    /// Replaces the settings of a resource.
    pub(crate) fn put(&self, kind: i8, name: &str, values: Values) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let key = (kind, name.to_owned());
        if values.is_empty() {
            state.resources.remove(&key);
        } else {
            state.resources.insert(key, values);
        }
        if kind == BROKER {
            state.combine();
        }
        if kind == CLIENT_METRICS {
            self.subscriptions_version.fetch_add(1, Ordering::Release);
        }
        self.version.fetch_add(1, Ordering::Release);
    }
}

impl State {
    /// The settings of all brokers and those of a node, with `values` for the resource `name`: for all brokers, the node is the first.
    fn with_change<'a>(&'a self, name: &str, values: &'a Values) -> [Option<&'a Values>; 2] {
        let first = self.started_with.node_id.to_string();
        let node = if name.is_empty() { first.as_str() } else { name };
        ["", node].map(|resource| {
            if resource == name { Some(values) } else { self.resources.get(&(BROKER, resource.to_owned())) }
        })
    }

    /// Applies the settings of the broker to the configuration of its start.
    fn combine(&mut self) {
        let mut broker = self.started_with.clone();
        // All nodes share the logs, so that the first node's settings count for them.
        let first = broker.node_id.to_string();
        for name in ["", first.as_str()] {
            let values = self.resources.get(&(BROKER, name.to_owned())).into_iter().flatten();
            // Settings for plugins have no effect by design. Each node has its own certificates.
            for (name, value) in values.filter(|(name, _)| !is_custom(name) && !is_of_listener(name)) {
                if let Err(error) = broker.set(name, value) {
                    tracing::warn!(error, "a stored setting has no effect");
                }
            }
        }
        if broker.connections_max > broker.connections_possible {
            let (asked, limited) = (broker.connections_max, broker.connections_possible);
            tracing::warn!(asked, limited, "max.connections is limited by the number of open files");
            broker.connections_max = limited;
        }
        self.broker = Arc::new(broker);
    }
}

/// Checks the settings that changed; those of groups against the limits of `broker`.
pub(crate) fn check(
    (kind, name): (i8, &str),
    before: &Values,
    values: &Values,
    broker: &BrokerConfig,
) -> Result<(), (ErrorCode, String)> {
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
        if scope == Scope::Broker && is_of_listener(key) {
            check_of_listener(name, key, values)?;
            continue;
        }
        let Some(setting) = find(scope, key) else {
            if scope == Scope::Broker {
                check_custom(key, values)?;
                continue;
            }
            let code = if scope == Scope::ClientMetrics {
                ErrorCode::InvalidRequest
            } else {
                ErrorCode::InvalidConfig
            };
            return Err((code, format!("no setting of this resource is called `{key}`")));
        };
        // Kafka's texts, which programs compare.
        let refuse = |why: &str| Err((ErrorCode::InvalidRequest, format!("{why}: [{key}]")));
        match (scope, setting.mode) {
            (Scope::Broker, Mode::ReadOnly) => return refuse("Cannot update these configs dynamically"),
            (Scope::Broker, _) if needs_listener(key) && values.contains_key(key) => {
                return refuse(NEEDS_LISTENER);
            }
            (Scope::Broker, Mode::PerBroker) if name.is_empty() => return refuse(NEEDS_BROKER),
            _ => {}
        }
        let Some(value) = values.get(key) else { continue };
        // A broker has few settings, and certificates are long.
        if scope != Scope::Broker {
            check_length(key, value).map_err(|reason| (ErrorCode::InvalidConfig, reason))?;
        }
        let checked = if scope == Scope::Broker { scratch.set(key, value) } else { setting.check(value) };
        // As in Kafka, the value of a broker's setting is a part of the request (KAFKA-13609).
        // So is an interval of clients' metrics that is out of range, unlike one that is no number.
        let is_interval = scope == Scope::ClientMetrics && key == "interval.ms";
        let is_request = scope == Scope::Broker || is_interval && value.trim().parse::<i32>().is_ok();
        let code = if is_request { ErrorCode::InvalidRequest } else { ErrorCode::InvalidConfig };
        checked.map_err(|reason| (code, reason))?;
    }
    if scope == Scope::Group {
        check_limits(values, broker).map_err(|reason| (ErrorCode::InvalidConfig, reason))?;
    }
    Ok(())
}

/// Returns `true` for a setting of a broker that is none of its properties. Apache Kafka stores those for its plugins (KIP-226). Here they
/// are stored without effect.
pub(crate) fn is_custom(name: &str) -> bool {
    find(Scope::Broker, name).is_none() && setting_of_listener(name).is_none()
}

/// The bytes per second that a broker copies to its new replicas.
pub(crate) const FOLLOWER_RATE: &str = "follower.replication.throttled.rate";
/// The bytes per second that new replicas copy from a broker.
pub(crate) const LEADER_RATE: &str = "leader.replication.throttled.rate";

/// The bytes per second that a broker copies for reassignments. Tools set them for the time of one. They are no properties of a start. The
/// last one has no effect: a node has one log directory.
const THROTTLES: &[&str] = &[FOLLOWER_RATE, LEADER_RATE, "replica.alter.log.dirs.io.max.bytes.per.second"];

/// Returns `true` for a limit of replication, which is described like a property as long as it is set.
pub(crate) fn is_throttle(name: &str) -> bool {
    THROTTLES.contains(&name)
}

/// Checks a setting that is none of the broker's properties. It may be gone.
fn check_custom(key: &str, values: &Values) -> Result<(), (ErrorCode, String)> {
    let Some(value) = values.get(key) else { return Ok(()) };
    if is_throttle(key) {
        let checked = number(key, value, 0, i64::MAX).map(|_| ());
        return checked.map_err(|reason| (ErrorCode::InvalidRequest, reason));
    }
    check_name(key)?;
    check_length(key, value).map_err(|reason| (ErrorCode::InvalidConfig, reason))?;
    let count = values.keys().filter(|name| is_custom(name) && !is_throttle(name)).count();
    if count > CUSTOM_SETTINGS_MAX {
        let reason = format!(
            "`{key}` is no property of a broker: at most {CUSTOM_SETTINGS_MAX} of such settings are stored, not {count}"
        );
        return Err((ErrorCode::PolicyViolation, reason));
    }
    Ok(())
}

fn check_name(key: &str) -> Result<(), (ErrorCode, String)> {
    let bytes = key.len();
    if (1..=CUSTOM_NAME_BYTES_MAX).contains(&bytes) {
        return Ok(());
    }
    let reason = format!("the name of a setting has {bytes} bytes, 1 to {CUSTOM_NAME_BYTES_MAX} are allowed");
    Err((ErrorCode::InvalidConfig, reason))
}

/// Checks a property of one listener. It may be gone. As in Kafka, the listener need not exist; the cluster checks it against those
/// that do.
fn check_of_listener(node: &str, key: &str, values: &Values) -> Result<(), (ErrorCode, String)> {
    let Some(value) = values.get(key) else { return Ok(()) };
    if node.is_empty() && is_of_one_broker(key) {
        return Err((ErrorCode::InvalidRequest, format!("{NEEDS_BROKER}: [{key}]")));
    }
    let Some(setting) = setting_of_listener(key) else { return check_custom(key, values) };
    setting.check(value).map_err(|reason| (ErrorCode::InvalidRequest, reason))?;
    check_name(key)?;
    let count = values.keys().filter(|name| is_of_listener(name)).count();
    if count > CUSTOM_SETTINGS_MAX {
        let reason =
            format!("`{key}`: at most {CUSTOM_SETTINGS_MAX} properties of listeners are stored, not {count}");
        return Err((ErrorCode::PolicyViolation, reason));
    }
    let of_listeners = values.iter().filter(|(name, _)| is_of_listener(name));
    let bytes: usize = of_listeners.map(|(_, value)| value.len()).sum();
    if bytes > LISTENERS_BYTES_MAX {
        let reason = format!(
            "`{key}`: the properties of listeners have {bytes} bytes, at most {LISTENERS_BYTES_MAX} are stored"
        );
        return Err((ErrorCode::PolicyViolation, reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal_of(node: &str, name: &str, value: &str) -> String {
        let values = Values::from([(name.to_owned(), value.to_owned())]);
        let checked = check((BROKER, node), &Values::new(), &values, &BrokerConfig::default());
        let (code, text) = checked.expect_err("no such change");
        assert_eq!(code, ErrorCode::InvalidRequest);
        text
    }

    #[test]
    fn changes_that_the_start_decides_are_refused_in_the_words_of_apache_kafka() {
        assert_eq!(
            refusal_of("1", "security.inter.broker.protocol", "PLAINTEXT"),
            "Cannot update these configs dynamically: [security.inter.broker.protocol]"
        );
        for name in ["ssl.client.auth", "listener.name.in.ssl.keystore.location"] {
            assert_eq!(
                refusal_of("", name, "none"),
                format!(
                    "Cannot update these configs at default cluster level, broker id must be specified: [{name}]"
                )
            );
        }
        for node in ["", "1"] {
            assert_eq!(
                refusal_of(node, "ssl.keystore.location", "/etc/key.pem"),
                "These security configs can be dynamically updated only per-listener using the listener prefix: \
                 [ssl.keystore.location]"
            );
        }
    }

    /// They were kept whole, in memory and in the journal: as large as the requests of a client, for a hundred names.
    #[test]
    fn the_properties_of_listeners_together_are_limited() {
        let half = "x".repeat(LISTENERS_BYTES_MAX / 2);
        let pair = |name: &str| (format!("listener.name.{name}.ssl.keystore.key"), half.clone());
        let checked =
            |values: &Values| check((BROKER, "1"), &Values::new(), values, &BrokerConfig::default());
        let mut values = Values::from([pair("in"), pair("out")]);
        assert_eq!(checked(&values), Ok(()));
        values.insert("listener.name.in.ssl.key.password".into(), "x".into());
        let (code, reason) = checked(&values).expect_err("refused");
        assert_eq!(code, ErrorCode::PolicyViolation);
        assert!(reason.contains("4194305 bytes, at most 4194304 are stored"), "{reason}");
    }
}
