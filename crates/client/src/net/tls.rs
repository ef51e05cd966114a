//! TLS over the connections of another connector.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::connector::{Connecting, Connector, Io};
use crate::error::TlsFailure;
use crate::security::tls::{TlsFiles, explain};

/// Connects through another connector and performs the TLS handshake.
pub(crate) struct Tls {
    below: Arc<dyn Connector>,
    files: Arc<TlsFiles>,
}

impl Tls {
    pub(crate) fn over(below: Arc<dyn Connector>, files: Arc<TlsFiles>) -> Self {
        Self { below, files }
    }
}

impl Connector for Tls {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a> {
        Box::pin(async move {
            let name = ServerName::try_from(host.to_owned())
                .map_err(|_| failure(format!("`{host}` is no name that a certificate can carry")))?;
            let io = self.below.connect(host, port).await?;
            let connector = TlsConnector::from(self.files.current());
            let has_certificate = self.files.settings().has_certificate();
            match connector.connect(name, io).await {
                Ok(stream) => Ok(Box::new(stream) as Box<dyn Io>),
                Err(error) => Err(explained(error, has_certificate, AT_HANDSHAKE)),
            }
        })
    }
}

/// The explanation of an end in the handshake.
const AT_HANDSHAKE: &str =
    "closed by the peer during the TLS handshake: is this a plaintext listener? (security.protocol)";

/// Explains a TLS error of a stream, and its end with `at_end`; other errors are unchanged.
pub(crate) fn explained(error: io::Error, has_certificate: bool, at_end: &str) -> io::Error {
    let own = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match own {
        Some(own) => failure(explain(own, has_certificate)),
        None if error.kind() == io::ErrorKind::UnexpectedEof => failure(at_end.to_owned()),
        None => error,
    }
}

fn failure(text: String) -> io::Error {
    io::Error::other(TlsFailure(text))
}
