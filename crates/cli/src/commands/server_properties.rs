//! The properties of a Kafka `server.properties` that a process is started with: its directory, and those that have no effect here.

use std::path::{Path, PathBuf};

use ottla_broker::BrokerConfig;

use crate::failure::Failure;
use crate::properties::Property;

/// Names without an effect in a warning; the others are counted.
const NAMES_SHOWN_MAX: usize = 8;

/// Properties that are not settings of the broker itself.
#[derive(Debug, Default)]
pub(crate) struct ServerProperties {
    /// The data directory: that of the command line, or else of the properties.
    pub(crate) data: Option<PathBuf>,
    without_effect: Vec<String>,
}

impl ServerProperties {
    /// Applies properties in their order: to `config`, or here. `data` is the directory of the command line, which wins.
    pub(crate) fn read(
        properties: &[Property],
        data: Option<&Path>,
        config: &mut BrokerConfig,
    ) -> Result<Self, Failure> {
        let mut server = Self { data: data.map(Path::to_owned), without_effect: Vec::new() };
        let mut directories: Option<&Property> = None;
        for property in properties {
            let Property { name, value, .. } = property;
            let set = config.set(name, value);
            set.map_err(|problem| Failure::Usage(property.located(&problem)))?;
            match name.as_str() {
                "log.dirs" | "log.dir" => {
                    directories = directories.filter(|earlier| hides(earlier, property)).or(Some(property));
                }
                name if !BrokerConfig::has_effect(name) => server.without_effect.push(name.to_owned()),
                _ => {}
            }
        }
        // Several directories are refused only where they would be used.
        if let (None, Some(property)) = (data, directories) {
            let named = directory(&property.name, &property.value);
            server.data = Some(named.map_err(|problem| Failure::Usage(property.located(&problem)))?);
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

/// Returns `true` if a later property does not count: as in Kafka, `log.dir` is for a place without `log.dirs`. The command line wins over
/// a file.
fn hides(earlier: &Property, later: &Property) -> bool {
    earlier.name == "log.dirs" && later.name == "log.dir" && earlier.at.is_some() == later.at.is_some()
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
        read_with(None, pairs)
    }

    fn read_with(
        data: Option<&Path>,
        pairs: &[(&str, &str)],
    ) -> Result<(ServerProperties, BrokerConfig), Failure> {
        let mut config = BrokerConfig::default();
        let property = |(name, value): &(&str, &str)| Property {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
            at: None,
        };
        let properties: Vec<Property> = pairs.iter().map(property).collect();
        ServerProperties::read(&properties, data, &mut config).map(|server| (server, config))
    }

    #[test]
    fn a_stock_file_names_directory_and_settings() {
        let (server, config) = read(&[
            ("process.roles", "broker,controller"),
            ("node.id", "3"),
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
        assert_eq!((config.partitions_default, config.node_id), (3, 3));
        assert_eq!(config.topic_defaults.values()["retention.ms"], "7200000");
        let warning = server.warning().expect("names without effect");
        assert!(warning.contains("process.roles"), "{warning}");
        let has_effect = ["log.dirs", "node.id", "num.partitions"];
        assert!(!has_effect.iter().any(|name| warning.contains(name)), "{warning}");
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

    #[test]
    fn the_directory_of_the_command_line_wins_over_several_in_a_file() {
        let (server, _) = read_with(Some(Path::new("data")), &[("log.dirs", "/a,/b")]).expect("allowed");
        assert_eq!(server.data, Some("data".into()));
        let (server, _) = read(&[("log.dirs", "/a,/b"), ("log.dirs", "/c")]).expect("the last one counts");
        assert_eq!(server.data, Some("/c".into()));
    }

    /// The later of the two was used: the broker had its data in another directory than Kafka.
    #[test]
    fn the_single_directory_counts_only_without_the_list() {
        let (first, second) = (("log.dirs", "/list"), ("log.dir", "/single"));
        for pairs in [[first, second], [second, first]] {
            let (server, _) = read(&pairs).expect("allowed");
            assert_eq!(server.data, Some("/list".into()), "{pairs:?}");
        }
        let of_file = Property { name: "log.dirs".into(), value: "/list".into(), at: Some("f:1".into()) };
        let typed = Property { name: "log.dir".into(), value: "/single".into(), at: None };
        let server = ServerProperties::read(&[of_file, typed], None, &mut BrokerConfig::default());
        assert_eq!(server.expect("allowed").data, Some("/single".into()));
    }
}
