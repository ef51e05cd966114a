//! Listening: accepts connections for a node and serves each in a task of its own.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use rustls::ServerConnection;
#[cfg(any(target_os = "linux", target_os = "android"))]
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::connection::{
    AUTHENTICATION_MAX, ENCRYPTED_BYTES_MAX, TlsSocket, TlsTransport, Transport, admit, in_time, quota_pause,
    refuse, serve_admitted, serve_at, unless_paused,
};
use crate::peer::Peer;
use crate::places::too_large;
use crate::port::Port;
use crate::security::active_listener::ActiveListener;

/// Pause after an accept that failed for want of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Pause after an attempt to listen on an address that another process has taken.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);
/// The bytes that the kernel takes of a response before it has sent the earlier ones: it took 2.6 MB for each client that read nothing,
/// and with a thousand of those no memory for sockets was left.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES_MAX: u32 = 256 << 10;

/// A listener of one node.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    port: Arc<Port>,
    following: Following,
    cluster: Arc<Cluster>,
    node: i32,
    security: Arc<ActiveListener>,
}

impl Server {
    /// Binds `address` for node `node` and advertises `advertise`, or the address itself.
    pub async fn bind(
        cluster: Arc<Cluster>,
        node: i32,
        address: SocketAddr,
        advertise: Option<(&str, u16)>,
    ) -> io::Result<Self> {
        Self::bind_listener(cluster, node, address, advertise, ActiveListener::plaintext()).await
    }

    /// The same, for one of the listeners of the node.
    #[expect(
        clippy::unused_async,
        reason = "the public `bind` is asynchronous, and so are the calls that open listeners"
    )]
    pub(crate) async fn bind_listener(
        cluster: Arc<Cluster>,
        node: i32,
        address: SocketAddr,
        advertise: Option<(&str, u16)>,
        security: Arc<ActiveListener>,
    ) -> io::Result<Self> {
        let (port, listener) = Port::bind(address)?;
        let local = port.address();
        if let Some(node) = cluster.node(node) {
            let index = security.index;
            match advertise {
                // Port 0 means the port that was bound.
                Some((host, 0)) => node.advertise_at(index, host, local.port()),
                Some((host, port)) => node.advertise_at(index, host, port),
                None if local.ip().is_unspecified() => {
                    tracing::warn!(
                        listening = %local,
                        "clients on other machines cannot connect: the address of all interfaces is advertised as localhost; \
                         name the host that they use (`--advertise`)"
                    );
                    node.advertise_at(index, "localhost", local.port());
                }
                None => node.advertise_at(index, &local.ip().to_string(), local.port()),
            }
        }
        let following = Following::begin(cluster.clone(), node, security.index);
        Ok(Self { listener, port: Arc::new(port), following, cluster, node, security })
    }

    /// The port, which stays taken as long as a clone of this lives.
    pub(crate) fn port(&self) -> Arc<Port> {
        self.port.clone()
    }

    /// The address that was bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Accepts and serves until the broker is drained, or until this is dropped, and its connections with it.
    pub async fn run(self) {
        let Self { mut listener, port, following, cluster, node, security } = self;
        let mut connections = JoinSet::new();
        loop {
            let serving = cluster.serving.flips();
            if cluster.is_draining() {
                drop(listener);
                while connections.join_next().await.is_some() {}
                return;
            }
            let (flips, is_open) = openness(&cluster, node);
            if !is_open {
                let Some(opened) = closed_until(listener, &port, &following, serving).await else {
                    while connections.join_next().await.is_some() {}
                    return;
                };
                listener = opened;
                continue;
            }
            following.set(flips);
            let (pause_flips, is_paused) = pause(&cluster, node);
            tokio::select! {
                biased;
                () = changed(&cluster, node, flips, pause_flips) => {}
                () = cluster.serving.turned_since(serving) => {}
                // Clients of a paused node wait in the queue of the kernel.
                accepted = listener.accept(), if !is_paused => match accepted {
                    Ok((stream, _)) => {
                        prepare(&stream);
                        if security.tls.is_some() {
                            connections.spawn(serve_tls(stream, cluster.clone(), node, security.clone(), serving));
                        } else {
                            connections.spawn(serve_at(stream, cluster.clone(), node, security.clone()));
                        }
                        // Many clients that connect at once must not delay those that are connected.
                        tokio::task::yield_now().await;
                    }
                    Err(error) => {
                        cluster.warnings.warn_accept(&error);
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

/// Sets the options of a connection.
fn prepare(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY");
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Err(error) = SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX) {
        tracing::debug!(%error, "TCP_NOTSENT_LOWAT");
    }
}

/// Serves a connection after its TLS handshake, which has a deadline and few bytes, and ends when the broker is not what it was at the
/// `serving` flips any more.
async fn serve_tls(
    stream: TcpStream,
    cluster: Arc<Cluster>,
    node: i32,
    security: Arc<ActiveListener>,
    serving: u64,
) {
    let Some(state) = cluster.node(node) else { return };
    // A handshake costs as much as many requests, and a client need not finish it.
    let pause = quota_pause(&stream, &cluster);
    if !pause.is_zero() {
        Box::pin(refuse(stream, &cluster, pause)).await;
        return;
    }
    let Some(_admitted) = admit(&stream, &cluster, state) else { return };
    // Boxed: an established connection needs no memory for this step. Its own thread: a handshake takes as long as many requests.
    let (shaking, of_node) = (security.clone(), cluster.clone());
    let shaken =
        Box::pin(cluster.run_handshake(async move { handshake(stream, &of_node, node, &shaking).await }));
    let accepted = tokio::select! {
        biased;
        done = shaken => done.unwrap_or_else(|| Err(io::Error::other("the handshake panicked"))),
        // It has sent no request.
        () = cluster.serving.turned_since(serving) => return,
    };
    match accepted {
        // The node was removed meanwhile.
        Ok(_) if cluster.node(node).is_none() => return,
        Ok(stream) => match security.principal_of(stream.get_ref().1) {
            Ok(principal) => {
                return serve_admitted(TlsTransport::new(stream), &cluster, node, security, principal).await;
            }
            Err(reason) => {
                let peer = Peer::new(TlsTransport::new(stream).peer_address());
                cluster.warnings.log_certificate(&peer, &security.name, &reason);
            }
        },
        Err(error) => tracing::debug!(listener = security.name, %error, "no TLS connection"),
    }
    cluster.metrics.handshakes_failed.fetch_add(1, Ordering::Relaxed);
}

async fn handshake(
    stream: TcpStream,
    cluster: &Cluster,
    node: i32,
    security: &ActiveListener,
) -> io::Result<tokio_rustls::server::TlsStream<TlsSocket>> {
    let (Some(tls), Some(node)) = (&security.tls, cluster.node_or_removed(node)) else {
        return Err(io::Error::other("the listener has no TLS"));
    };
    let mut place = security.unauthenticated.enter();
    let evicted = place.eviction();
    let limit_buffer = |session: &mut ServerConnection| session.set_buffer_limit(Some(ENCRYPTED_BYTES_MAX));
    let mut accept = tls.acceptor(node.id, Instant::now()).accept_with(TlsSocket::new(stream), limit_buffer);
    let accepted = poll_fn(|cx| match Pin::new(&mut accept).poll(cx) {
        Poll::Pending => match accept.get_ref() {
            Some(socket) if !place.hold(socket.unfinished()) => {
                Poll::Ready(Err(io::Error::other(too_large(socket.unfinished()))))
            }
            Some(_) | None => Poll::Pending,
        },
        accepted @ Poll::Ready(_) => accepted,
    });
    let mut deadline = Instant::now() + AUTHENTICATION_MAX;
    tokio::select! {
        biased;
        () = evicted.notified() => Err(io::Error::other("too many connections do not authenticate")),
        accepted = in_time(node, &mut deadline, unless_paused(node, accepted)) => accepted?,
    }
}

/// A listener among those of its node, which it leaves when it is dropped.
#[derive(Debug)]
struct Following {
    cluster: Arc<Cluster>,
    node: i32,
    listener: usize,
}

impl Following {
    /// A listener that is open.
    fn begin(cluster: Arc<Cluster>, node: i32, listener: usize) -> Self {
        let following = Self { cluster, node, listener };
        let (flips, is_open) = openness(&following.cluster, node);
        following.set(if is_open { flips } else { 0 });
        following
    }

    /// The listener has followed so many changes of the node.
    fn set(&self, flips: u64) {
        if let Some(node) = self.cluster.node_or_removed(self.node) {
            node.listeners.set(self.listener, flips);
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(node) = self.cluster.node_or_removed(self.node) {
            node.listeners.remove(self.listener);
        }
    }
}

/// Closes the listener while the node is down or unreachable, as if its process had ended. The port stays taken. `None` if the broker
/// ends: it is not what it was at the `serving` flips any more.
async fn closed_until(
    listener: TcpListener,
    port: &Port,
    following: &Following,
    serving: u64,
) -> Option<TcpListener> {
    let Following { cluster, node, .. } = following;
    drop(listener);
    loop {
        // One that is down and becomes unreachable stays closed: clients could connect while it is open for a moment.
        let (flips, is_open) = openness(cluster, *node);
        if !is_open {
            following.set(flips);
            tokio::select! {
                biased;
                () = cluster.serving.turned_since(serving) => return None,
                () = turned(cluster, *node, flips) => {}
            }
        } else if let Some(listener) = listen_again(port, *node) {
            return Some(listener);
        } else {
            tokio::select! {
                biased;
                () = cluster.serving.turned_since(serving) => return None,
                () = tokio::time::sleep(LISTEN_PAUSE) => {}
            }
        }
    }
}

fn listen_again(port: &Port, node: i32) -> Option<TcpListener> {
    let listening = port.listen();
    let failed = |error: &io::Error| {
        tracing::error!(%error, node, address = %port.address(), "the node cannot listen on its address again");
    };
    listening.inspect_err(failed).ok()
}

/// The number of changes of a node that its listeners follow, and `true` if it is open after them.
fn openness(cluster: &Cluster, node: i32) -> (u64, bool) {
    cluster.node_or_removed(node).map_or((0, true), |node| (node.flips(), node.is_open()))
}

/// The number of beginnings and ends of a node's pauses, and `true` if it is paused after them.
fn pause(cluster: &Cluster, node: i32) -> (u64, bool) {
    cluster.node_or_removed(node).map_or((0, false), |node| (node.pause_flips(), node.is_paused()))
}

/// Waits until the node is not as open as it was at `flips`, or until a pause begins or ends.
async fn changed(cluster: &Cluster, node: i32, flips: u64, pause_flips: u64) {
    match cluster.node_or_removed(node) {
        Some(node) => node.changed_since(flips, pause_flips).await,
        None => std::future::pending().await,
    }
}

/// Waits until the node is not as open as it was at `flips`.
async fn turned(cluster: &Cluster, node: i32, flips: u64) {
    match cluster.node_or_removed(node) {
        Some(node) => node.turned_since(flips).await,
        None => std::future::pending().await,
    }
}
