//! A callback that accepts or refuses brokers' certificates after their verification.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, OtherError, SignatureScheme};

/// A certificate that a broker presents.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PresentedCertificate<'a> {
    /// The host of the connection, as configured or advertised.
    pub host: &'a str,
    /// The certificate in DER.
    pub der: &'a [u8],
    /// The position in the chain: 0 is the broker's own certificate, 1 its issuer's, and so on.
    pub depth: usize,
    /// The problem that verification found in the chain; set for the broker's own certificate only.
    pub problem: Option<CertificateProblem>,
}

/// A problem of a certificate chain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CertificateProblem {
    /// The certificate has expired.
    Expired,
    /// The certificate is not valid yet.
    NotValidYet,
    /// The certificate names another host.
    OtherHost,
    /// The issuer revoked the certificate.
    Revoked,
    /// No list of `ssl.crl.location` is one of the issuer.
    NoRevocationList,
    /// The issuer's list of `ssl.crl.location` has expired.
    ExpiredRevocationList,
    /// The issuer is not trusted.
    UnknownIssuer,
    /// Another problem.
    Other,
}

/// A function that accepts or refuses certificates of brokers: [`TlsSettings::certificate_verifier`](super::TlsSettings::certificate_verifier).
///
/// The engine's thread calls it for each certificate of a broker's chain, the broker's own last. `Ok` accepts the
/// certificate, even one with a problem; an error, with the reason, ends the connection.
#[derive(Clone)]
pub struct CertificateVerifier(Arc<VerifyCallback>);

type VerifyCallback = dyn Fn(&PresentedCertificate<'_>) -> Result<(), String> + Send + Sync;

impl CertificateVerifier {
    /// Wraps the function.
    pub fn new(
        callback: impl Fn(&PresentedCertificate<'_>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(callback))
    }

    pub(super) fn over(&self, verifier: Arc<dyn ServerCertVerifier>) -> Arc<dyn ServerCertVerifier> {
        Arc::new(CallbackVerifier { verifier, callback: self.clone() })
    }
}

impl fmt::Debug for CertificateVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateVerifier")
    }
}

/// The reason of the callback's refusal.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Rejection(String);

#[derive(Debug)]
struct CallbackVerifier {
    verifier: Arc<dyn ServerCertVerifier>,
    callback: CertificateVerifier,
}

impl ServerCertVerifier for CallbackVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified =
            self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        let host = server_name.to_str();
        let chain = std::iter::once(end_entity).chain(intermediates).enumerate().collect::<Vec<_>>();
        for (depth, der) in chain.into_iter().rev() {
            let problem = verified.as_ref().err().filter(|_| depth == 0).map(problem_of);
            (self.callback.0)(&PresentedCertificate { host: &host, der, depth, problem }).map_err(|why| {
                let rejection = OtherError(Arc::new(Rejection(why)));
                rustls::Error::InvalidCertificate(CertificateError::Other(rejection))
            })?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

fn problem_of(error: &rustls::Error) -> CertificateProblem {
    let rustls::Error::InvalidCertificate(error) = error else { return CertificateProblem::Other };
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => CertificateProblem::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            CertificateProblem::NotValidYet
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            CertificateProblem::OtherHost
        }
        CertificateError::Revoked => CertificateProblem::Revoked,
        CertificateError::UnknownRevocationStatus => CertificateProblem::NoRevocationList,
        CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. } => {
            CertificateProblem::ExpiredRevocationList
        }
        CertificateError::UnknownIssuer => CertificateProblem::UnknownIssuer,
        _ => CertificateProblem::Other,
    }
}
