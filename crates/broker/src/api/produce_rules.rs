//! Kafka's rules for the records of a Produce request that need no log.

use ottla_log::AppendError;
use ottla_protocol::ErrorCode;
use ottla_wire::batch::LOG_OVERHEAD_BYTES;
use ottla_wire::{BatchHeader, Compression};

/// Zstandard exists from this version of Produce on (KIP-110).
const ZSTD_FROM: i16 = 7;

/// The reason for which the records of a partition are refused.
#[derive(Debug)]
pub(super) enum RefusedRecords {
    /// The code has no text.
    Code(ErrorCode),
    Error(AppendError),
}

/// Checks that these bytes are one batch, the one of the header, that its offsets begin with 0, and that producers with this version of
/// Produce know its codec. A check or an approval of the first of several batches would count for all.
pub(super) fn refusal_of(
    header: &BatchHeader,
    records_bytes: usize,
    version: i16,
    dir: impl Fn() -> String,
) -> Option<RefusedRecords> {
    let len = usize::try_from(header.batch_length).ok()?.checked_add(LOG_OVERHEAD_BYTES)?;
    if len < records_bytes {
        let what = "several batches for one partition: a request has one";
        return Some(RefusedRecords::Error(AppendError::NotAllowed { dir: dir(), what }));
    }
    if version < ZSTD_FROM && matches!(header.compression(), Ok(Compression::Zstd)) {
        return Some(RefusedRecords::Code(ErrorCode::UnsupportedCompressionType));
    }
    // As in Kafka (`UnifiedLog.analyzeAndValidateRecords`): a producer with other offsets in its batches fails there.
    (header.base_offset != 0).then(|| {
        let what = "a batch whose base offset is not 0: the broker assigns the offsets";
        RefusedRecords::Error(AppendError::NotAllowed { dir: dir(), what })
    })
}
