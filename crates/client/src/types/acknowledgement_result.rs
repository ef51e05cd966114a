//! The result of acknowledgements of a share consumer.

use std::ops::RangeInclusive;

use super::TopicPartition;
use crate::error::Error;

/// The broker's result for acknowledgements of one delivered batch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AcknowledgementResult {
    /// The topic and the partition.
    pub at: TopicPartition,
    /// The acknowledged offsets.
    pub ranges: Vec<RangeInclusive<i64>>,
    /// After an error, the group delivers the records again, or has given them to another member already.
    pub result: Result<(), Error>,
}
