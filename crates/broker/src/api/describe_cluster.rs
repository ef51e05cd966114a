//! DescribeCluster: the brokers, for admin clients.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};

use super::{Api, RequestContext};

const BROKERS: i8 = 1;

impl Api for DescribeClusterRequest {
    async fn handle(self, context: RequestContext) -> DescribeClusterResponse {
        if self.endpoint_type != BROKERS {
            return self.refuse(&context, ErrorCode::MismatchedEndpointType);
        }
        let cluster = context.cluster();
        let brokers = cluster.nodes_up().map(|node| {
            let (host, port) = node.address();
            let rack = cluster.overrides.rack(node.id);
            DescribeClusterBroker {
                broker_id: node.id,
                host,
                port: i32::from(port),
                rack,
                ..Default::default()
            }
        });
        DescribeClusterResponse {
            cluster_id: cluster.id().to_owned(),
            controller_id: cluster.controller(),
            brokers: brokers.collect(),
            ..Default::default()
        }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DescribeClusterResponse {
        DescribeClusterResponse { error_code: code, ..Default::default() }
    }
}
