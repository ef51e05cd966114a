//! The properties of a Kafka `server.properties` that a node is started with: listeners, directories, and those that have no
//! effect here.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use ottla_broker::BrokerConfig;

use crate::failure::{Failure, sentence};
use crate::properties::Property;

/// Names without an effect in a warning; the others are counted.
const NAMES_SHOWN_MAX: usize = 8;

/// Properties that are not settings of the broker itself.
#[derive(Debug, Default)]
pub(crate) struct ServerProperties {
    pub(crate) data: Option<PathBuf>,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) advertise: Option<String>,
    listeners: Option<String>,
    advertised: Option<String>,
    controllers: String,
    protocols: String,
    without_effect: Vec<String>,
}

impl ServerProperties {
    /// Applies properties in their order: to `config`, or here.
    pub(crate) fn read(properties: &[Property], config: &mut BrokerConfig) -> Result<Self, Failure> {
        let mut server = Self::default();
        for property in properties {
            let Property { name, value, .. } = property;
            let set = config.set(name, value);
            set.map_err(|problem| Failure::Usage(property.located(&problem)))?;
            let located = |problem: String| Failure::Usage(property.located(&problem));
            match name.as_str() {
                "listeners" => server.listeners = Some(value.clone()),
                "advertised.listeners" => server.advertised = Some(value.clone()),
                "controller.listener.names" => server.controllers.clone_from(value),
                "listener.security.protocol.map" => server.protocols.clone_from(value),
                "log.dirs" | "log.dir" => server.data = Some(directory(name, value).map_err(located)?),
                name if !BrokerConfig::has_effect(name) => server.without_effect.push(name.to_owned()),
                _ => {}
            }
        }
        server.resolve_listeners().map_err(Failure::Usage)?;
        Ok(server)
    }

    /// The first listener that is not a controller's, and the address that clients connect to.
    fn resolve_listeners(&mut self) -> Result<(), String> {
        let Some(listeners) = self.listeners.take() else { return Ok(()) };
        let is_controller = |name: &str| self.controllers.split(',').any(|other| other.trim() == name);
        let mut clients = listeners.split(',').filter_map(split_listener);
        let Some((name, host, port)) = clients.find(|(name, ..)| !is_controller(name)) else {
            return Err(format!(
                "listeners=`{listeners}`: no listener for clients; use PLAINTEXT://HOST:PORT"
            ));
        };
        let mapped = self.protocols.split(',').filter_map(|pair| pair.trim().split_once(':'));
        let protocol =
            mapped.filter(|(of, _)| *of == name).map(|(_, protocol)| protocol).next_back().unwrap_or(name);
        if protocol != "PLAINTEXT" {
            return Err(format!(
                "listeners=`{listeners}`: {name} has the protocol {protocol}, but this broker has PLAINTEXT only"
            ));
        }
        let address = format!("{}:{port}", if host.is_empty() { "0.0.0.0" } else { host });
        let mut addresses = address
            .to_socket_addrs()
            .map_err(|error| format!("listeners=`{listeners}`: {address}: {}", sentence(&error)))?;
        self.listen = addresses.next();
        let advertised = self.advertised.take().unwrap_or_default();
        let same = advertised.split(',').filter_map(split_listener).find(|(of, ..)| *of == name);
        self.advertise = match same {
            Some((_, host, port)) if !host.is_empty() => Some(format!("{host}:{port}")),
            // Clients cannot connect to the address of all interfaces.
            _ if host.is_empty() => Some("localhost".to_owned()),
            _ => None,
        };
        Ok(())
    }

    /// One warning for all properties without an effect.
    pub(crate) fn warning(&self) -> Option<String> {
        let names = &self.without_effect;
        let shown = names.iter().take(NAMES_SHOWN_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = names.len().saturating_sub(NAMES_SHOWN_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let which = "`ottla properties --broker` lists which properties have one";
        (!names.is_empty()).then(|| format!("without effect on this broker: {shown}{more}; {which}"))
    }
}

/// `NAME://HOST:PORT`
fn split_listener(text: &str) -> Option<(&str, &str, &str)> {
    let (name, address) = text.trim().split_once("://")?;
    let (host, port) = address.rsplit_once(':')?;
    Some((name, host, port))
}

fn directory(name: &str, value: &str) -> Result<PathBuf, String> {
    let mut directories = value.split(',').map(str::trim).filter(|directory| !directory.is_empty());
    match (directories.next(), directories.next()) {
        (Some(directory), None) => Ok(directory.into()),
        (None, _) => Err(format!("{name}=`{value}`: no directory")),
        _ => Err(format!("{name}=`{value}`: this broker has its data in one directory")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<(ServerProperties, BrokerConfig), Failure> {
        let mut config = BrokerConfig::default();
        let property = |(name, value): &(&str, &str)| Property {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
            at: None,
        };
        let properties: Vec<Property> = pairs.iter().map(property).collect();
        ServerProperties::read(&properties, &mut config).map(|server| (server, config))
    }

    #[test]
    fn a_stock_file_names_listener_address_and_directory() {
        let (server, config) = read(&[
            ("process.roles", "broker,controller"),
            ("node.id", "1"),
            ("controller.quorum.bootstrap.servers", "localhost:9093"),
            ("listeners", "PLAINTEXT://:9092,CONTROLLER://:9093"),
            ("inter.broker.listener.name", "PLAINTEXT"),
            ("advertised.listeners", "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"),
            ("controller.listener.names", "CONTROLLER"),
            ("log.dirs", "/tmp/kraft-combined-logs"),
            ("num.partitions", "3"),
            ("log.retention.hours", "2"),
        ])
        .expect("allowed");
        assert_eq!(server.listen, Some(SocketAddr::from(([0, 0, 0, 0], 9092))));
        assert_eq!(server.advertise.as_deref(), Some("localhost:9092"));
        assert_eq!(server.data, Some("/tmp/kraft-combined-logs".into()));
        assert_eq!(config.partitions_default, 3);
        assert_eq!(config.topic_defaults.values()["retention.ms"], "7200000");
        let warning = server.warning().expect("names without effect");
        assert!(warning.contains("process.roles") && warning.contains("node.id"), "{warning}");
        assert!(!warning.contains("log.dirs") && !warning.contains("num.partitions"), "{warning}");
    }

    #[test]
    fn unknown_names_get_a_suggestion_and_other_protocols_are_refused() {
        let refused = |pairs: &[(&str, &str)]| match read(pairs) {
            Err(Failure::Usage(problem)) => problem,
            other => panic!("{other:?}"),
        };
        let unknown = refused(&[("log.retention.hour", "2")]);
        assert!(unknown.contains("did you mean `log.retention.hours`?"), "{unknown}");
        let tls = refused(&[("listeners", "SSL://:9093")]);
        assert!(tls.contains("PLAINTEXT only"), "{tls}");
        let mapped = [
            ("listeners", "OUTSIDE://127.0.0.1:9093"),
            ("listener.security.protocol.map", "OUTSIDE:PLAINTEXT"),
        ];
        assert_eq!(read(&mapped).expect("allowed").0.listen, Some(SocketAddr::from(([127, 0, 0, 1], 9093))));
        let two = refused(&[("log.dirs", "/a,/b")]);
        assert!(two.contains("one directory"), "{two}");
    }
}
