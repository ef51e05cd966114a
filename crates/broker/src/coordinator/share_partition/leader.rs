//! The share partitions that this broker leads: loaded at their first use, and written in the order of their changes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ottla_log::deliberate::{DeliberateFault, has_deliberate_fault};
use ottla_protocol::{ErrorCode, Uuid};
use tokio::sync::{Notify, OnceCell, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::acknowledge::AckBatch;
use super::acquire::Acquired;
use super::lock_ends::{LockEnd, LockEnds};
use super::lost_records::forget_lost_records;
use super::reset::initial_offset;
use super::sessions::{Place, Places, SessionKey, ShareSessions};
use super::settings::{ShareSettings, settings_of};
use super::window::{ChangeId, LOCKS_WITHOUT_MEMORY_MAX, ShareLimits, SharePartition, WindowWrite};
use crate::cluster::{Cluster, lock};
use crate::coordinator::share_state::{SharePartitionKey, StateChange};
use crate::memory::{Kept, KeptMemory};
use crate::partition::Partition;

/// Writes that the share coordinator cannot serve yet are tried again so often, after this time.
const WRITE_RETRIES: u32 = 50;
const WRITE_RETRY_AFTER: Duration = Duration::from_millis(100);
/// States of records that are being archived are written again after this time: no request waits for them.
const ARCHIVING_RETRY_AFTER: Duration = Duration::from_secs(1);

/// All share partitions and sessions of the nodes of one process.
#[derive(Debug)]
pub(crate) struct ShareLeader {
    partitions: Mutex<BTreeMap<SharePartitionKey, Arc<Slot>>>,
    sessions: Mutex<ShareSessions>,
    /// The writes under way.
    tasks: Mutex<JoinSet<()>>,
    connections: AtomicU64,
    /// The memory of the windows of all share partitions, and of their stored states.
    memory: KeptMemory,
    pub(super) lock_ends: Arc<LockEnds<LedPartition>>,
}

/// A share partition that is loaded once, however many requests wait for it.
#[derive(Debug)]
struct Slot {
    leader_epoch: i32,
    /// The state that it was loaded from: another one follows when the group's offset is reset.
    incarnation: Option<u64>,
    loaded: OnceCell<Arc<LedPartition>>,
    /// The share partition before, whose writes end before the state is read.
    previous: Option<Arc<LedPartition>>,
    /// Forgotten while it was being loaded.
    is_forgotten: AtomicBool,
}

/// A loaded share partition.
#[derive(Debug)]
pub(crate) struct LedPartition {
    pub(super) key: SharePartitionKey,
    pub(super) leader_epoch: i32,
    state_epoch: i32,
    pub(super) state: Mutex<LedState>,
    /// It is loaded again before its next use. Set under the lock of the state.
    is_closed: AtomicBool,
    /// Notified when records may have become available.
    changed: Notify,
}

#[derive(Debug)]
pub(super) struct LedState {
    pub(super) window: SharePartition,
    is_writing: bool,
    pub(super) letters: LettersState,
    pub(super) lock_end: LockEnd<LedPartition>,
    /// The memory of the window.
    kept: Kept,
    /// The requests that wait for the writes of their changes.
    waiters: Vec<(ChangeId, oneshot::Sender<Result<(), ErrorCode>>)>,
}

/// The state of the task that writes the dead letters of a share partition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LettersState {
    Idle,
    /// Letters are being written. A load of the share partition waits for them, so that they are not written twice.
    Writing,
    /// The task pauses before another attempt. A load does not wait for it.
    Waiting,
}

/// A change that is being written.
#[derive(Debug)]
pub(crate) enum Acknowledging {
    /// Nothing has to be written.
    Done,
    Written(oneshot::Receiver<Result<(), ErrorCode>>),
}

impl Acknowledging {
    /// Waits until the change is durable, or refused.
    pub(crate) async fn result(self) -> Result<(), ErrorCode> {
        if has_deliberate_fault(DeliberateFault::UnstoredAcknowledgements) {
            return Ok(());
        }
        match self {
            Self::Done => Ok(()),
            // The broker stops: the client does not know whether the change was stored.
            Self::Written(result) => result.await.unwrap_or(Err(ErrorCode::UnknownServerError)),
        }
    }
}

/// The epoch of a share partition's leader. In librdkafka's mock cluster, records that are in flight stay so when the leader moves.
fn epoch_of(cluster: &Cluster, partition: &Partition) -> i32 {
    if cluster.overrides.mock_fetches() { 0 } else { partition.leader_epoch() }
}

impl ShareLeader {
    pub(crate) fn new(memory: KeptMemory) -> Self {
        Self {
            partitions: Mutex::default(),
            sessions: Mutex::default(),
            tasks: Mutex::default(),
            connections: AtomicU64::new(0),
            memory,
            lock_ends: Arc::new(LockEnds::new()),
        }
    }

    /// The limits of a share partition at this moment: while the memory of windows is used up, each has few records in flight.
    pub(super) fn limits_now(&self, limits: ShareLimits) -> ShareLimits {
        if !self.memory.is_full() {
            return limits;
        }
        let locks_max = limits.locks_max.min(LOCKS_WITHOUT_MEMORY_MAX);
        ShareLimits { locks_max, splits_batches: true, ..limits }
    }

    /// A number for a connection that has sessions.
    pub(crate) fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Calls `act` with the sessions.
    pub(crate) fn with_sessions<T>(&self, act: impl FnOnce(&mut ShareSessions) -> T) -> T {
        act(&mut lock(&self.sessions))
    }

    /// The share partition, loaded.
    ///
    /// # Errors
    /// Those of [`ShareStates::read`](crate::coordinator::share_state::ShareStates::read).
    pub(crate) async fn load(
        &self,
        cluster: &Arc<Cluster>,
        key: &SharePartitionKey,
        partition: &Arc<Partition>,
        settings: &ShareSettings,
    ) -> Result<Arc<LedPartition>, ErrorCode> {
        let leader_epoch = epoch_of(cluster, partition);
        let incarnation = cluster.share_states.incarnation(key);
        let slot = self.slot(key, leader_epoch, incarnation);
        let load = async || {
            if let Some(previous) = &slot.previous {
                previous.writes_ended().await;
            }
            let led = read(cluster, key, partition, leader_epoch, settings).await.map(Arc::new)?;
            // After a restart, records can wait for their letters.
            led.start_dead_letters(cluster);
            Ok(led)
        };
        match slot.loaded.get_or_try_init(load).await {
            Ok(_) if slot.is_forgotten.load(Ordering::Acquire) => Err(ErrorCode::CoordinatorNotAvailable),
            Ok(loaded) => Ok(loaded.clone()),
            Err(code) => {
                let mut partitions = lock(&self.partitions);
                let is_same = partitions.get(key).is_some_and(|other| Arc::ptr_eq(other, &slot));
                if is_same && slot.loaded.get().is_none() && slot.previous.is_none() {
                    partitions.remove(key);
                }
                Err(code)
            }
        }
    }

    /// The slot of a share partition. One of an earlier epoch, or that was closed, is replaced.
    fn slot(&self, key: &SharePartitionKey, leader_epoch: i32, incarnation: Option<u64>) -> Arc<Slot> {
        let mut partitions = lock(&self.partitions);
        let known = partitions.get(key);
        let is_usable = |slot: &&Arc<Slot>| slot.is_usable(leader_epoch) && slot.incarnation == incarnation;
        if let Some(slot) = known.filter(is_usable) {
            return slot.clone();
        }
        let previous = known.and_then(|slot| slot.forget().or_else(|| slot.previous.clone()));
        let is_forgotten = AtomicBool::new(false);
        let slot =
            Arc::new(Slot { leader_epoch, incarnation, loaded: OnceCell::new(), previous, is_forgotten });
        partitions.insert(key.clone(), slot.clone());
        slot
    }

    /// The share partition, if it is loaded under the partition's epoch.
    pub(crate) fn loaded(
        &self,
        cluster: &Cluster,
        key: &SharePartitionKey,
        partition: &Partition,
    ) -> Option<Arc<LedPartition>> {
        let leader_epoch = epoch_of(cluster, partition);
        let partitions = lock(&self.partitions);
        let slot = partitions.get(key).filter(|slot| slot.is_usable(leader_epoch))?;
        slot.loaded.get().cloned()
    }

    /// Releases the records of sessions that have ended.
    pub(crate) fn release(&self, cluster: &Arc<Cluster>, ended: &[(SessionKey, Places)]) {
        for (session, places) in ended {
            drop(self.release_session(cluster, session, places));
        }
    }

    /// Releases the records of one session. Returns the changes, in the order of the partitions.
    pub(crate) fn release_session(
        &self,
        cluster: &Arc<Cluster>,
        session: &SessionKey,
        places: &[Place],
    ) -> Vec<(Place, Acknowledging)> {
        let limits = settings_of(cluster, &session.group).limits;
        let released = places.iter().map(|place| {
            let (topic, partition) = *place;
            let key = SharePartitionKey { group: session.group.clone(), topic, partition };
            let led = lock(&self.partitions).get(&key).and_then(|slot| slot.loaded.get().cloned());
            let acknowledging = led.map_or(Acknowledging::Done, |led| {
                let acknowledging = {
                    let mut state = lock(&led.state);
                    led.observe_released(cluster, &session.member);
                    let change = state.window.release(&session.member, &limits);
                    state.count(cluster);
                    state.acknowledging(change)
                };
                led.start_write(cluster);
                self.forget_unused(&led);
                acknowledging
            });
            (*place, acknowledging)
        });
        released.collect()
    }

    /// Ends the sessions of a connection, and releases their records.
    pub(crate) fn end_connection(&self, cluster: &Arc<Cluster>, connection: u64) {
        let ended = self.with_sessions(|sessions| sessions.end_connection(connection));
        self.release(cluster, &ended);
    }

    /// Ends the sessions of a member that has left its group, and releases its records.
    pub(crate) fn member_left(&self, cluster: &Arc<Cluster>, group: &str, member: &str) {
        let ended = self.with_sessions(|sessions| sessions.end_group(group, Some(member)));
        self.release(cluster, &ended);
    }

    /// Forgets the share partitions of a group that has no member, was deleted, or whose offsets were changed: they are loaded
    /// again at their next use.
    pub(crate) fn forget_group(&self, cluster: &Arc<Cluster>, group: &str) {
        let ended = self.with_sessions(|sessions| sessions.end_group(group, None));
        self.release(cluster, &ended);
        self.forget(|key| *key.group == *group);
    }

    /// Forgets the share partitions of a topic that is deleted.
    pub(crate) fn forget_topic(&self, topic: Uuid) {
        self.forget(|key| key.topic == topic);
    }

    /// Closes share partitions. Those with a write under way stay in the table until it ends.
    fn forget(&self, is_meant: impl Fn(&SharePartitionKey) -> bool) {
        lock(&self.partitions).retain(|key, slot| {
            !is_meant(key)
                || match slot.forget().or_else(|| slot.previous.clone()) {
                    Some(led) => led.is_busy(),
                    None => false,
                }
        });
    }

    /// Returns `true` if the share partition was, or is being, loaded again.
    pub(super) fn is_replaced(&self, led: &Arc<LedPartition>) -> bool {
        let partitions = lock(&self.partitions);
        let is_other = |slot: &Arc<Slot>| !slot.loaded.get().is_some_and(|loaded| Arc::ptr_eq(loaded, led));
        partitions.get(&led.key).is_some_and(is_other)
    }

    /// Runs a task of a share partition, until the broker stops.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.tasks);
        // Tasks that have ended leave the set here: it stays as small as the number of tasks under way.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Forgets a share partition in which nothing is under way and that no session has. Its state is stored. One that is closed
    /// needs no more than the end of its writes.
    pub(crate) fn forget_unused(&self, led: &Arc<LedPartition>) {
        let place = (led.key.topic, led.key.partition);
        if lock(&self.sessions).has(&led.key.group, place) {
            return;
        }
        let mut partitions = lock(&self.partitions);
        let Some(slot) = partitions.get(&led.key) else { return };
        if !slot.loaded.get().is_some_and(|loaded| Arc::ptr_eq(loaded, led)) {
            return;
        }
        // One that is in use is not unused.
        if let Ok(state) = led.state.try_lock()
            && !state.is_writing
            && state.letters == LettersState::Idle
            && (state.window.is_idle() || led.is_closed() && !state.window.has_changes())
        {
            led.is_closed.store(true, Ordering::Release);
            partitions.remove(&led.key);
        }
    }

    /// Calls `look` with each loaded share partition and its number of records in flight, in the order of the keys.
    pub(crate) fn look_at_in_flight(&self, mut look: impl FnMut(&SharePartitionKey, i64)) {
        let loaded: Vec<Arc<LedPartition>> =
            lock(&self.partitions).values().filter_map(|slot| slot.loaded.get().cloned()).collect();
        // Each lock is held for one share partition only.
        for led in loaded.iter().filter(|led| !led.is_closed()) {
            let in_flight = lock(&led.state).window.in_flight();
            look(&led.key, in_flight);
        }
    }

    /// Stops the writes. Their changes were not acknowledged.
    pub(crate) async fn stop(&self) {
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.shutdown().await;
    }

    /// [`ShareLeader::stop`] without the wait.
    pub(crate) fn abort(&self) {
        lock(&self.tasks).abort_all();
    }
}

impl Slot {
    fn is_usable(&self, leader_epoch: i32) -> bool {
        self.leader_epoch == leader_epoch
            && !self.is_forgotten.load(Ordering::Acquire)
            && self.loaded.get().is_none_or(|loaded| !loaded.is_closed())
    }

    /// Closes the share partition. Returns it if it is loaded.
    fn forget(&self) -> Option<Arc<LedPartition>> {
        self.is_forgotten.store(true, Ordering::Release);
        let led = self.loaded.get()?;
        led.close();
        Some(led.clone())
    }
}

/// Reads the state of a share partition. A group that begins here stores where it begins, so that a crash loses no record.
async fn read(
    cluster: &Arc<Cluster>,
    key: &SharePartitionKey,
    partition: &Arc<Partition>,
    leader_epoch: i32,
    settings: &ShareSettings,
) -> Result<LedPartition, ErrorCode> {
    let mut stored = cluster.share_states.read(cluster, key, leader_epoch).await?;
    if stored.start_offset < 0 {
        stored.start_offset = initial_offset(cluster, partition, settings.reset).await?;
        let change = StateChange {
            state_epoch: stored.state_epoch,
            leader_epoch,
            start_offset: stored.start_offset,
            delivery_complete_count: 0,
            batches: Vec::new(),
        };
        cluster.share_states.write(cluster, key, change).await?;
    }
    let (log_start, log_end) = {
        let log = partition.log();
        (log.start_offset(), log.end_offset())
    };
    // The log has lost records, or an administrator chose an offset above its end.
    let stored = forget_lost_records(cluster, key, stored, log_end).await?;
    let mut window = SharePartition::new(stored.start_offset, &stored.batches);
    window.set_log_start(log_start);
    let leader = &cluster.share_leader;
    let kept = leader.memory.keep_known(window.memory_bytes());
    let lock_end = LockEnd::new(&leader.lock_ends);
    let letters = LettersState::Idle;
    let state = LedState { window, is_writing: false, letters, lock_end, kept, waiters: Vec::new() };
    Ok(LedPartition {
        key: key.clone(),
        leader_epoch,
        state_epoch: stored.state_epoch,
        state: Mutex::new(state),
        is_closed: AtomicBool::new(false),
        changed: Notify::new(),
    })
}

impl LedState {
    /// Moves the counts of the window to the metrics.
    pub(super) fn count(&mut self, cluster: &Cluster) {
        self.window.take_counts().add_to(&cluster.metrics.share);
    }

    /// Counts the memory of the window. It may exceed the maximum: records that were acquired are kept.
    fn count_memory(&mut self) {
        let (before, after) = (self.kept.bytes(), self.window.memory_bytes());
        if before < after {
            self.kept.add(after - before);
        } else if after < before {
            self.kept.release(before - after);
        }
    }

    /// The wait for a change.
    fn acknowledging(&mut self, change: Option<ChangeId>) -> Acknowledging {
        let Some(change) = change else { return Acknowledging::Done };
        let (sender, receiver) = oneshot::channel();
        self.waiters.push((change, sender));
        Acknowledging::Written(receiver)
    }
}

impl LedPartition {
    /// Resolves when records may have become available. It must be created before the look at the records.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// The end of the first lock, or an earlier time.
    pub(crate) fn next_lock_end(&self) -> Option<Instant> {
        lock(&self.state).window.next_lock_end()
    }

    /// Marks what a member acknowledges, and begins to write it.
    pub(crate) fn acknowledge(
        self: &Arc<Self>,
        cluster: &Arc<Cluster>,
        now: Instant,
        member: &str,
        batches: &[AckBatch],
        settings: &ShareSettings,
    ) -> Result<Acknowledging, ErrorCode> {
        let acknowledged = {
            let mut state = lock(&self.state);
            if self.is_closed() {
                return Err(ErrorCode::InvalidRecordState);
            }
            let LedState { window, .. } = &mut *state;
            if window.expire(now, &settings.limits) {
                self.changed.notify_waiters();
            }
            // The records are delivered again when their locks end.
            let lacks_memory = cluster.share_leader.memory.is_full() && window.is_split_too_far_by(batches);
            let change = if lacks_memory {
                Err(ErrorCode::InvalidRecordState)
            } else {
                window.acknowledge(now, member, batches, &settings.limits)
            };
            if change.is_ok() {
                self.observe_acknowledged(cluster, member, batches);
            }
            state.count(cluster);
            change.map(|change| state.acknowledging(change))
        };
        self.start_write(cluster);
        acknowledged
    }

    /// Takes back records that were acquired for a response that is not sent.
    pub(crate) fn return_unsent(&self, member: &str, unsent: &[Acquired]) {
        lock(&self.state).window.return_unsent(member, unsent);
        self.changed.notify_waiters();
    }

    /// Returns `true` if it must be loaded again.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Wakes the fetches that wait for records.
    pub(super) fn notify_changed(&self) {
        self.changed.notify_waiters();
    }

    fn close(&self) {
        let state = lock(&self.state);
        self.is_closed.store(true, Ordering::Release);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Returns `true` if states or dead letters are being written.
    fn is_busy(&self) -> bool {
        let state = lock(&self.state);
        state.is_writing || state.letters == LettersState::Writing
    }

    /// Waits until no write is under way.
    async fn writes_ended(&self) {
        loop {
            let changed = self.changed.notified();
            if !self.is_busy() {
                return;
            }
            changed.await;
        }
    }

    /// Writes the changes that wait, unless that is under way. A task does it: it ends even if the client is gone.
    pub(super) fn start_write(self: &Arc<Self>, cluster: &Arc<Cluster>) {
        {
            let mut state = lock(&self.state);
            state.count_memory();
            self.note_lock_end(&mut state);
            if state.is_writing || !state.window.has_changes() {
                return;
            }
            state.is_writing = true;
        }
        let (led, owned) = (self.clone(), cluster.clone());
        cluster.share_leader.spawn(async move { led.write_changes(&owned).await });
    }

    async fn write_changes(self: Arc<Self>, cluster: &Arc<Cluster>) {
        loop {
            let write = {
                let mut state = lock(&self.state);
                let Some(write) = state.window.next_write() else {
                    state.is_writing = false;
                    break;
                };
                write
            };
            let stored = self.store(cluster, write).await;
            let has_letters = {
                let mut state = lock(&self.state);
                let done = state.window.complete_write(stored.is_ok());
                state.count_memory();
                // A lock whose change was rolled back may have ended.
                self.note_lock_end(&mut state);
                let (ended, waiting) =
                    std::mem::take(&mut state.waiters).into_iter().partition(|(id, _)| done.contains(id));
                state.waiters = waiting;
                let ended: Vec<(ChangeId, oneshot::Sender<_>)> = ended;
                for (_, waiter) in ended {
                    // The client may be gone.
                    let _ = waiter.send(stored);
                }
                if let Err(code) = stored {
                    tracing::warn!(%code, group = %self.key.group, topic = %self.key.topic,
                        partition = self.key.partition, "cannot store the state of a share partition");
                    if is_fenced(code) {
                        self.is_closed.store(true, Ordering::Release);
                    }
                }
                state.window.may_have_dead_letters()
            };
            self.changed.notify_waiters();
            if has_letters {
                self.start_dead_letters(cluster);
            }
            if stored.is_err_and(|code| !is_fenced(code)) {
                self.retry_archiving().await;
            }
        }
        // The last change has ended, and with it the writes.
        self.changed.notify_waiters();
        cluster.share_leader.forget_unused(&self);
    }

    /// Enqueues again, after a while, the states of records that are being archived.
    async fn retry_archiving(&self) {
        if lock(&self.state).window.has_failed_archiving() {
            tokio::time::sleep(ARCHIVING_RETRY_AFTER).await;
            lock(&self.state).window.retry_archiving();
        }
    }

    async fn store(&self, cluster: &Arc<Cluster>, write: WindowWrite) -> Result<(), ErrorCode> {
        let WindowWrite { start_offset, delivery_complete_count, batches } = write;
        let (state_epoch, leader_epoch) = (self.state_epoch, self.leader_epoch);
        let change =
            StateChange { state_epoch, leader_epoch, start_offset, delivery_complete_count, batches };
        let mut tries = 0;
        loop {
            let stored = cluster.share_states.write(cluster, &self.key, change.clone()).await;
            tries += 1;
            match stored {
                Err(ErrorCode::CoordinatorLoadInProgress | ErrorCode::CoordinatorNotAvailable)
                    if tries < WRITE_RETRIES =>
                {
                    tokio::time::sleep(WRITE_RETRY_AFTER).await;
                }
                stored => return stored,
            }
        }
    }
}

/// Returns `true` if another leader has the state, or no leader: it is read again.
fn is_fenced(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::FencedLeaderEpoch
            | ErrorCode::FencedStateEpoch
            | ErrorCode::GroupIdNotFound
            | ErrorCode::InvalidRequest
            | ErrorCode::NotLeaderOrFollower
            | ErrorCode::UnknownTopicOrPartition
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows had no limit of their memory but the number of their records.
    #[test]
    fn few_records_are_in_flight_while_the_memory_of_windows_is_used_up() {
        let memory = KeptMemory::new(100);
        let leader = ShareLeader::new(memory.clone());
        let limits = ShareLimits {
            lock_duration: Duration::from_secs(30),
            delivery_count_max: 5,
            locks_max: 2000,
            renews: true,
            splits_batches: false,
            has_dead_letters: false,
        };
        let kept = memory.keep_known(100);
        let short = leader.limits_now(limits);
        assert_eq!((short.locks_max, short.splits_batches), (LOCKS_WITHOUT_MEMORY_MAX, true));
        drop(kept);
        let enough = leader.limits_now(limits);
        assert_eq!((enough.locks_max, enough.splits_batches), (2000, false));
    }
}
