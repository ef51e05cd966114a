//! FindCoordinator: which node answers for a group.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::find_coordinator::{
    Coordinator, FindCoordinatorRequest, FindCoordinatorResponse,
};

use super::{Api, RequestContext};
use crate::coordinator::offsets::is_group_name;
use crate::internal_topics::InternalTopic;
use crate::partition::NO_LEADER;

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

impl Api for FindCoordinatorRequest {
    async fn handle(self, context: RequestContext) -> FindCoordinatorResponse {
        let kind = self.key_type;
        // The coordinator of a group is the leader of its partition: the topic is created with the first question.
        if kind == GROUP {
            let keys =
                std::iter::once(&self.key).filter(|_| context.version < 4).chain(&self.coordinator_keys);
            let mut keys = keys.filter(|key| is_group_name(key));
            if let Some(key) = keys.next()
                && let Err(code) =
                    context.cluster().coordinator_partition(InternalTopic::ConsumerOffsets, key).await
            {
                return self.refuse(&context, code);
            }
        }
        respond(self, context.version, |key| find(&context, kind, key))
    }

    fn refuse(self, context: &RequestContext, code: ErrorCode) -> FindCoordinatorResponse {
        respond(self, context.version, |_| Err((code, String::new())))
    }
}

/// The reason why a transactional.id is refused.
pub(super) fn no_transactions(id: &str) -> String {
    format!(
        "transactional.id `{id}`: this broker has no transactions; remove transactional.id, or use Apache Kafka"
    )
}

/// The error that makes a client give up at once and print our text.
///
/// librdkafka, whose latest version is 2, repeats the request after any error that is not about rights, and prints the
/// text behind the name of that one. Java's client prints the text only with errors that it does not know here.
fn no_transactions_code(version: i16) -> ErrorCode {
    if version < 3 { ErrorCode::TransactionalIdAuthorizationFailed } else { ErrorCode::UnsupportedVersion }
}

type Found = Result<(i32, String, u16), (ErrorCode, String)>;

fn find(context: &RequestContext, kind: i8, key: &str) -> Found {
    match kind {
        GROUP if is_group_name(key) => {}
        GROUP => {
            let reason = format!("group {key:?}: its name has control characters");
            return Err((ErrorCode::InvalidGroupId, reason));
        }
        TRANSACTION => {
            context.connection.warn_missing("transactions");
            return Err((no_transactions_code(context.version), no_transactions(key)));
        }
        other => {
            let reason = format!("coordinators of kind {other} do not exist in this broker");
            return Err((ErrorCode::UnsupportedVersion, reason));
        }
    }
    let cluster = context.cluster();
    let id = cluster.coordinator(key);
    match cluster.node(id).filter(|_| id != NO_LEADER) {
        Some(node) => {
            let (host, port) = node.address();
            Ok((id, host, port))
        }
        None => Err((ErrorCode::CoordinatorNotAvailable, "no node is up".into())),
    }
}

fn respond(
    request: FindCoordinatorRequest,
    version: i16,
    find: impl Fn(&str) -> Found,
) -> FindCoordinatorResponse {
    if version < 4 {
        return match find(&request.key) {
            Ok((node_id, host, port)) => {
                FindCoordinatorResponse { node_id, host, port: i32::from(port), ..Default::default() }
            }
            Err((error_code, reason)) => FindCoordinatorResponse {
                error_code,
                error_message: Some(reason),
                node_id: -1,
                port: -1,
                ..Default::default()
            },
        };
    }
    let coordinators = request.coordinator_keys.into_iter().map(|key| match find(&key) {
        Ok((node_id, host, port)) => {
            Coordinator { key, node_id, host, port: i32::from(port), ..Default::default() }
        }
        Err((error_code, reason)) => Coordinator {
            key,
            node_id: -1,
            port: -1,
            error_code,
            error_message: Some(reason),
            ..Default::default()
        },
    });
    FindCoordinatorResponse { coordinators: coordinators.collect(), ..Default::default() }
}
