//! Listeners with TLS and SASL: who gets in, who does not, and what a hostile client can do before it has logged in.

#![allow(dead_code, reason = "the shared helpers serve several stories")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

#[path = "../../client/tests/support/certificates.rs"]
pub(crate) mod certificates;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use certificates::{Authority, Certificate};
use ottla_broker::{
    Broker, BrokerThread, ClientAuth, Listener, Password, Pem, PrincipalRules, SaslMechanism, SaslSettings,
    TlsSettings,
};
use ottla_client::{
    Admin, Config, Error, Mechanism, Producer, Record, ScramChange, ScramMechanism, Secret, SecurityProtocol,
    Timeouts,
};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::api_versions::ApiVersionsRequest;
use ottla_protocol::messages::create_delegation_token::CreateDelegationTokenRequest;
use ottla_protocol::messages::describe_delegation_token::DescribeDelegationTokenRequest;
use ottla_protocol::messages::metadata::MetadataRequest;
use ottla_protocol::messages::sasl_authenticate::SaslAuthenticateRequest;
use ottla_protocol::messages::sasl_handshake::SaslHandshakeRequest;

use crate::common::{Heard, Raw, framed, sized};

const PASSWORD: &str = "canary-password";
/// A deadline that only a defect exhausts.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn sasl() -> SaslSettings {
    SaslSettings::new([SaslMechanism::Plain, SaslMechanism::ScramSha256, SaslMechanism::ScramSha512])
        .user("alice", PASSWORD)
        .user("bob", "other")
}

pub(crate) fn tls(certificate: &Certificate) -> TlsSettings {
    let text = |pem: &str| Pem::Text(Password::from(pem));
    TlsSettings::new(text(&certificate.pem), text(&certificate.key_pem))
}

/// A broker with a plaintext listener and one with this security.
pub(crate) fn broker(listener: Listener) -> BrokerThread {
    let plain = Listener::new("PLAIN", any_port());
    Broker::builder().memory().topic("t", 1).listener(plain).listener(listener).spawn().expect("a broker")
}

pub(crate) fn address(broker: &BrokerThread, listener: &str) -> SocketAddr {
    broker.bootstrap_servers_of(listener).expect("a listener").parse().expect("one node")
}

pub(crate) fn config(
    broker: &BrokerThread,
    authority: Option<&Authority>,
    login: Option<(Mechanism, &str, &str)>,
) -> Config {
    let mut config = Config::new(broker.bootstrap_servers_of("SECURE").expect("the listener"));
    config.security.protocol = match (authority, login) {
        (Some(_), Some(_)) => SecurityProtocol::SaslSsl,
        (Some(_), None) => SecurityProtocol::Ssl,
        (None, _) => SecurityProtocol::SaslPlaintext,
    };
    config.security.tls.ca_pem = authority.map(|authority| authority.pem.clone());
    if let Some((mechanism, user, password)) = login {
        config.security.sasl.mechanism = Some(mechanism);
        config.security.sasl.username = Some(user.into());
        config.security.sasl.password = Some(Secret::new(password));
    }
    config
}

pub(crate) async fn gets_in(config: Config) {
    let producer = Producer::new(config).expect("a client");
    producer.send(Record::to("t").value("hello")).await.expect("written");
}

pub(crate) async fn refusal(config: Config) -> Error {
    let admin = Admin::new(config).expect("a client");
    admin.describe_cluster().await.expect_err("refused")
}

async fn add_scram_user(broker: &BrokerThread) {
    let admin = Admin::new(Config::new(broker.bootstrap_servers())).expect("a client");
    let changes = [ScramMechanism::Sha256, ScramMechanism::Sha512].map(|mechanism| ScramChange::Set {
        user: "alice".to_owned(),
        mechanism,
        iterations: 4096,
        password: Secret::new(PASSWORD),
        salt: None,
    });
    for change in changes {
        let results = admin.alter_scram_credentials(&[change], Timeouts::default()).await.expect("an answer");
        assert!(results.into_iter().all(|(_, result)| result.is_ok()));
    }
}

#[tokio::test]
async fn right_passwords_get_in_over_tls_and_wrong_ones_are_refused() {
    let authority = Authority::new("authority");
    let listener = Listener::new("SECURE", any_port()).tls(tls(&authority.sign(&["127.0.0.1"]))).sasl(sasl());
    let broker = broker(listener);
    add_scram_user(&broker).await;
    for mechanism in [Mechanism::Plain, Mechanism::ScramSha256, Mechanism::ScramSha512] {
        gets_in(config(&broker, Some(&authority), Some((mechanism, "alice", PASSWORD)))).await;
        for (user, password) in [("alice", "wrong"), ("nobody", PASSWORD)] {
            let error = refusal(config(&broker, Some(&authority), Some((mechanism, user, password)))).await;
            let text = error.to_string();
            assert!(matches!(error, Error::Authentication { .. }), "{error:?}");
            let expected = match mechanism {
                Mechanism::Plain => "Authentication failed: Invalid username or password".to_owned(),
                _ => format!(
                    "Authentication failed during authentication due to invalid credentials with SASL mechanism {}",
                    mechanism.name()
                ),
            };
            assert!(text.contains(&expected), "`{expected}`: {text}");
        }
    }
    let stranger = Authority::new("stranger");
    let error = refusal(config(&broker, Some(&stranger), Some((Mechanism::Plain, "alice", PASSWORD)))).await;
    assert!(matches!(error, Error::Tls { .. }), "{error:?}");
}

#[tokio::test]
async fn logins_and_failed_handshakes_are_counted() {
    let authority = Authority::new("authority");
    let listener = Listener::new("SECURE", any_port()).tls(tls(&authority.sign(&["127.0.0.1"]))).sasl(sasl());
    let broker = broker(listener);
    add_scram_user(&broker).await;
    let counted = |line: &str| {
        let text = broker.cluster().metrics_text(100);
        let line = text.lines().find_map(|found| found.strip_prefix(line)).map(str::trim);
        line.and_then(|value| value.parse::<u64>().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    assert_eq!(counted("ottla_logins_total{result=\"failure\"}"), 0);
    gets_in(config(&broker, Some(&authority), Some((Mechanism::ScramSha512, "alice", PASSWORD)))).await;
    refusal(config(&broker, Some(&authority), Some((Mechanism::Plain, "alice", "wrong")))).await;
    let stranger = Authority::new("stranger");
    refusal(config(&broker, Some(&stranger), Some((Mechanism::Plain, "alice", PASSWORD)))).await;
    assert!(counted("ottla_logins_total{result=\"success\"}") >= 1);
    assert!(counted("ottla_logins_total{result=\"failure\"}") >= 1);
    // The client ends the handshake, and the broker learns of it later.
    let began = Instant::now();
    while counted("ottla_tls_handshakes_failed_total") == 0 {
        assert!(began.elapsed() < PATIENCE, "no failed handshake is counted");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn each_listener_names_its_own_address() {
    let listener = Listener::new("SECURE", any_port()).advertise("localhost").sasl(sasl());
    let broker = broker(listener);
    let login = Some((Mechanism::Plain, "alice", PASSWORD));
    let secure = broker.bootstrap_servers_of("SECURE").expect("a listener");
    let plain = Admin::new(Config::new(broker.bootstrap_servers())).expect("a client");
    let admin = Admin::new(config(&broker, None, login)).expect("a client");
    for (admin, expected) in [(plain, broker.bootstrap_servers()), (admin, secure)] {
        let cluster = admin.describe_cluster().await.expect("an answer");
        let node = &cluster.brokers[0];
        assert_eq!(format!("{}:{}", node.host, node.port), expected);
    }
}

#[tokio::test]
async fn client_certificates_are_required_where_the_listener_says_so() {
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    let trusted = Pem::Text(authority.pem.as_str().into());
    let settings = tls(&authority.sign(&["127.0.0.1"])).client_certificates(ClientAuth::Required, trusted);
    let broker = broker(Listener::new("SECURE", any_port()).tls(settings));
    let with = |certificate: Option<Certificate>| {
        let mut config = config(&broker, Some(&authority), None);
        config.security.tls.certificate_pem = certificate.as_ref().map(|it| it.pem.clone());
        config.security.tls.key_pem = certificate.map(|it| Secret::new(it.key_pem));
        config
    };
    gets_in(with(Some(authority.sign(&["client"])))).await;
    for other in [None, Some(stranger.sign(&["client"]))] {
        let mut config = with(other);
        config.set("request.timeout.ms", "2000").expect("a property");
        refusal(config).await;
    }
}

/// Apache Kafka accepts such certificates, which `openssl x509 -req` makes without extensions. The handshake failed.
#[tokio::test]
async fn a_client_certificate_of_version_1_needs_the_signature_of_a_trusted_authority() {
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    let signed_by = include_str!("../../client/tests/data/version_1_authority.pem");
    for (trusted, is_trusted) in [(signed_by, true), (&*stranger.pem, false)] {
        let trusted = Pem::Text(trusted.into());
        let mut settings =
            tls(&authority.sign(&["127.0.0.1"])).client_certificates(ClientAuth::Required, trusted);
        settings.principal_rules = PrincipalRules::parse("RULE:^CN=(broker.test)$/$1/").expect("a rule");
        let broker = broker(Listener::new("SECURE", any_port()).tls(settings));
        let mut config = config(&broker, Some(&authority), None);
        let tls = &mut config.security.tls;
        tls.certificate_pem =
            Some(include_str!("../../client/tests/data/version_1_certificate.pem").to_owned());
        tls.key_pem = Some(Secret::new(include_str!("../../client/tests/data/version_1_key.pem")));
        if is_trusted {
            gets_in(config).await;
        } else {
            config.set("request.timeout.ms", "2000").expect("a property");
            refusal(config).await;
        }
    }
}

/// A login was refused if no rule matched the subject of the client's certificate, which names no user there.
#[tokio::test]
async fn rules_for_certificates_refuse_no_client_that_logs_in() {
    let authority = Authority::new("authority");
    let trusted = Pem::Text(authority.pem.as_str().into());
    let mut settings =
        tls(&authority.sign(&["127.0.0.1"])).client_certificates(ClientAuth::Required, trusted);
    settings.principal_rules = PrincipalRules::parse("RULE:^CN=other$/other/").expect("a rule");
    let client = authority.sign(&["client"]);
    let with = |broker: &BrokerThread, login| {
        let mut config = config(broker, Some(&authority), login);
        config.security.tls.certificate_pem = Some(client.pem.clone());
        config.security.tls.key_pem = Some(Secret::new(client.key_pem.clone()));
        config
    };
    let logins = broker(Listener::new("SECURE", any_port()).tls(settings.clone()).sasl(sasl()));
    gets_in(with(&logins, Some((Mechanism::Plain, "alice", PASSWORD)))).await;
    let certificates = broker(Listener::new("SECURE", any_port()).tls(settings));
    let mut without_login = with(&certificates, None);
    without_login.set("request.timeout.ms", "2000").expect("a property");
    refusal(without_login).await;
}

#[tokio::test]
async fn certificates_are_read_again_when_their_file_changes() {
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("server.pem");
    let write = |path: &Path, certificate: Certificate| {
        std::fs::write(path, certificate.pem + &certificate.key_pem + "\n").expect("written");
    };
    write(&path, first.sign(&["127.0.0.1"]));
    let file = Pem::File(path.clone());
    let broker = broker(Listener::new("SECURE", any_port()).tls(TlsSettings::new(file.clone(), file)));
    gets_in(config(&broker, Some(&first), None)).await;
    std::fs::write(&path, "neither a key nor a certificate").expect("written");
    gets_in(config(&broker, Some(&first), None)).await;
    write(&path, second.sign(&["127.0.0.1", "second.test"]));
    let began = Instant::now();
    loop {
        let admin = Admin::new(config(&broker, Some(&second), None)).expect("a client");
        match admin.describe_cluster().await {
            Ok(_) => break,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
    }
}

#[tokio::test]
async fn a_session_is_renewed_by_the_same_user_or_ends() {
    let session = Duration::from_secs(2);
    let broker = broker(Listener::new("SECURE", any_port()).sasl(sasl().session_max(session)));
    let mut raw = Raw::connect(address(&broker, "SECURE"));
    assert_eq!(log_in(&mut raw, "\0alice\0canary-password"), (ErrorCode::None, 2_000));
    assert!(raw.is_served());
    let began = Instant::now();
    assert_eq!(log_in(&mut raw, "\0alice\0canary-password"), (ErrorCode::None, 2_000), "renewed");
    assert!(raw.is_served());
    let handshake = SaslHandshakeRequest { mechanism: "PLAIN".to_owned() };
    let answer = raw.ask(1, &handshake).expect("an answer");
    if began.elapsed() < Duration::from_secs(1) {
        assert_eq!(answer.error_code, ErrorCode::IllegalSaslState, "once a second at most");
        assert!(raw.is_served());
    }
    assert_eq!(log_in(&mut raw, "\0bob\0other").0, ErrorCode::SaslAuthenticationFailed, "another user");
    assert!(matches!(raw.hear(), Heard::Closed));
    let mut raw = Raw::connect(address(&broker, "SECURE"));
    log_in(&mut raw, "\0alice\0canary-password");
    tokio::time::sleep(session).await;
    assert!(raw.ask(9, &MetadataRequest::default()).is_none(), "the session is over");
    // A client that renews its session loses nothing.
    let producer =
        Producer::new(config(&broker, None, Some((Mechanism::Plain, "alice", PASSWORD)))).expect("a client");
    let until = Instant::now() + 2 * session;
    while Instant::now() < until {
        producer.send(Record::to("t").value("hello")).await.expect("written");
    }
}

/// A client without a valid password kept its connection by asking for the versions again and again.
#[tokio::test]
async fn nothing_but_a_renewal_is_answered_after_the_end_of_a_session() {
    let session = Duration::from_secs(1);
    let broker = broker(Listener::new("SECURE", any_port()).sasl(sasl().session_max(session)));
    let ended = async || {
        let mut raw = Raw::connect(address(&broker, "SECURE"));
        assert_eq!(log_in(&mut raw, "\0alice\0canary-password"), (ErrorCode::None, 1_000));
        tokio::time::sleep(session).await;
        raw
    };
    let versions =
        ApiVersionsRequest { client_software_name: "a".into(), client_software_version: "1".into() };
    assert!(ended().await.ask(3, &versions).is_none());
    let token = SaslAuthenticateRequest { auth_bytes: "\0alice\0canary-password".into() };
    assert!(ended().await.ask(2, &token).is_none(), "no handshake");
    let mut raw = ended().await;
    assert_eq!(log_in(&mut raw, "\0alice\0canary-password"), (ErrorCode::None, 1_000), "renewed");
}

/// A client without SASL at a listener with it learns that the broker has closed the connection. Without TLS's goodbye it would have to
/// suspect the network.
#[tokio::test]
async fn a_connection_with_tls_is_closed_with_a_goodbye() {
    let authority = Authority::new("authority");
    let certificate = authority.sign(&["127.0.0.1"]);
    let broker = broker(Listener::new("SECURE", any_port()).tls(tls(&certificate)).sasl(sasl()));
    let admin = Admin::new(config(&broker, Some(&authority), None)).expect("a client");
    let error = admin.describe_cluster().await.expect_err("refused");
    assert!(error.to_string().contains("closed by the broker after the greeting"), "{error}");
}

/// Kafka's errors: without a login no tokens are given at all, and after one they are not enabled.
#[tokio::test]
async fn a_client_that_has_logged_in_gets_the_error_of_a_broker_without_tokens() {
    let broker = broker(Listener::new("SECURE", any_port()).sasl(sasl()));
    let mut raw = Raw::connect(address(&broker, "SECURE"));
    assert_eq!(log_in(&mut raw, "\0alice\0canary-password").0, ErrorCode::None);
    let created = raw.ask(3, &CreateDelegationTokenRequest::default()).expect("an answer");
    let described = raw.ask(3, &DescribeDelegationTokenRequest::default()).expect("an answer");
    let disabled = ErrorCode::DelegationTokenAuthDisabled;
    assert_eq!((created.error_code, described.error_code), (disabled, disabled));
}

/// The handshake was accepted, as often as the client liked. Kafka refuses it.
#[test]
fn a_session_that_does_not_end_is_not_renewed() {
    let broker = broker(Listener::new("SECURE", any_port()).sasl(sasl()));
    let mut raw = Raw::connect(address(&broker, "SECURE"));
    assert_eq!(log_in(&mut raw, "\0alice\0canary-password"), (ErrorCode::None, 0));
    let answer = raw.ask(1, &SaslHandshakeRequest { mechanism: "PLAIN".to_owned() }).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::IllegalSaslState);
    assert!(answer.mechanisms.is_empty());
    let token = SaslAuthenticateRequest { auth_bytes: "\0alice\0canary-password".into() };
    let answer = raw.ask(2, &token).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::IllegalSaslState);
    assert!(raw.is_served());
}

/// Logs in with PLAIN: the error and the lifetime of the session. A renewal waits until the last one was a second ago.
fn log_in(raw: &mut Raw, token: &'static str) -> (ErrorCode, i64) {
    let handshake = SaslHandshakeRequest { mechanism: "PLAIN".to_owned() };
    let began = Instant::now();
    loop {
        let answer = raw.ask(1, &handshake).expect("an answer");
        if answer.error_code == ErrorCode::None {
            break;
        }
        assert_eq!(answer.error_code, ErrorCode::IllegalSaslState);
        assert!(began.elapsed() < PATIENCE, "the handshake is refused");
        std::thread::sleep(Duration::from_millis(10));
    }
    let request = SaslAuthenticateRequest { auth_bytes: token.as_bytes().into() };
    let response = raw.ask(2, &request).expect("an answer");
    (response.error_code, response.session_lifetime_ms)
}

#[test]
fn nothing_but_the_login_is_answered_before_it() {
    let broker = broker(Listener::new("SECURE", any_port()).sasl(sasl()));
    let connect = || Raw::connect(address(&broker, "SECURE"));
    let mut raw = connect();
    let versions = raw.ask(
        3,
        &ApiVersionsRequest { client_software_name: "a".into(), client_software_version: "1".into() },
    );
    assert!(versions.is_some_and(|versions| !versions.api_keys.is_empty()));
    assert!(raw.ask(9, &MetadataRequest::default()).is_none(), "Metadata before the login");
    let mut raw = connect();
    let token = SaslAuthenticateRequest { auth_bytes: "\0alice\0canary-password".into() };
    let answer = raw.ask(1, &token).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::IllegalSaslState, "no handshake");
    assert!(raw.ask(9, &MetadataRequest::default()).is_none(), "Metadata after a token without a handshake");
    let mut raw = connect();
    let answer = raw.ask(1, &SaslHandshakeRequest { mechanism: "GSSAPI".to_owned() }).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::UnsupportedSaslMechanism);
    assert_eq!(answer.mechanisms, ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]);
    assert!(matches!(raw.hear(), Heard::Closed));
    // Half a login is none.
    let mut raw = connect();
    raw.ask(1, &SaslHandshakeRequest { mechanism: "SCRAM-SHA-256".to_owned() });
    let first = SaslAuthenticateRequest { auth_bytes: "n,,n=alice,r=abc".into() };
    assert_eq!(raw.ask(2, &first).map(|answer| answer.error_code), Some(ErrorCode::None));
    assert!(raw.ask(9, &MetadataRequest::default()).is_none(), "Metadata within the login");
    // A listener without SASL answers with an error.
    let mut raw = Raw::connect(broker.addresses()[0]);
    let answer = raw.ask(1, &SaslHandshakeRequest { mechanism: "PLAIN".to_owned() }).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::IllegalSaslState);
    assert!(raw.is_served());
}

#[test]
fn a_handshake_of_version_0_is_followed_by_tokens_without_headers() {
    let broker = broker(Listener::new("SECURE", any_port()).sasl(sasl()));
    let mut raw = Raw::connect(address(&broker, "SECURE"));
    let handshake = SaslHandshakeRequest { mechanism: "PLAIN".to_owned() };
    assert!(raw.ask(0, &handshake).is_some_and(|answer| answer.error_code == ErrorCode::None));
    raw.send(&sized(b"\0alice\0canary-password"));
    assert!(matches!(raw.hear(), Heard::Answer(answer) if answer.is_empty()));
    assert!(raw.is_served());
    let mut raw = Raw::connect(address(&broker, "SECURE"));
    raw.ask(0, &handshake);
    raw.send(&sized(b"\0alice\0wrong"));
    assert!(matches!(raw.hear(), Heard::Closed));
}

#[test]
fn the_salt_of_a_user_that_does_not_exist_is_always_the_same() {
    let broker = broker(Listener::new("SECURE", any_port()).sasl(sasl()));
    let salt_of = |user: &str| {
        let mut raw = Raw::connect(address(&broker, "SECURE"));
        raw.ask(1, &SaslHandshakeRequest { mechanism: "SCRAM-SHA-512".to_owned() });
        let auth_bytes = format!("n,,n={user},r=abc").into();
        let answer = raw.ask(2, &SaslAuthenticateRequest { auth_bytes }).expect("an answer");
        let text = String::from_utf8(answer.auth_bytes.to_vec()).expect("text");
        text.split_once(",s=").expect("a salt").1.to_owned()
    };
    assert_eq!(salt_of("nobody"), salt_of("nobody"));
    assert_ne!(salt_of("nobody"), salt_of("nobody2"));
}

#[test]
fn large_requests_and_other_protocols_end_the_connection() {
    let authority = Authority::new("authority");
    let secure = Listener::new("SECURE", any_port()).sasl(sasl());
    let encrypted = Listener::new("TLS", any_port()).tls(tls(&authority.sign(&["127.0.0.1"])));
    let broker = Broker::builder().memory().listener(secure).listener(encrypted).spawn().expect("a broker");
    let mut raw = Raw::connect(address(&broker, "SECURE"));
    raw.send(&(100_i32 << 20).to_be_bytes());
    raw.send(&[0; 1024]);
    assert!(matches!(raw.hear(), Heard::Closed), "100 MiB before the login");
    // After the login, the limit of all requests applies.
    let mut raw = Raw::connect(address(&broker, "SECURE"));
    log_in(&mut raw, "\0alice\0canary-password");
    let topics = (0..30_000).map(|n| ottla_protocol::messages::metadata::MetadataRequestTopic {
        name: Some(format!("a-topic-that-does-not-exist-{n}")),
        ..Default::default()
    });
    let topics = Some(topics.collect());
    let request = MetadataRequest { topics, allow_auto_topic_creation: false, ..Default::default() };
    assert!(framed(9, &request).len() > 512 << 10);
    assert!(raw.ask(9, &request).is_some());
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &framed(9, &MetadataRequest::default()), &[0x16, 3, 1, 0xff, 0xff]]
    {
        let mut raw = Raw::connect(address(&broker, "TLS"));
        raw.send(garbage);
        raw.finish();
        // TLS may answer with an alert, which is no frame.
        let mut stream = raw.into_stream();
        let mut rest = Vec::new();
        let _ = std::io::Read::read_to_end(&mut stream, &mut rest);
        assert!(rest.len() < 64, "{rest:?}");
    }
}

/// The limit held for the first login only: a client that had logged in could send tokens of 100 MiB.
#[test]
fn a_large_token_ends_the_connection_after_the_login_too() {
    let sasl = sasl().session_max(PATIENCE);
    let limit = sasl.receive_bytes_max;
    let broker = broker(Listener::new("SECURE", any_port()).sasl(sasl));
    let mut raw = Raw::connect(address(&broker, "SECURE"));
    log_in(&mut raw, "\0alice\0canary-password");
    raw.ask(1, &SaslHandshakeRequest { mechanism: "PLAIN".to_owned() }).expect("an answer");
    raw.send(&framed(2, &SaslAuthenticateRequest { auth_bytes: vec![b'x'; limit + 1].into() }));
    assert!(matches!(raw.hear(), Heard::Closed));
}

#[tokio::test]
async fn idle_connections_keep_no_client_out() {
    let broker = broker(Listener::new("SECURE", any_port()).sasl(sasl()));
    let address = address(&broker, "SECURE");
    let connect = |_| std::net::TcpStream::connect(address).expect("connected");
    let mut idle: Vec<_> = (0..1_100).map(connect).collect();
    gets_in(config(&broker, None, Some((Mechanism::Plain, "alice", PASSWORD)))).await;
    // The oldest ones were closed.
    let oldest = &mut idle[0];
    oldest.set_read_timeout(Some(PATIENCE)).expect("a socket");
    assert_eq!(std::io::Read::read(oldest, &mut [0]).expect("closed"), 0);
}

/// The second start replaced the certificate before it found that another broker had the data, and clients that connected later to that
/// broker did not find the name that it advertised.
#[test]
fn a_start_that_fails_leaves_the_certificate_of_the_running_broker() {
    let scratch = tempfile::tempdir().expect("a directory");
    let (data, other) = (scratch.path().join("data"), scratch.path().join("other"));
    let secure = scratch.path().join("secure");
    let builder = |data: &Path| Broker::builder().data_dir(data).secure(&secure);
    let certificate = || std::fs::read_to_string(secure.join("server.pem")).expect("readable");
    let broker = builder(&data).advertise("name.test").spawn().expect("a broker");
    let before = certificate();
    for data in [&data, &other] {
        let error = builder(data).spawn().expect_err("refused").to_string();
        assert!(error.contains("in use by another"), "{error}");
        assert_eq!(certificate(), before);
    }
    broker.stop();
    builder(&data).spawn().expect("free again").stop();
}

/// The first start wrote the passwords and failed before it stored them: later starts did not store them either, because the directory was
/// not new, and the data had the users with the passwords of another directory.
#[tokio::test]
async fn the_passwords_of_a_directory_work_after_a_start_that_failed() {
    let scratch = tempfile::tempdir().expect("a directory");
    let (data, secure) = (scratch.path().join("data"), scratch.path().join("secure"));
    let builder = || Broker::builder().data_dir(&data).secure(&secure);
    builder().spawn().expect("a broker").stop();
    std::fs::remove_dir_all(&secure).expect("removed");
    let error = builder().topic("no/topic", 1).spawn().expect_err("refused").to_string();
    assert!(error.contains("no/topic"), "{error}");
    assert!(!secure.join("passwords").exists(), "they are not stored");
    let broker = builder().spawn().expect("a broker");
    let read = |name: &str| std::fs::read_to_string(secure.join(name)).expect("readable");
    let passwords = read("passwords");
    for user in ["admin", "client"] {
        let line = passwords.lines().find_map(|line| line.strip_prefix(user)?.strip_prefix(':'));
        let login = Some((Mechanism::ScramSha512, user, line.expect("a password")));
        let mut config = config(&broker, None, login);
        config.security.protocol = SecurityProtocol::SaslSsl;
        config.security.tls.ca_pem = Some(read("ca.pem"));
        Admin::new(config).expect("a client").describe_cluster().await.expect("logged in");
    }
}

/// They had no effect: the broker listened in plaintext, without a login.
#[test]
fn properties_of_listeners_have_an_effect_in_the_builder() {
    let set = |properties: &'static [(&str, &str)]| {
        Broker::builder().configure(|config| {
            for (name, value) in properties {
                config.set(name, value).expect("a property");
            }
        })
    };
    let refused = |builder: ottla_broker::BrokerBuilder| builder.spawn().expect_err("refused").to_string();
    let without_key = refused(set(&[("listeners", "SASL_SSL://127.0.0.1:0")]));
    assert!(without_key.contains("listener SASL_SSL"), "{without_key}");
    let listed =
        [("listeners", "INSIDE://127.0.0.1:0"), ("listener.security.protocol.map", "INSIDE:PLAINTEXT")];
    let listed: &'static [(&str, &str)] = Box::leak(Box::new(listed));
    let broker = set(listed).spawn().expect("a listener of the properties");
    assert_eq!(broker.bootstrap_servers_of("INSIDE"), Some(broker.bootstrap_servers()));
    let twice = refused(set(listed).listen(([127, 0, 0, 1], 0).into()));
    assert!(twice.contains("exclude each other"), "{twice}");
    let alone = refused(set(&[("ssl.client.auth", "required")]));
    assert!(alone.contains("`ssl.client.auth` has no effect without `listeners`"), "{alone}");
    let in_memory = refused(set(&[("log.dirs", "/somewhere")]));
    assert!(in_memory.contains("`log.dirs` has no effect here"), "{in_memory}");
}
