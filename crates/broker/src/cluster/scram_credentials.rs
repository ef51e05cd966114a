//! The SCRAM credentials of users, as Kafka stores them: salts and keys, never passwords. The journal keeps them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{OnceLock, PoisonError, RwLock};

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use ottla_protocol::ErrorCode;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256, Sha512};

use crate::cluster::{Cluster, OpenError, Refusal, json, lock};
use crate::data_dir;

/// Keys of the journal: `scram/<mechanism>/<user>`.
const SCRAM_KEY: &str = "scram/";
/// The journal's key of the secret behind the salts of users that do not exist.
const SECRET_KEY: &[u8] = b"scram-secret";
const SECRET_BYTES: usize = 32;
/// The salt of a user that does not exist has as many bytes as the one that `ottla users add` makes.
const INVENTED_SALT_BYTES: usize = 32;
/// Kafka's limits.
const ITERATIONS_MIN: i32 = 4096;
const ITERATIONS_MAX: i32 = 16384;
/// Credentials of all users: each takes memory for good.
const CREDENTIALS_MAX: usize = 10_000;

/// A mechanism, by its number in the protocol.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum ScramMechanism {
    Sha256 = 1,
    Sha512 = 2,
}

impl ScramMechanism {
    fn of(number: i8) -> Result<Self, Refusal> {
        match number {
            1 => Ok(Self::Sha256),
            2 => Ok(Self::Sha512),
            other => {
                let reason = format!("{other} is no mechanism: use 1 (SCRAM-SHA-256) or 2 (SCRAM-SHA-512)");
                Err((ErrorCode::UnsupportedSaslMechanism, reason))
            }
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
    fn salted(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
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

    fn record(&self) -> ScramRecord {
        ScramRecord {
            iterations: self.iterations,
            salt: hex(&self.salt),
            stored_key: hex(&self.stored_key),
            server_key: hex(&self.server_key),
        }
    }

    fn of_record(record: &ScramRecord) -> Option<Self> {
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
struct ScramRecord {
    iterations: i32,
    salt: String,
    stored_key: String,
    server_key: String,
}

/// The credentials of all users.
#[derive(Debug, Default)]
pub(crate) struct ScramCredentials {
    known: RwLock<BTreeMap<(String, ScramMechanism), ScramCredential>>,
    /// Set before a listener with SCRAM is open.
    secret: OnceLock<Vec<u8>>,
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

/// A change of one credential.
#[derive(Clone)]
pub(crate) enum ScramChange {
    Delete {
        user: String,
        mechanism: i8,
    },
    /// Replaces the credential, or creates it.
    Set {
        user: String,
        mechanism: i8,
        iterations: i32,
        salt: Bytes,
        salted_password: Bytes,
    },
}

impl ScramChange {
    pub(crate) fn user(&self) -> &str {
        match self {
            Self::Delete { user, .. } | Self::Set { user, .. } => user,
        }
    }
}

/// A change that was checked: its key, its record, and the credential that stays.
struct Checked {
    key: (String, ScramMechanism),
    record: (Bytes, Option<Bytes>),
    credential: Option<ScramCredential>,
}

impl Cluster {
    pub(crate) fn load_scram_credentials(&self) -> Result<(), OpenError> {
        for (key, value) in lock(&self.journal).iter_prefix(SCRAM_KEY.as_bytes()) {
            let text = String::from_utf8_lossy(key).into_owned();
            let bad =
                |reason: String| OpenError::Record { journal: data_dir::META_DIR, key: text.clone(), reason };
            let rest = text.strip_prefix(SCRAM_KEY).unwrap_or_default();
            let named = rest.split_once('/').and_then(|(number, user)| Some((number.parse().ok()?, user)));
            let (number, user): (i8, &str) = named.ok_or_else(|| bad("the key names no user".into()))?;
            let mechanism = ScramMechanism::of(number).map_err(|(_, reason)| bad(reason))?;
            let record: ScramRecord =
                serde_json::from_slice(value).map_err(|error| bad(error.to_string()))?;
            let credential =
                ScramCredential::of_record(&record).ok_or_else(|| bad("no hexadecimal keys".into()))?;
            let mut known = self.scram_credentials.known.write().unwrap_or_else(PoisonError::into_inner);
            known.insert((user.to_owned(), mechanism), credential);
        }
        Ok(())
    }

    /// Sets the password of a user for both mechanisms. `overwrites` replaces a password that the user has.
    ///
    /// # Errors
    /// The credential is not durable, or the system gives no random numbers.
    pub(crate) fn set_password(&self, user: &str, password: &str, overwrites: bool) -> Result<(), String> {
        for mechanism in [ScramMechanism::Sha256, ScramMechanism::Sha512] {
            if !overwrites && self.scram_credentials.credential(user, mechanism).is_some() {
                continue;
            }
            let mut salt = vec![0; INVENTED_SALT_BYTES];
            let random = rustls::crypto::ring::default_provider().secure_random;
            random.fill(&mut salt).map_err(|_| "the system gives no random numbers".to_owned())?;
            let salted_password = mechanism.salted(password.as_bytes(), &salt, ITERATIONS_MIN as u32);
            let change = ScramChange::Set {
                user: user.to_owned(),
                mechanism: mechanism as i8,
                iterations: ITERATIONS_MIN,
                salt: salt.into(),
                salted_password: salted_password.into(),
            };
            for (_, outcome) in self.alter_scram_credentials(vec![change]) {
                outcome.map_err(|(_, reason)| reason)?;
            }
        }
        Ok(())
    }

    /// Reads the secret behind the salts of users that do not exist, or creates it. Called once, before a listener with SCRAM is
    /// open.
    ///
    /// # Errors
    /// The secret is not durable, or the system gives no random numbers.
    pub(crate) fn prepare_scram(&self) -> Result<(), String> {
        let stored = lock(&self.journal).get(SECRET_KEY).map(|secret| secret.to_vec());
        let secret = if let Some(secret) = stored {
            secret
        } else {
            let mut secret = vec![0; SECRET_BYTES];
            let random = rustls::crypto::ring::default_provider().secure_random;
            random.fill(&mut secret).map_err(|_| "the system gives no random numbers".to_owned())?;
            let entry = (Bytes::from_static(SECRET_KEY), Some(Bytes::from(secret.clone())));
            self.put_durably(&[entry]).map_err(|(_, reason)| reason)?;
            secret
        };
        let _ = self.scram_credentials.secret.set(secret);
        Ok(())
    }

    /// Changes credentials, one change per user: a user with several gets an error. They are durable when this returns, after a sync.
    /// Returns the outcome of each user.
    pub(crate) fn alter_scram_credentials(
        &self,
        changes: Vec<ScramChange>,
    ) -> BTreeMap<String, Result<(), Refusal>> {
        let _change = lock(&self.topic_changes);
        let mut outcomes: BTreeMap<String, Result<Checked, Refusal>> = BTreeMap::new();
        for change in changes {
            let user = change.user().to_owned();
            let outcome = match outcomes.get(&user) {
                // The first error of a user is the one that counts.
                Some(Err(_)) => continue,
                Some(Ok(_)) => {
                    let reason = format!("the credentials of user `{user}` are altered twice in one request");
                    Err((ErrorCode::DuplicateResource, reason))
                }
                None => self.check_scram(change),
            };
            outcomes.insert(user, outcome);
        }
        let checked = outcomes.values().flatten();
        let records: Vec<_> = checked.map(|checked| checked.record.clone()).collect();
        let written = if records.is_empty() { Ok(()) } else { self.put_durably(&records) };
        let mut known = self.scram_credentials.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut results = BTreeMap::new();
        for (user, outcome) in outcomes {
            let result = outcome.and_then(|checked| {
                written.clone()?;
                match checked.credential {
                    Some(credential) => drop(known.insert(checked.key, credential)),
                    None => drop(known.remove(&checked.key)),
                }
                Ok(())
            });
            results.insert(user, result);
        }
        results
    }

    fn check_scram(&self, change: ScramChange) -> Result<Checked, Refusal> {
        if change.user().is_empty() {
            return Err((ErrorCode::UnacceptableCredential, "the user has no name".to_owned()));
        }
        let known = self.scram_credentials.known.read().unwrap_or_else(PoisonError::into_inner);
        match change {
            ScramChange::Delete { user, mechanism } => {
                let key = (user, ScramMechanism::of(mechanism)?);
                if !known.contains_key(&key) {
                    let reason = format!("user `{}` has no credential of mechanism {mechanism}", key.0);
                    return Err((ErrorCode::ResourceNotFound, reason));
                }
                Ok(Checked { record: (journal_key(&key), None), key, credential: None })
            }
            ScramChange::Set { user, mechanism: number, iterations, salt, salted_password } => {
                let mechanism = ScramMechanism::of(number)?;
                if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) {
                    let reason = format!(
                        "user `{user}`: {iterations} iterations, allowed are {ITERATIONS_MIN} to {ITERATIONS_MAX}"
                    );
                    return Err((ErrorCode::UnacceptableCredential, reason));
                }
                let key = (user, mechanism);
                if known.len() >= CREDENTIALS_MAX && !known.contains_key(&key) {
                    let reason = format!("{CREDENTIALS_MAX} credentials are stored: delete some first");
                    return Err((ErrorCode::PolicyViolation, reason));
                }
                let credential = ScramCredential::of(mechanism, iterations, salt.to_vec(), &salted_password);
                let record = json(&credential.record())?;
                Ok(Checked { record: (journal_key(&key), Some(record)), key, credential: Some(credential) })
            }
        }
    }
}

fn journal_key((user, mechanism): &(String, ScramMechanism)) -> Bytes {
    format!("{SCRAM_KEY}{}/{user}", *mechanism as i8).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_those_of_rfc_7677() {
        // The salted password of the example in RFC 7677: user `user`, password `pencil`, 4096 iterations.
        let salted = [
            0xc4, 0xa4, 0x95, 0x10, 0x32, 0x3a, 0xb4, 0xf9, 0x52, 0xca, 0xc1, 0xfa, 0x99, 0x44, 0x19, 0x39,
            0xe7, 0x8e, 0xa7, 0x4d, 0x6b, 0xe8, 0x1d, 0xdf, 0x70, 0x96, 0xe8, 0x75, 0x13, 0xdc, 0x61, 0x5d,
        ];
        let record = ScramCredential::of(ScramMechanism::Sha256, 4096, vec![1, 2], &salted).record();
        assert_eq!(ScramCredential::of_record(&record).map(|it| it.salt), Some(vec![1, 2]));
        assert_eq!(
            (record.stored_key.as_str(), record.server_key.as_str()),
            (
                "586e5df283e6dceb5c3e791d8b8528ec191e664045ce971792e2e6b5bb13e2a6",
                "c1f3cbc1c13a9d35a14c0990eed97629ea225863e566a4314ab99f3f00e5d9d5"
            )
        );
    }
}
