//! The memory that a request is charged for before it is received and decoded.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use ottla_protocol::messages::produce::PartitionProduceData;
use ottla_protocol::{ApiKey, Decoder};
use ottla_wire::frames::FrameBuffer;

use crate::config::BrokerConfig;
use crate::memory::Parts;
use crate::places::Places;

/// The most aborted transactions in a Fetch response. Each has 16 bytes there, and more memory before that. Reads with more end earlier.
pub(crate) const ABORTED_TRANSACTIONS_MAX: usize = 4_000;

/// The bytes that all connections together may hold without a charge: requests that have arrived in part or wait for their turn, and
/// responses that their clients do not read.
const SHARED_BYTES: usize = 4 << 20;
/// The memory of all connections over TLS that hold more than their share of requests that are decrypted and not started.
const DECRYPTED_BYTES: usize = 16 << 20;
/// Connections that pause because their address has too many new ones. Above it, the one that pauses longest ends.
const REFUSED_MAX: usize = 1_000;
/// The bytes of a message of TLS that has arrived in part. A record has up to 18 KiB. A message in several records, which rustls
/// would keep up to 64 KiB, is part of a handshake only.
pub(crate) const UNFINISHED_BYTES_MAX: usize = 20 << 10;
/// The memory of a decrypted record that is not read, and of rustls' buffer below it.
const DECRYPTED_MEMORY: usize = (16 << 10) + UNFINISHED_BYTES_MAX;
/// The bytes that one connection may hold without a charge. Requests with records, up to this size, are not charged: the buffer of each
/// connection holds them.
pub(crate) const SHARE_MAX: usize = 16 << 10;
/// The same if there are very many connections. The 10,000 of `max.connections` hold 10 MiB.
const SHARE_MIN: usize = 1 << 10;
/// The bytes of a request that are read at a time. The kernel copies them, which takes as long as some requests: other connections are
/// served before the next part.
const PART_BYTES: usize = 512 << 10;
/// The same next to few connections: a request of `max.request.size`, 1 MiB, is read at once. The wait before a second part costs a
/// producer 2 % of the broker's CPU.
const PART_BYTES_OF_FEW: usize = 1088 << 10;
/// The number of connections up to which the longer parts do not delay others by much.
const FEW_CONNECTIONS: usize = 64;
/// Requests without records up to this size are not charged.
const UNCHARGED_BYTES_MAX: usize = 512;
/// The memory of a decoded request and of its response, by the size of the request. Names of six bytes need most:
/// 28 times their size for topics to create, 20 for groups to describe.
const MEMORY_PER_BYTE: usize = 30;
/// The same for Fetch requests, whose partitions have at least 16 bytes.
const FETCH_MEMORY_PER_BYTE: usize = 16;
/// The same for DescribeConfigs requests, up to the limit of their descriptions: a resource has at least 5 bytes, and the description
/// of a broker 40 KiB.
const DESCRIPTION_MEMORY_PER_BYTE: usize = 8 << 10;
/// The memory limit for the items of one request and of its response. Hundreds of thousands of partitions fit.
const DECODED_BYTES_MAX: usize = 64 << 20;
/// The memory of an item's response, of its encoding and of the maps that it is looked up in. An index has 4 bytes in a request, so that
/// it is charged 120.
const ITEM_MEMORY: usize = 116;
/// The same for the partitions of a fetch: each has a target, an answer, and a wait for its next records.
const FETCHED_ITEM_MEMORY: usize = 440;
/// The same for items that are changed, in a record, or refused with a reason in words.
const CHANGED_ITEM_MEMORY: usize = 360;
/// The same for the topics and partitions of a Produce request: each has a part of the append, a result and a response.
const PRODUCED_ITEM_MEMORY: usize = 500;
/// The copies of a name that a request and its response have, besides the frame.
const NAME_COPIES: usize = 4;
/// The number of names in requests that consist of them, which can have one byte each: the description of a group is ten times as large
/// as the name in memory.
const NAMES_MAX: usize = 60_000;

/// The open connections, which share the memory that is not charged.
#[derive(Debug)]
pub(crate) struct Shares {
    connections: AtomicUsize,
    descriptions_max: usize,
    /// The connections over TLS with decrypted requests. There is no waiting for this memory: they have it already.
    pub(crate) decrypted: Places,
    /// The connections that a quota refuses and that pause before they end. They hold nothing but a socket.
    pub(crate) refused: Places,
}

/// The limits of a connection at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The bytes that it may hold without a charge.
    pub(crate) share: usize,
    /// The bytes of a charged request that it reads at a time.
    pub(crate) part: usize,
    descriptions_max: usize,
}

impl Limits {
    /// Those of a connection that holds no request yet: it logs in.
    pub(crate) const LOGIN: Self = Self { share: SHARE_MAX, part: SHARE_MAX, descriptions_max: 0 };
}

impl Shares {
    pub(crate) fn of(memory_max: usize) -> Self {
        Self {
            connections: AtomicUsize::new(0),
            descriptions_max: descriptions_max(memory_max),
            decrypted: Places::new(DECRYPTED_BYTES / DECRYPTED_MEMORY),
            refused: Places::new(REFUSED_MAX),
        }
    }

    /// Counts a connection until the guard is dropped.
    pub(crate) fn enter(&self) -> Share<'_> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Share(self)
    }

    /// The limits of each connection.
    pub(crate) fn limits(&self) -> Limits {
        let connections = self.connections.load(Ordering::Relaxed).max(1);
        let share = (SHARED_BYTES / connections).clamp(SHARE_MIN, SHARE_MAX);
        let part = if connections > FEW_CONNECTIONS { PART_BYTES } else { PART_BYTES_OF_FEW };
        Limits { share, part, descriptions_max: self.descriptions_max }
    }
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Share<'a>(&'a Shares);

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the memory of the next request, if it must be charged. Its size and its API must have arrived.
pub(crate) fn charge_for(frames: &FrameBuffer, limits: Limits) -> Option<usize> {
    let size = frames.next_size()?;
    let api = frames.peek(2)?.first_chunk::<2>().map(|key| i16::from_be_bytes(*key))?;
    let (uncharged, per_byte, max) = if api == ApiKey::Produce.code() {
        (limits.share, 1, usize::MAX)
    } else if api == ApiKey::Fetch.code() {
        (UNCHARGED_BYTES_MAX, FETCH_MEMORY_PER_BYTE, usize::MAX)
    } else if api == ApiKey::DescribeConfigs.code() {
        (
            UNCHARGED_BYTES_MAX,
            DESCRIPTION_MEMORY_PER_BYTE,
            limits.descriptions_max.max(size.saturating_mul(MEMORY_PER_BYTE)),
        )
    } else {
        (UNCHARGED_BYTES_MAX, MEMORY_PER_BYTE, usize::MAX)
    };
    (size > uncharged).then(|| size.saturating_mul(per_byte).min(max))
}

/// The memory of the descriptions in one response at most: a resource of a few bytes has a description of many thousands.
pub(crate) fn descriptions_max(memory_max: usize) -> usize {
    2 * Parts::of(memory_max).responses
}

/// Returns `true` if a request of this size was charged, unless it has records.
pub(crate) fn is_charged(size: usize) -> bool {
    size > UNCHARGED_BYTES_MAX
}

/// The decoder of a request. It refuses a request if the memory of its items, of their names and of the response would exceed what the
/// request is charged at most, two thirds of it: the rest is for the frame.
pub(crate) fn decoder(frame: &Bytes, config: &BrokerConfig) -> Decoder {
    let api = frame.first_chunk().map(|key| i16::from_be_bytes(*key));
    let is = |key: ApiKey| api == Some(key.code());
    let max = DECODED_BYTES_MAX.min(Parts::of(config.memory_bytes_max).requests / 3 * 2);
    if is(ApiKey::Produce) {
        // A partition with records is larger on the wire than decoded. The rest is charged once the partitions are counted.
        let decoded = size_of::<PartitionProduceData>();
        let items = (SHARE_MAX + frame.len() * 2) / decoded;
        let max = max.min(items.saturating_mul(decoded + PRODUCED_ITEM_MEMORY));
        return Decoder::with_memory_max(frame.clone(), max).with_derived_memory(PRODUCED_ITEM_MEMORY, 0);
    }
    let item = if [ApiKey::Fetch, ApiKey::ShareFetch].into_iter().any(is) {
        FETCHED_ITEM_MEMORY
    } else if CHANGES.into_iter().any(is) {
        CHANGED_ITEM_MEMORY
    } else {
        ITEM_MEMORY
    };
    let max = if NAMES_ONLY.into_iter().any(is) {
        max.min(NAMES_MAX * (size_of::<String>() + item) + NAME_COPIES * frame.len())
    } else {
        max
    };
    Decoder::with_memory_max(frame.clone(), max).with_derived_memory(item, NAME_COPIES)
}

/// Returns the memory of the topics and partitions of a Produce request that its frame is not charged for, if there is some. A few
/// dozen, and those with records of 500 bytes, need none.
pub(crate) fn memory_of_produced(items: usize, frame_bytes: usize) -> Option<usize> {
    let uncharged = items.saturating_mul(PRODUCED_ITEM_MEMORY).saturating_sub(SHARE_MAX + frame_bytes);
    (uncharged > 0).then_some(uncharged)
}

/// Requests that consist of names.
const NAMES_ONLY: [ApiKey; 4] =
    [ApiKey::DescribeGroups, ApiKey::DeleteGroups, ApiKey::FindCoordinator, ApiKey::DescribeTransactions];

/// Requests that change each of their items, or refuse it with a reason.
const CHANGES: [ApiKey; 18] = [
    ApiKey::AlterClientQuotas,
    ApiKey::AlterConfigs,
    ApiKey::AlterPartitionReassignments,
    ApiKey::CreateAcls,
    ApiKey::CreatePartitions,
    ApiKey::CreateTopics,
    ApiKey::DeleteAcls,
    ApiKey::DeleteShareGroupState,
    ApiKey::DeleteTopics,
    ApiKey::IncrementalAlterConfigs,
    ApiKey::InitializeShareGroupState,
    ApiKey::OffsetCommit,
    ApiKey::OffsetDelete,
    ApiKey::ReadShareGroupState,
    ApiKey::ReadShareGroupStateSummary,
    ApiKey::TxnOffsetCommit,
    ApiKey::UpdateFeatures,
    ApiKey::WriteShareGroupState,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Each counted its bytes on the wire only: 6 for a partition without records.
    #[test]
    fn small_partitions_of_a_produce_request_count_their_memory() {
        assert_eq!(memory_of_produced(33, 300), None, "a few dozen");
        assert_eq!(memory_of_produced(10_000, 10_000 * PRODUCED_ITEM_MEMORY), None, "they have records");
        let frame_bytes = 6_000;
        let uncharged = 1_000 * PRODUCED_ITEM_MEMORY - SHARE_MAX - frame_bytes;
        assert_eq!(memory_of_produced(1_000, frame_bytes), Some(uncharged));
    }
}
