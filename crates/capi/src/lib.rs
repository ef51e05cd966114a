//! librdkafka's C interface on the Ottla client, and `ottla.h`, the processor's.
//!
//! A function here converts, makes one call of the client, and converts back; nothing is decided here that the client
//! could decide. One file per C noun. Every function carries [`panic::on_panic`] or
//! [`panic::calls_back`]: a panic never crosses the boundary.

#![allow(unsafe_code, reason = "C's pointers")]
#![warn(clippy::undocumented_unsafe_blocks)]
#![allow(non_camel_case_types, reason = "C's names for C's types")]
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "functions, types and contracts are documented in include/rdkafka.h and include/ottla.h, where C programmers read"
)]
#![allow(clippy::disallowed_methods, reason = "a shell: C's threads wait here, by the system's clock")]
#![allow(unreachable_pub, reason = "C reaches functions by name, whatever module they live in")]
#![allow(clippy::used_underscore_binding, reason = "`_private` is the headers' name for what is ours")]
#![allow(clippy::wildcard_imports, reason = "of ffi: its names are C's, and every file needs a dozen")]

pub mod admin;
mod background;
pub mod client;
pub mod codes;
pub mod conf;
pub mod consumer;
pub mod error;
mod error_table;
pub mod event;
pub mod ffi;
pub mod groups;
pub mod handle;
pub mod headers;
pub mod hooks;
pub mod interceptors;
mod judging;
pub mod kafka_consumer;
pub mod legacy;
mod lists;
pub mod log_printers;
mod logs;
pub mod memory;
pub mod message;
pub mod metadata;
#[cfg(feature = "mock")]
pub mod mock;
pub mod oauth;
pub mod offsets;
mod op;
pub mod panic;
pub mod partitioners;
pub mod partitions;
mod plugins;
pub mod poll;
pub mod processor;
pub mod producer;
mod queue;
pub mod queues;
mod remains;
mod sockets;
pub mod text;
pub mod threads;
pub mod topic;
pub mod topic_conf;
pub mod transactions;
mod unimplemented;
pub mod uuid;
mod varargs;
pub mod version;
