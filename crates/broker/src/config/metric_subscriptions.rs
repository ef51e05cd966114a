//! The CLIENT_METRICS resources of the configuration: which clients push which metrics, and how often.

use std::collections::BTreeMap;

use ottla_protocol::Uuid;
use regex_lite::{Regex, RegexBuilder};

use super::live::{CLIENT_METRICS, LiveConfig, Values};

/// `interval.ms` of a client that no subscription selects.
pub(crate) const INTERVAL_MS_DEFAULT: i32 = 300_000;
const INTERVAL_MS_MIN: i32 = 100;
const INTERVAL_MS_MAX: i32 = 3_600_000;
/// Stands for every metric.
const ALL: &str = "*";
/// The longest pattern of `match`: it is compiled at each change of a subscription.
const PATTERN_BYTES_MAX: usize = 1024;
/// The memory of a compiled pattern. A long pattern without repetitions takes half of it.
const COMPILED_BYTES_MAX: usize = 64 << 10;

/// The names in a client's requests, and its address.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ClientIdentity {
    pub(crate) client_id: String,
    pub(crate) software_name: String,
    pub(crate) software_version: String,
    pub(crate) address: String,
    pub(crate) port: u16,
}

/// The metrics that a client pushes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Wanted {
    /// Changes with the metrics and the interval.
    pub(crate) id: i32,
    /// Prefixes of the metrics' names; an empty one stands for all, and no prefix for none.
    pub(crate) metrics: Vec<String>,
    pub(crate) interval_ms: i32,
}

/// The subscriptions in a version of the configuration.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    version: Option<u64>,
    /// By name.
    all: BTreeMap<String, Subscription>,
}

#[derive(Debug)]
struct Subscription {
    /// The settings that it was read from.
    source: Values,
    metrics: Vec<String>,
    interval_ms: i32,
    /// As in Kafka, the last one of each key.
    selectors: BTreeMap<SelectorKey, Regex>,
}

/// `KEY=REGEX`: the regular expression matches the whole value.
#[derive(Debug)]
struct Selector {
    key: SelectorKey,
    pattern: Regex,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum SelectorKey {
    InstanceId,
    ClientId,
    SoftwareName,
    SoftwareVersion,
    SourceAddress,
    SourcePort,
}

/// The keys of `match`, by Kafka's names.
const KEYS: [(&str, SelectorKey); 6] = [
    ("client_instance_id", SelectorKey::InstanceId),
    ("client_id", SelectorKey::ClientId),
    ("client_software_name", SelectorKey::SoftwareName),
    ("client_software_version", SelectorKey::SoftwareVersion),
    ("client_source_address", SelectorKey::SourceAddress),
    ("client_source_port", SelectorKey::SourcePort),
];

impl Subscriptions {
    /// Reads the subscriptions that have changed. Returns their number.
    pub(crate) fn refresh(&mut self, live: &LiveConfig) -> usize {
        let version = live.subscriptions_version();
        if self.version == Some(version) {
            return 0;
        }
        let mut before = std::mem::take(&mut self.all);
        let mut read = 0;
        for name in live.names(CLIENT_METRICS) {
            let values = live.values(CLIENT_METRICS, &name);
            let known = before.remove(&name).filter(|known| known.source == values);
            let subscription = known.unwrap_or_else(|| {
                read += 1;
                Subscription::of(values)
            });
            self.all.insert(name, subscription);
        }
        self.version = Some(version);
        read
    }

    /// The version of the configuration that was read last.
    pub(crate) fn version(&self) -> u64 {
        self.version.unwrap_or_default()
    }

    /// The metrics that a client pushes: those of all subscriptions that select it, at the shortest of their intervals.
    pub(crate) fn of(&self, id: Uuid, client: &ClientIdentity) -> Wanted {
        let mut metrics = Vec::new();
        let mut interval_ms = INTERVAL_MS_DEFAULT;
        for subscription in self.all.values().filter(|one| one.selects(id, client)) {
            metrics.extend(subscription.metrics.iter().cloned());
            interval_ms = interval_ms.min(subscription.interval_ms);
        }
        metrics.sort_unstable();
        metrics.dedup();
        if metrics.iter().any(|metric| metric == ALL) {
            metrics = vec![ALL.to_owned()];
        }
        Wanted { id: subscription_id(id, &metrics, interval_ms), metrics, interval_ms }
    }
}

impl Subscription {
    fn of(values: Values) -> Self {
        let list =
            |name: &str| items(values.get(name).map_or("", String::as_str)).map(str::to_owned).collect();
        let interval_ms = values.get("interval.ms").and_then(|text| text.trim().parse().ok());
        // Values are checked before they are kept.
        let selectors =
            items(values.get("match").map_or("", String::as_str)).filter_map(|it| selector(it).ok());
        Self {
            metrics: list("metrics"),
            interval_ms: interval_ms.unwrap_or(INTERVAL_MS_DEFAULT),
            selectors: selectors.map(|Selector { key, pattern }| (key, pattern)).collect(),
            source: values,
        }
    }

    fn selects(&self, id: Uuid, client: &ClientIdentity) -> bool {
        self.selectors.iter().all(|(key, pattern)| {
            let port;
            let own_id;
            let value = match key {
                SelectorKey::InstanceId => {
                    own_id = id.to_string();
                    &own_id
                }
                SelectorKey::ClientId => &client.client_id,
                SelectorKey::SoftwareName => &client.software_name,
                SelectorKey::SoftwareVersion => &client.software_version,
                SelectorKey::SourceAddress => &client.address,
                SelectorKey::SourcePort => {
                    port = client.port.to_string();
                    &port
                }
            };
            pattern.is_match(value)
        })
    }
}

/// As in Kafka, a checksum of what is wanted, mixed with the client's id: a client with an old one asks again.
fn subscription_id(id: Uuid, metrics: &[String], interval_ms: i32) -> i32 {
    let checksum = ottla_wire::crc::crc32c(format!("[{}]{interval_ms}", metrics.join(", ")).as_bytes());
    let words =
        id.0.chunks_exact(4).map(|word| word.iter().fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte)));
    (checksum ^ words.fold(0, |sum, word| sum ^ word)).cast_signed()
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn selector(item: &str) -> Result<Selector, String> {
    let (name, pattern) = item.split_once('=').ok_or_else(|| format!("`{item}` is no KEY=REGEX"))?;
    let name = name.trim();
    let Some((_, key)) = KEYS.iter().find(|(known, _)| *known == name) else {
        let known = KEYS.map(|(known, _)| known).join(", ");
        return Err(format!("`{name}` is no property of clients; use {known}"));
    };
    let pattern = pattern.trim();
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(format!("a pattern has {} bytes, more than {PATTERN_BYTES_MAX}", pattern.len()));
    }
    let compile = |pattern: &str| RegexBuilder::new(pattern).size_limit(COMPILED_BYTES_MAX).build();
    let compiled = compile(pattern).and_then(|_| compile(&format!(r"\A(?:{pattern})\z")));
    let pattern = compiled.map_err(|error| format!("`{pattern}` is no regular expression: {error}"))?;
    Ok(Selector { key: *key, pattern })
}

/// Checks a value of `interval.ms`.
///
/// # Errors
/// A sentence that says what is wrong.
pub(crate) fn check_interval(value: &str) -> Result<(), String> {
    let (min, max) = (INTERVAL_MS_MIN, INTERVAL_MS_MAX);
    let is_allowed = value.parse::<i32>().is_ok_and(|ms| (min..=max).contains(&ms));
    if is_allowed {
        Ok(())
    } else {
        Err(format!("interval.ms=`{value}`: use a whole number from {min} to {max}"))
    }
}

/// Checks a value of `match`.
///
/// # Errors
/// A sentence that says what is wrong.
pub(crate) fn check_match(value: &str) -> Result<(), String> {
    items(value)
        .try_for_each(|item| selector(item).map(drop))
        .map_err(|reason| format!("match=`{value}`: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BrokerConfig;

    fn subscriptions(resources: &[(&str, &[(&str, &str)])]) -> Subscriptions {
        let started_with = BrokerConfig::default();
        let live = LiveConfig::new(&started_with);
        for (name, values) in resources {
            let values = values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            live.put(CLIENT_METRICS, name, values);
        }
        let mut subscriptions = Subscriptions::default();
        subscriptions.refresh(&live);
        subscriptions
    }

    fn client(id: &str) -> ClientIdentity {
        ClientIdentity { client_id: id.to_owned(), software_name: "ottla".to_owned(), ..Default::default() }
    }

    #[test]
    fn a_client_is_asked_for_what_all_its_subscriptions_want_at_the_shortest_interval() {
        let subscriptions = subscriptions(&[
            ("slow", &[("metrics", "org.b,org.a"), ("interval.ms", "60000")]),
            (
                "fast",
                &[
                    ("metrics", "org.a"),
                    ("interval.ms", "1000"),
                    ("match", "client_id=till-.*, client_software_name=ottla"),
                ],
            ),
        ]);
        let till = subscriptions.of(Uuid::ONE, &client("till-1"));
        assert_eq!((till.metrics, till.interval_ms), (vec!["org.a".to_owned(), "org.b".to_owned()], 1000));
        let other = subscriptions.of(Uuid::ONE, &client("my-till-1"));
        assert_eq!(other.interval_ms, 60_000, "a pattern matches whole values");
        assert_ne!(till.id, other.id);
    }

    #[test]
    fn a_star_stands_for_every_metric_and_no_subscription_for_none() {
        let all = subscriptions(&[("a", &[("metrics", "org.a")]), ("b", &[("metrics", "*")])]);
        assert_eq!(all.of(Uuid::ONE, &client("x")).metrics, ["*"]);
        let none = subscriptions(&[]).of(Uuid::ONE, &client("x"));
        assert_eq!((none.metrics.len(), none.interval_ms), (0, INTERVAL_MS_DEFAULT));
    }

    /// All were compiled again after each change of any setting.
    #[test]
    fn only_a_subscription_that_has_changed_is_read_again() {
        let live = LiveConfig::new(&BrokerConfig::default());
        let put = |kind, name: &str, pattern: &str| {
            live.put(kind, name, Values::from([("match".to_owned(), format!("client_id={pattern}"))]));
        };
        let mut subscriptions = Subscriptions::default();
        (0..5).for_each(|number| put(CLIENT_METRICS, &number.to_string(), "a.*"));
        assert_eq!(subscriptions.refresh(&live), 5);
        put(super::super::live::GROUP, "billing", "a.*");
        assert_eq!(subscriptions.refresh(&live), 0);
        put(CLIENT_METRICS, "3", "b.*");
        assert_eq!(subscriptions.refresh(&live), 1);
        live.put(CLIENT_METRICS, "4", Values::new());
        assert_eq!((subscriptions.refresh(&live), subscriptions.all.len()), (0, 4));
    }

    #[test]
    fn the_last_selector_of_a_key_counts() {
        let subscriptions =
            subscriptions(&[("a", &[("metrics", "org.a"), ("match", "client_id=b.*,client_id=a.*")])]);
        assert_eq!(subscriptions.of(Uuid::ONE, &client("a1")).metrics, ["org.a"]);
        assert!(subscriptions.of(Uuid::ONE, &client("b1")).metrics.is_empty());
        assert!(check_match("client_id=((x{99}){99}){99}").is_err(), "it would take much memory");
        check_match(&format!("client_id={}", "x".repeat(PATTERN_BYTES_MAX))).expect("a long name");
    }

    #[test]
    fn a_selector_that_cannot_match_is_explained() {
        check_match("client_id=a.*,client_source_port=90[0-9]{2}").expect("two selectors");
        assert!(check_match("client_id").unwrap_err().contains("KEY=REGEX"));
        assert!(check_match("color=red").unwrap_err().contains("client_software_name"));
        assert!(
            check_interval("100").is_ok() && check_interval("99").is_err() && check_interval("1h").is_err()
        );
        assert!(check_match("client_id=(").unwrap_err().contains("no regular expression"));
    }
}
