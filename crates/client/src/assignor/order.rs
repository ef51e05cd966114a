//! The order of members in an assignment: static members first, by their instance ids, so that a restart changes
//! nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Member;

/// Member ids in that order.
pub(super) fn in_order(members: &BTreeMap<String, Member>) -> Vec<&String> {
    let mut ids: Vec<_> = members.iter().collect();
    ids.sort_by_key(|(id, member)| (member.instance_id.is_none(), &member.instance_id, *id));
    ids.into_iter().map(|(id, _)| id).collect()
}

/// The subscribers of each topic, in the order of `ids`.
pub(super) fn subscribers<'a>(
    ids: &[&'a String],
    members: &'a BTreeMap<String, Member>,
) -> BTreeMap<&'a Arc<str>, Vec<&'a String>> {
    let mut subscribers: BTreeMap<&Arc<str>, Vec<&String>> = BTreeMap::new();
    for id in ids.iter().copied() {
        for topic in &members[id].topics {
            let subscribed = subscribers.entry(topic).or_default();
            // A member may name a topic twice.
            if subscribed.last() != Some(&id) {
                subscribed.push(id);
            }
        }
    }
    subscribers
}
