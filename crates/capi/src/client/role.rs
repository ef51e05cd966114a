//! The kinds of clients, and what only one of them checks.

use std::ops::RangeInclusive;

use ottla_client::{Config, Error};

use crate::client::creation_checks::contradiction;
use crate::conf::rd_kafka_conf_t;
use crate::ffi::*;

/// The range of `fetch.min.bytes` for consumers; share consumers may have any number, as in the original.
const FETCH_MIN_BYTES: RangeInclusive<usize> = 1..=100_000_000;

/// The kinds of clients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Producer,
    Consumer,
    /// A consumer for C, without a consumer's functions: `rd_kafka_share_t` has them.
    ShareConsumer,
}

impl Role {
    pub(super) fn of(kind: rd_kafka_type_t) -> Option<Self> {
        match kind {
            RD_KAFKA_PRODUCER => Some(Self::Producer),
            RD_KAFKA_CONSUMER => Some(Self::Consumer),
            _ => None,
        }
    }

    pub(super) fn kind(self) -> rd_kafka_type_t {
        match self {
            Self::Producer => RD_KAFKA_PRODUCER,
            Self::Consumer | Self::ShareConsumer => RD_KAFKA_CONSUMER,
        }
    }

    /// Applies and checks the properties that depend on the kind of client.
    pub(super) fn apply(self, conf: &rd_kafka_conf_t, config: &mut Config) -> Result<(), Error> {
        let (has_mock, has_ca) = (conf.mock_brokers() > 0, conf.has_ca_from_memory());
        if let Some(text) = contradiction(self, has_mock, has_ca, config) {
            return Err(Error::Config(text));
        }
        match self {
            Self::Producer => {
                let is_lifo = conf.get("queuing.strategy").as_deref() == Some("lifo");
                if config.enable_idempotence && is_lifo {
                    let reason = "`queuing.strategy` must be set to `fifo` when `enable.idempotence` is true";
                    return Err(Error::Config(reason.into()));
                }
                Ok(())
            }
            Self::Consumer if !FETCH_MIN_BYTES.contains(&config.fetch_min_bytes) => {
                let (given, first, last) =
                    (config.fetch_min_bytes, FETCH_MIN_BYTES.start(), FETCH_MIN_BYTES.end());
                let reason = format!("fetch.min.bytes ({given}) is outside allowed range {first}..{last}");
                Err(Error::Config(reason))
            }
            Self::Consumer => Ok(()),
            Self::ShareConsumer => conf.apply_to_share_consumer(config),
        }
    }
}
