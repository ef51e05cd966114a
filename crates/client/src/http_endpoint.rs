//! A small HTTP server, and an endpoint for pages of text on it. The client's Prometheus endpoint uses it, and the command
//! `ottla` for the metrics and the control address of its broker. It is no part of the supported interface.
//!
//! A connection has one request, a deadline, and one of a few places, so that hostile clients cost little.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// The limit of concurrent connections, enough for two Prometheus servers and a few users. A further one takes the place of the
/// oldest that has sent no request for a moment.
const CONNECTIONS_MAX: usize = 8;

/// The time limit for a client to send its request.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);

/// The time limit for a connection: a client that reads slowly loses it.
const CONNECTION_WITHIN: Duration = Duration::from_secs(30);

/// The age at which a connection without a request may lose its place. A request that has arrived is parsed before.
const SILENT_FOR: Duration = Duration::from_millis(500);

/// The time for which a new connection waits for a place, if all have requests. It is closed then.
const PLACE_WITHIN: Duration = Duration::from_secs(10);

/// The largest request head that is read.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// The pause after a failed accept, for example because file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The media type of Prometheus' text format.
pub const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The media type of other text.
pub const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// A page that is served.
#[derive(Clone, Debug)]
pub struct Page {
    /// The status code.
    pub status: u16,
    /// The media type.
    pub media_type: &'static str,
    /// The text.
    pub body: Bytes,
}

impl Page {
    /// Creates a page of plain text.
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Self { status, media_type: PLAIN_TEXT, body: body.into().into() }
    }
}

/// The pages by path; `None` is answered with 404. Called for each request.
type Pages = Arc<dyn Fn(&str) -> Option<Page> + Send + Sync>;

/// Serves pages on a thread of its own until it is dropped.
#[derive(Debug)]
pub struct HttpEndpoint {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpEndpoint {
    /// Starts to serve GET and HEAD requests. The pages are made on the endpoint's thread, except those at `slow_paths`: they are
    /// made on another thread, one at a time, and delay no other page.
    ///
    /// # Errors
    /// The listener cannot be used, or no thread can be started.
    pub fn start(
        listener: TcpListener,
        slow_paths: &'static [&'static str],
        pages: impl Fn(&str) -> Option<Page> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve_pages(Arc::new(pages), slow_paths, listener) => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("ottla-http".into()).spawn(run)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// The address that the endpoint listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpEndpoint {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve_pages(pages: Pages, slow_paths: &'static [&'static str], listener: TcpListener) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => Arc::new(listener),
        Err(error) => return tracing::error!(%error, "the HTTP endpoint cannot listen"),
    };
    let accept = move || {
        let listener = listener.clone();
        async move { listener.accept().await.map(|(stream, _)| stream) }
    };
    let limits = HttpLimits { connections_max: CONNECTIONS_MAX, connection_within: Some(CONNECTION_WITHIN) };
    let turns = Arc::new(Mutex::new(()));
    let answer = move |request: Request<Incoming>| {
        let (pages, turns) = (pages.clone(), turns.clone());
        async move {
            let path = request.uri().path().to_owned();
            if is_read(&request) && slow_paths.iter().any(|slow| *slow == path) {
                let page = make_slowly(pages, path, turns).await;
                return answer(&request, |_| page);
            }
            answer(&request, |path| pages(path))
        }
    };
    serve_http(accept, limits, answer).await;
}

/// Makes a page on a thread that may block, after the earlier ones.
#[expect(clippy::disallowed_methods, reason = "no simulation serves pages")]
async fn make_slowly(pages: Pages, path: String, turns: Arc<Mutex<()>>) -> Option<Page> {
    let turn = turns.lock_owned().await;
    // The work owns the turn: it continues when the connection has ended.
    let make = move || {
        let page = pages(&path);
        drop(turn);
        page
    };
    tokio::task::spawn_blocking(make).await.unwrap_or_else(|error| {
        tracing::error!(%error, "a page cannot be made");
        Some(Page::text(500, "the page cannot be made\n"))
    })
}

fn is_read<B>(request: &Request<B>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
}

/// The limits of [`serve_http`].
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// Concurrent connections. A further one takes the place of the oldest that has sent no request for half a second. If all have sent
    /// one, it waits for 10 s, and is closed then.
    pub connections_max: usize,
    /// The time limit for a connection, if there is one: a client that reads slowly loses it.
    pub connection_within: Option<Duration>,
}

/// Serves connections, each with one request, until the future is dropped. A client has 10 s to send the head of its request,
/// which has at most 16 KiB.
pub async fn serve_http<S, A, R>(
    accept: impl Fn() -> A,
    limits: HttpLimits,
    answer: impl Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Future<Output = io::Result<S>>,
    R: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    // The oldest is first.
    let mut served: VecDeque<ServedConnection> = VecDeque::new();
    loop {
        let stream = match accept().await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "an HTTP connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if !make_room(&mut connections, &mut served, limits.connections_max).await {
            tracing::warn!("an HTTP connection is closed: all others have requests that take long");
            continue;
        }
        let answer = answer.clone();
        let has_request = Arc::new(AtomicBool::new(false));
        let requested = has_request.clone();
        let task = connections.spawn(async move {
            let answer = service_fn(|request| {
                requested.store(true, Ordering::Relaxed);
                let answer = answer(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(REQUEST_WITHIN)
                .max_buf_size(HEAD_BYTES_MAX)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), answer);
            let served = match limits.connection_within {
                Some(within) => tokio::time::timeout(within, served).await,
                None => Ok(served.await),
            };
            match served {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "an HTTP connection ended"),
                Err(_) => tracing::debug!("an HTTP connection has exceeded its time"),
            }
        });
        served.push_back(ServedConnection { has_request, accepted_at: Instant::now(), task });
    }
}

/// Makes room for a connection: in the place of the oldest that has sent no request for a moment, or of the next one that ends. Returns
/// `false` if none ends in time.
async fn make_room(
    connections: &mut JoinSet<()>,
    served: &mut VecDeque<ServedConnection>,
    connections_max: usize,
) -> bool {
    while connections.try_join_next().is_some() {}
    served.retain(|connection| !connection.task.is_finished());
    let deadline = Instant::now() + PLACE_WITHIN;
    while served.len() >= connections_max {
        let now = Instant::now();
        let is_silent = |connection: &ServedConnection| !connection.has_request.load(Ordering::Relaxed);
        let silent = served.iter().position(is_silent);
        let gone_at = silent.and_then(|at| served.get(at)).map(|silent| silent.accepted_at + SILENT_FOR);
        if gone_at.is_some_and(|at| at <= now) {
            if let Some(silent) = silent.and_then(|at| served.remove(at)) {
                silent.task.abort();
            }
            continue;
        }
        if now >= deadline {
            return false;
        }
        let until = gone_at.map_or(deadline, |at| at.min(deadline));
        if tokio::time::timeout_at(until, connections.join_next()).await.is_ok() {
            served.retain(|connection| !connection.task.is_finished());
        }
    }
    true
}

/// A connection of [`serve_http`].
struct ServedConnection {
    /// It has sent the head of its request.
    has_request: Arc<AtomicBool>,
    accepted_at: Instant,
    task: AbortHandle,
}

fn answer<B>(request: &Request<B>, pages: impl FnOnce(&str) -> Option<Page>) -> Response<Full<Bytes>> {
    let is_read = is_read(request);
    let page = if is_read {
        pages(request.uri().path()).unwrap_or_else(|| Page::text(404, "there is no such page\n"))
    } else {
        Page::text(405, "only GET and HEAD are answered\n")
    };
    let mut response = Response::new(Full::new(page.body));
    *response.status_mut() = StatusCode::from_u16(page.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(page.media_type));
    if !is_read {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight silent connections kept the probes of a healthy broker waiting for ten seconds.
    #[test]
    fn a_connection_without_a_request_gives_its_place_to_the_next() {
        use std::io::{Read as _, Write as _};
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint =
            HttpEndpoint::start(listener, &[], |_| Some(Page::text(200, "ready\n"))).expect("started");
        let connect = || std::net::TcpStream::connect(endpoint.address()).expect("connected");
        let silent: Vec<_> = (0..3 * CONNECTIONS_MAX).map(|_| connect()).collect();
        let mut probe = connect();
        probe.set_read_timeout(Some(REQUEST_WITHIN / 2)).expect("a timeout");
        probe.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n").expect("sent");
        let mut text = String::new();
        probe.read_to_string(&mut text).expect("an answer in time");
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("ready\n"), "{text}");
        drop(silent);
    }

    /// The thread that made the metrics of very many partitions answered the probes too, and they waited for it.
    #[test]
    fn a_slow_page_is_made_one_at_a_time_and_delays_no_other_page() {
        use std::io::{Read as _, Write as _};
        use std::net::TcpStream;
        use std::sync::atomic::AtomicUsize;
        use std::sync::mpsc;
        let (begun, begins) = mpsc::channel();
        let (finish, finishes) = mpsc::channel();
        let (finishes, running) = (std::sync::Mutex::new(finishes), AtomicUsize::new(0));
        let pages = move |path: &str| {
            if path == "/slow" {
                assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                begun.send(()).expect("the test waits for it");
                let finishes = finishes.lock().expect("it is not poisoned");
                finishes.recv_timeout(REQUEST_WITHIN).expect("the test ends it");
                running.fetch_sub(1, Ordering::SeqCst);
            }
            Some(Page::text(200, "made\n"))
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = HttpEndpoint::start(listener, &["/slow"], pages).expect("started");
        let request = |path: &str| {
            let mut stream = TcpStream::connect(endpoint.address()).expect("connected");
            stream.set_read_timeout(Some(REQUEST_WITHIN)).expect("a timeout");
            write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").expect("sent");
            stream
        };
        let check = |mut stream: TcpStream| {
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("an answer in time");
            assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("made\n"), "{text}");
        };
        let slow = [request("/slow"), request("/slow")];
        begins.recv_timeout(REQUEST_WITHIN).expect("one of them is made");
        check(request("/fast"));
        assert!(begins.try_recv().is_err(), "the other one waits");
        for _ in &slow {
            finish.send(()).expect("the endpoint runs");
        }
        slow.into_iter().for_each(check);
    }

    /// It lost its place to the next connection if its request had arrived and was not parsed yet.
    #[tokio::test(start_paused = true)]
    async fn a_connection_whose_request_has_arrived_keeps_its_place() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
        let (mut clients, mut streams) = (Vec::new(), VecDeque::new());
        for _ in 0..2 {
            let (mut client, stream) = tokio::io::duplex(1024);
            client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
            clients.push(client);
            streams.push_back(stream);
        }
        let streams = std::sync::Mutex::new(streams);
        let accept = move || {
            let stream = streams.lock().expect("it is not poisoned").pop_front();
            async move {
                match stream {
                    Some(stream) => Ok(stream),
                    None => std::future::pending::<io::Result<DuplexStream>>().await,
                }
            }
        };
        let answer =
            |_: Request<Incoming>| async { Response::new(Full::new(Bytes::from_static(b"ready\n"))) };
        let limits = HttpLimits { connections_max: 1, connection_within: None };
        let server = tokio::spawn(serve_http(accept, limits, answer));
        for client in &mut clients {
            let mut text = String::new();
            let read = tokio::time::timeout(REQUEST_WITHIN, client.read_to_string(&mut text)).await;
            read.expect("in time").expect("answered");
            assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        }
        server.abort();
    }

    /// Once all places had requests that waited for others, nothing was accepted any more.
    #[tokio::test(start_paused = true)]
    async fn a_connection_that_finds_no_place_is_closed_and_the_next_one_is_accepted() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
        let (connect, accepted) = tokio::sync::mpsc::unbounded_channel::<DuplexStream>();
        let accepted = Arc::new(Mutex::new(accepted));
        let accept = move || {
            let accepted = accepted.clone();
            async move {
                let stream = accepted.lock().await.recv().await;
                stream.ok_or_else(|| io::Error::other("the test has ended"))
            }
        };
        let arrived = Arc::new(tokio::sync::Notify::new());
        let arrival = arrived.clone();
        let answer = move |_: Request<Incoming>| {
            arrival.notify_one();
            std::future::pending::<Response<Full<Bytes>>>()
        };
        let limits = HttpLimits { connections_max: 1, connection_within: None };
        let server = tokio::spawn(serve_http(accept, limits, answer));
        let (mut first, far) = tokio::io::duplex(1024);
        connect.send(far).expect("served");
        first.write_all(b"POST /wait HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
        arrived.notified().await;
        for _ in 0..2 {
            let (mut further, far) = tokio::io::duplex(1024);
            connect.send(far).expect("served");
            let mut text = String::new();
            let closed = tokio::time::timeout(3 * PLACE_WITHIN, further.read_to_string(&mut text)).await;
            assert_eq!((closed.expect("in time").expect("closed"), text.as_str()), (0, ""));
        }
        server.abort();
    }

    #[test]
    fn pages_are_only_read_and_only_those_that_exist() {
        for (method, path, status) in [
            ("GET", "/metrics", StatusCode::OK),
            ("HEAD", "/metrics", StatusCode::OK),
            ("POST", "/metrics", StatusCode::METHOD_NOT_ALLOWED),
            ("GET", "/", StatusCode::NOT_FOUND),
        ] {
            let request = Request::builder().method(method).uri(path).body(()).expect("a request");
            let pages = |path: &str| (path == "/metrics").then(|| Page::text(200, "ottla_up 1\n"));
            assert_eq!(answer(&request, pages).status(), status, "{method} {path}");
        }
    }
}
