//! A consumer group: its members, its target assignment, and the decision about one heartbeat.
//!
//! The group never reads a clock and writes no record: it notes its changes, which `records` encodes.

mod membership;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::{ErrorCode, Uuid};
use tokio::time::Instant;

use super::assignor::{Assignor, assign};
use super::member::{ClassicProfile, Member, MemberState, Place, Profile};
use super::patterns::ResolvedPattern;
use crate::coordinator::deadlines::is_interval_over;
use crate::memory::{Kept, KeptMemory};

/// The memory of a member's texts. Its record has at most as many bytes, and `__consumer_offsets` takes records of twice as many.
pub(in crate::coordinator) const MEMBER_BYTES_MAX: usize = 5 << 20;

/// A target assignment without room in `memory.max.bytes` is computed again after this time: it takes as long as one with room.
const NO_ROOM_RETRY: Duration = Duration::from_secs(5);

/// The topics of the cluster.
pub(crate) trait TopicLookup {
    /// A number that changes with every creation, deletion and enlargement of a topic.
    fn version(&self) -> u64;
    /// The id and the number of partitions of a topic.
    fn by_name(&self, name: &str) -> Option<(Uuid, i32)>;
    /// The name of a topic.
    fn name_of(&self, id: Uuid) -> Option<String>;
}

/// The settings of a group.
#[derive(Clone, Debug)]
pub(crate) struct GroupSettings {
    pub(crate) session_timeout: Duration,
    pub(crate) heartbeat_interval: Duration,
    /// The interval of members that have to learn of changes: see [`BeatAnswer::is_rebalancing`].
    pub(crate) rebalance_heartbeat_interval: Duration,
    /// The least time between two target assignments.
    pub(crate) assignment_interval: Duration,
    pub(crate) members_max: usize,
    /// The first one is the default.
    pub(crate) assignors: Vec<Assignor>,
}

/// A heartbeat. Fields that are `None` did not change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beat {
    pub(crate) member_id: String,
    pub(crate) epoch: i32,
    pub(crate) instance_id: Option<String>,
    pub(crate) rack_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) rebalance_timeout_ms: Option<i32>,
    pub(crate) names: Option<BTreeSet<String>>,
    /// An empty pattern removes the one before.
    pub(crate) pattern: Option<String>,
    pub(crate) assignor: Option<String>,
    pub(crate) owned: Option<BTreeSet<Place>>,
    /// The topics of patterns that were matched for this heartbeat.
    pub(crate) resolved: BTreeMap<String, ResolvedPattern>,
    /// Present if the member joins with the classic protocol.
    pub(crate) classic: Option<ClassicProfile>,
}

/// The effect of a heartbeat on its member.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Advance {
    /// The member has other partitions than before.
    pub(super) has_new_partitions: bool,
    pub(super) has_new_subscription: bool,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct BeatAnswer {
    pub(crate) member_id: String,
    pub(crate) epoch: i32,
    /// The partitions of the member, if they are news for it.
    pub(crate) assignment: Option<BTreeSet<Place>>,
    /// The member has steps to its target before it, or the group has changed so lately that other members have.
    pub(crate) is_rebalancing: bool,
}

/// The reason why a request of a member is refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(code: ErrorCode, message: String) -> Self {
        Self { code, message }
    }
}

/// A part of the group whose record is older than the group. The order is the order of the records with a value.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Change {
    Member(String),
    Pattern(String),
    Group,
    Target(String),
    TargetEpoch,
    Current(String),
}

/// A group.
#[derive(Debug)]
pub(crate) struct ConsumerGroup {
    pub(crate) epoch: i32,
    pub(super) metadata_hash: i64,
    /// The epoch of the target assignment.
    pub(crate) assignment_epoch: i32,
    pub(super) assigned_at_ms: i64,
    /// The time at which `memory.max.bytes` had no room for the last target assignment; `None` if it had room.
    no_room_at_ms: Option<i64>,
    pub(crate) members: BTreeMap<String, Member>,
    pub(super) targets: BTreeMap<String, BTreeSet<Place>>,
    /// A test has set the targets: the assignor does not run.
    targets_are_fixed: bool,
    pub(super) instances: BTreeMap<String, String>,
    /// The member that has a partition or has to give it up.
    pub(super) owners: BTreeMap<Place, Arc<str>>,
    pub(super) patterns: BTreeMap<String, ResolvedPattern>,
    pub(super) changed: BTreeSet<Change>,
    /// The version of the topics that `metadata_hash` was computed from.
    seen_topics: Option<u64>,
    /// The epoch at the last heartbeat.
    seen_epoch: Option<i32>,
    /// By this time every member has sent a heartbeat in the group's epoch.
    known_to_all_at: Option<Instant>,
    memory: KeptMemory,
    /// The memory of the group, of its target assignment and of the topics of its patterns.
    pub(super) kept: Kept,
}

impl ConsumerGroup {
    /// A group without members; `kept` is its memory: see [`ConsumerGroup::bytes`].
    pub(super) fn new(memory: KeptMemory, kept: Kept) -> Self {
        Self {
            // KAFKA-20268: the first member has epoch 2.
            epoch: 1,
            metadata_hash: 0,
            assignment_epoch: 0,
            assigned_at_ms: 0,
            no_room_at_ms: None,
            members: BTreeMap::new(),
            targets: BTreeMap::new(),
            targets_are_fixed: false,
            instances: BTreeMap::new(),
            owners: BTreeMap::new(),
            patterns: BTreeMap::new(),
            changed: BTreeSet::new(),
            seen_topics: None,
            seen_epoch: None,
            known_to_all_at: None,
            memory,
            kept,
        }
    }

    /// The memory of a group with this name.
    pub(super) const fn bytes(name: &str) -> usize {
        3 * size_of::<(String, Self)>() + 2 * name.len()
    }

    /// Kafka's name of the group's state.
    pub(crate) fn state(&self) -> &'static str {
        let is_settled =
            |member: &Member| member.state == MemberState::Stable && member.epoch == self.assignment_epoch;
        if self.members.is_empty() {
            "Empty"
        } else if self.epoch > self.assignment_epoch {
            "Assigning"
        } else if self.members.values().all(is_settled) {
            "Stable"
        } else {
            "Reconciling"
        }
    }

    /// The partitions that a member shall have in the end.
    pub(crate) fn target(&self, member_id: &str) -> impl Iterator<Item = &Place> {
        self.targets.get(member_id).into_iter().flatten()
    }

    /// Handles a heartbeat.
    pub(crate) fn heartbeat(
        &mut self,
        now: Instant,
        now_ms: i64,
        beat: Beat,
        settings: &GroupSettings,
        lookup: &dyn TopicLookup,
    ) -> Result<BeatAnswer, Refusal> {
        if beat.epoch < 0 {
            return self.leave(&beat);
        }
        let joins = beat.epoch == 0;
        let is_full = beat.rebalance_timeout_ms.is_some()
            && (beat.names.is_some() || beat.pattern.is_some())
            && beat.owned.is_some();
        self.admit(now, &beat, settings)?;
        let advance = self.advance(now, now_ms, &beat, settings, lookup)?;
        let is_news = joins || is_full || advance.has_new_partitions;
        let member = self.members.get(&beat.member_id);
        let epoch = member.map_or(0, |member| member.epoch);
        let assignment =
            is_news.then(|| member.into_iter().flat_map(|it| it.assigned.keys().copied()).collect());
        let is_rebalancing = self.is_rebalancing(now, &beat.member_id, settings);
        Ok(BeatAnswer { member_id: beat.member_id, epoch, assignment, is_rebalancing })
    }

    /// Notes a new epoch, and returns whether a member, or others of the group, may have steps to their target before them.
    fn is_rebalancing(&mut self, now: Instant, member_id: &str, settings: &GroupSettings) -> bool {
        if self.seen_epoch.replace(self.epoch) != Some(self.epoch) {
            self.known_to_all_at = Some(now + settings.heartbeat_interval);
        }
        let is_settled = |member: &Member| member.state == MemberState::Stable && member.epoch == self.epoch;
        self.known_to_all_at.is_some_and(|at| now < at)
            || self.members.get(member_id).is_some_and(|member| !is_settled(member))
    }

    /// A group that was loaded has not changed.
    pub(super) fn set_epoch_seen(&mut self) {
        self.seen_epoch = Some(self.epoch);
    }

    /// Updates a member, the target assignment, and the member's own assignment. A heartbeat without news touches only its
    /// member.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        now_ms: i64,
        beat: &Beat,
        settings: &GroupSettings,
        lookup: &dyn TopicLookup,
    ) -> Result<Advance, Refusal> {
        let Beat { member_id, owned, resolved, .. } = beat;
        let has_new_subscription = self.update(now, beat)?;
        let has_new_topics = self.resolve(resolved);
        self.check_pattern(member_id, resolved)?;
        if has_new_subscription || has_new_topics || self.seen_topics != Some(lookup.version()) {
            self.forget_patterns();
            let hash = self.hash_of_topics(lookup);
            self.seen_topics = Some(lookup.version());
            if hash != self.metadata_hash || has_new_subscription || has_new_topics {
                self.metadata_hash = hash;
                self.bump();
            }
        }
        if self.is_assignment_due(now_ms, settings) {
            self.retarget(now_ms, settings, lookup);
        }
        self.check_room(member_id)?;
        let is_other = has_new_subscription || has_new_topics;
        let has_new_partitions = self.reconcile(now, member_id, owned.as_ref(), is_other, lookup)?;
        Ok(Advance { has_new_partitions, has_new_subscription: is_other })
    }

    /// Returns whether the next heartbeat computes a target assignment.
    pub(super) fn is_assignment_due(&self, now_ms: i64, settings: &GroupSettings) -> bool {
        let is_over = is_interval_over(self.assigned_at_ms, settings.assignment_interval, now_ms);
        let waits = self.no_room_at_ms.is_some_and(|at_ms| !is_interval_over(at_ms, NO_ROOM_RETRY, now_ms));
        self.assignment_epoch < self.epoch && (is_over || self.assignment_epoch == 0) && !waits
    }

    /// Refuses a member without partitions while there is no room for the group's target assignment. Others keep the partitions that
    /// they have. A member that has just joined leaves the group.
    fn check_room(&mut self, member_id: &str) -> Result<(), Refusal> {
        let has_target = self.targets.get(member_id).is_some_and(|target| !target.is_empty());
        if self.no_room_at_ms.is_none() || has_target {
            return Ok(());
        }
        Err(self.refuse_without_room(member_id))
    }

    /// Refuses a member with a new pattern if there is no room for the topics that it matches.
    fn check_pattern(
        &mut self,
        member_id: &str,
        resolved: &BTreeMap<String, ResolvedPattern>,
    ) -> Result<(), Refusal> {
        let pattern = self.members.get(member_id).and_then(|member| member.profile.pattern.as_ref());
        let is_refused = pattern
            .is_some_and(|pattern| resolved.contains_key(pattern) && !self.patterns.contains_key(pattern));
        if !is_refused {
            return Ok(());
        }
        // The next heartbeat of another member acts on what has changed nevertheless.
        self.seen_topics = None;
        self.bump();
        Err(self.refuse_without_room(member_id))
    }

    fn refuse_without_room(&mut self, member_id: &str) -> Refusal {
        if self.members.get(member_id).is_some_and(|member| member.epoch == 0) {
            self.dismiss(&[member_id.to_owned()]);
        }
        Refusal::new(ErrorCode::GroupMaxSizeReached, no_room())
    }

    pub(super) fn note_member(&mut self, id: &str) {
        let id = id.to_owned();
        self.changed.extend([Change::Member(id.clone()), Change::Target(id.clone()), Change::Current(id)]);
    }

    /// Takes the properties that the member reports. Returns whether its subscription changed. As in Kafka 4.3, another assignor of the
    /// group applies to its next assignment and requests none.
    fn update(&mut self, now: Instant, beat: &Beat) -> Result<bool, Refusal> {
        let Some(member) = self.members.get_mut(&beat.member_id) else { return Ok(false) };
        member.heard_at = now;
        let is_new = member.previous_epoch == -1 && member.epoch == 0;
        if !is_new && beat.repeats(&member.profile) {
            return Ok(false);
        }
        let profile = beat.profile_after(&member.profile);
        let has_new_subscription =
            is_new || profile.names != member.profile.names || profile.pattern != member.profile.pattern;
        let (before, after) = (member.profile.bytes(), profile.bytes());
        let refused = if after > MEMBER_BYTES_MAX {
            Some(too_large(after))
        } else {
            let has_room = member.kept.grow(after.saturating_sub(before));
            (!has_room).then(|| Refusal::new(ErrorCode::GroupMaxSizeReached, no_room()))
        };
        if let Some(refusal) = refused {
            if is_new {
                self.remove(&beat.member_id);
            }
            return Err(refusal);
        }
        member.kept.release(before.saturating_sub(after));
        let instance_before = std::mem::replace(&mut member.profile, profile).instance_id;
        if is_new {
            member.previous_epoch = 0;
        }
        self.note_instance(&beat.member_id, instance_before);
        self.changed.insert(Change::Member(beat.member_id.clone()));
        Ok(has_new_subscription)
    }

    /// The assignor that most members ask for.
    pub(crate) fn preferred_assignor(&self) -> Option<&str> {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for assignor in self.members.values().filter_map(|member| member.profile.assignor.as_deref()) {
            *votes.entry(assignor).or_default() += 1;
        }
        votes.into_iter().max_by_key(|(name, votes)| (*votes, std::cmp::Reverse(*name))).map(|(name, _)| name)
    }

    /// Returns `true` if every member has the partitions of its target, and no others.
    pub(super) fn is_settled(&self) -> bool {
        let has_target = |(id, member): (&String, &Member)| {
            member.state == MemberState::Stable
                && member.epoch == self.assignment_epoch
                && member.assigned.keys().eq(self.targets.get(id).into_iter().flatten())
        };
        self.assignment_epoch == self.epoch && self.members.iter().all(has_target)
    }

    pub(super) fn bump(&mut self) {
        self.epoch += 1;
        self.changed.insert(Change::Group);
    }

    /// Replaces the targets of members, and stops the assignor; with `None` it runs again. Names of no members are ignored.
    pub(super) fn fix_targets(&mut self, now_ms: i64, targets: Option<BTreeMap<String, BTreeSet<Place>>>) {
        self.targets_are_fixed = targets.is_some();
        self.bump();
        let Some(targets) = targets else { return };
        let before = self.target_bytes();
        for (id, target) in targets {
            if self.members.contains_key(&id) {
                self.changed.insert(Change::Target(id.clone()));
                self.targets.insert(id, target);
            }
        }
        self.count_targets(before);
        self.take_targets(now_ms);
    }

    /// Computes the target assignment. Without room for it, the group keeps the one before.
    fn retarget(&mut self, now_ms: i64, settings: &GroupSettings, lookup: &dyn TopicLookup) {
        if self.targets_are_fixed || self.assign(settings, lookup) {
            self.take_targets(now_ms);
            return;
        }
        let epoch = self.epoch;
        tracing::warn!(epoch, "memory.max.bytes has no room for the target assignment of a consumer group");
        self.no_room_at_ms = Some(now_ms);
    }

    fn take_targets(&mut self, now_ms: i64) {
        self.no_room_at_ms = None;
        self.assignment_epoch = self.epoch;
        self.assigned_at_ms = now_ms;
        self.changed.insert(Change::TargetEpoch);
    }

    /// Returns `false`, and changes nothing, if `memory.max.bytes` has no room for the targets.
    fn assign(&mut self, settings: &GroupSettings, lookup: &dyn TopicLookup) -> bool {
        let preferred = self.preferred_assignor().and_then(Assignor::of_name);
        let assignor = preferred.or_else(|| settings.assignors.first().copied()).unwrap_or(Assignor::Uniform);
        let (candidates, topics) = self.candidates(lookup);
        let targets = assign(assignor, &candidates, &topics);
        let (before, after) = (self.target_bytes(), bytes_of_targets(targets.iter()));
        if after > before && !self.kept.grow(after - before) {
            return false;
        }
        self.kept.release(before.saturating_sub(after));
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for (id, target) in ids.into_iter().zip(targets) {
            if self.targets.get(&id).is_none_or(|before| *before != target) {
                self.targets.insert(id.clone(), target);
                self.changed.insert(Change::Target(id));
            }
        }
        true
    }

    pub(super) fn target_bytes(&self) -> usize {
        bytes_of_targets(self.targets.values())
    }

    /// Counts the memory of targets that were kept before, or that have fewer partitions now.
    pub(super) fn count_targets(&mut self, before: usize) {
        let after = self.target_bytes();
        self.kept.add(after.saturating_sub(before));
        self.kept.release(before.saturating_sub(after));
    }

    /// Removes members, and requests a new assignment.
    pub(super) fn dismiss(&mut self, ids: &[String]) {
        for id in ids {
            self.remove(id);
        }
        self.forget_patterns();
        self.bump();
        if self.members.is_empty() {
            self.no_room_at_ms = None;
            // KAFKA-20442: nothing is left to assign. It is no assignment: the next member does not wait for the interval after it.
            self.assignment_epoch = self.epoch;
            self.changed.insert(Change::TargetEpoch);
        }
    }

    fn remove(&mut self, id: &str) {
        let before = self.target_bytes();
        self.targets.remove(id);
        self.count_targets(before);
        let Some(member) = self.members.remove(id) else { return };
        for place in member.assigned.keys().chain(member.revoking.keys()) {
            self.owners.remove(place);
        }
        if let Some(instance) = &member.profile.instance_id {
            self.instances.remove(instance);
        }
        self.note_member(id);
    }

    /// Removes members whose session is over, or that did not give up their partitions in time. Returns the next deadline.
    pub(crate) fn tick(&mut self, now: Instant, settings: &GroupSettings) -> Option<Instant> {
        let deadline = |member: &Member| member.deadline(settings.session_timeout);
        let late: Vec<String> = self
            .members
            .iter()
            .filter(|(_, member)| deadline(member) <= now)
            .map(|(id, _)| id.clone())
            .collect();
        if !late.is_empty() {
            self.dismiss(&late);
        }
        self.members.values().map(deadline).min()
    }
}

/// The memory of a target assignment, and as much for the partitions that members have.
fn bytes_of_targets<'a>(targets: impl Iterator<Item = &'a BTreeSet<Place>>) -> usize {
    let places: usize = targets.map(BTreeSet::len).sum();
    places * 2 * 3 * size_of::<(Place, i32)>()
}

impl Beat {
    /// Returns whether the heartbeat says nothing that the member's profile does not say.
    fn repeats(&self, profile: &Profile) -> bool {
        let is_same = |new: &Option<String>, known: &Option<String>| new.is_none() || new == known;
        self.client_id == profile.client_id
            && self.client_host == profile.client_host
            && is_same(&self.instance_id, &profile.instance_id)
            && is_same(&self.rack_id, &profile.rack_id)
            && is_same(&self.assignor, &profile.assignor)
            && self.rebalance_timeout_ms.is_none_or(|ms| ms == profile.rebalance_timeout_ms)
            && self.names.as_ref().is_none_or(|names| *names == profile.names)
            && self.pattern.as_deref().is_none_or(|new| new == profile.pattern.as_deref().unwrap_or_default())
            && self.classic == profile.classic
    }

    /// The profile of a member after its heartbeat.
    fn profile_after(&self, before: &Profile) -> Profile {
        let pattern = self.pattern.clone().or_else(|| before.pattern.clone());
        Profile {
            instance_id: self.instance_id.clone().or_else(|| before.instance_id.clone()),
            rack_id: self.rack_id.clone().or_else(|| before.rack_id.clone()),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            names: self.names.as_ref().unwrap_or(&before.names).clone(),
            pattern: pattern.filter(|pattern| !pattern.is_empty()),
            rebalance_timeout_ms: self.rebalance_timeout_ms.unwrap_or(before.rebalance_timeout_ms),
            assignor: self.assignor.clone().or_else(|| before.assignor.clone()),
            classic: self.classic.clone(),
        }
    }
}

/// The refusal of a member whose texts have so many bytes.
pub(in crate::coordinator) fn too_large(bytes: usize) -> Refusal {
    let message = format!("the member's names and protocols have {bytes} bytes, at most {MEMBER_BYTES_MAX}");
    Refusal::new(ErrorCode::GroupMaxSizeReached, message)
}

fn no_room() -> String {
    "memory.max.bytes has no room for the group, the member or its subscription".to_owned()
}
