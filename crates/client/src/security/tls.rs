//! Conversion of the TLS settings into a rustls configuration, and of its errors into explanations.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, ServerCertVerifierBuilder, VerifierBuilderError, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, InvalidMessage, SignatureScheme,
};

use super::keys::{identity, read};
use super::roots::{is_probe, roots};
use super::trusted_leaf::{TrustedLeaf, is_authority_used_as_server};
use super::verifier::Rejection;
use super::version_1::{Version1, check_own_key, is_other_version};
use super::{Security, TlsSettings, signatures, suites};
use crate::clock::Clock;
use crate::error::Error;

/// The settings and the configuration from their files, which are read again when one of them changes.
#[derive(Debug)]
pub(crate) struct TlsFiles {
    settings: TlsSettings,
    clock: Clock,
    loaded: Mutex<LoadedTlsFiles>,
}

#[derive(Debug)]
struct LoadedTlsFiles {
    stamps: Vec<Stamp>,
    config: Arc<ClientConfig>,
}

/// The modification time and size of a file, which reveal a change.
type Stamp = Option<(SystemTime, u64)>;

impl TlsFiles {
    /// Returns `None` if the protocol does not use TLS.
    pub(crate) fn of(security: &Security, clock: &Clock) -> Result<Option<Self>, Error> {
        if !security.protocol.is_tls() {
            return Ok(None);
        }
        Self::load(security.tls.clone(), clock.clone()).map(Some)
    }

    /// Reads all files once, so that errors are reported at once.
    pub(crate) fn load(settings: TlsSettings, clock: Clock) -> Result<Self, Error> {
        let stamps = stamps(&settings);
        let config = Arc::new(client_config(&settings, &clock, |verifier| verifier)?);
        Ok(Self { settings, clock, loaded: Mutex::new(LoadedTlsFiles { stamps, config }) })
    }

    /// The configuration for the next connection. It stays unchanged while files that are being replaced do not
    /// match.
    pub(crate) fn current(&self) -> Arc<ClientConfig> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&self.settings);
        if stamps != loaded.stamps {
            match client_config(&self.settings, &self.clock, |verifier| verifier) {
                Ok(config) => {
                    tracing::info!("certificates have changed and were read again");
                    *loaded = LoadedTlsFiles { stamps, config: Arc::new(config) };
                }
                Err(error) => {
                    tracing::warn!(%error, "certificates have changed and cannot be used; the old ones stay");
                }
            }
        }
        loaded.config.clone()
    }

    pub(crate) fn settings(&self) -> &TlsSettings {
        &self.settings
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }
}

fn stamps(settings: &TlsSettings) -> Vec<Stamp> {
    let stamp = |path: &PathBuf| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    // A directory does not change with the content of its files.
    let with_files = |path: &PathBuf| {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        files.sort();
        files.insert(0, path.clone());
        files
    };
    [
        settings.ca_location.as_ref().filter(|location| !is_probe(location)),
        settings.crl_location.as_ref(),
        settings.certificate_location.as_ref(),
        settings.key_location.as_ref(),
        settings.keystore_location.as_ref(),
    ]
    .into_iter()
    .flatten()
    .flat_map(with_files)
    .map(|path| stamp(&path))
    .collect()
}

/// Builds the rustls configuration. `watch` may wrap the verifier.
pub(crate) fn client_config(
    settings: &TlsSettings,
    clock: &Clock,
    watch: impl FnOnce(Arc<dyn ServerCertVerifier>) -> Arc<dyn ServerCertVerifier>,
) -> Result<ClientConfig, Error> {
    let provider =
        Arc::new(suites::provider(&settings.cipher_suites, &settings.curves).map_err(Error::Config)?);
    let verifier = verifier(settings, &provider)?;
    let verifier = signatures::restricted(&settings.signature_algorithms, verifier).map_err(Error::Config)?;
    let builder = ClientConfig::builder_with_details(provider, Arc::new(clock.clone()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Config(format!("TLS: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(watch(verifier));
    let mut config = match identity(settings)? {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let key = builder.crypto_provider().key_provider.load_private_key(key);
            let own = key.map(|key| CertifiedKey::new(chain, key));
            let own = own.and_then(|own| check_own_key(&own).map(|()| own)).map_err(|error| {
                Error::Config(format!("the client's certificate and private key cannot be used: {error}"))
            })?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)))
        }
    };
    if settings.certificate_verifier.is_some() {
        // A resumed session presents no certificates, and the application is to be asked for each connection, as in librdkafka.
        config.resumption = Resumption::disabled();
    }
    Ok(config)
}

/// The verification of brokers' certificates.
fn verifier(
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let algorithms = provider.signature_verification_algorithms;
    if !settings.verify_certificates {
        let any = Arc::new(AnyCertificate(provider.clone()));
        return Ok(Arc::new(Version1 { verifier: any, authorities: None, algorithms }));
    }
    let strict = strict_verifier(settings, provider.clone())?;
    // Only webpki looks at names and at lists of revoked certificates.
    let needs_webpki = settings.endpoint_identification || settings.crl_location.is_some();
    let authorities = (!needs_webpki).then(|| strict.configured.clone());
    let strict: Arc<dyn ServerCertVerifier> = Arc::new(strict);
    let verifier: Arc<dyn ServerCertVerifier> =
        if settings.endpoint_identification { strict } else { Arc::new(AnyName(strict)) };
    let verifier: Arc<dyn ServerCertVerifier> = Arc::new(Version1 { verifier, authorities, algorithms });
    Ok(match &settings.certificate_verifier {
        Some(last) => last.over(verifier),
        None => verifier,
    })
}

fn strict_verifier(settings: &TlsSettings, provider: Arc<CryptoProvider>) -> Result<TrustedLeaf, Error> {
    let (roots, configured) = roots(
        ("ssl.ca.location", settings.ca_location.as_deref()),
        ("ssl.ca.pem", settings.ca_pem.as_deref()),
    )?;
    let mut builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    let mut issuers = None;
    if let Some(path) = &settings.crl_location {
        let lists: Result<Vec<_>, _> =
            CertificateRevocationListDer::pem_slice_iter(&read("ssl.crl.location", path)?).collect();
        let lists = lists.ok().filter(|lists| !lists.is_empty()).ok_or_else(|| {
            Error::Config(format!("ssl.crl.location: no revocation list in {}", path.display()))
        })?;
        builder = builder.with_crls(lists);
        issuers = Some(builder.clone().allow_unknown_revocation_status());
        // OpenSSL's `X509_V_FLAG_CRL_CHECK`: the broker's own certificate needs a list of its issuer that has not expired.
        builder = builder.only_check_end_entity_revocation().enforce_revocation_expiration();
    }
    let refuse = |error: VerifierBuilderError| Error::Config(format!("ssl.ca.location: {error}"));
    let issuers = issuers.map(ServerCertVerifierBuilder::build).transpose().map_err(refuse)?;
    Ok(TrustedLeaf { strict: builder.build().map_err(refuse)?, issuers, configured })
}

/// Certificates are verified with the clock of record timestamps, so that a simulation controls the time.
impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let ms = u64::try_from(self.now_ms()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_millis(ms)))
    }
}

/// Accepts a certificate for another host, if a trusted authority signed it.
#[derive(Debug)]
struct AnyName(Arc<dyn ServerCertVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // The chain is verified before the name.
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Accepts any certificate: `enable.ssl.certificate.verification=false`.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The cause of a TLS error and its remedy, for the operator.
pub(crate) fn explain(error: &rustls::Error, has_certificate: bool) -> String {
    match error {
        rustls::Error::InvalidCertificate(problem) => explain_certificate(problem),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the peer does not speak TLS: is this a plaintext listener? (security.protocol)".into()
        }
        rustls::Error::AlertReceived(alert) => explain_alert(*alert, has_certificate),
        other => format!("{other}"),
    }
}

fn explain_certificate(problem: &CertificateError) -> String {
    match problem {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the broker's certificate has expired ({problem})")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("the broker's certificate is not valid yet ({problem}): is a clock wrong?")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => format!(
            "the broker's certificate is for another host ({problem}); the host in bootstrap.servers or in \
             advertised.listeners must be one that it names"
        ),
        CertificateError::UnknownIssuer => "the broker's certificate is signed by an authority that is not \
             trusted: set ssl.ca.location to that authority's certificate"
            .into(),
        CertificateError::Revoked => "the broker's certificate is revoked (ssl.crl.location)".into(),
        CertificateError::UnknownRevocationStatus => "no revocation list covers the broker's certificate: \
             ssl.crl.location needs the list of the authority that signed it"
            .into(),
        CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. } => {
            format!(
                "the revocation list of the broker's authority has expired ({problem}): renew ssl.crl.location"
            )
        }
        CertificateError::Other(other) if other.0.is::<Rejection>() => {
            format!("the application refuses the broker's certificate: {}", other.0)
        }
        problem if is_authority_used_as_server(problem) => "the broker's certificate is an authority's \
             (CA:TRUE), and not the one in ssl.ca.location: give the broker a certificate of its own, or set \
             ssl.ca.location to exactly this certificate"
            .into(),
        problem if is_other_version(problem) => "the broker's certificate is not of X.509 version 3, so it has \
             no list of names: issue one with extensions, or set ssl.endpoint.identification.algorithm=none to \
             accept one of version 1 that an authority in ssl.ca.location has signed itself"
            .into(),
        other => format!("the broker's certificate is refused: {other}"),
    }
}

fn explain_alert(alert: AlertDescription, has_certificate: bool) -> String {
    match alert {
        AlertDescription::CertificateRequired | AlertDescription::BadCertificate if !has_certificate => {
            "the broker requires a client certificate: set ssl.certificate.location and ssl.key.location, or \
             ssl.keystore.location"
                .into()
        }
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRevoked
        | AlertDescription::UnsupportedCertificate
            if has_certificate =>
        {
            format!(
                "the broker refuses our client certificate ({alert:?}): it must be valid and signed by an authority that the broker trusts"
            )
        }
        AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion => {
            format!(
                "the broker shares no TLS version or cipher suite with us ({alert:?}): TLS 1.2 and 1.3 are spoken"
            )
        }
        other => format!("the broker ended the TLS connection ({other:?})"),
    }
}
