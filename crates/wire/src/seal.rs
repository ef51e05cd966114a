//! Closes and seals a batch: compression, header, checksum. A sealed batch does not change.

use bytes::{Bytes, BytesMut};

use crate::batch::{
    self, BatchHeader, CRC_FROM, Compression, HEADER_BYTES, LOG_OVERHEAD_BYTES, TimestampType,
};
use crate::buffer::Buffer;
use crate::chain::Chain;
use crate::crc::{self, Crc32c};

/// The settings with which a batch is sealed.
#[derive(Clone, Copy, Debug)]
pub struct Seal {
    /// Producer id, or -1.
    pub producer_id: i64,
    /// Producer epoch, or -1.
    pub producer_epoch: i16,
    /// Sequence of the first record, or -1.
    pub base_sequence: i32,
    /// `true` if the batch belongs to a transaction.
    pub transactional: bool,
    /// The codec. A batch that it does not shrink stays uncompressed.
    pub compression: Compression,
    /// The codec's level; `None` is the default.
    pub level: Option<i32>,
}

impl Default for Seal {
    fn default() -> Self {
        Self {
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            transactional: false,
            compression: Compression::None,
            level: None,
        }
    }
}

/// A batch that accepts no more records. It is compressed if configured. Header and checksum are missing, because
/// they need the sender's producer id, epoch and sequence.
#[derive(Debug)]
pub struct Closed {
    pub(crate) body: Body,
    pub(crate) compression: Compression,
    pub(crate) uncompressed_bytes: usize,
    pub(crate) records: Option<Bytes>,
    /// Bytes of memory that `records` keeps.
    pub(crate) records_memory: usize,
    pub(crate) count: u32,
    pub(crate) last_offset_delta: i32,
    pub(crate) base_timestamp: i64,
    pub(crate) max_timestamp: i64,
}

/// The bytes of a closed batch; the first 61 are reserved for the header.
#[derive(Debug)]
pub(crate) enum Body {
    /// Uncompressed: the first `at` bytes of the buffer, and the payloads that were not copied into it.
    Plain {
        buffer: Buffer,
        at: usize,
        shared: Vec<(usize, Bytes)>,
        summed: Summed,
    },
    Compressed(Vec<u8>),
}

/// A finished batch: its bytes are the same for every attempt to send them.
#[derive(Clone, Debug)]
pub struct Sealed {
    /// The decoded header.
    pub header: BatchHeader,
    /// Size of the records before compression, in bytes.
    pub uncompressed_bytes: usize,
    chain: Chain,
    records: Option<Bytes>,
    records_memory: usize,
}

impl Sealed {
    /// The batch as a chain; a clone of it copies no payload.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// The contiguous batch. Copies only if it contains shared payloads.
    pub fn to_bytes(&self) -> Bytes {
        self.chain.to_bytes().unwrap_or_default()
    }

    /// The uncompressed batch, contiguous and without a valid checksum. For a compressed batch it exists only if
    /// [`BatchBuilder::close`](crate::BatchBuilder::close) was called with `keep_records`.
    pub fn records(&self) -> Option<Bytes> {
        match &self.records {
            Some(records) => Some(records.clone()),
            None if self.header.compression() == Ok(Compression::None) => Some(self.to_bytes()),
            None => None,
        }
    }

    /// Bytes of memory that [`Sealed::records`] keeps.
    pub fn records_memory(&self) -> usize {
        self.records_memory
    }

    /// Size of the whole batch in bytes.
    pub fn len(&self) -> usize {
        self.header.total_bytes()
    }

    /// Always `false`: a sealed batch has a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// A copy of the batch with another producer id, epoch and sequence and a new checksum (KIP-360).
    #[must_use]
    pub fn reseal(&self, producer_id: i64, producer_epoch: i16, base_sequence: i32) -> Self {
        let mut bytes = BytesMut::from(&self.to_bytes()[..]);
        let mut header = BatchHeader { producer_id, producer_epoch, base_sequence, ..self.header };
        finish_header(&mut header, &mut bytes, &[], Summed::new(false));
        Self { header, chain: bytes.freeze().into(), ..self.clone() }
    }
}

impl Closed {
    /// Records in the batch.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Size of the whole batch in bytes, header included.
    pub fn len(&self) -> usize {
        match &self.body {
            Body::Plain { at, shared, .. } => at + shared.iter().map(|(_, bytes)| bytes.len()).sum::<usize>(),
            Body::Compressed(bytes) => bytes.len(),
        }
    }

    /// `true` if the batch holds no records.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of memory that the batch holds.
    pub fn memory(&self) -> usize {
        let body = match &self.body {
            Body::Plain { buffer, shared, .. } => {
                buffer.bytes.len() + shared.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
            }
            Body::Compressed(bytes) => bytes.capacity(),
        };
        body + self.records_memory
    }

    /// Writes header and checksum. Codec and level were applied when the batch was closed.
    ///
    /// Offsets start at 0; a broker assigns the real base offset.
    pub fn seal(self, seal: &Seal) -> Sealed {
        let mut header = self.header(seal, self.compression);
        let mut records_memory = self.records_memory;
        let chain = match self.body {
            Body::Plain { mut buffer, at, shared, summed } => {
                let shared_bytes: usize = shared.iter().map(|(_, bytes)| bytes.len()).sum();
                records_memory = if shared.is_empty() { buffer.bytes.len() } else { at + shared_bytes };
                finish_header(&mut header, &mut buffer.bytes[..at], &shared, summed);
                splice_frozen(buffer.freeze(at), shared)
            }
            Body::Compressed(mut bytes) => {
                finish_header(&mut header, &mut bytes, &[], Summed::new(false));
                Bytes::from(bytes).into()
            }
        };
        Sealed {
            header,
            uncompressed_bytes: self.uncompressed_bytes,
            chain,
            records: self.records,
            records_memory,
        }
    }

    /// The header without length and checksum.
    pub(crate) fn header(&self, seal: &Seal, compression: Compression) -> BatchHeader {
        BatchHeader {
            base_offset: 0,
            batch_length: 0,
            partition_leader_epoch: -1,
            crc: 0,
            attributes: batch::attributes(compression, TimestampType::CreateTime, seal.transactional),
            last_offset_delta: self.last_offset_delta,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id: seal.producer_id,
            producer_epoch: seal.producer_epoch,
            base_sequence: seal.base_sequence,
            record_count: self.count as i32,
        }
    }
}

/// Bytes of records added to the checksum at a time, while they are in the nearest CPU cache.
const CHECKSUM_BYTES: usize = 16 << 10;

/// The checksum of the records up to `to`, computed while they are added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summed {
    crc: u32,
    to: usize,
    /// Position at which the checksum is extended next; `usize::MAX` if it is not computed in advance.
    pub(crate) next: usize,
}

impl Summed {
    pub(crate) fn new(wanted: bool) -> Self {
        let next = if wanted { HEADER_BYTES + CHECKSUM_BYTES } else { usize::MAX };
        Self { crc: 0, to: HEADER_BYTES, next }
    }

    /// Extends the checksum to the end of the written bytes.
    #[cold]
    pub(crate) fn go_on(&mut self, written: &[u8]) {
        let crc = crc::extend(self.crc, &written[self.to..]);
        *self = Self { crc, to: written.len(), next: written.len() + CHECKSUM_BYTES };
    }
}

/// Sets length and checksum and writes the header at the front of `buf`; `shared` payloads are spliced in between.
pub(crate) fn finish_header(
    header: &mut BatchHeader,
    buf: &mut [u8],
    shared: &[(usize, Bytes)],
    summed: Summed,
) {
    let shared_bytes: usize = shared.iter().map(|(_, bytes)| bytes.len()).sum();
    header.batch_length = (buf.len() + shared_bytes - LOG_OVERHEAD_BYTES) as i32;
    if let Some(front) = buf.first_chunk_mut::<HEADER_BYTES>() {
        header.write(front);
    }
    header.crc = if shared.is_empty() && summed.to > HEADER_BYTES {
        let records = crc::extend(summed.crc, &buf[summed.to..]);
        crc::combine(crc::crc32c(&buf[CRC_FROM..HEADER_BYTES]), records, buf.len() - HEADER_BYTES)
    } else if shared.is_empty() {
        crc::crc32c(&buf[CRC_FROM..])
    } else {
        let mut crc = Crc32c::new();
        let mut from = CRC_FROM;
        for (at, bytes) in shared {
            crc.update(&buf[from..*at]);
            crc.update(bytes);
            from = *at;
        }
        crc.update(&buf[from..]);
        crc.finish()
    };
    buf[17..21].copy_from_slice(&header.crc.to_be_bytes());
}

pub(crate) fn splice(buf: &[u8], shared: &[(usize, Bytes)]) -> Chain {
    splice_frozen(Bytes::copy_from_slice(buf), shared.to_vec())
}

pub(crate) fn splice_frozen(buf: Bytes, shared: Vec<(usize, Bytes)>) -> Chain {
    if shared.is_empty() {
        return buf.into();
    }
    let mut chain = Chain::new();
    let mut from = 0;
    for (at, bytes) in shared {
        chain.push_bytes(buf.slice(from..at));
        chain.push_bytes(bytes);
        from = at;
    }
    chain.push_bytes(buf.slice(from..));
    chain
}
