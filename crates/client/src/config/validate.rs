//! Checks across properties: derives unset ones from those that are set, and finds contradictions.

use std::time::Duration;

use super::{Acks, Config, Defaults, GroupProtocol, NEVER};
use crate::assignor;
use crate::error::Error;
use crate::types::pattern;

/// Bytes of a fetch response in addition to its records.
const RESPONSE_OVERHEAD_BYTES: usize = 512;

impl Config {
    /// Derives unset properties from those that are set, and returns an error for contradictions and missing ones.
    pub(crate) fn validated(mut self) -> Result<Self, Error> {
        self.derive_unset();
        self.limit_durations();
        self.check().map_err(Error::Config)?;
        Ok(self)
    }

    fn derive_unset(&mut self) {
        if self.topic_metadata_refresh_interval.is_zero() {
            self.topic_metadata_refresh_interval = NEVER;
        }
        // Transactions require idempotence, so settings that exclude it contradict them.
        if self.transactional_id.is_some() {
            if self.defaults == Defaults::Librdkafka && !self.is_set("enable.idempotence") {
                self.enable_idempotence = true;
            }
            if !self.is_set("delivery.timeout.ms") {
                self.delivery_timeout = self.delivery_timeout.min(self.transaction_timeout);
            }
        }
        // As in Java's client, settings that exclude idempotence disable it unless it was enabled explicitly.
        if self.enable_idempotence && !self.is_set("enable.idempotence") && self.transactional_id.is_none() {
            let excluded = (self.is_set("acks") && self.acks != Acks::All)
                || (self.is_set("max.in.flight") && self.max_in_flight_requests_per_connection > 5)
                || (self.is_set("retries") && self.retries == 0);
            self.enable_idempotence = !excluded;
        }
        if self.enable_idempotence && !self.is_set("max.in.flight") && self.defaults == Defaults::Librdkafka {
            self.max_in_flight_requests_per_connection = self.max_in_flight_requests_per_connection.min(5);
        }
        if self.reconnect_backoff_jitter > Duration::ZERO {
            if !self.is_set("reconnect.backoff.ms") {
                self.reconnect_backoff = self.reconnect_backoff_jitter;
            }
            if !self.is_set("reconnect.backoff.max.ms") {
                self.reconnect_backoff_max = self.reconnect_backoff;
            }
        }
        if !self.is_set("reconnect.backoff.max.ms") {
            self.reconnect_backoff_max = self.reconnect_backoff_max.max(self.reconnect_backoff);
        }
        if self.defaults == Defaults::Librdkafka {
            // librdkafka warns, and takes the maximum.
            self.retry_backoff = self.retry_backoff.min(self.retry_backoff_max);
        } else if !self.is_set("retry.backoff.max.ms") {
            self.retry_backoff_max = self.retry_backoff_max.max(self.retry_backoff);
        }
        // Java's property limits every request; librdkafka's limits the broker's processing of a produce request.
        if self.defaults == Defaults::Native && !self.is_set("socket.timeout.ms") {
            self.socket_timeout = self.request_timeout.unwrap_or(self.socket_timeout);
        }
        if !self.is_set("max.request.size") {
            self.max_request_size = self.max_request_size.max(self.batch_size).max(self.message_max_bytes);
        } else if !self.is_set("batch.size") {
            self.batch_size = self.batch_size.min(self.max_request_size);
        }
        if self.defaults == Defaults::Librdkafka {
            self.limit_compression_level();
        }
        if !self.is_set("receive.message.max.bytes") {
            self.receive_message_max_bytes = self
                .receive_message_max_bytes
                .max(self.fetch_max_bytes.saturating_add(RESPONSE_OVERHEAD_BYTES));
        }
    }

    /// librdkafka takes levels that a codec does not have: a higher one is the codec's highest, and zero is the default of LZ4.
    pub(super) fn limit_compression_level(&mut self) {
        let Some((min, _, max)) = ottla_wire::compress::levels(self.compression_codec) else { return };
        self.compression_level = match self.compression_level {
            Some(0) if self.compression_codec == ottla_wire::Compression::Lz4 => None,
            level => level.map(|level| level.clamp(min, max)),
        };
    }

    /// Limits durations that an application has set without a limit, so that they can be added to any time.
    pub(crate) fn limit_durations(&mut self) {
        let net = &mut self.net;
        let durations = [
            &mut self.transaction_timeout,
            &mut self.delivery_timeout,
            &mut self.socket_timeout,
            &mut self.retry_backoff,
            &mut self.retry_backoff_max,
            &mut self.metadata_max_age,
            &mut self.topic_metadata_propagation_max,
            &mut self.topic_metadata_refresh_interval,
            &mut self.reconnect_backoff,
            &mut self.reconnect_backoff_max,
            &mut self.reconnect_backoff_jitter,
            &mut self.socket_connection_setup_timeout,
            &mut self.session_timeout,
            &mut self.heartbeat_interval,
            &mut self.max_poll_interval,
            &mut self.auto_commit_interval,
            &mut self.fetch_wait_max,
            &mut self.statistics_interval,
            &mut self.stall_after,
            &mut net.version_fallback_for,
            &mut net.version_request_timeout,
            &mut net.rebootstrap_after,
        ];
        let optional = [
            &mut self.linger,
            &mut self.sticky_partitioning_linger,
            &mut self.request_timeout,
            &mut self.topic_metadata_refresh_fast_interval,
            &mut self.topic_auto_commit_interval,
            &mut self.fetch_error_backoff,
            &mut self.offset_store_sync_interval,
            &mut net.max_idle,
        ];
        for duration in durations.into_iter().chain(optional.into_iter().flatten()) {
            *duration = NEVER.min(*duration);
        }
    }

    /// Returns `true` if partitions that are started one by one commit in the background.
    pub(crate) fn topic_auto_commit_enable(&self) -> bool {
        self.topic_auto_commit_enable.unwrap_or(match self.defaults {
            Defaults::Native => self.enable_auto_commit,
            Defaults::Librdkafka => true,
        })
    }

    /// The interval of these commits.
    pub(crate) fn topic_auto_commit_interval(&self) -> Duration {
        self.topic_auto_commit_interval.unwrap_or(match self.defaults {
            Defaults::Native => self.auto_commit_interval,
            Defaults::Librdkafka => Duration::from_secs(60),
        })
    }

    /// Returns the first contradiction; the text names the properties, their values and a remedy.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_servers()?;
        self.check_idempotence()?;
        self.check_group()?;
        if self.security.protocol.is_tls() {
            self.openssl.check()?;
        }
        self.check_ranges()
    }

    fn check_servers(&self) -> Result<(), String> {
        let no_servers = self.bootstrap_servers.split(',').all(|server| server.trim().is_empty());
        if no_servers && !self.bootstrap_later {
            return Err("bootstrap.servers is empty: name at least one host[:port]".into());
        }
        for text in &self.topic_blacklist {
            pattern(text).map_err(|error| format!("topic.blacklist: {error}"))?;
        }
        Ok(())
    }

    fn check_idempotence(&self) -> Result<(), String> {
        if let Some(id) = &self.transactional_id {
            if id.is_empty() {
                return Err("transactional.id is empty: leave it unset, or give it a name".into());
            }
            if !self.enable_idempotence {
                return Err(format!(
                    "transactional.id=`{id}` needs enable.idempotence=true: set it, or leave transactional.id unset"
                ));
            }
        }
        if self.enable_gapless_guarantee && !self.enable_idempotence {
            return Err(
                "enable.gapless.guarantee=true needs enable.idempotence=true: set both, or neither".into()
            );
        }
        if self.enable_idempotence {
            if self.acks != Acks::All {
                return Err(format!(
                    "enable.idempotence=true needs acks=all, and acks is {}: set one of the two",
                    self.acks.code()
                ));
            }
            if self.max_in_flight_requests_per_connection > 5 {
                return Err(format!(
                    "enable.idempotence=true allows 1 to 5 requests in flight, and max.in.flight is {}",
                    self.max_in_flight_requests_per_connection
                ));
            }
            if self.retries == 0 {
                return Err("enable.idempotence=true needs retries of 1 or more, and retries is 0".into());
            }
        }
        Ok(())
    }

    fn check_group(&self) -> Result<(), String> {
        if self.group_protocol == GroupProtocol::Consumer && !self.topic_blacklist.is_empty() {
            return Err(
                "topic.blacklist has no place with group.protocol=consumer, where the group's coordinator matches patterns"
                    .into(),
            );
        }
        if self.group_protocol == GroupProtocol::Consumer {
            let excluded = ["session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"];
            if let Some(name) = excluded.into_iter().find(|name| self.is_set(name)) {
                return Err(format!(
                    "{name} has no place with group.protocol=consumer, where the group's coordinator decides: leave it unset"
                ));
            }
        } else if let Some(assignor) = &self.group_remote_assignor {
            return Err(format!("group.remote.assignor=`{assignor}` needs group.protocol=consumer"));
        }
        if let Some(unknown) =
            self.partition_assignment_strategy.iter().find(|name| self.assignor_named(name).is_none())
        {
            return Err(format!(
                "partition.assignment.strategy: `{unknown}` is none of {}, and `Config::assignor` was given no such one",
                assignor::BUILT_IN.join(", ")
            ));
        }
        if self.partition_assignment_strategy.is_empty() {
            return Err("partition.assignment.strategy is empty: name at least one assignor".into());
        }
        if self.group_protocol == GroupProtocol::Classic {
            // librdkafka accepts it.
            if self.defaults == Defaults::Native {
                above(
                    "session.timeout.ms",
                    self.session_timeout,
                    "heartbeat.interval.ms",
                    self.heartbeat_interval,
                )?;
            }
            not_below(
                "max.poll.interval.ms",
                self.max_poll_interval,
                "session.timeout.ms",
                self.session_timeout,
            )?;
        }
        Ok(())
    }

    fn check_ranges(&self) -> Result<(), String> {
        not_below(
            "reconnect.backoff.max.ms",
            self.reconnect_backoff_max,
            "reconnect.backoff.ms",
            self.reconnect_backoff,
        )?;
        not_below("retry.backoff.max.ms", self.retry_backoff_max, "retry.backoff.ms", self.retry_backoff)?;
        if let Some(linger) = self.linger {
            above("delivery.timeout.ms", self.delivery_timeout, "linger.ms", linger)?;
        }
        if self.batch_size > self.max_request_size {
            return Err(format!(
                "batch.size ({}) must not be above max.request.size ({})",
                self.batch_size, self.max_request_size
            ));
        }
        if self.receive_message_max_bytes < self.fetch_max_bytes.saturating_add(RESPONSE_OVERHEAD_BYTES) {
            return Err(format!(
                "receive.message.max.bytes ({}) must be at least {RESPONSE_OVERHEAD_BYTES} above fetch.max.bytes ({})",
                self.receive_message_max_bytes, self.fetch_max_bytes
            ));
        }
        if let (Some((min, _, max)), Some(level)) =
            (ottla_wire::compress::levels(self.compression_codec), self.compression_level)
            && !(min..=max).contains(&level)
        {
            return Err(format!(
                "compression.level={level}: {} has levels {min} to {max}, and -1 for its default",
                self.compression_codec.name()
            ));
        }
        Ok(())
    }
}

fn above(name: &str, value: Duration, lower: &str, lower_value: Duration) -> Result<(), String> {
    if value > lower_value {
        return Ok(());
    }
    Err(format!("{name} ({}) must be above {lower} ({})", value.as_millis(), lower_value.as_millis()))
}

fn not_below(name: &str, value: Duration, lower: &str, lower_value: Duration) -> Result<(), String> {
    if value >= lower_value {
        return Ok(());
    }
    Err(format!("{name} ({}) must not be below {lower} ({})", value.as_millis(), lower_value.as_millis()))
}
