//! The other end of a connection, as far as it can be named in a log line, and what was logged about it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Mutex, OnceLock, PoisonError};

use ottla_protocol::ApiKey;

use crate::api::ConnectionContext;

/// Different warnings that are remembered; after that, clients that try everything are not logged any more.
const WARNINGS_MAX: usize = 1000;

/// The client of a connection.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    address: Option<SocketAddr>,
    /// Name and version of its software, from its ApiVersions request (KIP-511).
    software: OnceLock<(String, String)>,
}

/// Warnings that were logged, so that a client that tries again is logged once.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    logged: Mutex<BTreeSet<String>>,
}

impl Peer {
    pub(crate) fn new(address: Option<SocketAddr>) -> Self {
        Self { address, software: OnceLock::new() }
    }

    pub(crate) fn set_software(&self, name: &str, version: &str) {
        let _ = self.software.set((name.to_owned(), version.to_owned()));
    }
}

impl Warnings {
    /// Returns whether this is the first time; `false` as well when too many were logged.
    fn is_new(&self, key: String) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        logged.len() < WARNINGS_MAX && logged.insert(key)
    }
}

impl ConnectionContext {
    /// Logs once per client software, API and version that a request cannot be answered.
    pub(crate) fn warn_unsupported(&self, api: ApiKey, version: i16) {
        self.warn(&format!("{api} version {version}"));
    }

    /// Logs once per client software that it needs a feature which this broker does not have.
    pub(crate) fn warn_missing(&self, feature: &str) {
        self.warn(feature);
    }

    fn warn(&self, what: &str) {
        let software = match self.peer.software.get() {
            Some((name, version)) => format!("{name} {version}"),
            None => "unknown software".to_owned(),
        };
        let host =
            self.peer.address.map_or_else(|| "an in-process client".to_owned(), |it| it.ip().to_string());
        if self.cluster.warnings.is_new(format!("{host} {software} {what}")) {
            let client = self.peer.address.map_or(host, |address| address.to_string());
            tracing::warn!("{client} ({software}) requests {what}, which this broker does not support");
        }
    }
}
