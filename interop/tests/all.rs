//! The tests that share a program: a program for each file would be built as long as the crate itself. `cargo xtask test` runs
//! each file in a process of its own.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

mod applications;
mod both_brokers;
#[path = "../../crates/broker/tests/common/mod.rs"]
mod common;
mod cutting;
#[path = "doctor/findings.rs"]
mod findings;
mod mixed_share_group;
#[path = "security/peers.rs"]
mod peers;
mod secured;
mod shared_group;

mod acls;
mod admin;
mod admin_methods;
mod assignors;
mod bench_patterns;
mod broker_transactions;
mod c_admin;
mod c_processor;
mod capi_classes;
mod capi_examples;
mod capi_go;
mod capi_kcat;
mod capi_misuse;
mod capi_node;
mod capi_oracle;
mod capi_performance;
mod capi_python;
mod capi_rust;
mod capi_share;
mod compaction;
mod compression_type;
mod connect;
mod cuts;
mod doctor;
mod doctor_security;
mod foreign;
mod frameworks;
mod group_load;
mod groups;
mod gssapi;
mod guide;
mod guide_c;
mod harness;
mod import;
mod ipv6;
mod java_tools;
mod kafka011;
mod kafka41;
mod kafka43;
mod kcat;
mod kill9;
mod metrics;
mod mirror;
mod offsets_topic;
mod partitioners;
mod producer_faults;
mod producer_memory;
mod readme;
mod replicas;
mod run;
mod share_consumer;
mod share_group_tools;
mod share_groups;
mod streams;
mod testing_guide;
mod transactions;
mod verifiable;
