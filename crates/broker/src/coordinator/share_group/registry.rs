//! The share groups of the cluster: their writes, and the task that handles their deadlines.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ottla_log::LogError;
use ottla_protocol::{ErrorCode, Uuid};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::group::{FIRST_EPOCH, Outcome, ShareAnswer, ShareBeat, ShareGroup, ShareGroupSettings};
use super::initialization::{Initialization, StateTurn};
use super::records::StoredShareGroup;
use super::settings::settings_of;
use crate::cluster::{Cluster, OpenError};
use crate::coordinator::consumer_group::group::Refusal;
use crate::coordinator::consumer_group::member::Place;
use crate::coordinator::deadlines::{Deadline, Deadlines, keep_time, move_deadline};
use crate::coordinator::name_locks::NameLocks;
use crate::coordinator::offset_log::too_long;
use crate::coordinator::share_state::{SharePartitionKey, UNINITIALIZED};
use crate::internal_topics::{InternalRecord, InternalTopic, Written};
use crate::memory::KeptMemory;

/// The share groups.
#[derive(Debug)]
pub(crate) struct ShareGroups {
    /// A group of any type is created under the lock of its name.
    names: NameLocks,
    state: Mutex<State>,
    /// Notified when the next deadline may be earlier.
    changed: Notify,
    /// The initializations of states that are under way.
    pub(super) tasks: Mutex<JoinSet<()>>,
    pub(super) memory: KeptMemory,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) by_id: BTreeMap<String, Entry>,
    /// The groups by a time at which a member may be late. It is not later than the first deadline.
    deadlines: Deadlines,
    /// The first tick has begun the sessions of the members that were loaded.
    has_begun: bool,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) group: ShareGroup,
    /// The group's entry in `deadlines`.
    deadline: Option<Deadline>,
    pub(super) turn: StateTurn,
    /// The last write of the group.
    pub(super) written: Option<Result<Written, ErrorCode>>,
    /// The settings, and the version of the configurations that they were read from.
    settings: Option<(u64, Arc<ShareGroupSettings>)>,
    /// `true` while the removal of a deleted topic is not written.
    has_unwritten_removal: bool,
}

/// A heartbeat whose member and group were updated.
struct BegunHeartbeat {
    outcome: Outcome,
    interval: Duration,
    epoch: i32,
    turn: StateTurn,
    /// The time for which the first member of a new group waits for others.
    delay: Duration,
}

impl ShareGroups {
    pub(crate) fn new(memory: KeptMemory) -> Self {
        Self {
            names: NameLocks::default(),
            state: Mutex::default(),
            changed: Notify::new(),
            tasks: Mutex::default(),
            memory,
        }
    }

    /// Handles a heartbeat. Returns when its effects are durable.
    pub(crate) async fn heartbeat(
        &self,
        cluster: &Arc<Cluster>,
        group_id: &str,
        beat: ShareBeat,
    ) -> Result<(ShareAnswer, Duration), Refusal> {
        let member_id = beat.member_id.clone();
        let BegunHeartbeat { outcome, interval, epoch, turn, delay } =
            self.begin_heartbeat(cluster, group_id, &beat)?;
        let settled_at = Instant::now() + delay.min(interval);
        // A member that leaves ends its share sessions itself: librdkafka sends its last acknowledgements beside this request.
        let answer = match outcome {
            Outcome::Answer(answer) => answer,
            Outcome::Initialize { places, is_news } => {
                let starts = places.into_iter().map(|place| (place, UNINITIALIZED)).collect();
                let initialization =
                    Initialization { group_id: group_id.to_owned(), turn, state_epoch: epoch, starts };
                let ended = self.start_initializing(cluster, initialization);
                // The response has the partitions that a quick disk has stored meanwhile. The next heartbeat has the others.
                let _ = tokio::time::timeout(interval, ended).await;
                tokio::time::sleep_until(settled_at).await;
                self.finish_heartbeat(cluster, group_id, &member_id, is_news)?
            }
        };
        let stored = self.await_stored(cluster, group_id).await;
        stored.map_err(|code| not_written(group_id, code))?;
        Ok((answer, interval))
    }

    fn begin_heartbeat(
        &self,
        cluster: &Arc<Cluster>,
        group_id: &str,
        beat: &ShareBeat,
    ) -> Result<BegunHeartbeat, Refusal> {
        let (now, now_ms) = (Instant::now(), cluster.clock.now_ms());
        let (_name, mut state) = self.lock_to_create(group_id);
        let mut delay = Duration::ZERO;
        if !state.by_id.contains_key(group_id) {
            if beat.epoch != 0 {
                return Err(not_found(group_id));
            }
            delay = cluster.config.group_initial_delay;
            self.create(&mut state, cluster, group_id)?;
        }
        let State { by_id, deadlines, .. } = &mut *state;
        let Some(entry) = by_id.get_mut(group_id) else { return Err(not_found(group_id)) };
        let settings = entry.settings(cluster, group_id);
        let outcome = entry.group.heartbeat(now, now_ms, beat, &settings, &**cluster);
        if outcome.is_err() && entry.is_new() {
            by_id.remove(group_id);
            return Err(outcome.err().unwrap_or_else(|| not_found(group_id)));
        }
        entry.save(cluster, group_id);
        let deadline =
            entry.group.members.get(&beat.member_id).map(|member| member.deadline(settings.session_timeout));
        if let Some(next) = deadline
            && entry.deadline.as_ref().is_none_or(|(known, _)| next < *known)
        {
            entry.wake_at(deadlines, group_id, Some(next));
            self.changed.notify_one();
        }
        let (interval, epoch, turn) = (settings.heartbeat_interval, entry.group.epoch, entry.turn.clone());
        outcome.map(|outcome| BegunHeartbeat { outcome, interval, epoch, turn, delay })
    }

    fn finish_heartbeat(
        &self,
        cluster: &Arc<Cluster>,
        group_id: &str,
        member_id: &str,
        is_news: bool,
    ) -> Result<ShareAnswer, Refusal> {
        let now_ms = cluster.clock.now_ms();
        let mut state = self.lock();
        let entry = state.by_id.get_mut(group_id).ok_or_else(|| not_found(group_id))?;
        let settings = entry.settings(cluster, group_id);
        let answer = entry.group.settle(now_ms, member_id, is_news, &settings, &**cluster);
        entry.save(cluster, group_id);
        answer
    }

    /// Locks the groups for a request that may create one of this name.
    pub(super) fn lock_to_create(&self, group_id: &str) -> (MutexGuard<'_, ()>, MutexGuard<'_, State>) {
        (self.names.lock(group_id), self.lock())
    }

    /// Creates a group unless a group of another type has the name. See [`ShareGroups::lock_to_create`].
    pub(super) fn create(&self, state: &mut State, cluster: &Cluster, group_id: &str) -> Result<(), Refusal> {
        let is_other = cluster.consumer_groups.contains(group_id)
            || cluster.groups.is_known(group_id)
            || cluster.offsets.has_offsets(group_id);
        if is_other {
            let message = format!("group `{group_id}` is not a share group");
            return Err(Refusal::new(ErrorCode::GroupIdNotFound, message));
        }
        let Some(kept) = self.memory.keep(ShareGroup::bytes(group_id)) else {
            tracing::warn!(group_id, "a group is refused: memory.max.bytes has no room for it");
            let message = format!("memory.max.bytes has no room for group `{group_id}`");
            return Err(Refusal::new(ErrorCode::GroupMaxSizeReached, message));
        };
        let group = ShareGroup::new(self.memory.clone(), kept);
        state.by_id.insert(group_id.to_owned(), Entry::new(group));
        Ok(())
    }

    /// Calls `join`, which may create a group of another type, unless a share group has the name. None is created meanwhile.
    /// Groups of other names do not wait, and a group of another type that exists does not wait for share groups.
    pub(crate) fn unless_share_group<T>(
        &self,
        cluster: &Cluster,
        group_id: &str,
        join: impl FnOnce() -> T,
    ) -> Option<T> {
        let _name = self.names.lock(group_id);
        let is_other = cluster.consumer_groups.contains(group_id) || cluster.groups.is_known(group_id);
        (is_other || !self.contains(group_id)).then(join)
    }

    /// Replaces the targets of a group's members, and stops its assignor. Returns `false` if there is no such group.
    pub(crate) fn fix_targets(
        &self,
        cluster: &Arc<Cluster>,
        group_id: &str,
        targets: BTreeMap<String, BTreeSet<Place>>,
    ) -> bool {
        let mut state = self.lock();
        let Some(entry) = state.by_id.get_mut(group_id) else { return false };
        entry.group.fix_targets(cluster.clock.now_ms(), targets);
        entry.save(cluster, group_id);
        true
    }

    /// Waits until the group's records are durable.
    pub(crate) async fn await_stored(&self, cluster: &Arc<Cluster>, group_id: &str) -> Result<(), ErrorCode> {
        let written = self.lock().by_id.get(group_id).and_then(|entry| entry.written.clone());
        match written {
            Some(written) => cluster.await_written(&written?).await,
            None => Ok(()),
        }
    }

    /// Calls `look` with a group, if there is one of that name.
    pub(crate) fn look<T>(&self, group_id: &str, look: impl FnOnce(&ShareGroup) -> T) -> Option<T> {
        self.lock().by_id.get(group_id).map(|entry| look(&entry.group))
    }

    /// Calls `look` with at most `max` groups after this name. Returns the last name; `None` if there are no more groups.
    pub(crate) fn look_at_page(
        &self,
        after: Option<&str>,
        max: usize,
        mut look: impl FnMut(&str, &ShareGroup),
    ) -> Option<String> {
        let state = self.lock();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let page = state.by_id.range::<str, _>((from, Bound::Unbounded)).take(max);
        page.inspect(|(id, entry)| look(id, &entry.group)).last().map(|(id, _)| id.clone())
    }

    /// Returns whether a share group has this name.
    pub(crate) fn contains(&self, group_id: &str) -> bool {
        self.lock().by_id.contains_key(group_id)
    }

    /// The names of the groups.
    pub(crate) fn list(&self) -> Vec<String> {
        self.lock().by_id.keys().cloned().collect()
    }

    /// Takes a group from its records at the start. Sessions of its members begin again with the first tick.
    pub(crate) fn load(&self, group_id: String, stored: StoredShareGroup) {
        if stored.is_gone() {
            return;
        }
        let now = Instant::now();
        let group = ShareGroup::from_stored(&group_id, stored, now, &self.memory);
        let mut state = self.lock();
        let mut entry = Entry::new(group);
        // The first tick computes the deadline.
        entry.wake_at(&mut state.deadlines, &group_id, Some(now));
        state.by_id.insert(group_id, entry);
        self.changed.notify_one();
    }

    /// Handles the deadlines of sessions, without an end.
    async fn keep_time(&self, cluster: &Arc<Cluster>) {
        keep_time(&self.changed, |now| self.tick(cluster, now)).await;
    }

    pub(in crate::coordinator) fn tick(&self, cluster: &Arc<Cluster>, now: Instant) -> Option<Instant> {
        let mut left = Vec::new();
        let next = self.remove_late(cluster, now, &mut left);
        for (group_id, members) in left {
            self.release_left(cluster, &group_id, &members);
        }
        next
    }

    /// Releases the records of members that were not heard of, and forgets what the leaders know of a group without members.
    fn release_left(&self, cluster: &Arc<Cluster>, group_id: &str, members: &[String]) {
        for member in members {
            cluster.share_leader.member_left(cluster, group_id, member);
        }
        if self.look(group_id, |group| group.members.is_empty()) == Some(true) {
            cluster.share_leader.forget_group(cluster, group_id);
        }
    }

    /// Removes members whose session is over, and adds them to `left` by their groups. The first call begins the sessions of the members
    /// that were loaded: while other logs were opened, nothing listened, and no member could send a heartbeat.
    fn remove_late(
        &self,
        cluster: &Arc<Cluster>,
        now: Instant,
        left: &mut Vec<(String, Vec<String>)>,
    ) -> Option<Instant> {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.has_begun, true) {
            for entry in state.by_id.values_mut() {
                entry.group.begin_sessions(now);
            }
        }
        loop {
            let State { by_id, deadlines, .. } = &mut *state;
            let (at, group_id) = deadlines.first()?.clone();
            if at > now {
                return Some(at);
            }
            let Some(entry) = by_id.get_mut(&*group_id) else {
                deadlines.remove(&(at, group_id));
                continue;
            };
            let settings = entry.settings(cluster, &group_id);
            let before: Vec<String> = entry.group.members.keys().cloned().collect();
            let next = entry.group.tick(now, &settings);
            let has_left = |id: &String| !entry.group.members.contains_key(id);
            let late: Vec<String> = before.into_iter().filter(has_left).collect();
            if !late.is_empty() {
                left.push((group_id.to_string(), late));
            }
            entry.save(cluster, &group_id);
            entry.wake_at(deadlines, &group_id, next);
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cluster {
    /// Handles the deadlines of share groups, and prunes the states of their partitions, without an end.
    pub(crate) async fn keep_share_groups(self: &Arc<Self>) {
        tokio::join!(self.share_groups.keep_time(self), self.keep_share_states());
    }

    /// Lets the share groups initialize partitions again whose state is lost. Call it once all topics are loaded.
    pub(crate) fn initialize_lost_share_states(&self) {
        for (group_id, entry) in &mut self.share_groups.lock().by_id {
            let group: Arc<str> = group_id.as_str().into();
            entry.group.initialize_again(|(topic, partition)| {
                let key = SharePartitionKey { group: group.clone(), topic, partition };
                self.has_lost_share_state(&key)
            });
        }
    }

    /// Removes a deleted topic from the share groups. Blocks.
    pub(crate) fn forget_share_topic(&self, topic: Uuid) -> Result<(), OpenError> {
        self.share_leader.forget_topic(topic);
        let mut concerned = Vec::new();
        for (group_id, entry) in &mut self.share_groups.lock().by_id {
            // A removal that could not be written earlier is written now.
            entry.has_unwritten_removal |= entry.group.forget_topic(topic);
            if entry.has_unwritten_removal {
                concerned.push(group_id.clone());
            }
        }
        // An error of one group stops none of the others.
        let mut first_error = Ok(());
        for group_id in concerned {
            let Some(partition) = self.internal_partition(InternalTopic::ConsumerOffsets, &group_id) else {
                continue;
            };
            let written = self.write_chosen_blocking(&partition, || self.changed_records(&group_id));
            if written.is_ok()
                && let Some(entry) = self.share_groups.lock().by_id.get_mut(&group_id)
            {
                entry.has_unwritten_removal = false;
            }
            first_error = first_error.and(written.map_err(|reason| failed(&group_id, reason)));
        }
        Ok(first_error?)
    }

    /// The records of what changed in a share group, with the lock of the groups: nothing changes until they are appended. `None` if
    /// there is nothing to write: the group is deleted, or a request has written the change.
    fn changed_records(&self, group_id: &str) -> Result<Option<ChangedRecords<'_>>, String> {
        let state = self.share_groups.lock();
        let Some(entry) = state.by_id.get(group_id) else { return Ok(None) };
        let records = entry.group.records(group_id).map_err(|error| error.to_string())?;
        Ok((!records.is_empty()).then_some((records, state)))
    }
}

/// Records, and the lock under which they were encoded.
type ChangedRecords<'a> = (Vec<InternalRecord>, MutexGuard<'a, State>);

fn failed(group_id: &str, reason: String) -> LogError {
    LogError::Io {
        dir: InternalTopic::ConsumerOffsets.name().to_owned(),
        doing: format!("remove a topic from share group {group_id}"),
        source: std::io::Error::other(reason),
    }
}

impl State {
    pub(super) fn remove(&mut self, group_id: &str) {
        if let Some(mut entry) = self.by_id.remove(group_id) {
            entry.wake_at(&mut self.deadlines, group_id, None);
        }
    }
}

impl Entry {
    fn new(group: ShareGroup) -> Self {
        Self {
            group,
            deadline: None,
            turn: StateTurn::default(),
            written: None,
            settings: None,
            has_unwritten_removal: false,
        }
    }

    /// Returns whether nothing of the group is stored.
    pub(super) fn is_new(&self) -> bool {
        self.written.is_none()
            && self.group.members.is_empty()
            && self.group.state_partitions.is_empty()
            && self.group.epoch <= FIRST_EPOCH
    }

    /// The settings of the group, which are read again after a change of any configuration.
    pub(super) fn settings(&mut self, cluster: &Cluster, group_id: &str) -> Arc<ShareGroupSettings> {
        let version = cluster.live.version();
        match &self.settings {
            Some((known, settings)) if *known == version => settings.clone(),
            _ => {
                let settings = Arc::new(settings_of(cluster, group_id));
                self.settings = Some((version, settings.clone()));
                settings
            }
        }
    }

    /// Replaces the time of the next tick.
    fn wake_at(&mut self, deadlines: &mut Deadlines, group_id: &str, at: Option<Instant>) {
        move_deadline(deadlines, || Arc::from(group_id), &mut self.deadline, at);
    }

    /// Writes the records of what changed. After a failure the next call writes them again, and members get no answer
    /// until it succeeds.
    pub(super) fn save(&mut self, cluster: &Arc<Cluster>, group_id: &str) {
        if self.group.changed.is_empty() {
            return;
        }
        let written = self
            .group
            .records(group_id)
            .map_err(too_long)
            .and_then(|records| cluster.write_group_records(group_id, &records));
        if written.is_ok() {
            self.group.changed.clear();
        }
        self.written = written.transpose();
    }
}

pub(super) fn not_written(group_id: &str, code: ErrorCode) -> Refusal {
    Refusal::new(code, format!("group `{group_id}`: its record cannot be written"))
}

pub(super) fn not_found(group_id: &str) -> Refusal {
    Refusal::new(ErrorCode::GroupIdNotFound, format!("share group `{group_id}` does not exist"))
}
