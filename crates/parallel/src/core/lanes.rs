//! Lanes keep order: each lane runs one work item at a time.

use std::collections::{BTreeMap, VecDeque};

use super::work::{AssignmentId, Work};

/// The queues of work items. An item without a lane is ready at once, and so is the front item of an idle lane.
///
/// The oldest ready item is taken first, from any lane. No lane therefore runs far ahead of the others, and few
/// records are handled twice after a crash.
#[derive(Debug)]
pub(crate) struct Lanes<P> {
    all: Vec<Lane<P>>,
    /// Ready items and lanes, by age.
    ready: BTreeMap<u64, Ready<P>>,
    /// Work items that no worker has taken.
    queued: usize,
    /// Records in those work items.
    queued_records: usize,
    /// Those of the work items that wait in a busy or held lane.
    blocked: usize,
}

#[derive(Debug)]
struct Lane<P> {
    queue: VecDeque<Work<P>>,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// The lane is empty.
    Idle,
    /// The lane waits for a worker.
    Ready,
    /// A worker runs an item of this lane, from this assignment.
    Busy(AssignmentId),
    /// The lane's first record has failed and waits for its retry. The number distinguishes this hold from earlier ones, whose end
    /// may come later.
    Held(u64),
}

impl State {
    /// `true` if no worker may take an item of the lane.
    const fn blocks(self) -> bool {
        matches!(self, Self::Busy(_) | Self::Held(_))
    }
}

#[derive(Debug)]
enum Ready<P> {
    Lane(u32),
    Free(Work<P>),
}

impl<P> Lanes<P> {
    pub(crate) const fn new() -> Self {
        Self { all: Vec::new(), ready: BTreeMap::new(), queued: 0, queued_records: 0, blocked: 0 }
    }

    /// Appends a work item to its lane.
    pub(crate) fn push(&mut self, work: Work<P>) {
        self.count(&work);
        match work.lane {
            None => self.make_free(work),
            Some(index) => {
                let lane = self.lane(index);
                lane.queue.push_back(work);
                let state = lane.state;
                self.blocked += usize::from(state.blocks());
                if state == State::Idle {
                    self.make_ready(index);
                }
            }
        }
    }

    /// Returns a work item to the front of its lane, which stays busy.
    pub(crate) fn put_back(&mut self, work: Work<P>) {
        self.count(&work);
        match work.lane {
            None => self.make_free(work),
            Some(index) => {
                let lane = self.lane(index);
                lane.queue.push_front(work);
                let blocks = lane.state.blocks();
                self.blocked += usize::from(blocks);
            }
        }
    }

    /// Takes the oldest ready work item. Its lane is busy until [`Lanes::leave`].
    pub(crate) fn take(&mut self) -> Option<Work<P>> {
        loop {
            let work = match self.ready.pop_first()?.1 {
                Ready::Free(work) => work,
                Ready::Lane(index) => {
                    let Some(work) = self.lane(index).queue.pop_front() else {
                        self.set_state(index, State::Idle);
                        continue;
                    };
                    self.set_state(index, State::Busy(work.assignment));
                    work
                }
            };
            self.queued -= 1;
            self.queued_records -= work.size.records;
            return Some(work);
        }
    }

    /// Ends the lane's work item and makes its next one ready, if the lane is busy with this assignment.
    pub(crate) fn leave(&mut self, index: u32, assignment: AssignmentId) {
        if self.lane(index).state == State::Busy(assignment) {
            self.free_lane(index);
        }
    }

    /// Blocks the lane until [`Lanes::release`] with this number: its front record has failed and will be retried.
    pub(crate) fn hold(&mut self, index: u32, hold: u64) {
        self.set_state(index, State::Held(hold));
    }

    /// Makes a held lane ready: its retry is due. Ignores the end of a hold whose record was removed.
    pub(crate) fn release(&mut self, index: u32, hold: u64) {
        if self.lane(index).state == State::Held(hold) {
            self.free_lane(index);
        }
    }

    /// Frees all lanes that are busy with an assignment, without waiting for its workers.
    pub(crate) fn abandon(&mut self, assignment: AssignmentId) {
        for index in 0..self.all.len() as u32 {
            self.leave(index, assignment);
        }
    }

    /// Removes the queued work items of an assignment, and returns them by age. Returns also the offsets of those that wait for a
    /// retry in a held lane.
    pub(crate) fn remove(&mut self, assignment: AssignmentId) -> (Vec<Work<P>>, Vec<i64>) {
        let (mut removed, mut retried) = (BTreeMap::new(), Vec::new());
        for index in 0..self.all.len() {
            let lane = &mut self.all[index];
            let is_held = matches!(lane.state, State::Held(_));
            let held = lane.queue.front().filter(|work| is_held && work.assignment == assignment);
            let was_held = held.is_some();
            retried.extend(held.iter().flat_map(|work| work.offsets.each()));
            for work in std::mem::take(&mut lane.queue) {
                if work.assignment == assignment {
                    // Parts of one work item share its age.
                    removed.insert((work.age, work.offsets.first()), work);
                } else {
                    lane.queue.push_back(work);
                }
            }
            if was_held {
                self.free_lane(index as u32);
            }
        }
        let is_free = |ready: &Ready<P>| matches!(ready, Ready::Free(work) if work.assignment == assignment);
        let ages: Vec<u64> = self.ready.iter().filter(|(_, it)| is_free(it)).map(|(age, _)| *age).collect();
        for age in ages {
            if let Some(Ready::Free(work)) = self.ready.remove(&age) {
                removed.insert((age, work.offsets.first()), work);
            }
        }
        let free = self
            .ready
            .values()
            .filter_map(|ready| if let Ready::Free(work) = ready { Some(work) } else { None });
        let all = || self.all.iter().flat_map(|lane| &lane.queue);
        self.queued = all().count() + free.clone().count();
        self.queued_records = all().chain(free).map(|work| work.size.records).sum();
        let blocked = self.all.iter().filter(|lane| lane.state.blocks());
        self.blocked = blocked.map(|lane| lane.queue.len()).sum();
        (removed.into_values().collect(), retried)
    }

    /// `true` if work of an assignment is queued.
    pub(crate) fn has_work_of(&self, assignment: AssignmentId) -> bool {
        let is_free = |ready: &Ready<P>| matches!(ready, Ready::Free(work) if work.assignment == assignment);
        self.all.iter().flat_map(|lane| &lane.queue).any(|work| work.assignment == assignment)
            || self.ready.values().any(is_free)
    }

    pub(crate) const fn queued(&self) -> usize {
        self.queued
    }

    /// The queued work items that no busy or held lane keeps waiting. Only these count against the limit of the queue: a lane that
    /// is stuck must not stop the others.
    pub(crate) const fn startable(&self) -> usize {
        self.queued - self.blocked
    }

    /// The queued work items of one lane.
    pub(crate) fn queued_in(&self, index: u32) -> usize {
        self.all.get(index as usize).map_or(0, |lane| lane.queue.len())
    }

    /// `true` if a worker could take new work of this lane at once.
    pub(crate) fn is_idle(&self, index: u32) -> bool {
        self.all.get(index as usize).is_none_or(|lane| lane.state == State::Idle && lane.queue.is_empty())
    }

    pub(crate) const fn queued_records(&self) -> usize {
        self.queued_records
    }

    /// `true` if something may be ready. A lane that was emptied may still be listed: `take` skips it.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    fn count(&mut self, work: &Work<P>) {
        self.queued += 1;
        self.queued_records += work.size.records;
    }

    fn free_lane(&mut self, index: u32) {
        self.set_state(index, State::Idle);
        self.make_ready(index);
    }

    fn set_state(&mut self, index: u32, state: State) {
        let lane = self.lane(index);
        let (blocked, queued) = (lane.state.blocks(), lane.queue.len());
        lane.state = state;
        match (blocked, state.blocks()) {
            (false, true) => self.blocked += queued,
            (true, false) => self.blocked -= queued,
            (false, false) | (true, true) => {}
        }
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
