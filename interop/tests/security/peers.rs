//! The peers of the security tests: Apache Kafka with one listener per case, and an OIDC provider.

#[path = "../../../crates/client/tests/support/certificates.rs"]
pub(crate) mod certificates;
#[path = "issuer.rs"]
pub(crate) mod issuer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use certificates::{Authority, Certificate};
use ottla_interop::{Failure, KafkaCluster, KafkaOptions};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// The password of `alice`.
pub(crate) const PASSWORD: &str = "canary-password-1";
/// A wrong password.
pub(crate) const WRONG_PASSWORD: &str = "canary-password-2";
/// Her secret at the OIDC provider.
pub(crate) const CLIENT_SECRET: &str = "canary-secret-3";

/// Session lifetime of the `AGAIN` listener.
pub(crate) const SESSION_MS: u64 = 2_000;

/// Certificate lifetime of the `SOON` listener.
pub(crate) const SOON_DAYS: u64 = 10;

/// The file with the certificate of the `SELF` listener, which is its own authority.
pub(crate) const SELF_CA: &str = "self-ca.pem";

/// The listeners, one for each case.
pub(crate) const LISTENERS: [(&str, &str); 8] = [
    ("TLS", "SSL"),
    ("EXPIRED", "SSL"),
    ("SOON", "SSL"),
    ("SELF", "SSL"),
    ("MUTUAL", "SSL"),
    ("LOGIN", "SASL_SSL"),
    ("AGAIN", "SASL_SSL"),
    ("PLAINONLY", "SASL_PLAINTEXT"),
];

/// Apache Kafka with a listener for each case.
pub(crate) fn start(authority: &Authority, files: &Path) -> Result<KafkaCluster, Failure> {
    let properties = properties(authority, files)?;
    let properties: Vec<_> = properties.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let scram_256 = format!("SCRAM-SHA-256=[name=alice,password={PASSWORD}]");
    let scram_512 = format!("SCRAM-SHA-512=[name=alice,iterations=8192,password={PASSWORD}]");
    KafkaCluster::start_with(
        1,
        &KafkaOptions {
            properties: &properties,
            listeners: &LISTENERS,
            scram: &[&scram_256, &scram_512],
            ..KafkaOptions::default()
        },
    )
}

/// The properties of the listeners.
pub(crate) fn properties(authority: &Authority, files: &Path) -> Result<Vec<(String, String)>, Failure> {
    let good = key_file(files, "good.pem", &authority.sign(&["127.0.0.1"]));
    let expired = key_file(files, "expired.pem", &authority.sign_until(&["127.0.0.1"], 2020));
    let soon = key_file(files, "soon.pem", &authority.sign_for_days(&["127.0.0.1"], SOON_DAYS));
    let own = Authority::self_signed(&["127.0.0.1"]);
    std::fs::write(files.join(SELF_CA), &own.pem).map_err(|error| Failure::new(error.to_string()))?;
    let own = key_file(files, "self.pem", &own);
    let trusted = files.join("trusted.pem");
    std::fs::write(&trusted, &authority.pem).map_err(|error| Failure::new(error.to_string()))?;
    let trusted = trusted.display().to_string();
    let session = SESSION_MS.to_string();
    let mut properties = vec![
        ("ssl.truststore.type".to_owned(), "PEM".to_owned()),
        ("ssl.truststore.location".to_owned(), trusted),
        ("ssl.keystore.type".to_owned(), "PEM".to_owned()),
        ("ssl.keystore.location".to_owned(), good),
    ];
    let mut add = |listener: &str, property: &str, value: &str| {
        properties.push((format!("listener.name.{listener}.{property}"), value.to_owned()));
    };
    add("expired", "ssl.keystore.type", "PEM");
    add("expired", "ssl.keystore.location", &expired);
    add("soon", "ssl.keystore.type", "PEM");
    add("soon", "ssl.keystore.location", &soon);
    add("self", "ssl.keystore.type", "PEM");
    add("self", "ssl.keystore.location", &own);
    add("mutual", "ssl.client.auth", "required");
    add("again", "connections.max.reauth.ms", &session);
    for mechanism in ["plain", "scram-sha-256", "oauthbearer"] {
        add("again", &format!("{mechanism}.connections.max.reauth.ms"), &session);
    }
    add("plainonly", "sasl.enabled.mechanisms", "PLAIN");
    add("plainonly", "plain.sasl.jaas.config", &plain_users(&["alice"]));
    for listener in ["login", "again"] {
        properties.extend(every_mechanism(listener, &["alice"]));
    }
    Ok(properties)
}

/// The properties of a listener with every mechanism. PLAIN has these users, with the password of `alice`.
pub(crate) fn every_mechanism(listener: &str, users: &[&str]) -> Vec<(String, String)> {
    let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;";
    let oauth = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
                 unsecuredLoginStringClaim_sub=\"broker\";";
    let properties = [
        ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"),
        ("plain.sasl.jaas.config", &plain_users(users)),
        ("scram-sha-256.sasl.jaas.config", scram),
        ("scram-sha-512.sasl.jaas.config", scram),
        ("oauthbearer.sasl.jaas.config", oauth),
    ];
    let of_listener =
        |(name, value): (&str, &str)| (format!("listener.name.{listener}.{name}"), value.to_owned());
    properties.map(of_listener).into()
}

fn plain_users(users: &[&str]) -> String {
    let users: Vec<String> = users.iter().map(|user| format!("user_{user}=\"{PASSWORD}\"")).collect();
    format!("org.apache.kafka.common.security.plain.PlainLoginModule required {};", users.join(" "))
}

pub(crate) fn key_file(files: &Path, name: &str, certificate: &Certificate) -> String {
    let path: PathBuf = files.join(name);
    std::fs::write(&path, format!("{}{}", certificate.key_pem, certificate.pem)).expect("written");
    path.display().to_string()
}

pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// An unsigned token.
pub(crate) fn jwt(expires_s: u64) -> String {
    let part = |json: &serde_json::Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let claims = serde_json::json!({ "sub": "alice", "iat": now_s() - 600, "exp": expires_s });
    format!("{}.{}.", part(&serde_json::json!({ "alg": "none" })), part(&claims))
}

/// Makes a token that expires at a time in seconds since 1970.
pub(crate) type Tokens = Arc<dyn Fn(u64) -> String + Send + Sync>;

/// An OIDC provider: it issues tokens of this lifetime to clients with the secret.
pub(crate) async fn oidc_server(certificate: &Certificate, life_s: i64, tokens: Tokens) -> u16 {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = vec![CertificateDer::from(certificate.der.clone())];
    let key = PrivateKeyDer::from_pem_slice(certificate.key_pem.as_bytes()).expect("a key");
    let builder = rustls::ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).expect("a pair")));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        let basic = base64::engine::general_purpose::STANDARD.encode(format!("alice:{CLIENT_SECRET}"));
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut tls) = acceptor.accept(stream).await else { continue };
            let Some(request) = posted(&mut tls).await else { continue };
            let (status, body) = if request.contains(&format!("Basic {basic}")) && has_scope(&request) {
                (
                    "200 OK",
                    serde_json::json!({ "access_token": tokens(now_s().saturating_add_signed(life_s)), "token_type": "Bearer" }),
                )
            } else {
                (
                    "401 Unauthorized",
                    serde_json::json!({ "error": "invalid_client", "error_description": "who?" }),
                )
            };
            let body = body.to_string();
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n"
            );
            let answer = format!("{head}Connection: close\r\n\r\n{body}");
            let _ = tls.write_all(answer.as_bytes()).await;
            let _ = tls.shutdown().await;
        }
    });
    port
}

/// A request with its body; `None` if it ends early. Clients keep the connection open while they wait for the response.
async fn posted(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let (mut request, mut buffer) = (String::new(), [0; 4096]);
    loop {
        if let Some((head, body)) = request.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            if body.len() >= length.unwrap_or(0_usize) {
                return Some(request);
            }
        }
        match stream.read(&mut buffer).await {
            Ok(n) if n > 0 => request.push_str(&String::from_utf8_lossy(&buffer[..n])),
            _ => return None,
        }
    }
}

/// The scope `kafka write`. Clients encode the space in either way, or not at all (Java by default).
fn has_scope(request: &str) -> bool {
    request.replace("%20", " ").replace('+', " ").contains("scope=kafka write")
}
