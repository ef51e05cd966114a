//! One node with TLS, every SASL mechanism, an authorizer, quotas and share groups: Apache Kafka 4.3, or the Ottla broker with the same
//! properties.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ottla_client::{
    Acl, AclFilter, AclOperation, AclPermission, Admin, Client, Config, Mechanism, NewTopic, PatternType,
    ResourceType, ScramChange, ScramMechanism, Secret, SecurityProtocol, Timeouts,
};
use ottla_interop::{Failure, KafkaCluster, KafkaOptions, OttlaBroker, Output, newest_jars, run, wait_until};
use tempfile::TempDir;

use super::{WITHIN, failed, text};
use crate::both_brokers::{Kind, SharedBrokers};
use crate::foreign::in_runtime;
use crate::peers::certificates::Authority;
use crate::peers::issuer::{AUDIENCE, ISSUER, Issuer};
use crate::peers::{CLIENT_SECRET, PASSWORD, Tokens, every_mechanism, key_file, oidc_server};

/// The super user.
pub(super) const ADMIN: Login = Login::scram("admin");

/// `alice` has all rights for topics of this prefix, and may join every group. Each mechanism accepts her.
pub(super) const TOPICS_OF_ALICE: &str = "mechanism-";

/// A user's credentials for one mechanism.
#[derive(Clone, Copy, Debug)]
pub(super) struct Login<'a> {
    pub(super) user: &'a str,
    pub(super) mechanism: &'a str,
    /// The password; the address of the provider of tokens with OAUTHBEARER.
    pub(super) secret: &'a str,
}

impl<'a> Login<'a> {
    /// The login of a user of [`SecuredCluster::add_user`].
    pub(super) const fn scram(user: &'a str) -> Self {
        Self { user, mechanism: "SCRAM-SHA-512", secret: PASSWORD }
    }
}

/// A node with a plaintext listener, whose clients are super users and prepare the tests, and a listener with TLS and SASL.
pub(super) struct SecuredCluster {
    server: Server,
    authority: Authority,
    pub(super) issuer: Issuer,
    ca: PathBuf,
    runtime: tokio::runtime::Runtime,
    files_written: AtomicUsize,
    // After the server, which reads them.
    files: TempDir,
}

enum Server {
    Kafka(KafkaCluster),
    Ottla(OttlaBroker),
}

impl SecuredCluster {
    /// The cluster of this kind that the running tests share.
    pub(super) fn shared(kind: Kind) -> Result<Arc<Self>, Failure> {
        static SHARED: SharedBrokers<SecuredCluster> = SharedBrokers::new();
        SHARED.of(kind, Self::start)
    }

    fn start(kind: Kind) -> Result<Self, Failure> {
        let failure = |error: std::io::Error| Failure::new(error.to_string());
        let files = tempfile::tempdir().map_err(failure)?;
        let (authority, issuer) = (Authority::new("authority"), Issuer::new());
        let ca = files.path().join("ca.pem");
        fs::write(&ca, &authority.pem).map_err(failed(&ca))?;
        let jwks = files.path().join("jwks.json");
        issuer.write_jwks(&jwks);
        let keystore = key_file(files.path(), "server.pem", &authority.sign(&["127.0.0.1"]));
        let keys_of_tokens = format!("file://{}", text(&jwks));
        let properties = properties(keystore, keys_of_tokens.clone());
        let server = match kind {
            Kind::Kafka => kafka(&properties, &keys_of_tokens).map(Server::Kafka)?,
            Kind::Ottla => ottla(properties).map(Server::Ottla)?,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(failure)?;
        let files_written = AtomicUsize::new(0);
        let cluster = Self { server, authority, issuer, ca, runtime, files_written, files };
        cluster.add_user(ADMIN.user)?;
        cluster.add_user("alice")?;
        cluster.allow_alice()?;
        Ok(cluster)
    }

    /// The address of the listener with TLS and SASL.
    pub(super) fn address(&self) -> String {
        let address: SocketAddr = match &self.server {
            Server::Kafka(kafka) => kafka.listener("LOGIN"),
            Server::Ottla(ottla) => ottla.addresses()[1],
        };
        address.to_string()
    }

    /// A client of the plaintext listener.
    pub(super) fn client(&self) -> Client {
        let address = match &self.server {
            Server::Kafka(kafka) => kafka.bootstrap(),
            Server::Ottla(ottla) => ottla.addresses()[0].to_string(),
        };
        Client::new(Config::new(address)).expect("a client")
    }

    fn admin(&self) -> Admin {
        self.client().admin()
    }

    /// Our client's configuration for a user.
    pub(super) fn config(&self, user: &str) -> Config {
        let mut config = Config::new(self.address());
        config.security.protocol = SecurityProtocol::SaslSsl;
        config.security.tls.ca_pem = Some(self.authority.pem.clone());
        config.security.sasl.mechanism = Some(Mechanism::ScramSha512);
        config.security.sasl.username = Some(user.into());
        config.security.sasl.password = Some(Secret::new(PASSWORD));
        config
    }

    pub(super) fn create_topic(&self, name: &str, partitions: i32) {
        in_runtime(self.admin().create_topics(&[NewTopic::new(name).partitions(partitions).replication(1)]))
            .expect("created");
    }

    /// Stores credentials of SCRAM, and waits until the broker has them.
    pub(super) fn add_user(&self, user: &str) -> Result<(), Failure> {
        for (mechanism, iterations) in [(ScramMechanism::Sha256, 4096), (ScramMechanism::Sha512, 8192)] {
            let password = Secret::new(PASSWORD);
            let change =
                ScramChange::Set { user: user.to_owned(), mechanism, iterations, password, salt: None };
            let stored = in_runtime(self.admin().alter_scram_credentials(&[change], Timeouts::default()));
            stored.expect("an answer").into_iter().for_each(|(_, result)| result.expect("stored"));
        }
        wait_until(&format!("the credentials of {user}"), WITHIN, || {
            let described =
                in_runtime(self.admin().describe_scram_credentials(Some(&[user]), Timeouts::default()));
            let all = described.expect("an answer").into_iter().map(|(_, result)| result);
            all.map(|result| result.map_or(0, |all| all.len())).eq([2]).then_some(())
        })
    }

    fn allow_alice(&self) -> Result<(), Failure> {
        let acl = |resource, pattern, name: &str, operation| Acl {
            resource,
            name: name.to_owned(),
            pattern,
            principal: "User:alice".to_owned(),
            host: "*".to_owned(),
            operation,
            permission: AclPermission::Allow,
        };
        let acls = [
            acl(ResourceType::Topic, PatternType::Prefixed, TOPICS_OF_ALICE, AclOperation::All),
            acl(ResourceType::Group, PatternType::Literal, "*", AclOperation::Read),
        ];
        let created = in_runtime(self.admin().create_acls(&acls, Timeouts::default()));
        created.expect("an answer").into_iter().for_each(|(_, result)| result.expect("created"));
        self.wait_for_acls("alice", acls.len())
    }

    /// Waits until the broker applies so many ACLs of a user.
    pub(super) fn wait_for_acls(&self, user: &str, count: usize) -> Result<(), Failure> {
        let filter = AclFilter { principal: Some(format!("User:{user}")), ..AclFilter::any() };
        wait_until(&format!("{count} ACLs of {user}"), WITHIN, || {
            let described = in_runtime(self.admin().describe_acls(&filter, Timeouts::default()));
            (described.expect("an answer").len() == count).then_some(())
        })
    }

    /// Runs one of Kafka's tools until it exits.
    pub(super) fn tool(
        &self,
        login: &Login,
        class: &str,
        args: &[&str],
        input: &str,
    ) -> Result<Output, Failure> {
        let name = class.rsplit('.').next().unwrap_or(class);
        run(name, &mut self.java(login, class, args)?, input.as_bytes(), WITHIN)
    }

    /// The command of one of Kafka's tools.
    pub(super) fn java(&self, login: &Login, class: &str, args: &[&str]) -> Result<Command, Failure> {
        let mut java = newest_jars()?.java(256);
        if login.mechanism == "OAUTHBEARER" {
            java.arg(format!("{ALLOWED_URLS}={}", login.secret));
        }
        let config = self.java_properties(login)?;
        java.args([class, "--bootstrap-server", &self.address(), "--command-config", &text(&config)]);
        java.args(args);
        Ok(java)
    }

    fn java_properties(&self, login: &Login) -> Result<PathBuf, Failure> {
        const LOGIN_MODULES: &str = "org.apache.kafka.common.security";
        let Login { user, mechanism, secret } = login;
        let ca = text(&self.ca);
        let common = format!(
            "security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\nssl.truststore.type=PEM\nssl.truststore.location={ca}\n"
        );
        let oauth = format!("{LOGIN_MODULES}.oauthbearer");
        let of_mechanism = if *mechanism == "OAUTHBEARER" {
            format!(
                "sasl.oauthbearer.token.endpoint.url={secret}\n\
                 sasl.login.callback.handler.class={oauth}.OAuthBearerLoginCallbackHandler\n\
                 sasl.jaas.config={oauth}.OAuthBearerLoginModule required clientId=\"{user}\" \
                 clientSecret=\"{CLIENT_SECRET}\" scope=\"kafka write\" ssl.truststore.type=\"PEM\" \
                 ssl.truststore.location=\"{ca}\";\n"
            )
        } else {
            let module =
                if *mechanism == "PLAIN" { "plain.PlainLoginModule" } else { "scram.ScramLoginModule" };
            format!(
                "sasl.jaas.config={LOGIN_MODULES}.{module} required username=\"{user}\" password=\"{secret}\";\n"
            )
        };
        self.write("java.properties", &(common + &of_mechanism))
    }

    /// A file with librdkafka's properties. Properties of OAUTHBEARER other than the mechanism are the caller's.
    pub(super) fn librdkafka_properties(&self, login: &Login) -> Result<PathBuf, Failure> {
        let Login { user, mechanism, secret } = login;
        let password = match *mechanism {
            "OAUTHBEARER" => String::new(),
            _ => format!("sasl.username={user}\nsasl.password={secret}\n"),
        };
        let properties = format!(
            "bootstrap.servers={}\nsecurity.protocol=SASL_SSL\nssl.ca.location={}\nsasl.mechanism={mechanism}\n{password}",
            self.address(),
            text(&self.ca)
        );
        self.write("librdkafka.properties", &properties)
    }

    /// The environment of a Go program for a login.
    pub(super) fn franz_go<'a>(&self, program: &'a mut Command, login: &Login) -> &'a mut Command {
        program.env("CA_FILE", &self.ca).env("BOOTSTRAP", self.address());
        program.env("MECHANISM", login.mechanism).env("SASL_USER", login.user).env("SECRET", login.secret)
    }

    /// The address of a provider of tokens, which an issuer signs.
    pub(super) fn provider(&self, issuer: &Issuer) -> String {
        let (certificate, issuer) = (self.authority.sign(&["127.0.0.1"]), issuer.clone());
        let tokens: Tokens = Arc::new(move |expires_s| issuer.token(expires_s));
        let port = self.runtime.block_on(oidc_server(&certificate, 600, tokens));
        format!("https://127.0.0.1:{port}/token")
    }

    /// The file of the certificate authority.
    pub(super) fn ca(&self) -> String {
        text(&self.ca)
    }

    fn write(&self, name: &str, content: &str) -> Result<PathBuf, Failure> {
        let number = self.files_written.fetch_add(1, Ordering::Relaxed);
        let path = self.files.path().join(format!("{number}-{name}"));
        fs::write(&path, content).map_err(failed(&path))?;
        Ok(path)
    }
}

/// The URLs from which the process may take keys and tokens.
const ALLOWED_URLS: &str = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls";

/// The properties that both brokers get.
fn properties(keystore: String, keys_of_tokens: String) -> Vec<(String, String)> {
    let mut properties: Vec<(String, String)> = [
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer".to_owned()),
        ("super.users", format!("User:ANONYMOUS;User:{}", ADMIN.user)),
        ("ssl.keystore.type", "PEM".to_owned()),
        ("ssl.keystore.location", keystore),
        ("sasl.oauthbearer.jwks.endpoint.url", keys_of_tokens),
        ("sasl.oauthbearer.expected.issuer", ISSUER.to_owned()),
        ("sasl.oauthbearer.expected.audience", AUDIENCE.to_owned()),
        (
            "listener.name.login.oauthbearer.sasl.server.callback.handler.class",
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler".to_owned(),
        ),
        // Members of share groups learn of others soon.
        ("group.share.min.heartbeat.interval.ms", "200".to_owned()),
        ("group.share.heartbeat.interval.ms", "500".to_owned()),
        ("share.coordinator.state.topic.replication.factor", "1".to_owned()),
        ("share.coordinator.state.topic.min.isr", "1".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    properties.extend(every_mechanism("login", &[ADMIN.user, "alice"]));
    properties
}

fn kafka(properties: &[(String, String)], keys_of_tokens: &str) -> Result<KafkaCluster, Failure> {
    let properties: Vec<_> = properties.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let allowed = format!("{ALLOWED_URLS}={keys_of_tokens}");
    KafkaCluster::start_with(
        1,
        &KafkaOptions {
            properties: &properties,
            listeners: &[("LOGIN", "SASL_SSL")],
            newest: true,
            jvm: &[&allowed],
            ..KafkaOptions::default()
        },
    )
}

fn ottla(properties: Vec<(String, String)>) -> Result<OttlaBroker, Failure> {
    let listeners = [
        ("listeners", "PLAINTEXT://127.0.0.1:0,LOGIN://127.0.0.1:0"),
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,LOGIN:SASL_SSL"),
    ];
    let listeners = listeners.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let all = listeners.into_iter().chain(properties);
    let args: Vec<String> =
        all.flat_map(|(name, value)| ["-X".to_owned(), format!("{name}={value}")]).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    OttlaBroker::start(&args)
}
