//! DescribeCluster: the brokers, for admin clients.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};

use super::{Api, Asked};

const BROKERS: i8 = 1;

impl Api for DescribeClusterRequest {
    async fn handle(self, asked: Asked) -> DescribeClusterResponse {
        if self.endpoint_type != BROKERS {
            return self.refuse(&asked, ErrorCode::MismatchedEndpointType);
        }
        let cluster = asked.cluster();
        let brokers = cluster.nodes_up().map(|node| {
            let (host, port) = node.address();
            let rack = cluster.staged.rack(node.id);
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

    fn refuse(self, _asked: &Asked, code: ErrorCode) -> DescribeClusterResponse {
        DescribeClusterResponse { error_code: code, ..Default::default() }
    }
}
