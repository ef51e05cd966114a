//! Requests whose work blocks: it runs on other threads, and few of each kind run at a time.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Semaphore;

use crate::cluster::Cluster;
use crate::memory::{Charge, ClientHost, FairTurns};
use crate::partition::Syncer;
use crate::quotas::ChargedClient;

/// DeleteRecords requests that run at a time: each occupies a thread while the disk writes.
const DELETIONS_MAX: usize = 4;
/// ListOffsets requests that look up timestamps at a time: each can decompress batches.
const LOOKUPS_MAX: usize = 2;
/// Patterns that are matched with a part of the topics at a time.
const PATTERNS_MAX: usize = 1;
/// Pushes of clients' metrics that are read at a time: one of a megabyte can take sixty for a moment.
const PUSHES_MAX: usize = 1;
/// Batches of dead letters that are built at a time: each can read and decompress batches of its source.
const DEAD_LETTERS_MAX: usize = 1;

/// The turns of requests that occupy a thread.
#[derive(Debug)]
pub(crate) struct Turns {
    topic_changes: FairTurns,
    deletions: FairTurns,
    checks: FairTurns,
    lookups: FairTurns,
    patterns: FairTurns,
    pushes: FairTurns,
    dead_letters: FairTurns,
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
            topic_changes: FairTurns::new(1),
            deletions: FairTurns::new(DELETIONS_MAX),
            checks: FairTurns::new(checks_max()),
            lookups: FairTurns::new(LOOKUPS_MAX),
            patterns: FairTurns::new(PATTERNS_MAX),
            pushes: FairTurns::new(PUSHES_MAX),
            dead_letters: FairTurns::new(DEAD_LETTERS_MAX),
            lists: FairTurns::new(1),
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

    /// Waits for room for an answer that can be long, however short its request is, and for the turn to make it. Until the turn is
    /// dropped, no other request makes such an answer: it is not counted before it is done.
    pub(crate) async fn take_list_turn(&self, client: ClientHost) -> Charge {
        loop {
            // Before the turn: a client that does not read its responses waits longest for room, and must not have the turn meanwhile.
            drop(self.memory.room_for_response(client).await);
            let turn = self.turns.lists.take(client).await;
            if self.memory.has_room_for_response() {
                return turn;
            }
        }
    }

    /// Makes a long answer on a background thread. The work owns the turn: it ends with the work even if the connection is closed before.
    pub(crate) async fn run_listing<V: Send + 'static>(
        self: &Arc<Self>,
        turn: Charge,
        list: impl FnOnce(&Self) -> V + Send + 'static,
    ) -> V {
        let list = self.charged(list);
        let work = move || {
            let listed = list();
            drop(turn);
            listed
        };
        self.run_in_background(work).await
    }

    /// Runs a change of topics after the earlier ones, on a thread that may block.
    pub(crate) async fn change_topics<V: Send + 'static>(
        self: &Arc<Self>,
        change: impl FnOnce(&Self) -> V + Send + 'static,
    ) -> V {
        // Those who may change topics are few.
        self.run_in_turn(&self.turns.topic_changes, ClientHost::LOCAL, change).await
    }

    /// Deletes records, on a thread that may block.
    pub(crate) async fn run_deletion<V: Send + 'static>(
        self: &Arc<Self>,
        client: ClientHost,
        delete: impl FnOnce(&Self) -> V + Send + 'static,
    ) -> V {
        self.run_in_turn(&self.turns.deletions, client, delete).await
    }

    /// Waits until no thread changes topics or deletes records. The work continues without the connection that has asked for it.
    pub(crate) async fn changes_ended(&self) {
        drop(self.turns.topic_changes.take(ClientHost::LOCAL).await);
        let mut turns = Vec::with_capacity(DELETIONS_MAX);
        for _ in 0..DELETIONS_MAX {
            turns.push(self.turns.deletions.take(ClientHost::LOCAL).await);
        }
    }

    /// Looks up offsets by time, on a background thread.
    pub(crate) async fn run_lookup<V: Send + 'static>(
        self: &Arc<Self>,
        client: ClientHost,
        look_up: impl FnOnce(&Self) -> V + Send + 'static,
    ) -> V {
        let run = self.after_turn(&self.turns.lookups, client, look_up).await;
        self.run_in_background(run).await
    }

    /// Reads a push of metrics, on a background thread. The memory is taken after the turn: those who wait have none.
    pub(crate) async fn run_push<V: Send + 'static>(
        self: &Arc<Self>,
        client: ClientHost,
        memory_bytes: usize,
        read: impl FnOnce(&Self) -> V + Send + 'static,
    ) -> V {
        let run = self.after_turn(&self.turns.pushes, client, read).await;
        let memory = self.decoder_memory.charge(client, memory_bytes).await;
        self.run_in_background(with_memory(memory, run)).await
    }

    /// Builds a batch of dead letters, on a background thread. The memory is taken after the turn: those who wait have none.
    pub(crate) async fn run_dead_letters<V: Send + 'static>(
        self: &Arc<Self>,
        memory_bytes: usize,
        build: impl FnOnce(&Self) -> V + Send + 'static,
    ) -> V {
        let run = self.after_turn(&self.turns.dead_letters, ClientHost::LOCAL, build).await;
        let memory = self.decoder_memory.charge(ClientHost::LOCAL, memory_bytes).await;
        self.run_in_background(with_memory(memory, run)).await
    }

    /// Runs one step of checking batches, on a background thread.
    pub(crate) async fn run_check<V: Send + 'static>(
        self: &Arc<Self>,
        client: ClientHost,
        step: impl FnOnce(&Self) -> V + Send + 'static,
    ) -> V {
        let run = self.after_turn(&self.turns.checks, client, step).await;
        self.run_in_background(run).await
    }

    /// Matches a pattern with a part of the topics, on a background thread.
    pub(crate) async fn run_matching<V: Send + 'static>(
        self: &Arc<Self>,
        client: ClientHost,
        work: impl FnOnce(&Self) -> V + Send + 'static,
    ) -> V {
        let run = self.after_turn(&self.turns.patterns, client, work).await;
        self.run_in_background(run).await
    }

    async fn run_in_turn<V: Send + 'static>(
        self: &Arc<Self>,
        turns: &FairTurns,
        client: ClientHost,
        work: impl FnOnce(&Self) -> V + Send + 'static,
    ) -> V {
        let run = self.after_turn(turns, client, work).await;
        self.run_blocking(run).await
    }

    /// Requests wait here for their turn, so that they occupy few threads; clients take turns. The work owns the turn: it ends with the
    /// work even if the connection is closed before.
    async fn after_turn<V: Send + 'static>(
        self: &Arc<Self>,
        turns: &FairTurns,
        client: ClientHost,
        work: impl FnOnce(&Self) -> V + Send + 'static,
    ) -> impl FnOnce() -> V + Send + 'static {
        let turn = turns.take(client).await;
        let work = self.charged(work);
        move || {
            let done = work();
            drop(turn);
            done
        }
    }

    /// The processor time of the work counts for the quota of the client whose request this task handles: also if the client leaves
    /// meanwhile. The time that the thread waits for a disk or for a processor does not.
    pub(crate) fn charged<V, W>(self: &Arc<Self>, work: W) -> impl FnOnce() -> V + Send + 'static + use<V, W>
    where
        V: Send + 'static,
        W: FnOnce(&Self) -> V + Send + 'static,
    {
        let client = match self.syncer {
            Syncer::Thread => ChargedClient::of_this_task(),
            // The request measures it itself.
            Syncer::Inline(_) => None,
        };
        let cluster = self.clone();
        move || {
            let Some(client) = client else { return work(&cluster) };
            let before = thread_time();
            let done = work(&cluster);
            let time = thread_time().saturating_sub(before);
            cluster.quota_use.record_background(&cluster.client_quotas, &client, time);
            done
        }
    }
}

/// The work owns its memory, as it owns its turn.
fn with_memory<V, W>(memory: Charge, work: W) -> impl FnOnce() -> V + Send + 'static + use<V, W>
where
    V: Send + 'static,
    W: FnOnce() -> V + Send + 'static,
{
    move || {
        let done = work();
        drop(memory);
        done
    }
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::mpsc;

    use ottla_log::storage::mem::MemStorage;
    use ottla_protocol::frame;
    use ottla_protocol::messages::describe_acls::DescribeAclsRequest;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;
    use crate::broker::Broker;
    use crate::clock::Clock;
    use crate::cluster::Seams;
    use crate::config::{BrokerConfig, STANDARD_AUTHORIZER};

    /// Only a defect exhausts it.
    const PATIENCE: Duration = Duration::from_secs(30);
    /// Kafka's number for any type, operation or permission.
    const ANY: i8 = 1;

    fn cluster() -> Arc<Cluster> {
        let (storage, clock) = (Arc::new(MemStorage::new()), Clock::System);
        let seams = Seams { storage, clock, syncer: Syncer::Thread, seed: 1 };
        Cluster::open(BrokerConfig::default(), 1, seams).expect("a cluster")
    }

    fn host(number: u8) -> ClientHost {
        ClientHost::new(Some(IpAddr::from([10, 0, 0, number])))
    }

    /// Occupies all turns of lookups until the result is dropped.
    async fn occupy_lookups(
        cluster: &Arc<Cluster>,
        client: ClientHost,
    ) -> Vec<(mpsc::Sender<()>, JoinHandle<()>)> {
        let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
        let occupy = |_| {
            let (hold, held) = mpsc::channel::<()>();
            let (cluster, started) = (cluster.clone(), started.clone());
            let work = move |_: &Cluster| {
                started.send(()).expect("awaited");
                held.recv().unwrap_or_default();
            };
            (hold, tokio::spawn(async move { cluster.run_lookup(client, work).await }))
        };
        let occupied = (0..LOOKUPS_MAX).map(occupy).collect();
        for _ in 0..LOOKUPS_MAX {
            timeout(PATIENCE, starts.recv()).await.expect("in time").expect("a lookup has started");
        }
        occupied
    }

    /// A list of transactions had the only turn for long answers, and waited for lookups: no consumer with many partitions got its
    /// offsets. Patterns were matched there, all in one turn.
    #[tokio::test]
    async fn long_answers_and_patterns_do_not_wait_for_lookups() {
        let cluster = cluster();
        let occupied = occupy_lookups(&cluster, host(1)).await;
        let turn = timeout(PATIENCE, cluster.take_list_turn(host(2))).await.expect("the turn");
        let listed = timeout(PATIENCE, cluster.run_listing(turn, |_| 1)).await;
        assert_eq!(listed, Ok(1));
        drop(timeout(PATIENCE, cluster.take_list_turn(host(2))).await.expect("the turn ends with its work"));
        assert_eq!(timeout(PATIENCE, cluster.run_matching(host(2), |_| 2)).await, Ok(2));
        drop(occupied);
    }

    /// A client that does not read its responses had the turn while it waited for room.
    #[tokio::test]
    async fn a_list_that_has_no_room_has_no_turn() {
        let cluster = cluster();
        let unsent = cluster.memory.send(host(1), cluster.config.memory_bytes_max);
        let mut waits = Box::pin(cluster.take_list_turn(host(1)));
        assert!(timeout(Duration::ZERO, waits.as_mut()).await.is_err());
        drop(timeout(PATIENCE, cluster.turns.lists.take(host(2))).await.expect("the turn is free"));
        drop(unsent);
        drop(timeout(PATIENCE, waits).await.expect("there is room"));
    }

    /// The thread that serves clients made the whole answer at once, of up to 100,000 ACLs.
    #[tokio::test]
    async fn a_description_of_acls_waits_for_the_turn_of_long_answers() {
        let builder = Broker::builder().memory().configure(|config| {
            config.set("authorizer.class.name", STANDARD_AUTHORIZER).expect("a property");
            config.set("super.users", "User:ANONYMOUS").expect("a property");
        });
        let mut broker = builder.start().await.expect("a broker in memory");
        let turn = timeout(PATIENCE, broker.cluster().take_list_turn(host(1))).await.expect("the turn");
        let request = DescribeAclsRequest {
            resource_type_filter: ANY,
            pattern_type_filter: ANY,
            operation: ANY,
            permission_type: ANY,
            ..Default::default()
        };
        let request = frame::encode_request(1, None, 3, &request).expect("a request");
        let request = request.to_bytes().expect("in memory");
        let mut connection = broker.connect(1);
        connection.write_all(&request).await.expect("sent");
        let mut size = [0; 4];
        let mut answer = Box::pin(connection.read_exact(&mut size));
        assert!(timeout(Duration::from_millis(200), answer.as_mut()).await.is_err(), "it waits");
        drop(turn);
        timeout(PATIENCE, answer).await.expect("in time").expect("an answer");
        broker.stop().await;
    }

    /// Each took sixty megabytes of the memory for decompression before its turn, and produced batches waited for that memory.
    #[tokio::test]
    async fn a_push_that_waits_for_its_turn_has_no_memory() {
        let cluster = cluster();
        let turn = cluster.turns.pushes.take(host(1)).await;
        let mut waits =
            Box::pin(cluster.run_push(host(2), 1 << 20, |cluster| cluster.decoder_memory.used_bytes()));
        assert!(timeout(Duration::ZERO, waits.as_mut()).await.is_err());
        assert_eq!(cluster.decoder_memory.used_bytes(), 0);
        drop(turn);
        assert_eq!(timeout(PATIENCE, waits).await, Ok(1 << 20));
        assert_eq!(cluster.decoder_memory.used_bytes(), 0);
    }

    /// The memory was returned with the request. Others took it while the push was still read.
    #[tokio::test]
    async fn a_push_has_its_memory_until_it_is_read() {
        let cluster = cluster();
        let (hold, held) = mpsc::channel::<()>();
        let (started, start) = tokio::sync::oneshot::channel();
        let read = move |_: &Cluster| {
            started.send(()).expect("awaited");
            held.recv().unwrap_or_default();
        };
        let of_task = cluster.clone();
        let request = tokio::spawn(async move { of_task.run_push(host(1), 1 << 20, read).await });
        timeout(PATIENCE, start).await.expect("in time").expect("it is read");
        request.abort();
        assert!(request.await.is_err(), "the request is gone");
        assert_eq!(cluster.decoder_memory.used_bytes(), 1 << 20);
        drop(hold);
        let returned = async {
            while cluster.decoder_memory.used_bytes() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, returned).await.expect("it is returned");
    }

    /// A broker that was stopped released its directory while a thread still changed topics or deleted records there.
    #[tokio::test]
    async fn a_broker_stops_after_the_changes_whose_requests_are_gone() {
        for deletes in [false, true] {
            let broker = Broker::builder().memory().start().await.expect("a broker in memory");
            let cluster = broker.cluster();
            let (hold, held) = mpsc::channel::<()>();
            let (started, start) = tokio::sync::oneshot::channel();
            let work = move |_: &Cluster| {
                started.send(()).expect("awaited");
                held.recv().unwrap_or_default();
            };
            let request = tokio::spawn(async move {
                if deletes {
                    cluster.run_deletion(host(1), work).await;
                } else {
                    cluster.change_topics(work).await;
                }
            });
            timeout(PATIENCE, start).await.expect("in time").expect("the work has started");
            request.abort();
            assert!(request.await.is_err(), "the request is gone");
            let mut stops = Box::pin(broker.stop());
            assert!(timeout(Duration::from_millis(200), stops.as_mut()).await.is_err(), "the work runs");
            drop(hold);
            timeout(PATIENCE, stops).await.expect("the work has ended");
        }
    }

    /// The lookups of one client, which had come first, were all before those of others.
    #[tokio::test]
    async fn clients_take_turns_for_lookups() {
        let cluster = cluster();
        let mut occupied = occupy_lookups(&cluster, host(1)).await;
        let (done, mut order) = tokio::sync::mpsc::unbounded_channel();
        let mut waiting = Vec::new();
        for client in [1, 1, 1, 2] {
            let (of_task, done) = (cluster.clone(), done.clone());
            let note = move |_: &Cluster| done.send(client).expect("awaited");
            let mut lookup = Box::pin(async move { of_task.run_lookup(host(client), note).await });
            assert!(timeout(Duration::ZERO, lookup.as_mut()).await.is_err(), "it waits");
            waiting.push(tokio::spawn(lookup));
        }
        drop(occupied.pop());
        assert_eq!(timeout(PATIENCE, order.recv()).await, Ok(Some(2)));
        drop(occupied);
        for lookup in waiting {
            timeout(PATIENCE, lookup).await.expect("in time").expect("done");
        }
    }
}
