//! The last interval's statistics in Prometheus' text format.

use std::fmt::Write;

use super::snapshot::{Broker, Partition, Share, Snapshot, Topic, Window};

/// The name, the help text, the kind and the accessor of a value.
type Field<T> = (&'static str, &'static str, Kind, fn(&T) -> u64);
/// The name, the help text and the accessor of a window.
type Measured<T> = (&'static str, &'static str, fn(&T) -> &Window);
type Quantile = (&'static str, fn(&Window) -> u64);

#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Kind {
    Counter,
    Gauge,
}

pub(super) const CLIENT: &[Field<Snapshot>] = &[
    ("queue_records", "Records that are not acknowledged.", Kind::Gauge, |it| it.msg_cnt),
    ("queue_bytes", "Bytes of the send buffer in use.", Kind::Gauge, |it| it.msg_size),
    ("reply_queue", "Reports and notices that wait to be read.", Kind::Gauge, |it| it.replyq),
    ("metadata_topics", "Topics whose layout is known.", Kind::Gauge, |it| it.metadata_cache_cnt),
];

pub(super) const BROKER: &[Field<Broker>] = &[
    ("broker_requests_total", "Requests sent.", Kind::Counter, |it| it.tx),
    ("broker_request_bytes_total", "Bytes sent.", Kind::Counter, |it| it.txbytes),
    ("broker_responses_total", "Answers received.", Kind::Counter, |it| it.rx),
    ("broker_response_bytes_total", "Bytes received.", Kind::Counter, |it| it.rxbytes),
    ("broker_retries_total", "Batches sent again.", Kind::Counter, |it| it.txretries),
    ("broker_timeouts_total", "Requests without an answer in time.", Kind::Counter, |it| it.req_timeouts),
    ("broker_connects_total", "Attempts to connect.", Kind::Counter, |it| it.connects),
    ("broker_disconnects_total", "Connections that ended.", Kind::Counter, |it| it.disconnects),
    ("broker_in_flight", "Requests without an answer.", Kind::Gauge, |it| it.waitresp_cnt),
    ("broker_up", "1 if a connection is open, otherwise 0.", Kind::Gauge, |it| u64::from(it.state == "UP")),
];

pub(super) const BROKER_WINDOWS: &[Measured<Broker>] = &[
    ("broker_int_latency_microseconds", "From handing over to sending, by record.", |it| &it.int_latency),
    ("broker_outbuf_latency_microseconds", "From making a request to writing it.", |it| &it.outbuf_latency),
    ("broker_rtt_microseconds", "From writing a request to its answer.", |it| &it.rtt),
    ("broker_throttle_milliseconds", "The throttle times of the broker.", |it| &it.throttle),
];

pub(super) const TOPIC_WINDOWS: &[Measured<Topic>] = &[
    ("topic_batch_bytes", "Bytes of batches.", |it| &it.batchsize),
    ("topic_batch_records", "Records of batches.", |it| &it.batchcnt),
];

pub(super) const PARTITION: &[Field<Partition>] = &[
    ("partition_sent_records_total", "Records sent.", Kind::Counter, |it| it.txmsgs),
    ("partition_sent_bytes_total", "Bytes of batches sent.", Kind::Counter, |it| it.txbytes),
    ("partition_received_records_total", "Records polled.", Kind::Counter, |it| it.rxmsgs),
    ("partition_received_bytes_total", "Bytes of batches polled.", Kind::Counter, |it| it.rxbytes),
    ("partition_queued_records", "Records that were never sent.", Kind::Gauge, |it| it.msgq_cnt),
    ("partition_in_flight_records", "Records in requests without an answer.", Kind::Gauge, |it| {
        it.msgs_inflight
    }),
];

pub(super) const SHARE: &[Field<Share>] = &[
    ("share_received_records_total", "Records of share groups polled.", Kind::Counter, |it| it.records),
    ("share_acknowledged_records_total", "Acknowledgements that brokers took.", Kind::Counter, |it| {
        it.acknowledged
    }),
    ("share_failed_acknowledgements_total", "Acknowledgements that failed.", Kind::Counter, |it| it.failed),
    ("share_expired_records_total", "Records whose lock ended before a poll.", Kind::Counter, |it| {
        it.expired
    }),
];

/// The quantiles of each window.
pub(super) const QUANTILES: &[Quantile] = &[
    ("0.5", |it| it.p50),
    ("0.75", |it| it.p75),
    ("0.9", |it| it.p90),
    ("0.95", |it| it.p95),
    ("0.99", |it| it.p99),
    ("0.9999", |it| it.p99_99),
];

/// Creates the whole text.
pub(crate) fn text(snapshot: &Snapshot) -> String {
    let mut out = String::new();
    let client = format!("client=\"{}\"", escaped(&snapshot.name));
    fields(&mut out, CLIENT, &[(client.clone(), snapshot)]);
    let label = |name: &str, value: &str| format!("{client},{name}=\"{}\"", escaped(value));
    let brokers: Vec<_> =
        snapshot.brokers.values().map(|broker| (label("broker", &broker.name), broker)).collect();
    fields(&mut out, BROKER, &brokers);
    windows(&mut out, BROKER_WINDOWS, &brokers);
    let topics: Vec<_> =
        snapshot.topics.values().map(|topic| (label("topic", &topic.topic), topic)).collect();
    windows(&mut out, TOPIC_WINDOWS, &topics);
    let partitions: Vec<_> = topics
        .iter()
        .flat_map(|(label, topic)| {
            topic.partitions.values().map(move |it| (format!("{label},partition=\"{}\"", it.partition), it))
        })
        .collect();
    fields(&mut out, PARTITION, &partitions);
    if let Some(share) = &snapshot.share {
        fields(&mut out, SHARE, &[(client, share)]);
    }
    out
}

fn fields<T>(out: &mut String, fields: &[Field<T>], things: &[(String, &T)]) {
    for (name, help, kind, value) in fields {
        let kind = if *kind == Kind::Counter { "counter" } else { "gauge" };
        head(out, name, help, kind);
        for (labels, thing) in things {
            line(out, &format!("ottla_{name}{{{labels}}} {}", value(thing)));
        }
    }
}

fn windows<T>(out: &mut String, windows: &[Measured<T>], things: &[(String, &T)]) {
    for (name, help, window) in windows {
        head(out, name, help, "summary");
        for (labels, thing) in things {
            let window = window(thing);
            for (quantile, value) in QUANTILES {
                line(out, &format!("ottla_{name}{{{labels},quantile=\"{quantile}\"}} {}", value(window)));
            }
            line(out, &format!("ottla_{name}_sum{{{labels}}} {}", window.total_sum));
            line(out, &format!("ottla_{name}_count{{{labels}}} {}", window.total_cnt));
        }
    }
}

fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    line(out, &format!("# HELP ottla_{name} {help}"));
    line(out, &format!("# TYPE ottla_{name} {kind}"));
}

fn line(out: &mut String, text: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
