//! Lanes: what must stay in order goes through one of them, one piece of work at a time.

use std::collections::{BTreeMap, VecDeque};

use super::work::{Origin, Work};

/// Queues of work. Work without a lane is as ready as what is at the front of an idle lane.
///
/// The oldest goes first, whatever its lane: none runs ahead of the others by more than what keeps the workers busy, so
/// little is handled twice if this is the last that is heard of the process.
#[derive(Debug)]
pub(crate) struct Lanes<P> {
    all: Vec<Lane<P>>,
    /// By age.
    ready: BTreeMap<u64, Ready<P>>,
    /// Pieces of work that nobody has taken.
    queued: usize,
    /// Their records.
    queued_records: usize,
}

#[derive(Debug)]
struct Lane<P> {
    queue: VecDeque<Work<P>>,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Nothing to do.
    Idle,
    /// Waits for a worker.
    Ready,
    /// A worker has a piece of work of it, of this assignment.
    Busy(Origin),
    /// Its first record has failed, and is not due yet.
    Held,
}

#[derive(Debug)]
enum Ready<P> {
    Lane(u32),
    Free(Work<P>),
}

impl<P> Lanes<P> {
    pub(crate) const fn new() -> Self {
        Self { all: Vec::new(), ready: BTreeMap::new(), queued: 0, queued_records: 0 }
    }

    /// Behind everything that is in its lane.
    pub(crate) fn push(&mut self, work: Work<P>) {
        self.count(&work);
        match work.lane {
            None => self.make_free(work),
            Some(index) => {
                let lane = self.lane(index);
                lane.queue.push_back(work);
                if lane.state == State::Idle {
                    self.make_ready(index);
                }
            }
        }
    }

    /// Back to the front of its lane, which is still busy.
    pub(crate) fn put_back(&mut self, work: Work<P>) {
        self.count(&work);
        match work.lane {
            None => self.make_free(work),
            Some(index) => self.lane(index).queue.push_front(work),
        }
    }

    /// The next piece of work. Its lane is busy until [`Lanes::leave`].
    pub(crate) fn take(&mut self) -> Option<Work<P>> {
        loop {
            let work = match self.ready.pop_first()?.1 {
                Ready::Free(work) => work,
                Ready::Lane(index) => {
                    let lane = self.lane(index);
                    let Some(work) = lane.queue.pop_front() else {
                        lane.state = State::Idle;
                        continue;
                    };
                    lane.state = State::Busy(work.of);
                    work
                }
            };
            self.queued -= 1;
            self.queued_records -= work.size.records;
            return Some(work);
        }
    }

    /// A piece of work of this lane is over, if the lane still waits for it.
    pub(crate) fn leave(&mut self, index: u32, of: Origin) {
        if self.lane(index).state == State::Busy(of) {
            self.go_on(index);
        }
    }

    /// What is at the front of this lane has failed, and is due at the [`Lanes::release`].
    pub(crate) fn hold(&mut self, index: u32) {
        self.lane(index).state = State::Held;
    }

    /// What was held is due.
    pub(crate) fn release(&mut self, index: u32) {
        if self.lane(index).state == State::Held {
            self.go_on(index);
        }
    }

    /// Nobody waits any more for workers that have something of an assignment.
    pub(crate) fn abandon(&mut self, of: Origin) {
        for index in 0..self.all.len() as u32 {
            self.leave(index, of);
        }
    }

    /// Throws away what nobody has taken of an assignment.
    pub(crate) fn purge(&mut self, of: Origin) {
        for index in 0..self.all.len() {
            let lane = &mut self.all[index];
            let was_held = lane.state == State::Held && lane.queue.front().is_some_and(|work| work.of == of);
            lane.queue.retain(|work| work.of != of);
            if was_held {
                self.go_on(index as u32);
            }
        }
        self.ready.retain(|_, ready| !matches!(ready, Ready::Free(work) if work.of == of));
        let free = self
            .ready
            .values()
            .filter_map(|ready| if let Ready::Free(work) = ready { Some(work) } else { None });
        let all = || self.all.iter().flat_map(|lane| &lane.queue);
        self.queued = all().count() + free.clone().count();
        self.queued_records = all().chain(free).map(|work| work.size.records).sum();
    }

    pub(crate) const fn queued(&self) -> usize {
        self.queued
    }

    pub(crate) const fn queued_records(&self) -> usize {
        self.queued_records
    }

    /// Whether a worker would find something. An emptied lane may still stand there: then it finds nothing.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    fn count(&mut self, work: &Work<P>) {
        self.queued += 1;
        self.queued_records += work.size.records;
    }

    fn go_on(&mut self, index: u32) {
        self.lane(index).state = State::Idle;
        self.make_ready(index);
    }

    fn make_free(&mut self, work: Work<P>) {
        self.ready.insert(work.age, Ready::Free(work));
    }

    fn make_ready(&mut self, index: u32) {
        let lane = self.lane(index);
        if let Some(age) = lane.queue.front().map(|work| work.age) {
            lane.state = State::Ready;
            self.ready.insert(age, Ready::Lane(index));
        }
    }

    fn lane(&mut self, index: u32) -> &mut Lane<P> {
        let index = index as usize;
        if index >= self.all.len() {
            self.all.resize_with(index + 1, || Lane { queue: VecDeque::new(), state: State::Idle });
        }
        &mut self.all[index]
    }
}
