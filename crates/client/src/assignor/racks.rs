//! The condition for rack-aware assignment (KIP-881).

use std::collections::BTreeSet;
use std::sync::Arc;

/// Returns `true` if rack-aware assignment can help: some partitions have replicas in a member's rack, and not every
/// partition has replicas in all racks.
pub(super) fn matter(members: &BTreeSet<&Arc<str>>, partitions: &[&BTreeSet<Arc<str>>]) -> bool {
    let all: BTreeSet<&Arc<str>> = partitions.iter().copied().flatten().collect();
    !members.is_disjoint(&all) && partitions.iter().any(|racks| racks.len() < all.len())
}
