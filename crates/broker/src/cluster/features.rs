//! The finalized features: levels that clients look at before they use a protocol (KIP-584). The journal keeps them.

use std::sync::Mutex;

use bytes::Bytes;
use ottla_log::Journal;
use ottla_protocol::ErrorCode;

use crate::cluster::{CLUSTER_ID_KEY, Cluster, OpenError, Refusal, json, lock};
use crate::config::BrokerConfig;
use crate::data_dir;
use crate::feature_levels::{Feature, FeatureChange, FinalizedFeatures, NodeLevels};
use crate::metadata_version::MetadataVersion;

const FEATURES_KEY: &[u8] = b"features";

/// The finalized features.
#[derive(Debug, Default)]
pub(crate) struct Features {
    finalized: Mutex<FinalizedFeatures>,
}

/// Records the levels with which a new cluster begins, if they are not the defaults. A cluster without an id is new.
pub(super) fn record_initial(
    journal: &mut Journal,
    config: &BrokerConfig,
    now_ms: i64,
) -> Result<(), OpenError> {
    if journal.get(CLUSTER_ID_KEY).is_some() {
        return Ok(());
    }
    if let Some(initial) = config.initial_features().map_err(OpenError::Features)? {
        let value = json(&initial).map_err(|(_, reason)| OpenError::Features(reason))?;
        journal.put(now_ms, Bytes::from_static(FEATURES_KEY), Some(value))?;
    }
    Ok(())
}

impl Cluster {
    pub(crate) fn load_features(&self) -> Result<(), OpenError> {
        let journal = lock(&self.journal);
        let Some(value) = journal.get(FEATURES_KEY) else { return Ok(()) };
        let read = serde_json::from_slice(value);
        *lock(&self.features.finalized) = read.map_err(|error| OpenError::Record {
            journal: data_dir::META_DIR,
            key: String::from_utf8_lossy(FEATURES_KEY).into_owned(),
            reason: error.to_string(),
        })?;
        Ok(())
    }

    /// The finalized features. Levels above those of `--as-version`, or of a start with levels for tests, are stored and not shown.
    pub(crate) fn finalized_features(&self) -> FinalizedFeatures {
        let mut finalized = *lock(&self.features.finalized);
        for feature in Feature::ALL {
            let max = *self.config.cluster_levels(feature).end();
            finalized.set(feature, finalized.level(feature).min(max));
        }
        finalized
    }

    fn stored_level(&self, feature: Feature) -> i16 {
        lock(&self.features.finalized).level(feature)
    }

    /// Returns whether requests of groups of the new protocol (KIP-848) are answered.
    pub(crate) fn has_consumer_groups(&self) -> bool {
        self.config.consumer_groups.enabled && self.stored_level(Feature::Group) > 0
    }

    /// Returns whether requests of share groups (KIP-932) are answered.
    pub(crate) fn has_share_groups(&self) -> bool {
        self.stored_level(Feature::Share) > 0
    }

    /// Returns whether SCRAM credentials can be changed.
    pub(crate) fn has_scram(&self) -> bool {
        self.stored_level(Feature::Metadata) >= MetadataVersion::WITH_SCRAM
    }

    /// Changes levels of features: all of them or none. They are durable when this returns: it waits for a sync.
    pub(crate) fn update_features(&self, changes: &[FeatureChange], dry_run: bool) -> Result<(), Refusal> {
        let _change = lock(&self.topic_changes);
        let now = self.finalized_features();
        let stored = *lock(&self.features.finalized);
        let mut after = stored;
        let of_metadata = changes.iter().find(|change| change.feature == Feature::Metadata.name());
        let metadata_version = of_metadata.map_or(now.level(Feature::Metadata), |change| change.level);
        for change in changes {
            let nodes = self.levels_of_nodes(&change.feature);
            let feature = change.check(now, &nodes, metadata_version).map_err(|reason| {
                let reason = format!(
                    "The update failed for all features since the following feature had an error: {reason}"
                );
                (ErrorCode::InvalidUpdateVersion, reason)
            })?;
            if change.level != now.level(feature) {
                after.set(feature, change.level);
            }
        }
        if dry_run || after == stored {
            return Ok(());
        }
        after.epoch += 1;
        self.put_durably(&[(Bytes::from_static(FEATURES_KEY), Some(json(&after)?))])?;
        *lock(&self.features.finalized) = after;
        for feature in [Feature::Kraft, Feature::EligibleLeaderReplicas, Feature::Streams] {
            let level = after.level(feature);
            if level > stored.level(feature) {
                tracing::warn!(
                    feature = feature.name(),
                    level,
                    "this broker does not have the feature: the level has no effect"
                );
            }
        }
        Ok(())
    }

    /// The controller and the brokers, in the words of Kafka's errors, with the levels that each has.
    fn levels_of_nodes(&self, name: &str) -> Vec<NodeLevels> {
        let levels = |node: i32| {
            Feature::of_name(name).map_or(0..=0, |feature| self.config.levels_of_node(feature, node))
        };
        let leader = self.controller();
        let id = self.config.first_voter().unwrap_or(leader);
        let controller = (format!("Local controller {id}"), levels(leader));
        let brokers = self.node_ids().map(|id| (format!("Broker {id}"), levels(id)));
        std::iter::once(controller).chain(brokers).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka_level::KafkaLevel;
    use crate::transactions::metadata::TransactionVersion;

    #[test]
    fn the_coordinator_has_the_highest_level_of_transactions() {
        let levels = Feature::Transaction.levels(KafkaLevel::V4_3, false);
        assert_eq!(*levels.end(), TransactionVersion::SERVER.level());
    }
}
