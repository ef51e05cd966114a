//! UpdateFeatures: changes the finalized levels of features.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::update_features::{
    FeatureUpdateKey, UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse,
};

use super::{Api, RequestContext};
use crate::cluster::Cluster;
use crate::cluster::features::{FeatureChange, UpgradeKind};

/// Types of an upgrade.
const UPGRADE: i8 = 1;
const SAFE_DOWNGRADE: i8 = 2;
const UNSAFE_DOWNGRADE: i8 = 3;

impl Api for UpdateFeaturesRequest {
    async fn handle(self, context: RequestContext) -> UpdateFeaturesResponse {
        let (version, dry_run) = (context.version, self.validate_only);
        let changes: Vec<FeatureChange> =
            self.feature_updates.into_iter().map(|update| change_of(update, version)).collect();
        let names: Vec<String> = changes.iter().map(|change| change.feature.clone()).collect();
        let update = move |cluster: &Cluster| cluster.update_features(&changes, dry_run);
        match context.cluster().change_topics(update).await {
            Ok(()) => {
                let results = names.into_iter();
                let results = results.map(|feature| UpdatableFeatureResult { feature, ..Default::default() });
                UpdateFeaturesResponse { results: results.collect(), ..Default::default() }
            }
            // The changes of a request are made together or not at all.
            Err((error_code, reason)) => {
                UpdateFeaturesResponse { error_code, error_message: Some(reason), ..Default::default() }
            }
        }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> UpdateFeaturesResponse {
        let error_message = Some(code.message().to_owned());
        UpdateFeaturesResponse { error_code: code, error_message, ..Default::default() }
    }
}

fn change_of(update: FeatureUpdateKey, version: i16) -> FeatureChange {
    let kind = match update.upgrade_type {
        // Version 0 has a flag instead of a type.
        _ if version == 0 && update.allow_downgrade => UpgradeKind::Downgrade,
        UPGRADE => UpgradeKind::Upgrade,
        SAFE_DOWNGRADE | UNSAFE_DOWNGRADE => UpgradeKind::Downgrade,
        _ => UpgradeKind::Unknown,
    };
    FeatureChange { feature: update.feature, level: update.max_version_level, kind }
}
