//! ListTransactions: the transactional ids that a node coordinates.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::list_transactions::{
    ListTransactionsRequest, ListTransactionsResponse, TransactionState as ListedState,
};
use regex_lite::Regex;

use super::pace::Pace;
use super::{Api, RequestContext};
use crate::cluster::Cluster;
use crate::coordinator::consumer_group::patterns::compile;
use crate::security::acl::{Operation, ResourceType};
use crate::transactions::state::TransactionState;
use crate::transactions::table::TransactionDescription;

/// Ids that are looked at under one lock.
const IDS_PER_STEP: usize = 1000;

impl Api for ListTransactionsRequest {
    async fn handle(self, context: RequestContext) -> ListTransactionsResponse {
        // Kafka: the pattern describes the whole id.
        let pattern = self.transactional_id_pattern.as_deref().filter(|pattern| !pattern.is_empty());
        let pattern = pattern.map(compile).transpose();
        let Ok(pattern) = pattern else {
            return self.refuse(&context, ErrorCode::InvalidRegularExpression);
        };
        let turn = context.cluster().take_list_turn(context.connection.client_host()).await;
        let node = context.node();
        let listing = move |cluster: &Cluster| list(cluster, node, self, pattern.as_ref());
        let mut listed = context.cluster().run_listing(turn, listing).await;
        let may_see = |id: &str| context.may_see(Operation::Describe, ResourceType::TransactionalId, id);
        let mut pace = Pace::default();
        for state in std::mem::take(&mut listed.transaction_states) {
            pace.step().await;
            if may_see(&state.transactional_id) {
                listed.transaction_states.push(state);
            }
        }
        listed
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> ListTransactionsResponse {
        ListTransactionsResponse { error_code: code, ..Default::default() }
    }
}

fn list(
    cluster: &Cluster,
    node: i32,
    request: ListTransactionsRequest,
    pattern: Option<&Regex>,
) -> ListTransactionsResponse {
    let ListTransactionsRequest { state_filters, producer_id_filters, duration_filter, .. } = request;
    let (states, unknown): (Vec<String>, Vec<String>) =
        state_filters.into_iter().partition(|name| TransactionState::is_name(name));
    // Only unknown states: nothing fits.
    let any_state = states.is_empty() && unknown.is_empty();
    // Sets: every id is compared with all filters of the request.
    let states: BTreeSet<String> = states.into_iter().collect();
    let producer_ids: BTreeSet<i64> = producer_id_filters.into_iter().collect();
    let now_ms = cluster.clock.now_ms();
    let fits = |described: &TransactionDescription| {
        let TransactionDescription { id, metadata } = described;
        (any_state || states.contains(metadata.state.name()))
            && (producer_ids.is_empty() || producer_ids.contains(&metadata.producer_id))
            && (duration_filter < 0 || now_ms - metadata.started_ms > duration_filter)
            && pattern.is_none_or(|pattern| pattern.is_match(id))
            && cluster.transaction_coordinator(id) == node
    };
    let mut found = Vec::new();
    let mut after: Option<Arc<str>> = None;
    loop {
        let step = cluster.transactions.list(after.as_deref(), IDS_PER_STEP);
        after = step.last().map(|last| last.id.clone());
        let is_last = step.len() < IDS_PER_STEP;
        found.extend(step.into_iter().filter(&fits).map(|described| ListedState {
            transactional_id: described.id.as_ref().to_owned(),
            producer_id: described.metadata.producer_id,
            transaction_state: described.metadata.state.name().into(),
        }));
        if is_last {
            let (unknown_state_filters, transaction_states) = (unknown, found);
            return ListTransactionsResponse {
                unknown_state_filters,
                transaction_states,
                ..Default::default()
            };
        }
    }
}
