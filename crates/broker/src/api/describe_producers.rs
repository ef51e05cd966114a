//! DescribeProducers: the idempotent and transactional producers that a partition knows (KIP-664).

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::describe_producers::{
    DescribeProducersRequest, DescribeProducersResponse, PartitionResponse, ProducerState, TopicResponse,
};

use super::repeats::SeenPartitions;
use super::{Api, MESSAGES_MAX, RequestContext};

/// Producers in one response. A partition with more is described if it is the first one.
const PRODUCERS_MAX: usize = 100_000;

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
    // As in Kafka, all replicas know the producers.
    context.cluster().check_replica(&partition, context.node(), -1)?;
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
    let (mut seen, mut total, mut messages_left) = (SeenPartitions::default(), 0, MESSAGES_MAX);
    let mut limited = |topic: &str, index| {
        let producers = describe(topic, index)?;
        if total > 0 && !producers.is_empty() && total + producers.len() > PRODUCERS_MAX {
            return Err(ErrorCode::PolicyViolation);
        }
        total += producers.len();
        Ok(producers)
    };
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = seen.new_ones(&topic.name, topic.partition_indexes).into_iter().map(|index| {
            let (error_code, error_message, active_producers) = match limited(&topic.name, index) {
                Ok(producers) => (ErrorCode::None, None, producers),
                // Clients know the message of a code. A copy for each partition would be most of a large response.
                Err(code) if messages_left == 0 => (code, None, Vec::new()),
                Err(code) => {
                    messages_left -= 1;
                    (code, Some(code.message().to_owned()), Vec::new())
                }
            };
            PartitionResponse { partition_index: index, error_code, error_message, active_producers }
        });
        TopicResponse { partitions: partitions.collect(), name: topic.name }
    });
    DescribeProducersResponse { topics: topics.collect(), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use ottla_protocol::messages::describe_producers::TopicRequest;

    use super::*;

    #[test]
    fn a_response_has_a_limited_number_of_producers() {
        let topic = TopicRequest { name: "orders".into(), partition_indexes: (0..4).collect() };
        let counts = [PRODUCERS_MAX + 1, 1, 0, 70_000];
        let count = |_: &str, index: i32| Ok(vec![ProducerState::default(); counts[index as usize]]);
        let described = respond(DescribeProducersRequest { topics: vec![topic] }, count);
        let described = described.topics[0].partitions.iter();
        let described: Vec<_> = described.map(|it| (it.error_code, it.active_producers.len())).collect();
        let refused = (ErrorCode::PolicyViolation, 0);
        assert_eq!(described, [(ErrorCode::None, counts[0]), refused, (ErrorCode::None, 0), refused]);
    }
}
