//! Metrics for brokers that subscribe to them (KIP-714).
//!
//! - `machine` decides about the requests: which, when, and what follows an error.
//! - `metrics` names the values of the statistics.
//! - `payload` encodes them with the messages of `otlp`.
//!
//! One task sends the requests on a connection that exists for other requests. A broker that does not list them in ApiVersions
//! is left alone. Values are counted only while a broker subscribes to metrics, or for the statistics.

mod machine;
mod metrics;
mod otlp;
mod payload;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::messages::get_telemetry_subscriptions::GetTelemetrySubscriptionsRequest;
use ottla_protocol::messages::push_telemetry::PushTelemetryRequest;
use ottla_protocol::{ErrorCode, Uuid};
use ottla_wire::Compression;
use ottla_wire::compress::compress;
use tokio::time::Instant;

use self::machine::{Detail, Machine, State, Subscription};
use self::metrics::PushFacts;
use self::payload::{Encoded, Payload};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::log::{Context, WARNING};
use crate::net::connection::Connection;
use crate::produce::Produce;
use crate::stats::pushed::PushedValues;

const VERSION_MAX: i16 = 0;
/// The time that the end of a client waits for its last push, as in librdkafka.
const LAST_PUSH_WAIT: Duration = Duration::from_secs(1);

/// The metrics of one client.
#[derive(Debug)]
pub(crate) struct Telemetry {
    cluster: Rc<Cluster>,
    produce: Arc<Produce>,
    machine: RefCell<Machine>,
    payload: RefCell<Payload>,
    /// The connection of the last request. It is used until it is closed.
    broker: RefCell<Weak<Connection>>,
    /// When the values of the last push were taken, and the connections opened until then.
    taken: Cell<(Instant, u64)>,
    rng: RefCell<Option<fastrand::Rng>>,
    /// Locked while a push is under way.
    pushing: tokio::sync::Mutex<()>,
}

impl Telemetry {
    /// `None` if `enable.metrics.push` is off.
    pub(crate) fn new(cluster: Rc<Cluster>, produce: Arc<Produce>) -> Option<Rc<Self>> {
        let config = cluster.config.clone();
        let now = Instant::now();
        config.enable_metrics_push.then(|| {
            Rc::new(Self {
                machine: RefCell::new(Machine::new(now, config.metrics_push_jitter)),
                payload: RefCell::new(Payload::new(config.clock.now_ms())),
                broker: RefCell::default(),
                taken: Cell::new((now, 0)),
                rng: RefCell::default(),
                pushing: tokio::sync::Mutex::default(),
                cluster,
                produce,
            })
        })
    }

    /// Runs until a broker refuses the requests for good, or the engine drops it.
    pub(crate) async fn run(self: Rc<Self>) {
        loop {
            // Before the search: a connection that opens meanwhile is noticed.
            let mut opened = self.cluster.brokers.opened();
            let state = self.machine.borrow().state().clone();
            match state {
                State::AskAt(at) => {
                    tokio::time::sleep_until(at).await;
                    match self.open_broker() {
                        Some(connection) => self.ask(&connection).await,
                        None => opened.changed().await,
                    }
                }
                State::PushAt(at, subscription) => {
                    tokio::time::sleep_until(at).await;
                    match self.reach_broker().await {
                        Some(connection) => {
                            let _pushing = self.pushing.lock().await;
                            self.push(&connection, &subscription, false).await;
                        }
                        None => {
                            let _ = tokio::time::timeout(subscription.interval, opened.changed()).await;
                        }
                    }
                }
                State::Stopped(_) => return,
            }
        }
    }

    /// Pushes a last time if a broker subscribes to metrics, within [`LAST_PUSH_WAIT`].
    pub(crate) async fn finish(&self) {
        if tokio::time::timeout(LAST_PUSH_WAIT, Box::pin(self.push_last())).await.is_err() {
            self.debug("TERM", || "the last push is not acknowledged in time".to_owned());
        }
        self.machine.borrow_mut().stop();
    }

    /// Waits for the push under way, as another one has its deltas too until it is accepted. Half of the time stays for the last push:
    /// doubled deltas are better than none.
    async fn push_last(&self) {
        let _pushing = tokio::time::timeout(LAST_PUSH_WAIT / 2, self.pushing.lock()).await;
        let state = self.machine.borrow().state().clone();
        let State::PushAt(_, subscription) = state else { return };
        let Some(connection) = self.open_broker() else { return };
        self.push(&connection, &subscription, true).await;
    }

    /// The broker of the last request, or another one with an open connection.
    fn open_broker(&self) -> Option<Rc<Connection>> {
        let last = self.broker.borrow().upgrade().filter(|connection| connection.is_open());
        last.or_else(|| {
            let other = self.cluster.brokers.open_with::<GetTelemetrySubscriptionsRequest>()?;
            self.debug("SETBROKER", || format!("Setting telemetry broker to {}", other.address()));
            *self.broker.borrow_mut() = Rc::downgrade(&other);
            Some(other)
        })
    }

    /// The same; without an open connection, connects to any broker, for clients that send nothing else.
    async fn reach_broker(&self) -> Option<Rc<Connection>> {
        if let Some(connection) = self.open_broker() {
            return Some(connection);
        }
        self.cluster.brokers.any().await.ok()?;
        self.open_broker()
    }

    async fn ask(&self, connection: &Rc<Connection>) {
        let client_instance_id = self.machine.borrow().id();
        self.debug("GETSUBSCRIPTIONS", || format!("{}: asking for the subscription", connection.address()));
        let timeout = self.cluster.config.socket_timeout;
        let request = |_| GetTelemetrySubscriptionsRequest { client_instance_id };
        let answer = connection.call(VERSION_MAX, timeout, request).await;
        let now = Instant::now();
        let response = match answer {
            Ok(response) => response,
            Err(error) => {
                self.debug("GETSUBSCRIPTIONS", || format!("{}: {error}", connection.address()));
                return self.machine.borrow_mut().on_no_subscription(now);
            }
        };
        let random = self.random();
        let mut machine = self.machine.borrow_mut();
        machine.on_subscription(now, random, &response);
        self.debug("GETSUBSCRIPTIONS", || {
            let (code, wanted) = (response.error_code, response.requested_metrics.join(","));
            let (address, interval) = (connection.address(), machine.interval().as_millis());
            format!("{address}: {code}, interval {interval} ms, metrics `{wanted}`")
        });
        if response.error_code == ErrorCode::None && machine.id() != Uuid::ZERO {
            self.cluster.client_instance.set(machine.id());
        }
        match machine.state() {
            State::PushAt(..) => self.cluster.observer.start_counting(),
            State::Stopped(code) => {
                self.warn(&format!("{}: {code}: no metrics are pushed", connection.address()));
            }
            State::AskAt(_) => {}
        }
    }

    async fn push(&self, connection: &Rc<Connection>, subscription: &Subscription, is_last: bool) {
        let codec = self.machine.borrow().codec(subscription);
        let Some((encoded, codec, metrics)) = self.content(subscription, codec) else {
            let bytes_max = subscription.bytes_max;
            self.warn(&format!("the metrics do not fit into the {bytes_max} bytes that the broker allows"));
            let large = Some(ErrorCode::TelemetryTooLarge);
            return self.machine.borrow_mut().on_pushed(Instant::now(), codec, large);
        };
        self.debug("PUSH", || {
            let (address, bytes) = (connection.address(), metrics.len());
            format!("{address}: pushing {bytes} bytes, {codec:?}, terminating = {is_last}")
        });
        let request = PushTelemetryRequest {
            client_instance_id: self.machine.borrow().id(),
            subscription_id: subscription.id,
            terminating: is_last,
            compression_type: codec as i8,
            metrics: metrics.into(),
        };
        let answer = connection.call(VERSION_MAX, self.cluster.config.socket_timeout, |_| request).await;
        let code = self.pushed(connection, answer.map(|response| response.error_code));
        if code == Some(ErrorCode::None) {
            let observer = &self.cluster.observer;
            self.payload.borrow_mut().accepted(encoded, |topic| observer.counts_topic(topic));
        }
        let mut machine = self.machine.borrow_mut();
        machine.on_pushed(Instant::now(), codec, code);
        if let State::Stopped(code) = machine.state() {
            self.warn(&format!("{}: {code}: no more metrics are pushed", connection.address()));
        }
    }

    fn pushed(&self, connection: &Connection, answer: Result<ErrorCode, Error>) -> Option<ErrorCode> {
        match answer {
            Ok(code) => {
                self.debug("PUSH", || format!("{}: {code}", connection.address()));
                Some(code)
            }
            Err(error) => {
                self.debug("PUSH", || format!("{}: {error}", connection.address()));
                None
            }
        }
    }

    /// The metrics for a push, their codec and their bytes, with as much detail as the broker's limit permits.
    fn content(
        &self,
        subscription: &Subscription,
        codec: Compression,
    ) -> Option<(Encoded, Compression, Vec<u8>)> {
        let config = &self.cluster.config;
        let has_leader = |topic: &str| {
            let layout = self.cluster.topic(topic);
            layout.is_some_and(|layout| layout.partitions.iter().any(|partition| partition.leader.is_some()))
        };
        self.cluster.observer.forget_topics(has_leader, Instant::now());
        let values = self.cluster.observer.take_pushed_values(config.isolation_level);
        let facts = self.facts(&values);
        let mut detail = Some(self.machine.borrow().detail());
        while let Some(now) = detail {
            let encoded = self.encode(subscription, &values, facts, now);
            let mut compressed = Vec::new();
            let is_compressed = codec != Compression::None
                && !encoded.bytes.is_empty()
                && compress(codec, None, &encoded.bytes, &mut compressed).is_ok();
            let (codec, bytes) =
                if is_compressed { (codec, compressed) } else { (Compression::None, encoded.bytes.clone()) };
            if bytes.len() <= subscription.bytes_max {
                return Some((encoded, codec, bytes));
            }
            detail = now.reduced();
        }
        None
    }

    fn encode(
        &self,
        subscription: &Subscription,
        values: &PushedValues,
        facts: PushFacts,
        detail: Detail,
    ) -> Encoded {
        let config = &self.cluster.config;
        let measured = metrics::measured(values, facts, detail);
        let resource = payload::resource(config, values.member_id.as_deref());
        self.payload.borrow().encode(subscription, measured, resource, config.clock.now_ms())
    }

    fn facts(&self, values: &PushedValues) -> PushFacts {
        let now = Instant::now();
        let (before, opened) = self.taken.replace((now, values.opened));
        let memory = &self.produce.queues.memory;
        PushFacts {
            elapsed: now.saturating_duration_since(before),
            opened: values.opened.saturating_sub(opened),
            buffer_used: memory.used(),
            buffer_max: memory.max(),
        }
    }

    /// A number between 0 and 1. The generator is made when it is first needed: other clients draw no number for it.
    fn random(&self) -> f64 {
        self.rng.borrow_mut().get_or_insert_with(|| self.cluster.brokers.fork_rng()).f64()
    }

    fn debug(&self, facility: &'static str, text: impl FnOnce() -> String) {
        self.cluster.observer.log.debug(Context::Telemetry, facility, text);
    }

    fn warn(&self, text: &str) {
        self.cluster.observer.log.say(WARNING, "TELEMETRY", text.to_owned());
    }
}
