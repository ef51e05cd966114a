//! The feature levels of a new cluster, as `kafka-storage.sh format` has them, and the nodes with levels for tests.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::{BrokerConfig, boolean};
use crate::feature_levels::{Feature, FinalizedFeatures};
use crate::kafka_level::KafkaLevel;
use crate::metadata_version::MetadataVersion;

/// The property of the voters, whose first id names the controller.
const VOTERS: &str = "controller.quorum.voters";

/// The levels that a new cluster begins with, if they are not the defaults.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewClusterFeatures {
    release_version: Option<String>,
    levels: BTreeMap<String, i16>,
}

impl BrokerConfig {
    /// Sets the release whose feature levels a new cluster begins with, such as `4.1` or `3.9-IV0`: `--release-version` of
    /// `kafka-storage.sh format`. A cluster that exists keeps its levels. Names are checked at the start.
    pub fn set_release_version(&mut self, name: &str) {
        self.new_cluster_features.release_version = Some(name.to_owned());
    }

    /// Sets the level of one feature with which a new cluster begins: `--feature` of `kafka-storage.sh format`. A cluster that exists
    /// keeps its levels. Names and levels are checked at the start.
    pub fn set_feature_level(&mut self, feature: &str, level: i16) {
        self.new_cluster_features.levels.insert(feature.to_owned(), level);
    }

    /// Checks the features at the start.
    pub(crate) fn check_features(&self, nodes: i32) -> Result<(), String> {
        let (listed, count) = (self.unstable_features.len(), usize::try_from(nodes).unwrap_or(1).max(1));
        if listed > 1 && listed != count {
            return Err(format!(
                "unstable.feature.versions.enable: {listed} values for {count} nodes; use one value for all nodes, or a list with one for each"
            ));
        }
        self.initial_features().map(|_| ())
    }

    /// The levels with which a new cluster begins; `None` if nothing about them is set.
    ///
    /// # Errors
    /// The text of Kafka's `Formatter`.
    pub(crate) fn initial_features(&self) -> Result<Option<FinalizedFeatures>, String> {
        let NewClusterFeatures { release_version, levels } = &self.new_cluster_features;
        if release_version.is_none() && levels.is_empty() {
            return Ok(None);
        }
        if self.as_version < KafkaLevel::V4_1 {
            let release = self.as_version.name();
            return Err(format!(
                "version {release} has no features: a release or a level of a feature has no effect"
            ));
        }
        let metadata_version = self.initial_metadata_version(release_version.as_deref())?;
        let mut initial = FinalizedFeatures::initial(metadata_version);
        for (name, level) in levels {
            let feature = Feature::of_name(name).filter(|feature| *self.cluster_levels(*feature).end() > 0);
            let Some(feature) = feature else { return Err(self.unsupported(name)) };
            if !self.cluster_levels(feature).contains(level) {
                return Err(format!("No feature:{name} with feature level {level}"));
            }
            feature.check_dependency(*level, metadata_version)?;
            initial.set(feature, *level);
        }
        Ok(Some(initial))
    }

    fn initial_metadata_version(&self, release_version: Option<&str>) -> Result<i16, String> {
        let max = *self.cluster_levels(Feature::Metadata).end();
        match (release_version, self.new_cluster_features.levels.get(Feature::Metadata.name())) {
            (Some(_), Some(_)) => {
                Err("Use --release-version instead of --feature metadata.version=X to avoid ambiguity."
                    .to_owned())
            }
            (Some(name), None) => Ok(MetadataVersion::of_name(name, max)?.level),
            (None, Some(level)) => match MetadataVersion::of_level(*level) {
                Some(version) if version.level > max => {
                    Err(format!("metadata.version {} is not yet stable.", version.name))
                }
                Some(version) => Ok(version.level),
                None => Err(format!(
                    "No MetadataVersion with feature level {level}. Valid feature levels are from {} to {}.",
                    MetadataVersion::MIN,
                    MetadataVersion::MAX_OF_TESTS
                )),
            },
            (None, None) => Ok(max),
        }
    }

    fn unsupported(&self, name: &str) -> String {
        let has_levels = |feature: &Feature| *self.cluster_levels(*feature).end() > 0;
        let known: Vec<&str> = Feature::ALL.into_iter().filter(has_levels).map(Feature::name).collect();
        format!("Unsupported feature: {name}. Supported features are: {}", known.join(", "))
    }

    /// The levels that one of the nodes has, at least.
    pub(crate) fn cluster_levels(&self, feature: Feature) -> RangeInclusive<i16> {
        feature.levels(self.as_version, self.unstable_features.contains(&true))
    }

    /// The levels that a node has.
    pub(crate) fn levels_of_node(&self, feature: Feature, node: i32) -> RangeInclusive<i16> {
        let has_unstable = match &*self.unstable_features {
            [of_all] => *of_all,
            each => {
                let index = node.checked_sub(self.node_id).and_then(|index| usize::try_from(index).ok());
                index.and_then(|index| each.get(index)).copied().unwrap_or(false)
            }
        };
        feature.levels(self.as_version, has_unstable)
    }

    /// The id of the first voter of `controller.quorum.voters`, as in `3000@localhost:9093`.
    pub(crate) fn first_voter(&self) -> Option<i32> {
        let voter = self.given.get(VOTERS)?.split(',').next()?;
        voter.split('@').next()?.trim().parse().ok()
    }
}

/// The values of `unstable.feature.versions.enable`: one for all nodes, or one for each.
pub(super) fn unstable_features(name: &str, value: &str) -> Result<Vec<bool>, String> {
    value.split(',').map(|value| boolean(name, value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(config: &BrokerConfig) -> Result<[i16; 7], String> {
        let initial = config.initial_features()?.expect("something is set");
        Ok(Feature::ALL.map(|feature| initial.level(feature)))
    }

    #[test]
    fn a_release_and_levels_decide_about_a_new_cluster() {
        assert_eq!(BrokerConfig::default().initial_features(), Ok(None));
        let mut config = BrokerConfig::default();
        config.set_release_version("3.9");
        assert_eq!(levels(&config), Ok([0, 0, 0, 21, 0, 0, 0]));
        config.set_feature_level("group.version", 1);
        assert_eq!(levels(&config), Ok([0, 1, 0, 21, 0, 0, 0]));
        let mut config = BrokerConfig::default();
        config.set_feature_level("transaction.version", 0);
        assert_eq!(levels(&config), Ok([0, 1, 1, 30, 0, 0, 0]));
    }

    #[test]
    fn levels_that_kafka_does_not_format_are_refused() {
        let refused = |release: Option<&str>, level: Option<(&str, i16)>| {
            let mut config = BrokerConfig::default();
            if let Some(release) = release {
                config.set_release_version(release);
            }
            if let Some((feature, level)) = level {
                config.set_feature_level(feature, level);
            }
            config.check_features(1).expect_err("it is refused")
        };
        for (release, level, expected) in [
            (Some("4.4-IV0"), None, "Unknown metadata.version '4.4-IV0'."),
            (Some("4.1"), Some(("metadata.version", 27)), "Use --release-version instead of"),
            (None, Some(("metadata.version", 31)), "metadata.version 4.4-IV0 is not yet stable."),
            (None, Some(("metadata.version", 6)), "No MetadataVersion with feature level 6."),
            (
                None,
                Some(("no.such.version", 1)),
                "Unsupported feature: no.such.version. Supported features are: ",
            ),
            (None, Some(("group.version", 2)), "No feature:group.version with feature level 2"),
            (
                Some("3.9"),
                Some(("eligible.leader.replicas.version", 1)),
                "eligible.leader.replicas.version could not be set to 1 because it depends on metadata.version level 23",
            ),
        ] {
            let error = refused(release, level);
            assert!(error.starts_with(expected), "{error}");
        }
        let mut old = BrokerConfig { as_version: KafkaLevel::V3_9, ..BrokerConfig::default() };
        old.set_release_version("3.9");
        assert!(old.check_features(1).is_err());
    }

    #[test]
    fn each_node_can_have_levels_for_tests() {
        let mut config = BrokerConfig { node_id: 0, ..BrokerConfig::default() };
        let max =
            |config: &BrokerConfig| [0, 1].map(|node| *config.levels_of_node(Feature::Metadata, node).end());
        assert_eq!(max(&config), [30, 30]);
        config.set("unstable.feature.versions.enable", "true").expect("a value");
        assert_eq!(max(&config), [31, 31]);
        config.set("unstable.feature.versions.enable", "true, false").expect("a list");
        assert_eq!(max(&config), [31, 30]);
        assert!(config.check_features(2).is_ok() && config.check_features(3).is_err());
        assert!(config.set("unstable.feature.versions.enable", "yes").is_err());
    }

    #[test]
    fn the_first_voter_names_the_controller() {
        let mut config = BrokerConfig::default();
        assert_eq!(config.first_voter(), None);
        config.set("controller.quorum.voters", "3000@localhost:9093,3001@localhost:9094").expect("a list");
        assert_eq!(config.first_voter(), Some(3000));
    }
}
