//! The ways to acknowledge a record of a share group.

/// The acknowledgement of a record that a share group delivered.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum AcknowledgeType {
    /// The record was processed.
    Accept,
    /// The record was not processed: the group delivers it again, until its delivery count reaches
    /// `group.share.delivery.count.limit`.
    Release,
    /// The record cannot be processed: the group does not deliver it again.
    Reject,
    /// The record is still being processed: its acquisition lock starts again, and a later poll returns it again.
    Renew,
}

impl AcknowledgeType {
    /// The number of this type in requests.
    pub(crate) const fn code(self) -> i8 {
        match self {
            Self::Accept => 1,
            Self::Release => 2,
            Self::Reject => 3,
            Self::Renew => 4,
        }
    }
}
