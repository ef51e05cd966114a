//! `rd_kafka_queue_t`: operations that wait for the application, and the functions that poll them.

pub(crate) mod background_thread;
pub mod event;
pub(crate) mod message_array;
pub(crate) mod op;
pub(crate) mod op_queue;
pub mod poll;
pub mod queue_handle;
pub mod queue_poll;
