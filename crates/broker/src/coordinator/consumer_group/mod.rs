//! Consumer groups of the new protocol (KIP-848): the coordinator assigns the partitions, and heartbeats carry all state.
//!
//! ```text
//! heartbeat --> member changed? --> group epoch + 1 --> target assignment --> this member's next step --> records --> answer
//! ```
//!
//! - `group`: a group, and its decision about one heartbeat, without clock, lock or socket. `group::membership`: members join and leave.
//! - `member`: a member and its states.
//! - `reconcile`: the way of a member to its target: it gives partitions up before another member gets them.
//! - `assignor`: the target assignment.
//! - `topics`: the topics that patterns match, and the hash of the subscribed ones.
//! - `commits`: the checks of commits.
//! - `classic`: members of the classic protocol, while the group migrates.
//! - `migration`: the conversion of a classic group to this protocol, and back.
//! - `records`: the group in `__consumer_offsets`.
//! - `registry`: the groups of the cluster, their deadlines and their writes.

pub(crate) mod assignor;
pub(crate) mod classic;
mod commits;
pub(crate) mod group;
#[cfg(test)]
mod limit_tests;
pub(crate) mod member;
pub(crate) mod migration;
#[cfg(test)]
mod model_tests;
pub(crate) mod patterns;
mod reconcile;
pub(crate) mod records;
pub(crate) mod registry;
mod settings;
#[cfg(test)]
mod story_tests;
mod topics;
