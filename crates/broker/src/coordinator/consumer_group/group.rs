//! A consumer group: its members, its target assignment, and the decision about one heartbeat.
//!
//! The group never reads a clock and writes no record: it notes its changes, which `records` encodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::{ErrorCode, Uuid};
use tokio::time::Instant;

use super::assignor::{Assignor, Candidate, assign};
use super::member::{LEFT, LEFT_FOR_NOW, Member, MemberState, Place, Profile};
use super::patterns::ResolvedPattern;
use crate::memory::{Kept, KeptMemory};

/// The topics of the cluster.
pub(crate) trait TopicLookup {
    /// A number that changes with every creation, deletion and enlargement of a topic.
    fn version(&self) -> u64;
    /// The id and the number of partitions of a topic.
    fn by_name(&self, name: &str) -> Option<(Uuid, i32)>;
}

/// The settings of a group.
#[derive(Clone, Debug)]
pub(crate) struct GroupSettings {
    pub(crate) session_timeout: Duration,
    pub(crate) heartbeat_interval: Duration,
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
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct BeatAnswer {
    pub(crate) member_id: String,
    pub(crate) epoch: i32,
    /// The partitions of the member, if they are news for it.
    pub(crate) assignment: Option<BTreeSet<Place>>,
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

/// A part of the group whose record is older than the group. The order is the order of the records.
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
    pub(crate) members: BTreeMap<String, Member>,
    pub(super) targets: BTreeMap<String, BTreeSet<Place>>,
    pub(super) instances: BTreeMap<String, String>,
    /// The member that has a partition or has to give it up.
    pub(super) owners: BTreeMap<Place, Arc<str>>,
    pub(super) patterns: BTreeMap<String, ResolvedPattern>,
    pub(super) changed: BTreeSet<Change>,
    /// The version of the topics that `metadata_hash` was computed from.
    seen_topics: Option<u64>,
    /// The time since which the group has its number of members.
    pub(super) empty_since_ms: i64,
    memory: KeptMemory,
    /// The memory of the group and of its target assignment.
    kept: Kept,
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
            members: BTreeMap::new(),
            targets: BTreeMap::new(),
            instances: BTreeMap::new(),
            owners: BTreeMap::new(),
            patterns: BTreeMap::new(),
            changed: BTreeSet::new(),
            seen_topics: None,
            empty_since_ms: 0,
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
            return self.leave(now, now_ms, &beat);
        }
        let joins = beat.epoch == 0;
        let is_full = beat.rebalance_timeout_ms.is_some()
            && (beat.names.is_some() || beat.pattern.is_some())
            && beat.owned.is_some();
        self.admit(now, &beat, settings)?;
        let Beat { member_id, owned, resolved, .. } = &beat;
        let (has_new_subscription, has_new_assignor) = self.update(now, &beat)?;
        let has_new_topics = self.resolve(resolved);
        if has_new_subscription || has_new_topics || self.seen_topics != Some(lookup.version()) {
            self.forget_patterns();
            let hash = self.hash_of_topics(lookup);
            self.seen_topics = Some(lookup.version());
            if hash != self.metadata_hash || has_new_subscription || has_new_topics {
                self.metadata_hash = hash;
                self.bump();
            }
        }
        if has_new_assignor {
            self.bump();
        }
        let is_due = now_ms.saturating_sub(self.assigned_at_ms)
            >= i64::try_from(settings.assignment_interval.as_millis()).unwrap_or(i64::MAX);
        if self.assignment_epoch < self.epoch && (is_due || self.assignment_epoch == 0) {
            self.retarget(now_ms, settings, lookup);
        }
        let places = |group: &Self| -> BTreeSet<Place> {
            group.members.get(member_id).into_iter().flat_map(|it| it.assigned.keys().copied()).collect()
        };
        let has_changed = |group: &Self| group.changed.contains(&Change::Current(member_id.clone()));
        let before = places(self);
        self.reconcile(now, member_id, owned.as_ref(), has_new_subscription || has_new_topics, lookup)?;
        let after = if has_changed(self) { places(self) } else { before.clone() };
        let epoch = self.members.get(member_id).map_or(0, |member| member.epoch);
        let is_news = joins || is_full || before != after;
        Ok(BeatAnswer { member_id: member_id.clone(), epoch, assignment: is_news.then_some(after) })
    }

    /// Finds the member or creates it.
    fn admit(&mut self, now: Instant, beat: &Beat, settings: &GroupSettings) -> Result<(), Refusal> {
        let id = &beat.member_id;
        let refuse = |code, message| Err(Refusal::new(code, message));
        let holder = beat.instance_id.as_ref().and_then(|instance| self.instances.get(instance)).cloned();
        if beat.epoch > 0 {
            let Some(member) = self.members.get(id) else {
                return refuse(ErrorCode::UnknownMemberId, format!("the group has no member `{id}`"));
            };
            if beat.instance_id.is_some() && holder.as_ref() != Some(id) {
                return match (&beat.instance_id, holder) {
                    (Some(instance), Some(holder)) => refuse(
                        ErrorCode::FencedInstanceId,
                        format!("instance `{instance}` belongs to member `{holder}`, not to `{id}`"),
                    ),
                    (instance, _) => refuse(
                        ErrorCode::UnknownMemberId,
                        format!("no member has the instance `{}`", instance.as_deref().unwrap_or_default()),
                    ),
                };
            }
            return check_epoch(id, member, beat);
        }
        match (&beat.instance_id, holder) {
            (Some(instance), Some(holder)) if holder != *id => {
                if self.members.get(&holder).is_some_and(|member| member.epoch != LEFT_FOR_NOW) {
                    return refuse(
                        ErrorCode::UnreleasedInstanceId,
                        format!("instance `{instance}` belongs to member `{holder}`, which has not left"),
                    );
                }
                self.replace(&holder, id);
                return Ok(());
            }
            _ => {}
        }
        if let Some(member) = self.members.get_mut(id) {
            // A static member returns under its old id.
            if member.epoch == LEFT_FOR_NOW {
                (member.epoch, member.previous_epoch) = (0, 0);
            }
            return Ok(());
        }
        if self.members.len() >= settings.members_max {
            let max = settings.members_max;
            return refuse(
                ErrorCode::GroupMaxSizeReached,
                format!("the group has {max} members, the most that group.consumer.max.size allows"),
            );
        }
        let Some(kept) = self.memory.keep(Member::bytes(id, &Profile::default())) else {
            return refuse(ErrorCode::GroupMaxSizeReached, no_room());
        };
        let profile =
            Profile { instance_id: beat.instance_id.clone(), rebalance_timeout_ms: -1, ..Profile::default() };
        if let Some(instance) = &beat.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        self.members.insert(id.clone(), Member::new(id, profile, now, kept));
        Ok(())
    }

    /// A static member returns under another id: it has the target of the old one.
    fn replace(&mut self, old: &str, id: &str) {
        let Some(mut member) = self.members.remove(old) else { return };
        if let Some(target) = self.targets.remove(old) {
            self.targets.insert(id.to_owned(), target);
        }
        member.id = id.into();
        (member.epoch, member.previous_epoch) = (0, 0);
        for place in member.assigned.keys() {
            self.owners.insert(*place, member.id.clone());
        }
        if let Some(instance) = &member.profile.instance_id {
            self.instances.insert(instance.clone(), id.to_owned());
        }
        self.members.insert(id.to_owned(), member);
        for id in [old, id] {
            self.note_member(id);
        }
    }

    fn note_member(&mut self, id: &str) {
        let id = id.to_owned();
        self.changed.extend([Change::Member(id.clone()), Change::Target(id.clone()), Change::Current(id)]);
    }

    /// Takes the properties that the member reports. Returns whether its subscription, and the group's assignor, changed.
    fn update(&mut self, now: Instant, beat: &Beat) -> Result<(bool, bool), Refusal> {
        let assignor_before = self.preferred_assignor().map(str::to_owned);
        let Some(member) = self.members.get_mut(&beat.member_id) else { return Ok((false, false)) };
        member.heard_at = now;
        let mut profile = member.profile.clone();
        profile.client_id.clone_from(&beat.client_id);
        profile.client_host.clone_from(&beat.client_host);
        if beat.rack_id.is_some() {
            profile.rack_id.clone_from(&beat.rack_id);
        }
        if let Some(ms) = beat.rebalance_timeout_ms {
            profile.rebalance_timeout_ms = ms;
        }
        if let Some(names) = &beat.names {
            profile.names.clone_from(names);
        }
        if let Some(pattern) = &beat.pattern {
            profile.pattern = Some(pattern.clone()).filter(|pattern| !pattern.is_empty());
        }
        if beat.assignor.is_some() {
            profile.assignor.clone_from(&beat.assignor);
        }
        let is_new = member.previous_epoch == -1 && member.epoch == 0;
        if profile == member.profile && !is_new {
            return Ok((false, false));
        }
        let has_new_subscription =
            is_new || profile.names != member.profile.names || profile.pattern != member.profile.pattern;
        let (before, after) = (member.profile.bytes(), profile.bytes());
        if !member.kept.grow(after.saturating_sub(before)) {
            if is_new {
                self.remove(&beat.member_id);
            }
            return Err(Refusal::new(ErrorCode::GroupMaxSizeReached, no_room()));
        }
        member.kept.release(before.saturating_sub(after));
        member.profile = profile;
        if is_new {
            member.previous_epoch = 0;
        }
        self.changed.insert(Change::Member(beat.member_id.clone()));
        let has_new_assignor = self.preferred_assignor().map(str::to_owned) != assignor_before;
        Ok((has_new_subscription, has_new_assignor && !is_new))
    }

    /// The assignor that most members ask for.
    pub(crate) fn preferred_assignor(&self) -> Option<&str> {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for assignor in self.members.values().filter_map(|member| member.profile.assignor.as_deref()) {
            *votes.entry(assignor).or_default() += 1;
        }
        votes.into_iter().max_by_key(|(name, votes)| (*votes, std::cmp::Reverse(*name))).map(|(name, _)| name)
    }

    pub(super) fn bump(&mut self) {
        self.epoch += 1;
        self.changed.insert(Change::Group);
    }

    /// Takes matched patterns. Returns whether one matches other topics than before.
    fn resolve(&mut self, resolved: &BTreeMap<String, ResolvedPattern>) -> bool {
        let mut has_changed = false;
        for (pattern, topics) in resolved {
            if let Some(before) = self.patterns.get_mut(pattern).filter(|it| it.topics == topics.topics) {
                before.version = topics.version;
                continue;
            }
            has_changed = true;
            self.patterns.insert(pattern.clone(), topics.clone());
            self.changed.insert(Change::Pattern(pattern.clone()));
        }
        has_changed
    }

    /// Removes the patterns of no member.
    fn forget_patterns(&mut self) {
        if self.patterns.is_empty() {
            return;
        }
        let used: BTreeSet<&str> =
            self.members.values().filter_map(|member| member.profile.pattern.as_deref()).collect();
        let unused: Vec<String> =
            self.patterns.keys().filter(|pattern| !used.contains(pattern.as_str())).cloned().collect();
        for pattern in unused {
            self.patterns.remove(&pattern);
            self.changed.insert(Change::Pattern(pattern));
        }
    }

    /// The names that a member subscribes to, with those that its pattern matches.
    pub(super) fn subscribed_names<'a>(&'a self, profile: &'a Profile) -> impl Iterator<Item = &'a str> {
        let pattern = profile.pattern.as_ref().and_then(|pattern| self.patterns.get(pattern));
        let matched = pattern.into_iter().flat_map(|pattern| &pattern.topics);
        profile.names.iter().chain(matched).map(String::as_str)
    }

    /// All names that members subscribe to.
    pub(crate) fn all_names(&self) -> BTreeSet<String> {
        let profiles = self.members.values().map(|member| &member.profile);
        profiles.flat_map(|profile| self.subscribed_names(profile)).map(str::to_owned).collect()
    }

    /// A hash of the subscribed topics that exist: FNV-1a, the same after a restart.
    fn hash_of_topics(&self, lookup: &dyn TopicLookup) -> i64 {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        let mut add = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for (id, partitions) in self.all_names().iter().filter_map(|name| lookup.by_name(name)) {
            add(&id.0);
            add(&partitions.to_be_bytes());
        }
        hash as i64
    }

    fn retarget(&mut self, now_ms: i64, settings: &GroupSettings, lookup: &dyn TopicLookup) {
        let preferred = self.preferred_assignor().and_then(Assignor::of_name);
        let assignor = preferred.or_else(|| settings.assignors.first().copied()).unwrap_or(Assignor::Uniform);
        let mut topics = BTreeMap::new();
        let mut candidates = Vec::with_capacity(self.members.len());
        for (id, member) in &self.members {
            let subscribed = self.subscribed_topics(&member.profile, lookup);
            candidates.push(Candidate {
                instance_id: member.profile.instance_id.clone(),
                topics: subscribed.keys().copied().collect(),
                before: self.targets.get(id).cloned().unwrap_or_default(),
            });
            topics.extend(subscribed);
        }
        let targets = assign(assignor, &candidates, &topics);
        let before = self.target_bytes();
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for (id, target) in ids.into_iter().zip(targets) {
            if self.targets.get(&id).is_none_or(|before| *before != target) {
                self.targets.insert(id.clone(), target);
                self.changed.insert(Change::Target(id));
            }
        }
        self.count_targets(before);
        self.assignment_epoch = self.epoch;
        self.assigned_at_ms = now_ms;
        self.changed.insert(Change::TargetEpoch);
    }

    /// The memory of the target assignment, and as much for the partitions that members have.
    pub(super) fn target_bytes(&self) -> usize {
        let places: usize = self.targets.values().map(BTreeSet::len).sum();
        places * 2 * 3 * size_of::<(Place, i32)>()
    }

    /// Counts the memory of the target assignment. It follows from the members and topics, which have limits of their own.
    pub(super) fn count_targets(&mut self, before: usize) {
        let after = self.target_bytes();
        self.kept.add(after.saturating_sub(before));
        self.kept.release(before.saturating_sub(after));
    }

    fn leave(&mut self, now: Instant, now_ms: i64, beat: &Beat) -> Result<BeatAnswer, Refusal> {
        let id = &beat.member_id;
        let refuse = |code, message| Err(Refusal::new(code, message));
        if let Some(instance) = &beat.instance_id {
            match self.instances.get(instance) {
                None => {
                    let message = format!("no member has the instance `{instance}`");
                    return refuse(ErrorCode::UnknownMemberId, message);
                }
                Some(holder) if holder != id => {
                    let message =
                        format!("instance `{instance}` belongs to member `{holder}`, not to `{id}`");
                    return refuse(ErrorCode::FencedInstanceId, message);
                }
                Some(_) => {}
            }
        }
        let Some(member) = self.members.get_mut(id) else {
            return refuse(ErrorCode::UnknownMemberId, format!("the group has no member `{id}`"));
        };
        if beat.epoch == LEFT_FOR_NOW {
            (member.previous_epoch, member.epoch) = (member.epoch, LEFT_FOR_NOW);
            member.state = MemberState::Stable;
            member.revoke_by = None;
            member.heard_at = now;
            for place in std::mem::take(&mut member.revoking).keys() {
                self.owners.remove(place);
            }
            self.changed.insert(Change::Current(id.clone()));
        } else {
            self.dismiss(now_ms, std::slice::from_ref(id));
        }
        let epoch = if beat.epoch == LEFT_FOR_NOW { LEFT_FOR_NOW } else { LEFT };
        Ok(BeatAnswer { member_id: id.clone(), epoch, assignment: None })
    }

    /// Removes members, and requests a new assignment.
    pub(super) fn dismiss(&mut self, now_ms: i64, ids: &[String]) {
        for id in ids {
            self.remove(id);
        }
        self.forget_patterns();
        self.bump();
        if self.members.is_empty() {
            self.empty_since_ms = now_ms;
            // KAFKA-20442: nothing is left to assign.
            self.assignment_epoch = self.epoch;
            self.assigned_at_ms = now_ms;
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
    pub(crate) fn tick(&mut self, now: Instant, now_ms: i64, settings: &GroupSettings) -> Option<Instant> {
        let deadline = |member: &Member| {
            let session = member.heard_at + settings.session_timeout;
            member.revoke_by.map_or(session, |by| by.min(session))
        };
        let late: Vec<String> = self
            .members
            .iter()
            .filter(|(_, member)| deadline(member) <= now)
            .map(|(id, _)| id.clone())
            .collect();
        if !late.is_empty() {
            self.dismiss(now_ms, &late);
        }
        self.members.values().map(deadline).min()
    }

    /// Returns whether a member may commit offsets of these partitions. An older epoch is good for a partition that the
    /// member has had since (KAFKA-20066).
    pub(crate) fn check_commit(
        &self,
        member_id: &str,
        epoch: i32,
        places: impl Iterator<Item = (Option<Uuid>, i32)>,
    ) -> Result<(), ErrorCode> {
        if epoch < 0 && self.members.is_empty() {
            return Ok(());
        }
        let member = self.members.get(member_id).ok_or(ErrorCode::UnknownMemberId)?;
        if epoch == member.epoch {
            return Ok(());
        }
        if epoch > member.epoch {
            return Err(ErrorCode::StaleMemberEpoch);
        }
        for (topic, partition) in places {
            let place = topic.map(|topic| (topic, partition));
            let since = place.and_then(|at| member.assigned.get(&at).or_else(|| member.revoking.get(&at)));
            if since.is_none_or(|since| epoch < *since) {
                return Err(ErrorCode::StaleMemberEpoch);
            }
        }
        Ok(())
    }

    /// Returns whether a member may read the group's offsets.
    pub(crate) fn check_fetch(&self, member_id: Option<&str>, epoch: i32) -> Result<(), ErrorCode> {
        let member_id = match member_id {
            None | Some("") if epoch < 0 => return Ok(()),
            id => id.unwrap_or_default(),
        };
        let member = self.members.get(member_id).ok_or(ErrorCode::UnknownMemberId)?;
        if epoch == member.epoch { Ok(()) } else { Err(ErrorCode::StaleMemberEpoch) }
    }
}

/// An older epoch is good if the answer with the newer one was lost.
fn check_epoch(id: &str, member: &Member, beat: &Beat) -> Result<(), Refusal> {
    let owns_no_other = || {
        let owned = beat.owned.as_ref();
        owned.is_some_and(|owned| owned.iter().all(|place| member.assigned.contains_key(place)))
    };
    let (current, previous) = (member.epoch, member.previous_epoch);
    if beat.epoch == current || beat.epoch < current && beat.epoch == previous && owns_no_other() {
        return Ok(());
    }
    let message =
        format!("member `{id}` sent epoch {}; its epoch is {current}, and was {previous} before", beat.epoch);
    Err(Refusal::new(ErrorCode::FencedMemberEpoch, message))
}

fn no_room() -> String {
    "memory.max.bytes has no room for the group, the member or its subscription".to_owned()
}
