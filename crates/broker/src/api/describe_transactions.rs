//! DescribeTransactions: the state and the partitions of transactional ids.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::describe_transactions::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, TopicData, TransactionState,
};

use super::repeats::without_repeats;
use super::transactional::check_coordinator;
use super::{Api, RequestContext};
use crate::transactions::metadata::TransactionMetadata;

impl Api for DescribeTransactionsRequest {
    async fn handle(self, context: RequestContext) -> DescribeTransactionsResponse {
        let states = without_repeats(self.transactional_ids, String::clone).into_iter().map(|id| {
            let found = check_coordinator(&context, &id).and_then(|()| {
                let known = context.cluster().transactions.describe(&id);
                known.ok_or(ErrorCode::TransactionalIdNotFound)
            });
            match found {
                Ok(metadata) => {
                    let mut state = described(id, metadata);
                    state.topics.retain(|topic| context.may_see_topic(&topic.topic));
                    state
                }
                Err(code) => refused(id, code),
            }
        });
        DescribeTransactionsResponse { transaction_states: states.collect(), ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DescribeTransactionsResponse {
        let states = self.transactional_ids.into_iter().map(|id| refused(id, code));
        DescribeTransactionsResponse { transaction_states: states.collect(), ..Default::default() }
    }
}

fn refused(transactional_id: String, error_code: ErrorCode) -> TransactionState {
    TransactionState { transactional_id, error_code, ..Default::default() }
}

fn described(transactional_id: String, metadata: TransactionMetadata) -> TransactionState {
    let mut topics: Vec<TopicData> = Vec::new();
    for partition in metadata.partitions {
        match topics.last_mut() {
            Some(last) if *last.topic == *partition.topic => last.partitions.push(partition.index),
            _ => topics.push(TopicData {
                topic: partition.topic.as_ref().to_owned(),
                partitions: vec![partition.index],
            }),
        }
    }
    TransactionState {
        error_code: ErrorCode::None,
        transactional_id,
        transaction_state: metadata.state.name().into(),
        transaction_timeout_ms: metadata.timeout_ms,
        transaction_start_time_ms: metadata.started_ms,
        producer_id: metadata.producer_id,
        producer_epoch: metadata.producer_epoch,
        topics,
    }
}
