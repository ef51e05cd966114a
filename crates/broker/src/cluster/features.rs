//! The finalized features: levels that clients look at before they use a protocol (KIP-584). The journal keeps them.

use std::sync::Mutex;

use bytes::Bytes;
use ottla_protocol::ErrorCode;
use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, OpenError, Refusal, json, lock};
use crate::data_dir;
use crate::transactions::metadata::TransactionVersion;

/// Kafka's name of the feature of consumer groups, and its level with the groups of KIP-848. It does not change.
pub(crate) const GROUP_VERSION: &str = "group.version";
pub(crate) const GROUP_VERSION_LEVEL: i16 = 1;
/// Kafka's name of the feature of share groups, and its level with the groups of KIP-932. It does not change.
pub(crate) const SHARE_VERSION: &str = "share.version";
pub(crate) const SHARE_VERSION_LEVEL: i16 = 1;
/// Kafka's name of the feature of transactions.
pub(crate) const TRANSACTION_VERSION: &str = "transaction.version";
const FEATURES_KEY: &[u8] = b"features";

/// The finalized features.
#[derive(Debug, Default)]
pub(crate) struct Features {
    finalized: Mutex<FinalizedFeatures>,
}

/// The levels of features and their epoch. It is the journal's record, too.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct FinalizedFeatures {
    /// Grows with each change.
    pub(crate) epoch: i64,
    /// 0: the feature is off.
    pub(crate) transaction_version: i16,
}

impl Default for FinalizedFeatures {
    fn default() -> Self {
        Self { epoch: 0, transaction_version: TransactionVersion::SERVER.level() }
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
    /// A downgrade, safe or not: the features of this broker can be lowered without a loss.
    Downgrade,
    Unknown,
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

    /// The finalized features.
    pub(crate) fn finalized_features(&self) -> FinalizedFeatures {
        *lock(&self.features.finalized)
    }

    /// Changes levels of features: all of them or none. They are durable when this returns: it waits for a sync.
    pub(crate) fn update_features(&self, changes: &[FeatureChange], dry_run: bool) -> Result<(), Refusal> {
        let _change = lock(&self.topic_changes);
        let mut finalized = self.finalized_features();
        for change in changes {
            self.check_feature(change, finalized.transaction_version)?;
            if change.feature == TRANSACTION_VERSION {
                finalized.transaction_version = change.level;
            }
        }
        if dry_run || finalized.transaction_version == self.finalized_features().transaction_version {
            return Ok(());
        }
        finalized.epoch += 1;
        self.put_durably(&[(Bytes::from_static(FEATURES_KEY), Some(json(&finalized)?))])?;
        *lock(&self.features.finalized) = finalized;
        Ok(())
    }

    fn check_feature(&self, change: &FeatureChange, now: i16) -> Result<(), Refusal> {
        let FeatureChange { feature, level, kind } = change;
        let max = TransactionVersion::SERVER.level();
        let has_features = self.config.as_version.has_transaction_version_2();
        let has_share_groups = self.config.as_version.has_share_groups();
        let fixed = match &**feature {
            GROUP_VERSION if has_features => Some(GROUP_VERSION_LEVEL),
            SHARE_VERSION if has_share_groups => Some(SHARE_VERSION_LEVEL),
            _ => None,
        };
        let reason = if let Some(fixed) = fixed {
            if *level == fixed {
                return Ok(());
            }
            format!("this broker has level {fixed} only")
        } else if !has_features || feature != TRANSACTION_VERSION {
            format!(
                "this broker has no feature of that name; it has `{TRANSACTION_VERSION}` and `{GROUP_VERSION}` since 4.1, `{SHARE_VERSION}` since 4.3"
            )
        } else if !(0..=max).contains(level) {
            format!("the levels are 0 to {max}")
        } else if *kind == UpgradeKind::Unknown {
            "the type of the upgrade is unknown: use 1 (upgrade), 2 or 3 (downgrade)".to_owned()
        } else if *level < now && *kind == UpgradeKind::Upgrade {
            format!("the level is {now}: the request does not allow a downgrade")
        } else if *level > now && *kind == UpgradeKind::Downgrade {
            format!("the level is {now}: a downgrade cannot raise it")
        } else {
            return Ok(());
        };
        Err((ErrorCode::InvalidUpdateVersion, format!("feature `{feature}` to level {level}: {reason}")))
    }
}
