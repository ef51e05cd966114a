//! When a client asks for its subscription, when it pushes, and what it does after an error (KIP-714). No I/O, no clock.

use std::time::Duration;

use ottla_protocol::messages::get_telemetry_subscriptions::GetTelemetrySubscriptionsResponse;
use ottla_protocol::{ErrorCode, Uuid};
use ottla_wire::Compression;
use tokio::time::Instant;

/// The pause without an interval of the broker: Kafka's default of `interval.ms`.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(300);
/// The longest pause before another broker is asked. It limits the connections that a broker closes because of the request.
const NO_RESPONSE_PAUSE: Duration = Duration::from_secs(30);
/// The prefix that subscribes to every metric.
const ALL: &str = "*";

/// The metrics that a broker wants.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Subscription {
    pub(super) id: i32,
    pub(super) interval: Duration,
    /// The codecs that the broker accepts, its preferred one first.
    codecs: Vec<i8>,
    /// The largest push, compressed.
    pub(super) bytes_max: usize,
    /// `true` if sums restart with each push.
    pub(super) is_delta: bool,
    prefixes: Vec<String>,
}

impl Subscription {
    /// Returns `true` if the broker wants the metric of this name.
    pub(super) fn wants(&self, name: &str) -> bool {
        self.prefixes.iter().any(|prefix| prefix == ALL || name.starts_with(prefix.as_str()))
    }
}

/// The metrics in a push. A push that is too large has fewer of them.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Detail {
    /// Those of the client as a whole.
    Client,
    /// Those of nodes and topics too.
    Topics,
    /// Those of partitions too.
    Partitions,
}

impl Detail {
    /// The next smaller push.
    pub(super) fn reduced(self) -> Option<Self> {
        match self {
            Self::Partitions => Some(Self::Topics),
            Self::Topics => Some(Self::Client),
            Self::Client => None,
        }
    }
}

/// The next request and its time.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    AskAt(Instant),
    PushAt(Instant, Subscription),
    /// The broker refused a request for good; nothing more is sent.
    Stopped(ErrorCode),
}

/// The exchange with brokers about metrics.
#[derive(Debug)]
pub(super) struct Machine {
    state: State,
    id: Uuid,
    /// The last interval of a broker.
    interval: Duration,
    jitter: f64,
    detail: Detail,
    /// Codecs that a broker has refused.
    refused_codecs: Vec<Compression>,
}

impl Machine {
    /// `jitter` is the part of the interval by which the first push varies.
    pub(super) fn new(now: Instant, jitter: f64) -> Self {
        Self {
            state: State::AskAt(now),
            id: Uuid::ZERO,
            interval: INTERVAL_DEFAULT,
            jitter: jitter.clamp(0.0, 1.0),
            detail: Detail::Partitions,
            refused_codecs: Vec::new(),
        }
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// The id that a broker gave this client; zero before.
    pub(super) fn id(&self) -> Uuid {
        self.id
    }

    pub(super) fn detail(&self) -> Detail {
        self.detail
    }

    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// The codec of a push: the first that the broker accepts and has not refused.
    pub(super) fn codec(&self, subscription: &Subscription) -> Compression {
        let known = |id: &i8| Compression::ALL.into_iter().find(|codec| *codec as i8 == *id);
        let accepted = subscription.codecs.iter().filter_map(known);
        let mut usable = accepted.filter(|codec| !self.refused_codecs.contains(codec));
        usable.next().unwrap_or(Compression::None)
    }

    /// Applies the response to GetTelemetrySubscriptions. `random` is between 0 and 1.
    pub(super) fn on_subscription(
        &mut self,
        now: Instant,
        random: f64,
        response: &GetTelemetrySubscriptionsResponse,
    ) {
        let code = response.error_code;
        if is_final(code) {
            self.state = State::Stopped(code);
            return;
        }
        if code != ErrorCode::None {
            self.state = State::AskAt(now + self.interval);
            return;
        }
        if !response.client_instance_id.is_zero() {
            self.id = response.client_instance_id;
        }
        self.interval = match u64::try_from(response.push_interval_ms) {
            Ok(0) | Err(_) => INTERVAL_DEFAULT,
            Ok(ms) => Duration::from_millis(ms),
        };
        if response.requested_metrics.is_empty() {
            self.state = State::AskAt(now + self.interval);
            return;
        }
        let subscription = Subscription {
            id: response.subscription_id,
            interval: self.interval,
            codecs: response.accepted_compression_types.clone(),
            bytes_max: usize::try_from(response.telemetry_max_bytes).unwrap_or_default(),
            is_delta: response.delta_temporality,
            prefixes: response.requested_metrics.clone(),
        };
        self.detail = Detail::Partitions;
        // Clients that a broker has accepted at once do not push at once.
        let first = self.interval.mul_f64(1.0 - self.jitter + 2.0 * self.jitter * random);
        self.state = State::PushAt(now + first, subscription);
    }

    /// Applies a request for the subscription that got no response.
    pub(super) fn on_no_subscription(&mut self, now: Instant) {
        self.state = State::AskAt(now + self.interval.min(NO_RESPONSE_PAUSE));
    }

    /// Applies the response to a push; `None` if there was none. The subscription then holds for another broker.
    pub(super) fn on_pushed(&mut self, now: Instant, codec: Compression, code: Option<ErrorCode>) {
        let State::PushAt(_, subscription) = &self.state else { return };
        let later = now + subscription.interval;
        let again = State::PushAt(later, subscription.clone());
        self.state = match code {
            None | Some(ErrorCode::None | ErrorCode::ThrottlingQuotaExceeded) => again,
            Some(ErrorCode::TelemetryTooLarge) => {
                self.detail = self.detail.reduced().unwrap_or(Detail::Client);
                again
            }
            Some(ErrorCode::UnknownSubscriptionId) => State::AskAt(now),
            Some(ErrorCode::UnsupportedCompressionType) if codec != Compression::None => {
                self.refused_codecs.push(codec);
                State::AskAt(now)
            }
            Some(code) if is_final(code) => State::Stopped(code),
            Some(_) => State::AskAt(later),
        };
    }

    /// Ends the exchange.
    pub(super) fn stop(&mut self) {
        self.state = State::Stopped(ErrorCode::None);
    }
}

/// Returns `true` for errors that another request would cause again.
fn is_final(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::InvalidRequest | ErrorCode::InvalidRecord | ErrorCode::UnsupportedVersion)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn subscribed(metrics: &[&str]) -> GetTelemetrySubscriptionsResponse {
        GetTelemetrySubscriptionsResponse {
            client_instance_id: Uuid::ONE,
            subscription_id: 7,
            accepted_compression_types: vec![9, 4, 1],
            push_interval_ms: 10_000,
            telemetry_max_bytes: 1000,
            requested_metrics: metrics.iter().map(|name| (*name).to_owned()).collect(),
            ..Default::default()
        }
    }

    fn pushing(now: Instant) -> (Machine, Subscription) {
        let mut machine = Machine::new(now, 0.5);
        machine.on_subscription(now, 0.5, &subscribed(&["org.apache.kafka.producer."]));
        let State::PushAt(_, subscription) = machine.state().clone() else { panic!("{machine:?}") };
        (machine, subscription)
    }

    #[test]
    fn the_first_push_varies_by_half_of_the_interval_and_later_ones_do_not() {
        let now = Instant::now();
        for (random, first) in [(0.0, 5 * SECOND), (1.0, 15 * SECOND)] {
            let mut machine = Machine::new(now, 0.5);
            assert_eq!(machine.state(), &State::AskAt(now));
            machine.on_subscription(now, random, &subscribed(&["*"]));
            assert!(matches!(machine.state(), State::PushAt(at, _) if *at == now + first), "{machine:?}");
            machine.on_pushed(now + first, Compression::Zstd, Some(ErrorCode::None));
            let next = now + first + 10 * SECOND;
            assert!(matches!(machine.state(), State::PushAt(at, _) if *at == next), "{machine:?}");
        }
    }

    #[test]
    fn without_wanted_metrics_the_client_asks_again_after_the_interval_under_its_id() {
        let now = Instant::now();
        let mut machine = Machine::new(now, 0.5);
        machine.on_subscription(now, 0.5, &subscribed(&[]));
        assert_eq!(machine.state(), &State::AskAt(now + 10 * SECOND));
        assert_eq!(machine.id(), Uuid::ONE);
    }

    #[test]
    fn a_subscription_selects_by_prefix_and_a_star_selects_all() {
        let (_, subscription) = pushing(Instant::now());
        assert!(subscription.wants("org.apache.kafka.producer.connection.count"));
        assert!(!subscription.wants("org.apache.kafka.consumer.connection.count"));
        let mut machine = Machine::new(Instant::now(), 0.5);
        machine.on_subscription(Instant::now(), 0.5, &subscribed(&["*"]));
        assert!(matches!(machine.state(), State::PushAt(_, all) if all.wants("anything")));
    }

    #[test]
    fn an_unknown_subscription_is_asked_for_at_once() {
        let now = Instant::now();
        let (mut machine, _) = pushing(now);
        machine.on_pushed(now, Compression::Zstd, Some(ErrorCode::UnknownSubscriptionId));
        assert_eq!(machine.state(), &State::AskAt(now));
    }

    #[test]
    fn a_refused_codec_is_not_used_again() {
        let now = Instant::now();
        let (mut machine, subscription) = pushing(now);
        assert_eq!(machine.codec(&subscription), Compression::Zstd, "9 is no codec");
        machine.on_pushed(now, Compression::Zstd, Some(ErrorCode::UnsupportedCompressionType));
        assert_eq!(machine.state(), &State::AskAt(now));
        assert_eq!(machine.codec(&subscription), Compression::Gzip);
        let (mut machine, _) = pushing(now);
        machine.on_pushed(now, Compression::None, Some(ErrorCode::UnsupportedCompressionType));
        assert_eq!(machine.state(), &State::AskAt(now + 10 * SECOND), "no loop without a codec");
    }

    #[test]
    fn a_push_that_is_too_large_is_followed_by_a_smaller_one() {
        let now = Instant::now();
        let (mut machine, _) = pushing(now);
        let large = Some(ErrorCode::TelemetryTooLarge);
        for detail in [Detail::Topics, Detail::Client, Detail::Client] {
            machine.on_pushed(now, Compression::Zstd, large);
            assert_eq!(machine.detail(), detail);
            assert!(matches!(machine.state(), State::PushAt(at, _) if *at == now + 10 * SECOND));
        }
    }

    #[test]
    fn throttled_and_unanswered_pushes_wait_for_the_interval_and_refused_ones_end_the_exchange() {
        let now = Instant::now();
        for code in [None, Some(ErrorCode::ThrottlingQuotaExceeded)] {
            let (mut machine, _) = pushing(now);
            machine.on_pushed(now, Compression::Zstd, code);
            assert!(matches!(machine.state(), State::PushAt(at, _) if *at == now + 10 * SECOND), "{code:?}");
        }
        for code in [ErrorCode::InvalidRecord, ErrorCode::InvalidRequest] {
            let (mut machine, _) = pushing(now);
            machine.on_pushed(now, Compression::Zstd, Some(code));
            assert_eq!(machine.state(), &State::Stopped(code));
        }
    }
}
