//! The operations and resources that each request needs, as in Kafka.
//!
//! A request is checked before it is handled, and only if the broker has an authorizer. Items that the client may not use are
//! taken out of it, and their errors are added to the response. Handlers check what they find out themselves: the topics of a
//! fetch session, and the names in a list of everything, which is filtered.
//!
//! Each API implements [`Authorize`], or it does not compile. `tests/acls.rs` sends each as a client without rights.

mod cluster;
mod groups;
mod topics;
mod transactions;

use std::sync::Arc;

use ottla_protocol::{ErrorCode, Request, Uuid};

use super::{Api, RequestContext};
use crate::quotas::Throttled;
use crate::security::acl::{CLUSTER_NAME, Operation, ResourceType};
use crate::security::{Authorizer, Client};

/// The result of the check of a request.
#[derive(Debug)]
pub(crate) enum Verdict<R: Request> {
    /// The request is handled as it is.
    Granted,
    /// The request is refused with this error.
    Refused(ErrorCode),
    /// The request is answered with this response.
    Answered(R::Response),
    /// The rest of the request is handled. The response has the errors of the items that were taken out.
    Partly(R::Response),
}

/// A request that knows what it needs.
pub(crate) trait Authorize: Request<Response: Send + Throttled> {
    /// Checks a request, and takes out the items that the client may not use.
    fn authorize(&mut self, access: &Access<'_>) -> Verdict<Self>
    where
        Self: Sized;

    /// Adds the errors of the items that were taken out.
    fn merge(_response: &mut Self::Response, _denied: Self::Response) {}
}

/// The rights of the client that has sent a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access<'a> {
    context: &'a RequestContext,
    authorizer: &'a Authorizer,
}

impl Access<'_> {
    fn client(&self) -> Client<'_> {
        self.context.client()
    }

    fn may(&self, operation: Operation, resource_type: ResourceType, name: &str) -> bool {
        self.authorizer.authorize(self.client(), operation, resource_type, name)
    }

    fn topic(&self, operation: Operation, name: &str) -> bool {
        self.may(operation, ResourceType::Topic, name)
    }

    /// The name of a topic that a request names by its id, or by its name. `None` if there is no such id: the handler refuses it.
    fn topic_name(&self, name: &str, id: Uuid) -> Option<Arc<str>> {
        if id == Uuid::ZERO {
            Some(name.into())
        } else {
            Some(self.context.cluster().topic_by_id(id)?.name.clone())
        }
    }

    /// Checks a topic that a request names by its id from a version on, and by its name before. Ids reveal nothing, as in Kafka.
    fn topic_or_id(&self, operation: Operation, name: &str, id: Uuid, ids_from: i16) -> bool {
        let has_no_name = id == Uuid::ZERO && self.context.version >= ids_from;
        has_no_name || self.topic_name(name, id).is_none_or(|name| self.topic(operation, &name))
    }

    /// Returns `true` if the client may do the operation on the cluster, which stands for all topics. A denial is not logged, because the
    /// topics decide then.
    fn may_on_all_topics(&self, operation: Operation) -> bool {
        self.authorizer.is_allowed(self.client(), operation, ResourceType::Cluster, CLUSTER_NAME)
    }

    fn may_create(&self, topic: &str) -> bool {
        self.may_on_all_topics(Operation::Create) || self.topic(Operation::Create, topic)
    }

    fn need_cluster(&self, operation: Operation) -> Result<(), ErrorCode> {
        let is_allowed = self.may(operation, ResourceType::Cluster, CLUSTER_NAME);
        if is_allowed { Ok(()) } else { Err(ErrorCode::ClusterAuthorizationFailed) }
    }

    fn need_group(&self, operation: Operation, group: &str) -> Result<(), ErrorCode> {
        let is_allowed = self.may(operation, ResourceType::Group, group);
        if is_allowed { Ok(()) } else { Err(ErrorCode::GroupAuthorizationFailed) }
    }

    fn need_transactional_id(&self, operation: Operation, id: &str) -> Result<(), ErrorCode> {
        let is_allowed = self.may(operation, ResourceType::TransactionalId, id);
        if is_allowed { Ok(()) } else { Err(ErrorCode::TransactionalIdAuthorizationFailed) }
    }
}

impl RequestContext {
    fn client(&self) -> Client<'_> {
        Client { principal: self.principal(), host: self.connection.peer.address_text(), api: self.api }
    }

    /// Returns `true` if the client may do an operation. Without an authorizer it may do everything. A denial is logged.
    pub(super) fn may(&self, operation: Operation, resource_type: ResourceType, name: &str) -> bool {
        let Some(authorizer) = &self.cluster().authorizer else { return true };
        authorizer.authorize(self.client(), operation, resource_type, name)
    }

    /// [`RequestContext::may`] for the filter of a list: nothing is logged.
    pub(super) fn may_see(&self, operation: Operation, resource_type: ResourceType, name: &str) -> bool {
        let Some(authorizer) = &self.cluster().authorizer else { return true };
        authorizer.is_allowed(self.client(), operation, resource_type, name)
    }

    /// Returns `true` if the client may see that a topic exists.
    pub(super) fn may_see_topic(&self, name: &str) -> bool {
        self.may_see(Operation::Describe, ResourceType::Topic, name)
    }

    /// The operations of a mask that the client may do.
    pub(super) fn allowed_operations(&self, resource_type: ResourceType, name: &str, mask: i32) -> i32 {
        let Some(authorizer) = &self.cluster().authorizer else { return mask };
        authorizer.allowed_operations(self.client(), (resource_type, name), mask)
    }
}

/// Handles a request, or what the client may use of it.
pub(super) async fn authorize_and_handle<R: Api>(mut request: R, context: RequestContext) -> R::Response {
    let Some(authorizer) = &context.cluster().authorizer else { return request.handle(context).await };
    match request.authorize(&Access { context: &context, authorizer }) {
        Verdict::Granted => request.handle(context).await,
        Verdict::Refused(code) => request.refuse(&context, code),
        Verdict::Answered(response) => response,
        Verdict::Partly(denied) => {
            let mut response = request.handle(context).await;
            R::merge(&mut response, denied);
            response
        }
    }
}

/// Takes the items out that the client may not use, and returns them.
fn take_denied<T>(items: &mut Vec<T>, mut may: impl FnMut(&T) -> bool) -> Vec<T> {
    items.extract_if(.., |item| !may(item)).collect()
}

/// Refuses a request as a whole if it needs what the client may not do.
fn verdict<R: Request>(needs: Result<(), ErrorCode>) -> Verdict<R> {
    needs.map_or_else(Verdict::Refused, |()| Verdict::Granted)
}

/// The request is refused as a whole, or handled as a whole.
macro_rules! whole {
    ($request:ty, |$access:ident, $self:ident| $needs:expr) => {
        impl Authorize for $request {
            fn authorize(&mut self, $access: &Access<'_>) -> Verdict<Self> {
                let $self = &*self;
                super::verdict($needs)
            }
        }
    };
}

/// Each item of the list `$field` needs `$may`; the response has the results in the list `$results`. The request as a whole may
/// need something first.
macro_rules! items {
    ($request:ty, $field:ident to $results:ident, |$access:ident, $item:ident| $may:expr, $code:expr) => {
        items!($request, |_access, _request| Ok(()), $field to $results, |$access, $item| $may, $code);
    };
    (
        $request:ty,
        |$with:ident, $self:ident| $needs:expr,
        $field:ident to $results:ident,
        |$access:ident, $item:ident| $may:expr,
        $code:expr
    ) => {
        impl Authorize for $request {
            fn authorize(&mut self, $access: &Access<'_>) -> Verdict<Self> {
                let ($with, $self) = ($access, &*self);
                let needs: Result<(), ErrorCode> = $needs;
                if let Err(code) = needs {
                    return Verdict::Refused(code);
                }
                let denied = take_denied(&mut self.$field, |$item| $may);
                if denied.is_empty() {
                    return Verdict::Granted;
                }
                #[allow(clippy::needless_update, reason = "some requests have other fields")]
                let denied = Self { $field: denied, ..Default::default() };
                Verdict::Partly(denied.refuse($access.context, $code))
            }

            fn merge(response: &mut Self::Response, denied: Self::Response) {
                response.$results.extend(denied.$results);
            }
        }
    };
}

/// Every client may send the request; what its handler finds is checked there.
macro_rules! open {
    ($($request:ty),* $(,)?) => {
        $(impl Authorize for $request {
            fn authorize(&mut self, _access: &Access<'_>) -> Verdict<Self> {
                Verdict::Granted
            }
        })*
    };
}

use {items, open, whole};
