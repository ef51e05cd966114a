//! Sequences of bytes in several places: reference-counted memory and file ranges.
//!
//! A fetch response consists of header bytes, records that may still be on disk, then the next header. A chain lists
//! these pieces in order. A connection writes the memory with one vectored write and lets the kernel send the file
//! ranges.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};

/// Maximum number of pieces per vectored write. The kernel's own limit is 1024.
pub const WRITE_PIECES_MAX: usize = 64;

/// A file that any number of readers can read at a position.
pub trait ReadAt: Send + Sync + fmt::Debug {
    /// Fills `buf` from `offset`. Returns `UnexpectedEof` if the file ends before `buf` is full.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// The descriptor for `sendfile`, if the file has one.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// `true` if a read of this range probably needs no disk access, as far as a cheap check can determine.
    ///
    /// This is a hint. With `true` a caller reads or sends inline, with `false` it moves the read to a thread that
    /// may block.
    fn is_cached(&self, _offset: u64, _len: usize) -> bool {
        true
    }
}

/// A range of a file.
#[derive(Clone, Debug)]
pub struct FileSlice {
    /// The file. The slice keeps it open after the log has deleted it.
    pub file: Arc<dyn ReadAt>,
    /// Start of the range.
    pub offset: u64,
    /// Length of the range in bytes.
    pub len: usize,
}

impl FileSlice {
    /// Reads the whole range into memory. This call blocks.
    pub fn load(&self) -> io::Result<Bytes> {
        let mut buf = BytesMut::zeroed(self.len);
        self.file.read_exact_at(&mut buf, self.offset)?;
        Ok(buf.freeze())
    }
}

/// One piece of a [`Chain`].
#[derive(Clone, Debug)]
pub enum Piece {
    /// Bytes in memory.
    Memory(Bytes),
    /// Bytes in a file.
    File(FileSlice),
}

impl Piece {
    /// Length of the piece in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File(slice) => slice.len,
        }
    }

    /// `true` if the piece is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Pieces of memory and of files, in the order in which they are read or written.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    pieces: Vec<Piece>,
}

impl Chain {
    /// An empty chain.
    pub const fn new() -> Self {
        Self { pieces: Vec::new() }
    }

    /// Appends memory; an empty slice is ignored.
    pub fn push_bytes(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.pieces.push(Piece::Memory(bytes));
        }
    }

    /// Appends a file range; an empty range is ignored.
    pub fn push_file(&mut self, slice: FileSlice) {
        if slice.len > 0 {
            self.pieces.push(Piece::File(slice));
        }
    }

    /// Appends all pieces of `other`.
    pub fn append(&mut self, other: Self) {
        self.pieces.extend(other.pieces);
    }

    /// Total length in bytes.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Piece::len).sum()
    }

    /// `true` if the chain has no bytes.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The pieces in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The pieces in order, owned.
    pub fn into_pieces(self) -> Vec<Piece> {
        self.pieces
    }

    /// The chain's bytes without a copy, if it is a single piece in memory.
    pub fn as_single(&self) -> Option<&Bytes> {
        match &self.pieces[..] {
            [Piece::Memory(bytes)] => Some(bytes),
            _ => None,
        }
    }

    /// All bytes in one buffer. Copies unless the chain is one piece of memory. Reads files, so it can block.
    pub fn to_bytes(&self) -> io::Result<Bytes> {
        if self.pieces.is_empty() {
            return Ok(Bytes::new());
        }
        if let Some(bytes) = self.as_single() {
            return Ok(bytes.clone());
        }
        let mut out = BytesMut::with_capacity(self.len());
        for piece in &self.pieces {
            match piece {
                Piece::Memory(bytes) => out.extend_from_slice(bytes),
                Piece::File(slice) => out.extend_from_slice(&slice.load()?),
            }
        }
        Ok(out.freeze())
    }
}

/// Pieces of memory to be written, in order.
#[derive(Debug, Default)]
pub struct WriteQueue {
    pieces: VecDeque<Bytes>,
}

impl WriteQueue {
    /// Appends memory.
    pub fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.pieces.push_back(bytes);
        }
    }

    /// `true` if everything is written.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The first piece, up to `bytes_max`, if no other one fits into the same write: a plain write suffices.
    pub fn single(&self, bytes_max: usize) -> Option<&[u8]> {
        let first = self.pieces.front()?;
        let is_single = self.pieces.len() == 1 || first.len() >= bytes_max;
        is_single.then(|| &first[..first.len().min(bytes_max)])
    }

    /// The slices for the next vectored write: at most [`WRITE_PIECES_MAX`], and `bytes_max` in all.
    pub fn slices(&self, bytes_max: usize) -> Vec<IoSlice<'_>> {
        let mut slices = Vec::with_capacity(self.pieces.len().min(WRITE_PIECES_MAX));
        let mut room = bytes_max;
        for piece in self.pieces.iter().take(WRITE_PIECES_MAX) {
            let bytes = piece.len().min(room);
            if bytes == 0 {
                break;
            }
            slices.push(IoSlice::new(&piece[..bytes]));
            room -= bytes;
        }
        slices
    }

    /// Removes the first `n` bytes, which were written.
    ///
    /// # Errors
    /// `WriteZero` if `n` is 0: the peer accepts no more data.
    pub fn written(&mut self, mut n: usize) -> io::Result<()> {
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while let Some(first) = self.pieces.front_mut() {
            if n < first.len() {
                first.advance(n);
                break;
            }
            n -= first.len();
            self.pieces.pop_front();
        }
        Ok(())
    }
}

impl From<Bytes> for Chain {
    fn from(bytes: Bytes) -> Self {
        let mut chain = Self::new();
        chain.push_bytes(bytes);
        chain
    }
}

impl From<FileSlice> for Chain {
    fn from(slice: FileSlice) -> Self {
        let mut chain = Self::new();
        chain.push_file(slice);
        chain
    }
}

/// Chains are equal if their bytes are equal. A chain with an unreadable file equals no other.
impl PartialEq for Chain {
    fn eq(&self, other: &Self) -> bool {
        match (self.to_bytes(), other.to_bytes()) {
            (Ok(a), Ok(b)) => a == b,
            _ => false,
        }
    }
}
