//! The rows of the property table, by subject.

mod callbacks;
mod connection;
mod consumer;
mod group;
mod logging;
mod metadata;
mod producer;
mod sasl;
mod tls;
mod topic;

use super::property::Property;

/// The groups, in the order in which documents show them.
pub(super) const GROUPS: &[(&str, &[Property])] = &[
    ("Brokers and connections", connection::ROWS),
    ("Metadata", metadata::ROWS),
    ("Producer", producer::ROWS),
    ("Consumer", consumer::ROWS),
    ("Groups and offsets", group::ROWS),
    ("Topics", topic::ROWS),
    ("TLS", tls::ROWS),
    ("SASL", sasl::ROWS),
    ("Logs, statistics and the library itself", logging::ROWS),
    ("Functions and objects", callbacks::ROWS),
];
