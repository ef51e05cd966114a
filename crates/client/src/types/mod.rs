//! Plain data of the public interface. It is the lowest layer: it imports only the error type.

mod acknowledge_type;
mod acknowledgement_result;
pub(crate) mod broker_version;
mod event;
mod group_metadata;
pub(crate) mod log_line;
mod offsets;
pub(crate) mod partitioner;
mod pattern;
pub(crate) mod produce_hook;
pub(crate) mod producer_id;
mod settings;
pub(crate) mod topic_name;
mod topic_partition;

pub use self::acknowledge_type::AcknowledgeType;
pub use self::acknowledgement_result::AcknowledgementResult;
pub use self::event::Event;
pub use self::group_metadata::GroupMetadata;
pub use self::offsets::{OffsetAndMetadata, StartAt, Watermarks};
pub(crate) use self::pattern::pattern;
pub use self::pattern::pattern_matches;
pub use self::settings::{
    Acks, GroupHabits, GroupProtocol, Isolation, OffsetReset, Rebalance, ShareAcknowledgementMode,
    ShareAcquireMode,
};
pub use self::topic_partition::TopicPartition;
