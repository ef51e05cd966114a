//! The consumer that fetches: the records that it may read, and the replica that it reads from.

use ottla_protocol::messages::fetch::{FetchRequest, PartitionData};

use super::RequestContext;
use crate::cluster::Cluster;
use crate::config::ReplicaSelector;
use crate::partition::Partition;

/// The consumer or the follower that sends a fetch.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) isolation: Isolation,
    /// The nodes in the rack of a consumer that leaders redirect (KIP-392).
    nodes_of_rack: Vec<i32>,
}

impl Reader {
    pub(super) fn of(request: &FetchRequest, context: &RequestContext, is_replica: bool) -> Self {
        let (cluster, rack) = (context.cluster(), &*request.rack_id);
        let is_rack_aware = cluster.config.replica_selector == ReplicaSelector::RackAware;
        let is_redirected = is_rack_aware && !is_replica && !rack.is_empty();
        let nodes_of_rack = if is_redirected { cluster.nodes_of_rack(rack) } else { Vec::new() };
        Self { isolation: Isolation::of_level(request.isolation_level), nodes_of_rack }
    }

    /// The replica to which the leader of a partition redirects the consumer.
    pub(super) fn replica_in_rack(&self, cluster: &Cluster, partition: &Partition) -> Option<i32> {
        cluster.replica_among(partition, &self.nodes_of_rack)
    }
}

/// The records that a consumer may read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Isolation {
    /// All below the high watermark.
    Uncommitted,
    /// Those below the last stable offset, with a list of the aborted transactions among them.
    Committed,
}

impl Isolation {
    /// The isolation of the field `isolation_level`, of which Kafka knows 0 and 1.
    pub(super) const fn of_level(level: i8) -> Self {
        if level == 1 { Self::Committed } else { Self::Uncommitted }
    }

    /// The offset that ends what the consumer may read.
    pub(super) const fn end(self, data: &PartitionData) -> i64 {
        match self {
            Self::Uncommitted => data.high_watermark,
            Self::Committed => data.last_stable_offset,
        }
    }
}
