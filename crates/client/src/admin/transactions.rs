//! Transactions of all producers: listed, described and aborted.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::describe_transactions::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, TransactionState,
};
use ottla_protocol::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use ottla_protocol::messages::list_transactions::{ListTransactionsRequest, ListTransactionsResponse};

use super::operation::{Operation, Repeat, Target, each, wrong_coordinator};
use super::{Admin, KeyedResults, Timeouts, owned, refused};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::types::TopicPartition;

const LIST_TRANSACTIONS_VERSION_MAX: i16 = 2;
/// The first version of ListTransactions with a filter by duration (KIP-994).
const DURATION_SINCE: i16 = 1;
/// Version 6 is for two-phase commits, which this call does not use.
const INIT_PRODUCER_ID_VERSION_MAX: i16 = 5;
/// The timeout of the transactions of a producer that begins none.
const UNUSED_TIMEOUT_MS: i32 = 1;

/// A filter for transactions.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TransactionFilter {
    /// The states to list, by Kafka's names (`Ongoing`, `Empty`); empty lists all states.
    pub states: Vec<String>,
    /// The producer ids to list; empty lists all.
    pub producer_ids: Vec<i64>,
    /// Lists only transactions that have been open for longer. Supported by brokers from 3.8 on.
    pub longer_than: Option<Duration>,
}

/// A transactional id in a listing.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TransactionListing {
    /// The transactional id.
    pub transactional_id: String,
    /// The producer id.
    pub producer_id: i64,
    /// `Ongoing`, `Empty`, `CompleteCommit` and so on.
    pub state: String,
    /// The node id of its coordinator.
    pub coordinator: i32,
}

/// The transactional ids of all brokers that responded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TransactionListings {
    /// The transactional ids, in their order.
    pub transactions: Vec<TransactionListing>,
    /// The errors of brokers that did not respond, by node id. Their transactional ids are missing.
    pub errors: Vec<(i32, Error)>,
}

/// A transactional id with its last transaction.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TransactionDescription {
    /// The transactional id.
    pub transactional_id: String,
    /// `Ongoing`, `Empty`, `CompleteCommit` and so on.
    pub state: String,
    /// The producer id.
    pub producer_id: i64,
    /// The producer epoch.
    pub producer_epoch: i16,
    /// The time limit of its transactions.
    pub timeout: Duration,
    /// The start of the open transaction, in milliseconds since 1970; `None` without one.
    pub started_ms: Option<i64>,
    /// The partitions of the open transaction.
    pub partitions: Vec<TopicPartition>,
    /// The node id of its coordinator.
    pub coordinator: i32,
}

impl Admin {
    /// Lists the transactional ids that a filter selects, of all brokers. A broker that does not respond hides only its
    /// own ones.
    ///
    /// # Errors
    /// The whole call fails if no broker returns the list of brokers in time.
    pub async fn list_transactions(
        &self,
        filter: TransactionFilter,
        timeouts: Timeouts,
    ) -> Result<TransactionListings, Error> {
        let work = move |cluster: Rc<Cluster>| async move {
            list(&Operation::new(cluster, "list_transactions", timeouts), &filter).await
        };
        self.ask("list_transactions", work).await
    }

    /// Describes transactional ids. Returns a result per id, in the order of the request;
    /// [`ErrorCode::TransactionalIdNotFound`] for one that does not exist.
    ///
    /// # Errors
    /// [`Error::Closed`]; all other errors are results of single ids.
    pub async fn describe_transactions(
        &self,
        transactional_ids: &[&str],
        timeouts: Timeouts,
    ) -> Result<KeyedResults<String, TransactionDescription>, Error> {
        let ids = owned(transactional_ids);
        let work = move |cluster: Rc<Cluster>| async move {
            let operation = Operation::new(cluster, "describe_transactions", timeouts);
            let described = each(&ids, |id| describe_one(&operation, id.clone())).await;
            Ok(ids.into_iter().zip(described).collect())
        };
        self.ask("describe_transactions", work).await
    }

    /// Aborts the open transaction of a transactional id, if it has one, and fences its producer: the producer's next
    /// request fails. Waits until the abort has begun.
    ///
    /// An id that does not exist is created. Use [`describe_transactions`](Self::describe_transactions) before.
    ///
    /// # Errors
    /// The error of the coordinator, for example [`ErrorCode::ConcurrentTransactions`] while another change does not end.
    pub async fn terminate_transaction(
        &self,
        transactional_id: &str,
        timeouts: Timeouts,
    ) -> Result<(), Error> {
        let id = transactional_id.to_owned();
        let work = move |cluster: Rc<Cluster>| async move {
            terminate(&Operation::new(cluster, "terminate_transaction", timeouts), &id).await
        };
        self.ask("terminate_transaction", work).await
    }
}

async fn list(operation: &Operation, filter: &TransactionFilter) -> Result<TransactionListings, Error> {
    let list_at = |node| list_at(operation, node, filter);
    let (mut transactions, errors) = operation.list_at_all(list_at).await?;
    transactions.sort_by(|a: &TransactionListing, b| a.transactional_id.cmp(&b.transactional_id));
    // An id that moved between two requests is listed twice.
    transactions.dedup_by(|a, b| a.transactional_id == b.transactional_id);
    Ok(TransactionListings { transactions, errors })
}

/// Lists the transactional ids of one broker; retries while it loads them.
async fn list_at(
    operation: &Operation,
    node: i32,
    filter: &TransactionFilter,
) -> Result<Vec<TransactionListing>, Error> {
    let duration = filter.longer_than.map(|longer| i64::try_from(longer.as_millis()).unwrap_or(i64::MAX));
    let make = |_version: i16| ListTransactionsRequest {
        state_filters: filter.states.clone(),
        producer_id_filters: filter.producer_ids.clone(),
        duration_filter: duration.unwrap_or(-1),
        transactional_id_pattern: None,
    };
    let needed = if duration.is_some() { DURATION_SINCE } else { 0 };
    let again =
        |response: &ListTransactionsResponse| Some(response.error_code).filter(|code| code.is_retriable());
    let versions = needed..=LIST_TRANSACTIONS_VERSION_MAX;
    let response = operation.call(Target::Node(node), versions, Repeat::Yes, make, again).await?;
    refused(&format!("transactions of node {node}"), response.error_code, None)?;
    if !response.unknown_state_filters.is_empty() {
        let unknown = response.unknown_state_filters.join(", ");
        return Err(Error::Config(format!("node {node} does not know the transaction states {unknown}")));
    }
    let listing = |found: ottla_protocol::messages::list_transactions::TransactionState| TransactionListing {
        transactional_id: found.transactional_id,
        producer_id: found.producer_id,
        state: found.transaction_state,
        coordinator: node,
    };
    Ok(response.transaction_states.into_iter().map(listing).collect())
}

async fn describe_one(operation: &Operation, id: String) -> Result<TransactionDescription, Error> {
    let coordinator = Cell::new(-1);
    let make = |_version: i16| DescribeTransactionsRequest { transactional_ids: vec![id.clone()] };
    let again = |response: &DescribeTransactionsResponse| {
        wrong_coordinator(response.transaction_states.iter().map(|state| state.error_code))
    };
    let target = Target::Transaction(&id, &coordinator);
    let response = operation.call(target, 0..=0, Repeat::Yes, make, again).await?;
    let what = format!("transactional id `{id}`");
    let Some(state) = response.transaction_states.into_iter().next() else {
        return Err(Error::Broker { what, code: ErrorCode::UnknownServerError });
    };
    refused(&what, state.error_code, None)?;
    Ok(description(state, coordinator.get()))
}

fn description(state: TransactionState, coordinator: i32) -> TransactionDescription {
    let partitions = state.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| TopicPartition::new(&topic.topic, *partition))
    });
    let mut partitions: Vec<TopicPartition> = partitions.collect();
    partitions.sort();
    TransactionDescription {
        partitions,
        transactional_id: state.transactional_id,
        state: state.transaction_state,
        producer_id: state.producer_id,
        producer_epoch: state.producer_epoch,
        timeout: Duration::from_millis(state.transaction_timeout_ms.max(0) as u64),
        started_ms: Some(state.transaction_start_time_ms).filter(|ms| *ms >= 0),
        coordinator,
    }
}

async fn terminate(operation: &Operation, id: &str) -> Result<(), Error> {
    let make = |_version: i16| InitProducerIdRequest {
        transactional_id: Some(id.to_owned()),
        transaction_timeout_ms: UNUSED_TIMEOUT_MS,
        ..Default::default()
    };
    let again = |response: &InitProducerIdResponse| {
        // The coordinator ends the open transaction first.
        let busy = Some(response.error_code).filter(|code| *code == ErrorCode::ConcurrentTransactions);
        busy.or_else(|| wrong_coordinator([response.error_code]))
    };
    let coordinator = Cell::new(-1);
    let (target, versions) = (Target::Transaction(id, &coordinator), 0..=INIT_PRODUCER_ID_VERSION_MAX);
    let response = operation.call(target, versions, Repeat::Yes, make, again).await?;
    refused(&format!("aborting the transaction of `{id}`"), response.error_code, None)
}
