//! TLS in front of the embedded broker: trusted certificates, error messages, and the cost of a request.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ottla_broker::{Broker, BrokerThread, Listener, Pem, TlsSettings};
use ottla_client::{
    CertificateProblem, CertificateVerifier, Client, Config, Connecting, Connector, Error, Io, Record,
    Secret, SecurityProtocol,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use crate::certificates::{Authority, Certificate};
use crate::counted::{Counted, Tally};

const NAMES: [&str; 2] = ["broker.test", "127.0.0.1"];

/// In-memory connections to a TLS server in front of a broker, or to a peer without TLS.
#[derive(Clone)]
struct Front {
    far_end: FarEnd,
    tally: Arc<Tally>,
}

#[derive(Clone)]
enum FarEnd {
    Tls(TlsAcceptor, SocketAddr),
    Plaintext(SocketAddr),
    Http,
}

impl Connector for Front {
    fn connect<'a>(&'a self, _: &'a str, _: u16) -> Connecting<'a> {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        let far_end = self.far_end.clone();
        tokio::spawn(async move {
            match far_end {
                FarEnd::Tls(acceptor, broker) => {
                    let mut tls = acceptor.accept(theirs).await?;
                    let mut tcp = TcpStream::connect(broker).await?;
                    tokio::io::copy_bidirectional(&mut tls, &mut tcp).await?;
                }
                FarEnd::Plaintext(broker) => {
                    let mut tcp = TcpStream::connect(broker).await?;
                    tokio::io::copy_bidirectional(&mut theirs, &mut tcp).await?;
                }
                FarEnd::Http => theirs.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await?,
            }
            io::Result::Ok(())
        });
        let io = Counted::new(ours, &self.tally);
        Box::pin(async move { Ok(Box::new(io) as Box<dyn Io>) })
    }
}

fn broker() -> (BrokerThread, SocketAddr) {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let address = broker.bootstrap_servers().parse().expect("one address");
    (broker, address)
}

/// A server with this certificate, which requires a client certificate of `clients` if given.
fn server(certificate: &Certificate, clients: Option<&Authority>) -> TlsAcceptor {
    server_of(rustls::crypto::ring::default_provider(), certificate, clients)
}

fn server_of(
    provider: CryptoProvider,
    certificate: &Certificate,
    clients: Option<&Authority>,
) -> TlsAcceptor {
    let provider = Arc::new(provider);
    let chain = vec![CertificateDer::from(certificate.der.clone())];
    let key = PrivateKeyDer::from_pem_slice(certificate.key_pem.as_bytes()).expect("a key");
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("versions");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            let root = CertificateDer::from_pem_slice(authority.pem.as_bytes()).expect("PEM");
            roots.add(root).expect("a certificate");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
        }
    };
    TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).expect("a pair")))
}

fn front(far_end: FarEnd) -> Front {
    Front { far_end, tally: Arc::default() }
}

fn config(host: &str, authority: &Authority) -> Config {
    let mut config = Config::new(format!("{host}:9093"));
    config.security.protocol = SecurityProtocol::Ssl;
    config.security.tls.ca_pem = Some(authority.pem.clone());
    config.socket_connection_setup_timeout = Duration::from_secs(10);
    config
}

/// The result of the first request to a cluster.
async fn first_call(config: Config, front: Front) -> Result<usize, Error> {
    let client = Client::with_connector(config, Arc::new(front))?;
    client.admin().describe_cluster().await.map(|cluster| cluster.brokers.len())
}

#[track_caller]
fn assert_tls(result: Result<usize, Error>, part: &str) {
    match result {
        Err(error @ Error::Tls { .. }) if error.to_string().contains(part) => {}
        other => panic!("expected a TLS error with `{part}`, got {other:?}"),
    }
}

#[tokio::test]
async fn a_small_request_is_one_write_and_one_record() {
    let (_broker, address) = broker();
    let authority = Authority::new("authority");
    let front = front(FarEnd::Tls(server(&authority.sign(&NAMES), None), address));
    let tally = front.tally.clone();
    let client =
        Client::with_connector(config("broker.test", &authority), Arc::new(front)).expect("a client");
    let producer = client.producer();
    let send = async |value: &[u8]| {
        let record = Record::to("orders").partition(0).value(value);
        producer.send(record).await.expect("written");
    };
    send(b"the first finds its way").await;
    let before = tally.writes_and_records();
    for _ in 0..10 {
        send(&[7; 100]).await;
    }
    let after = tally.writes_and_records();
    assert_eq!((after.0 - before.0, after.1 - before.1), (10, 10));
    // Data larger than one TLS record takes as many records as it needs, and no more writes than records.
    send(&vec![7; 100_000]).await;
    let (writes, records) = tally.writes_and_records();
    assert_eq!(records - after.1, 100_100_usize.div_ceil(16 << 10));
    assert!(writes - after.0 <= records - after.1);
}

#[tokio::test]
async fn every_refusal_says_what_is_wrong() {
    let (_broker, address) = broker();
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    let good = FarEnd::Tls(server(&authority.sign(&NAMES), None), address);
    assert_eq!(first_call(config("broker.test", &authority), front(good.clone())).await.expect("trusted"), 1);

    assert_tls(first_call(config("other.test", &authority), front(good.clone())).await, "for another host");
    assert_tls(first_call(config("broker.test", &stranger), front(good.clone())).await, "not trusted");
    let expired = FarEnd::Tls(server(&authority.sign_until(&NAMES, 2020), None), address);
    assert_tls(first_call(config("broker.test", &authority), front(expired)).await, "has expired");

    let plaintext = front(FarEnd::Plaintext(address));
    assert_tls(first_call(config("broker.test", &authority), plaintext).await, "plaintext listener");
    let mut without_tls = config("broker.test", &authority);
    without_tls.security.protocol = SecurityProtocol::Plaintext;
    assert_tls(first_call(without_tls.clone(), front(good)).await, "the peer speaks TLS");
    let error = first_call(without_tls, front(FarEnd::Http)).await.expect_err("no broker").to_string();
    assert!(error.contains("HTTP server"), "{error}");
}

#[tokio::test]
async fn only_the_named_suites_and_curves_are_offered() {
    let (_broker, address) = broker();
    let authority = Authority::new("authority");
    let certificate = authority.sign(&NAMES);
    let server_with = |provider| FarEnd::Tls(server_of(provider, &certificate, None), address);
    let one_suite = |suite| {
        let mut provider = rustls::crypto::ring::default_provider();
        provider.cipher_suites.retain(|offered| offered.suite() == suite);
        server_with(provider)
    };
    let tls_1_2 = one_suite(rustls::CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256);
    let tls_1_3 = one_suite(rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    for (suites, takes_1_2, takes_1_3) in [
        ("", true, true),
        ("TLS_AES_128_GCM_SHA256", false, true),
        // OpenSSL's list has no suites of TLS 1.3: brokers with TLS 1.3 only were out of reach.
        ("ECDHE-ECDSA-AES128-GCM-SHA256", true, true),
        ("ECDHE-ECDSA-AES128-GCM-SHA256:TLS_AES_256_GCM_SHA384", true, false),
        ("ECDHE-ECDSA-AES128-GCM-SHA256:TLS_AES_128_GCM_SHA256", true, true),
        ("TLS_AES_256_GCM_SHA384", false, false),
    ] {
        let mut config = config("broker.test", &authority);
        config.set("ssl.cipher.suites", suites).expect("known names");
        for (far_end, takes) in [(&tls_1_2, takes_1_2), (&tls_1_3, takes_1_3)] {
            let result = first_call(config.clone(), front(far_end.clone())).await;
            if takes {
                result.expect("a suite in common");
            } else {
                assert_tls(result, "no TLS version or cipher suite");
            }
        }
    }
    let mut only_p384 = rustls::crypto::ring::default_provider();
    only_p384.kx_groups.retain(|group| group.name() == rustls::NamedGroup::secp384r1);
    let far_end = server_with(only_p384);
    let mut config = config("broker.test", &authority);
    // OpenSSL has P-521, too: a list with it was refused.
    config.set("ssl.curves.list", "P-521:X25519:P-384").expect("known names");
    first_call(config.clone(), front(far_end.clone())).await.expect("a group in common");
    config.set("ssl.curves.list", "X25519").expect("a known name");
    assert_tls(first_call(config.clone(), front(far_end)).await, "no TLS version or cipher suite");

    let error = config.set("ssl.cipher.suites", "RC4-SHA").expect_err("not safe").to_string();
    assert!(error.contains("RC4-SHA") && error.contains("ECDHE-RSA-AES128-GCM-SHA256"), "{error}");
    let error = config.set("ssl.curves.list", "P-999").expect_err("unknown").to_string();
    assert!(error.contains("P-999") && error.contains("X25519, P-256, P-384"), "{error}");
}

/// A list of signature algorithms was refused.
#[tokio::test]
async fn only_the_named_signature_algorithms_are_offered() {
    let (_broker, address) = broker();
    let authority = Authority::new("authority");
    let far_end = FarEnd::Tls(server(&authority.sign(&NAMES), None), address);
    let mut config = config("broker.test", &authority);
    for (list, takes) in [
        ("ECDSA+SHA256", true),
        ("RSA+SHA1:ecdsa_secp256r1_sha256", true),
        ("RSA-PSS+SHA256:RSA+SHA256", false),
        ("", true),
    ] {
        config.set("ssl.sigalgs.list", list).expect("known names");
        for verifies in [true, false] {
            config.security.tls.verify_certificates = verifies;
            let result = first_call(config.clone(), front(far_end.clone())).await;
            if takes {
                result.expect("the certificate's algorithm is in the list");
            } else {
                assert_tls(result, "");
            }
        }
    }
}

#[tokio::test]
async fn checks_that_are_switched_off_are_off() {
    let (_broker, address) = broker();
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    let far_end = FarEnd::Tls(server(&authority.sign(&["elsewhere.test"]), None), address);
    let mut any_name = config("broker.test", &authority);
    any_name.security.tls.endpoint_identification = false;
    first_call(any_name.clone(), front(far_end.clone())).await.expect("any name will do");
    any_name.security.tls.ca_pem = Some(stranger.pem.clone());
    assert_tls(first_call(any_name, front(far_end.clone())).await, "not trusted");
    let mut anyone = config("broker.test", &stranger);
    anyone.security.tls.verify_certificates = false;
    first_call(anyone, front(far_end)).await.expect("anyone will do");
}

/// `openssl x509 -req` makes certificates of X.509 version 1, without a list of names, unless it gets extensions. OpenSSL's clients take
/// them; ours could reach no such broker, whatever checks were off.
#[tokio::test]
async fn a_broker_with_a_certificate_of_version_1_is_reached_without_a_check_of_its_name() {
    let (certificate, key) =
        (include_str!("data/version_1_certificate.pem"), include_str!("data/version_1_key.pem"));
    let tls = TlsSettings::new(Pem::Text(certificate.into()), Pem::Text(key.into()));
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let broker = Broker::builder()
        .memory()
        .listener(Listener::new("PLAIN", any_port))
        .listener(Listener::new("SECURE", any_port).tls(tls))
        .spawn()
        .expect("a broker in memory");
    let stranger = Authority::new("stranger");
    let connects = async |name: &str, value: &str, trusted: &str| {
        let mut config = Config::new(broker.bootstrap_servers_of("SECURE").expect("the listener"));
        config.security.protocol = SecurityProtocol::Ssl;
        config.security.tls.ca_pem = Some(trusted.to_owned());
        config.set(name, value).expect("a property");
        let client = Client::new(config).expect("a client");
        client.admin().describe_cluster().await.map(|cluster| cluster.brokers.len())
    };
    let authority = include_str!("data/version_1_authority.pem");
    let (identification, verification) =
        ("ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification");
    assert_eq!(connects(identification, "none", authority).await.expect("its authority is trusted"), 1);
    assert_eq!(connects(verification, "false", &stranger.pem).await.expect("nothing is verified"), 1);
    assert_tls(connects(identification, "none", &stranger.pem).await, "not trusted");
    assert_tls(connects(identification, "https", authority).await, "not of X.509 version 3");
}

/// A client with such a certificate of its own was not created.
#[test]
fn our_own_certificate_may_be_of_version_1() {
    let mut config = config("broker.test", &Authority::new("authority"));
    config.security.tls.certificate_pem = Some(include_str!("data/version_1_certificate.pem").into());
    config.security.tls.key_pem = Some(include_str!("data/version_1_key.pem").into());
    Client::new(config).map(|_| ()).expect("its key is the right one");
}

#[tokio::test]
async fn a_judge_has_the_last_word_on_certificates() {
    let (_broker, address) = broker();
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    let far_end = FarEnd::Tls(server(&authority.sign(&NAMES), None), address);
    let seen = Arc::<Mutex<Vec<Option<CertificateProblem>>>>::default();
    let judged = |trusted: &Authority, verdict: Result<(), String>| {
        let (mut config, seen) = (config("broker.test", trusted), seen.clone());
        config.security.tls.certificate_verifier = Some(CertificateVerifier::new(move |presented| {
            assert_eq!((presented.host, presented.depth), ("broker.test", 0));
            seen.lock().expect("not poisoned").push(presented.problem);
            verdict.clone()
        }));
        config
    };
    first_call(judged(&authority, Ok(())), front(far_end.clone())).await.expect("trusted twice");
    first_call(judged(&stranger, Ok(())), front(far_end.clone())).await.expect("the judge takes it");
    let refused = judged(&authority, Err("not of ours".into()));
    assert_tls(first_call(refused, front(far_end.clone())).await, "not of ours");
    let mut unasked = judged(&stranger, Err("never asked".into()));
    unasked.security.tls.verify_certificates = false;
    first_call(unasked, front(far_end)).await.expect("nothing is verified");
    let seen = seen.lock().expect("not poisoned");
    assert!(seen.contains(&Some(CertificateProblem::UnknownIssuer)) && seen.contains(&None), "{seen:?}");
}

/// Connections that the test breaks.
struct Breakable {
    front: Front,
    open: Mutex<Vec<AbortHandle>>,
}

impl Breakable {
    fn break_all(&self) {
        for connection in self.open.lock().expect("not poisoned").drain(..) {
            connection.abort();
        }
    }
}

impl Connector for Breakable {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a> {
        Box::pin(async move {
            let mut inner = self.front.connect(host, port).await?;
            let (ours, mut theirs) = tokio::io::duplex(1 << 20);
            let copying =
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut theirs, &mut inner).await });
            self.open.lock().expect("not poisoned").push(copying.abort_handle());
            Ok(Box::new(ours) as Box<dyn Io>)
        })
    }
}

/// The application was asked once for each name of a broker: later connections resumed its TLS session.
#[tokio::test]
async fn a_judge_is_asked_for_each_connection() {
    let (_broker, address) = broker();
    let authority = Authority::new("authority");
    let far_end = FarEnd::Tls(server(&authority.sign(&NAMES), None), address);
    let asked = Arc::<AtomicUsize>::default();
    let (mut config, counted) = (config("broker.test", &authority), asked.clone());
    config.security.tls.certificate_verifier = Some(CertificateVerifier::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }));
    let breakable = Arc::new(Breakable { front: front(far_end), open: Mutex::default() });
    let client = Client::with_connector(config, breakable.clone()).expect("a client");
    let admin = client.admin();
    let reconnecting = async {
        // More connections than the broker has names.
        while asked.load(Ordering::Relaxed) < 5 {
            // It fails if its connection breaks too early.
            let _ = admin.describe_cluster().await;
            breakable.break_all();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reconnecting).await.expect("each connection is verified");
}

#[tokio::test]
async fn a_client_certificate_comes_from_pem_an_encrypted_key_or_a_keystore() {
    let (_broker, address) = broker();
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    let far_end = FarEnd::Tls(server(&authority.sign(&NAMES), Some(&authority)), address);
    let ours = authority.sign(&["client.test"]);
    let without = config("broker.test", &authority);
    assert_tls(first_call(without.clone(), front(far_end.clone())).await, "requires a client certificate");

    let mut with_pem = without.clone();
    with_pem.security.tls.certificate_pem = Some(ours.pem.clone());
    with_pem.security.tls.key_pem = Some(ours.key_pem.clone().into());
    first_call(with_pem.clone(), front(far_end.clone())).await.expect("known");

    let mut encrypted = with_pem.clone();
    encrypted.security.tls.key_pem = Some(encrypted_key(&ours, "swordfish").into());
    encrypted.security.tls.key_password = Some(Secret::new("swordfish"));
    first_call(encrypted.clone(), front(far_end.clone())).await.expect("decrypted");
    encrypted.security.tls.key_password = Some(Secret::new("marlin"));
    let error = first_call(encrypted.clone(), front(far_end.clone())).await.expect_err("wrong password");
    assert!(error.to_string().contains("cannot be decrypted with ssl.key.password"), "{error}");
    encrypted.security.tls.key_password = None;
    let error = first_call(encrypted, front(far_end.clone())).await.expect_err("no password");
    assert!(error.to_string().contains("ssl.key.password is not set"), "{error}");

    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("client.p12");
    std::fs::write(&path, keystore(&ours, "swordfish")).expect("written");
    let mut with_keystore = without;
    with_keystore.security.tls.keystore_location = Some(path);
    with_keystore.security.tls.keystore_password = Some(Secret::new("swordfish"));
    first_call(with_keystore.clone(), front(far_end.clone())).await.expect("known");
    with_keystore.security.tls.keystore_password = Some(Secret::new("marlin"));
    let error = first_call(with_keystore, front(far_end.clone())).await.expect_err("wrong password");
    assert!(error.to_string().contains("ssl.keystore.password is wrong"), "{error}");

    let unknown = stranger.sign(&["client.test"]);
    with_pem.security.tls.certificate_pem = Some(unknown.pem);
    with_pem.security.tls.key_pem = Some(unknown.key_pem.into());
    assert_tls(first_call(with_pem, front(far_end)).await, "refuses our client certificate");
}

#[tokio::test]
async fn a_client_certificate_comes_from_files() {
    let (_broker, address) = broker();
    let authority = Authority::new("authority");
    let far_end = FarEnd::Tls(server(&authority.sign(&NAMES), Some(&authority)), address);
    let ours = authority.sign(&["client.test"]);
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = config("broker.test", &authority);
    let files = [("ssl.certificate.location", &ours.pem), ("ssl.key.location", &ours.key_pem)];
    for (name, pem) in files {
        let path = dir.path().join(name);
        std::fs::write(&path, pem).expect("written");
        config.set(name, path.to_str().expect("a path")).expect("known");
    }
    first_call(config.clone(), front(far_end.clone())).await.expect("known");
    config.set("ssl.key.location", "/nowhere/key.pem").expect("known");
    let error = first_call(config, front(far_end)).await.expect_err("no such file").to_string();
    assert!(error.contains("ssl.key.location: /nowhere/key.pem"), "{error}");
}

#[tokio::test]
async fn a_revoked_certificate_is_refused() {
    let (_broker, address) = broker();
    let authority = Authority::new("authority");
    let (revoked, list) = authority.sign_and_revoke(&NAMES, 17);
    let far_end = FarEnd::Tls(server(&revoked, None), address);
    let other = FarEnd::Tls(server(&authority.sign(&NAMES), None), address);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("revoked.pem");
    std::fs::write(&path, list).expect("written");
    let mut config = config("broker.test", &authority);
    first_call(config.clone(), front(far_end.clone())).await.expect("nobody looks");
    config.set("ssl.crl.location", path.to_str().expect("a path")).expect("known");
    assert_tls(first_call(config.clone(), front(far_end)).await, "revoked (ssl.crl.location)");
    first_call(config, front(other)).await.expect("another one is good");
}

/// A certificate that no list covered was let through, and the lists never expired.
#[tokio::test]
async fn a_certificate_without_a_current_revocation_list_is_refused() {
    let (_broker, address) = broker();
    let (authority, other) = (Authority::new("authority"), Authority::new("other"));
    let far_end = FarEnd::Tls(server(&authority.sign(&NAMES), None), address);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("revoked.pem");
    let mut config = config("broker.test", &authority);
    config.set("ssl.crl.location", path.to_str().expect("a path")).expect("known");
    for (list, part) in [
        (other.revoke_until(17, 2100), "no revocation list covers"),
        (authority.revoke_until(17, 2002), "has expired"),
    ] {
        std::fs::write(&path, list).expect("written");
        assert_tls(first_call(config.clone(), front(far_end.clone())).await, part);
    }
    std::fs::write(&path, authority.revoke_until(17, 2100)).expect("written");
    first_call(config, front(far_end)).await.expect("the list is current, and does not name it");
}

#[tokio::test]
async fn certificates_are_read_again_when_they_have_changed() {
    let (_broker, address) = broker();
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    let far_end = FarEnd::Tls(server(&authority.sign(&NAMES), None), address);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ca.pem");
    std::fs::write(&path, &stranger.pem).expect("written");
    let mut config = config("broker.test", &authority);
    config.security.tls.ca_pem = None;
    config.security.tls.ca_location = Some(path.clone());
    let client = Client::with_connector(config, Arc::new(front(far_end))).expect("a client");
    let admin = client.admin();
    assert_tls(admin.describe_cluster().await.map(|_| 0), "not trusted");
    // An incomplete file does no harm.
    std::fs::write(&path, "-----BEGIN CERTIFICATE-----\n").expect("written");
    assert_tls(admin.describe_cluster().await.map(|_| 0), "not trusted");
    std::fs::write(&path, format!("{}{}", stranger.pem, authority.pem)).expect("written");
    admin.describe_cluster().await.expect("trusted now");
}

/// The time of a directory does not change with the content of its files.
#[tokio::test]
async fn a_certificate_that_is_replaced_in_a_directory_is_read_again() {
    let (_broker, address) = broker();
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    let far_end = FarEnd::Tls(server(&authority.sign(&NAMES), None), address);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ca.pem");
    std::fs::write(&path, &stranger.pem).expect("written");
    let mut config = config("broker.test", &authority);
    config.security.tls.ca_pem = None;
    config.security.tls.ca_location = Some(dir.path().to_owned());
    let client = Client::with_connector(config, Arc::new(front(far_end))).expect("a client");
    let admin = client.admin();
    assert_tls(admin.describe_cluster().await.map(|_| 0), "not trusted");
    std::fs::write(&path, format!("{}{}", stranger.pem, authority.pem)).expect("written");
    admin.describe_cluster().await.expect("trusted now");
}

/// librdkafka trusts both. No client was created with both properties.
#[tokio::test]
async fn the_authorities_of_a_file_and_of_a_text_are_trusted_together() {
    let (_broker, address) = broker();
    let (authority, other) = (Authority::new("authority"), Authority::new("other"));
    let far_end = FarEnd::Tls(server(&authority.sign(&NAMES), None), address);
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, trusted: &Authority| {
        let path = dir.path().join(name);
        std::fs::write(&path, &trusted.pem).expect("written");
        path
    };
    let (of_other, of_ours) = (file("other.pem", &other), file("ca.pem", &authority));
    for (location, of_text) in [(of_other, &authority), ("probe".into(), &authority), (of_ours, &other)] {
        let mut config = config("broker.test", of_text);
        config.security.tls.ca_location = Some(location);
        first_call(config, front(far_end.clone())).await.expect("one of the two is trusted");
    }
}

#[test]
fn contradictions_and_missing_halves_are_named() {
    let authority = Authority::new("authority");
    let ours = authority.sign(&["client.test"]);
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut config = config("broker.test", &authority);
        change(&mut config);
        Client::new(config).map(|_| ()).expect_err("refused").to_string()
    };
    let both = refused(&|config| {
        config.security.tls.key_location = Some("key.pem".into());
        config.security.tls.key_pem = Some(ours.key_pem.clone().into());
    });
    assert!(both.contains("ssl.key.location and ssl.key.pem are both set"), "{both}");
    let both = refused(&|config| {
        config.security.protocol = SecurityProtocol::Plaintext;
        config.security.sasl.oauthbearer.https_ca_location = Some("ca.pem".into());
        config.security.sasl.oauthbearer.https_ca_pem = Some(authority.pem.clone());
    });
    assert!(both.contains("https.ca.location and https.ca.pem are both set"), "{both}");
    let half = refused(&|config| config.security.tls.certificate_pem = Some(ours.pem.clone()));
    assert!(half.contains("set ssl.key.location"), "{half}");
    let no_pem = refused(&|config| config.security.tls.ca_pem = Some("hello".into()));
    assert!(no_pem.contains("ssl.ca.pem: no `BEGIN CERTIFICATE`"), "{no_pem}");
    let pair = refused(&|config| {
        config.security.tls.certificate_pem = Some(ours.pem.clone());
        config.security.tls.key_pem = Some(authority.sign(&["other.test"]).key_pem.into());
    });
    assert!(pair.contains("certificate and private key cannot be used"), "{pair}");
    let service = refused(&|config| {
        config.security.protocol = SecurityProtocol::SaslSsl;
        config.security.sasl.kerberos.service_name = String::new();
    });
    assert!(service.contains("sasl.mechanism=GSSAPI needs sasl.kerberos.service.name"), "{service}");
}

/// It was the name of a file, and no client was created with librdkafka's word for the standard paths.
#[test]
fn a_probe_of_the_standard_paths_finds_the_certificates_of_the_system() {
    let created = |location: Option<&str>| {
        let mut config = Config::new("broker.test:9093");
        config.security.protocol = SecurityProtocol::Ssl;
        if let Some(location) = location {
            config.set("ssl.ca.location", location).expect("a text");
        }
        Client::new(config).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(created(Some("probe")), created(None));
    let error = created(Some("/nowhere/probe")).expect_err("no such file");
    assert!(error.contains("ssl.ca.location: /nowhere/probe"), "{error}");
}

pub(crate) fn encrypted_key(certificate: &Certificate, password: &str) -> String {
    let der = PrivateKeyDer::from_pem_slice(certificate.key_pem.as_bytes()).expect("a key");
    let key = pkcs8::PrivateKeyInfoRef::try_from(der.secret_der()).expect("PKCS#8");
    let params = pkcs8::pkcs5::pbes2::Parameters::generate_pbkdf2_sha256_aes256cbc(2048, &[1; 16], [2; 16])
        .expect("parameters");
    let encrypted = key.encrypt_with_params(params, password).expect("encrypted");
    encrypted.to_pem("ENCRYPTED PRIVATE KEY", pkcs8::LineEnding::LF).expect("PEM").to_string()
}

fn keystore(certificate: &Certificate, password: &str) -> Vec<u8> {
    use p12_keystore::{KeyStore, KeyStoreEntry, PrivateKey, PrivateKeyChain};
    let der = PrivateKeyDer::from_pem_slice(certificate.key_pem.as_bytes()).expect("a key");
    let key = PrivateKey::from_der(der.secret_der()).expect("a key");
    let leaf = p12_keystore::Certificate::from_der(&certificate.der).expect("a certificate");
    let mut store = KeyStore::new();
    let chain = PrivateKeyChain::new("1", key, [leaf]);
    store.add_entry("client", KeyStoreEntry::PrivateKeyChain(chain));
    store.writer(password).write().expect("written")
}
