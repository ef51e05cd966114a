//! Every key of the statistics. docs/STATISTICS.md and docs/statistics-schema.json are generated from it, and a
//! client's statistics are compared with it.

/// An object of the statistics, and its keys.
pub(crate) struct Section {
    /// Its name in the schema.
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    pub(crate) fields: &'static [Field],
}

/// Key, kind and meaning.
pub(crate) type Field = (&'static str, Kind, &'static str);

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Text,
    Flag,
    /// A value that only grows.
    Counter,
    /// A value that rises and falls.
    Gauge,
    /// A map of counters.
    Counters,
    /// An object of this section.
    Object(&'static str),
    /// An optional object of this section.
    Maybe(&'static str),
    /// A map of objects of this section.
    Objects(&'static str),
}

use Kind::{Counter, Counters, Flag, Gauge, Maybe, Object, Objects, Text};

pub(crate) const SECTIONS: &[Section] = &[
    Section {
        name: "client",
        text: "The object itself: one client, whatever it produces and consumes.",
        fields: &[
            ("name", Text, "The client: its `client.id`, and a number that distinguishes clients of one id."),
            ("client_id", Text, "`client.id`."),
            ("type", Text, "`consumer` once something was fetched, `producer` before."),
            ("ts", Gauge, "The client's own clock, microseconds; it starts with the client and never jumps."),
            ("time", Gauge, "The wall clock, seconds since 1970."),
            ("age", Gauge, "Microseconds since the client was made."),
            ("replyq", Gauge, "Delivery reports and notices that wait for the application to read them."),
            ("msg_cnt", Gauge, "Records that are neither acknowledged nor failed."),
            ("msg_size", Gauge, "Bytes of the send buffer in use, by the capacity of its batches."),
            ("msg_max", Gauge, "`queue.buffering.max.messages`; 0 is no limit."),
            ("msg_size_max", Gauge, "`buffer.memory`."),
            ("simple_cnt", Gauge, "Always 0: there is no older consumer interface here."),
            ("metadata_cache_cnt", Gauge, "Topics whose layout is known."),
            (
                "brokers",
                Objects("broker"),
                "By `host:port/id`, or `host:port/bootstrap` while the id is not known. A broker that the metadata does not list any more is left out. In the C library a consumer with a group has the broker `GroupCoordinator`, as in librdkafka, without counters: its requests count at the broker itself.",
            ),
            ("topics", Objects("topic"), "By name."),
            ("cgrp", Maybe("cgrp"), "The consumer group, from the start of a consumer with one."),
            ("eos", Maybe("eos"), "The idempotent producer, if idempotence is on."),
            (
                "share",
                Maybe("share"),
                "The share consumers, if there was one; not in librdkafka's statistics.",
            ),
            ("fatal", Maybe("fatal"), "The error that ended the client, of clients of the C library."),
            ("tx", Counter, "Requests sent: the sum over the brokers, like the next three."),
            ("tx_bytes", Counter, "Bytes sent."),
            ("rx", Counter, "Answers received."),
            ("rx_bytes", Counter, "Bytes received."),
            (
                "txmsgs",
                Counter,
                "Records sent, each once however often it goes: the sum over the partitions, like the next three.",
            ),
            ("txmsg_bytes", Counter, "Bytes of their batches, compressed."),
            ("rxmsgs", Counter, "Records polled."),
            ("rxmsg_bytes", Counter, "Bytes of their batches, compressed."),
        ],
    },
    Section {
        name: "broker",
        text: "One address. A broker that is in `bootstrap.servers` under another name than its own shows twice.",
        fields: &[
            ("name", Text, "Its key."),
            ("nodeid", Gauge, "The broker's id; -1 while it is not known."),
            ("nodename", Text, "`host:port`."),
            ("source", Text, "`learned` from metadata, or `configured`; `logical` for `GroupCoordinator`."),
            (
                "state",
                Text,
                "`INIT`, `CONNECT`, `UP` or `DOWN`; `UP` as long as any of its connections is open.",
            ),
            ("stateage", Gauge, "Microseconds since the state changed."),
            ("outbuf_cnt", Gauge, "Requests that are not written yet."),
            ("outbuf_msg_cnt", Gauge, "Records in batches that wait to be sent, or sent again."),
            ("waitresp_cnt", Gauge, "Requests that wait for their answer."),
            ("waitresp_msg_cnt", Gauge, "Records in them."),
            ("tx", Counter, "Requests sent."),
            ("txbytes", Counter, "Bytes sent."),
            ("txerrs", Counter, "Writes that failed."),
            ("txretries", Counter, "Batches that were sent again."),
            ("txidle", Gauge, "Microseconds since something was sent; -1 if nothing was."),
            ("req_timeouts", Counter, "Requests that were not answered, or not written, in time."),
            ("rx", Counter, "Answers received."),
            ("rxbytes", Counter, "Bytes received."),
            ("rxerrs", Counter, "Reads that failed."),
            ("rxcorriderrs", Counter, "Answers that were not due: each costs the connection."),
            ("rxpartial", Counter, "Always 0: today's brokers send whole batches."),
            ("rxidle", Gauge, "Microseconds since something came; -1 if nothing did."),
            ("req", Counters, "Requests sent, by name."),
            ("zbuf_grow", Counter, "Always 0: decompression has no buffer that grows."),
            ("buf_grow", Counter, "Always 0."),
            (
                "wakeups",
                Counter,
                "Requests that were written and answers that came: each wakes the client's thread.",
            ),
            ("connects", Counter, "Attempts to connect, failed ones included."),
            ("disconnects", Counter, "Connections that ended."),
            (
                "int_latency",
                Object("window"),
                "Microseconds from opening a batch to putting it in a request, once for each of its records: what the first \
                 record of a batch waited, and at most that for those behind it. No clock is read for a record.",
            ),
            ("outbuf_latency", Object("window"), "Microseconds from making a request to having written it."),
            (
                "rtt",
                Object("window"),
                "Microseconds from having written a request to its answer; long polls included.",
            ),
            (
                "throttle",
                Object("window"),
                "Milliseconds by which produce and fetch answers say that they were throttled.",
            ),
            ("toppars", Objects("toppar"), "Partitions that it leads, by `topic-partition`."),
        ],
    },
    Section {
        name: "window",
        text: "The values measured within one interval. Each interval begins without values.",
        fields: &[
            ("min", Gauge, "The smallest value."),
            ("max", Gauge, "The largest value."),
            ("avg", Gauge, "`sum` by `cnt`."),
            ("sum", Gauge, "The sum of the values."),
            ("stddev", Gauge, "The standard deviation, from the histogram."),
            ("p50", Gauge, "The median; right within 1 %, like all percentiles."),
            ("p75", Gauge, "75 % of the values are not above it."),
            ("p90", Gauge, "90 % are not above it."),
            ("p95", Gauge, "95 % are not above it."),
            ("p99", Gauge, "99 % are not above it."),
            ("p99_99", Gauge, "99.99 % are not above it."),
            ("outofrange", Gauge, "Values too large for the histogram, which count nowhere else."),
            ("hdrsize", Gauge, "Bytes of the histogram; 0 before its first value."),
            ("cnt", Gauge, "The number of values."),
        ],
    },
    Section {
        name: "toppar",
        text: "A partition that a broker leads.",
        fields: &[("topic", Text, "Topic."), ("partition", Gauge, "Partition.")],
    },
    Section {
        name: "topic",
        text: "One topic that is produced to, consumed from or known.",
        fields: &[
            ("topic", Text, "Its name."),
            ("age", Gauge, "Milliseconds since the client first met it."),
            ("metadata_age", Gauge, "Milliseconds since metadata spoke of it."),
            (
                "batchsize",
                Object("window"),
                "Bytes of each batch that was sent, compressed; a batch that goes again counts once.",
            ),
            ("batchcnt", Object("window"), "Records of each batch that was sent."),
            (
                "partitions",
                Objects("partition"),
                "By number; -1 has the records whose topic is not known yet. The C library always has it, as librdkafka does.",
            ),
        ],
    },
    Section {
        name: "partition",
        text: "One partition. An offset that is not known is -1001.",
        fields: &[
            ("partition", Gauge, "Its number."),
            ("broker", Gauge, "The broker it is produced to and fetched from."),
            ("leader", Gauge, "Its leader; -1 if it has none."),
            ("desired", Flag, "`true` if it was fetched."),
            ("unknown", Flag, "`true` if the metadata does not contain it."),
            ("msgq_cnt", Gauge, "Records that no request has carried and that are still being batched."),
            ("msgq_bytes", Gauge, "Their bytes, uncompressed."),
            ("xmit_msgq_cnt", Gauge, "Records in finished batches that wait to be sent, or sent again."),
            ("xmit_msgq_bytes", Gauge, "Their bytes."),
            ("fetchq_cnt", Gauge, "Always 0: fetched records are counted when they are polled."),
            ("fetchq_size", Gauge, "Always 0."),
            ("fetch_state", Text, "`active` once it was fetched, `none` before."),
            ("query_offset", Gauge, "Always -1001."),
            ("next_offset", Gauge, "The offset after the last record polled."),
            ("app_offset", Gauge, "The offset after the last record given to the application."),
            ("stored_offset", Gauge, "The offset that the next commit would commit."),
            (
                "stored_leader_epoch",
                Gauge,
                "The epoch of the leader that wrote the record before it; -1 if it is not known.",
            ),
            ("commited_offset", Gauge, "The same as `committed_offset`; the spelling is librdkafka's."),
            ("committed_offset", Gauge, "The last committed offset."),
            ("committed_leader_epoch", Gauge, "Always -1."),
            ("eof_offset", Gauge, "The offset at which the end was reached last."),
            ("lo_offset", Gauge, "The first offset of the log at the last fetch."),
            ("hi_offset", Gauge, "The high watermark at the last fetch."),
            ("ls_offset", Gauge, "The last stable offset in the last fetch response."),
            (
                "consumer_lag",
                Gauge,
                "`hi_offset`, or `ls_offset` with `read_committed`, less `committed_offset`; -1 if either is not known.",
            ),
            ("consumer_lag_stored", Gauge, "The same less `stored_offset`."),
            ("leader_epoch", Gauge, "The leader's epoch; -1 if it is not known."),
            ("txmsgs", Counter, "Records sent, each once."),
            ("txbytes", Counter, "Bytes of their batches, compressed."),
            ("rxmsgs", Counter, "Records polled."),
            ("rxbytes", Counter, "Bytes of their batches, compressed."),
            ("msgs", Gauge, "Records polled; of a partition that only is produced to, records handed over."),
            ("rx_ver_drops", Counter, "Always 0."),
            ("msgs_inflight", Gauge, "Records in requests without an answer."),
            ("next_ack_seq", Gauge, "Always 0."),
            ("next_err_seq", Gauge, "Always 0."),
            ("acked_msgid", Counter, "Always 0: records have no numbers within the client."),
        ],
    },
    Section {
        name: "cgrp",
        text: "The consumer group.",
        fields: &[
            ("state", Text, "The search for the coordinator: `init`, `query-coord`, `up`."),
            ("stateage", Gauge, "Milliseconds since that changed."),
            (
                "join_state",
                Text,
                "The membership: `init` (none), `wait-join`, `wait-unassign-call`, `wait-assign-call`, `steady`.",
            ),
            ("rebalance_age", Gauge, "Milliseconds since the last assignment; 0 before the first."),
            ("rebalance_cnt", Counter, "Assignments so far."),
            (
                "rebalance_reason",
                Text,
                "The reason of the last rebalance; empty before the second assignment.",
            ),
            ("assignment_size", Gauge, "Partitions assigned."),
        ],
    },
    Section {
        name: "eos",
        text: "The idempotent producer.",
        fields: &[
            (
                "idemp_state",
                Text,
                "The state of the producer's id: `Init`, `RequestPID`, `WaitPID`, `Assigned`, `FatalError`.",
            ),
            ("idemp_stateage", Gauge, "Milliseconds since that changed."),
            (
                "txn_state",
                Text,
                "The state of the transaction: `Init` (before `init_transactions`), `Ready`, `InTransaction`, `BeginCommit`, `CommittingTransaction`, `AbortingTransaction`, `AbortableError`, `FatalError`.",
            ),
            ("txn_stateage", Gauge, "Milliseconds since that changed."),
            ("txn_may_enq", Flag, "`true` if a transaction takes records."),
            ("producer_id", Gauge, "The producer id; -1 if there is none."),
            (
                "producer_epoch",
                Gauge,
                "Its epoch; -1 if there is none. Outside transactions each partition has its own, and this is the highest.",
            ),
            ("epoch_cnt", Counter, "The number of ids and epochs so far."),
        ],
    },
    Section {
        name: "share",
        text: "The share consumers of the client, together.",
        fields: &[
            ("records", Counter, "Records that polls returned."),
            ("batches", Counter, "Batches that polls returned."),
            ("acknowledged", Counter, "Offsets whose acknowledgement a broker took, of any type."),
            ("failed", Counter, "Offsets whose acknowledgement failed."),
            ("expired", Counter, "Offsets whose lock ended before a poll returned them."),
            ("corrupt", Counter, "Offsets of batches that could not be decoded."),
        ],
    },
    Section {
        name: "fatal",
        text: "The error that ended a client of the C library.",
        fields: &[
            ("error", Text, "The description of its code."),
            ("reason", Text, "Its text."),
            ("cnt", Counter, "Fatal errors so far."),
        ],
    },
];
