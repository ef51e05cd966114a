//! The settings of dead-letter queues of share groups (KIP-1191), which Apache Kafka has since 4.4: `errors.deadletterqueue.*`.

use super::boolean;

/// The group configuration that names the dead-letter topic.
pub(crate) const TOPIC_NAME: &str = "errors.deadletterqueue.topic.name";
/// The group configuration for copies of keys and values.
pub(crate) const COPIES_RECORDS: &str = "errors.deadletterqueue.copy.record.enable";
/// The prefix of the topics of coordinators.
const INTERNAL_PREFIX: &str = "__";

/// Settings of the dead-letter queues of share groups. A group without `errors.deadletterqueue.topic.name` has none.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadLetterConfig {
    /// `errors.deadletterqueue.auto.create.topics.enable`: a missing dead-letter topic is created for its first record. False by
    /// default.
    pub creates_topics: bool,
    /// `errors.deadletterqueue.topic.name.prefix`: names of dead-letter topics begin with it, so that no group makes the broker
    /// write to another topic. `dlq.` by default; an empty one allows every name.
    pub name_prefix: String,
}

impl Default for DeadLetterConfig {
    fn default() -> Self {
        Self { creates_topics: false, name_prefix: "dlq.".to_owned() }
    }
}

impl DeadLetterConfig {
    /// Applies a property. Returns `false` if none has this name.
    pub(super) fn apply(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "errors.deadletterqueue.auto.create.topics.enable" => self.creates_topics = boolean(name, value)?,
            "errors.deadletterqueue.topic.name.prefix" => value.trim().clone_into(&mut self.name_prefix),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Checks `errors.deadletterqueue.topic.name`. As in Kafka, the other rules are those of the first dead letter: they depend on
/// settings that change.
pub(crate) fn check_topic_name(value: &str) -> Result<(), String> {
    if value.starts_with(INTERNAL_PREFIX) {
        return Err(format!(
            "{TOPIC_NAME}=`{value}`: the name must not begin with `{INTERNAL_PREFIX}`, the prefix of internal topics"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_kafkas_and_internal_topics_are_refused() {
        let mut config = DeadLetterConfig::default();
        assert_eq!((config.creates_topics, &*config.name_prefix), (false, "dlq."));
        assert_eq!(config.apply("errors.deadletterqueue.topic.name.prefix", ""), Ok(true));
        assert_eq!(config.apply("errors.deadletterqueue.auto.create.topics.enable", "true"), Ok(true));
        assert!(config.creates_topics && config.name_prefix.is_empty());
        assert!(config.apply("errors.deadletterqueue.auto.create.topics.enable", "perhaps").is_err());
        assert!(check_topic_name("dlq.orders").is_ok() && check_topic_name("").is_ok());
        assert!(check_topic_name("__share_group_state").is_err());
    }
}
