//! OAUTHBEARER: tokens, and the public keys that verify them.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ottla_broker::{
    BrokerThread, KeyEndpointSettings, KeySource, Listener, OauthSettings, Password, Pem, SaslMechanism,
    SaslSettings,
};
use ottla_client::{Config, Error, Mechanism, Token, TokenCallback};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::sasl_authenticate::SaslAuthenticateRequest;
use ottla_protocol::messages::sasl_handshake::SaslHandshakeRequest;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::common::Raw;
use crate::security::certificates::{Authority, Certificate};
use crate::security::{PATIENCE, address, any_port, broker, config, gets_in, refusal};

/// A client with a token of this issuer for this audience.
fn with_token(broker: &BrokerThread, issuer: &Issuer, audience: &'static str) -> Config {
    let mut config = config(broker, None, None);
    config.security.sasl.mechanism = Some(Mechanism::OauthBearer);
    let issuer = issuer.clone();
    config.security.sasl.oauthbearer.callback = Some(TokenCallback::new(move || Ok(issuer.token(audience))));
    config
}

#[tokio::test]
async fn a_token_of_the_issuer_gets_in_and_its_session_ends_with_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let issuer = Issuer::new();
    issuer.write_keys(&dir.path().join("jwks.json"));
    let oauth = OauthSettings::new(dir.path().join("jwks.json"), "https://issuer.test", "kafka");
    let sasl = SaslSettings::new([SaslMechanism::OauthBearer]).oauth(oauth);
    let broker = broker(Listener::new("SECURE", any_port()).sasl(sasl));
    gets_in(with_token(&broker, &issuer, "kafka")).await;
    let error = refusal(with_token(&broker, &issuer, "other")).await;
    assert!(matches!(error, Error::Authentication { .. }), "{error:?}");
    assert!(error.to_string().contains("invalid_token"), "{error}");
    let mut raw = Raw::connect(address(&broker, "SECURE"));
    raw.ask(1, &SaslHandshakeRequest { mechanism: "OAUTHBEARER".to_owned() });
    let token = issuer.token("kafka");
    let auth_bytes = format!("n,,\x01auth=Bearer {}\x01\x01", token.value.expose()).into();
    let answer = raw.ask(2, &SaslAuthenticateRequest { auth_bytes }).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::None);
    assert!((1..=60_000).contains(&answer.session_lifetime_ms), "{}", answer.session_lifetime_ms);
    // The error of a bad token comes after the client's byte, with the text that explained it.
    let mut raw = Raw::connect(address(&broker, "SECURE"));
    raw.ask(1, &SaslHandshakeRequest { mechanism: "OAUTHBEARER".to_owned() });
    let auth_bytes = "n,,\x01auth=Bearer none\x01\x01".into();
    let answer = raw.ask(2, &SaslAuthenticateRequest { auth_bytes }).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::None);
    let explanation = String::from_utf8(answer.auth_bytes.to_vec()).expect("a text");
    assert_eq!(explanation, r#"{"status":"invalid_token"}"#);
    let answer = raw.ask(2, &SaslAuthenticateRequest { auth_bytes: "\x01".into() }).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::SaslAuthenticationFailed);
    assert_eq!(answer.error_message, Some(explanation));
}

/// Issues tokens for a minute, signed with a key of its own.
#[derive(Clone)]
struct Issuer(Arc<EcdsaKeyPair>);

impl Issuer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random);
        Self(Arc::new(pair.expect("a key")))
    }

    fn keys(&self) -> String {
        let point = self.0.public_key().as_ref();
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..65]));
        serde_json::json!({ "keys": [{ "kty": "EC", "crv": "P-256", "x": x, "y": y }] }).to_string()
    }

    fn write_keys(&self, path: &Path) {
        std::fs::write(path, self.keys()).expect("written");
    }

    fn token(&self, audience: &str) -> Token {
        let now_s = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
        let claims = serde_json::json!({
            "sub": "alice", "iss": "https://issuer.test", "aud": audience, "iat": now_s, "exp": now_s + 60,
        });
        let header = serde_json::json!({ "alg": "ES256" });
        let part = |json: &serde_json::Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).expect("signed");
        let value = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
        let expires_at_ms = (now_s as i64 + 60) * 1000;
        Token { value: value.into(), principal: "alice".into(), expires_at_ms, extensions: Vec::new() }
    }
}

/// An https server whose every answer is this text, or "503" without one. It stops with its runtime.
async fn serve_keys(certificate: &Certificate, keys: Arc<Mutex<Option<String>>>) -> u16 {
    let listener = TcpListener::bind(any_port()).await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let acceptor = acceptor(certificate);
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let Ok(mut tls) = acceptor.accept(tcp).await else { continue };
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n")
                && tls.read_buf(&mut request).await.is_ok_and(|read| read > 0)
            {}
            let (status, body) = match &*keys.lock().expect("not poisoned") {
                Some(keys) => ("200 OK", keys.clone()),
                None => ("503 Service Unavailable", String::new()),
            };
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            let _ = tls.write_all(answer.as_bytes()).await;
            let _ = tls.shutdown().await;
        }
    });
    port
}

fn acceptor(certificate: &Certificate) -> TlsAcceptor {
    let chain = CertificateDer::from(certificate.der.clone());
    let key = PrivateKeyDer::from_pem_slice(certificate.key_pem.as_bytes()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
    TlsAcceptor::from(Arc::new(builder.with_single_cert(vec![chain], key).expect("a pair")))
}

fn oauth_at(url: String, trusted: &Authority) -> OauthSettings {
    let mut endpoint = KeyEndpointSettings::new(url);
    endpoint.trusted = Some(Pem::Text(Password::from(trusted.pem.as_str())));
    endpoint.retry_backoff_max = Duration::from_millis(20);
    OauthSettings::with_keys(KeySource::Endpoint(endpoint), "https://issuer.test", "kafka")
}

/// Tries to log in until it works.
async fn gets_in_soon(broker: &BrokerThread, issuer: &Issuer) {
    let began = Instant::now();
    loop {
        let admin = ottla_client::Admin::new(with_token(broker, issuer, "kafka")).expect("a client");
        match admin.describe_cluster().await {
            Ok(_) => return,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_an_https_url_are_read_again_for_an_unknown_key_and_outlive_their_server() {
    let authority = Authority::new("authority");
    let (first, second) = (Issuer::new(), Issuer::new());
    let keys = Arc::new(Mutex::new(Some(first.keys())));
    let port = serve_keys(&authority.sign(&["localhost"]), keys.clone()).await;
    let oauth = oauth_at(format!("https://localhost:{port}/jwks?v=1"), &authority);
    let broker = broker(
        Listener::new("SECURE", any_port())
            .sasl(SaslSettings::new([SaslMechanism::OauthBearer]).oauth(oauth)),
    );
    gets_in(with_token(&broker, &first, "kafka")).await;
    let error = refusal(with_token(&broker, &second, "kafka")).await;
    assert!(matches!(error, Error::Authentication { .. }), "{error:?}");
    *keys.lock().expect("not poisoned") = Some(second.keys());
    gets_in_soon(&broker, &second).await;
    refusal(with_token(&broker, &first, "kafka")).await;
    *keys.lock().expect("not poisoned") = None;
    refusal(with_token(&broker, &first, "kafka")).await;
    gets_in(with_token(&broker, &second, "kafka")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_starts_before_the_server_of_its_keys() {
    let authority = Authority::new("authority");
    let issuer = Issuer::new();
    let keys = Arc::new(Mutex::new(None));
    let port = serve_keys(&authority.sign(&["localhost"]), keys.clone()).await;
    let oauth = oauth_at(format!("https://localhost:{port}/"), &authority);
    let sasl = SaslSettings::new([SaslMechanism::OauthBearer]).oauth(oauth);
    let broker = tokio::task::block_in_place(|| broker(Listener::new("SECURE", any_port()).sasl(sasl)));
    refusal(with_token(&broker, &issuer, "kafka")).await;
    *keys.lock().expect("not poisoned") = Some(issuer.keys());
    gets_in_soon(&broker, &issuer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_a_server_that_is_not_trusted_are_not_taken() {
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    let issuer = Issuer::new();
    let keys = Arc::new(Mutex::new(Some(issuer.keys())));
    let port = serve_keys(&stranger.sign(&["localhost"]), keys).await;
    let oauth = oauth_at(format!("https://localhost:{port}/"), &authority);
    let sasl = SaslSettings::new([SaslMechanism::OauthBearer]).oauth(oauth);
    let broker = tokio::task::block_in_place(|| broker(Listener::new("SECURE", any_port()).sasl(sasl)));
    let error = refusal(with_token(&broker, &issuer, "kafka")).await;
    assert!(error.to_string().contains("invalid_token"), "{error}");
}
