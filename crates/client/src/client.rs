//! The handle that producers, consumers and admins of one cluster share.

use std::future::Future;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ottla_protocol::Uuid;
use tokio::sync::{mpsc, oneshot};

use crate::blocking;
use crate::cluster::Cluster;
use crate::cluster::brokers::parse_addresses;
use crate::config::{Config, NEVER};
use crate::engine::{Command, Engine};
use crate::error::Error;
use crate::log::LogLine;
use crate::net::Network;
use crate::net::connector::{Connector, TcpConnector};
use crate::notification_queue::NotificationQueue;
use crate::produce::Produce;
use crate::security::{Mechanism, Secret, Token};
use crate::stats::events::{AutoCommitEvent, BrokerStateEvent, RequestEvent, ThrottleEvent};
use crate::stats::snapshot::Snapshot;
use crate::stats::{Observer, prometheus};
use crate::watchdog::StallReport;

/// The time in which lookups of names must end when the client does. A resolver without an answer takes tens of seconds.
const LOOKUPS_END_WITHIN: Duration = Duration::from_secs(5);

/// A client of one cluster: one engine thread, shared by its producers, consumers and admins.
///
/// Cheap to clone. The engine stops when the last handle is dropped. Records that are queued then fail, so call
/// [`Producer::flush`](crate::Producer::flush) first.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: Arc<Config>,
    produce: Arc<Produce>,
    commands: Mutex<Option<mpsc::UnboundedSender<Command>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Client {
    /// Creates a client with an engine thread, over TCP.
    ///
    /// The client connects when there is work: the first call reports an unreachable broker.
    ///
    /// # Errors
    /// [`Error::Config`] for contradictions and bad addresses, or when the system cannot create a thread.
    pub fn new(config: Config) -> Result<Self, Error> {
        let connector = TcpConnector::new(&config);
        Self::spawn_engine(config, Arc::new(connector))
    }

    /// Creates a client with an engine thread, over connections from a custom connector.
    ///
    /// # Errors
    /// The errors of [`Client::new`].
    #[cfg(feature = "connector")]
    pub fn with_connector(config: Config, connector: Arc<dyn Connector>) -> Result<Self, Error> {
        Self::spawn_engine(config, connector)
    }

    /// Creates a client whose engine the caller runs, for tests and simulation. `seed` determines every random
    /// choice. The crate `ottla-testkit` does this for tests on virtual time.
    ///
    /// # Errors
    /// The errors of [`Client::new`].
    #[cfg(feature = "connector")]
    pub fn with_engine(
        config: Config,
        connector: Arc<dyn Connector>,
        seed: u64,
    ) -> Result<(Self, Engine), Error> {
        Self::build(config, connector, seed)
    }

    fn spawn_engine(config: Config, connector: Arc<dyn Connector>) -> Result<Self, Error> {
        let ending = connector.clone();
        let (client, mut engine) = Self::build(config, connector, fastrand::Rng::new().u64(..))?;
        engine.threads = true;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::Config(format!("no runtime for the engine: {error}")))?;
        let run = move || {
            if let Err(error) = runtime.block_on(engine.run()) {
                tracing::error!(%error, "the engine stopped");
            }
            runtime.shutdown_timeout(LOOKUPS_END_WITHIN);
            ending.await_calls();
        };
        let thread = std::thread::Builder::new()
            .name("ottla-engine".into())
            .spawn(run)
            .map_err(|error| Error::Config(format!("no thread for the engine: {error}")))?;
        *client.shared.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(client)
    }

    fn build(config: Config, connector: Arc<dyn Connector>, seed: u64) -> Result<(Self, Engine), Error> {
        let config = Arc::new(config.validated()?);
        let mut rng = fastrand::Rng::with_seed(seed);
        let observer = Observer::new(&config, seed);
        let produce = Produce::new(config.clone(), observer.clone(), rng.fork());
        let (commands, receiver) = mpsc::unbounded_channel();
        let network = Network::new(&config, connector, observer)?;
        let engine = Engine::new(config.clone(), network, produce.clone(), receiver, rng);
        // Checked here, where the caller gets the error.
        crate::cluster::brokers::check_addresses(&config.bootstrap_servers)?;
        let shared =
            Shared { config, produce, commands: Mutex::new(Some(commands)), thread: Mutex::new(None) };
        Ok((Self { shared: Arc::new(shared) }, engine))
    }

    /// Returns the client's configuration.
    pub fn config(&self) -> &Arc<Config> {
        &self.shared.config
    }

    /// Returns the queue of statistics, one snapshot per `statistics.interval.ms`; it stays empty while that is 0.
    ///
    /// ```
    /// use ottla_client::{Client, Config};
    ///
    /// let mut config = Config::new("127.0.0.1:9092");
    /// config.set("statistics.interval.ms", "1000")?;
    /// let client = Client::new(config)?;
    /// if let Some(snapshot) = client.statistics().try_next() {
    ///     println!("{}", snapshot.to_json());
    /// }
    /// # Ok::<(), ottla_client::Error>(())
    /// ```
    pub fn statistics(&self) -> NotificationQueue<Arc<Snapshot>> {
        self.shared.produce.observer.statistics.clone()
    }

    /// Returns the last interval's statistics in Prometheus' text format. Empty before the first interval of
    /// `statistics.interval.ms` has passed.
    ///
    /// Counters start with the client; quantiles are those of the last interval.
    pub fn prometheus_text(&self) -> String {
        self.shared.produce.observer.last().map(|snapshot| prometheus::text(&snapshot)).unwrap_or_default()
    }

    /// Serves [`prometheus_text`](Self::prometheus_text) over HTTP, at `/metrics` of `listener`, on its own thread,
    /// until the endpoint is dropped.
    ///
    /// ```
    /// use std::net::TcpListener;
    /// use ottla_client::{Client, Config};
    ///
    /// let mut config = Config::new("127.0.0.1:9092");
    /// config.set("statistics.interval.ms", "1000")?;
    /// let client = Client::new(config)?;
    /// let endpoint = client.serve_prometheus(TcpListener::bind("127.0.0.1:0")?)?;
    /// println!("http://{}/metrics", endpoint.address());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] if `statistics.interval.ms` is 0, or the system cannot create a thread.
    #[cfg(feature = "prometheus")]
    pub fn serve_prometheus(
        &self,
        listener: std::net::TcpListener,
    ) -> Result<crate::stats::endpoint::PrometheusEndpoint, Error> {
        self.serve_prometheus_and(listener, String::new)
    }

    /// Serves the same text, followed by the output of `more` in Prometheus' text format.
    ///
    /// # Errors
    /// The errors of [`serve_prometheus`](Self::serve_prometheus).
    #[cfg(feature = "prometheus")]
    pub fn serve_prometheus_and(
        &self,
        listener: std::net::TcpListener,
        more: impl Fn() -> String + Send + Sync + 'static,
    ) -> Result<crate::stats::endpoint::PrometheusEndpoint, Error> {
        let client = self.clone();
        let text = move || client.prometheus_text() + &more();
        crate::stats::endpoint::PrometheusEndpoint::start(self.config().statistics_interval, listener, text)
    }

    /// Returns the queue of stalls that begin and end: see [`Config::stall_after`](crate::Config::stall_after).
    pub fn stalls(&self) -> NotificationQueue<StallReport> {
        self.shared.produce.observer.stalls.clone()
    }

    /// Returns the queue of log lines, which is filled if `log.queue` is on and there is no callback.
    pub fn log_lines(&self) -> NotificationQueue<LogLine> {
        self.shared.produce.observer.log.queue.clone()
    }

    /// Returns the queue of errors that no call returns; it keeps the last 100.
    ///
    /// Most are errors of connections. [`Error::Unreachable`] means that no broker is connected any more. The client reconnects
    /// automatically. The error that ends the producer is [`Error::Produce`] for a gap under `enable.gapless.guarantee`, and
    /// [`Error::Transaction`] if the producer was fenced while it sent records.
    pub fn errors(&self) -> NotificationQueue<Error> {
        self.shared.produce.observer.errors.clone()
    }

    /// Returns the queue of throttled responses, and of the first response after them. It is filled from the first
    /// call on and keeps the last 100. The client pauses automatically.
    pub fn throttles(&self) -> NotificationQueue<ThrottleEvent> {
        self.shared.produce.observer.throttles.activate()
    }

    /// Returns the queue of results of automatic commits. It is filled from the first call on and keeps the last 100.
    pub fn auto_commits(&self) -> NotificationQueue<AutoCommitEvent> {
        self.shared.produce.observer.auto_commits.activate()
    }

    /// Replaces `log_level`: 0 logs only emergencies, 7 also the contexts of `debug`.
    pub fn set_log_level(&self, level: u8) {
        self.shared.produce.observer.log.set_level(level);
    }

    /// Returns the queue of written requests and received responses. It is filled from the first call on and keeps the
    /// last 100.
    pub fn exchanges(&self) -> NotificationQueue<RequestEvent> {
        self.shared.produce.observer.exchanges.activate()
    }

    /// Returns the queue of changes of broker connections. It is filled from the first call on and keeps the last 100.
    pub fn broker_states(&self) -> NotificationQueue<BrokerStateEvent> {
        self.shared.produce.observer.broker_states.activate()
    }

    /// Returns the node ids of the brokers in metadata so far, in order.
    pub fn known_brokers(&self) -> Vec<i32> {
        self.shared.produce.observer.node_ids()
    }

    /// Returns the number of partitions that a topic has in the client's metadata: 0 if the topic does not exist, and `None` if the client
    /// has not needed its metadata so far. No broker is asked. Any thread may call this.
    pub fn known_partitions(&self, topic: &str) -> Option<usize> {
        self.shared.produce.observer.partition_counts.of(topic)
    }

    /// Requests the metadata of a topic now, and keeps it fresh, as for a topic in use. The call does not wait. The request may create the
    /// topic: see [`Config::allow_auto_create_topics`](crate::Config::allow_auto_create_topics).
    pub fn request_topic(&self, topic: &str) {
        let topic: Arc<str> = topic.into();
        self.start(|cluster| async move { cluster.want(&topic) });
    }

    /// Returns the id that a broker gave this client for its metrics (KIP-714). Operators select a client by it, and brokers
    /// label its metrics with it. It stays until the client ends.
    ///
    /// Connects if no broker is connected, and waits up to `timeout` for the id. Cancel safe.
    ///
    /// # Errors
    /// [`Error::IllegalState`] if `enable.metrics.push` is off. [`Error::TimedOut`] after `timeout`: brokers give ids only if
    /// they support client metrics; the Ottla broker does while there is a subscription.
    pub async fn client_instance_id(&self, timeout: Duration) -> Result<Uuid, Error> {
        if !self.config().enable_metrics_push {
            return Err(Error::IllegalState("client_instance_id: enable.metrics.push is `false`".into()));
        }
        let known = move |cluster: Rc<Cluster>| async move {
            let known = tokio::time::timeout(timeout, cluster.await_client_instance()).await;
            let (what, waited_ms) = ("the client instance id".into(), timeout.as_millis());
            known.map_err(|_| Error::TimedOut { what, waited_ms })
        };
        self.run(known).await
    }

    /// [`Client::client_instance_id`] for threads without a runtime.
    ///
    /// # Errors
    /// The errors of [`Client::client_instance_id`].
    pub fn client_instance_id_blocking(&self, timeout: Duration) -> Result<Uuid, Error> {
        // The engine ends the wait.
        blocking::block_on(NEVER, self.client_instance_id(timeout)).unwrap_or(Err(Error::Closed))
    }

    /// Adds bootstrap servers, `host[:port]` separated by commas, and returns their number.
    ///
    /// ```
    /// use ottla_client::{Client, Config};
    ///
    /// let mut config = Config::default();
    /// config.bootstrap_later = true;
    /// let client = Client::new(config)?;
    /// assert_eq!(client.add_bootstrap_servers("127.0.0.1:9092, 127.0.0.1:9093")?, 2);
    /// # Ok::<(), ottla_client::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] if one of them is not a valid address; then none is added.
    pub fn add_bootstrap_servers(&self, servers: &str) -> Result<usize, Error> {
        let servers = parse_addresses(servers)?;
        let count = servers.len();
        self.start(|cluster| async move { cluster.brokers.add_bootstrap(servers) });
        Ok(count)
    }

    /// Replaces the credentials of SASL/PLAIN and SASL/SCRAM for new connections and for re-authentication (KIP-368).
    ///
    /// # Errors
    /// [`Error::Config`] for other values of `sasl.mechanism`, or for a `security.protocol` without SASL.
    pub fn set_sasl_credentials(&self, username: &str, password: Secret) -> Result<(), Error> {
        let security = &self.shared.config.security;
        let mechanism = security.protocol.is_sasl().then(|| security.sasl.mechanism.unwrap_or_default());
        if !mechanism.is_some_and(Mechanism::has_password) {
            let name = mechanism.map_or("none", Mechanism::name);
            return Err(Error::Config(format!(
                "username and password are for sasl.mechanism PLAIN and SCRAM; this client's is {name}"
            )));
        }
        let username = username.to_owned();
        self.start(|cluster| async move {
            if let Some(authenticator) = cluster.brokers.authenticator() {
                authenticator.set_credentials(username, password);
            }
        });
        Ok(())
    }

    /// Discards the token of SASL/OAUTHBEARER unless it is the current one of the application's
    /// [`TokenProvider`](crate::TokenProvider). New connections and re-authentications use the provider's token; without
    /// this call, they do when four fifths of the previous one's lifetime have passed.
    ///
    /// `is_current` is called in the engine's thread, and must not block. It compares with the token that the provider has by
    /// then: of two tokens in quick succession, the client may use the second one already when the first is announced.
    pub fn renew_sasl_token(&self, is_current: impl FnOnce(&Token) -> bool + Send + 'static) {
        self.start(|cluster| async move {
            if let Some(authenticator) = cluster.brokers.authenticator() {
                authenticator.discard_token_unless(is_current);
            }
        });
    }

    /// Connects at once instead of at the first request; [`Client::errors`] reports failures.
    pub fn connect(&self) {
        self.start(|cluster| async move {
            if let Err(error) = cluster.describe(Some(&[])).await {
                tracing::debug!(%error, "connecting before there is something to do");
            }
        });
    }

    /// Runs a future in the engine's thread. The future must not block.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.start(|_| future);
    }

    /// Stops the engine and waits for the end of its thread, in which callbacks of logs, certificates and notifications
    /// run. Records that are queued then fail, and later calls return [`Error::Closed`]. A call from the engine's own
    /// thread does not wait. A lookup of a name that has no answer delays the end by 5 seconds at most.
    pub fn stop(&self) {
        self.shared.stop();
    }

    pub(crate) fn produce(&self) -> &Arc<Produce> {
        &self.shared.produce
    }

    /// Runs `work` in the engine and waits for its result. The work continues when the future is dropped.
    pub(crate) async fn run<T, F, W>(&self, work: W) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + 'static,
        W: FnOnce(Rc<Cluster>) -> F + Send + 'static,
    {
        let (answer, received) = oneshot::channel();
        self.start(|cluster| async move {
            let _ = answer.send(work(cluster).await);
        });
        received.await.unwrap_or(Err(Error::Closed))
    }

    /// Starts `work` in the engine without waiting; a stopped engine drops it.
    pub(crate) fn start<F, W>(&self, work: W)
    where
        F: Future<Output = ()> + 'static,
        W: FnOnce(Rc<Cluster>) -> F + Send + 'static,
    {
        let commands = self.shared.commands.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(commands) = &*commands {
            let _ = commands.send(Box::new(|cluster| Box::pin(work(cluster))));
        }
    }
}

impl Shared {
    fn stop(&self) {
        // Closing the channel stops the engine. The engine's own thread must not join itself.
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::error::ProduceErrorKind;
    use crate::produce::Purge;
    use crate::record::Record;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn defect() -> impl Future<Output = ()> {
        std::future::poll_fn(|_| panic!("a defect"))
    }

    /// The panic of a task that its owner joins was dropped.
    #[test]
    fn a_panic_of_a_joined_task_ends_the_client_with_errors() {
        let client = Client::new(Config::new("127.0.0.1:1")).expect("a client");
        let mut consumer = client.consumer();
        client.start(|cluster| async move {
            let mut tasks = tokio::task::JoinSet::new();
            tasks.spawn_local(std::future::pending());
            tasks.abort_all();
            tasks.spawn_local(async {});
            tasks.spawn_local(defect());
            while let Some(ended) = tasks.join_next().await {
                cluster.observer.joined("test", ended);
            }
        });
        let error = consumer.poll_blocking(PATIENCE).expect_err("the client has ended");
        assert!(matches!(error, Error::Closed), "{error}");
    }

    /// The panic was dropped, and records and polls waited for ever.
    #[test]
    fn a_panic_of_a_task_ends_the_client_with_errors() {
        let client = Client::new(Config::new("127.0.0.1:1")).expect("a client");
        let (producer, mut consumer) = (client.producer(), client.consumer());
        let delivery = producer.try_enqueue(Record::to("orders").value("x")).expect("taken");
        client.start(|cluster| cluster.observer.clone().watched("test", defect()));
        let error = delivery.wait(PATIENCE).expect("in time").expect_err("the client has ended");
        assert!(matches!(error.kind, ProduceErrorKind::Closed), "{error}");
        let error = consumer.poll_blocking(PATIENCE).expect_err("the client has ended");
        assert!(matches!(error, Error::Closed), "{error}");
        let error = client.client_instance_id_blocking(PATIENCE).expect_err("the client has ended");
        assert!(matches!(error, Error::Closed), "{error}");
        let error = producer.try_enqueue(Record::to("orders").value("y")).expect_err("the client has ended");
        assert!(matches!(error.kind, ProduceErrorKind::Closed), "{error}");
    }

    /// The caller waited for `delivery.timeout.ms`: the report that the application had not read kept its record booked.
    #[test]
    fn a_caller_that_waits_for_room_gets_an_error_when_the_client_ends() {
        let mut config = Config::new("127.0.0.1:1");
        config.delivery_reports = true;
        config.queue_buffering_max_messages = 1;
        let client = Client::new(config).expect("a client");
        let producer = client.producer();
        producer.try_send_unobserved(Record::to("orders").value("x")).expect("taken");
        let purge = Purge { queued: true, in_flight: true };
        producer.purge_blocking(purge, PATIENCE).expect("purged");
        assert_eq!(producer.reports().expect("reports are on").len(), 1);
        let mut waiting = pin!(producer.enqueue(Record::to("orders").value("y")));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        client.stop();
        let refused = blocking::block_on(PATIENCE, waiting).expect("in time");
        let error = refused.expect_err("the client has ended");
        assert!(matches!(error.kind, ProduceErrorKind::Closed), "{error}");
    }

    /// The call waited for the whole timeout, and reported that it was over.
    #[test]
    fn a_purge_after_the_end_of_the_client_is_refused() {
        let client = Client::new(Config::new("127.0.0.1:1")).expect("a client");
        let producer = client.producer();
        client.stop();
        let purge = Purge { queued: true, in_flight: true };
        let error = producer.purge_blocking(purge, PATIENCE).expect_err("the client has ended");
        assert!(matches!(error, Error::Closed), "{error}");
    }
}
