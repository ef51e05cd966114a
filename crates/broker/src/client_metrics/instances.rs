//! The clients that have asked for their subscription or pushed metrics, and when they may again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_protocol::{ErrorCode, Uuid};

use super::otlp::Sample;
use crate::config::metric_subscriptions::{ClientIdentity, Subscriptions};

/// The clients that are kept, as many as in Kafka. One more takes the place of the one that was heard of longest ago.
const INSTANCES_MAX: usize = 16_384;
/// Clients that are looked at, at each request of one, in order to forget those that were not heard of for long.
const EXPIRY_STEP: usize = 16;
/// A client that is not heard of for this time, or for three intervals, is forgotten. One that has sent its last push is forgotten after
/// this time: the metrics are read once more.
const EXPIRY_MS_MIN: i64 = 60_000;

/// Bytes of a client's id that are kept.
const CLIENT_ID_BYTES_MAX: usize = 256;

/// The part of a client's identity that is kept.
fn shortened(client: &ClientIdentity) -> ClientIdentity {
    let mut kept = client.clone();
    kept.client_id.truncate(kept.client_id.floor_char_boundary(CLIENT_ID_BYTES_MAX));
    kept.client_id.shrink_to_fit();
    kept
}

/// The clients, by their ids.
#[derive(Debug)]
pub(super) struct Instances {
    by_id: BTreeMap<Uuid, Instance>,
    /// All clients by the time at which they were heard of.
    by_heard: BTreeSet<(i64, Uuid)>,
    /// Those with values, by the time of these.
    by_samples: BTreeSet<(i64, Uuid)>,
    sample_bytes: usize,
    /// The bytes of all values together. The clients that pushed longest ago lose theirs.
    sample_bytes_max: usize,
    pushes: u64,
}

/// One client.
#[derive(Debug)]
pub(super) struct Instance {
    client: ClientIdentity,
    /// The id of its subscription, and the time between its pushes. The names of the metrics are not kept.
    subscription_id: i32,
    interval_ms: i32,
    /// The version of the subscriptions that these are from.
    version: u64,
    subscriptions_at_ms: Option<i64>,
    pushed_at_ms: Option<i64>,
    heard_at_ms: i64,
    last_error: ErrorCode,
    /// It has sent its last push.
    is_gone: bool,
    pushes: u64,
    samples: Arc<[Sample]>,
    sample_bytes: usize,
    samples_at_ms: i64,
}

/// The request of a client.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    Subscriptions,
    Push { subscription_id: i32, is_last: bool, codec_is_known: bool, bytes: usize },
}

/// A client and the values of its last push.
#[derive(Clone, Debug)]
pub(crate) struct PushedClient {
    /// The id of the instance, as Kafka writes it.
    pub(crate) id_text: String,
    pub(crate) client: ClientIdentity,
    pub(crate) interval_ms: i32,
    /// The number of its pushes, and the time of the last one.
    pub(crate) pushes: u64,
    pub(crate) pushed_at_ms: Option<i64>,
    pub(crate) samples: Arc<[Sample]>,
}

impl Instances {
    pub(super) const fn new(sample_bytes_max: usize) -> Self {
        Self {
            by_id: BTreeMap::new(),
            by_heard: BTreeSet::new(),
            by_samples: BTreeSet::new(),
            sample_bytes: 0,
            sample_bytes_max,
            pushes: 0,
        }
    }

    /// The instance of a client, with its subscription of now.
    pub(super) fn of(
        &mut self,
        id: Uuid,
        client: &ClientIdentity,
        subscriptions: &Subscriptions,
        now_ms: i64,
    ) -> &mut Instance {
        self.expire_some(now_ms);
        let version = subscriptions.version();
        if let Some(known) = self.by_id.get(&id) {
            self.by_heard.remove(&(known.heard_at_ms, id));
        } else if self.by_id.len() >= INSTANCES_MAX
            && let Some((_, oldest)) = self.by_heard.first().copied()
        {
            self.forget(oldest);
        }
        self.by_heard.insert((now_ms, id));
        let fresh = || Instance::new(id, shortened(client), subscriptions);
        let instance = self.by_id.entry(id).or_insert_with(fresh);
        instance.heard_at_ms = now_ms;
        if instance.version != version {
            let wanted = subscriptions.of(id, &instance.client);
            instance.version = version;
            if (wanted.id, wanted.interval_ms) != (instance.subscription_id, instance.interval_ms) {
                (instance.subscription_id, instance.interval_ms) = (wanted.id, wanted.interval_ms);
                // It may ask at once.
                instance.subscriptions_at_ms = None;
                instance.pushed_at_ms = None;
            }
        }
        instance
    }

    /// Keeps the values of a push. A last one ends the series of its client a minute later.
    pub(super) fn keep(&mut self, id: Uuid, samples: Vec<Sample>, is_last: bool, now_ms: i64) {
        let Some(instance) = self.by_id.get_mut(&id) else { return };
        let bytes: usize = samples.iter().map(Sample::bytes).sum();
        self.sample_bytes = self.sample_bytes - instance.sample_bytes + bytes;
        self.by_samples.remove(&(instance.samples_at_ms, id));
        self.by_samples.insert((now_ms, id));
        instance.samples = samples.into();
        instance.sample_bytes = bytes;
        instance.samples_at_ms = now_ms;
        instance.pushes += 1;
        self.pushes += 1;
        instance.pushed_at_ms = Some(now_ms);
        instance.last_error = ErrorCode::None;
        instance.is_gone = is_last;
        while self.sample_bytes > self.sample_bytes_max && !self.by_samples.is_empty() {
            self.drop_oldest_samples();
        }
    }

    pub(super) fn note_error(&mut self, id: Uuid, code: ErrorCode) {
        if let Some(instance) = self.by_id.get_mut(&id) {
            instance.last_error = code;
        }
    }

    /// Forgets the clients that were not heard of for long.
    pub(super) fn expire(&mut self, now_ms: i64) {
        let expired = self.by_id.iter().filter(|(_, instance)| instance.has_expired(now_ms));
        let expired: Vec<Uuid> = expired.map(|(id, _)| *id).collect();
        for id in expired {
            self.forget(id);
        }
    }

    /// Forgets some of these: a broker whose metrics are not read keeps no values of clients that are gone.
    fn expire_some(&mut self, now_ms: i64) {
        let oldest = self.by_heard.iter().take(EXPIRY_STEP).map(|(_, id)| *id);
        let has_expired = |id: &Uuid| self.by_id.get(id).is_some_and(|instance| instance.has_expired(now_ms));
        let expired: Vec<Uuid> = oldest.filter(has_expired).collect();
        for id in expired {
            self.forget(id);
        }
    }

    /// The number of pushes of all clients so far.
    pub(super) fn pushes(&self) -> u64 {
        self.pushes
    }

    pub(super) fn clients(&self) -> Vec<PushedClient> {
        let client = |(id, instance): (&Uuid, &Instance)| PushedClient {
            id_text: id.to_string(),
            client: instance.client.clone(),
            interval_ms: instance.interval_ms,
            pushes: instance.pushes,
            pushed_at_ms: instance.pushed_at_ms,
            samples: instance.samples.clone(),
        };
        self.by_id.iter().map(client).collect()
    }

    fn forget(&mut self, id: Uuid) {
        let Some(instance) = self.by_id.remove(&id) else { return };
        self.by_heard.remove(&(instance.heard_at_ms, id));
        self.by_samples.remove(&(instance.samples_at_ms, id));
        self.sample_bytes -= instance.sample_bytes;
    }

    fn drop_oldest_samples(&mut self) {
        let Some((_, id)) = self.by_samples.pop_first() else { return };
        let Some(oldest) = self.by_id.get_mut(&id) else { return };
        self.sample_bytes -= oldest.sample_bytes;
        oldest.sample_bytes = 0;
        oldest.samples = Arc::default();
    }
}

impl Instance {
    fn new(id: Uuid, client: ClientIdentity, subscriptions: &Subscriptions) -> Self {
        let wanted = subscriptions.of(id, &client);
        Self {
            client,
            subscription_id: wanted.id,
            interval_ms: wanted.interval_ms,
            version: subscriptions.version(),
            subscriptions_at_ms: None,
            pushed_at_ms: None,
            heard_at_ms: 0,
            last_error: ErrorCode::None,
            is_gone: false,
            pushes: 0,
            samples: Arc::default(),
            sample_bytes: 0,
            samples_at_ms: 0,
        }
    }

    /// Its identity, as its subscription was selected with.
    pub(super) fn client(&self) -> &ClientIdentity {
        &self.client
    }

    fn has_expired(&self, now_ms: i64) -> bool {
        let intervals_ms = if self.is_gone { 0 } else { 3 * i64::from(self.interval_ms) };
        // After a jump of the wall clock that was put right, the time may be days ahead.
        now_ms.abs_diff(self.heard_at_ms) > EXPIRY_MS_MIN.max(intervals_ms).unsigned_abs()
    }

    /// Returns `true` if an interval since a stored time is not over. A wall clock that went back ends it.
    fn is_early(&self, since_ms: i64, now_ms: i64) -> bool {
        (0..i64::from(self.interval_ms)).contains(&now_ms.saturating_sub(since_ms))
    }

    /// Takes note of a request, or returns the error of one that comes too early or is wrong.
    pub(super) fn ask(&mut self, ask: Ask, now_ms: i64) -> Result<(), ErrorCode> {
        let asked = match ask {
            Ask::Subscriptions => self.ask_subscriptions(now_ms),
            Ask::Push { subscription_id, is_last, codec_is_known, bytes } => {
                let asked = self.ask_push(subscription_id, is_last, now_ms);
                let asked = asked.and(if codec_is_known {
                    Ok(())
                } else {
                    Err(ErrorCode::UnsupportedCompressionType)
                });
                let is_small = bytes <= super::TELEMETRY_BYTES_MAX;
                asked.and(if is_small { Ok(()) } else { Err(ErrorCode::TelemetryTooLarge) })
            }
        };
        match (ask, asked) {
            // The error of a push stays until a push succeeds: it lets the client ask for its subscription early.
            (Ask::Push { .. }, Err(code)) => self.last_error = code,
            (Ask::Subscriptions, Ok(())) => self.last_error = ErrorCode::None,
            _ => {}
        }
        asked
    }

    fn ask_subscriptions(&mut self, now_ms: i64) -> Result<(), ErrorCode> {
        let last = self.subscriptions_at_ms.max(self.pushed_at_ms);
        let waits = matches!(
            self.last_error,
            ErrorCode::UnknownSubscriptionId | ErrorCode::UnsupportedCompressionType
        );
        if !waits && last.is_some_and(|last| self.is_early(last, now_ms)) {
            return Err(ErrorCode::ThrottlingQuotaExceeded);
        }
        self.subscriptions_at_ms = Some(now_ms);
        Ok(())
    }

    fn ask_push(&mut self, subscription_id: i32, is_last: bool, now_ms: i64) -> Result<(), ErrorCode> {
        if self.is_gone {
            return Err(ErrorCode::InvalidRequest);
        }
        // The first push after a new subscription may come at once: clients spread theirs over the interval.
        let is_first = self.subscriptions_at_ms > self.pushed_at_ms;
        let is_due = self.pushed_at_ms.is_none_or(|last| !self.is_early(last, now_ms));
        if !is_first && !is_due && !is_last {
            return Err(ErrorCode::ThrottlingQuotaExceeded);
        }
        self.pushed_at_ms = Some(now_ms);
        if subscription_id != self.subscription_id {
            return Err(ErrorCode::UnknownSubscriptionId);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(bytes: usize) -> Sample {
        let labels = [("topic".into(), "x".repeat(bytes).into())];
        Sample { name: "lag".into(), labels: labels.into(), value: 1.0, is_counter: false }
    }

    fn id(number: u8) -> Uuid {
        Uuid([number; 16])
    }

    /// They were forgotten only when the metrics were read.
    #[test]
    fn a_client_that_is_gone_is_forgotten_at_the_next_request_of_another() {
        let (mut instances, subscriptions) = (Instances::new(10_000), Subscriptions::default());
        let client = ClientIdentity::default();
        for number in 0..10 {
            instances.of(id(number), &client, &subscriptions, 0);
            instances.keep(id(number), vec![sample(100)], false, 0);
        }
        instances.of(id(10), &client, &subscriptions, 900_000);
        assert_eq!(instances.by_id.len(), 11, "three intervals are not over");
        instances.of(id(10), &client, &subscriptions, 900_001);
        assert_eq!((instances.by_id.len(), instances.sample_bytes), (1, 0));
    }

    /// It stayed in the metrics for three intervals, 15 minutes by default, as if it ran.
    #[test]
    fn a_client_that_has_sent_its_last_push_is_forgotten_after_a_minute() {
        let (mut instances, subscriptions) = (Instances::new(10_000), Subscriptions::default());
        for number in 0..2 {
            instances.of(id(number), &ClientIdentity::default(), &subscriptions, 0);
            instances.keep(id(number), vec![sample(100)], number == 0, 0);
        }
        instances.expire(EXPIRY_MS_MIN);
        assert_eq!(instances.by_id.len(), 2, "its last values can be read");
        instances.expire(EXPIRY_MS_MIN + 1);
        assert_eq!(instances.by_id.keys().collect::<Vec<_>>(), [&id(1)]);
    }

    /// Until the clock had caught up, each request was answered with THROTTLING_QUOTA_EXCEEDED, and clients that were gone stayed.
    #[test]
    fn a_wall_clock_that_went_back_ends_intervals_and_keeps_no_client_for_longer() {
        let (mut instances, subscriptions) = (Instances::new(10_000), Subscriptions::default());
        let client = ClientIdentity::default();
        instances.of(id(1), &client, &subscriptions, 1_000_000);
        let mut ask =
            |ask: Ask, now_ms: i64| instances.of(id(0), &client, &subscriptions, now_ms).ask(ask, now_ms);
        let subscription_id = subscriptions.of(id(0), &client).id;
        let push = Ask::Push { subscription_id, is_last: false, codec_is_known: true, bytes: 1 };
        for request in [Ask::Subscriptions, push] {
            assert_eq!(ask(request, 600_000), Ok(()));
            assert_eq!(ask(request, 600_001), Err(ErrorCode::ThrottlingQuotaExceeded));
        }
        for request in [Ask::Subscriptions, push] {
            assert_eq!(ask(request, 0), Ok(()));
        }
        assert_eq!(instances.by_id.keys().collect::<Vec<_>>(), [&id(0)]);
    }

    #[test]
    fn the_values_of_the_oldest_pushes_make_room() {
        let (mut instances, subscriptions) = (Instances::new(10_000), Subscriptions::default());
        for number in 0..3 {
            instances.of(id(number), &ClientIdentity::default(), &subscriptions, i64::from(number));
            instances.keep(id(number), vec![sample(3000)], false, i64::from(number));
        }
        let kept =
            |instances: &Instances| instances.clients().iter().map(|it| it.samples.len()).collect::<Vec<_>>();
        assert_eq!(kept(&instances), [1, 1, 1]);
        instances.keep(id(2), vec![sample(3000), sample(3000)], false, 9);
        assert_eq!(kept(&instances), [0, 1, 2]);
    }
}
