//! The client's certificate and private key, from PEM or a PKCS#12 keystore.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use p12_keystore::{CertificateBag, Pkcs12Archive, PrivateKeyBag};
use pkcs8::EncryptedPrivateKeyInfoRef;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use x509_cert::der::Decode;

use super::{Secret, TlsSettings, encrypted_pem};
use crate::error::Error;

/// A certificate with its chain, and its private key.
pub(crate) type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The certificate and key that the settings name, if any.
pub(crate) fn identity(settings: &TlsSettings) -> Result<Option<Identity>, Error> {
    if let Some(path) = &settings.keystore_location {
        let password = settings.keystore_password.clone().unwrap_or_default();
        return keystore(&read("ssl.keystore.location", path)?, &password, path).map(Some);
    }
    let Some((name, pem)) = text(
        ("ssl.certificate.location", settings.certificate_location.as_deref()),
        ("ssl.certificate.pem", settings.certificate_pem.as_deref()),
    )?
    else {
        return Ok(None);
    };
    let chain = certificates(name, pem.expose().as_bytes())?;
    check_chain(name, &chain)?;
    let key = text(
        ("ssl.key.location", settings.key_location.as_deref()),
        ("ssl.key.pem", settings.key_pem.as_ref().map(Secret::expose)),
    )?;
    let Some((name, pem)) = key else {
        tracing::warn!("{name} is set without ssl.key.location or ssl.key.pem: brokers get no certificate");
        return Ok(None);
    };
    let password = ("ssl.key.password", settings.key_password.as_ref());
    Ok(Some((chain, private_key(name, pem.expose().as_bytes(), password)?)))
}

/// The text of the property that is set, with the property's name.
pub(crate) fn text<'a>(
    (location, path): (&'a str, Option<&Path>),
    (inline, pem): (&'a str, Option<&str>),
) -> Result<Option<(&'a str, Secret)>, Error> {
    match (path, pem) {
        (Some(path), _) => {
            let text = String::from_utf8(read(location, path)?)
                .map_err(|_| Error::Config(format!("{location}: {} is not a PEM file", path.display())))?;
            Ok(Some((location, text.into())))
        }
        (None, Some(pem)) => Ok(Some((inline, pem.into()))),
        (None, None) => Ok(None),
    }
}

pub(crate) fn read(property: &str, path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| Error::Config(format!("{property}: {}: {error}", path.display())))
}

/// All certificates in a PEM text, at least one.
pub(crate) fn certificates(property: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(Error::Config(format!("{property}: no `BEGIN CERTIFICATE` in it: expected PEM"))),
        Err(error) => Err(Error::Config(format!("{property}: not readable as PEM: {error}"))),
    }
}

/// Refuses a chain that the broker could not read.
fn check_chain(property: &str, chain: &[CertificateDer<'static>]) -> Result<(), Error> {
    for (at, certificate) in (1..).zip(chain) {
        x509_cert::Certificate::from_der(certificate).map_err(|error| {
            let count = chain.len();
            Error::Config(format!(
                "{property}: error reading certificate chain, certificate {at} of {count}: error: {error}"
            ))
        })?;
    }
    Ok(())
}

/// Checks a client certificate, with its issuers, in PEM.
///
/// # Errors
/// [`Error::Config`] with the property's name, if there is none or one is malformed.
pub fn check_certificate_chain(property: &str, pem: &[u8]) -> Result<(), Error> {
    check_chain(property, &certificates(property, pem)?)
}

/// The only private key in a PEM text.
pub(crate) fn private_key(
    property: &str,
    pem: &[u8],
    (password_property, password): (&str, Option<&Secret>),
) -> Result<PrivateKeyDer<'static>, Error> {
    let refuse = |text: String| Error::Config(format!("{property}: {text}"));
    let text = String::from_utf8_lossy(pem);
    let is_pkcs8 = text.contains("BEGIN ENCRYPTED PRIVATE KEY");
    if !is_pkcs8 && !encrypted_pem::has_key(&text) {
        return PrivateKeyDer::from_pem_slice(pem)
            .map_err(|error| refuse(format!("no private key that can be read: {error}")));
    }
    let password = password
        .ok_or_else(|| refuse(format!("the key is encrypted, and {password_property} is not set")))?;
    if !is_pkcs8 {
        return encrypted_pem::decrypt(&text, password)
            .map_err(|why| refuse(format!("the key cannot be decrypted with {password_property}: {why}")));
    }
    let start = text.find("-----BEGIN ENCRYPTED PRIVATE KEY-----").unwrap_or_default();
    let (_, der) = pkcs8::SecretDocument::from_pem(&text[start..])
        .map_err(|error| refuse(format!("the encrypted key is damaged: {error}")))?;
    let encrypted = EncryptedPrivateKeyInfoRef::try_from(der.as_bytes())
        .map_err(|error| refuse(format!("the encrypted key is damaged: {error}")))?;
    let key = encrypted
        .decrypt(password.expose())
        .map_err(|error| refuse(format!("the key cannot be decrypted with {password_property}: {error}")))?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

/// The contents of a PKCS#12 keystore, in PEM.
#[derive(Debug)]
#[non_exhaustive]
pub struct Keystore {
    /// The certificate of the key, followed by its issuers; empty if there is no key.
    pub chain: String,
    /// The private key, no longer encrypted.
    pub key: Option<Secret>,
    /// All certificates except that of the key.
    pub trusted: String,
}

/// Opens a PKCS#12 keystore.
///
/// # Errors
/// [`Error::Config`] for malformed data, and for a wrong password.
pub fn open_keystore(bytes: &[u8], password: &Secret) -> Result<Keystore, Error> {
    let refuse = |error| Error::Config(format!("not a PKCS#12 keystore, or its password is wrong: {error}"));
    let archive = Pkcs12Archive::from_pkcs12(bytes, password.expose()).map_err(refuse)?;
    let mut opened = Keystore { chain: String::new(), key: None, trusted: String::new() };
    let own = own_key(&archive);
    let key = own.as_ref().map(|(key, _)| *key).or(archive.keys.first());
    opened.key = key.map(|bag| pem("PRIVATE KEY", bag.key.as_der()).into());
    let chain = own.map(|(_, chain)| chain).unwrap_or_default();
    for bag in &chain {
        opened.chain += &pem("CERTIFICATE", bag.cert.as_der());
    }
    let own = chain.first().map(|bag| &bag.cert);
    for other in archive.certs.iter().map(|bag| &bag.cert).filter(|certificate| Some(*certificate) != own) {
        opened.trusted += &pem("CERTIFICATE", other.as_der());
    }
    Ok(opened)
}

/// The first private key that has a certificate, and the certificate with its issuers.
fn own_key(archive: &Pkcs12Archive) -> Option<(&PrivateKeyBag, Vec<&CertificateBag>)> {
    archive.keys.iter().find_map(|key| {
        let mut chain = vec![certificate_of(key, &archive.certs)?];
        while let Some(issuer) = issuer_of(chain[chain.len() - 1], &archive.certs) {
            if chain.contains(&issuer) {
                break;
            }
            chain.push(issuer);
        }
        Some((key, chain))
    })
}

/// Java's keytool and OpenSSL link a key to its certificate by an id, which other programs leave out. OpenSSL, and so librdkafka, compares
/// the public keys.
fn certificate_of<'a>(key: &PrivateKeyBag, all: &'a [CertificateBag]) -> Option<&'a CertificateBag> {
    let id = key.local_key_id.as_ref().map(|id| id.0.as_slice());
    let linked = all.iter().find(|bag| id.is_some() && bag.local_key_id.as_deref() == id);
    linked.or_else(|| {
        let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.key.as_der()));
        let signing = rustls::crypto::ring::sign::any_supported_type(&der).ok()?;
        all.iter().find(|bag| {
            let certificate = CertificateDer::from(bag.cert.as_der().to_vec());
            CertifiedKey::new(vec![certificate], signing.clone()).keys_match().is_ok()
        })
    })
}

/// The certificate of the authority that signed a certificate. Those that Java marks as trusted are no part of a chain.
fn issuer_of<'a>(certificate: &CertificateBag, all: &'a [CertificateBag]) -> Option<&'a CertificateBag> {
    all.iter().find(|bag| !bag.trusted && bag.cert.subject() == certificate.cert.issuer())
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line) + "\n");
    format!("-----BEGIN {label}-----\n{}-----END {label}-----\n", lines.collect::<String>())
}

fn keystore(bytes: &[u8], password: &Secret, path: &Path) -> Result<Identity, Error> {
    let refuse = |text: String| Error::Config(format!("ssl.keystore.location: {}: {text}", path.display()));
    if bytes.starts_with(&[0xfe, 0xed, 0xfe, 0xed]) {
        return Err(refuse(
            "this is a JKS keystore; `keytool -importkeystore -deststoretype PKCS12` makes a PKCS#12 one"
                .into(),
        ));
    }
    let archive = Pkcs12Archive::from_pkcs12(bytes, password.expose()).map_err(|error| {
        refuse(format!("not a PKCS#12 keystore, or ssl.keystore.password is wrong: {error}"))
    })?;
    let (key, chain) = own_key(&archive)
        .ok_or_else(|| refuse("there is no private key with its certificate in it".into()))?;
    let certificates = chain.iter().map(|bag| CertificateDer::from(bag.cert.as_der().to_vec())).collect();
    Ok((certificates, PrivatePkcs8KeyDer::from(key.key.as_der().to_vec()).into()))
}

#[cfg(test)]
mod tests {
    use p12_keystore::{Certificate, PrivateKey};
    use rcgen::{CertificateParams, Issuer, KeyPair};

    use super::*;

    fn bag(der: &[u8]) -> CertificateBag {
        let cert = Certificate::from_der(der).expect("a certificate");
        CertificateBag { friendly_name: None, local_key_id: None, trusted: false, cert }
    }

    /// A keystore without ids had no private key with its certificate.
    #[test]
    fn a_key_without_an_id_belongs_to_the_certificate_with_its_public_key() {
        let authority_key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(rcgen::DnType::CommonName, "authority");
        let authority = params.self_signed(&authority_key).expect("signed");
        let issuer = Issuer::new(params, authority_key);
        let key = KeyPair::generate().expect("a key");
        let leaf = CertificateParams::new(vec!["client.test".to_owned()]).expect("a name");
        let leaf = leaf.signed_by(&key, &issuer).expect("signed");

        let key = PrivateKey::from_der(key.serialized_der()).expect("PKCS#8");
        let key = PrivateKeyBag { friendly_name: None, local_key_id: None, key };
        let certs = vec![bag(authority.der()), bag(leaf.der())];
        let mut archive = Pkcs12Archive { keys: vec![key], certs, secrets: Vec::new() };
        let chain = |archive: &Pkcs12Archive| {
            let (_, chain) = own_key(archive)?;
            Some(chain.iter().map(|bag| bag.cert.as_der().to_vec()).collect::<Vec<_>>())
        };
        let expected = vec![leaf.der().to_vec(), authority.der().to_vec()];
        assert_eq!(chain(&archive), Some(expected.clone()));
        archive.keys[0].local_key_id = Some("1".into());
        assert_eq!(chain(&archive), Some(expected), "no certificate has the id");
        archive.certs.pop();
        assert_eq!(chain(&archive), None, "the authority's key is another one");
        archive.certs[0].local_key_id = Some(b"1".to_vec());
        assert_eq!(chain(&archive).map(|chain| chain.len()), Some(1), "an id decides");
    }
}
