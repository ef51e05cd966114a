//! Configuration: a struct of typed values, and the table of properties that fills it from strings.

mod duration;
mod java;
pub mod properties;
mod property;
mod settle;
mod table;
#[cfg(test)]
mod tests;
mod topic;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ottla_wire::Compression;

use crate::clock::Clock;
use crate::error::Error;
use crate::group::assignor::{self, Assignor};
use crate::log::LogCallback;
use crate::net::settings::NetSettings;
use crate::produce::partitioner::Partitioner;
use crate::security::Security;

pub use topic::TopicConfig;

/// Longer than any program runs, and short enough to be added to any time.
pub(crate) const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// What a broker must have done before it acknowledges a record.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Acks {
    /// Nothing: the record counts as delivered when it is written to the socket.
    None,
    /// The leader has it.
    Leader,
    /// All in-sync replicas have it; on an Ottla broker, it is on disk.
    #[default]
    All,
}

impl Acks {
    pub(crate) const fn code(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Leader => 1,
            Self::All => -1,
        }
    }
}

/// Where to start when a group has no committed offset, or the position does not exist any more.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OffsetReset {
    /// The oldest record there is.
    Earliest,
    /// The next record to be written.
    #[default]
    Latest,
    /// The first record that is at most this old (KIP-1106).
    ByDuration(Duration),
    /// Nowhere: the poll returns an error.
    Error,
}

/// Which records a consumer sees of transactions.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Isolation {
    /// All.
    ReadUncommitted,
    /// Those of committed transactions only.
    #[default]
    ReadCommitted,
}

/// Who brings what a consumer fetches in line with what its group says.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Rebalance {
    /// The consumer: what is given is fetched at once; what is taken back is given up when the application polls again, for
    /// what it had in hand is done then.
    #[default]
    Polled,
    /// The consumer, without a word to the application: no event comes, and no poll is waited for.
    Silent,
    /// The application: after [`Event::Assigned`](crate::Event::Assigned) it calls `assign` or `incremental_assign`, after
    /// `Revoked` and `Lost` `assign` with nothing or `incremental_unassign`, from any thread, and may name other partitions
    /// and offsets than the group did. The group waits for it, for `max.poll.interval.ms` at most.
    Application,
}

/// How the members of a group agree on who gets which partitions.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum GroupProtocol {
    /// The members share out themselves.
    #[default]
    Classic,
    /// The coordinator shares out (KIP-848).
    Consumer,
}

/// Everything a client can be told. Made with [`Config::new`], changed field by field or by property name.
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
    /// `bootstrap.servers`: comma-separated `host[:port]`, tried in turn. Port 9092 when none is given.
    pub bootstrap_servers: String,
    /// Whether `bootstrap_servers` may be empty, because [`Client::add_bootstrap_servers`](crate::Client::add_bootstrap_servers)
    /// brings some later.
    pub bootstrap_later: bool,
    /// `client.id`, sent with each request.
    pub client_id: String,
    /// What the client is called in its log lines and statistics; by default its `client.id` and a number of its own.
    pub name: Option<String>,
    /// `acks`. All in-sync replicas by default.
    pub acks: Acks,
    /// `enable.idempotence`: no duplicates and no reordering by retries. On by default; needs `acks=all`.
    pub idempotence: bool,
    /// `enable.gapless.guarantee`: a record that is not delivered ends the producer, so that none after it is written. Off
    /// by default; needs idempotence.
    pub gapless: bool,
    /// `transactional.id`: records are produced in transactions, and this is the name under which they survive the
    /// producer's restart. Needs idempotence. `None` by default.
    pub transactional_id: Option<String>,
    /// `transaction.timeout.ms`: after this time the coordinator aborts a transaction that is still open.
    pub transaction_timeout: Duration,
    /// `linger.ms`. Unset by default: batching adapts to what is in flight. Set, every batch waits this long to fill.
    pub linger: Option<Duration>,
    /// `batch.size`: the most bytes a batch grows to, before compression.
    pub batch_bytes_max: usize,
    /// `buffer.memory`: the most bytes that records waiting for their acknowledgement may take.
    pub buffer_bytes_max: usize,
    /// `batch.num.messages`: the most records a batch takes.
    pub batch_records_max: usize,
    /// `queue.buffering.max.messages`: the most records that wait for their acknowledgement; 0 is no limit.
    pub buffer_records_max: usize,
    /// `queue.buffering.backpressure.threshold`: while so many requests wait to be written to a broker, no further one
    /// is made.
    pub backpressure_requests: usize,
    /// `message.max.bytes`: the most bytes one record may take, with its batch's header. A record above `batch.size`
    /// travels alone.
    pub message_bytes_max: usize,
    /// `message.copy.max.bytes`: values handed over as shared bytes are copied up to this size, shared above it.
    pub copy_bytes_max: usize,
    /// `max.request.size`: the most bytes of records in one produce request.
    pub request_bytes_max: usize,
    /// `retries`: how often a batch is sent again before it fails with its last error.
    pub retries_max: u32,
    /// `sticky.partitioning.linger.ms`: how long records without a key stay with one partition; 0 is not at all.
    /// `None`, the default, is for as long as a batch takes them.
    pub sticky_linger: Option<Duration>,
    /// Whether the fate of every record goes to the [`Reports`](crate::Reports) queue. Off by default.
    pub delivery_reports: bool,
    /// Who brings the assignment in line with what the group says.
    pub rebalance: Rebalance,
    /// A record is done as soon as it is handed out, as in librdkafka, and not when the next one is asked for.
    pub done_when_handed_out: bool,
    /// A batch that cannot be decoded is handed out as [`Polled::Corrupt`](crate::Polled::Corrupt), and what follows it
    /// comes; otherwise its partition stops with [`Error::Corrupt`]. Off by default.
    pub corrupt_handed_out: bool,
    /// `delivery.report.only.error`: only failures are reported.
    pub delivery_report_only_error: bool,
    /// Whether reports carry the records' keys and values: their memory is held until the report is dropped.
    pub delivery_report_records: bool,
    /// `compression.codec`. None by default.
    pub compression: Compression,
    /// `compression.level`; `None` is the codec's default.
    pub compression_level: Option<i32>,
    /// `max.in.flight.requests.per.connection`, 1 to 5 with idempotence.
    pub in_flight_max: usize,
    /// `delivery.timeout.ms`: from handing a record over to its acknowledgement, retries included.
    pub delivery_timeout: Duration,
    /// `socket.timeout.ms`: from sending a request to its answer.
    pub request_timeout: Duration,
    /// `request.timeout.ms`: how long the broker may wait for replicas; unset, as long as `request_timeout`.
    pub ack_timeout: Option<Duration>,
    /// `retry.backoff.ms`: before the first retry; doubles with each one after it.
    pub retry_backoff: Duration,
    /// `retry.backoff.max.ms`: where doubling ends.
    pub retry_backoff_max: Duration,
    /// `partitioner`.
    pub partitioner: Partitioner,
    /// `metadata.max.age.ms`: after this time the cluster's layout is asked for again.
    pub metadata_max_age: Duration,
    /// `topic.metadata.propagation.max.ms`: how long a topic that a broker does not know may be news that has not got
    /// round; records for it fail after that.
    pub metadata_propagation: Duration,
    /// `topic.metadata.refresh.interval.ms`: the same, as librdkafka calls it; the shorter of the two holds.
    pub metadata_refresh: Duration,
    /// `topic.metadata.refresh.fast.interval.ms`: before asking again for topics without a leader; unset, as long as
    /// `retry_backoff`.
    pub metadata_backoff: Option<Duration>,
    /// `allow.auto.create.topics`: whether asking for an unknown topic may create it, if the broker agrees.
    pub auto_create_topics: bool,
    /// `reconnect.backoff.ms`: before the second attempt to connect; doubles with each one after it.
    pub reconnect_backoff: Duration,
    /// `reconnect.backoff.max.ms`: where doubling ends.
    pub reconnect_backoff_max: Duration,
    /// `reconnect.backoff.jitter.ms`: above zero, a pause before connecting again that does not grow.
    pub reconnect_backoff_jitter: Duration,
    /// `socket.connection.setup.timeout.ms`: for connecting and greeting.
    pub connect_timeout: Duration,
    /// `socket.send.buffer.bytes`; 0 leaves it to the system.
    pub send_buffer_bytes: usize,
    /// `socket.receive.buffer.bytes`; 0 leaves it to the system.
    pub receive_buffer_bytes: usize,
    /// `receive.message.max.bytes`: a response that claims more closes the connection.
    pub response_bytes_max: usize,
    /// `group.id`. Needed for `subscribe` and `commit`.
    pub group_id: Option<String>,
    /// `group.instance.id`: the name of a static member, which keeps its partitions across a restart (KIP-345).
    pub group_instance_id: Option<String>,
    /// `group.protocol`.
    pub group_protocol: GroupProtocol,
    /// `group.remote.assignor`: the coordinator's assignor that this member would like, with
    /// [`GroupProtocol::Consumer`].
    pub group_remote_assignor: Option<String>,
    /// `partition.assignment.strategy`: names of assignors, the preferred one first. The built-in ones are `range`,
    /// `roundrobin`, `sticky` and `cooperative-sticky`.
    pub assignment_strategy: Vec<String>,
    own_assignors: Vec<Arc<dyn Assignor>>,
    /// `session.timeout.ms`: a member that is not heard of for so long is out of its group.
    pub session_timeout: Duration,
    /// `heartbeat.interval.ms`.
    pub heartbeat_interval: Duration,
    /// `max.poll.interval.ms`: how long the application may take between two polls before its member leaves the group,
    /// and how long a rebalance waits for it.
    pub poll_interval_max: Duration,
    /// `enable.auto.commit`: commit what has been processed, in the background. On by default.
    pub auto_commit: bool,
    /// `auto.commit.interval.ms`.
    pub auto_commit_interval: Duration,
    /// `auto.commit.enable` of topics: whether partitions that are started one by one
    /// ([`Consumer::start`](crate::ConsumerControl::start)) commit in the background. `None` is as `enable.auto.commit` says.
    pub started_auto_commit: Option<bool>,
    /// `auto.commit.interval.ms` of topics, for the same partitions. `None` is as the client's says.
    pub started_commit_interval: Option<Duration>,
    /// `consume.callback.max.messages` of topics; 0 is no limit.
    pub callback_records_max: usize,
    /// `topic.blacklist`: regular expressions of topics that are taken for absent.
    pub topic_blacklist: Vec<String>,
    /// `auto.offset.reset`.
    pub offset_reset: OffsetReset,
    /// `isolation.level`.
    pub isolation: Isolation,
    /// `fetch.min.bytes`: the broker waits until it has so much, or until `fetch.wait.max.ms`.
    pub fetch_bytes_min: usize,
    /// `fetch.wait.max.ms`.
    pub fetch_wait_max: Duration,
    /// `fetch.error.backoff.ms`: after a fetch that failed; unset, it is `retry_backoff`, and doubles.
    pub fetch_error_backoff: Option<Duration>,
    /// `fetch.max.bytes` of one response.
    pub fetch_bytes_max: usize,
    /// `max.partition.fetch.bytes` of one partition in one response.
    pub partition_fetch_bytes_max: usize,
    /// `queued.max.messages.kbytes`, in bytes: the most that a consumer has in memory, fetched ahead, being fetched and
    /// held by the application together.
    pub queued_bytes_max: usize,
    /// `queued.min.messages`: how many records fetched ahead of one partition are enough.
    pub queued_records_enough: u64,
    /// `offset.store.method`: whether offsets are kept in local files instead of with the group's coordinator.
    pub offset_files: bool,
    /// `offset.store.path`: the directory of those files, or the one file of the one partition that is consumed.
    pub offset_files_path: PathBuf,
    /// `offset.store.sync.interval.ms`: how often each file is synced; zero is at every write, `None` never.
    pub offset_files_sync: Option<Duration>,
    /// `client.rack`: where this client is, so that it may fetch from a replica nearby, and be given partitions that
    /// have one.
    pub rack: String,
    /// `enable.partition.eof`: whether reaching a partition's end is an event. Off by default.
    pub partition_end_events: bool,
    /// `enable.auto.offset.store`. On by default: a record is done when the next one is asked for.
    pub auto_offset_store: bool,
    /// `check.crcs`. On by default.
    pub check_crcs: bool,
    /// `decompressed.max.bytes`: the most one batch may inflate to.
    pub decompressed_bytes_max: usize,
    /// `statistics.interval.ms`: how often [`Client::statistics`](crate::Client::statistics) gives a snapshot; zero (the
    /// default) is never, and nothing is counted then.
    pub statistics_interval: Duration,
    /// `debug`: which contexts are logged in detail, as words separated by commas. None by default.
    pub debug: String,
    /// `log_level`: lines less serious than this are not given, as in syslog; 6 by default, 7 when `debug` is set.
    pub log_level: u8,
    /// `log.queue`: lines wait in [`Client::log_lines`](crate::Client::log_lines) instead of going to `tracing`.
    pub log_queue: bool,
    /// Takes the log lines instead of `tracing` or the queue.
    pub log_callback: Option<LogCallback>,
    /// What should go on and does not for so long is reported in [`Client::stalls`](crate::Client::stalls) and logged
    /// as a warning; 5 s by default, zero watches nothing.
    pub stall_after: Duration,
    /// TLS and SASL.
    pub security: Security,
    /// How connections are made and kept.
    pub net: NetSettings,
    /// Where record timestamps come from: the seam of simulations.
    pub clock: Clock,
    /// Whose defaults hold where nothing is set.
    defaults: Defaults,
    /// What was set by name, by the property's own name; with the text where no field keeps the value.
    given: Given,
}

impl Config {
    /// The defaults, for these bootstrap servers.
    pub fn new(bootstrap_servers: impl Into<String>) -> Self {
        Self { bootstrap_servers: bootstrap_servers.into(), ..Self::default() }
    }

    /// librdkafka's defaults where they differ from ours: what programs written for it expect.
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
        config.ack_timeout = Some(Duration::from_secs(30));
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

    /// Adds an assignor of one's own, to be named in `partition.assignment.strategy`.
    pub fn assignor(&mut self, assignor: impl Assignor + 'static) {
        self.own_assignors.push(Arc::new(assignor));
    }

    /// The assignors that `partition.assignment.strategy` names, the preferred one first.
    /// For how long a broker that does not answer is waited for before its connection is dropped, after so many answers
    /// in a row that did not come; `None` as long as the request has time. It doubles, so that a slow broker is not asked
    /// in vain for ever.
    pub(crate) fn patience(&self, failures: u32) -> Option<Duration> {
        (!self.stall_after.is_zero()).then(|| self.stall_after.saturating_mul(2 << failures.min(10)))
    }

    pub(crate) fn assignors(&self) -> Vec<Arc<dyn Assignor>> {
        self.assignment_strategy.iter().filter_map(|name| self.assignor_named(name)).collect()
    }

    fn assignor_named(&self, name: &str) -> Option<Arc<dyn Assignor>> {
        let own = self.own_assignors.iter().find(|assignor| assignor.name() == name);
        own.cloned().or_else(|| assignor::built_in(name))
    }

    /// The value of the property `name`, as a string that [`set`](Self::set) takes. A secret that is set comes as
    /// `[secret]`.
    ///
    /// # Errors
    /// [`Error::Config`] for a name that is none.
    pub fn get(&self, name: &str) -> Result<String, Error> {
        Ok(properties::get(self, properties::known(name)?))
    }

    /// Whether the property `name` was set by name, be it to its default.
    pub fn is_set(&self, name: &str) -> bool {
        properties::find(name).is_some_and(|property| self.given.contains_key(property.name))
    }

    /// Every property that has a textual form, with its value; set secrets come as `[secret]`.
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

/// Whose defaults a configuration began with.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Defaults {
    #[default]
    Native,
    Librdkafka,
}

/// What was set by name. Its `Debug` shows no values; secrets are kept in their fields only.
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
            name: None,
            client_id: "ottla".into(),
            acks: Acks::All,
            idempotence: true,
            gapless: false,
            transactional_id: None,
            transaction_timeout: ms(60_000),
            linger: None,
            batch_bytes_max: 1_000_000,
            buffer_bytes_max: 32 << 20,
            batch_records_max: 1_000_000,
            buffer_records_max: 0,
            backpressure_requests: 1,
            message_bytes_max: 1_000_000,
            copy_bytes_max: 65_535,
            request_bytes_max: 1_000_000,
            retries_max: i32::MAX as u32,
            sticky_linger: None,
            delivery_reports: false,
            rebalance: Rebalance::Polled,
            done_when_handed_out: false,
            corrupt_handed_out: false,
            delivery_report_only_error: false,
            delivery_report_records: false,
            compression: Compression::None,
            compression_level: None,
            in_flight_max: 5,
            delivery_timeout: ms(120_000),
            request_timeout: ms(30_000),
            ack_timeout: None,
            retry_backoff: ms(100),
            retry_backoff_max: ms(1_000),
            partitioner: Partitioner::default(),
            metadata_max_age: ms(300_000),
            metadata_propagation: ms(30_000),
            metadata_refresh: ms(300_000),
            metadata_backoff: None,
            auto_create_topics: true,
            reconnect_backoff: ms(50),
            reconnect_backoff_max: ms(1_000),
            reconnect_backoff_jitter: Duration::ZERO,
            connect_timeout: ms(10_000),
            send_buffer_bytes: 0,
            receive_buffer_bytes: 0,
            response_bytes_max: 256 << 20,
            group_id: None,
            group_instance_id: None,
            group_protocol: GroupProtocol::Classic,
            group_remote_assignor: None,
            assignment_strategy: vec!["range".into(), "cooperative-sticky".into()],
            own_assignors: Vec::new(),
            session_timeout: ms(45_000),
            heartbeat_interval: ms(3_000),
            poll_interval_max: ms(300_000),
            auto_commit: true,
            auto_commit_interval: ms(5_000),
            started_auto_commit: None,
            started_commit_interval: None,
            callback_records_max: 0,
            topic_blacklist: Vec::new(),
            offset_reset: OffsetReset::Latest,
            isolation: Isolation::ReadCommitted,
            fetch_bytes_min: 1,
            fetch_wait_max: ms(500),
            fetch_error_backoff: None,
            fetch_bytes_max: 50 << 20,
            partition_fetch_bytes_max: 1 << 20,
            queued_bytes_max: 64 << 20,
            queued_records_enough: 100_000,
            offset_files: false,
            offset_files_path: ".".into(),
            offset_files_sync: None,
            rack: String::new(),
            partition_end_events: false,
            auto_offset_store: true,
            check_crcs: true,
            decompressed_bytes_max: ottla_wire::compress::DECOMPRESSED_BYTES_MAX,
            statistics_interval: Duration::ZERO,
            debug: String::new(),
            log_level: 6,
            log_queue: false,
            log_callback: None,
            stall_after: ms(5_000),
            security: Security::default(),
            net: NetSettings::default(),
            clock: Clock::System,
            defaults: Defaults::Native,
            given: Given::default(),
        }
    }
}
