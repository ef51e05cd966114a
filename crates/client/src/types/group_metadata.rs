//! The identity of a group member.

/// The identity of the group member that commits offsets, from [`Consumer::group_metadata`](crate::ConsumerControl::group_metadata).
///
/// The coordinator refuses the offsets of a member that is no longer in its group.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct GroupMetadata {
    /// `group.id`.
    pub group_id: String,
    /// The generation; -1 outside a membership.
    pub generation: i32,
    /// The member id; empty outside a membership.
    pub member_id: String,
    /// `group.instance.id`, of a static member.
    pub instance_id: Option<String>,
}

impl GroupMetadata {
    /// Creates metadata without a member, which the coordinator does not check.
    pub fn new(group_id: impl Into<String>) -> Self {
        Self { group_id: group_id.into(), generation: -1, member_id: String::new(), instance_id: None }
    }
}
