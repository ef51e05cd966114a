//! The other end of a connection, as far as it can be named in a log line, and what was logged about it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Different warnings that are remembered; after that, clients that try everything are not logged any more.
const WARNINGS_MAX: usize = 1000;

/// The client of a connection.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    address: Option<SocketAddr>,
    /// Name and version of its software, from its ApiVersions request (KIP-511).
    software: OnceLock<(String, String)>,
    /// Its IP address as text, for the ACLs.
    address_text: OnceLock<Box<str>>,
}

/// Warnings that were logged, so that a client that tries again is logged once.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    logged: Mutex<BTreeSet<String>>,
}

impl Peer {
    pub(crate) fn new(address: Option<SocketAddr>) -> Self {
        Self { address, software: OnceLock::new(), address_text: OnceLock::new() }
    }

    pub(crate) fn set_software(&self, name: &str, version: &str) {
        let _ = self.software.set((name.to_owned(), version.to_owned()));
    }

    /// The address in Kafka's form.
    pub(crate) fn host(&self) -> String {
        self.address.map_or_else(|| "/127.0.0.1".to_owned(), |address| format!("/{}", address.ip()))
    }

    /// The IP address; `None` for an in-process client.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.address.map(|address| address.ip())
    }

    /// The IP address as ACLs have it. An in-process client is on this host.
    pub(crate) fn address_text(&self) -> &str {
        self.address_text.get_or_init(|| match self.address {
            Some(address) => address.ip().to_canonical().to_string().into(),
            None => "127.0.0.1".into(),
        })
    }

    /// The port of the client; 0 for an in-process one.
    pub(crate) fn port(&self) -> u16 {
        self.address.map_or(0, |address| address.port())
    }

    /// The name and the version of the client's software, or `unknown` as in Kafka.
    pub(crate) fn software_parts(&self) -> (String, String) {
        self.software.get().cloned().unwrap_or_else(|| ("unknown".to_owned(), "unknown".to_owned()))
    }

    /// The name and version of the client's software.
    fn software(&self) -> String {
        match self.software.get() {
            Some((name, version)) => format!("{name} {version}"),
            None => "unknown software".to_owned(),
        }
    }
}

impl Warnings {
    /// Logs once per host and client software that the broker does not support `feature`.
    pub(crate) fn warn(&self, peer: &Peer, feature: &str) {
        let software = peer.software();
        let host = peer.address.map_or_else(|| "an in-process client".to_owned(), |it| it.ip().to_string());
        if self.is_new(format!("{host} {software} {feature}")) {
            let client = peer.address.map_or(host, |address| address.to_string());
            tracing::warn!("{client} ({software}) requests {feature}, which this broker does not support");
        }
    }

    /// Logs a failed login once per host, listener and user.
    pub(crate) fn warn_login(&self, peer: &Peer, listener: &str, user: Option<&str>, reason: &str) {
        let host = peer.host();
        let user = user.unwrap_or("unknown");
        if self.is_new(format!("login {host} {listener} {user:.64}")) {
            tracing::warn!(
                listener,
                "{host}: user {user:?} is refused: {reason}; further failures are not logged"
            );
        } else {
            tracing::debug!(listener, user, reason, "a login failed");
        }
    }

    /// Returns `true` the first time; `false` as well when too many were logged.
    fn is_new(&self, key: String) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        logged.len() < WARNINGS_MAX && logged.insert(key)
    }
}
