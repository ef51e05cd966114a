//! The order of members in an assignment: static members first, by their instance ids, so that a restart changes
//! nothing.

use std::collections::BTreeMap;

use super::Member;

/// Member ids in that order.
pub(super) fn in_order(members: &BTreeMap<String, Member>) -> Vec<&String> {
    let mut ids: Vec<_> = members.iter().collect();
    ids.sort_by_key(|(id, member)| (member.instance_id.is_none(), &member.instance_id, *id));
    ids.into_iter().map(|(id, _)| id).collect()
}
