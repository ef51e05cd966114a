//! Counters per broker: requests, responses, and requests in flight.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ottla_protocol::ApiKey;
use tokio::time::Instant;

use super::Observer;
use super::events::RequestEvent;
use super::window::{Sums, Window};
use crate::error::Error;
use crate::log::{Context, WARNING};
use crate::types::broker_version::BrokerVersion;

/// Higher latencies, above ten minutes, are not recorded.
const LATENCY_MAX_US: u64 = 600_000_000;
const THROTTLE_MAX_MS: u64 = 3_600_000;

/// The counters of one broker, by its address.
#[derive(Debug)]
pub(super) struct Broker {
    pub(super) state: ConnectionState,
    pub(super) state_since: Instant,
    pub(super) open: u32,
    /// `true` if the metadata named it before the client connected to it: it is not one of `bootstrap.servers`.
    pub(super) is_of_metadata: bool,
    /// Attempts to connect.
    pub(super) connects: u64,
    /// Attempts that succeeded.
    pub(super) opened: u64,
    pub(super) disconnects: u64,
    pub(super) tx: u64,
    pub(super) tx_bytes: u64,
    pub(super) tx_errors: u64,
    pub(super) tx_at: Option<Instant>,
    pub(super) rx: u64,
    pub(super) rx_bytes: u64,
    pub(super) rx_errors: u64,
    pub(super) rx_correlation_errors: u64,
    pub(super) rx_at: Option<Instant>,
    pub(super) retries: u64,
    pub(super) timeouts: u64,
    pub(super) requests: BTreeMap<&'static str, u64>,
    pub(super) int_latency: Window,
    pub(super) outbuf_latency: Window,
    pub(super) rtt: Window,
    pub(super) throttle: Window,
    pub(super) latencies: RequestLatencies,
    /// Requests in progress, by connection and correlation id.
    pub(super) flights: BTreeMap<(u64, i32), InFlightRequest>,
    /// The time since which connection attempts fail.
    pub(super) trying_since: Option<Instant>,
    pub(super) attempt: Option<ConnectAttempt>,
}

/// The round-trip times in microseconds of some requests since the last push of metrics (KIP-714).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestLatencies {
    pub(super) produce: Sums,
    pub(super) fetch: Sums,
    pub(super) commit: Sums,
}

impl RequestLatencies {
    fn record(&mut self, api: ApiKey, micros: u64) {
        match api {
            ApiKey::Produce => self.produce.add(micros, 1),
            ApiKey::Fetch => self.fetch.add(micros, 1),
            ApiKey::OffsetCommit => self.commit.add(micros, 1),
            _ => {}
        }
    }
}

/// The attempts to connect since the last connection.
#[derive(Debug)]
pub(super) struct ConnectAttempt {
    /// The start or the end of the last one.
    pub(super) at: Instant,
    /// The number of those under way: lanes connect independently.
    pub(super) under_way: u32,
    pub(super) count: u32,
    pub(super) failure: String,
}

impl ConnectAttempt {
    fn end_one(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ConnectionState {
    Init,
    Connect,
    Up,
    Down,
}

impl ConnectionState {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Init => "INIT",
            Self::Connect => "CONNECT",
            Self::Up => "UP",
            Self::Down => "DOWN",
        }
    }
}

/// A request in progress.
#[derive(Debug)]
pub(super) struct InFlightRequest {
    pub(super) api: ApiKey,
    version: i16,
    bytes: usize,
    answered: bool,
    enqueued: Instant,
    pub(super) written: Option<Instant>,
}

impl Broker {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            state: ConnectionState::Init,
            state_since: now,
            open: 0,
            is_of_metadata: false,
            connects: 0,
            opened: 0,
            disconnects: 0,
            tx: 0,
            tx_bytes: 0,
            tx_errors: 0,
            tx_at: None,
            rx: 0,
            rx_bytes: 0,
            rx_errors: 0,
            rx_correlation_errors: 0,
            rx_at: None,
            retries: 0,
            timeouts: 0,
            requests: BTreeMap::new(),
            int_latency: Window::up_to(LATENCY_MAX_US),
            outbuf_latency: Window::up_to(LATENCY_MAX_US),
            rtt: Window::up_to(LATENCY_MAX_US),
            throttle: Window::up_to(THROTTLE_MAX_MS),
            latencies: RequestLatencies::default(),
            flights: BTreeMap::new(),
            trying_since: None,
            attempt: None,
        }
    }

    /// The counters of a broker that the metadata names.
    pub(super) fn of_metadata(now: Instant) -> Self {
        Self { is_of_metadata: true, ..Self::new(now) }
    }

    fn enter(&mut self, state: ConnectionState, now: Instant) {
        // A further lane that connects, or fails to, does not change the state while another one is open.
        if self.state != state && (self.open == 0 || state == ConnectionState::Up) {
            self.state = state;
            self.state_since = now;
        }
    }

    /// Records the start of an attempt. Returns the number of connections before it, which its end has to name: an attempt that began
    /// before the last connection is not one of those that are counted since.
    pub(super) fn connecting(&mut self, now: Instant) -> u64 {
        self.connects += 1;
        self.trying_since.get_or_insert(now);
        let none = || ConnectAttempt { at: now, under_way: 0, count: 0, failure: String::new() };
        let attempt = self.attempt.get_or_insert_with(none);
        attempt.at = now;
        attempt.under_way += 1;
        attempt.count += 1;
        self.enter(ConnectionState::Connect, now);
        self.opened
    }

    /// Returns `true` if a connection to it is open.
    pub(super) fn is_connected(&self) -> bool {
        self.open > 0
    }

    pub(super) fn connected(&mut self, now: Instant) {
        self.opened += 1;
        self.trying_since = None;
        self.attempt = None;
        self.enter(ConnectionState::Up, now);
    }

    /// Records an attempt that was dropped before its end: the broker is not connected to any more. `is_elsewhere` if another broker is
    /// connected, so that this one is not missed.
    pub(super) fn stopped_connecting(&mut self, opened_before: u64, is_elsewhere: bool, now: Instant) {
        if let Some(attempt) = self.attempt.as_mut().filter(|_| opened_before == self.opened) {
            let has_none_failed = attempt.count == attempt.under_way;
            attempt.end_one();
            if is_elsewhere && has_none_failed {
                // The next one may be long after this one, and is the first then.
                attempt.count = attempt.under_way;
                self.trying_since = Some(attempt.at);
            } else {
                attempt.at = now;
            }
            if attempt.count == 0 {
                (self.attempt, self.trying_since) = (None, None);
            }
        }
        self.enter(ConnectionState::Down, now);
    }

    /// Records a failed attempt. Returns `false` if the previous attempt failed for the same reason.
    pub(super) fn not_connected(&mut self, opened_before: u64, failure: String, now: Instant) -> bool {
        let mut is_news = true;
        if let Some(attempt) = &mut self.attempt {
            is_news = attempt.failure != failure;
            if opened_before == self.opened {
                attempt.end_one();
            }
            (attempt.at, attempt.failure) = (now, failure);
        }
        self.enter(ConnectionState::Down, now);
        is_news
    }
}

impl Observer {
    /// The broker in log lines, with librdkafka's form: `ssl://host:port/id`. Plaintext has no scheme, and a broker whose id is not
    /// known is `bootstrap`.
    fn broker_name(&self, address: &str) -> String {
        let node = match self.node_at(address) {
            -1 => "bootstrap".to_owned(),
            node => node.to_string(),
        };
        format!("{}{address}/{node}", self.scheme)
    }

    /// A failed attempt to connect, as the application gets it, and its line in the log.
    pub(super) fn named_failure(&self, address: &str, error: &Error) -> (Error, String) {
        let (name, reason) = match error {
            Error::Transport { reason, .. } | Error::UnknownHost { reason, .. } if self.names_failures => {
                (self.broker_name(address), reason.clone())
            }
            error => return (error.clone(), format!("{address}: {error}")),
        };
        let line = format!("{name}: {reason}");
        let error = match error {
            Error::UnknownHost { .. } => Error::UnknownHost { address: name, reason },
            _ => Error::Transport { address: name, reason },
        };
        (error, line)
    }
}

/// The failures of connections that are counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ConnectionFailure {
    /// A response with an unexpected correlation id.
    CorrelationId,
    /// Reading failed.
    Read,
    /// A request timed out.
    Timeout,
    /// Writing failed.
    Write,
}

/// Observes one connection.
#[derive(Debug)]
pub(crate) struct ConnectionObserver {
    observer: Arc<Observer>,
    address: Arc<str>,
    id: u64,
    is_open: Cell<bool>,
    has_given_up: Cell<bool>,
}

impl ConnectionObserver {
    /// Warns, once for the client, that a broker sent more than the response. librdkafka's mock cluster does.
    pub(crate) fn surplus_bytes(&self, api: ApiKey, version: i16, surplus: usize) {
        if !self.observer.warned_of_surplus.swap(true, Ordering::Relaxed) {
            let address = &self.address;
            let text = format!(
                "{address}: {surplus} unknown bytes after the answer to {api} v{version} are ignored"
            );
            self.observer.log.say(WARNING, "PROTOERR", text);
        }
    }

    pub(super) fn new(observer: Arc<Observer>, address: Arc<str>, id: u64) -> Self {
        observer.broker(&address, |broker, _| broker.open += 1);
        Self { observer, address, id, is_open: Cell::new(true), has_given_up: Cell::new(false) }
    }

    fn log_name(&self) -> String {
        self.observer.broker_name(&self.address)
    }

    /// Counts a request that entered the outbox.
    pub(crate) fn enqueued(
        &self,
        api: ApiKey,
        version: i16,
        correlation_id: i32,
        bytes: usize,
        answered: bool,
    ) {
        self.observer.broker(&self.address, |broker, now| {
            let flight = InFlightRequest { api, version, bytes, answered, enqueued: now, written: None };
            broker.flights.insert((self.id, correlation_id), flight);
        });
    }

    /// Counts a request that was written completely.
    pub(crate) fn written(&self, correlation_id: i32) {
        let counting = self.observer.is_counting();
        let counted = self.observer.broker(&self.address, |broker, now| {
            let flight = broker.flights.get_mut(&(self.id, correlation_id))?;
            flight.written = Some(now);
            broker.tx += 1;
            broker.tx_bytes += flight.bytes as u64;
            broker.tx_at = Some(now);
            let sent = (flight.api, flight.version, flight.bytes);
            if counting {
                *broker.requests.entry(flight.api.name()).or_default() += 1;
                broker.outbuf_latency.record((now - flight.enqueued).as_micros() as u64);
            }
            if !flight.answered {
                broker.flights.remove(&(self.id, correlation_id));
            }
            Some(sent)
        });
        if let Some((api, version, bytes)) = counted {
            self.exchanged(api, version, correlation_id, bytes, None);
            self.observer.log.debug(Context::Protocol, "SEND", || {
                format!(
                    "{}: Sent {}Request (v{version}, {bytes} bytes @ 0, CorrId {correlation_id})",
                    self.log_name(),
                    api.name()
                )
            });
        }
    }

    /// Counts a response.
    pub(crate) fn received(&self, correlation_id: i32, bytes: usize) {
        let counting = self.observer.is_counting();
        let counted = self.observer.broker(&self.address, |broker, now| {
            broker.rx += 1;
            broker.rx_bytes += bytes as u64;
            broker.rx_at = Some(now);
            let flight = broker.flights.remove(&(self.id, correlation_id))?;
            // The response may be recorded before the write of the request is.
            let rtt = now.saturating_duration_since(flight.written.unwrap_or(flight.enqueued));
            if counting {
                let micros = rtt.as_micros() as u64;
                broker.rtt.record(micros);
                broker.latencies.record(flight.api, micros);
            }
            Some((flight.api, flight.version, rtt))
        });
        if let Some((api, version, rtt)) = counted {
            self.exchanged(api, version, correlation_id, bytes, Some(rtt));
            self.observer.log.debug(Context::Protocol, "RECV", || {
                format!(
                    "{}: Received {}Response (v{version}, {bytes} bytes, CorrId {correlation_id}, rtt {:.2}ms)",
                    self.log_name(),
                    api.name(),
                    rtt.as_secs_f64() * 1000.0
                )
            });
        }
    }

    fn exchanged(
        &self,
        api: ApiKey,
        version: i16,
        correlation_id: i32,
        bytes: usize,
        round_trip: Option<Duration>,
    ) {
        self.observer.exchanges.push_with(|| {
            let (broker, node) = (self.address.to_string(), self.observer.node_at(&self.address));
            let api_key = api.code();
            Some(RequestEvent { broker, node, api_key, version, correlation_id, bytes, round_trip })
        });
    }

    /// Counts a failure of the connection.
    pub(crate) fn broken(&self, broken: ConnectionFailure) {
        self.observer.broker(&self.address, |broker, _| match broken {
            ConnectionFailure::CorrelationId => broker.rx_correlation_errors += 1,
            ConnectionFailure::Read => broker.rx_errors += 1,
            ConnectionFailure::Timeout => broker.timeouts += 1,
            ConnectionFailure::Write => broker.tx_errors += 1,
        });
    }

    /// Reports a response that this client cannot read. The connection closes for this reason.
    pub(crate) fn unreadable(&self, reason: &str) {
        let (address, reason) = (self.address.to_string(), reason.to_owned());
        self.observer.errors.push(Error::Protocol { address, reason });
    }

    /// The client closes the connection itself: a response is missing, or it is no longer used.
    pub(crate) fn gave_up(&self) {
        self.has_given_up.set(true);
    }

    /// Records that the connection is closed, and drops its requests in flight.
    pub(crate) fn closed(&self, reason: &str) {
        if self.is_open.replace(false) {
            let waited_for = self.observer.broker(&self.address, |broker, now| {
                let flights = broker.flights.len();
                broker.flights.retain(|(connection, _), _| *connection != self.id);
                let waited_for = flights - broker.flights.len();
                broker.open -= 1;
                broker.disconnects += 1;
                broker.enter(ConnectionState::Down, now);
                waited_for
            });
            if waited_for > 0 && !self.has_given_up.get() {
                let reason = format!("{reason}, with {waited_for} requests under way").into();
                self.observer.errors.push(Error::Transport { address: self.address.to_string(), reason });
            }
            self.observer.log.debug(Context::Broker, "FAIL", || format!("{}: {reason}", self.address));
        }
    }

    /// The address, as used to connect.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Logs a step of TLS or SASL; never a secret.
    pub(crate) fn secured(&self, step: &str) {
        self.observer.log.debug(Context::Security, "SECURITY", || format!("{}: {step}", self.address));
    }

    /// Logs the number of the broker's supported APIs.
    pub(crate) fn greeted(&self, apis: usize) {
        self.observer.log.debug(Context::Feature, "APIVERSION", || {
            format!("{}: the broker knows {apis} requests", self.address)
        });
    }

    /// The level of one of the cluster's features.
    pub(crate) fn has_feature(&self, name: &str, level: i16) {
        self.observer.log.debug(Context::Feature, "FEATURE", || {
            format!("{}: the cluster has {name} at level {level}", self.address)
        });
    }

    /// Logs the assumed version of a broker that is not asked for its versions.
    pub(crate) fn taken_for(&self, version: BrokerVersion) {
        self.observer.log.debug(Context::Feature, "APIVERSION", || {
            format!("{}: taken for a broker of version {version:?} without being asked", self.address)
        });
    }
}

impl Drop for ConnectionObserver {
    fn drop(&mut self) {
        // The client itself ends the connection, and whatever it has requested: no broker has failed.
        self.gave_up();
        self.closed("no longer used");
    }
}

/// The time since an event, in microseconds; -1 if it never happened.
pub(super) fn idle_us(at: Option<Instant>, now: Instant) -> i64 {
    at.map_or(-1, |at| micros(now.saturating_duration_since(at)))
}

pub(super) fn micros(duration: Duration) -> i64 {
    duration.as_micros() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Isolation};

    /// A broker that had left stayed in the statistics as one of `bootstrap.servers`, for good.
    #[test]
    fn brokers_that_the_metadata_has_named_and_names_no_more_are_forgotten() {
        let observer = Observer::new(&Config::new("a"), 1);
        let known = || observer.state().brokers.keys().map(ToString::to_string).collect::<Vec<_>>();
        observer.connecting("a", 9092);
        observer.learned_brokers([(1, "a", 9092), (2, "b", 9092), (3, "c", 9092)].into_iter());
        let connection = observer.connection("b:9092");
        connection.enqueued(ApiKey::Fetch, 12, 1, 100, true);
        connection.written(1);
        observer.unlisted_brokers(|node| node == 3);
        assert_eq!(known(), ["a:9092", "b:9092", "c:9092"], "a connection is open, and one is configured");
        drop(connection);
        observer.learned_brokers([(3, "d", 9092)].into_iter());
        assert_eq!(known(), ["a:9092", "d:9092"]);
        let sent = observer.state().of_forgotten;
        assert_eq!((sent.tx, sent.tx_bytes), (1, 100), "the client's counters do not decrease");
    }

    /// The sums fell, as after a restart of the client, when a broker left the cluster.
    #[test]
    fn pushed_sums_contain_brokers_that_are_forgotten() {
        let observer = Observer::new(&Config::new("a"), 1);
        observer.learned_brokers([(1, "a", 9092), (2, "b", 9092)].into_iter());
        observer.connecting("b", 9092);
        observer.connected("b", 9092);
        let connection = observer.connection("b:9092");
        connection.enqueued(ApiKey::Fetch, 12, 1, 100, true);
        connection.written(1);
        connection.received(1, 50);
        drop(connection);
        let sums = || {
            let values = observer.take_pushed_values(Isolation::ReadUncommitted);
            (values.opened, values.tx, values.tx_bytes, values.rx, values.rx_bytes)
        };
        assert_eq!(sums(), (1, 1, 100, 1, 50));
        observer.unlisted_brokers(|node| node == 1);
        assert!(!observer.state().brokers.contains_key("b:9092"));
        assert_eq!(sums(), (1, 1, 100, 1, 50));
    }

    /// Attempts were counted, so that an unreachable broker looked like one whose connections break.
    #[test]
    fn pushed_connections_are_those_that_were_opened() {
        let observer = Observer::new(&Config::new("a"), 1);
        let refused = Error::Transport { address: "a:9092".into(), reason: "refused".into() };
        for _ in 0..3 {
            observer.connecting("a", 9092);
            observer.not_connected("a", 9092, 0, &refused);
        }
        observer.connecting("a", 9092);
        observer.connected("a", 9092);
        assert_eq!(observer.take_pushed_values(Isolation::ReadUncommitted).opened, 1);
    }

    /// The broker was reported as one that cannot be connected to, although nothing needed it.
    #[test]
    fn attempts_of_two_lanes_that_are_dropped_count_as_none() {
        let observer = Observer::new(&Config::new("a"), 1);
        let _connection = observer.connection("b:9092");
        let is_tried = || {
            let state = observer.state();
            let broker = &state.brokers["a:9092"];
            (broker.trying_since.is_some(), broker.attempt.is_some())
        };
        for _ in 0..2 {
            observer.connecting("a", 9092);
        }
        observer.stopped_connecting("a", 9092, 0);
        assert_eq!(is_tried(), (true, true), "the other lane connects");
        observer.stopped_connecting("a", 9092, 0);
        assert_eq!(is_tried(), (false, false));
    }

    /// A later attempt was reported as one that had lasted since the dropped one.
    #[test]
    fn an_attempt_that_is_dropped_counts_as_none_unless_others_have_failed() {
        let observer = Observer::new(&Config::new("a"), 1);
        let is_tried = || {
            let state = observer.state();
            let broker = &state.brokers["a:9092"];
            assert_eq!(broker.state, ConnectionState::Down);
            (broker.trying_since.is_some(), broker.attempt.is_some())
        };
        observer.connecting("a", 9092);
        observer.stopped_connecting("a", 9092, 0);
        assert_eq!(is_tried(), (true, true), "no other broker is connected");
        observer.broker("a:9092", |broker, _| (broker.attempt, broker.trying_since) = (None, None));
        let _connection = observer.connection("b:9092");
        observer.connecting("a", 9092);
        observer.stopped_connecting("a", 9092, 0);
        assert_eq!(is_tried(), (false, false));
        let refused = Error::Transport { address: "a:9092".into(), reason: "refused".into() };
        observer.connecting("a", 9092);
        observer.not_connected("a", 9092, 0, &refused);
        observer.connecting("a", 9092);
        observer.stopped_connecting("a", 9092, 0);
        assert_eq!(is_tried(), (true, true));
    }

    /// The later attempt was taken for one that had ended: a broker that does not answer was not reported while it lasted.
    #[test]
    fn an_attempt_that_began_before_the_last_connection_ends_no_later_one() {
        let observer = Observer::new(&Config::new("a"), 1);
        let under_way =
            || observer.state().brokers["a:9092"].attempt.as_ref().map(|attempt| attempt.under_way);
        let refused = Error::Transport { address: "a:9092".into(), reason: "refused".into() };
        let [first, second, third] = [(); 3].map(|()| observer.connecting("a", 9092));
        observer.connected("a", 9092);
        assert_eq!(under_way(), None);
        let later = observer.connecting("a", 9092);
        observer.not_connected("a", 9092, second, &refused);
        observer.stopped_connecting("a", 9092, third);
        assert_eq!(under_way(), Some(1));
        observer.not_connected("a", 9092, later, &refused);
        assert_eq!((first, under_way()), (0, Some(0)));
    }

    /// librdkafka's test 0045 failed in some runs: a consumer was assigned a partition and gave it up at once.
    #[test]
    fn a_connection_that_is_no_longer_used_is_no_error_although_requests_are_under_way() {
        let observer = Observer::new(&Config::new("b"), 1);
        let requests = |connection: &ConnectionObserver| {
            connection.enqueued(ApiKey::Fetch, 12, 1, 100, true);
            connection.written(1);
        };
        let unused = observer.connection("b:9092");
        requests(&unused);
        drop(unused);
        assert!(observer.errors.try_next().is_none());
        let lost = observer.connection("b:9092");
        requests(&lost);
        lost.closed("reset by the peer");
        let error = observer.errors.try_next().expect("a broker has failed").to_string();
        assert!(error.contains("reset by the peer, with 1 requests under way"), "{error}");
    }
}
