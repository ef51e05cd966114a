//! Configuration of one topic that differs from its client's.

use std::path::PathBuf;
use std::time::Duration;

use ottla_wire::Compression;

use super::properties::{self, Scope, State};
use super::{Acks, Config, Defaults, OffsetReset};
use crate::error::Error;
use crate::types::partitioner::Partitioner;

/// The configuration of one topic, which takes precedence over its client's; `None` uses the client's value.
///
/// [`Producer::topic_with`](crate::Producer::topic_with) applies it to a producer.
/// [`ConsumerControl::start_with`](crate::ConsumerControl::start_with) applies the properties for commits, offset
/// files and `auto.offset.reset` to a consumer.
///
/// ```
/// use ottla_client::{Acks, Config, TopicConfig};
///
/// let mut orders = TopicConfig::default();
/// orders.set("acks", "1")?;
/// let mut config = Config::new("127.0.0.1:9092");
/// config.set("compression.codec", "lz4")?;
/// let own = orders.over(&config);
/// assert_eq!((own.acks, own.compression_codec.name()), (Acks::Leader, "lz4"));
/// # Ok::<(), ottla_client::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TopicConfig {
    /// `acks`.
    pub acks: Option<Acks>,
    /// `request.timeout.ms`.
    pub request_timeout: Option<Duration>,
    /// `delivery.timeout.ms`.
    pub delivery_timeout: Option<Duration>,
    /// `partitioner`.
    pub partitioner: Option<Partitioner>,
    /// `compression.codec`.
    pub compression_codec: Option<Compression>,
    /// `compression.level`; the inner `None` is the codec's default.
    pub compression_level: Option<Option<i32>>,
    /// `auto.offset.reset`.
    pub auto_offset_reset: Option<OffsetReset>,
    /// `auto.commit.enable`, for partitions that are started one by one.
    pub auto_commit_enable: Option<bool>,
    /// `auto.commit.interval.ms`, for the same partitions.
    pub auto_commit_interval: Option<Duration>,
    /// `offset.store.method`: whether offsets are kept in files.
    pub offset_store_file: Option<bool>,
    /// `offset.store.path`.
    pub offset_store_path: Option<PathBuf>,
    /// `offset.store.sync.interval.ms`; the inner `None` is never.
    pub offset_store_sync_interval: Option<Option<Duration>>,
    /// `consume.callback.max.messages`.
    pub consume_callback_max_messages: Option<usize>,
}

impl TopicConfig {
    /// Sets the property `name` from a string.
    ///
    /// # Errors
    /// [`Error::Config`] that names the property, the value and what is allowed; also for names of client properties.
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
            request_timeout,
            delivery_timeout,
            partitioner,
            compression_codec,
            compression_level,
            auto_offset_reset,
            topic_auto_commit_enable,
            topic_auto_commit_interval,
            offset_store_file,
            offset_store_path,
            offset_store_sync_interval,
            consume_callback_max_messages,
            ..
        } = config;
        match property.name {
            "acks" => self.acks = Some(acks),
            "request.timeout.ms" => self.request_timeout = request_timeout,
            "delivery.timeout.ms" => self.delivery_timeout = Some(delivery_timeout),
            "partitioner" => self.partitioner = Some(partitioner),
            "compression.codec" => {
                self.compression_codec = (value.trim() != "inherit").then_some(compression_codec);
            }
            "compression.level" => self.compression_level = Some(compression_level),
            "auto.offset.reset" => self.auto_offset_reset = Some(auto_offset_reset),
            "auto.commit.enable" => self.auto_commit_enable = topic_auto_commit_enable,
            "auto.commit.interval.ms" => self.auto_commit_interval = topic_auto_commit_interval,
            "offset.store.method" => self.offset_store_file = Some(offset_store_file),
            "offset.store.path" => self.offset_store_path = Some(offset_store_path),
            "offset.store.sync.interval.ms" => {
                self.offset_store_sync_interval = Some(offset_store_sync_interval);
            }
            "consume.callback.max.messages" => {
                self.consume_callback_max_messages = Some(consume_callback_max_messages);
            }
            other => return Err(Error::Config(format!("`{other}` cannot be set for one topic alone"))),
        }
        Ok(())
    }

    /// Returns the value of a topic property; `config` is the client's configuration.
    ///
    /// # Errors
    /// [`Error::Config`] for an unknown name.
    pub fn get(&self, name: &str, config: &Config) -> Result<String, Error> {
        let property = properties::find_in(Scope::Topic, name).ok_or_else(|| properties::unknown(name))?;
        if property.name == "compression.codec" && self.compression_codec.is_none() {
            return Ok("inherit".into());
        }
        Ok(properties::get(&self.over(config), property))
    }

    /// Returns the client's configuration with this topic's values applied.
    pub fn over(&self, config: &Config) -> Config {
        let mut own = config.clone();
        own.acks = self.acks.unwrap_or(own.acks);
        own.request_timeout = self.request_timeout.or(own.request_timeout);
        own.delivery_timeout = self.delivery_timeout.unwrap_or(own.delivery_timeout);
        own.partitioner = self.partitioner.clone().unwrap_or(own.partitioner);
        own.compression_codec = self.compression_codec.unwrap_or(own.compression_codec);
        own.compression_level = self.compression_level.unwrap_or(own.compression_level);
        own.auto_offset_reset = self.auto_offset_reset.unwrap_or(own.auto_offset_reset);
        own.topic_auto_commit_enable = self.auto_commit_enable.or(own.topic_auto_commit_enable);
        own.topic_auto_commit_interval = self.auto_commit_interval.or(own.topic_auto_commit_interval);
        own.offset_store_file = self.offset_store_file.unwrap_or(own.offset_store_file);
        own.offset_store_path = self.offset_store_path.clone().unwrap_or(own.offset_store_path);
        own.offset_store_sync_interval =
            self.offset_store_sync_interval.unwrap_or(own.offset_store_sync_interval);
        own.consume_callback_max_messages =
            self.consume_callback_max_messages.unwrap_or(own.consume_callback_max_messages);
        own.limit_durations();
        if own.defaults == Defaults::Librdkafka {
            own.limit_compression_level();
        }
        own
    }
}
