//! The events of a run, one line each, with virtual time.

use std::fmt::Arguments;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

/// The events of one run, in order. Clones share the list, which keeps every event until the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Trace {
    started: Instant,
    kept: bool,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Trace {
    /// An empty trace that starts now. Unless it is `kept`, events are only logged.
    pub fn begin(kept: bool) -> Self {
        Self { started: Instant::now(), kept, lines: Arc::default() }
    }

    /// Adds an event.
    pub fn note(&self, what: Arguments<'_>) {
        if !self.kept && !tracing::enabled!(target: "ottla_testkit", tracing::Level::INFO) {
            return;
        }
        let ms = self.started.elapsed().as_millis();
        let line = format!("{:>4}.{:03} {what}", ms / 1000, ms % 1000);
        // Also logged, in order with the events of client and broker.
        tracing::info!(target: "ottla_testkit", "{line}");
        if self.kept {
            self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    }

    /// Every line so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
