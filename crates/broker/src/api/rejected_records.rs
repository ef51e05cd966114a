//! The records for which a batch was refused, as a response of Produce names them (KIP-467).

use ottla_log::AppendError;
use ottla_protocol::messages::produce::BatchIndexAndErrorMessage;

/// The records that one response names. Kafka names all; a producer fails the batch of the others with the error of the partition.
pub(super) const RECORD_ERRORS_MAX: usize = 1000;

/// The text of a record without a key.
const NO_KEY: &str = "the record has no key, and cleanup.policy has compact";

/// The records of a batch for which it was refused, by their numbers in it.
#[derive(Debug, Default)]
pub(super) enum RejectedRecords {
    #[default]
    None,
    WithoutKey(Vec<u32>),
    /// Their timestamps, the range that is allowed, and the records without a key beside them.
    OutOfTime {
        records: Vec<(u32, i64)>,
        earliest: i64,
        latest: i64,
        keyless: Vec<u32>,
    },
}

impl RejectedRecords {
    pub(super) fn of(error: &AppendError) -> Self {
        match error {
            AppendError::MissingKey { records, .. } => Self::WithoutKey(records.clone()),
            AppendError::InvalidTimestamp { records, earliest, latest, keyless, .. } => Self::OutOfTime {
                records: records.clone(),
                earliest: *earliest,
                latest: *latest,
                keyless: keyless.clone(),
            },
            _ => Self::None,
        }
    }

    /// Leaves as many records as the response has room for.
    pub(super) fn limit(&mut self, left: &mut usize) {
        match self {
            Self::None => {}
            Self::WithoutKey(records) => limit(records, left),
            Self::OutOfTime { records, keyless, .. } => {
                limit(records, left);
                limit(keyless, left);
            }
        }
    }

    pub(super) fn into_errors(self) -> Vec<BatchIndexAndErrorMessage> {
        let error = |(record, text): (u32, String)| BatchIndexAndErrorMessage {
            batch_index: i32::try_from(record).unwrap_or(i32::MAX),
            batch_index_error_message: Some(text),
        };
        match self {
            Self::None => Vec::new(),
            Self::WithoutKey(records) => {
                records.into_iter().map(|record| error((record, NO_KEY.to_owned()))).collect()
            }
            Self::OutOfTime { records, earliest, latest, keyless } => {
                let text = |timestamp| format!("timestamp {timestamp} is outside of {earliest} to {latest}");
                let untimely =
                    records.into_iter().map(|(record, timestamp)| error((record, text(timestamp))));
                let without_key = keyless.into_iter().map(|record| error((record, NO_KEY.to_owned())));
                let mut errors: Vec<_> = untimely.chain(without_key).collect();
                errors.sort_unstable_by_key(|error| error.batch_index);
                errors
            }
        }
    }
}

/// Leaves as many records of a refused batch as the response has room for.
pub(super) fn limit_records(error: &mut AppendError, left: &mut usize) {
    match error {
        AppendError::MissingKey { records, .. } => limit(records, left),
        AppendError::InvalidTimestamp { records, keyless, .. } => {
            limit(records, left);
            limit(keyless, left);
        }
        _ => {}
    }
}

fn limit<T>(records: &mut Vec<T>, left: &mut usize) {
    if records.len() > *left {
        records.truncate(*left);
        records.shrink_to_fit();
    }
    *left -= records.len();
}
