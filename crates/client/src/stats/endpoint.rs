//! The statistics over HTTP, for Prometheus.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use crate::error::Error;
use crate::http_endpoint::{HttpEndpoint, PROMETHEUS_TEXT, Page};

/// Serves `GET /metrics` with a client's statistics until it is dropped; see [`Client::serve_prometheus`](crate::Client::serve_prometheus).
#[derive(Debug)]
pub struct PrometheusEndpoint {
    http: HttpEndpoint,
}

impl PrometheusEndpoint {
    /// Starts to serve what `text` returns; it is called for each request.
    pub(crate) fn start(
        statistics_interval: Duration,
        listener: TcpListener,
        text: impl Fn() -> String + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        if statistics_interval.is_zero() {
            return Err(Error::Config(
                "statistics.interval.ms is 0, so there is nothing to serve: set it, 1000 for example".into(),
            ));
        }
        let page = move |path: &str| {
            let body = (path == "/metrics").then(&text)?;
            Some(Page { status: 200, media_type: PROMETHEUS_TEXT, body: body.into() })
        };
        let started = HttpEndpoint::start(listener, &[], page);
        let http = started.map_err(|error| Error::Config(format!("the listener for Prometheus: {error}")))?;
        Ok(Self { http })
    }

    /// The address that the endpoint listens on.
    pub fn address(&self) -> SocketAddr {
        self.http.address()
    }
}
