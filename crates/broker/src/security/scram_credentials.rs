//! The SCRAM credentials of users as a server has them: salts and keys, never passwords.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{OnceLock, PoisonError, RwLock};

use hmac::{Hmac, KeyInit, Mac};
use ottla_protocol::ErrorCode;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256, Sha512};

/// The salt of a user that does not exist has as many bytes as the one that `ottla users add` makes.
pub(crate) const INVENTED_SALT_BYTES: usize = 32;
/// Kafka's lower limit of iterations.
pub(crate) const ITERATIONS_MIN: i32 = 4096;

/// A mechanism, by its number in the protocol.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum ScramMechanism {
    Sha256 = 1,
    Sha512 = 2,
}

impl ScramMechanism {
    pub(crate) fn of(number: i8) -> Result<Self, (ErrorCode, String)> {
        match number {
            1 => Ok(Self::Sha256),
            2 => Ok(Self::Sha512),
            other => {
                let reason = format!("{other} is no mechanism: use 1 (SCRAM-SHA-256) or 2 (SCRAM-SHA-512)");
                Err((ErrorCode::UnsupportedSaslMechanism, reason))
            }
        }
    }

    /// The name in SaslHandshake.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha512 => "SCRAM-SHA-512",
        }
    }

    /// The keyed hash of the mechanism.
    pub(crate) fn mac(self, key: &[u8], text: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => mac::<Hmac<Sha256>>(key, text),
            Self::Sha512 => mac::<Hmac<Sha512>>(key, text),
        }
    }

    /// The salted password of RFC 5802.
    pub(crate) fn salted(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        match self {
            Self::Sha256 => pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(password, salt, iterations).to_vec(),
            Self::Sha512 => pbkdf2::pbkdf2_hmac_array::<Sha512, 64>(password, salt, iterations).to_vec(),
        }
    }

    /// The hash of the mechanism.
    pub(crate) fn digest(self, text: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(text).to_vec(),
            Self::Sha512 => Sha512::digest(text).to_vec(),
        }
    }
}

/// The part of a password that the server stores.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ScramCredential {
    pub(crate) iterations: i32,
    pub(crate) salt: Vec<u8>,
    pub(crate) stored_key: Vec<u8>,
    pub(crate) server_key: Vec<u8>,
}

impl ScramCredential {
    /// The keys that RFC 5802 derives from a salted password.
    pub(crate) fn of(
        mechanism: ScramMechanism,
        iterations: i32,
        salt: Vec<u8>,
        salted_password: &[u8],
    ) -> Self {
        let stored_key = mechanism.digest(&mechanism.mac(salted_password, b"Client Key"));
        let server_key = mechanism.mac(salted_password, b"Server Key");
        Self { iterations, salt, stored_key, server_key }
    }

    pub(crate) fn record(&self) -> ScramRecord {
        ScramRecord {
            iterations: self.iterations,
            salt: hex(&self.salt),
            stored_key: hex(&self.stored_key),
            server_key: hex(&self.server_key),
        }
    }

    pub(crate) fn of_record(record: &ScramRecord) -> Option<Self> {
        Some(Self {
            iterations: record.iterations,
            salt: unhex(&record.salt)?,
            stored_key: unhex(&record.stored_key)?,
            server_key: unhex(&record.server_key)?,
        })
    }
}

fn mac<M: Mac + KeyInit>(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// The journal's record of a credential.
#[derive(Deserialize, Serialize)]
pub(crate) struct ScramRecord {
    pub(crate) iterations: i32,
    pub(crate) salt: String,
    pub(crate) stored_key: String,
    pub(crate) server_key: String,
}

/// The credentials of all users.
#[derive(Debug, Default)]
pub(crate) struct ScramCredentials {
    pub(crate) known: RwLock<BTreeMap<(String, ScramMechanism), ScramCredential>>,
    /// Set before a listener with SCRAM is open.
    pub(crate) secret: OnceLock<Vec<u8>>,
}

impl ScramCredentials {
    /// The names of all users.
    pub(crate) fn users(&self) -> BTreeSet<String> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.keys().map(|(user, _)| user.clone()).collect()
    }

    /// The mechanisms and the iterations of a user's credentials.
    pub(crate) fn of_user(&self, user: &str) -> Vec<(ScramMechanism, i32)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let of_mechanism =
            |mechanism| Some((mechanism, known.get(&(user.to_owned(), mechanism))?.iterations));
        [ScramMechanism::Sha256, ScramMechanism::Sha512].into_iter().filter_map(of_mechanism).collect()
    }

    /// The credential of a user.
    pub(crate) fn credential(&self, user: &str, mechanism: ScramMechanism) -> Option<ScramCredential> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&(user.to_owned(), mechanism)).cloned()
    }

    /// A credential for a user that does not exist: always the same, so that a client cannot see that there is none.
    pub(crate) fn invented(&self, user: &str, mechanism: ScramMechanism) -> ScramCredential {
        let secret = self.secret.get().map_or(&[][..], Vec::as_slice);
        let named = format!("{}/{user}", mechanism as i8);
        let mut salt = ScramMechanism::Sha512.mac(secret, named.as_bytes());
        salt.truncate(INVENTED_SALT_BYTES);
        ScramCredential::of(mechanism, ITERATIONS_MIN, salt, secret)
    }
}
