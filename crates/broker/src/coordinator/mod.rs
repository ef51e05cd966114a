//! The coordinator of groups: their members, their committed offsets, and both in `__consumer_offsets`; and the coordinator
//! of share-partitions, whose states are in `__share_group_state`, with their leaders.

mod by_name;
pub(crate) mod classic_member;
pub(crate) mod consumer_group;
pub(crate) mod dead_letters;
mod deadlines;
pub(crate) mod expiry;
pub(crate) mod group;
pub(crate) mod group_log;
mod group_table;
pub(crate) mod groups;
pub(crate) mod loading;
mod name_locks;
pub(crate) mod offset_log;
pub(crate) mod offsets;
pub(crate) mod share_group;
pub(crate) mod share_partition;
pub(crate) mod share_state;
mod shared_names;
#[cfg(test)]
mod slow_start_tests;
mod small_map;
mod subscribed;
mod unstable_offsets;
