//! librdkafka's C interface on the Ottla client.
//!
//! A function here converts, makes one call of the client, and converts back; nothing is decided here that the client
//! could decide. One file per C noun. Every function runs inside [`panic::guard`]: a panic never crosses the boundary.

#![allow(unsafe_code, reason = "C's pointers")]
#![warn(clippy::undocumented_unsafe_blocks)]
#![allow(non_camel_case_types, reason = "C's names for C's types")]
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "functions, types and contracts are documented in include/rdkafka.h, where C programmers read"
)]
#![allow(unreachable_pub, reason = "C reaches functions by name, whatever module they live in")]
#![allow(clippy::used_underscore_binding, reason = "`_private` is the headers' name for what is ours")]
#![allow(clippy::wildcard_imports, reason = "of ffi: its names are C's, and every file needs a dozen")]

pub mod codes;
pub mod conf;
pub mod error;
mod error_table;
pub mod ffi;
pub mod headers;
pub mod interceptors;
mod log_printers;
mod memory;
pub mod panic;
mod partitioners;
pub mod partitions;
pub mod text;
pub mod threads;
pub mod topic_conf;
mod unimplemented;
pub mod uuid;
mod version;
