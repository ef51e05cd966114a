//! Where the public keys of tokens come from: a file, or an endpoint of the issuer.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use super::jwk::{Key, TokenHeader, keys_of};
use super::key_endpoint::KeyEndpoint;
use crate::config::KeySource;

/// The largest set of keys that is read.
pub(super) const JWKS_BYTES_MAX: u64 = 1 << 20;

/// The keys of a listener.
#[derive(Debug)]
pub(super) enum Keys {
    File(Mutex<KeyFile>),
    Endpoint(KeyEndpoint),
    /// Keys that are not read again.
    #[cfg(feature = "fuzzing")]
    Fixed(Vec<Key>),
}

#[derive(Debug)]
pub(super) struct KeyFile {
    path: PathBuf,
    stamp: Option<(SystemTime, u64)>,
    keys: Vec<Key>,
}

impl Keys {
    /// Reads the keys once, so that errors are reported at the start. An endpoint may come later.
    pub(super) fn open(source: &KeySource) -> Result<Self, String> {
        match source {
            KeySource::File(path) => {
                let file = KeyFile { path: path.clone(), stamp: stamp(path), keys: read_keys(path)? };
                Ok(Self::File(Mutex::new(file)))
            }
            KeySource::Endpoint(endpoint) => KeyEndpoint::open(endpoint).map(Self::Endpoint),
        }
    }

    /// Returns `true` if one of the keys has signed a token with this header.
    pub(super) fn verify(&self, header: &TokenHeader, signed: &[u8], signature: &[u8]) -> bool {
        let verifies = |keys: &[Key]| keys.iter().any(|key| key.verifies(header, signed, signature));
        match self {
            Self::File(file) => {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                file.refresh();
                verifies(&file.keys)
            }
            Self::Endpoint(endpoint) => {
                let is_valid = verifies(&endpoint.keys());
                if !is_valid {
                    endpoint.note_unknown_key();
                }
                is_valid
            }
            #[cfg(feature = "fuzzing")]
            Self::Fixed(keys) => verifies(keys),
        }
    }
}

impl KeyFile {
    /// Reads the file again if it has changed. The old keys stay while it cannot be read.
    fn refresh(&mut self) {
        let stamp = stamp(&self.path);
        if stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        match read_keys(&self.path) {
            Ok(keys) => self.keys = keys,
            Err(error) => tracing::warn!(%error, "the keys of OAUTHBEARER have changed and cannot be used"),
        }
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
