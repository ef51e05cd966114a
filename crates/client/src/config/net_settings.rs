//! Connection settings other than security.

use std::time::Duration;

use crate::types::broker_version::BrokerVersion;

/// Settings for opening, keeping and closing connections.
///
/// ```
/// use std::time::Duration;
/// use ottla_client::{AddressFamily, Config};
///
/// let mut config = Config::new("broker.example:9092");
/// config.net.address_family = AddressFamily::V6;
/// config.net.max_idle = Some(Duration::from_secs(60));
/// ```
#[derive(Clone, Debug)]
pub struct NetSettings {
    /// `socket.keepalive.enable`: let the system probe idle connections. Off by default.
    pub keepalive: bool,
    /// `socket.nagle.disable`: send written bytes at once, enabled by default. If off, the system may delay a small
    /// request until the previous response has arrived, by up to 40 ms.
    pub nodelay: bool,
    /// `broker.address.family`. Each attempt starts with a different address of the name, independently of
    /// `client.dns.lookup`.
    pub address_family: AddressFamily,
    /// `connections.max.idle.ms`: a connection without requests is closed after this time, or up to a quarter later;
    /// `None` (0) keeps it. 9 minutes by default, a minute less than the brokers' limit.
    pub max_idle: Option<Duration>,
    /// `log.connection.close`: whether the loss of a connection with pending requests is logged as a warning. The
    /// loss of an idle connection never is: one without requests, or one that the broker closes when nothing was sent
    /// for `socket.timeout.ms`.
    pub log_connection_close: bool,
    /// `socket.max.fails`: the number of consecutive requests without a response after which a connection is closed;
    /// 0 never closes it.
    pub max_fails: u32,
    /// `api.version.request`: request the API versions of each broker. On by default.
    pub api_version_request: bool,
    /// `broker.version.fallback`: the assumed version of a broker that is not asked or does not respond.
    pub version_fallback: BrokerVersion,
    /// `api.version.fallback.ms`: the time for which a broker that did not respond to ApiVersions is assumed to have
    /// `broker.version.fallback`. Zero (the default) sends ApiVersions on each connection.
    pub version_fallback_for: Duration,
    /// `api.version.request.timeout.ms`.
    pub version_request_timeout: Duration,
    /// `topic.metadata.refresh.sparse`: request the metadata of topics in use only. On by default.
    pub sparse: bool,
    /// `metadata.recovery.strategy`: `rebootstrap` (the default) or `none`.
    pub rebootstrap: bool,
    /// `metadata.recovery.rebootstrap.trigger.ms`: the time without metadata after which the client returns to the
    /// bootstrap servers.
    pub rebootstrap_after: Duration,
}

impl Default for NetSettings {
    fn default() -> Self {
        Self {
            keepalive: false,
            nodelay: true,
            address_family: AddressFamily::Any,
            max_idle: Some(Duration::from_secs(540)),
            log_connection_close: true,
            max_fails: 1,
            api_version_request: true,
            version_fallback: BrokerVersion::V0_11,
            version_fallback_for: Duration::ZERO,
            version_request_timeout: Duration::from_secs(10),
            sparse: true,
            rebootstrap: true,
            rebootstrap_after: Duration::from_secs(300),
        }
    }
}

/// The values of `broker.address.family`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AddressFamily {
    /// `any`.
    #[default]
    Any,
    /// `v4`.
    V4,
    /// `v6`.
    V6,
}
