//! ApiVersions: what this broker can be asked. A promise: what is listed is answered.

use ottla_protocol::messages::api_versions::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};
use ottla_protocol::{ApiKey, ErrorCode};

use super::{Api, RequestContext};
use crate::cluster::Cluster;
use crate::config::live::CLIENT_METRICS;
use crate::feature_levels::Feature;

impl Api for ApiVersionsRequest {
    async fn handle(self, context: RequestContext) -> ApiVersionsResponse {
        let names = [&self.client_software_name, &self.client_software_version];
        if context.version >= 3 && !names.into_iter().all(|name| is_name(name)) {
            return self.refuse(&context, ErrorCode::InvalidRequest);
        }
        if context.version >= 3 {
            context.connection.peer.set_software(&self.client_software_name, &self.client_software_version);
        }
        let mut response = ApiVersionsResponse { api_keys: listed(context.cluster()), ..Default::default() };
        if context.version >= 3 && context.cluster().config.as_version.has_transaction_version_2() {
            add_features(&mut response, &context);
        }
        response
    }

    /// The response to a version that is not supported has the supported ones (KIP-511).
    fn refuse(self, context: &RequestContext, code: ErrorCode) -> ApiVersionsResponse {
        let mut api_keys = Vec::new();
        if code == ErrorCode::UnsupportedVersion {
            api_keys = listed(context.cluster());
            api_keys.retain(|api| api.api_key == ApiKey::ApiVersions.code());
        }
        ApiVersionsResponse { error_code: code, api_keys, ..Default::default() }
    }
}

/// The features of this node, and the levels of the cluster. Clients look at them before they use a protocol.
fn add_features(response: &mut ApiVersionsResponse, context: &RequestContext) {
    let cluster = context.cluster();
    let finalized = cluster.finalized_features();
    // KAFKA-17011: version 3 of Java's client fails on a minimum of 0.
    let lowest_min = i16::from(context.version < 4);
    for feature in Feature::ALL {
        let levels = cluster.config.levels_of_node(feature, context.node());
        let max_version = *levels.end();
        if max_version == 0 {
            continue;
        }
        let name = feature.name().to_owned();
        response.supported_features.push(SupportedFeatureKey {
            name: name.clone(),
            min_version: lowest_min.max(*levels.start()),
            max_version,
        });
        let level = finalized.level(feature);
        // A feature of level 0 is off, and not finalized.
        if level > 0 {
            response.finalized_features.push(FinalizedFeatureKey {
                name,
                max_version_level: level,
                min_version_level: level,
            });
        }
    }
    response.finalized_features_epoch = finalized.epoch;
}

/// The APIs in the response. Those of clients' metrics are left out while there is no subscription, as in Kafka without a receiver of
/// metrics: librdkafka writes a line on standard error when a broker has them.
fn listed(cluster: &Cluster) -> Vec<ApiVersion> {
    let asks_for_metrics =
        !cluster.live.names(CLIENT_METRICS).is_empty() || cluster.overrides.mock_subscription().is_some();
    let of_metrics = |key| matches!(key, ApiKey::GetTelemetrySubscriptions | ApiKey::PushTelemetry);
    super::advertised()
        .into_iter()
        .filter(|(key, _)| asks_for_metrics || !of_metrics(*key))
        .map(|(key, versions)| (key, cluster.versions(key, versions)))
        .filter(|(_, (min, max))| min <= max)
        .map(|(key, (min_version, max_version))| ApiVersion { api_key: key.code(), min_version, max_version })
        .collect()
}

/// KIP-511: letters and digits at both ends, `.` and `-` in between.
fn is_name(name: &str) -> bool {
    let ends = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric());
    ends && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_advertised_lies_within_what_can_be_decoded_but_for_old_produce() {
        for (key, (min, max)) in super::super::advertised() {
            let api = key.api().expect("a message of ours");
            let (known_min, known_max) = (api.versions.min, api.versions.max);
            assert!(max <= known_max && (min >= known_min || key == ApiKey::Produce), "{key} {min} {max}");
        }
        assert!(
            is_name("apache-kafka-java")
                && is_name("4.1.0")
                && !is_name("")
                && !is_name("a b")
                && !is_name("-a")
        );
    }
}
