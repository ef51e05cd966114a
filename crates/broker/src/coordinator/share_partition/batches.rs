//! The batches of a read: their offsets and places, without their records.

use std::io;

use bytes::Bytes;
use ottla_log::AbortedTransaction;
use ottla_wire::batch::{BatchHeader, HEADER_BYTES};
use ottla_wire::{Chain, FileSlice, Piece};

/// Bytes of a file that are read at a time: many headers of small batches, and little of a large one.
const WINDOW_BYTES: usize = 4096;

/// A batch of a read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct BatchSpan {
    pub(crate) base: i64,
    pub(crate) last: i64,
    /// No consumer sees its records: it has those of an aborted transaction, or none.
    pub(crate) is_unseen: bool,
    /// It has control records. A consumer gets them, as in Apache Kafka, and acknowledges them as gaps.
    pub(crate) is_control: bool,
    /// Its place in the chain.
    pub(crate) begin: usize,
    pub(crate) end: usize,
}

/// The whole batches of a chain, which was read below `end`, up to the one with the offset `last_wanted`. A batch that is cut off ends the
/// list. Fails if one of them claims offsets that the log does not have: its file was damaged after it was checked.
pub(crate) fn spans(
    chain: &Chain,
    aborted: &[AbortedTransaction],
    last_wanted: i64,
    end: i64,
) -> io::Result<Vec<BatchSpan>> {
    let mut spans = Vec::new();
    let mut before = 0;
    for piece in chain.pieces() {
        let len = piece.len();
        let mut window = Window::new(piece);
        let mut at = 0;
        while at + HEADER_BYTES <= len {
            let header = BatchHeader::parse(window.header_at(at)?).map_err(io::Error::other)?;
            let end_at = at + header.total_bytes();
            if end_at > len {
                return Ok(spans);
            }
            let next_offset = header.next_offset();
            if next_offset <= header.base_offset || next_offset > end {
                let text = format!(
                    "the batch of offset {} is damaged: it claims to end before {next_offset}, and the log before {end}",
                    header.base_offset
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            let last = next_offset - 1;
            spans.push(BatchSpan {
                base: header.base_offset,
                last,
                is_unseen: is_unseen(&header, aborted),
                is_control: header.is_control(),
                begin: before + at,
                end: before + end_at,
            });
            if last >= last_wanted {
                return Ok(spans);
            }
            at = end_at;
        }
        if at < len {
            return Ok(spans);
        }
        before += len;
    }
    Ok(spans)
}

fn is_unseen(header: &BatchHeader, aborted: &[AbortedTransaction]) -> bool {
    let is_in = |transaction: &AbortedTransaction| {
        transaction.producer_id == header.producer_id
            && (transaction.first_offset..=transaction.last_offset).contains(&header.base_offset)
    };
    let is_aborted = || header.is_transactional() && !header.is_control() && aborted.iter().any(is_in);
    header.record_count == 0 || is_aborted()
}

/// The part of a file, or of memory, in which headers are looked up.
struct Window<'a> {
    piece: &'a Piece,
    from: usize,
    bytes: Bytes,
}

impl<'a> Window<'a> {
    fn new(piece: &'a Piece) -> Self {
        let bytes = match piece {
            Piece::Memory(bytes) => bytes.clone(),
            Piece::File(_) => Bytes::new(),
        };
        Self { piece, from: 0, bytes }
    }

    /// The bytes of the header at this position, which the piece has.
    fn header_at(&mut self, at: usize) -> io::Result<&[u8]> {
        if let Piece::File(slice) = self.piece
            && (at < self.from || at + HEADER_BYTES > self.from + self.bytes.len())
        {
            let part = FileSlice {
                file: slice.file.clone(),
                offset: slice.offset + at as u64,
                len: WINDOW_BYTES.min(slice.len - at),
            };
            (self.from, self.bytes) = (at, part.load()?);
        }
        Ok(&self.bytes[at - self.from..][..HEADER_BYTES])
    }
}

/// The bytes of a chain from `begin` to `end`, without a copy.
pub(crate) fn part(chain: &Chain, begin: usize, end: usize) -> Chain {
    let mut part = Chain::new();
    let mut before = 0;
    for piece in chain.pieces() {
        let len = piece.len();
        let (from, to) = (begin.max(before) - before, end.min(before + len).saturating_sub(before));
        if from < to {
            match piece {
                Piece::Memory(bytes) => part.push_bytes(bytes.slice(from..to)),
                Piece::File(slice) => part.push_file(FileSlice {
                    file: slice.file.clone(),
                    offset: slice.offset + from as u64,
                    len: to - from,
                }),
            }
        }
        before += len;
    }
    part
}

#[cfg(test)]
mod tests {
    use ottla_wire::{BatchBuilder, Seal};

    use super::*;

    /// The first byte of the delta of a batch's last offset.
    const LAST_OFFSET_DELTA_AT: usize = 23;

    fn chain(bytes: Vec<u8>) -> Chain {
        let mut chain = Chain::new();
        chain.push_bytes(bytes.into());
        chain
    }

    /// A share group acquired a billion offsets for a flipped bit of a file, and its members got no record behind them.
    #[test]
    fn a_batch_that_claims_offsets_beyond_the_end_of_the_log_is_damaged() {
        let mut batch = BatchBuilder::new();
        batch.push(0, None, Some(b"x"), &[]);
        let mut bytes = batch.seal(&Seal::default()).expect("sealed").to_bytes().to_vec();
        let sound = spans(&chain(bytes.clone()), &[], 0, 1).expect("sound");
        assert_eq!(sound.iter().map(|span| (span.base, span.last)).collect::<Vec<_>>(), [(0, 0)]);
        bytes[LAST_OFFSET_DELTA_AT] |= 0x40;
        let error = spans(&chain(bytes), &[], 0, 1).expect_err("damaged");
        assert!(error.to_string().contains("damaged"), "{error}");
    }
}
