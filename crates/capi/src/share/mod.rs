//! `rd_kafka_share_t`: a consumer of share groups (KIP-932), with its batches, acknowledgements and subscription.

pub mod acknowledge;
pub mod close;
pub mod commit;
pub mod commit_callback;
pub mod message_batch;
pub mod open;
pub mod partition_offsets;
pub mod poll;
pub mod security;
mod share_call;
mod share_handle;
mod share_pointers;
pub mod subscription;
