//! When racks matter (KIP-881).

use std::collections::BTreeSet;
use std::sync::Arc;

/// Whether members can be brought closer to their partitions: some have replicas in a member's rack, and not all
/// partitions are in all the racks.
pub(super) fn matter(members: &BTreeSet<&Arc<str>>, partitions: &[&BTreeSet<Arc<str>>]) -> bool {
    let all: BTreeSet<&Arc<str>> = partitions.iter().copied().flatten().collect();
    !members.is_disjoint(&all) && partitions.iter().any(|racks| racks.len() < all.len())
}
