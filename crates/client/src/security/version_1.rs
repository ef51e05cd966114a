//! Certificates of X.509 version 1, as `openssl x509 -req` makes them without extensions. webpki reads version 3 only; OpenSSL, and so
//! librdkafka, takes them.
//!
//! Such a certificate has no list of names, so a broker may have one only where names are not compared.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, InconsistentKeys, PeerMisbehaved, SignatureScheme,
};
use webpki::RawPublicKeyEntity;
use x509_cert::der::asn1::AnyRef;
use x509_cert::der::{self, Decode, Encode, Reader, SliceReader};
use x509_cert::ext::pkix::{BasicConstraints, KeyUsage};
use x509_cert::{Certificate, Version};

/// Accepts a broker's certificate of version 1 that an authority of the configuration has signed itself. The others are the inner
/// verifier's.
#[derive(Debug)]
pub(super) struct Version1 {
    pub(super) verifier: Arc<dyn ServerCertVerifier>,
    /// The authorities; `None` if only the inner verifier decides, and the signatures of handshakes are verified.
    pub(super) authorities: Option<Vec<CertificateDer<'static>>>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl Version1 {
    fn verify(&self, end_entity: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
        let authorities = self.authorities.as_ref().ok_or(CertificateError::BadEncoding)?;
        let leaf = parsed(end_entity)?;
        check_period(&leaf, now)?;
        let is_trusted = authorities
            .iter()
            .any(|authority| authority == end_entity || self.has_signed(authority, &leaf, end_entity, now));
        if is_trusted { Ok(()) } else { Err(CertificateError::UnknownIssuer.into()) }
    }

    fn has_signed(
        &self,
        authority: &CertificateDer<'_>,
        leaf: &Certificate,
        end_entity: &CertificateDer<'_>,
        now: UnixTime,
    ) -> bool {
        let Ok(authority) = Certificate::from_der(authority) else { return false };
        let is_issuer = authority.tbs_certificate().subject() == leaf.tbs_certificate().issuer()
            && leaf.tbs_certificate().signature() == leaf.signature_algorithm()
            && may_sign(&authority)
            && check_period(&authority, now).is_ok();
        let (true, Ok((signed, algorithm)), Ok(key)) =
            (is_issuer, signed_part(end_entity), public_key(&authority))
        else {
            return false;
        };
        let Ok(key) = RawPublicKeyEntity::try_from(&key) else { return false };
        let signature = leaf.signature().raw_bytes();
        let mut candidates =
            self.algorithms.all.iter().filter(|known| known.signature_alg_id()[..] == *algorithm);
        candidates.any(|known| key.verify_signature(*known, signed, signature).is_ok())
    }

    /// The signature of TLS 1.2, whose scheme leaves the curve open.
    fn verify_tls12(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = public_key(&parsed(cert)?).map_err(|_| CertificateError::BadEncoding)?;
        let key = RawPublicKeyEntity::try_from(&key).map_err(|_| CertificateError::BadEncoding)?;
        let (_, candidates) = self
            .algorithms
            .mapping
            .iter()
            .find(|(scheme, _)| *scheme == dss.scheme)
            .ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        if candidates.iter().any(|known| key.verify_signature(*known, message, dss.signature()).is_ok()) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        Err(CertificateError::BadSignature.into())
    }
}

impl ServerCertVerifier for Version1 {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(error) if self.authorities.is_some() && is_of_version_1(&error, end_entity) => {
                self.verify(end_entity, now).map(|()| ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match self.verifier.verify_tls12_signature(message, cert, dss) {
            Err(error) if is_of_version_1(&error, cert) => self.verify_tls12(message, cert, dss),
            verified => verified,
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match self.verifier.verify_tls13_signature(message, cert, dss) {
            Err(error) if is_of_version_1(&error, cert) => {
                let key = public_key(&parsed(cert)?).map_err(|_| CertificateError::BadEncoding)?;
                verify_tls13_signature_with_raw_key(message, &key, dss, &self.algorithms)
            }
            verified => verified,
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Returns `true` if webpki refuses a certificate because it is not of version 3.
pub(super) fn is_other_version(problem: &CertificateError) -> bool {
    let CertificateError::Other(other) = problem else { return false };
    matches!(other.0.downcast_ref(), Some(webpki::Error::UnsupportedCertVersion))
}

fn is_of_version_1(error: &Error, certificate: &CertificateDer<'_>) -> bool {
    matches!(error, Error::InvalidCertificate(problem) if is_other_version(problem))
        && parsed(certificate).is_ok()
}

/// A certificate of version 1.
fn parsed(der: &CertificateDer<'_>) -> Result<Certificate, CertificateError> {
    let certificate = Certificate::from_der(der).map_err(|_| CertificateError::BadEncoding)?;
    let signed = certificate.tbs_certificate();
    if signed.version() != Version::V1 || signed.extensions().is_some() {
        return Err(CertificateError::BadEncoding);
    }
    Ok(certificate)
}

fn check_period(certificate: &Certificate, now: UnixTime) -> Result<(), CertificateError> {
    let validity = certificate.tbs_certificate().validity();
    if now.as_secs() < validity.not_before.to_unix_duration().as_secs() {
        return Err(CertificateError::NotValidYet);
    }
    if now.as_secs() > validity.not_after.to_unix_duration().as_secs() {
        return Err(CertificateError::Expired);
    }
    Ok(())
}

/// Returns `true` for an authority: by its extensions, or, as in OpenSSL, if it is of version 1 as well and its own issuer.
fn may_sign(certificate: &Certificate) -> bool {
    let signed = certificate.tbs_certificate();
    if signed.version() == Version::V1 {
        return signed.subject() == signed.issuer();
    }
    let is_authority =
        matches!(signed.get_extension::<BasicConstraints>(), Ok(Some((_, constraints))) if constraints.ca);
    let may_sign = match signed.get_extension::<KeyUsage>() {
        Ok(Some((_, usage))) => usage.key_cert_sign(),
        Ok(None) => true,
        Err(_) => false,
    };
    is_authority && may_sign
}

/// The bytes that the issuer signed, and the value of the signature's algorithm. Encoding the certificate again could change them.
fn signed_part(certificate: &[u8]) -> Result<(&[u8], &[u8]), der::Error> {
    let mut reader = SliceReader::new(certificate)?;
    reader.sequence(|reader| {
        let signed = reader.tlv_bytes()?;
        let algorithm: AnyRef<'_> = reader.decode()?;
        reader.tlv_bytes()?;
        Ok((signed, algorithm.value()))
    })
}

fn public_key(certificate: &Certificate) -> Result<SubjectPublicKeyInfoDer<'static>, der::Error> {
    let key = certificate.tbs_certificate().subject_public_key_info().to_der()?;
    Ok(SubjectPublicKeyInfoDer::from(key))
}

/// Checks that our own certificate has the public key of our private key, also if it is of version 1.
pub(super) fn check_own_key(certified: &CertifiedKey) -> Result<(), Error> {
    match certified.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(()),
        Err(error) => {
            let certificate = certified.end_entity_cert()?;
            if !is_of_version_1(&error, certificate) {
                return Err(error);
            }
            let key = public_key(&parsed(certificate)?).map_err(|_| error)?;
            match certified.key.public_key() {
                Some(own) if own != key => Err(InconsistentKeys::KeyMismatch.into()),
                _ => Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::pem::PemObject;

    use super::*;

    const BROKER: &str = include_str!("../../tests/data/version_1_certificate.pem");
    const AUTHORITY: &str = include_str!("../../tests/data/version_1_authority.pem");
    const KEY: &str = include_str!("../../tests/data/version_1_key.pem");
    /// 15 January 2027.
    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn certificate(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
    }

    /// The answer of webpki to a certificate of version 1.
    #[derive(Debug)]
    struct Webpki;

    impl ServerCertVerifier for Webpki {
        fn verify_server_cert(
            &self,
            end_entity: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            rustls::server::ParsedCertificate::try_from(end_entity)?;
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            Vec::new()
        }
    }

    fn verify(
        authorities: Option<Vec<CertificateDer<'static>>>,
        broker: &CertificateDer<'_>,
        now: Duration,
    ) -> Result<(), Error> {
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        let verifier = Version1 { verifier: Arc::new(Webpki), authorities, algorithms };
        let name = ServerName::try_from("elsewhere.test").expect("a name");
        verifier.verify_server_cert(broker, &[], &name, &[], UnixTime::since_unix_epoch(now)).map(drop)
    }

    #[test]
    fn a_certificate_of_version_1_needs_the_signature_of_an_authority_and_its_period() {
        let (broker, authority) = (certificate(BROKER), certificate(AUTHORITY));
        let trusted = || Some(vec![authority.clone()]);
        verify(trusted(), &broker, NOW).expect("openssl verify accepts it");
        verify(Some(vec![broker.clone()]), &broker, NOW).expect("it is trusted itself");
        for (authorities, now, expected) in [
            (Some(Vec::new()), NOW, CertificateError::UnknownIssuer),
            (trusted(), Duration::from_secs(1_500_000_000), CertificateError::NotValidYet),
            (trusted(), Duration::from_secs(4_800_000_000), CertificateError::Expired),
        ] {
            assert_eq!(verify(authorities, &broker, now), Err(Error::InvalidCertificate(expected)));
        }
        let mut forged = broker.to_vec();
        *forged.last_mut().expect("a signature") ^= 1;
        let forged = CertificateDer::from(forged);
        assert_eq!(verify(trusted(), &forged, NOW), Err(CertificateError::UnknownIssuer.into()));
        let refused = verify(None, &broker, NOW).expect_err("webpki decides");
        assert!(matches!(&refused, Error::InvalidCertificate(problem) if is_other_version(problem)));
    }

    #[test]
    fn our_own_certificate_of_version_1_needs_our_own_key() {
        let provider = rustls::crypto::ring::default_provider();
        let check = |pem: &str| {
            let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(pem.as_bytes()).expect("a key");
            let key = provider.key_provider.load_private_key(key).expect("a curve of ring");
            check_own_key(&CertifiedKey::new(vec![certificate(BROKER)], key))
        };
        assert_eq!(check(KEY), Ok(()));
        let other = rcgen::KeyPair::generate().expect("a key").serialize_pem();
        assert_eq!(check(&other), Err(InconsistentKeys::KeyMismatch.into()));
    }
}
