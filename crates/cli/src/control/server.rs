//! The HTTP server of a control address: it checks who asks, and passes the request on.

use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use ottla_broker::Control;
use ottla_client::http_endpoint::{HttpLimits, serve_http};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};

use super::address::ControlAddress;
use super::token;
use crate::failure::{Failure, sentence};

/// Requests at a time; further connections wait. Waits of tests run side by side.
const CONNECTIONS_MAX: usize = 64;
/// The time limit for a client to send the body of a request.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// The largest body that is read.
const BODY_BYTES_MAX: usize = 64 << 10;

/// A control address that serves until it is dropped.
#[derive(Debug)]
pub(crate) struct ControlServer {
    address: ControlAddress,
    /// The file of the socket, which is removed at the end.
    socket: Option<PathBuf>,
    task: tokio::task::JoinHandle<()>,
}

/// The parts that all connections share.
#[derive(Debug)]
struct Shared {
    control: Control,
    /// The header that a request must have; a unix socket needs none.
    authorization: Option<String>,
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
                let listener = listen_at(path).map_err(failed)?;
                let shared = Arc::new(Shared { control, authorization: None });
                let accept = move || {
                    let listener = listener.clone();
                    async move { Ok(listener.accept().await?.0) }
                };
                let task = tokio::spawn(serve(shared, accept));
                Ok(Self { address: address.clone(), socket: Some(path.clone()), task })
            }
            (ControlAddress::Loopback(port), Some(token_file)) => {
                let listener = TcpListener::bind(port).await.map_err(failed)?;
                let address = ControlAddress::Loopback(listener.local_addr().map_err(failed)?);
                let authorization = Some(format!("Bearer {}", token::create(token_file)?));
                let shared = Arc::new(Shared { control, authorization });
                let listener = Arc::new(listener);
                let accept = move || {
                    let listener = listener.clone();
                    async move { Ok(listener.accept().await?.0) }
                };
                let task = tokio::spawn(serve(shared, accept));
                Ok(Self { address, socket: None, task })
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
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
    }
}

/// Listens at a unix socket of mode 0600. The socket of a broker that was killed is replaced.
fn listen_at(path: &Path) -> io::Result<Arc<UnixListener>> {
    // A connection to another kind of file is refused, too.
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err_and(|error| refused(&error)) {
        std::fs::remove_file(path)?;
    }
    // Clients cannot connect before the mode is set: the socket is bound under another name, and then moved.
    let mut hidden = path.as_os_str().to_owned();
    hidden.push(format!(".{}", std::process::id()));
    let listener = UnixListener::bind(&hidden)?;
    std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(0o600))?;
    if path.exists() {
        let _ = std::fs::remove_file(&hidden);
        return Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another process uses the socket, or a file has this name",
        ));
    }
    std::fs::rename(&hidden, path)?;
    Ok(Arc::new(listener))
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
