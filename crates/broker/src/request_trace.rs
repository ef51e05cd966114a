//! The log of requests that a test reads: a line of JSON for each.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde_json::json;

use crate::clock::Clock;
use crate::request_observer::{AnsweredRequest, RequestObserver};

/// Appends a line of JSON for every answered request to a file: `ottla broker --trace FILE` and
/// [`Cluster::trace_requests`](crate::Cluster::trace_requests).
///
/// Each line is written at once, so that it is there when the client has the response. Its keys are `at_ms` (since 1970),
/// `node`, `api`, `version`, `client_id`, `took_us`, `moved_records`, `errors` (names of Kafka's error codes), and `sent`,
/// which is `false` if the client received no whole response. A delayed response has its line after the delay, and a request that hangs by
/// a fault at once.
///
/// ```
/// # use ottla_broker::Broker;
/// # let dir = tempfile::tempdir()?;
/// let broker = Broker::builder().memory().topic("orders", 1).spawn()?;
/// broker.cluster().trace_requests(dir.path().join("requests.ndjson"))?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RequestTrace {
    file: Mutex<File>,
    clock: Clock,
}

impl RequestTrace {
    pub(crate) fn append(file: &Path, clock: Clock) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(file)?;
        Ok(Self { file: Mutex::new(file), clock })
    }
}

impl RequestObserver for RequestTrace {
    fn on_answered(&self, request: AnsweredRequest<'_>) {
        let errors: Vec<&str> = request.errors.iter().map(|(code, _)| code.name()).collect();
        let line = json!({
            "at_ms": self.clock.now_ms(),
            "node": request.node,
            "api": request.api.name(),
            "version": request.version,
            "client_id": request.client_id,
            "took_us": u64::try_from(request.took.as_micros()).unwrap_or(u64::MAX),
            "moved_records": request.moved_records,
            "errors": errors,
            "sent": request.is_sent,
        });
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(format!("{line}\n").as_bytes()) {
            tracing::warn!(%error, "a request is missing in the trace");
        }
    }
}
