//! The port of a listener, which stays taken while nothing listens on it.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// Connections that the kernel completes before they are accepted.
const BACKLOG: u32 = 1024;

/// An address that was bound. Another process cannot get its port before this is dropped, unless it wants this very port.
#[derive(Debug)]
pub(crate) struct Port {
    address: SocketAddr,
    /// Bound, and never listens: clients are refused. `None` on a system that gives one address to one socket only.
    _placeholder: Option<TcpSocket>,
}

impl Port {
    /// Binds an address, and listens on it.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<(Self, TcpListener)> {
        let socket = bound(address)?;
        let address = socket.local_addr()?;
        // Before the other one listens: Linux allows it only then.
        let placeholder = bound(address).ok();
        Ok((Self { address, _placeholder: placeholder }, socket.listen(BACKLOG)?))
    }

    /// Listens again, after the earlier listener was dropped.
    pub(crate) fn listen(&self) -> io::Result<TcpListener> {
        bound(self.address)?.listen(BACKLOG)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Remains of old connections do not keep the address: SO_REUSEADDR.
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
