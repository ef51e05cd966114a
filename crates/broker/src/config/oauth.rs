//! The checks of OAUTHBEARER tokens.

use std::path::PathBuf;
use std::time::Duration;

use super::Pem;

/// The checks of tokens: signature, lifetime, issuer and audience.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OauthSettings {
    /// The source of the issuer's public keys.
    pub keys: KeySource,
    /// The issuer that a token must have.
    pub issuer: String,
    /// A token must have one of these audiences.
    pub audiences: Vec<String>,
    /// The claim that names the user. `sub` by default.
    pub subject_claim: String,
    /// The difference between clocks that is accepted. 30 seconds by default.
    pub clock_skew: Duration,
}

/// The source of an issuer's public keys (JWKS, RFC 7517).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum KeySource {
    /// A file, which is read again when it changes.
    File(PathBuf),
    /// A URL of the issuer.
    Endpoint(KeyEndpointSettings),
}

/// The URL of an issuer's public keys, and when it is read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeyEndpointSettings {
    /// An `https` URL. `http` is accepted with a warning: on the way, the keys can be replaced.
    pub url: String,
    /// The authorities that the server's certificate is checked with; those of the system by default.
    pub trusted: Option<Pem>,
    /// The time between two reads. One hour by default.
    pub refresh: Duration,
    /// The time until a failed read is tried again, doubled with each failure. 100 ms by default.
    pub retry_backoff: Duration,
    /// The longest such time, 10 seconds by default. A token with an unknown key has the keys read again, and this is also the
    /// shortest time between two such reads.
    pub retry_backoff_max: Duration,
}

impl KeyEndpointSettings {
    /// A URL with Kafka's times.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            trusted: None,
            refresh: Duration::from_secs(60 * 60),
            retry_backoff: Duration::from_millis(100),
            retry_backoff_max: Duration::from_secs(10),
        }
    }
}

impl OauthSettings {
    /// Checks with the keys of this file, for this issuer and this audience.
    pub fn new(
        jwks_file: impl Into<PathBuf>,
        issuer: impl Into<String>,
        audience: impl Into<String>,
    ) -> Self {
        Self::with_keys(KeySource::File(jwks_file.into()), issuer, audience)
    }

    /// Checks with keys from anywhere, for this issuer and this audience.
    pub fn with_keys(keys: KeySource, issuer: impl Into<String>, audience: impl Into<String>) -> Self {
        Self {
            keys,
            issuer: issuer.into(),
            audiences: vec![audience.into()],
            subject_claim: "sub".to_owned(),
            clock_skew: Duration::from_secs(30),
        }
    }
}
