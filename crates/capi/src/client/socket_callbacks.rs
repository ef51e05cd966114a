//! Connections through the application's functions: `resolve_cb`, `socket_cb`, `connect_cb` and `closesocket_cb`; and those
//! whose sockets interceptors see.

use std::ffi::{CStr, c_int};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, RawFd};
use std::pin::Pin;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use ottla_client::{AddressFamily, Config, Connecting, Connector, Io, NamedAttempt, NetSettings};
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, SockRef, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::client::shown_sockets::ShownSocket;
use crate::conf::Callbacks;
use crate::ffi::c_strings::c_string;

/// Connects through the application's functions, and through the system's for those that the application has not set.
pub(crate) struct ApplicationSockets {
    way: Way,
    /// Each attempt begins with another address.
    attempts: AtomicUsize,
    running: Arc<RunningCalls>,
}

/// The parameters of a connection attempt.
#[derive(Clone)]
struct Way {
    callbacks: Callbacks,
    net: NetSettings,
    send_buffer_bytes: usize,
    receive_buffer_bytes: usize,
    shows_sockets: bool,
}

impl ApplicationSockets {
    /// `None` if the application has set no such function and has no interceptors, to which sockets are shown; the client
    /// then connects by itself.
    pub(crate) fn wanted(
        callbacks: &Callbacks,
        config: &Config,
        has_interceptors: bool,
    ) -> Option<Arc<Self>> {
        let Callbacks { resolve, socket, connect, closesocket, .. } = callbacks;
        let wanted = resolve.is_some() || socket.is_some() || connect.is_some() || closesocket.is_some();
        (wanted || has_interceptors).then(|| {
            let way = Way {
                callbacks: *callbacks,
                net: config.net.clone(),
                send_buffer_bytes: config.socket_send_buffer_bytes,
                receive_buffer_bytes: config.socket_receive_buffer_bytes,
                shows_sockets: has_interceptors,
            };
            Arc::new(Self { way, attempts: AtomicUsize::new(0), running: Arc::default() })
        })
    }

    async fn stream(&self, host: &str, port: u16) -> io::Result<Stream> {
        let (way, name, attempt) = (self.way.clone(), host.to_owned(), NamedAttempt::begin());
        // A lookup by the system is left alone at the end of the client.
        let call = way.callbacks.resolve.is_some().then(|| RunningCall::new(&self.running));
        let mut addresses = waiting(call, move || way.addresses(&name, port, attempt)).await?;
        if addresses.is_empty() {
            let family = self.way.net.address_family;
            let text = format!("`{host}` has no address of broker.address.family {family:?}");
            return Err(attempt.unresolved(&text));
        }
        let first = self.attempts.fetch_add(1, Ordering::Relaxed) % addresses.len();
        addresses.rotate_left(first);
        let mut failure = None;
        for address in addresses {
            match self.connected(host, address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = Some(attempt.refused_at(address, &error)),
            }
        }
        Err(failure.expect("there was an address, and each that did not connect has failed"))
    }

    async fn connected(&self, host: &str, address: SocketAddr) -> io::Result<Stream> {
        let (way, id) = (self.way.clone(), c_string(&format!("{host}:{}", address.port())));
        let call = RunningCall::new(&self.running);
        let mut stream = waiting(Some(call), move || way.begun(address, &id)).await?.into_stream()?;
        let inner = stream.inner();
        inner.writable().await?;
        if let Some(error) = inner.take_error()? {
            return Err(error);
        }
        stream.shown = if self.way.shows_sockets { ShownSocket::of(stream.inner()) } else { None };
        Ok(stream)
    }
}

/// The application's functions may block, for example on a proxy. They must not run in the thread for all brokers.
#[allow(clippy::disallowed_methods, reason = "a shell: simulations do not go through C")]
async fn waiting<T: Send + 'static>(
    call: Option<RunningCall>,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let work = move || {
        let _call = call;
        work()
    };
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// The number of calls of the application's functions that are running or about to run.
#[derive(Default)]
struct RunningCalls {
    count: Mutex<usize>,
    ended: Condvar,
}

/// One of them.
struct RunningCall(Arc<RunningCalls>);

impl RunningCalls {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn await_none(&self) {
        drop(self.ended.wait_while(self.lock(), |count| *count > 0));
    }
}

impl RunningCall {
    fn new(of: &Arc<RunningCalls>) -> Self {
        *of.lock() += 1;
        Self(of.clone())
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.ended.notify_all();
    }
}

impl Connector for ApplicationSockets {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a> {
        Box::pin(async move { Ok(Box::new(self.stream(host, port).await?) as Box<dyn Io>) })
    }

    /// The application may free what its functions use after the client is destroyed.
    fn await_calls(&self) {
        self.running.await_none();
    }
}

impl Way {
    fn addresses(&self, host: &str, port: u16, attempt: NamedAttempt) -> io::Result<Vec<SocketAddr>> {
        let mut addresses = if self.callbacks.resolve.is_some() {
            self.resolved(host, port, attempt)?
        } else {
            let found = (host, port).to_socket_addrs();
            let unknown =
                |error: io::Error| attempt.unresolved(&format!("Failed to resolve '{host}:{port}': {error}"));
            found.map_err(unknown)?.collect()
        };
        addresses.retain(|address| match self.net.address_family {
            AddressFamily::Any => true,
            AddressFamily::V4 => address.is_ipv4(),
            AddressFamily::V6 => address.is_ipv6(),
        });
        Ok(addresses)
    }

    /// Returns the addresses from `resolve_cb`. It has the contract of `getaddrinfo`; a second call frees the result.
    fn resolved(&self, host: &str, port: u16, attempt: NamedAttempt) -> io::Result<Vec<SocketAddr>> {
        let Some(resolve) = self.callbacks.resolve else { return Ok(Vec::new()) };
        let opaque = self.callbacks.opaque;
        let (node, service) = (c_string(host), c_string(&port.to_string()));
        let hints = libc::addrinfo {
            ai_flags: libc::AI_ADDRCONFIG,
            ai_family: match self.net.address_family {
                AddressFamily::Any => libc::AF_UNSPEC,
                AddressFamily::V4 => libc::AF_INET,
                AddressFamily::V6 => libc::AF_INET6,
            },
            ai_socktype: libc::SOCK_STREAM,
            ai_protocol: libc::IPPROTO_TCP,
            ai_addrlen: 0,
            ai_addr: null_mut(),
            ai_canonname: null_mut(),
            ai_next: null_mut(),
        };
        let mut found = null_mut();
        // SAFETY: the application's function, with what it needs to have for an answer.
        let code =
            unsafe { resolve(node.as_ptr(), service.as_ptr(), &raw const hints, &raw mut found, opaque) };
        if code != 0 {
            // SAFETY: texts of the C library's own.
            let why = unsafe { CStr::from_ptr(libc::gai_strerror(code)) }.to_string_lossy();
            return Err(attempt.unresolved(&format!("Failed to resolve '{host}:{port}': {why}")));
        }
        let mut addresses = Vec::new();
        let mut next: *const libc::addrinfo = found;
        // SAFETY: a list as getaddrinfo gives one (required by the C functions that call this).
        while let Some(entry) = unsafe { next.as_ref() } {
            // SAFETY: as above.
            addresses.extend(unsafe { address_in(entry) });
            next = entry.ai_next;
        }
        // SAFETY: without a name it takes the list back (required by the C functions that call this).
        unsafe { resolve(null(), null(), null(), &raw mut found, opaque) };
        Ok(addresses)
    }

    /// Returns a socket that is connected or connecting.
    fn begun(&self, address: SocketAddr, id: &CStr) -> io::Result<Descriptor> {
        let domain = Domain::for_address(address);
        let fd = match self.callbacks.socket {
            // SAFETY: the application's function.
            Some(socket) => unsafe {
                socket(domain.into(), Type::STREAM.into(), Protocol::TCP.into(), self.callbacks.opaque)
            },
            None => Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?.into_raw_fd(),
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let descriptor = Descriptor { fd, callbacks: self.callbacks };
        // SAFETY: open as long as the descriptor is not dropped.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        let socket = SockRef::from(&borrowed);
        if self.send_buffer_bytes > 0 {
            socket.set_send_buffer_size(self.send_buffer_bytes)?;
        }
        if self.receive_buffer_bytes > 0 {
            socket.set_recv_buffer_size(self.receive_buffer_bytes)?;
        }
        socket.set_keepalive(self.net.keepalive)?;
        socket.set_tcp_nodelay(self.net.nodelay)?;
        socket.set_nonblocking(true)?;
        let to = SockAddr::from(address);
        let code = match self.callbacks.connect {
            // SAFETY: the application's function, with an address of that length.
            Some(connect) => unsafe {
                let (addr, len) = (to.as_ptr().cast(), to.len() as c_int);
                connect(fd, addr, len, id.as_ptr(), self.callbacks.opaque)
            },
            None => {
                socket.connect(&to).map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0)
            }
        };
        match code {
            // The socket is writable when the connection is made or refused.
            0 | libc::EINPROGRESS => Ok(descriptor),
            // C functions return -1 and set errno.
            -1 => Err(io::Error::last_os_error()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

/// # Safety
/// An entry as getaddrinfo makes it.
unsafe fn address_in(entry: &libc::addrinfo) -> Option<SocketAddr> {
    let mut storage = SockAddrStorage::zeroed();
    let len = entry.ai_addrlen as usize;
    if entry.ai_addr.is_null() || len > size_of::<SockAddrStorage>() {
        return None;
    }
    // SAFETY: that many bytes, and there is room for them (the contract of this function, above).
    unsafe {
        (&raw mut storage).cast::<u8>().copy_from_nonoverlapping(entry.ai_addr.cast(), len);
        SockAddr::new(storage, entry.ai_addrlen).as_socket()
    }
}

/// A socket. The application's function closes it, if there is one.
struct Descriptor {
    fd: RawFd,
    callbacks: Callbacks,
}

impl Descriptor {
    fn into_stream(self) -> io::Result<Stream> {
        let callbacks = self.callbacks;
        let fd = self.fd;
        std::mem::forget(self);
        // SAFETY: an open socket that no other code owns from here on.
        let stream = unsafe { std::net::TcpStream::from_raw_fd(fd) };
        Ok(Stream { inner: Some(TcpStream::from_std(stream)?), callbacks, shown: None })
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        match self.callbacks.closesocket {
            // SAFETY: the application's function, with a socket that is no longer used.
            Some(closesocket) => unsafe {
                closesocket(self.fd, self.callbacks.opaque);
            },
            // SAFETY: a socket that is no longer used.
            None => drop(unsafe { Socket::from_raw_fd(self.fd) }),
        }
    }
}

/// A connection over such a socket.
struct Stream {
    inner: Option<TcpStream>,
    callbacks: Callbacks,
    /// The descriptor for interceptors.
    shown: Option<Arc<ShownSocket>>,
}

impl Stream {
    fn inner(&self) -> &TcpStream {
        self.inner.as_ref().expect("it is taken out when this is dropped")
    }

    fn pinned(self: Pin<&mut Self>) -> Pin<&mut TcpStream> {
        Pin::new(self.get_mut().inner.as_mut().expect("it is taken out when this is dropped"))
    }

    /// Returns `false` if an interceptor has ended the connection.
    fn used(&self) -> bool {
        self.shown.as_ref().is_none_or(ShownSocket::used)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(Ok(stream)) = self.inner.take().map(TcpStream::into_std) {
            drop(Descriptor { fd: stream.into_raw_fd(), callbacks: self.callbacks });
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.used() {
            // The end of the stream: what the broker may have sent is not read.
            return Poll::Ready(Ok(()));
        }
        if let Some(shown) = &self.shown {
            shown.read_later(cx.waker());
        }
        self.pinned().poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if !self.used() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.pinned().poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if !self.used() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.pinned().poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pinned().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pinned().poll_shutdown(cx)
    }
}
