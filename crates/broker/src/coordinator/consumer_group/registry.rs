//! The consumer groups of the cluster: their writes, and the task that handles their deadlines.

mod classic_requests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ottla_protocol::{ErrorCode, Uuid};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::group::{Beat, BeatAnswer, ConsumerGroup, GroupSettings, Refusal, TopicLookup};
use super::member::Place;
use super::patterns::{PatternVersions, ResolvedPattern};
use super::records::StoredConsumerGroup;
use super::settings::settings_of;
use crate::cluster::Cluster;
use crate::coordinator::deadlines::{Deadline, Deadlines, is_interval_over, keep_time, move_deadline};
use crate::coordinator::group::Group;
use crate::coordinator::group_log::group_record;
use crate::coordinator::name_locks::{PARTS, part_of};
use crate::coordinator::offset_log::too_long;
use crate::coordinator::offsets::MembersForExpiry;
use crate::coordinator::subscribed::Subscribed;
use crate::internal_topics::{InternalRecord, Written};
use crate::memory::KeptMemory;

/// After this time another heartbeat matches the patterns of a group: the client of the one before may have gone meanwhile.
const MATCHING_MAX: Duration = Duration::from_secs(30);

/// The consumer groups.
#[derive(Debug)]
pub(crate) struct ConsumerGroups {
    /// A group is in the shard of its name.
    shards: [Mutex<State>; PARTS],
    /// Notified when the next deadline may be earlier.
    changed: Notify,
    memory: KeptMemory,
}

#[derive(Debug, Default)]
struct State {
    by_id: BTreeMap<String, Entry>,
    /// The groups by a time at which a member may be late. It is not later than the first deadline.
    deadlines: Deadlines,
    /// The first tick has begun the sessions of the members that were loaded.
    has_begun: bool,
}

#[derive(Debug)]
struct Entry {
    group: ConsumerGroup,
    /// The group's entry in `deadlines`.
    deadline: Option<Deadline>,
    /// The last write of the group.
    written: Option<Result<Written, ErrorCode>>,
    /// Records that must be written before those of the next change.
    before: Vec<InternalRecord>,
    /// The settings, and the version of the configurations that they were read from.
    settings: Option<(u64, Arc<GroupSettings>)>,
    /// The time at which a heartbeat began to match the patterns of the group.
    matching_since_ms: Option<i64>,
}

impl TopicLookup for Cluster {
    fn version(&self) -> u64 {
        self.topics_version()
    }

    fn by_name(&self, name: &str) -> Option<(Uuid, i32)> {
        self.topic(name).map(|topic| (topic.id, topic.partitions.len() as i32))
    }

    fn name_of(&self, id: Uuid) -> Option<String> {
        self.topic_by_id(id).map(|topic| topic.name.to_string())
    }
}

impl ConsumerGroups {
    pub(crate) fn new(memory: KeptMemory) -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self { shards, changed: Notify::new(), memory }
    }

    /// Handles a heartbeat. The answer may be sent when [`ConsumerGroups::await_stored`] has returned.
    pub(crate) fn heartbeat(
        &self,
        cluster: &Arc<Cluster>,
        group_id: &str,
        beat: Beat,
    ) -> Result<(BeatAnswer, Duration), Refusal> {
        let (now, now_ms) = (Instant::now(), cluster.clock.now_ms());
        let mut state = self.lock(group_id);
        let is_new = !state.by_id.contains_key(group_id);
        if is_new {
            self.create(&mut state, cluster, group_id, &beat)?;
        }
        let State { by_id, deadlines, .. } = &mut *state;
        let Some(entry) = by_id.get_mut(group_id) else { return Err(not_found(group_id)) };
        let settings = entry.settings(cluster, group_id);
        let leaves = beat.epoch < 0;
        if beat.resolved.keys().any(|pattern| entry.group.patterns.contains_key(pattern)) {
            entry.matching_since_ms = None;
        }
        let answer = entry.group.heartbeat(now, now_ms, beat, &settings, &**cluster);
        if answer.is_err() && is_new && entry.group.members.is_empty() {
            by_id.remove(group_id);
            return answer.map(|answer| (answer, settings.heartbeat_interval));
        }
        if is_new {
            cluster.groups.forget_empty(group_id);
        }
        entry.save(cluster, group_id);
        if let Ok(BeatAnswer { member_id, .. }) = &answer {
            self.watch(entry, deadlines, group_id, member_id, &settings);
        }
        // A member that is refused has converted the group for nothing.
        if leaves || (is_new && answer.is_err()) {
            Self::downgrade(&mut state, cluster, group_id, leaves);
        }
        let GroupSettings { heartbeat_interval, rebalance_heartbeat_interval, .. } = *settings;
        answer.map(|answer| {
            let is_rebalancing = answer.is_rebalancing;
            (answer, if is_rebalancing { rebalance_heartbeat_interval } else { heartbeat_interval })
        })
    }

    /// Wakes the group up at a member's deadline.
    fn watch(
        &self,
        entry: &mut Entry,
        deadlines: &mut Deadlines,
        group_id: &str,
        member_id: &str,
        settings: &GroupSettings,
    ) {
        let member = entry.group.members.get(member_id);
        let Some(next) = member.map(|member| member.deadline(settings.session_timeout)) else { return };
        if entry.deadline.as_ref().is_none_or(|(known, _)| next < *known) {
            entry.wake_at(deadlines, group_id, Some(next));
            self.changed.notify_one();
        }
    }

    /// Creates a group for its first member of this protocol. A classic group without members stays until the member is accepted.
    fn create(
        &self,
        state: &mut State,
        cluster: &Arc<Cluster>,
        group_id: &str,
        beat: &Beat,
    ) -> Result<(), Refusal> {
        if beat.epoch != 0 {
            return Err(not_found(group_id));
        }
        let before = match cluster.groups.member_count(group_id) {
            None => Vec::new(),
            Some(0) => vec![group_record(group_id, None).map_err(|code| not_written(group_id, code))?],
            Some(_) => return self.upgrade(state, cluster, group_id),
        };
        let Some(kept) = self.memory.keep(ConsumerGroup::bytes(group_id)) else {
            tracing::warn!(group_id, "a group is refused: memory.max.bytes has no room for it");
            let message = format!("memory.max.bytes has no room for group `{group_id}`");
            return Err(Refusal::new(ErrorCode::GroupMaxSizeReached, message));
        };
        let group = ConsumerGroup::new(self.memory.clone(), kept);
        state.by_id.insert(group_id.to_owned(), Entry { before, ..Entry::new(group) });
        Ok(())
    }

    /// Converts a classic group with members, for the first member of this protocol.
    fn upgrade(&self, state: &mut State, cluster: &Arc<Cluster>, group_id: &str) -> Result<(), Refusal> {
        let broker = cluster.live.broker();
        let config = &broker.consumer_groups;
        let refuse = |code, why: &str| {
            Refusal::new(code, format!("classic group `{group_id}` cannot be upgraded: {why}"))
        };
        if !config.migration_policy.permits_upgrade() {
            return Err(refuse(
                ErrorCode::GroupIdNotFound,
                "group.consumer.migration.policy does not permit it",
            ));
        }
        let convert = |classic: &Group| {
            if classic.members.len() > config.members_max {
                let why = "it has more members than group.consumer.max.size allows";
                return Err(refuse(ErrorCode::GroupIdNotFound, why));
            }
            if classic.members.len() == config.members_max {
                return Err(refuse(
                    ErrorCode::GroupMaxSizeReached,
                    "group.consumer.max.size allows no more members",
                ));
            }
            ConsumerGroup::from_classic(group_id, classic, Instant::now(), &self.memory, &**cluster)
        };
        let tombstone = group_record(group_id, None).map_err(|code| not_written(group_id, code))?;
        let group = cluster.groups.upgrade(group_id, convert).unwrap_or_else(|| Err(not_found(group_id)))?;
        tracing::info!(group_id, members = group.members.len(), "a classic group has the new protocol now");
        let mut entry = Entry::new(group);
        entry.before.push(tombstone);
        // The first tick computes the deadline.
        entry.wake_at(&mut state.deadlines, group_id, Some(Instant::now()));
        self.changed.notify_one();
        state.by_id.insert(group_id.to_owned(), entry);
        Ok(())
    }

    /// Converts a group to the classic protocol if its last member of this one has gone. `rebalances`: the members must join
    /// again.
    fn downgrade(state: &mut State, cluster: &Arc<Cluster>, group_id: &str, rebalances: bool) {
        let Some(entry) = state.by_id.get_mut(group_id).filter(|entry| entry.group.is_all_classic()) else {
            return;
        };
        let may_downgrade = cluster.live.broker().consumer_groups.migration_policy.permits_downgrade();
        if !may_downgrade || entry.group.members.len() > cluster.groups.members_max() {
            tracing::info!(group_id, "a group of classic members keeps the new protocol");
            return;
        }
        let (value, protocols) = entry.group.to_classic(cluster.clock.now_ms(), &**cluster);
        let written = (|| {
            let mut records = entry.before.clone();
            records.extend(entry.group.records(group_id).map_err(too_long)?);
            records.extend(entry.group.tombstones(group_id).map_err(too_long)?);
            records.push(group_record(group_id, Some(&value))?);
            cluster.write_group_records(group_id, &records)?.ok_or(ErrorCode::UnknownServerError)
        })();
        match written {
            Ok(written) => {
                entry.wake_at(&mut state.deadlines, group_id, None);
                state.by_id.remove(group_id);
                cluster.groups.adopt(group_id, value, protocols, written, rebalances);
                tracing::info!(group_id, "a group has the classic protocol again");
            }
            Err(code) => {
                tracing::warn!(group_id, %code, "a group keeps the new protocol: its records cannot be written");
                // The first ones may be written: they remove parts of the group, and the classic one may be among them.
                entry.before = group_record(group_id, None).into_iter().collect();
                entry.group.note_all();
                entry.save(cluster, group_id);
            }
        }
    }

    /// Replaces the targets of a group's members, and stops its assignor; with `None` it runs again. Returns `false` if there is no
    /// such group.
    pub(crate) fn fix_targets(
        &self,
        cluster: &Arc<Cluster>,
        group_id: &str,
        targets: Option<BTreeMap<String, BTreeSet<Place>>>,
    ) -> bool {
        let mut state = self.lock(group_id);
        let Some(entry) = state.by_id.get_mut(group_id) else { return false };
        entry.group.fix_targets(cluster.clock.now_ms(), targets);
        entry.save(cluster, group_id);
        true
    }

    /// Waits until the group's records are durable.
    pub(crate) async fn await_stored(&self, cluster: &Arc<Cluster>, group_id: &str) -> Result<(), ErrorCode> {
        let written = self.lock(group_id).by_id.get(group_id).and_then(|entry| entry.written.clone());
        match written {
            // The group has the classic protocol again.
            None => cluster.groups.await_stored(cluster, group_id).await,
            Some(written) => cluster.await_written(&written?).await,
        }
    }

    /// The patterns that must be matched before a heartbeat: that of the heartbeat if it is new, and those of the group that were
    /// matched with older topics or ACLs or long ago. While another heartbeat matches the latter, the group keeps their topics.
    pub(crate) fn unresolved(
        &self,
        group_id: &str,
        pattern: Option<&str>,
        versions: PatternVersions,
        now_ms: i64,
    ) -> Vec<String> {
        let pattern = pattern.filter(|pattern| !pattern.is_empty());
        let mut state = self.lock(group_id);
        let Some(entry) = state.by_id.get_mut(group_id) else {
            return pattern.map(str::to_owned).into_iter().collect();
        };
        let known = &entry.group.patterns;
        let new = pattern.filter(|pattern| !known.contains_key(*pattern)).map(str::to_owned);
        let since = entry.matching_since_ms;
        if since.is_some_and(|since_ms| !is_interval_over(since_ms, MATCHING_MAX, now_ms)) {
            return new.into_iter().collect();
        }
        let is_old = |resolved: &ResolvedPattern| !resolved.is_current(versions, now_ms);
        let old = known.iter().filter(|(_, resolved)| is_old(resolved)).map(|(pattern, _)| pattern.clone());
        let mut all: Vec<String> = old.collect();
        if !all.is_empty() {
            entry.matching_since_ms = Some(now_ms);
        }
        all.extend(new);
        all
    }

    /// Renews the session of a member whose heartbeat waits until the patterns of its group are matched.
    pub(crate) fn renew_session(&self, group_id: &str, member_id: &str, epoch: i32) {
        if let Some(entry) = self.lock(group_id).by_id.get_mut(group_id) {
            entry.group.renew_session(Instant::now(), member_id, epoch);
        }
    }

    /// Calls `look` with a group, if it is one of this protocol.
    pub(crate) fn look<T>(&self, group_id: &str, look: impl FnOnce(&ConsumerGroup) -> T) -> Option<T> {
        self.lock(group_id).by_id.get(group_id).map(|entry| look(&entry.group))
    }

    /// Returns whether a group of this protocol has this name.
    pub(crate) fn contains(&self, group_id: &str) -> bool {
        self.lock(group_id).by_id.contains_key(group_id)
    }

    /// The names of the groups.
    pub(crate) fn list(&self) -> Vec<String> {
        self.collect(|_| true)
    }

    /// Calls `look` with each group, while one part of the groups is locked.
    pub(crate) fn look_at_each(&self, mut look: impl FnMut(&str, &ConsumerGroup)) {
        for shard in &self.shards {
            lock(shard).by_id.iter().for_each(|(id, entry)| look(id, &entry.group));
        }
    }

    /// The topics that a group's members subscribe to, if it is a group of this protocol.
    pub(crate) fn subscribed(&self, group_id: &str) -> Option<Subscribed> {
        self.look(group_id, ConsumerGroup::subscribed)
    }

    /// The members of a group, as far as they matter for the expiry of its offsets. No record has the time at which the last one
    /// left: as in Kafka, the time of the commit counts.
    pub(crate) fn members_for_expiry(&self, group_id: &str) -> Option<MembersForExpiry> {
        self.look(group_id, |group| MembersForExpiry::SubscribedTo(group.subscribed()))
    }

    /// The groups without members.
    pub(crate) fn empty(&self) -> Vec<String> {
        self.collect(|group| group.members.is_empty())
    }

    fn collect(&self, wanted: impl Fn(&ConsumerGroup) -> bool) -> Vec<String> {
        let mut all = Vec::new();
        self.look_at_each(|id, group| {
            if wanted(group) {
                all.push(id.to_owned());
            }
        });
        all.sort_unstable();
        all
    }

    /// Removes a group without members, and its records. Returns what must be durable; `None` if there is no such group.
    pub(crate) fn delete(
        &self,
        cluster: &Arc<Cluster>,
        group_id: &str,
    ) -> Result<Option<Written>, ErrorCode> {
        delete(&mut self.lock(group_id), cluster, group_id)
    }

    /// Takes a group from its records at the start. Sessions of its members begin again with the first tick.
    pub(crate) fn load(&self, group_id: String, stored: StoredConsumerGroup) {
        if stored.is_gone() {
            return;
        }
        let now = Instant::now();
        let group = ConsumerGroup::from_stored(&group_id, stored, now, &self.memory);
        let mut state = self.lock(&group_id);
        let mut entry = Entry::new(group);
        // The first tick computes the deadline.
        entry.wake_at(&mut state.deadlines, &group_id, Some(now));
        state.by_id.insert(group_id, entry);
        self.changed.notify_one();
    }

    /// Handles the deadlines of sessions and revocations. Runs until the future is dropped.
    pub(crate) async fn keep_time(&self, cluster: &Arc<Cluster>) {
        keep_time(&self.changed, |now| self.tick(cluster, now)).await;
    }

    pub(in crate::coordinator) fn tick(&self, cluster: &Arc<Cluster>, now: Instant) -> Option<Instant> {
        self.shards.iter().filter_map(|shard| Self::tick_shard(&mut lock(shard), cluster, now)).min()
    }

    /// The first tick begins the sessions of the members that were loaded: while other logs were opened, nothing listened, and no member
    /// could send a heartbeat.
    fn tick_shard(state: &mut State, cluster: &Arc<Cluster>, now: Instant) -> Option<Instant> {
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
            let members = entry.group.members.len();
            let next = entry.group.tick(now, &settings);
            let has_lost = entry.group.members.len() < members;
            entry.save(cluster, &group_id);
            entry.wake_at(deadlines, &group_id, next);
            if has_lost {
                Self::downgrade(state, cluster, &group_id, true);
            }
        }
    }

    fn lock(&self, group_id: &str) -> MutexGuard<'_, State> {
        lock(&self.shards[part_of(group_id)])
    }
}

fn lock(shard: &Mutex<State>) -> MutexGuard<'_, State> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Entry {
    fn new(group: ConsumerGroup) -> Self {
        Self {
            group,
            deadline: None,
            written: None,
            before: Vec::new(),
            settings: None,
            matching_since_ms: None,
        }
    }

    /// The settings of the group, which are read again after a change of any configuration.
    fn settings(&mut self, cluster: &Cluster, group_id: &str) -> Arc<GroupSettings> {
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
    fn save(&mut self, cluster: &Arc<Cluster>, group_id: &str) {
        if self.group.changed.is_empty() {
            return;
        }
        let records = self.group.records(group_id).map_err(too_long);
        let written = records.and_then(|records| {
            let all = [&self.before[..], &records].concat();
            cluster.write_group_records(group_id, &all)
        });
        if written.is_ok() {
            self.group.changed.clear();
            self.before.clear();
        }
        self.written = written.transpose();
    }
}

fn delete(state: &mut State, cluster: &Arc<Cluster>, group_id: &str) -> Result<Option<Written>, ErrorCode> {
    let Some(entry) = state.by_id.get_mut(group_id) else { return Ok(None) };
    if !entry.group.members.is_empty() {
        return Err(ErrorCode::NonEmptyGroup);
    }
    // Parts that could not be removed before.
    entry.save(cluster, group_id);
    if let Some(Err(code)) = entry.written {
        return Err(code);
    }
    let tombstones = entry.group.tombstones(group_id).map_err(too_long)?;
    let written = cluster.write_group_records(group_id, &tombstones)?;
    entry.wake_at(&mut state.deadlines, group_id, None);
    state.by_id.remove(group_id);
    Ok(written)
}

fn not_written(group_id: &str, code: ErrorCode) -> Refusal {
    Refusal::new(code, format!("group `{group_id}`: its record cannot be written"))
}

fn not_found(group_id: &str) -> Refusal {
    Refusal::new(ErrorCode::GroupIdNotFound, format!("consumer group `{group_id}` does not exist"))
}
