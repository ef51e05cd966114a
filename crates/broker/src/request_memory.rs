//! The memory that a request is charged for before it is received and decoded.

use ottla_protocol::ApiKey;
use ottla_wire::frames::FrameBuffer;

use crate::config::BrokerConfig;
use crate::memory::Parts;

/// Requests with records, up to this size, are not charged: the buffer of each connection holds them.
const UNCHARGED_RECORDS_MAX: usize = 16 << 10;
/// Other requests up to this size are not charged.
const UNCHARGED_BYTES_MAX: usize = 512;
/// The memory of a decoded request and of its response, by the size of the request. Names of six bytes need most:
/// 28 times their size for topics to create, 20 for groups to describe.
const MEMORY_PER_BYTE: usize = 30;
/// The same for Fetch requests, whose partitions have at least 16 bytes.
const FETCH_MEMORY_PER_BYTE: usize = 16;
/// The memory limit for the arrays of one request. Hundreds of thousands of partitions fit.
const DECODED_BYTES_MAX: usize = 64 << 20;

/// The same for requests that consist of names, which can have one byte each: the description of a group is ten times as large
/// as the name in memory. About 60,000 names fit.
const NAMES_BYTES_MAX: usize = 3 << 19;

/// Returns the memory of the next request, if it must be charged. Its size and its API must have arrived.
pub(crate) fn charge_for(frames: &FrameBuffer) -> Option<usize> {
    let size = frames.next_size()?;
    let api = frames.peek(2)?.first_chunk::<2>().map(|key| i16::from_be_bytes(*key))?;
    let (uncharged, per_byte) = if api == ApiKey::Produce.code() {
        (UNCHARGED_RECORDS_MAX, 1)
    } else if api == ApiKey::Fetch.code() {
        (UNCHARGED_BYTES_MAX, FETCH_MEMORY_PER_BYTE)
    } else {
        (UNCHARGED_BYTES_MAX, MEMORY_PER_BYTE)
    };
    (size > uncharged).then(|| size.saturating_mul(per_byte))
}

/// Returns `true` if a request of this size was charged, unless it has records.
pub(crate) fn is_charged(size: usize) -> bool {
    size > UNCHARGED_BYTES_MAX
}

/// Returns the memory limit for the arrays of a request.
pub(crate) fn decoded_bytes_max(frame: &[u8], config: &BrokerConfig) -> usize {
    let api = frame.first_chunk().map(|key| i16::from_be_bytes(*key));
    let is = |key: ApiKey| api == Some(key.code());
    let max = DECODED_BYTES_MAX.min(Parts::of(config.memory_bytes_max).requests);
    if is(ApiKey::Produce) {
        // A partition with records is larger on the wire than decoded.
        max.min(UNCHARGED_RECORDS_MAX + frame.len() * 2)
    } else if NAMES_ONLY.into_iter().any(is) {
        max.min(NAMES_BYTES_MAX)
    } else {
        max
    }
}

/// Requests that consist of names.
const NAMES_ONLY: [ApiKey; 4] =
    [ApiKey::DescribeGroups, ApiKey::DeleteGroups, ApiKey::FindCoordinator, ApiKey::DescribeTransactions];
