//! A core with everything that surrounds it, without a runtime: its cursors, a real inbox and budget, and facts about a
//! cluster that a test sets.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use ottla_protocol::Uuid;
use ottla_protocol::messages::fetch::{FetchResponse, FetchableTopicResponse, PartitionData};
use ottla_wire::{BatchBuilder, Seal};

use super::action::{EpochEnd, LeaderHint};
use super::*;
use crate::config::{Config, OffsetReset};
use crate::fetch::budget::Reservation;
use crate::fetch::inbox::{Chunk, Inbox, Item, PrefetchLimit, QueueId};
use crate::fetch::progress::PartitionProgress;
use crate::net::ResponseMemory;

pub(super) const TOPIC_ID: Uuid = Uuid::ONE;
pub(super) const BUDGET: usize = 8 << 20;
pub(super) const ONE: i32 = 1;
pub(super) const TWO: i32 = 2;

/// The facts that the metadata and the connections would report.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) inbox: Arc<Inbox>,
    pub(super) leaders: BTreeMap<i32, LeaderInfo>,
    pub(super) topic_known: bool,
    pub(super) nodes: BTreeSet<i32>,
    /// Brokers whose response to the fetch in the session is arriving.
    pub(super) arriving: BTreeSet<i32>,
}

/// One consumer of the topic `orders`.
pub(super) struct Harness {
    pub(super) core: FetchCore,
    pub(super) table: Table,
    pub(super) facts: Facts,
    pub(super) now: Instant,
    pub(super) slots: Vec<Slot>,
    pub(super) progress: Vec<Arc<PartitionProgress>>,
    /// Reserved bytes of the fetches that were not answered, by broker and whether outside the session.
    pub(super) reservations: BTreeMap<(i32, bool), Reservation>,
    /// Actions that go to brokers or to the metadata, in order, until a test takes them.
    pub(super) sent: Vec<Action>,
    /// Partitions whose parked records were dropped, in all.
    pub(super) rewound: usize,
}

impl Harness {
    /// A consumer that starts partitions from 0 on as given. Broker 1 leads all of them.
    pub(super) fn new(starts: &[StartAt]) -> Self {
        Self::with(starts, BUDGET, |_| {})
    }

    pub(super) fn with(starts: &[StartAt], budget: usize, configure: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        config.auto_offset_reset = OffsetReset::Earliest;
        configure(&mut config);
        let inbox = Inbox::new(budget, PrefetchLimit { records: 1000, bytes: PrefetchLimit::BYTES });
        let info = LeaderInfo { leader: ONE, leader_epoch: 5, topic_id: TOPIC_ID };
        let facts = Facts {
            inbox: inbox.clone(),
            leaders: (0..starts.len() as i32).map(|partition| (partition, info)).collect(),
            topic_known: true,
            nodes: [ONE, TWO].into(),
            arriving: BTreeSet::new(),
        };
        let mut table = Table::default();
        let (mut slots, mut all_progress) = (Vec::new(), Vec::new());
        for (partition, start) in starts.iter().enumerate() {
            let at = TopicPartition::new("orders", partition as i32);
            let progress = Arc::new(PartitionProgress::new(at));
            let slot = table.add(progress.clone(), *start);
            inbox.open(slot, progress.clone());
            slots.push(slot);
            all_progress.push(progress);
        }
        Self {
            core: FetchCore::new(FetchSettings::new(&config, inbox.budget.max())),
            table,
            facts,
            now: Instant::now(),
            slots,
            progress: all_progress,
            reservations: BTreeMap::new(),
            sent: Vec::new(),
            rewound: 0,
        }
    }

    /// One round of the owner's loop.
    pub(super) fn update(&mut self) {
        let drained = self.facts.inbox.take_drained();
        self.core.update(self.now, &mut self.table, &drained, &self.facts);
        self.perform();
    }

    /// Performs the core's actions. Those that go to brokers or to the metadata are kept in `sent`.
    pub(super) fn perform(&mut self) {
        while let Some(action) = self.core.poll_action(self.now, &mut self.table, &self.facts) {
            match action {
                Action::Deliver { slot, item } => self.facts.inbox.push_to(slot, item),
                Action::DeliverIn { slot, generation, item } => {
                    self.facts.inbox.push_in(slot, Some(generation), item);
                }
                Action::ReportError(error) => self.facts.inbox.push(Item::Error(error)),
                Action::Purge(slot) => self.facts.inbox.purge(slot),
                Action::FreeParked { bytes } => {
                    let rewound = self.facts.inbox.drop_parked(bytes);
                    self.rewound += rewound.len();
                    self.core.on_parked_freed(rewound, &mut self.table);
                }
                Action::LearnLeader(hint) => {
                    let learned = self.facts.learn_leader(&hint);
                    self.core.on_leader_hint(&hint, learned, self.now, &mut self.table);
                }
                Action::ForgetLeader(at) => {
                    self.facts.leaders.remove(&at.partition);
                    self.sent.push(Action::ForgetLeader(at));
                }
                Action::Fetch(spec) => {
                    let reservation = self.facts.inbox.budget.reserve(spec.bytes);
                    let before = self.reservations.insert((spec.node, spec.outside_session), reservation);
                    assert!(before.is_none(), "two fetches to broker {} at a time", spec.node);
                    self.sent.push(Action::Fetch(spec));
                }
                Action::RecordEnds { .. } | Action::LogFailure { .. } => {}
                other @ (Action::ListOffsets { .. }
                | Action::AwaitTopic { .. }
                | Action::OffsetForLeaderEpoch(_)
                | Action::WantTopic(_)
                | Action::RefreshMetadata) => self.sent.push(other),
            }
        }
    }

    /// The fetches that were sent since the last call; all other actions are dropped.
    pub(super) fn fetches(&mut self) -> Vec<FetchSpec> {
        let sent = std::mem::take(&mut self.sent);
        sent.into_iter()
            .filter_map(|action| if let Action::Fetch(spec) = action { Some(spec) } else { None })
            .collect()
    }

    /// One round that sends exactly one fetch.
    pub(super) fn one_fetch(&mut self) -> FetchSpec {
        self.update();
        let mut fetches = self.fetches();
        assert_eq!(fetches.len(), 1, "{fetches:?}");
        fetches.remove(0)
    }

    /// The response to a fetch, and the core's actions after it.
    pub(super) fn answer(&mut self, spec: &FetchSpec, result: Result<FetchResponse, Error>) {
        let reservation = self.reservations.remove(&(spec.node, spec.outside_session));
        let arrived_at = reservation.and_then(|reservation| reservation.begun_at());
        self.facts.arriving.remove(&spec.node);
        let Self { core, table, facts, now, .. } = self;
        if spec.outside_session {
            core.on_fetched_outside_session(spec.node, result, *now, table, facts);
        } else {
            core.on_fetched(spec.node, result, arrived_at, *now, table, facts);
        }
        self.perform();
    }

    /// The leader's answer to each question of a ListOffsets request.
    pub(super) fn answer_offsets(&mut self, answers: Vec<(CursorRef, StartAt, Result<i64, Error>)>) {
        for (cursor, start, result) in answers {
            self.core.on_offset(&cursor, start, result, self.now, &mut self.table);
        }
        self.perform();
    }

    /// The leader's answer to an OffsetForLeaderEpoch request.
    pub(super) fn answer_epoch_end(&mut self, question: &EpochQuestion, result: Result<EpochEnd, Error>) {
        let Self { core, table, facts, now, .. } = self;
        core.on_epoch_end(question, result, *now, table, facts);
        self.perform();
    }

    /// Waits for `duration`, and does a round.
    pub(super) fn pass(&mut self, duration: Duration) {
        self.now += duration;
        self.update();
    }

    pub(super) fn cursor(&mut self, partition: usize) -> &mut Cursor {
        self.table.get_mut(self.slots[partition]).expect("an assigned partition")
    }

    /// Pauses or resumes a partition, as the application and the group's task do.
    pub(super) fn pause(&mut self, partition: usize, paused: bool) {
        self.facts.inbox.pause(&TopicPartition::new("orders", partition as i32), paused);
        self.cursor(partition).paused = paused;
        self.table.touch(self.slots[partition]);
    }

    pub(super) fn seek(&mut self, partition: usize, to: StartAt) {
        self.cursor(partition).seek(to);
        self.table.touch(self.slots[partition]);
        self.facts.inbox.purge(self.slots[partition]);
    }

    /// Removes a partition from the assignment.
    pub(super) fn remove(&mut self, partition: usize) {
        self.table.remove(self.slots[partition]);
        self.facts.inbox.close(self.slots[partition]);
    }

    /// Another broker leads a partition, according to fresh metadata.
    pub(super) fn move_leader(&mut self, partition: i32, leader: i32, leader_epoch: i32) {
        self.facts.leaders.insert(partition, LeaderInfo { leader, leader_epoch, topic_id: TOPIC_ID });
        self.table.touch_all();
    }

    /// The topic was deleted and created again, according to fresh metadata.
    pub(super) fn create_again(&mut self, partition: i32) {
        let topic_id = Uuid::from(9);
        self.facts.leaders.insert(partition, LeaderInfo { leader: ONE, leader_epoch: 0, topic_id });
        self.table.touch_all();
    }

    /// Everything that the application can poll.
    pub(super) fn poll_all(&self) -> Vec<Item> {
        std::iter::from_fn(|| self.facts.inbox.pop(QueueId::MAIN, false)).collect()
    }

    /// First and next offsets of the chunks that the application can poll.
    pub(super) fn poll_offsets(&self) -> Vec<(i32, i64, i64)> {
        let offsets = |item| match item {
            Item::Chunk(Chunk { progress, from, next, .. }) => {
                progress.set_position(next);
                (progress.at.partition, from, next)
            }
            other => panic!("{other:?} instead of records"),
        };
        self.poll_all().into_iter().map(offsets).collect()
    }
}

impl Facts {
    /// Stores a leader that a broker named, as the metadata does.
    fn learn_leader(&mut self, hint: &LeaderHint) -> bool {
        let partition = hint.cursor.progress.at.partition;
        let known = self.leaders.get(&partition).map_or(-1, |info| info.leader_epoch);
        let is_usable = hint.leader != hint.named_by && self.nodes.contains(&hint.leader);
        let learned = is_usable && hint.leader_epoch > known;
        if learned {
            let LeaderHint { leader, leader_epoch, .. } = *hint;
            self.leaders.insert(partition, LeaderInfo { leader, leader_epoch, topic_id: TOPIC_ID });
        }
        learned
    }
}

impl FetchView for Facts {
    fn leader_info(&self, at: &TopicPartition) -> Option<LeaderInfo> {
        self.leaders.get(&at.partition).copied()
    }

    fn is_topic_known(&self, _topic: &str) -> bool {
        self.topic_known
    }

    fn knows_node(&self, node: i32) -> bool {
        self.nodes.contains(&node)
    }

    fn is_inbox_full(&self, slot: Slot) -> bool {
        self.inbox.is_full(slot)
    }

    fn is_inbox_empty(&self) -> bool {
        self.inbox.is_empty()
    }

    fn budget_room(&self) -> usize {
        self.inbox.budget.room()
    }

    fn budget_held(&self) -> usize {
        self.inbox.budget.held()
    }

    fn is_arriving(&self, node: i32) -> bool {
        self.arriving.contains(&node)
    }

    fn start_of(&self, reset: OffsetReset) -> StartAt {
        match reset {
            OffsetReset::Earliest => StartAt::Beginning,
            OffsetReset::Latest => StartAt::End,
            OffsetReset::ByDuration(_) => StartAt::Timestamp(0),
            OffsetReset::Error => StartAt::Offset(-1),
        }
    }
}

/// A batch of records with consecutive offsets.
pub(super) fn batch(base_offset: i64, count: i64, epoch: i32) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for _ in 0..count {
        builder.push(0, None, Some(&[b'v'; 40]), &[]);
    }
    let mut bytes = builder.seal(&Seal::default()).expect("no codec").to_bytes().to_vec();
    ottla_wire::batch::set_base_offset(&mut bytes, base_offset);
    ottla_wire::batch::set_leader_epoch(&mut bytes, epoch);
    bytes
}

/// An answer without records.
pub(super) fn empty(partition: i32) -> PartitionData {
    PartitionData {
        partition_index: partition,
        log_start_offset: 0,
        last_stable_offset: 100,
        high_watermark: 100,
        ..Default::default()
    }
}

/// An answer with records of leader epoch 5.
pub(super) fn records(partition: i32, from: i64, count: i64) -> PartitionData {
    let bytes = Bytes::from(batch(from, count, 5));
    PartitionData { records: Some(bytes.into()), ..empty(partition) }
}

/// An answer with an error.
pub(super) fn failed(partition: i32, error_code: ErrorCode) -> PartitionData {
    PartitionData { error_code, ..empty(partition) }
}

/// A response in the session with this id.
#[allow(clippy::unnecessary_wraps, reason = "the harness takes failures in its place")]
pub(super) fn response(session_id: i32, partitions: Vec<PartitionData>) -> Result<FetchResponse, Error> {
    let topic = FetchableTopicResponse { topic_id: TOPIC_ID, partitions, ..Default::default() };
    Ok(FetchResponse { session_id, responses: vec![topic], ..Default::default() })
}

/// Partitions and offsets that a fetch names.
pub(super) fn named(spec: &FetchSpec) -> Vec<(i32, i64)> {
    let partitions = spec.request.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|partition| (partition.partition, partition.fetch_offset)).collect()
}

/// Partitions that a fetch removes from the session.
pub(super) fn forgotten(spec: &FetchSpec) -> Vec<i32> {
    spec.request.forgotten.iter().flat_map(|topic| topic.partitions.clone()).collect()
}

/// Copies a response's bytes into the memory that was reserved for it.
pub(super) fn in_reserved(reservation: &Reservation, bytes: &[u8]) -> Bytes {
    let mut buffer = reservation.buffer(bytes.len());
    buffer.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
    buffer.freeze(bytes.len())
}
