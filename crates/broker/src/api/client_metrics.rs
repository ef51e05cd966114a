//! GetTelemetrySubscriptions and PushTelemetry: the metrics of clients (KIP-714).

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::get_telemetry_subscriptions::{
    GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse,
};
use ottla_protocol::messages::push_telemetry::{PushTelemetryRequest, PushTelemetryResponse};

use super::{Api, RequestContext};
use crate::client_metrics::{ClientMetrics, PushedClient};
use crate::cluster::{Cluster, lock, random_uuid};
use crate::config::metric_subscriptions::ClientIdentity;

impl RequestContext {
    fn identity(&self) -> ClientIdentity {
        let peer = &self.connection.peer;
        let (software_name, software_version) = peer.software_parts();
        ClientIdentity {
            client_id: self.client_id.to_string(),
            software_name,
            software_version,
            address: peer.address_text().to_owned(),
            port: peer.port(),
        }
    }
}

impl Cluster {
    /// Returns the clients that were asked for metrics or have pushed some, with their last values.
    pub(crate) fn pushed_clients(&self) -> Vec<PushedClient> {
        self.client_metrics.clients(self.clock.now_ms())
    }
}

impl Api for GetTelemetrySubscriptionsRequest {
    async fn handle(self, context: RequestContext) -> GetTelemetrySubscriptionsResponse {
        let cluster = context.cluster();
        let fresh = random_uuid(&mut lock(&cluster.rng));
        if let Some(mock) = cluster.overrides.mock_subscription() {
            return ClientMetrics::mock_subscription_of(&mock, self.client_instance_id, fresh);
        }
        let now_ms = cluster.clock.now_ms();
        let (asked, client) = (self.client_instance_id, context.identity());
        cluster.client_metrics.subscriptions_of(&cluster.live, asked, fresh, &client, now_ms)
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> GetTelemetrySubscriptionsResponse {
        GetTelemetrySubscriptionsResponse { error_code: code, ..Default::default() }
    }
}

impl Api for PushTelemetryRequest {
    async fn handle(self, context: RequestContext) -> PushTelemetryResponse {
        let cluster = context.cluster();
        let (now_ms, client) = (cluster.clock.now_ms(), context.identity());
        let is_mock = cluster.overrides.mock_subscription().is_some();
        if !is_mock {
            // Before the push takes a turn and memory: most that are refused come too early.
            let admitted = cluster.client_metrics.admit_push(&cluster.live, &self, &client, now_ms);
            if let Err(code) = admitted {
                return PushTelemetryResponse { error_code: code, throttle_time_ms: 0 };
            }
        }
        let memory_bytes = ClientMetrics::memory_bytes(&self);
        let push = move |cluster: &Cluster| {
            let metrics = &cluster.client_metrics;
            if is_mock {
                metrics.push_to_mock(&cluster.live, &self, &client, now_ms)
            } else {
                metrics.push(&self, now_ms)
            }
        };
        let host = context.connection.client_host();
        let pushed = cluster.run_push(host, memory_bytes, push).await;
        PushTelemetryResponse { error_code: pushed.err().unwrap_or(ErrorCode::None), throttle_time_ms: 0 }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> PushTelemetryResponse {
        PushTelemetryResponse { error_code: code, throttle_time_ms: 0 }
    }
}
