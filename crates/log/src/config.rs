//! The settings of a log: Kafka's topic settings that concern one partition, and a few of our own.

use ottla_wire::{Compression, TimestampType};

use crate::cache_total::CacheTotal;
use crate::producer_total::ProducerTotal;

/// A shorter step of the wall clock is no jump for producers: a clock that is put ahead by less lets them expire so much earlier.
const JUMP_MS_MIN: i64 = 10 * 60 * 1000;

/// Settings of one log. Plain fields; [`LogConfig::default`] has Kafka's defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// `segment.bytes`: a segment is closed before it grows beyond this, and an append of a client has at most so many bytes.
    /// At most `i32::MAX`, as positions in the index have 31 bits. Default 1 GiB.
    pub segment_bytes: u32,
    /// `segment.ms`: a segment is closed when a batch comes this long after its first one. Default 7 days.
    pub segment_ms: i64,
    /// `segment.jitter.ms`: a segment is closed earlier by a random part of this time, which is drawn when it is created: the segments of
    /// many logs then do not close together. Default 0.
    pub segment_jitter_ms: i64,
    /// The seed of that random part. Logs with the same seed have different parts. Default 0.
    pub jitter_seed: u64,
    /// `segment.index.bytes`: a segment is closed when one of its indexes is this large. Default 10 MiB.
    pub segment_index_bytes: u32,
    /// `index.interval.bytes`: one index entry for at least this many bytes of log. Default 4096.
    pub index_interval_bytes: u32,
    /// `retention.bytes`: old segments go while the rest is at least this large; 0 deletes all records, and `None` keeps all.
    /// Default `None`.
    pub retention_bytes: Option<u64>,
    /// `retention.ms`: segments go when their newest record is older; `None` keeps all. Default 7 days.
    pub retention_ms: Option<i64>,
    /// `cleanup.policy` has `delete`: retention by size and age. Default yes.
    pub delete: bool,
    /// `cleanup.policy` has `compact`: records need keys, and [`Log::compact`](crate::Log::compact) keeps the newest of each
    /// key. Default no.
    pub compact: bool,
    /// `min.cleanable.dirty.ratio`: a compaction begins when more of the bytes than this part are dirty. Default 0.5.
    pub dirty_ratio_min: f64,
    /// `delete.retention.ms`: how long a tombstone stays after the compaction that sees it first. Default 1 day.
    pub delete_retention_ms: i64,
    /// `min.compaction.lag.ms`: records stay this long before a compaction may remove them. Default 0.
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`: older records are compacted, however few there are. Default never.
    pub max_compaction_lag_ms: i64,
    /// `max.message.bytes`: the largest batch. Default 1 MiB and 12 bytes.
    pub message_bytes_max: u32,
    /// `compression.type`: the codec in which the batches of clients are to be stored; `None` leaves them as they are. The
    /// caller of [`Log::append`](crate::Log::append) recompresses. Default `None`.
    pub compression: Option<Compression>,
    /// `compression.gzip.level`; `None` is the codec's default. Default `None`.
    pub gzip_level: Option<i32>,
    /// `compression.zstd.level`. Default `None`, which is 3.
    pub zstd_level: Option<i32>,
    /// `flush.messages`: the number of records that may wait for a sync: see [`Log::is_flush_due`](crate::Log::is_flush_due).
    /// Default any.
    pub flush_messages: i64,
    /// `flush.ms`: the time that a record may wait for a sync. Default any.
    pub flush_ms: i64,
    /// The most bytes a compressed batch may have when its records are checked. Default 64 MiB.
    pub decompressed_bytes_max: usize,
    /// `message.timestamp.type`: whose clock the records have. Default the producer's.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`: how far in the past a producer's timestamps may be. Default any.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`: how far in the future they may be. Default 1 hour.
    pub timestamp_after_max_ms: i64,
    /// `producer.id.expiration.ms`: how long an idle producer's sequences are remembered. Default 1 day.
    pub producer_expiration_ms: i64,
    /// `producer.id.expiration.check.interval.ms`: the time between two calls of [`Log::expire_producers`](crate::Log::expire_producers).
    /// Default 10 minutes.
    pub producer_check_ms: i64,
    /// The most producers remembered; above it the longest idle ones are forgotten. Default 100 000, about 30 MB.
    pub producers_max: usize,
    /// The producers and the guards of transactions that all logs with this total may remember together. Default any.
    pub producer_total: ProducerTotal,
    /// Recent batches kept in memory for readers at the tail; nothing is allocated before the first append. Default 8
    /// MiB.
    pub tail_cache_bytes: usize,
    /// The recent batches that all logs with this total may keep in memory together. Default any.
    pub cache_total: CacheTotal,
    /// The offsets that wake readers waiting for growth.
    pub visible: Visible,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3_600_000,
            segment_jitter_ms: 0,
            jitter_seed: 0,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            retention_bytes: None,
            retention_ms: Some(7 * 24 * 3_600_000),
            delete: true,
            compact: false,
            dirty_ratio_min: 0.5,
            delete_retention_ms: 24 * 3_600_000,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            message_bytes_max: (1 << 20) + 12,
            compression: None,
            gzip_level: None,
            zstd_level: None,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            decompressed_bytes_max: 64 << 20,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            producer_expiration_ms: 24 * 3_600_000,
            producer_check_ms: 600_000,
            producers_max: 100_000,
            producer_total: ProducerTotal::default(),
            tail_cache_bytes: 8 << 20,
            cache_total: CacheTotal::default(),
            visible: Visible::End,
        }
    }
}

impl LogConfig {
    /// The level for the codec of `compression.type`; `None` is the codec's default.
    pub fn compression_level(&self) -> Option<i32> {
        match self.compression? {
            Compression::Gzip => self.gzip_level,
            Compression::Zstd => self.zstd_level,
            Compression::None | Compression::Snappy | Compression::Lz4 => None,
        }
    }

    /// The longest step of the wall clock that counts for the ages of producers; a longer one is a jump. A check may be late, and producers
    /// that expire sooner than they are checked must expire, too.
    #[inline]
    pub(crate) fn producer_step_ms_max(&self) -> i64 {
        let of_checks = self.producer_check_ms.saturating_mul(2).max(JUMP_MS_MIN);
        (self.producer_expiration_ms / 2).max(of_checks)
    }

    /// The age at which a segment is closed. A compacted log closes segments in time for `max.compaction.lag.ms`.
    pub(crate) fn segment_ms_max(&self) -> i64 {
        if self.compact { self.segment_ms.min(self.max_compaction_lag_ms) } else { self.segment_ms }
    }

    /// The time by which a segment is closed earlier: `LogConfig.randomSegmentJitter` of Kafka. The same seed gives the same time.
    pub(crate) fn random_segment_jitter(&self, dir: &str, base_offset: i64) -> i64 {
        let max = self.segment_jitter_ms.min(self.segment_ms_max());
        if max <= 0 {
            return 0;
        }
        // FNV-1a: the logs of a broker have different numbers.
        let of_byte = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let of_dir = dir.bytes().chain(base_offset.to_le_bytes()).fold(self.jitter_seed, of_byte);
        fastrand::Rng::with_seed(of_dir).i64(0..max)
    }

    /// Brings values that a log cannot work with to the nearest that it can.
    pub(crate) fn bounded(mut self) -> Self {
        self.segment_bytes = self.segment_bytes.clamp(64, i32::MAX as u32);
        // Room for two entries at least: one is written when a segment is closed.
        self.segment_index_bytes = self.segment_index_bytes.max(24);
        self
    }
}

/// The offset up to which waiting readers see records.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Visible {
    /// To the end: an append is visible at once.
    #[default]
    End,
    /// To what a sync has made durable.
    Synced,
    /// Up to the offset given to [`Tail::advance_visible`](crate::Tail::advance_visible).
    Manual,
}
