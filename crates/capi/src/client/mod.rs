//! `rd_kafka_t`, and what belongs to a client as a whole: its log, tokens, sockets, interceptors and topics.

pub(crate) mod cert_verify;
pub mod client_errors;
pub mod client_interceptors;
pub(crate) mod conf_warnings;
pub mod control;
pub(crate) mod creation_checks;
pub mod destroy;
pub mod handle;
pub mod list_groups;
pub mod log_printers;
pub(crate) mod log_routing;
pub(crate) mod log_thread;
pub mod metadata;
pub mod oauth_tokens;
pub(crate) mod produce_hook;
pub(crate) mod producer_pauses;
pub(crate) mod role;
pub(crate) mod shown_sockets;
pub(crate) mod socket_callbacks;
mod statistics;
pub mod thread_count;
pub mod topic_handle;
