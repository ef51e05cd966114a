//! The committed offsets of all groups, in memory. `__consumer_offsets` has them on disk: see
//! [`crate::coordinator::offset_log`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::coordinator::small_map::SmallMap;
use crate::coordinator::subscribed::Subscribed;
use crate::coordinator::unstable_offsets::{UNSTABLE_BYTES, UNSTABLE_TOPIC_BYTES, UnstableOffsets};
use crate::memory::{Kept, KeptMemory};

/// Memory of an offset besides its metadata.
const OFFSET_BYTES: usize = Partitions::ENTRY_BYTES + size_of::<Stored>();
/// Memory of a topic with offsets besides its name.
const TOPIC_BYTES: usize = ByPartition::ENTRY_BYTES;
/// Memory of a group besides its name. The nodes of a map are at least five elevenths full.
const GROUP_BYTES: usize = 3 * size_of::<(String, GroupOffsets)>();
/// Memory of a producer with pending offsets of a group, besides the group's name: nodes of both maps and of the set.
const PENDING_BYTES: usize = 11
    * (size_of::<(i64, ByPartition)>()
        + size_of::<(String, Partitions)>()
        + size_of::<((i32, i64), BTreeSet<String>)>()
        + size_of::<String>());

/// A committed offset of a group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Committed {
    pub(crate) offset: i64,
    pub(crate) leader_epoch: i32,
    pub(crate) metadata: String,
    /// The time of the commit.
    pub(crate) at_ms: i64,
    /// The time at which it expires, if the client set one: values of version 1.
    pub(crate) expires_at_ms: Option<i64>,
}

impl Committed {
    pub(crate) fn new(offset: i64, leader_epoch: i32, metadata: String, at_ms: i64) -> Self {
        Self { offset, leader_epoch, metadata, at_ms, expires_at_ms: None }
    }
}

/// A topic and a partition whose offset is committed.
pub(crate) type At = (String, i32);

/// An offset, and the offset of its record in `__consumer_offsets`.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Stored {
    committed: Committed,
    /// The end of a transaction may be applied after a later commit: the later record counts.
    record: i64,
}

/// Offsets by partition. Boxed: an insertion moves those after it.
type Partitions = SmallMap<i32, Box<Stored>>;

/// Offsets by topic and partition.
type ByPartition = SmallMap<String, Partitions>;

/// The offsets of one group.
#[derive(Debug, Default)]
struct GroupOffsets {
    committed: ByPartition,
    /// Offsets of open transactions, by producer id.
    pending: BTreeMap<i64, ByPartition>,
    /// The keys of `pending` by topic and partition.
    unstable: UnstableOffsets,
}

/// Every group's offsets.
#[derive(Debug)]
struct State {
    groups: BTreeMap<String, GroupOffsets>,
    /// Groups with pending offsets, by partition of `__consumer_offsets` and producer id.
    open: BTreeMap<(i32, i64), BTreeSet<String>>,
    /// The memory of everything here.
    kept: Kept,
}

/// Every group's offsets.
#[derive(Debug)]
pub(crate) struct Offsets {
    state: Mutex<State>,
    memory: KeptMemory,
}

impl Default for Offsets {
    /// Offsets without a limit of their memory, as they are read from a log.
    fn default() -> Self {
        Self::new(KeptMemory::new(usize::MAX))
    }
}

impl Offsets {
    pub(crate) fn new(memory: KeptMemory) -> Self {
        let kept = memory.keep_known(0);
        let state = State { groups: BTreeMap::new(), open: BTreeMap::new(), kept };
        Self { state: Mutex::new(state), memory }
    }

    /// Counts the memory that a commit needs beyond that of the offsets it replaces. The result is dropped after the
    /// commit was applied. `producer_id` is that of a transaction.
    ///
    /// # Errors
    /// The number of bytes, if `memory.max.bytes` has no room for them.
    pub(crate) fn reserve(
        &self,
        group: &str,
        producer_id: Option<i64>,
        offsets: &[(At, Committed)],
    ) -> Result<Kept, usize> {
        let state = self.lock();
        let known = state.groups.get(group);
        let mut bytes = if known.is_none() { GROUP_BYTES + group.len() } else { 0 };
        let known = match producer_id {
            None => known.map(|known| &known.committed),
            Some(id) => known.and_then(|known| known.pending.get(&id)),
        };
        if producer_id.is_some() && known.is_none() {
            bytes += PENDING_BYTES + group.len();
        }
        let mut added = None;
        for ((topic, partition), committed) in offsets {
            let of_topic = known.and_then(|known| known.get(topic));
            if of_topic.is_none() && added != Some(topic) {
                bytes += TOPIC_BYTES + topic.len();
                if producer_id.is_some() {
                    bytes += UNSTABLE_TOPIC_BYTES + topic.len();
                }
                added = Some(topic);
            }
            let replaced = of_topic.and_then(|known| known.get(partition));
            if producer_id.is_some() && replaced.is_none() {
                bytes += UNSTABLE_BYTES;
            }
            let replaced = replaced.map_or(0, |stored| offset_bytes(&stored.committed));
            bytes += offset_bytes(committed).saturating_sub(replaced);
        }
        drop(state);
        if bytes == 0 {
            // It fits also if the offsets that were read at the start exceed the limit.
            return Ok(self.memory.keep_known(0));
        }
        self.memory.keep(bytes).ok_or(bytes)
    }

    /// Takes offsets whose first record is at `base_offset`, the others after it.
    pub(crate) fn commit(&self, group: &str, base_offset: i64, offsets: Vec<(At, Committed)>) {
        let mut state = self.lock();
        let (group, kept) = state.group(group);
        for (record, ((topic, partition), committed)) in (base_offset..).zip(offsets) {
            put(&mut group.committed, topic, partition, Box::new(Stored { committed, record }), kept);
        }
    }

    /// Takes offsets of a producer's open transaction. `partition` of `__consumer_offsets` has their records.
    pub(crate) fn commit_pending(
        &self,
        group: &str,
        (partition, producer_id): (i32, i64),
        base_offset: i64,
        offsets: Vec<(At, Committed)>,
    ) {
        let mut state = self.lock();
        state.open.entry((partition, producer_id)).or_default().insert(group.to_owned());
        let name_bytes = group.len();
        let (group, kept) = state.group(group);
        let pending = group.pending.entry(producer_id).or_insert_with(|| {
            kept.add(PENDING_BYTES + name_bytes);
            ByPartition::default()
        });
        for (record, ((topic, partition), committed)) in (base_offset..).zip(offsets) {
            group.unstable.insert(&topic, partition, producer_id, kept);
            put(pending, topic, partition, Box::new(Stored { committed, record }), kept);
        }
    }

    /// Ends a producer's transaction: its pending offsets count from now on, or are dropped.
    pub(crate) fn complete(&self, partition: i32, producer_id: i64, committed: bool) {
        let mut state = self.lock();
        for name in state.open.remove(&(partition, producer_id)).unwrap_or_default() {
            let (group, kept) = state.group(&name);
            let Some(pending) = group.pending.remove(&producer_id) else { continue };
            kept.release(PENDING_BYTES + name.len() + bytes_of(&pending));
            for (topic, offsets) in pending.into_entries() {
                for (index, stored) in offsets.into_entries() {
                    group.unstable.remove(&topic, index, producer_id, kept);
                    if !committed {
                        continue;
                    }
                    let known = group.committed.get(&topic).and_then(|known| known.get(&index));
                    if known.is_none_or(|known| known.record < stored.record) {
                        put(&mut group.committed, topic.clone(), index, stored, kept);
                    }
                }
            }
            state.forget_if_empty(&name);
        }
    }

    /// Removes offsets of a group, pending ones too.
    pub(crate) fn remove(&self, group: &str, which: &[At]) {
        let mut state = self.lock();
        let State { groups, kept, .. } = &mut *state;
        let Some(offsets) = groups.get_mut(group) else { return };
        for (topic, partition) in which {
            take(&mut offsets.committed, topic, *partition, kept);
            for producer_id in offsets.unstable.producers(topic, *partition) {
                offsets.unstable.remove(topic, *partition, producer_id, kept);
                if let Some(pending) = offsets.pending.get_mut(&producer_id) {
                    take(pending, topic, *partition, kept);
                }
            }
        }
        // A producer without pending offsets stays until the end of its transaction.
        state.forget_if_empty(group);
    }

    /// Takes the offsets of other groups.
    pub(crate) fn absorb(&self, other: Self) {
        let other = other.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock();
        for (name, group) in other.groups {
            state.kept.add(group.bytes(&name));
            if let Some(replaced) = state.groups.remove(&name) {
                state.kept.release(replaced.bytes(&name));
            }
            state.groups.insert(name, group);
        }
        state.open.extend(other.open);
    }

    /// The offset of one partition.
    pub(crate) fn get(&self, group: &str, topic: &str, partition: i32) -> Option<Committed> {
        let state = self.lock();
        let stored = state.groups.get(group)?.committed.get(topic)?.get(&partition)?;
        Some(stored.committed.clone())
    }

    /// Returns whether an open transaction will change the offset of a partition.
    pub(crate) fn is_unstable(&self, group: &str, topic: &str, partition: i32) -> bool {
        let state = self.lock();
        state.groups.get(group).is_some_and(|group| group.unstable.contains(topic, partition))
    }

    /// All offsets of a group, by topic and partition.
    pub(crate) fn of_group(&self, group: &str) -> BTreeMap<At, Committed> {
        let state = self.lock();
        let committed = state.groups.get(group).map(|group| &group.committed);
        let all = committed.into_iter().flat_map(SmallMap::iter).flat_map(|(topic, offsets)| {
            offsets.iter().map(|(partition, stored)| ((topic.clone(), *partition), stored.committed.clone()))
        });
        all.collect()
    }

    /// Everything that has to be removed with a group: its offsets, pending ones too.
    pub(crate) fn keys_of_group(&self, group: &str) -> Vec<At> {
        let state = self.lock();
        state.groups.get(group).map(|group| group.keys().into_iter().collect()).unwrap_or_default()
    }

    /// Returns whether a group has offsets, committed or pending ones: it is a group then, as in Kafka.
    pub(crate) fn has_offsets(&self, group: &str) -> bool {
        self.lock().groups.get(group).is_some_and(GroupOffsets::has_any)
    }

    /// Every group that has offsets, by name.
    pub(crate) fn groups(&self) -> Vec<String> {
        let state = self.lock();
        state.groups.iter().filter(|(_, group)| group.has_any()).map(|(name, _)| name.clone()).collect()
    }

    /// The offsets of groups by name, from the one after `after` on, until `max` offsets are reached. Groups with only pending
    /// offsets are included, without any.
    pub(crate) fn page_after(&self, after: Option<&str>, max: usize) -> Vec<(String, Vec<(At, i64)>)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let state = self.lock();
        let (mut page, mut count) = (Vec::new(), 0);
        for (name, group) in state.groups.range::<str, _>((from, Bound::Unbounded)) {
            let offsets = group.committed.iter().flat_map(|(topic, offsets)| {
                offsets.iter().map(|(index, stored)| ((topic.clone(), *index), stored.committed.offset))
            });
            let offsets: Vec<(At, i64)> = offsets.collect();
            count += offsets.len().max(1);
            page.push((name.clone(), offsets));
            if count >= max {
                break;
            }
        }
        page
    }

    /// Every group's offsets of a topic.
    pub(crate) fn of_topic(&self, topic: &str) -> Vec<(String, Vec<At>)> {
        let state = self.lock();
        let of_group = |(name, group): (&String, &GroupOffsets)| {
            let keys: Vec<At> = group.keys().into_iter().filter(|(name, _)| name == topic).collect();
            (!keys.is_empty()).then(|| (name.clone(), keys))
        };
        state.groups.iter().filter_map(of_group).collect()
    }

    /// The highest offset that any group has committed for a partition; 0 if none has.
    pub(crate) fn highest(&self, topic: &str, partition: i32) -> i64 {
        let state = self.lock();
        let of_partition =
            state.groups.values().filter_map(|group| group.committed.get(topic)?.get(&partition));
        of_partition.map(|stored| stored.committed.offset).max().unwrap_or(0).max(0)
    }

    /// Those of these partitions for which a group has an offset or a pending one, each once. A committed offset whose record is
    /// `before` or behind it stays.
    pub(crate) fn older(&self, group: &str, which: &[At], before: i64) -> Vec<At> {
        let state = self.lock();
        let Some(offsets) = state.groups.get(group) else { return Vec::new() };
        let is_older = |(topic, partition): &At| match offsets
            .committed
            .get(topic)
            .and_then(|of_topic| of_topic.get(partition))
        {
            Some(stored) => stored.record < before,
            None => offsets.unstable.contains(topic, *partition),
        };
        let older: BTreeSet<&At> = which.iter().filter(|at| is_older(at)).collect();
        older.into_iter().cloned().collect()
    }

    /// The offsets of a group that have expired, at most `count`, and whether the group has none left without them.
    pub(crate) fn expired(&self, group: &str, rule: &ExpiryRule, count: usize) -> (Vec<At>, bool) {
        let state = self.lock();
        let Some(group) = state.groups.get(group) else { return (Vec::new(), true) };
        let (mut expired, mut are_all) = (Vec::new(), group.pending.is_empty());
        for (topic, offsets) in group.committed.iter() {
            for (partition, stored) in offsets.iter() {
                let has_expired = rule.has_expired(topic, &stored.committed);
                if has_expired && !group.unstable.contains(topic, *partition) {
                    if expired.len() == count {
                        return (expired, false);
                    }
                    expired.push((topic.clone(), *partition));
                } else {
                    are_all = false;
                }
            }
        }
        (expired, are_all)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn group(&mut self, name: &str) -> (&mut GroupOffsets, &mut Kept) {
        // Not `entry`: the name of a group that is known is not copied.
        if !self.groups.contains_key(name) {
            self.groups.insert(name.to_owned(), GroupOffsets::default());
            self.kept.add(GROUP_BYTES + name.len());
        }
        (self.groups.get_mut(name).expect("it was inserted above"), &mut self.kept)
    }

    fn forget_if_empty(&mut self, name: &str) {
        if self.groups.get(name).is_some_and(|group| group.committed.is_empty() && group.pending.is_empty()) {
            self.groups.remove(name);
            self.kept.release(GROUP_BYTES + name.len());
        }
    }
}

impl GroupOffsets {
    /// The memory of a group with this name.
    fn bytes(&self, name: &str) -> usize {
        let pending = self.pending.values().map(|pending| PENDING_BYTES + name.len() + bytes_of(pending));
        GROUP_BYTES + name.len() + bytes_of(&self.committed) + pending.sum::<usize>() + self.unstable.bytes()
    }

    /// Returns whether there are offsets, committed or pending ones. A producer may have none left in its transaction.
    fn has_any(&self) -> bool {
        !self.committed.is_empty() || !self.unstable.is_empty()
    }

    fn keys(&self) -> BTreeSet<At> {
        let all = std::iter::once(&self.committed).chain(self.pending.values()).flat_map(SmallMap::iter);
        all.flat_map(|(topic, offsets)| offsets.keys().map(|partition| (topic.clone(), *partition))).collect()
    }
}

/// The offsets of a group that expire, as in Kafka (KIP-211).
#[derive(Debug)]
pub(crate) struct ExpiryRule {
    pub(crate) now_ms: i64,
    pub(crate) retention_ms: i64,
    pub(crate) members: MembersForExpiry,
}

/// The members of the group, as far as they matter for the expiry of its offsets.
#[derive(Debug)]
pub(crate) enum MembersForExpiry {
    /// There were never any: offsets expire after their commit.
    Never,
    /// They have left: offsets expire after that.
    LeftAt(i64),
    /// Offsets of other topics than these expire after their commit.
    SubscribedTo(Subscribed),
    /// It is not known which offsets are in use.
    Unknown,
}

impl ExpiryRule {
    fn has_expired(&self, topic: &str, committed: &Committed) -> bool {
        let since_ms = match &self.members {
            MembersForExpiry::Never => committed.at_ms,
            // A commit without members is later than their end.
            MembersForExpiry::LeftAt(at_ms) => committed.at_ms.max(*at_ms),
            MembersForExpiry::SubscribedTo(subscribed) if !subscribed.includes(topic) => committed.at_ms,
            MembersForExpiry::SubscribedTo(_) | MembersForExpiry::Unknown => return false,
        };
        match committed.expires_at_ms {
            Some(at_ms) => at_ms <= self.now_ms,
            None => self.now_ms.saturating_sub(since_ms) >= self.retention_ms,
        }
    }
}

/// The memory of offsets, without that of their group.
fn bytes_of(offsets: &ByPartition) -> usize {
    let of_topic = |(topic, known): (&String, &Partitions)| {
        let offsets = known.values().map(|stored| offset_bytes(&stored.committed));
        TOPIC_BYTES + topic.len() + offsets.sum::<usize>()
    };
    offsets.iter().map(of_topic).sum()
}

fn offset_bytes(committed: &Committed) -> usize {
    OFFSET_BYTES + committed.metadata.len()
}

fn put(offsets: &mut ByPartition, topic: String, partition: i32, stored: Box<Stored>, kept: &mut Kept) {
    let topic_bytes = TOPIC_BYTES + topic.len();
    kept.add(offset_bytes(&stored.committed));
    let known = offsets.get_or_insert_with(topic, || {
        kept.add(topic_bytes);
        Partitions::default()
    });
    if let Some(replaced) = known.insert(partition, stored) {
        kept.release(offset_bytes(&replaced.committed));
    }
}

fn take(offsets: &mut ByPartition, topic: &str, partition: i32, kept: &mut Kept) {
    if let Some(known) = offsets.get_mut(topic) {
        if let Some(removed) = known.remove(&partition) {
            kept.release(offset_bytes(&removed.committed));
        }
        if known.is_empty() {
            offsets.remove(topic);
            kept.release(TOPIC_BYTES + topic.len());
        }
    }
}

/// Returns whether a group can have this name: one that logs and tools can show.
pub(crate) fn is_group_name(name: &str) -> bool {
    !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(topic: &str, offset: i64) -> (At, Committed) {
        ((topic.to_owned(), 0), Committed::new(offset, -1, String::new(), 7))
    }

    fn offset_of(offsets: &Offsets, group: &str, topic: &str) -> Option<i64> {
        offsets.get(group, topic, 0).map(|committed| committed.offset)
    }

    #[test]
    fn offsets_of_a_transaction_count_after_its_commit() {
        let offsets = Offsets::default();
        offsets.commit("g", 0, vec![at("orders", 1)]);
        offsets.commit_pending("g", (3, 9), 1, vec![at("orders", 5)]);
        assert_eq!(offset_of(&offsets, "g", "orders"), Some(1));
        assert!(offsets.is_unstable("g", "orders", 0) && !offsets.is_unstable("g", "returns", 0));
        // The marker of another partition or producer is not about them.
        offsets.complete(4, 9, true);
        offsets.complete(3, 8, true);
        assert!(offsets.is_unstable("g", "orders", 0));
        offsets.complete(3, 9, true);
        assert_eq!(offset_of(&offsets, "g", "orders"), Some(5));
        assert!(!offsets.is_unstable("g", "orders", 0));
    }

    #[test]
    fn offsets_of_an_aborted_transaction_are_dropped_with_their_group() {
        let offsets = Offsets::default();
        offsets.commit_pending("g", (3, 9), 1, vec![at("orders", 5)]);
        assert_eq!(offsets.groups(), ["g"]);
        offsets.complete(3, 9, false);
        assert!(offsets.groups().is_empty());
        assert_eq!(offset_of(&offsets, "g", "orders"), None);
        assert!(offsets.lock().groups.is_empty() && offsets.lock().open.is_empty());
    }

    /// Kafka once let an older offset of a transaction win.
    #[test]
    fn a_commit_after_the_record_of_a_transaction_wins() {
        let offsets = Offsets::default();
        offsets.commit_pending("g", (3, 9), 1, vec![at("orders", 5)]);
        offsets.commit("g", 2, vec![at("orders", 8)]);
        offsets.complete(3, 9, true);
        assert_eq!(offset_of(&offsets, "g", "orders"), Some(8));
    }

    #[test]
    fn a_deletion_removes_pending_offsets_too() {
        let offsets = Offsets::default();
        offsets.commit_pending("g", (3, 9), 1, vec![at("orders", 5), at("returns", 6)]);
        offsets.remove("g", &[("orders".to_owned(), 0)]);
        offsets.complete(3, 9, true);
        assert_eq!(offset_of(&offsets, "g", "orders"), None);
        assert_eq!(offset_of(&offsets, "g", "returns"), Some(6));
    }

    #[test]
    fn offsets_expire_by_the_members_of_their_group() {
        let offsets = Offsets::default();
        offsets.commit("g", 0, vec![at("orders", 1), at("returns", 1)]);
        let keys = |members, now_ms| {
            let rule = ExpiryRule { now_ms, retention_ms: 100, members };
            let (expired, are_all) = offsets.expired("g", &rule, usize::MAX);
            (expired.into_iter().map(|(topic, _)| topic).collect::<Vec<_>>(), are_all)
        };
        let both = vec!["orders".to_owned(), "returns".to_owned()];
        assert_eq!(keys(MembersForExpiry::Never, 106), (Vec::new(), false));
        assert_eq!(keys(MembersForExpiry::Never, 107), (both.clone(), true));
        assert_eq!(keys(MembersForExpiry::LeftAt(50), 149), (Vec::new(), false));
        assert_eq!(keys(MembersForExpiry::LeftAt(50), 150), (both, true));
        let orders = Subscribed::To(["orders".to_owned()].into());
        let rest = vec!["returns".to_owned()];
        assert_eq!(keys(MembersForExpiry::SubscribedTo(orders), 107), (rest, false));
        assert_eq!(keys(MembersForExpiry::Unknown, i64::MAX), (Vec::new(), false));
    }

    fn has_exact_index(group: &GroupOffsets) -> bool {
        let mut expected = UnstableOffsets::default();
        let mut kept = KeptMemory::new(usize::MAX).keep_known(0);
        for (producer_id, offsets) in &group.pending {
            for (topic, offsets) in offsets.iter() {
                offsets.keys().for_each(|index| expected.insert(topic, *index, *producer_id, &mut kept));
            }
        }
        assert_eq!(expected.bytes(), kept.bytes());
        group.unstable == expected
    }

    /// Each partition of a request was searched in the pending offsets of all producers.
    #[test]
    fn an_offset_is_unstable_until_the_last_of_its_transactions_has_ended() {
        let offsets = Offsets::default();
        (0..3).for_each(|producer| offsets.commit_pending("g", (3, producer), 1, vec![at("orders", 5)]));
        assert_eq!(offsets.lock().groups["g"].unstable.producers("orders", 0), [0, 1, 2]);
        offsets.complete(3, 0, false);
        offsets.complete(3, 2, true);
        assert!(offsets.is_unstable("g", "orders", 0) && !offsets.is_unstable("g", "orders", 1));
        offsets.remove("g", &[("orders".to_owned(), 0)]);
        assert!(!offsets.is_unstable("g", "orders", 0));
    }

    #[test]
    fn the_memory_of_offsets_is_counted_until_they_are_removed() {
        let memory = KeptMemory::new(1 << 20);
        let offsets = Offsets::new(memory.clone());
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            let group = ["a", "bb", "ccc"][rng.usize(..3)];
            let topic = ["orders", "returns"][rng.usize(..2)];
            let producer_id = rng.i64(0..3);
            let metadata = "x".repeat(rng.usize(..50));
            let key = (topic.to_owned(), rng.i32(0..3));
            let commit = vec![(key.clone(), Committed::new(1, -1, metadata, 7))];
            match rng.u8(..5) {
                0 => offsets.commit(group, 1, commit),
                1 => offsets.commit_pending(group, (0, producer_id), 1, commit),
                2 => offsets.complete(0, producer_id, rng.bool()),
                3 => {
                    let before = offsets.lock().kept.bytes();
                    let reserved = offsets.reserve(group, None, &commit).expect("it fits").bytes();
                    offsets.commit(group, 1, commit);
                    let grown = offsets.lock().kept.bytes().saturating_sub(before);
                    assert_eq!(reserved, grown, "reserved and used");
                }
                _ => offsets.remove(group, &[key]),
            }
            let state = offsets.lock();
            let held: usize = state.groups.iter().map(|(name, group)| group.bytes(name)).sum();
            assert_eq!(state.kept.bytes(), held);
            assert!(state.groups.values().all(has_exact_index));
        }
        (0..3).for_each(|producer_id| offsets.complete(0, producer_id, false));
        for group in ["a", "bb", "ccc"] {
            offsets.remove(group, &offsets.keys_of_group(group));
        }
        assert_eq!(offsets.lock().kept.bytes(), 0);
        assert!(memory.keep(1 << 20).is_some(), "all of it is free");
    }

    /// A client that has filled the memory must not keep others from committing what they have committed before.
    #[test]
    fn an_offset_that_is_known_is_committed_although_the_memory_is_used_up() {
        let memory = KeptMemory::new(GROUP_BYTES + TOPIC_BYTES + OFFSET_BYTES + 100);
        let offsets = Offsets::new(memory);
        let reserve = |group, offset| offsets.reserve(group, None, &[at("orders", offset)]);
        drop(reserve("g", 1).expect("it fits"));
        offsets.commit("g", 0, vec![at("orders", 1)]);
        assert!(reserve("other", 1).is_err());
        assert!(reserve("g", 2).is_ok());
        offsets.remove("g", &[("orders".to_owned(), 0)]);
        assert!(reserve("other", 1).is_ok());
    }

    /// DeleteGroups removes a group and then its offsets, in parts. Meanwhile a new group of its name can commit.
    #[test]
    fn an_offset_that_is_newer_than_a_deletion_is_not_among_the_older_ones() {
        let offsets = Offsets::default();
        offsets.commit("g", 4, vec![at("orders", 0)]);
        offsets.commit("g", 5, vec![at("returns", 1)]);
        let key = |topic: &str| (topic.to_owned(), 0);
        let which = [key("orders"), key("returns"), key("unknown"), key("orders")];
        assert_eq!(offsets.older("g", &which, 5), [key("orders")]);
        assert_eq!(offsets.older("other", &which, 5), []);
    }

    #[test]
    fn group_names_have_no_control_characters() {
        assert!(!is_group_name("victim\0evil") && is_group_name("billing, Zürich"));
    }
}
