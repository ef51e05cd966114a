//! The neighbours of a record's delivery.

use std::sync::Arc;

/// In place of the client's error.
#[derive(Clone, Debug)]
pub struct ProduceError;

impl ProduceError {
    /// The error of one record: here all have the batch's.
    pub(crate) fn of_record(&self, _index: u32) -> &Self {
        self
    }
}

/// In place of the client's type.
#[derive(Clone, Debug)]
pub struct RecordMetadata {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// The record's offset, if it is known.
    pub offset: Option<i64>,
}
