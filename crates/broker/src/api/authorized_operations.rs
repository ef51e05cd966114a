//! The operations that a client may do: all that a resource has, or those that the ACLs allow.

use super::RequestContext;
use crate::security::acl::{CLUSTER_NAME, Operation, ResourceType};

/// Bits of operations, by their numbers in the protocol.
const READ: i32 = 1 << 3;
const WRITE: i32 = 1 << 4;
const CREATE: i32 = 1 << 5;
const DELETE: i32 = 1 << 6;
const ALTER: i32 = 1 << 7;
const DESCRIBE: i32 = 1 << 8;
const CLUSTER_ACTION: i32 = 1 << 9;
const DESCRIBE_CONFIGS: i32 = 1 << 10;
const ALTER_CONFIGS: i32 = 1 << 11;
const IDEMPOTENT_WRITE: i32 = 1 << 12;

/// The operations of a topic.
pub(super) const OF_TOPIC: i32 =
    READ | WRITE | CREATE | DELETE | ALTER | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS;
/// The operations of a cluster.
const OF_CLUSTER: i32 =
    CREATE | ALTER | DESCRIBE | CLUSTER_ACTION | DESCRIBE_CONFIGS | ALTER_CONFIGS | IDEMPOTENT_WRITE;
/// The operations of a group.
pub(super) const OF_GROUP: i32 = READ | DELETE | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS;
/// The answer to a request that does not ask.
const NOT_REQUESTED: i32 = i32::MIN;

/// The operations of a topic, a group or another resource that the client may do, if the request asks for them.
pub(super) fn if_requested(
    is_requested: bool,
    context: &RequestContext,
    (resource_type, name): (ResourceType, &str),
    operations: i32,
) -> i32 {
    if is_requested { context.allowed_operations(resource_type, name, operations) } else { NOT_REQUESTED }
}

/// The operations of the cluster, if the request asks for them. A client that may not describe it may do nothing.
pub(super) fn of_cluster_if_requested(is_requested: bool, context: &RequestContext) -> i32 {
    let cluster = ResourceType::Cluster;
    if is_requested && !context.may_see(Operation::Describe, cluster, CLUSTER_NAME) {
        return 0;
    }
    if_requested(is_requested, context, (cluster, CLUSTER_NAME), OF_CLUSTER)
}
