//! What handlers are given.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ottla_client::{Batch, CorruptBatch, Position, Record, RecordView, TopicPartition};
use rustc_hash::FxHashMap;

use crate::error::Failure;
use crate::outputs::Outputs;

/// The records of a piece of work, where they lie.
#[derive(Debug)]
pub(crate) struct Pieces {
    pub(crate) list: Vec<Piece>,
    /// Up when nothing more of the partition is to be begun.
    pub(crate) stopped: Arc<AtomicBool>,
    /// Why its first record, or all of it, has failed.
    pub(crate) failure: Option<Failure>,
    /// How often that was tried.
    pub(crate) attempts: u32,
    /// Instead of records, what cannot be decoded.
    pub(crate) corrupt: Option<CorruptBatch>,
}

/// Records of one fetched batch.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) batch: Arc<Batch>,
    pub(crate) picks: Picks,
}

#[derive(Clone, Debug)]
pub(crate) enum Picks {
    All,
    At(Vec<Pick>),
}

/// A record of a batch, and its offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    pub(crate) position: Position,
    pub(crate) offset: i64,
}

impl Pieces {
    /// What cannot be decoded, in the place of records.
    pub(crate) fn corrupt(corrupt: CorruptBatch, stopped: Arc<AtomicBool>) -> Self {
        Self { list: Vec::new(), stopped, failure: None, attempts: 0, corrupt: Some(corrupt) }
    }

    pub(crate) fn iter(&self) -> PiecesIter<'_> {
        PiecesIter { rest: self.list.iter(), piece: None }
    }
}

/// Walks records in order, and goes on behind what cannot be read.
#[derive(Clone)]
pub(crate) struct PiecesIter<'a> {
    rest: std::slice::Iter<'a, Piece>,
    piece: Option<(&'a Arc<Batch>, Walk<'a>)>,
}

#[derive(Clone)]
enum Walk<'a> {
    All(Position),
    At(std::slice::Iter<'a, Pick>),
}

/// A record, and how to find it again.
pub(crate) struct Found<'a> {
    pub(crate) batch: &'a Arc<Batch>,
    pub(crate) position: Position,
    pub(crate) record: RecordView<'a>,
}

impl<'a> Iterator for PiecesIter<'a> {
    type Item = Result<Found<'a>, CorruptBatch>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((batch, walk)) = &mut self.piece {
                let found = match walk {
                    Walk::All(position) => {
                        let before = *position;
                        batch.next_at(position).map(|record| (before, *position, record))
                    }
                    Walk::At(picks) => picks.next().and_then(|pick| {
                        let mut position = pick.position;
                        batch.next_at(&mut position).map(|record| (pick.position, position, record))
                    }),
                };
                if let Some((position, after, record)) = found {
                    return Some(match record {
                        Ok(record) => Ok(Found { batch, position, record }),
                        Err(error) => Err(batch.corrupt_at(&after, &error)),
                    });
                }
            }
            let piece = self.rest.next()?;
            let walk = match &piece.picks {
                Picks::All => Walk::All(Position::default()),
                Picks::At(picks) => Walk::At(picks.iter()),
            };
            self.piece = Some((&piece.batch, walk));
        }
    }
}

/// One record, for a handler that takes them one by one.
///
/// It is what [`RecordView`] is, and knows how often it was tried.
pub struct Message<'a> {
    pub(crate) record: RecordView<'a>,
    pub(crate) failures: u32,
    pub(crate) outputs: &'a RefCell<Outputs>,
}

impl Message<'_> {
    /// 1 when it is handled for the first time since this process has it.
    pub fn attempt(&self) -> u32 {
        self.failures + 1
    }

    /// Produces a record that belongs to this one: it is written if the handler succeeds, and only then. This one is not
    /// done before that is acknowledged; in the exactly-once mode both happen, or neither.
    pub fn send(&self, record: &Record<'_>) {
        self.outputs.borrow_mut().push(record);
    }
}

impl<'a> Deref for Message<'a> {
    type Target = RecordView<'a>;

    fn deref(&self) -> &RecordView<'a> {
        &self.record
    }
}

/// Records of one partition, in order, for a handler that takes them in batches.
///
/// With [`Order::Key`](crate::Order::Key), all that are under way of a key are in the same batch or in one that was
/// handled before.
pub struct Messages<'a> {
    pub(crate) at: &'a TopicPartition,
    pub(crate) pieces: &'a Pieces,
    pub(crate) count: usize,
    pub(crate) failures: u32,
    pub(crate) outputs: &'a RefCell<Outputs>,
    /// Whether something could not be read.
    pub(crate) corrupt: Cell<bool>,
}

impl<'a> Messages<'a> {
    /// The partition.
    pub fn at(&self) -> &'a TopicPartition {
        self.at
    }

    /// How many records.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Never: a batch has one record at least.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// 1 when it is handled for the first time since this process has it.
    pub fn attempt(&self) -> u32 {
        self.failures + 1
    }

    /// The records. If one of them cannot be decoded the walk ends; whatever the handler says then, nothing of the batch is
    /// done: the others come again, without what cannot be decoded, which is given up.
    pub fn iter(&self) -> impl Iterator<Item = RecordView<'a>> + use<'a, '_> {
        self.pieces.iter().map_while(|found| {
            self.corrupt.set(self.corrupt.get() || found.is_err());
            found.ok().map(|found| found.record)
        })
    }

    /// The records by their keys; each key's in order, and the keys in the order of their first records.
    pub fn by_key(&self) -> Vec<(Option<&'a [u8]>, Vec<RecordView<'a>>)> {
        let mut places: FxHashMap<Option<&[u8]>, usize> = FxHashMap::default();
        let mut groups: Vec<(Option<&[u8]>, Vec<RecordView<'_>>)> = Vec::new();
        for record in self.iter() {
            let place = *places.entry(record.key()).or_insert(groups.len());
            if place == groups.len() {
                groups.push((record.key(), Vec::new()));
            }
            groups[place].1.push(record);
        }
        groups
    }

    /// As [`Message::send`], for the batch as a whole.
    pub fn send(&self, record: &Record<'_>) {
        self.outputs.borrow_mut().push(record);
    }
}
