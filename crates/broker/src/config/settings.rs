//! The table of settings: Apache Kafka's names, types, defaults and allowed values, and a few settings of this broker.
//!
//! The facts are in `kafka-4.3.tsv`; a test compares them with the classes of Apache Kafka. `kafka-4.4.tsv` has the settings of
//! a later release, and `kafka-4.3-internal.tsv` those that Kafka does not document: both are described only where they are set.

mod effects;

use std::sync::LazyLock;

use effects::{BROKER_EFFECTS, CLIENT_METRICS_EFFECTS, GROUP_EFFECTS, OWN, OWN_DEFAULTS};

use super::BrokerConfig;
use super::dead_letter_queues::{TOPIC_NAME, check_topic_name};
use super::metric_subscriptions::{check_interval, check_match};
use super::share_partitions::check_reset;
use super::topic_config::EFFECTS;

/// Names are similar up to this number of different characters.
const TYPING_ERRORS_MAX: usize = 3;

/// The longest value of a setting of a topic, a group or a subscription: there can be many of these.
const VALUE_BYTES_MAX: usize = 4096;

/// The longest number, and the longest of `true` and `false`. Values are kept as they are written: a number could have very many zeros.
const NUMBER_BYTES_MAX: usize = 32;
/// The longest list of the words that a setting allows.
const WORDS_BYTES_MAX: usize = 255;

/// Refuses a value that is too long.
///
/// # Errors
/// A sentence that names the setting and the lengths.
pub(crate) fn check_length(name: &str, value: &str) -> Result<(), String> {
    check_length_below(name, value, VALUE_BYTES_MAX)
}

/// The same for a number.
pub(super) fn check_length_of_number(name: &str, value: &str) -> Result<(), String> {
    check_length_below(name, value, NUMBER_BYTES_MAX)
}

fn check_length_below(name: &str, value: &str, max: usize) -> Result<(), String> {
    if value.len() <= max {
        return Ok(());
    }
    Err(format!("{name}: the value has {} bytes, at most {max} are allowed", value.len()))
}

/// The kinds of resources that have settings.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// Topics.
    Topic,
    /// Brokers.
    Broker,
    /// Groups (KIP-848, KIP-932).
    Group,
    /// Subscriptions to the metrics of clients (KIP-714).
    ClientMetrics,
}

/// The type of a setting, with its number in DescribeConfigs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(i8)]
#[allow(missing_docs, reason = "the names are Kafka's")]
pub enum Kind {
    Boolean = 1,
    String = 2,
    Int = 3,
    Short = 4,
    Long = 5,
    Double = 6,
    List = 7,
    Class = 8,
    Password = 9,
}

/// The way in which a broker setting changes while the broker runs, in Kafka.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Not at all.
    ReadOnly,
    /// For one broker only.
    PerBroker,
    /// For one broker or for all of them.
    ClusterWide,
}

/// The values that a setting allows.
#[derive(Clone, Debug, PartialEq)]
enum Allowed {
    Any,
    NonEmpty,
    Numbers { also: Option<f64>, min: f64, max: f64 },
    Words { words: Vec<&'static str>, any_case: bool },
}

/// One setting.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Kafka's name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// The default; `None` is Kafka's null.
    pub default: Option<&'static str>,
    /// The effect on this broker; `None` if the setting is stored and described only.
    pub effect: Option<&'static str>,
    /// The way in which a broker setting changes.
    pub mode: Mode,
    /// The broker settings that are the default of a topic setting, the one that counts first.
    pub synonyms: Vec<&'static str>,
    /// The release of Apache Kafka that has the setting first, if that is after 4.3.
    pub since: Option<&'static str>,
    /// Apache Kafka does not document the setting.
    pub is_internal: bool,
    allowed: Allowed,
}

impl Setting {
    /// Checks a value.
    ///
    /// # Errors
    /// A sentence that names the setting, the value and the allowed values.
    pub fn check(&self, value: &str) -> Result<(), String> {
        check_length_below(self.name, value, self.bytes_max())?;
        let (name, value) = (self.name, value.trim());
        let bad = |what: &str| Err(format!("{name}=`{value}`: {what}"));
        if name == "share.auto.offset.reset" {
            return check_reset(value);
        }
        match name {
            "interval.ms" => return check_interval(value),
            "match" => return check_match(value),
            TOPIC_NAME => return check_topic_name(value),
            "leader.replication.throttled.replicas" | "follower.replication.throttled.replicas"
                if !is_list_of_replicas(value) =>
            {
                return bad("use * or a list of PARTITION:BROKER");
            }
            _ => {}
        }
        match self.kind {
            Kind::Boolean if !matches!(value.to_ascii_lowercase().as_str(), "true" | "false") => {
                return bad("neither true nor false");
            }
            Kind::Int if value.parse::<i32>().is_err() => return self.not_a_number(value, "whole"),
            Kind::Short if value.parse::<i16>().is_err() => return self.not_a_number(value, "whole"),
            Kind::Long if value.parse::<i64>().is_err() => return self.not_a_number(value, "whole"),
            Kind::Double if value.parse::<f64>().is_err() => return self.not_a_number(value, "decimal"),
            _ => {}
        }
        match &self.allowed {
            Allowed::NonEmpty if value.is_empty() => bad("it must not be empty"),
            Allowed::Any | Allowed::NonEmpty => Ok(()),
            Allowed::Numbers { also, min, max } => {
                let number = value.parse::<f64>().unwrap_or(f64::NAN);
                if (*min..=*max).contains(&number) || *also == Some(number) {
                    return Ok(());
                }
                self.not_a_number(value, if self.kind == Kind::Double { "decimal" } else { "whole" })
            }
            Allowed::Words { words, any_case } => {
                let is_allowed = |item: &str| {
                    words.iter().any(|word| word == &item || *any_case && word.eq_ignore_ascii_case(item))
                };
                let mut items = match self.kind {
                    Kind::List => value.split(',').map(str::trim).collect::<Vec<_>>(),
                    _ => vec![value],
                };
                items.retain(|item| !(self.kind == Kind::List && item.is_empty()));
                if items.iter().all(|item| is_allowed(item)) && !(items.is_empty() && self.kind != Kind::List)
                {
                    return Ok(());
                }
                bad(&format!("use {}", words.join(", ")))
            }
        }
    }

    /// The longest value. Names, patterns and other lists have limits of their own.
    fn bytes_max(&self) -> usize {
        let has_words =
            matches!(self.allowed, Allowed::Words { .. }) || self.name == "share.auto.offset.reset";
        match self.kind {
            Kind::Boolean | Kind::Int | Kind::Short | Kind::Long | Kind::Double => NUMBER_BYTES_MAX,
            Kind::String | Kind::List | Kind::Class | Kind::Password if has_words => WORDS_BYTES_MAX,
            Kind::String | Kind::List | Kind::Class | Kind::Password => usize::MAX,
        }
    }

    fn not_a_number(&self, value: &str, what: &str) -> Result<(), String> {
        let what = if what == "whole" { "whole number" } else { "number" };
        Err(format!("{}=`{value}`: not a {what}{}", self.name, self.range()))
    }

    /// The range of the numbers. Its end is that of the type if the setting has none: a larger number is a whole number, too.
    fn range(&self) -> String {
        let of_type: Option<(i64, i64)> = match self.kind {
            Kind::Int => Some((i32::MIN.into(), i32::MAX.into())),
            Kind::Short => Some((i16::MIN.into(), i16::MAX.into())),
            Kind::Long => Some((i64::MIN, i64::MAX)),
            Kind::Boolean | Kind::String | Kind::Double | Kind::List | Kind::Class | Kind::Password => None,
        };
        match (&self.allowed, of_type) {
            (Allowed::Numbers { also, min, max }, _) if max.is_finite() || of_type.is_some() => {
                let most = of_type.map(|(_, most)| most).filter(|most| *max >= *most as f64);
                let max = most.map_or_else(|| max.to_string(), |most| most.to_string());
                let also = also.map(|also| format!(", or {also}")).unwrap_or_default();
                format!(" from {min} to {max}{also}")
            }
            (Allowed::Numbers { min, .. }, _) => format!(" of at least {min}"),
            (_, Some((least, most))) => format!(" from {least} to {most}"),
            (_, None) => String::new(),
        }
    }

    /// The documentation in DescribeConfigs.
    pub fn text(&self) -> &'static str {
        self.effect.unwrap_or("A setting of Apache Kafka that has no effect on this broker.")
    }

    /// Returns whether a description of all settings has this one. An internal setting, or one of a later release than 4.3, is
    /// described once it is set, and to clients that ask for it by name.
    pub(crate) const fn is_described(&self, is_set: bool) -> bool {
        self.since.is_none() && !self.is_internal || is_set
    }

    /// Returns whether clients never see the value.
    pub fn is_sensitive(&self) -> bool {
        self.kind == Kind::Password
    }
}

/// Returns whether a value is `*`, or a list of replicas as `PARTITION:BROKER`, which may be empty.
fn is_list_of_replicas(value: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_replica = |item: &str| item.split_once(':').is_some_and(|(of, at)| is_number(of) && is_number(at));
    matches!(value, "" | "*") || value.split(',').all(|item| is_replica(item.trim()))
}

/// All settings of a kind of resource, sorted by name.
pub fn all(scope: Scope) -> &'static [Setting] {
    static TABLES: LazyLock<[Vec<Setting>; 4]> = LazyLock::new(|| {
        let mut tables = [Scope::Topic, Scope::Broker, Scope::Group, Scope::ClientMetrics].map(parse);
        tables[1].extend(OWN.iter().map(own));
        for table in &mut tables {
            table.sort_by_key(|setting| setting.name);
        }
        tables
    });
    &TABLES[match scope {
        Scope::Topic => 0,
        Scope::Broker => 1,
        Scope::Group => 2,
        Scope::ClientMetrics => 3,
    }]
}

/// The setting of that name.
pub fn find(scope: Scope, name: &str) -> Option<&'static Setting> {
    let table = all(scope);
    table.binary_search_by(|setting| setting.name.cmp(name)).ok().map(|at| &table[at])
}

/// The topic setting whose default a broker setting is.
pub(super) fn topic_setting_of(broker_setting: &str) -> Option<&'static Setting> {
    all(Scope::Topic).iter().find(|setting| setting.synonyms.contains(&broker_setting))
}

/// The name of the topic setting whose default a broker setting is.
pub(crate) fn topic_setting_name(broker_setting: &str) -> Option<&'static str> {
    topic_setting_of(broker_setting).map(|setting| setting.name)
}

/// The most similar name, if it is likely to be meant.
pub(super) fn nearest(scope: Scope, name: &str) -> Option<&'static str> {
    let near = all(scope).iter().map(|setting| (distance(name, setting.name), setting.name));
    near.filter(|(distance, _)| *distance <= TYPING_ERRORS_MAX).min().map(|(_, name)| name)
}

/// The number of characters to insert, remove or replace.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, from) in left.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (to, other) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *other);
            diagonal = row[to + 1];
            row[to + 1] = replaced.min(diagonal + 1).min(row[to] + 1);
        }
    }
    row[right.len()]
}

fn own(row: &(&'static str, Kind, &'static str, &'static str)) -> Setting {
    let (name, kind, default, effect) = *row;
    Setting {
        name,
        kind,
        default: Some(default),
        effect: Some(effect),
        mode: Mode::ReadOnly,
        synonyms: Vec::new(),
        since: None,
        is_internal: false,
        allowed: match kind {
            Kind::Long => Allowed::Numbers { also: None, min: 0.0, max: f64::INFINITY },
            _ => Allowed::Any,
        },
    }
}

/// A table of settings.
#[derive(Clone, Copy)]
struct File {
    /// The release, if that is after 4.3.
    since: Option<&'static str>,
    is_internal: bool,
    text: &'static str,
}

const FILES: [File; 3] = [
    File { since: None, is_internal: false, text: include_str!("kafka-4.3.tsv") },
    File { since: None, is_internal: true, text: include_str!("kafka-4.3-internal.tsv") },
    File { since: Some("4.4"), is_internal: false, text: include_str!("kafka-4.4.tsv") },
];

fn parse(scope: Scope) -> Vec<Setting> {
    let section = match scope {
        Scope::Topic => "[topic]",
        Scope::Broker => "[broker]",
        Scope::Group => "[group]",
        Scope::ClientMetrics => "[client]",
    };
    let of_file = |file: File| {
        let rows = file.text.lines().skip_while(|line| *line != section).skip(1);
        rows.take_while(|line| !line.starts_with('[')).map(move |line| row(scope, file, line))
    };
    FILES.into_iter().flat_map(of_file).collect()
}

fn row(scope: Scope, file: File, line: &'static str) -> Setting {
    let columns: Vec<&'static str> = line.split('\t').collect();
    let [name, kind, default, allowed, last] = columns[..] else {
        unreachable!("every row of the tables has five columns: `{line}`");
    };
    let kind = match kind {
        "boolean" => Kind::Boolean,
        "string" => Kind::String,
        "int" => Kind::Int,
        "short" => Kind::Short,
        "long" => Kind::Long,
        "double" => Kind::Double,
        "list" => Kind::List,
        "class" => Kind::Class,
        "password" => Kind::Password,
        _ => unreachable!("the tables have Kafka's types only: `{line}`"),
    };
    let default = match default {
        "<null>" => None,
        "<empty>" => Some(""),
        default => Some(default),
    };
    let mode = match last {
        "cluster-wide" => Mode::ClusterWide,
        "per-broker" => Mode::PerBroker,
        _ => Mode::ReadOnly,
    };
    let is_topic = scope == Scope::Topic;
    let effects = match scope {
        Scope::Topic => EFFECTS,
        Scope::Broker => BROKER_EFFECTS,
        Scope::Group => GROUP_EFFECTS,
        Scope::ClientMetrics => CLIENT_METRICS_EFFECTS,
    };
    let own_default = OWN_DEFAULTS.iter().find(|(own, _)| scope == Scope::Broker && *own == name);
    Setting {
        name,
        kind,
        default: own_default.map_or(default, |(_, default)| Some(default)),
        effect: effects.iter().find(|(with, _)| *with == name).map(|(_, effect)| *effect),
        mode,
        synonyms: if is_topic && last != "-" { last.split(',').collect() } else { Vec::new() },
        since: file.since,
        is_internal: file.is_internal,
        allowed: allowed_of(allowed),
    }
}

fn allowed_of(text: &'static str) -> Allowed {
    let words =
        |words: &'static str, any_case| Allowed::Words { words: words.split(',').collect(), any_case };
    if let Some(list) = text.strip_prefix("one:") {
        return words(list, false);
    }
    if let Some(list) = text.strip_prefix("any-case:") {
        return words(list, true);
    }
    match text {
        "-" => Allowed::Any,
        "non-empty" => Allowed::NonEmpty,
        _ => {
            let (also, range) = match text.split_once('|') {
                Some((also, range)) => (also.parse().ok(), range),
                None => (None, text),
            };
            let (min, max) = range.split_once("..").unwrap_or((range, ""));
            let number = |text: &str, missing: f64| text.parse().unwrap_or(missing);
            Allowed::Numbers { also, min: number(min, f64::NEG_INFINITY), max: number(max, f64::INFINITY) }
        }
    }
}

/// The effect of a broker setting as text.
pub fn broker_effect(setting: &Setting) -> &'static str {
    if setting.effect.is_none() && BrokerConfig::has_effect(setting.name) {
        return topic_setting_of(setting.name)
            .map_or("As in Apache Kafka.", |_| "The default of the topic setting of the same meaning.");
    }
    setting.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_allowed_and_is_the_one_that_applies() {
        for scope in [Scope::Topic, Scope::Broker, Scope::Group, Scope::ClientMetrics] {
            for setting in all(scope) {
                let Some(default) = setting.default else { continue };
                // Some of Kafka's defaults are empty where a value must not be: the role of the node decides.
                if setting.allowed != Allowed::NonEmpty {
                    setting.check(default).unwrap_or_else(|error| panic!("{error}"));
                }
                let is_own = scope == Scope::Broker && topic_setting_of(setting.name).is_none();
                let of_process = BROKER_EFFECTS.iter().any(|(name, _)| *name == setting.name);
                let of_process = of_process && setting.since.is_none();
                if is_own && !of_process && BrokerConfig::has_effect(setting.name) {
                    let mut config = BrokerConfig::default();
                    assert_eq!(config.apply(setting.name, default), Ok(true), "{}", setting.name);
                    assert_eq!(
                        format!("{config:?}"),
                        format!("{:?}", BrokerConfig::default()),
                        "{}",
                        setting.name
                    );
                }
            }
        }
    }

    /// The numbers of members and connections were refused, which files of settings have from Kafka's documentation.
    #[test]
    fn the_defaults_of_kafka_are_allowed_where_others_apply() {
        for (name, _) in OWN_DEFAULTS {
            let mut rows = FILES[0].text.lines().map(|row| row.split('\t').collect::<Vec<_>>());
            let row = rows.find(|row| row[0] == *name).expect("a property of Kafka");
            assert_eq!(BrokerConfig::default().set(name, row[2]), Ok(()), "{name}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_range() {
        let check = |name: &str, value: &str| find(Scope::Topic, name).map(|setting| setting.check(value));
        let refused = |text: &str| Some(Err(text.to_owned()));
        assert_eq!(check("retention.ms", "-1"), Some(Ok(())));
        assert_eq!(
            check("retention.ms", "-2"),
            refused("retention.ms=`-2`: not a whole number from -1 to 9223372036854775807")
        );
        assert_eq!(
            check("flush.ms", "soon"),
            refused("flush.ms=`soon`: not a whole number from 0 to 9223372036854775807")
        );
        // It was `not a whole number of at least 0`.
        assert_eq!(
            check("max.message.bytes", "99999999999"),
            refused("max.message.bytes=`99999999999`: not a whole number from 0 to 2147483647")
        );
        assert_eq!(check("preallocate", "maybe"), refused("preallocate=`maybe`: neither true nor false"));
        assert_eq!(check("compression.gzip.level", "-1"), Some(Ok(())));
        assert_eq!(
            check("compression.gzip.level", "0"),
            refused("compression.gzip.level=`0`: not a whole number from 1 to 9, or -1")
        );
        assert_eq!(check("cleanup.policy", "compact, delete"), Some(Ok(())));
        assert_eq!(check("cleanup.policy", "shred"), refused("cleanup.policy=`shred`: use compact, delete"));
        assert_eq!(check("no.such.name", "1"), None);
    }

    /// The error was about the topic setting whose default the property is.
    #[test]
    fn an_error_names_the_property_that_was_set() {
        let refused =
            |name: &str, value: &str| BrokerConfig::default().set(name, value).expect_err("out of range");
        for (name, value, range) in [
            ("message.max.bytes", "99999999999", "from 0 to 2147483647"),
            ("log.retention.ms", "soon", "from -1 to 9223372036854775807"),
            ("log.retention.hours", "soon", "from -1 to 9223372036854775807"),
        ] {
            assert_eq!(refused(name, value), format!("{name}=`{value}`: not a whole number {range}"));
        }
    }

    #[test]
    fn a_similar_name_is_suggested() {
        assert_eq!(nearest(Scope::Broker, "log.retention.hour"), Some("log.retention.hours"));
        assert_eq!(nearest(Scope::Broker, "num.partition"), Some("num.partitions"));
        assert_eq!(nearest(Scope::Broker, "entirely.different"), None);
    }
}
