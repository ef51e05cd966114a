//! The settings of connections that are not about security.

use std::time::Duration;

use super::versions::BrokerVersion;

/// How connections are made, kept and given up.
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
    /// `socket.nagle.disable`: send at once what is written. On by default: off, the system may hold a small request
    /// back until the answer to the one before it has come, 40 ms at worst.
    pub nodelay: bool,
    /// `broker.address.family`. Of the addresses that a name has, each attempt begins with another one, whatever
    /// `client.dns.lookup` says.
    pub address_family: AddressFamily,
    /// `connections.max.idle.ms`: a connection without requests is closed after this time, a quarter more at most;
    /// `None` (0) keeps it. 9 minutes by default, a minute before brokers would close it.
    pub max_idle: Option<Duration>,
    /// `log.connection.close`: whether a connection that is lost while requests wait on it is worth a warning. One
    /// that was idle never is: without requests on it, or closed by the broker when nothing was sent for
    /// `socket.timeout.ms`.
    pub log_connection_close: bool,
    /// `socket.max.fails`: after so many unanswered requests in a row a connection is closed; 0 never closes it.
    pub max_fails: u32,
    /// `api.version.request`: ask each broker for its versions. On by default.
    pub api_version_request: bool,
    /// `broker.version.fallback`: what a broker that is not asked, or does not answer, is taken for.
    pub version_fallback: BrokerVersion,
    /// `api.version.fallback.ms`: how long a broker that did not answer when it was asked for its versions is taken for
    /// `broker.version.fallback` without being asked again. Zero (the default) asks each time.
    pub version_fallback_for: Duration,
    /// `api.version.request.timeout.ms`.
    pub version_request_timeout: Duration,
    /// `topic.metadata.refresh.sparse`: ask for the topics in use only, not for all there are. On by default.
    pub sparse: bool,
    /// `metadata.recovery.strategy`: `rebootstrap` (the default) or `none`.
    pub rebootstrap: bool,
    /// `metadata.recovery.rebootstrap.trigger.ms`: with no metadata for so long, start from the bootstrap servers again.
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
