//! Certificates of listeners that change while the broker runs (KIP-226). Each node has its own.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use ottla_broker::{Broker, BrokerThread, Listener};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::certificates::{Authority, Certificate};
use crate::common::Raw;
use crate::configs::{BROKER, DELETE, SET, alter, altered, one};
use crate::security::{PATIENCE, any_port, tls};

const CHAIN: &str = "listener.name.secure.ssl.keystore.certificate.chain";
const KEY: &str = "listener.name.secure.ssl.keystore.key";
const LOCATION: &str = "listener.name.secure.ssl.keystore.location";

/// Two nodes, each with a listener in plaintext and one with this certificate.
fn start(disk: &MemStorage, certificate: &Certificate) -> (BrokerThread, Raw) {
    let plain = Listener::new("PLAIN", any_port());
    let secure = Listener::new("SECURE", any_port()).tls(tls(certificate));
    let builder = Broker::builder().storage(Arc::new(disk.clone())).nodes(2);
    let broker = builder.listener(plain).listener(secure).spawn().expect("a broker");
    let connection = Raw::connect(broker.addresses()[0]);
    (broker, connection)
}

/// The certificates that the nodes present.
fn presented(broker: &BrokerThread, authority: &Authority) -> Vec<Vec<u8>> {
    let addresses = broker.bootstrap_servers_of("SECURE").expect("a listener");
    let addresses = addresses.split(',').map(|address| address.parse().expect("an address"));
    addresses.map(|address| certificate_of(address, authority)).collect()
}

fn certificate_of(address: SocketAddr, authority: &Authority) -> Vec<u8> {
    let mut roots = RootCertStore::empty();
    let trusted = CertificateDer::from_pem_slice(authority.pem.as_bytes()).expect("a certificate");
    roots.add(trusted).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let client = builder.expect("versions").with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("127.0.0.1").expect("an address");
    let mut session = ClientConnection::new(Arc::new(client), name).expect("a session");
    let mut stream = TcpStream::connect(address).expect("the broker listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    while session.is_handshaking() {
        session.complete_io(&mut stream).expect("a handshake");
    }
    session.peer_certificates().expect("a certificate")[0].to_vec()
}

/// Another certificate needed a restart: properties of one listener were refused, and those of all listeners had no effect.
#[test]
fn a_node_gets_a_certificate_of_its_own_while_it_runs() {
    let authority = Authority::new("authority");
    let (first, own) = (authority.sign(&["127.0.0.1"]), authority.sign(&["127.0.0.1"]));
    let disk = MemStorage::new();
    let (broker, mut connection) = start(&disk, &first);
    altered(&mut connection, BROKER, "2", &[(SET, CHAIN, &*own.pem), (SET, KEY, &*own.key_pem)]);
    assert_eq!(presented(&broker, &authority), [first.der.clone(), own.der.clone()]);
    let key = one(&mut connection, BROKER, "2", KEY);
    assert_eq!((key.value, key.is_sensitive, key.config_source), (None, true, 2));
    assert!(key.synonyms.iter().all(|synonym| synonym.value.is_none()), "{:?}", key.synonyms);
    drop(broker);
    let (broker, mut connection) = start(&disk, &first);
    assert_eq!(presented(&broker, &authority), [first.der.clone(), own.der.clone()], "after a restart");
    altered(&mut connection, BROKER, "2", &[(DELETE, CHAIN, ""), (DELETE, KEY, "")]);
    assert_eq!(presented(&broker, &authority), [first.der.clone(), first.der.clone()]);
}

#[test]
fn certificates_that_cannot_be_used_are_refused_and_the_old_ones_stay() {
    let authority = Authority::new("authority");
    let (first, other) = (authority.sign(&["127.0.0.1"]), authority.sign(&["127.0.0.1"]));
    let (broker, mut connection) = start(&MemStorage::new(), &first);
    let directory = std::env::temp_dir().display().to_string();
    for (node, name, value, reason) in [
        ("1", KEY, &*other.key_pem, "the certificate and the private key cannot be used"),
        ("1", LOCATION, "/no/such/file.pem", "/no/such/file.pem"),
        ("1", LOCATION, &*directory, "not a file"),
        ("1", "listener.name.secure.ssl.keystore.type", "PKCS12", "reads PEM"),
        (
            "1",
            "listener.name.secure.ssl.truststore.certificates",
            &*authority.pem,
            "Cannot add SSL truststore",
        ),
        (
            "1",
            "listener.name.secure.ssl.client.auth",
            "required",
            "for existing listener ListenerName(SECURE)",
        ),
        ("1", "listener.name.secure.ssl.client.auth", "perhaps", "ssl.client.auth"),
        ("1", "ssl.keystore.location", "/server.pem", "only per-listener using the listener prefix"),
        ("", LOCATION, "/server.pem", "broker id must be specified"),
    ] {
        let (code, text) = alter(&mut connection, BROKER, node, &[(SET, name, value)]);
        assert_eq!(code, ErrorCode::InvalidRequest, "{name}: {text}");
        assert!(text.contains(reason), "{name}: {text}");
    }
    assert_eq!(presented(&broker, &authority), [first.der.clone(), first.der.clone()]);
}

/// As in Apache Kafka, where the listener may be added at the next start.
#[test]
fn properties_of_a_listener_that_does_not_exist_are_stored_and_described() {
    const KIND: &str = "listener.name.internal.ssl.truststore.type";
    let certificate = Authority::new("authority").sign(&["127.0.0.1"]);
    let (_broker, mut connection) = start(&MemStorage::new(), &certificate);
    altered(&mut connection, BROKER, "1", &[(SET, KIND, "PKCS12")]);
    let described = one(&mut connection, BROKER, "1", KIND);
    assert_eq!((described.value.as_deref(), described.config_source), (Some("PKCS12"), 2));
    assert!(described.read_only && !described.is_sensitive, "as in Apache Kafka");
    let synonyms = described.synonyms.iter();
    let synonyms: Vec<_> =
        synonyms.map(|one| (&*one.name, one.value.as_deref().unwrap_or_default(), one.source)).collect();
    assert_eq!(synonyms, [(KIND, "PKCS12", 2), ("ssl.truststore.type", "JKS", 5)]);
    let names: Vec<String> = (0..=100).map(|n| format!("listener.name.l{n}.ssl.keystore.type")).collect();
    let many: Vec<(i8, &str, &str)> = names.iter().map(|name| (SET, name.as_str(), "PEM")).collect();
    let (code, reason) = alter(&mut connection, BROKER, "2", &many);
    assert_eq!(code, ErrorCode::PolicyViolation, "{reason}");
}
