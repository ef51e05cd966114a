//! Connections to brokers: the seam, and what is spoken before the first request.

pub(crate) mod connection;
pub(crate) mod connector;
mod link;
pub(crate) mod sasl;
pub(crate) mod settings;
pub(crate) mod tls;
pub(crate) mod versions;

use std::fmt;
use std::sync::Arc;

use self::connector::Connector;
pub(crate) use self::link::Room;
use self::sasl::Authenticator;
use self::tls::Tls;
use crate::config::Config;
use crate::error::Error;
use crate::security::tls::TlsFiles;
use crate::stats::Observer;

/// How this client connects: with TLS on top of the connector and a proof of who it is, if the settings say so.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) authenticator: Option<Arc<Authenticator>>,
    pub(crate) observer: Arc<Observer>,
}

impl Network {
    /// Reads what the security settings name, so that a mistake in them shows at once.
    pub(crate) fn new(
        config: &Config,
        connector: Arc<dyn Connector>,
        observer: Arc<Observer>,
    ) -> Result<Self, Error> {
        let security = &config.security;
        security.validate()?;
        let authenticator = if security.protocol.is_sasl() {
            Some(Arc::new(Authenticator::new(config, connector.clone())?))
        } else {
            None
        };
        let connector = if security.protocol.is_tls() {
            let files = TlsFiles::load(security.tls.clone(), config.clock.clone())?;
            Arc::new(Tls::over(connector, Arc::new(files)))
        } else {
            connector
        };
        Ok(Self { connector, authenticator, observer })
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network")
    }
}
