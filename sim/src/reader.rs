//! Readers: without a group, or as group members that commit automatically or by themselves.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ottla_client::{
    AutoCommitEvent, Batch, Client, Config, Consumer, Error, Event, NotificationQueue, OffsetAndMetadata,
    OffsetReset, Polled, StartAt, TopicPartition,
};
use tokio::time::Instant;

use crate::checker::Reader;
use crate::options::ms;
use crate::topics::GROUPS;
use crate::world::World;

/// A member commits at most so often: the limit of `rates` is for retries.
const COMMIT_EVERY: Duration = Duration::from_millis(50);
/// Time limit of a member's own commit; afterwards its result is unknown.
const COMMIT_WITHIN: Duration = Duration::from_secs(2);

/// Reads in several incarnations until the run ends. `current` is the current incarnation.
pub(crate) async fn read(
    world: World,
    base: Reader,
    current: Rc<Cell<Option<Reader>>>,
    mut rng: fastrand::Rng,
) {
    let mut incarnation = 0;
    loop {
        let reader = Reader { id: base.id * 100 + incarnation, ..base };
        current.set(Some(reader));
        // Some incarnations last to the end, others end early.
        let polls = if rng.bool() { rng.u32(1..30) } else { u32::MAX };
        run_incarnation(&world, reader, polls, &mut rng).await;
        incarnation += 1;
    }
}

/// The properties of every consumer.
pub(crate) fn config(world: &World, reader: Reader, rng: &mut fastrand::Rng) -> Config {
    let mut config = world.config();
    // Not 0: fetches that never wait, on a network without latency, would stop time.
    config.fetch_wait_max = Duration::from_millis(rng.u64(1..500));
    config.session_timeout = Duration::from_secs(3);
    config.heartbeat_interval = Duration::from_millis(300);
    config.auto_commit_interval = Duration::from_millis(200);
    config.auto_offset_reset = OffsetReset::Earliest;
    config.corrupt_returned = true;
    if rng.bool() {
        // Small, so that batches arrive one by one and are truncated.
        config.max_partition_fetch_bytes = rng.usize(1..5_000);
    }
    config.client_id = format!("reader-{}", reader.id);
    config.group_id = reader.group.map(|group| GROUPS[usize::from(group)].to_owned());
    let options = &world.options;
    let assignor = if reader.group == Some(0) { options.assignor } else { options.assignor_second };
    match assignor {
        0 => config.partition_assignment_strategy = vec!["range".into()],
        1 => config.partition_assignment_strategy = vec!["cooperative-sticky".into()],
        _ => {}
    }
    config
}

/// One incarnation of a reader.
struct Incarnation<'a> {
    world: &'a World,
    reader: Reader,
    consumer: Consumer,
    auto_commits: NotificationQueue<AutoCommitEvent>,
    /// The offset after the last record of each partition of this assignment.
    positions: BTreeMap<TopicPartition, i64>,
    /// The same, after handled records that are not committed.
    next: BTreeMap<TopicPartition, i64>,
    commits_itself: bool,
    commit_at: Instant,
}

async fn run_incarnation(world: &World, reader: Reader, polls: u32, rng: &mut fastrand::Rng) {
    let mut config = config(world, reader, rng);
    let commits_itself = reader.group.is_some() && rng.bool();
    config.enable_auto_commit = !commits_itself;
    let (client, mut tasks) = world.client(config, rng.u64(..)).expect("a sound configuration");
    let mut incarnation = Incarnation::new(world, reader, &client, commits_itself);
    incarnation.start().await;
    let mut polled = 0;
    while polled < polls || !world.faults.get() {
        polled += 1;
        incarnation.step(rng).await;
    }
    if reader.group.is_some() && rng.bool() {
        let closed = incarnation.consumer.close(Duration::from_secs(1)).await;
        world.trace.note(format_args!("reader {}: closed, {closed:?}", reader.id));
    } else {
        world.trace.note(format_args!("reader {}: crash", reader.id));
    }
    tasks.shutdown().await;
}

impl<'a> Incarnation<'a> {
    fn new(world: &'a World, reader: Reader, client: &Client, commits_itself: bool) -> Self {
        let (consumer, auto_commits) = (client.consumer(), client.auto_commits());
        let positions = BTreeMap::new();
        Self {
            world,
            reader,
            consumer,
            auto_commits,
            positions,
            next: BTreeMap::new(),
            commits_itself,
            commit_at: Instant::now(),
        }
    }

    async fn start(&mut self) {
        let options = &self.world.options;
        let started = if self.reader.group.is_some() {
            self.consumer.subscribe(&options.topic_names()).await
        } else {
            let all: Vec<_> = (0..options.slots())
                .map(|slot| options.place(slot))
                .map(|(topic, partition)| (TopicPartition::new(topic, partition), StartAt::Beginning))
                .collect();
            self.consumer.assign(&all).await
        };
        if let Err(error) = started {
            self.world.trace.note(format_args!("reader {}: {error}", self.reader.id));
        }
    }

    /// One poll, the handling of what it returns, and perhaps a commit.
    async fn step(&mut self, rng: &mut fastrand::Rng) {
        let (world, id) = (self.world, self.reader.id);
        match self.consumer.poll(Duration::from_millis(500)).await {
            Ok(Some(Polled::Records(batch))) => self.receive(&batch, rng).await,
            Ok(Some(Polled::Corrupt(corrupt))) => {
                world.trace.note(format_args!("reader {id}: {}", corrupt.error()));
                // The disk or the file is repaired in the course of the run.
                tokio::time::sleep(Duration::from_millis(100)).await;
                let (at, from) = (corrupt.at().clone(), StartAt::Offset(corrupt.first_offset()));
                let sought = self.consumer.seek(&at, from).await;
                world.trace.note(format_args!("reader {id}: back to {from:?} of {at}, {sought:?}"));
            }
            Ok(Some(Polled::Event(event))) => {
                world.trace.note(format_args!("reader {id}: {event:?}"));
                match event {
                    Event::Revoked(gone) | Event::Lost(gone) => self.revoked(&gone),
                    Event::Assigned(partitions) => self.assigned(&partitions),
                    _ => {}
                }
            }
            Ok(Some(_) | None) => {}
            Err(Error::Corrupt { topic, partition, reason, .. }) => {
                let at = TopicPartition::new(&topic, partition);
                world.trace.note(format_args!("reader {id}: {at}: {reason}"));
                // The partition has stopped. The disk or the file is repaired in the course of the run.
                tokio::time::sleep(Duration::from_millis(100)).await;
                let first = if self.reader.group.is_some() { StartAt::Committed } else { StartAt::Beginning };
                let position = self.positions.get(&at).map_or(first, |next| StartAt::Offset(*next));
                let sought = self.consumer.seek(&at, position).await;
                world.trace.note(format_args!("reader {id}: {position:?} of {at} again, {sought:?}"));
            }
            Err(error) => {
                world.trace.note(format_args!("reader {id}: {error}"));
                // A repeated immediate error must not stop the clock.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        while let Some(AutoCommitEvent { offsets, result, .. }) = self.auto_commits.try_next() {
            self.note_commit(&offsets, &result);
        }
        if self.commits_itself && !self.next.is_empty() && self.commit_at <= Instant::now() {
            let pause = COMMIT_EVERY * rng.u32(1..4);
            self.commit_at = Instant::now() + pause;
            self.commit().await;
        }
    }

    async fn receive(&mut self, batch: &Batch, rng: &mut fastrand::Rng) {
        let (world, reader) = (self.world, self.reader);
        let slot = world.options.slot(batch.topic(), batch.partition());
        let mut offsets = Vec::new();
        for record in batch {
            match record {
                Ok(record) => {
                    let value = record.value.unwrap_or_default();
                    world.history.borrow_mut().read(reader, slot, record.offset, value);
                    offsets.push(record.offset);
                }
                Err(error) => world.trace.note(format_args!("reader {}: {error}", reader.id)),
            }
        }
        world.trace.note(format_args!("reader {}: {slot} up to {}", reader.id, batch.next_offset()));
        self.positions.insert(batch.at().clone(), batch.next_offset());
        if reader.group.is_none() {
            return;
        }
        if world.options.handling_max > 0 && rng.bool() {
            let within = ms(world.options.handling_max).as_micros() as u64;
            tokio::time::sleep(Duration::from_micros(rng.u64(0..=within))).await;
        }
        for offset in offsets {
            world.history.borrow_mut().handled(reader, slot, offset);
        }
        self.next.insert(batch.at().clone(), batch.next_offset());
    }

    fn assigned(&self, partitions: &[TopicPartition]) {
        for at in partitions {
            let slot = self.world.options.slot(&at.topic, at.partition);
            self.world.history.borrow_mut().assigned(self.reader, slot);
        }
    }

    fn revoked(&mut self, gone: &[TopicPartition]) {
        for at in gone {
            self.next.remove(at);
            self.positions.remove(at);
            let slot = self.world.options.slot(&at.topic, at.partition);
            self.world.history.borrow_mut().revoked(self.reader, slot);
        }
    }

    async fn commit(&mut self) {
        let offsets: Vec<(TopicPartition, OffsetAndMetadata)> =
            std::mem::take(&mut self.next).into_iter().map(|(at, next)| (at, next.into())).collect();
        let committing = self.consumer.commit_offsets(&offsets);
        match tokio::time::timeout(COMMIT_WITHIN, committing).await {
            Ok(result) => self.note_commit(&offsets, &result),
            Err(_) => {
                self.world.trace.note(format_args!("reader {}: a commit without result", self.reader.id));
            }
        }
    }

    fn note_commit(&self, offsets: &[(TopicPartition, OffsetAndMetadata)], result: &Result<(), Error>) {
        let (world, reader) = (self.world, self.reader);
        if let (Ok(()), Some(group)) = (result, reader.group) {
            for (at, offset) in offsets {
                let slot = world.options.slot(&at.topic, at.partition);
                world.history.borrow_mut().commit_acknowledged(group, slot, offset.offset);
            }
        }
        let offsets: Vec<_> = offsets.iter().map(|(at, offset)| format!("{at} {}", offset.offset)).collect();
        world.trace.note(format_args!("reader {}: commit of {offsets:?}: {result:?}", reader.id));
    }
}
