//! The bytes that client, broker and disk agree on: record batches, their checksums and codecs, and varints.
//!
//! ```text
//!   records --BatchBuilder--> Sealed (a chain of frozen bytes) ~~ network, disk ~~> Batches --Records--> views
//! ```
//!
//! Nothing here owns a socket, a clock or a lock. Whoever wants a record's bytes gets slices of the buffer the
//! batch arrived in; whoever writes records writes them once, straight into the batch.

pub mod batch;
pub mod buffer;
pub mod builder;
pub mod chain;
pub mod compress;
pub mod crc;
pub mod frames;
pub mod legacy;
mod prefetch;
pub mod reader;
pub mod varint;

pub use batch::{BatchError, BatchHeader, Batches, Compression, TimestampType};
pub use buffer::{Buffer, BufferHome};
pub use builder::{BatchBuilder, Closed, HeaderRef, Seal, Sealed};
pub use chain::{Chain, FileSlice, Piece, ReadAt, WriteQueue};
pub use compress::CompressError;
pub use reader::{HeadersRef, Mark, RecordError, RecordIter, RecordRef, Records};
