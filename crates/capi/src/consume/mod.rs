//! Consumers: groups, single partitions, and offsets.

pub(crate) mod consumer_errors;
pub(crate) mod consumer_state;
pub mod group_consumer;
pub mod group_metadata;
pub mod leave_group;
pub mod offsets;
pub mod rebalance_protocol;
pub mod simple_consumer;
