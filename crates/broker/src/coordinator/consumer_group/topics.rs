//! The topics of a group: those that its members name and its patterns match, and a hash that changes with them.
//!
//! Members mostly have equal subscriptions: the topics of each subscription are collected once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_protocol::Uuid;

use super::assignor::Candidate;
use super::group::{Change, ConsumerGroup, TopicLookup};
use super::member::Profile;
use super::patterns::ResolvedPattern;
use crate::coordinator::subscribed::Subscribed;

impl ConsumerGroup {
    /// The names that a member subscribes to, with those that its pattern matches.
    fn subscribed_names<'a>(&'a self, profile: &'a Profile) -> impl Iterator<Item = &'a str> {
        let pattern = profile.pattern.as_ref().and_then(|pattern| self.patterns.get(pattern));
        let matched = pattern.into_iter().flat_map(|pattern| &pattern.topics).map(|name| &**name);
        profile.names.iter().map(String::as_str).chain(matched)
    }

    /// All names that members subscribe to.
    pub(super) fn all_names(&self) -> BTreeSet<&str> {
        let mut lists: BTreeSet<&BTreeSet<String>> = BTreeSet::new();
        let mut patterns: BTreeSet<&str> = BTreeSet::new();
        for Profile { names, pattern, .. } in self.members.values().map(|member| &member.profile) {
            lists.insert(names);
            patterns.extend(pattern.as_deref());
        }
        let matched = patterns.into_iter().filter_map(|pattern| self.patterns.get(pattern));
        let matched = matched.flat_map(|pattern| &pattern.topics).map(|name| &**name);
        lists.into_iter().flatten().map(String::as_str).chain(matched).collect()
    }

    /// The same names, copied.
    pub(super) fn subscribed(&self) -> Subscribed {
        Subscribed::To(self.all_names().into_iter().map(str::to_owned).collect())
    }

    /// The subscribed topics that exist, with their numbers of partitions.
    pub(super) fn subscribed_topics(
        &self,
        profile: &Profile,
        lookup: &dyn TopicLookup,
    ) -> BTreeMap<Uuid, i32> {
        self.subscribed_names(profile).filter_map(|name| lookup.by_name(name)).collect()
    }

    /// The members for the assignor, in the order of their ids, and the numbers of partitions of all their topics.
    pub(super) fn candidates(&self, lookup: &dyn TopicLookup) -> (Vec<Candidate>, BTreeMap<Uuid, i32>) {
        let mut all_topics: BTreeMap<Uuid, i32> = BTreeMap::new();
        let mut of_subscriptions = BTreeMap::new();
        let mut candidates = Vec::with_capacity(self.members.len());
        for (id, member) in &self.members {
            let profile = &member.profile;
            let subscription = (&profile.names, profile.pattern.as_deref());
            let topics = of_subscriptions.entry(subscription).or_insert_with(|| {
                let topics = self.subscribed_topics(profile, lookup);
                let ids: BTreeSet<Uuid> = topics.keys().copied().collect();
                all_topics.extend(topics);
                Arc::new(ids)
            });
            candidates.push(Candidate {
                instance_id: profile.instance_id.clone(),
                topics: topics.clone(),
                before: self.targets.get(id).cloned().unwrap_or_default(),
            });
        }
        (candidates, all_topics)
    }

    /// Takes matched patterns. Returns whether one matches other topics than before. Without room in `memory.max.bytes`, a pattern
    /// gets no new topics, and a new pattern is not taken.
    pub(super) fn resolve(&mut self, resolved: &BTreeMap<String, ResolvedPattern>) -> bool {
        let mut has_changed = false;
        for (pattern, found) in resolved {
            let mut found = found.clone();
            let known = self.patterns.get(pattern);
            let (before, mut after) = (known.map_or(0, |known| known.bytes(pattern)), found.bytes(pattern));
            if after > before && !self.kept.grow(after - before) {
                tracing::warn!(pattern, "memory.max.bytes has no room for the topics that a pattern matches");
                let Some(known) = known else { continue };
                found.topics.retain(|name| known.topics.contains(name));
                after = found.bytes(pattern);
            }
            self.kept.release(before.saturating_sub(after));
            let is_same = known.is_some_and(|known| known.topics == found.topics);
            self.patterns.insert(pattern.clone(), found);
            // With the same topics the record remains: after a restart the pattern is matched again in any case.
            if !is_same {
                has_changed = true;
                self.changed.insert(Change::Pattern(pattern.clone()));
            }
        }
        has_changed
    }

    /// Removes the patterns of no member.
    pub(super) fn forget_patterns(&mut self) {
        if self.patterns.is_empty() {
            return;
        }
        let used: BTreeSet<&str> =
            self.members.values().filter_map(|member| member.profile.pattern.as_deref()).collect();
        let unused: Vec<String> =
            self.patterns.keys().filter(|pattern| !used.contains(pattern.as_str())).cloned().collect();
        for pattern in unused {
            if let Some(known) = self.patterns.remove(&pattern) {
                self.kept.release(known.bytes(&pattern));
            }
            self.changed.insert(Change::Pattern(pattern));
        }
    }

    /// A hash of the subscribed topics that exist: FNV-1a, the same after a restart.
    pub(super) fn hash_of_topics(&self, lookup: &dyn TopicLookup) -> i64 {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        let mut add = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for (id, partitions) in self.all_names().into_iter().filter_map(|name| lookup.by_name(name)) {
            add(&id.0);
            add(&partitions.to_be_bytes());
        }
        hash as i64
    }
}
