//! The tests that share a program: a program for each file would be built as long as the crate itself. `cargo xtask test` runs
//! each file in a process of its own.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(
    clippy::disallowed_methods,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    clippy::wildcard_imports,
    reason = "a test is a shell that calls as C does"
)]

mod asking;
mod common;
mod sharing;

mod admin;
mod admin_arguments;
mod append_time;
mod arrays;
mod assignments;
mod batches;
mod broker;
mod callbacks;
mod certificates;
mod classes;
mod client;
mod closing;
mod commits;
mod conf_interceptors;
mod configuration;
mod consumer_errors;
mod consuming;
mod destroying;
mod documents;
mod drop_in;
mod fatal_errors;
mod freed_payloads;
mod headers;
mod interceptors;
mod legacy;
mod mock;
mod mock_groups;
mod mock_responses;
mod pausing;
mod processor;
mod processor_damage;
mod producing;
mod queue_functions;
mod refused_assignments;
mod refused_offsets;
mod refused_records;
mod roundtrip;
mod share_consumers;
mod simple_starts;
mod sockets;
mod timestamps;
mod topic_metadata;
mod transaction_calls;
mod transactions;
mod unassigned;
mod unreachable;
mod values;
mod varargs;
mod yielding;
