//! An issuer of signed tokens, and the file with its public key.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};

/// The expected issuer.
pub(crate) const ISSUER: &str = "https://issuer.test";
/// The expected audience.
pub(crate) const AUDIENCE: &str = "kafka";

/// Signs tokens with ES256.
#[derive(Clone)]
pub(crate) struct Issuer(Arc<EcdsaKeyPair>);

impl Issuer {
    pub(crate) fn new() -> Self {
        let random = SystemRandom::new();
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random);
        Self(Arc::new(pair.expect("a key")))
    }

    /// Writes the public key for a broker.
    pub(crate) fn write_jwks(&self, path: &Path) {
        let point = self.0.public_key().as_ref();
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..65]));
        let key = serde_json::json!({ "kty": "EC", "crv": "P-256", "kid": "1", "x": x, "y": y });
        std::fs::write(path, serde_json::json!({ "keys": [key] }).to_string()).expect("written");
    }

    /// A token of `alice` that expires at a time in seconds since 1970.
    pub(crate) fn token(&self, expires_s: u64) -> String {
        let claims = serde_json::json!({
            "sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": super::now_s() - 600, "exp": expires_s,
        });
        let part = |json: &serde_json::Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let header = serde_json::json!({ "alg": "ES256", "kid": "1" });
        let signed = format!("{}.{}", part(&header), part(&claims));
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).expect("signed");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}
