//! The TLS of a listener at each node: the certificates of the start, and those that a node was given since (KIP-226).

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConnection;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::Principal;
use super::tls::TlsFiles;
use crate::config::live::Values;
use crate::config::{Pem, TlsSettings, changed_tls};

/// The largest file with certificates that a request names: others are read whole.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The certificates of a listener.
#[derive(Debug)]
pub(crate) struct ListenerTls {
    at_start: TlsFiles,
    of_nodes: RwLock<BTreeMap<i32, Arc<TlsFiles>>>,
}

impl ListenerTls {
    /// Reads the files of the start.
    ///
    /// # Errors
    /// A sentence that names the setting.
    pub(crate) fn load(settings: TlsSettings) -> Result<Self, String> {
        Ok(Self { at_start: TlsFiles::load(settings)?, of_nodes: RwLock::default() })
    }

    /// The acceptor of a new connection to a node.
    pub(crate) fn acceptor(&self, node: i32, now: Instant) -> TlsAcceptor {
        let own = self.of_nodes.read().unwrap_or_else(PoisonError::into_inner).get(&node).cloned();
        own.as_deref().unwrap_or(&self.at_start).acceptor(now)
    }

    /// The identity of a client's certificate, by the rules of the start.
    ///
    /// # Errors
    /// Those of [`TlsFiles::principal_of`].
    pub(crate) fn principal_of(&self, connection: &ServerConnection) -> Result<Option<Principal>, String> {
        self.at_start.principal_of(connection)
    }

    /// Reads the certificates that a node has in `values` for the listener of that name. `None` if it has those of the start.
    ///
    /// # Errors
    /// A sentence that names the setting: the certificates cannot be used.
    pub(crate) fn read_changed(&self, listener: &str, values: &Values) -> Result<Option<TlsFiles>, String> {
        let Some(settings) = changed_tls(self.at_start.settings(), listener, values)? else {
            return Ok(None);
        };
        for pem in [&settings.certificates, &settings.key].into_iter().chain(&settings.trusted) {
            check_file(pem)?;
        }
        TlsFiles::load(settings).map(Some)
    }

    /// Gives a node its certificates, or those of the start. Established connections keep theirs.
    pub(crate) fn replace(&self, node: i32, files: Option<TlsFiles>) {
        let mut of_nodes = self.of_nodes.write().unwrap_or_else(PoisonError::into_inner);
        match files {
            Some(files) => drop(of_nodes.insert(node, Arc::new(files))),
            None => drop(of_nodes.remove(&node)),
        }
    }

    /// Gives all nodes the certificates of the start.
    pub(crate) fn clear(&self) {
        self.of_nodes.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Refuses a file that a client must not make this process read: a pipe has no end, and a device takes all memory.
fn check_file(pem: &Pem) -> Result<(), String> {
    let Pem::File(path) = pem else { return Ok(()) };
    let metadata = std::fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    if !metadata.is_file() {
        return Err(format!("{}: not a file", path.display()));
    }
    let bytes = metadata.len();
    if bytes > FILE_BYTES_MAX {
        return Err(format!("{}: {bytes} bytes, at most {FILE_BYTES_MAX} are read", path.display()));
    }
    Ok(())
}
