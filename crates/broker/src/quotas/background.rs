//! The client whose request a task handles: the processor time of work on other threads counts for its quota.

use std::future::Future;
use std::sync::Arc;

tokio::task_local! {
    /// `None` if the time of the request does not count.
    static CLIENT: Option<ChargedClient>;
}

/// A user of quotas, as its connection knows it.
pub(crate) trait QuotaUser: Send + Sync {
    fn name(&self) -> &str;
}

/// A client whose processor time counts.
#[derive(Clone)]
pub(crate) struct ChargedClient {
    user: Arc<dyn QuotaUser>,
    client_id: Arc<str>,
}

impl ChargedClient {
    pub(crate) fn new(user: Arc<dyn QuotaUser>, client_id: Arc<str>) -> Self {
        Self { user, client_id }
    }

    /// The client whose request this task handles, if its time counts.
    pub(crate) fn of_this_task() -> Option<Self> {
        CLIENT.try_with(Clone::clone).ok().flatten()
    }

    /// Handles its request.
    pub(crate) async fn handle<V>(client: Option<Self>, request: impl Future<Output = V>) -> V {
        CLIENT.scope(client, request).await
    }

    pub(super) fn names(&self) -> (&str, &str) {
        (self.user.name(), &self.client_id)
    }
}
