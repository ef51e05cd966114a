//! Partitions without a leader, or with missing in-sync replicas.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::MetadataResponse;

use super::brokers::{Cluster, some_of};
use super::report::{Report, Status, Step};
use crate::failure::Failure;
use crate::output::counted;

pub(super) fn examine(cluster: &Cluster, report: &mut Report) -> Result<(), Failure> {
    report.add(partitions(&cluster.metadata))
}

fn partitions(metadata: &MetadataResponse) -> Step {
    let (mut leaderless, mut lacking, mut refused, mut count) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for topic in &metadata.topics {
        let name = topic.name.as_deref().unwrap_or("(no name)");
        if topic.error_code != ErrorCode::None {
            refused.push(format!("{name} ({})", topic.error_code.name()));
        }
        for partition in &topic.partitions {
            count += 1;
            let which = format!("{name}-{}", partition.partition_index);
            if partition.leader_id < 0 {
                leaderless.push(which);
            } else if partition.isr_nodes.len() < partition.replica_nodes.len() {
                lacking.push(which);
            }
        }
    }
    let mut step = Step::new("partitions", counted(metadata.topics.len() as u64, "topic"));
    step = step.fact(counted(count as u64, "partition"));
    if !refused.is_empty() {
        step = step
            .status(Status::Warn)
            .fact(format!("{} with errors: {}", counted(refused.len() as u64, "topic"), some_of(&refused)))
            .advice("if this persists, check the broker's log");
    }
    if !lacking.is_empty() {
        step = step
            .status(Status::Warn)
            .fact(format!("{} under-replicated: {}", lacking.len(), some_of(&lacking)))
            .advice("a broker is down or slow: with fewer copies than min.insync.replicas, acks=all fails with NOT_ENOUGH_REPLICAS");
    }
    if !leaderless.is_empty() {
        step = step
            .status(Status::Fail)
            .fact(format!("{} without a leader: {}", leaderless.len(), some_of(&leaderless)))
            .advice("these cannot be produced to or fetched from until a broker with a replica returns: records wait for at most delivery.timeout.ms");
    }
    step
}
