//! What one topic has otherwise than its client.

use std::path::PathBuf;
use std::time::Duration;

use ottla_wire::Compression;

use super::properties::{self, Scope, State};
use super::{Acks, Config, OffsetReset};
use crate::error::Error;
use crate::produce::partitioner::Partitioner;

/// Settings of one topic that lie over those of its client; what is `None` is the client's.
///
/// [`Producer::topic_with`](crate::Producer::topic_with) gives them to a producer; a consumer gets those that are about its
/// commits and where it begins from [`ConsumerControl::start_with`](crate::ConsumerControl::start_with).
///
/// ```
/// use ottla_client::{Acks, Config, TopicConfig};
///
/// let mut orders = TopicConfig::default();
/// orders.set("acks", "1")?;
/// let mut config = Config::new("127.0.0.1:9092");
/// config.set("compression.codec", "lz4")?;
/// let own = orders.over(&config);
/// assert_eq!((own.acks, own.compression.name()), (Acks::Leader, "lz4"));
/// # Ok::<(), ottla_client::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TopicConfig {
    /// `acks`.
    pub acks: Option<Acks>,
    /// `request.timeout.ms`.
    pub ack_timeout: Option<Duration>,
    /// `delivery.timeout.ms`.
    pub delivery_timeout: Option<Duration>,
    /// `partitioner`.
    pub partitioner: Option<Partitioner>,
    /// `compression.codec`.
    pub compression: Option<Compression>,
    /// `compression.level`; the inner `None` is the codec's default.
    pub compression_level: Option<Option<i32>>,
    /// `auto.offset.reset`.
    pub offset_reset: Option<OffsetReset>,
    /// `auto.commit.enable`, of partitions that are started one by one.
    pub auto_commit: Option<bool>,
    /// `auto.commit.interval.ms`, of the same.
    pub auto_commit_interval: Option<Duration>,
    /// `offset.store.method`: whether offsets are kept in files.
    pub offset_files: Option<bool>,
    /// `offset.store.path`.
    pub offset_files_path: Option<PathBuf>,
    /// `offset.store.sync.interval.ms`; the inner `None` is never.
    pub offset_files_sync: Option<Option<Duration>>,
    /// `consume.callback.max.messages`.
    pub callback_records_max: Option<usize>,
}

impl TopicConfig {
    /// Sets the property `name` from a string.
    ///
    /// # Errors
    /// [`Error::Config`] that names the property, the value and what is allowed; also for names of clients' properties.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let Some(property) = properties::find_in(Scope::Topic, name) else {
            return Err(match properties::find(name) {
                Some(_) => Error::Config(format!("`{name}` is a property of clients, not of topics")),
                None => properties::unknown(name),
            });
        };
        let mut config = Config::default();
        properties::set(&mut config, property, name, value)?;
        if !matches!(property.state, State::Effective { .. }) {
            return Ok(());
        }
        let Config {
            acks,
            ack_timeout,
            delivery_timeout,
            partitioner,
            compression,
            compression_level,
            offset_reset,
            started_auto_commit,
            started_commit_interval,
            offset_files,
            offset_files_path,
            offset_files_sync,
            callback_records_max,
            ..
        } = config;
        match property.name {
            "acks" => self.acks = Some(acks),
            "request.timeout.ms" => self.ack_timeout = ack_timeout,
            "delivery.timeout.ms" => self.delivery_timeout = Some(delivery_timeout),
            "partitioner" => self.partitioner = Some(partitioner),
            "compression.codec" => self.compression = (value.trim() != "inherit").then_some(compression),
            "compression.level" => self.compression_level = Some(compression_level),
            "auto.offset.reset" => self.offset_reset = Some(offset_reset),
            "auto.commit.enable" => self.auto_commit = started_auto_commit,
            "auto.commit.interval.ms" => self.auto_commit_interval = started_commit_interval,
            "offset.store.method" => self.offset_files = Some(offset_files),
            "offset.store.path" => self.offset_files_path = Some(offset_files_path),
            "offset.store.sync.interval.ms" => self.offset_files_sync = Some(offset_files_sync),
            "consume.callback.max.messages" => self.callback_records_max = Some(callback_records_max),
            other => return Err(Error::Config(format!("`{other}` cannot be set for one topic alone"))),
        }
        Ok(())
    }

    /// The value of a property of topics, where `config` is that of the client.
    ///
    /// # Errors
    /// [`Error::Config`] for a name that is none.
    pub fn get(&self, name: &str, config: &Config) -> Result<String, Error> {
        let property = properties::find_in(Scope::Topic, name).ok_or_else(|| properties::unknown(name))?;
        if property.name == "compression.codec" && self.compression.is_none() {
            return Ok("inherit".into());
        }
        Ok(properties::get(&self.over(config), property))
    }

    /// The client's configuration with this topic's settings over it.
    pub fn over(&self, config: &Config) -> Config {
        let mut own = config.clone();
        own.acks = self.acks.unwrap_or(own.acks);
        own.ack_timeout = self.ack_timeout.or(own.ack_timeout);
        own.delivery_timeout = self.delivery_timeout.unwrap_or(own.delivery_timeout);
        own.partitioner = self.partitioner.clone().unwrap_or(own.partitioner);
        own.compression = self.compression.unwrap_or(own.compression);
        own.compression_level = self.compression_level.unwrap_or(own.compression_level);
        own.offset_reset = self.offset_reset.unwrap_or(own.offset_reset);
        own.started_auto_commit = self.auto_commit.or(own.started_auto_commit);
        own.started_commit_interval = self.auto_commit_interval.or(own.started_commit_interval);
        own.offset_files = self.offset_files.unwrap_or(own.offset_files);
        own.offset_files_path = self.offset_files_path.clone().unwrap_or(own.offset_files_path);
        own.offset_files_sync = self.offset_files_sync.unwrap_or(own.offset_files_sync);
        own.callback_records_max = self.callback_records_max.unwrap_or(own.callback_records_max);
        own
    }
}
