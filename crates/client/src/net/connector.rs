//! The seam to the network: whoever gives the engine a connector decides what a connection is.

use std::future::Future;
use std::io;
use std::pin::Pin;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A connection's two directions.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// What [`Connector::connect`] gives.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Io>>> + Send + 'a>>;

/// Opens connections to brokers: TCP in production, memory in tests and simulation.
pub trait Connector: Send + Sync + 'static {
    /// Connects to `host` at `port`; cancelled by dropping the future.
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a>;
}

/// TCP with `TCP_NODELAY`: the batching that Nagle's algorithm guesses at is done where batches are known.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpConnector {
    /// `SO_SNDBUF`; 0 leaves it to the system.
    pub send_buffer_bytes: usize,
    /// `SO_RCVBUF`; 0 leaves it to the system.
    pub receive_buffer_bytes: usize,
}

impl Connector for TcpConnector {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a> {
        Box::pin(async move {
            // Resolved anew for each attempt; every address is tried in turn.
            let stream = TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            let socket = SockRef::from(&stream);
            if self.send_buffer_bytes > 0 {
                socket.set_send_buffer_size(self.send_buffer_bytes)?;
            }
            if self.receive_buffer_bytes > 0 {
                socket.set_recv_buffer_size(self.receive_buffer_bytes)?;
            }
            Ok(Box::new(stream) as Box<dyn Io>)
        })
    }
}
