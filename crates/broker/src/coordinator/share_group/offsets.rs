//! Changes of a share group's start offsets by clients, and the deletion of groups with their states.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_protocol::{ErrorCode, Uuid};
use tokio::time::Instant;

use super::group::ShareGroup;
use super::initialization::Initialization;
use super::registry::{ShareGroups, not_found, not_written};
use crate::cluster::Cluster;
use crate::coordinator::consumer_group::group::Refusal;
use crate::coordinator::consumer_group::member::Place;
use crate::coordinator::offset_log::too_long;
use crate::coordinator::share_state::SharePartitionKey;
use crate::internal_topics::InternalTopic;

/// The start offsets that a client sets, by topic and partition.
pub(crate) type Starts = BTreeMap<(Uuid, String), BTreeMap<i32, i64>>;

impl ShareGroups {
    /// Sets start offsets of a group without members. The group is created if it does not exist. Returns the partitions
    /// that failed.
    ///
    /// # Errors
    /// GROUP_ID_NOT_FOUND if the group is not a share group; NON_EMPTY_GROUP if it has members; GROUP_MAX_SIZE_REACHED if
    /// `memory.max.bytes` has no room for the partitions.
    pub(crate) async fn alter_offsets(
        &self,
        cluster: &Arc<Cluster>,
        group_id: &str,
        starts: Starts,
    ) -> Result<BTreeMap<Place, ErrorCode>, Refusal> {
        let (state_epoch, turn) = {
            let (_name, mut state) = self.lock_to_create(group_id);
            if !state.by_id.contains_key(group_id) {
                self.create(&mut state, cluster, group_id)?;
            }
            let entry = state.by_id.get_mut(group_id).ok_or_else(|| not_found(group_id))?;
            check_empty(&entry.group, group_id)?;
            let mut has_room = true;
            for ((_, name), partitions) in &starts {
                has_room = has_room && entry.group.reserve_states(name, partitions.len());
            }
            if !has_room {
                entry.group.count_states();
                if entry.is_new() {
                    state.remove(group_id);
                }
                return Err(no_room());
            }
            for ((id, name), partitions) in &starts {
                let now = Instant::now();
                entry.group.note_initializing(now, (*id, name), partitions.keys().copied());
            }
            entry.group.count_states();
            entry.save(cluster, group_id);
            if entry.is_new() {
                // Every topic is unknown.
                state.remove(group_id);
                return Ok(BTreeMap::new());
            }
            (entry.group.epoch, entry.turn.clone())
        };
        let starts = starts.into_iter().flat_map(|((id, _), partitions)| {
            partitions.into_iter().map(move |(index, start)| ((id, index), start))
        });
        let starts: BTreeMap<Place, i64> = starts.collect();
        let places: Vec<Place> = starts.keys().copied().collect();
        let initialization = Initialization { group_id: group_id.to_owned(), turn, state_epoch, starts };
        let ended = self.start_initializing(cluster, initialization).await;
        // Without a result, the broker stops.
        let stopped =
            |_| places.into_iter().map(|place| (place, ErrorCode::CoordinatorNotAvailable)).collect();
        let failed = ended.unwrap_or_else(stopped);
        cluster.share_leader.forget_group(cluster, group_id);
        self.await_stored(cluster, group_id).await.map_err(|code| not_written(group_id, code))?;
        Ok(failed)
    }

    /// Deletes the states of topics of a group without members. Returns the result of each topic; UNKNOWN_TOPIC_OR_PARTITION
    /// if the group has no state of it.
    ///
    /// # Errors
    /// GROUP_ID_NOT_FOUND if there is no such share group; NON_EMPTY_GROUP if it has members.
    pub(crate) async fn delete_offsets(
        &self,
        cluster: &Arc<Cluster>,
        group_id: &str,
        topics: &BTreeSet<Uuid>,
    ) -> Result<BTreeMap<Uuid, ErrorCode>, Refusal> {
        let _turn = self.await_turn(group_id).await.ok_or_else(|| not_found(group_id))?;
        let mut results = BTreeMap::new();
        let mut begun = BTreeMap::new();
        {
            let mut state = self.lock();
            let entry = state.by_id.get_mut(group_id).ok_or_else(|| not_found(group_id))?;
            check_empty(&entry.group, group_id)?;
            for topic in topics {
                match entry.group.begin_deleting(*topic) {
                    Some(places) => drop(begun.insert(*topic, places)),
                    None => drop(results.insert(*topic, ErrorCode::UnknownTopicOrPartition)),
                }
            }
            entry.save(cluster, group_id);
        }
        self.await_stored(cluster, group_id).await.map_err(|code| not_written(group_id, code))?;
        for (topic, mut places) in begun {
            if places.is_empty() {
                // An earlier deletion did not end.
                let partitions = cluster.topic_by_id(topic).map_or(0, |topic| topic.partitions.len() as i32);
                places.extend((0..partitions).map(|index| (topic, index)));
            }
            let deleted = delete_states(cluster, group_id, &places).await;
            if deleted.is_ok()
                && let Some(entry) = self.lock().by_id.get_mut(group_id)
            {
                entry.group.finish_deleting(topic);
                entry.save(cluster, group_id);
            }
            results.insert(topic, deleted.err().unwrap_or(ErrorCode::None));
        }
        cluster.share_leader.forget_group(cluster, group_id);
        self.await_stored(cluster, group_id).await.map_err(|code| not_written(group_id, code))?;
        Ok(results)
    }

    /// Deletes a group without members, and its states. Returns `false` if there is no such share group.
    ///
    /// # Errors
    /// NON_EMPTY_GROUP if it has members.
    pub(crate) async fn delete(&self, cluster: &Arc<Cluster>, group_id: &str) -> Result<bool, ErrorCode> {
        let Some(_turn) = self.await_turn(group_id).await else { return Ok(false) };
        let places = {
            let mut state = self.lock();
            let Some(entry) = state.by_id.get_mut(group_id) else { return Ok(false) };
            if !entry.group.members.is_empty() {
                return Err(ErrorCode::NonEmptyGroup);
            }
            let mut places: Vec<Place> = entry.group.state_partitions.all().into_iter().collect();
            for topic in entry.group.state_partitions.deleting.keys() {
                let count = cluster.topic_by_id(*topic).map_or(0, |topic| topic.partitions.len() as i32);
                places.extend((0..count).map(|index| (*topic, index)));
            }
            let topics: BTreeSet<Uuid> = places.iter().map(|(topic, _)| *topic).collect();
            for topic in topics {
                entry.group.begin_deleting(topic);
            }
            entry.save(cluster, group_id);
            places
        };
        self.await_stored(cluster, group_id).await?;
        delete_states(cluster, group_id, &places).await?;
        let written = {
            let mut state = self.lock();
            let Some(entry) = state.by_id.get_mut(group_id) else { return Ok(true) };
            if !entry.group.members.is_empty() {
                // A member has joined meanwhile.
                let topics: BTreeSet<Uuid> = places.iter().map(|(topic, _)| *topic).collect();
                for topic in topics {
                    entry.group.finish_deleting(topic);
                }
                entry.save(cluster, group_id);
                return Err(ErrorCode::NonEmptyGroup);
            }
            let tombstones = ShareGroup::tombstones(group_id).map_err(too_long)?;
            let partition = cluster.internal_partition(InternalTopic::ConsumerOffsets, group_id);
            let partition = partition.ok_or(ErrorCode::CoordinatorNotAvailable)?;
            let (written, ()) = cluster.write_internal(&partition, &tombstones, None, |_| ())?;
            state.remove(group_id);
            written
        };
        cluster.share_leader.forget_group(cluster, group_id);
        cluster.await_written(&written).await?;
        Ok(true)
    }
}

async fn delete_states(cluster: &Arc<Cluster>, group_id: &str, places: &[Place]) -> Result<(), ErrorCode> {
    let group: Arc<str> = group_id.into();
    for (topic, partition) in places {
        let key = SharePartitionKey { group: group.clone(), topic: *topic, partition: *partition };
        cluster.share_states.delete(cluster, &key).await?;
    }
    Ok(())
}

fn no_room() -> Refusal {
    let message = "memory.max.bytes has no room for the partitions of the group".to_owned();
    Refusal::new(ErrorCode::GroupMaxSizeReached, message)
}

fn check_empty(group: &ShareGroup, group_id: &str) -> Result<(), Refusal> {
    if group.members.is_empty() {
        return Ok(());
    }
    let message = format!("group `{group_id}` has {} members", group.members.len());
    Err(Refusal::new(ErrorCode::NonEmptyGroup, message))
}
