//! librdkafka's C interface on the Ottla client, and `ottla.h`, the processor's.
//!
//! A function here converts, makes one call of the client, and converts back; nothing is decided here that the client
//! could decide. One file per C noun. Every function carries [`ffi::panic::on_panic`]:
//! a panic never crosses the boundary. The functions that call the application are loops in C (`callbacks`).

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
#[cfg(feature = "mock")]
pub mod broker;
mod callbacks;
pub mod client;
pub mod conf;
pub mod consume;
pub mod errors;
pub mod ffi;
mod handles;
pub mod messages;
#[cfg(feature = "mock")]
pub mod mock;
pub mod processor;
pub mod produce;
pub mod queue;
pub mod share;
#[cfg(not(feature = "mock"))]
mod unimplemented;
