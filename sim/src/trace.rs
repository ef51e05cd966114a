//! The events of a run, one line each, with virtual time.

use std::fmt::Arguments;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

/// The events of one run, in order. Clones share the list.
#[derive(Clone, Debug)]
pub struct Trace {
    started: Instant,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Trace {
    /// An empty trace that starts now.
    pub fn begin() -> Self {
        Self { started: Instant::now(), lines: Arc::default() }
    }

    /// Adds an event.
    pub fn note(&self, what: Arguments<'_>) {
        let ms = self.started.elapsed().as_millis();
        let line = format!("{:>4}.{:03} {what}", ms / 1000, ms % 1000);
        // Also logged, in order with the events of client and broker.
        tracing::info!(target: "sim", "{line}");
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(line);
    }

    /// Every line so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
