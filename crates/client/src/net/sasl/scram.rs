//! SCRAM (RFC 5802, RFC 7677): both sides prove that they know the password without sending it.

use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::digest::{Digest, KeyInit, Mac};
use hmac::{EagerHash, Hmac};
use sha2::{Sha256, Sha512};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{Authenticator, Credentials, SaslChannel, SaslExchange};
use crate::error::Error;
use crate::security::{Mechanism, Secret};

/// RFC 7677 and Kafka require at least 4096. A million iterations take the engine half a second; a higher number
/// indicates a broken or malicious broker.
const ITERATIONS: std::ops::RangeInclusive<u32> = 4096..=1_000_000;
/// The random bytes of a nonce, before encoding.
const NONCE_BYTES: usize = 32;

/// The salted password, cached for the next connection because it is costly. A user of one cluster has one salt.
pub(super) struct SaltedPassword {
    /// The generation of the credentials with this password.
    generation: u64,
    salt: Vec<u8>,
    iterations: u32,
    key: Zeroizing<Vec<u8>>,
}

/// Returns the salted password, from the cache if it has that of the same password, salt and number of iterations.
fn salted(
    cache: &Mutex<Option<SaltedPassword>>,
    credentials: &Credentials,
    challenge: &Challenge,
    compute: fn(&[u8], &[u8], u32) -> Vec<u8>,
) -> Zeroizing<Vec<u8>> {
    let mut last = cache.lock().unwrap_or_else(PoisonError::into_inner);
    let (generation, iterations) = (credentials.generation, challenge.iterations);
    if let Some(last) = last.as_ref()
        && (last.generation, last.iterations) == (generation, iterations)
        && last.salt == challenge.salt
    {
        return last.key.clone();
    }
    let key = Zeroizing::new(compute(credentials.password.expose().as_bytes(), &challenge.salt, iterations));
    // An exchange that began before the credentials were replaced ends with the old password.
    if last.as_ref().is_none_or(|last| last.generation <= generation) {
        *last =
            Some(SaltedPassword { generation, salt: challenge.salt.clone(), iterations, key: key.clone() });
    }
    key
}

pub(super) async fn prove<L: SaslChannel>(
    exchange: &mut SaslExchange<'_, L>,
    authenticator: &Authenticator,
) -> Result<(), Error> {
    let mut random = [0; NONCE_BYTES];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut random)
        .map_err(|_| exchange.refused("the system gives no random numbers"))?;
    let nonce = STANDARD.encode(random);
    let credentials = authenticator.credentials();
    let first_bare = format!("n={},r={nonce}", credentials.username.replace('=', "=3D").replace(',', "=2C"));
    let server_first = exchange.say(format!("n,,{first_bare}").into_bytes()).await?;

    let challenge = Challenge::parse(&server_first, &nonce).map_err(|reason| exchange.refused(&reason))?;
    let salted = |compute| salted(&authenticator.salted, &credentials, &challenge, compute);
    // The channel binding: none, "n,," in base64.
    let final_bare = format!("c=biws,r={}", challenge.nonce);
    let server_first = String::from_utf8_lossy(&server_first);
    let said = format!("{first_bare},{server_first},{final_bare}");
    let (proof, signature) = match exchange.mechanism {
        Mechanism::ScramSha512 => prove_with::<Sha512>(&salted(salt::<Sha512>), said.as_bytes()),
        _ => prove_with::<Sha256>(&salted(salt::<Sha256>), said.as_bytes()),
    };
    let answer = exchange.say(format!("{final_bare},p={}", STANDARD.encode(proof)).into_bytes()).await?;

    check_signature(&answer, &signature).map_err(|reason| exchange.refused(&reason))
}

/// Compares the signature in the broker's last message with the expected one. An error contains the reason.
pub(crate) fn check_signature(message: &[u8], expected: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(message);
    if let Some(reason) = text.strip_prefix("e=") {
        return Err(format!("refused with {reason}"));
    }
    let theirs = text
        .strip_prefix("v=")
        .and_then(|text| STANDARD.decode(text.split(',').next().unwrap_or_default()).ok());
    if theirs.is_some_and(|theirs| bool::from(theirs.ct_eq(expected))) {
        return Ok(());
    }
    Err("the broker's signature is wrong: it does not know the password, so it is not who it claims to be"
        .into())
}

/// Reads a broker's challenge, and computes a proof for it without the costly salt.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_challenge(message: &[u8], our_nonce: &str) {
    if let Ok(challenge) = Challenge::parse(message, our_nonce) {
        assert!(challenge.nonce.starts_with(our_nonce) && ITERATIONS.contains(&challenge.iterations));
        let _ = prove_with::<Sha256>(&challenge.salt, challenge.nonce.as_bytes());
    }
}

/// Returns the salted password that a broker stores to check proofs. `None` for mechanisms other than SCRAM, and for
/// numbers of iterations outside the accepted range.
pub(crate) fn salted_password(
    mechanism: Mechanism,
    password: &Secret,
    with: &[u8],
    iterations: u32,
) -> Option<Vec<u8>> {
    if !(1..=*ITERATIONS.end()).contains(&iterations) {
        return None;
    }
    let password = password.expose().as_bytes();
    match mechanism {
        Mechanism::ScramSha256 => Some(salt::<Sha256>(password, with, iterations)),
        Mechanism::ScramSha512 => Some(salt::<Sha512>(password, with, iterations)),
        Mechanism::Plain | Mechanism::OauthBearer | Mechanism::Gssapi => None,
    }
}

/// The broker's first message.
struct Challenge {
    nonce: String,
    salt: Vec<u8>,
    iterations: u32,
}

impl Challenge {
    fn parse(message: &[u8], our_nonce: &str) -> Result<Self, String> {
        let text = std::str::from_utf8(message).map_err(|_| "the broker's challenge is no text")?;
        let (mut nonce, mut salt, mut iterations) = (None, None, None);
        for field in text.split(',') {
            match field.split_once('=') {
                Some(("r", value)) => nonce = Some(value),
                Some(("s", value)) => salt = STANDARD.decode(value).ok(),
                Some(("i", value)) => iterations = value.parse::<u32>().ok(),
                Some(("m", _)) => return Err("the broker requires an unknown SCRAM extension".into()),
                Some(("e", reason)) => return Err(format!("refused with {reason}")),
                _ => {}
            }
        }
        let (Some(nonce), Some(salt), Some(iterations)) = (nonce, salt, iterations) else {
            return Err("the broker's challenge lacks a nonce, a salt or a number of iterations".into());
        };
        if !nonce.starts_with(our_nonce) || nonce.len() == our_nonce.len() {
            return Err(
                "the broker's nonce does not begin with ours: it may be from a replayed exchange".into()
            );
        }
        if !ITERATIONS.contains(&iterations) {
            let (min, max) = (ITERATIONS.start(), ITERATIONS.end());
            return Err(format!("the broker asks for {iterations} iterations, allowed are {min} to {max}"));
        }
        Ok(Self { nonce: nonce.to_owned(), salt, iterations })
    }
}

fn salt<D: EagerHash + Digest>(password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
    let mut out = vec![0; <D as Digest>::output_size()];
    pbkdf2::pbkdf2_hmac::<D>(password, salt, iterations, &mut out);
    out
}

/// The client's proof, and the signature that proves the broker's identity.
fn prove_with<D: EagerHash + Digest>(salted: &[u8], said: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let client_key = keyed::<D>(salted, b"Client Key");
    let stored_key = <D as Digest>::digest(&client_key);
    let signature = keyed::<D>(&stored_key, said);
    let proof = client_key.iter().zip(&signature).map(|(key, mask)| key ^ mask).collect();
    (proof, keyed::<D>(&keyed::<D>(salted, b"Server Key"), said))
}

fn keyed<D: EagerHash>(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = <Hmac<D> as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7677, section 3.
    #[test]
    fn the_dialogue_of_the_rfc_comes_out() {
        let first_bare = "n=user,r=rOprNGfwEbeRWgbNEkqO";
        let server_first =
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let challenge = Challenge::parse(server_first.as_bytes(), "rOprNGfwEbeRWgbNEkqO").expect("sound");
        let salted = salt::<Sha256>(b"pencil", &challenge.salt, challenge.iterations);
        let said = format!("{first_bare},{server_first},c=biws,r={}", challenge.nonce);
        let (proof, signature) = prove_with::<Sha256>(&salted, said.as_bytes());
        assert_eq!(STANDARD.encode(proof), "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
        assert_eq!(STANDARD.encode(signature), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn the_key_of_a_replaced_password_is_not_used_again() {
        let (cache, challenge) =
            (Mutex::default(), Challenge { nonce: "n".into(), salt: vec![7], iterations: 4096 });
        let credentials = |password: &str, generation| Credentials {
            username: "alice".into(),
            password: password.into(),
            generation,
        };
        let (old, new) = (credentials("horse", 0), credentials("battery", 1));
        // The password itself in place of the costly key.
        let key = |credentials| salted(&cache, credentials, &challenge, |password, _, _| password.to_vec());
        assert_eq!(*key(&old), b"horse");
        assert_eq!(*key(&new), b"battery", "of an exchange after the replacement");
        assert_eq!(*key(&old), b"horse", "of an exchange that began before it");
        let cached = salted(&cache, &new, &challenge, |_, _, _| panic!("the new key is cached"));
        assert_eq!(*cached, b"battery");
    }

    #[test]
    fn a_challenge_that_is_not_sound_is_refused_with_the_reason() {
        for (challenge, reason) in [
            ("r=oursX,s=AA==,i=4095", "4095 iterations, allowed are 4096 to 1000000"),
            ("r=oursX,s=AA==,i=2000000", "2000000 iterations"),
            ("r=theirs,s=AA==,i=4096", "does not begin with ours"),
            ("r=ours,s=AA==,i=4096", "does not begin with ours"),
            ("r=oursX,i=4096", "lacks"),
            ("m=x,r=oursX,s=AA==,i=4096", "extension"),
        ] {
            let error = Challenge::parse(challenge.as_bytes(), "ours").err().expect(challenge);
            assert!(error.contains(reason), "{error}");
        }
    }
}
