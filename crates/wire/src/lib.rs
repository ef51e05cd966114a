//! The byte formats that client, broker and disk share: record batches, their checksums and codecs, and varints.
//!
//! ```text
//!   records --BatchBuilder--> Sealed (a chain of frozen bytes) ~~ network, disk ~~> Batches --Records--> views
//! ```
//!
//! This crate owns no socket, clock or lock. Readers get slices of the buffer that the batch arrived in. Writers copy
//! each record once, into the batch.

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
mod recompress;
mod record_stream;
mod seal;
pub mod varint;

pub use batch::{BatchError, BatchHeader, Batches, Compression, TimestampType};
pub use buffer::{Buffer, BufferHome};
pub use builder::{BatchBuilder, HeaderRef};
pub use chain::{Chain, FileSlice, Piece, ReadAt, WriteQueue};
pub use compress::CompressError;
pub use reader::{HeadersRef, Mark, RecordError, RecordIter, RecordRef, Records};
pub use recompress::recompress;
pub use record_stream::{RecordPosition, RecordStream};
pub use seal::{Closed, Seal, Sealed};
