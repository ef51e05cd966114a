//! Name resolution and connections.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use ottla_client::Config;

use super::Measurements;
use super::connection::{Connection, ProbeError, ProbeSettings, Stopwatch};
use super::report::{Report, Status, Step, millis};
use crate::failure::{Failure, sentence};

const DEFAULT_PORT: u16 = 9092;

/// Connects per address. The fastest is attributed to the network.
const CONNECTS: usize = 3;

/// An address that accepted a connection, and its host name.
#[derive(Clone, Debug)]
pub(super) struct Reachable {
    pub(super) host: String,
    pub(super) address: SocketAddr,
}

impl fmt::Display for Reachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// Resolves and connects to every bootstrap server. Returns the first address of each that accepted a connection.
pub(super) fn examine(
    config: &Config,
    settings: &ProbeSettings,
    report: &mut Report,
    measurements: &mut Measurements,
) -> Result<Vec<Reachable>, Failure> {
    let mut reachable = Vec::new();
    for server in config.bootstrap_servers.split(',').map(str::trim).filter(|server| !server.is_empty()) {
        let (host, port) = host_and_port(server);
        let Some(addresses) = resolve("dns", &host, port, report)? else { continue };
        let steps: Vec<_> = addresses.iter().map(|address| connect(*address, settings)).collect();
        let open = steps.iter().filter(|(_, took)| took.is_some()).count();
        for (address, (step, took)) in addresses.iter().zip(steps) {
            if let Some(took) = took {
                measurements.connect = Some(measurements.connect.map_or(took, |fastest| fastest.min(took)));
                let is_known = |known: &Reachable| known.host == host && known.address.port() == port;
                if !reachable.iter().any(is_known) {
                    reachable.push(Reachable { host: host.clone(), address: *address });
                }
            }
            // `localhost` often resolves to ::1 first while the broker listens on 127.0.0.1 only: another address of
            // the name works.
            let status = match took {
                Some(_) => Status::Ok,
                None if open > 0 => Status::Warn,
                None => Status::Fail,
            };
            report.add(step.status(status))?;
        }
    }
    Ok(reachable)
}

/// The host and port of `host`, `host:port`, `[v6]` or `[v6]:port`, after an optional `PROTOCOL://`.
pub(super) fn host_and_port(server: &str) -> (String, u16) {
    let server = server.split_once("://").map_or(server, |(_, rest)| rest);
    if let Some((host, rest)) = server.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let port = rest.strip_prefix(':').and_then(|port| port.parse().ok());
        return (host.to_owned(), port.unwrap_or(DEFAULT_PORT));
    }
    match server.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => (host.to_owned(), port.parse().unwrap_or(DEFAULT_PORT)),
        _ => (server.to_owned(), DEFAULT_PORT),
    }
}

/// The addresses of a name, or `None` after reporting that there are none.
pub(super) fn resolve(
    name: &'static str,
    host: &str,
    port: u16,
    report: &mut Report,
) -> Result<Option<Vec<SocketAddr>>, Failure> {
    let step = Step::new(name, format!("{host}:{port}"));
    let watch = Stopwatch::start();
    let result = (host, port).to_socket_addrs();
    let step = step.took(watch.elapsed());
    let why = match result {
        Ok(addresses) => {
            let mut distinct: Vec<SocketAddr> = Vec::new();
            for address in addresses {
                if !distinct.contains(&address) {
                    distinct.push(address);
                }
            }
            if !distinct.is_empty() {
                let list: Vec<String> = distinct.iter().map(|address| address.ip().to_string()).collect();
                report.add(step.fact(list.join(", ")))?;
                return Ok(Some(distinct));
            }
            "the name has no address".to_owned()
        }
        Err(error) => sentence(&error),
    };
    let step = step.status(Status::Fail).fact(why);
    report
        .add(step.advice("check the spelling, and that this machine resolves the name (DNS, /etc/hosts)"))?;
    Ok(None)
}

/// Connects a few times and returns the shortest time.
pub(super) fn connect(address: SocketAddr, settings: &ProbeSettings) -> (Step, Option<Duration>) {
    let step = Step::new("connect", address.to_string());
    let mut times = Vec::new();
    for _ in 0..CONNECTS {
        match Connection::connect(address, settings) {
            Ok((_, took)) => times.push(took),
            Err(probe_error) => {
                let advice = connect_advice(address, &probe_error);
                return (step.fact(probe_error.to_string()).advice(advice), None);
            }
        }
    }
    let fastest = times.iter().min().copied().unwrap_or_default();
    let slowest = times.iter().max().copied().unwrap_or_default();
    let mut step = step.took(fastest);
    // A lost SYN is retransmitted after one second.
    if slowest > fastest + Duration::from_millis(900) {
        step = step.status(Status::Warn).fact(format!("one connect took {}", millis(slowest)));
        step = step.advice("packets are lost, or the broker's accept queue is full: check both ends");
    }
    (step, Some(fastest))
}

pub(super) fn connect_advice(address: SocketAddr, probe_error: &ProbeError) -> String {
    match probe_error {
        ProbeError::Timeout(_) => {
            format!("{} does not answer: a firewall drops packets, or the address is wrong", address.ip())
        }
        _ if is_local(address.ip()) => {
            format!("no process listens on port {} of this machine", address.port())
        }
        _ => format!(
            "no process listens on port {} of {}, or a firewall rejects connections",
            address.port(),
            address.ip()
        ),
    }
}

/// `true` if the address belongs to this machine.
pub(super) fn is_local(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_as_the_client_reads_them() {
        for (server, host, port) in [
            ("a", "a", 9092),
            ("a:1", "a", 1),
            ("PLAINTEXT://a:1", "a", 1),
            ("::1", "::1", 9092),
            ("[::1]", "::1", 9092),
            ("[::1]:7", "::1", 7),
        ] {
            assert_eq!(host_and_port(server), (host.to_owned(), port), "{server}");
        }
    }
}
