//! librdkafka's C interface on the Ottla client.
//!
//! A function here converts, makes one call of the client, and converts back; nothing is decided here that the client
//! could decide. One file per C noun. Every function runs inside [`panic::guard`]: a panic never crosses the boundary.

#![allow(unsafe_code, reason = "C's pointers")]
#![warn(clippy::undocumented_unsafe_blocks)]
#![allow(non_camel_case_types, reason = "C's names for C's types")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the contracts stand in include/rdkafka.h, where C programmers read them"
)]

pub mod panic;
