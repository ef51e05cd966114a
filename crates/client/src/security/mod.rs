//! Security settings: TLS and SASL.

pub(crate) mod assertion;
pub(crate) mod aws_iam;
pub(crate) mod encrypted_pem;
pub(crate) mod gssapi;
pub(crate) mod kerberos;
pub(crate) mod keys;
pub(crate) mod openssl;
pub(crate) mod roots;
pub(crate) mod secret;
pub(crate) mod signatures;
pub(crate) mod suites;
pub(crate) mod tls;
pub(crate) mod token;
pub(crate) mod token_endpoint;
pub(crate) mod trusted_leaf;
pub(crate) mod unsecured_jwt;
mod verifier;
mod version_1;

use std::path::PathBuf;

pub use assertion::{AssertionAlgorithm, Assertions};
pub use kerberos::Kerberos;
pub use keys::{Keystore, check_certificate_chain, open_keystore};
pub use secret::Secret;
pub use token::{Token, TokenCallback, TokenFuture, TokenProvider};
pub use verifier::{CertificateProblem, CertificateVerifier, PresentedCertificate};

use crate::error::Error;

/// Security settings of connections to brokers.
///
/// ```
/// use ottla_client::{Config, Mechanism, Secret, SecurityProtocol};
///
/// let mut config = Config::new("broker.example:9093");
/// config.security.protocol = SecurityProtocol::SaslSsl;
/// config.security.tls.ca_location = Some("/etc/kafka/ca.pem".into());
/// config.security.sasl.mechanism = Some(Mechanism::ScramSha512);
/// config.security.sasl.username = Some("orders".into());
/// config.security.sasl.password = Some(Secret::new("correct horse"));
/// assert!(!format!("{config:?}").contains("horse"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Security {
    /// `security.protocol`. Plaintext by default.
    pub protocol: SecurityProtocol,
    /// Used by `ssl` and `sasl_ssl`.
    pub tls: TlsSettings,
    /// Used by `sasl_plaintext` and `sasl_ssl`.
    pub sasl: SaslSettings,
}

/// The values of `security.protocol`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SecurityProtocol {
    /// `plaintext`: neither encrypted nor authenticated.
    #[default]
    Plaintext,
    /// `ssl`: TLS; the client may authenticate with a certificate.
    Ssl,
    /// `sasl_plaintext`: SASL over an unencrypted connection, for trusted networks only.
    SaslPlaintext,
    /// `sasl_ssl`: SASL inside TLS.
    SaslSsl,
}

impl SecurityProtocol {
    /// Returns `true` if connections are encrypted.
    pub const fn is_tls(self) -> bool {
        matches!(self, Self::Ssl | Self::SaslSsl)
    }

    /// Returns `true` if the client authenticates with SASL.
    pub const fn is_sasl(self) -> bool {
        matches!(self, Self::SaslPlaintext | Self::SaslSsl)
    }
}

/// The trusted certificates and the client's own certificate. Files are read when a client is created. A changed file
/// is read again for the next connection.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// `ssl.ca.location`: a PEM file, or a directory of them, in place of the system's certificates. With `probe`, the
    /// system's.
    pub ca_location: Option<PathBuf>,
    /// `ssl.ca.pem`: the same as text, in addition to those of `ca_location`.
    pub ca_pem: Option<String>,
    /// `ssl.crl.location`: a PEM file of revoked certificates. The broker's certificate needs a list of its issuer that has not
    /// expired. An issuer that no list covers is accepted.
    pub crl_location: Option<PathBuf>,
    /// `ssl.certificate.location`: the client's certificate and its chain, PEM.
    pub certificate_location: Option<PathBuf>,
    /// `ssl.certificate.pem`: the same as text.
    pub certificate_pem: Option<String>,
    /// `ssl.key.location`: the client's private key, PEM: PKCS#8, PKCS#1 or SEC 1, encrypted or not.
    pub key_location: Option<PathBuf>,
    /// `ssl.key.pem`: the same as text.
    pub key_pem: Option<Secret>,
    /// `ssl.key.password`: the password of the private key.
    pub key_password: Option<Secret>,
    /// `ssl.keystore.location`: a PKCS#12 file with the client's certificate and key.
    pub keystore_location: Option<PathBuf>,
    /// `ssl.keystore.password`.
    pub keystore_password: Option<Secret>,
    /// `ssl.endpoint.identification.algorithm`: `https` (on, the default) checks that the certificate names the host
    /// of the connection; `none` (off) accepts any certificate from a trusted authority.
    pub endpoint_identification: bool,
    /// `enable.ssl.certificate.verification`: on by default. Off, any host can impersonate the broker.
    pub verify_certificates: bool,
    /// `ssl.cipher.suites`: the cipher suites to offer, in this order, by OpenSSL's or IANA's names. A list without suites of TLS 1.3
    /// leaves those as they are. If empty, all suites of rustls.
    pub cipher_suites: String,
    /// `ssl.curves.list`: the groups to offer for the key exchange.
    pub curves: String,
    /// `ssl.sigalgs.list`: the algorithms of brokers' signatures to offer and accept, by the names of OpenSSL or of TLS 1.3. If empty,
    /// all of rustls.
    pub signature_algorithms: String,
    /// `ssl.certificate.verify_cb`: accepts or refuses brokers' certificates, if `verify_certificates` is on.
    pub certificate_verifier: Option<CertificateVerifier>,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self {
            ca_location: None,
            ca_pem: None,
            crl_location: None,
            certificate_location: None,
            certificate_pem: None,
            key_location: None,
            key_pem: None,
            key_password: None,
            keystore_location: None,
            keystore_password: None,
            endpoint_identification: true,
            verify_certificates: true,
            cipher_suites: String::new(),
            curves: String::new(),
            signature_algorithms: String::new(),
            certificate_verifier: None,
        }
    }
}

/// SASL settings: the mechanism and the credentials.
#[derive(Clone, Debug, Default)]
pub struct SaslSettings {
    /// `sasl.mechanism`, `sasl.mechanisms`. `None` is Kafka's default, [`Mechanism::Gssapi`].
    pub mechanism: Option<Mechanism>,
    /// `sasl.username`, of PLAIN and SCRAM.
    pub username: Option<String>,
    /// `sasl.password`, of PLAIN and SCRAM.
    pub password: Option<Secret>,
    /// The source of OAUTHBEARER tokens.
    pub oauthbearer: OauthBearer,
    /// The names and the command of GSSAPI.
    pub kerberos: Kerberos,
}

/// The values of `sasl.mechanism`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mechanism {
    /// `PLAIN`: the client sends the password itself. Use it only inside TLS.
    Plain,
    /// `SCRAM-SHA-256`: both sides prove that they know the password without sending it.
    ScramSha256,
    /// `SCRAM-SHA-512`.
    ScramSha512,
    /// `OAUTHBEARER`: the client sends a token. Use it only inside TLS.
    OauthBearer,
    /// `GSSAPI`: Kerberos, with the system's library, which is loaded at run time.
    #[default]
    Gssapi,
}

impl Mechanism {
    /// All mechanisms.
    pub const ALL: [Self; 5] =
        [Self::Plain, Self::ScramSha256, Self::ScramSha512, Self::OauthBearer, Self::Gssapi];

    /// Returns `true` if the mechanism needs `sasl.username` and `sasl.password`.
    pub const fn has_password(self) -> bool {
        matches!(self, Self::Plain | Self::ScramSha256 | Self::ScramSha512)
    }

    /// The name on the wire and in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
            Self::OauthBearer => "OAUTHBEARER",
            Self::Gssapi => "GSSAPI",
        }
    }
}

/// The source of OAUTHBEARER tokens: the callback if there is one; otherwise the OIDC endpoint if the method is
/// [`OauthMethod::Oidc`]; otherwise, if allowed, unsigned tokens.
#[derive(Clone, Debug, Default)]
pub struct OauthBearer {
    /// `oauthbearer_token_refresh_cb`: called when a token is needed and the last one is about to expire.
    pub callback: Option<TokenCallback>,
    /// `sasl.oauthbearer.method`.
    pub method: OauthMethod,
    /// `sasl.oauthbearer.config`: `key=value` pairs for unsecured tokens: `principal` (needed), `principalClaimName`,
    /// `scope` (comma-separated), `scopeClaimName`, `lifeSeconds`, `extension_NAME`.
    pub config: Option<Secret>,
    /// `enable.sasl.oauthbearer.unsecure.jwt`: tokens without a signature, which production brokers refuse.
    pub unsecured_jwt: bool,
    /// `sasl.oauthbearer.token.endpoint.url`: `https` only.
    pub token_endpoint_url: Option<String>,
    /// `sasl.oauthbearer.client.id`, `sasl.oauthbearer.client.credentials.client.id`.
    pub client_id: Option<String>,
    /// `sasl.oauthbearer.client.secret`, `sasl.oauthbearer.client.credentials.client.secret`.
    pub client_secret: Option<Secret>,
    /// `sasl.oauthbearer.metadata.authentication.type`.
    pub cloud: OauthCloud,
    /// `sasl.oauthbearer.grant.type`.
    pub grant: OauthGrant,
    /// The assertions of [`OauthGrant::JwtBearer`].
    pub assertions: Assertions,
    /// `sasl.oauthbearer.sub.claim.name`: the token's claim with the principal; if empty, `sub`.
    pub sub_claim_name: String,
    /// `sasl.oauthbearer.scope`.
    pub scope: Option<String>,
    /// `sasl.oauthbearer.extensions`: comma-separated `key=value` pairs that are sent with the token.
    pub extensions: String,
    /// `https.ca.location`: the trusted certificates for the endpoint, in place of the system's.
    pub https_ca_location: Option<PathBuf>,
    /// `https.ca.pem`: the same as text.
    pub https_ca_pem: Option<String>,
}

/// Azure's metadata service, at the same address on each of its machines.
const AZURE_IMDS_URL: &str = "http://169.254.169.254/metadata/identity/oauth2/token";

/// The values of `sasl.oauthbearer.metadata.authentication.type`: the cloud provider whose service issues the tokens.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OauthCloud {
    /// `none`.
    #[default]
    None,
    /// `azure_imds`: with [`OauthMethod::Oidc`], the metadata service of an Azure machine issues the token, for the parameters
    /// after `query=` in `sasl.oauthbearer.config`. `sasl.oauthbearer.token.endpoint.url` replaces its address, and may be `http`.
    AzureImds,
    /// `aws_iam`: with [`OauthMethod::Oidc`], AWS's Security Token Service issues the token (`GetWebIdentityToken`) for the program's
    /// own identity at AWS. `sasl.oauthbearer.config` has the parameters `region` and `audience`, and optionally
    /// `duration_seconds`, `signing_algorithm`, `sts_endpoint` and `tag_NAME`. Credentials are looked up as AWS's libraries do,
    /// except for files of profiles.
    AwsIam,
}

/// The values of `sasl.oauthbearer.grant.type`: how the client proves to the token endpoint who it is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OauthGrant {
    /// `client_credentials`: with its id and its secret.
    #[default]
    ClientCredentials,
    /// `urn:ietf:params:oauth:grant-type:jwt-bearer`: with an assertion (RFC 7523).
    JwtBearer,
}

/// The values of `sasl.oauthbearer.method`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OauthMethod {
    /// `default`: tokens from the callback, or unsecured ones.
    #[default]
    Default,
    /// `oidc`: tokens from an OpenID Connect endpoint.
    Oidc,
}

impl Security {
    /// Checks for missing and contradictory settings.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        // As in librdkafka, for all protocols: the properties are of no protocol.
        let oauth = &self.sasl.oauthbearer;
        if oauth.https_ca_location.is_some() && oauth.https_ca_pem.is_some() {
            let text = "https.ca.location and https.ca.pem are both set: set one of them";
            return Err(Error::Config(text.into()));
        }
        if self.protocol.is_tls() {
            self.tls.validate()?;
        }
        if !self.protocol.is_sasl() {
            return Ok(());
        }
        let sasl = &self.sasl;
        match sasl.mechanism.unwrap_or_default() {
            Mechanism::Gssapi => sasl.kerberos.validate(),
            Mechanism::OauthBearer => sasl.oauthbearer.validate(),
            mechanism @ (Mechanism::Plain | Mechanism::ScramSha256 | Mechanism::ScramSha512) => {
                for (name, missing) in [
                    ("sasl.username", sasl.username.as_ref().is_none_or(String::is_empty)),
                    ("sasl.password", sasl.password.is_none()),
                ] {
                    if missing {
                        let text = format!("sasl.mechanism={} needs {name}", mechanism.name());
                        return Err(Error::Config(text));
                    }
                }
                Ok(())
            }
        }
    }
}

impl TlsSettings {
    /// Returns `true` if a client certificate is configured.
    pub(crate) fn has_certificate(&self) -> bool {
        self.certificate_location.is_some()
            || self.certificate_pem.is_some()
            || self.keystore_location.is_some()
    }

    fn has_key(&self) -> bool {
        self.key_location.is_some() || self.key_pem.is_some()
    }

    /// Refuses a certificate without its key, which brokers would not get. librdkafka accepts it.
    pub(crate) fn require_key(&self) -> Result<(), Error> {
        let has_chain = self.certificate_location.is_some() || self.certificate_pem.is_some();
        if has_chain && !self.has_key() {
            let text = "an SSL certificate is set without its key: set ssl.key.location or ssl.key.pem";
            return Err(Error::Config(text.into()));
        }
        Ok(())
    }

    fn validate(&self) -> Result<(), Error> {
        let pairs = [
            (
                "ssl.certificate.location",
                self.certificate_location.is_some(),
                "ssl.certificate.pem",
                self.certificate_pem.is_some(),
            ),
            ("ssl.key.location", self.key_location.is_some(), "ssl.key.pem", self.key_pem.is_some()),
            (
                "ssl.keystore.location",
                self.keystore_location.is_some(),
                "ssl.certificate.location or ssl.certificate.pem",
                self.certificate_location.is_some() || self.certificate_pem.is_some(),
            ),
        ];
        for (one, has_one, other, has_other) in pairs {
            if has_one && has_other {
                return Err(Error::Config(format!("{one} and {other} are both set: set one of them")));
            }
        }
        let has_chain = self.certificate_location.is_some() || self.certificate_pem.is_some();
        if self.has_key() && !has_chain {
            let text = "an SSL key is set without its certificate: set ssl.certificate.location or ssl.certificate.pem";
            return Err(Error::Config(text.into()));
        }
        Ok(())
    }
}

impl OauthBearer {
    /// The text of `sasl.oauthbearer.config`.
    pub(crate) fn config(&self) -> &str {
        self.config.as_ref().map(Secret::expose).unwrap_or_default()
    }

    /// The URL of Azure's metadata service, with the `query` of `sasl.oauthbearer.config`.
    pub(crate) fn azure_endpoint(&self) -> Result<token_endpoint::TokenEndpoint, Error> {
        let pairs = self.config().split(',').filter_map(|pair| pair.trim().split_once('='));
        let query =
            pairs.filter(|(key, query)| *key == "query" && !query.is_empty()).map(|(_, query)| query).next();
        let url = match (&self.token_endpoint_url, query) {
            (None, None) => {
                return Err(Error::Config(
                    "sasl.oauthbearer.metadata.authentication.type=azure_imds needs sasl.oauthbearer.config=query=..., \
                     or sasl.oauthbearer.token.endpoint.url"
                        .into(),
                ));
            }
            (url, query) => {
                let url = url.as_deref().unwrap_or(AZURE_IMDS_URL);
                let separator = if url.contains('?') { '&' } else { '?' };
                query.map_or_else(|| url.to_owned(), |query| format!("{url}{separator}{query}"))
            }
        };
        token_endpoint::TokenEndpoint::parse_any(&url)
    }

    fn validate(&self) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Config(text));
        if self.callback.is_some() {
            return Ok(());
        }
        match self.method {
            OauthMethod::Oidc if self.cloud == OauthCloud::AwsIam => {
                token::parse_extensions(&self.extensions)?;
                aws_iam::AwsIam::parse(self.config()).map(|_| ())
            }
            OauthMethod::Default if self.cloud == OauthCloud::AwsIam => refuse(
                "sasl.oauthbearer.metadata.authentication.type=aws_iam needs sasl.oauthbearer.method=oidc"
                    .into(),
            ),
            OauthMethod::Oidc if self.cloud == OauthCloud::AzureImds => {
                token::parse_extensions(&self.extensions)?;
                self.azure_endpoint().map(|_| ())
            }
            OauthMethod::Oidc => {
                let Some(url) = &self.token_endpoint_url else {
                    return refuse(
                        "sasl.oauthbearer.method=oidc needs sasl.oauthbearer.token.endpoint.url".into(),
                    );
                };
                if self.grant == OauthGrant::JwtBearer {
                    self.assertions.validate()?;
                } else if self.client_id.is_none() || self.client_secret.is_none() {
                    return refuse(
                        "sasl.oauthbearer.method=oidc needs sasl.oauthbearer.client.id and \
                         sasl.oauthbearer.client.secret"
                            .into(),
                    );
                }
                token::parse_extensions(&self.extensions)?;
                token_endpoint::TokenEndpoint::parse(url).map(|_| ())
            }
            OauthMethod::Default if self.unsecured_jwt => {
                unsecured_jwt::UnsecuredClaims::parse(self.config()).map(|_| ())
            }
            OauthMethod::Default => refuse(
                "sasl.mechanism=OAUTHBEARER needs a token callback, sasl.oauthbearer.method=oidc, or, for \
                 development, enable.sasl.oauthbearer.unsecure.jwt=true"
                    .into(),
            ),
        }
    }
}
