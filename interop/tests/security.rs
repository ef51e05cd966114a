//! TLS and SASL against Apache Kafka 4.1 and the Ottla broker: each with one listener per case.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

#[path = "../../crates/client/tests/support/log.rs"]
mod log;
#[path = "security/peers.rs"]
mod peers;
#[path = "security/secured_ottla.rs"]
mod secured_ottla;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use log::Log;
use ottla_client::{
    Admin, BrokerVersion, Client, Config, Error, Mechanism, NewTopic, OauthMethod, Producer, Record,
    ScramChange, ScramMechanism, Secret, SecurityProtocol, Timeouts, Token, TokenCallback,
};
use ottla_interop::{Failure, KafkaCluster, Peer, require};
use peers::certificates::{Authority, Certificate};
use peers::issuer::Issuer;
use peers::{CLIENT_SECRET, PASSWORD, SESSION_MS, Tokens, WRONG_PASSWORD, jwt, now_s, oidc_server, start};
use secured_ottla::SecuredOttla;

/// The client's secrets: none may appear in a log, an error or a `Debug` text.
const SECRETS: [&str; 3] = [PASSWORD, WRONG_PASSWORD, CLIENT_SECRET];

struct World {
    server: Server,
    tokens: Tokens,
    authority: Authority,
    stranger: Authority,
    ours: Certificate,
    log: Log,
}

enum Server {
    Kafka(KafkaCluster),
    Ottla(Box<SecuredOttla>),
}

impl Server {
    fn bootstrap(&self) -> String {
        match self {
            Self::Kafka(kafka) => kafka.bootstrap(),
            Self::Ottla(ottla) => ottla.bootstrap(),
        }
    }

    fn listener(&self, name: &str) -> SocketAddr {
        match self {
            Self::Kafka(kafka) => kafka.listener(name),
            Self::Ottla(ottla) => ottla.listener(name),
        }
    }
}

/// The capture of the log, and one story at a time: a story counts the lines of its clients.
fn captured() -> (Log, MutexGuard<'static, ()>) {
    static LOG: OnceLock<Log> = OnceLock::new();
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    (LOG.get_or_init(Log::capture).clone(), alone)
}

#[test]
fn every_way_in_and_every_refusal() -> Result<(), Failure> {
    require!(Peer::Java);
    let (log, _alone) = captured();
    let files = tempfile::tempdir().map_err(|error| Failure::new(error.to_string()))?;
    let authority = Authority::new("authority");
    let kafka = start(&authority, files.path())?;
    story(log, authority, Server::Kafka(kafka), Arc::new(jwt))
}

#[test]
fn every_way_in_and_every_refusal_at_ottla() -> Result<(), Failure> {
    let (log, _alone) = captured();
    let files = tempfile::tempdir().map_err(|error| Failure::new(error.to_string()))?;
    let (authority, issuer) = (Authority::new("authority"), Issuer::new());
    let ottla = SecuredOttla::start(&authority, files.path(), &issuer)?;
    story(log, authority, Server::Ottla(Box::new(ottla)), Arc::new(move |expires_s| issuer.token(expires_s)))
}

fn story(log: Log, authority: Authority, server: Server, tokens: Tokens) -> Result<(), Failure> {
    let stranger = Authority::new("stranger");
    let ours = authority.sign(&["client.test"]);
    let world = World { server, tokens, authority, stranger, ours, log };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(|error| Failure::new(error.to_string()))?.block_on(async {
        if let Server::Ottla(_) = world.server {
            store_passwords(&world).await;
        }
        tls(&world).await;
        mutual_tls(&world).await;
        passwords(&world).await;
        tokens_of_callbacks(&world).await;
        oidc(&world).await;
        wrong_doors(&world).await;
        old_requests(&world).await;
        sessions_are_renewed_and_nothing_is_lost(&world).await;
        failed_authentication_backs_off(&world).await;
    });
    no_secret_was_seen(&world.log);
    Ok(())
}

/// The credentials of SCRAM that `kafka-storage.sh` stores when it formats the data of Apache Kafka.
async fn store_passwords(world: &World) {
    let admin = Admin::new(Config::new(world.server.bootstrap())).expect("a client");
    for (mechanism, iterations) in [(ScramMechanism::Sha256, 4096), (ScramMechanism::Sha512, 8192)] {
        let password = Secret::new(PASSWORD);
        let change =
            ScramChange::Set { user: "alice".to_owned(), mechanism, iterations, password, salt: None };
        let results = admin.alter_scram_credentials(&[change], Timeouts::default()).await.expect("an answer");
        assert!(results.into_iter().all(|(_, result)| result.is_ok()));
    }
}

impl World {
    fn config(&self, listener: &str, protocol: SecurityProtocol) -> Config {
        let mut config = Config::new(self.server.listener(listener).to_string());
        config.security.protocol = protocol;
        config.security.tls.ca_pem = Some(self.authority.pem.clone());
        // All log messages are enabled, so that a secret in them would be found.
        config.set("debug", "all").expect("a context");
        config
    }

    fn login(&self, listener: &str, mechanism: Mechanism, password: &str) -> Config {
        let mut config = self.config(listener, SecurityProtocol::SaslSsl);
        config.security.sasl.mechanism = Some(mechanism);
        config.security.sasl.username = Some("alice".into());
        config.security.sasl.password = Some(Secret::new(password));
        config
    }

    /// A client with access produces a record.
    async fn gets_in(&self, config: Config) {
        self.see(&format!("{config:?}"));
        let producer = Producer::new(config).expect("a client");
        let sent = producer.send(Record::to("secured").value("hello")).await;
        self.see(&format!("{producer:?} {sent:?}"));
        sent.expect("written");
    }

    /// A client without access reports the reason.
    async fn is_refused(&self, config: Config) -> Error {
        let client = Client::new(config).expect("a client");
        let error = client.admin().describe_cluster().await.expect_err("refused");
        self.see(&format!("{error} {error:?} {client:?}"));
        error
    }

    /// The texts that a program might print.
    fn see(&self, text: &str) {
        self.log.add(text.as_bytes());
    }
}

#[track_caller]
fn assert_tls(error: &Error, part: &str) {
    assert!(matches!(error, Error::Tls { .. }) && error.to_string().contains(part), "`{part}`: {error:?}");
}

#[track_caller]
fn assert_authentication(error: &Error, part: &str) {
    let right = matches!(error, Error::Authentication { .. }) && error.to_string().contains(part);
    assert!(right, "`{part}`: {error:?}");
}

async fn tls(world: &World) {
    let config = world.config("TLS", SecurityProtocol::Ssl);
    let admin = Admin::new(config.clone()).expect("a client");
    admin.create_topics(&[NewTopic::new("secured").partitions(1).replication(1)]).await.expect("created");
    world.gets_in(config.clone()).await;
    let mut unknown = config.clone();
    unknown.security.tls.ca_pem = Some(world.stranger.pem.clone());
    assert_tls(&world.is_refused(unknown).await, "not trusted");
    let mut elsewhere = config;
    elsewhere.bootstrap_servers = format!("localhost:{}", world.server.listener("TLS").port());
    assert_tls(&world.is_refused(elsewhere).await, "for another host");
    assert_tls(&world.is_refused(world.config("EXPIRED", SecurityProtocol::Ssl)).await, "has expired");
}

async fn mutual_tls(world: &World) {
    let mut config = world.config("MUTUAL", SecurityProtocol::Ssl);
    assert_tls(&world.is_refused(config.clone()).await, "requires a client certificate");
    config.security.tls.certificate_pem = Some(world.ours.pem.clone());
    config.security.tls.key_pem = Some(world.ours.key_pem.clone().into());
    world.gets_in(config.clone()).await;
    let unknown = world.stranger.sign(&["client.test"]);
    config.security.tls.certificate_pem = Some(unknown.pem);
    config.security.tls.key_pem = Some(unknown.key_pem.into());
    assert_tls(&world.is_refused(config).await, "refuses our client certificate");
}

async fn passwords(world: &World) {
    for mechanism in [Mechanism::Plain, Mechanism::ScramSha256, Mechanism::ScramSha512] {
        world.gets_in(world.login("LOGIN", mechanism, PASSWORD)).await;
        let error = world.is_refused(world.login("LOGIN", mechanism, WRONG_PASSWORD)).await;
        assert_authentication(&error, mechanism.name());
        assert_authentication(&error, "refused with");
    }
    let mut config = world.login("PLAINONLY", Mechanism::ScramSha256, PASSWORD);
    config.security.protocol = SecurityProtocol::SaslPlaintext;
    assert_authentication(
        &world.is_refused(config.clone()).await,
        "does not offer sasl.mechanism=SCRAM-SHA-256; it offers PLAIN",
    );
    config.security.sasl.mechanism = Some(Mechanism::Plain);
    world.gets_in(config).await;
}

fn token(jwt: String, expires_s: u64) -> Token {
    let expires_at_ms = expires_s as i64 * 1000;
    Token { value: jwt.into(), principal: "alice".into(), expires_at_ms, extensions: Vec::new() }
}

/// A callback, with the maker of tokens.
type Give = Box<dyn Fn(&Tokens) -> Result<Token, String> + Send + Sync>;

async fn tokens_of_callbacks(world: &World) {
    let mut config = world.config("LOGIN", SecurityProtocol::SaslSsl);
    config.security.sasl.mechanism = Some(Mechanism::OauthBearer);
    let mut unsecured = config.clone();
    unsecured.security.sasl.oauthbearer.unsecured_jwt = true;
    unsecured.security.sasl.oauthbearer.config = Some("principal=alice scope=a,b lifeSeconds=600".into());
    match world.server {
        Server::Kafka(_) => world.gets_in(unsecured).await,
        // Kafka's broker accepts unsecured tokens by default. Ours never does.
        Server::Ottla(_) => {
            let refused = world.is_refused(unsecured).await;
            assert_authentication(&refused, "the broker refuses the token of `alice`: invalid_token");
        }
    }
    let with = |give: Give| {
        let (mut config, tokens) = (config.clone(), world.tokens.clone());
        config.security.sasl.oauthbearer.callback = Some(TokenCallback::new(move || give(&tokens)));
        config
    };
    world.gets_in(with(Box::new(|tokens| Ok(token(tokens(now_s() + 600), now_s() + 600))))).await;
    let late = with(Box::new(|tokens| Ok(token(tokens(now_s() - 60), now_s() - 60))));
    assert_authentication(&world.is_refused(late).await, "the token of `alice` expired");
    // The callback accepts the token, but the broker rejects it.
    let refused = with(Box::new(|tokens| Ok(token(tokens(now_s() - 300), now_s() + 600))));
    let refused = world.is_refused(refused).await;
    assert_authentication(&refused, "the broker refuses the token of `alice`: invalid_token");
    if let Server::Ottla(_) = world.server {
        let stranger = Issuer::new();
        let give = move |_: &Tokens| Ok(token(stranger.token(now_s() + 600), now_s() + 600));
        let refused = world.is_refused(with(Box::new(give))).await;
        assert_authentication(&refused, "the broker refuses the token of `alice`: invalid_token");
    }
    let nothing = world.is_refused(with(Box::new(|_| Err("the vault is sealed".into())))).await;
    assert_authentication(&nothing, "no token: the vault is sealed");
}

async fn oidc(world: &World) {
    let port = oidc_server(&world.authority.sign(&["127.0.0.1"]), 600, world.tokens.clone()).await;
    let mut config = world.config("LOGIN", SecurityProtocol::SaslSsl);
    config.security.sasl.mechanism = Some(Mechanism::OauthBearer);
    let oauth = &mut config.security.sasl.oauthbearer;
    oauth.method = OauthMethod::Oidc;
    oauth.token_endpoint_url = Some(format!("https://127.0.0.1:{port}/token"));
    oauth.client_id = Some("alice".into());
    oauth.client_secret = Some(CLIENT_SECRET.into());
    oauth.scope = Some("kafka write".into());
    oauth.https_ca_pem = Some(world.authority.pem.clone());
    world.gets_in(config.clone()).await;
    let mut unknown = config.clone();
    unknown.security.sasl.oauthbearer.client_secret = Some(WRONG_PASSWORD.into());
    let error = world.is_refused(unknown).await;
    assert_authentication(&error, "401 Unauthorized: invalid_client: who?");
    let mut untrusted = config.clone();
    untrusted.security.sasl.oauthbearer.https_ca_pem = Some(world.stranger.pem.clone());
    assert_authentication(&world.is_refused(untrusted).await, "not trusted");
    config.security.sasl.oauthbearer.token_endpoint_url = Some(format!("http://127.0.0.1:{port}/token"));
    let error = Client::new(config).map(|_| ()).expect_err("refused").to_string();
    assert!(error.contains("must be https"), "{error}");
}

async fn wrong_doors(world: &World) {
    let mut plaintext = world.config("TLS", SecurityProtocol::Plaintext);
    assert_tls(&world.is_refused(plaintext.clone()).await, "the peer speaks TLS");
    plaintext.bootstrap_servers = world.server.bootstrap();
    plaintext.security.protocol = SecurityProtocol::Ssl;
    assert_tls(&world.is_refused(plaintext).await, "plaintext listener");
    let mut no_sasl = world.login("TLS", Mechanism::Plain, PASSWORD);
    assert_authentication(&world.is_refused(no_sasl.clone()).await, "the listener does not do SASL");
    no_sasl = world.config("LOGIN", SecurityProtocol::Ssl);
    let error = world.is_refused(no_sasl).await.to_string();
    assert!(error.contains("does the listener want SASL?"), "{error}");
}

/// Kafka 4.1 still accepts the requests of 0.11 and 2.1, except SASL without Kafka's framing.
async fn old_requests(world: &World) {
    for version in [BrokerVersion::V0_11, BrokerVersion::V1_1, BrokerVersion::V2_1] {
        let mut config = world.config("TLS", SecurityProtocol::Ssl);
        config.net.api_version_request = false;
        config.net.version_fallback = version;
        world.gets_in(config).await;
    }
    // SaslHandshake 0, from 0.11: tokens without Kafka's framing.
    for mechanism in [Mechanism::Plain, Mechanism::ScramSha512] {
        let mut config = world.login("LOGIN", mechanism, PASSWORD);
        config.net.api_version_request = false;
        world.gets_in(config.clone()).await;
        config.security.sasl.password = Some(Secret::new(WRONG_PASSWORD));
        assert_authentication(&world.is_refused(config).await, "wrong username or password?");
    }
}

async fn sessions_are_renewed_and_nothing_is_lost(world: &World) {
    let mut config = world.login("AGAIN", Mechanism::ScramSha256, PASSWORD);
    // A retry would hide a lost connection.
    config.client_id = "renewed".into();
    let producer = Producer::new(config).expect("a client");
    let until = tokio::time::Instant::now() + Duration::from_millis(3 * SESSION_MS);
    let mut deliveries = Vec::new();
    while tokio::time::Instant::now() < until {
        let record = Record::to("secured").partition(0).value("again");
        deliveries.push(producer.enqueue(record).await.expect("taken"));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut offsets = Vec::new();
    for delivery in deliveries {
        offsets.push(delivery.await.expect("written").offset.expect("known"));
    }
    assert!(offsets.is_sorted() && offsets.windows(2).all(|pair| pair[0] != pair[1]), "lost or doubled");
    let log = world.log.text();
    let address = world.server.listener("AGAIN").to_string();
    let lines =
        |what: &str| log.lines().filter(|line| line.contains(what) && line.contains(&address)).count();
    assert!(lines("authenticating anew") >= 2, "{} renewals", lines("authenticating anew"));
    assert_eq!(lines("FAIL"), 0, "a session was not renewed in time");
}

async fn failed_authentication_backs_off(world: &World) {
    let mut config = world.login("LOGIN", Mechanism::Plain, WRONG_PASSWORD);
    config.delivery_timeout = Duration::from_secs(2);
    config.client_id = "stubborn".into();
    let before = world.log.text().matches("facility=\"FAIL\"").count();
    let producer = Producer::new(config).expect("a client");
    let error = producer.send(Record::to("secured").value("never")).await.expect_err("refused");
    world.see(&format!("{error} {error:?}"));
    assert!(error.to_string().contains("PLAIN: refused with"), "{error}");
    let attempts = world.log.text().matches("facility=\"FAIL\"").count() - before;
    assert!((2..=20).contains(&attempts), "{attempts} attempts in two seconds");
}

fn no_secret_was_seen(log: &Log) {
    let text = log.text();
    assert!(text.contains("facility=\"SEND\""), "everything is captured, each request among it");
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("alice:{CLIENT_SECRET}"));
    // The headers of unsecured and of signed tokens.
    let bearers = ["eyJhbGciOiJub25lIn0.", "eyJhbGciOiJFUzI1NiIsImtpZCI6IjEifQ."];
    for secret in SECRETS.into_iter().chain([basic.as_str(), "PRIVATE KEY"]).chain(bearers) {
        if let Some(line) = text.lines().find(|line| line.contains(secret)) {
            panic!("a secret is seen in: {line}");
        }
    }
}
