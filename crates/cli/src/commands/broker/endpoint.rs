//! `--metrics-listen`: the metrics, the health and the readiness of the broker over HTTP, on a thread of its own. Another thread makes
//! the texts of metrics: they can take longer than a probe waits.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_broker::Control;
use ottla_client::http_endpoint::{HttpEndpoint, PROMETHEUS_TEXT, Page};

use crate::failure::{Failure, sentence};

/// A text of metrics is served again for this time: many requests cost no more than one each second.
const TEXT_KEPT: Duration = Duration::from_secs(1);

const METRICS: &str = "/metrics";

/// Interval at which the threads that serve clients show that they run.
const PULSE_INTERVAL: Duration = Duration::from_secs(1);

/// The broker is unhealthy when these threads have not run for this time.
const PULSE_MISSED_MAX: Duration = Duration::from_secs(30);

/// The endpoint. It stops when it is dropped.
#[derive(Debug)]
pub(super) struct Endpoint {
    http: HttpEndpoint,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    began: Instant,
    series_max: usize,
    /// The broker, once it accepts connections.
    broker: OnceLock<Control>,
    /// The time of the last pulse, in milliseconds since `began`.
    pulse_ms: AtomicU64,
    /// The last text and its time.
    text: Mutex<Option<(Instant, Bytes)>>,
}

impl Endpoint {
    /// Listens on this address. Until [`Endpoint::show`], the broker is starting.
    pub(super) fn start(address: SocketAddr, series_max: usize) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::failed(format!("--metrics-listen {address}: {}", sentence(&error)))
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let shared = Arc::new(Shared {
            began: Instant::now(),
            series_max,
            broker: OnceLock::new(),
            pulse_ms: AtomicU64::new(0),
            text: Mutex::default(),
        });
        let pages = shared.clone();
        let http = HttpEndpoint::start(listener, &[METRICS], move |path| pages.page(path)).map_err(failed)?;
        Ok(Self { http, shared })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.http.address()
    }

    pub(super) fn metrics_url(&self) -> String {
        format!("http://{}{METRICS}", self.address())
    }

    /// Serves the metrics of a broker that accepts connections, in the context of its runtime.
    pub(super) fn show(&self, broker: Control) {
        let shared = self.shared.clone();
        shared.beat();
        // There is one call: the command starts one broker.
        let _ = shared.broker.set(broker);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(PULSE_INTERVAL).await;
                shared.beat();
            }
        });
    }
}

impl Shared {
    fn page(&self, path: &str) -> Option<Page> {
        match path {
            METRICS => Some(self.metrics()),
            "/healthz" => Some(self.health()),
            "/readyz" => Some(self.readiness()),
            _ => None,
        }
    }

    fn metrics(&self) -> Page {
        let Some(broker) = self.broker.get() else { return starting(503) };
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        let body = match &*text {
            Some((at, kept)) if at.elapsed() < TEXT_KEPT => kept.clone(),
            _ => {
                let body = Bytes::from(broker.cluster().metrics_text(self.series_max));
                *text = Some((Instant::now(), body.clone()));
                body
            }
        };
        Page { status: 200, media_type: PROMETHEUS_TEXT, body }
    }

    fn health(&self) -> Page {
        if self.broker.get().is_none() {
            // The recovery of large logs takes its time.
            return starting(200);
        }
        health_after(self.since_pulse())
    }

    fn readiness(&self) -> Page {
        let Some(broker) = self.broker.get() else { return starting(503) };
        match broker.cluster().unready_reason() {
            None => Page::text(200, "ready\n"),
            Some(reason) => Page::text(503, format!("not ready: {reason}\n")),
        }
    }

    fn beat(&self) {
        self.pulse_ms.store(self.age_ms(), Ordering::Relaxed);
    }

    fn since_pulse(&self) -> Duration {
        Duration::from_millis(self.age_ms().saturating_sub(self.pulse_ms.load(Ordering::Relaxed)))
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The health of a broker whose last pulse was some time ago.
fn health_after(missed: Duration) -> Page {
    if missed <= PULSE_MISSED_MAX {
        return Page::text(200, "healthy\n");
    }
    Page::text(503, format!("the threads that serve clients have not run for {} s\n", missed.as_secs()))
}

fn starting(status: u16) -> Page {
    Page::text(status, "the broker starts\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_is_healthy_until_its_threads_have_missed_many_pulses() {
        assert_eq!(health_after(Duration::from_secs(30)).status, 200);
        let late = health_after(Duration::from_secs(31));
        assert_eq!(
            (late.status, &*late.body),
            (503, &b"the threads that serve clients have not run for 31 s\n"[..])
        );
    }

    #[test]
    fn a_broker_that_starts_is_healthy_and_not_ready() {
        let endpoint = Endpoint::start(SocketAddr::from(([127, 0, 0, 1], 0)), 10).expect("a free port");
        let status = |path| endpoint.shared.page(path).map(|page| page.status);
        assert_eq!(
            (status("/healthz"), status("/readyz"), status("/metrics")),
            (Some(200), Some(503), Some(503))
        );
        assert_eq!(status("/"), None);
    }
}
