//! The record batch, format v2: the 61 bytes before the records, read and patched in place.
//!
//! ```text
//!  0 base_offset i64 | 8 batch_length i32 | 12 partition_leader_epoch i32 | 16 magic i8 | 17 crc u32
//! 21 attributes i16 | 23 last_offset_delta i32 | 27 base_timestamp i64 | 35 max_timestamp i64
//! 43 producer_id i64 | 51 producer_epoch i16 | 53 base_sequence i32 | 57 record_count i32 | 61 records...
//! ```
//!
//! The checksum covers everything from `attributes` to the end. A broker can therefore set the base offset and the
//! leader epoch without a new checksum. It cannot change the timestamps that way.

use crate::crc::crc32c;

/// Bytes before the records of a v2 batch.
pub const HEADER_BYTES: usize = 61;
/// Bytes before the part that `batch_length` counts; the same in every format.
pub const LOG_OVERHEAD_BYTES: usize = 12;
/// Position of `magic`; the same in every format.
pub const MAGIC_AT: usize = 16;
/// Position of the first byte that the checksum covers.
pub const CRC_FROM: usize = 21;
/// The only format this project writes.
pub const MAGIC_V2: i8 = 2;
/// The value for "no producer id", "no epoch" and "no sequence" in a header.
pub const NONE: i64 = -1;

/// The attribute of a batch whose base timestamp is its delete horizon (KIP-534).
pub const DELETE_HORIZON: i16 = 0x40;

const CODEC_MASK: i16 = 0x07;
const LOG_APPEND_TIME: i16 = 0x08;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;

/// The codec of a batch's records. The numbers are those of the attributes field.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Compression {
    /// Not compressed.
    #[default]
    None = 0,
    /// RFC 1952.
    Gzip = 1,
    /// Snappy blocks in Java's (xerial) framing, or one raw block.
    Snappy = 2,
    /// An lz4 frame.
    Lz4 = 3,
    /// A zstd frame (KIP-110).
    Zstd = 4,
}

impl Compression {
    /// The bits of the attributes that have the number.
    pub const MASK: i16 = CODEC_MASK;

    /// Every codec, in the order of its number.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The codec of an attributes field. The error is the number that no codec has.
    pub const fn from_attributes(attributes: i16) -> Result<Self, u8> {
        match attributes & CODEC_MASK {
            0 => Ok(Self::None),
            1 => Ok(Self::Gzip),
            2 => Ok(Self::Snappy),
            3 => Ok(Self::Lz4),
            4 => Ok(Self::Zstd),
            other => Err(other as u8),
        }
    }

    /// The name used in configuration: `none`, `gzip`, `snappy`, `lz4`, `zstd`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

impl std::str::FromStr for Compression {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|codec| codec.name() == name)
            .ok_or_else(|| format!("unknown codec `{name}`: use none, gzip, snappy, lz4 or zstd"))
    }
}

/// The clock that a batch's timestamps come from.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TimestampType {
    /// The producer's clock.
    #[default]
    CreateTime,
    /// The broker's clock at append: every record then has the batch's maximum timestamp.
    LogAppendTime,
}

/// An error in the header or the checksum of a v2 batch.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BatchError {
    /// The input is shorter than a header, or than the length in the header.
    #[error("record batch: {have} bytes, {need} needed")]
    Truncated {
        /// Bytes present.
        have: usize,
        /// Bytes expected.
        need: usize,
    },
    /// `batch_length` is too small for a header, or negative.
    #[error("record batch at offset {base_offset}: impossible length {length}")]
    Length {
        /// The batch's base offset.
        base_offset: i64,
        /// The length it claims.
        length: i32,
    },
    /// A format other than v2.
    #[error("record batch at offset {base_offset}: format v{magic}, expected v2")]
    Magic {
        /// The batch's base offset.
        base_offset: i64,
        /// The format it claims.
        magic: i8,
    },
    /// The checksum does not match the bytes.
    #[error("record batch at offset {base_offset}: CRC {computed:#010x} computed, {stored:#010x} stored")]
    Crc {
        /// The batch's base offset.
        base_offset: i64,
        /// The checksum in the header.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// The attributes name an unknown codec.
    #[error("record batch at offset {base_offset}: unknown codec {codec}")]
    Codec {
        /// The batch's base offset.
        base_offset: i64,
        /// The number found.
        codec: u8,
    },
    /// The record count and the last offset delta contradict each other.
    #[error("record batch at offset {base_offset}: {count} records, last offset delta {last_offset_delta}")]
    Counts {
        /// The batch's base offset.
        base_offset: i64,
        /// The claimed count.
        count: i32,
        /// The claimed delta.
        last_offset_delta: i32,
    },
}

/// The header of a v2 batch, decoded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BatchHeader {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Bytes of the batch after this field.
    pub batch_length: i32,
    /// Epoch of the leader that appended it; -1 when it comes from a producer.
    pub partition_leader_epoch: i32,
    /// CRC-32C of everything from the attributes to the end.
    pub crc: u32,
    /// Codec, timestamp type, transactional and control bits.
    pub attributes: i16,
    /// Offset of the last record minus the base offset. Compaction keeps it when it removes records.
    pub last_offset_delta: i32,
    /// Timestamp of the first record, milliseconds since 1970.
    pub base_timestamp: i64,
    /// The largest timestamp in the batch.
    pub max_timestamp: i64,
    /// Producer id, or -1.
    pub producer_id: i64,
    /// Producer epoch, or -1.
    pub producer_epoch: i16,
    /// Sequence of the first record, or -1.
    pub base_sequence: i32,
    /// Records in the batch.
    pub record_count: i32,
}

impl BatchHeader {
    /// Decodes the header at the front of `bytes` and checks everything that needs no record.
    ///
    /// `bytes` may be shorter than the whole batch: the header's 61 bytes suffice. [`BatchHeader::verify_crc`]
    /// verifies the checksum.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
            // The magic distinguishes an old format from a truncated batch as soon as its byte has arrived.
            if bytes.len() > MAGIC_AT && bytes[MAGIC_AT] as i8 != MAGIC_V2 {
                let magic = bytes[MAGIC_AT] as i8;
                return Err(BatchError::Magic { base_offset: i64::from_be_bytes(at(bytes, 0)), magic });
            }
            return Err(BatchError::Truncated { have: bytes.len(), need: HEADER_BYTES });
        };
        let base_offset = i64::from_be_bytes(at(head, 0));
        let batch_length = i32::from_be_bytes(at(head, 8));
        let magic = head[MAGIC_AT] as i8;
        if magic != MAGIC_V2 {
            return Err(BatchError::Magic { base_offset, magic });
        }
        if batch_length < (HEADER_BYTES - LOG_OVERHEAD_BYTES) as i32 {
            return Err(BatchError::Length { base_offset, length: batch_length });
        }
        let header = Self {
            base_offset,
            batch_length,
            partition_leader_epoch: i32::from_be_bytes(at(head, 12)),
            crc: u32::from_be_bytes(at(head, 17)),
            attributes: i16::from_be_bytes(at(head, 21)),
            last_offset_delta: i32::from_be_bytes(at(head, 23)),
            base_timestamp: i64::from_be_bytes(at(head, 27)),
            max_timestamp: i64::from_be_bytes(at(head, 35)),
            producer_id: i64::from_be_bytes(at(head, 43)),
            producer_epoch: i16::from_be_bytes(at(head, 51)),
            base_sequence: i32::from_be_bytes(at(head, 53)),
            record_count: i32::from_be_bytes(at(head, 57)),
        };
        if header.last_offset_delta < 0
            || header.record_count < 0
            || i64::from(header.record_count) > i64::from(header.last_offset_delta) + 1
            // `next_offset` must not overflow for any input.
            || base_offset.checked_add(i64::from(header.last_offset_delta) + 1).is_none()
        {
            return Err(BatchError::Counts {
                base_offset,
                count: header.record_count,
                last_offset_delta: header.last_offset_delta,
            });
        }
        Ok(header)
    }

    /// Writes the header over the first 61 bytes of `out`.
    pub fn write(&self, out: &mut [u8; HEADER_BYTES]) {
        out[0..8].copy_from_slice(&self.base_offset.to_be_bytes());
        out[8..12].copy_from_slice(&self.batch_length.to_be_bytes());
        out[12..16].copy_from_slice(&self.partition_leader_epoch.to_be_bytes());
        out[MAGIC_AT] = MAGIC_V2 as u8;
        out[17..21].copy_from_slice(&self.crc.to_be_bytes());
        out[21..23].copy_from_slice(&self.attributes.to_be_bytes());
        out[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        out[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        out[35..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        out[43..51].copy_from_slice(&self.producer_id.to_be_bytes());
        out[51..53].copy_from_slice(&self.producer_epoch.to_be_bytes());
        out[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        out[57..61].copy_from_slice(&self.record_count.to_be_bytes());
    }

    /// Bytes of the whole batch, header included.
    pub const fn total_bytes(&self) -> usize {
        LOG_OVERHEAD_BYTES + self.batch_length as usize
    }

    /// Offset of the last record.
    pub const fn last_offset(&self) -> i64 {
        self.base_offset + self.last_offset_delta as i64
    }

    /// Offset of the first record after this batch.
    pub const fn next_offset(&self) -> i64 {
        self.last_offset() + 1
    }

    /// The codec, or an error with the unknown number.
    pub fn compression(&self) -> Result<Compression, BatchError> {
        Compression::from_attributes(self.attributes)
            .map_err(|codec| BatchError::Codec { base_offset: self.base_offset, codec })
    }

    /// The clock that the timestamps come from.
    pub const fn timestamp_type(&self) -> TimestampType {
        if self.attributes & LOG_APPEND_TIME == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// `true` if the batch belongs to a transaction.
    pub const fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    /// `true` if the batch holds a control record, such as a transaction marker, instead of data.
    pub const fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// `true` if `base_timestamp` is the time from which compaction may remove tombstones (KIP-534).
    pub const fn has_delete_horizon(&self) -> bool {
        self.attributes & DELETE_HORIZON != 0
    }

    /// `true` if an idempotent or transactional producer wrote the batch.
    pub const fn has_producer_id(&self) -> bool {
        self.producer_id != NONE
    }

    /// Compares the checksum of the whole batch in `bytes` with the one in the header.
    pub fn verify_crc(&self, bytes: &[u8]) -> Result<(), BatchError> {
        let need = self.total_bytes();
        if bytes.len() < need {
            return Err(BatchError::Truncated { have: bytes.len(), need });
        }
        let computed = crc32c(&bytes[CRC_FROM..need]);
        if computed == self.crc {
            Ok(())
        } else {
            Err(BatchError::Crc { base_offset: self.base_offset, stored: self.crc, computed })
        }
    }
}

/// Returns `true` if the bytes begin with a whole batch that has the right checksum, also if [`BatchHeader::parse`] refuses its
/// header.
pub fn has_right_crc(bytes: &[u8]) -> bool {
    let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else { return false };
    let length = usize::try_from(i32::from_be_bytes(at(head, 8))).ok();
    let end = length.and_then(|length| length.checked_add(LOG_OVERHEAD_BYTES));
    let covered = end.and_then(|end| bytes.get(CRC_FROM..end));
    covered.is_some_and(|covered| crc32c(covered) == u32::from_be_bytes(at(head, 17)))
}

/// The attributes field of a batch.
pub const fn attributes(compression: Compression, timestamps: TimestampType, transactional: bool) -> i16 {
    compression as i16
        | match timestamps {
            TimestampType::CreateTime => 0,
            TimestampType::LogAppendTime => LOG_APPEND_TIME,
        }
        | if transactional { TRANSACTIONAL } else { 0 }
}

/// Sets the base offset of the batch at the front of `batch`. The checksum does not cover it.
///
/// # Panics
/// If `batch` is shorter than a header.
pub fn set_base_offset(batch: &mut [u8], base_offset: i64) {
    batch[0..8].copy_from_slice(&base_offset.to_be_bytes());
}

/// Sets the leader epoch of the batch at the front of `batch`. The checksum does not cover it.
///
/// # Panics
/// If `batch` is shorter than a header.
pub fn set_leader_epoch(batch: &mut [u8], epoch: i32) {
    batch[12..16].copy_from_slice(&epoch.to_be_bytes());
}

/// Sets the timestamps of a whole batch to the broker's (`message.timestamp.type=LogAppendTime`) and recomputes its
/// checksum.
///
/// # Panics
/// If `batch` is shorter than a header.
pub fn set_log_append_time(batch: &mut [u8], timestamp_ms: i64) {
    let attributes = i16::from_be_bytes(at(batch, 21)) | LOG_APPEND_TIME;
    batch[21..23].copy_from_slice(&attributes.to_be_bytes());
    batch[35..43].copy_from_slice(&timestamp_ms.to_be_bytes());
    let crc = crc32c(&batch[CRC_FROM..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// Marks a whole batch as a control batch and recomputes its checksum.
///
/// # Panics
/// If `batch` is shorter than a header.
pub fn set_control(batch: &mut [u8]) {
    let attributes = i16::from_be_bytes(at(batch, 21)) | CONTROL;
    batch[21..23].copy_from_slice(&attributes.to_be_bytes());
    let crc = crc32c(&batch[CRC_FROM..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// Iterator over the consecutive v2 batches in a buffer.
///
/// Yields each header with the byte range of its batch. A batch that is cut off by the end of the buffer, as in any
/// fetch response, ends the iteration without an error. [`Batches::rest`] is then the number of bytes left over.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Batches<'a> {
    /// Starts at the front of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes not yet walked; after the end, those of a truncated batch.
    pub const fn rest(&self) -> usize {
        self.bytes.len() - self.at
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<(BatchHeader, std::ops::Range<usize>), BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.bytes[self.at..];
        match BatchHeader::parse(rest) {
            Ok(header) if header.total_bytes() <= rest.len() => {
                let range = self.at..self.at + header.total_bytes();
                self.at = range.end;
                Some(Ok((header, range)))
            }
            Ok(_) | Err(BatchError::Truncated { .. }) => None,
            Err(error) => {
                self.at = self.bytes.len();
                Some(Err(error))
            }
        }
    }
}

#[inline]
fn at<const N: usize>(bytes: &[u8], from: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[from..from + N]);
    out
}
