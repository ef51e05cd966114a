//! The SCRAM credentials of users, as Kafka stores them: salts and keys, never passwords. The journal keeps them; no listener
//! authenticates with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{PoisonError, RwLock};

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use ottla_protocol::ErrorCode;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256, Sha512};

use crate::cluster::{Cluster, OpenError, Refusal, json, lock};
use crate::data_dir;

/// Keys of the journal: `scram/<mechanism>/<user>`.
const SCRAM_KEY: &str = "scram/";
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

    /// The keys that RFC 5802 derives from a salted password: the stored key and the server key, in hexadecimal.
    fn keys(self, salted_password: &[u8]) -> (String, String) {
        match self {
            Self::Sha256 => {
                let key = |text: &[u8]| mac::<Hmac<Sha256>>(salted_password, text);
                (hex(&Sha256::digest(key(b"Client Key"))), hex(&key(b"Server Key")))
            }
            Self::Sha512 => {
                let key = |text: &[u8]| mac::<Hmac<Sha512>>(salted_password, text);
                (hex(&Sha512::digest(key(b"Client Key"))), hex(&key(b"Server Key")))
            }
        }
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

/// The journal's record of a credential.
#[derive(Deserialize, Serialize)]
struct ScramRecord {
    iterations: i32,
    salt: String,
    stored_key: String,
    server_key: String,
}

/// The iterations of each credential.
#[derive(Debug, Default)]
pub(crate) struct ScramCredentials {
    iterations: RwLock<BTreeMap<(String, ScramMechanism), i32>>,
}

impl ScramCredentials {
    /// The names of all users.
    pub(crate) fn users(&self) -> BTreeSet<String> {
        let known = self.iterations.read().unwrap_or_else(PoisonError::into_inner);
        known.keys().map(|(user, _)| user.clone()).collect()
    }

    /// The mechanisms and the iterations of a user's credentials.
    pub(crate) fn of_user(&self, user: &str) -> Vec<(ScramMechanism, i32)> {
        let known = self.iterations.read().unwrap_or_else(PoisonError::into_inner);
        let of_mechanism = |mechanism| Some((mechanism, *known.get(&(user.to_owned(), mechanism))?));
        [ScramMechanism::Sha256, ScramMechanism::Sha512].into_iter().filter_map(of_mechanism).collect()
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

/// A change that was checked: its key, its record, and the iterations of a credential that stays.
struct Checked {
    key: (String, ScramMechanism),
    record: (Bytes, Option<Bytes>),
    iterations: Option<i32>,
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
            let mut known = self.scram_credentials.iterations.write().unwrap_or_else(PoisonError::into_inner);
            known.insert((user.to_owned(), mechanism), record.iterations);
        }
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
        let mut known = self.scram_credentials.iterations.write().unwrap_or_else(PoisonError::into_inner);
        let mut results = BTreeMap::new();
        for (user, outcome) in outcomes {
            let result = outcome.and_then(|checked| {
                written.clone()?;
                match checked.iterations {
                    Some(iterations) => drop(known.insert(checked.key, iterations)),
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
        let known = self.scram_credentials.iterations.read().unwrap_or_else(PoisonError::into_inner);
        match change {
            ScramChange::Delete { user, mechanism } => {
                let key = (user, ScramMechanism::of(mechanism)?);
                if !known.contains_key(&key) {
                    let reason = format!("user `{}` has no credential of mechanism {mechanism}", key.0);
                    return Err((ErrorCode::ResourceNotFound, reason));
                }
                Ok(Checked { record: (journal_key(&key), None), key, iterations: None })
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
                let (stored_key, server_key) = mechanism.keys(&salted_password);
                let record = json(&ScramRecord { iterations, salt: hex(&salt), stored_key, server_key })?;
                Ok(Checked { record: (journal_key(&key), Some(record)), key, iterations: Some(iterations) })
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
        let (stored_key, server_key) = ScramMechanism::Sha256.keys(&salted);
        assert_eq!(
            (stored_key.as_str(), server_key.as_str()),
            (
                "586e5df283e6dceb5c3e791d8b8528ec191e664045ce971792e2e6b5bb13e2a6",
                "c1f3cbc1c13a9d35a14c0990eed97629ea225863e566a4314ab99f3f00e5d9d5"
            )
        );
    }
}
