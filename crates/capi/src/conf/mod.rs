//! `rd_kafka_conf_t`: the client's configuration, the functions of the application, and a default for topics.

pub mod api;
pub mod callbacks;
mod certificates;
mod names;

use std::collections::BTreeMap;

use ottla_client::properties::{self, Kind, Property, Scope};
use ottla_client::{Config, Error};
use zeroize::Zeroizing;

use crate::interceptors::Interceptors;
use crate::topic_conf::rd_kafka_topic_conf_t;

pub use api::*;
pub use callbacks::*;
pub use certificates::rd_kafka_conf_set_ssl_cert;
pub(crate) use names::TOPIC as TOPIC_NAMES;

/// A configuration; `rd_kafka_new` takes it over.
#[derive(Default)]
pub struct rd_kafka_conf_t {
    config: Option<Config>,
    /// What was set by name, as it was written; a secret is shown to C, and to nobody else.
    given: Given,
    /// What librdkafka knows and does not document.
    hidden: BTreeMap<&'static str, String>,
    callbacks: Callbacks,
    topic: Option<Box<rd_kafka_topic_conf_t>>,
    interceptors: Interceptors,
}

pub(crate) type Given = BTreeMap<&'static str, Zeroizing<String>>;

/// Why a property was not set.
#[derive(Debug)]
pub enum NotSet {
    /// No property has that name.
    Unknown(String),
    /// It does not take that value.
    Invalid(String),
}

impl rd_kafka_conf_t {
    /// librdkafka's defaults.
    pub fn new() -> Box<Self> {
        Box::new(Self { config: Some(Config::librdkafka()), ..Self::default() })
    }

    /// The configuration of the engine: properties of topics that were set here lie in it as the defaults of all topics.
    pub fn client_config(&self) -> Config {
        let mut config = self.config().clone();
        if let Some(topic) = &self.topic {
            topic.apply_to(&mut config);
        }
        config
    }

    /// The functions and pointers of the application.
    pub fn callbacks(&self) -> &Callbacks {
        &self.callbacks
    }

    /// The configuration of topics that bring none of their own.
    pub fn default_topic(&self) -> Option<&rd_kafka_topic_conf_t> {
        self.topic.as_deref()
    }

    /// The registered interceptors.
    pub fn interceptors(&self) -> &Interceptors {
        &self.interceptors
    }

    /// `consume.callback.max.messages`: how many messages one call of `rd_kafka_consume_callback` gives at most; 0 is no
    /// limit.
    pub fn consume_callback_max(&self) -> usize {
        let text = self.get("consume.callback.max.messages");
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// `test.mock.num.brokers`: how many brokers of its own the client is to start.
    pub fn mock_brokers(&self) -> usize {
        self.hidden.get("test.mock.num.brokers").and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// `test.mock.broker.rtt`: how many milliseconds later they answer.
    pub fn mock_rtt_ms(&self) -> u64 {
        self.hidden.get("test.mock.broker.rtt").and_then(|ms| ms.parse().ok()).unwrap_or(0)
    }

    /// Sets a property by name; `None` is C's NULL, which takes a text back to its default.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), NotSet> {
        if let Some(hidden) = names::HIDDEN.iter().find(|hidden| hidden.name == name) {
            let value = hidden.check(value.unwrap_or_default()).map_err(NotSet::Invalid)?;
            if name == "enable_sasl_queue" {
                self.callbacks.sasl_queue = value == "true";
            }
            self.hidden.insert(hidden.name, value);
            return Ok(());
        }
        if name == "enabled_events" {
            let mask = number(value.unwrap_or_default()).parse();
            self.callbacks.events =
                mask.map_err(|_| NotSet::Invalid(format!("{name}: not a whole number")))?;
            return Ok(());
        }
        let Some(property) = properties::find_in(Scope::Global, name) else {
            let of_topics = name.strip_prefix("topic.").unwrap_or(name);
            return self.topic_mut().set(of_topics, value);
        };
        let text = text_for(property, name, value)?;
        self.config_mut().set(name, &text).map_err(NotSet::invalid)?;
        self.given.insert(property.name, Zeroizing::new(text));
        Ok(())
    }

    /// The value of a property as C sees it; `None` for what is no property or has no value.
    pub fn get(&self, name: &str) -> Option<String> {
        if let Some(hidden) = names::HIDDEN.iter().find(|hidden| hidden.name == name) {
            let value = self.hidden.get(name).cloned().unwrap_or_else(|| hidden.default.to_owned());
            return (!value.is_empty()).then_some(value);
        }
        if name == "enabled_events" {
            return Some(self.callbacks.events.to_string());
        }
        let Some(property) = properties::find_in(Scope::Global, name) else {
            return match &self.topic {
                Some(topic) => topic.get(name),
                None => rd_kafka_topic_conf_t::default().get(name),
            };
        };
        if property.kind == Kind::Pointer {
            let topic = self.topic.as_deref().map_or(0, |topic| std::ptr::from_ref(topic).addr());
            return pointer(if property.name == "default_topic_conf" {
                topic
            } else {
                self.callbacks.address(name)
            });
        }
        shown(property, &self.given, || self.config().get(property.name))
    }

    /// Every property that has a value, by librdkafka's names and in its order.
    pub fn dump(&self) -> Vec<(&'static str, String)> {
        names::GLOBAL.iter().filter_map(|name| Some((*name, self.get(name)?))).collect()
    }

    /// A copy without the properties whose names begin with one of `filter`, and without interceptors.
    pub fn dup(&self, filter: &[&str]) -> Box<Self> {
        let passes = |name: &str| !filter.iter().any(|prefix| name.starts_with(prefix));
        let mut copy = Self::new();
        if filter.is_empty() {
            copy.config.clone_from(&self.config);
            copy.given.clone_from(&self.given);
        } else {
            for (name, value) in self.given.iter().filter(|(name, _)| passes(name)) {
                // It was taken before, and no property depends on another before the client is made.
                let _ = copy.set(name, Some(value));
            }
        }
        copy.hidden =
            self.hidden.iter().filter(|(name, _)| passes(name)).map(|(k, v)| (*k, v.clone())).collect();
        copy.callbacks = self.callbacks.without(|name| !passes(name));
        copy.topic = self.topic.as_ref().map(|topic| topic.dup(&passes));
        copy
    }

    pub(crate) fn interceptors_mut(&mut self) -> &mut Interceptors {
        &mut self.interceptors
    }

    fn topic_mut(&mut self) -> &mut rd_kafka_topic_conf_t {
        self.topic.get_or_insert_default()
    }

    fn config(&self) -> &Config {
        self.config.as_ref().expect("every constructor sets it")
    }

    fn config_mut(&mut self) -> &mut Config {
        self.config.as_mut().expect("every constructor sets it")
    }
}

impl NotSet {
    /// For a name that no table has.
    pub(crate) fn unknown(name: &str, hint: &Error) -> Self {
        let hint = match hint {
            Error::Config(hint) if hint.contains("; did you mean") => {
                hint.split_once(';').map(|(_, hint)| format!(";{hint}")).unwrap_or_default()
            }
            Error::Config(hint) if hint.starts_with(&format!("`{name}` is a property of Java")) => {
                format!(": {hint}")
            }
            _ => String::new(),
        };
        Self::Unknown(format!("No such configuration property: \"{name}\"{hint}"))
    }

    pub(crate) fn invalid(error: Error) -> Self {
        match error {
            Error::Config(text) => Self::Invalid(text),
            other => Self::Invalid(other.to_string()),
        }
    }
}

/// What C's `value` means for this property; texts can be unset, other kinds cannot.
pub(crate) fn text_for(property: &Property, name: &str, value: Option<&str>) -> Result<String, NotSet> {
    let value = value.unwrap_or_default();
    match property.kind {
        Kind::Pointer => {
            Err(NotSet::Invalid(format!("property \"{name}\" is set by its own rd_kafka_conf_set_ function")))
        }
        Kind::Text | Kind::List if value.is_empty() => Ok(property.default_librdkafka.to_owned()),
        Kind::Text | Kind::List => Ok(value.to_owned()),
        _ if value.trim().is_empty() => Err(NotSet::Invalid(format!(
            "configuration property \"{name}\" cannot be set to empty value; it takes {}",
            property.range()
        ))),
        Kind::Int(..) | Kind::Float(..) => Ok(number(value)),
        Kind::Bool | Kind::Choice(_) | Kind::Flags(_) => Ok(value.to_owned()),
    }
}

/// What C reads of a value: secrets too, and nothing for a text that is not set.
pub(crate) fn shown(
    property: &Property,
    given: &Given,
    get: impl FnOnce() -> Result<String, Error>,
) -> Option<String> {
    let value = match given.get(property.name) {
        Some(given) if property.secret => given.to_string(),
        _ => get().ok()?,
    };
    let unset = value.is_empty()
        && matches!(property.kind, Kind::Text | Kind::List)
        && property.name != "client.rack";
    (!unset).then_some(value)
}

/// A pointer as C's printf shows it; none for NULL.
pub(crate) fn pointer(address: usize) -> Option<String> {
    (address != 0).then(|| format!("{address:#x}"))
}

/// C reads numbers in base 16 as well.
fn number(text: &str) -> String {
    let text = text.trim();
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    hexadecimal
        .and_then(|digits| i64::from_str_radix(digits, 16).ok())
        .map_or_else(|| text.to_owned(), |n| n.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_back_by_c_and_a_text_can_be_unset() {
        let mut conf = rd_kafka_conf_t::new();
        conf.set("sasl.password", Some("swordfish ")).expect("takes any text");
        assert_eq!(conf.get("sasl.password").as_deref(), Some("swordfish "));
        conf.set("group.id", Some("g")).expect("takes any text");
        assert_eq!(conf.get("group.id").as_deref(), Some("g"));
        conf.set("group.id", None).expect("NULL unsets");
        assert_eq!(conf.get("group.id"), None);
        assert_eq!(conf.get("client.id").as_deref(), Some("rdkafka"));
    }

    #[test]
    fn a_refusal_names_the_property() {
        let mut conf = rd_kafka_conf_t::new();
        for (name, value) in
            [("message.max.bytes", "5"), ("acks", "x"), ("security.protocol", ""), ("dr_cb", "x")]
        {
            let Err(NotSet::Invalid(text)) = conf.set(name, Some(value)) else {
                panic!("{name}={value} was taken")
            };
            assert!(text.contains(name), "{text}");
        }
        let Err(NotSet::Unknown(text)) = conf.set("group_id", Some("g")) else {
            panic!("there is no group_id")
        };
        assert!(text.starts_with("No such configuration property: \"group_id\""), "{text}");
        assert!(text.contains("group.id"), "{text}");
    }

    #[test]
    fn properties_of_topics_reach_the_client_and_those_of_a_filter_stay_behind() {
        let mut conf = rd_kafka_conf_t::new();
        conf.set("acks", Some("1")).expect("a topic's property");
        conf.set("linger.ms", Some("0x10")).expect("base 16");
        conf.set("client.id", Some("me")).expect("any text");
        let config = conf.client_config();
        assert_eq!(config.acks, ottla_client::Acks::Leader);
        assert!(config.is_set("acks"));
        let copy = conf.dup(&["client."]);
        assert_eq!(copy.get("client.id").as_deref(), Some("rdkafka"));
        assert_eq!(copy.get("queue.buffering.max.ms").as_deref(), Some("16"));
        assert_eq!(copy.get("request.required.acks"), conf.get("acks"));
    }
}
