//! The settings of a broker: lines `name=value`.

use std::net::SocketAddr;

use ottla_broker::{Broker, BrokerBuilder, BrokerThread, Durability};

/// The nodes of one broker at most: tests need few.
const NODES_MAX: i32 = 100;

/// A broker to start, as its settings describe it.
#[derive(Debug)]
pub(super) struct Described {
    builder: BrokerBuilder,
    /// The file for the log of requests.
    trace: Option<String>,
}

impl Described {
    /// Parses the settings.
    pub(super) fn parse(settings: &str) -> Result<Self, String> {
        let mut described = Self { builder: Broker::builder().memory(), trace: None };
        let lines = settings.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (name, value) =
                line.split_once('=').ok_or_else(|| format!("`{line}`: expected name=value"))?;
            match (name.trim(), value.trim()) {
                ("trace", file) => described.trace = Some(file.to_owned()),
                (name, value) => described.builder = set(described.builder, name, value)?,
            }
        }
        Ok(described)
    }

    pub(super) fn start(self) -> Result<BrokerThread, String> {
        let broker = self.builder.spawn().map_err(|error| error.to_string())?;
        if let Some(file) = self.trace {
            broker.cluster().trace_requests(&file).map_err(|error| format!("`trace`: {file}: {error}"))?;
        }
        Ok(broker)
    }
}

fn set(builder: BrokerBuilder, name: &str, value: &str) -> Result<BrokerBuilder, String> {
    let wrong = |expected: &str| format!("`{name}` is {expected}, not `{value}`");
    match name {
        "nodes" => {
            let nodes = value.parse().ok().filter(|nodes| (1..=NODES_MAX).contains(nodes));
            Ok(builder.nodes(nodes.ok_or_else(|| wrong(&format!("a number from 1 to {NODES_MAX}")))?))
        }
        "listen" => {
            let address: SocketAddr = value.parse().map_err(|_| wrong("an address like 127.0.0.1:9092"))?;
            Ok(builder.listen(address))
        }
        "data.dir" | "log.dir" | "log.dirs" if value.is_empty() => Err(wrong("a directory")),
        "log.dir" | "log.dirs" if value.contains(',') => Err(wrong("one directory")),
        "data.dir" | "log.dir" | "log.dirs" => {
            Ok(builder.configure(|config| config.durability = Durability::default()).data_dir(value))
        }
        "topics" => value.split(',').map(str::trim).try_fold(builder, topic),
        name => {
            let mut outcome = Ok(());
            let builder = builder.configure(|config| outcome = config.set(name, value));
            outcome.map(|()| builder)
        }
    }
}

/// Adds `NAME` or `NAME:PARTITIONS`.
fn topic(builder: BrokerBuilder, text: &str) -> Result<BrokerBuilder, String> {
    let Some((name, partitions)) = text.split_once(':') else { return Ok(builder.topic(text, -1)) };
    let partitions = partitions.parse().ok().filter(|count| *count >= 1);
    let wrong = || format!("topic `{text}`: the number of partitions must be at least 1, as in `orders:3`");
    Ok(builder.topic(name, partitions.ok_or_else(wrong)?))
}
