//! The errors of a batch in which the broker named the records at fault (KIP-467).

use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::produce::PartitionProduceResponse;

use super::{Persisted, ProduceError, ProduceErrorKind};

/// The broker refused a batch because of some of its records.
#[derive(Debug)]
pub struct InvalidRecords {
    /// The errors of the records at fault, by their index in the batch.
    named: Vec<(u32, ProduceError)>,
    /// The error of the other records.
    other: ProduceError,
}

impl InvalidRecords {
    /// `None` if the response names no record.
    pub(crate) fn of(topic: &Arc<str>, partition: i32, answer: &PartitionProduceResponse) -> Option<Self> {
        if answer.record_errors.is_empty() {
            return None;
        }
        let error =
            |kind| ProduceError { topic: topic.clone(), partition, kind, persisted: Persisted::NotWritten };
        // The partition's code belongs to a record only if that is the only one.
        let code = if answer.record_errors.len() == 1 { answer.error_code } else { ErrorCode::InvalidRecord };
        let mut named: Vec<_> = answer
            .record_errors
            .iter()
            .filter_map(|record| {
                let text = record.batch_index_error_message.as_ref().or(answer.error_message.as_ref());
                let detail = text.map(|text| format!(": {text}")).unwrap_or_default();
                let kind = ProduceErrorKind::Broker { code, detail };
                Some((u32::try_from(record.batch_index).ok()?, error(kind)))
            })
            .collect();
        named.sort_by_key(|(index, _)| *index);
        Some(Self { named, other: error(ProduceErrorKind::OtherRecordInvalid) })
    }

    /// The number of records at fault.
    pub fn len(&self) -> usize {
        self.named.len()
    }

    /// `true` if the broker named no valid index.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// The error of the record with this index in the batch.
    pub fn of_record(&self, index: u32) -> &ProduceError {
        match self.named.binary_search_by_key(&index, |(index, _)| *index) {
            Ok(found) => &self.named[found].1,
            Err(_) => &self.other,
        }
    }
}

impl ProduceError {
    /// The error of one record of a batch: its own if the broker named the records at fault, otherwise the batch's.
    pub(crate) fn of_record(&self, index: u32) -> &Self {
        match &self.kind {
            ProduceErrorKind::InvalidRecords(records) => records.of_record(index),
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use ottla_protocol::messages::produce::BatchIndexAndErrorMessage;

    use super::*;

    fn answer(named: &[(i32, Option<&str>)]) -> PartitionProduceResponse {
        let record = |&(batch_index, text): &(i32, Option<&str>)| BatchIndexAndErrorMessage {
            batch_index,
            batch_index_error_message: text.map(str::to_owned),
        };
        PartitionProduceResponse {
            error_code: ErrorCode::InvalidTimestamp,
            error_message: Some("the batch is refused".into()),
            record_errors: named.iter().map(record).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn each_record_gets_its_own_error_and_the_others_are_told_that_they_are_sound() {
        let topic: Arc<str> = "orders".into();
        let records =
            InvalidRecords::of(&topic, 0, &answer(&[(7, None), (2, Some("no key"))])).expect("named");
        let text = |index| records.of_record(index).kind.to_string();
        let code = ErrorCode::InvalidRecord;
        assert_eq!(text(2), format!("{code}: no key"));
        assert_eq!(text(7), format!("{code}: the batch is refused"));
        for index in [0, 3, 8] {
            assert!(matches!(records.of_record(index).kind, ProduceErrorKind::OtherRecordInvalid));
        }
    }

    #[test]
    fn the_code_of_the_partition_is_that_of_a_single_record_at_fault() {
        let topic: Arc<str> = "orders".into();
        let records = InvalidRecords::of(&topic, 0, &answer(&[(0, None)])).expect("named");
        let code = |index| match records.of_record(index).kind {
            ProduceErrorKind::Broker { code, .. } => Some(code),
            _ => None,
        };
        assert_eq!((code(0), code(1)), (Some(ErrorCode::InvalidTimestamp), None));
        assert!(InvalidRecords::of(&topic, 0, &answer(&[])).is_none());
    }
}
