//! `--metrics-listen`: the metrics of a running command, for Prometheus.

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

use clap::Args;
use ottla_client::{Client, Config, PrometheusEndpoint};

use crate::failure::{Failure, sentence};
use crate::output::note;

/// Maximum age of the metrics, unless `statistics.interval.ms` is set.
const INTERVAL_MS: &str = "1000";

/// The address at which metrics are served.
#[derive(Args, Clone, Debug)]
pub(crate) struct MetricsArgs {
    /// Serves client metrics for Prometheus at http://HOST:PORT/metrics; port 0 selects a free port
    #[arg(long, value_name = "HOST:PORT", help_heading = "Connection", value_parser = listen_address)]
    metrics_listen: Option<SocketAddr>,
}

/// Parses an address to listen at. A name stands for the first of its addresses.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let mut addresses = text
        .to_socket_addrs()
        .map_err(|error| format!("`{text}`: {}; expected HOST:PORT", sentence(&error)))?;
    addresses.next().ok_or_else(|| format!("`{text}`: no address"))
}

impl MetricsArgs {
    /// Turns on statistics if they are to be served and no property has done so.
    pub(crate) fn apply(&self, config: &mut Config) -> Result<(), Failure> {
        if self.metrics_listen.is_some() && config.statistics_interval.is_zero() {
            config.set("statistics.interval.ms", INTERVAL_MS)?;
        }
        Ok(())
    }

    /// Serves this client's metrics until the endpoint is dropped, and prints the address.
    pub(crate) fn serve(&self, client: &Client) -> Result<Option<PrometheusEndpoint>, Failure> {
        self.serve_and(client, String::new)
    }

    /// Like [`MetricsArgs::serve`], and appends the text of `more`.
    pub(crate) fn serve_and(
        &self,
        client: &Client,
        more: impl Fn() -> String + Send + Sync + 'static,
    ) -> Result<Option<PrometheusEndpoint>, Failure> {
        let Some(address) = &self.metrics_listen else { return Ok(None) };
        let listener = TcpListener::bind(address)
            .map_err(|error| Failure::failed(format!("--metrics-listen {address}: {}", sentence(&error))))?;
        let endpoint = client.serve_prometheus_and(listener, more)?;
        note(&format!("metrics at http://{}/metrics", endpoint.address()));
        Ok(Some(endpoint))
    }
}
