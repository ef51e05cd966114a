//! Certificates from memory in every encoding, and an application that judges those of brokers.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads and time")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(
    clippy::wildcard_imports,
    clippy::unwrap_used,
    reason = "C's names, and a test that stops where it must"
)]

#[path = "../../client/tests/support/certificates.rs"]
mod authority;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use authority::{Authority, Certificate};
use rdkafka::client::handle::*;
use rdkafka::conf::*;
use rdkafka::ffi::*;
use rdkafka::queue::poll::*;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use crate::common::*;

/// The events of a test, as text: the server's handshakes and the calls of the callbacks.
#[derive(Default)]
struct Seen {
    lines: Mutex<Vec<String>>,
    /// `true` if the callback accepts the certificates.
    takes: bool,
    /// `true` if the callback clears the errors of the certificates.
    clears: bool,
}

impl Seen {
    fn note(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }

    fn has(&self, part: &str) -> bool {
        self.lines.lock().unwrap().iter().any(|line| line.contains(part))
    }
}

unsafe fn seen<'a>(opaque: *mut c_void) -> &'a Seen {
    unsafe { &*opaque.cast::<Seen>() }
}

/// Something that makes TLS handshakes, and wants clients to show a certificate of `of_clients`. Its port.
fn far_end(certificate: &Certificate, of_clients: Option<&Authority>, seen: &Arc<Seen>) -> u16 {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let builder = builder.unwrap();
    let builder = match of_clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let key = PrivateKeyDer::from_pem_slice(certificate.key_pem.as_bytes()).unwrap();
    let chain = vec![CertificateDer::from(certificate.der.clone())];
    let config = Arc::new(builder.with_single_cert(chain, key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = seen.clone();
    // It ends with the process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut tls = ServerConnection::new(config.clone()).unwrap();
            while tls.is_handshaking() && tls.complete_io(&mut stream).is_ok() {}
            let clients = tls.peer_certificates().map_or(0, <[_]>::len);
            seen.note(format!(
                "handshake {} {clients}",
                if tls.is_handshaking() { "failed" } else { "done" }
            ));
        }
    });
    port
}

fn client(port: u16, seen: &Seen, ca: Option<&str>) -> *mut rd_kafka_conf_t {
    let servers = format!("127.0.0.1:{port}");
    let conf = conf(&[("bootstrap.servers", servers.as_str()), ("security.protocol", "ssl")]);
    unsafe {
        if let Some(ca) = ca {
            let ca = CString::new(ca).unwrap();
            give(conf, RD_KAFKA_CERT_CA, RD_KAFKA_CERT_ENC_PEM, ca.as_bytes());
        }
        rd_kafka_conf_set_opaque(conf, (&raw const *seen).cast_mut().cast());
        rd_kafka_conf_set_error_cb(conf, Some(on_error));
    }
    conf
}

fn give(conf: *mut rd_kafka_conf_t, kind: rd_kafka_cert_type_t, encoding: rd_kafka_cert_enc_t, bytes: &[u8]) {
    assert_eq!(try_give(conf, kind, encoding, bytes), Ok(()));
}

fn try_give(
    conf: *mut rd_kafka_conf_t,
    kind: rd_kafka_cert_type_t,
    encoding: rd_kafka_cert_enc_t,
    bytes: &[u8],
) -> Result<(), String> {
    let (mut text, from) = ([0; 256], bytes.as_ptr().cast());
    let (errstr, size) = (text.as_mut_ptr(), text.len());
    let set = unsafe { rd_kafka_conf_set_ssl_cert(conf, kind, encoding, from, bytes.len(), errstr, size) };
    let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().unwrap().to_owned();
    if set == RD_KAFKA_CONF_OK { Ok(()) } else { Err(text) }
}

unsafe extern "C" fn on_error(_: *mut rd_kafka_t, err: c_int, reason: *const c_char, opaque: *mut c_void) {
    let reason = unsafe { CStr::from_ptr(reason) }.to_string_lossy();
    unsafe { seen(opaque) }.note(format!("error {err} {reason}"));
}

unsafe extern "C" fn judge(
    rk: *mut rd_kafka_t,
    broker_name: *const c_char,
    _broker_id: i32,
    x509_error: *mut c_int,
    depth: c_int,
    buf: *const c_char,
    size: usize,
    errstr: *mut c_char,
    errstr_size: usize,
    opaque: *mut c_void,
) -> c_int {
    let seen = unsafe { seen(opaque) };
    unsafe {
        let der = std::slice::from_raw_parts(buf.cast::<u8>(), size);
        assert!(!rk.is_null() && der.starts_with(&[0x30]) && errstr_size > 100);
        let name = CStr::from_ptr(broker_name).to_str().unwrap();
        seen.note(format!("judge {name} depth {depth} error {}", *x509_error));
        if !seen.takes {
            let why = c"not of ours";
            errstr.copy_from_nonoverlapping(why.as_ptr(), why.count_bytes() + 1);
        }
        if seen.clears {
            *x509_error = 0;
        }
    }
    c_int::from(seen.takes)
}

fn until_seen(rk: *mut rd_kafka_t, seen: &Seen, part: &str) {
    until(part, || {
        unsafe { rd_kafka_poll(rk, 10) };
        seen.has(part)
    });
}

#[test]
fn the_application_judges_certificates_and_has_the_last_word() {
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    // The callback's answer, the trusted authority, the error that the callback receives, and the outcome.
    let stories = [
        (true, &authority, "error 0", "handshake done"),
        (false, &authority, "error 0", "not of ours"),
        (true, &stranger, "error 20", "handshake done"),
    ];
    for (takes, trusted, told, outcome) in stories {
        let seen = Arc::new(Seen { takes, clears: true, ..Seen::default() });
        connects_to(&authority, trusted, &seen, outcome);
        assert!(seen.has(&format!("judge 127.0.0.1 depth 0 {told}")), "{:?}", seen.lines.lock().unwrap());
    }
}

/// A callback that returned 1 for each certificate switched the verification off.
#[test]
fn the_error_of_a_certificate_counts_until_the_application_clears_it() {
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    let looks_only = || Arc::new(Seen { takes: true, ..Seen::default() });
    connects_to(&authority, &authority, &looks_only(), "handshake done");
    let seen = looks_only();
    connects_to(&authority, &stranger, &seen, "verification failed with X509 error 20");
    assert!(!seen.has("handshake done"), "{:?}", seen.lines.lock().unwrap());
}

/// The callback got X509_V_ERR_UNSPECIFIED for a missing and for an expired list of revocations, which a program cannot tell from other
/// problems.
#[test]
fn the_application_learns_of_a_missing_and_of_an_expired_revocation_list() {
    let (authority, other) = (Authority::new("authority"), Authority::new("other"));
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = CString::new(file.path().to_str().unwrap()).unwrap();
    for (list, error) in [(other.revoke_until(17, 2100), 3), (authority.revoke_until(17, 2002), 12)] {
        std::fs::write(file.path(), list).unwrap();
        let seen = Arc::new(Seen { takes: true, clears: true, ..Seen::default() });
        let port = far_end(&authority.sign(&["127.0.0.1"]), None, &seen);
        let conf = client(port, &seen, Some(&authority.pem));
        unsafe {
            let (name, null) = (c"ssl.crl.location".as_ptr(), std::ptr::null_mut());
            assert_eq!(rd_kafka_conf_set(conf, name, path.as_ptr(), null, 0), RD_KAFKA_CONF_OK);
            assert_eq!(rd_kafka_conf_set_ssl_cert_verify_cb(conf, Some(judge)), RD_KAFKA_CONF_OK);
            let rk = new(RD_KAFKA_PRODUCER, conf);
            until_seen(rk, &seen, "handshake done");
            rd_kafka_destroy(rk);
        }
        let lines = seen.lines.lock().unwrap();
        assert!(lines.contains(&format!("judge 127.0.0.1 depth 0 error {error}")), "{lines:?}");
    }
}

/// Connects a client that trusts one authority to a server with a certificate of another one, until the outcome is seen.
fn connects_to(authority: &Authority, trusted: &Authority, seen: &Arc<Seen>, outcome: &str) {
    let port = far_end(&authority.sign(&["127.0.0.1"]), None, seen);
    let conf = client(port, seen, Some(&trusted.pem));
    unsafe {
        assert_eq!(rd_kafka_conf_set_ssl_cert_verify_cb(conf, Some(judge)), RD_KAFKA_CONF_OK);
        let rk = new(RD_KAFKA_PRODUCER, conf);
        until_seen(rk, seen, outcome);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn our_own_certificate_comes_from_memory_in_every_encoding() {
    let authority = Authority::new("authority");
    let ours = authority.sign(&["client.test"]);
    let key = PrivateKeyDer::from_pem_slice(ours.key_pem.as_bytes()).unwrap();
    let p12 = keystore(&ours, key.secret_der(), &[]);
    let encodings: [(rd_kafka_cert_enc_t, &[u8], &[u8]); 4] = [
        (RD_KAFKA_CERT_ENC_PEM, ours.pem.as_bytes(), ours.key_pem.as_bytes()),
        (RD_KAFKA_CERT_ENC_DER, &ours.der, key.secret_der()),
        (RD_KAFKA_CERT_ENC_DER, &ours.der, sec1_of(key.secret_der())),
        (RD_KAFKA_CERT_ENC_PKCS12, &p12, &p12),
    ];
    for (encoding, certificate, key) in encodings {
        let seen = Arc::<Seen>::default();
        let port = far_end(&authority.sign(&["127.0.0.1"]), Some(&authority), &seen);
        let conf = client(port, &seen, Some(&authority.pem));
        if encoding == RD_KAFKA_CERT_ENC_PKCS12 {
            let refused = try_give(conf, RD_KAFKA_CERT_PUBLIC_KEY, encoding, certificate).unwrap_err();
            assert!(refused.contains("password is wrong"), "{refused}");
            set_password(conf);
        }
        give(conf, RD_KAFKA_CERT_PUBLIC_KEY, encoding, certificate);
        give(conf, RD_KAFKA_CERT_PRIVATE_KEY, encoding, key);
        let rk = new(RD_KAFKA_PRODUCER, conf);
        until_seen(rk, &seen, "handshake done 1");
        unsafe { rd_kafka_destroy(rk) };
    }
}

/// The key within a PKCS#8 key, as `openssl ec -outform DER` writes it.
fn sec1_of(pkcs8: &[u8]) -> &[u8] {
    assert!(pkcs8.starts_with(&[0x30, 0x81]) && pkcs8[3..6] == [2, 1, 0], "a sequence with version 0");
    let key = 8 + usize::from(pkcs8[7]);
    &pkcs8[key + 2..]
}

/// librdkafka's test 0097.
#[test]
fn a_chain_with_a_malformed_certificate_is_refused_and_a_key_may_be_missing() {
    let certificate = Authority::new("authority").sign(&["client.test"]).pem;
    let malformed = format!("{certificate}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let create = |pem: &str| {
        let conf = conf(&[("security.protocol", "SSL"), ("ssl.certificate.pem", pem)]);
        let mut text = [0; 512];
        let rk = unsafe { rd_kafka_new(RD_KAFKA_PRODUCER, conf, text.as_mut_ptr(), text.len()) };
        let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned();
        if rk.is_null() {
            unsafe { rd_kafka_conf_destroy(conf) };
            return Err(text);
        }
        unsafe { rd_kafka_destroy(rk) };
        Ok(())
    };
    assert_eq!(create(&certificate), Ok(()));
    let refused = create(&malformed).unwrap_err();
    assert!(refused.contains("error reading certificate chain, certificate 2 of 2: error: "), "{refused}");
    let conf = rd_kafka_conf_new();
    let pem = malformed.as_bytes();
    let refused = try_give(conf, RD_KAFKA_CERT_PUBLIC_KEY, RD_KAFKA_CERT_ENC_PEM, pem).unwrap_err();
    assert!(refused.contains("certificate 2 of 2"), "{refused}");
    unsafe { rd_kafka_conf_destroy(conf) };
}

/// OpenSSL marks no certificate as trusted: of those beside our own, only its issuers were taken, and our own was trusted, too.
#[test]
fn the_authorities_of_a_keystore_are_its_certificates_without_our_own() {
    let (issuer, authority) = (Authority::new("issuer"), Authority::new("authority"));
    let ours = issuer.sign(&["client.test"]);
    let key = PrivateKeyDer::from_pem_slice(ours.key_pem.as_bytes()).unwrap();
    let other = CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap();
    let seen = Arc::<Seen>::default();
    let port = far_end(&authority.sign(&["127.0.0.1"]), None, &seen);
    let conf = client(port, &seen, None);
    set_password(conf);
    let alone = keystore(&ours, key.secret_der(), &[]);
    let refused = try_give(conf, RD_KAFKA_CERT_CA, RD_KAFKA_CERT_ENC_PKCS12, &alone).unwrap_err();
    assert!(refused.contains("the keystore has nothing for it"), "{refused}");
    let with_other = keystore(&ours, key.secret_der(), &[other]);
    give(conf, RD_KAFKA_CERT_CA, RD_KAFKA_CERT_ENC_PKCS12, &with_other);
    let rk = new(RD_KAFKA_PRODUCER, conf);
    until_seen(rk, &seen, "handshake done");
    unsafe { rd_kafka_destroy(rk) };
}

/// The certificates of the file were trusted in addition to those from memory. The original refuses that, and so did this library before
/// it trusted `ssl.ca.location` and `ssl.ca.pem` together.
#[test]
fn authorities_from_memory_exclude_those_of_a_file() {
    let (authority, other) = (Authority::new("authority"), Authority::new("other"));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &other.pem).unwrap();
    let seen = Arc::<Seen>::default();
    let conf = client(1, &seen, Some(&authority.pem));
    let path = CString::new(file.path().to_str().unwrap()).unwrap();
    let mut errstr = [0; 256];
    unsafe {
        let set =
            rd_kafka_conf_set(conf, c"ssl.ca.location".as_ptr(), path.as_ptr(), std::ptr::null_mut(), 0);
        assert_eq!(set, RD_KAFKA_CONF_OK);
        assert!(rd_kafka_new(RD_KAFKA_PRODUCER, conf, errstr.as_mut_ptr(), errstr.len()).is_null());
        let refusal = CStr::from_ptr(errstr.as_ptr()).to_str().unwrap();
        assert!(refusal.contains("memory-based set_ssl_cert(CERT_CA) are mutually exclusive"), "{refusal}");
        // A text in their place is no contradiction.
        let pem = CString::new(&*authority.pem).unwrap();
        let set = rd_kafka_conf_set(conf, c"ssl.ca.pem".as_ptr(), pem.as_ptr(), std::ptr::null_mut(), 0);
        assert_eq!(set, RD_KAFKA_CONF_OK);
        let rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, std::ptr::null_mut(), 0);
        assert!(!rk.is_null());
        rd_kafka_destroy(rk);
    }
}

const PASSWORD: &CStr = c"swordfish";

fn set_password(conf: *mut rd_kafka_conf_t) {
    let (name, password) = (c"ssl.key.password".as_ptr(), PASSWORD.as_ptr());
    let set = unsafe { rd_kafka_conf_set(conf, name, password, std::ptr::null_mut(), 0) };
    assert_eq!(set, RD_KAFKA_CONF_OK);
}

fn keystore(certificate: &Certificate, key: &[u8], others: &[CertificateDer<'_>]) -> Vec<u8> {
    use p12_keystore::{KeyStore, KeyStoreEntry, PrivateKey, PrivateKeyChain};
    let leaf = p12_keystore::Certificate::from_der(&certificate.der).unwrap();
    let others = others.iter().map(|der| p12_keystore::Certificate::from_der(der).unwrap());
    let certificates: Vec<_> = std::iter::once(leaf).chain(others).collect();
    let mut store = KeyStore::new();
    let chain = PrivateKeyChain::new("1", PrivateKey::from_der(key).unwrap(), certificates);
    store.add_entry("client", KeyStoreEntry::PrivateKeyChain(chain));
    store.writer(PASSWORD.to_str().unwrap()).write().unwrap()
}
