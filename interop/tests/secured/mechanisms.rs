//! Each mechanism over TLS, with clients that others wrote, at one broker with Kafka's properties.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ottla_client::{Admin, Config, NewTopic, ScramChange, ScramMechanism, Secret, Timeouts};
use ottla_interop::{Failure, Output, Peer, build_foreign_go, console, java_command, require, run};

use super::{TOPIC, WITHIN, failed, python, text};
use crate::foreign::in_runtime;
use crate::peers::certificates::Authority;
use crate::peers::issuer::Issuer;
use crate::peers::{CLIENT_SECRET, PASSWORD, SecuredOttla, Tokens, WRONG_PASSWORD, now_s, oidc_server};

/// The properties of librdkafka for a listener with TLS and a mechanism.
const LIBRDKAFKA: &str = "security.protocol=SASL_SSL\n";

/// A broker, its files, and the providers of tokens.
struct World {
    broker: SecuredOttla,
    authority: Authority,
    issuer: Issuer,
    ca: PathBuf,
    files: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

impl World {
    fn start() -> Result<Self, Failure> {
        let failure = |error: std::io::Error| Failure::new(error.to_string());
        let files = tempfile::tempdir().map_err(failure)?;
        let (authority, issuer) = (Authority::new("authority"), Issuer::new());
        let broker = SecuredOttla::start(&authority, files.path(), &issuer)?;
        let ca = files.path().join("ca.pem");
        fs::write(&ca, &authority.pem).map_err(failed(&ca))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(failure)?;
        let world = Self { broker, authority, issuer, ca, files, runtime };
        in_runtime(world.prepare());
        Ok(world)
    }

    /// Stores the topic and the credentials of SCRAM.
    async fn prepare(&self) {
        let admin = Admin::new(Config::new(self.broker.bootstrap())).expect("an admin");
        admin.create_topics(&[NewTopic::new(TOPIC).partitions(1).replication(1)]).await.expect("created");
        for mechanism in [ScramMechanism::Sha256, ScramMechanism::Sha512] {
            let change = ScramChange::Set {
                user: "alice".to_owned(),
                mechanism,
                iterations: 4096,
                password: Secret::new(PASSWORD),
                salt: None,
            };
            let stored = admin.alter_scram_credentials(&[change], Timeouts::default()).await;
            assert!(stored.expect("an answer").into_iter().all(|(_, result)| result.is_ok()));
        }
    }

    fn bootstrap(&self) -> String {
        self.broker.listener("LOGIN").to_string()
    }

    /// The address of a provider of tokens, which an issuer signs.
    fn provider(&self, issuer: &Issuer) -> String {
        let (certificate, issuer) = (self.authority.sign(&["127.0.0.1"]), issuer.clone());
        let tokens: Tokens = Arc::new(move |expires_s| issuer.token(expires_s));
        let port = self.runtime.block_on(oidc_server(&certificate, 600, tokens));
        format!("https://127.0.0.1:{port}/token")
    }

    /// Runs one of Java's console tools with a login by tokens of a provider.
    fn java(&self, class: &str, args: &[&str], url: &str, value: &str) -> Result<Output, Failure> {
        let config = self.files.path().join("java.properties");
        let (ca, oauth) = (text(&self.ca), "org.apache.kafka.common.security.oauthbearer");
        let properties = format!(
            "security.protocol=SASL_SSL\nssl.truststore.type=PEM\nssl.truststore.location={ca}\nsasl.mechanism=OAUTHBEARER\n\
             sasl.oauthbearer.token.endpoint.url={url}\n\
             sasl.login.callback.handler.class={oauth}.OAuthBearerLoginCallbackHandler\n\
             sasl.jaas.config={oauth}.OAuthBearerLoginModule required clientId=\"alice\" clientSecret=\"{CLIENT_SECRET}\" \
             scope=\"kafka write\" ssl.truststore.type=\"PEM\" ssl.truststore.location=\"{ca}\";\n"
        );
        fs::write(&config, properties).map_err(failed(&config))?;
        let (bootstrap, config) = (self.bootstrap(), text(&config));
        let option = if class == console::PRODUCER { "--producer.config" } else { "--consumer.config" };
        let common = ["--bootstrap-server", &bootstrap, "--topic", TOPIC, option, &config];
        let mut java = java_command(class, &[&common[..], args].concat())?;
        java.env("JAVA_TOOL_OPTIONS", format!("-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}"));
        run(class, &mut java, format!("{value}\n").as_bytes(), WITHIN)
    }

    /// Runs the program on confluent-kafka.
    fn librdkafka(&self, value: &str, more: &[&str]) -> Result<Vec<String>, Failure> {
        let config = self.files.path().join("librdkafka.properties");
        fs::write(&config, LIBRDKAFKA).map_err(failed(&config))?;
        let (bootstrap, ca) = (self.bootstrap(), text(&self.ca));
        let (bootstrap, ca) = (format!("bootstrap.servers={bootstrap}"), format!("ssl.ca.location={ca}"));
        let group = format!("group.id={value}");
        python(&config, value, &[&[&bootstrap, &ca, group.as_str()], more].concat())
    }

    fn franz_go(&self, program: &Path, mechanism: &str, secret: &str) -> Result<String, Failure> {
        let mut go = Command::new(program);
        go.args([TOPIC, &format!("franz-go with {mechanism}")]);
        go.env("CA_FILE", &self.ca).env("BOOTSTRAP", self.bootstrap());
        go.env("MECHANISM", mechanism).env("SECRET", secret);
        Ok(run("franz-go", &mut go, b"", WITHIN)?.succeeded()?.stdout_text())
    }
}

#[test]
fn each_mechanism_lets_franz_go_in_and_refuses_wrong_secrets() -> Result<(), Failure> {
    require!(Peer::Go);
    let world = World::start()?;
    let (source, program) = (world.files.path().join("main.go"), world.files.path().join("program"));
    let code = concat!(include_str!("mechanisms.go"), include_str!("main.go"));
    fs::write(&source, code).map_err(failed(&source))?;
    build_foreign_go(&source, &program)?;
    let (right, wrong) = (world.issuer.token(now_s() + 600), Issuer::new().token(now_s() + 600));
    for (mechanism, right, wrong) in [
        ("PLAIN", PASSWORD, WRONG_PASSWORD),
        ("SCRAM-SHA-256", PASSWORD, WRONG_PASSWORD),
        ("SCRAM-SHA-512", PASSWORD, WRONG_PASSWORD),
        ("OAUTHBEARER", &right, &wrong),
    ] {
        let said = world.franz_go(&program, mechanism, right)?;
        assert!(said.contains(&format!("read: franz-go with {mechanism}")), "{mechanism}: {said}");
        let said = world.franz_go(&program, mechanism, wrong)?;
        assert!(said.starts_with("refused:"), "{mechanism}: {said}");
    }
    Ok(())
}

#[test]
fn tokens_of_a_provider_let_java_and_librdkafka_in() -> Result<(), Failure> {
    require!(Peer::Java);
    require!(Peer::Librdkafka);
    let world = World::start()?;
    let stranger = Issuer::new();
    let (provider, strangers) = (world.provider(&world.issuer), world.provider(&stranger));

    let short = ["--producer-property", "max.block.ms=20000"];
    world.java(console::PRODUCER, &short, &provider, "java with a token")?.succeeded()?;
    let all = ["--from-beginning", "--timeout-ms", "5000"];
    let read = world.java(console::CONSUMER, &all, &provider, "")?.stdout_text();
    assert!(read.contains("java with a token"), "{read}");
    let refused = world.java(console::PRODUCER, &short, &strangers, "never")?;
    let said = refused.stdout_text() + &refused.stderr_text();
    assert!(said.contains(r#"SaslAuthenticationException: {"status":"invalid_token"}"#), "{said}");

    let ca = format!("https.ca.location={}", text(&world.ca));
    let secret = format!("sasl.oauthbearer.client.secret={CLIENT_SECRET}");
    let oidc = |provider: &str| format!("sasl.oauthbearer.token.endpoint.url={provider}");
    let login = |url: &str, value: &str| {
        let properties = [
            "sasl.mechanism=OAUTHBEARER",
            "sasl.oauthbearer.method=oidc",
            "sasl.oauthbearer.client.id=alice",
            "sasl.oauthbearer.scope=kafka write",
            &ca,
            &secret,
            url,
        ];
        world.librdkafka(value, &properties)
    };
    let value = "librdkafka with a token of a provider";
    assert_eq!(login(&oidc(&provider), value)?.last(), Some(&format!("read: {value}")));
    let refused = login(&oidc(&strangers), "never")?;
    assert!(refused[0].starts_with("refused:"), "{refused:?}");

    let callback = |token: &str, value: &str| {
        world.librdkafka(value, &["sasl.mechanism=OAUTHBEARER", &format!("oauth.token={token}")])
    };
    let value = "librdkafka with a token of a callback";
    let read = callback(&world.issuer.token(now_s() + 600), value)?;
    assert_eq!(read.last(), Some(&format!("read: {value}")));
    let expired = callback(&world.issuer.token(now_s() - 300), "never")?;
    assert!(expired[0].starts_with("refused:"), "{expired:?}");
    Ok(())
}
