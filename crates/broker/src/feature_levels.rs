//! The features of Kafka that have a level (KIP-584): their names, the levels that exist, and the rules of a change.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::kafka_level::KafkaLevel;
use crate::metadata_version::MetadataVersion;

/// A feature.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Feature {
    Transaction,
    Group,
    Share,
    Metadata,
    Kraft,
    EligibleLeaderReplicas,
    Streams,
}

impl Feature {
    /// All features, in the order of responses.
    pub(crate) const ALL: [Self; 7] = [
        Self::Transaction,
        Self::Group,
        Self::Share,
        Self::Metadata,
        Self::Kraft,
        Self::EligibleLeaderReplicas,
        Self::Streams,
    ];

    /// Kafka's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Transaction => "transaction.version",
            Self::Group => "group.version",
            Self::Share => "share.version",
            Self::Metadata => "metadata.version",
            Self::Kraft => "kraft.version",
            Self::EligibleLeaderReplicas => "eligible.leader.replicas.version",
            Self::Streams => "streams.version",
        }
    }

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|feature| feature.name() == name)
    }

    /// The levels of a release. Those for tests are of 4.3. The only level is 0 if the release does not have the feature.
    pub(crate) fn levels(self, release: KafkaLevel, has_unstable: bool) -> RangeInclusive<i16> {
        if release < KafkaLevel::V4_1 {
            return 0..=0;
        }
        let is_newest = release >= KafkaLevel::V4_3;
        match self {
            Self::Transaction => 0..=2,
            Self::Group | Self::Kraft | Self::EligibleLeaderReplicas => 0..=1,
            // A preview in 4.1, which is off.
            Self::Share | Self::Streams => 0..=i16::from(is_newest),
            Self::Metadata if !is_newest => MetadataVersion::MIN..=MetadataVersion::MAX_OF_4_1,
            Self::Metadata if has_unstable => MetadataVersion::MIN..=MetadataVersion::MAX_OF_TESTS,
            Self::Metadata => MetadataVersion::MIN..=MetadataVersion::MAX_OF_4_3,
        }
    }

    /// The level with which a cluster begins at a level of `metadata.version`. It is Kafka's, except for features that this broker
    /// does not have: they begin at 0.
    pub(crate) const fn initial(self, metadata_version: i16) -> i16 {
        match self {
            Self::Transaction if metadata_version >= 24 => 2,
            Self::Group if metadata_version >= 22 => 1,
            Self::Share if metadata_version >= 28 => 1,
            Self::Metadata => metadata_version,
            Self::Transaction
            | Self::Group
            | Self::Share
            | Self::Kraft
            | Self::EligibleLeaderReplicas
            | Self::Streams => 0,
        }
    }

    /// Checks a level against the level of `metadata.version` that the cluster will have.
    ///
    /// # Errors
    /// Kafka's text.
    pub(crate) fn check_dependency(self, level: i16, metadata_version: i16) -> Result<(), String> {
        // The lowest level of `metadata.version`, which all others need, is the lowest that there is.
        if self != Self::EligibleLeaderReplicas || level < 1 || metadata_version >= ELIGIBLE_LEADERS_NEED {
            return Ok(());
        }
        Err(format!(
            "{} could not be set to {level} because it depends on {} level {ELIGIBLE_LEADERS_NEED}",
            self.name(),
            Self::Metadata.name()
        ))
    }
}

/// The level of `metadata.version` that `eligible.leader.replicas.version` 1 needs.
const ELIGIBLE_LEADERS_NEED: i16 = 23;

/// The levels of all features and their epoch. It is the journal's record, too; one of an older broker has fewer levels.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct FinalizedFeatures {
    /// Grows with each change.
    pub(crate) epoch: i64,
    transaction_version: i16,
    group_version: i16,
    share_version: i16,
    metadata_version: i16,
    kraft_version: i16,
    eligible_leader_replicas_version: i16,
    streams_version: i16,
}

impl Default for FinalizedFeatures {
    fn default() -> Self {
        Self::initial(MetadataVersion::MAX_OF_4_3)
    }
}

impl FinalizedFeatures {
    /// The levels with which a cluster begins.
    pub(crate) fn initial(metadata_version: i16) -> Self {
        let mut initial = Self {
            epoch: 0,
            transaction_version: 0,
            group_version: 0,
            share_version: 0,
            metadata_version,
            kraft_version: 0,
            eligible_leader_replicas_version: 0,
            streams_version: 0,
        };
        for feature in Feature::ALL {
            initial.set(feature, feature.initial(metadata_version));
        }
        initial
    }

    /// 0: the feature is off.
    pub(crate) const fn level(&self, feature: Feature) -> i16 {
        match feature {
            Feature::Transaction => self.transaction_version,
            Feature::Group => self.group_version,
            Feature::Share => self.share_version,
            Feature::Metadata => self.metadata_version,
            Feature::Kraft => self.kraft_version,
            Feature::EligibleLeaderReplicas => self.eligible_leader_replicas_version,
            Feature::Streams => self.streams_version,
        }
    }

    pub(crate) const fn set(&mut self, feature: Feature, level: i16) {
        let place = match feature {
            Feature::Transaction => &mut self.transaction_version,
            Feature::Group => &mut self.group_version,
            Feature::Share => &mut self.share_version,
            Feature::Metadata => &mut self.metadata_version,
            Feature::Kraft => &mut self.kraft_version,
            Feature::EligibleLeaderReplicas => &mut self.eligible_leader_replicas_version,
            Feature::Streams => &mut self.streams_version,
        };
        *place = level;
    }
}

/// A change of one feature.
#[derive(Clone, Debug)]
pub(crate) struct FeatureChange {
    pub(crate) feature: String,
    pub(crate) level: i16,
    pub(crate) kind: UpgradeKind,
}

/// The kinds of change that a request can allow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum UpgradeKind {
    Upgrade,
    SafeDowngrade,
    UnsafeDowngrade,
    Unknown,
}

/// A node of the cluster in an error, and the levels that it has of a feature.
pub(crate) type NodeLevels = (String, RangeInclusive<i16>);

impl FeatureChange {
    /// Checks a change as Kafka's `FeatureControlManager` does, in its order. `nodes` are the controller and the brokers,
    /// `metadata_version` is the level after the request.
    ///
    /// # Errors
    /// Kafka's text.
    pub(crate) fn check(
        &self,
        now: FinalizedFeatures,
        nodes: &[NodeLevels],
        metadata_version: i16,
    ) -> Result<Feature, String> {
        let Self { feature: name, level, kind } = self;
        let level = *level;
        let invalid = |reason: &str| format!("Invalid update version {level} for feature {name}. {reason}");
        if *kind == UpgradeKind::Unknown {
            return Err(invalid("The controller does not support the given upgrade type."));
        }
        if level < 0 {
            return Err(invalid("A feature version cannot be less than 0."));
        }
        if let Some((node, levels)) = nodes.iter().find(|(_, levels)| !levels.contains(&level)) {
            return Err(invalid(&reason_not_supported(node, levels)));
        }
        let Some(feature) = Feature::of_name(name) else {
            return Err(invalid(&format!("Feature {name} not found.")));
        };
        let before = now.level(feature);
        if level < before && *kind == UpgradeKind::Upgrade {
            return Err(invalid(
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.",
            ));
        }
        if level > before && *kind != UpgradeKind::Upgrade {
            return Err(invalid("Can't downgrade to a newer version."));
        }
        match feature {
            Feature::Metadata if level < before && MetadataVersion::records_differ(level, before) => {
                let reason = if *kind == UpgradeKind::UnsafeDowngrade {
                    "Unsafe metadata downgrade is not supported in this version."
                } else {
                    "Refusing to perform the requested downgrade because it might delete metadata information."
                };
                Err(format!("Unsupported {name} downgrade from {before} to {level}. {reason}"))
            }
            Feature::Kraft if level < before => Err(invalid("Can't downgrade the version of this feature.")),
            Feature::Transaction
            | Feature::Group
            | Feature::Share
            | Feature::Metadata
            | Feature::Kraft
            | Feature::EligibleLeaderReplicas
            | Feature::Streams => {
                feature.check_dependency(level, metadata_version).map_err(|reason| invalid(&reason))?;
                Ok(feature)
            }
        }
    }
}

fn reason_not_supported(node: &str, levels: &RangeInclusive<i16>) -> String {
    let (min, max) = (levels.start(), levels.end());
    if *max == 0 {
        format!("{node} does not support this feature.")
    } else if min == max {
        format!("{node} only supports versions {min}")
    } else {
        format!("{node} only supports versions {min}-{max}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(feature: &str, level: i16, kind: UpgradeKind, metadata_version: i16) -> Result<Feature, String> {
        let levels = |name: &str| {
            let feature = Feature::of_name(name);
            feature.map_or(0..=0, |feature| feature.levels(KafkaLevel::V4_3, false))
        };
        let nodes =
            [("Local controller 3000".to_owned(), levels(feature)), ("Broker 0".to_owned(), levels(feature))];
        let change = FeatureChange { feature: feature.to_owned(), level, kind };
        let now = FinalizedFeatures::initial(metadata_version);
        let after = if feature == "metadata.version" { level } else { metadata_version };
        change.check(now, &nodes, after)
    }

    /// The texts are Kafka's.
    #[test]
    fn changes_are_refused_with_the_texts_of_kafka() {
        use UpgradeKind::{SafeDowngrade, Unknown, UnsafeDowngrade, Upgrade};
        let mv = "metadata.version";
        for (feature, level, kind, at, expected) in [
            (
                mv,
                8,
                Unknown,
                7,
                "Invalid update version 8 for feature metadata.version. The controller does not support the given upgrade type.",
            ),
            (
                mv,
                -1,
                Upgrade,
                7,
                "Invalid update version -1 for feature metadata.version. A feature version cannot be less than 0.",
            ),
            (
                mv,
                0,
                SafeDowngrade,
                8,
                "Invalid update version 0 for feature metadata.version. Local controller 3000 only supports versions 7-30",
            ),
            (
                mv,
                31,
                Upgrade,
                30,
                "Invalid update version 31 for feature metadata.version. Local controller 3000 only supports versions 7-30",
            ),
            (
                mv,
                18,
                Upgrade,
                20,
                "Invalid update version 18 for feature metadata.version. Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.",
            ),
            (
                mv,
                21,
                SafeDowngrade,
                20,
                "Invalid update version 21 for feature metadata.version. Can't downgrade to a newer version.",
            ),
            (
                mv,
                7,
                SafeDowngrade,
                8,
                "Unsupported metadata.version downgrade from 8 to 7. Refusing to perform the requested downgrade because it might delete metadata information.",
            ),
            (
                mv,
                7,
                UnsafeDowngrade,
                8,
                "Unsupported metadata.version downgrade from 8 to 7. Unsafe metadata downgrade is not supported in this version.",
            ),
        ] {
            assert_eq!(check(feature, level, kind, at), Err(expected.to_owned()));
        }
    }

    #[test]
    fn changes_of_features_that_are_missing_or_depend_on_others_are_refused() {
        use UpgradeKind::{SafeDowngrade, Upgrade};
        for (feature, level, kind, at, expected) in [
            (
                "no.such",
                1,
                Upgrade,
                30,
                "Invalid update version 1 for feature no.such. Local controller 3000 does not support this feature.",
            ),
            (
                "no.such",
                0,
                SafeDowngrade,
                30,
                "Invalid update version 0 for feature no.such. Feature no.such not found.",
            ),
            (
                "eligible.leader.replicas.version",
                1,
                Upgrade,
                22,
                "Invalid update version 1 for feature eligible.leader.replicas.version. eligible.leader.replicas.version could not be set to 1 because it depends on metadata.version level 23",
            ),
        ] {
            assert_eq!(check(feature, level, kind, at), Err(expected.to_owned()));
        }
    }

    #[test]
    fn changes_that_kafka_makes_are_made() {
        use UpgradeKind::{SafeDowngrade, UnsafeDowngrade, Upgrade};
        let mv = "metadata.version";
        for (feature, level, kind, at) in [
            (mv, 30, Upgrade, 7),
            (mv, 18, SafeDowngrade, 20),
            (mv, 20, UnsafeDowngrade, 20),
            ("kraft.version", 1, Upgrade, 20),
            ("eligible.leader.replicas.version", 1, Upgrade, 23),
            ("transaction.version", 2, Upgrade, 7),
        ] {
            assert!(check(feature, level, kind, at).is_ok(), "{feature} {level}");
        }
    }

    #[test]
    fn a_cluster_begins_with_the_levels_of_its_release() {
        let levels = |metadata_version| {
            let initial = FinalizedFeatures::initial(metadata_version);
            Feature::ALL.map(|feature| initial.level(feature))
        };
        assert_eq!(levels(7), [0, 0, 0, 7, 0, 0, 0]);
        assert_eq!(levels(22), [0, 1, 0, 22, 0, 0, 0]);
        assert_eq!(levels(24), [2, 1, 0, 24, 0, 0, 0]);
        assert_eq!(levels(30), [2, 1, 1, 30, 0, 0, 0]);
    }

    #[test]
    fn a_record_of_an_older_broker_has_the_defaults_of_the_other_levels() {
        let old = r#"{"epoch":3,"transaction_version":1}"#;
        let read: FinalizedFeatures = serde_json::from_str(old).expect("it is read");
        let mut expected = FinalizedFeatures { epoch: 3, ..FinalizedFeatures::default() };
        expected.set(Feature::Transaction, 1);
        assert_eq!(read, expected);
    }
}
