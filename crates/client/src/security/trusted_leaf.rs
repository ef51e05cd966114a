//! Accepts a broker whose own certificate is a configured trust anchor: a self-signed certificate with `CA:TRUE`, as
//! `openssl req -x509` makes it.
//!
//! webpki refuses an authority's certificate as that of a server (RFC 5280 allows it); OpenSSL, and so librdkafka, accept
//! a certificate that the configuration trusts byte for byte.

use std::sync::Arc;

use rustls::CertificateError;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, SignatureScheme};

/// The verification of webpki, and the exception.
#[derive(Debug)]
pub(super) struct TrustedLeaf {
    pub(super) strict: Arc<WebPkiServerVerifier>,
    /// Refuses chains with a revoked issuer, as far as there are lists for issuers; `None` without lists.
    pub(super) issuers: Option<Arc<WebPkiServerVerifier>>,
    /// The certificates of `ssl.ca.location` or `ssl.ca.pem`; none if the system's are trusted.
    pub(super) configured: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for TrustedLeaf {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verify = |verifier: &WebPkiServerVerifier| {
            verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        };
        // Before the name, which may not matter.
        if let Some(issuers) = &self.issuers
            && let Err(revoked @ rustls::Error::InvalidCertificate(CertificateError::Revoked)) =
                verify(issuers)
        {
            return Err(revoked);
        }
        let verified = verify(&self.strict);
        match verified {
            // webpki looks at the period of validity before it looks at this, and at the name after it.
            Err(error) if is_authority(&error) && self.configured.iter().any(|it| it == end_entity) => {
                let certificate = ParsedCertificate::try_from(end_entity)?;
                rustls::client::verify_server_name(&certificate, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.strict.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.strict.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.strict.supported_verify_schemes()
    }
}

/// Returns `true` if webpki refuses the certificate only because it is an authority's.
fn is_authority(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidCertificate(problem) if is_authority_used_as_server(problem))
}

pub(crate) fn is_authority_used_as_server(problem: &CertificateError) -> bool {
    let CertificateError::Other(other) = problem else { return false };
    matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
    use rustls::RootCertStore;

    use super::*;

    /// 15 January 2027.
    const NOW: Duration = Duration::from_secs(1_800_000_000);

    /// A self-signed certificate for `broker.example` with `CA:TRUE`, valid in these years.
    fn self_signed(years: std::ops::Range<i32>) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["broker.example".to_owned()]).expect("a name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = date_time_ymd(years.start, 1, 1);
        params.not_after = date_time_ymd(years.end, 1, 1);
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("signed").der().clone()
    }

    fn verify(
        configured: &CertificateDer<'static>,
        presented: &CertificateDer<'_>,
        host: &str,
    ) -> Result<(), rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(configured.clone()).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let strict = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let verifier = TrustedLeaf {
            strict: strict.expect("a verifier"),
            issuers: None,
            configured: vec![configured.clone()],
        };
        let host = ServerName::try_from(host.to_owned()).expect("a name");
        let verified =
            verifier.verify_server_cert(presented, &[], &host, &[], UnixTime::since_unix_epoch(NOW));
        verified.map(drop)
    }

    #[test]
    fn a_self_signed_authority_is_accepted_as_the_broker_if_it_is_configured() {
        let own = self_signed(2026..2028);
        verify(&own, &own, "broker.example").expect("librdkafka accepts it");
    }

    #[test]
    fn the_exception_holds_for_no_other_certificate_name_or_time() {
        let (own, other) = (self_signed(2026..2028), self_signed(2026..2028));
        let error = verify(&own, &other, "broker.example").expect_err("another certificate");
        assert!(is_authority(&error), "{error:?}");
        let error = verify(&own, &own, "other.example").expect_err("another name");
        assert!(matches!(
            error,
            rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })
        ));
        for (years, expected) in [(2025..2026, "expired"), (2028..2029, "not valid yet")] {
            let own = self_signed(years);
            let error = verify(&own, &own, "broker.example").expect_err("out of its period").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
