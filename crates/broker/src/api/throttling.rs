//! The quotas of requests: what a client has used, its pause, and the pause in the response.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::{ApiKey, ErrorCode};
use tokio::time::Instant;

use super::authorization::authorize_and_handle;
use super::{Api, ConnectionContext, RequestContext};
use crate::cluster::Refusal;
use crate::quotas::{ChargedClient, Quota, QuotaUser, Throttled};

impl ConnectionContext {
    /// No request of the connection is read for this time.
    fn mute(&self, time: Duration) {
        if !time.is_zero() {
            self.mute.extend(Instant::now() + time);
        }
    }

    fn record(&self, quota: Quota, client_id: &str, value: f64) -> Duration {
        let (usage, quotas) = (&self.cluster.quota_use, &self.cluster.client_quotas);
        usage.record(quotas, quota, (&self.principal().name, client_id), value)
    }
}

impl QuotaUser for ConnectionContext {
    fn name(&self) -> &str {
        &self.principal().name
    }
}

impl RequestContext {
    fn quota_client(&self) -> (&str, &str) {
        (&self.principal().name, &self.client_id)
    }

    /// The bytes of records that a fetch may return at most.
    pub(super) fn fetch_burst(&self) -> usize {
        let cluster = self.cluster();
        if !cluster.quota_use.has(Quota::Fetch) {
            return usize::MAX;
        }
        let burst = cluster.quota_use.burst(&cluster.client_quotas, Quota::Fetch, self.quota_client());
        burst.map_or(usize::MAX, |bytes| bytes as usize)
    }

    /// Counts the records of a fetch. Returns the pause of a client that has used up its quota: it gets none of them.
    pub(super) fn throttle_fetch(&self, bytes: usize) -> Option<Duration> {
        let cluster = self.cluster();
        if !cluster.quota_use.has(Quota::Fetch) {
            return None;
        }
        let (usage, quotas) = (&cluster.quota_use, &cluster.client_quotas);
        let throttle = usage.record_unless_throttled(quotas, Quota::Fetch, self.quota_client(), bytes as f64);
        self.connection.mute(throttle);
        Some(throttle).filter(|throttle| !throttle.is_zero())
    }

    /// The charge of the request's changes of topics. Requests before version `strict_from` do not know the error of the quota: their
    /// changes are admitted. A dry run changes nothing.
    pub(super) fn mutation_charge(&self, strict_from: i16, dry_run: bool) -> MutationCharge {
        MutationCharge {
            connection: self.connection.clone(),
            client_id: self.client_id.clone(),
            is_strict: self.version >= strict_from,
            is_free: dry_run || !self.cluster().quota_use.has(Quota::ControllerMutation),
            throttle: Duration::ZERO,
        }
    }
}

/// The charge of changes of topics to the client's quota of controller mutations (KIP-599).
pub(super) struct MutationCharge {
    connection: Arc<ConnectionContext>,
    client_id: Arc<str>,
    /// Changes above the quota are refused.
    is_strict: bool,
    is_free: bool,
    /// The longest pause of the client so far.
    throttle: Duration,
}

impl MutationCharge {
    /// Charges a change of so many partitions, or refuses it. As in Kafka, it is the last check of a change: changes that are refused
    /// for another reason do not use the quota.
    pub(super) fn admit(&mut self, partitions: usize) -> Result<(), Refusal> {
        if self.is_free {
            return Ok(());
        }
        let cluster = &self.connection.cluster;
        let (usage, quotas) = (&cluster.quota_use, &cluster.client_quotas);
        let client: (&str, &str) = (&self.connection.principal().name, &self.client_id);
        let (is_admitted, pause) = usage.admit_mutation(quotas, client, partitions as f64, self.is_strict);
        self.throttle = self.throttle.max(pause);
        if is_admitted {
            return Ok(());
        }
        let code = ErrorCode::ThrottlingQuotaExceeded;
        Err((code, code.message().to_owned()))
    }

    /// Mutes the connection, and returns the pause of the client.
    pub(super) fn pause(self) -> Duration {
        self.connection.mute(self.throttle);
        self.throttle
    }
}

/// A request whose use is measured. It is charged once: also if it is dropped before its response, because its client has left.
struct Meter {
    connection: Arc<ConnectionContext>,
    client_id: Arc<str>,
    api: ApiKey,
    request_bytes: usize,
    /// Its processor time counts: as in Kafka, that of requests without a response does not.
    counts_time: bool,
    /// The time of its polls.
    busy: Duration,
    is_charged: bool,
}

impl Meter {
    /// `None` if no client has a quota for requests or producers, and for the requests of a login: their user is not known yet.
    fn of(context: &RequestContext, is_answered: bool) -> Option<Self> {
        let (usage, connection) = (&context.cluster().quota_use, &context.connection);
        let is_login = connection.sasl.is_some() && connection.principal.get().is_none();
        let counts_time = is_answered && usage.has(Quota::Request);
        let is_measured = !is_login && (counts_time || usage.has(Quota::Produce));
        is_measured.then(|| Self {
            connection: connection.clone(),
            client_id: context.client_id.clone(),
            api: context.api,
            request_bytes: context.frame.len(),
            counts_time,
            busy: Duration::ZERO,
            is_charged: false,
        })
    }

    /// The client that work on other threads is charged to, if its time counts.
    fn client(&self) -> Option<ChargedClient> {
        self.counts_time.then(|| ChargedClient::new(self.connection.clone(), self.client_id.clone()))
    }

    /// Counts what the request has used, and returns the pause of its client.
    fn charge(&mut self) -> Duration {
        self.is_charged = true;
        let usage = &self.connection.cluster.quota_use;
        let mut throttle = Duration::ZERO;
        if self.api == ApiKey::Produce && usage.has(Quota::Produce) {
            throttle = self.connection.record(Quota::Produce, &self.client_id, self.request_bytes as f64);
        }
        if self.counts_time {
            let percent_seconds = self.busy.as_secs_f64() * 100.0;
            throttle = throttle.max(self.connection.record(Quota::Request, &self.client_id, percent_seconds));
        }
        throttle
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if !self.is_charged {
            self.charge();
        }
    }
}

/// Runs a future and adds the time of its polls to `busy`: waits do not count.
///
/// The caller pins the work: a future that moves into another one needs its memory twice.
async fn measured<V>(mut work: Pin<&mut impl Future<Output = V>>, busy: &mut Duration) -> V {
    std::future::poll_fn(|cx| {
        let began = Instant::now();
        let poll = work.as_mut().poll(cx);
        *busy += began.elapsed();
        poll
    })
    .await
}

/// Handles a request, and throttles its client if it has used up a quota.
pub(super) async fn handle_within_quotas<R: Api>(request: R, context: RequestContext) -> R::Response {
    let Some(mut meter) = Meter::of(&context, request.is_answered()) else {
        return authorize_and_handle(request, context).await;
    };
    // Boxed: requests without quotas do not need the memory of this path.
    Box::pin(async move {
        let work = pin!(authorize_and_handle(request, context));
        let mut response = ChargedClient::handle(meter.client(), measured(work, &mut meter.busy)).await;
        let throttle = meter.charge();
        response.throttle(throttle);
        meter.connection.mute(throttle);
        response
    })
    .await
}
