//! The values of the statistics, with librdkafka's keys and nesting. docs/STATISTICS.md describes each.

#![allow(missing_docs, reason = "the names are the keys; docs/STATISTICS.md says what each one means")]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The value of an unknown offset.
pub(super) const NO_OFFSET: i64 = -1001;

/// The statistics of one interval. The keys of its JSON are described in docs/STATISTICS.md.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Snapshot {
    pub name: String,
    pub client_id: String,
    #[serde(rename = "type")]
    pub client_type: String,
    pub ts: i64,
    pub time: i64,
    pub age: i64,
    pub replyq: u64,
    pub msg_cnt: u64,
    pub msg_size: u64,
    pub msg_max: u64,
    pub msg_size_max: u64,
    pub simple_cnt: u64,
    pub metadata_cache_cnt: u64,
    pub brokers: BTreeMap<String, Broker>,
    pub topics: BTreeMap<String, Topic>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgrp: Option<Group>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eos: Option<Eos>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fatal: Option<Fatal>,
    pub tx: u64,
    pub tx_bytes: u64,
    pub rx: u64,
    pub rx_bytes: u64,
    pub txmsgs: u64,
    pub txmsg_bytes: u64,
    pub rxmsgs: u64,
    pub rxmsg_bytes: u64,
}

/// One broker.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Broker {
    pub name: String,
    pub nodeid: i32,
    pub nodename: String,
    pub source: String,
    pub state: String,
    pub stateage: i64,
    pub outbuf_cnt: u64,
    pub outbuf_msg_cnt: u64,
    pub waitresp_cnt: u64,
    pub waitresp_msg_cnt: u64,
    pub tx: u64,
    pub txbytes: u64,
    pub txerrs: u64,
    pub txretries: u64,
    pub txidle: i64,
    pub req_timeouts: u64,
    pub rx: u64,
    pub rxbytes: u64,
    pub rxerrs: u64,
    pub rxcorriderrs: u64,
    pub rxpartial: u64,
    pub rxidle: i64,
    pub req: BTreeMap<String, u64>,
    pub zbuf_grow: u64,
    pub buf_grow: u64,
    pub wakeups: u64,
    pub connects: u64,
    pub disconnects: u64,
    pub int_latency: Window,
    pub outbuf_latency: Window,
    pub rtt: Window,
    pub throttle: Window,
    pub toppars: BTreeMap<String, Toppar>,
}

/// The values of one measurement in one interval.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Window {
    pub min: u64,
    pub max: u64,
    pub avg: u64,
    pub sum: u64,
    pub stddev: u64,
    pub p50: u64,
    pub p75: u64,
    pub p90: u64,
    pub p95: u64,
    pub p99: u64,
    pub p99_99: u64,
    pub outofrange: u64,
    pub hdrsize: u64,
    pub cnt: u64,
    /// The total since the client started, for Prometheus; not in the JSON.
    #[serde(skip)]
    pub total_sum: u64,
    /// The total since the client started, for Prometheus; not in the JSON.
    #[serde(skip)]
    pub total_cnt: u64,
}

/// A partition, listed under its leader.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Toppar {
    pub topic: String,
    pub partition: i32,
}

/// One topic.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Topic {
    pub topic: String,
    pub age: i64,
    pub metadata_age: i64,
    pub batchsize: Window,
    pub batchcnt: Window,
    pub partitions: BTreeMap<String, Partition>,
}

/// One partition.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Partition {
    pub partition: i32,
    pub broker: i32,
    pub leader: i32,
    pub desired: bool,
    pub unknown: bool,
    pub msgq_cnt: u64,
    pub msgq_bytes: u64,
    pub xmit_msgq_cnt: u64,
    pub xmit_msgq_bytes: u64,
    pub fetchq_cnt: u64,
    pub fetchq_size: u64,
    pub fetch_state: String,
    pub query_offset: i64,
    pub next_offset: i64,
    pub app_offset: i64,
    pub stored_offset: i64,
    pub stored_leader_epoch: i32,
    pub commited_offset: i64,
    pub committed_offset: i64,
    pub committed_leader_epoch: i32,
    pub eof_offset: i64,
    pub lo_offset: i64,
    pub hi_offset: i64,
    pub ls_offset: i64,
    pub consumer_lag: i64,
    pub consumer_lag_stored: i64,
    pub leader_epoch: i32,
    pub txmsgs: u64,
    pub txbytes: u64,
    pub rxmsgs: u64,
    pub rxbytes: u64,
    pub msgs: u64,
    pub rx_ver_drops: u64,
    pub msgs_inflight: u64,
    pub next_ack_seq: i64,
    pub next_err_seq: i64,
    pub acked_msgid: u64,
}

impl Default for Partition {
    fn default() -> Self {
        Self {
            partition: -1,
            broker: -1,
            leader: -1,
            desired: false,
            unknown: false,
            msgq_cnt: 0,
            msgq_bytes: 0,
            xmit_msgq_cnt: 0,
            xmit_msgq_bytes: 0,
            fetchq_cnt: 0,
            fetchq_size: 0,
            fetch_state: "none".into(),
            query_offset: NO_OFFSET,
            next_offset: NO_OFFSET,
            app_offset: NO_OFFSET,
            stored_offset: NO_OFFSET,
            stored_leader_epoch: -1,
            commited_offset: NO_OFFSET,
            committed_offset: NO_OFFSET,
            committed_leader_epoch: -1,
            eof_offset: NO_OFFSET,
            lo_offset: NO_OFFSET,
            hi_offset: NO_OFFSET,
            ls_offset: NO_OFFSET,
            consumer_lag: -1,
            consumer_lag_stored: -1,
            leader_epoch: -1,
            txmsgs: 0,
            txbytes: 0,
            rxmsgs: 0,
            rxbytes: 0,
            msgs: 0,
            rx_ver_drops: 0,
            msgs_inflight: 0,
            next_ack_seq: 0,
            next_err_seq: 0,
            acked_msgid: 0,
        }
    }
}

/// The consumer group.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Group {
    pub state: String,
    pub stateage: i64,
    pub join_state: String,
    pub rebalance_age: i64,
    pub rebalance_cnt: u64,
    pub rebalance_reason: String,
    pub assignment_size: u64,
    /// The id of the last coordinator that was found, for the C library; not in the JSON.
    #[serde(skip)]
    pub coordinator: Option<i32>,
}

/// The idempotent producer.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Eos {
    pub idemp_state: String,
    pub idemp_stateage: i64,
    pub txn_state: String,
    pub txn_stateage: i64,
    pub txn_may_enq: bool,
    pub producer_id: i64,
    pub producer_epoch: i64,
    pub epoch_cnt: u64,
}

/// The error that ended the client. Only the C library fills it in: elsewhere such an error belongs to a producer.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Fatal {
    pub error: String,
    pub reason: String,
    pub cnt: u64,
}

/// The share consumers. librdkafka has no such section.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Share {
    pub records: u64,
    pub batches: u64,
    pub acknowledged: u64,
    pub failed: u64,
    pub expired: u64,
    pub corrupt: u64,
}

impl Snapshot {
    /// Returns the statistics as one JSON object, with librdkafka's keys.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self)
            .expect("maps with text for keys, numbers and texts always have a JSON form")
    }
}
