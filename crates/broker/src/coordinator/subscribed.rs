//! The topics of a group's members, for the expiry and removal of offsets.

use std::collections::BTreeSet;

/// The topics that the members of a group subscribe to.
#[derive(Debug)]
pub(crate) enum Subscribed {
    /// These topics.
    To(BTreeSet<String>),
    /// Unknown: there is no protocol yet, or the subscriptions are not in Kafka's format. It may be any topic.
    Unclear,
}

impl Subscribed {
    /// Returns `true` if offsets of this topic may be in use.
    pub(crate) fn includes(&self, topic: &str) -> bool {
        match self {
            Self::To(topics) => topics.contains(topic),
            Self::Unclear => true,
        }
    }
}
