//! Tests the core against a model with random completions, failures, revocations and crashes.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Number of steps in CI; `OTTLA_SOAK_STEPS` overrides it.
const STEPS: u64 = 1_000_000;

const PARTITIONS: usize = 3;
const KEYS: u8 = 5;
/// Records of a partition in one round. All must be handled at the end of it.
const RECORDS: usize = 400;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Order {
    None,
    Partition,
    Key,
}

type Records = Vec<(i64, u8)>;

/// A worker with a work item and its current record.
struct Running {
    work: Work<Records>,
    partition: usize,
    stopped: Arc<StopOffset>,
    index: usize,
    in_hand: bool,
    open: Vec<i64>,
    failed: Vec<Work<Records>>,
    done: usize,
    runs: breaker::FailureRuns,
}

struct Partition {
    log: Records,
    owned: Option<(AssignmentId, Arc<StopOffset>)>,
    /// The partition is being revoked.
    stopping: bool,
    /// Records before the last finished one are still handled.
    draining: bool,
    /// Index of the next record to admit.
    next: usize,
    committed: i64,
    done: BTreeSet<i64>,
    begun: BTreeMap<u8, i64>,
}

struct Model {
    rng: fastrand::Rng,
    order: Order,
    retry: Retry,
    now: Instant,
    core: Core<Records>,
    partitions: Vec<Partition>,
    running: Vec<Running>,
    dead: Vec<(usize, Work<Records>)>,
    late: u64,
}

impl Model {
    fn new(mut rng: fastrand::Rng, now: Instant) -> Self {
        let order = [Order::None, Order::Partition, Order::Key][rng.usize(..3)];
        let mut retry = Retry::times(rng.u32(..3)).delay(Duration::from_millis(5));
        retry.holds = rng.bool();
        let log = |rng: &mut fastrand::Rng| {
            let mut offset = 0;
            let mut gap = move |rng: &mut fastrand::Rng| {
                offset += if rng.u8(..10) == 0 { rng.i64(1..200) } else { 1 };
                offset
            };
            (0..RECORDS).map(|_| (gap(rng), rng.u8(..KEYS))).collect()
        };
        let partition = |rng: &mut fastrand::Rng| Partition {
            log: log(rng),
            owned: None,
            stopping: false,
            draining: false,
            next: 0,
            committed: 0,
            done: BTreeSet::new(),
            begun: BTreeMap::new(),
        };
        let partitions = (0..PARTITIONS).map(|_| partition(&mut rng)).collect();
        let core = Self::core(&mut rng, &retry);
        Self { rng, order, retry, now, core, partitions, running: Vec::new(), dead: Vec::new(), late: 0 }
    }

    fn core(rng: &mut fastrand::Rng, retry: &Retry) -> Core<Records> {
        let breaker = BreakerSettings {
            failures: 6,
            pause: Duration::from_millis(20),
            pause_max: Duration::from_millis(80),
        };
        Core::new(retry.clone(), rng.bool().then_some(breaker), rng.fork())
    }

    fn step(&mut self, failures: bool) {
        let partition = self.rng.usize(..PARTITIONS);
        match self.rng.u8(..100) {
            0..4 => self.assign(partition),
            4..20 => self.admit(partition),
            20..40 => self.take(),
            40..80 => self.work(failures),
            80..86 => self.commit(partition),
            86..94 => self.pass_time(),
            94..97 => self.settle_dead(),
            97 if failures => self.stop(partition),
            98 if failures => self.give_back(partition),
            99 if failures && self.rng.u8(..20) == 0 => self.crash(),
            _ => {}
        }
    }

    fn assign(&mut self, index: usize) {
        let partition = &mut self.partitions[index];
        if partition.owned.is_none() {
            partition.owned = Some(self.core.assign(partition.committed, self.now));
            partition.next = partition.log.partition_point(|(offset, _)| *offset < partition.committed);
            partition.begun.clear();
        }
    }

    fn admit(&mut self, index: usize) {
        let partition = &mut self.partitions[index];
        let Some((assignment, _)) = partition.owned.clone().filter(|_| !partition.stopping) else { return };
        let count = self.rng.usize(1..8).min(partition.log.len() - partition.next);
        let records = partition.log[partition.next..partition.next + count].to_vec();
        partition.next += count;
        if records.is_empty() {
            return;
        }
        let work = |lane, offsets, payload: Records| {
            let size = size_of(&payload);
            Work { assignment, age: 0, lane, offsets, size, failures: 0, payload }
        };
        if self.order != Order::Key {
            let lane = (self.order == Order::Partition).then_some(assignment.slot);
            let offsets = Offsets::Range(records[0].0, records[records.len() - 1].0 + 1);
            let work = work(lane, offsets, records);
            self.core.take_offsets(assignment, &work.offsets, work.size, self.now);
            self.core.admit(work);
            return;
        }
        let offsets = Offsets::Each(records.iter().map(|(offset, _)| *offset).collect());
        let size = size_of(&records);
        self.core.take_offsets(assignment, &offsets, size, self.now);
        for key in 0..KEYS {
            let of_key: Records = records.iter().copied().filter(|(_, its)| *its == key).collect();
            if !of_key.is_empty() {
                let offsets = Offsets::Each(of_key.iter().map(|(offset, _)| *offset).collect());
                // Two keys share a lane, as they do when there are more keys than lanes.
                self.core.admit(work(Some(u32::from(key / 2)), offsets, of_key));
            }
        }
    }

    fn take(&mut self) {
        let Some(work) = self.core.take(self.now) else { return };
        let owner = |partition: &Partition| {
            partition.owned.as_ref().is_some_and(|(assignment, _)| *assignment == work.assignment)
                && (partition.draining || !partition.stopping)
        };
        let partition = self.partitions.iter().position(owner).expect("work only of what is owned");
        let stopped = self.partitions[partition].owned.as_ref().expect("owned").1.clone();
        let (open, failed) = (Vec::new(), Vec::new());
        self.running.push(Running {
            work,
            partition,
            stopped,
            index: 0,
            in_hand: false,
            open,
            failed,
            done: 0,
            runs: breaker::FailureRuns::default(),
        });
    }

    /// A worker starts or ends a record.
    fn work(&mut self, failures: bool) {
        if self.running.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.running.len());
        let running = &mut self.running[at];
        if !running.in_hand {
            if running.stopped.stops(running.work.payload[running.index].0) {
                return self.end(at, false);
            }
            self.begin(at);
            return;
        }
        running.in_hand = false;
        let (offset, key) = running.work.payload[running.index];
        if failures && self.rng.u8(..10) == 0 {
            running.runs.fail();
            if self.retry.holds && self.order != Order::None && running.work.lane.is_some() {
                return self.end(at, true);
            }
            let first = running.index == 0;
            running.open.push(offset);
            running.failed.push(Work {
                assignment: running.work.assignment,
                age: running.work.age,
                lane: None,
                offsets: Offsets::Each(vec![offset]),
                size: running.work.size.part(1),
                failures: if first { running.work.failures } else { 0 } + 1,
                payload: vec![(offset, key)],
            });
        } else {
            // A result that arrives after the revocation does not count for the previous owner.
            if self.partitions[running.partition]
                .owned
                .as_ref()
                .is_some_and(|(assignment, _)| *assignment == running.work.assignment)
            {
                self.partitions[running.partition].done.insert(offset);
            }
            running.done += 1;
            running.runs.succeed();
        }
        running.index += 1;
        if running.index == running.work.payload.len() {
            self.end(at, false);
        }
    }

    fn begin(&mut self, at: usize) {
        let running = &self.running[at];
        let (offset, key) = running.work.payload[running.index];
        let partition = &mut self.partitions[running.partition];
        let owned =
            partition.owned.as_ref().is_some_and(|(assignment, _)| *assignment == running.work.assignment);
        assert!(
            owned && (partition.draining || !partition.stopping),
            "nothing is handled after its lane was taken back"
        );
        if self.order != Order::None && running.work.lane.is_some() {
            let same = |other: &&Running| {
                let record = other.work.payload.get(other.index);
                other.in_hand
                    && other.work.assignment == running.work.assignment
                    && other.work.lane.is_some()
                    && record.is_some_and(|(_, its)| self.order == Order::Partition || *its == key)
            };
            assert_eq!(self.running.iter().filter(same).count(), 0, "one at a time");
            let lane = if self.order == Order::Key { key } else { 0 };
            let last = partition.begun.insert(lane, offset);
            assert!(last.is_none_or(|last| last <= offset), "{offset} after {last:?}");
        }
        self.running[at].in_hand = true;
    }

    fn end(&mut self, at: usize, hold: bool) {
        let running = self.running.swap_remove(at);
        let Running { mut work, index, mut open, mut failed, done, runs, .. } = running;
        let (assignment, lane, offsets) = (work.assignment, work.lane, work.offsets.clone());
        let rest: Records = work.payload.split_off(index);
        let until = rest.first().map_or(i64::MAX, |(offset, _)| *offset);
        let part = |records: &[(i64, u8)], failures| Work {
            assignment,
            age: work.age,
            lane,
            offsets: Offsets::Each(records.iter().map(|(offset, _)| *offset).collect()),
            size: work.size.part(records.len()),
            failures,
            payload: records.to_vec(),
        };
        let before = if index == 0 { work.failures } else { 0 };
        let mut held = hold.then(|| part(&rest[..1], before + 1));
        let rest = &rest[usize::from(hold)..];
        let mut rest = (!rest.is_empty()).then(|| part(rest, if hold { 0 } else { before }));
        open.extend(held.iter().chain(&rest).flat_map(|part| part.offsets.each()));
        let done = work.size.without(done, failed.iter_mut().chain(&mut held).chain(&mut rest));
        let took = Duration::from_micros(done.records as u64);
        let outcome = Outcome {
            assignment,
            age: work.age,
            lane,
            offsets,
            until,
            open,
            done,
            runs,
            deferred: false,
            failed,
            held,
            rest,
            took,
        };
        for given_up in self.core.finish(outcome, self.now) {
            assert_eq!(given_up.payload.len(), 1, "only one record has failed");
            self.dead.push((running.partition, given_up));
        }
    }

    fn settle_dead(&mut self) {
        let Some((partition, work)) = self.dead.pop() else { return };
        let owned = self.partitions[partition]
            .owned
            .as_ref()
            .is_some_and(|(assignment, _)| *assignment == work.assignment);
        let (offset, _) = work.payload[0];
        if owned {
            self.partitions[partition].done.insert(offset);
        }
        let Work { assignment, offsets, size, .. } = work;
        self.core.settle(
            &PendingRecords {
                assignment,
                offsets,
                until: i64::MAX,
                except: Vec::new(),
                size,
                rejected: false,
            },
            self.now,
        );
    }

    fn commit(&mut self, index: usize) {
        let partition = &mut self.partitions[index];
        let Some((assignment, _)) = partition.owned else { return };
        let offset = self.core.progress(assignment).expect("owned").committable.offset;
        let from = partition.log.partition_point(|(its, _)| *its < partition.committed);
        for (before, _) in partition.log[from..].iter().take_while(|(its, _)| *its < offset) {
            assert!(partition.done.contains(before), "{offset} committed, {before} is not done");
        }
        assert!(offset >= partition.committed, "commits never go back");
        partition.committed = offset;
    }

    fn pass_time(&mut self) {
        self.now += Duration::from_millis(self.rng.u64(..10));
        self.core.wake(self.now);
    }

    fn stop(&mut self, index: usize) {
        let partition = &mut self.partitions[index];
        if let Some((assignment, _)) = partition.owned {
            if partition.stopping {
                return;
            }
            partition.stopping = true;
            partition.draining = self.rng.bool();
            if partition.draining {
                self.core.drain(assignment);
            } else {
                self.core.stop(assignment);
            }
        }
    }

    /// Removes a revoked partition when its workers have finished, or at a random time, as after the deadline.
    fn give_back(&mut self, index: usize) {
        let partition = &self.partitions[index];
        let Some((assignment, _)) = partition.owned.clone().filter(|_| partition.stopping) else { return };
        let is_drained = if partition.draining {
            self.core.finish_gaps(assignment, self.now)
        } else {
            self.core.is_idle(assignment)
        };
        if is_drained || self.rng.u8(..8) == 0 {
            self.commit(index);
            self.core.remove(assignment);
            self.partitions[index].owned = None;
            self.partitions[index].stopping = false;
            self.partitions[index].draining = false;
            self.late += 1;
        }
    }

    fn crash(&mut self) {
        self.core = Self::core(&mut self.rng, &self.retry);
        self.running.clear();
        self.dead.clear();
        for partition in &mut self.partitions {
            partition.owned = None;
            partition.stopping = false;
            partition.draining = false;
        }
    }

    /// Runs without failures until every record is handled and committed.
    fn finish(&mut self) -> u64 {
        let mut steps = 0;
        let is_committed = |partition: &Partition| partition.committed == partition.log[RECORDS - 1].0 + 1;
        let through = |model: &Self| model.partitions.iter().all(is_committed);
        while !through(self) {
            for index in 0..PARTITIONS {
                if self.partitions[index].stopping {
                    self.give_back(index);
                }
            }
            self.step(false);
            steps += 1;
            assert!(steps < 500_000, "stuck: {:?}", self.core);
        }
        while !self.running.is_empty() || !self.dead.is_empty() {
            self.step(false);
        }
        for index in 0..PARTITIONS {
            self.commit(index);
            let Partition { done, owned, .. } = &self.partitions[index];
            assert_eq!(done.len(), RECORDS);
            let in_flight = owned.as_ref().map(|(assignment, _)| self.core.in_flight(*assignment));
            assert_eq!(in_flight.unwrap_or_default(), Size::default(), "all records are done");
        }
        steps
    }
}

/// Records of unequal size, so that no estimate is exact.
fn size_of(records: &[(i64, u8)]) -> Size {
    let bytes = records.iter().map(|(offset, _)| 3 + (offset % 5) as usize).sum();
    Size { records: records.len(), bytes }
}

#[test]
fn commits_never_pass_unfinished_work_whatever_happens() {
    let wanted = std::env::var("OTTLA_SOAK_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(STEPS);
    let (mut steps, mut seed, mut late) = (0, 0, 0);
    let begin = Instant::now();
    while steps < wanted {
        seed += 1;
        let mut model = Model::new(fastrand::Rng::with_seed(seed), begin);
        for _ in 0..10_000 {
            model.step(true);
        }
        steps += 10_000 + model.finish();
        late += model.late;
    }
    assert!(late > 100, "partitions were taken back: {late}");
}
