//! The one table of properties: name, aliases, who reads it, range, text, setter. The command line's `-X`, property
//! files and, later, the C interface come from it.

use std::time::Duration;

use super::{Acks, Config, Isolation, OffsetReset};
use crate::error::Error;
use crate::produce::partitioner::Partitioner;

/// Which kind of client a property concerns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// Every client.
    All,
    /// Producers.
    Producer,
    /// Consumers.
    Consumer,
}

/// One property.
#[derive(Clone, Copy)]
pub struct Property {
    /// The name that documentation uses.
    pub name: &'static str,
    /// Other names for it: librdkafka's older ones, and Java's where they differ.
    pub aliases: &'static [&'static str],
    /// Who reads it.
    pub scope: Scope,
    /// What values it takes.
    pub range: &'static str,
    /// What it does and what it costs.
    pub text: &'static str,
    set: fn(&mut Config, &str) -> Result<(), String>,
}

impl std::fmt::Debug for Property {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Property")
            .field("name", &self.name)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}

macro_rules! property {
    ($name:literal, [$($alias:literal),*], $scope:ident, $range:literal, $text:literal, $set:expr) => {
        Property { name: $name, aliases: &[$($alias),*], scope: Scope::$scope, range: $range, text: $text, set: $set }
    };
}

/// Every property there is, by name.
pub const PROPERTIES: &[Property] = &[
    property!(
        "acks",
        ["request.required.acks"],
        Producer,
        "0, 1, all (-1)",
        "What a broker must have done before it acknowledges a record.",
        |c, v| {
            c.acks = match v {
                "0" => Acks::None,
                "1" => Acks::Leader,
                "all" | "-1" => Acks::All,
                "2" => return Err("brokers since 0.9 refuse acks=2; use all".into()),
                _ => return Err("not one of 0, 1, all".into()),
            };
            // An idempotent producer waits for all; asking for less, as Java does, switches idempotence off unless it is asked for.
            if c.acks != Acks::All {
                c.idempotence = false;
            }
            Ok(())
        }
    ),
    property!(
        "allow.auto.create.topics",
        [],
        All,
        "true, false",
        "Whether asking for an unknown topic may create it, if the broker agrees.",
        |c, v| set_bool(&mut c.auto_create_topics, v)
    ),
    property!(
        "auto.commit.interval.ms",
        [],
        Consumer,
        "1 to 86400000",
        "How often processed offsets are committed in the background.",
        |c, v| set_ms(&mut c.auto_commit_interval, v, 1, DAY_MS)
    ),
    property!(
        "auto.offset.reset",
        [],
        Consumer,
        "earliest, latest, error (none)",
        "Where to start without a committed offset, or when the position does not exist any more.",
        |c, v| {
            c.offset_reset = match v {
                "earliest" | "beginning" | "smallest" => OffsetReset::Earliest,
                "latest" | "end" | "largest" => OffsetReset::Latest,
                "error" | "none" => OffsetReset::Error,
                _ => return Err("not one of earliest, latest, error".into()),
            };
            Ok(())
        }
    ),
    property!(
        "batch.size",
        [],
        Producer,
        "1024 to 100000000",
        "The most bytes a batch grows to before compression. Larger batches cost memory per partition.",
        |c, v| {
            set_usize(&mut c.batch_bytes_max, v, 1024, 100_000_000)?;
            c.request_bytes_max = c.request_bytes_max.max(c.batch_bytes_max);
            Ok(())
        }
    ),
    property!(
        "bootstrap.servers",
        ["metadata.broker.list"],
        All,
        "host[:port],...",
        "Brokers to ask for the cluster's layout, tried in turn.",
        |c, v| {
            v.clone_into(&mut c.bootstrap_servers);
            Ok(())
        }
    ),
    property!(
        "buffer.memory",
        [],
        Producer,
        "65536 to 1099511627776",
        "The most bytes that unacknowledged records may take; `try_send` refuses beyond, the others wait.",
        |c, v| set_usize(&mut c.buffer_bytes_max, v, 65_536, 1 << 40)
    ),
    property!(
        "check.crcs",
        [],
        Consumer,
        "true, false",
        "Verify the checksum of every fetched batch.",
        |c, v| set_bool(&mut c.check_crcs, v)
    ),
    property!(
        "client.id",
        [],
        All,
        "text",
        "Name of this client in the broker's logs and quotas.",
        |c, v| {
            v.clone_into(&mut c.client_id);
            Ok(())
        }
    ),
    property!(
        "compression.codec",
        ["compression.type"],
        Producer,
        "none, gzip, snappy, lz4, zstd",
        "How batches are compressed.",
        |c, v| {
            c.compression = v.parse()?;
            Ok(())
        }
    ),
    property!(
        "compression.level",
        [],
        Producer,
        "-1 to 22, by codec",
        "The codec's level; -1 is its default.",
        |c, v| {
            let mut level = 0;
            set_number(&mut level, v, -1, 22)?;
            c.compression_level = (level != -1).then_some(level as i32);
            Ok(())
        }
    ),
    property!(
        "decompressed.max.bytes",
        [],
        Consumer,
        "1024 to 2147483647",
        "The most bytes one batch may inflate to: the cap against decompression bombs.",
        |c, v| set_usize(&mut c.decompressed_bytes_max, v, 1024, i32::MAX as usize)
    ),
    property!(
        "delivery.timeout.ms",
        ["message.timeout.ms"],
        Producer,
        "1 to 2147483647",
        "From handing a record over to its acknowledgement, retries included.",
        |c, v| set_ms(&mut c.delivery_timeout, v, 1, i32::MAX as u64)
    ),
    property!(
        "enable.auto.commit",
        [],
        Consumer,
        "true, false",
        "Commit processed offsets in the background.",
        |c, v| set_bool(&mut c.auto_commit, v)
    ),
    property!(
        "enable.idempotence",
        [],
        Producer,
        "true, false",
        "No duplicates and no reordering by retries. Needs acks=all.",
        |c, v| set_bool(&mut c.idempotence, v)
    ),
    property!(
        "fetch.max.bytes",
        [],
        Consumer,
        "1024 to 2147483647",
        "The most bytes of one fetch response.",
        |c, v| set_usize(&mut c.fetch_bytes_max, v, 1024, i32::MAX as usize)
    ),
    property!(
        "fetch.min.bytes",
        [],
        Consumer,
        "1 to 100000000",
        "The broker answers when it has so much, or after fetch.wait.max.ms.",
        |c, v| set_usize(&mut c.fetch_bytes_min, v, 1, 100_000_000)
    ),
    property!(
        "fetch.wait.max.ms",
        ["fetch.max.wait.ms"],
        Consumer,
        "0 to 300000",
        "How long the broker may wait for fetch.min.bytes.",
        |c, v| set_ms(&mut c.fetch_wait_max, v, 0, 300_000)
    ),
    property!("group.id", [], Consumer, "text", "The consumer group.", |c, v| {
        c.group_id = (!v.is_empty()).then(|| v.to_owned());
        Ok(())
    }),
    property!(
        "heartbeat.interval.ms",
        [],
        Consumer,
        "1 to 3600000",
        "How often a group member tells that it lives.",
        |c, v| set_ms(&mut c.heartbeat_interval, v, 1, 3_600_000)
    ),
    property!(
        "isolation.level",
        [],
        Consumer,
        "read_committed, read_uncommitted",
        "Whether records of open and aborted transactions are left out.",
        |c, v| {
            c.isolation = match v {
                "read_committed" => Isolation::ReadCommitted,
                "read_uncommitted" => Isolation::ReadUncommitted,
                _ => return Err("not one of read_committed, read_uncommitted".into()),
            };
            Ok(())
        }
    ),
    property!(
        "linger.ms",
        ["queue.buffering.max.ms"],
        Producer,
        "0 to 900000, fractions allowed",
        "How long a batch waits to fill. Unset, batching adapts: nothing waits while nothing is in flight.",
        |c, v| {
            let ms: f64 = v.parse().map_err(|_| "not a number of milliseconds".to_owned())?;
            if !(0.0..=900_000.0).contains(&ms) {
                return Err("outside 0 to 900000".into());
            }
            c.linger = Some(Duration::from_secs_f64(ms / 1000.0));
            Ok(())
        }
    ),
    property!(
        "max.in.flight.requests.per.connection",
        ["max.in.flight"],
        Producer,
        "1 to 1000000",
        "Produce requests that may wait for their answer; at most 5 with idempotence.",
        |c, v| set_usize(&mut c.in_flight_max, v, 1, 1_000_000)
    ),
    property!(
        "max.partition.fetch.bytes",
        ["fetch.message.max.bytes"],
        Consumer,
        "1024 to 2147483647",
        "The most bytes of one partition in one response; a larger batch still comes whole.",
        |c, v| set_usize(&mut c.partition_fetch_bytes_max, v, 1024, i32::MAX as usize)
    ),
    property!(
        "max.poll.interval.ms",
        [],
        Consumer,
        "1 to 86400000",
        "How long a rebalance waits for this member.",
        |c, v| set_ms(&mut c.poll_interval_max, v, 1, DAY_MS)
    ),
    property!(
        "max.request.size",
        ["message.max.bytes"],
        Producer,
        "1024 to 1000000000",
        "The most bytes of records in one request.",
        |c, v| {
            set_usize(&mut c.request_bytes_max, v, 1024, 1_000_000_000)?;
            c.batch_bytes_max = c.batch_bytes_max.min(c.request_bytes_max);
            Ok(())
        }
    ),
    property!(
        "metadata.max.age.ms",
        [],
        All,
        "1 to 86400000",
        "After this time the cluster's layout is asked for again.",
        |c, v| set_ms(&mut c.metadata_max_age, v, 1, DAY_MS)
    ),
    property!(
        "partitioner",
        [],
        Producer,
        "murmur2_sticky, random",
        "How partitions are chosen for records that name none.",
        |c, v| {
            c.partitioner = match v {
                "murmur2_sticky" => Partitioner::Murmur2Random,
                "random" => Partitioner::Random,
                _ => return Err("not one of murmur2_sticky, random".into()),
            };
            Ok(())
        }
    ),
    property!(
        "queued.max.messages.kbytes",
        [],
        Consumer,
        "1 to 2097151",
        "The most KiB that are prefetched and not yet polled.",
        |c, v| {
            let mut kib = 0;
            set_usize(&mut kib, v, 1, 2_097_151)?;
            c.queued_bytes_max = kib << 10;
            Ok(())
        }
    ),
    property!(
        "receive.message.max.bytes",
        [],
        All,
        "1000 to 2147483647",
        "A response that claims more closes the connection.",
        |c, v| set_usize(&mut c.response_bytes_max, v, 1000, i32::MAX as usize)
    ),
    property!(
        "reconnect.backoff.max.ms",
        [],
        All,
        "0 to 3600000",
        "Where the reconnect backoff stops doubling.",
        |c, v| set_ms(&mut c.reconnect_backoff_max, v, 0, 3_600_000)
    ),
    property!(
        "reconnect.backoff.ms",
        [],
        All,
        "0 to 3600000",
        "Before connecting again; doubles with each failure.",
        |c, v| set_ms(&mut c.reconnect_backoff, v, 0, 3_600_000)
    ),
    property!(
        "request.timeout.ms",
        ["socket.timeout.ms"],
        All,
        "1 to 900000",
        "From sending a request to its answer.",
        |c, v| set_ms(&mut c.request_timeout, v, 1, 900_000)
    ),
    property!(
        "retry.backoff.max.ms",
        [],
        All,
        "1 to 300000",
        "Where the retry backoff stops doubling.",
        |c, v| set_ms(&mut c.retry_backoff_max, v, 1, 300_000)
    ),
    property!(
        "retry.backoff.ms",
        [],
        All,
        "1 to 300000",
        "Before the first retry; doubles with each one after it.",
        |c, v| set_ms(&mut c.retry_backoff, v, 1, 300_000)
    ),
    property!(
        "session.timeout.ms",
        [],
        Consumer,
        "1 to 3600000",
        "A member that is not heard of for so long is out of its group.",
        |c, v| set_ms(&mut c.session_timeout, v, 1, 3_600_000)
    ),
    property!(
        "socket.connection.setup.timeout.ms",
        [],
        All,
        "1000 to 2147483647",
        "For connecting and greeting.",
        |c, v| set_ms(&mut c.connect_timeout, v, 1000, i32::MAX as u64)
    ),
    property!(
        "socket.receive.buffer.bytes",
        ["receive.buffer.bytes"],
        All,
        "0 to 100000000",
        "Receive buffer of the sockets; 0 leaves it to the system.",
        |c, v| set_usize(&mut c.receive_buffer_bytes, v, 0, 100_000_000)
    ),
    property!(
        "socket.send.buffer.bytes",
        ["send.buffer.bytes"],
        All,
        "0 to 100000000",
        "Send buffer of the sockets; 0 leaves it to the system.",
        |c, v| set_usize(&mut c.send_buffer_bytes, v, 0, 100_000_000)
    ),
];

const DAY_MS: u64 = 86_400_000;

/// The property called `name`, by its own name or an alias.
pub fn find(name: &str) -> Option<&'static Property> {
    PROPERTIES.iter().find(|property| property.name == name || property.aliases.contains(&name))
}

pub(super) fn set(config: &mut Config, name: &str, value: &str) -> Result<(), Error> {
    let property = find(name).ok_or_else(|| {
        let hint = nearest(name).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        Error::Config(format!("no property is called `{name}`{hint}"))
    })?;
    (property.set)(config, value.trim())
        .map_err(|reason| Error::Config(format!("{name}=`{value}`: {reason}; it takes {}", property.range)))
}

/// The name that shares the longest beginning with `name`, if it shares more than a few letters.
fn nearest(name: &str) -> Option<&'static str> {
    let shared = |other: &str| name.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    PROPERTIES
        .iter()
        .flat_map(|property| std::iter::once(&property.name).chain(property.aliases))
        .max_by_key(|candidate| shared(candidate))
        .filter(|candidate| shared(candidate) >= 4)
        .copied()
}

fn set_bool(slot: &mut bool, value: &str) -> Result<(), String> {
    *slot = match value {
        "true" | "1" => true,
        "false" | "0" => false,
        _ => return Err("neither true nor false".into()),
    };
    Ok(())
}

fn set_number(slot: &mut i64, value: &str, min: i64, max: i64) -> Result<(), String> {
    let number: i64 = value.parse().map_err(|_| "not a whole number".to_owned())?;
    if !(min..=max).contains(&number) {
        return Err(format!("outside {min} to {max}"));
    }
    *slot = number;
    Ok(())
}

fn set_usize(slot: &mut usize, value: &str, min: usize, max: usize) -> Result<(), String> {
    let mut number = 0;
    set_number(&mut number, value, min as i64, max as i64)?;
    *slot = number as usize;
    Ok(())
}

fn set_ms(slot: &mut Duration, value: &str, min: u64, max: u64) -> Result<(), String> {
    let mut number = 0;
    set_number(&mut number, value, min as i64, max as i64)?;
    *slot = Duration::from_millis(number as u64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_no_name_stands_twice() {
        let mut names: Vec<_> = PROPERTIES.iter().map(|property| property.name).collect();
        assert!(names.is_sorted());
        names.extend(PROPERTIES.iter().flat_map(|property| property.aliases));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn errors_name_the_property_the_value_and_the_range() {
        let mut config = Config::new("localhost");
        let error = config.set("fetch.min.bytes", "-3").expect_err("below 1").to_string();
        assert_eq!(
            error,
            "configuration: fetch.min.bytes=`-3`: outside 1 to 100000000; it takes 1 to 100000000"
        );
        let error = config.set("linger.sm", "1").expect_err("no such name").to_string();
        assert!(error.contains("did you mean `linger.ms`?"), "{error}");
        config.set("queue.buffering.max.ms", "1.5").expect("an alias, and a fraction");
        assert_eq!(config.linger, Some(Duration::from_micros(1500)));
    }

    #[test]
    fn contradictions_are_found() {
        let mut config = Config::new("localhost");
        config.set("acks", "1").expect("known");
        config.validate().expect("asking for less than all switches idempotence off");
        config.set("enable.idempotence", "true").expect("known");
        assert!(config.validate().is_err());
    }
}
