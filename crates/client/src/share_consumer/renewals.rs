//! Batches whose records are being renewed: a poll returns the records again once their locks are renewed.

use super::batch::ShareBatch;
use super::delivered::renewed_offsets;
use crate::share::acknowledgements::{PartitionAcks, TopicIdPartition};
use crate::share::queue::AckOutcome;

/// The batches with records whose renewal is not settled.
#[derive(Debug, Default)]
pub(super) struct Renewals(Vec<Renewal>);

#[derive(Debug)]
struct Renewal {
    id: u64,
    key: TopicIdPartition,
    batch: ShareBatch,
    /// The number of its records whose renewal is not settled: acknowledgements may be settled in parts.
    left: u64,
}

impl Renewals {
    /// Keeps the batch of these acknowledgements if they renew some of its records.
    pub(super) fn add(&mut self, acks: &PartitionAcks, batch: Option<&ShareBatch>) {
        let left = len(&renewed_offsets(&acks.ranges));
        if let Some(batch) = batch.filter(|_| left > 0) {
            self.0.push(Renewal { id: acks.id, key: acks.key, batch: batch.clone(), left });
        }
    }

    /// Returns the records whose locks were renewed; `None` if the broker refused that.
    pub(super) fn settle(&mut self, outcome: &AckOutcome) -> Option<(TopicIdPartition, ShareBatch)> {
        let found = self.0.iter().position(|renewal| renewal.id == outcome.id)?;
        let offsets = renewed_offsets(&outcome.ranges);
        let renewal = &mut self.0[found];
        renewal.left = renewal.left.saturating_sub(len(&offsets));
        let renewed = match &outcome.result {
            Ok(()) => renewal.batch.restricted(&offsets).map(|batch| (renewal.key, batch)),
            Err(_) => None,
        };
        if renewal.left == 0 {
            self.0.swap_remove(found);
        }
        renewed
    }
}

/// The number of offsets.
fn len(ranges: &[(i64, i64)]) -> u64 {
    ranges.iter().map(|(first, last)| last.abs_diff(*first) + 1).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ottla_protocol::{ErrorCode, Uuid};

    use super::*;
    use crate::error::Error;
    use crate::share::acknowledgements::AckRange;
    use crate::share::queue::AcquiredRange;
    use crate::types::TopicPartition;

    /// The first part was taken for the whole: the records of the others, whose locks were renewed, did not come again.
    #[test]
    fn a_renewal_that_is_settled_in_parts_returns_the_records_of_each_part() {
        let (at, key) =
            (TopicPartition::new("orders", 0), TopicIdPartition { topic_id: Uuid::ONE, partition: 0 });
        let acquired = Arc::new([AcquiredRange { first: 0, last: 9, delivery_count: 1 }]);
        let batch = ShareBatch { at: at.clone(), topic_id: Uuid::ONE, node: 1, sets: Arc::new([]), acquired };
        let (renew, accept) = (4, 1);
        let ranges = vec![AckRange::uniform(0, 7, renew), AckRange::uniform(8, 9, accept)];
        let (retry_at, give_up_at) = (None, None);
        let acks =
            PartitionAcks { id: 7, key, at: at.clone(), node: 1, ranges, attempts: 0, retry_at, give_up_at };
        let mut renewals = Renewals::default();
        renewals.add(&acks, Some(&batch));
        let mut settle = |first, last, result: Result<(), Error>| {
            let ranges = vec![AckRange::uniform(first, last, renew)];
            let renewed = renewals.settle(&AckOutcome { id: 7, at: at.clone(), ranges, result });
            renewed.map(|(_, batch)| batch.ranges().map(|(offsets, _)| offsets).collect::<Vec<_>>())
        };
        let refused = || Err(Error::Broker { what: "renewing".into(), code: ErrorCode::InvalidRecordState });
        assert_eq!(settle(0, 1, refused()), None);
        assert_eq!(settle(2, 4, Ok(())), Some(vec![2..=4]));
        assert_eq!(settle(5, 7, Ok(())), Some(vec![5..=7]));
        assert_eq!(settle(5, 7, Ok(())), None, "all are settled");
    }
}
