//! Consumer groups of the new protocol (KIP-848): the coordinator assigns the partitions, and heartbeats carry all state.
//!
//! ```text
//! heartbeat --> member changed? --> group epoch + 1 --> target assignment --> this member's next step --> records --> answer
//! ```
//!
//! - `group`: a group, and its decision about one heartbeat, without clock, lock or socket.
//! - `member`: a member and its states.
//! - `reconcile`: the way of a member to its target: it gives partitions up before another member gets them.
//! - `assignor`: the target assignment.
//! - `records`: the group in `__consumer_offsets`.
//! - `registry`: the groups of the cluster, their deadlines and their writes.

pub(crate) mod assignor;
pub(crate) mod group;
pub(crate) mod member;
#[cfg(test)]
mod model_tests;
pub(crate) mod patterns;
mod reconcile;
pub(crate) mod records;
pub(crate) mod registry;
