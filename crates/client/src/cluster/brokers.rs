//! Connections to brokers: one per broker and lane, opened when first needed, reopened with backoff.

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ottla_protocol::messages::metadata::MetadataResponse;
use ottla_protocol::{Request, Uuid};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::change_counter::{ChangeCounter, ChangeWaiter};
use crate::config::Config;
use crate::error::Error;
use crate::net::Network;
use crate::net::connection::{Connection, Greeting};
use crate::net::sasl::Authenticator;
use crate::stats::{Observer, address_of};

/// The cluster feature whose level selects the protocol of transactions (KIP-890).
pub(crate) const TRANSACTION_VERSION: &str = "transaction.version";

/// The port of a bootstrap server without a port.
const DEFAULT_PORT: u16 = 9092;

/// The purpose of a connection. A long poll in one lane does not delay requests in another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lane {
    Control,
    Fetch,
    /// Fetches that must not wait behind a long-polling fetch.
    FetchMore,
    Group,
    /// JoinGroup and SyncGroup, which wait for other members.
    Join,
    Produce,
    /// ShareFetch and ShareAcknowledge: the broker ends a share session with its connection.
    Share,
}

const LANES: usize = 7;

/// The head start of an attempt to connect to any broker over the attempt to connect to another one.
const HEAD_START: Duration = Duration::from_secs(1);

/// The known brokers by node id, and the bootstrap servers.
#[derive(Debug)]
pub(crate) struct Brokers {
    config: Arc<Config>,
    network: Network,
    bootstrap: RefCell<Vec<Rc<BrokerConnections>>>,
    /// Notified when bootstrap servers are added.
    added: Notify,
    nodes: RefCell<BTreeMap<i32, Rc<BrokerConnections>>>,
    rng: RefCell<fastrand::Rng>,
    last_failure: RefCell<Option<Error>>,
    /// Counts the connections that were opened.
    opened: ChangeCounter,
    /// The level of `transaction.version` that the newest connection reported.
    transaction_level: Cell<Option<i16>>,
}

#[derive(Debug)]
struct BrokerConnections {
    host: String,
    port: u16,
    address: String,
    greeting: Greeting,
    /// The last time that it could not be connected to, or did not answer.
    failed_at: Cell<Option<Instant>>,
    /// Requests in a row without a response in time, of those that can be repeated.
    unanswered: Cell<u32>,
    /// The start of an attempt to connect that is under way.
    connecting_since: Cell<Option<Instant>>,
    lanes: [tokio::sync::Mutex<LaneSlot>; LANES],
}

#[derive(Debug, Default)]
struct LaneSlot {
    connection: Option<Rc<Connection>>,
    failures: u32,
    retry_at: Option<Instant>,
    /// The end of the last attempt, if it failed.
    failure: Option<(Instant, Error)>,
}

/// An attempt to connect. A drop before its end is recorded: another broker was faster, or the caller's time was over.
struct ConnectAttempt<'a> {
    observer: &'a Observer,
    peer: &'a BrokerConnections,
    /// The number of connections to the broker before this attempt.
    opened_before: u64,
    has_ended: bool,
}

impl<'a> ConnectAttempt<'a> {
    fn begin(observer: &'a Observer, peer: &'a BrokerConnections) -> Self {
        let opened_before = observer.connecting(&peer.host, peer.port);
        peer.connecting_since.set(Some(Instant::now()));
        Self { observer, peer, opened_before, has_ended: false }
    }

    /// Ends the attempt. Returns the number of connections before it.
    fn end(mut self) -> u64 {
        self.has_ended = true;
        self.opened_before
    }
}

impl Drop for ConnectAttempt<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.peer.failed_at.set(self.peer.failed_at());
            self.observer.stopped_connecting(&self.peer.host, self.peer.port, self.opened_before);
        }
        self.peer.connecting_since.set(None);
    }
}

/// A broker that advertises another address than before.
pub(crate) struct MovedBroker {
    node: i32,
    from: String,
    to: String,
}

impl fmt::Display for MovedBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, from, to } = self;
        write!(f, "{from}/{node}: Nodename changed from {from} to {to}")
    }
}

impl BrokerConnections {
    fn new(host: String, port: u16) -> Rc<Self> {
        let lanes = std::array::from_fn(|_| tokio::sync::Mutex::default());
        let address = address_of(&host, port);
        Rc::new(Self {
            host,
            port,
            address,
            greeting: Greeting::default(),
            failed_at: Cell::new(None),
            unanswered: Cell::new(0),
            connecting_since: Cell::new(None),
            lanes,
        })
    }

    /// The last time that it failed. An attempt to connect that takes long counts.
    fn failed_at(&self) -> Option<Instant> {
        let slow = self.connecting_since.get().filter(|since| since.elapsed() >= HEAD_START);
        self.failed_at.get().max(slow)
    }
}

impl Brokers {
    pub(crate) fn new(config: Arc<Config>, network: Network, rng: fastrand::Rng) -> Result<Self, Error> {
        let bootstrap = parse_addresses(&config.bootstrap_servers)?;
        let bootstrap =
            bootstrap.into_iter().map(|(host, port)| BrokerConnections::new(host, port)).collect::<Vec<_>>();
        Ok(Self {
            config,
            network,
            bootstrap: RefCell::new(bootstrap),
            added: Notify::new(),
            nodes: RefCell::default(),
            rng: RefCell::new(rng),
            last_failure: RefCell::default(),
            opened: ChangeCounter::default(),
            transaction_level: Cell::new(None),
        })
    }

    /// Applies the brokers of a metadata response; a broker whose address changed gets new connections. Returns those
    /// brokers.
    pub(crate) fn merge(&self, response: &MetadataResponse) -> Vec<MovedBroker> {
        let mut moved_brokers = Vec::new();
        let mut nodes = self.nodes.borrow_mut();
        for broker in &response.brokers {
            let port = broker.port as u16;
            let known = nodes.get(&broker.node_id);
            if known.is_some_and(|peer| peer.host == broker.host && peer.port == port) {
                continue;
            }
            moved_brokers.extend(known.map(|peer| MovedBroker {
                node: broker.node_id,
                from: peer.address.clone(),
                to: address_of(&broker.host, port),
            }));
            nodes.insert(broker.node_id, BrokerConnections::new(broker.host.clone(), port));
        }
        if !response.brokers.is_empty() {
            nodes.retain(|id, _| response.brokers.iter().any(|broker| broker.node_id == *id));
        }
        moved_brokers
    }

    /// Starts from the bootstrap servers again (KIP-899, KIP-1102), on new connections: an open one may lead to an
    /// earlier address of the name.
    pub(crate) fn rebootstrap(&self) {
        self.nodes.borrow_mut().clear();
        for peer in self.bootstrap.borrow_mut().iter_mut() {
            *peer = BrokerConnections::new(peer.host.clone(), peer.port);
        }
    }

    /// Adds bootstrap servers to the configured ones.
    pub(crate) fn add_bootstrap(&self, servers: Vec<(String, u16)>) {
        let mut bootstrap = self.bootstrap.borrow_mut();
        for (host, port) in servers {
            if bootstrap.iter().all(|peer| peer.host != host || peer.port != port) {
                bootstrap.push(BrokerConnections::new(host, port));
            }
        }
        drop(bootstrap);
        self.added.notify_waiters();
    }

    /// The authenticator, if connections use SASL.
    pub(crate) fn authenticator(&self) -> Option<&Arc<Authenticator>> {
        self.network.authenticator.as_ref()
    }

    /// Returns `true` if the connection leads to the node's current address. The node may have moved, or its id may
    /// belong to another cluster.
    pub(crate) fn is_at(&self, node: i32, connection: &Connection) -> bool {
        let nodes = self.nodes.borrow();
        nodes.get(&node).is_some_and(|peer| peer.address == connection.address())
    }

    /// The cluster's level of `transaction.version`, if known.
    pub(crate) fn transaction_level(&self) -> Option<i16> {
        self.transaction_level.get()
    }

    /// A random UUID, for a member id.
    pub(crate) fn random_uuid(&self) -> Uuid {
        Uuid::from(self.rng.borrow_mut().u128(..))
    }

    pub(crate) fn knows(&self, node: i32) -> bool {
        self.nodes.borrow().contains_key(&node)
    }

    /// Returns `true` if a broker other than the one at this address is known. A bootstrap server may be one of the nodes under another
    /// name, so it counts only while no node is known.
    pub(crate) fn has_others(&self, address: &str) -> bool {
        let (nodes, bootstrap) = (self.nodes.borrow(), self.bootstrap.borrow());
        let is_other = |peer: &Rc<BrokerConnections>| peer.address != address;
        if nodes.is_empty() {
            bootstrap.iter().any(is_other)
        } else {
            nodes.len() > 1 && nodes.values().any(is_other)
        }
    }

    /// The address of a broker, if known.
    pub(crate) fn address(&self, node: i32) -> Option<(String, u16)> {
        self.nodes.borrow().get(&node).map(|peer| (peer.host.clone(), peer.port))
    }

    /// Stores the address of a broker from a coordinator lookup.
    pub(crate) fn learn(&self, node: i32, host: &str, port: u16) {
        self.network.observer.learned_brokers(std::iter::once((node, host, i32::from(port))));
        let mut nodes = self.nodes.borrow_mut();
        if nodes.get(&node).is_none_or(|peer| peer.host != host || peer.port != port) {
            nodes.insert(node, BrokerConnections::new(host.to_owned(), port));
        }
    }

    /// The connection to a broker in a lane, opened if there is none. Waits for the backoff after a failure.
    pub(crate) async fn connection(&self, node: i32, lane: Lane) -> Result<Rc<Connection>, Error> {
        let peer = self.nodes.borrow().get(&node).cloned();
        let peer = peer.ok_or_else(|| Error::Transport {
            address: format!("node {node}"),
            reason: "not in the cluster's metadata".into(),
        })?;
        self.connect(&peer, lane).await
    }

    /// A connection to any broker: an open one if there is, if possible without requests; else each known broker in random
    /// order, then the bootstrap servers, and after them those that have failed. A broker that throttles the client, or does not answer,
    /// is the last choice; others have a head start over one that did not answer on another connection. It is chosen as soon as it
    /// answers again.
    pub(crate) async fn any(&self) -> Result<Rc<Connection>, Error> {
        let started = Instant::now();
        if self.bootstrap.borrow().is_empty() {
            // No server is known yet. The wait limits the rate of callers that retry in a loop.
            let _ = tokio::time::timeout(self.config.reconnect_backoff_max, self.added.notified()).await;
        }
        let mut known: Vec<_> = self.nodes.borrow().values().cloned().collect();
        self.rng.borrow_mut().shuffle(&mut known);
        let nodes = known.len();
        if known.is_empty() || self.config.net.rebootstrap {
            let mut bootstrap = self.bootstrap.borrow().clone();
            self.rng.borrow_mut().shuffle(&mut bootstrap);
            known.extend(bootstrap);
        }
        let with_open = |peer: &Rc<BrokerConnections>| Some((peer.clone(), open_control(peer)?));
        let open: Vec<_> = known.iter().filter_map(with_open).collect();
        let connections = || open.iter().map(|(_, connection)| connection);
        let free: Vec<_> = connections().filter(|connection| self.is_free(connection)).collect();
        if let Some(connection) = free.iter().find(|connection| connection.is_idle()).or(free.first()) {
            return Ok((*connection).clone());
        }
        let last = open.iter().min_by_key(|(_, connection)| {
            (self.is_silent(connection), connection.is_suspect(), connection.muted_until())
        });
        if last.is_some() {
            // A bootstrap server may be one of these nodes under another name.
            if nodes > 0 {
                known.truncate(nodes);
            }
            known.retain(|peer| connections().all(|connection| connection.address() != peer.address));
        }
        // Cached: the order depends on the clock.
        known.sort_by_cached_key(|peer| peer.failed_at());
        let mut wait_end = last.filter(|(_, last)| !self.is_silent(last)).and_then(|(_, last)| {
            // The mark may be wrong, and the others unreachable.
            let head_start = last.is_suspect().then(|| started + HEAD_START);
            if last.is_suspect() && !last.is_idle() { None } else { last.muted_until().max(head_start) }
        });
        let due = due(&known, started);
        let mut recovered: FuturesUnordered<_> = open.iter().map(|(peer, _)| self.recovered(peer)).collect();
        // Boxed: futures within futures have a limit of depth, and this one is rare.
        let mut connecting = Box::pin(self.connect_to_one(&due));
        loop {
            tokio::select! {
                biased;
                connected = &mut connecting => match connected {
                    Some(connection) => return Ok(connection),
                    None => break,
                },
                () = sleep_until(wait_end) => match last {
                    // It has closed meanwhile: it is one of those that are connected to.
                    Some((_, last)) if !last.is_open() => wait_end = None,
                    _ => break,
                },
                Some(connection) = recovered.next() => return Ok(connection),
            }
        }
        match last {
            Some((_, last)) if last.is_open() => Ok(last.clone()),
            // It has closed meanwhile, and no other broker can be connected to.
            Some((peer, _)) => Box::pin(self.connect(peer, Lane::Control)).await,
            None => Err(self.unreachable(started.elapsed())),
        }
    }

    /// Returns `true` if requests on a connection are answered soon, as far as is known.
    fn is_free(&self, connection: &Connection) -> bool {
        !connection.is_muted() && !connection.is_suspect() && !self.is_silent(connection)
    }

    /// Returns `true` if a broker has left the requests on a connection without a response for long. Responses come in order, so those of
    /// this broker would delay any other.
    fn is_silent(&self, connection: &Connection) -> bool {
        self.config.patience(0).is_some_and(|patience| connection.is_silent(patience))
    }

    /// Waits until a broker whose connection is open, and not free, answers again, or can be connected to after that connection has
    /// closed. The attempts to connect to unreachable brokers take long.
    async fn recovered(&self, peer: &BrokerConnections) -> Rc<Connection> {
        loop {
            tokio::time::sleep(HEAD_START).await;
            if let Ok(connection) = self.connect(peer, Lane::Control).await
                && self.is_free(&connection)
            {
                return connection;
            }
        }
    }

    /// Connects to the first of these brokers that can be reached. A host that drops packets does not delay the others by the whole
    /// time of an attempt.
    async fn connect_to_one(&self, peers: &[Rc<BrokerConnections>]) -> Option<Rc<Connection>> {
        let (mut peers, mut attempts) = (peers.iter(), FuturesUnordered::new());
        loop {
            attempts.extend(peers.next().map(|peer| self.connect(peer, Lane::Control)));
            let next_at = (peers.len() > 0).then(|| Instant::now() + HEAD_START);
            tokio::select! {
                biased;
                attempt = attempts.next() => match attempt {
                    Some(Ok(connection)) => return Some(connection),
                    Some(Err(_)) => {}
                    None => return None,
                },
                () = sleep_until(next_at) => {}
            }
        }
    }

    /// Records that the broker at this address did not answer: `any` chooses others before it, until it answers or the request timeout has
    /// elapsed.
    pub(crate) fn note_silence(&self, address: &str) {
        let (nodes, bootstrap) = (self.nodes.borrow(), self.bootstrap.borrow());
        for peer in nodes.values().chain(bootstrap.iter()).filter(|peer| peer.address == address) {
            peer.failed_at.set(Some(Instant::now()));
            if let Some(connection) = open_control(peer) {
                connection.suspect();
            }
        }
    }

    /// The requests in a row that the broker at this address has not answered in time, of those that can be repeated.
    pub(crate) fn unanswered(&self, address: &str) -> u32 {
        let (nodes, bootstrap) = (self.nodes.borrow(), self.bootstrap.borrow());
        let at_address = nodes.values().chain(bootstrap.iter()).filter(|peer| peer.address == address);
        at_address.map(|peer| peer.unanswered.get()).max().unwrap_or(0)
    }

    /// Sets [`Self::unanswered`].
    pub(crate) fn set_unanswered(&self, address: &str, count: u32) {
        let (nodes, bootstrap) = (self.nodes.borrow(), self.bootstrap.borrow());
        for peer in nodes.values().chain(bootstrap.iter()).filter(|peer| peer.address == address) {
            peer.unanswered.set(count);
        }
    }

    /// The time `due` at which a broker stops waiting for records, or a later one if its throttle holds the fetch back in the client.
    pub(crate) fn due_behind_throttle(&self, node: i32, lane: Lane, due: Instant) -> Instant {
        let muted_until = || {
            let nodes = self.nodes.borrow();
            let slot = nodes.get(&node)?.lanes[lane as usize].try_lock().ok()?;
            slot.connection.as_ref()?.muted_until()
        };
        muted_until().map_or(due, |until| due.max(until + self.config.fetch_wait_max))
    }

    /// Notified after each connection that is opened.
    pub(crate) fn opened(&self) -> ChangeWaiter {
        self.opened.changes()
    }

    /// An open connection to a broker that supports `R`: of the known brokers in the order of their ids, then of the
    /// bootstrap servers. A broker that throttles the client, or does not answer, is the last choice.
    pub(crate) fn open_with<R: Request>(&self) -> Option<Rc<Connection>> {
        let (nodes, bootstrap) = (self.nodes.borrow(), self.bootstrap.borrow());
        let open = nodes.values().chain(bootstrap.iter()).filter_map(|peer| open_control(peer));
        let supports = |connection: &Rc<Connection>| connection.version_of::<R>(i16::MAX).is_ok();
        open.filter(supports).min_by_key(|connection| connection.is_muted() || connection.is_suspect())
    }

    /// A generator of random numbers for a task.
    pub(crate) fn fork_rng(&self) -> fastrand::Rng {
        self.rng.borrow_mut().fork()
    }

    /// Connects to one of the brokers that metadata names, unless there is a connection to one.
    pub(crate) async fn connect_to_learned(&self) {
        let mut known: Vec<_> = self.nodes.borrow().values().cloned().collect();
        if known.iter().any(|peer| open_control(peer).is_some()) {
            return;
        }
        self.rng.borrow_mut().shuffle(&mut known);
        for peer in &known {
            if self.connect(peer, Lane::Control).await.is_ok() {
                return;
            }
        }
    }

    /// The error for when no broker is reachable.
    pub(crate) fn unreachable(&self, waited: Duration) -> Error {
        let last = self.last_failure.borrow();
        match &*last {
            // The broker was reached: the failure is more specific than "unreachable".
            Some(error) if error.is_security() || matches!(error, Error::Unsupported { .. }) => error.clone(),
            last => Error::Unreachable {
                brokers: self.config.bootstrap_servers.clone(),
                waited_ms: waited.as_millis(),
                reason: last.as_ref().map_or_else(|| "not tried yet".into(), Error::to_string),
            },
        }
    }

    async fn connect(&self, peer: &BrokerConnections, lane: Lane) -> Result<Rc<Connection>, Error> {
        let called_at = Instant::now();
        let mut slot = peer.lanes[lane as usize].lock().await;
        if let Some(connection) = slot.connection.as_ref().filter(|connection| connection.is_open()) {
            return Ok(connection.clone());
        }
        // Callers that have waited for an attempt share its failure. If each made one of its own, the last would wait for all of them.
        if let Some((_, error)) = slot.failure.as_ref().filter(|(failed_at, _)| *failed_at > called_at) {
            return Err(error.clone());
        }
        if let Some(retry_at) = slot.retry_at {
            tokio::time::sleep_until(retry_at).await;
        }
        let attempt = ConnectAttempt::begin(&self.network.observer, peer);
        let rng = self.rng.borrow_mut().fork();
        let greeting = &peer.greeting;
        let opened =
            Connection::open(&self.network, &peer.host, peer.port, &self.config, greeting, rng).await;
        let opened_before = attempt.end();
        match opened {
            Ok(connection) => {
                self.network.observer.connected(&peer.host, peer.port);
                self.transaction_level.set(Some(connection.feature(TRANSACTION_VERSION).unwrap_or(0)));
                let connection = Rc::new(connection);
                *slot = LaneSlot { connection: Some(connection.clone()), ..LaneSlot::default() };
                // A connection that fails at once is not retried at once.
                slot.retry_at = Some(Instant::now() + self.jittered(self.config.reconnect_backoff));
                // Waiters look at the lanes, which must not be locked then.
                drop(slot);
                self.opened.raise();
                Ok(connection)
            }
            Err(error) => {
                self.network.observer.not_connected(&peer.host, peer.port, opened_before, &error);
                *self.last_failure.borrow_mut() = Some(error.clone());
                slot.connection = None;
                let failed_at = Instant::now();
                peer.failed_at.set(Some(failed_at));
                slot.failure = Some((failed_at, error.clone()));
                let doubled = self.config.reconnect_backoff.saturating_mul(1 << slot.failures.min(16));
                slot.failures += 1;
                slot.retry_at =
                    Some(Instant::now() + self.jittered(doubled.min(self.config.reconnect_backoff_max)));
                Err(error)
            }
        }
    }

    /// Varies `backoff` by up to 50 %, so that many clients do not reconnect at the same moment.
    fn jittered(&self, backoff: Duration) -> Duration {
        backoff.mul_f64(0.5 + self.rng.borrow_mut().f64())
    }
}

#[cfg(test)]
impl Brokers {
    /// Adds a defect: the next look at the known brokers panics.
    pub(crate) fn break_down(&self) {
        std::mem::forget(self.nodes.borrow_mut());
    }
}

/// The brokers whose backoff has elapsed; if there are none, the one whose backoff elapses first.
fn due(known: &[Rc<BrokerConnections>], now: Instant) -> Vec<Rc<BrokerConnections>> {
    let mut due = Vec::new();
    let mut first: Option<(Instant, &Rc<BrokerConnections>)> = None;
    for peer in known {
        let retry_at = peer.lanes[Lane::Control as usize].try_lock().ok().and_then(|slot| slot.retry_at);
        match retry_at.filter(|at| *at > now) {
            None => due.push(peer.clone()),
            Some(at) if first.is_none_or(|(earliest, _)| at < earliest) => first = Some((at, peer)),
            Some(_) => {}
        }
    }
    if due.is_empty() {
        due.extend(first.map(|(_, peer)| peer.clone()));
    }
    due
}

/// Waits until this time; for ever without one.
async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// The peer's open connection for requests to any broker.
fn open_control(peer: &BrokerConnections) -> Option<Rc<Connection>> {
    let slot = peer.lanes[Lane::Control as usize].try_lock().ok()?;
    slot.connection.clone().filter(|connection| connection.is_open())
}

/// Fails if a bootstrap server is malformed.
pub(crate) fn check_addresses(servers: &str) -> Result<(), Error> {
    parse_addresses(servers).map(|_| ())
}

pub(crate) fn parse_addresses(servers: &str) -> Result<Vec<(String, u16)>, Error> {
    servers.split(',').map(str::trim).filter(|server| !server.is_empty()).map(parse_address).collect()
}

/// The names of `security.protocol`, which listeners of brokers have as well.
const PROTOCOLS: [&str; 4] = ["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"];

/// Splits `host[:port]`; an IPv6 address with a port is in brackets. As in Java's client and in librdkafka, a protocol may come first:
/// `PLAINTEXT://host:port` is how brokers write their listeners.
fn parse_address(text: &str) -> Result<(String, u16), Error> {
    let bad =
        |reason: &str| Error::Config(format!("bootstrap.servers: `{text}`: {reason}; expected host[:port]"));
    let text = match text.split_once("://") {
        Some((protocol, rest)) if PROTOCOLS.iter().any(|known| known.eq_ignore_ascii_case(protocol)) => rest,
        Some((protocol, _)) => return Err(bad(&format!("unsupported protocol `{protocol}`"))),
        None => text,
    };
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or_else(|| bad("`[` without `]`"))?;
        match after.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if after.is_empty() => (host, None),
            None => return Err(bad("text after `]`")),
        }
    } else {
        match text.split_once(':') {
            // More than one colon and no brackets: an IPv6 address without a port.
            Some((_, rest)) if rest.contains(':') => (text, None),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.is_empty() {
        return Err(bad("the host is missing"));
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => port
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(|| bad("the port is not a number from 1 to 65535"))?,
    };
    Ok((host.to_owned(), port))
}
