//! The consumer groups of the cluster: their writes, and the task that handles their deadlines.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ottla_protocol::{ErrorCode, Uuid};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::assignor::Assignor;
use super::group::{Beat, BeatAnswer, ConsumerGroup, GroupSettings, Refusal, TopicLookup};
use super::records::StoredConsumerGroup;
use crate::cluster::Cluster;
use crate::config::live::GROUP;
use crate::coordinator::deadlines::keep_time;
use crate::coordinator::group::Subscribed;
use crate::coordinator::offset_log::too_long;
use crate::coordinator::offsets::MembersForExpiry;
use crate::internal_topics::{InternalRecord, InternalTopic, Written};
use crate::memory::KeptMemory;

/// The records of one batch. A group of many members that gets a new target assignment needs several.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The consumer groups.
#[derive(Debug)]
pub(crate) struct ConsumerGroups {
    state: Mutex<State>,
    /// Notified when the next deadline may be earlier.
    changed: Notify,
    memory: KeptMemory,
}

#[derive(Debug, Default)]
struct State {
    by_id: BTreeMap<String, Entry>,
    /// The groups by a time at which a member may be late. It is not later than the first deadline.
    deadlines: BTreeSet<(Instant, String)>,
}

#[derive(Debug)]
struct Entry {
    group: ConsumerGroup,
    /// The group's entry in `deadlines`.
    deadline: Option<Instant>,
    /// The last write of the group.
    written: Option<Result<Written, ErrorCode>>,
}

impl TopicLookup for Cluster {
    fn version(&self) -> u64 {
        self.topics_version()
    }

    fn by_name(&self, name: &str) -> Option<(Uuid, i32)> {
        self.topic(name).map(|topic| (topic.id, topic.partitions.len() as i32))
    }
}

impl ConsumerGroups {
    pub(crate) fn new(memory: KeptMemory) -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), memory }
    }

    /// Handles a heartbeat. The answer may be sent when [`ConsumerGroups::await_stored`] has returned.
    pub(crate) fn heartbeat(
        &self,
        cluster: &Arc<Cluster>,
        group_id: &str,
        beat: Beat,
    ) -> Result<(BeatAnswer, Duration), Refusal> {
        let settings = settings_of(cluster, group_id);
        let (now, now_ms) = (Instant::now(), cluster.clock.now_ms());
        let mut state = self.lock();
        if !state.by_id.contains_key(group_id) {
            self.create(&mut state, cluster, group_id, &beat)?;
        }
        let State { by_id, deadlines } = &mut *state;
        let Some(entry) = by_id.get_mut(group_id) else { return Err(not_found(group_id)) };
        let member_id = beat.member_id.clone();
        let answer = entry.group.heartbeat(now, now_ms, beat, &settings, &**cluster);
        if answer.is_err() && entry.group.members.is_empty() && entry.written.is_none() {
            by_id.remove(group_id);
            return answer.map(|answer| (answer, settings.heartbeat_interval));
        }
        entry.save(cluster, group_id);
        if let Some(member) = entry.group.members.get(&member_id) {
            let session = now + settings.session_timeout;
            let next = member.revoke_by.map_or(session, |by| by.min(session));
            if entry.deadline.is_none_or(|known| next < known) {
                entry.wake_at(deadlines, group_id, Some(next));
                self.changed.notify_one();
            }
        }
        answer.map(|answer| (answer, settings.heartbeat_interval))
    }

    /// Creates a group for its first member.
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
        if let Err(code) = cluster.groups.delete(cluster, group_id) {
            // Kafka's answer with `group.consumer.migration.policy=disabled`.
            return Err(match code {
                ErrorCode::NonEmptyGroup => Refusal::new(
                    ErrorCode::GroupIdNotFound,
                    format!("group `{group_id}` has members of the classic protocol"),
                ),
                code => Refusal::new(code, format!("group `{group_id}`: its record cannot be written")),
            });
        }
        let Some(kept) = self.memory.keep(ConsumerGroup::bytes(group_id)) else {
            tracing::warn!(group_id, "a group is refused: memory.max.bytes has no room for it");
            let message = format!("memory.max.bytes has no room for group `{group_id}`");
            return Err(Refusal::new(ErrorCode::GroupMaxSizeReached, message));
        };
        let group = ConsumerGroup::new(self.memory.clone(), kept);
        state.by_id.insert(group_id.to_owned(), Entry { group, deadline: None, written: None });
        Ok(())
    }

    /// Waits until the group's records are durable.
    pub(crate) async fn await_stored(&self, cluster: &Arc<Cluster>, group_id: &str) -> Result<(), ErrorCode> {
        let written = self.lock().by_id.get(group_id).and_then(|entry| entry.written.clone());
        match written {
            None => Ok(()),
            Some(written) => cluster.await_written(&written?).await,
        }
    }

    /// The patterns that must be matched before a heartbeat: those of the group that were matched with older topics, and
    /// that of the heartbeat if it is new.
    pub(crate) fn unresolved(&self, group_id: &str, pattern: Option<&str>, version: u64) -> Vec<String> {
        let state = self.lock();
        let known = state.by_id.get(group_id).map(|entry| &entry.group.patterns);
        let is_current = |pattern: &str| {
            let resolved = known.and_then(|known| known.get(pattern));
            resolved.is_some_and(|resolved| resolved.version == version as i64)
        };
        let mut all: BTreeSet<&str> =
            known.into_iter().flatten().map(|(pattern, _)| pattern.as_str()).collect();
        all.extend(pattern.filter(|pattern| !pattern.is_empty()));
        all.into_iter().filter(|pattern| !is_current(pattern)).map(str::to_owned).collect()
    }

    /// Runs a join of the classic protocol, unless the group has members of this one. An empty group is replaced.
    pub(crate) fn join_classic<T>(
        &self,
        cluster: &Arc<Cluster>,
        group_id: &str,
        join: impl FnOnce() -> T,
    ) -> Result<T, ErrorCode> {
        let mut state = self.lock();
        match delete(&mut state, cluster, group_id) {
            Ok(_) => Ok(join()),
            Err(ErrorCode::NonEmptyGroup) => Err(ErrorCode::InconsistentGroupProtocol),
            Err(code) => Err(code),
        }
    }

    /// Calls `look` with a group, if it is one of this protocol.
    pub(crate) fn look<T>(&self, group_id: &str, look: impl FnOnce(&ConsumerGroup) -> T) -> Option<T> {
        self.lock().by_id.get(group_id).map(|entry| look(&entry.group))
    }

    /// The names of the groups.
    pub(crate) fn list(&self) -> Vec<String> {
        self.lock().by_id.keys().cloned().collect()
    }

    /// The names of up to `max` groups, from the one after `after` on.
    pub(crate) fn names_after(&self, after: Option<&str>, max: usize) -> Vec<String> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let state = self.lock();
        state.by_id.range::<str, _>((from, Bound::Unbounded)).take(max).map(|(id, _)| id.clone()).collect()
    }

    /// The topics that a group's members subscribe to, if it is a group of this protocol.
    pub(crate) fn subscribed(&self, group_id: &str) -> Option<Subscribed> {
        self.look(group_id, |group| Subscribed::To(group.all_names()))
    }

    /// The members of a group, as far as they matter for the expiry of its offsets.
    pub(crate) fn members_for_expiry(&self, group_id: &str) -> Option<MembersForExpiry> {
        self.look(group_id, |group| {
            if group.members.is_empty() {
                MembersForExpiry::LeftAt(group.empty_since_ms)
            } else {
                MembersForExpiry::SubscribedTo(Subscribed::To(group.all_names()))
            }
        })
    }

    /// The groups without members.
    pub(crate) fn empty(&self) -> Vec<String> {
        let state = self.lock();
        let empty = state.by_id.iter().filter(|(_, entry)| entry.group.members.is_empty());
        empty.map(|(id, _)| id.clone()).collect()
    }

    /// Removes a group without members, and its records. Returns what must be durable; `None` if there is no such group.
    pub(crate) fn delete(
        &self,
        cluster: &Arc<Cluster>,
        group_id: &str,
    ) -> Result<Option<Written>, ErrorCode> {
        delete(&mut self.lock(), cluster, group_id)
    }

    /// Takes a group from its records at the start. Sessions of its members begin again.
    pub(crate) fn load(&self, cluster: &Cluster, group_id: String, stored: StoredConsumerGroup) {
        if stored.is_gone() {
            return;
        }
        let (now, now_ms) = (Instant::now(), cluster.clock.now_ms());
        let group = ConsumerGroup::from_stored(&group_id, stored, (now, now_ms), &self.memory);
        let mut state = self.lock();
        let mut entry = Entry { group, deadline: None, written: None };
        // The first tick computes the deadline.
        entry.wake_at(&mut state.deadlines, &group_id, Some(now));
        state.by_id.insert(group_id, entry);
        self.changed.notify_one();
    }

    /// Handles the deadlines of sessions and revocations. Runs until the future is dropped.
    pub(crate) async fn keep_time(&self, cluster: &Arc<Cluster>) {
        keep_time(&self.changed, |now| self.tick(cluster, now)).await;
    }

    fn tick(&self, cluster: &Arc<Cluster>, now: Instant) -> Option<Instant> {
        let mut state = self.lock();
        loop {
            let State { by_id, deadlines } = &mut *state;
            let (at, group_id) = deadlines.first()?.clone();
            if at > now {
                return Some(at);
            }
            let Some(entry) = by_id.get_mut(&group_id) else {
                deadlines.remove(&(at, group_id));
                continue;
            };
            let settings = settings_of(cluster, &group_id);
            let next = entry.group.tick(now, cluster.clock.now_ms(), &settings);
            entry.save(cluster, &group_id);
            entry.wake_at(deadlines, &group_id, next);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Replaces the time of the next tick.
    fn wake_at(&mut self, deadlines: &mut BTreeSet<(Instant, String)>, group_id: &str, at: Option<Instant>) {
        if let Some(before) = self.deadline.take() {
            deadlines.remove(&(before, group_id.to_owned()));
        }
        if let Some(at) = at {
            deadlines.insert((at, group_id.to_owned()));
        }
        self.deadline = at;
    }

    /// Writes the records of what changed. After a failure the next call writes them again, and members get no answer
    /// until it succeeds.
    fn save(&mut self, cluster: &Arc<Cluster>, group_id: &str) {
        if self.group.changed.is_empty() {
            return;
        }
        let records = self.group.records(group_id).map_err(too_long);
        let written = records.and_then(|records| write(cluster, group_id, &records));
        if written.is_ok() {
            self.group.changed.clear();
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
    let written = write(cluster, group_id, &tombstones)?;
    entry.wake_at(&mut state.deadlines, group_id, None);
    state.by_id.remove(group_id);
    Ok(written)
}

fn write(
    cluster: &Arc<Cluster>,
    group_id: &str,
    records: &[InternalRecord],
) -> Result<Option<Written>, ErrorCode> {
    let partition = cluster.internal_partition(InternalTopic::ConsumerOffsets, group_id);
    let partition = partition.ok_or(ErrorCode::CoordinatorNotAvailable)?;
    let mut last = None;
    let (mut from, mut bytes) = (0, 0);
    for (at, record) in records.iter().enumerate() {
        bytes += record.key.len() + record.value.as_ref().map_or(0, bytes::Bytes::len);
        if bytes >= BATCH_BYTES_MAX || at + 1 == records.len() {
            let (written, ()) = cluster.write_internal(&partition, &records[from..=at], None, |_| ())?;
            last = Some(written);
            (from, bytes) = (at + 1, 0);
        }
    }
    Ok(last)
}

fn not_found(group_id: &str) -> Refusal {
    Refusal::new(ErrorCode::GroupIdNotFound, format!("consumer group `{group_id}` does not exist"))
}

/// The settings of a group: its own, within the broker's limits, or the broker's.
fn settings_of(cluster: &Cluster, group_id: &str) -> GroupSettings {
    let broker = cluster.live.broker();
    let config = &broker.consumer_groups;
    let own = cluster.live.values(GROUP, group_id);
    let ms = |name: &str, default: Duration, (min, max): (Duration, Duration)| {
        let own = own.get(name).and_then(|value| value.trim().parse().ok()).map(Duration::from_millis);
        own.unwrap_or(default).max(min).min(max)
    };
    GroupSettings {
        session_timeout: ms(
            "consumer.session.timeout.ms",
            config.session_timeout,
            config.session_timeout_range,
        ),
        heartbeat_interval: ms(
            "consumer.heartbeat.interval.ms",
            config.heartbeat_interval,
            config.heartbeat_interval_range,
        ),
        assignment_interval: ms(
            "consumer.assignment.interval.ms",
            config.assignment_interval,
            config.assignment_interval_range,
        ),
        members_max: config.members_max,
        assignors: config.assignors.iter().filter_map(|name| Assignor::of_name(name)).collect(),
    }
}
