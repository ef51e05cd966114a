//! The certificates of listeners that change while the broker runs. Each node has its own.

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::config::changes_certificates;
use crate::config::live::{BROKER, Values};
use crate::security::active_listener::ActiveListener;
use crate::security::tls::TlsFiles;

/// The certificates that were read for a listener of a node. `files` is `None` for those of the start.
#[derive(Debug)]
pub(crate) struct ChangedCertificates {
    listener: Arc<ActiveListener>,
    node: i32,
    files: Option<TlsFiles>,
}

impl ChangedCertificates {
    /// New connections to the node get them.
    pub(crate) fn apply(self) {
        if let Some(tls) = &self.listener.tls {
            tracing::info!(listener = self.listener.name, node = self.node, "the certificates have changed");
            tls.replace(self.node, self.files);
        }
    }
}

impl Cluster {
    /// Makes the listeners of the nodes known, which get the certificates that are stored. Called once, before a client connects.
    pub(crate) fn set_listeners(&self, listeners: Vec<Arc<ActiveListener>>) {
        let listeners = self.listeners.get_or_init(|| listeners);
        for listener in listeners {
            let Some(tls) = &listener.tls else { continue };
            // A restored snapshot has certificates of its own.
            tls.clear();
            for name in self.live.names(BROKER) {
                let Some(node) = node_of(&name) else { continue };
                match tls.read_changed(&listener.name, &self.live.values(BROKER, &name)) {
                    Ok(files) => tls.replace(node, files),
                    Err(error) => tracing::warn!(
                        listener = listener.name,
                        node,
                        error,
                        "the stored certificates of a listener cannot be used: it has those of the start"
                    ),
                }
            }
        }
    }

    /// Reads the certificates that a change of a broker's settings names.
    ///
    /// # Errors
    /// A sentence: they cannot be used, or the property of the listener cannot change.
    pub(crate) fn read_certificates(
        &self,
        broker: &str,
        before: &Values,
        values: &Values,
    ) -> Result<Vec<ChangedCertificates>, String> {
        let mut read = Vec::new();
        for listener in self.listeners.get().into_iter().flatten() {
            let changes = changes_certificates(&listener.name, before, values)?;
            let (Some(tls), Some(node)) = (&listener.tls, node_of(broker)) else { continue };
            if changes {
                let problem = |reason: String| format!("listener {}: {reason}", listener.name);
                let files = tls.read_changed(&listener.name, values).map_err(problem)?;
                read.push(ChangedCertificates { listener: listener.clone(), node, files });
            }
        }
        Ok(read)
    }
}

/// The node of a resource. Other ways to write its number are resources of their own.
fn node_of(name: &str) -> Option<i32> {
    name.parse::<i32>().ok().filter(|node| node.to_string() == name)
}
