//! The actions that the core requests from its owner, and the facts that it queries.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::LeaderInfo;
use crate::config::{Config, GroupHabits, Isolation, OffsetReset};
use crate::error::Error;
use crate::fetch::cursor::Cursor;
use crate::fetch::cursors::Slot;
use crate::fetch::inbox::Item;
use crate::fetch::progress::{Ends, PartitionProgress};
use crate::fetch::session::SessionRequest;
use crate::types::StartAt;
use crate::types::TopicPartition;
use tokio::time::Instant;

/// Work for the owner of a [`FetchCore`](super::FetchCore), in the order in which it must be performed.
#[derive(Debug)]
pub(in crate::fetch) enum Action {
    /// Reserve the bytes and send this fetch. The result goes into `on_fetched` or `on_fetched_outside_session`.
    Fetch(FetchSpec),
    /// Request these offsets from the leader. Each result goes into `on_offset`.
    ListOffsets { leader: i32, questions: Vec<(CursorRef, StartAt)> },
    /// Wait for the topic's metadata. The result goes into `on_topic_awaited`.
    AwaitTopic { topic: Arc<str>, cursors: Vec<(CursorRef, StartAt)> },
    /// Request the end of an epoch from the leader. The result goes into `on_epoch_end`.
    OffsetForLeaderEpoch(EpochQuestion),
    /// Add the topic to those whose metadata is kept fresh.
    WantTopic(Arc<str>),
    /// Request fresh metadata soon.
    RefreshMetadata,
    /// Store the leader that a broker named (KIP-951). `on_leader_hint` gets the result at once.
    LearnLeader(LeaderHint),
    /// Forget the partition's leader and request fresh metadata.
    ForgetLeader(TopicPartition),
    /// Add records, an error or an event to a partition's inbox.
    Deliver { slot: Slot, item: Item },
    /// The same, unless the partition has another generation by then.
    DeliverIn { slot: Slot, generation: u64, item: Item },
    /// Add an error to the consumer's queue: it concerns no single partition.
    ReportError(Error),
    /// Remove everything that waits in a partition's inbox: the position has changed.
    Purge(Slot),
    /// Drop records of paused partitions until the budget has this much room. `on_parked_freed` gets the result at
    /// once.
    FreeParked { bytes: usize },
    /// Record the bounds of a partition for the statistics.
    RecordEnds { node: i32, at: TopicPartition, offset: i64, ends: Ends },
    /// Log that a fetch failed.
    LogFailure { node: i32, reason: String },
}

/// A Fetch request to send.
#[derive(Debug)]
pub(in crate::fetch) struct FetchSpec {
    pub(in crate::fetch) node: i32,
    /// `true` if it is sent outside the broker's session, on the connection for such fetches.
    pub(in crate::fetch) outside_session: bool,
    /// The time that the broker may wait for records.
    pub(in crate::fetch) wait: Duration,
    /// Bytes of the budget to reserve for the response.
    pub(in crate::fetch) bytes: usize,
    /// Bytes of records that the response may contain.
    pub(in crate::fetch) records_bytes: usize,
    /// Requests without a response since the last response: the wait for this one grows with them.
    pub(in crate::fetch) unanswered: u32,
    pub(in crate::fetch) request: SessionRequest,
}

/// An OffsetForLeaderEpoch request: whether the leader's log is the one that was read (KIP-320).
#[derive(Debug)]
pub(in crate::fetch) struct EpochQuestion {
    pub(in crate::fetch) cursor: CursorRef,
    /// The position that is validated.
    pub(in crate::fetch) offset: i64,
    pub(in crate::fetch) leader: i32,
    pub(in crate::fetch) leader_epoch: i32,
    /// The epoch of the last record before the position.
    pub(in crate::fetch) epoch: i32,
}

/// The leader's answer to an [`EpochQuestion`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::fetch) enum EpochEnd {
    /// The records of the epoch end at this offset in the leader's log.
    At(i64),
    /// The leader has no records of the epoch and none of a later one: its log is older than what was read.
    Undefined,
    /// The leader does not support a version for consumers: it is taken for one that confirms the position.
    Unsupported,
}

/// A leader that the response of another broker names.
#[derive(Debug)]
pub(in crate::fetch) struct LeaderHint {
    pub(in crate::fetch) cursor: CursorRef,
    /// The broker that named it.
    pub(in crate::fetch) named_by: i32,
    pub(in crate::fetch) leader: i32,
    pub(in crate::fetch) leader_epoch: i32,
}

/// The cursor that a request is about. A result is dropped if the cursor was removed or moved since.
#[derive(Clone, Debug)]
pub(crate) struct CursorRef {
    pub(in crate::fetch) slot: Slot,
    pub(in crate::fetch) progress: Arc<PartitionProgress>,
    generation: u64,
}

impl CursorRef {
    pub(crate) fn of(cursor: &Cursor) -> Self {
        Self { slot: cursor.slot, progress: cursor.progress.clone(), generation: cursor.generation }
    }

    /// Returns `true` if this is still the same cursor and its position has not moved.
    pub(crate) fn is(&self, cursor: &Cursor) -> bool {
        Arc::ptr_eq(&cursor.progress, &self.progress) && cursor.generation == self.generation
    }
}

/// Facts at the moment of a decision.
pub(in crate::fetch) trait FetchView {
    /// The leader of a partition, if there is one.
    fn leader_info(&self, at: &TopicPartition) -> Option<LeaderInfo>;
    /// Returns `true` if the metadata has the topic with its partitions.
    fn is_topic_known(&self, topic: &str) -> bool;
    /// Returns `true` if the metadata has a broker with this id.
    fn knows_node(&self, node: i32) -> bool;
    /// Returns `true` if the partition's inbox is full. If so, the inbox reports the slot once it has room again.
    fn is_inbox_full(&self, slot: Slot) -> bool;
    /// Returns `true` if nothing waits for a poll.
    fn is_inbox_empty(&self) -> bool;
    /// Bytes of the budget that are free.
    fn budget_room(&self) -> usize;
    /// Responses and decompressed batches in memory.
    fn budget_held(&self) -> usize;
    /// Returns `true` if the first bytes of the broker's response to the fetch in its session have arrived.
    fn is_arriving(&self, node: i32) -> bool;
    /// The start that a reset leads to; it may depend on the wall clock.
    fn start_of(&self, reset: OffsetReset) -> StartAt;
}

/// The part of the configuration that decisions need.
#[derive(Clone, Debug)]
pub(in crate::fetch) struct FetchSettings {
    pub(super) budget_bytes_max: usize,
    pub(super) fetch_min_bytes: usize,
    pub(super) fetch_max_bytes: usize,
    pub(super) max_partition_fetch_bytes: usize,
    pub(super) fetch_wait_max: Duration,
    pub(super) fetch_error_backoff: Option<Duration>,
    pub(super) retry_backoff: Duration,
    pub(super) retry_backoff_max: Duration,
    /// The time for which a preferred replica counts.
    pub(super) metadata_max_age: Duration,
    pub(super) decompressed_max_bytes: usize,
    pub(super) isolation: Isolation,
    pub(super) offset_reset: OffsetReset,
    pub(super) enable_partition_eof: bool,
    /// `true` if the application gets a broker's UNKNOWN_SERVER_ERROR, although the request is repeated.
    pub(super) reports_server_failures: bool,
    /// A response that is later than this is slow; `None` if the client never gives up early.
    pub(super) slow_after: Option<Duration>,
}

impl FetchSettings {
    pub(in crate::fetch) fn new(config: &Config, budget_bytes_max: usize) -> Self {
        Self {
            budget_bytes_max,
            fetch_min_bytes: config.fetch_min_bytes,
            fetch_max_bytes: config.fetch_max_bytes,
            max_partition_fetch_bytes: config.max_partition_fetch_bytes,
            fetch_wait_max: config.fetch_wait_max,
            fetch_error_backoff: config.fetch_error_backoff,
            retry_backoff: config.retry_backoff,
            retry_backoff_max: config.retry_backoff_max,
            metadata_max_age: config.metadata_max_age,
            decompressed_max_bytes: config.decompressed_max_bytes,
            isolation: config.isolation_level,
            offset_reset: config.auto_offset_reset,
            enable_partition_eof: config.enable_partition_eof,
            reports_server_failures: config.group_habits == GroupHabits::Librdkafka,
            slow_after: config.patience(0),
        }
    }

    /// The pause after this many failures in a row: `fetch.error.backoff.ms` if it is set, or longer each time.
    pub(super) fn pause(&self, failures: u32) -> Duration {
        match self.fetch_error_backoff {
            Some(set) => set.max(PAUSE_MIN),
            None => self.retry_backoff.saturating_mul(2 << failures.min(5)).min(PAUSE_MAX),
        }
    }

    /// The pause after a request for a partition's leader that follows this many others: `retry.backoff.ms`, which doubles each time up
    /// to `retry.backoff.max.ms` (KIP-580).
    pub(super) fn leader_pause(&self, requests: u32) -> Duration {
        let doubled = self.retry_backoff.saturating_mul(1 << requests.min(10));
        doubled.min(self.retry_backoff_max.max(self.retry_backoff)).max(PAUSE_MIN)
    }

    /// Blocks the cursor for the pause after its failures.
    pub(super) fn block(&self, cursor: &mut Cursor, now: Instant) {
        cursor.blocked_until = Some(now + self.pause(cursor.failures));
        cursor.failures += 1;
    }

    /// Lets the first attempt after a success happen at once, and each further one after a pause.
    pub(super) fn block_from_second(&self, cursor: &mut Cursor, now: Instant) {
        if cursor.failures > 0 {
            self.block(cursor, now);
        } else {
            cursor.failures = 1;
        }
    }
}

/// Bounds of a pause; the upper one holds for the pause that grows.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_secs(1);
