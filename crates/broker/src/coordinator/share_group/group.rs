//! A share group: its members, its target assignment, and the decision about one heartbeat.
//!
//! The group never reads a clock and writes no record: it notes its changes, which `records` encodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ottla_protocol::{ErrorCode, Uuid};
use tokio::time::Instant;

use super::assignor::{Candidate, assign};
use super::state_partitions::StatePartitions;
use crate::coordinator::consumer_group::group::{MEMBER_BYTES_MAX, Refusal, TopicLookup, too_large};
use crate::coordinator::consumer_group::member::{LEFT, Place};
use crate::coordinator::deadlines::is_interval_over;
use crate::memory::{Kept, KeptMemory};

/// The epoch of a group that no member has joined yet: the first member has epoch 2 (KAFKA-20268).
pub(super) const FIRST_EPOCH: i32 = 1;

/// The settings of a group.
#[derive(Clone, Debug)]
pub(crate) struct ShareGroupSettings {
    pub(crate) session_timeout: Duration,
    pub(crate) heartbeat_interval: Duration,
    /// The least time between two target assignments.
    pub(crate) assignment_interval: Duration,
    pub(crate) members_max: usize,
}

/// A heartbeat. Fields that are `None` did not change.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShareBeat {
    pub(crate) member_id: String,
    pub(crate) epoch: i32,
    pub(crate) rack_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) names: Option<BTreeSet<String>>,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ShareAnswer {
    pub(crate) member_id: String,
    pub(crate) epoch: i32,
    /// The partitions of the member, if they are news for it.
    pub(crate) assignment: Option<BTreeSet<Place>>,
}

/// The decision about a heartbeat.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Outcome {
    Answer(ShareAnswer),
    /// The states of these partitions are initialized first; then [`ShareGroup::settle`] has the answer.
    Initialize {
        places: Vec<Place>,
        /// The member receives its assignment in any case.
        is_news: bool,
    },
}

/// A part of the group whose record is older than the group. The order is the order of the records with a value.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Change {
    Member(String),
    Group,
    Target(String),
    TargetEpoch,
    Current(String),
    StatePartitions,
}

/// The properties that a member reports about itself.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ShareProfile {
    pub(crate) rack_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) names: BTreeSet<String>,
}

/// A member.
#[derive(Debug)]
pub(crate) struct ShareMember {
    pub(crate) profile: ShareProfile,
    pub(crate) epoch: i32,
    pub(crate) previous_epoch: i32,
    pub(crate) assigned: BTreeSet<Place>,
    heard_at: Instant,
    kept: Kept,
}

/// A group.
#[derive(Debug)]
pub(crate) struct ShareGroup {
    pub(crate) epoch: i32,
    pub(super) metadata_hash: i64,
    /// The epoch of the target assignment.
    pub(crate) assignment_epoch: i32,
    pub(super) assigned_at_ms: i64,
    pub(crate) members: BTreeMap<String, ShareMember>,
    pub(super) targets: BTreeMap<String, BTreeSet<Place>>,
    /// A test has set the targets: the assignor does not run any more.
    targets_are_fixed: bool,
    pub(super) state_partitions: StatePartitions,
    pub(super) changed: BTreeSet<Change>,
    /// The version of the topics that `metadata_hash` was computed from.
    seen_topics: Option<u64>,
    memory: KeptMemory,
    /// The memory of the group and of its state partitions.
    pub(super) kept: Kept,
}

impl ShareGroup {
    /// A group without members; `kept` is its memory: see [`ShareGroup::bytes`].
    pub(super) fn new(memory: KeptMemory, kept: Kept) -> Self {
        Self {
            epoch: FIRST_EPOCH,
            metadata_hash: 0,
            assignment_epoch: 0,
            assigned_at_ms: 0,
            members: BTreeMap::new(),
            targets: BTreeMap::new(),
            targets_are_fixed: false,
            state_partitions: StatePartitions::default(),
            changed: BTreeSet::new(),
            seen_topics: None,
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
        if self.members.is_empty() { "Empty" } else { "Stable" }
    }

    /// The partitions whose state is initialized, by topic.
    pub(crate) fn initialized(&self) -> BTreeMap<Uuid, BTreeSet<i32>> {
        let topics = self.state_partitions.initialized.iter();
        topics.map(|(id, topic)| (*id, topic.partitions.clone())).collect()
    }

    /// The topics that members subscribe to.
    pub(super) fn subscribed_names(&self) -> BTreeSet<&str> {
        self.members.values().flat_map(|member| member.profile.names.iter().map(String::as_str)).collect()
    }

    /// Handles a heartbeat.
    pub(super) fn heartbeat(
        &mut self,
        now: Instant,
        now_ms: i64,
        beat: &ShareBeat,
        settings: &ShareGroupSettings,
        lookup: &dyn TopicLookup,
    ) -> Result<Outcome, Refusal> {
        if beat.epoch < 0 {
            return self.leave(&beat.member_id).map(Outcome::Answer);
        }
        self.admit(now, beat, settings)?;
        let has_new_subscription = self.update(now, beat)?;
        if has_new_subscription {
            self.state_partitions.end_pause();
        }
        if has_new_subscription || self.seen_topics != Some(lookup.version()) {
            self.seen_topics = Some(lookup.version());
            let hash = self.hash_of_topics(lookup);
            if hash != self.metadata_hash || has_new_subscription {
                self.metadata_hash = hash;
                self.bump();
            }
        }
        let is_news = beat.epoch == 0 || beat.names.is_some();
        let places = self.begin_initializing(now, lookup);
        if places.is_empty() {
            let answer = self.settle(now_ms, &beat.member_id, is_news, settings, lookup)?;
            return Ok(Outcome::Answer(answer));
        }
        Ok(Outcome::Initialize { places, is_news })
    }

    /// Computes the target assignment if it is due, and gives the member its part.
    pub(super) fn settle(
        &mut self,
        now_ms: i64,
        member_id: &str,
        is_news: bool,
        settings: &ShareGroupSettings,
        lookup: &dyn TopicLookup,
    ) -> Result<ShareAnswer, Refusal> {
        if std::mem::take(&mut self.state_partitions.has_news) && self.epoch <= self.assignment_epoch {
            self.bump();
        }
        let is_over = is_interval_over(self.assigned_at_ms, settings.assignment_interval, now_ms);
        if self.assignment_epoch < self.epoch && (is_over || self.assignment_epoch == 0) {
            self.retarget(now_ms, lookup);
        }
        let mut target = self.targets.get(member_id).cloned().unwrap_or_default();
        if self.assignment_epoch < self.epoch
            && let Some(member) = self.members.get(member_id)
        {
            // The target may be older than the subscription.
            let topics = member.topics(lookup);
            target.retain(|(topic, _)| topics.contains(topic));
        }
        let member = self.members.get_mut(member_id).ok_or_else(|| unknown_member(member_id))?;
        let has_other_partitions = member.assigned != target;
        if member.epoch != self.assignment_epoch || has_other_partitions {
            member.previous_epoch = member.epoch;
            member.epoch = self.assignment_epoch;
            member.assigned = target;
            self.changed.insert(Change::Current(member_id.to_owned()));
        }
        let assignment = (is_news || has_other_partitions).then(|| member.assigned.clone());
        Ok(ShareAnswer { member_id: member_id.to_owned(), epoch: member.epoch, assignment })
    }

    /// Finds the member or creates it.
    fn admit(
        &mut self,
        now: Instant,
        beat: &ShareBeat,
        settings: &ShareGroupSettings,
    ) -> Result<(), Refusal> {
        let id = &beat.member_id;
        if let Some(member) = self.members.get(id) {
            let is_current = [0, member.epoch, member.previous_epoch].contains(&beat.epoch);
            if is_current {
                return Ok(());
            }
            let message = format!(
                "member `{id}` has epoch {} (before: {}), not {}: it must join again",
                member.epoch, member.previous_epoch, beat.epoch
            );
            return Err(Refusal::new(ErrorCode::FencedMemberEpoch, message));
        }
        if beat.epoch > 0 {
            return Err(unknown_member(id));
        }
        if self.members.len() >= settings.members_max {
            let max = settings.members_max;
            let message = format!("the group has {max} members, the most that group.share.max.size allows");
            return Err(Refusal::new(ErrorCode::GroupMaxSizeReached, message));
        }
        let kept = self.memory.keep(bytes_of(id, &ShareProfile::default())).ok_or_else(no_room)?;
        self.members.insert(id.clone(), ShareMember::new(ShareProfile::default(), now, kept));
        // Its profile is empty and differs from any that it reports.
        self.changed.insert(Change::Member(id.clone()));
        Ok(())
    }

    /// Takes what the member reports about itself. Returns whether it subscribes to other topics than before.
    fn update(&mut self, now: Instant, beat: &ShareBeat) -> Result<bool, Refusal> {
        let id = &beat.member_id;
        let member = self.members.get_mut(id).ok_or_else(|| unknown_member(id))?;
        member.heard_at = now;
        if beat.repeats(&member.profile) {
            return Ok(false);
        }
        let profile = ShareProfile {
            rack_id: beat.rack_id.clone().or_else(|| member.profile.rack_id.clone()),
            client_id: beat.client_id.clone(),
            client_host: beat.client_host.clone(),
            names: beat.names.clone().unwrap_or_else(|| member.profile.names.clone()),
        };
        let (before, after) = (bytes_of(id, &member.profile), bytes_of(id, &profile));
        let refused = if after > MEMBER_BYTES_MAX {
            Some(too_large(after))
        } else {
            (after > before && !member.kept.grow(after - before)).then(no_room)
        };
        if let Some(refusal) = refused {
            if member.epoch == 0 {
                self.members.remove(id);
                self.changed.remove(&Change::Member(id.clone()));
            }
            return Err(refusal);
        }
        member.kept.release(before.saturating_sub(after));
        let has_new_subscription = profile.names != member.profile.names;
        member.profile = profile;
        self.changed.insert(Change::Member(id.clone()));
        Ok(has_new_subscription)
    }

    fn leave(&mut self, id: &str) -> Result<ShareAnswer, Refusal> {
        if !self.remove(id) {
            return Err(unknown_member(id));
        }
        self.bump();
        Ok(ShareAnswer { member_id: id.to_owned(), epoch: LEFT, assignment: None })
    }

    fn remove(&mut self, id: &str) -> bool {
        if self.members.remove(id).is_none() {
            return false;
        }
        if self.targets.remove(id).is_some() {
            self.changed.insert(Change::Target(id.to_owned()));
        }
        self.changed.insert(Change::Current(id.to_owned()));
        self.changed.insert(Change::Member(id.to_owned()));
        true
    }

    /// Removes members whose session is over. Returns the time of the next check.
    pub(super) fn tick(&mut self, now: Instant, settings: &ShareGroupSettings) -> Option<Instant> {
        let is_late = |member: &ShareMember| member.deadline(settings.session_timeout) <= now;
        let late: Vec<String> =
            self.members.iter().filter(|(_, member)| is_late(member)).map(|(id, _)| id.clone()).collect();
        for id in &late {
            tracing::info!(member = id, "a member of a share group is removed: its session is over");
            self.remove(id);
        }
        if !late.is_empty() {
            self.bump();
        }
        self.members.values().map(|member| member.deadline(settings.session_timeout)).min()
    }

    fn bump(&mut self) {
        self.epoch = self.epoch.saturating_add(1);
        self.changed.insert(Change::Group);
    }

    /// Replaces the targets of members. From now on the assignor does not run. Names of no members are ignored.
    pub(super) fn fix_targets(&mut self, now_ms: i64, targets: BTreeMap<String, BTreeSet<Place>>) {
        self.targets_are_fixed = true;
        self.bump();
        for (id, target) in targets {
            if self.members.contains_key(&id) {
                self.changed.insert(Change::Target(id.clone()));
                self.targets.insert(id, target);
            }
        }
        self.take_targets(now_ms);
    }

    /// Computes the target assignment from the partitions whose state is initialized.
    fn retarget(&mut self, now_ms: i64, lookup: &dyn TopicLookup) {
        if !self.targets_are_fixed {
            self.assign(lookup);
        }
        self.take_targets(now_ms);
    }

    fn take_targets(&mut self, now_ms: i64) {
        self.assignment_epoch = self.epoch;
        self.assigned_at_ms = now_ms;
        self.changed.insert(Change::TargetEpoch);
    }

    fn assign(&mut self, lookup: &dyn TopicLookup) {
        let candidate = |(id, member): (&String, &ShareMember)| {
            let current = self.targets.get(id).cloned().unwrap_or_default();
            (id.clone(), Candidate { topics: member.topics(lookup), current })
        };
        let members: BTreeMap<String, Candidate> = self.members.iter().map(candidate).collect();
        let targets = assign(&members, &self.initialized());
        for (id, target) in &targets {
            if self.targets.get(id) != Some(target) {
                self.changed.insert(Change::Target(id.clone()));
            }
        }
        self.targets = targets;
    }

    /// A hash of the subscribed topics that exist: FNV-1a, the same after a restart.
    fn hash_of_topics(&self, lookup: &dyn TopicLookup) -> i64 {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        let mut add = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for (id, partitions) in self.subscribed_names().into_iter().filter_map(|name| lookup.by_name(name)) {
            add(&id.0);
            add(&partitions.to_be_bytes());
        }
        hash as i64
    }

    /// Begins the sessions of all members again.
    pub(super) fn begin_sessions(&mut self, now: Instant) {
        for member in self.members.values_mut() {
            member.heard_at = now;
        }
    }

    /// Adds a member that was read.
    pub(super) fn adopt(&mut self, id: String, profile: ShareProfile, now: Instant) -> &mut ShareMember {
        let kept = self.memory.keep_known(bytes_of(&id, &profile));
        self.members.entry(id).or_insert_with(|| ShareMember::new(profile, now, kept))
    }
}

impl ShareBeat {
    /// Returns whether the heartbeat reports the member's profile as it is.
    fn repeats(&self, profile: &ShareProfile) -> bool {
        self.client_id == profile.client_id
            && self.client_host == profile.client_host
            && (self.rack_id.is_none() || self.rack_id == profile.rack_id)
            && self.names.as_ref().is_none_or(|names| *names == profile.names)
    }
}

impl ShareMember {
    fn new(profile: ShareProfile, now: Instant, kept: Kept) -> Self {
        Self { profile, epoch: 0, previous_epoch: -1, assigned: BTreeSet::new(), heard_at: now, kept }
    }

    /// The subscribed topics that exist.
    fn topics(&self, lookup: &dyn TopicLookup) -> BTreeSet<Uuid> {
        self.profile.names.iter().filter_map(|name| lookup.by_name(name)).map(|(id, _)| id).collect()
    }

    /// The time at which the member is late, if it sends nothing until then.
    pub(super) fn deadline(&self, session_timeout: Duration) -> Instant {
        self.heard_at + session_timeout
    }
}

/// The memory of a member with this id and profile.
fn bytes_of(id: &str, profile: &ShareProfile) -> usize {
    let names: usize = profile.names.iter().map(|name| 3 * size_of::<String>() + name.len()).sum();
    let texts = profile.rack_id.as_ref().map_or(0, String::len);
    let texts = texts + profile.client_id.len() + profile.client_host.len();
    3 * size_of::<(String, ShareMember)>() + 4 * id.len() + names + texts
}

fn unknown_member(id: &str) -> Refusal {
    Refusal::new(ErrorCode::UnknownMemberId, format!("the group has no member `{id}`"))
}

fn no_room() -> Refusal {
    let message = "memory.max.bytes has no room for the member".to_owned();
    Refusal::new(ErrorCode::GroupMaxSizeReached, message)
}
