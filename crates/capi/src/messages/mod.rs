//! The structs that applications read: messages, headers, lists of partitions and topic ids.

pub mod headers;
pub(crate) mod known_messages;
pub(crate) mod list_conversion;
pub mod message;
pub(crate) mod message_slab;
pub mod partition_list;
pub(crate) mod slab_pool;
pub mod uuid;
