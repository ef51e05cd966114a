//! A producer without queues, brokers or a runtime: tests play the shell and the cluster.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::produce::{
    LeaderIdAndEpoch, PartitionProduceResponse, ProduceResponse, TopicProduceResponse,
};
use ottla_wire::{BatchBuilder, BatchHeader};
use tokio::time::Instant;

use super::*;
use crate::error::{Persisted, ProduceError};
use crate::produce::compressor::close;
use crate::produce::delivery::Outcome;
use crate::produce::queue::{DeliveryTargets, OpenBatch, Waiting};

pub(super) const TOPIC: &str = "orders";

/// A record that tests recognise, carried as its tag.
pub(super) type Id = u128;

/// The world as the core sees it.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) queues: Vec<VecDeque<(OpenBatch, bool)>>,
    pub(super) leaders: BTreeMap<usize, i32>,
    pub(super) links: BTreeMap<i32, LinkState>,
    pub(super) paused: BTreeSet<usize>,
    pub(super) topic: Option<TopicState>,
}

impl Environment for World {
    fn take(&mut self, index: usize, accepts: &mut dyn FnMut(&Waiting) -> bool) -> Option<OpenBatch> {
        let (oldest, full) = self.queues[index].front()?;
        let (paused, bytes) = (self.paused.contains(&index), oldest.builder.len());
        let waiting = Waiting { full: *full, paused, since: oldest.created, bytes };
        if accepts(&waiting) { self.queues[index].pop_front().map(|(open, _)| open) } else { None }
    }

    fn unlist_if_empty(&mut self, index: usize) -> bool {
        self.queues[index].is_empty()
    }

    fn retire_older(&mut self, index: usize, then: Instant) {
        for (open, full) in &mut self.queues[index] {
            *full |= open.created < then;
        }
    }

    fn is_paused(&self, index: usize) -> bool {
        self.paused.contains(&index)
    }

    fn leader(&self, index: usize) -> Option<i32> {
        self.leaders.get(&index).copied()
    }

    fn link(&self, node: i32) -> LinkState {
        self.links.get(&node).copied().unwrap_or(LinkState::Open)
    }

    fn topic(&self, _index: usize) -> Option<TopicState> {
        self.topic
    }

    fn unsent_reason(&self, _index: usize, _waited: Duration) -> String {
        "unsent".into()
    }
}

/// One batch of a request, as a broker sees it.
#[derive(Clone, Debug)]
pub(super) struct SentBatch {
    pub(super) partition: usize,
    pub(super) header: BatchHeader,
    pub(super) ids: Vec<Id>,
}

/// A request that the core sent.
#[derive(Clone, Debug)]
pub(super) struct SentRequest {
    pub(super) id: u64,
    pub(super) node: i32,
    pub(super) version_max: i16,
    pub(super) batches: Vec<SentBatch>,
}

impl SentRequest {
    pub(super) fn ids(&self) -> Vec<Id> {
        self.batches.iter().flat_map(|batch| batch.ids.iter().copied()).collect()
    }
}

/// A core with its world, and everything that it did.
pub(super) struct Producer {
    pub(super) core: ProduceCore,
    pub(super) world: World,
    pub(super) now: Instant,
    pub(super) rng: fastrand::Rng,
    pub(super) urgent: bool,
    /// Requests without a response, in the order of sending.
    pub(super) sent: VecDeque<SentRequest>,
    /// The last request, as the shell passes it to a connection.
    pub(super) outgoing: Option<OutgoingRequest>,
    /// The outcome of each record: base offset or error.
    pub(super) outcomes: BTreeMap<Id, Result<i64, Arc<ProduceError>>>,
    pub(super) wake_at: Option<Instant>,
    pub(super) id_requests: usize,
    pub(super) prepared: Vec<Vec<usize>>,
    pub(super) epochs_raised: Vec<(usize, i16)>,
    pub(super) refreshes: usize,
    pub(super) named_leaders: Vec<(usize, i32)>,
    in_worker: Vec<(usize, u64, OpenBatch)>,
}

impl Producer {
    /// A producer with `partitions` partitions that node 1 leads, and these properties over the defaults.
    pub(super) fn new(partitions: usize, properties: &[(&str, &str)]) -> Self {
        Self::with_worker(partitions, properties, false)
    }

    pub(super) fn with_worker(partitions: usize, properties: &[(&str, &str)], has_worker: bool) -> Self {
        let mut config = Config::default();
        config.set_all(properties.iter().copied()).expect("valid properties");
        Self::with_config(partitions, config, has_worker)
    }

    pub(super) fn with_config(partitions: usize, config: Config, has_worker: bool) -> Self {
        let config = Arc::new(config);
        let now = Instant::now();
        let mut core = ProduceCore::new(config.clone(), has_worker, now);
        let mut world = World::default();
        for partition in 0..partitions {
            let index = core.register(TOPIC.into(), partition as i32, config.clone());
            world.queues.push(VecDeque::new());
            world.leaders.insert(index, 1);
        }
        world.topic = Some(TopicState { error: ErrorCode::None, partitions, responses: 1 });
        Self {
            core,
            world,
            now,
            rng: fastrand::Rng::with_seed(7),
            urgent: false,
            sent: VecDeque::new(),
            outgoing: None,
            outcomes: BTreeMap::new(),
            wake_at: None,
            id_requests: 0,
            prepared: Vec::new(),
            epochs_raised: Vec::new(),
            refreshes: 0,
            named_leaders: Vec::new(),
            in_worker: Vec::new(),
        }
    }

    /// The same, with the producer id 7 in epoch 0.
    pub(super) fn with_id(partitions: usize, properties: &[(&str, &str)]) -> Self {
        let mut producer = Self::new(partitions, properties);
        producer.core.on_producer_id(Ok(ProducerId { id: 7, epoch: 0 }));
        producer
    }

    /// Queues one record in an open batch of its own.
    pub(super) fn produce(&mut self, partition: usize, id: Id) {
        self.queue(partition, &[id], 1, false);
    }

    /// Queues one full batch of `bytes` bytes with these records.
    pub(super) fn produce_full(&mut self, partition: usize, ids: &[Id], bytes: usize) {
        self.queue(partition, ids, bytes / ids.len().max(1), true);
    }

    fn queue(&mut self, partition: usize, ids: &[Id], value_bytes: usize, full: bool) {
        let mut builder = BatchBuilder::new();
        for _ in ids {
            builder.push(0, None, Some(&vec![b'x'; value_bytes]), &[]);
        }
        let targets = DeliveryTargets { tags: ids.to_vec(), ..DeliveryTargets::default() };
        // A batch is open only behind full ones.
        if let Some((_, is_full)) = self.world.queues[partition].back_mut() {
            *is_full = true;
        }
        self.world.queues[partition].push_back((OpenBatch { builder, targets, created: self.now }, full));
        self.core.on_records(partition);
    }

    /// One round of the shell without transactions.
    pub(super) fn poll(&mut self) {
        self.poll_with(Permission::Unrestricted);
    }

    pub(super) fn poll_with(&mut self, permission: Permission) {
        let mut actions = Vec::new();
        let Self { core, world, now, urgent, .. } = self;
        core.expire(*now, world, &mut actions);
        let wake_at = core.poll(*now, Scope::All, permission, *urgent, world, &mut actions);
        self.wake_at = wake_at;
        self.perform(actions);
    }

    pub(super) fn advance(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    /// Answers the oldest request: each batch with this error code.
    pub(super) fn respond(&mut self, code: ErrorCode) -> SentRequest {
        self.respond_with(|_| (code, 100, LeaderIdAndEpoch { leader_id: -1, leader_epoch: -1 }))
    }

    pub(super) fn respond_with(
        &mut self,
        answer: impl Fn(&SentBatch) -> (ErrorCode, i64, LeaderIdAndEpoch),
    ) -> SentRequest {
        let request = self.sent.pop_front().expect("a request without a response");
        self.finish(&request, RequestOutcome::Answered(response(&request, answer)));
        request
    }

    pub(super) fn finish(&mut self, request: &SentRequest, outcome: RequestOutcome) {
        let mut actions = Vec::new();
        self.core.on_response(request.id, &outcome, self.now, &mut self.rng, &mut actions);
        self.perform(actions);
    }

    /// The oldest request has no response: the connection broke after it was sent.
    pub(super) fn lose(&mut self) -> SentRequest {
        let request = self.sent.pop_front().expect("a request without a response");
        self.finish(&request, RequestOutcome::Lost(broken()));
        request
    }

    pub(super) fn purge(&mut self, purge: crate::produce::Purge) {
        let mut actions = Vec::new();
        self.core.purge(purge, &mut self.world, &mut actions);
        self.perform(actions);
    }

    /// The worker returns the batch that it took as the `nth`.
    pub(super) fn compressed(&mut self, nth: usize) {
        let (index, slot, open) = self.in_worker.remove(nth);
        let batch = close(open, &self.core.partitions[index].config);
        let mut actions = Vec::new();
        self.core.on_compressed(Compressed { index, slot, batch }, &mut actions);
        self.perform(actions);
    }

    pub(super) fn close(&mut self) {
        let mut actions = Vec::new();
        self.core.close(&mut actions);
        self.perform(actions);
    }

    /// The records of the requests without a response.
    pub(super) fn in_flight(&self) -> Vec<Vec<Id>> {
        self.sent.iter().map(SentRequest::ids).collect()
    }

    /// The error of a record that failed.
    pub(super) fn error(&self, id: Id) -> &ProduceError {
        self.outcomes[&id].as_ref().expect_err("a record that failed")
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(request) => {
                    self.send(&request);
                    self.outgoing = Some(request);
                }
                Action::Compress { index, slot, open } => self.in_worker.push((index, slot, open)),
                Action::Settle { batch, outcome, .. } => match outcome {
                    Outcome::Written { base_offset, .. } => self.settle(&batch.targets, &Ok(base_offset)),
                    Outcome::Failed(error) => self.settle(&batch.targets, &Err(error)),
                    Outcome::Forwarded(_) => unreachable!("only the queue forwards records"),
                },
                Action::FailClosed { index, batch, kind } => self.fail(index, &batch.targets, kind),
                Action::FailOpen { index, open, kind } => self.fail(index, &open.targets, kind),
                Action::FailUncompressed { index, batch } => {
                    self.fail(index, &batch.targets, ProduceErrorKind::Compress(batch.error.to_string()));
                }
                Action::RequestProducerId => self.id_requests += 1,
                Action::PrepareTransaction { partitions } => self.prepared.push(partitions),
                Action::RefreshMetadata | Action::ForgetLeader { .. } => self.refreshes += 1,
                Action::LearnLeader { index, leader, .. } => {
                    self.named_leaders.push((index, leader));
                    if leader >= 0 {
                        self.world.leaders.insert(index, leader);
                        self.core.on_new_leader(index);
                    }
                }
                Action::EpochRaised { index, epoch } => self.epochs_raised.push((index, epoch)),
                Action::ReleaseMemory(_) | Action::LogRetry { .. } => {}
            }
        }
    }

    fn send(&mut self, request: &OutgoingRequest) {
        let batches = self.core.batches_of(request.id).map(|(partition, batch)| SentBatch {
            partition: partition.number as usize,
            header: batch.sealed.header,
            ids: batch.targets.tags.clone(),
        });
        let batches: Vec<_> = batches.collect();
        let entries: usize = request.request.topic_data.iter().map(|topic| topic.partition_data.len()).sum();
        assert_eq!(entries, batches.len(), "the request carries the batches that the core remembers");
        let (id, node, version_max) = (request.id, request.node, request.version_max);
        self.sent.push_back(SentRequest { id, node, version_max, batches });
    }

    fn fail(&mut self, index: usize, targets: &DeliveryTargets, kind: ProduceErrorKind) {
        let Outcome::Failed(error) = self.core.partitions[index].failure(kind, Persisted::NotWritten) else {
            unreachable!("a failure fails");
        };
        self.settle(targets, &Err(error));
    }

    fn settle(&mut self, targets: &DeliveryTargets, outcome: &Result<i64, Arc<ProduceError>>) {
        for id in &targets.tags {
            let before = self.outcomes.insert(*id, outcome.clone());
            assert!(before.is_none(), "record {id} has two outcomes: {before:?} and {outcome:?}");
        }
    }
}

/// A response to a request, by batch: error code, base offset and the leader that the broker names.
pub(super) fn response(
    request: &SentRequest,
    answer: impl Fn(&SentBatch) -> (ErrorCode, i64, LeaderIdAndEpoch),
) -> ProduceResponse {
    let partition_responses = request.batches.iter().map(|batch| {
        let (error_code, base_offset, current_leader) = answer(batch);
        PartitionProduceResponse {
            index: batch.partition as i32,
            error_code,
            base_offset,
            current_leader,
            ..Default::default()
        }
    });
    let name = TOPIC.to_owned();
    let topic = TopicProduceResponse {
        name,
        partition_responses: partition_responses.collect(),
        ..Default::default()
    };
    ProduceResponse { responses: vec![topic], ..Default::default() }
}

pub(super) fn broken() -> Error {
    Error::Transport { address: "node 1".into(), reason: "the connection broke".into() }
}
