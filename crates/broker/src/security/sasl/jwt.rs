//! Signed tokens (JWT, RFC 7519).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use super::jwk::TokenHeader;
use super::key_source::Keys;
use crate::config::OauthSettings;

/// Verifies the tokens of a listener.
#[derive(Debug)]
pub(super) struct TokenVerifier {
    settings: OauthSettings,
    keys: Keys,
}

/// The claims of a token that is valid.
#[derive(Debug, PartialEq)]
pub(super) struct Claims {
    pub(super) user: String,
    pub(super) expires_ms: i64,
}

impl TokenVerifier {
    /// Reads the keys once, so that errors are reported at the start.
    pub(super) fn new(settings: OauthSettings) -> Result<Self, String> {
        if settings.issuer.is_empty() || settings.audiences.is_empty() {
            return Err("OAUTHBEARER needs an expected issuer and an expected audience".to_owned());
        }
        let keys = Keys::open(&settings.keys)?;
        Ok(Self { settings, keys })
    }

    /// A verifier with the keys of a text, which are not read again.
    #[cfg(feature = "fuzzing")]
    pub(super) fn of_keys(settings: OauthSettings, jwks: &[u8]) -> Result<Self, String> {
        Ok(Self { settings, keys: Keys::Fixed(super::jwk::keys_of(jwks)?) })
    }

    /// Checks the signature and the claims of a token.
    ///
    /// # Errors
    /// The reason, without the token.
    pub(super) fn verify(&self, token: &str, now_ms: i64) -> Result<Claims, String> {
        let (signed, signature) = token.rsplit_once('.').ok_or("no signature")?;
        let (header, claims) = signed.split_once('.').ok_or("no claims")?;
        let header: TokenHeader = decoded_json(header)?;
        if header.crit.is_some() {
            return Err("it requires extensions (`crit`), of which none is known".to_owned());
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| "the signature is not base64")?;
        if !self.keys.verify(&header, signed.as_bytes(), &signature) {
            return Err(format!("no key verifies the signature, algorithm {}", header.alg));
        }
        self.check_claims(&decoded_json(claims)?, now_ms)
    }

    pub(super) fn check_claims(&self, claims: &Value, now_ms: i64) -> Result<Claims, String> {
        let skew_ms = i64::try_from(self.settings.clock_skew.as_millis()).unwrap_or(i64::MAX);
        let time_ms = |name: &str| claims[name].as_f64().map(|seconds| (seconds * 1000.0) as i64);
        let expires_ms = time_ms("exp").ok_or("no `exp`")?;
        if now_ms.saturating_sub(skew_ms) >= expires_ms {
            return Err("it has expired".to_owned());
        }
        let not_before_ms = time_ms("nbf");
        if not_before_ms.is_some_and(|from| from > now_ms.saturating_add(skew_ms)) {
            return Err("it is not valid yet".to_owned());
        }
        // As in Kafka, it is required, and not compared with the clock: that of the issuer may be ahead.
        let issued_ms = time_ms("iat").ok_or("no `iat`")?;
        if expires_ms < issued_ms || not_before_ms.is_some_and(|from| expires_ms < from) {
            return Err("it ends before it begins".to_owned());
        }
        if claims["iss"].as_str() != Some(&self.settings.issuer) {
            return Err("another issuer".to_owned());
        }
        let is_expected = |value: &Value| {
            value.as_str().is_some_and(|audience| self.settings.audiences.iter().any(|it| it == audience))
        };
        let is_for_us = match &claims["aud"] {
            Value::Array(audiences) => audiences.iter().any(is_expected),
            audience => is_expected(audience),
        };
        if !is_for_us {
            return Err("another audience".to_owned());
        }
        let user = claims[self.settings.subject_claim.as_str()].as_str().map(str::trim).unwrap_or_default();
        if user.is_empty() {
            return Err(format!("no `{}`", self.settings.subject_claim));
        }
        Ok(Claims { user: user.to_owned(), expires_ms })
    }
}

fn decoded_json<T: for<'a> Deserialize<'a>>(part: &str) -> Result<T, String> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| "a part is not base64")?;
    serde_json::from_slice(&bytes).map_err(|_| "a part is not JSON of the expected form".to_owned())
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
    use serde_json::json;

    use super::*;

    const NOW_MS: i64 = 1_700_000_000_000;

    struct Issuer {
        pair: EcdsaKeyPair,
        random: SystemRandom,
    }

    impl Issuer {
        fn new() -> Self {
            let random = SystemRandom::new();
            let document =
                EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
            let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random);
            Self { pair: pair.expect("a pair"), random }
        }

        fn jwks(&self) -> String {
            let point = self.pair.public_key().as_ref();
            let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..65]));
            json!({ "keys": [{ "kty": "oct" }, { "kty": "EC", "crv": "P-256", "kid": "1", "x": x, "y": y }] })
                .to_string()
        }

        fn token(&self, header: &Value, claims: &Value) -> String {
            let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
            let signed = format!("{}.{}", part(header), part(claims));
            let signature = self.pair.sign(&self.random, signed.as_bytes()).expect("signed");
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
        }
    }

    fn verifier(issuer: &Issuer) -> (TokenVerifier, tempfile::TempDir) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("jwks.json");
        std::fs::write(&path, issuer.jwks()).expect("written");
        (TokenVerifier::new(OauthSettings::new(path, "https://issuer", "kafka")).expect("keys"), dir)
    }

    fn claims() -> Value {
        let (issued, expires) = (NOW_MS / 1000, NOW_MS / 1000 + 60);
        json!({ "sub": "alice", "iss": "https://issuer", "aud": ["kafka"], "iat": issued, "exp": expires })
    }

    #[test]
    fn a_token_of_the_issuer_names_the_user() {
        let issuer = Issuer::new();
        let (verifier, _dir) = verifier(&issuer);
        let token = issuer.token(&json!({ "alg": "ES256", "kid": "1" }), &claims());
        let expected = Claims { user: "alice".to_owned(), expires_ms: NOW_MS + 60_000 };
        assert_eq!(verifier.verify(&token, NOW_MS), Ok(expected));
    }

    /// jose4j, and so Kafka, looks at `nbf` for that. Clients of an issuer whose clock is ahead could not log in.
    #[test]
    fn a_token_may_be_issued_in_the_future() {
        let issuer = Issuer::new();
        let (verifier, _dir) = verifier(&issuer);
        let mut claims = claims();
        claims["iat"] = json!(NOW_MS / 1000 + 59);
        let token = issuer.token(&json!({ "alg": "ES256" }), &claims);
        assert_eq!(verifier.verify(&token, NOW_MS).map(|claims| claims.user), Ok("alice".to_owned()));
    }

    #[test]
    fn other_tokens_are_refused_for_their_reason() {
        let issuer = Issuer::new();
        let (verifier, _dir) = verifier(&issuer);
        let with = |change: Value| {
            let mut claims = claims();
            for (name, value) in change.as_object().expect("an object") {
                claims[name] = value.clone();
            }
            issuer.token(&json!({ "alg": "ES256" }), &claims)
        };
        let reason = |token: &str| verifier.verify(token, NOW_MS).expect_err("refused");
        assert!(reason(&with(json!({ "exp": NOW_MS / 1000 - 31 }))).contains("expired"));
        assert!(reason(&with(json!({ "nbf": NOW_MS / 1000 + 31 }))).contains("not valid yet"));
        assert!(reason(&with(json!({ "exp": null }))).contains("no `exp`"));
        assert!(reason(&with(json!({ "iat": null }))).contains("no `iat`"));
        assert!(reason(&with(json!({ "iat": NOW_MS / 1000 + 61 }))).contains("ends before it begins"));
        assert!(
            reason(&with(json!({ "exp": NOW_MS / 1000, "nbf": NOW_MS / 1000 + 1 }))).contains("ends before")
        );
        assert!(reason(&with(json!({ "iss": "https://other" }))).contains("issuer"));
        assert!(reason(&with(json!({ "aud": "other" }))).contains("audience"));
        assert!(reason(&with(json!({ "sub": " " }))).contains("`sub`"));
        assert!(reason(&Issuer::new().token(&json!({ "alg": "ES256" }), &claims())).contains("no key"));
        let unsigned = issuer.token(&json!({ "alg": "none" }), &claims());
        assert!(reason(&unsigned).contains("no key"));
        assert!(reason(&issuer.token(&json!({ "alg": "HS256" }), &claims())).contains("no key"));
        assert!(reason(&issuer.token(&json!({ "alg": "ES256", "kid": "2" }), &claims())).contains("no key"));
        let with_extension = json!({ "alg": "ES256", "kid": "1", "crit": ["exp2"] });
        assert!(reason(&issuer.token(&with_extension, &claims())).contains("crit"));
        for malformed in ["", ".", "..", "a.b.c", "e30.e30.e30"] {
            assert!(verifier.verify(malformed, NOW_MS).is_err(), "{malformed}");
        }
    }
}
