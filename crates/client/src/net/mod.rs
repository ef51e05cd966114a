//! Connections to brokers: the connector, TLS, SASL and API versions.

pub(crate) mod connection;
pub(crate) mod connector;
mod link;
pub(crate) mod sasl;
pub(crate) mod tls;
pub(crate) mod versions;

use std::fmt;
use std::sync::Arc;

use self::connector::Connector;
pub(crate) use self::link::ResponseMemory;
use self::sasl::Authenticator;
use self::tls::Tls;
use crate::config::Config;
use crate::error::Error;
use crate::security::tls::TlsFiles;
use crate::stats::Observer;

/// The client's way to connect: the connector, with TLS and SASL if configured.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) authenticator: Option<Arc<Authenticator>>,
    pub(crate) observer: Arc<Observer>,
}

impl Network {
    /// Reads the files that the security settings name, so that errors are reported at once.
    pub(crate) fn new(
        config: &Config,
        connector: Arc<dyn Connector>,
        observer: Arc<Observer>,
    ) -> Result<Self, Error> {
        let security = &config.security;
        security.validate()?;
        if config.is_native() && security.protocol.is_tls() {
            security.tls.require_key()?;
        }
        let authenticator = Authenticator::of(config, &connector)?;
        let connector = match TlsFiles::of(security, &config.clock)? {
            Some(files) => Arc::new(Tls::over(connector, Arc::new(files))),
            None => connector,
        };
        Ok(Self { connector, authenticator, observer })
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network")
    }
}
