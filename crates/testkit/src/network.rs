//! An in-memory network with latency, split writes, and connections that break at any byte.
//!
//! It implements both interfaces: the client's [`Connector`] opens a [`Pipe`], and the broker serves its other end as
//! a [`Transport`].

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use ottla_broker::{Cluster, Transport, serve};
use ottla_client::{Connecting, Connector, Io};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};

use crate::trace::Trace;

/// Capacity of a direction before its writer waits: small, so that back-pressure occurs.
const WINDOW_BYTES: usize = 64 * 1024;
/// More connection attempts than this at one instant are a livelock.
const ATTEMPTS_AT_ONE_INSTANT_MAX: u64 = 10_000;
/// Of so many writes after `NetworkFaults::sliced_bytes`, one is split.
const LATE_SLICE_ONE_IN: u8 = 32;
/// A duration longer than any run.
const NEVER: Duration = Duration::from_secs(3600);

/// The network's faults.
#[derive(Clone, Copy, Debug)]
pub struct NetworkFaults {
    /// Maximum latency of a write.
    pub latency_max: Duration,
    /// Maximum size of the pieces into which a write is split; 0 leaves it whole.
    pub slice_bytes_max: usize,
    /// The bytes of each direction of a connection whose writes are split. Later, one write in 32 is.
    pub sliced_bytes: u64,
    /// Connections out of 1000 that break after a random number of bytes.
    pub cut_per_mille: u32,
    /// Maximum number of bytes before such a break.
    pub cut_bytes_max: u64,
    /// Connection attempts out of 1000 that are refused or hang.
    pub refused_per_mille: u32,
}

impl NetworkFaults {
    /// A network without faults.
    pub const fn none(latency_max: Duration) -> Self {
        Self {
            latency_max,
            slice_bytes_max: 0,
            sliced_bytes: u64::MAX,
            cut_per_mille: 0,
            cut_bytes_max: 0,
            refused_per_mille: 0,
        }
    }
}

/// The way in which a connection ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cut {
    /// Data in flight arrives, then both sides see the end of the stream.
    Fin,
    /// Data in flight is lost, and both sides see an error.
    Reset,
    /// Data in flight arrives, then nothing more: neither data nor the end. Neither side sees an error.
    Stall,
}

impl Cut {
    fn any(rng: &mut fastrand::Rng) -> Self {
        match rng.u8(0..5) {
            0 | 1 => Self::Fin,
            2 | 3 => Self::Reset,
            _ => Self::Stall,
        }
    }
}

/// A break that is chosen, not drawn: one connection, in the order of their opening, after this many bytes of one direction.
#[derive(Clone, Copy, Debug)]
pub struct PlannedCut {
    /// The number of the connection, from 0.
    pub link: u64,
    /// 0 from the client to the broker, 1 back.
    pub way: usize,
    /// The bytes that are written before the break.
    pub after: u64,
    /// The way in which the connection ends.
    pub how: Cut,
}

/// The network of one run. Clones share its state.
#[derive(Clone, Debug)]
pub struct Network {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    rng: fastrand::Rng,
    network_faults: NetworkFaults,
    listeners: BTreeMap<String, Listener>,
    next_listener: u64,
    links: BTreeMap<u64, Arc<Mutex<Link>>>,
    next_link: u64,
    planned_cut: Option<PlannedCut>,
    /// The bytes of each ended connection, by its number.
    ended: BTreeMap<u64, [u64; 2]>,
    trace: Trace,
    /// The reason why traffic is stopped, after a livelock was found.
    frozen: Option<String>,
    /// Connection attempts at the current instant.
    attempts: (Instant, u64),
}

/// A host that was opened.
#[derive(Debug)]
struct Listener {
    /// Another one of the same host has another number.
    number: u64,
    accept: mpsc::UnboundedSender<Pipe>,
    /// The node behind it, unless a test accepts the connections itself. The network keeps no broker alive.
    node: Option<(Weak<Cluster>, i32)>,
}

impl Listener {
    /// Returns `true` until the receiver of its connections is dropped.
    fn is_served(&self) -> bool {
        !self.accept.is_closed()
    }

    /// Returns `true` if it accepts connections: its node may be stopped or cut off.
    fn is_open(&self) -> bool {
        let accepts = |(cluster, node): &(Weak<Cluster>, i32)| {
            cluster.upgrade().is_some_and(|cluster| cluster.accepts_connections(*node))
        };
        self.is_served() && self.node.as_ref().is_none_or(accepts)
    }
}

impl Network {
    /// A network without hosts.
    pub fn new(seed: u64, network_faults: NetworkFaults, trace: Trace) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        let state = State {
            rng,
            network_faults,
            listeners: BTreeMap::new(),
            next_listener: 0,
            links: BTreeMap::new(),
            next_link: 0,
            planned_cut: None,
            ended: BTreeMap::new(),
            trace,
            frozen: None,
            attempts: (Instant::now(), 0),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Breaks one connection of those that are opened from now on.
    ///
    /// # Panics
    /// If the way is neither 0 nor 1.
    pub fn plan_cut(&self, cut: PlannedCut) {
        assert!(cut.way < 2, "a connection has the ways 0 and 1: there is no way {}", cut.way);
        self.lock().planned_cut = Some(cut);
    }

    /// The bytes of each connection so far, by its number: to the broker, and back.
    pub fn traffic(&self) -> BTreeMap<u64, [u64; 2]> {
        let state = self.lock();
        let mut traffic = state.ended.clone();
        traffic.extend(state.links.iter().map(|(id, link)| (*id, lock(link).written())));
        traffic
    }

    /// Stops all traffic for the rest of the run: in a livelock time would never pass.
    pub fn freeze(&self, what: String) {
        let mut state = self.lock();
        if state.frozen.is_none() {
            state.trace.note(format_args!("net: frozen, {what}"));
            state.frozen = Some(what);
            for link in state.links.values() {
                lock(link).stalled = true;
            }
        }
    }

    /// The reason why the traffic was stopped, if it was.
    pub fn frozen(&self) -> Option<String> {
        self.lock().frozen.clone()
    }

    /// The connections to `host` arrive at the receiver until it is dropped.
    pub fn listen(&self, host: &str) -> mpsc::UnboundedReceiver<Pipe> {
        self.open_host(host, None).1
    }

    /// Opens a host and returns the number of its listener.
    fn open_host(
        &self,
        host: &str,
        node: Option<(Weak<Cluster>, i32)>,
    ) -> (u64, mpsc::UnboundedReceiver<Pipe>) {
        let (accept, accepted) = mpsc::unbounded_channel();
        let mut state = self.lock();
        let number = state.next_listener;
        state.next_listener += 1;
        state.listeners.insert(host.to_owned(), Listener { number, accept, node });
        (number, accepted)
    }

    /// Refuses connections to `host` at once, unless another listener has opened it. Connections that are open stay.
    pub(crate) fn close(&self, host: &str, number: u64) {
        let mut state = self.lock();
        if state.listeners.get(host).is_some_and(|listener| listener.number == number) {
            state.listeners.remove(host);
        }
    }

    /// Returns `true` while connections to `host` are accepted.
    pub fn is_listening(&self, host: &str) -> bool {
        self.lock().listeners.get(host).is_some_and(Listener::is_open)
    }

    /// Returns `true` while a broker serves `host`, whose node may be stopped or cut off.
    pub(crate) fn is_served(&self, host: &str) -> bool {
        self.lock().listeners.get(host).is_some_and(Listener::is_served)
    }

    /// Changes the faults. Existing connections keep their planned break, unless the new faults are none.
    pub fn set_faults(&self, network_faults: NetworkFaults) {
        let mut state = self.lock();
        state.network_faults = network_faults;
        for link in state.links.values() {
            let mut link = lock(link);
            link.network_faults = network_faults;
            if network_faults.cut_per_mille == 0 {
                link.ways.iter_mut().for_each(|way| way.cut_at = None);
            }
        }
    }

    /// Breaks each connection to `host` with this probability in 1000.
    pub fn cut(&self, host: &str, per_mille: u32) {
        let mut state = self.lock();
        let State { rng, links, trace, .. } = &mut *state;
        for link in links.values() {
            let mut link = lock(link);
            if link.host == host && rng.u32(0..1000) < per_mille {
                let how = Cut::any(rng);
                link.cut(how, trace);
            }
        }
    }

    /// Ends every stall with a reset, like a peer that has restarted.
    pub fn end_stalls(&self) {
        let state = self.lock();
        for link in state.links.values() {
            let mut link = lock(link);
            if link.stalled {
                link.cut(Cut::Reset, &state.trace);
            }
        }
    }

    /// Serves the connections to `node-N`, the host that node N of a broker without listeners advertises, until the future
    /// is dropped, which cuts them. The host accepts connections from the call on, while the node is neither stopped nor cut off.
    pub fn serve(&self, cluster: Arc<Cluster>, node: i32) -> impl Future<Output = ()> + Send + 'static {
        self.serve_numbered(cluster, node).1
    }

    /// The same, with the number of the listener for [`Self::close`].
    pub(crate) fn serve_numbered(
        &self,
        cluster: Arc<Cluster>,
        node: i32,
    ) -> (u64, impl Future<Output = ()> + Send + 'static) {
        let behind = Some((Arc::downgrade(&cluster), node));
        let (number, mut accepted) = self.open_host(&host_of(node), behind);
        let serving = async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    biased;
                    pipe = accepted.recv() => match pipe {
                        Some(pipe) => { connections.spawn(serve(pipe, cluster.clone(), node)); }
                        None => return,
                    },
                    Some(_) = connections.join_next() => {}
                }
            }
        };
        (number, serving)
    }

    /// Counts a connection attempt. Returns `true` if traffic is stopped.
    fn note_attempt(&self, host: &str) -> bool {
        let mut state = self.lock();
        let now = Instant::now();
        if state.attempts.0 != now {
            state.attempts = (now, 0);
        }
        state.attempts.1 += 1;
        let too_many = state.attempts.1 > ATTEMPTS_AT_ONE_INSTANT_MAX;
        drop(state);
        if too_many {
            self.freeze(format!("{ATTEMPTS_AT_ONE_INSTANT_MAX} attempts to connect to {host} in no time"));
        }
        self.frozen().is_some()
    }

    async fn open(&self, host: &str) -> io::Result<Pipe> {
        if self.note_attempt(host) {
            std::future::pending::<()>().await;
        }
        let (delay, refused) = {
            let mut state = self.lock();
            let (latency_max, refused) =
                (state.network_faults.latency_max, state.network_faults.refused_per_mille);
            let refused = state.rng.u32(0..1000) < refused;
            (random(&mut state.rng, latency_max), refused.then(|| state.rng.bool()))
        };
        tokio::time::sleep(delay).await;
        match refused {
            Some(true) => return Err(io::ErrorKind::ConnectionRefused.into()),
            Some(false) => tokio::time::sleep(NEVER).await,
            None => {}
        }
        let mut state = self.lock();
        let State { rng, network_faults, listeners, links, next_link, planned_cut, trace, .. } = &mut *state;
        let Some(listener) = listeners.get(host).filter(|listener| listener.is_open()) else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        let id = *next_link;
        *next_link += 1;
        let mut link = Link::new(id, host, *network_faults, rng.fork());
        if rng.u32(0..1000) < network_faults.cut_per_mille {
            let way = rng.usize(0..2);
            // Most connections are short: half of the breaks occur in the first exchanges.
            let bytes_max = if rng.bool() { 300 } else { network_faults.cut_bytes_max.max(1) };
            link.ways[way].cut_at = Some(rng.u64(0..bytes_max));
            link.cut_how = Cut::any(rng);
        }
        if let Some(cut) = planned_cut.filter(|cut| cut.link == id) {
            link.ways[cut.way].cut_at = Some(cut.after);
            link.cut_how = cut.how;
        }
        trace.note(format_args!("net: link {id} to {host}"));
        let link = Arc::new(Mutex::new(link));
        links.insert(id, link.clone());
        let pipe = |end| Pipe {
            link: link.clone(),
            network: self.clone(),
            end,
            sleep: Box::pin(tokio::time::sleep(NEVER)),
        };
        let _ = listener.accept.send(pipe(1));
        Ok(pipe(0))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connector for Network {
    fn connect<'a>(&'a self, host: &'a str, _port: u16) -> Connecting<'a> {
        Box::pin(async move { Ok(Box::new(self.open(host).await?) as Box<dyn Io>) })
    }
}

/// The host of a node without listeners.
pub(crate) fn host_of(node: i32) -> String {
    format!("node-{node}")
}

/// A connection: two directions, and its faults. Direction 0 is from the client to the broker.
#[derive(Debug)]
struct Link {
    id: u64,
    host: String,
    network_faults: NetworkFaults,
    rng: fastrand::Rng,
    ways: [Direction; 2],
    cut_how: Cut,
    reset: bool,
    stalled: bool,
    ends_left: u8,
}

#[derive(Debug, Default)]
struct Direction {
    /// Pieces in flight, with their arrival times.
    pieces: VecDeque<(Instant, Bytes)>,
    queued: usize,
    written: u64,
    /// Number of bytes after which the connection breaks.
    cut_at: Option<u64>,
    /// The time at which the end reaches the reader.
    end_at: Option<Instant>,
    last_arrival: Option<Instant>,
    reader_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Link {
    fn new(id: u64, host: &str, network_faults: NetworkFaults, rng: fastrand::Rng) -> Self {
        Self {
            id,
            host: host.to_owned(),
            network_faults,
            rng,
            ways: Default::default(),
            cut_how: Cut::Fin,
            reset: false,
            stalled: false,
            ends_left: 2,
        }
    }

    fn written(&self) -> [u64; 2] {
        [self.ways[0].written, self.ways[1].written]
    }

    fn cut(&mut self, how: Cut, trace: &Trace) {
        if self.reset {
            return;
        }
        let written = self.written();
        trace.note(format_args!("net: link {} {how:?} after {}/{} bytes", self.id, written[0], written[1]));
        let now = Instant::now();
        for way in &mut self.ways {
            way.cut_at = None;
            match how {
                Cut::Fin => way.end(now),
                Cut::Reset => {
                    self.reset = true;
                    way.pieces.clear();
                }
                Cut::Stall => self.stalled = true,
            }
            way.wake();
        }
    }

    fn write(&mut self, end: usize, bytes: &[u8], trace: &Trace, waker: &Waker) -> Poll<io::Result<usize>> {
        let way = &mut self.ways[end];
        if self.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if way.end_at.is_some() || way.reader_gone {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.stalled {
            return Poll::Ready(Ok(bytes.len()));
        }
        let room = WINDOW_BYTES - way.queued;
        if room == 0 {
            way.writer = Some(waker.clone());
            return Poll::Pending;
        }
        let mut n = bytes.len().min(room);
        let NetworkFaults { slice_bytes_max, sliced_bytes, .. } = self.network_faults;
        let is_sliced = way.written < sliced_bytes || self.rng.u8(0..LATE_SLICE_ONE_IN) == 0;
        if slice_bytes_max > 0 && is_sliced {
            n = n.min(self.rng.usize(1..=slice_bytes_max));
        }
        let left = way.cut_at.map_or(u64::MAX, |at| at - way.written.min(at));
        if n as u64 >= left {
            n = left as usize;
        }
        if n > 0 {
            let arrival = Instant::now() + random(&mut self.rng, self.network_faults.latency_max);
            let arrival = way.last_arrival.map_or(arrival, |last| last.max(arrival));
            way.last_arrival = Some(arrival);
            way.pieces.push_back((arrival, Bytes::copy_from_slice(&bytes[..n])));
            way.queued += n;
            way.written += n as u64;
            way.wake();
        }
        if n as u64 == left {
            self.cut(self.cut_how, trace);
            if n == 0 {
                return self.write(end, bytes, trace, waker);
            }
        }
        Poll::Ready(Ok(n))
    }
}

impl Direction {
    fn end(&mut self, now: Instant) {
        let at = self.last_arrival.map_or(now, |last| last.max(now));
        self.end_at.get_or_insert(at);
    }

    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }

    /// The data that can be read now, or the time of the next check.
    fn read(&mut self, now: Instant, buf: &mut ReadBuf<'_>) -> Result<(), Option<Instant>> {
        match self.pieces.front_mut() {
            Some((arrival, piece)) if *arrival <= now => {
                let n = piece.len().min(buf.remaining());
                buf.put_slice(&piece[..n]);
                piece.advance(n);
                if piece.is_empty() {
                    self.pieces.pop_front();
                }
                self.queued -= n;
                if let Some(writer) = self.writer.take() {
                    writer.wake();
                }
                Ok(())
            }
            Some((arrival, _)) => Err(Some(*arrival)),
            None => match self.end_at {
                Some(at) if at <= now => Ok(()),
                at => Err(at),
            },
        }
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct Pipe {
    link: Arc<Mutex<Link>>,
    network: Network,
    end: usize,
    sleep: Pin<Box<Sleep>>,
}

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { link, end, sleep, .. } = self.get_mut();
        let mut link = lock(link);
        if link.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let stalled = link.stalled;
        let way = &mut link.ways[1 - *end];
        loop {
            match way.read(Instant::now(), buf) {
                Ok(()) => return Poll::Ready(Ok(())),
                Err(again) => {
                    way.reader = Some(cx.waker().clone());
                    let Some(at) = again.filter(|_| !stalled || !way.pieces.is_empty()) else {
                        return Poll::Pending;
                    };
                    sleep.as_mut().reset(at);
                    if sleep.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let trace = self.network.lock().trace.clone();
        lock(&self.link).write(self.end, bytes, &trace, cx.waker())
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut link = lock(&self.link);
        // Nothing that is sent during a stall arrives, and a stall ends with a reset.
        if !link.stalled {
            let way = &mut link.ways[self.end];
            way.end(Instant::now());
            way.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl Transport for Pipe {}

impl Drop for Pipe {
    fn drop(&mut self) {
        let (id, gone, written) = {
            let mut link = lock(&self.link);
            let end = self.end;
            if !link.stalled {
                link.ways[end].end(Instant::now());
                link.ways[1 - end].reader_gone = true;
            }
            link.ways.iter_mut().for_each(Direction::wake);
            link.ends_left -= 1;
            (link.id, link.ends_left == 0, link.written())
        };
        if gone {
            let mut state = self.network.lock();
            state.links.remove(&id);
            state.ended.insert(id, written);
        }
    }
}

fn random(rng: &mut fastrand::Rng, max: Duration) -> Duration {
    Duration::from_micros(rng.u64(0..=max.as_micros() as u64))
}

fn lock(link: &Mutex<Link>) -> MutexGuard<'_, Link> {
    link.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    use super::*;

    /// The client that opened the connection panicked, with an index.
    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "there is no way 2")]
    async fn a_cut_of_a_way_that_no_connection_has_is_refused() {
        let network = Network::new(1, NetworkFaults::none(Duration::ZERO), Trace::begin(false));
        network.plan_cut(PlannedCut { link: 0, way: 2, after: 0, how: Cut::Fin });
    }

    /// The peer of a client that closed a stalled connection saw its end.
    #[tokio::test(start_paused = true)]
    async fn data_in_flight_arrives_on_a_stalled_connection_and_its_end_does_not() {
        let trace = Trace::begin(false);
        let network = Network::new(1, NetworkFaults::none(Duration::from_millis(5)), trace.clone());
        let mut accepted = network.listen("node-1");
        let mut client = network.open("node-1").await.expect("connected");
        let mut server = accepted.recv().await.expect("accepted");
        client.write_all(b"sent").await.expect("room");
        lock(&client.link).cut(Cut::Stall, &trace);
        client.write_all(b"lost").await.expect("no error");
        client.shutdown().await.expect("no error");
        let mut data = [0; 4];
        timeout(NEVER, server.read_exact(&mut data)).await.expect("in time").expect("no error");
        assert_eq!(&data, b"sent");
        assert!(timeout(NEVER, server.read(&mut data)).await.is_err(), "nothing more arrives");
    }
}
