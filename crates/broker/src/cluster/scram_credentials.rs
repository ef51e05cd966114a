//! Changes of the SCRAM credentials of users. The journal keeps them.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use bytes::Bytes;
use ottla_protocol::ErrorCode;

use crate::cluster::{Cluster, OpenError, Refusal, json, lock};
use crate::data_dir;
use crate::security::acl::NAME_BYTES_MAX;
use crate::security::scram_credentials::{
    INVENTED_SALT_BYTES, ITERATIONS_MIN, ScramCredential, ScramMechanism, ScramRecord,
};

/// Keys of the journal: `scram/<mechanism>/<user>`.
const SCRAM_KEY: &str = "scram/";
/// The journal's key of the secret behind the salts of users that do not exist.
const SECRET_KEY: &[u8] = b"scram-secret";
const SECRET_BYTES: usize = 32;
/// Kafka's upper limit of iterations.
const ITERATIONS_MAX: i32 = 16384;
/// Credentials of all users: each takes memory for good.
const CREDENTIALS_MAX: usize = 10_000;
/// The longest salt. Kafka's have up to 26 bytes.
const SALT_BYTES_MAX: usize = 64;

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
    /// The user had no such credential before.
    is_new: bool,
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
        let mut new_ones = 0;
        for change in changes {
            let user = change.user().to_owned();
            let outcome = match outcomes.get(&user) {
                // The first error of a user is the one that counts.
                Some(Err(_)) => continue,
                Some(Ok(_)) => {
                    let reason = format!("the credentials of user `{user}` are altered twice in one request");
                    Err((ErrorCode::DuplicateResource, reason))
                }
                None => self.check_scram(change, new_ones),
            };
            new_ones += usize::from(outcome.as_ref().is_ok_and(|checked| checked.is_new));
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

    /// Checks a change. The request has `new_ones` more credentials before it.
    fn check_scram(&self, change: ScramChange, new_ones: usize) -> Result<Checked, Refusal> {
        if change.user().is_empty() {
            return Err((ErrorCode::UnacceptableCredential, "the user has no name".to_owned()));
        }
        let known = self.scram_credentials.known.read().unwrap_or_else(PoisonError::into_inner);
        match change {
            ScramChange::Delete { user, mechanism } => {
                let key = (user, ScramMechanism::of(mechanism)?);
                if !known.contains_key(&key) {
                    let reason = format!("user `{}` has no credential of {}", key.0, key.1.name());
                    return Err((ErrorCode::ResourceNotFound, reason));
                }
                Ok(Checked { record: (journal_key(&key), None), key, credential: None, is_new: false })
            }
            ScramChange::Set { user, mechanism: number, iterations, salt, salted_password } => {
                let mechanism = ScramMechanism::of(number)?;
                if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) {
                    let reason = format!(
                        "user `{user}`: {iterations} iterations, allowed are {ITERATIONS_MIN} to {ITERATIONS_MAX}"
                    );
                    return Err((ErrorCode::UnacceptableCredential, reason));
                }
                let lengths =
                    [("name of the user", user.len(), NAME_BYTES_MAX), ("salt", salt.len(), SALT_BYTES_MAX)];
                for (what, bytes, max) in lengths {
                    if bytes > max {
                        let reason = format!("the {what} has {bytes} bytes, at most {max} are allowed");
                        return Err((ErrorCode::UnacceptableCredential, reason));
                    }
                }
                let key = (user, mechanism);
                let is_new = !known.contains_key(&key);
                if is_new && known.len() + new_ones >= CREDENTIALS_MAX {
                    let reason = format!("{CREDENTIALS_MAX} credentials are stored: delete some first");
                    return Err((ErrorCode::PolicyViolation, reason));
                }
                let credential = ScramCredential::of(mechanism, iterations, salt.to_vec(), &salted_password);
                let record = json(&credential.record())?;
                let record = (journal_key(&key), Some(record));
                Ok(Checked { record, key, credential: Some(credential), is_new })
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
