//! The consumer group in the statistics, with librdkafka's names of states.

use tokio::time::Instant;

use super::snapshot::Group;

/// The member's view of its group.
#[derive(Debug)]
pub(super) struct GroupCounts {
    /// The search for the coordinator.
    state: (&'static str, Instant),
    /// The last coordinator that was found.
    coordinator: Option<i32>,
    join_state: &'static str,
    rebalances: u64,
    /// The time of the last assignment.
    rebalanced_at: Option<Instant>,
    /// The reason why this member joined again.
    reason: String,
    pub(super) partitions: u64,
}

impl GroupCounts {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            state: ("init", now),
            coordinator: None,
            join_state: "init",
            rebalances: 0,
            rebalanced_at: None,
            reason: String::new(),
            partitions: 0,
        }
    }

    pub(super) fn enter(&mut self, state: &'static str, now: Instant) {
        if self.state.0 != state {
            self.state = (state, now);
        }
    }

    pub(super) fn coordinated_by(&mut self, node: i32, now: Instant) {
        self.enter("up", now);
        self.coordinator = Some(node);
    }

    pub(super) fn join_state(&mut self, state: &'static str) {
        self.join_state = state;
    }

    pub(super) fn rebalances(&mut self, reason: &str) {
        reason.clone_into(&mut self.reason);
    }

    pub(super) fn assigned(&mut self, partitions: usize, now: Instant) {
        self.rebalances += 1;
        self.rebalanced_at = Some(now);
        self.partitions = partitions as u64;
    }

    pub(super) fn snapshot(&self, now: Instant) -> Group {
        let age = |since: Instant| now.saturating_duration_since(since).as_millis() as i64;
        Group {
            state: self.state.0.into(),
            stateage: age(self.state.1),
            join_state: self.join_state.into(),
            rebalance_age: self.rebalanced_at.map_or(0, age),
            rebalance_cnt: self.rebalances,
            rebalance_reason: self.reason.clone(),
            assignment_size: self.partitions,
            coordinator: self.coordinator,
        }
    }
}
