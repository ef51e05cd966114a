//! The statistics over HTTP, for Prometheus.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Semaphore, oneshot};

use crate::error::Error;

/// The limit of concurrent connections, enough for two Prometheus servers and a few users; further connections wait.
const CONNECTIONS_MAX: usize = 16;

/// The time limit for a client to send its request.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);

/// The pause after a failed accept, for example because file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The media type of Prometheus' text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The source of the response text, called for each request.
pub(crate) type Text = Arc<dyn Fn() -> String + Send + Sync>;

/// Serves `GET /metrics` with a client's statistics until it is dropped; see [`Client::serve_prometheus`](crate::Client::serve_prometheus).
#[derive(Debug)]
pub struct PrometheusEndpoint {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl PrometheusEndpoint {
    pub(crate) fn start(
        statistics_interval: Duration,
        listener: TcpListener,
        text: Text,
    ) -> Result<Self, Error> {
        if statistics_interval.is_zero() {
            return Err(Error::Config(
                "statistics.interval.ms is 0, so there is nothing to serve: set it, 1000 for example".into(),
            ));
        }
        let no_listener = |error| Error::Config(format!("the listener for Prometheus: {error}"));
        listener.set_nonblocking(true).map_err(no_listener)?;
        let address = listener.local_addr().map_err(no_listener)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::Config(format!("no runtime for the listener for Prometheus: {error}")))?;
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(text, listener) => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new()
            .name("ottla-prometheus".into())
            .spawn(run)
            .map_err(|error| Error::Config(format!("no thread for the listener for Prometheus: {error}")))?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// The address that the endpoint listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for PrometheusEndpoint {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(text: Text, listener: TcpListener) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "no client reads the Prometheus endpoint"),
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection of Prometheus could not be taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let text = text.clone();
        connections.spawn(async move {
            let answer = service_fn(|request: Request<Incoming>| {
                let answer = answer(&request, || text());
                async move { Ok::<_, Infallible>(answer) }
            });
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(REQUEST_WITHIN)
                .serve_connection(TokioIo::new(stream), answer)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "a connection of Prometheus ended");
            }
            drop(place);
        });
    }
}

fn answer<B>(request: &Request<B>, text: impl FnOnce() -> String) -> Response<Full<Bytes>> {
    let (status, text) = match (request.uri().path(), request.method()) {
        ("/metrics", &Method::GET | &Method::HEAD) => (StatusCode::OK, text()),
        ("/metrics", _) => (StatusCode::METHOD_NOT_ALLOWED, "GET it\n".into()),
        _ => (StatusCode::NOT_FOUND, "the numbers are at /metrics\n".into()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(TEXT_FORMAT));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_numbers_are_served_and_only_to_be_read() {
        for (method, path, status) in [
            ("GET", "/metrics", StatusCode::OK),
            ("HEAD", "/metrics", StatusCode::OK),
            ("POST", "/metrics", StatusCode::METHOD_NOT_ALLOWED),
            ("GET", "/", StatusCode::NOT_FOUND),
        ] {
            let request = Request::builder().method(method).uri(path).body(()).expect("a request");
            assert_eq!(answer(&request, String::new).status(), status, "{method} {path}");
        }
    }
}
