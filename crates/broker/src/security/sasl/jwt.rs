//! Signed tokens (JWT, RFC 7519) and the public keys that verify them (JWKS, RFC 7517).

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;

use crate::config::OauthSettings;

/// The largest file of keys.
const JWKS_BYTES_MAX: u64 = 1 << 20;

/// Verifies the tokens of a listener.
#[derive(Debug)]
pub(super) struct TokenVerifier {
    settings: OauthSettings,
    keys: Mutex<KeyFile>,
}

#[derive(Debug)]
struct KeyFile {
    stamp: Option<(SystemTime, u64)>,
    keys: Vec<Key>,
}

/// The claims of a token that is valid.
#[derive(Debug, PartialEq)]
pub(super) struct Claims {
    pub(super) user: String,
    pub(super) expires_ms: i64,
}

/// A public key.
#[derive(Debug)]
struct Key {
    id: Option<String>,
    algorithm: Option<String>,
    material: KeyMaterial,
}

#[derive(Debug)]
enum KeyMaterial {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// An uncompressed point, and `true` for P-384 in place of P-256.
    Ec {
        point: Vec<u8>,
        is_384: bool,
    },
}

impl TokenVerifier {
    /// Reads the keys once, so that errors are reported at the start.
    pub(super) fn new(settings: OauthSettings) -> Result<Self, String> {
        if settings.issuer.is_empty() || settings.audiences.is_empty() {
            return Err("OAUTHBEARER needs an expected issuer and an expected audience".to_owned());
        }
        let stamp = stamp(&settings.jwks_file);
        let keys = read_keys(&settings.jwks_file)?;
        Ok(Self { settings, keys: Mutex::new(KeyFile { stamp, keys }) })
    }

    /// A verifier with the keys of a text, which are not read again.
    #[cfg(feature = "fuzzing")]
    pub(super) fn of_keys(settings: OauthSettings, jwks: &[u8]) -> Result<Self, String> {
        let stamp = stamp(&settings.jwks_file);
        Ok(Self { settings, keys: Mutex::new(KeyFile { stamp, keys: keys_of(jwks)? }) })
    }

    /// Checks the signature and the claims of a token.
    ///
    /// # Errors
    /// The reason, without the token.
    pub(super) fn verify(&self, token: &str, now_ms: i64) -> Result<Claims, String> {
        let (signed, signature) = token.rsplit_once('.').ok_or("no signature")?;
        let (header, claims) = signed.split_once('.').ok_or("no claims")?;
        let header: Header = decoded_json(header)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| "the signature is not base64")?;
        {
            let mut file = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
            file.refresh(&self.settings.jwks_file);
            let is_valid = file.keys.iter().any(|key| key.verifies(&header, signed.as_bytes(), &signature));
            if !is_valid {
                return Err(format!("no key verifies the signature, algorithm {}", header.alg));
            }
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
        if time_ms("nbf").is_some_and(|from| from > now_ms.saturating_add(skew_ms)) {
            return Err("it is not valid yet".to_owned());
        }
        if time_ms("iat").is_some_and(|issued| issued > now_ms.saturating_add(skew_ms)) {
            return Err("it was issued in the future".to_owned());
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

impl KeyFile {
    /// Reads the file again if it has changed. The old keys stay while it cannot be read.
    fn refresh(&mut self, path: &Path) {
        let stamp = stamp(path);
        if stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        match read_keys(path) {
            Ok(keys) => self.keys = keys,
            Err(error) => tracing::warn!(%error, "the keys of OAUTHBEARER have changed and cannot be used"),
        }
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
}

impl Key {
    fn verifies(&self, header: &Header, signed: &[u8], signature: &[u8]) -> bool {
        let other_id = matches!((&self.id, &header.kid), (Some(ours), Some(theirs)) if ours != theirs);
        if other_id || self.algorithm.as_ref().is_some_and(|algorithm| *algorithm != header.alg) {
            return false;
        }
        match (&self.material, header.alg.as_str()) {
            (KeyMaterial::Rsa { n, e }, alg) => {
                let parameters = match alg {
                    "RS256" => &signature::RSA_PKCS1_2048_8192_SHA256,
                    "RS384" => &signature::RSA_PKCS1_2048_8192_SHA384,
                    "RS512" => &signature::RSA_PKCS1_2048_8192_SHA512,
                    _ => return false,
                };
                RsaPublicKeyComponents { n, e }.verify(parameters, signed, signature).is_ok()
            }
            (KeyMaterial::Ec { point, is_384: false }, "ES256") => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                    .verify(signed, signature)
                    .is_ok()
            }
            (KeyMaterial::Ec { point, is_384: true }, "ES384") => {
                UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point)
                    .verify(signed, signature)
                    .is_ok()
            }
            (KeyMaterial::Ec { .. }, _) => false,
        }
    }

    /// `None` for keys of other kinds and uses.
    fn of(json: &Value) -> Option<Self> {
        let field = |name: &str| json[name].as_str();
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(field(name)?.trim_end_matches('=')).ok();
        if field("use").is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let material = match field("kty")? {
            "RSA" => KeyMaterial::Rsa { n: bytes("n")?, e: bytes("e")? },
            "EC" => {
                let is_384 = match field("crv")? {
                    "P-256" => false,
                    "P-384" => true,
                    _ => return None,
                };
                let point = [vec![4], bytes("x")?, bytes("y")?].concat();
                KeyMaterial::Ec { point, is_384 }
            }
            _ => return None,
        };
        let text = |name: &str| field(name).map(str::to_owned);
        Some(Self { id: text("kid"), algorithm: text("alg"), material })
    }
}

fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn read_keys(path: &Path) -> Result<Vec<Key>, String> {
    let bad = |reason: String| format!("JWKS {}: {reason}", path.display());
    let size = std::fs::metadata(path).map_err(|error| bad(error.to_string()))?.len();
    if size > JWKS_BYTES_MAX {
        return Err(bad(format!("{size} bytes, at most {JWKS_BYTES_MAX} are read")));
    }
    let text = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
    keys_of(&text).map_err(bad)
}

/// The keys in the text of a JWKS.
fn keys_of(text: &[u8]) -> Result<Vec<Key>, String> {
    let json: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let keys: Vec<Key> = json["keys"].as_array().into_iter().flatten().filter_map(Key::of).collect();
    if keys.is_empty() {
        return Err("no RSA or EC key for signatures".to_owned());
    }
    Ok(keys)
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
        json!({ "sub": "alice", "iss": "https://issuer", "aud": ["kafka"], "exp": NOW_MS / 1000 + 60 })
    }

    #[test]
    fn a_token_of_the_issuer_names_the_user() {
        let issuer = Issuer::new();
        let (verifier, _dir) = verifier(&issuer);
        let token = issuer.token(&json!({ "alg": "ES256", "kid": "1" }), &claims());
        let expected = Claims { user: "alice".to_owned(), expires_ms: NOW_MS + 60_000 };
        assert_eq!(verifier.verify(&token, NOW_MS), Ok(expected));
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
        assert!(reason(&with(json!({ "iss": "https://other" }))).contains("issuer"));
        assert!(reason(&with(json!({ "aud": "other" }))).contains("audience"));
        assert!(reason(&with(json!({ "sub": " " }))).contains("`sub`"));
        assert!(reason(&Issuer::new().token(&json!({ "alg": "ES256" }), &claims())).contains("no key"));
        let unsigned = issuer.token(&json!({ "alg": "none" }), &claims());
        assert!(reason(&unsigned).contains("no key"));
        assert!(reason(&issuer.token(&json!({ "alg": "HS256" }), &claims())).contains("no key"));
        assert!(reason(&issuer.token(&json!({ "alg": "ES256", "kid": "2" }), &claims())).contains("no key"));
        for malformed in ["", ".", "..", "a.b.c", "e30.e30.e30"] {
            assert!(verifier.verify(malformed, NOW_MS).is_err(), "{malformed}");
        }
    }
}
