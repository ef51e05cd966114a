//! The tests that share a program: a program for each file would be built as long as the crate itself. `cargo xtask test` runs
//! each file in a process of its own.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

mod common;
#[path = "common/tls.rs"]
mod tls;

mod acls;
mod added_nodes;
mod administration;
mod bad_input;
mod checks;
mod client_metrics;
mod client_quotas;
mod commits_and_deletions;
mod compaction;
mod compression_type;
mod configs;
mod connections_per_ip;
mod consumer_groups;
mod data_loss;
mod dead_letter_queues;
mod deadlines;
mod disk_faults;
mod documents;
mod elections;
mod features;
mod fetch;
mod flips;
mod flush;
mod group_records;
mod group_rules;
mod groups;
mod idempotence;
mod kafka43;
mod listener_certificates;
mod log_dirs;
mod lost_topics;
mod many_producers;
mod misbehaving;
mod node_ids;
mod not_blocking;
mod oauth;
mod offsets_topic;
mod operation;
mod panicking_disk;
mod pausing;
mod placement;
mod producer_expiration;
mod racks;
mod reassignments;
mod rebalance_protocols;
mod refused_directories;
mod refused_items;
mod repeated_names;
mod replication;
mod security;
mod share_fetch;
mod share_forgotten;
mod share_groups;
mod share_initialization;
mod share_locks;
mod share_lost_records;
mod share_memory;
mod share_min_bytes;
mod share_pruning;
mod share_sessions;
mod share_state_offline;
mod share_topic_deletion;
mod snapshots;
mod started_appends;
mod stopped_nodes;
mod test_kit;
mod test_overrides;
mod throttled_reassignments;
mod topics;
mod transaction_coordinator;
mod transactions;
mod txn_offset_commit;
mod unread_responses;
mod versions;
mod wide_requests;

use security::certificates;
