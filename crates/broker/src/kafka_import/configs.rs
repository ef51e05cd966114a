//! The settings of imported topics: their own, and those that Apache Kafka's brokers had by `kafka-configs`.

use std::collections::{BTreeMap, BTreeSet};

use super::metadata_log::Image;
use crate::config::{BrokerConfig, TopicConfig, topic_setting_name};
use crate::internal_topics::InternalTopic;

/// The settings that decide about the deletion of records: a topic is not imported without one of them.
const DELETING: [&str; 3] = ["cleanup.policy", "retention.bytes", "retention.ms"];
const REMOTE_STORAGE: &str = "remote.storage.enable";
/// Imported topics have one replica. Apache Kafka sets the default itself, to the value of `server.properties` (KIP-966).
const MIN_INSYNC: &str = "min.insync.replicas";

/// The topic settings that a node's brokers-wide and own dynamic settings are the defaults of.
#[derive(Debug, Default)]
pub(super) struct Defaults {
    config: TopicConfig,
    /// The reasons why settings of [`DELETING`] cannot be kept, by their names.
    lost: BTreeMap<&'static str, String>,
}

impl Defaults {
    /// Reads the dynamic settings of all brokers and of this node, which count first. Names the others in a note.
    pub(super) fn of(image: &Image, node: i32, notes: &mut Vec<String>) -> Self {
        let (mut broker, mut lost) = (BrokerConfig::default(), BTreeMap::new());
        let mut others = BTreeSet::new();
        for name in [String::new(), node.to_string()] {
            for (key, value) in image.broker_configs.get(&name).into_iter().flatten() {
                match topic_setting_name(key) {
                    Some(MIN_INSYNC) if value == "1" => {}
                    None | Some(MIN_INSYNC) => {
                        others.insert(key.as_str());
                    }
                    Some(setting) => match broker.set(key, value) {
                        Ok(()) => {
                            lost.remove(setting);
                        }
                        Err(reason) if DELETING.contains(&setting) => {
                            lost.insert(setting, format!("the dynamic broker setting {reason}"));
                        }
                        Err(reason) => {
                            notes.push(format!("a dynamic broker setting is left out: {reason}"));
                        }
                    },
                }
            }
        }
        if !others.is_empty() {
            // Some values are secrets.
            let names = others.into_iter().collect::<Vec<_>>().join(", ");
            notes.push(format!(
                "dynamic settings of brokers are left out: {names}; set them with `--config` or `kafka-configs`"
            ));
        }
        Self { config: broker.topic_defaults, lost }
    }

    /// The settings of a topic. Those of the coordinators' topics are this broker's. Adds the reasons against the import.
    pub(super) fn config_of(
        &self,
        image: &Image,
        name: &str,
        notes: &mut Vec<String>,
        reasons: &mut Vec<String>,
    ) -> TopicConfig {
        if let Some(internal) = InternalTopic::of_name(name) {
            return internal.settings(&BrokerConfig::default());
        }
        let mut config = TopicConfig::default();
        let own = image.configs.get(name);
        for (key, value) in own.into_iter().flatten() {
            if key == REMOTE_STORAGE && is_true(value) {
                notes.push(format!("topic `{name}`: {key} is left out: this broker has no tiered storage"));
                continue;
            }
            match config.set(key, value) {
                Ok(()) => {}
                Err(reason) if DELETING.contains(&key.as_str()) => {
                    reasons.push(format!("topic `{name}`: {reason}"));
                }
                Err(reason) => notes.push(format!("topic `{name}`: a setting is left out: {reason}")),
            }
        }
        let has_own = |key: &str| own.is_some_and(|own| own.contains_key(key));
        let lost = self.lost.iter().filter(|(key, _)| !has_own(key));
        reasons.extend(lost.map(|(key, reason)| {
            format!("topic `{name}`: {reason}; set {key} of the topic in Apache Kafka, and import then")
        }));
        for (key, value) in self.config.values().iter().filter(|(key, _)| !has_own(key)) {
            if let Err(reason) = config.set(key, value) {
                reasons.push(format!("topic `{name}`: {reason}"));
            }
        }
        if let Err(reason) = config.check_together(&TopicConfig::default()) {
            reasons.push(format!("topic `{name}`: {reason}"));
        }
        config
    }
}

/// Returns `true` if a topic has records in remote storage, apart from those of its directories.
pub(super) fn is_tiered(image: &Image, name: &str) -> bool {
    image.configs.get(name).and_then(|own| own.get(REMOTE_STORAGE)).is_some_and(|value| is_true(value))
}

fn is_true(value: &str) -> bool {
    value.trim().eq_ignore_ascii_case("true")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(brokers: &[(&str, &str, &str)], topic: &[(&str, &str)]) -> Image {
        let mut image = Image::default();
        for (node, key, value) in brokers {
            let values = image.broker_configs.entry((*node).to_owned()).or_default();
            values.insert((*key).to_owned(), (*value).to_owned());
        }
        let own = topic.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        image.configs.insert("orders".to_owned(), own.collect());
        image
    }

    /// The settings of the topic, the notes and the reasons against the import.
    fn read(brokers: &[(&str, &str, &str)], topic: &[(&str, &str)]) -> (String, String, String) {
        let image = image(brokers, topic);
        let (mut notes, mut reasons) = (Vec::new(), Vec::new());
        let defaults = Defaults::of(&image, 1, &mut notes);
        let config = defaults.config_of(&image, "orders", &mut notes, &mut reasons);
        let values = config.values().iter().map(|(key, value)| format!("{key}={value}"));
        (values.collect::<Vec<_>>().join(" "), notes.join("; "), reasons.join("; "))
    }

    #[test]
    fn a_topic_keeps_the_dynamic_defaults_that_it_does_not_override() {
        let brokers = [
            ("", "log.retention.ms", "-1"),
            ("", "log.segment.bytes", "1048576"),
            ("1", "log.segment.bytes", "2097152"),
            ("2", "log.retention.bytes", "7"),
        ];
        let (config, notes, reasons) = read(&brokers, &[("cleanup.policy", "compact")]);
        assert_eq!(config, "cleanup.policy=compact retention.ms=-1 segment.bytes=2097152");
        assert_eq!((notes.as_str(), reasons.as_str()), ("", ""));
        let (config, ..) = read(&brokers, &[("retention.ms", "5")]);
        assert_eq!(config, "retention.ms=5 segment.bytes=2097152");
    }

    #[test]
    fn other_dynamic_settings_are_named_without_their_values() {
        let brokers = [
            ("", "background.threads", "9"),
            ("", "min.insync.replicas", "1"),
            ("1", "ssl.keystore.password", "secret"),
        ];
        let (config, notes, reasons) = read(&brokers, &[]);
        assert_eq!((config.as_str(), reasons.as_str()), ("", ""));
        assert!(notes.contains("left out: background.threads, ssl.keystore.password;"), "{notes}");
        assert!(!notes.contains("secret"), "{notes}");
        let (config, notes, _) = read(&[("", "min.insync.replicas", "2")], &[]);
        assert!(config.is_empty() && notes.contains("min.insync.replicas"), "{notes}");
    }

    #[test]
    fn a_topic_is_refused_without_a_setting_that_decides_about_deletions() {
        let (_, notes, reasons) = read(&[("", "log.cleanup.policy", "archive")], &[]);
        assert!(
            reasons.contains("log.cleanup.policy") || reasons.contains("cleanup.policy=`archive`"),
            "{reasons}"
        );
        assert_eq!(notes, "");
        let (_, _, reasons) = read(&[("", "log.cleanup.policy", "archive")], &[("cleanup.policy", "delete")]);
        assert_eq!(reasons, "");
        let (_, _, reasons) = read(&[], &[("retention.ms", "long")]);
        assert!(reasons.contains("topic `orders`: retention.ms=`long`"), "{reasons}");
        let lags = [("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "5")];
        assert!(read(&[], &lags).2.contains("is above max.compaction.lag.ms=5"));
    }
}
