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
    Ed25519(Vec<u8>),
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
                    "PS256" => &signature::RSA_PSS_2048_8192_SHA256,
                    "PS384" => &signature::RSA_PSS_2048_8192_SHA384,
                    "PS512" => &signature::RSA_PSS_2048_8192_SHA512,
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
            (KeyMaterial::Ed25519(key), "EdDSA") => {
                UnparsedPublicKey::new(&signature::ED25519, key).verify(signed, signature).is_ok()
            }
            (KeyMaterial::Ec { .. } | KeyMaterial::Ed25519(_), _) => false,
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
            "RSA" => KeyMaterial::Rsa { n: without_zeros(bytes("n")?), e: without_zeros(bytes("e")?) },
            "EC" => {
                let is_384 = match field("crv")? {
                    "P-256" => false,
                    "P-384" => true,
                    _ => return None,
                };
                let length = if is_384 { 48 } else { 32 };
                let (x, y) = (coordinate(bytes("x")?, length)?, coordinate(bytes("y")?, length)?);
                let point = [vec![4], x, y].concat();
                KeyMaterial::Ec { point, is_384 }
            }
            "OKP" if field("crv") == Some("Ed25519") => KeyMaterial::Ed25519(bytes("x")?),
            _ => return None,
        };
        let text = |name: &str| field(name).map(str::to_owned);
        Some(Self { id: text("kid"), algorithm: text("alg"), material })
    }
}

/// A number without zero bytes before it, as ring reads it. RFC 7518 asks for that (6.3.1.1), and warns of libraries that add one.
fn without_zeros(mut bytes: Vec<u8>) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.drain(..zeros);
    bytes
}

/// A coordinate with the length of its curve, whatever number of zero bytes is before it; `None` if it is too long.
fn coordinate(bytes: Vec<u8>, length: usize) -> Option<Vec<u8>> {
    let number = without_zeros(bytes);
    let mut padded = vec![0; length.checked_sub(number.len())?];
    padded.extend(number);
    Some(padded)
}

/// The keys in the text of a JWKS.
pub(super) fn keys_of(text: &[u8]) -> Result<Vec<Key>, String> {
    let json: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let keys: Vec<Key> = json["keys"].as_array().into_iter().flatten().filter_map(Key::of).collect();
    if keys.is_empty() {
        return Err("no key of RSA, P-256, P-384 or Ed25519 for signatures".to_owned());
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PSS_SHA256,
        RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
    };
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use rustls::pki_types::pem::PemObject;
    use serde_json::json;

    use super::*;

    fn header(alg: &str) -> TokenHeader {
        TokenHeader { alg: alg.to_owned(), kid: None, crit: None }
    }

    /// Java's numbers have a zero byte before a first bit of 1, and some libraries leave zero bytes out. No token with such a key was
    /// accepted.
    #[test]
    fn a_number_of_a_key_may_have_zero_bytes_too_many_or_too_few() {
        let random = SystemRandom::new();
        let generate = || {
            let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).ok()?;
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).ok()
        };
        // One of 256 points has a zero byte at its beginning.
        let pair = (0..100_000).filter_map(|_| generate()).find(|pair| pair.public_key().as_ref()[1] == 0);
        let pair = pair.expect("a point with a zero byte");
        let signature = pair.sign(&random, b"token").expect("signed");
        let point = pair.public_key().as_ref();
        let x = without_zeros(point[1..33].to_vec());
        for zeros in [0, 32 - x.len(), 33 - x.len()] {
            let x = URL_SAFE_NO_PAD.encode([vec![0; zeros], x.clone()].concat());
            let y = URL_SAFE_NO_PAD.encode(&point[33..65]);
            let jwks = json!({ "keys": [{ "kty": "EC", "crv": "P-256", "x": x, "y": y }] }).to_string();
            let keys = keys_of(jwks.as_bytes()).expect("a key");
            assert!(keys[0].verifies(&header("ES256"), b"token", signature.as_ref()), "{zeros} zero bytes");
            assert!(!keys[0].verifies(&header("ES256"), b"other", signature.as_ref()));
        }
        assert_eq!(without_zeros(vec![0, 0, 1, 0]), [1, 0]);
        assert_eq!(coordinate(vec![1; 33], 32), None);
    }

    /// Kafka's library knows these algorithms. No client of such an issuer could log in.
    #[test]
    fn tokens_may_be_signed_with_rsassa_pss_and_ed25519() {
        let random = SystemRandom::new();
        let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let pem = include_bytes!("../../../../client/tests/data/rsa_key_of_tests.pem");
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem).expect("a key");
        let rsa = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).expect("RSA");
        let public = RsaPublicKeyComponents::<Vec<u8>>::from(rsa.public());
        let document = Ed25519KeyPair::generate_pkcs8(&random).expect("a key");
        let edwards = Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("a pair");
        let jwks = json!({ "keys": [
            {
                "kty": "RSA",
                "n": encoded(&public.n),
                "e": encoded(&public.e),
            },
            { "kty": "OKP", "crv": "Ed25519", "x": encoded(edwards.public_key().as_ref()) },
            { "kty": "OKP", "crv": "X25519", "x": encoded(&[7; 32]) },
        ] });
        let keys = keys_of(jwks.to_string().as_bytes()).expect("keys");
        assert_eq!(keys.len(), 2, "X25519 signs nothing");
        let signed_with = |padding: &'static dyn RsaEncoding| {
            let mut signature = vec![0; rsa.public().modulus_len()];
            rsa.sign(padding, &random, b"token", &mut signature).expect("signed");
            signature
        };
        let (short, long) = (signed_with(&RSA_PSS_SHA256), signed_with(&RSA_PSS_SHA512));
        let by_edwards = edwards.sign(b"token").as_ref().to_vec();
        for (key, alg, signature) in
            [(&keys[0], "PS256", &short), (&keys[0], "PS512", &long), (&keys[1], "EdDSA", &by_edwards)]
        {
            assert!(key.verifies(&header(alg), b"token", signature), "{alg}");
            assert!(!key.verifies(&header(alg), b"other", signature), "{alg}");
            for other in ["RS256", "PS384", "ES256", "HS256", "none"] {
                assert!(!key.verifies(&header(other), b"token", signature), "{alg} as {other}");
            }
        }
    }
}
