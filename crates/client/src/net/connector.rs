//! The network abstraction: a connector opens the connections of an engine.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, lookup_host};

use crate::config::Config;
use crate::config::net_settings::{AddressFamily, NetSettings};
use crate::error::HostLookupFailure;
use crate::error::named_attempt::NamedAttempt;

/// A byte stream in both directions.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// The future of [`Connector::connect`].
pub type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Io>>> + Send + 'a>>;

/// Opens connections to brokers: TCP in production, memory in tests and simulation.
pub trait Connector: Send + Sync + 'static {
    /// Connects to `host` at `port`; cancelled by dropping the future.
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a>;

    /// Waits for calls of the application's functions that a dropped future has left on threads for blocking work.
    ///
    /// The client calls it at its end, in its own thread. By then it has waited for 5 seconds for all blocking work, and lookups of names
    /// that take longer are left alone. The default has nothing to wait for.
    fn await_calls(&self) {}
}

/// Connects by TCP. Each attempt resolves the name again, and starts with the address after the first one of the
/// previous attempt.
#[derive(Debug, Default)]
pub struct TcpConnector {
    send_buffer_bytes: usize,
    receive_buffer_bytes: usize,
    net: NetSettings,
    /// `Config::name_failures`.
    names_failures: bool,
    /// Attempts so far, by host.
    attempts: Mutex<FxHashMap<String, usize>>,
}

impl TcpConnector {
    /// Creates a connector with the socket options of this configuration.
    pub fn new(config: &Config) -> Self {
        Self {
            send_buffer_bytes: config.socket_send_buffer_bytes,
            receive_buffer_bytes: config.socket_receive_buffer_bytes,
            net: config.net.clone(),
            names_failures: config.name_failures,
            attempts: Mutex::default(),
        }
    }

    async fn stream(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let named = self.names_failures.then(NamedAttempt::begin);
        let unknown = |error: io::Error| {
            let text = format!("Failed to resolve '{host}:{port}': {error}");
            match named {
                Some(attempt) => attempt.unresolved(&text),
                None => io::Error::other(HostLookupFailure(text)),
            }
        };
        let resolved: Vec<_> = lookup_host((host, port)).await.map_err(unknown)?.collect();
        let attempt = {
            let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
            let attempts = attempts.entry(host.to_owned()).or_default();
            *attempts = attempts.wrapping_add(1);
            *attempts - 1
        };
        let addresses = in_turn(&resolved, self.net.address_family, attempt);
        let connected = connect_to_any(&addresses, named, |address| self.socket_to(address)).await;
        connected.unwrap_or_else(|| {
            let family = self.net.address_family;
            let text = format!("`{host}` has no address of broker.address.family {family:?}");
            Err(io::Error::other(HostLookupFailure(text)))
        })
    }

    fn socket_to(&self, address: SocketAddr) -> io::Result<TcpSocket> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Set before connecting, because the TCP window is negotiated then.
        if self.send_buffer_bytes > 0 {
            socket.set_send_buffer_size(clamped(self.send_buffer_bytes))?;
        }
        if self.receive_buffer_bytes > 0 {
            socket.set_recv_buffer_size(clamped(self.receive_buffer_bytes))?;
        }
        socket.set_keepalive(self.net.keepalive)?;
        socket.set_nodelay(self.net.nodelay)?;
        Ok(socket)
    }
}

impl Connector for TcpConnector {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a> {
        Box::pin(async move {
            let stream = self.stream(host, port).await?;
            Ok(Box::new(stream) as Box<dyn Io>)
        })
    }
}

/// Connects to the first of the addresses that can be reached. Returns the last failure if there is none, and `None` without
/// an address.
async fn connect_to_any(
    addresses: &[SocketAddr],
    named: Option<NamedAttempt>,
    socket_to: impl Fn(SocketAddr) -> io::Result<TcpSocket>,
) -> Option<io::Result<TcpStream>> {
    let mut failure = None;
    for address in addresses {
        let connected = match socket_to(*address) {
            Ok(socket) => socket.connect(*address).await,
            // The machine may have no sockets of this family.
            Err(error) => Err(error),
        };
        match connected {
            Ok(stream) => return Some(Ok(stream)),
            Err(error) => {
                failure = Some(Err(match named {
                    Some(attempt) => attempt.refused_at(*address, &error),
                    None => error,
                }));
            }
        }
    }
    failure
}

/// The addresses of the family, in the order in which an attempt tries them.
fn in_turn(resolved: &[SocketAddr], family: AddressFamily, attempt: usize) -> Vec<SocketAddr> {
    let wanted = |address: &&SocketAddr| match family {
        AddressFamily::Any => true,
        AddressFamily::V4 => address.is_ipv4(),
        AddressFamily::V6 => address.is_ipv6(),
    };
    let mut addresses: Vec<_> = resolved.iter().filter(wanted).copied().collect();
    if !addresses.is_empty() {
        let first = attempt % addresses.len();
        addresses.rotate_left(first);
    }
    addresses
}

fn clamped(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use socket2::SockRef;

    use super::*;
    use crate::error::Error;

    #[test]
    fn each_attempt_begins_with_the_next_address_of_the_family() {
        let all: Vec<SocketAddr> =
            ["10.0.0.1:1", "[::1]:1", "10.0.0.2:1"].map(|text| text.parse().expect("an address")).into();
        let first = |family, attempt| in_turn(&all, family, attempt).first().copied();
        let begun = [0, 1, 2, 3].map(|attempt| first(AddressFamily::Any, attempt));
        assert_eq!(begun, [Some(all[0]), Some(all[1]), Some(all[2]), Some(all[0])]);
        assert_eq!(in_turn(&all, AddressFamily::Any, 1), [all[1], all[2], all[0]]);
        let begun = [0, 1, 2].map(|attempt| first(AddressFamily::V4, attempt));
        assert_eq!(begun, [Some(all[0]), Some(all[2]), Some(all[0])]);
        assert_eq!(in_turn(&all, AddressFamily::V6, 7), [all[1]]);
        assert_eq!(in_turn(&all[..1], AddressFamily::V6, 0), []);
    }

    #[tokio::test]
    async fn a_host_without_an_address_is_unknown_and_not_a_broken_connection() {
        // No name is that long.
        let failed = TcpConnector::default().stream(&"x".repeat(300), 1).await.expect_err("no such host");
        let error = Error::transport("x:1", &failed);
        assert!(matches!(error, Error::UnknownHost { .. }) && error.is_retriable(), "{error}");
    }

    /// A host whose first address was of a family without sockets could not be reached at all.
    #[tokio::test]
    async fn a_family_without_sockets_does_not_end_the_attempt() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let v4 = listener.local_addr().expect("bound");
        let all = [SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], v4.port())), v4];
        let no_v6 = |address: SocketAddr| {
            if address.is_ipv4() { TcpSocket::new_v4() } else { Err(io::ErrorKind::Unsupported.into()) }
        };
        let stream = connect_to_any(&all, None, no_v6).await.expect("addresses").expect("connected");
        assert_eq!(stream.peer_addr().expect("connected"), v4);
        let refused =
            connect_to_any(&all[..1], None, no_v6).await.expect("an address").expect_err("no sockets");
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
        assert!(connect_to_any(&[], None, no_v6).await.is_none());
    }

    #[tokio::test]
    async fn the_socket_is_as_configured() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let mut config = Config::new("localhost");
        config.net.keepalive = true;
        config.net.address_family = AddressFamily::V4;
        config.socket_send_buffer_bytes = 50_000;
        let stream = TcpConnector::new(&config).stream("localhost", port).await.expect("connected");
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().expect("known") && socket.tcp_nodelay().expect("known"));
        // The kernel doubles the requested size.
        assert_eq!(socket.send_buffer_size().expect("known"), 100_000);
        config.net.keepalive = false;
        config.net.nodelay = false;
        let stream = TcpConnector::new(&config).stream("localhost", port).await.expect("connected");
        let socket = SockRef::from(&stream);
        assert!(!socket.keepalive().expect("known") && !socket.tcp_nodelay().expect("known"));
        config.net.address_family = AddressFamily::V6;
        let refused =
            TcpConnector::new(&config).stream("127.0.0.1", port).await.expect_err("no such address");
        assert!(refused.to_string().contains("no address of broker.address.family V6"), "{refused}");
    }
}
