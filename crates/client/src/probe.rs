//! The security handshakes of one connection, step by step, for diagnostic programs such as `ottla doctor`.
//!
//! The calls block and make one attempt. A client uses the same code on its connections, with retries.

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
use crate::error::TlsFailure;
use crate::net::connector::{Connector, TcpConnector};
pub use crate::net::sasl::SaslChannel;
use crate::net::sasl::{Authenticator, authenticate};
use crate::net::tls::explained;
use crate::security::Mechanism;
use crate::security::tls::{TlsFiles, client_config};
use crate::security::trusted_leaf::is_authority_used_as_server;

/// The security properties, parsed and ready for a connection attempt.
#[derive(Debug)]
pub struct SecurityProbe {
    tls: Option<TlsFiles>,
    authenticator: Option<Arc<Authenticator>>,
    mechanism: Option<Mechanism>,
}

/// The result of a TLS handshake.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Handshake {
    /// `TLSv1_3` and so on.
    pub version: String,
    /// The cipher suite, by its IANA name.
    pub cipher: String,
    /// The peer's certificate; `None` if it could not be parsed.
    pub certificate: Option<Certificate>,
}

/// The main fields of a certificate.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Certificate {
    /// The subject.
    pub subject: String,
    /// The issuer.
    pub issuer: String,
    /// The host names that it is valid for.
    pub names: Vec<String>,
    /// The start of the validity, in RFC 3339 format.
    pub not_before: String,
    /// The end of the validity.
    pub not_after: String,
    /// The start of the validity, in milliseconds since 1970.
    pub not_before_ms: i64,
    /// The end of the validity, in milliseconds since 1970.
    pub not_after_ms: i64,
}

/// A failed TLS handshake.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HandshakeError {
    /// The kind of problem.
    pub problem: HandshakeProblem,
    /// The TLS library's message.
    pub reason: String,
    /// The peer's certificate, if the peer sent one.
    pub certificate: Option<Box<Certificate>>,
}

/// A problem with TLS.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum HandshakeProblem {
    /// No trusted authority signed the certificate.
    UnknownAuthority,
    /// The certificate is for a different host.
    OtherHost,
    /// The certificate has expired.
    Expired,
    /// The certificate is not yet valid.
    NotYetValid,
    /// The certificate is an authority's, and not itself configured in `ssl.ca.location`.
    AuthorityAsBroker,
    /// The certificate is not for TLS servers: its extended key usage excludes them.
    OtherPurpose,
    /// The certificate is revoked.
    Revoked,
    /// The lists of revoked certificates do not cover the certificate, or are out of date.
    RevocationUnknown,
    /// The certificate cannot be used: it is malformed, or has an old version or signature algorithm.
    UnusableCertificate,
    /// The peer does not support TLS, or closes the connection at the handshake.
    NoTls,
    /// The peer requires a client certificate, or refused the one that it got.
    ClientCertificate,
    /// The peer did not respond in time.
    Silent,
    /// Another problem.
    Other,
}

impl HandshakeError {
    /// Classifies a TLS error after the handshake: in TLS 1.3, the peer verifies the client's certificate at that
    /// point.
    pub fn from_read(error: &io::Error) -> Self {
        Self { problem: HandshakeProblem::ClientCertificate, reason: error.to_string(), certificate: None }
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl SecurityProbe {
    /// Reads the files that the properties name.
    ///
    /// # Errors
    /// [`Error::Config`] for unreadable files and for contradictions.
    pub fn new(config: &Config) -> Result<Self, Error> {
        config.security.validate()?;
        let connector: Arc<dyn Connector> = Arc::new(TcpConnector::new(config));
        let authenticator = Authenticator::of(config, &connector)?;
        let mechanism = authenticator.as_deref().map(Authenticator::mechanism);
        Ok(Self { tls: TlsFiles::of(&config.security, &config.clock)?, authenticator, mechanism })
    }

    /// Returns `true` if connections start with a TLS handshake.
    pub fn uses_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The SASL mechanism; `None` without SASL.
    pub fn mechanism(&self) -> Option<Mechanism> {
        self.mechanism
    }

    /// Performs the TLS handshake over `stream`, as a client of the host `host`.
    pub fn handshake<S: Read + Write>(
        &self,
        host: &str,
        mut stream: S,
    ) -> Result<(TlsStream<S>, Handshake), HandshakeError> {
        let refused = |problem, reason: String| HandshakeError { problem, reason, certificate: None };
        let Some(files) = &self.tls else {
            return Err(refused(HandshakeProblem::Other, "security.protocol is not about TLS".into()));
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            refused(HandshakeProblem::OtherHost, format!("`{host}` is no name that a certificate can carry"))
        })?;
        let shown = Arc::new(SeenCertificate::default());
        let watch = |below| -> Arc<dyn ServerCertVerifier> {
            Arc::new(RecordingVerifier { below, shown: shown.clone() })
        };
        let config = client_config(files.settings(), files.clock(), watch)
            .map_err(|error| refused(HandshakeProblem::Other, error.to_string()))?;
        let mut connection = ClientConnection::new(Arc::new(config), name)
            .map_err(|error| refused(HandshakeProblem::Other, error.to_string()))?;
        let has_certificate = files.settings().has_certificate();
        while connection.is_handshaking() {
            if let Err(error) = connection.complete_io(&mut stream) {
                let problem = problem(&error);
                let reason = explained(error, has_certificate, "during the TLS handshake").to_string();
                return Err(HandshakeError {
                    problem,
                    reason,
                    certificate: shown.certificate().map(Box::new),
                });
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

    /// Authenticates over `line`, after ApiVersions. Returns the session lifetime if the broker limits it.
    ///
    /// # Errors
    /// [`Error::Authentication`] if the broker refuses, or if credentials are missing; and the errors of `line`.
    pub async fn authenticate<L: SaslChannel>(&self, line: &L) -> Result<Option<Duration>, Error> {
        match &self.authenticator {
            Some(authenticator) => authenticate(line, authenticator).await,
            None => Ok(None),
        }
    }
}

/// A TLS stream. Its TLS errors have an explanation as their text.
pub struct TlsStream<S: Read + Write> {
    stream: StreamOwned<ClientConnection, S>,
    has_certificate: bool,
}

impl<S: Read + Write> TlsStream<S> {
    /// The underlying stream.
    pub fn get_ref(&self) -> &S {
        &self.stream.sock
    }

    fn said(&self, error: io::Error) -> io::Error {
        match error.kind() {
            // The caller decides whether a closed connection is an error.
            io::ErrorKind::UnexpectedEof => error,
            _ => explained(error, self.has_certificate, "closed by the peer"),
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

/// Returns `true` if an error of a [`TlsStream`] comes from TLS and not from the network.
pub fn is_tls(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<TlsFailure>)
}

fn problem(error: &io::Error) -> HandshakeProblem {
    let Some(own) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => HandshakeProblem::NoTls,
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => HandshakeProblem::Silent,
            _ => HandshakeProblem::Other,
        };
    };
    match own {
        rustls::Error::InvalidCertificate(wrong) => certificate_problem(wrong),
        rustls::Error::InvalidMessage(_) => HandshakeProblem::NoTls,
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA,
        ) => HandshakeProblem::ClientCertificate,
        _ => HandshakeProblem::Other,
    }
}

fn certificate_problem(wrong: &CertificateError) -> HandshakeProblem {
    match wrong {
        CertificateError::UnknownIssuer => HandshakeProblem::UnknownAuthority,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            HandshakeProblem::OtherHost
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => HandshakeProblem::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            HandshakeProblem::NotYetValid
        }
        CertificateError::Revoked => HandshakeProblem::Revoked,
        CertificateError::UnknownRevocationStatus
        | CertificateError::ExpiredRevocationList
        | CertificateError::ExpiredRevocationListContext { .. } => HandshakeProblem::RevocationUnknown,
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            HandshakeProblem::OtherPurpose
        }
        wrong if is_authority_used_as_server(wrong) => HandshakeProblem::AuthorityAsBroker,
        _ => HandshakeProblem::UnusableCertificate,
    }
}

/// The certificate that the peer sent, accepted or not.
#[derive(Debug, Default)]
struct SeenCertificate(Mutex<Option<Vec<u8>>>);

impl SeenCertificate {
    fn certificate(&self) -> Option<Certificate> {
        let der = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Certificate::read(der.as_deref()?)
    }
}

/// Verifies with another verifier and records the certificate.
#[derive(Debug)]
struct RecordingVerifier {
    below: Arc<dyn ServerCertVerifier>,
    shown: Arc<SeenCertificate>,
}

impl ServerCertVerifier for RecordingVerifier {
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
            not_before_ms: validity.not_before.to_unix_duration().as_millis() as i64,
            not_after_ms: validity.not_after.to_unix_duration().as_millis() as i64,
        })
    }
}

/// The host name in a certificate's entry, if the entry has one.
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
