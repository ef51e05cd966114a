//! The table of classic groups, and the times of their ticks.

use std::sync::Arc;

use tokio::time::Instant;

use super::by_name::ByName;
use super::deadlines::{Deadlines, move_deadline};
use super::group::Group;
use crate::cluster::Cluster;

/// The groups by name, and the times of their ticks. The work of a tick depends on the groups that are due, not on all.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) by_id: ByName<Group>,
    /// The groups by a time at which a deadline may have passed. It is not later than the first deadline.
    deadlines: Deadlines,
    /// The first tick has begun the sessions of the members that were loaded.
    has_begun: bool,
}

impl Table {
    /// Replaces a group, and makes a tick compute its deadline.
    pub(super) fn insert(&mut self, group_id: &str, group: Group, now: Instant) {
        self.remove(group_id);
        self.by_id.insert(group_id, group);
        self.wake_at(group_id, Some(now));
    }

    pub(super) fn remove(&mut self, group_id: &str) -> Option<Box<Group>> {
        self.wake_at(group_id, None);
        self.by_id.remove(group_id)
    }

    /// Replaces the time of a group's next tick.
    fn wake_at(&mut self, group_id: &str, at: Option<Instant>) {
        let Some(mut deadline) = self.by_id.get_mut(group_id).map(|group| group.deadline.take()) else {
            return;
        };
        let name = || self.by_id.name(group_id).map_or_else(|| Arc::from(group_id), Arc::clone);
        move_deadline(&mut self.deadlines, name, &mut deadline, at);
        if let Some(group) = self.by_id.get_mut(group_id) {
            group.deadline = deadline;
        }
    }

    /// Moves the group's next tick to its next deadline if that is earlier. A tick that comes too early finds the later time, so a
    /// request that renews a session leaves the deadlines of all groups as they are. Returns `true` if the next tick of all has
    /// changed.
    pub(super) fn schedule(&mut self, group_id: &str, now: Instant) -> bool {
        let Some(group) = self.by_id.get(group_id) else { return false };
        let next = if group.is_unused() { Some(now) } else { group.next_deadline() };
        let next = group.save_at(now).into_iter().chain(next).min();
        let Some(next) = next else { return false };
        if group.deadline.as_ref().is_some_and(|(at, _)| *at <= next) {
            return false;
        }
        self.wake_at(group_id, Some(next));
        self.deadlines.first().is_some_and(|(at, _)| *at == next)
    }

    /// Handles the deadlines that have passed. Returns the time of the next tick. The first tick begins the sessions of the members that
    /// were loaded: while other logs were opened, nothing listened, and no member could send a heartbeat.
    pub(super) fn tick(&mut self, cluster: &Arc<Cluster>, now: Instant) -> Option<Instant> {
        if !std::mem::replace(&mut self.has_begun, true) {
            let members_max = cluster.groups.members_max();
            for group in self.by_id.values_mut() {
                group.begin_sessions(now, members_max);
            }
        }
        for group_id in self.take_due(now) {
            let Some(group) = self.by_id.get_mut(&group_id) else { continue };
            let next = group.tick(now);
            group.save(cluster, &group_id);
            if group.is_unused() {
                self.remove(&group_id);
            } else {
                let next = group.save_at(now).into_iter().chain(next).min();
                self.wake_at(&group_id, next);
            }
        }
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Takes the groups whose time has come. Each must get its next time.
    fn take_due(&mut self, now: Instant) -> Vec<Arc<str>> {
        let mut due = Vec::new();
        while self.deadlines.first().is_some_and(|(at, _)| *at <= now) {
            due.extend(self.deadlines.pop_first().map(|(_, group_id)| group_id));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::memory::KeptMemory;

    /// The cost of a JoinGroup once grew with the number of groups: each made a tick look at all of them.
    #[test]
    fn a_tick_handles_only_the_groups_that_are_due() {
        let memory = KeptMemory::new(1 << 20);
        let (mut table, now) = (Table::default(), Instant::now());
        let second = Duration::from_secs(1);
        for number in 0..100 {
            table.insert(&format!("group-{number:02}"), Group::new(memory.keep_known(0)), now);
        }
        let all = table.take_due(now);
        assert_eq!(all.len(), 100, "groups that are new are due at once");
        for group_id in &all {
            table.wake_at(group_id, Some(now + 2 * second));
        }
        assert!(table.take_due(now + second).is_empty());
        table.wake_at("group-07", Some(now));
        assert_eq!(table.take_due(now + second), [Arc::from("group-07")]);
        table.wake_at("group-07", None);
        assert!(table.remove("group-08").is_some());
        let due = table.take_due(now + 2 * second);
        assert_eq!(due.len(), 98);
        assert!(!due.iter().any(|group_id| matches!(&**group_id, "group-07" | "group-08")));
    }
    /// A JoinGroup moved its group among all groups twice: to the present, and by the tick to the next deadline.
    #[test]
    fn a_request_moves_the_tick_of_its_group_only_to_an_earlier_time() {
        let memory = KeptMemory::new(1 << 20);
        let (mut table, now) = (Table::default(), Instant::now());
        let [early, late, later] = [10, 20, 30].map(|seconds| now + Duration::from_secs(seconds));
        let mut group = Group::new(memory.keep_known(0));
        group.expect(now, "member".to_owned(), Duration::from_secs(20), memory.keep_known(0));
        table.by_id.insert("group", group);
        table.wake_at("group", Some(early));
        assert!(!table.schedule("group", now), "the tick at the earlier time finds the deadline");
        assert_eq!(table.deadlines.first().map(|(at, _)| *at), Some(early));
        table.wake_at("group", Some(later));
        assert!(table.schedule("group", now), "the session of the expected member ends before");
        assert_eq!(table.deadlines.first().map(|(at, _)| *at), Some(late));
        if let Some(group) = table.by_id.get_mut("group") {
            group.forget_expected(now, "member");
        }
        assert!(table.schedule("group", now), "a group without use is removed at once");
        assert_eq!(table.take_due(now).len(), 1);
    }
}
