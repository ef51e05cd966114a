//! The initialization of the states of a group's partitions: in tasks, because a client may leave before a slow disk has written.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::ErrorCode;
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinSet;

use super::group::Change;
use super::registry::ShareGroups;
use crate::cluster::{Cluster, lock};
use crate::coordinator::consumer_group::member::Place;
use crate::coordinator::share_state::SharePartitionKey;
use crate::internal_topics::InternalTopic;

/// The turn to change states of a group's partitions. A state is begun or deleted in one turn, so none begins after its deletion. A
/// later group of the same name has another one.
pub(super) type StateTurn = Arc<Mutex<()>>;

/// The most states of a group that are initialized at a time: each has a task.
const INITIALIZING_MAX: usize = 100;

/// States to initialize.
pub(super) struct Initialization {
    pub(super) group_id: String,
    pub(super) turn: StateTurn,
    pub(super) state_epoch: i32,
    /// The start offset of each partition.
    pub(super) starts: BTreeMap<Place, i64>,
}

/// Results of initializations.
#[derive(Default)]
struct Ended {
    done: Vec<Place>,
    failed: BTreeMap<Place, ErrorCode>,
    /// The group's note about the initializations may not be stored.
    is_note_lost: bool,
}

impl ShareGroups {
    /// Begins to initialize states, and returns the partitions that failed when all have ended. The group's notes about them are
    /// durable when [`ShareGroups::await_stored`] has returned.
    pub(super) fn start_initializing(
        &self,
        cluster: &Arc<Cluster>,
        initialization: Initialization,
    ) -> oneshot::Receiver<BTreeMap<Place, ErrorCode>> {
        let (done, failed) = oneshot::channel();
        let cluster = cluster.clone();
        let task = async move {
            let failed = cluster.share_groups.initialize(&cluster, initialization).await;
            // The client may be gone.
            let _ = done.send(failed);
        };
        let mut tasks = lock(&self.tasks);
        // Tasks that have ended leave the set here: it stays as small as the number of initializations under way.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
        failed
    }

    async fn initialize(
        &self,
        cluster: &Arc<Cluster>,
        initialization: Initialization,
    ) -> BTreeMap<Place, ErrorCode> {
        let Initialization { group_id, turn, state_epoch, starts } = initialization;
        let _turn = turn.lock().await;
        // The group's note that these states may exist is durable before one of them does: a deletion of the group finds them.
        let noted = self.await_stored(cluster, &group_id).await;
        let mut writes = JoinSet::new();
        let mut ended = Ended { is_note_lost: noted.is_err(), ..Ended::default() };
        let mut starts = by_log(cluster, &group_id, starts).into_iter();
        let mut failed = BTreeMap::new();
        loop {
            while writes.len() < INITIALIZING_MAX
                && let Some((key, start)) = starts.next()
            {
                let place = (key.topic, key.partition);
                let checked = noted.and_then(|()| self.check_initializing(&group_id, &turn, place));
                if let Err(code) = checked {
                    ended.failed.insert(place, code);
                    continue;
                }
                let cluster = cluster.clone();
                // Those of one log that are appended at once share its syncs.
                writes.spawn(async move {
                    (
                        place,
                        cluster.share_states.initialize_for_group(&cluster, &key, state_epoch, start).await,
                    )
                });
            }
            self.finish_initializing(cluster, &group_id, &turn, &ended);
            failed.append(&mut ended.failed);
            let Some(first) = writes.join_next().await else { break };
            ended = Ended::default();
            // Those that have ended by now are noted in one record.
            let others = std::iter::from_fn(|| writes.try_join_next());
            for (place, result) in std::iter::once(first).chain(others).flatten() {
                match result {
                    Ok(()) => ended.done.push(place),
                    Err(code) => drop(ended.failed.insert(place, code)),
                }
            }
        }
        if let Some(code) = failed.values().next() {
            tracing::warn!(group_id, partitions = failed.len(), %code, "cannot initialize the state of a share group");
        }
        failed
    }

    /// Refuses a state that the group does not wait for any more.
    fn check_initializing(&self, group_id: &str, turn: &StateTurn, place: Place) -> Result<(), ErrorCode> {
        let state = self.lock();
        let entry = state.by_id.get(group_id).filter(|entry| Arc::ptr_eq(&entry.turn, turn));
        let is_noted = entry.is_some_and(|entry| entry.group.state_partitions.is_initializing(place));
        if is_noted { Ok(()) } else { Err(ErrorCode::GroupIdNotFound) }
    }

    /// Notes results in the group, if it is still there.
    fn finish_initializing(&self, cluster: &Arc<Cluster>, group_id: &str, turn: &StateTurn, ended: &Ended) {
        let mut state = self.lock();
        let entry = state.by_id.get_mut(group_id).filter(|entry| Arc::ptr_eq(&entry.turn, turn));
        if let Some(entry) = entry {
            let interval = entry.settings(cluster, group_id).heartbeat_interval;
            entry.group.finish_initializing(&ended.done);
            entry.group.note_failed(interval, &ended.failed);
            if ended.is_note_lost {
                entry.group.changed.insert(Change::StatePartitions);
            }
            entry.save(cluster, group_id);
        }
    }

    /// Waits for the turn to change states of a group's partitions. `None` if there is no such group.
    pub(super) async fn await_turn(&self, group_id: &str) -> Option<tokio::sync::OwnedMutexGuard<()>> {
        let turn_of = || self.lock().by_id.get(group_id).map(|entry| entry.turn.clone());
        loop {
            let turn = turn_of()?;
            let taken = turn.clone().lock_owned().await;
            // The group may have been deleted and created again meanwhile.
            if turn_of().is_some_and(|now| Arc::ptr_eq(&now, &turn)) {
                return Some(taken);
            }
        }
    }

    /// Stops the initializations. Heartbeats after the next start repeat them.
    pub(crate) async fn stop(&self) {
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.shutdown().await;
    }

    /// [`ShareGroups::stop`] without the wait.
    pub(crate) fn abort(&self) {
        lock(&self.tasks).abort_all();
    }
}

/// The states in the order of their logs.
fn by_log(cluster: &Cluster, group_id: &str, starts: BTreeMap<Place, i64>) -> Vec<(SharePartitionKey, i64)> {
    let group: Arc<str> = group_id.into();
    let key = |(topic, partition)| SharePartitionKey { group: group.clone(), topic, partition };
    let mut states: Vec<_> = starts.into_iter().map(|(place, start)| (key(place), start)).collect();
    states.sort_by_cached_key(|(key, _)| {
        let log = cluster.internal_partition(InternalTopic::ShareGroupState, &key.coordinator_key());
        log.map(|log| log.index)
    });
    states
}
