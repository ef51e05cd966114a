//! ElectLeaders: gives partitions back to their preferred leaders, or a leader to those without one.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::elect_leaders::{
    ElectLeadersRequest, ElectLeadersResponse, PartitionResult, ReplicaElectionResult, TopicPartitions,
};

use super::{Api, MESSAGES_MAX, RequestContext};
use crate::cluster::{Cluster, Election};

const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;

impl Api for ElectLeadersRequest {
    async fn handle(self, context: RequestContext) -> ElectLeadersResponse {
        let election = match self.election_type {
            PREFERRED => Election::Preferred,
            UNCLEAN => Election::Unclean,
            _ => return self.refuse(&context, ErrorCode::InvalidRequest),
        };
        let elect = move |cluster: &Cluster| match self.topic_partitions {
            Some(topics) => topics.into_iter().map(|topic| elect_named(cluster, topic, election)).collect(),
            None => elect_all(cluster, election),
        };
        let mut replica_election_results = context.cluster().change_topics(elect).await;
        add_messages(&mut replica_election_results);
        ElectLeadersResponse { replica_election_results, ..Default::default() }
    }

    fn refuse(self, context: &RequestContext, code: ErrorCode) -> ElectLeadersResponse {
        let results = self.topic_partitions.into_iter().flatten().map(|topic| ReplicaElectionResult {
            topic: topic.topic,
            partition_result: topic.partitions.into_iter().map(|index| result_of(index, Err(code))).collect(),
        });
        let mut results: Vec<ReplicaElectionResult> = results.collect();
        add_messages(&mut results);
        ElectLeadersResponse {
            // Version 0 has errors by partition only.
            error_code: if context.version >= 1 { code } else { ErrorCode::None },
            replica_election_results: results,
            ..Default::default()
        }
    }
}

fn elect_named(cluster: &Cluster, topic: TopicPartitions, election: Election) -> ReplicaElectionResult {
    let elect = |index| result_of(index, cluster.elect_leader(&topic.topic, index, election));
    let partition_result = topic.partitions.into_iter().map(elect).collect();
    ReplicaElectionResult { topic: topic.topic, partition_result }
}

/// Holds the elections of all partitions. As in Kafka, the response omits partitions that have the right leader.
fn elect_all(cluster: &Cluster, election: Election) -> Vec<ReplicaElectionResult> {
    let results = cluster.topics().into_iter().map(|topic| {
        let elected = topic.partitions.iter().map(|partition| {
            let outcome = cluster.elect_leader(&topic.name, partition.index, election);
            result_of(partition.index, outcome)
        });
        let partition_result = elected.filter(|result| result.error_code != ErrorCode::ElectionNotNeeded);
        ReplicaElectionResult { topic: topic.name.to_string(), partition_result: partition_result.collect() }
    });
    results.filter(|topic| !topic.partition_result.is_empty()).collect()
}

/// Adds the messages of the first results that failed. Clients know the message of a code: a copy for each partition would be most of a
/// large response.
fn add_messages(results: &mut [ReplicaElectionResult]) {
    let results = results.iter_mut().flat_map(|topic| &mut topic.partition_result);
    for result in results.filter(|result| result.error_code != ErrorCode::None).take(MESSAGES_MAX) {
        result.error_message = Some(result.error_code.message().to_owned());
    }
}

/// The result of one election, without its message.
fn result_of(partition_id: i32, outcome: Result<(), ErrorCode>) -> PartitionResult {
    let error_code = outcome.err().unwrap_or(ErrorCode::None);
    PartitionResult { partition_id, error_code, error_message: None }
}
