//! Logins with any messages, for fuzz targets.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::jwt::TokenVerifier;
use super::oauthbearer;
use super::scram::{NONCE_BYTES, ScramExchange};
use super::{Outcome, Stage};
use crate::config::{OauthSettings, SaslMechanism};
use crate::security::scram_credentials::{ITERATIONS_MIN, ScramCredential, ScramCredentials, ScramMechanism};

const NOW_MS: i64 = 1_700_000_000_000;
const USER: &str = "alice";
/// The salted password of the user: PBKDF2 would take most of the time.
const SALTED_PASSWORD: &[u8] = b"salted";
const RANDOM: [u8; NONCE_BYTES] = [7; NONCE_BYTES];
const ISSUER: &str = "https://issuer";
const AUDIENCE: &str = "kafka";

/// The two messages of a client in SCRAM. Only the right proof gets in, and the answer to the first message has its nonce.
/// Returns `true` if they get in with one of the mechanisms.
pub(crate) fn scram(first: &[u8], proof: &[u8]) -> bool {
    let mut is_in = false;
    for (mechanism, of_keys) in [
        (SaslMechanism::ScramSha256, ScramMechanism::Sha256),
        (SaslMechanism::ScramSha512, ScramMechanism::Sha512),
    ] {
        let credentials = ScramCredentials::default();
        let credential = ScramCredential::of(of_keys, ITERATIONS_MIN, b"salt".to_vec(), SALTED_PASSWORD);
        let mut known = credentials.known.write().expect("not poisoned");
        known.insert((USER.to_owned(), of_keys), credential);
        drop(known);
        let first = Bytes::copy_from_slice(first);
        let outcome = ScramExchange::begin_with(&credentials, mechanism, &first, RANDOM);
        let Outcome::Continue(Stage::ScramProof(exchange), answer) = outcome else { continue };
        let answer = std::str::from_utf8(&answer).expect("a text");
        assert!(answer.starts_with("r=") && answer.contains(&STANDARD.encode(RANDOM)), "{answer}");
        if let Outcome::Done(login) = exchange.finish(&Bytes::copy_from_slice(proof)) {
            assert_eq!(login.user, USER, "a user without a password");
            assert_eq!(proof, scram_proof(&first, of_keys).as_bytes(), "another proof");
            is_in = true;
        }
    }
    is_in
}

/// The proof of the user for a first message of the form `n,,n=alice,r=NONCE`.
fn scram_proof(first: &[u8], mechanism: ScramMechanism) -> String {
    let bare = String::from_utf8_lossy(first).into_owned();
    let mut parts = bare.splitn(3, ',');
    let header = format!("{},{},", parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let bare = parts.next().unwrap_or_default();
    let client_nonce = bare.split(',').nth(1).and_then(|field| field.strip_prefix("r=")).unwrap_or_default();
    let nonce = format!("{client_nonce}{}", STANDARD.encode(RANDOM));
    let without_proof = format!("c={},r={nonce}", STANDARD.encode(header));
    let challenge = format!("r={nonce},s={},i={ITERATIONS_MIN}", STANDARD.encode("salt"));
    let said = format!("{bare},{challenge},{without_proof}");
    let client_key = mechanism.mac(SALTED_PASSWORD, b"Client Key");
    let signature = mechanism.mac(&mechanism.digest(&client_key), said.as_bytes());
    let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
    format!("{without_proof},p={}", STANDARD.encode(proof))
}

/// The right proofs for a first message, one for each mechanism.
pub(crate) fn scram_proofs(first: &[u8]) -> [String; 2] {
    [ScramMechanism::Sha256, ScramMechanism::Sha512].map(|mechanism| scram_proof(first, mechanism))
}

fn settings() -> OauthSettings {
    OauthSettings::new(PathBuf::new(), ISSUER, AUDIENCE)
}

/// A client's message in OAUTHBEARER, with the keys of a JWKS. Returns `true` if it gets in.
pub(crate) fn token(jwks: &[u8], message: &[u8]) -> bool {
    let Ok(verifier) = TokenVerifier::of_keys(settings(), jwks) else { return false };
    let message = Bytes::copy_from_slice(message);
    match oauthbearer::check(Some(&verifier), &message, NOW_MS) {
        Outcome::Done(login) => {
            assert!(!login.user.is_empty() && login.expires_ms.is_some());
            true
        }
        Outcome::Continue(..) | Outcome::FailedWith(..) | Outcome::Failed(_) | Outcome::FailedFor(..) => {
            false
        }
    }
}

/// The claims of a token whose signature is right. Those that are accepted name a user and are for this broker.
pub(crate) fn claims(jwks: &[u8], claims: &[u8]) {
    let Ok(verifier) = TokenVerifier::of_keys(settings(), jwks) else { return };
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(claims) else { return };
    let Ok(accepted) = verifier.check_claims(&json, NOW_MS) else { return };
    assert_eq!(json["sub"].as_str().map(str::trim), Some(accepted.user.as_str()));
    assert!(!accepted.user.is_empty());
    assert_eq!(json["iss"].as_str(), Some(ISSUER));
    assert!(json["aud"].to_string().contains(AUDIENCE));
    let skew_ms = i64::try_from(settings().clock_skew.as_millis()).unwrap_or(i64::MAX);
    assert!(accepted.expires_ms > NOW_MS - skew_ms, "it has expired");
}
