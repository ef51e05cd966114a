//! The records that handlers receive.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::sync::Arc;

use ottla_client::{
    Batch, BatchPosition, BatchViews, CorruptBatch, Error, Record, RecordView, TopicPartition,
};
use rustc_hash::FxHashMap;

use crate::core::work::StopOffset;
use crate::error::Failure;
use crate::outputs::Outputs;

/// The records of a work item, not copied from their batches.
#[derive(Debug)]
pub(crate) struct Pieces {
    pub(crate) list: Vec<Piece>,
    /// The offset from which no more records of the partition are started.
    pub(crate) stopped: Arc<StopOffset>,
    /// The failure of its first record, or of the whole item.
    pub(crate) failure: Option<Failure>,
    /// Attempts so far.
    pub(crate) attempts: u32,
    /// Undecodable records, instead of `list`.
    pub(crate) corrupt: Option<CorruptBatch>,
    /// `true` if it is the trial of the circuit breaker: its worker stops at the first failure.
    pub(crate) is_trial: bool,
}

/// Records of one fetched batch.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) batch: Arc<Batch>,
    pub(crate) selection: Selection,
}

#[derive(Clone, Debug)]
pub(crate) enum Selection {
    All,
    At(Vec<RecordPosition>),
}

/// A record's position in its batch, and its offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordPosition {
    pub(crate) position: BatchPosition,
    pub(crate) offset: i64,
}

impl Pieces {
    /// A work item of undecodable records.
    pub(crate) fn corrupt(corrupt: CorruptBatch, stopped: Arc<StopOffset>) -> Self {
        Self { corrupt: Some(corrupt), ..Self::new(Vec::new(), stopped) }
    }

    /// A work item that has not failed.
    pub(crate) fn new(list: Vec<Piece>, stopped: Arc<StopOffset>) -> Self {
        Self { list, stopped, failure: None, attempts: 0, corrupt: None, is_trial: false }
    }

    /// Iterates over the records with their positions.
    pub(crate) fn iter(&self) -> PiecesIter<'_> {
        PiecesIter { rest: self.list.iter(), piece: None }
    }

    /// Iterates over the records alone, in half the time.
    #[inline]
    fn views(&self) -> PiecesViews<'_> {
        PiecesViews { rest: self.list.iter(), piece: None }
    }
}

/// Iterates over records in order, up to one that cannot be read.
#[derive(Clone)]
struct PiecesViews<'a> {
    rest: std::slice::Iter<'a, Piece>,
    piece: Option<PieceViews<'a>>,
}

#[derive(Clone)]
enum PieceViews<'a> {
    All(BatchViews<'a>),
    At(&'a Batch, std::slice::Iter<'a, RecordPosition>),
}

impl<'a> Iterator for PiecesViews<'a> {
    type Item = Result<RecordView<'a>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let next = match &mut self.piece {
                None => None,
                Some(PieceViews::All(views)) => views.next(),
                Some(PieceViews::At(batch, selection)) => {
                    selection.next().and_then(|record| batch.next_at(&mut record.position.clone()))
                }
            };
            if next.is_some() {
                return next;
            }
            let piece = self.rest.next()?;
            self.piece = Some(match &piece.selection {
                Selection::All => PieceViews::All(piece.batch.views()),
                Selection::At(selection) => PieceViews::At(&piece.batch, selection.iter()),
            });
        }
    }
}

/// Iterates over records in order. It continues after unreadable records.
#[derive(Clone)]
pub(crate) struct PiecesIter<'a> {
    rest: std::slice::Iter<'a, Piece>,
    piece: Option<(&'a Arc<Batch>, Walk<'a>)>,
}

#[derive(Clone)]
enum Walk<'a> {
    All(BatchPosition),
    At(std::slice::Iter<'a, RecordPosition>),
}

/// A record and its position.
pub(crate) struct Found<'a> {
    pub(crate) batch: &'a Arc<Batch>,
    pub(crate) position: BatchPosition,
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
                    Walk::At(selection) => selection.next().and_then(|record_position| {
                        let mut position = record_position.position;
                        batch
                            .next_at(&mut position)
                            .map(|record| (record_position.position, position, record))
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
            let walk = match &piece.selection {
                Selection::All => Walk::All(BatchPosition::default()),
                Selection::At(selection) => Walk::At(selection.iter()),
            };
            self.piece = Some((&piece.batch, walk));
        }
    }
}

/// One record, for a handler of single records.
///
/// It dereferences to [`RecordView`].
pub struct Message<'a> {
    pub(crate) record: RecordView<'a>,
    pub(crate) batch: &'a Batch,
    pub(crate) failures: u32,
    pub(crate) outputs: &'a RefCell<Outputs>,
}

impl Message<'_> {
    /// The number of this attempt, from 1, counted while this process owns the partition.
    pub fn attempt(&self) -> u32 {
        self.failures + 1
    }

    /// The number of deliveries of this record to members of the share group, including this one; `None` in a consumer
    /// group.
    pub fn delivery_count(&self) -> Option<i16> {
        self.batch.delivery_count()
    }

    /// Produces an output record. It is written only if the handler succeeds. The input record is done when the
    /// output is acknowledged; in exactly-once mode both are committed in one transaction.
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

/// Records of one partition, in order, for a handler of batches. In a share group they are in the order of their delivery.
///
/// With [`Order::Key`](crate::Order::Key), all in-flight records of a key are in the same batch or in an earlier one.
pub struct Messages<'a> {
    pub(crate) at: &'a TopicPartition,
    pub(crate) pieces: &'a Pieces,
    pub(crate) count: usize,
    pub(crate) failures: u32,
    pub(crate) outputs: &'a RefCell<Outputs>,
    /// `true` after a record could not be read.
    pub(crate) corrupt: Cell<bool>,
}

impl<'a> Messages<'a> {
    /// The partition.
    pub fn at(&self) -> &'a TopicPartition {
        self.at
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Always `false`: a batch has at least one record.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of this attempt, from 1, counted while this process owns the partition.
    pub fn attempt(&self) -> u32 {
        self.failures + 1
    }

    /// Iterates over the records. The iteration ends at a record that cannot be decoded. In that case no record of
    /// the batch is done, whatever the handler returns. The others are handled again; the undecodable one is given
    /// up.
    pub fn iter(&self) -> impl Iterator<Item = RecordView<'a>> + use<'a, '_> {
        self.pieces.views().map_while(|record| {
            if record.is_err() {
                self.corrupt.set(true);
            }
            record.ok()
        })
    }

    /// `true` if an iteration has ended at a record that cannot be decoded: the batch is not done then, whatever the handler returns.
    /// An iteration may also have fewer records than [`Messages::len`] if a damaged record has the offset of the last one.
    pub fn has_undecodable(&self) -> bool {
        self.corrupt.get()
    }

    /// Groups the records by key. The records of a key are in order, and the keys in the order of their first
    /// records.
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

    /// Produces an output record for records of the batch; see [`Message::send`]. It is written unless the whole batch fails.
    /// Do not send outputs of records that are reported in [`BatchFailure::records`](crate::BatchFailure::records): these are
    /// handled again, and their outputs would be written twice.
    pub fn send(&self, record: &Record<'_>) {
        self.outputs.borrow_mut().push(record);
    }
}
