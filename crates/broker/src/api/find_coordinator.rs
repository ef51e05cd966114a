//! FindCoordinator: which node answers for a group, for a transactional id, or for a share-partition.

use ottla_protocol::messages::find_coordinator::{
    Coordinator, FindCoordinatorRequest, FindCoordinatorResponse,
};
use ottla_protocol::{ErrorCode, Uuid};

use super::{Api, RequestContext};
use crate::coordinator::offsets::is_group_name;
use crate::internal_topics::InternalTopic;
use crate::partition::NO_LEADER;

pub(super) const GROUP: i8 = 0;
pub(super) const TRANSACTION: i8 = 1;
/// The state of a share-partition.
pub(super) const SHARE: i8 = 2;
/// From this version on, there are keys of share-partitions.
const SHARE_FROM: i16 = 6;

impl Api for FindCoordinatorRequest {
    async fn handle(self, context: RequestContext) -> FindCoordinatorResponse {
        let kind = self.key_type;
        if let Err(code) = create_topic(&self, &context).await {
            return self.refuse(&context, code);
        }
        respond(self, context.version, |key| find(&context, kind, key))
    }

    fn refuse(self, context: &RequestContext, code: ErrorCode) -> FindCoordinatorResponse {
        respond(self, context.version, |_| Err((code, String::new())))
    }
}

/// Creates the topic of the coordinators with the first question for one: the coordinator is the leader of a partition.
async fn create_topic(request: &FindCoordinatorRequest, context: &RequestContext) -> Result<(), ErrorCode> {
    let topic = match request.key_type {
        GROUP => InternalTopic::ConsumerOffsets,
        TRANSACTION => InternalTopic::TransactionState,
        SHARE if context.version >= SHARE_FROM => InternalTopic::ShareGroupState,
        _ => return Ok(()),
    };
    let keys = std::iter::once(&request.key).filter(|_| context.version < 4).chain(&request.coordinator_keys);
    let mut keys = keys.filter(|key| match request.key_type {
        GROUP => is_group_name(key),
        SHARE => is_share_key(key),
        _ => true,
    });
    match keys.next() {
        Some(key) => context.cluster().coordinator_partition(topic, key).await.map(drop),
        None => Ok(()),
    }
}

type Found = Result<(i32, String, u16), (ErrorCode, String)>;

fn find(context: &RequestContext, kind: i8, key: &str) -> Found {
    match kind {
        GROUP if is_group_name(key) => {}
        GROUP => {
            let reason = format!("group {key:?}: its name has control characters");
            return Err((ErrorCode::InvalidGroupId, reason));
        }
        TRANSACTION => {}
        SHARE if context.version >= SHARE_FROM && is_share_key(key) => {}
        SHARE => {
            let reason = format!("`{key}` is no key of a share-partition: use group:topicId:partition");
            return Err((ErrorCode::InvalidRequest, reason));
        }
        other => {
            let reason = format!("there is no coordinator of type {other}");
            return Err((ErrorCode::InvalidRequest, reason));
        }
    }
    let cluster = context.cluster();
    let id = match kind {
        GROUP => cluster.coordinator(key),
        SHARE => cluster.share_coordinator(key),
        _ => cluster.transaction_coordinator(key),
    };
    match cluster.node(id).filter(|_| id != NO_LEADER) {
        Some(node) => {
            let (host, port) = context.address_of(node);
            Ok((id, host, port))
        }
        None => Err((ErrorCode::CoordinatorNotAvailable, "the coordinator is not available".into())),
    }
}

/// Returns whether a key names a group, the id of a topic, and a partition. Group names may contain colons.
fn is_share_key(key: &str) -> bool {
    let mut parts = key.rsplitn(3, ':');
    let (partition, topic, group) = (parts.next(), parts.next(), parts.next());
    partition.is_some_and(|partition| partition.parse::<i32>().is_ok())
        && topic.is_some_and(|topic| topic.parse::<Uuid>().is_ok())
        && group.is_some_and(|group| !group.is_empty())
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
