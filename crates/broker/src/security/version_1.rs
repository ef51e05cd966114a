//! Client certificates of X.509 version 1, as `openssl x509 -req` makes them without extensions, and as the guide of Apache Kafka's
//! documentation does. rustls reads version 3 only; Java, and so Kafka, takes them.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved, SignatureScheme,
};
use x509_cert::der::asn1::AnyRef;
use x509_cert::der::{self, Decode, Encode, Reader, SliceReader};
use x509_cert::ext::pkix::{BasicConstraints, KeyUsage};
use x509_cert::{Certificate, Version};

/// Accepts a client certificate of version 1 that a trusted authority has signed itself. The others are the inner verifier's.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    pub(super) authorities: Vec<CertificateDer<'static>>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl ClientVerifier {
    fn has_signed(
        &self,
        authority: &CertificateDer<'_>,
        client: &ClientCertificate<'_>,
        now: UnixTime,
    ) -> bool {
        let Ok(authority) = Certificate::from_der(authority) else { return false };
        let signed = client.certificate.tbs_certificate();
        let is_issuer = authority.tbs_certificate().subject() == signed.issuer()
            && signed.signature() == client.certificate.signature_algorithm()
            && may_sign(&authority)
            && check_period(&authority, now).is_ok();
        let (true, Ok(key), Ok((message, algorithm))) =
            (is_issuer, PublicKey::of(&authority), signed_part(client.der))
        else {
            return false;
        };
        let signature = client.certificate.signature().raw_bytes();
        let known = self.algorithms.all.iter().filter(|known| known.signature_alg_id()[..] == *algorithm);
        known.copied().any(|known| {
            known.public_key_alg_id()[..] == *key.algorithm
                && known.verify_signature(&key.bits, message, signature).is_ok()
        })
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.verifier.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.verifier.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let Some(client) = ClientCertificate::of(end_entity) else {
            return self.verifier.verify_client_cert(end_entity, intermediates, now);
        };
        check_period(&client.certificate, now)?;
        let is_trusted = self
            .authorities
            .iter()
            .any(|authority| authority == end_entity || self.has_signed(authority, &client, now));
        if is_trusted {
            Ok(ClientCertVerified::assertion())
        } else {
            Err(CertificateError::UnknownIssuer.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let Some(client) = ClientCertificate::of(cert) else {
            return self.verifier.verify_tls12_signature(message, cert, dss);
        };
        let key = PublicKey::of(&client.certificate).map_err(|_| CertificateError::BadEncoding)?;
        // The scheme of TLS 1.2 leaves the curve open.
        let (_, known) = self
            .algorithms
            .mapping
            .iter()
            .find(|(scheme, _)| *scheme == dss.scheme)
            .ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        let is_valid = known.iter().any(|known| {
            known.public_key_alg_id()[..] == *key.algorithm
                && known.verify_signature(&key.bits, message, dss.signature()).is_ok()
        });
        if is_valid {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(CertificateError::BadSignature.into())
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let Some(client) = ClientCertificate::of(cert) else {
            return self.verifier.verify_tls13_signature(message, cert, dss);
        };
        let key = client.certificate.tbs_certificate().subject_public_key_info().to_der();
        let key = SubjectPublicKeyInfoDer::from(key.map_err(|_| CertificateError::BadEncoding)?);
        verify_tls13_signature_with_raw_key(message, &key, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// A client's certificate of version 1.
struct ClientCertificate<'a> {
    der: &'a [u8],
    certificate: Certificate,
}

impl<'a> ClientCertificate<'a> {
    /// `None` for a certificate of another version, or one that cannot be read.
    fn of(der: &'a CertificateDer<'_>) -> Option<Self> {
        let certificate = Certificate::from_der(der).ok()?;
        let signed = certificate.tbs_certificate();
        let is_of_version_1 = signed.version() == Version::V1 && signed.extensions().is_none();
        is_of_version_1.then_some(Self { der, certificate })
    }
}

/// The public key of a certificate: the value of its algorithm, and its bits.
struct PublicKey {
    algorithm: Vec<u8>,
    bits: Vec<u8>,
}

impl PublicKey {
    fn of(certificate: &Certificate) -> Result<Self, der::Error> {
        let key = certificate.tbs_certificate().subject_public_key_info();
        let algorithm = key.algorithm.to_der()?;
        let algorithm = AnyRef::from_der(&algorithm)?.value().to_vec();
        Ok(Self { algorithm, bits: key.subject_public_key.raw_bytes().to_vec() })
    }
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

/// Returns `true` for an authority: by its extensions, or if it is of version 1 as well and its own issuer.
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
