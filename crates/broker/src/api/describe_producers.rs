//! DescribeProducers: the idempotent and transactional producers that a partition knows (KIP-664).

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::describe_producers::{
    DescribeProducersRequest, DescribeProducersResponse, PartitionResponse, ProducerState, TopicResponse,
};

use super::repeats::SeenPartitions;
use super::{Api, RequestContext};

impl Api for DescribeProducersRequest {
    async fn handle(self, context: RequestContext) -> DescribeProducersResponse {
        respond(self, |topic, index| describe(&context, topic, index))
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DescribeProducersResponse {
        respond(self, |_, _| Err(code))
    }
}

fn describe(context: &RequestContext, topic: &str, index: i32) -> Result<Vec<ProducerState>, ErrorCode> {
    let partition = context.cluster().partition(topic, index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    partition.check_leader(context.node(), -1)?;
    let producers = partition.log().producers();
    let state = |producer: ottla_log::ProducerState| ProducerState {
        producer_id: producer.producer_id,
        producer_epoch: i32::from(producer.epoch),
        last_sequence: producer.last_sequence,
        last_timestamp: producer.last_timestamp,
        coordinator_epoch: producer.coordinator_epoch,
        current_txn_start_offset: producer.transaction_first_offset.unwrap_or(-1),
    };
    Ok(producers.into_iter().map(state).collect())
}

fn respond(
    request: DescribeProducersRequest,
    describe: impl Fn(&str, i32) -> Result<Vec<ProducerState>, ErrorCode>,
) -> DescribeProducersResponse {
    let mut seen = SeenPartitions::default();
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = seen.new_ones(&topic.name, topic.partition_indexes).into_iter().map(|index| {
            let (error_code, error_message, active_producers) = match describe(&topic.name, index) {
                Ok(producers) => (ErrorCode::None, None, producers),
                Err(code) => (code, Some(code.message().to_owned()), Vec::new()),
            };
            PartitionResponse { partition_index: index, error_code, error_message, active_producers }
        });
        TopicResponse { partitions: partitions.collect(), name: topic.name }
    });
    DescribeProducersResponse { topics: topics.collect(), ..Default::default() }
}
