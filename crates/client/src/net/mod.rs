//! Connections to brokers.

pub(crate) mod connection;
pub(crate) mod connector;
