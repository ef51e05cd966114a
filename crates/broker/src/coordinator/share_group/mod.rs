//! Share groups (KIP-932): their members, which partitions each of them reads from, and the partitions whose state exists.
//!
//! ```text
//! heartbeat --> group --> assignor
//!                 |
//!                 +--> state_partitions --initialize--> share_state
//! ```
//!
//! - `group`: one group and the decision about a heartbeat, without I/O.
//! - `state_partitions`: the partitions whose state is being initialized or is initialized. Only the latter are assigned.
//! - `assignor`: the target assignment. Members share partitions, so that no member has to give one up first.
//! - `records`: the group in `__consumer_offsets`.
//! - `registry`: the groups of the cluster, their deadlines and their writes.
//! - `initialization`: the tasks that initialize states.
//! - `offsets`: changes of start offsets by clients.

pub(crate) mod assignor;
pub(crate) mod group;
#[cfg(test)]
mod group_tests;
mod initialization;
mod offsets;
pub(crate) mod records;
pub(crate) mod registry;
mod settings;
mod state_partitions;

pub(crate) use offsets::Starts;
