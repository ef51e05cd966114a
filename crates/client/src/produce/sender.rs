//! The shell of the producer's core: awaits events, passes them to [`ProduceCore`], and performs its actions.
//!
//! `queue.rs` fills batches in producing threads; [`Sender::pump`] lets the core take them; `sender/perform.rs` sends
//! requests and reports outcomes; `sender/environment.rs` answers the core's questions.

mod environment;
mod perform;

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ottla_protocol::Uuid;
use rustc_hash::FxHashMap;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::environment::Surroundings;
use super::Produce;
use super::compressor::{Compressed, Compressor};
use super::core::{Action, OpenTransaction, OutgoingRequest, Permission, ProduceCore, RequestOutcome, Scope};
use super::queue::Queue;
use crate::cluster::Cluster;
use crate::error::Error;
use crate::loop_timer::LoopTimer;
use crate::net::connection::Connection;
use crate::transaction::error_table::TransactionProtocol;
use crate::transaction::machine::MachineView;
use crate::types::producer_id::ProducerId;

/// The end of a request of the sender.
enum Event {
    Response {
        request: u64,
        node: i32,
        outcome: RequestOutcome,
    },
    /// The connection for the first request to a leader is open.
    Connected {
        connection: Rc<Connection>,
        request: OutgoingRequest,
    },
    ProducerId(Result<ProducerId, Error>),
    /// The coordinator has these partitions in the transaction.
    PartitionsAdded(Vec<usize>),
}

/// A request without a response, polled by the sender: a task for each would cost one more wake-up.
type PendingRequest = Pin<Box<dyn Future<Output = Event>>>;

/// The task that sends.
pub(crate) struct Sender {
    pub(super) core: ProduceCore,
    pub(super) cluster: Rc<Cluster>,
    pub(super) produce: Arc<Produce>,
    /// The queue of each partition, under the core's index.
    pub(super) queues: Vec<Arc<Queue>>,
    /// The connection that carries Produce requests to each leader.
    pub(super) connections: FxHashMap<i32, Rc<Connection>>,
    /// The topic ids of the latest metadata.
    pub(super) topic_ids: FxHashMap<Arc<str>, Uuid>,
    compressor: Compressor,
    /// The batches that the compressor has finished.
    compressed: mpsc::UnboundedReceiver<Compressed>,
    actions: Vec<Action>,
    rng: fastrand::Rng,
    /// Produce requests without a response.
    pending: FuturesUnordered<PendingRequest>,
    events: mpsc::UnboundedSender<Event>,
    pub(super) tasks: JoinSet<()>,
    ready: Vec<Arc<Queue>>,
    /// The transaction that the sender saw last.
    transaction: u64,
    /// Metadata will be requested for topics that a broker has forbidden.
    pub(super) looks_again: bool,
}

impl Sender {
    /// Runs until the engine drops it.
    pub(crate) async fn run(cluster: Rc<Cluster>, produce: Arc<Produce>, threads: bool) {
        let (events, mut received) = mpsc::unbounded_channel();
        let (compressor, compressed) = Compressor::new();
        let mut changes = cluster.changes();
        let mut sender = Self {
            core: ProduceCore::new(produce.config.clone(), threads, Instant::now()),
            cluster,
            queues: Vec::new(),
            connections: FxHashMap::default(),
            topic_ids: FxHashMap::default(),
            compressor,
            compressed,
            actions: Vec::new(),
            rng: produce.fork_rng(),
            pending: FuturesUnordered::new(),
            events,
            tasks: JoinSet::new(),
            ready: Vec::new(),
            transaction: 0,
            looks_again: false,
            produce: produce.clone(),
        };
        let mut scope = Scope::All;
        let mut timer = LoopTimer::new();
        loop {
            timer.set(sender.pump(Instant::now(), scope));
            scope = Scope::All;
            tokio::select! {
                biased;
                Some(event) = received.recv() => {
                    sender.on_event(event);
                    while let Ok(event) = received.try_recv() {
                        sender.on_event(event);
                    }
                }
                Some(event) = sender.pending.next() => sender.on_event(event),
                Some(done) = sender.compressed.recv() => sender.core.on_compressed(done, &mut sender.actions),
                () = produce.queues.wake.notified() => scope = Scope::Fresh,
                () = changes.changed() => sender.on_metadata(),
                Some(ended) = sender.tasks.join_next() => produce.observer.joined("sender's request", ended),
                () = timer.expired() => {}
            }
        }
    }

    /// Performs what the core decides now; returns the time of the next call if nothing happens before.
    fn pump(&mut self, now: Instant, scope: Scope) -> Option<Instant> {
        self.list_ready();
        let purge = self.produce.take_purge();
        let is_pressed = self.produce.queues.memory.take_pressed();
        let urgent = is_pressed || self.produce.queues.flushing.load(Ordering::Relaxed) > 0;
        let is_special = urgent || purge.is_some() || self.produce.transactions.id.is_some();
        let scope = if is_special || self.core.is_expiry_due(now) { Scope::All } else { scope };
        let (core, mut environment, actions) = self.parts();
        core.expire(now, &mut environment, actions);
        if let Some(purge) = purge.as_ref().and_then(|request| request.purge) {
            core.purge(purge, &mut environment, actions);
        }
        self.perform();
        if let Some(request) = purge {
            request.done();
        }
        self.assign_partitions(scope);
        if self.produce.observer.take_survey_wish() {
            self.produce.observer.survey(self.snapshot());
        }
        let permission = self.permission();
        let (core, mut environment, actions) = self.parts();
        let wake_at = core.poll(now, scope, permission, urgent, &mut environment, actions);
        self.perform();
        let transactions = &self.produce.transactions;
        if transactions.has_idle_waiter()
            && self.core.is_quiet()
            && self.produce.queues.unsettled.batches() == 0
        {
            transactions.notify_idle();
        }
        wake_at
    }

    /// The core, the facts about everything around it, and the list of its actions.
    fn parts(&mut self) -> (&mut ProduceCore, Surroundings<'_>, &mut Vec<Action>) {
        let surroundings = Surroundings {
            queues: &self.queues,
            produce: &self.produce,
            cluster: &self.cluster,
            connections: &self.connections,
        };
        (&mut self.core, surroundings, &mut self.actions)
    }

    /// Passes the queues that were listed since the last call to the core.
    pub(super) fn list_ready(&mut self) {
        let mut ready = std::mem::take(&mut self.ready);
        self.produce.queues.take_ready(&mut ready);
        for queue in ready.drain(..) {
            let index = self.core.find(&queue.topic, queue.partition).unwrap_or_else(|| {
                self.queues.push(queue.clone());
                self.core.register(queue.topic.clone(), queue.partition, queue.config.clone())
            });
            self.cluster.want(&queue.topic);
            self.core.on_records(index);
        }
        self.ready = ready;
    }

    /// The batches that the producer's state allows now.
    fn permission(&mut self) -> Permission {
        let transactions = &self.produce.transactions;
        if transactions.has_ended() {
            return Permission::Denied(transactions.refuse_record());
        }
        if transactions.id.is_none() {
            return Permission::Unrestricted;
        }
        let mut view = transactions.view();
        if self.transaction != view.serial {
            self.transaction = view.serial;
            // The cluster's transaction protocol may have changed since the last transaction.
            if let Some(level) = self.cluster.brokers.transaction_level() {
                transactions.follow_level(level);
                view = transactions.view();
            }
        }
        let MachineView { serial, sends, producer, protocol, .. } = view;
        if !sends {
            return Permission::Denied(transactions.refuse_record());
        }
        let adds_partitions = protocol == TransactionProtocol::V1;
        Permission::Transaction(OpenTransaction { serial, producer, adds_partitions })
    }

    /// Lets the application's [`ProduceHook`](crate::ProduceHook), if there is one, replace the end of a request.
    #[inline]
    fn replaced(&self, request: u64, node: i32, outcome: RequestOutcome) -> RequestOutcome {
        match &self.produce.config.produce_hook {
            None => outcome,
            Some(hook) => self.core.replaced(request, node, outcome, hook),
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Response { request, node, outcome } => {
                if let RequestOutcome::Answered(response) = &outcome {
                    for node in &response.node_endpoints {
                        self.cluster.brokers.learn(node.node_id, &node.host, node.port as u16);
                    }
                }
                let outcome = self.replaced(request, node, outcome);
                let (now, actions) = (Instant::now(), &mut self.actions);
                self.core.on_response(request, &outcome, now, &mut self.rng, actions);
                self.perform();
            }
            Event::Connected { connection, mut request } => {
                self.connections.insert(request.node, connection.clone());
                if self.core.on_connected(&mut request) {
                    self.begin(&connection, request);
                } else {
                    let (node, outcome) = (request.node, RequestOutcome::NotSent(Error::Closed));
                    self.on_event(Event::Response { request: request.id, node, outcome });
                }
            }
            Event::PartitionsAdded(added) => self.core.on_partitions_added(added),
            Event::ProducerId(result) => {
                match &result {
                    Ok(id) => self.produce.observer.producer_id(id.id, id.epoch),
                    Err(error) => {
                        tracing::debug!(%error, "InitProducerId failed");
                        if matches!(error, Error::NoProducerId(_)) {
                            self.produce.observer.no_producer_id(error);
                        }
                    }
                }
                self.core.on_producer_id(result);
            }
        }
    }
}

impl Drop for Sender {
    /// Fails what is left, so that everyone who waits for an outcome gets one.
    fn drop(&mut self) {
        self.core.close(&mut self.actions);
        self.perform();
        for done in self.compressor.finish(&mut self.compressed) {
            self.core.on_compressed(done, &mut self.actions);
        }
        self.perform();
    }
}
