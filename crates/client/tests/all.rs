//! The tests that share a program: a program for each file would be built as long as the crate itself. `cargo xtask test` runs
//! each file in a process of its own.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

mod assignor_cases;
#[path = "support/certificates.rs"]
mod certificates;
#[path = "support/counted.rs"]
mod counted;
mod fields;
mod recorder;
mod seats;

mod admin;
mod against_ottla;
mod assignors;
mod auto_create;
mod broken_tls;
mod consumer;
mod corrupt;
mod debug;
mod documents;
mod executor;
mod fetching;
mod groups;
mod leaving;
mod lost_assignments;
mod network;
mod new_protocol;
mod offsets;
mod produce_errors;
mod producer;
mod properties;
mod queues;
mod rebalances;
mod sasl;
mod share;
mod silent_brokers;
mod stalls;
mod statistics;
mod telemetry;
mod tls;
mod transactions;
mod unstable_offsets;
