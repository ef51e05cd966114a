//! Toxiproxy in front of the nodes of a cluster: Sarama's tests cut and delay connections through it.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ottla_interop::probe::consecutive_free_ports;
use ottla_interop::{Failure, Process, wait_until};
use serde_json::json;

use super::suite::execute;

const PROGRAM: &str = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0";
const BUILT_WITHIN: Duration = Duration::from_secs(10 * 60);
const STARTED_WITHIN: Duration = Duration::from_secs(30);

/// Sarama's tests connect to five proxies. The proxies beyond the nodes lead to the first nodes again.
const PROXIES: u16 = 5;

/// A running proxy server.
pub(super) struct Toxiproxy {
    /// The port before the first proxy's.
    base_port: u16,
    api: SocketAddr,
    _process: Process,
}

impl Toxiproxy {
    /// Builds the server in `dir`.
    pub(super) fn build(dir: &Path) -> Result<PathBuf, Failure> {
        let program = dir.join("server");
        if !program.is_file() {
            let mut go = Command::new("go");
            execute("go", go.args(["install", PROGRAM]).env("GOBIN", dir), BUILT_WITHIN)?;
        }
        Ok(program)
    }

    /// The first of consecutive ports: one for each proxy, and one for the server.
    pub(super) fn free_ports() -> Result<u16, Failure> {
        consecutive_free_ports(PROXIES + 1)
            .map_err(|error| Failure::new(format!("ports for proxies: {error}")))
    }

    /// Starts proxies `kafka1` and so on, from `first_port` on.
    pub(super) fn start(
        program: &Path,
        first_port: u16,
        nodes: &[SocketAddr],
        dir: &Path,
    ) -> Result<Self, Failure> {
        let proxies: Vec<_> = (0..PROXIES)
            .zip(nodes.iter().cycle())
            .map(|(at, node)| {
                let (name, listen) = (format!("kafka{}", at + 1), format!("127.0.0.1:{}", first_port + at));
                json!({ "name": name, "listen": listen, "upstream": node.to_string(), "enabled": true })
            })
            .collect();
        let config = dir.join("toxiproxy.json");
        fs::write(&config, json!(proxies).to_string())
            .map_err(|error| Failure::new(format!("{}: {error}", config.display())))?;
        let api = SocketAddr::from(([127, 0, 0, 1], first_port + PROXIES));
        let mut command = Command::new(program);
        command.args(["-host", "127.0.0.1", "-port", &api.port().to_string(), "-config"]).arg(&config);
        let process = Process::spawn("toxiproxy", &mut command)?;
        wait_until("toxiproxy", STARTED_WITHIN, || TcpStream::connect(api).ok())?;
        Ok(Self { base_port: first_port - 1, api, _process: process })
    }

    /// The port of proxy `kafkaN` is this plus N.
    pub(super) fn base_port(&self) -> u16 {
        self.base_port
    }

    /// The address of its API.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.api)
    }
}
