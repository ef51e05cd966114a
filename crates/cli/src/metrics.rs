//! `--metrics-listen`: a command's numbers for Prometheus, while it runs.

use std::net::TcpListener;

use clap::Args;
use ottla_client::{Client, Config, PrometheusEndpoint};

use crate::failure::{Failure, sentence};
use crate::output::note;

/// How old the numbers are at most, unless `statistics.interval.ms` says otherwise.
const INTERVAL_MS: &str = "1000";

/// Where the numbers can be fetched.
#[derive(Args, Clone, Debug)]
pub(crate) struct MetricsArgs {
    /// Serves the client's statistics to Prometheus, at http://HOST:PORT/metrics; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", help_heading = "Connection")]
    metrics_listen: Option<String>,
}

impl MetricsArgs {
    /// Switches the statistics on, if they are to be served and nobody did.
    pub(crate) fn apply(&self, config: &mut Config) -> Result<(), Failure> {
        if self.metrics_listen.is_some() && config.statistics_interval.is_zero() {
            config.set("statistics.interval.ms", INTERVAL_MS)?;
        }
        Ok(())
    }

    /// Serves this client's statistics until the endpoint is dropped, and says where.
    pub(crate) fn serve(&self, client: &Client) -> Result<Option<PrometheusEndpoint>, Failure> {
        self.serve_and(client, String::new)
    }

    /// The same, and behind it what `more` says.
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
