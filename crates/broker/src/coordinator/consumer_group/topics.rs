//! The topics of a group: those that its patterns match, and a hash that changes with them.

use std::collections::{BTreeMap, BTreeSet};

use super::group::{Change, ConsumerGroup, TopicLookup};
use super::patterns::ResolvedPattern;

impl ConsumerGroup {
    /// Takes matched patterns. Returns whether one matches other topics than before.
    pub(super) fn resolve(&mut self, resolved: &BTreeMap<String, ResolvedPattern>) -> bool {
        let mut has_changed = false;
        for (pattern, topics) in resolved {
            if let Some(before) = self.patterns.get_mut(pattern).filter(|it| it.topics == topics.topics) {
                // The record remains: after a restart the pattern is matched again in any case.
                (before.version, before.acls_version, before.at_ms) =
                    (topics.version, topics.acls_version, topics.at_ms);
                continue;
            }
            has_changed = true;
            self.patterns.insert(pattern.clone(), topics.clone());
            self.changed.insert(Change::Pattern(pattern.clone()));
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
            self.patterns.remove(&pattern);
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
