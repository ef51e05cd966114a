//! The settings of a listener: its address, TLS and SASL.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{OauthSettings, Password, PrincipalRules};

/// Kafka's default of `sasl.server.max.receive.size`.
const RECEIVE_BYTES_MAX: usize = 512 << 10;
/// Kafka's default of `connection.failed.authentication.delay.ms`.
const FAILURE_DELAY: Duration = Duration::from_millis(100);

/// A listener of every node: an address with its security.
///
/// ```
/// use ottla_broker::{Broker, Listener, SaslMechanism, SaslSettings};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let users = SaslSettings::new([SaslMechanism::Plain]).user("alice", "secret");
/// let listener = Listener::new("CLIENTS", "127.0.0.1:0".parse()?).sasl(users);
/// let broker = Broker::builder().memory().listener(listener).start().await?;
/// # broker.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listener {
    /// The name, such as `PLAINTEXT` or `CLIENTS`.
    pub name: String,
    /// The address of the first node. Each further node uses the next port, or with port 0 any free port.
    pub address: SocketAddr,
    /// The address that clients of this listener connect to, as `host` or `host:port`; the listener's by default.
    pub advertise: Option<String>,
    /// TLS; without it, bytes are not encrypted.
    pub tls: Option<TlsSettings>,
    /// SASL; without it, clients are known by their certificates only.
    pub sasl: Option<SaslSettings>,
}

impl Listener {
    /// A listener without encryption and authentication.
    pub fn new(name: impl Into<String>, address: SocketAddr) -> Self {
        Self { name: name.into(), address, advertise: None, tls: None, sasl: None }
    }

    /// The address that clients receive instead of the listener's: `host` or `host:port`.
    #[must_use]
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.advertise = Some(address.into());
        self
    }

    /// Encrypts the connections.
    #[must_use]
    pub fn tls(mut self, tls: TlsSettings) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Clients must authenticate with SASL.
    #[must_use]
    pub fn sasl(mut self, sasl: SaslSettings) -> Self {
        self.sasl = Some(sasl);
        self
    }

    /// Kafka's name of the security protocol.
    pub fn protocol(&self) -> &'static str {
        match (self.tls.is_some(), self.sasl.is_some()) {
            (false, false) => "PLAINTEXT",
            (true, false) => "SSL",
            (false, true) => "SASL_PLAINTEXT",
            (true, true) => "SASL_SSL",
        }
    }

    /// Returns `true` if no client gets in without a password, a token or a certificate.
    pub fn requires_authentication(&self) -> bool {
        self.sasl.is_some() || self.tls.as_ref().is_some_and(|tls| tls.client_auth == ClientAuth::Required)
    }
}

/// Certificates or a private key in PEM.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Pem {
    /// A file, which is read again when it changes.
    File(PathBuf),
    /// The text itself.
    Text(Password),
}

/// Requests for client certificates: `ssl.client.auth`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ClientAuth {
    /// None are requested.
    #[default]
    None,
    /// A client may have one. Without it, the client is `User:ANONYMOUS`.
    Requested,
    /// A client without one gets no connection.
    Required,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum TlsVersion {
    /// TLS 1.2.
    V1_2,
    /// TLS 1.3.
    V1_3,
}

/// The TLS of a listener.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TlsSettings {
    /// The server's certificate and its chain.
    pub certificates: Pem,
    /// Its private key.
    pub key: Pem,
    /// The password of an encrypted key.
    pub key_password: Option<Password>,
    /// The authorities whose client certificates are accepted.
    pub trusted: Option<Pem>,
    /// Requests for client certificates.
    pub client_auth: ClientAuth,
    /// The identity of a client certificate: `ssl.principal.mapping.rules`.
    pub principal_rules: PrincipalRules,
    /// The versions that clients may use: `ssl.enabled.protocols`. TLS 1.2 and 1.3 by default.
    pub versions: Vec<TlsVersion>,
    /// The only cipher suites that clients may use, by Java's names (`TLS_AES_256_GCM_SHA384`): `ssl.cipher.suites`. All of rustls if
    /// empty.
    pub cipher_suites: Vec<String>,
}

impl TlsSettings {
    /// TLS with this certificate and key, without client certificates.
    pub fn new(certificates: Pem, key: Pem) -> Self {
        Self {
            certificates,
            key,
            key_password: None,
            trusted: None,
            client_auth: ClientAuth::None,
            principal_rules: PrincipalRules::default(),
            versions: vec![TlsVersion::V1_2, TlsVersion::V1_3],
            cipher_suites: Vec::new(),
        }
    }

    /// Requests client certificates that these authorities have signed.
    #[must_use]
    pub fn client_certificates(mut self, auth: ClientAuth, trusted: Pem) -> Self {
        self.client_auth = auth;
        self.trusted = Some(trusted);
        self
    }
}

/// A SASL mechanism that this broker knows.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum SaslMechanism {
    /// User and password, in the clear: use it with TLS.
    Plain,
    /// A proof of the password, by SHA-256.
    ScramSha256,
    /// A proof of the password, by SHA-512.
    ScramSha512,
    /// A signed token.
    OauthBearer,
}

impl SaslMechanism {
    /// All mechanisms, in the order in which they are listed.
    pub const ALL: [Self; 4] = [Self::Plain, Self::ScramSha256, Self::ScramSha512, Self::OauthBearer];

    /// The name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
            Self::OauthBearer => "OAUTHBEARER",
        }
    }

    /// The mechanism of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }
}

impl fmt::Display for SaslMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The SASL of a listener.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SaslSettings {
    /// The mechanisms that clients may use.
    pub mechanisms: Vec<SaslMechanism>,
    /// The users of PLAIN with their passwords. Those of SCRAM are stored by the cluster.
    pub plain_users: BTreeMap<String, Password>,
    /// The checks of OAUTHBEARER.
    pub oauth: Option<OauthSettings>,
    /// `connections.max.reauth.ms` by mechanism: a session that is not renewed in time ends (KIP-368). Without an entry, sessions
    /// of passwords do not end, and sessions of tokens end with the token.
    pub session_max: BTreeMap<SaslMechanism, Duration>,
    /// `connection.failed.authentication.delay.ms`: the time until a failed login is answered. 100 ms by default.
    pub failure_delay: Duration,
    /// `sasl.server.max.receive.size`: the largest request before authentication, and the largest token after it. 512 KiB by default.
    pub receive_bytes_max: usize,
}

impl SaslSettings {
    /// SASL with these mechanisms.
    pub fn new(mechanisms: impl IntoIterator<Item = SaslMechanism>) -> Self {
        Self {
            mechanisms: mechanisms.into_iter().collect(),
            plain_users: BTreeMap::new(),
            oauth: None,
            session_max: BTreeMap::new(),
            failure_delay: FAILURE_DELAY,
            receive_bytes_max: RECEIVE_BYTES_MAX,
        }
    }

    /// Adds a user of PLAIN.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>, password: impl Into<Password>) -> Self {
        self.plain_users.insert(name.into(), password.into());
        self
    }

    /// Sessions of every mechanism must be renewed within this time.
    #[must_use]
    pub fn session_max(mut self, max: Duration) -> Self {
        self.session_max = SaslMechanism::ALL.into_iter().map(|mechanism| (mechanism, max)).collect();
        self
    }

    /// Sets the checks of OAUTHBEARER.
    #[must_use]
    pub fn oauth(mut self, oauth: OauthSettings) -> Self {
        self.oauth = Some(oauth);
        self
    }
}
