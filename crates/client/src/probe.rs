//! The security of one connection, step by step: for programs that look for what is wrong with it, such as
//! `ottla doctor`.
//!
//! It blocks, and it tries once. A client does the same on its own connections, and tries again.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned,
};
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::config::Config;
use crate::error::Error;
use crate::net::connector::{Connector, TcpConnector};
pub use crate::net::sasl::Line;
use crate::net::sasl::{Authenticator, authenticate};
use crate::net::tls::{TlsFailure, explained};
use crate::security::Mechanism;
use crate::security::tls::{TlsFiles, client_config};

/// What the properties say about security, read and ready to be tried.
#[derive(Debug)]
pub struct Probe {
    tls: Option<TlsFiles>,
    authenticator: Option<Arc<Authenticator>>,
    mechanism: Option<Mechanism>,
}

/// What the two sides agreed on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Handshake {
    /// `TLSv1_3` and so on.
    pub version: String,
    /// The cipher suite, by its IANA name.
    pub cipher: String,
    /// What the peer showed; `None` if it could not be read.
    pub certificate: Option<Certificate>,
}

/// A certificate, as far as people ask for it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Certificate {
    /// Whose it is.
    pub subject: String,
    /// Who signed it.
    pub issuer: String,
    /// The hosts it is for.
    pub names: Vec<String>,
    /// From when on it is valid, as RFC 3339 writes it.
    pub not_before: String,
    /// Until when.
    pub not_after: String,
    /// The same in milliseconds since 1970.
    pub not_after_ms: i64,
}

/// Why there is no TLS with the peer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Refused {
    /// What kind of thing is wrong.
    pub problem: Problem,
    /// The client's own words.
    pub reason: String,
    /// What the peer showed, if it came to that.
    pub certificate: Option<Box<Certificate>>,
}

/// What can be wrong with TLS.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Problem {
    /// Nobody whom we trust signed the certificate.
    UnknownAuthority,
    /// The certificate is for other hosts.
    OtherHost,
    /// The certificate's time is over.
    Expired,
    /// The certificate's time has not come.
    NotYetValid,
    /// The peer does not speak TLS, or hangs up when it is spoken to so.
    NoTls,
    /// The peer wants a certificate of ours, or does not take the one it got.
    ClientCertificate,
    /// Nothing came in time.
    Silent,
    /// Something else.
    Other,
}

impl Refused {
    /// What an error of TLS says that came after the handshake: in TLS 1.3 the peer judges our certificate then.
    pub fn later(error: &io::Error) -> Self {
        Self { problem: Problem::ClientCertificate, reason: error.to_string(), certificate: None }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl Probe {
    /// Reads the files that the properties name.
    ///
    /// # Errors
    /// [`Error::Config`] for what cannot be read, and for contradictions.
    pub fn new(config: &Config) -> Result<Self, Error> {
        config.security.validate()?;
        let connector: Arc<dyn Connector> = Arc::new(TcpConnector::new(config));
        let authenticator = Authenticator::of(config, &connector)?;
        let mechanism = config.security.sasl.mechanism.filter(|_| authenticator.is_some());
        Ok(Self { tls: TlsFiles::of(config)?, authenticator, mechanism })
    }

    /// Whether connections begin with a TLS handshake.
    pub fn uses_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// How we prove who we are; `None` where we need not.
    pub fn mechanism(&self) -> Option<Mechanism> {
        self.mechanism
    }

    /// Makes the TLS handshake over `stream`, as a client of the host `host`.
    pub fn handshake<S: Read + Write>(
        &self,
        host: &str,
        mut stream: S,
    ) -> Result<(TlsStream<S>, Handshake), Refused> {
        let refused = |problem, reason: String| Refused { problem, reason, certificate: None };
        let Some(files) = &self.tls else {
            return Err(refused(Problem::Other, "security.protocol is not about TLS".into()));
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            refused(Problem::OtherHost, format!("`{host}` is no name that a certificate can carry"))
        })?;
        let shown = Arc::new(Shown::default());
        let watch =
            |below| -> Arc<dyn ServerCertVerifier> { Arc::new(Watching { below, shown: shown.clone() }) };
        let config = client_config(files.settings(), files.clock(), watch)
            .map_err(|error| refused(Problem::Other, error.to_string()))?;
        let mut connection = ClientConnection::new(Arc::new(config), name)
            .map_err(|error| refused(Problem::Other, error.to_string()))?;
        let has_certificate = files.settings().has_certificate();
        while connection.is_handshaking() {
            if let Err(error) = connection.complete_io(&mut stream) {
                let problem = problem(&error);
                let reason = explained(error, has_certificate, "during the TLS handshake").to_string();
                return Err(Refused { problem, reason, certificate: shown.certificate().map(Box::new) });
            }
        }
        let handshake = Handshake {
            version: connection
                .protocol_version()
                .and_then(|version| version.as_str())
                .unwrap_or("TLS")
                .into(),
            cipher: (connection.negotiated_cipher_suite())
                .and_then(|suite| suite.suite().as_str())
                .unwrap_or("a cipher suite without a name")
                .into(),
            certificate: shown.certificate(),
        };
        Ok((TlsStream { stream: StreamOwned::new(connection, stream), has_certificate }, handshake))
    }

    /// Proves who we are over `line`, which has been greeted. Gives for how long the broker takes it.
    ///
    /// # Errors
    /// [`Error::Authentication`] when the broker refuses, or there is nothing to prove it with; the line's own.
    pub async fn authenticate<L: Line>(&self, line: &L) -> Result<Option<Duration>, Error> {
        match &self.authenticator {
            Some(authenticator) => authenticate(line, authenticator).await,
            None => Ok(None),
        }
    }
}

/// A stream through TLS. Errors of TLS are said in the client's words.
pub struct TlsStream<S: Read + Write> {
    stream: StreamOwned<ClientConnection, S>,
    has_certificate: bool,
}

impl<S: Read + Write> TlsStream<S> {
    /// What lies below.
    pub fn get_ref(&self) -> &S {
        &self.stream.sock
    }

    fn said(&self, error: io::Error) -> io::Error {
        match error.kind() {
            // The peer's going away is the caller's to judge.
            io::ErrorKind::UnexpectedEof => error,
            _ => explained(error, self.has_certificate, "without saying goodbye"),
        }
    }
}

impl<S: Read + Write> fmt::Debug for TlsStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsStream")
    }
}

impl<S: Read + Write> Read for TlsStream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer).map_err(|error| self.said(error))
    }
}

impl<S: Read + Write> Write for TlsStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes).map_err(|error| self.said(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush().map_err(|error| self.said(error))
    }
}

/// Whether an error of a [`TlsStream`] is TLS's own, and not the network's.
pub fn is_tls(error: &io::Error) -> bool {
    matches!(error.get_ref(), Some(inner) if inner.is::<TlsFailure>())
}

fn problem(error: &io::Error) -> Problem {
    let Some(own) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Problem::NoTls,
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Problem::Silent,
            _ => Problem::Other,
        };
    };
    match own {
        rustls::Error::InvalidCertificate(wrong) => match wrong {
            CertificateError::UnknownIssuer => Problem::UnknownAuthority,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Problem::OtherHost
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Problem::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Problem::NotYetValid
            }
            _ => Problem::Other,
        },
        rustls::Error::InvalidMessage(_) => Problem::NoTls,
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA,
        ) => Problem::ClientCertificate,
        _ => Problem::Other,
    }
}

/// The certificate that was shown, whether or not it was taken.
#[derive(Debug, Default)]
struct Shown(Mutex<Option<Vec<u8>>>);

impl Shown {
    fn certificate(&self) -> Option<Certificate> {
        let der = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Certificate::read(der.as_deref()?)
    }
}

/// Judges as another verifier does, and remembers what was judged.
#[derive(Debug)]
struct Watching {
    below: Arc<dyn ServerCertVerifier>,
    shown: Arc<Shown>,
}

impl ServerCertVerifier for Watching {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.shown.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(end_entity.to_vec());
        self.below.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.below.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.below.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.below.supported_verify_schemes()
    }
}

impl Certificate {
    fn read(der: &[u8]) -> Option<Self> {
        let certificate = x509_cert::Certificate::from_der(der).ok()?;
        let said = certificate.tbs_certificate();
        let names = said.get_extension::<SubjectAltName>().ok().flatten();
        let names = names.iter().flat_map(|(_, names)| &names.0).filter_map(host).collect();
        let validity = said.validity();
        Some(Self {
            subject: said.subject().to_string(),
            issuer: said.issuer().to_string(),
            names,
            not_before: validity.not_before.to_date_time().to_string(),
            not_after: validity.not_after.to_date_time().to_string(),
            not_after_ms: validity.not_after.to_unix_duration().as_millis() as i64,
        })
    }
}

/// A host that a certificate names; it may name other things.
fn host(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(name.to_string()),
        GeneralName::IpAddress(bytes) => match *bytes.as_bytes() {
            [a, b, c, d] => Some(IpAddr::from([a, b, c, d]).to_string()),
            ref long => <[u8; 16]>::try_from(long).ok().map(|bytes| IpAddr::from(bytes).to_string()),
        },
        _ => None,
    }
}
