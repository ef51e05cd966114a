//! UpdateFeatures: changes the finalized levels of features.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::update_features::{
    FeatureUpdateKey, UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse,
};

use super::{Api, RequestContext};
use crate::cluster::Cluster;
use crate::feature_levels::{FeatureChange, UpgradeKind};

/// Types of an upgrade.
const UPGRADE: i8 = 1;
const SAFE_DOWNGRADE: i8 = 2;
const UNSAFE_DOWNGRADE: i8 = 3;

impl Api for UpdateFeaturesRequest {
    async fn handle(self, context: RequestContext) -> UpdateFeaturesResponse {
        let (version, dry_run) = (context.version, self.validate_only);
        let changes = changes_of(self.feature_updates, version);
        let names: Vec<String> = changes.iter().map(|change| change.feature.clone()).collect();
        let update = move |cluster: &Cluster| cluster.update_features(&changes, dry_run);
        match context.cluster().change_topics(update).await {
            Ok(()) => {
                let results = names.into_iter();
                let results = results.map(|feature| UpdatableFeatureResult { feature, ..Default::default() });
                // As in Kafka, there is no text. The generated default is an empty one.
                UpdateFeaturesResponse {
                    error_message: None,
                    results: results.collect(),
                    ..Default::default()
                }
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

/// The changes in the order of the request. Of those of one feature, the last one applies.
fn changes_of(updates: Vec<FeatureUpdateKey>, version: i16) -> Vec<FeatureChange> {
    let mut changes: Vec<FeatureChange> = Vec::with_capacity(updates.len());
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for change in updates.into_iter().map(|update| change_of(update, version)) {
        match places.entry(change.feature.clone()) {
            Entry::Occupied(place) => changes[*place.get()] = change,
            Entry::Vacant(place) => {
                place.insert(changes.len());
                changes.push(change);
            }
        }
    }
    changes
}

fn change_of(update: FeatureUpdateKey, version: i16) -> FeatureChange {
    let kind = match update.upgrade_type {
        // Version 0 has a flag instead of a type.
        _ if version == 0 && update.allow_downgrade => UpgradeKind::SafeDowngrade,
        UPGRADE => UpgradeKind::Upgrade,
        SAFE_DOWNGRADE => UpgradeKind::SafeDowngrade,
        UNSAFE_DOWNGRADE => UpgradeKind::UnsafeDowngrade,
        _ => UpgradeKind::Unknown,
    };
    FeatureChange { feature: update.feature, level: update.max_version_level, kind }
}
