//! The HTTP server of a control address: it checks who asks, and passes the request on.

use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use ottla_broker::Control;
use ottla_client::http_endpoint::{HttpLimits, serve_http};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

use super::address::ControlAddress;
use super::token;
use crate::failure::{Failure, sentence};

/// Requests at a time; further connections wait for ten seconds.
const CONNECTIONS_MAX: usize = 64;
/// Waits of tests that run side by side. The other places are for the requests that end them.
const WAITS_MAX: usize = 32;
/// The time limit for a client to send the body of a request.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// The largest body that is read.
const BODY_BYTES_MAX: usize = 64 << 10;

/// The attempts to lock a directory, and the pause between two.
const LOCK_ATTEMPTS: usize = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A control address that serves until it is dropped.
#[derive(Debug)]
pub(crate) struct ControlServer {
    address: ControlAddress,
    _socket: Option<SocketFile>,
    task: tokio::task::JoinHandle<()>,
}

/// The parts that all connections share.
#[derive(Debug)]
struct Shared {
    control: Control,
    /// The header that a request must have; a unix socket needs none.
    authorization: Option<String>,
    /// The places of waits.
    waits: Semaphore,
}

impl ControlServer {
    /// Listens in the context of the broker's runtime. `token_file` is written for a port.
    pub(crate) async fn start(
        address: &ControlAddress,
        token_file: Option<&Path>,
        control: Control,
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::failed(format!("--control {address}: {}", sentence(&error)));
        match (address, token_file) {
            (ControlAddress::Unix(path), None) => {
                let (listener, socket) = listen_at(path).map_err(failed)?;
                let shared = Arc::new(Shared::new(control, None));
                let accept = move || {
                    let listener = listener.clone();
                    async move { Ok(listener.accept().await?.0) }
                };
                let task = tokio::spawn(serve(shared, accept));
                Ok(Self { address: address.clone(), _socket: Some(socket), task })
            }
            (ControlAddress::Loopback(port), Some(token_file)) => {
                let listener = TcpListener::bind(port).await.map_err(failed)?;
                let address = ControlAddress::Loopback(listener.local_addr().map_err(failed)?);
                let authorization = Some(format!("Bearer {}", token::create(token_file)?));
                let shared = Arc::new(Shared::new(control, authorization));
                let listener = Arc::new(listener);
                let accept = move || {
                    let listener = listener.clone();
                    async move { Ok(listener.accept().await?.0) }
                };
                let task = tokio::spawn(serve(shared, accept));
                Ok(Self { address, _socket: None, task })
            }
            (ControlAddress::Unix(_), Some(_)) => Err(Failure::usage(
                "--control-token is for a port: only the owner of a unix socket can use it",
            )),
            (ControlAddress::Loopback(_), None) => Err(Failure::usage(
                "--control-token FILE is missing: every user of this machine could control the broker at this port",
            )),
        }
    }

    /// The address, with the port that was chosen.
    pub(crate) fn address(&self) -> &ControlAddress {
        &self.address
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The file of a socket, which is removed at the end.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Its device and inode: another broker may have put its own socket there.
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|found| identity(&found) == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Listens at a unix socket of mode 0600. The socket of a broker that was killed is replaced.
fn listen_at(path: &Path) -> io::Result<(Arc<UnixListener>, SocketFile)> {
    check_length(path)?;
    // Only the owner can enter the directory: clients cannot connect before the mode of the socket is set.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let hidden = hidden_dir(parent)?;
    let entered = File::open(hidden.path())?;
    let locked = lock_starts(parent)?;
    remove_if_dead(path)?;
    let socket = hidden.path().join("s");
    let listener = UnixListener::bind(bindable(&socket, &entered)?)?;
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600))?;
    let identity = identity(&std::fs::symlink_metadata(&socket)?);
    // Unlike a rename, a link replaces no file: of two brokers that start together, one fails.
    std::fs::hard_link(&socket, path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => in_use(),
        _ => error,
    })?;
    drop(locked);
    Ok((Arc::new(listener), SocketFile { path: path.to_owned(), identity }))
}

/// Makes a directory that its owner alone can enter, whatever the umask is.
fn hidden_dir(parent: &Path) -> io::Result<tempfile::TempDir> {
    let owner_only = std::fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().prefix(".").rand_bytes(6).permissions(owner_only).tempdir_in(parent)
}

/// Returns a path at which a socket can be bound: the hidden name may be too long although the final one is not. Then the path leads
/// over the descriptor of the directory, on Linux.
fn bindable(socket: &Path, dir: &File) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    let fits = |path: &Path| std::os::unix::net::SocketAddr::from_pathname(path).map(drop);
    let Err(too_long) = fits(socket) else { return Ok(socket.to_owned()) };
    let by_descriptor = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string());
    if by_descriptor.is_dir() { Ok(by_descriptor.join("s")) } else { Err(too_long) }
}

/// Refuses a path that clients cannot connect to. The socket itself has another name first.
fn check_length(path: &Path) -> io::Result<()> {
    std::os::unix::net::SocketAddr::from_pathname(path).map(drop).map_err(|_| {
        let bytes = path.as_os_str().len();
        let text = format!("the path has {bytes} bytes, and no client can connect to a socket with so many: use a shorter path");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

fn in_use() -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, "another process uses the socket, or a file has this name")
}

/// Locks a directory against other brokers that start with a socket in it. They need some milliseconds: a lock that is held for longer
/// is that of another program, which does not matter here.
fn lock_starts(dir: &Path) -> io::Result<File> {
    let locked = File::open(dir)?;
    for _ in 0..LOCK_ATTEMPTS {
        match locked.try_lock() {
            Err(TryLockError::WouldBlock) => {}
            // Some file systems have no locks.
            Ok(()) | Err(TryLockError::Error(_)) => break,
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "the start of the broker waits; it serves nothing yet"
        )]
        std::thread::sleep(LOCK_PAUSE);
    }
    Ok(locked)
}

/// Removes a socket to which nothing listens.
fn remove_if_dead(path: &Path) -> io::Result<()> {
    // A connection to another kind of file is refused, too.
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && is_dead(path) { std::fs::remove_file(path) } else { Ok(()) }
}

fn is_dead(socket: &Path) -> bool {
    let connected = std::os::unix::net::UnixStream::connect(socket);
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

async fn serve<S, F>(shared: Arc<Shared>, accept: impl Fn() -> F)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = io::Result<S>>,
{
    // A wait of a test may take minutes: a connection has no time limit of its own.
    let limits = HttpLimits { connections_max: CONNECTIONS_MAX, connection_within: None };
    let answer = move |request| {
        let shared = shared.clone();
        async move { shared.answer(request).await }
    };
    serve_http(accept, limits, answer).await;
}

impl Shared {
    fn new(control: Control, authorization: Option<String>) -> Self {
        Self { control, authorization, waits: Semaphore::new(WAITS_MAX) }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if !self.is_allowed(request.headers().get(AUTHORIZATION)) {
            let error = "the header `Authorization: Bearer TOKEN` is missing or wrong: TOKEN is in the file of --control-token";
            return respond(401, &json!({ "error": error }));
        }
        let (head, body) = request.into_parts();
        let body = tokio::time::timeout(BODY_WITHIN, Limited::new(body, BODY_BYTES_MAX).collect()).await;
        let body = match body {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) => return respond(400, &json!({ "error": format!("the body: {error}") })),
            Err(_) => return respond(408, &json!({ "error": "the body did not come in time" })),
        };
        // Also a wait of a fork.
        let is_wait = head.method == Method::POST && head.uri.path().trim_end_matches('/').ends_with("/wait");
        let place = is_wait.then(|| self.waits.try_acquire());
        if let Some(Err(_)) = place {
            let error = format!("{WAITS_MAX} waits run, which is the maximum: try again when one has ended");
            return respond(409, &json!({ "error": error }));
        }
        let answer = self.control.answer(head.method.as_str(), head.uri.path(), &body).await;
        respond(answer.status, &answer.body)
    }

    fn is_allowed(&self, header: Option<&HeaderValue>) -> bool {
        use subtle::ConstantTimeEq;
        let Some(wanted) = &self.authorization else { return true };
        header.is_some_and(|header| bool::from(header.as_bytes().ct_eq(wanted.as_bytes())))
    }
}

fn respond(status: u16, json: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(format!("{json}\n").into()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "brokers that start together are threads here")]

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
    }

    /// Each replaced the socket of the other, and the end of one removed the other's.
    #[test]
    fn of_brokers_that_start_together_one_gets_the_socket_and_keeps_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("control");
        for round in 0..50 {
            // The socket of a broker that was killed.
            drop(std::os::unix::net::UnixListener::bind(&path).expect("no file"));
            let start = std::sync::Barrier::new(4);
            let starting = || {
                let runtime = runtime();
                let _entered = runtime.enter();
                start.wait();
                let listening = listen_at(&path).ok();
                start.wait();
                let is_up = std::os::unix::net::UnixStream::connect(&path).is_ok();
                start.wait();
                (listening.is_some(), is_up)
            };
            let started: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(starting)).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            let listening = started.iter().filter(|(is_listening, _)| *is_listening).count();
            assert!(listening == 1 && started.iter().all(|(_, is_up)| *is_up), "round {round}: {started:?}");
            assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0, "all is removed");
        }
    }

    /// Its mode came from the umask. With 0 or 002, other users could connect in the moment before the mode of the socket was set.
    #[test]
    fn its_owner_alone_can_enter_the_directory_in_which_a_socket_begins() {
        let dir = tempfile::tempdir().expect("a directory");
        let hidden = hidden_dir(dir.path()).expect("made");
        let mode = std::fs::metadata(hidden.path()).expect("a directory").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    /// The broker started, and no client could connect to its socket.
    #[test]
    fn a_path_that_is_too_long_for_clients_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("c".repeat(120));
        let runtime = runtime();
        let _entered = runtime.enter();
        let refused = listen_at(&path).expect_err("too long").to_string();
        assert!(refused.contains(&format!("{} bytes", path.as_os_str().len())), "{refused}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0, "no file stays");
    }

    /// The hidden name of the socket was longer than the path: `shorter than SUN_LEN`.
    #[test]
    fn a_path_that_clients_can_connect_to_is_served() {
        // An address has 108 bytes, of which the last one is zero; 104 on other systems than Linux.
        const PATH_BYTES: usize = if cfg!(target_os = "linux") { 107 } else { 80 };
        let dir = tempfile::tempdir().expect("a directory");
        let used = dir.path().as_os_str().len() + "/".len() + "/c".len();
        let parent = dir.path().join("d".repeat(PATH_BYTES - used));
        std::fs::create_dir(&parent).expect("created");
        let path = parent.join("c");
        assert_eq!(path.as_os_str().len(), PATH_BYTES);
        let runtime = runtime();
        let _entered = runtime.enter();
        let (_listener, _file) = listen_at(&path).expect("it listens");
        assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
        assert_eq!(std::fs::read_dir(&parent).expect("a directory").count(), 1, "the socket alone");
    }

    #[test]
    fn the_end_of_a_broker_keeps_the_socket_of_another_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("control");
        let runtime = runtime();
        let _entered = runtime.enter();
        let (_first, file) = listen_at(&path).expect("no file");
        let mode = std::fs::symlink_metadata(&path).expect("a socket").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_file(&path).expect("a socket");
        let (_second, other) = listen_at(&path).expect("no file");
        drop(file);
        assert!(path.exists());
        drop(other);
        assert!(!path.exists());
    }
}
