//! The names, labels and help texts of all metrics. docs/METRICS.md has the same table, and a test compares them.

/// The kind of a metric in Prometheus' text format.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum MetricKind {
    /// A number that only grows.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// Numbers by bucket, with their sum and count.
    Histogram,
}

impl MetricKind {
    /// The word of the text format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric of the broker.
#[derive(Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// A sentence that explains it.
    pub help: &'static str,
}

macro_rules! table {
    ($($constant:ident $kind:ident $name:literal [$($label:literal)*] $help:literal;)*) => {
        $(pub(crate) const $constant: &Metric = &Metric {
            name: $name,
            kind: MetricKind::$kind,
            labels: &[$($label),*],
            help: $help,
        };)*

        /// Returns every metric of the broker, in the order of the text.
        pub fn metrics() -> &'static [&'static Metric] {
            &[$($constant),*]
        }
    };
}

table! {
    BUILD_INFO Gauge "ottla_build_info" ["version"] "Always 1; the label is the version of the broker.";
    UPTIME Gauge "ottla_uptime_seconds" [] "The time since the data was opened.";
    REQUESTS Counter "ottla_requests_total" ["api"] "Requests that have arrived.";
    REQUEST_BYTES Counter "ottla_request_bytes_total" ["api"] "Bytes of requests, without their size fields.";
    RESPONSE_BYTES Counter "ottla_response_bytes_total" ["api"] "Bytes of responses.";
    REQUEST_ERRORS Counter "ottla_request_errors_total" ["api" "error"] "Error codes in responses: one response can have one for each partition. Codes after the fourth different one of a response are counted as UNKNOWN_SERVER_ERROR.";
    REQUEST_SECONDS Histogram "ottla_request_seconds" ["api"] "The time from the arrival of a request to the end of its response. Waits are included: for records in Fetch, for other members in JoinGroup.";
    CONNECTIONS Gauge "ottla_connections" ["node"] "Open connections.";
    CONNECTIONS_ACCEPTED Counter "ottla_connections_accepted_total" [] "Connections that were accepted.";
    CONNECTIONS_REFUSED Counter "ottla_connections_refused_total" [] "Connections that were closed at once because of max.connections or max.connections.per.ip.";
    LOGINS Counter "ottla_logins_total" ["result"] "Logins with SASL that succeeded or failed, renewed sessions included. Kafka: successful-authentication-total, failed-authentication-total.";
    HANDSHAKES_FAILED Counter "ottla_tls_handshakes_failed_total" [] "Connections without a TLS session: the handshake failed, took too long, or had no certificate that names a user. Kafka counts them in failed-authentication-total.";
    THROTTLED Counter "ottla_throttled_total" ["quota"] "Requests, and connections, whose client had to pause because of a quota.";
    THROTTLE_SECONDS Counter "ottla_throttle_seconds_total" ["quota"] "The time of these pauses together.";
    APPENDED_RECORDS Counter "ottla_appended_records_total" [] "Records of producers that were appended, without duplicates.";
    APPENDED_BYTES Counter "ottla_appended_bytes_total" [] "Bytes of batches of producers that were appended, as they are stored.";
    FETCHED_BYTES Counter "ottla_fetched_bytes_total" [] "Bytes of batches in fetch responses. Records are not counted: their batches are sent from the files unread.";
    SYNCS Counter "ottla_syncs_total" ["files"] "Syncs, of logs or of the journal. One sync serves many requests.";
    SYNC_FAILURES Counter "ottla_sync_failures_total" ["files"] "Syncs that failed.";
    SYNC_SECONDS Counter "ottla_sync_seconds_total" ["files"] "The time of all syncs together.";
    MEMORY_USED Gauge "ottla_memory_used_bytes" ["part"] "Memory in use of each part of memory.max.bytes, and of the tail caches.";
    MEMORY_LIMIT Gauge "ottla_memory_limit_bytes" ["part"] "The limit of each part of memory.max.bytes.";
    MEMORY_WAITING Gauge "ottla_memory_waiting" ["part"] "Requests and responses that wait for memory of this part.";
    DISK_BYTES Gauge "ottla_disk_bytes" [] "The size of the volume with the data directory.";
    DISK_FREE_BYTES Gauge "ottla_disk_free_bytes" [] "The free bytes of that volume.";
    TOPICS Gauge "ottla_topics" [] "Topics, with the internal ones.";
    PARTITIONS Gauge "ottla_partitions" [] "Partitions of all topics.";
    OFFLINE_PARTITIONS Gauge "ottla_offline_partitions" [] "Partitions whose log cannot be used, or without a leader.";
    LOG_BYTES Gauge "ottla_log_bytes" [] "Bytes of the logs of all partitions.";
    PARTITION_LOG_BYTES Gauge "ottla_partition_log_bytes" ["topic" "partition"] "Bytes of the log.";
    PARTITION_START_OFFSET Gauge "ottla_partition_log_start_offset" ["topic" "partition"] "The offset of the first record.";
    PARTITION_HIGH_WATERMARK Gauge "ottla_partition_high_watermark" ["topic" "partition"] "The offset up to which consumers read; its rate is that of appended records.";
    GROUPS Gauge "ottla_groups" ["protocol" "state"] "Groups.";
    GROUP_MEMBERS Gauge "ottla_group_members" ["protocol"] "Members of all groups.";
    GROUP_LAG Gauge "ottla_group_lag_records" ["group" "topic" "partition"] "Records after the committed offset, or that a share group has not completed. A partition without an offset is left out.";
    GROUP_LAG_SUM Gauge "ottla_group_lag_sum_records" ["group"] "The sum over the partitions of the group.";
    SHARE_IN_FLIGHT Gauge "ottla_share_in_flight_records" ["group" "topic" "partition"] "Records of share partitions in use: from the first one that is not completed to the last one that was acquired. Kafka: InFlightMessageCount.";
    SHARE_ACKNOWLEDGED Counter "ottla_share_acknowledged_records_total" ["type"] "Records that members of share groups have acknowledged. Kafka: RecordAcknowledgementsPerSec.";
    SHARE_LOCK_TIMEOUTS Counter "ottla_share_lock_timeouts_total" [] "Records whose lock has ended without an acknowledgement. Kafka: AcquisitionLockTimeoutPerSec.";
    SHARE_OUT_OF_DELIVERIES Counter "ottla_share_out_of_deliveries_total" [] "Records that were archived because they were delivered as often as share.delivery.count.limit allows.";
    SHARE_DEAD_LETTERS Counter "ottla_share_dead_letters_total" ["result"] "Records of share groups with a dead-letter queue whose dead letter was written, or given up. Apache Kafka has them since 4.4.";
    CLIENT_INSTANCES Gauge "ottla_client_instances" [] "Clients that were asked for metrics or have pushed some (KIP-714). Their metrics follow, as kafka_client_*.";
    CLIENT_PUSHES Counter "ottla_client_pushes_total" [] "Pushes of metrics by clients.";
    LEFT_OUT Gauge "ottla_series_left_out" ["metric"] "Series that the limit of series per metric leaves out.";
    TEXT_SECONDS Gauge "ottla_text_seconds" [] "The time that this text has taken.";
}
