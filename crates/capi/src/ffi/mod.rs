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

pub use crate::error::rd_kafka_error_t;
