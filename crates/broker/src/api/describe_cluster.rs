//! DescribeCluster: the brokers, for admin clients.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};

use super::{Api, RequestContext, authorized_operations};
use crate::cluster::nodes::Node;

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

impl Api for DescribeClusterRequest {
    async fn handle(self, context: RequestContext) -> DescribeClusterResponse {
        match self.endpoint_type {
            BROKERS => {}
            // The endpoints of controllers are those of a controller to ask.
            CONTROLLERS => return self.refuse(&context, ErrorCode::MismatchedEndpointType),
            _ => return self.refuse(&context, ErrorCode::UnsupportedEndpointType),
        }
        let cluster = context.cluster();
        let described = |node: &Node, is_fenced| {
            let (host, port) = context.address_of(node);
            let rack = cluster.rack(node.id);
            DescribeClusterBroker { broker_id: node.id, host, port: i32::from(port), rack, is_fenced }
        };
        // KIP-1073: the brokers that have registered and do not serve.
        let fenced = cluster.nodes_down().filter(|_| self.include_fenced_brokers);
        let brokers = cluster
            .nodes_up()
            .map(|node| described(node, false))
            .chain(fenced.map(|node| described(node, true)));
        DescribeClusterResponse {
            cluster_id: cluster.id().to_owned(),
            controller_id: cluster.controller(),
            brokers: brokers.collect(),
            cluster_authorized_operations: authorized_operations::of_cluster_if_requested(
                self.include_cluster_authorized_operations,
                &context,
            ),
            ..Default::default()
        }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DescribeClusterResponse {
        DescribeClusterResponse { error_code: code, ..Default::default() }
    }
}
