//! Brokers as seen from here: what went to them, what came back, and what is under way.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::ApiKey;
use tokio::time::Instant;

use super::Observer;
use super::wanted::Exchanged;
use super::window::Window;
use crate::error::Error;
use crate::log::Context;
use crate::net::versions::BrokerVersion;

/// Latencies above ten minutes are none.
const LATENCY_MAX_US: u64 = 600_000_000;
const THROTTLE_MAX_MS: u64 = 3_600_000;

/// One broker, by its address.
#[derive(Debug)]
pub(super) struct Broker {
    pub(super) state: State,
    pub(super) state_since: Instant,
    pub(super) open: u32,
    pub(super) connects: u64,
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
    /// Requests under way, by connection and correlation id.
    pub(super) flights: BTreeMap<(u64, i32), Flight>,
    /// Since when it is tried to connect, without success so far.
    pub(super) trying_since: Option<Instant>,
    pub(super) attempt: Option<Attempt>,
}

/// The last attempt to connect.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) at: Instant,
    pub(super) under_way: bool,
    pub(super) count: u32,
    pub(super) failure: String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    Init,
    Connect,
    Up,
    Down,
}

impl State {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Init => "INIT",
            Self::Connect => "CONNECT",
            Self::Up => "UP",
            Self::Down => "DOWN",
        }
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Flight {
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
            state: State::Init,
            state_since: now,
            open: 0,
            connects: 0,
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
            flights: BTreeMap::new(),
            trying_since: None,
            attempt: None,
        }
    }

    fn enter(&mut self, state: State, now: Instant) {
        // A lane that connects, or fails to, beside an open one changes nothing.
        if self.state != state && (self.open == 0 || state == State::Up) {
            self.state = state;
            self.state_since = now;
        }
    }

    pub(super) fn connecting(&mut self, now: Instant) {
        self.connects += 1;
        self.trying_since.get_or_insert(now);
        let count = self.attempt.as_ref().map_or(0, |attempt| attempt.count) + 1;
        let failure = self.attempt.take().map(|attempt| attempt.failure).unwrap_or_default();
        self.attempt = Some(Attempt { at: now, under_way: true, count, failure });
        self.enter(State::Connect, now);
    }

    /// Whether a connection to it is open.
    pub(super) fn is_connected(&self) -> bool {
        self.open > 0
    }

    pub(super) fn connected(&mut self, now: Instant) {
        self.trying_since = None;
        self.attempt = None;
        self.enter(State::Up, now);
    }

    /// Says whether the attempt before did not fail for the same reason.
    pub(super) fn not_connected(&mut self, failure: String, now: Instant) -> bool {
        let mut is_news = true;
        if let Some(attempt) = &mut self.attempt {
            is_news = attempt.failure != failure;
            (attempt.at, attempt.under_way, attempt.failure) = (now, false, failure);
        }
        self.enter(State::Down, now);
        is_news
    }
}

/// Why a connection broke, as far as it is counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Broken {
    /// An answer that was not due.
    CorrelationId,
    /// Reading failed.
    Read,
    /// A request was not written or not answered in time.
    Timeout,
    /// Writing failed.
    Write,
}

/// Watches one connection.
#[derive(Debug)]
pub(crate) struct Wire {
    observer: Arc<Observer>,
    address: Arc<str>,
    id: u64,
    is_open: Cell<bool>,
}

impl Wire {
    pub(super) fn new(observer: Arc<Observer>, address: Arc<str>, id: u64) -> Self {
        observer.broker(&address, |broker, _| broker.open += 1);
        Self { observer, address, id, is_open: Cell::new(true) }
    }

    /// A request was put in the outbox.
    pub(crate) fn enqueued(
        &self,
        api: ApiKey,
        version: i16,
        correlation_id: i32,
        bytes: usize,
        answered: bool,
    ) {
        self.observer.broker(&self.address, |broker, now| {
            let flight = Flight { api, version, bytes, answered, enqueued: now, written: None };
            broker.flights.insert((self.id, correlation_id), flight);
        });
    }

    /// Its last byte was written.
    pub(crate) fn written(&self, correlation_id: i32) {
        let counting = self.observer.counting;
        let told = self.observer.broker(&self.address, |broker, now| {
            let flight = broker.flights.get_mut(&(self.id, correlation_id))?;
            flight.written = Some(now);
            broker.tx += 1;
            broker.tx_bytes += flight.bytes as u64;
            broker.tx_at = Some(now);
            let told = (flight.api, flight.version, flight.bytes);
            if counting {
                *broker.requests.entry(flight.api.name()).or_default() += 1;
                broker.outbuf_latency.record((now - flight.enqueued).as_micros() as u64);
            }
            if !flight.answered {
                broker.flights.remove(&(self.id, correlation_id));
            }
            Some(told)
        });
        if let Some((api, version, bytes)) = told {
            self.exchanged(api, version, correlation_id, bytes, None);
            self.observer.log.debug(Context::Protocol, "SEND", || {
                format!(
                    "{}: Sent {}Request (v{version}, {bytes} bytes @ 0, CorrId {correlation_id})",
                    self.address,
                    api.name()
                )
            });
        }
    }

    /// Its answer has come.
    pub(crate) fn received(&self, correlation_id: i32, bytes: usize) {
        let counting = self.observer.counting;
        let told = self.observer.broker(&self.address, |broker, now| {
            broker.rx += 1;
            broker.rx_bytes += bytes as u64;
            broker.rx_at = Some(now);
            let flight = broker.flights.remove(&(self.id, correlation_id))?;
            // The answer may overtake the news that the request is written.
            let rtt = now.saturating_duration_since(flight.written.unwrap_or(flight.enqueued));
            if counting {
                broker.rtt.record(rtt.as_micros() as u64);
            }
            Some((flight.api, flight.version, rtt))
        });
        if let Some((api, version, rtt)) = told {
            self.exchanged(api, version, correlation_id, bytes, Some(rtt));
            self.observer.log.debug(Context::Protocol, "RECV", || {
                format!(
                    "{}: Received {}Response (v{version}, {bytes} bytes, CorrId {correlation_id}, rtt {:.2}ms)",
                    self.address,
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
        self.observer.exchanges.push_if_wanted(|| {
            let (broker, node) = (self.address.to_string(), self.observer.node_at(&self.address));
            let api_key = api.code();
            Some(Exchanged { broker, node, api_key, version, correlation_id, bytes, round_trip })
        });
    }

    /// What breaks the connection.
    pub(crate) fn broken(&self, broken: Broken) {
        self.observer.broker(&self.address, |broker, _| match broken {
            Broken::CorrelationId => broker.rx_correlation_errors += 1,
            Broken::Read => broker.rx_errors += 1,
            Broken::Timeout => broker.timeouts += 1,
            Broken::Write => broker.tx_errors += 1,
        });
    }

    /// The connection was closed: nothing is under way any more.
    pub(crate) fn closed(&self, reason: &str) {
        if self.is_open.replace(false) {
            let waited_for = self.observer.broker(&self.address, |broker, now| {
                let flights = broker.flights.len();
                broker.flights.retain(|(wire, _), _| *wire != self.id);
                let waited_for = flights - broker.flights.len();
                broker.open -= 1;
                broker.disconnects += 1;
                broker.enter(State::Down, now);
                waited_for
            });
            if waited_for > 0 {
                let reason = format!("{reason}, with {waited_for} requests under way").into();
                self.observer.errors.push(Error::Transport { address: self.address.to_string(), reason });
            }
            self.observer.log.debug(Context::Broker, "DISCONNECT", || format!("{}: {reason}", self.address));
        }
    }

    /// The address as it was connected to.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// A step of TLS or SASL; never a secret.
    pub(crate) fn secured(&self, step: &str) {
        self.observer.log.debug(Context::Security, "SECURITY", || format!("{}: {step}", self.address));
    }

    /// The broker's versions have come.
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

    /// The broker is not asked for its versions.
    pub(crate) fn taken_for(&self, version: BrokerVersion) {
        self.observer.log.debug(Context::Feature, "APIVERSION", || {
            format!("{}: taken for a broker of version {version:?} without being asked", self.address)
        });
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.closed("no longer used");
    }
}

/// How long ago something was, in microseconds; -1 if it never was.
pub(super) fn idle_us(at: Option<Instant>, now: Instant) -> i64 {
    at.map_or(-1, |at| micros(now.saturating_duration_since(at)))
}

pub(super) fn micros(duration: Duration) -> i64 {
    duration.as_micros() as i64
}
