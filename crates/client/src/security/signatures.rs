//! The signature algorithms that TLS offers and accepts: `ssl.sigalgs.list`, limited to those of rustls.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, PeerMisbehaved, SignatureScheme};

use super::suites::{Names, parse};

/// OpenSSL's names, and those of TLS 1.3.
const SCHEMES: &[(Names, SignatureScheme)] = &[
    (("ECDSA+SHA256", "ecdsa_secp256r1_sha256"), SignatureScheme::ECDSA_NISTP256_SHA256),
    (("ECDSA+SHA384", "ecdsa_secp384r1_sha384"), SignatureScheme::ECDSA_NISTP384_SHA384),
    (("ed25519", "ed25519"), SignatureScheme::ED25519),
    (("RSA-PSS+SHA256", "rsa_pss_rsae_sha256"), SignatureScheme::RSA_PSS_SHA256),
    (("RSA-PSS+SHA256", "PSS+SHA256"), SignatureScheme::RSA_PSS_SHA256),
    (("RSA-PSS+SHA384", "rsa_pss_rsae_sha384"), SignatureScheme::RSA_PSS_SHA384),
    (("RSA-PSS+SHA384", "PSS+SHA384"), SignatureScheme::RSA_PSS_SHA384),
    (("RSA-PSS+SHA512", "rsa_pss_rsae_sha512"), SignatureScheme::RSA_PSS_SHA512),
    (("RSA-PSS+SHA512", "PSS+SHA512"), SignatureScheme::RSA_PSS_SHA512),
    (("RSA+SHA256", "rsa_pkcs1_sha256"), SignatureScheme::RSA_PKCS1_SHA256),
    (("RSA+SHA384", "rsa_pkcs1_sha384"), SignatureScheme::RSA_PKCS1_SHA384),
    (("RSA+SHA512", "rsa_pkcs1_sha512"), SignatureScheme::RSA_PKCS1_SHA512),
];

/// OpenSSL's other algorithms, which are too weak for rustls or unknown to it. A list may name them beside those of rustls.
const OTHER_SCHEMES: &[&str] = &[
    "ECDSA+SHA1",
    "ecdsa_sha1",
    "ECDSA+SHA224",
    "ECDSA+SHA512",
    "ecdsa_secp521r1_sha512",
    "RSA+SHA1",
    "rsa_pkcs1_sha1",
    "RSA+SHA224",
    "rsa_pss_pss_sha256",
    "rsa_pss_pss_sha384",
    "rsa_pss_pss_sha512",
    "ed448",
    "DSA+SHA1",
    "DSA+SHA224",
    "DSA+SHA256",
    "DSA+SHA384",
    "DSA+SHA512",
];

/// The signature algorithms of a list, in its order.
pub(crate) fn schemes(text: &str) -> Result<Vec<SignatureScheme>, String> {
    parse(text, SCHEMES, OTHER_SCHEMES)
}

/// The verifier, restricted to the list; an empty list has no effect.
pub(super) fn restricted(
    list: &str,
    verifier: Arc<dyn ServerCertVerifier>,
) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let schemes = schemes(list).map_err(|error| format!("ssl.sigalgs.list: {error}"))?;
    if schemes.is_empty() {
        return Ok(verifier);
    }
    Ok(Arc::new(OnlySchemes { verifier, schemes }))
}

/// Offers some signature algorithms, and refuses signatures of others.
#[derive(Debug)]
struct OnlySchemes {
    verifier: Arc<dyn ServerCertVerifier>,
    schemes: Vec<SignatureScheme>,
}

impl OnlySchemes {
    fn check(&self, signature: &DigitallySignedStruct) -> Result<(), rustls::Error> {
        if self.schemes.contains(&signature.scheme) {
            return Ok(());
        }
        Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
    }
}

impl ServerCertVerifier for OnlySchemes {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.check(dss)?;
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.check(dss)?;
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_of_something_that_rustls_has() {
        let provider = rustls::crypto::ring::default_provider();
        let offered = provider.signature_verification_algorithms.supported_schemes();
        assert!(SCHEMES.iter().all(|(_, scheme)| offered.contains(scheme)), "{offered:?}");
        assert!(offered.iter().all(|scheme| SCHEMES.iter().any(|(_, known)| known == scheme)), "{offered:?}");
    }

    #[test]
    fn a_list_has_the_algorithms_of_rustls_in_its_order() {
        let list = "RSA+SHA1:rsa_pss_rsae_sha256:ecdsa_secp521r1_sha512:ECDSA+SHA256:PSS+SHA512:ED25519";
        let expected = [
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::RSA_PSS_SHA512,
            SignatureScheme::ED25519,
        ];
        assert_eq!(schemes(list).expect("four of rustls"), expected);
        let error = schemes("RSA+SHA1").expect_err("rustls has none");
        assert!(
            error.starts_with("`RSA+SHA1` is not among ECDSA+SHA256, ECDSA+SHA384, ed25519, "),
            "{error}"
        );
        assert!(schemes("RSA+SHA256:RSA+MD5").is_err());
    }
}
