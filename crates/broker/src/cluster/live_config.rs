//! Changes of settings while the broker runs: they are kept in the journal, and apply to logs at once.

use bytes::Bytes;
use ottla_protocol::ErrorCode;
use tokio::time::Instant;

use crate::cluster::listener_certificates::ChangedCertificates;
use crate::cluster::{Cluster, OpenError, Refusal, lock};
use crate::config::live::{BROKER, CLIENT_METRICS, Values, check, is_custom};
use crate::config::{BrokerConfig, TopicConfig};
use crate::data_dir;
use crate::security::acl::NAME_BYTES_MAX;

/// Keys of the journal: `config/<kind>/<name>`.
const CONFIG_KEY: &str = "config/";
/// Resources of one kind that have settings: each takes memory for good.
const RESOURCES_MAX: usize = 10_000;
/// Subscriptions to the metrics of clients: each client is compared with all of them.
const SUBSCRIPTIONS_MAX: usize = 100;

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
            if let Some(name) = renamed(kind, &name, |number| self.node_of_stored(number)) {
                self.live.put(kind, &name, values);
            }
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
        if kind == BROKER {
            self.settle_reassignments(Instant::now());
        }
        let before = self.live.values(kind, name);
        let values = change(&before)?;
        check((kind, name), &before, &values, &self.live.broker())?;
        let certificates =
            if kind == BROKER { self.check_broker(name, &before, &values)? } else { Vec::new() };
        if before.is_empty() && name.len() > NAME_BYTES_MAX {
            let bytes = name.len();
            let reason =
                format!("the name of the resource has {bytes} bytes, at most {NAME_BYTES_MAX} are allowed");
            return Err((ErrorCode::InvalidRequest, reason));
        }
        let names = self.live.names(kind);
        let max = if kind == CLIENT_METRICS { SUBSCRIPTIONS_MAX } else { RESOURCES_MAX };
        if names.len() >= max && !names.iter().any(|known| known == name) {
            let reason = format!("{max} resources of kind {kind} have settings: delete some first");
            return Err((ErrorCode::PolicyViolation, reason));
        }
        if dry_run {
            return Ok(());
        }
        let stored = renamed(kind, name, |id| Some(self.stored_node(id)));
        let stored = stored.unwrap_or_else(|| name.to_owned());
        let key = Bytes::from(format!("{CONFIG_KEY}{kind}/{stored}"));
        let json = serde_json::to_vec(&values)
            .map_err(|error| (ErrorCode::UnknownServerError, error.to_string()))?;
        let value = (!values.is_empty()).then(|| json.into());
        self.put_durably(&[(key, value)])?;
        if kind == BROKER {
            // It may be a misspelt property: the problem names the nearest one.
            for (setting, value) in values.iter().filter(|(name, _)| !before.contains_key(*name)) {
                if is_custom(setting)
                    && let Err(problem) = BrokerConfig::default().set(setting, value)
                {
                    tracing::warn!(%problem, "a setting for plugins is stored, and has no effect");
                }
            }
        }
        self.live.put(kind, name, values);
        if kind == BROKER {
            self.apply_to_logs();
            self.settle_reassignments(Instant::now());
        }
        for changed in certificates {
            changed.apply();
        }
        Ok(())
    }

    /// Checks settings of a broker that depend on others, and reads the certificates that they name.
    fn check_broker(
        &self,
        name: &str,
        before: &Values,
        values: &Values,
    ) -> Result<Vec<ChangedCertificates>, Refusal> {
        let refused = |reason| (ErrorCode::InvalidRequest, reason);
        self.live.check_connections(name, before, values).map_err(refused)?;
        self.live.check_cleaner(name, before, values).map_err(refused)?;
        self.read_certificates(name, before, values).map_err(refused)
    }

    /// Gives every log the settings that hold now.
    fn apply_to_logs(&self) {
        for topic in self.topics() {
            let config = self.log_config(&topic.name, &topic.config);
            for partition in &topic.partitions {
                partition.update_config(config.clone());
            }
        }
    }

    /// The defaults of topic settings, with the changes of this run.
    pub(crate) fn topic_defaults(&self) -> TopicConfig {
        self.live.broker().topic_defaults.clone()
    }
}

/// The name of a resource, with `id` applied to that of a node. `None` if that returns none.
fn renamed(kind: i8, name: &str, id: impl FnOnce(i32) -> Option<i32>) -> Option<String> {
    match name.parse::<i32>() {
        // Other ways to write the number are resources of their own.
        Ok(number) if kind == BROKER && number.to_string() == name => id(number).map(|id| id.to_string()),
        Ok(_) | Err(_) => Some(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;
    use crate::broker::Broker;

    /// The log of a test.
    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            lock(&self.0).extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Captured {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    /// Each start and each change of another setting warned of all of them.
    #[test]
    fn a_setting_that_is_no_property_of_a_broker_is_warned_of_when_it_is_set_first() {
        const NAME: &str = "org.example.plugin.rate";
        let broker = Broker::builder().memory().spawn().expect("a broker");
        let cluster = broker.cluster();
        let set = |name: &str, value: &str| {
            let change = |before: &Values| {
                let mut values = before.clone();
                values.insert(name.to_owned(), value.to_owned());
                Ok(values)
            };
            cluster.configure_resource(BROKER, "", change, false).expect("stored");
        };
        let captured = Captured::default();
        let log = tracing_subscriber::fmt().with_writer(captured.clone()).with_ansi(false).finish();
        tracing::subscriber::with_default(log, || {
            set(NAME, "7");
            set("log.retention.ms", "60000");
            set(NAME, "8");
            set("log.retention.mss", "60000");
        });
        let text = String::from_utf8_lossy(&lock(&captured.0)).into_owned();
        assert_eq!(text.lines().filter(|line| line.contains(NAME)).count(), 1, "{text}");
        assert!(text.contains("did you mean `log.retention.ms`?"), "{text}");
        assert!(cluster.live.broker().has_value("log.retention.ms"), "the others apply");
        drop(cluster);
        broker.stop();
    }
}
