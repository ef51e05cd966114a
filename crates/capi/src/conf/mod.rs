//! `rd_kafka_conf_t`: the client's configuration, the functions of the application, and a default for topics.

pub mod callbacks;
mod certificates;
mod conf_handles;
pub mod conf_interceptors;
pub mod functions;
pub(crate) mod plugins;
mod property_names;
mod refusal_texts;
mod share_conf;
pub mod topic_conf;

use std::collections::BTreeMap;
use std::ffi::c_int;

use ottla_client::properties::{self, Kind, Property, Scope};
use ottla_client::{Config, Error};
use zeroize::Zeroizing;

use crate::conf::conf_handles::DefaultTopicHandle;
use crate::conf::conf_interceptors::ConfInterceptors;
use crate::conf::topic_conf::rd_kafka_topic_conf_t;

pub use callbacks::*;
pub use certificates::rd_kafka_conf_set_ssl_cert;
pub(crate) use conf_handles::{ClientConf, TakenConf};
pub use functions::*;
pub(crate) use property_names::{GLOBAL as GLOBAL_NAMES, TOPIC as TOPIC_NAMES};

/// A configuration; `rd_kafka_new` takes it over.
#[derive(Default)]
pub struct rd_kafka_conf_t {
    config: Option<Config>,
    /// Properties that were set by name, as written; only C reads secrets.
    given: Given,
    /// Undocumented properties of librdkafka.
    hidden: BTreeMap<&'static str, String>,
    /// `plugin.library.paths`, as it was written.
    plugins: String,
    /// `true` if `ssl.ca.pem` was set by `rd_kafka_conf_set_ssl_cert`.
    has_ca_from_memory: bool,
    callbacks: Callbacks,
    topic: Option<Box<rd_kafka_topic_conf_t>>,
    topic_handle: Option<DefaultTopicHandle>,
    interceptors: ConfInterceptors,
}

/// The property of the certificates to trust, as text.
const CA_PEM: &str = "ssl.ca.pem";

pub(crate) type Given = BTreeMap<&'static str, Zeroizing<String>>;

/// The reasons why a property was not set.
#[derive(Debug)]
pub enum NotSet {
    /// No property has that name.
    Unknown(String),
    /// The property does not accept that value.
    Invalid(String),
}

impl rd_kafka_conf_t {
    /// librdkafka's defaults.
    pub fn new() -> Box<Self> {
        Box::new(Self { config: Some(Config::librdkafka()), ..Self::default() })
    }

    /// Returns the configuration of the engine. It contains topic properties as the defaults of all topics.
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

    /// Returns the configuration of topics without their own.
    pub fn default_topic(&self) -> Option<&rd_kafka_topic_conf_t> {
        self.topic.as_deref()
    }

    /// The registered interceptors.
    pub fn interceptors(&self) -> &ConfInterceptors {
        &self.interceptors
    }

    /// `consume.callback.max.messages`: the maximum number of messages in one call of `rd_kafka_consume_callback`; 0 is
    /// no limit.
    pub fn consume_callback_max(&self) -> usize {
        let text = self.get("consume.callback.max.messages");
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// `test.mock.num.brokers`: the number of mock brokers that the client starts.
    pub fn mock_brokers(&self) -> usize {
        self.hidden.get("test.mock.num.brokers").and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// `test.mock.broker.rtt`: the delay of their responses in milliseconds.
    pub fn mock_rtt_ms(&self) -> u64 {
        self.hidden.get("test.mock.broker.rtt").and_then(|ms| ms.parse().ok()).unwrap_or(0)
    }

    /// Returns `true` if `rd_kafka_conf_set_ssl_cert` has set the certificates to trust.
    pub(crate) fn has_ca_from_memory(&self) -> bool {
        self.has_ca_from_memory
    }

    /// Sets a property by name. `None` is C's NULL, which resets a string to its default.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), NotSet> {
        if let Some(hidden) = property_names::HIDDEN.iter().find(|hidden| hidden.name == name) {
            let value = hidden.check(value.unwrap_or_default()).map_err(NotSet::Invalid)?;
            if name == "enable_sasl_queue" {
                self.callbacks.sasl_queue = value == "true";
            }
            self.hidden.insert(hidden.name, value);
            return Ok(());
        }
        if name == "enabled_events" {
            let given = value.unwrap_or_default();
            let mask = property_names::number(name, given, 0, c_int::MAX.into()).map_err(NotSet::Invalid)?;
            self.callbacks.events = c_int::try_from(mask).unwrap_or(c_int::MAX);
            return Ok(());
        }
        let Some(property) = properties::find_in(Scope::Global, name) else {
            return self.topic_mut().set(name, value);
        };
        if property_names::UNCHECKED_CHOICES.contains(&property.name) {
            let text = value.unwrap_or_default().trim_start();
            let text = if text.is_empty() { property.default_librdkafka } else { text };
            self.given.insert(property.name, Zeroizing::new(text.to_owned()));
            return Ok(());
        }
        let text = match (property.kind, property.name) {
            (Kind::Flags(words), "debug") if value.is_some_and(|value| !value.trim().is_empty()) => {
                let current = self.get(name).unwrap_or_default();
                changed_flags(property, words, &current, value.unwrap_or_default())?
            }
            _ => text_for(property, value)?,
        };
        let set = self.config_mut().set(name, &text);
        set.map_err(|error| refusal_texts::refused(property, &text, error))?;
        self.has_ca_from_memory &= property.name != CA_PEM;
        self.given.insert(property.name, Zeroizing::new(text));
        Ok(())
    }

    /// Returns the value of a property for C; `None` for an unknown property or one without a value.
    pub fn get(&self, name: &str) -> Option<String> {
        if let Some(hidden) = property_names::HIDDEN.iter().find(|hidden| hidden.name == name) {
            let value = self.hidden.get(name).cloned().unwrap_or_else(|| hidden.default.to_owned());
            return (!value.is_empty()).then_some(value);
        }
        if name == "enabled_events" {
            return Some(self.callbacks.events.to_string());
        }
        if name == HANDLE_PRODUCE_RESPONSE {
            return pointer(self.callbacks.address(name));
        }
        if name == "plugin.library.paths" {
            return Some(self.plugins.clone()).filter(|paths| !paths.is_empty());
        }
        let Some(property) = properties::find_in(Scope::Global, name) else {
            // Without a set topic property there is no topic configuration to query.
            return self.topic.as_ref()?.get(name);
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

    /// Returns `true` if the application has set the property of clients.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        properties::find_in(Scope::Global, name)
            .is_some_and(|property| self.given.contains_key(property.name))
    }

    /// Returns every property with a value, by librdkafka's names and in its order.
    pub fn dump(&self) -> Vec<(&'static str, String)> {
        property_names::GLOBAL.iter().filter_map(|name| Some((*name, self.get(name)?))).collect()
    }

    /// Returns a copy without interceptors, and without the properties whose names begin with one of `filter`.
    pub fn dup(&self, filter: &[&str]) -> Box<Self> {
        let passes = |name: &str| !filter.iter().any(|prefix| name.starts_with(prefix));
        let mut copy = Self::new();
        if filter.is_empty() {
            copy.config.clone_from(&self.config);
            copy.given.clone_from(&self.given);
        } else {
            for (name, value) in self.given.iter().filter(|(name, _)| passes(name)) {
                // The value was valid before, and properties are checked against each other when the client is created.
                let _ = copy.set(name, Some(value));
            }
        }
        copy.hidden =
            self.hidden.iter().filter(|(name, _)| passes(name)).map(|(k, v)| (*k, v.clone())).collect();
        copy.has_ca_from_memory = self.has_ca_from_memory && passes(CA_PEM);
        copy.callbacks = self.callbacks.without(|name| !passes(name));
        copy.topic = self.topic.as_ref().map(|topic| topic.dup(&passes));
        copy
    }

    pub(crate) fn interceptors_mut(&mut self) -> &mut ConfInterceptors {
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

/// Java's properties that the original refuses as invalid values: programs that ignore unknown names notice them. The
/// guides explain the properties of librdkafka, which are the same here.
const JAVA_ONLY: &[(&str, &str)] = &[
    ("sasl.jaas.config", "https://github.com/confluentinc/librdkafka/wiki/Using-SASL-with-librdkafka"),
    ("ssl.truststore.location", "https://github.com/confluentinc/librdkafka/wiki/Using-SSL-with-librdkafka"),
];

impl NotSet {
    /// Returns the error for a name that is in no table.
    pub(crate) fn unknown(name: &str, hint: &Error) -> Self {
        if let Some((_, guide)) = JAVA_ONLY.iter().find(|(java, _)| *java == name) {
            return Self::Invalid(format!("{hint} (guide: {guide})"));
        }
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

/// Parses C's `value` for this property; strings can be unset, other kinds cannot.
pub(crate) fn text_for(property: &Property, value: Option<&str>) -> Result<String, NotSet> {
    let value = value.unwrap_or_default();
    match property.kind {
        Kind::Pointer => Err(refusal_texts::pointer_as_text(property)),
        Kind::Text | Kind::List if value.is_empty() => Ok(property.default_librdkafka.to_owned()),
        Kind::Text | Kind::List => Ok(value.to_owned()),
        Kind::Flags(_) if !value.trim().is_empty() => Ok(value.to_ascii_lowercase()),
        _ if value.is_empty() => Err(refusal_texts::empty(property)),
        Kind::Int(..) => Ok(whole(value)),
        // `acks` is a number, and one value has a name.
        Kind::Choice(words) if words.contains(&"-1") => Ok(whole(value)),
        Kind::Float(..) => Ok(fraction(value)),
        Kind::Bool | Kind::Choice(_) | Kind::Flags(_) => Ok(value.to_owned()),
    }
}

/// Returns the flags of `current` after the changes in `value`: each flag is added, and with a minus sign removed.
fn changed_flags(property: &Property, words: &[&str], current: &str, value: &str) -> Result<String, NotSet> {
    let mut flags: Vec<&str> = current.split(',').collect();
    for change in value.split(',').map(str::trim).filter(|change| !change.is_empty()) {
        let (is_removed, given) = match change.strip_prefix('-') {
            Some(flag) => (true, flag),
            None => (false, change.strip_prefix('+').unwrap_or(change)),
        };
        let mut known = std::iter::once(&"all").chain(words);
        let Some(&flag) = known.find(|word| word.eq_ignore_ascii_case(given)) else {
            return Err(refusal_texts::wrong_word(property, given));
        };
        if flag == "all" {
            flags = if is_removed { Vec::new() } else { words.to_vec() };
        } else {
            // Without one of them they are not all.
            flags.retain(|known| *known != flag && (!is_removed || *known != "all"));
            flags.extend((!is_removed).then_some(flag));
        }
    }
    let known = words.iter().filter(|word| flags.contains(word));
    Ok(known.copied().collect::<Vec<_>>().join(","))
}

/// Returns the value for C, including secrets; `None` for a string that is not set.
pub(crate) fn shown(
    property: &Property,
    given: &Given,
    get: impl FnOnce() -> Result<String, Error>,
) -> Option<String> {
    let value = match given.get(property.name) {
        Some(given) if property.secret => given.to_string(),
        Some(given) if property_names::UNCHECKED_CHOICES.contains(&property.name) => given.to_string(),
        Some(given) if matches!(property.kind, Kind::Text | Kind::List) => given.trim().to_owned(),
        _ => canonical(property, get().ok()?),
    };
    let unset = value.is_empty()
        && matches!(property.kind, Kind::Text | Kind::List)
        && property.name != "client.rack";
    (!unset).then_some(value)
}

/// Formats a value like librdkafka: booleans as words, and flags in the order of their table. `all` adds every flag.
fn canonical(property: &Property, value: String) -> String {
    let words = match property.kind {
        Kind::Flags(words) => words,
        Kind::Bool => return ["1", "t", "true"].contains(&value.to_lowercase().as_str()).to_string(),
        _ => return value,
    };
    let given: Vec<&str> = value.split(',').map(str::trim).collect();
    let all = given.contains(&"all");
    words.iter().filter(|word| all || given.contains(word)).copied().collect::<Vec<_>>().join(",")
}

/// Formats a pointer like C's printf. Returns `None` for NULL.
pub(crate) fn pointer(address: usize) -> Option<String> {
    (address != 0).then(|| format!("{address:#x}"))
}

/// Returns the whole number at the start of a text, like C's `strtol`: base 16 after 0x, base 8 after 0. The rest is
/// ignored, because bindings write `10000.0`. Returns the text if it does not start with a number.
fn whole(text: &str) -> String {
    let text = text.trim();
    let (sign, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (if text.starts_with('-') { "-" } else { "" }, digits),
        None => ("", text),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (base, digits) = match hexadecimal {
        Some(digits) => (16, digits),
        None if digits.starts_with('0') => (8, digits),
        None => (10, digits),
    };
    let end = digits.find(|c: char| !c.is_digit(base)).unwrap_or(digits.len());
    let number = i64::from_str_radix(&format!("{sign}{}", &digits[..end]), base);
    number.map_or_else(|_| text.to_owned(), |number| number.to_string())
}

/// Returns the number at the start of a text, like C's `strtod`.
fn fraction(text: &str) -> String {
    let text = text.trim();
    if text.trim_start_matches(['-', '+']).to_ascii_lowercase().starts_with("0x") {
        return whole(text);
    }
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8()).rev();
    let number = ends.map(|end| &text[..end]).find(|head| head.parse::<f64>().is_ok_and(f64::is_finite));
    number.unwrap_or(text).to_owned()
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
        let Err(NotSet::Invalid(text)) = conf.set("max.poll.interval.ms", Some("-1")) else {
            panic!("it is out of range");
        };
        let expected =
            "Configuration property \"max.poll.interval.ms\" value -1 is outside allowed range 1..86400000\n";
        assert_eq!(text, expected);
        let Err(NotSet::Invalid(text)) = conf.set("ssl.truststore.location", Some("trust.jks")) else {
            panic!("a property of Java is no unknown name");
        };
        assert!(text.contains("ssl.ca.location") && text.contains("https://"), "{text}");
        let Err(NotSet::Unknown(text)) = conf.set("group_id", Some("g")) else {
            panic!("there is no group_id")
        };
        assert!(text.starts_with("No such configuration property: \"group_id\""), "{text}");
        assert!(text.contains("group.id"), "{text}");
    }

    /// librdkafka's test 0004.
    #[test]
    fn contexts_of_debug_are_added_and_removed() {
        let mut conf = rd_kafka_conf_t::new();
        for (value, expected) in [
            ("generic,broker,queue,cgrp", Some("generic,broker,queue,cgrp")),
            ("-broker,+queue,topic", Some("generic,topic,queue,cgrp")),
            ("-all,security,-fetch,+metadata", Some("metadata,security")),
            ("-all", None),
        ] {
            conf.set("debug", Some(value)).expect("known contexts");
            assert_eq!(conf.get("debug").filter(|flags| !flags.is_empty()).as_deref(), expected, "{value}");
        }
        let Err(NotSet::Invalid(text)) = conf.set("debug", Some("cgrp,invalid-value,topic")) else {
            panic!("there is no such context")
        };
        assert!(text.contains("invalid-value") && !text.contains("cgrp"), "{text}");
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
        assert_eq!(copy.get("partitioner").as_deref(), Some("consistent_random"));
        assert_eq!(rd_kafka_conf_t::new().get("partitioner"), None);
        assert_eq!(copy.get("request.required.acks"), conf.get("acks"));
    }
}
