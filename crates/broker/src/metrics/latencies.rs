//! A histogram of latencies with fixed buckets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the buckets in microseconds, as Prometheus' clients have them, and three below.
const BOUNDS_MICROS: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];

/// The numbers of latencies by bucket. The last bucket has no upper bound.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    buckets: [AtomicU64; BOUNDS_MICROS.len() + 1],
    micros: AtomicU64,
}

/// The values of a histogram in Prometheus' form.
#[derive(Debug, PartialEq)]
pub(crate) struct Cumulative {
    /// The upper bound in seconds, and the number of latencies up to it.
    pub(crate) buckets: Vec<(f64, u64)>,
    pub(crate) count: u64,
    pub(crate) sum_seconds: f64,
}

impl Latencies {
    pub(super) fn add(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        self.buckets[at].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Reads the values. Latencies that are added meanwhile may be in some of them only.
    pub(super) fn read(&self) -> Cumulative {
        let mut count = 0;
        let mut buckets = Vec::with_capacity(BOUNDS_MICROS.len());
        for (bound, bucket) in BOUNDS_MICROS.iter().zip(&self.buckets) {
            count += bucket.load(Ordering::Relaxed);
            buckets.push((*bound as f64 / 1e6, count));
        }
        count += self.buckets[BOUNDS_MICROS.len()].load(Ordering::Relaxed);
        Cumulative { buckets, count, sum_seconds: self.micros.load(Ordering::Relaxed) as f64 / 1e6 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_in_each_bucket_from_its_own_on() {
        let latencies = Latencies::default();
        for micros in [0, 100, 101, 10_000_000, 10_000_001] {
            latencies.add(Duration::from_micros(micros));
        }
        let read = latencies.read();
        assert_eq!(read.buckets[..2], [(0.0001, 2), (0.00025, 3)]);
        assert_eq!(read.buckets[15], (10.0, 4));
        assert_eq!((read.count, read.sum_seconds), (5, 20.000_202));
    }
}
