//! The sockets that interceptors see. Each connection has a second descriptor for them: an interceptor may close it, as
//! tracing and test tools do, which ends the connection. The engine's own descriptor stays valid.
//!
//! The engine reports a request right after it has written it, and a response right after it has read it, in the same
//! thread. So the socket of an event is the one that the thread has used last.

use std::cell::RefCell;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Waker;

/// The value for an event whose socket is not known.
const NO_SOCKET: c_int = -1;

thread_local! {
    static LAST_USED: RefCell<Weak<ShownSocket>> = const { RefCell::new(Weak::new()) };
}

/// A connection's descriptor for interceptors.
#[derive(Debug)]
pub(crate) struct ShownSocket {
    fd: RawFd,
    /// The socket itself, which another descriptor of the same number would not have.
    inode: u64,
    /// An interceptor has closed the descriptor.
    closed: AtomicBool,
    /// The reader of the connection.
    reader: Mutex<Option<Waker>>,
}

impl ShownSocket {
    /// `None` if the system has no descriptor left: interceptors then see no socket.
    pub(crate) fn of(socket: &impl AsRawFd) -> Option<Arc<Self>> {
        // SAFETY: the descriptor of a socket that is open.
        let fd = unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
        let inode = inode_of(fd)?;
        Some(Arc::new(Self { fd, inode, closed: AtomicBool::new(false), reader: Mutex::default() }))
    }

    /// The thread reads from the connection or writes to it. Returns `false` if an interceptor has ended it.
    pub(crate) fn used(self: &Arc<Self>) -> bool {
        LAST_USED.with_borrow_mut(|last| {
            if !std::ptr::eq(last.as_ptr(), Arc::as_ptr(self)) {
                *last = Arc::downgrade(self);
            }
        });
        !self.closed.load(Ordering::Acquire)
    }

    /// The reader waits: it is woken when an interceptor ends the connection.
    pub(crate) fn read_later(&self, waker: &Waker) {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if !reader.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *reader = Some(waker.clone());
        }
    }

    fn is_open(&self) -> bool {
        inode_of(self.fd) == Some(self.inode)
    }

    /// Ends the connection if an interceptor has closed its descriptor.
    fn check(&self) {
        if !self.is_open() && !self.closed.swap(true, Ordering::AcqRel) {
            let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(reader) = reader {
                reader.wake();
            }
        }
    }
}

impl Drop for ShownSocket {
    fn drop(&mut self) {
        if self.is_open() {
            // SAFETY: it is still the descriptor that `of` made.
            unsafe { libc::close(self.fd) };
        }
    }
}

/// Calls interceptors with the socket that the thread has used last.
pub(super) fn with_last_used(call: impl FnOnce(c_int)) {
    let Some(socket) = LAST_USED.with_borrow(Weak::upgrade) else { return call(NO_SOCKET) };
    call(socket.fd);
    socket.check();
}

fn inode_of(fd: RawFd) -> Option<u64> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a place for the status; an invalid descriptor is an error.
    unsafe { (libc::fstat(fd, status.as_mut_ptr()) == 0).then(|| status.assume_init().st_ino) }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_closed_descriptor_ends_its_connection_and_no_other() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let [first, second] = [(); 2].map(|()| TcpStream::connect(address).expect("it listens"));
        let [shown, other] = [&first, &second].map(|socket| ShownSocket::of(socket).expect("a descriptor"));
        assert!(other.used() && shown.used());
        with_last_used(|fd| assert_eq!(fd, shown.fd));
        assert!(shown.used(), "nothing was closed");
        // SAFETY: the descriptor that interceptors may close.
        with_last_used(|fd| assert_eq!(unsafe { libc::close(fd) }, 0));
        assert!(!shown.used() && other.used());
        first.peer_addr().expect("the engine's descriptor is open");
        drop((shown, other));
        with_last_used(|fd| assert_eq!(fd, NO_SOCKET));
    }
}
