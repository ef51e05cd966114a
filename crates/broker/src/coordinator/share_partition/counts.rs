//! Counts of the events of a share partition's records, for the metrics.

use std::sync::atomic::Ordering;

use super::acknowledge::AckType;
use crate::metrics::ShareMetrics;

/// Numbers of records since the counts were taken.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct ShareCounts {
    pub(crate) accepted: u64,
    pub(crate) released: u64,
    pub(crate) rejected: u64,
    pub(crate) renewed: u64,
    pub(crate) gaps: u64,
    pub(crate) lock_timeouts: u64,
    pub(crate) out_of_deliveries: u64,
}

impl ShareCounts {
    /// Counts acknowledged records.
    pub(super) fn acknowledge(&mut self, ack: AckType, records: u64) {
        *match ack {
            AckType::Gap => &mut self.gaps,
            AckType::Accept => &mut self.accepted,
            AckType::Release => &mut self.released,
            AckType::Reject => &mut self.rejected,
            AckType::Renew => &mut self.renewed,
        } += records;
    }

    /// Adds the numbers to the broker's.
    pub(super) fn add_to(&self, metrics: &ShareMetrics) {
        let numbers = [
            (&metrics.accepted, self.accepted),
            (&metrics.released, self.released),
            (&metrics.rejected, self.rejected),
            (&metrics.renewed, self.renewed),
            (&metrics.gaps, self.gaps),
            (&metrics.lock_timeouts, self.lock_timeouts),
            (&metrics.out_of_deliveries, self.out_of_deliveries),
        ];
        for (metric, number) in numbers.into_iter().filter(|(_, number)| *number > 0) {
            metric.fetch_add(number, Ordering::Relaxed);
        }
    }
}
