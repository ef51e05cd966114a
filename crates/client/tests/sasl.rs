//! OAUTHBEARER against an in-memory broker that records the SASL messages.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::io;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use ottla_client::{Client, Config, Connecting, Connector, Io, Token, TokenCallback};
use ottla_protocol::messages::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
use ottla_protocol::messages::metadata::{MetadataRequest, MetadataResponse};
use ottla_protocol::messages::sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use ottla_protocol::messages::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
use ottla_protocol::{ApiKey, Decoder, RequestHeader, decode_request, frame};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio_rustls::TlsAcceptor;

use crate::certificates::Authority;

const FAR_AWAY_S: i64 = 4_000_000_000;

/// `tokens.test` is the token endpoint, and Azure's metadata service is at its address; every other host is a broker that accepts all clients.
#[derive(Clone)]
struct World {
    endpoint: TlsAcceptor,
    /// The requests to the token endpoint, and the SASL messages to brokers.
    asked: Arc<Mutex<Vec<String>>>,
    proofs: Arc<Mutex<Vec<String>>>,
}

impl World {
    fn new(authority: &Authority) -> Self {
        let certificate = authority.sign(&["tokens.test"]);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
        let chain = vec![CertificateDer::from(certificate.der)];
        let key = PrivateKeyDer::from_pem_slice(certificate.key_pem.as_bytes()).expect("a key");
        let endpoint = TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).expect("a pair")));
        Self { endpoint, asked: Arc::default(), proofs: Arc::default() }
    }

    async fn give_token_over_tls(self, io: DuplexStream) -> io::Result<()> {
        let tls = self.endpoint.accept(io).await?;
        self.give_token(tls).await
    }

    async fn give_token(self, mut io: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let (mut request, mut buffer) = (String::new(), [0; 4096]);
        while !has_body(&request) {
            let n = io.read(&mut buffer).await?;
            if n == 0 {
                break;
            }
            request.push_str(&String::from_utf8_lossy(&buffer[..n]));
        }
        self.asked.lock().expect("no panic").push(request);
        let body = format!(r#"{{"access_token":"{}"}}"#, jwt("fetched"));
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        io.write_all(format!("{head}{body}").as_bytes()).await?;
        io.shutdown().await
    }

    async fn let_in(self, mut io: DuplexStream) -> io::Result<()> {
        loop {
            let size = io.read_i32().await?;
            let mut request = vec![0; size as usize];
            io.read_exact(&mut request).await?;
            let mut input = Decoder::new(Bytes::from(request));
            let RequestHeader { api_key, api_version: version, correlation_id: id, .. } =
                RequestHeader::decode(&mut input).expect("a sound header");
            let answer = match api_key {
                ApiKey::ApiVersions => {
                    let version_of = |key: &ApiKey| {
                        let versions = key.api()?.stable_versions;
                        let (min_version, max_version) = (versions.min, versions.max);
                        Some(ApiVersion { api_key: key.code(), min_version, max_version })
                    };
                    let api_keys = ApiKey::KNOWN.iter().filter_map(version_of).collect();
                    let response = ApiVersionsResponse { api_keys, ..Default::default() };
                    frame::encode_response::<ApiVersionsRequest>(id, version, &response)
                }
                ApiKey::SaslHandshake => {
                    let mechanisms = vec!["OAUTHBEARER".to_owned()];
                    let response = SaslHandshakeResponse { mechanisms, ..Default::default() };
                    frame::encode_response::<SaslHandshakeRequest>(id, version, &response)
                }
                ApiKey::SaslAuthenticate => {
                    let request: SaslAuthenticateRequest =
                        decode_request(input, version).expect("a sound request");
                    let proof = String::from_utf8_lossy(&request.auth_bytes).into_owned();
                    self.proofs.lock().expect("no panic").push(proof);
                    let response = SaslAuthenticateResponse::default();
                    frame::encode_response::<SaslAuthenticateRequest>(id, version, &response)
                }
                _ => frame::encode_response::<MetadataRequest>(id, version, &MetadataResponse::default()),
            };
            io.write_all(&answer.expect("encoded").to_bytes()?).await?;
        }
    }

    /// The SASL message that the broker gets from a client with these settings.
    async fn proof_of(&self, config: Config) -> String {
        let client = Client::with_connector(config, Arc::new(self.clone())).expect("a client");
        client.admin().describe_cluster().await.expect("let in");
        self.proofs.lock().expect("no panic").pop().expect("a proof")
    }
}

impl Connector for World {
    fn connect<'a>(&'a self, host: &'a str, _: u16) -> Connecting<'a> {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        if host == "tokens.test" {
            tokio::spawn(self.clone().give_token_over_tls(theirs));
        } else if host == "169.254.169.254" || host == "metadata.test" {
            tokio::spawn(self.clone().give_token(theirs));
        } else {
            tokio::spawn(self.clone().let_in(theirs));
        }
        Box::pin(async move { Ok(Box::new(ours) as Box<dyn Io>) })
    }
}

/// Returns `true` once the body of an HTTP request is there.
fn has_body(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    let mut length =
        lines.filter(|(name, _)| name.eq_ignore_ascii_case("content-length")).map(|(_, value)| value);
    body.len() >= length.next_back().and_then(|value| value.parse().ok()).unwrap_or(0)
}

fn config(properties: &[(&str, &str)]) -> Config {
    let mut config = Config::new("broker.test");
    config.set("security.protocol", "sasl_plaintext").expect("known");
    config.set("sasl.mechanism", "OAUTHBEARER").expect("known");
    config.set_all(properties.iter().copied()).expect("valid properties");
    config
}

fn jwt(subject: &str) -> String {
    let claims = format!(r#"{{"sub":"{subject}","exp":{FAR_AWAY_S}}}"#);
    format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), URL_SAFE_NO_PAD.encode(claims))
}

#[tokio::test]
async fn an_unsecured_token_has_the_configured_claims() {
    let world = World::new(&Authority::new("authority"));
    let proof = world
        .proof_of(config(&[
            ("enable.sasl.oauthbearer.unsecure.jwt", "true"),
            ("sasl.oauthbearer.config", "principal=orders scope=a,b extension_traceId=17"),
        ]))
        .await;
    let claims = proof.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok()).expect("a JWT");
    let claims: serde_json::Value = serde_json::from_slice(&claims).expect("JSON");
    assert_eq!((claims["sub"].as_str(), claims["scope"][1].as_str()), (Some("orders"), Some("b")));
    assert!(proof.contains("\u{1}traceId=17\u{1}"), "{proof:?}");

    let mut refused = config(&[("sasl.oauthbearer.config", "principal=orders")]);
    let error = Client::new(refused.clone()).map(|_| ()).expect_err("nobody asked for it").to_string();
    assert!(error.contains("enable.sasl.oauthbearer.unsecure.jwt=true"), "{error}");
    refused.set("enable.sasl.oauthbearer.unsecure.jwt", "true").expect("known");
    refused.set("sasl.oauthbearer.config", "").expect("none");
    let error = Client::new(refused).map(|_| ()).expect_err("nobody is named").to_string();
    assert!(error.contains("principal=NAME is missing"), "{error}");
}

#[tokio::test]
async fn credentials_can_be_changed_after_a_client_was_made() {
    let world = World::new(&Authority::new("authority"));
    let plain = || {
        let mut config = config(&[("sasl.mechanism", "PLAIN"), ("sasl.username", "orders")]);
        config.set("sasl.password", "old").expect("any text");
        config
    };
    assert_eq!(world.proof_of(plain()).await, "\0orders\0old");
    let client = Client::with_connector(plain(), Arc::new(world.clone())).expect("a client");
    client.set_sasl_credentials("billing", "new".into()).expect("PLAIN has use for them");
    client.admin().describe_cluster().await.expect("let in");
    assert_eq!(world.proofs.lock().expect("no panic").pop().expect("a proof"), "\0billing\0new");

    let tokens = config(&[
        ("enable.sasl.oauthbearer.unsecure.jwt", "true"),
        ("sasl.oauthbearer.config", "principal=orders"),
    ]);
    let client = Client::with_connector(tokens, Arc::new(world)).expect("a client");
    let refused = client.set_sasl_credentials("billing", "hunter2".into()).expect_err("it has tokens");
    let text = refused.to_string();
    assert!(text.contains("OAUTHBEARER") && !text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn a_token_function_is_asked_for_tokens() {
    let world = World::new(&Authority::new("authority"));
    let mut config = config(&[]);
    config.security.sasl.oauthbearer.callback = Some(TokenCallback::new(|| {
        Ok(Token {
            value: jwt("given").into(),
            principal: "given".into(),
            expires_at_ms: FAR_AWAY_S * 1000,
            extensions: vec![("traceId".into(), "18".into())],
        })
    }));
    let proof = world.proof_of(config.clone()).await;
    assert!(proof.contains(&format!("auth=Bearer {}\u{1}", jwt("given"))), "{proof:?}");
    assert!(proof.contains("\u{1}traceId=18\u{1}"), "{proof:?}");

    // A function that calls the cloud's service, as librdkafka's bindings do.
    let aws =
        [("sasl.oauthbearer.method", "oidc"), ("sasl.oauthbearer.metadata.authentication.type", "aws_iam")];
    config.set_all(aws).expect("known properties");
    let proof = world.proof_of(config.clone()).await;
    assert!(proof.contains(&jwt("given")), "{proof:?}");
    config.security.sasl.oauthbearer.callback = None;
    let refused = Client::new(config.clone()).map(|_| ()).expect_err("no region").to_string();
    assert!(refused.contains("sasl.oauthbearer.config: region"), "{refused}");
    config.set("sasl.oauthbearer.method", "default").expect("a method");
    let refused = Client::new(config).map(|_| ()).expect_err("not its method").to_string();
    assert!(refused.contains("needs sasl.oauthbearer.method=oidc"), "{refused}");
}

#[tokio::test]
async fn azures_metadata_service_is_asked_without_credentials() {
    let world = World::new(&Authority::new("authority"));
    let azure = [
        ("sasl.oauthbearer.method", "oidc"),
        ("sasl.oauthbearer.metadata.authentication.type", "azure_imds"),
    ];
    let refused = Client::new(config(&azure)).map(|_| ()).expect_err("no parameters").to_string();
    assert!(refused.contains("azure_imds needs sasl.oauthbearer.config=query="), "{refused}");
    let query = "query=api-version=2025-04-07&resource=https://x.test&client_id=1";
    for (url, path) in [
        (None, "/metadata/identity/oauth2/token?api-version=2025-04-07&resource=https://x.test&client_id=1"),
        (
            Some("http://metadata.test:80/t?a=b"),
            "/t?a=b&api-version=2025-04-07&resource=https://x.test&client_id=1",
        ),
    ] {
        let mut config = config(&azure);
        config.set("sasl.oauthbearer.config", query).expect("a text");
        if let Some(url) = url {
            config.set("sasl.oauthbearer.token.endpoint.url", url).expect("a URL");
        }
        let proof = world.proof_of(config).await;
        assert!(proof.contains(&jwt("fetched")), "{proof:?}");
        let asked = world.asked.lock().expect("no panic").pop().expect("asked");
        assert!(asked.starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{asked}");
        assert!(
            asked.to_lowercase().contains("metadata: true\r\n") && !asked.contains("uthorization"),
            "{asked}"
        );
    }
}

#[tokio::test]
async fn extensions_go_beside_the_token() {
    let authority = Authority::new("authority");
    let world = World::new(&authority);
    let oidc = [
        ("sasl.oauthbearer.method", "oidc"),
        ("sasl.oauthbearer.token.endpoint.url", "https://tokens.test/token"),
        ("sasl.oauthbearer.client.id", "orders"),
        ("sasl.oauthbearer.client.secret", "horse"),
        ("sasl.oauthbearer.scope", "kafka write"),
        ("sasl.oauthbearer.extensions", "logicalCluster=lkc-1,identityPool=pool-2"),
        ("https.ca.pem", &authority.pem),
    ];
    let proof = world.proof_of(config(&oidc)).await;
    assert!(proof.contains(&format!("auth=Bearer {}\u{1}", jwt("fetched"))), "{proof:?}");
    assert!(proof.contains("\u{1}logicalCluster=lkc-1\u{1}identityPool=pool-2\u{1}"), "{proof:?}");
    let asked = world.asked.lock().expect("no panic").pop().expect("asked");
    let basic = base64::engine::general_purpose::STANDARD.encode("orders:horse");
    for part in [&format!("Basic {basic}"), "scope=kafka%20write", "POST /token"] {
        assert!(asked.contains(part), "`{part}` is missing in {asked}");
    }
}

#[tokio::test]
async fn a_token_endpoint_gets_an_assertion_in_place_of_a_secret() {
    let authority = Authority::new("authority");
    let world = World::new(&authority);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("key.pem");
    let key = crate::tls::encrypted_key(&authority.sign(&["orders"]), "swordfish");
    std::fs::write(&file, key).expect("written");
    let mut config = config(&[
        ("sasl.oauthbearer.method", "oidc"),
        ("sasl.oauthbearer.grant.type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
        ("sasl.oauthbearer.token.endpoint.url", "https://tokens.test/token"),
        ("sasl.oauthbearer.assertion.algorithm", "ES256"),
        ("sasl.oauthbearer.assertion.private.key.file", file.to_str().expect("a name")),
        ("sasl.oauthbearer.assertion.claim.sub", "billing"),
        ("sasl.oauthbearer.scope", "kafka write"),
        ("https.ca.pem", &authority.pem),
    ]);
    let missing = Client::new(config.clone()).map(|_| ()).expect_err("no password").to_string();
    assert!(missing.contains("sasl.oauthbearer.assertion.private.key.passphrase is not set"), "{missing}");
    config.set("sasl.oauthbearer.assertion.private.key.passphrase", "swordfish").expect("a property");
    let proof = world.proof_of(config).await;
    assert!(proof.contains(&format!("auth=Bearer {}\u{1}", jwt("fetched"))), "{proof:?}");

    let asked = world.asked.lock().expect("no panic").pop().expect("asked");
    assert!(!asked.to_ascii_lowercase().contains("authorization:"), "{asked}");
    let (_, body) = asked.split_once("\r\n\r\n").expect("a body");
    let fields: Vec<_> = body.split('&').filter_map(|field| field.split_once('=')).collect();
    let names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["grant_type", "assertion", "scope"]);
    assert_eq!(fields[0].1, "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer");
    let claims = fields[1].1.split('.').nth(1).expect("three parts");
    let claims = String::from_utf8(URL_SAFE_NO_PAD.decode(claims).expect("base64")).expect("JSON");
    assert!(claims.contains(r#""sub":"billing""#), "{claims}");
}
