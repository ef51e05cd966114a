//! The configuration of a share consumer.

use ottla_client::{Config, Error, GroupProtocol};

use crate::conf::{property_names, rd_kafka_conf_t};
use crate::ffi::RD_KAFKA_EVENT_REBALANCE;

/// Properties that a share consumer refuses: the group's configuration on the broker decides in their place, or a share group
/// has no such thing.
const NOT_APPLICABLE: &[&str] = &[
    "allow.auto.create.topics",
    "auto.commit.enable",
    "auto.offset.reset",
    "consume.callback.max.messages",
    "enable.auto.commit",
    "enable.partition.eof",
    "fetch.error.backoff.ms",
    "fetch.queue.backoff.ms",
    "group.instance.id",
    "group.protocol",
    "group.protocol.type",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "isolation.level",
    "message.copy.max.bytes",
    "partition.assignment.strategy",
    "queued.max.messages.kbytes",
    "queued.min.messages",
    "session.timeout.ms",
    "socket.max.fails",
    "topic.blacklist",
];

impl rd_kafka_conf_t {
    /// Applies what only a share consumer reads.
    ///
    /// # Errors
    /// [`Error::Config`] for a property or a function that is not applicable to share consumers, and for a choice that was stored
    /// without a check and does not exist.
    pub(crate) fn apply_to_share_consumer(&self, config: &mut Config) -> Result<(), Error> {
        let refused = |name: &str| Error::Config(format!("`{name}` is not applicable to a share consumer"));
        if let Some(name) = NOT_APPLICABLE.iter().find(|name| self.is_given_anywhere(name)) {
            return Err(refused(name));
        }
        let functions = [
            ("rebalance_cb", self.callbacks.rebalance.is_some()),
            ("consume_cb", self.callbacks.consume.is_some()),
            ("offset_commit_cb", self.callbacks.offset_commit.is_some()),
            ("RD_KAFKA_EVENT_REBALANCE", self.callbacks.events & RD_KAFKA_EVENT_REBALANCE != 0),
        ];
        if let Some((name, _)) = functions.iter().find(|(_, is_set)| *is_set) {
            return Err(refused(name));
        }
        for name in property_names::UNCHECKED_CHOICES {
            if let Some(text) = self.given.get(name) {
                config.set(name, text)?;
            }
        }
        // The checks of the classic protocol's times do not apply.
        config.group_protocol = GroupProtocol::Consumer;
        Ok(())
    }

    /// Returns `true` if the application has set the property, as one of the client or of topics.
    fn is_given_anywhere(&self, name: &str) -> bool {
        self.is_given(name) || self.topic.as_ref().is_some_and(|topic| topic.is_given(name))
    }
}

#[cfg(test)]
mod tests {
    use ottla_client::properties::{self, Scope};

    use super::*;

    fn check(properties: &[(&str, &str)]) -> Result<Config, Error> {
        let mut conf = rd_kafka_conf_t::new();
        for (name, value) in properties {
            conf.set(name, Some(value)).expect("a known property");
        }
        let mut config = conf.client_config();
        conf.apply_to_share_consumer(&mut config)?;
        Ok(config)
    }

    #[test]
    fn what_the_group_decides_is_refused_by_name() {
        for name in NOT_APPLICABLE {
            let is_known =
                [Scope::Global, Scope::Topic].iter().any(|scope| properties::find_in(*scope, name).is_some());
            assert!(is_known, "{name}");
        }
        for (name, value) in [("auto.offset.reset", "earliest"), ("isolation.level", "read_committed")] {
            let error = check(&[("group.id", "g"), (name, value)]).expect_err(name);
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn the_mode_of_acknowledgements_is_checked_here() {
        let mode = "share.acknowledgement.mode";
        let config = check(&[(mode, "explicit")]).expect("a known mode");
        assert_eq!(config.share_acknowledgement_mode, ottla_client::ShareAcknowledgementMode::Explicit);
        let error = check(&[(mode, "nonsense")]).expect_err("no such mode");
        assert!(error.to_string().contains("nonsense"), "{error}");
    }
}
