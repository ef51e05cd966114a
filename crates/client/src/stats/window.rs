//! One measurement over one interval: its histogram, and its sums since the client started.

use hdrhistogram::Histogram;

use super::snapshot::Window as WindowSnapshot;

/// Two digits: percentiles are exact to 1 %, in a few kilobytes.
const DIGITS: u8 = 2;

/// The values of one interval. The histogram is created with the first value.
#[derive(Debug)]
pub(super) struct Window {
    histogram: Option<Histogram<u64>>,
    value_max: u64,
    interval: Sums,
    out_of_range: u64,
    total: Sums,
    /// The values since the last push of metrics (KIP-714), which has an interval of its own.
    since_push: Sums,
}

/// The sums of measured values.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) count: u64,
    pub(crate) sum: u64,
    min: u64,
    pub(crate) max: u64,
}

impl Sums {
    /// The average; 0 without values.
    pub(crate) fn average(self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Adds the values of other sums.
    pub(super) fn merge(&mut self, other: Self) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
    }

    pub(super) fn add(&mut self, value: u64, times: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += times;
        self.sum = self.sum.saturating_add(value.saturating_mul(times));
    }
}

impl Window {
    /// Creates a window for values up to `value_max`; larger ones are only counted.
    pub(super) fn up_to(value_max: u64) -> Self {
        Self {
            histogram: None,
            value_max,
            interval: Sums::default(),
            out_of_range: 0,
            total: Sums::default(),
            since_push: Sums::default(),
        }
    }

    pub(super) fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Records the same value several times.
    pub(super) fn record_n(&mut self, value: u64, times: u64) {
        if value > self.value_max || times == 0 {
            self.out_of_range += times;
            return;
        }
        if self.histogram.is_none() {
            self.histogram = Histogram::new_with_max(self.value_max.max(2), DIGITS).ok();
        }
        let recorded = self.histogram.as_mut().is_some_and(|it| it.record_n(value, times).is_ok());
        if recorded {
            self.interval.add(value, times);
            self.total.add(value, times);
            self.since_push.add(value, times);
        } else {
            self.out_of_range += times;
        }
    }

    /// Returns the sums since the last call.
    pub(super) fn take_since_push(&mut self) -> Sums {
        std::mem::take(&mut self.since_push)
    }

    /// Returns the values of the interval and starts the next one.
    pub(super) fn roll(&mut self) -> WindowSnapshot {
        let Sums { count, sum, min, max } = std::mem::take(&mut self.interval);
        let mut snapshot = WindowSnapshot {
            min,
            max,
            avg: sum.checked_div(count).unwrap_or(0),
            sum,
            cnt: count,
            outofrange: std::mem::take(&mut self.out_of_range),
            total_sum: self.total.sum,
            total_cnt: self.total.count,
            ..WindowSnapshot::default()
        };
        if let Some(histogram) = &mut self.histogram {
            // A bucket contains several values; the reported value stays within the measured range.
            let at = |percent: f64| histogram.value_at_percentile(percent).clamp(min, max);
            snapshot.p50 = at(50.0);
            snapshot.p75 = at(75.0);
            snapshot.p90 = at(90.0);
            snapshot.p95 = at(95.0);
            snapshot.p99 = at(99.0);
            snapshot.p99_99 = at(99.99);
            snapshot.stddev = histogram.stdev() as u64;
            snapshot.hdrsize = (histogram.distinct_values() * size_of::<u64>()) as u64;
            histogram.reset();
        }
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_weighted_and_begins_anew_each_interval() {
        let mut window = Window::up_to(1_000_000);
        window.record_n(100, 90);
        window.record_n(1000, 10);
        window.record(2_000_000);
        let first = window.roll();
        assert_eq!((first.min, first.max, first.cnt, first.sum, first.avg), (100, 1000, 100, 19_000, 190));
        assert_eq!((first.outofrange, first.p50, first.p90, first.p99), (1, 100, 100, 1000));
        assert!(first.hdrsize > 0);
        let empty = window.roll();
        assert_eq!((empty.cnt, empty.sum, empty.max, empty.p99), (0, 0, 0, 0));
        window.record(7);
        let next = window.roll();
        assert_eq!((next.cnt, next.min, next.max, next.p50), (1, 7, 7, 7));
        assert_eq!((next.total_cnt, next.total_sum), (101, 19_007));
    }

    #[test]
    fn pushed_sums_have_an_interval_of_their_own() {
        let mut window = Window::up_to(1_000);
        window.record_n(100, 3);
        let _ = window.roll();
        window.record(500);
        let pushed = window.take_since_push();
        assert_eq!((pushed.count, pushed.sum, pushed.max), (4, 800, 500));
        assert!((pushed.average() - 200.0).abs() < f64::EPSILON);
        assert_eq!(window.take_since_push().count, 0);
        assert_eq!(window.roll().cnt, 1, "a push leaves the interval of statistics alone");
    }
}
