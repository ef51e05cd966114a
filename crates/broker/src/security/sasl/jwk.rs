//! Public keys that verify signatures of tokens (JWK and JWKS, RFC 7517).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;

/// The header of a signed token.
#[derive(Deserialize)]
pub(super) struct TokenHeader {
    pub(super) alg: String,
    kid: Option<String>,
    /// Extensions that a reader must know, or else refuse the token (RFC 7515, 4.1.11).
    pub(super) crit: Option<Value>,
}

/// A public key.
#[derive(Debug)]
pub(super) struct Key {
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

impl Key {
    /// Returns `true` if the key may sign tokens with this header, and has signed this one.
    pub(super) fn verifies(&self, header: &TokenHeader, signed: &[u8], signature: &[u8]) -> bool {
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

/// The keys in the text of a JWKS.
pub(super) fn keys_of(text: &[u8]) -> Result<Vec<Key>, String> {
    let json: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let keys: Vec<Key> = json["keys"].as_array().into_iter().flatten().filter_map(Key::of).collect();
    if keys.is_empty() {
        return Err("no RSA or EC key for signatures".to_owned());
    }
    Ok(keys)
}
