//! The neighbours of a consumer's inbox: partitions without offsets, and memory without a limit.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::under_shuttle::tokio_sync::Notify;

/// In place of the client's type.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct TopicPartition(pub u32);

/// The facts of a partition that the inbox keeps after its assignment; nothing in the modelled stories.
#[derive(Debug)]
pub struct Watermarks;

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {}", self.0)
    }
}

/// The index of a partition.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Slot(pub usize);

impl Slot {
    /// Its number.
    pub fn index(self) -> usize {
        self.0
    }
}

/// The model has no transactions.
#[derive(Debug, Default)]
pub struct AbortedTransactions;

/// The model has no errors.
#[derive(Debug)]
pub enum Error {}

/// In place of the client's events.
#[derive(Debug)]
pub enum Event {
    /// Lost partitions.
    Lost(Vec<TopicPartition>),
    /// Revoked partitions.
    Revoked(Vec<TopicPartition>),
}

/// In place of the client's budget.
#[derive(Debug)]
pub struct Budget;

impl Budget {
    /// A budget without a limit.
    pub fn new(_: usize, _: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self)
    }

    /// The bytes that are free.
    pub fn room(&self) -> usize {
        usize::MAX
    }
}

/// The progress of a partition: its generation, and whether it is paused.
#[derive(Debug)]
pub struct PartitionProgress {
    /// The partition.
    pub at: TopicPartition,
    generation: AtomicU64,
    paused: AtomicBool,
}

impl PartitionProgress {
    /// The first generation of a partition.
    pub fn new(at: TopicPartition) -> Self {
        Self { at, generation: AtomicU64::new(0), paused: AtomicBool::new(false) }
    }

    /// The current generation.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Begins another generation.
    pub fn next_generation(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether the partition is paused.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// Pauses or resumes the partition.
    pub fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }
}

/// In place of the watchdog's type.
#[derive(Debug)]
pub struct QueueFacts {
    /// The queue.
    pub id: usize,
    /// The number of polls of the queue.
    pub looks: u64,
    /// Waiting records.
    pub records: u64,
    /// `true` if a record or an error waits.
    pub waits: bool,
}
