//! Certificates that the application judges, after they were verified.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, OtherError, SignatureScheme};

/// One certificate that a broker presents.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Presented<'a> {
    /// Where it was connected to, as configured or advertised.
    pub host: &'a str,
    /// The certificate itself.
    pub der: &'a [u8],
    /// 0 is the broker's own, 1 that of whoever signed it, and so on.
    pub depth: usize,
    /// What verifying found wrong with the chain; it is told with the broker's own certificate.
    pub problem: Option<CertificateProblem>,
}

/// What is wrong with a chain of certificates.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CertificateProblem {
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotValidYet,
    /// It is for another host.
    OtherHost,
    /// Whoever signed it took it back.
    Revoked,
    /// Nobody who is trusted signed it.
    UnknownIssuer,
    /// Something else.
    Other,
}

/// A function that has the last word on certificates of brokers: [`TlsSettings::judge`](super::TlsSettings::judge).
///
/// It is called for each certificate of a broker's chain, the broker's own last, in the engine's thread. `Ok` takes it, even one
/// that was found wrong; an error, which says why, ends the connection.
#[derive(Clone)]
pub struct CertificateJudge(Arc<Judge>);

type Judge = dyn Fn(&Presented<'_>) -> Result<(), String> + Send + Sync;

impl CertificateJudge {
    /// Wraps the function.
    pub fn new(judge: impl Fn(&Presented<'_>) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(judge))
    }

    pub(super) fn over(&self, verifier: Arc<dyn ServerCertVerifier>) -> Arc<dyn ServerCertVerifier> {
        Arc::new(Judged { verifier, judge: self.clone() })
    }
}

impl fmt::Debug for CertificateJudge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateJudge")
    }
}

/// What the judge said.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Verdict(String);

#[derive(Debug)]
struct Judged {
    verifier: Arc<dyn ServerCertVerifier>,
    judge: CertificateJudge,
}

impl ServerCertVerifier for Judged {
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
            (self.judge.0)(&Presented { host: &host, der, depth, problem }).map_err(|why| {
                let verdict = OtherError(Arc::new(Verdict(why)));
                rustls::Error::InvalidCertificate(CertificateError::Other(verdict))
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
        CertificateError::UnknownIssuer => CertificateProblem::UnknownIssuer,
        _ => CertificateProblem::Other,
    }
}
