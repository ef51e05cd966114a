//! The messages of a broker that is ready: lines or JSON on standard output, a file descriptor, and systemd's socket.

use std::io::{ErrorKind, Write};
use std::path::Path;

use ottla_broker::{Broker, Durability, NodeAddress};
use serde_json::{Value, json};

use super::notify;
use super::ready_fd::ReadyFd;
use crate::failure::Failure;

/// The receivers of the message that the broker is ready.
#[derive(Debug)]
pub(super) struct Ready {
    /// Standard output gets JSON instead of a line for each node.
    pub(super) print_json: bool,
    pub(super) fd: Option<ReadyFd>,
}

/// The parts of the message that the command line has decided.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) data: Option<&'a Path>,
    pub(super) durability: Durability,
    /// The URL of the metrics.
    pub(super) metrics: Option<String>,
    /// The control address.
    pub(super) control: Option<String>,
}

impl Ready {
    /// Reports that the broker accepts connections.
    pub(super) fn announce(self, broker: &Broker, facts: &Facts<'_>) -> Result<(), Failure> {
        let message = format!("{}\n", message(broker, facts));
        let lines = if self.print_json {
            message.clone()
        } else {
            let listening = |node: &NodeAddress| format!("listening on {}\n", node.listen);
            broker.node_addresses().iter().map(listening).collect()
        };
        let mut out = std::io::stdout().lock();
        match out.write_all(lines.as_bytes()).and_then(|()| out.flush()) {
            // The process that started the broker may not read its output.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            result => result.map_err(|error| Failure::output(&error))?,
        }
        if let Some(fd) = self.fd {
            fd.write(&message)?;
        }
        notify::ready();
        Ok(())
    }
}

/// The message in JSON, whose keys are documented in docs/OPERATIONS.md.
fn message(broker: &Broker, facts: &Facts<'_>) -> Value {
    let nodes = broker.node_addresses().into_iter().map(
        |node| json!({ "id": node.id, "listener": node.listener, "listen": node.listen.to_string(), "advertised": node.advertised }),
    );
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    json!({
        "event": "ready",
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "cluster_id": broker.cluster().id(),
        "bootstrap_servers": broker.bootstrap_servers(),
        "nodes": nodes.collect::<Vec<_>>(),
        "data_dir": facts.data.map(|path| absolute(path).display().to_string()),
        "durability": match facts.durability {
            Durability::Disk => "disk",
            Durability::Os => "os",
            Durability::Memory => "memory",
        },
        "metrics": facts.metrics,
        "control": facts.control,
    })
}
