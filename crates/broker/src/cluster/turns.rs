//! Requests whose work blocks: it runs on other threads, and few of each kind run at a time.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::cluster::Cluster;
use crate::memory::{Charge, ClientHost, FairTurns};

/// DeleteRecords requests that run at a time: each occupies a thread while the disk writes.
const DELETIONS_MAX: usize = 4;
/// ListOffsets requests that look up timestamps at a time: each can decompress batches.
const LOOKUPS_MAX: usize = 2;
/// Pushes of clients' metrics that are read at a time: one of a megabyte can take sixty for a moment.
const PUSHES_MAX: usize = 1;
/// Batches of dead letters that are built at a time: each can read and decompress batches of its source.
const DEAD_LETTERS_MAX: usize = 1;

/// The turns of requests that occupy a thread.
#[derive(Debug)]
pub(crate) struct Turns {
    topic_changes: Arc<Semaphore>,
    deletions: Arc<Semaphore>,
    checks: Arc<Semaphore>,
    lookups: Arc<Semaphore>,
    pushes: Arc<Semaphore>,
    dead_letters: Arc<Semaphore>,
    /// Long lists that a request of a few bytes is answered with.
    lists: FairTurns,
    unhurried: Semaphore,
}

/// Half of the processors: the other half serves clients.
fn checks_max() -> usize {
    std::thread::available_parallelism().map_or(1, |count| (count.get() / 2).max(1))
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            topic_changes: Arc::new(Semaphore::new(1)),
            deletions: Arc::new(Semaphore::new(DELETIONS_MAX)),
            checks: Arc::new(Semaphore::new(checks_max())),
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            pushes: Arc::new(Semaphore::new(PUSHES_MAX)),
            dead_letters: Arc::new(Semaphore::new(DEAD_LETTERS_MAX)),
            lists: FairTurns::default(),
            unhurried: Semaphore::new(1),
        }
    }
}

impl Cluster {
    /// Waits for the turn of a connection that is new, has a backlog of requests, or has ended. The thread looks at its sockets
    /// between two turns: a client that sends one request at a time waits for one of these, however many they are.
    pub(crate) async fn take_turn(&self) {
        // Fails only if the semaphore is closed, which it never is.
        let _turn = self.turns.unhurried.acquire().await;
        tokio::task::yield_now().await;
    }

    /// Waits for the turn of a request whose answer can be long, however short it is, and for room for that. Until the turn is dropped,
    /// no other one makes such an answer: it is not counted before it is done.
    pub(crate) async fn take_list_turn(&self, client: ClientHost) -> Charge {
        let turn = self.turns.lists.take(client).await;
        drop(self.memory.room_for_response(client).await);
        turn
    }

    /// Runs a change of topics after the earlier ones, on a thread that may block.
    pub(crate) async fn change_topics<V: Send + 'static>(
        self: &Arc<Self>,
        change: impl FnOnce(&Self) -> V + Send + 'static,
    ) -> V {
        self.run_in_turn(&self.turns.topic_changes, change).await
    }

    /// Deletes records, on a thread that may block.
    pub(crate) async fn run_deletion<V: Send + 'static>(
        self: &Arc<Self>,
        delete: impl FnOnce(&Self) -> V + Send + 'static,
    ) -> V {
        self.run_in_turn(&self.turns.deletions, delete).await
    }

    /// Looks up offsets by time, on a background thread.
    pub(crate) async fn run_lookup<V: Send + 'static>(
        self: &Arc<Self>,
        look_up: impl FnOnce(&Self) -> V + Send + 'static,
    ) -> V {
        let run = self.after_turn(&self.turns.lookups, look_up).await;
        self.run_in_background(run).await
    }

    /// Reads a push of metrics, on a background thread.
    pub(crate) async fn run_push<V: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Self) -> V + Send + 'static,
    ) -> V {
        let run = self.after_turn(&self.turns.pushes, read).await;
        self.run_in_background(run).await
    }

    /// Builds a batch of dead letters, on a background thread. The memory is taken after the turn: those who wait have none.
    pub(crate) async fn run_dead_letters<V: Send + 'static>(
        self: &Arc<Self>,
        memory_bytes: usize,
        build: impl FnOnce(&Self) -> V + Send + 'static,
    ) -> V {
        let run = self.after_turn(&self.turns.dead_letters, build).await;
        let _memory = self.decoder_memory.charge(ClientHost::LOCAL, memory_bytes).await;
        self.run_in_background(run).await
    }

    /// Runs one step of checking batches, on a background thread.
    pub(crate) async fn run_check<V: Send + 'static>(
        self: &Arc<Self>,
        step: impl FnOnce(&Self) -> V + Send + 'static,
    ) -> V {
        let run = self.after_turn(&self.turns.checks, step).await;
        self.run_in_background(run).await
    }

    async fn run_in_turn<V: Send + 'static>(
        self: &Arc<Self>,
        turns: &Arc<Semaphore>,
        work: impl FnOnce(&Self) -> V + Send + 'static,
    ) -> V {
        let run = self.after_turn(turns, work).await;
        self.syncer.run_blocking(run).await
    }

    /// Requests wait here for their turn, so that they occupy few threads. The work owns the turn: it ends with the work even
    /// if the connection is closed before.
    async fn after_turn<V: Send + 'static>(
        self: &Arc<Self>,
        turns: &Arc<Semaphore>,
        work: impl FnOnce(&Self) -> V + Send + 'static,
    ) -> impl FnOnce() -> V + Send + 'static {
        // Fails only if the semaphore is closed, which it never is.
        let turn = turns.clone().acquire_owned().await.ok();
        let cluster = self.clone();
        move || {
            let done = work(&cluster);
            drop(turn);
            done
        }
    }
}
