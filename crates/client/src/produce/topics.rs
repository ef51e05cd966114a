//! The producer's topics: the queues of their partitions, and the choice of a partition.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use ottla_wire::{BatchBuilder, Records, Seal};
use rustc_hash::FxHashMap;

use super::core::EXPIRY_SPANS;
use super::delivery::{Completion, Delivery, Outcome};
use super::queue::{DeliveryTargets, OpenBatch, Push, PushRefused, Queue, Queues};
use super::{Produce, RetainedRecords};
use crate::clock::Clock;
use crate::config::Config;
use crate::log::Context;
use crate::record::Record;
use crate::types::partitioner::{Availability, Choice, Chosen};

/// The number of different partition counts that one topic may have while a client lives. Each leaves a list of pointers
/// behind, so that a push reads the current list without a lock. Partitions are added by hand, hardly 32 times.
const LISTS_MAX: usize = 32;

/// A topic that is produced to.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) name: Arc<str>,
    /// The client's configuration with the topic's own settings over it.
    pub(crate) config: Arc<Config>,
    /// Records that wait for the topic's metadata.
    pub(crate) unassigned: Arc<Queue>,
    /// By partition number, once for each number of partitions that the topic has had. All lists share their queues.
    lists: [OnceLock<Box<[Arc<Queue>]>>; LISTS_MAX],
    /// The index in `lists` of the current one, plus one; 0 until the topic has metadata. A push reads it without a lock.
    current: AtomicUsize,
    closed: AtomicBool,
    /// A broker has forbidden the topic.
    forbidden: AtomicBool,
    /// The partitions that the application has paused, those without a queue too.
    paused: Mutex<BTreeSet<i32>>,
    /// The sticky partition in the lower half, a generator's state in the upper.
    sticky: AtomicU64,
    /// The time until which the sticky partition stays, with `sticky.partitioning.linger.ms`.
    sticky_until_ms: AtomicI64,
}

/// The reason why a record was not taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RecordRefused {
    /// The queue refused it.
    Queue(i32, PushRefused),
    /// No transaction is open.
    NoTransaction,
    /// A broker has forbidden the topic (`refuse_forbidden_topics`).
    Forbidden,
    /// The topic has so many partitions, and not this one.
    NoSuchPartition(i32, usize),
}

impl Topic {
    fn new(name: Arc<str>, config: Arc<Config>, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            unassigned: Queue::new(name.clone(), -1, config.clone()),
            name,
            config,
            lists: [const { OnceLock::new() }; LISTS_MAX],
            current: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            forbidden: AtomicBool::new(false),
            paused: Mutex::default(),
            sticky: AtomicU64::new(seed | 1),
            sticky_until_ms: AtomicI64::new(i64::MIN),
        })
    }

    /// Encodes a record into the queue of its partition.
    #[expect(
        clippy::inline_always,
        reason = "each call on the way to the queue moves its result through memory once more"
    )]
    #[inline(always)]
    pub(crate) fn push(
        &self,
        queues: &Queues,
        record: &Record<'_>,
        watched: bool,
        how: Push,
    ) -> Result<Option<Delivery>, RecordRefused> {
        if self.forbidden.load(Ordering::Relaxed) {
            return Err(RecordRefused::Forbidden);
        }
        match self.partitions() {
            [] => self.push_unassigned(queues, record, watched, how),
            partitions => self.push_among(partitions, queues, record, watched, how),
        }
    }

    /// Encodes a record into the queue of records that have no partition yet, while the topic has no metadata.
    #[cold]
    fn push_unassigned(
        &self,
        queues: &Queues,
        record: &Record<'_>,
        watched: bool,
        how: Push,
    ) -> Result<Option<Delivery>, RecordRefused> {
        loop {
            let partitions = self.partitions();
            if !partitions.is_empty() {
                return self.push_among(partitions, queues, record, watched, how);
            }
            match self.unassigned.push(queues, how, record, watched) {
                // The unassigned records are moving to their partitions, which appear soon.
                Err(PushRefused::Closed) if !self.closed.load(Ordering::Acquire) => {
                    std::thread::yield_now();
                }
                other => return other.map_err(|refused| RecordRefused::Queue(-1, refused)),
            }
        }
    }

    /// Notes whether a broker forbids the topic. Records are refused only with `refuse_forbidden_topics`.
    pub(crate) fn set_forbidden(&self, forbidden: bool) {
        self.forbidden.store(forbidden && self.config.refuse_forbidden_topics, Ordering::Relaxed);
    }

    /// Records that are booked and not pushed yet.
    pub(crate) fn booked_ahead(&self) -> usize {
        self.partitions().iter().chain([&self.unassigned]).map(|queue| queue.booked_ahead()).sum()
    }

    pub(crate) fn is_available(&self, partition: u32) -> bool {
        self.partitions().get(partition as usize).is_some_and(|queue| queue.is_available())
    }

    /// Pauses or resumes a partition. The topic's metadata may be unknown, and the partition may appear later.
    pub(crate) fn set_paused(&self, partition: i32, paused: bool, queues: &Queues) {
        let mut all = self.lock_paused();
        let has_changed = if paused { all.insert(partition) } else { all.remove(&partition) };
        if has_changed && let Some(queue) = self.queue(partition) {
            queue.set_paused(paused, queues);
        }
    }

    /// Pauses the queues of partitions that were paused before they had one.
    fn pause_new(&self, queues: &Queues) {
        let all = self.lock_paused();
        for queue in all.iter().filter_map(|partition| self.queue(*partition)) {
            queue.set_paused(true, queues);
        }
    }

    fn lock_paused(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        self.paused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue of a partition, also of one that the topic does not have any more.
    fn queue(&self, partition: i32) -> Option<&Arc<Queue>> {
        let index = usize::try_from(partition).ok()?;
        self.lists.iter().filter_map(OnceLock::get).find_map(|all| all.get(index))
    }

    /// The known partitions; empty until the topic has metadata.
    #[inline]
    fn partitions(&self) -> &[Arc<Queue>] {
        let current = self.current.load(Ordering::Acquire);
        current.checked_sub(1).and_then(|at| self.lists[at].get()).map_or(&[], |partitions| partitions)
    }

    /// Encodes a record into the queue of one of these partitions.
    #[expect(
        clippy::inline_always,
        reason = "each call on the way to the queue moves its result through memory once more"
    )]
    #[inline(always)]
    fn push_among(
        &self,
        partitions: &[Arc<Queue>],
        queues: &Queues,
        record: &Record<'_>,
        watched: bool,
        how: Push,
    ) -> Result<Option<Delivery>, RecordRefused> {
        let refused = |refused, partition| RecordRefused::Queue(partition as i32, refused);
        let chosen = if let Some(partition) = record.partition {
            let Ok(partition) = u32::try_from(partition) else {
                return Err(RecordRefused::NoSuchPartition(partition, partitions.len()));
            };
            Chosen::Partition(partition)
        } else {
            let count = partitions.len() as u32;
            let choice = Choice::new(&self.name, record.key, record.tag.get(), count, &partitions);
            self.config.partitioner.choose(&choice)
        };
        let partition = match chosen {
            Chosen::Partition(partition) => partition,
            Chosen::Random => self.next_sticky(partitions),
            Chosen::Sticky => match queues.sticky_linger {
                None => {
                    let sticky = (self.sticky.load(Ordering::Relaxed) as u32) % partitions.len() as u32;
                    let into_open = if how == Push::Forced { Push::Forced } else { Push::IntoOpenBatch };
                    match partitions[sticky as usize].push(queues, into_open, record, watched) {
                        Err(PushRefused::NewBatch) => self.next_sticky(partitions),
                        other => return other.map_err(|why| refused(why, sticky)),
                    }
                }
                Some(linger) => self.sticky_for(linger, &queues.clock, partitions),
            },
            Chosen::Declined => return Err(RecordRefused::NoSuchPartition(-1, partitions.len())),
        };
        let Some(queue) = partitions.get(partition as usize) else {
            return Err(RecordRefused::NoSuchPartition(partition as i32, partitions.len()));
        };
        queue.push(queues, how, record, watched).map_err(|why| refused(why, partition))
    }

    /// The sticky partition; a new one when `linger` has passed since the last choice.
    fn sticky_for(&self, linger: Duration, clock: &Clock, partitions: &[Arc<Queue>]) -> u32 {
        let now_ms = clock.coarse_ms();
        let until_ms = self.sticky_until_ms.load(Ordering::Relaxed);
        if now_ms < until_ms {
            return self.sticky.load(Ordering::Relaxed) as u32 % partitions.len() as u32;
        }
        self.sticky_until_ms.store(now_ms + linger.as_millis() as i64, Ordering::Relaxed);
        self.next_sticky(partitions)
    }

    /// Chooses a new sticky partition: of two at random, the one with fewer batches to send. This reaches the aim of
    /// KIP-794 at the same cost for any number of partitions. A partition with a leader wins against one without.
    fn next_sticky(&self, partitions: &[Arc<Queue>]) -> u32 {
        let count = partitions.len() as u32;
        let mut state = self.sticky.load(Ordering::Relaxed);
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let first = (state >> 32) as u32 % count;
        let second = (first + 1 + (state >> 8) as u32 % (count - 1).max(1)) % count;
        let load = |partition: u32| {
            let queue = &partitions[partition as usize];
            (!queue.is_available(), queue.backlog.load(Ordering::Relaxed))
        };
        let next = if load(second) < load(first) { second } else { first };
        // When two threads race, they share a partition for one batch.
        self.sticky.store((state >> 32 << 32) | u64::from(next), Ordering::Relaxed);
        next
    }

    /// Records which partitions have a leader.
    pub(crate) fn note_leaders(&self, has_leader: impl Fn(i32) -> bool) {
        for queue in self.partitions() {
            queue.set_available(has_leader(queue.partition));
        }
    }

    /// Creates queues for new partitions. Unassigned records move to the first ones before any thread can push behind
    /// them. Only the engine calls this.
    pub(crate) fn grow(&self, count: usize, produce: &Produce) {
        // The queues of a closed topic are closed: it gets no open ones.
        if self.closed.load(Ordering::Acquire) || count <= self.partitions().len() || self.reuse(count) {
            return;
        }
        let Some(free) = self.free_list() else {
            tracing::warn!(topic = %self.name, count, "the topic has grown too often: the producer does not use its newest partitions");
            return;
        };
        // A topic that was created again with fewer partitions still has its earlier queues.
        let most = self.lists.iter().filter_map(OnceLock::get).max_by_key(|all| all.len());
        let known = most.map_or(&[][..], |all| &all[..count.min(all.len())]);
        let new = (known.len()..count)
            .map(|partition| Queue::new(self.name.clone(), partition as i32, self.config.clone()));
        let partitions: Box<[Arc<Queue>]> = known.iter().cloned().chain(new).collect();
        loop {
            while let Some(open) = self.unassigned.take() {
                self.forward(&partitions, open, produce);
            }
            if self.unassigned.close_if_empty(&produce.queues) {
                break;
            }
        }
        self.publish(free, partitions);
        self.pause_new(&produce.queues);
    }

    /// The topic was created again with fewer partitions: no record may go to the others. Only the engine calls this.
    pub(crate) fn shrink(&self, count: usize) {
        let known = self.partitions();
        if count == 0 || count >= known.len() || self.reuse(count) {
            return;
        }
        let fewer: Box<[Arc<Queue>]> = known[..count].into();
        if let Some(free) = self.free_list() {
            self.publish(free, fewer);
        }
    }

    /// Makes the list with so many partitions the current one, if the topic had so many before.
    fn reuse(&self, count: usize) -> bool {
        let has_count = |list: &OnceLock<Box<[Arc<Queue>]>>| list.get().is_some_and(|all| all.len() == count);
        let earlier = self.lists.iter().position(has_count);
        if let Some(at) = earlier {
            self.current.store(at + 1, Ordering::Release);
        }
        earlier.is_some()
    }

    /// The index of a list that is not set.
    fn free_list(&self) -> Option<usize> {
        self.lists.iter().position(|list| list.get().is_none())
    }

    /// Sets the list at this index, and makes it the current one.
    fn publish(&self, free: usize, partitions: Box<[Arc<Queue>]>) {
        if self.lists[free].set(partitions).is_ok() {
            self.current.store(free + 1, Ordering::Release);
        }
    }

    /// Moves the records of an unassigned batch to their partitions.
    fn forward(&self, partitions: &[Arc<Queue>], open: OpenBatch, produce: &Produce) {
        let (memory, count) = (open.memory(), open.builder.count());
        produce.observer.log.debug(Context::Queue, "PARTCNT", || {
            format!(
                "{}: {count} record(s) that had no partition go to {} of them",
                self.name,
                partitions.len()
            )
        });
        let OpenBatch { builder, mut targets, created } = open;
        let watched = targets.completion.is_some();
        let mut forwarded = Vec::with_capacity(if watched { count as usize } else { 0 });
        let sealed = builder.seal(&Seal::default()).ok();
        let records = sealed.and_then(|sealed| Records::of_batch(&sealed.to_bytes(), usize::MAX).ok());
        // Records that moved before may be much older, and these must not expire with them.
        if let Some(then) = created.checked_sub(self.config.delivery_timeout / EXPIRY_SPANS) {
            for queue in partitions {
                queue.retire_older(then, &produce.queues);
            }
        }
        // Before they are booked for their partitions: otherwise the limit would refuse others meanwhile.
        produce.queues.memory.release(memory, count as usize);
        for (at, record) in records.iter().flatten().flatten().enumerate() {
            let record = Record {
                topic: &self.name,
                timestamp_ms: Some(record.timestamp),
                key: record.key,
                value: record.value,
                shared: None,
                headers: record.headers.iter().collect(),
                partition: targets.partitions.get(at).copied().filter(|partition| *partition >= 0),
                tag: targets.tags.get(at).copied().unwrap_or(0).into(),
            };
            match self.push_among(partitions, &produce.queues, &record, watched, Push::Forced) {
                Ok(delivery) => forwarded.extend(delivery),
                // A record for a partition that does not exist fails alone.
                Err(refused) => forwarded.extend(self.refuse_alone(produce, refused, &record, watched)),
            }
        }
        // Their time began when the application handed them over, and no other thread pushes into these queues yet.
        for queue in partitions {
            queue.backdate(created);
        }
        let completion = targets.completion.take();
        if let Some(completion) = completion {
            completion.complete(Outcome::Forwarded(forwarded));
        }
        produce.queues.settle(0, 0);
    }

    /// Fails one record that was taken before.
    fn refuse_alone(
        &self,
        produce: &Produce,
        refused: RecordRefused,
        record: &Record<'_>,
        watched: bool,
    ) -> Option<Delivery> {
        let completion = watched.then(|| Completion::new(self.name.clone(), -1));
        let delivery = completion.clone().map(|completion| Delivery::new(completion, 0));
        let error = produce.refusal(&self.name, refused);
        let mut batch = BatchBuilder::new();
        batch.push(record.timestamp_ms.unwrap_or(-1), record.key, record.value, &record.headers);
        let records = produce.retains_records().then(|| batch.seal(&Seal::default()).ok()).flatten();
        produce.fail_single(
            &self.unassigned,
            DeliveryTargets { completion, tags: vec![record.tag.get()], ..DeliveryTargets::default() },
            Arc::new(error),
            records.and_then(|sealed| RetainedRecords::of(&sealed)),
        );
        delivery
    }

    /// Releases the records that its queues have booked and do not hold.
    fn return_credit(&self, queues: &Queues) {
        self.partitions().iter().chain([&self.unassigned]).for_each(|queue| queue.return_credit(queues));
    }

    /// Closes the topic to records and returns its queues, the unassigned one too.
    pub(crate) fn close(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.closed.store(true, Ordering::Release);
        self.partitions().iter().chain([&self.unassigned])
    }
}

/// All topics that one client produces to.
#[derive(Debug)]
pub(crate) struct Topics {
    by_name: RwLock<FxHashMap<Arc<str>, Arc<Topic>>>,
    /// `true` if new topics are closed, too. It changes under the lock of `by_name`.
    closed: AtomicBool,
    /// The configuration of topics without settings of their own.
    config: Arc<Config>,
    seed: AtomicU64,
}

impl Topics {
    pub(crate) fn new(config: Arc<Config>, seed: u64) -> Self {
        Self {
            by_name: RwLock::default(),
            closed: AtomicBool::new(false),
            config,
            seed: AtomicU64::new(seed),
        }
    }

    /// Releases the records that queues have booked and do not hold, so that the limit is met exactly; `false` if there
    /// cannot be any.
    #[cold]
    pub(crate) fn return_credit(&self, queues: &Queues) -> bool {
        let had_credit = queues.memory.take_has_credit();
        if had_credit {
            self.all().iter().for_each(|topic| topic.return_credit(queues));
        }
        had_credit
    }

    /// The topic of that name, created by the first call; `true` if it is new.
    pub(crate) fn get(&self, name: &str) -> (Arc<Topic>, bool) {
        match self.known(name) {
            Some(topic) => (topic, false),
            None => self.get_with(name, self.config.clone()),
        }
    }

    /// The topic of that name, created with this configuration; `false` if it existed before, with its own.
    pub(crate) fn get_with(&self, name: &str, config: Arc<Config>) -> (Arc<Topic>, bool) {
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(topic) = by_name.get(name) {
            return (topic.clone(), false);
        }
        let name: Arc<str> = name.into();
        let seed = self.seed.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let topic = Topic::new(name.clone(), config, seed);
        if self.closed.load(Ordering::Relaxed) {
            topic.closed.store(true, Ordering::Release);
            topic.unassigned.close_new();
        }
        by_name.insert(name, topic.clone());
        (topic, true)
    }

    pub(crate) fn known(&self, name: &str) -> Option<Arc<Topic>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Closes the topics that are created from now on to records. Returns those that the caller has to close.
    pub(crate) fn close(&self) -> Vec<Arc<Topic>> {
        let by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        self.closed.store(true, Ordering::Relaxed);
        drop(by_name);
        self.all()
    }

    /// Every topic in order of name, so that the order does not depend on chance.
    pub(crate) fn all(&self) -> Vec<Arc<Topic>> {
        let mut all: Vec<_> =
            self.by_name.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}

impl Availability for &[Arc<Queue>] {
    fn has_leader(&self, partition: u32) -> bool {
        self.get(partition as usize).is_some_and(|queue| queue.is_available())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::stats::Observer;

    /// Each change took one of 32 lists. After the last, the topic kept its partition count for the life of the producer.
    #[test]
    fn a_topic_that_is_often_created_again_takes_records_for_all_its_partitions() {
        let config = Arc::new(Config::default());
        let observer = Observer::new(&config, 1);
        let produce = Produce::new(config, observer, fastrand::Rng::with_seed(1));
        let (topic, _) = produce.topics.get("orders");
        let push = || {
            let record = Record::to("orders").partition(3).value("x");
            topic.push(&produce.queues, &record, false, Push::Normal).map(drop)
        };
        topic.grow(4, &produce);
        let queue = topic.partitions()[3].clone();
        for _ in 0..20 {
            topic.shrink(1);
            assert_eq!(push(), Err(RecordRefused::NoSuchPartition(3, 1)));
            topic.grow(4, &produce);
            assert_eq!(push(), Ok(()));
        }
        assert!(Arc::ptr_eq(&queue, &topic.partitions()[3]), "its records are in one queue");
        topic.grow(6, &produce);
        assert_eq!((push(), topic.partitions().len()), (Ok(()), 6));
        assert!(Arc::ptr_eq(&queue, &topic.partitions()[3]));
    }

    /// Each idle partition kept one record of the limit. With a limit below their number, the empty queue took no record any more.
    #[test]
    fn idle_partitions_keep_nothing_of_the_limit_of_records() {
        let mut config = Config::new("");
        (config.queue_buffering_max_messages, config.sticky_partitioning_linger) = (2, None);
        let config = Arc::new(config);
        let observer = Observer::new(&config, 1);
        let produce = Produce::new(config, observer, fastrand::Rng::with_seed(1));
        let (topic, _) = produce.topics.get("orders");
        topic.grow(8, &produce);
        for round in 0..100 {
            let record = Record::to("orders").value("x");
            let pushed = topic.push(&produce.queues, &record, false, Push::Normal).map(drop);
            assert_eq!(pushed, Ok(()), "round {round}");
            for queue in topic.partitions() {
                if let Some(open) = queue.take() {
                    produce.fail_unsent(queue, open, crate::error::ProduceErrorKind::Closed);
                    assert!(queue.unlist_if_empty(&produce.queues));
                }
            }
        }
        assert_eq!(produce.queues.memory.records(), 0);
    }

    /// A partition kept a record of the limit if the limit of bytes refused its record.
    #[test]
    fn a_record_without_memory_keeps_nothing_of_the_limit_of_records() {
        let mut config = Config::new("");
        (config.queue_buffering_max_messages, config.buffer_memory) = (2, 1 << 20);
        let config = Arc::new(config);
        let observer = Observer::new(&config, 1);
        let produce = Produce::new(config, observer, fastrand::Rng::with_seed(1));
        let (topic, _) = produce.topics.get("orders");
        topic.grow(2, &produce);
        let queues = &produce.queues;
        let record = Record::to("orders").partition(0).value("x");
        queues.memory.reserve(1 << 20, Push::Normal).expect("all of it");
        let full: Result<(), _> = Err(RecordRefused::Queue(0, PushRefused::Full));
        assert_eq!(topic.push(queues, &record, false, Push::Normal).map(drop), full);
        assert_eq!(queues.memory.records(), 1);
        assert!(produce.topics.return_credit(queues));
        assert_eq!(queues.memory.records(), 0);
    }

    /// The time of `delivery.timeout.ms` began again once the topic was known.
    #[tokio::test(start_paused = true)]
    async fn a_record_that_waited_for_its_topic_keeps_the_time_since_which_it_waits() {
        let config = Arc::new(Config::default());
        let observer = Observer::new(&config, 1);
        let produce = Produce::new(config, observer, fastrand::Rng::with_seed(1));
        let (topic, _) = produce.topics.get("orders");
        let (began, pause) = (Instant::now(), Duration::from_millis(1));
        for partition in 0..2 {
            let record = Record::to("orders").partition(partition).value("x");
            topic.push(&produce.queues, &record, false, Push::Normal).expect("taken");
            tokio::time::advance(pause).await;
            // The next record is in a batch of its own.
            topic.unassigned.retire_older(Instant::now(), &produce.queues);
        }
        tokio::time::advance(Duration::from_secs(10)).await;
        topic.grow(2, &produce);
        let since = |partition: usize| {
            let mut since = None;
            let taken = topic.partitions()[partition].take_if(&mut |waiting| {
                since = Some(waiting.since);
                false
            });
            assert!(taken.is_none());
            since
        };
        assert_eq!((since(0), since(1)), (Some(began), Some(began + pause)));
    }

    /// All records of a partition moved into one batch, and the youngest expired with the oldest.
    #[tokio::test(start_paused = true)]
    async fn a_young_record_that_waited_for_its_topic_does_not_expire_with_an_old_one() {
        let config = Arc::new(Config::default());
        let observer = Observer::new(&config, 1);
        let produce = Produce::new(config, observer, fastrand::Rng::with_seed(1));
        let (topic, _) = produce.topics.get("orders");
        let (began, pause) = (Instant::now(), topic.config.delivery_timeout / 8);
        for _ in 0..2 {
            let record = Record::to("orders").partition(0).value("x");
            topic.push(&produce.queues, &record, false, Push::Normal).expect("taken");
            tokio::time::advance(pause).await;
            // As the engine does: the next record is in a batch of its own.
            topic.unassigned.retire_older(Instant::now(), &produce.queues);
        }
        topic.grow(1, &produce);
        let taken = std::iter::from_fn(|| topic.partitions()[0].take());
        let created: Vec<Instant> = taken.map(|open| open.created).collect();
        assert_eq!(created, [began, began + pause]);
    }

    #[test]
    fn a_partition_may_be_paused_before_the_topic_has_it() {
        let config = Arc::new(Config::default());
        let observer = Observer::new(&config, 1);
        let produce = Produce::new(config, observer, fastrand::Rng::with_seed(1));
        let (topic, _) = produce.topics.get("orders");
        let paused = || topic.partitions().iter().map(|queue| queue.is_paused()).collect::<Vec<_>>();
        topic.set_paused(1, true, &produce.queues);
        topic.set_paused(-1, true, &produce.queues);
        topic.grow(1, &produce);
        assert_eq!(paused(), [false]);
        topic.grow(3, &produce);
        assert_eq!(paused(), [false, true, false]);
        topic.set_paused(1, false, &produce.queues);
        topic.set_paused(2, true, &produce.queues);
        assert_eq!(paused(), [false, false, true]);
        // A partition that the topic loses and gets again is resumed in between.
        topic.shrink(1);
        topic.set_paused(2, false, &produce.queues);
        topic.grow(3, &produce);
        assert_eq!(paused(), [false; 3]);
    }
}
