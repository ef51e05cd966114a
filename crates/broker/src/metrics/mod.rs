//! The counters of a broker: requests, connections, records and syncs; and the table of all metrics.
//!
//! A request costs a few additions to atomic numbers: no lock, no memory. [`crate::metrics_text`] makes the text.

mod latencies;
mod share;
pub(crate) mod table;

use std::array::from_fn;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ottla_log::{PendingSync, Synced};
use ottla_protocol::{ApiKey, ErrorCode, ErrorTally};
use tokio::time::Instant;

pub(crate) use self::latencies::Cumulative;
use self::latencies::Latencies;
pub(crate) use self::share::ShareMetrics;
pub use self::table::{Metric, MetricKind, metrics};

/// One more than the highest key of a request that Kafka 4.3 defines.
const APIS: usize = {
    let known = ApiKey::KNOWN;
    known[known.len() - 1].code() as usize + 1
};
/// The error codes that Kafka 4.3 defines, from -1 on.
const CODES: usize = {
    let known = ErrorCode::KNOWN;
    (known[known.len() - 1].code() + 2) as usize
};

/// The counters of a broker.
#[derive(Debug)]
pub(crate) struct BrokerMetrics {
    pub(crate) opened: Instant,
    apis: Box<[ApiMetrics]>,
    pub(crate) connections_accepted: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) logins_succeeded: AtomicU64,
    pub(crate) logins_failed: AtomicU64,
    pub(crate) handshakes_failed: AtomicU64,
    pub(crate) appended_records: AtomicU64,
    pub(crate) appended_bytes: AtomicU64,
    pub(crate) fetched_bytes: AtomicU64,
    pub(crate) share: ShareMetrics,
    pub(crate) log_syncs: Syncs,
    pub(crate) journal_syncs: Syncs,
}

/// The counters of one API.
#[derive(Debug, Default)]
pub(crate) struct ApiMetrics {
    pub(crate) requests: AtomicU64,
    pub(crate) request_bytes: AtomicU64,
    pub(crate) response_bytes: AtomicU64,
    latencies: Latencies,
    /// The numbers of errors by code, from the first error on.
    pub(crate) errors: OnceLock<Box<[AtomicU64; CODES]>>,
}

/// The number, the time and the failures of syncs.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    pub(crate) count: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) micros: AtomicU64,
}

impl Default for BrokerMetrics {
    fn default() -> Self {
        Self {
            opened: Instant::now(),
            apis: (0..APIS).map(|_| ApiMetrics::default()).collect(),
            connections_accepted: AtomicU64::default(),
            connections_refused: AtomicU64::default(),
            logins_succeeded: AtomicU64::default(),
            logins_failed: AtomicU64::default(),
            handshakes_failed: AtomicU64::default(),
            appended_records: AtomicU64::default(),
            appended_bytes: AtomicU64::default(),
            fetched_bytes: AtomicU64::default(),
            share: ShareMetrics::default(),
            log_syncs: Syncs::default(),
            journal_syncs: Syncs::default(),
        }
    }
}

impl BrokerMetrics {
    /// Counts a request that has arrived, of an API that the broker answers.
    pub(crate) fn arrived(&self, api: ApiKey, bytes: usize) {
        let Some(counters) = self.of(api) else { return };
        counters.requests.fetch_add(1, Ordering::Relaxed);
        counters.request_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a response that was written, or a request that gets none.
    pub(crate) fn answered(&self, api: ApiKey, took: Duration, bytes: usize, errors: &ErrorTally) {
        let Some(counters) = self.of(api) else { return };
        counters.response_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        counters.latencies.add(took);
        if !errors.is_empty() {
            counters.count_errors(errors);
        }
    }

    /// Counts records of a producer that were appended.
    pub(crate) fn appended(&self, records: u64, bytes: usize) {
        self.appended_records.fetch_add(records, Ordering::Relaxed);
        self.appended_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts the bytes of batches in a fetch response.
    pub(crate) fn fetched(&self, bytes: usize) {
        self.fetched_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The counters of an API.
    pub(crate) fn of(&self, api: ApiKey) -> Option<&ApiMetrics> {
        self.apis.get(usize::try_from(api.code()).ok()?)
    }
}

impl ApiMetrics {
    /// The histogram of its latencies.
    pub(crate) fn latencies(&self) -> Cumulative {
        self.latencies.read()
    }

    #[cold]
    fn count_errors(&self, errors: &ErrorTally) {
        let counts = self.errors.get_or_init(|| Box::new(from_fn(|_| AtomicU64::default())));
        for (code, count) in errors.iter() {
            // A code that Kafka does not define is counted as -1, UNKNOWN_SERVER_ERROR.
            let at = usize::try_from(code.code() + 1).unwrap_or(0);
            counts[if at < CODES { at } else { 0 }].fetch_add(u64::from(count), Ordering::Relaxed);
        }
    }
}

impl Syncs {
    /// Runs a sync and counts it.
    pub(crate) fn run(&self, pending: PendingSync) -> Synced {
        let began = Instant::now();
        let synced = pending.run();
        self.add(began.elapsed(), synced.is_ok());
        synced
    }

    /// Counts a sync.
    pub(crate) fn add(&self, took: Duration, is_ok: bool) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.failed.fetch_add(u64::from(!is_ok), Ordering::Relaxed);
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_codes_without_a_place_are_harmless() {
        let metrics = BrokerMetrics::default();
        metrics.arrived(ApiKey::Unknown(-1), 1);
        metrics.arrived(ApiKey::Unknown(i16::MAX), 1);
        assert!(ApiKey::KNOWN.iter().all(|api| metrics.of(*api).is_some()));
        let last = ErrorCode::KNOWN[ErrorCode::KNOWN.len() - 1];
        assert_eq!(usize::try_from(last.code()), Ok(CODES - 2));
    }
}
