//! A listener as the connections of a running broker see it.

use std::sync::{Arc, LazyLock};

use rustls::ServerConnection;

use super::Principal;
use super::listener_tls::ListenerTls;
use super::sasl::SaslServer;
use crate::config::Listener;
use crate::places::Places;

/// The name of a listener without settings.
pub(crate) const PLAINTEXT: &str = "PLAINTEXT";

/// A listener of all nodes.
#[derive(Debug)]
pub(crate) struct ActiveListener {
    /// The position among the listeners of a node, which has an address for each.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) tls: Option<ListenerTls>,
    pub(crate) sasl: Option<SaslServer>,
    /// The connections that have not authenticated yet.
    pub(crate) unauthenticated: Places,
}

impl ActiveListener {
    /// Reads the files of a listener.
    ///
    /// # Errors
    /// A sentence that names the setting.
    pub(crate) fn open(index: usize, settings: &Listener) -> Result<Self, String> {
        Ok(Self {
            index,
            name: settings.name.clone(),
            tls: settings.tls.clone().map(ListenerTls::load).transpose()?,
            sasl: settings.sasl.clone().map(SaslServer::new).transpose()?,
            unauthenticated: Places::unauthenticated(),
        })
    }

    /// The identity of a client's certificate. With SASL, the login names the client, and no rule has to match the certificate.
    ///
    /// # Errors
    /// Those of [`ListenerTls::principal_of`].
    pub(crate) fn principal_of(&self, connection: &ServerConnection) -> Result<Option<Principal>, String> {
        match &self.tls {
            Some(tls) if self.sasl.is_none() => tls.principal_of(connection),
            _ => Ok(None),
        }
    }

    /// The first listener of a node, without encryption and authentication.
    pub(crate) fn plaintext() -> Arc<Self> {
        static PLAIN: LazyLock<Arc<ActiveListener>> = LazyLock::new(|| {
            Arc::new(ActiveListener {
                index: 0,
                name: PLAINTEXT.to_owned(),
                tls: None,
                sasl: None,
                unauthenticated: Places::unauthenticated(),
            })
        });
        PLAIN.clone()
    }
}
