//! Assertions: signed tokens that prove to a token endpoint who the client is, in place of a secret (RFC 7523).

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Map, Value};

use super::Secret;
use super::keys;
use crate::error::Error;

/// The grant type of requests with an assertion.
pub(crate) const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// The assertions of the grant `urn:ietf:params:oauth:grant-type:jwt-bearer`: from a file that another program renews, or
/// created and signed for each request.
#[derive(Clone, Debug)]
pub struct Assertions {
    /// `sasl.oauthbearer.assertion.file`: the assertion itself, read for each request. The other settings have no effect then.
    pub file: Option<PathBuf>,
    /// `sasl.oauthbearer.assertion.algorithm`.
    pub algorithm: AssertionAlgorithm,
    /// `sasl.oauthbearer.assertion.private.key.file`: the key in PEM, read for each request.
    pub private_key_location: Option<PathBuf>,
    /// `sasl.oauthbearer.assertion.private.key.pem`: the key itself.
    pub private_key_pem: Option<Secret>,
    /// `sasl.oauthbearer.assertion.private.key.passphrase`: the password of an encrypted PKCS#8 key.
    pub private_key_password: Option<Secret>,
    /// `sasl.oauthbearer.assertion.jwt.template.file`: a JSON object with the objects `header` and `payload`. Claims from the
    /// settings replace those of the template.
    pub template_file: Option<PathBuf>,
    /// `sasl.oauthbearer.assertion.claim.aud`.
    pub audience: Option<String>,
    /// `sasl.oauthbearer.assertion.claim.iss`.
    pub issuer: Option<String>,
    /// `sasl.oauthbearer.assertion.claim.sub`.
    pub subject: Option<String>,
    /// `sasl.oauthbearer.assertion.claim.exp.seconds`: the time from creation to the claim `exp`.
    pub expires_after: Duration,
    /// `sasl.oauthbearer.assertion.claim.nbf.seconds`: the time from the claim `nbf` to creation.
    pub valid_before: Duration,
    /// `sasl.oauthbearer.assertion.claim.jti.include`: a random claim `jti`.
    pub with_id: bool,
}

/// The header and the claims of an assertion.
type Contents = (Map<String, Value>, Map<String, Value>);

/// The values of `sasl.oauthbearer.assertion.algorithm`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AssertionAlgorithm {
    /// `RS256`: RSA with SHA-256.
    #[default]
    Rs256,
    /// `ES256`: ECDSA on the curve P-256 with SHA-256.
    Es256,
}

impl Default for Assertions {
    fn default() -> Self {
        Self {
            file: None,
            algorithm: AssertionAlgorithm::default(),
            private_key_location: None,
            private_key_pem: None,
            private_key_password: None,
            template_file: None,
            audience: None,
            issuer: None,
            subject: None,
            expires_after: Duration::from_secs(300),
            valid_before: Duration::from_secs(60),
            with_id: false,
        }
    }
}

impl AssertionAlgorithm {
    const fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
        }
    }
}

impl Assertions {
    /// Checks the settings, and that the key and the template are usable now.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        if self.file.is_some() {
            return Ok(());
        }
        if self.private_key_location.is_some() && self.private_key_pem.is_some() {
            return Err(Error::Config(
                "sasl.oauthbearer.assertion.private.key.file and sasl.oauthbearer.assertion.private.key.pem \
                 are both set: set one of them"
                    .into(),
            ));
        }
        self.signed(0).map(|_| ())
    }

    /// The assertion for a request at this time.
    pub(crate) fn assertion(&self, now_ms: i64) -> Result<Secret, Error> {
        let Some(file) = &self.file else { return self.signed(now_ms) };
        let property = "sasl.oauthbearer.assertion.file";
        let text = String::from_utf8(keys::read(property, file)?);
        let text = text.map_err(|_| Error::Config(format!("{property}: {} is no text", file.display())))?;
        Ok(Secret::new(text.trim()))
    }

    fn signed(&self, now_ms: i64) -> Result<Secret, Error> {
        let (header, payload) = self.contents(now_ms)?;
        let part = |object| URL_SAFE_NO_PAD.encode(Value::Object(object).to_string());
        let message = format!("{}.{}", part(header), part(payload));
        let signature = self.sign(message.as_bytes())?;
        Ok(Secret::new(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))))
    }

    /// The header and the claims.
    fn contents(&self, now_ms: i64) -> Result<Contents, Error> {
        let (mut header, mut payload) = self.template()?;
        header.entry("typ").or_insert_with(|| "JWT".into());
        header.insert("alg".into(), self.algorithm.name().into());
        let claims = [("aud", &self.audience), ("iss", &self.issuer), ("sub", &self.subject)];
        for (name, value) in claims {
            if let Some(value) = value {
                payload.insert(name.into(), value.as_str().into());
            }
        }
        let now = now_ms / 1000;
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        payload.insert("iat".into(), now.into());
        payload.insert("exp".into(), now.saturating_add(seconds(self.expires_after)).into());
        payload.insert("nbf".into(), now.saturating_sub(seconds(self.valid_before)).into());
        if self.with_id {
            let mut id = [0; 16];
            SystemRandom::new()
                .fill(&mut id)
                .map_err(|_| Error::Config("no random numbers from the system".into()))?;
            payload.insert("jti".into(), URL_SAFE_NO_PAD.encode(id).into());
        }
        Ok((header, payload))
    }

    fn template(&self) -> Result<Contents, Error> {
        let Some(file) = &self.template_file else { return Ok(Default::default()) };
        let property = "sasl.oauthbearer.assertion.jwt.template.file";
        let refuse = |text: String| Error::Config(format!("{property}: {}: {text}", file.display()));
        let mut template: Value = serde_json::from_slice(&keys::read(property, file)?)
            .map_err(|error| refuse(format!("no JSON: {error}")))?;
        let mut object = |name: &str| match template[name].take() {
            Value::Object(object) => Ok(object),
            Value::Null => Ok(Map::new()),
            _ => Err(refuse(format!("`{name}` is no object"))),
        };
        Ok((object("header")?, object("payload")?))
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let key = keys::text(
            ("sasl.oauthbearer.assertion.private.key.file", self.private_key_location.as_deref()),
            ("sasl.oauthbearer.assertion.private.key.pem", self.private_key_pem.as_ref().map(Secret::expose)),
        )?;
        let (property, pem) = key.ok_or_else(|| {
            Error::Config(
                "sasl.oauthbearer.grant.type=urn:ietf:params:oauth:grant-type:jwt-bearer needs \
                 sasl.oauthbearer.assertion.private.key.file, sasl.oauthbearer.assertion.private.key.pem or \
                 sasl.oauthbearer.assertion.file"
                    .into(),
            )
        })?;
        let password =
            ("sasl.oauthbearer.assertion.private.key.passphrase", self.private_key_password.as_ref());
        let key = keys::private_key(property, pem.expose().as_bytes(), password)?;
        let random = SystemRandom::new();
        let algorithm = self.algorithm.name();
        let refuse = |text: &dyn std::fmt::Display| {
            Error::Config(format!(
                "{property}: no key for sasl.oauthbearer.assertion.algorithm={algorithm}: {text}"
            ))
        };
        match (self.algorithm, &key) {
            (AssertionAlgorithm::Rs256, PrivateKeyDer::Pkcs8(_) | PrivateKeyDer::Pkcs1(_)) => {
                let pair = match &key {
                    PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
                    _ => RsaKeyPair::from_der(key.secret_der()),
                };
                let pair = pair.map_err(|error| refuse(&error))?;
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .map_err(|error| refuse(&error))?;
                Ok(signature)
            }
            (AssertionAlgorithm::Es256, PrivateKeyDer::Pkcs8(der)) => {
                let pair = EcdsaKeyPair::from_pkcs8(
                    &ECDSA_P256_SHA256_FIXED_SIGNING,
                    der.secret_pkcs8_der(),
                    &random,
                )
                .map_err(|error| refuse(&error))?;
                let signature = pair.sign(&random, message).map_err(|error| refuse(&error))?;
                Ok(signature.as_ref().to_vec())
            }
            _ => Err(refuse(&"`openssl pkcs8 -topk8 -nocrypt` makes a PKCS#8 key of other forms")),
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::PublicKeyData as _;
    use ring::signature::{ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};

    use super::*;

    const NOW_MS: i64 = 1_700_000_000_500;

    fn parts(assertion: &Secret) -> (Value, Value) {
        let part = |index| {
            let text = assertion.expose().split('.').nth(index).expect("a part");
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).expect("base64")).expect("JSON")
        };
        (part(0), part(1))
    }

    fn ec_key() -> (rcgen::KeyPair, Assertions) {
        let pair = rcgen::KeyPair::generate().expect("a key");
        let private_key_pem = Some(pair.serialize_pem().into());
        let algorithm = AssertionAlgorithm::Es256;
        (pair, Assertions { algorithm, private_key_pem, ..Assertions::default() })
    }

    #[test]
    fn an_assertion_has_the_configured_claims_and_a_signature_that_verifies() {
        let (pair, mut settings) = ec_key();
        settings.audience = Some("https://login.example".into());
        settings.issuer = Some("orders".into());
        settings.subject = Some("billing".into());
        settings.expires_after = Duration::from_secs(120);
        settings.valid_before = Duration::from_secs(5);
        settings.with_id = true;
        let assertion = settings.assertion(NOW_MS).expect("signed");
        let (header, claims) = parts(&assertion);
        assert_eq!(header, serde_json::json!({ "alg": "ES256", "typ": "JWT" }));
        let id = claims["jti"].as_str().expect("an id").to_owned();
        assert_eq!(
            claims,
            serde_json::json!({
                "aud": "https://login.example", "iss": "orders", "sub": "billing", "jti": id,
                "iat": 1_700_000_000, "exp": 1_700_000_120, "nbf": 1_699_999_995,
            })
        );
        let (message, signature) = assertion.expose().rsplit_once('.').expect("three parts");
        let signature = URL_SAFE_NO_PAD.decode(signature).expect("base64");
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.der_bytes())
            .verify(message.as_bytes(), &signature)
            .expect("the signature is that of the key");
        assert_ne!(parts(&settings.assertion(NOW_MS).expect("signed")).1["jti"], id.as_str());
    }

    /// ring creates no RSA keys: this one is for this test only.
    #[test]
    fn rs256_signs_with_an_rsa_key() {
        let pem = include_str!("../../tests/data/rsa_key_of_tests.pem");
        let settings = Assertions { private_key_pem: Some(pem.into()), ..Assertions::default() };
        let assertion = settings.assertion(NOW_MS).expect("signed");
        assert_eq!(parts(&assertion).0["alg"], "RS256");
        let (message, signature) = assertion.expose().rsplit_once('.').expect("three parts");
        let signature = URL_SAFE_NO_PAD.decode(signature).expect("base64");
        let key = keys::private_key("key", pem.as_bytes(), ("password", None)).expect("a key");
        let PrivateKeyDer::Pkcs8(der) = &key else { panic!("PKCS#8") };
        let pair = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).expect("RSA");
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public().as_ref())
            .verify(message.as_bytes(), &signature)
            .expect("the signature is that of the key");
    }

    #[test]
    fn claims_of_the_settings_replace_those_of_the_template() {
        let (_, mut settings) = ec_key();
        let directory = tempfile::tempdir().expect("a directory");
        let template = directory.path().join("template.json");
        let text =
            r#"{"header":{"kid":"key-1","alg":"none"},"payload":{"sub":"orders","aud":"all","roles":["a"]}}"#;
        std::fs::write(&template, text).expect("written");
        settings.template_file = Some(template.clone());
        settings.audience = Some("kafka".into());
        let (header, claims) = parts(&settings.assertion(NOW_MS).expect("signed"));
        assert_eq!((&header["kid"], &header["alg"]), (&"key-1".into(), &"ES256".into()));
        assert_eq!((&claims["sub"], &claims["aud"]), (&"orders".into(), &"kafka".into()));
        assert_eq!(claims["roles"], serde_json::json!(["a"]));

        std::fs::write(&template, r#"{"payload":7}"#).expect("written");
        let error = settings.validate().expect_err("no claims").to_string();
        assert!(error.contains("template.json") && error.contains("`payload` is no object"), "{error}");
    }

    #[test]
    fn an_assertion_of_a_file_is_read_for_each_request() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("assertion");
        let settings = Assertions { file: Some(file.clone()), ..Assertions::default() };
        for text in ["first", "second"] {
            std::fs::write(&file, format!("{text}\n")).expect("written");
            assert_eq!(settings.assertion(NOW_MS).expect("read").expose(), text);
        }
    }

    #[test]
    fn keys_that_cannot_sign_are_refused_without_being_shown() {
        let missing = Assertions::default().validate().expect_err("no key").to_string();
        assert!(missing.contains("private.key.file") && missing.contains("assertion.file"), "{missing}");
        let (_, mut settings) = ec_key();
        settings.algorithm = AssertionAlgorithm::Rs256;
        let other = settings.validate().expect_err("an EC key").to_string();
        assert!(other.contains("algorithm=RS256") && !other.contains("BEGIN"), "{other}");
        settings.private_key_location = Some("/tmp/key.pem".into());
        let both = settings.validate().expect_err("two keys").to_string();
        assert!(both.contains("are both set"), "{both}");
    }
}
