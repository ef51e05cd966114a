//! Configuration: a struct of typed values, and the table of properties that fills it from strings.

mod duration;
mod java;
pub(crate) mod net_settings;
pub mod properties;
mod property;
mod table;
#[cfg(test)]
mod tests;
mod topic;
mod validate;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ottla_wire::Compression;

use crate::assignor::{self, Assignor};
use crate::clock::Clock;
use crate::config::net_settings::NetSettings;
use crate::error::Error;
use crate::security::Security;
use crate::security::openssl::OpenSslSettings;
use crate::types::log_line::LogCallback;
use crate::types::partitioner::Partitioner;
use crate::types::produce_hook::ProduceHook;

pub use crate::types::{
    Acks, GroupHabits, GroupProtocol, Isolation, OffsetReset, Rebalance, ShareAcknowledgementMode,
    ShareAcquireMode,
};
pub use topic::TopicConfig;

/// Longer than any program runs, and short enough to be added to any time.
pub(crate) const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The configuration of a client. Fields have the names of their properties; both can be set.
///
/// ```
/// use ottla_client::Config;
///
/// let mut config = Config::new("127.0.0.1:9092");
/// config.set("linger.ms", "5")?;
/// config.set("compression.codec", "lz4")?;
/// assert!(config.set("linger.ms", "often").is_err());
/// # Ok::<(), ottla_client::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// `bootstrap.servers`: comma-separated `host[:port]`, tried in turn. The default port is 9092.
    pub bootstrap_servers: String,
    /// `true` if `bootstrap_servers` may be empty, because
    /// [`Client::add_bootstrap_servers`](crate::Client::add_bootstrap_servers) adds servers later.
    pub bootstrap_later: bool,
    /// `true` to connect to a broker of the cluster as soon as metadata names them, as librdkafka does, and not when a
    /// request needs it: a program learns early that the advertised addresses cannot be reached.
    pub connect_to_learned_broker: bool,
    /// `true` to describe failed connections as librdkafka does: with the broker's id, the address and the time of the attempt.
    /// Programs search for these texts.
    pub name_failures: bool,
    /// `client.id`, sent with each request.
    pub client_id: String,
    /// The client's name in its log lines and statistics; by default its `client.id` and a number.
    pub name: Option<String>,
    /// The text of the first log line, `INIT`, which any context of `debug` enables then. By default it names the client, and the context
    /// `generic` enables it.
    pub init_line: Option<String>,
    /// `acks`. All in-sync replicas by default.
    pub acks: Acks,
    /// `enable.idempotence`: no duplicates and no reordering by retries. On by default; needs `acks=all`.
    pub enable_idempotence: bool,
    /// `enable.gapless.guarantee`: a record that is not delivered ends the producer, so that none after it is written. Off
    /// by default; needs idempotence.
    pub enable_gapless_guarantee: bool,
    /// `transactional.id`: makes the producer transactional. Transactions survive the producer's restart under this
    /// name. Needs idempotence. `None` by default.
    pub transactional_id: Option<String>,
    /// `transaction.timeout.ms`: after this time the coordinator aborts a transaction that is still open.
    pub transaction_timeout: Duration,
    /// `linger.ms`. Unset by default: batching adapts to what is in flight. Set, every batch waits this long to fill.
    pub linger: Option<Duration>,
    /// `batch.size`: the most bytes a batch grows to, before compression.
    pub batch_size: usize,
    /// `buffer.memory`: the most bytes that records waiting for their acknowledgement may take.
    pub buffer_memory: usize,
    /// `batch.num.messages`: the most records in a batch.
    pub batch_num_messages: usize,
    /// `queue.buffering.max.messages`: the most records that wait for their acknowledgement; 0 is no limit.
    pub queue_buffering_max_messages: usize,
    /// `queue.buffering.backpressure.threshold`: the number of requests waiting to be written to a broker at which
    /// the producer creates no further requests.
    pub queue_buffering_backpressure_threshold: usize,
    /// `message.max.bytes`: the most bytes of one record, and of a batch with more than one record. A record above
    /// `batch.size` gets its own batch.
    pub message_max_bytes: usize,
    /// `message.copy.max.bytes`: values given as shared bytes are copied up to this size and shared above it.
    pub message_copy_max_bytes: usize,
    /// `max.request.size`: the most bytes of records in one produce request.
    pub max_request_size: usize,
    /// `retries`: how often a batch is sent again before it fails with its last error.
    pub retries: u32,
    /// `sticky.partitioning.linger.ms`: how long records without a key stay with one partition; 0 disables it.
    /// With `None`, the default, they stay until the batch is full.
    pub sticky_partitioning_linger: Option<Duration>,
    /// `true` to send the outcome of every record to the [`Reports`](crate::Reports) queue. Off by default.
    pub delivery_reports: bool,
    /// The side that applies the group's assignment: the client or the application.
    pub rebalance: Rebalance,
    /// `true` if a record counts as processed when it is returned, as in librdkafka, and not at the next poll.
    pub done_when_returned: bool,
    /// `true` if records for a topic that a broker has forbidden are refused at once until new metadata allows it, as in
    /// librdkafka; otherwise each one is sent. Off by default.
    pub refuse_forbidden_topics: bool,
    /// The client whose habits a member of a classic group has. Java's by default.
    pub group_habits: GroupHabits,
    /// `true` if an administrative call repeats a request whose response has an error that may pass. With `false` a change of
    /// committed offsets and a lookup of offsets return it, as in librdkafka, and the lookup goes to the last known leader.
    /// The default is `true`.
    pub retry_admin_codes: bool,
    /// `true` if OUT_OF_ORDER_SEQUENCE_NUMBER always ends a transaction of the classic protocol with an abort, as in
    /// librdkafka. With `false`, as in Java, a batch behind an earlier one that failed is sent again. The default is `false`.
    pub abort_out_of_order: bool,
    /// `true` if a poll returns a batch that cannot be decoded as [`Polled::Corrupt`](crate::Polled::Corrupt) and
    /// continues after it; otherwise the partition stops with [`Error::Corrupt`]. Off by default.
    pub corrupt_returned: bool,
    /// A function that can replace the outcome of Produce requests: for tests of retries. None by default.
    pub produce_hook: Option<ProduceHook>,
    /// `delivery.report.only.error`: only failures are reported.
    pub delivery_report_only_error: bool,
    /// `true` if reports contain the records' keys and values, whose memory they hold until they are dropped.
    pub delivery_report_records: bool,
    /// `compression.codec`. None by default.
    pub compression_codec: Compression,
    /// `compression.level`; `None` is the codec's default.
    pub compression_level: Option<i32>,
    /// `max.in.flight.requests.per.connection`, 1 to 5 with idempotence.
    pub max_in_flight_requests_per_connection: usize,
    /// `delivery.timeout.ms`: the time from sending a record to its acknowledgement, retries included.
    pub delivery_timeout: Duration,
    /// `socket.timeout.ms`: the time from sending a request to its response.
    pub socket_timeout: Duration,
    /// `request.timeout.ms`: how long the broker may wait for replicas; unset, it is `socket_timeout`.
    pub request_timeout: Option<Duration>,
    /// `retry.backoff.ms`: the pause before the first retry; it doubles with each further one.
    pub retry_backoff: Duration,
    /// `retry.backoff.max.ms`: the longest pause before a retry.
    pub retry_backoff_max: Duration,
    /// `partitioner`.
    pub partitioner: Partitioner,
    /// `metadata.max.age.ms`: the age at which the client requests metadata again.
    pub metadata_max_age: Duration,
    /// `topic.metadata.propagation.max.ms`: how long records wait for a topic that the brokers do not know
    /// yet, before they fail.
    pub topic_metadata_propagation_max: Duration,
    /// `topic.metadata.refresh.interval.ms`: librdkafka's name for `metadata.max.age.ms`; the shorter of the two applies.
    pub topic_metadata_refresh_interval: Duration,
    /// `topic.metadata.refresh.fast.interval.ms`: the pause before metadata of topics without a leader is requested
    /// again; unset, it is `retry_backoff`.
    pub topic_metadata_refresh_fast_interval: Option<Duration>,
    /// `allow.auto.create.topics`: whether a metadata request may create an unknown topic, if the broker allows it. None does for a
    /// topic that is subscribed beside a pattern in the classic protocol.
    pub allow_auto_create_topics: bool,
    /// `reconnect.backoff.ms`: the pause before the second attempt to connect; it doubles with each further one.
    pub reconnect_backoff: Duration,
    /// `reconnect.backoff.max.ms`: the longest pause before an attempt to connect.
    pub reconnect_backoff_max: Duration,
    /// `reconnect.backoff.jitter.ms`: above zero, a constant pause before connecting again.
    pub reconnect_backoff_jitter: Duration,
    /// `socket.connection.setup.timeout.ms`: the time limit for connecting, TLS, SASL and ApiVersions.
    pub socket_connection_setup_timeout: Duration,
    /// `socket.send.buffer.bytes`; 0 leaves it to the system.
    pub socket_send_buffer_bytes: usize,
    /// `socket.receive.buffer.bytes`; 0 leaves it to the system.
    pub socket_receive_buffer_bytes: usize,
    /// `receive.message.max.bytes`: a larger response closes the connection.
    pub receive_message_max_bytes: usize,
    /// `group.id`. Needed for `subscribe` and `commit`.
    pub group_id: Option<String>,
    /// `group.instance.id`: the name of a static member, which keeps its partitions across a restart (KIP-345).
    pub group_instance_id: Option<String>,
    /// `group.protocol`.
    pub group_protocol: GroupProtocol,
    /// `group.remote.assignor`: the coordinator's assignor that this member prefers, with
    /// [`GroupProtocol::Consumer`].
    pub group_remote_assignor: Option<String>,
    /// `partition.assignment.strategy`: names of assignors, the preferred one first. The built-in ones are `range`,
    /// `roundrobin`, `sticky` and `cooperative-sticky`.
    pub partition_assignment_strategy: Vec<String>,
    own_assignors: Vec<Arc<dyn Assignor>>,
    /// `session.timeout.ms`: the coordinator removes a member after this time without a heartbeat.
    pub session_timeout: Duration,
    /// `heartbeat.interval.ms`.
    pub heartbeat_interval: Duration,
    /// `max.poll.interval.ms`: how long the application may take between two polls before its member leaves the group,
    /// and how long a rebalance waits for it.
    pub max_poll_interval: Duration,
    /// `enable.auto.commit`: commit what has been processed, in the background. On by default.
    pub enable_auto_commit: bool,
    /// `auto.commit.interval.ms`.
    pub auto_commit_interval: Duration,
    /// `auto.commit.enable` of topics: whether partitions started one by one
    /// ([`Consumer::start`](crate::ConsumerControl::start)) commit in the background. `None` follows `enable.auto.commit`.
    pub topic_auto_commit_enable: Option<bool>,
    /// `auto.commit.interval.ms` of topics, for the same partitions. `None` follows the client's.
    pub topic_auto_commit_interval: Option<Duration>,
    /// `consume.callback.max.messages` of topics; 0 is no limit.
    pub consume_callback_max_messages: usize,
    /// `topic.blacklist`: regular expressions of topics that the client ignores.
    pub topic_blacklist: Vec<String>,
    /// `auto.offset.reset`.
    pub auto_offset_reset: OffsetReset,
    /// `isolation.level`.
    pub isolation_level: Isolation,
    /// `fetch.min.bytes`: the broker waits until it has this many bytes, or for `fetch.wait.max.ms`.
    pub fetch_min_bytes: usize,
    /// `fetch.wait.max.ms`.
    pub fetch_wait_max: Duration,
    /// `fetch.error.backoff.ms`: the pause after a failed fetch; unset, it is `retry_backoff` and doubles.
    pub fetch_error_backoff: Option<Duration>,
    /// `fetch.max.bytes` of one response.
    pub fetch_max_bytes: usize,
    /// `max.partition.fetch.bytes` of one partition in one response.
    pub max_partition_fetch_bytes: usize,
    /// `max.poll.records`: the number of records that a share consumer acquires at once from one leader.
    pub max_poll_records: usize,
    /// `share.acknowledgement.mode` of a share consumer.
    pub share_acknowledgement_mode: ShareAcknowledgementMode,
    /// `share.acquire.mode` of a share consumer.
    pub share_acquire_mode: ShareAcquireMode,
    /// `queued.max.messages.kbytes`, in bytes: the most memory of a consumer for records that are being fetched, are
    /// fetched ahead, or are held by the application.
    pub queued_max_messages_bytes: usize,
    /// `queued.min.messages`: the number of records to fetch ahead per partition.
    pub queued_min_messages: u64,
    /// `offset.store.method`: whether offsets are kept in local files instead of with the group's coordinator.
    pub offset_store_file: bool,
    /// `offset.store.path`: the directory of these files, or the file of the only partition that is consumed.
    pub offset_store_path: PathBuf,
    /// `offset.store.sync.interval.ms`: how often each file is synced; zero means at every write, `None` never.
    pub offset_store_sync_interval: Option<Duration>,
    /// `client.rack`: the rack of this client. It fetches from a replica in the same rack, and assignors prefer partitions
    /// with such a replica.
    pub client_rack: String,
    /// `enable.partition.eof`: whether reaching a partition's end is an event. Off by default.
    pub enable_partition_eof: bool,
    /// `enable.auto.offset.store`. On by default: a record counts as processed at the next poll.
    pub enable_auto_offset_store: bool,
    /// `check.crcs`, which is on by default.
    pub check_crcs: bool,
    /// `decompressed.max.bytes`: the limit for the decompressed size of a batch.
    pub decompressed_max_bytes: usize,
    /// `statistics.interval.ms`: the interval of the snapshots of [`Client::statistics`](crate::Client::statistics).
    /// With zero, the default, there are none, and the client counts only if a broker subscribes to its metrics.
    pub statistics_interval: Duration,
    /// `enable.metrics.push`: push metrics to the brokers that subscribe to them (KIP-714). The default is `true`.
    pub enable_metrics_push: bool,
    /// The part of the push interval by which the first push after a subscription may come earlier or later; at most 1.
    /// 0.5 by default, as in Java; librdkafka has 0.2.
    pub metrics_push_jitter: f64,
    /// `debug`: the contexts to log in detail, separated by commas. None by default.
    pub debug: String,
    /// `log_level`: the least severe level to log, as in syslog; 6 by default, 7 when `debug` is set.
    pub log_level: u8,
    /// `log.queue`: lines wait in [`Client::log_lines`](crate::Client::log_lines) instead of going to `tracing`.
    pub log_queue: bool,
    /// The function that gets the log lines instead of `tracing` or the queue.
    pub log_callback: Option<LogCallback>,
    /// The time without progress after which [`Client::stalls`](crate::Client::stalls) reports a stall and the log warns;
    /// 5 s by default, zero disables the watchdog.
    pub stall_after: Duration,
    /// TLS and SASL.
    pub security: Security,
    /// The parts of OpenSSL that the properties name.
    pub(crate) openssl: OpenSslSettings,
    /// Connection settings.
    pub net: NetSettings,
    /// The clock for record timestamps; simulations replace it.
    pub clock: Clock,
    /// The set of defaults for properties that are not set.
    defaults: Defaults,
    /// The properties that were set by name, with their text where no field has the value.
    given: Given,
}

impl Config {
    /// Returns `false` with librdkafka's defaults.
    pub(crate) fn is_native(&self) -> bool {
        self.defaults == Defaults::Native
    }

    /// Creates a configuration with defaults for these bootstrap servers.
    pub fn new(bootstrap_servers: impl Into<String>) -> Self {
        Self { bootstrap_servers: bootstrap_servers.into(), ..Self::default() }
    }

    /// Creates a configuration with librdkafka's defaults, for programs that expect them.
    ///
    /// Idempotence is off, checksums are not verified, queues are larger and timeouts longer. Batching adapts as in
    /// [`Config::default`] as long as `linger.ms` is not set, although it reads 5.
    pub fn librdkafka() -> Self {
        let mut config = Self { defaults: Defaults::Librdkafka, ..Self::default() };
        for property in properties::all().filter(|property| property.default != property.default_librdkafka) {
            if let (Some(access), Ok(value)) = (property.access, property.parse(property.default_librdkafka))
            {
                let set = (access.set)(&mut config, &value);
                debug_assert_eq!(set, Ok(()), "{}", property.name);
            }
        }
        config.linger = None;
        config.request_timeout = Some(Duration::from_secs(30));
        config
    }

    /// Sets the property `name` from a string, by the names of [`properties`]. A topic's property set here is the
    /// default for all topics.
    ///
    /// # Errors
    /// [`Error::Config`] that names the property, the value and what is allowed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        properties::set(self, properties::known(name)?, name, value)
    }

    /// Adds a custom assignor, which `partition.assignment.strategy` can then name.
    pub fn assignor(&mut self, assignor: impl Assignor + 'static) {
        self.own_assignors.push(Arc::new(assignor));
    }

    /// Returns how long to wait for an overdue response before dropping the connection, after `failures` unanswered
    /// requests in a row; `None` without a watchdog. The time doubles, so that a slow broker gets a chance to respond.
    pub(crate) fn patience(&self, failures: u32) -> Option<Duration> {
        (!self.stall_after.is_zero()).then(|| self.stall_after.saturating_mul(2 << failures.min(10)))
    }

    /// Returns the assignors that `partition.assignment.strategy` names, the preferred one first.
    pub(crate) fn assignors(&self) -> Vec<Arc<dyn Assignor>> {
        self.partition_assignment_strategy.iter().filter_map(|name| self.assignor_named(name)).collect()
    }

    fn assignor_named(&self, name: &str) -> Option<Arc<dyn Assignor>> {
        let own = self.own_assignors.iter().find(|assignor| assignor.name() == name);
        own.cloned().or_else(|| assignor::built_in(name, self.group_habits))
    }

    /// Returns the value of the property `name` as a string that [`set`](Self::set) accepts. A secret is returned as
    /// `[secret]`.
    ///
    /// # Errors
    /// [`Error::Config`] for an unknown name.
    pub fn get(&self, name: &str) -> Result<String, Error> {
        Ok(properties::get(self, properties::known(name)?))
    }

    /// Returns `true` if the property `name` was set by name, even to its default.
    pub fn is_set(&self, name: &str) -> bool {
        properties::find(name).is_some_and(|property| self.given.contains_key(property.name))
    }

    /// Returns every property that has a textual form, with its value; secrets are returned as `[secret]`.
    pub fn dump(&self) -> Vec<(&'static str, String)> {
        let of_client = |property: &&properties::Property| {
            property.kind != properties::Kind::Pointer
                && properties::find(property.name).is_some_and(|first| first.scope == property.scope)
        };
        let show = |property: &properties::Property| (property.name, properties::get(self, property));
        properties::all().filter(of_client).map(show).collect()
    }

    /// Sets many properties, as from a file or the command line.
    pub fn set_all<'a>(&mut self, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<(), Error> {
        pairs.into_iter().try_for_each(|(name, value)| self.set(name, value))
    }
}

/// The set of defaults that a configuration starts with.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Defaults {
    #[default]
    Native,
    Librdkafka,
}

/// The properties that were set by name. `Debug` shows no values; secrets are stored only in their fields.
#[derive(Clone, Default)]
struct Given(BTreeMap<&'static str, String>);

impl std::ops::Deref for Given {
    type Target = BTreeMap<&'static str, String>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl std::ops::DerefMut for Given {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Default for Config {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            bootstrap_servers: String::new(),
            bootstrap_later: false,
            connect_to_learned_broker: false,
            name_failures: false,
            name: None,
            init_line: None,
            client_id: "ottla".into(),
            acks: Acks::All,
            enable_idempotence: true,
            enable_gapless_guarantee: false,
            transactional_id: None,
            transaction_timeout: ms(60_000),
            linger: None,
            batch_size: 1_000_000,
            buffer_memory: 32 << 20,
            batch_num_messages: 1_000_000,
            queue_buffering_max_messages: 0,
            queue_buffering_backpressure_threshold: 1,
            message_max_bytes: 1_000_000,
            message_copy_max_bytes: 65_535,
            max_request_size: 1_000_000,
            retries: i32::MAX as u32,
            sticky_partitioning_linger: None,
            delivery_reports: false,
            rebalance: Rebalance::Polled,
            done_when_returned: false,
            refuse_forbidden_topics: false,
            group_habits: GroupHabits::Java,
            retry_admin_codes: true,
            abort_out_of_order: false,
            corrupt_returned: false,
            produce_hook: None,
            delivery_report_only_error: false,
            delivery_report_records: false,
            compression_codec: Compression::None,
            compression_level: None,
            max_in_flight_requests_per_connection: 5,
            delivery_timeout: ms(120_000),
            socket_timeout: ms(30_000),
            request_timeout: None,
            retry_backoff: ms(100),
            retry_backoff_max: ms(1_000),
            partitioner: Partitioner::default(),
            metadata_max_age: ms(300_000),
            topic_metadata_propagation_max: ms(30_000),
            topic_metadata_refresh_interval: ms(300_000),
            topic_metadata_refresh_fast_interval: None,
            allow_auto_create_topics: true,
            reconnect_backoff: ms(50),
            reconnect_backoff_max: ms(1_000),
            reconnect_backoff_jitter: Duration::ZERO,
            socket_connection_setup_timeout: ms(10_000),
            socket_send_buffer_bytes: 0,
            socket_receive_buffer_bytes: 0,
            receive_message_max_bytes: 256 << 20,
            group_id: None,
            group_instance_id: None,
            group_protocol: GroupProtocol::Classic,
            group_remote_assignor: None,
            partition_assignment_strategy: vec!["range".into(), "cooperative-sticky".into()],
            own_assignors: Vec::new(),
            session_timeout: ms(45_000),
            heartbeat_interval: ms(3_000),
            max_poll_interval: ms(300_000),
            enable_auto_commit: true,
            auto_commit_interval: ms(5_000),
            topic_auto_commit_enable: None,
            topic_auto_commit_interval: None,
            consume_callback_max_messages: 0,
            topic_blacklist: Vec::new(),
            auto_offset_reset: OffsetReset::Latest,
            isolation_level: Isolation::ReadCommitted,
            max_poll_records: 500,
            share_acknowledgement_mode: ShareAcknowledgementMode::Implicit,
            share_acquire_mode: ShareAcquireMode::BatchOptimized,
            fetch_min_bytes: 1,
            fetch_wait_max: ms(500),
            fetch_error_backoff: None,
            fetch_max_bytes: 50 << 20,
            max_partition_fetch_bytes: 1 << 20,
            queued_max_messages_bytes: 64 << 20,
            queued_min_messages: 100_000,
            offset_store_file: false,
            offset_store_path: ".".into(),
            offset_store_sync_interval: None,
            client_rack: String::new(),
            enable_partition_eof: false,
            enable_auto_offset_store: true,
            check_crcs: true,
            decompressed_max_bytes: ottla_wire::compress::DECOMPRESSED_BYTES_MAX,
            statistics_interval: Duration::ZERO,
            enable_metrics_push: true,
            metrics_push_jitter: 0.5,
            debug: String::new(),
            log_level: 6,
            log_queue: false,
            log_callback: None,
            stall_after: ms(5_000),
            security: Security::default(),
            openssl: OpenSslSettings::default(),
            net: NetSettings::default(),
            clock: Clock::System,
            defaults: Defaults::Native,
            given: Given::default(),
        }
    }
}
