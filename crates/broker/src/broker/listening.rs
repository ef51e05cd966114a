//! The listeners of a broker: their settings, addresses and sockets.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

use super::{Bound, Broker, BrokerBuilder, StartError, periodic};
use crate::cluster::Cluster;
use crate::cluster::nodes::Node;
use crate::config::Listener;
use crate::security::active_listener::{ActiveListener, PLAINTEXT};
use crate::security::secure_dir::{SecureDir, hosts_of};
use crate::server::Server;

impl BrokerBuilder {
    /// The directory of [`BrokerBuilder::secure`], which allows no other listener.
    pub(super) fn secure_dir(&self) -> Result<Option<SecureDir>, StartError> {
        let (Some(dir), Some(address)) = (&self.secure, self.listen) else { return Ok(None) };
        if let Some(other) = self.listeners.first() {
            let reason = format!("listener {} has other security: use one or the other", other.name);
            return Err(StartError::Secure(reason));
        }
        let hosts = hosts_of(address.ip(), self.advertise.as_deref());
        SecureDir::open(dir, &hosts, self.clock.now_ms()).map(Some).map_err(StartError::Secure)
    }

    /// The listeners with what their files have.
    pub(super) fn active_listeners(
        &self,
        secure: Option<&SecureDir>,
    ) -> Result<Vec<(Listener, Arc<ActiveListener>)>, StartError> {
        let mut all = self.listeners.clone();
        if let Some(address) = self.listen.filter(|_| all.is_empty()) {
            let mut listener = Listener::new(PLAINTEXT, address);
            listener.advertise.clone_from(&self.advertise);
            all = match secure {
                Some(secure) => vec![secure.secured(listener)],
                None => self.listeners_of_properties()?.unwrap_or_else(|| vec![listener]),
            };
        }
        let opened = all.into_iter().enumerate().map(|(index, settings)| {
            match ActiveListener::open(index, &settings) {
                Ok(active) => Ok((settings, Arc::new(active))),
                Err(reason) => Err(StartError::Listener { name: settings.name, reason }),
            }
        });
        opened.collect()
    }

    /// The listeners of the property `listeners`, if it is set. Without it, the other properties of listeners are refused: clients
    /// would find a listener without security.
    fn listeners_of_properties(&self) -> Result<Option<Vec<Listener>>, StartError> {
        let listeners = self.config.listeners().map_err(StartError::Property)?;
        let Some(mut listeners) = listeners else {
            return match self.config.property_without_listeners() {
                Some(name) => {
                    let reason =
                        format!("`{name}` has no effect without `listeners`: set that property, too");
                    Err(StartError::Property(reason))
                }
                None => Ok(None),
            };
        };
        if self.is_listen_set {
            let reason = "`listeners` and `listen` exclude each other: use one of them";
            return Err(StartError::Property(reason.into()));
        }
        if let (Some(advertise), Some(first)) = (&self.advertise, listeners.first_mut()) {
            first.advertise = Some(advertise.clone());
        }
        Ok(Some(listeners))
    }
}

/// The part of a listener's `advertise` that holds for a node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Advertised {
    HostAndPort,
    /// The port is the one that was bound: the node was added on an ephemeral port.
    Host,
}

impl Broker {
    /// Opens every listener at every node, and begins the periodic work. `address_of` makes an address of the listener's first
    /// one, the node, and the listener's number.
    pub(super) async fn serve_all(
        &mut self,
        address_of: impl Fn(SocketAddr, i32, usize) -> SocketAddr,
        advertised: impl Fn(i32) -> Advertised,
    ) -> Result<(), StartError> {
        let cluster = self.cluster();
        for node in cluster.node_ids() {
            self.listen(node, |first, index| address_of(first, node, index), advertised(node)).await?;
            if let Some(node) = cluster.node(node).filter(|_| self.listeners.is_empty()) {
                advertise_host(node);
            }
        }
        self.tasks.spawn(periodic::run(cluster));
        Ok(())
    }

    /// Opens every listener at a node, at the address that `address_of` makes of the first node's and of the listener's number.
    pub(super) async fn listen(
        &mut self,
        node: i32,
        address_of: impl Fn(SocketAddr, usize) -> SocketAddr,
        advertised: Advertised,
    ) -> Result<(), StartError> {
        let index = node - self.cluster().nodes.first_id();
        for (settings, listener) in &self.listeners {
            let advertise =
                settings.advertise.as_deref().map(|text| parse_advertise(text, index)).transpose()?;
            let advertise = advertise.as_ref().map(|(host, port)| match advertised {
                Advertised::HostAndPort => (host.as_str(), *port),
                Advertised::Host => (host.as_str(), 0),
            });
            let address = address_of(settings.address, listener.index);
            let failed = |source| StartError::Listen { address, source };
            let bound = Server::bind_listener(self.cluster(), node, address, advertise, listener.clone());
            let server = bound.await.map_err(failed)?;
            let bound = Bound { node, listener: listener.clone(), port: server.port() };
            if listener.index == 0 {
                self.addresses.push(bound.address());
            }
            self.bound.push(bound);
            self.servers.spawn(server.run());
        }
        Ok(())
    }
}

/// Sets the address of a node without listeners: a host of a simulated network.
pub(super) fn advertise_host(node: &Node) {
    node.advertise(&format!("node-{}", node.id), 9092);
}

/// Makes ready what the listeners need of the cluster.
pub(super) fn prepare_listeners(
    cluster: &Cluster,
    listeners: &[(Listener, Arc<ActiveListener>)],
) -> Result<(), StartError> {
    for (settings, _) in listeners.iter().filter(|(settings, _)| settings.sasl.is_some()) {
        let failed = |reason| StartError::Listener { name: settings.name.clone(), reason };
        cluster.prepare_scram().map_err(failed)?;
    }
    cluster.set_listeners(listeners.iter().map(|(_, listener)| listener.clone()).collect());
    Ok(())
}

/// The addresses of the listener with this name, by node.
pub(super) fn bootstrap_servers_of<'a>(
    cluster: &Cluster,
    mut names: impl Iterator<Item = &'a str>,
    listener: &str,
) -> Option<String> {
    let index = names.position(|name| name == listener)?;
    Some(cluster.nodes_up().map(|node| node.advertised_at(index)).collect::<Vec<_>>().join(","))
}

/// The address of the node that is so many after the first one: each has its port, the first node's and those after it, or any.
pub(super) fn nth_address(first: SocketAddr, index: i32) -> SocketAddr {
    let mut address = first;
    if first.port() != 0 {
        address.set_port(first.port().saturating_add(index as u16));
    }
    address
}

/// The host of an advertised address, for another listener: its port is the one that is bound.
pub(super) fn advertised_host(text: &str) -> Option<String> {
    let (host, _) = parse_advertise(text, 0).ok()?;
    Some(if host.contains(':') { format!("[{host}]") } else { host })
}

/// `host` (the listener's port), or `host:port` for the first node and the ports after it for the others.
fn parse_advertise(text: &str, index: i32) -> Result<(String, u16), StartError> {
    let bad = || StartError::Advertise(text.to_owned());
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            let port: u16 = port.parse().map_err(|_| bad())?;
            (host, port.saturating_add(index as u16))
        }
        _ => (text, 0),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if is_host(host) { Ok((host.to_owned(), port)) } else { Err(bad()) }
}

/// Returns `true` for an address, or a name that clients can look up. `PLAINTEXT://host:9092` is none, as in `listeners`.
fn is_host(text: &str) -> bool {
    if text.contains(':') {
        let (address, _zone) = text.split_once('%').unwrap_or((text, ""));
        return address.parse::<Ipv6Addr>().is_ok();
    }
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '.' | '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients got such addresses, and could not connect.
    #[test]
    fn an_address_that_no_client_can_connect_to_is_not_advertised() {
        for (text, host, port) in [
            ("broker.test", "broker.test", 0),
            ("my_broker:9092", "my_broker", 9092),
            ("192.0.2.7:9092", "192.0.2.7", 9092),
            ("::1", "::1", 0),
            ("[fe80::1%eth0]:9092", "fe80::1%eth0", 9092),
        ] {
            let advertised = parse_advertise(text, 0).ok();
            assert_eq!(advertised, Some((host.to_owned(), port)), "{text}");
        }
        for text in
            ["", ":9092", "a b", "PLAINTEXT://broker.test:9092", "broker.test:9092:1", "a,b:9092", "a/b"]
        {
            assert!(parse_advertise(text, 0).is_err(), "{text}");
        }
    }
}
