//! C's types: the facts of `include/rdkafka.h` in Rust. `tests/layout.c` and the asserts here keep the two together.

#![allow(non_snake_case, reason = "C's names for C's values")]

mod callbacks;
mod codes;
mod opaque;
mod structs;
mod values;

pub use callbacks::*;
pub use codes::*;
pub use opaque::*;
pub use structs::*;
pub use values::*;

pub use crate::conf::rd_kafka_conf_t;
pub use crate::error::rd_kafka_error_t;
pub use crate::event::rd_kafka_event_t;
pub use crate::headers::rd_kafka_headers_t;
pub use crate::queues::rd_kafka_queue_t;
pub use crate::topic_conf::rd_kafka_topic_conf_t;
pub use crate::transactions::rd_kafka_consumer_group_metadata_t;
pub use crate::uuid::rd_kafka_Uuid_t;
