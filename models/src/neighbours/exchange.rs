//! The neighbours of a processor's exchange: a core whose work items are numbers.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// In place of the client's type.
pub type TopicPartition = u32;
/// A work item's records.
#[derive(Debug, Default)]
pub struct Pieces {
    /// The item's number.
    pub number: u32,
    /// As in the processor. The model's breaker stays closed.
    pub is_trial: bool,
}

/// The work of one partition, in order.
#[derive(Debug, Default)]
pub struct Core<P> {
    lanes: Lanes<P>,
    taken: usize,
    /// The items that were finished.
    pub finished: usize,
}

/// The work that no worker has.
#[derive(Debug)]
pub struct Lanes<P>(VecDeque<Work<P>>);

impl<P> Default for Lanes<P> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

/// A work item of one record.
#[derive(Debug)]
pub struct Work<P> {
    /// The item's partition.
    pub assignment: AssignmentId,
    /// The item's records.
    pub payload: P,
}

/// In place of the core's type.
#[derive(Clone, Copy, Debug, Default)]
pub struct AssignmentId {
    /// The only partition's.
    pub slot: u32,
}

/// In place of the core's type.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    /// The number of records.
    pub records: usize,
}

/// The result of a work item.
#[derive(Debug, Default)]
pub struct Outcome<P> {
    /// The item's partition.
    pub assignment: AssignmentId,
    /// The item's offsets.
    pub offsets: (),
    /// The first offset that was not handled.
    pub until: i64,
    /// Offsets of failed records.
    pub open: Vec<i64>,
    /// The records that are done.
    pub done: Size,
    /// `true` if the item has outputs.
    pub deferred: bool,
    /// The total handling time.
    pub took: Duration,
    /// Failed work.
    pub failed: Vec<Work<P>>,
}

/// In place of the core's type.
#[derive(Debug)]
pub struct PendingRecords {
    /// As in [`Outcome`].
    pub assignment: AssignmentId,
    /// As in [`Outcome`].
    pub offsets: (),
    /// As in [`Outcome`].
    pub until: i64,
    /// As in [`Outcome::open`].
    pub except: Vec<i64>,
    /// As in [`Outcome::done`].
    pub size: Size,
    /// `true` if the records are given up.
    pub rejected: bool,
}

/// The outputs of a handler.
#[derive(Debug, Default)]
pub struct Outputs;

impl Outputs {
    /// The model's handlers produce nothing.
    pub fn is_empty(&self) -> bool {
        true
    }
}

/// In place of the core's type.
#[derive(Debug)]
pub struct Breaker;

impl Breaker {
    /// The model's handlers do not fail.
    pub fn is_closed(&self) -> bool {
        true
    }

    /// It stays closed.
    pub fn open_until(&self) -> Option<Instant> {
        None
    }
}

impl Core<Pieces> {
    /// Adds a work item.
    pub fn add(&mut self, number: u32) {
        let payload = Pieces { number, is_trial: false };
        self.lanes.0.push_back(Work { assignment: AssignmentId::default(), payload });
    }
}

impl<P> Core<P> {
    /// No item waits for a retry.
    pub fn next_due(&self) -> Option<Instant> {
        None
    }

    /// The model commits nothing.
    pub fn finished_offset(&self, _: AssignmentId) -> Option<i64> {
        None
    }

    /// `true` if a worker could take an item.
    pub fn can_start(&self, _: Instant) -> bool {
        self.lanes.has_ready()
    }

    /// The next work item.
    pub fn take(&mut self, _: Instant) -> Option<Work<P>> {
        let work = self.lanes.0.pop_front()?;
        self.taken += 1;
        Some(work)
    }

    /// Counts a finished item, and returns the work that is given up: none.
    pub fn finish(&mut self, outcome: Outcome<P>, _: Instant) -> Vec<Work<P>> {
        self.taken -= 1;
        self.finished += 1;
        outcome.failed
    }

    /// The model's handlers produce nothing, so no item waits for a write.
    pub fn settle(&mut self, _: &PendingRecords, _: Instant) {}

    /// Drops the work that no worker has.
    pub fn stop_all(&mut self) {
        self.lanes.0.clear();
    }

    /// The work that no worker has.
    pub fn lanes(&self) -> &Lanes<P> {
        &self.lanes
    }

    /// Each item is worth a worker of its own.
    pub fn record_time(&self) -> Duration {
        Duration::from_millis(1)
    }

    /// The model's assignment does not end.
    pub fn is_known(&self, _: AssignmentId) -> bool {
        true
    }

    /// The records that workers have.
    pub fn in_flight(&self, _: AssignmentId) -> Size {
        Size { records: self.taken }
    }

    /// In place of the core's breaker.
    pub fn breaker(&self) -> &Breaker {
        &Breaker
    }
}

impl<P> Lanes<P> {
    /// The number of work items.
    pub fn queued(&self) -> usize {
        self.0.len()
    }

    /// The number of work items of the only partition.
    pub fn queued_in(&self, _: u32) -> usize {
        self.0.len()
    }

    /// The number of work items that can be started.
    pub fn startable(&self) -> usize {
        self.0.len()
    }

    /// The number of records.
    pub fn queued_records(&self) -> usize {
        self.0.len()
    }

    /// `true` if a worker could take an item.
    pub fn has_ready(&self) -> bool {
        !self.0.is_empty()
    }
}
