//! Error codes, their texts, and `rd_kafka_error_t`.

pub mod error_mapping;
pub mod error_object;
mod error_table;
