//! The server's side of TLS. Certificates are read again when their files change.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use pkcs8::EncryptedPrivateKeyInfoRef;
use pkcs8::pkcs5::EncryptionScheme;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{
    Error, InconsistentKeys, RootCertStore, ServerConfig, ServerConnection, SupportedCipherSuite,
    SupportedProtocolVersion,
};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use x509_cert::der::{Decode, Encode};
use x509_cert::{Certificate, Version};

use super::Principal;
use super::subject::subject_text;
use super::version_1::ClientVerifier;
use crate::config::Password;
use crate::config::{ClientAuth, Pem, TlsSettings, TlsVersion};

/// The least time between two looks at the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The most bytes of a file that are read. The length in its metadata can be wrong: that of files in `/proc` is 0.
const READ_BYTES_MAX: u64 = 16 << 20;
/// The most iterations of PBKDF2 for the password of a key: NIST's number for critical keys, which takes seconds.
const PBKDF2_ITERATIONS_MAX: u32 = 10_000_000;
/// The most memory of scrypt for the password of a key, in all its lanes. OWASP recommends as much.
const SCRYPT_BYTES_MAX: u64 = 128 << 20;

/// The settings and the configuration from their files.
#[derive(Debug)]
pub(crate) struct TlsFiles {
    settings: TlsSettings,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    stamps: Vec<Stamp>,
    /// Time of the last look; `None` before the first connection.
    looked: Option<Instant>,
    config: Arc<ServerConfig>,
}

/// The modification time and size of a file, which reveal a change.
type Stamp = Option<(SystemTime, u64)>;

impl TlsFiles {
    /// Reads all files once, so that errors are reported at the start.
    pub(crate) fn load(settings: TlsSettings) -> Result<Self, String> {
        let stamps = stamps(&settings);
        let config = Arc::new(server_config(&settings)?);
        Ok(Self { settings, loaded: Mutex::new(Loaded { stamps, looked: None, config }) })
    }

    /// The settings, whose files were read.
    pub(super) fn settings(&self) -> &TlsSettings {
        &self.settings
    }

    /// The acceptor of a new connection. The old certificates stay in use while new ones cannot be read.
    pub(crate) fn acceptor(&self, now: Instant) -> TlsAcceptor {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.looked.is_none_or(|looked| now >= looked + LOOK_INTERVAL) {
            loaded.looked = Some(now);
            let stamps = stamps(&self.settings);
            if stamps != loaded.stamps {
                match server_config(&self.settings) {
                    Ok(config) => {
                        tracing::info!("the certificates of a listener have changed and were read again");
                        loaded.config = Arc::new(config);
                        loaded.stamps = stamps;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the certificates of a listener have changed and cannot be used");
                    }
                }
            }
        }
        TlsAcceptor::from(loaded.config.clone())
    }

    /// The identity of a client's certificate. `None` without a certificate.
    ///
    /// # Errors
    /// A sentence: the certificate cannot be read, or no rule matches its subject.
    pub(crate) fn principal_of(&self, connection: &ServerConnection) -> Result<Option<Principal>, String> {
        let Some(certificate) = connection.peer_certificates().and_then(|chain| chain.first()) else {
            return Ok(None);
        };
        let certificate = Certificate::from_der(certificate)
            .map_err(|error| format!("the client's certificate cannot be read: {error}"))?;
        let subject = subject_text(certificate.tbs_certificate().subject());
        let name = self.settings.principal_rules.name_of(&subject);
        let name = name.ok_or_else(|| {
            format!("no rule of ssl.principal.mapping.rules matches the subject `{subject}`")
        })?;
        Ok(Some(Principal::user(&name)))
    }
}

fn stamps(settings: &TlsSettings) -> Vec<Stamp> {
    let stamp = |pem: &Pem| match pem {
        Pem::File(path) => {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        }
        Pem::Text(_) => None,
    };
    [Some(&settings.certificates), Some(&settings.key), settings.trusted.as_ref()]
        .into_iter()
        .flatten()
        .map(stamp)
        .collect()
}

fn server_config(settings: &TlsSettings) -> Result<ServerConfig, String> {
    let provider = Arc::new(provider(&settings.cipher_suites)?);
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions(&settings.versions))
        .map_err(|error| format!("TLS: {error}"))?;
    let builder = match settings.client_auth {
        ClientAuth::None => builder.with_no_client_auth(),
        ClientAuth::Requested | ClientAuth::Required => {
            let trusted = settings.trusted.as_ref();
            let trusted = trusted.ok_or("ssl.client.auth needs the authorities of ssl.truststore")?;
            let authorities = certificates("ssl.truststore", trusted)?;
            let mut roots = RootCertStore::empty();
            for certificate in &authorities {
                roots.add(certificate.clone()).map_err(|error| format!("ssl.truststore: {error}"))?;
            }
            let algorithms = provider.signature_verification_algorithms;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match settings.client_auth {
                ClientAuth::Requested => verifier.allow_unauthenticated(),
                ClientAuth::None | ClientAuth::Required => verifier,
            };
            let verifier = verifier.build().map_err(|error| format!("ssl.truststore: {error}"))?;
            builder.with_client_cert_verifier(Arc::new(ClientVerifier { verifier, authorities, algorithms }))
        }
    };
    let chain = certificates("ssl.keystore", &settings.certificates)?;
    let key = private_key(&settings.key, settings.key_password.as_ref())?;
    let key = builder.crypto_provider().key_provider.load_private_key(key);
    let certified = key.and_then(|key| checked(CertifiedKey::new(chain, key)));
    let certified = certified.map_err(|error| {
        format!("ssl.keystore: the certificate and the private key cannot be used: {error}")
    })?;
    Ok(builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified))))
}

/// The provider of rustls with these cipher suites; with all if there are none.
fn provider(names: &[String]) -> Result<CryptoProvider, String> {
    let mut provider = rustls::crypto::ring::default_provider();
    if !names.is_empty() {
        let is_named = |suite: &SupportedCipherSuite| {
            // Java and IANA have no version in the names.
            let name = suite.suite().as_str().map(|name| name.replacen("TLS13_", "TLS_", 1));
            name.is_some_and(|name| names.contains(&name))
        };
        provider.cipher_suites.retain(is_named);
        if provider.cipher_suites.is_empty() {
            return Err(format!("ssl.cipher.suites: rustls has none of {}", names.join(", ")));
        }
    }
    Ok(provider)
}

fn versions(enabled: &[TlsVersion]) -> Vec<&'static SupportedProtocolVersion> {
    let versions = enabled.iter().map(|version| match version {
        TlsVersion::V1_2 => &TLS12,
        TlsVersion::V1_3 => &TLS13,
    });
    versions.collect()
}

/// Checks that the certificate has the public key of the private key. rustls reads only certificates of version 3; Kafka serves
/// older ones, too.
fn checked(certified: CertifiedKey) -> Result<CertifiedKey, Error> {
    match certified.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => return Ok(certified),
        Err(error @ Error::InvalidCertificate(_)) => {
            let certificate =
                Certificate::from_der(certified.end_entity_cert()?).map_err(|_| error.clone())?;
            let certificate = certificate.tbs_certificate();
            let version = match certificate.version() {
                Version::V1 => 1,
                Version::V2 => 2,
                Version::V3 => return Err(error),
            };
            let public_key = certificate.subject_public_key_info().to_der().map_err(|_| error)?;
            if certified.key.public_key().is_some_and(|own| own[..] != public_key[..]) {
                return Err(InconsistentKeys::KeyMismatch.into());
            }
            tracing::warn!(
                version,
                "the certificate of a listener is not of X.509 version 3: clients with rustls refuse it"
            );
        }
        Err(error) => return Err(error),
    }
    Ok(certified)
}

fn text(property: &str, pem: &Pem) -> Result<Password, String> {
    match pem {
        Pem::Text(text) => Ok(text.clone()),
        Pem::File(path) => read(property, path).map(Password::from),
    }
}

fn read(property: &str, path: &Path) -> Result<String, String> {
    let text = File::open(path).and_then(read_text);
    text.map_err(|error| format!("{property}: {}: {error}", path.display()))
}

/// Reads a text to its end. Fails if it is too long.
fn read_text(source: impl Read) -> io::Result<String> {
    let mut text = String::new();
    source.take(READ_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > READ_BYTES_MAX {
        let reason = format!("more than {READ_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok(text)
}

/// All certificates in a PEM text, at least one.
pub(super) fn certificates(property: &str, pem: &Pem) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = text(property, pem)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.expose().as_bytes()).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(format!("{property}: no `BEGIN CERTIFICATE` in it: expected PEM")),
        Err(error) => Err(format!("{property}: not readable as PEM: {error}")),
    }
}

fn private_key(pem: &Pem, password: Option<&Password>) -> Result<PrivateKeyDer<'static>, String> {
    const ENCRYPTED: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
    let text = text("ssl.keystore", pem)?;
    let Some(start) = text.expose().find(ENCRYPTED) else {
        return PrivateKeyDer::from_pem_slice(text.expose().as_bytes())
            .map_err(|error| format!("ssl.keystore: no private key that can be read: {error}"));
    };
    let password = password.ok_or("ssl.keystore: the key is encrypted, and ssl.key.password is not set")?;
    let damaged = |error: String| format!("ssl.keystore: the encrypted key is damaged: {error}");
    let (_, der) = pkcs8::SecretDocument::from_pem(&text.expose()[start..])
        .map_err(|error| damaged(error.to_string()))?;
    let encrypted =
        EncryptedPrivateKeyInfoRef::try_from(der.as_bytes()).map_err(|error| damaged(error.to_string()))?;
    check_cost(&encrypted.encryption_algorithm)?;
    let key = encrypted
        .decrypt(password.expose())
        .map_err(|error| format!("ssl.keystore: ssl.key.password does not decrypt the key: {error}"))?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

/// Refuses a key whose password costs too much time or memory. A client can name a key, and other changes wait for it.
fn check_cost(scheme: &EncryptionScheme) -> Result<(), String> {
    let EncryptionScheme::Pbes2(parameters) = scheme else { return Ok(()) };
    if let Some(pbkdf2) = parameters.kdf.pbkdf2() {
        let iterations = pbkdf2.iteration_count;
        if iterations > PBKDF2_ITERATIONS_MAX {
            return Err(format!(
                "ssl.keystore: the key is encrypted with {iterations} iterations of PBKDF2, at most {PBKDF2_ITERATIONS_MAX} are allowed"
            ));
        }
    }
    if let Some(scrypt) = parameters.kdf.scrypt() {
        let (n, r, p) = (scrypt.cost_parameter, scrypt.block_size, scrypt.parallelization);
        let bytes = n.checked_mul(128 * u64::from(r)).and_then(|bytes| bytes.checked_mul(u64::from(p)));
        // The decryption panics for N=0.
        if n == 0 || bytes.is_none_or(|bytes| bytes > SCRYPT_BYTES_MAX) {
            return Err(format!(
                "ssl.keystore: the key is encrypted with scrypt and N={n}, r={r}, p={p}: N is at least 1, and 128*N*r*p at most \
                 {SCRYPT_BYTES_MAX} bytes"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection};

    use super::*;

    /// A certificate of version 1 for `localhost`, valid to the year 2126.
    const VERSION_1: &str = "-----BEGIN CERTIFICATE-----\n\
        MIIBJDCBywIUQlRoUxL3aaJtIfueq6TGEcGvuGgwCgYIKoZIzj0EAwIwFDESMBAG\n\
        A1UEAwwJbG9jYWxob3N0MCAXDTI2MTEzMDAwMzE1NloYDzIxMjYxMTA2MDAzMTU2\n\
        WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC\n\
        AARyKHBklGLiHf7i9NZZ7HVRd26Ak8eC7sdgC5Wz0ti3TkzquKzenBQZ0OOHbGAB\n\
        K6EAmO/Z033Uec62qkBanM8CMAoGCCqGSM49BAMCA0gAMEUCICIcxTEWeNqNDDqW\n\
        9FCFMhi4orZTM+OUZDevwOG1kzeZAiEAoyNRHvF6eQSYKZLGIx0aOkEfLuVqgrUb\n\
        W7drPazjG8I=\n\
        -----END CERTIFICATE-----\n";

    /// Its key.
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
        MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg2qaSatNURZOu0pZk\n\
        CQ7wIVig6H2/Eq98ms8jccZriwyhRANCAARyKHBklGLiHf7i9NZZ7HVRd26Ak8eC\n\
        7sdgC5Wz0ti3TkzquKzenBQZ0OOHbGABK6EAmO/Z033Uec62qkBanM8C\n\
        -----END PRIVATE KEY-----\n";

    /// The key of another certificate.
    const OTHER_KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
        MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgCR7SrMV8K3Fsezdl\n\
        pxIxnvu7njv5i6U1jfhPJzCyL8ehRANCAATn7F+Zse9RvluZkZXEw0NAb0uboETG\n\
        Q8hX/afNA+fwigNqmPK6V9555ek+UezfMKgcd1H9FEssT9/067MrLvPC\n\
        -----END PRIVATE KEY-----\n";

    /// The result of a ClientHello with one version.
    fn greet(settings: &TlsSettings, version: &'static SupportedProtocolVersion) -> Result<(), Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])?
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").expect("a name");
        let mut client = ClientConnection::new(Arc::new(client), name)?;
        let mut server = ServerConnection::new(Arc::new(server_config(settings).expect("settings")))?;
        let mut hello = Vec::new();
        client.write_tls(&mut hello).expect("written");
        server.read_tls(&mut hello.as_slice()).expect("read");
        server.process_new_packets().map(drop)
    }

    /// `ssl.enabled.protocols=TLSv1.3` had no effect.
    #[test]
    fn only_the_named_versions_of_tls_are_spoken() {
        let mut settings = TlsSettings::new(Pem::Text(VERSION_1.into()), Pem::Text(KEY.into()));
        for (versions, speaks_1_2, speaks_1_3) in [
            (vec![TlsVersion::V1_2, TlsVersion::V1_3], true, true),
            (vec![TlsVersion::V1_2], true, false),
            (vec![TlsVersion::V1_3], false, true),
        ] {
            settings.versions = versions;
            let results = (greet(&settings, &TLS12).is_ok(), greet(&settings, &TLS13).is_ok());
            assert_eq!(results, (speaks_1_2, speaks_1_3), "{:?}", settings.versions);
        }
    }

    /// A listener's `ssl.cipher.suites` had no effect.
    #[test]
    fn only_the_named_cipher_suites_are_spoken() {
        let mut settings = TlsSettings::new(Pem::Text(VERSION_1.into()), Pem::Text(KEY.into()));
        for (names, speaks_1_2, speaks_1_3) in [
            (&["TLS_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"][..], false, true),
            (&["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"][..], true, false),
            (&["TLS_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"][..], true, true),
        ] {
            settings.cipher_suites = names.iter().map(|name| (*name).to_owned()).collect();
            let results = (greet(&settings, &TLS12).is_ok(), greet(&settings, &TLS13).is_ok());
            assert_eq!(results, (speaks_1_2, speaks_1_3), "{names:?}");
        }
        settings.cipher_suites = vec!["TLS_RSA_WITH_AES_128_CBC_SHA".to_owned()];
        let refused = server_config(&settings).expect_err("refused");
        assert!(refused.contains("rustls has none of TLS_RSA_WITH_AES_128_CBC_SHA"), "{refused}");
    }

    /// The broker did not start with it.
    #[test]
    fn a_certificate_of_version_1_is_served_with_its_own_key_only() {
        let config =
            |key: &str| server_config(&TlsSettings::new(Pem::Text(VERSION_1.into()), Pem::Text(key.into())));
        assert_eq!(config(KEY).err(), None, "Apache Kafka serves it");
        let refused = config(OTHER_KEY).err().unwrap_or_default();
        assert!(refused.contains("KeyMismatch"), "{refused}");
    }

    /// `/proc/self/pagemap` is a file of 0 bytes with about 256 GiB to read. The broker read them all if a client named it.
    #[test]
    fn a_file_without_an_end_is_not_read_whole() {
        let error = read_text(io::repeat(b'x')).expect_err("refused");
        assert!(error.to_string().contains("more than 16777216 bytes"), "{error}");
        assert_eq!(read_text(&b"short"[..]).expect("read"), "short");
    }

    /// PBKDF2 with 2^31 iterations, and scrypt with N=2^40 and with N=0.
    const COSTLY_KEYS: [&str; 3] = [
        "MH4wWgYJKoZIhvcNAQUNME0wLAYJKoZIhvcNAQUMMB8ECHNhbHRzYWx0AgUAgAAA\n\
         ADAMBggqhkiG9w0CCQUAMB0GCWCGSAFlAwQBKgQQAAAAAAAAAAAAAAAAAAAAAAQg\n\
         AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n",
        "MHcwUwYJKoZIhvcNAQUNMEYwJQYJKwYBBAHaRwQLMBgECHNhbHRzYWx0AgYBAAAA\n\
         AAACAQgCAQEwHQYJYIZIAWUDBAEqBBAAAAAAAAAAAAAAAAAAAAAABCAAAAAAAAAA\n\
         AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==\n",
        "MHIwTgYJKoZIhvcNAQUNMEEwIAYJKwYBBAHaRwQLMBMECHNhbHRzYWx0AgEAAgEI\n\
         AgEBMB0GCWCGSAFlAwQBKgQQAAAAAAAAAAAAAAAAAAAAAAQgAAAAAAAAAAAAAAAA\n\
         AAAAAAAAAAAAAAAAAAAAAAAAAAA=\n",
    ];

    /// A client that may change a broker's configuration could end the process with one, or hold up all other changes for an hour.
    #[test]
    fn keys_whose_passwords_cost_too_much_are_refused() {
        let password = Password::from("secret");
        let reasons = ["2147483648 iterations", "N=1099511627776, r=8, p=1", "N=0, r=8, p=1"];
        for (key, reason) in COSTLY_KEYS.into_iter().zip(reasons) {
            let pem =
                format!("-----BEGIN ENCRYPTED PRIVATE KEY-----\n{key}-----END ENCRYPTED PRIVATE KEY-----\n");
            let error = private_key(&Pem::Text(pem.into()), Some(&password)).expect_err("refused");
            assert!(error.contains(reason), "{error}");
        }
    }
}
