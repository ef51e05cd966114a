//! The properties of a Kafka `server.properties` that a process is started with: its directory, and those that have no effect here.

use std::path::PathBuf;

use ottla_broker::BrokerConfig;

use crate::failure::Failure;
use crate::properties::Property;

/// Names without an effect in a warning; the others are counted.
const NAMES_SHOWN_MAX: usize = 8;

/// Properties that are not settings of the broker itself.
#[derive(Debug, Default)]
pub(crate) struct ServerProperties {
    pub(crate) data: Option<PathBuf>,
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
                "log.dirs" | "log.dir" => server.data = Some(directory(name, value).map_err(located)?),
                name if !BrokerConfig::has_effect(name) => server.without_effect.push(name.to_owned()),
                _ => {}
            }
        }
        Ok(server)
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
    fn a_stock_file_names_directory_and_settings() {
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
        assert_eq!(server.data, Some("/tmp/kraft-combined-logs".into()));
        assert_eq!(config.partitions_default, 3);
        assert_eq!(config.topic_defaults.values()["retention.ms"], "7200000");
        let warning = server.warning().expect("names without effect");
        assert!(warning.contains("process.roles") && warning.contains("node.id"), "{warning}");
        assert!(!warning.contains("log.dirs") && !warning.contains("num.partitions"), "{warning}");
    }

    #[test]
    fn unknown_names_get_a_suggestion_and_two_directories_are_refused() {
        let refused = |pairs: &[(&str, &str)]| match read(pairs) {
            Err(Failure::Usage(problem)) => problem,
            other => panic!("{other:?}"),
        };
        let unknown = refused(&[("log.retention.hour", "2")]);
        assert!(unknown.contains("did you mean `log.retention.hours`?"), "{unknown}");
        let two = refused(&[("log.dirs", "/a,/b")]);
        assert!(two.contains("one directory"), "{two}");
    }
}
