//! Bytes that lie in several places: in refcounted memory, or still in a file.
//!
//! A fetch response is a few header bytes, then records that may still be on disk, then the next header. A chain
//! names those places in order, so that a connection can write them with one vectored write, or let the kernel move
//! the file's part itself.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};

/// Pieces handed to one vectored write; the kernel takes 1024 at most.
pub const WRITE_PIECES_MAX: usize = 64;

/// A file that can be read at a position by any number of readers.
pub trait ReadAt: Send + Sync + fmt::Debug {
    /// Fills `buf` from `offset`; a file that ends before `buf` is full gives `UnexpectedEof`.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// The descriptor for `sendfile`, if there is one.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether reading this range would not wait for a disk, as far as can be told cheaply.
    ///
    /// A hint: `true` lets a caller read or send inline, `false` makes it hand the read to a thread that may block.
    fn is_cached(&self, _offset: u64, _len: usize) -> bool {
        true
    }
}

/// A range of a file.
#[derive(Clone, Debug)]
pub struct FileSlice {
    /// The file; the slice keeps it open, even when the log has deleted it.
    pub file: Arc<dyn ReadAt>,
    /// Where the range starts.
    pub offset: u64,
    /// How many bytes it spans.
    pub len: usize,
}

impl FileSlice {
    /// Reads the whole range into memory. Blocks.
    pub fn load(&self) -> io::Result<Bytes> {
        let mut buf = BytesMut::zeroed(self.len);
        self.file.read_exact_at(&mut buf, self.offset)?;
        Ok(buf.freeze())
    }
}

/// One link of a [`Chain`].
#[derive(Clone, Debug)]
pub enum Piece {
    /// Bytes in memory.
    Memory(Bytes),
    /// Bytes in a file.
    File(FileSlice),
}

impl Piece {
    /// The bytes this piece stands for.
    pub fn len(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File(slice) => slice.len,
        }
    }

    /// Whether it stands for no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Pieces in the order in which they are read or written.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    pieces: Vec<Piece>,
}

impl Chain {
    /// A chain of no bytes.
    pub const fn new() -> Self {
        Self { pieces: Vec::new() }
    }

    /// Appends memory; empty slices are left out.
    pub fn push_bytes(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.pieces.push(Piece::Memory(bytes));
        }
    }

    /// Appends a file range; empty ranges are left out.
    pub fn push_file(&mut self, slice: FileSlice) {
        if slice.len > 0 {
            self.pieces.push(Piece::File(slice));
        }
    }

    /// Appends all pieces of `other`.
    pub fn append(&mut self, other: Self) {
        self.pieces.extend(other.pieces);
    }

    /// How many bytes the pieces stand for, together.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Piece::len).sum()
    }

    /// Whether it stands for no bytes.
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

    /// The only piece, if it is the only one and in memory: no copy.
    pub fn as_single(&self) -> Option<&Bytes> {
        match &self.pieces[..] {
            [Piece::Memory(bytes)] => Some(bytes),
            _ => None,
        }
    }

    /// All bytes in one buffer: copies unless the chain is one piece of memory; reads files, so it can block.
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

/// Pieces of memory that are being written, in order.
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

    /// Whether everything is written.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The only piece left, if it is the only one: a plain write does.
    pub fn single(&self) -> Option<&Bytes> {
        self.pieces.front().filter(|_| self.pieces.len() == 1)
    }

    /// What the next vectored write takes: at most [`WRITE_PIECES_MAX`] pieces.
    pub fn slices(&self) -> Vec<IoSlice<'_>> {
        self.pieces.iter().take(WRITE_PIECES_MAX).map(|piece| IoSlice::new(piece)).collect()
    }

    /// Takes off what a write took.
    ///
    /// # Errors
    /// `WriteZero` when it took nothing: the peer will not take the rest either.
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

/// Chains are equal when their bytes are; a file that cannot be read equals nothing.
impl PartialEq for Chain {
    fn eq(&self, other: &Self) -> bool {
        match (self.to_bytes(), other.to_bytes()) {
            (Ok(a), Ok(b)) => a == b,
            _ => false,
        }
    }
}
