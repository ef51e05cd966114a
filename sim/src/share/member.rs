//! A member of the share group, in several incarnations.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ottla_client::{
    AcknowledgeType, AcknowledgementResult, Config, NotificationQueue, ShareAcknowledgementMode,
    ShareAcquireMode, ShareBatch, ShareConsumer,
};
use tokio::time::Instant;

use super::{SHARERS, SharedShareHistory};
use crate::options::{Options, ms};
use crate::world::World;

/// Pause after an error and between two incarnations, so that what fails at once does not stop the clock.
const ERROR_PAUSE: Duration = Duration::from_millis(100);
/// Pause after acknowledgements that are sent at once: `rates` limits requests that move no records.
const ACKNOWLEDGED_PAUSE: Duration = Duration::from_millis(50);
/// Time limit of a commit and of a close.
const CALL_WITHIN: Duration = Duration::from_secs(2);
/// One in so many batches is handled longer than its lock lasts.
const SLOW_ONE_IN: u32 = 40;

/// The end of an incarnation while there are faults.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Crash,
    Close,
    Never,
}

/// Consumes until the run ends.
pub(super) async fn consume(world: World, history: SharedShareHistory, id: u32, mut rng: fastrand::Rng) {
    loop {
        run_incarnation(&world, &history, id, &mut rng).await;
        tokio::time::sleep(ERROR_PAUSE).await;
    }
}

/// Acknowledgements without a result.
struct Sent {
    by_record: BTreeMap<(i32, i64), Outstanding>,
    results: NotificationQueue<AcknowledgementResult>,
}

/// The acknowledgements of one record without a result.
///
/// Their results may come in another order than they were sent: after a move, the former leader answers later than the new one.
#[derive(Default)]
struct Outstanding {
    /// The types, and the delivery counts of the record.
    acks: VecDeque<(AcknowledgeType, i16)>,
    /// There were two types at one time: no result is taken for either, until none is outstanding.
    is_ambiguous: bool,
}

impl Outstanding {
    fn add(&mut self, ack: AcknowledgeType, count: i16) {
        self.is_ambiguous |= self.acks.iter().any(|(other, _)| *other != ack);
        self.acks.push_back((ack, count));
    }

    /// Takes the acknowledgement of a result; `None` if it is not known which of several it is.
    fn take(&mut self) -> Option<(AcknowledgeType, i16)> {
        let lowest = self.acks.iter().map(|(_, count)| *count).min();
        let taken = self.acks.pop_front().filter(|_| !self.is_ambiguous);
        self.is_ambiguous &= !self.acks.is_empty();
        Some((taken?.0, lowest?))
    }
}

struct Member<'a> {
    world: &'a World,
    history: &'a SharedShareHistory,
    id: u32,
    consumer: ShareConsumer,
    is_explicit: bool,
    sent: Sent,
    /// The records of the last poll, which the next one accepts, with implicit acknowledgement.
    last: Vec<(i32, i64, i16)>,
}

async fn run_incarnation(world: &World, history: &SharedShareHistory, id: u32, rng: &mut fastrand::Rng) {
    let is_explicit = rng.u8(0..3) > 0;
    let config = config(world, id, is_explicit, rng);
    let end = [End::Crash, End::Close, End::Never][rng.usize(0..3)];
    let until = Instant::now() + ms(rng.i64(200..6_000));
    let (client, mut tasks) = world.client(config, rng.u64(..)).expect("a sound configuration");
    let mut consumer = client.share_consumer().expect("a group");
    let topics = world.options.topic_names();
    if let Err(error) = consumer.subscribe(&topics).await {
        world.trace.note(format_args!("sharer {id}: {error}"));
    }
    let sent = Sent { by_record: BTreeMap::new(), results: consumer.acknowledgement_results() };
    let mut member = Member { world, history, id, consumer, is_explicit, sent, last: Vec::new() };
    while end == End::Never || !world.faults.get() || Instant::now() < until {
        member.step(rng).await;
    }
    world.trace.note(format_args!("sharer {id}: {end:?}"));
    if end == End::Close {
        member.close().await;
    }
    tasks.shutdown().await;
}

fn config(world: &World, id: u32, is_explicit: bool, rng: &mut fastrand::Rng) -> Config {
    let mut config = world.config();
    config.client_id = format!("sharer-{id}");
    config.group_id = Some(SHARERS.into());
    config.fetch_wait_max = Duration::from_millis(rng.u64(1..500));
    config.max_poll_records = rng.usize(1..60);
    if is_explicit {
        config.share_acknowledgement_mode = ShareAcknowledgementMode::Explicit;
    }
    if rng.bool() {
        config.share_acquire_mode = ShareAcquireMode::RecordLimit;
    }
    config
}

fn slow_handling(options: &Options) -> Duration {
    ms(options.lock_duration) * 3 / 2
}

/// The time that slow handling takes in all if each poll returns one record; some records are delivered twice.
pub(crate) fn slow_handling_in_all(options: &Options) -> Duration {
    let records = u32::try_from(options.producers * options.records).unwrap_or(u32::MAX / 2);
    slow_handling(options) * 2 / SLOW_ONE_IN * records
}

impl Member<'_> {
    /// Polls and handles one batch.
    async fn step(&mut self, rng: &mut fastrand::Rng) {
        self.accept_last();
        let polled = self.consumer.poll(Duration::from_millis(500)).await;
        self.take_results();
        match polled {
            Ok(Some(batch)) => self.handle(&batch, rng).await,
            Ok(None) => {}
            Err(error) => {
                self.world.trace.note(format_args!("sharer {}: {error}", self.id));
                tokio::time::sleep(ERROR_PAUSE).await;
            }
        }
    }

    async fn handle(&mut self, batch: &ShareBatch, rng: &mut fastrand::Rng) {
        let slot = self.world.options.slot(batch.topic(), batch.partition());
        let records: Vec<(i64, i16)> =
            batch.iter().map(|record| (record.offset(), record.delivery_count())).collect();
        self.world.trace.note(format_args!("sharer {}: {slot}: {records:?}", self.id));
        for (offset, count) in &records {
            self.history.lock().delivered(slot, *offset, *count);
        }
        let handling_max = self.world.options.handling_max;
        if rng.u32(0..SLOW_ONE_IN) == 0 {
            tokio::time::sleep(slow_handling(&self.world.options)).await;
        } else if handling_max > 0 {
            tokio::time::sleep(Duration::from_micros(rng.u64(0..=ms(handling_max).as_micros() as u64))).await;
        }
        if !self.is_explicit {
            self.last.extend(records.iter().map(|(offset, count)| (slot, *offset, *count)));
        } else if self.acknowledge(batch, slot, rng) {
            // A renewal is sent by the next poll at once.
            tokio::time::sleep(ACKNOWLEDGED_PAUSE).await;
        }
        if rng.u8(0..4) == 0 {
            self.accept_last();
            let committed = tokio::time::timeout(CALL_WITHIN, self.consumer.commit()).await;
            self.world.trace.note(format_args!("sharer {}: commit: {committed:?}", self.id));
            self.take_results();
            tokio::time::sleep(ACKNOWLEDGED_PAUSE).await;
        }
    }

    /// Acknowledges each record. Returns `true` if one was renewed.
    fn acknowledge(&mut self, batch: &ShareBatch, slot: i32, rng: &mut fastrand::Rng) -> bool {
        let mut has_renewed = false;
        for record in batch {
            let ack = match rng.u8(0..20) {
                0 => AcknowledgeType::Reject,
                1..4 => AcknowledgeType::Release,
                4 | 5 => AcknowledgeType::Renew,
                _ => AcknowledgeType::Accept,
            };
            has_renewed |= ack == AcknowledgeType::Renew;
            let (offset, count) = (record.offset(), record.delivery_count());
            self.consumer.acknowledge(&record, ack).expect("a record of the last poll");
            self.sent.add(slot, offset, ack, count);
        }
        has_renewed
    }

    /// The next poll or commit accepts the records of the last poll.
    fn accept_last(&mut self) {
        for (slot, offset, count) in self.last.drain(..) {
            self.sent.add(slot, offset, AcknowledgeType::Accept, count);
        }
    }

    fn take_results(&mut self) {
        self.sent.take_results(self.world, self.history);
    }

    async fn close(self) {
        let Self { world, history, id, consumer, mut sent, .. } = self;
        let closed = consumer.close(CALL_WITHIN).await;
        world.trace.note(format_args!("sharer {id}: close: {closed:?}"));
        sent.take_results(world, history);
    }
}

impl Sent {
    fn add(&mut self, slot: i32, offset: i64, ack: AcknowledgeType, count: i16) {
        self.by_record.entry((slot, offset)).or_default().add(ack, count);
    }

    /// Reports the results that have come to the history.
    fn take_results(&mut self, world: &World, history: &SharedShareHistory) {
        while let Some(AcknowledgementResult { at, ranges, result, .. }) = self.results.try_next() {
            let slot = world.options.slot(&at.topic, at.partition);
            for offset in ranges.into_iter().flatten() {
                // The client rejects what it cannot decode, and acknowledges gaps.
                let sent = self.by_record.get_mut(&(slot, offset)).and_then(Outstanding::take);
                if let (Some((ack, count)), Ok(())) = (sent, &result) {
                    history.lock().confirmed(slot, offset, ack, count);
                }
            }
        }
    }
}
