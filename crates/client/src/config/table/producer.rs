//! Batching, queueing and retrying records.

use crate::config::property::{Access, Property, Value, flag, millis, number, optional_string};
use crate::config::{Config, Defaults};

const CODECS: &[&str] = &["none", "gzip", "snappy", "lz4", "zstd"];

pub(super) const ROWS: &[Property] = &[
    Property::bool("enable.idempotence", "true")
        .librdkafka("false")
        .producer()
        .high()
        .text("No duplicates and no reordering by retries. Needs `acks=all`, retries, and at most 5 requests in flight; unset, it gives way to settings that exclude it.")
        .effective("requests_carry_what_the_properties_say", flag!(enable_idempotence)),
    Property::bool("enable.gapless.guarantee", "false")
        .producer()
        .text("With idempotence, a record that fails for good, or whose time is over, ends the producer, so that none after it is written. Other than librdkafka's it covers timeouts, too; in transactions it adds nothing: what has a gap is aborted.")
        .effective("a_gap_ends_the_producer_where_none_may_be", flag!(enable_gapless_guarantee)),
    Property::string("transactional.id", "")
        .producer()
        .high()
        .text("Makes the producer transactional. Transactions survive a restart under this name; a new producer with the same name fences the previous one. Implies idempotence.")
        .effective("a_newer_producer_fences_the_older", optional_string!(transactional_id)),
    Property::int("transaction.timeout.ms", 1000, 2_147_483_647, "60000")
        .producer()
        .medium()
        .text("After how long the coordinator aborts a transaction that is still open, and fences its producer. The broker's `transaction.max.timeout.ms` limits it; an unset `delivery.timeout.ms` is at most as long.")
        .effective("a_transaction_that_takes_too_long_is_fenced", millis!(transaction_timeout)),
    Property::float("linger.ms", 0.0, 900_000.0, Some("adaptive"), "adaptive")
        .alias(&["queue.buffering.max.ms"])
        .librdkafka("5")
        .producer()
        .high()
        .text("The time for which a batch waits to fill. Unset, batching adapts: nothing waits while nothing is in flight to the leader, and batches grow while something is; a full one waits behind a large request only as long as a near broker needs for that. Behind the C interface an unset one reads 5 and still adapts.")
        .effective(
            "a_set_linger_makes_batches_wait",
            Access {
                set: |config, value| {
                    config.linger = match value {
                        Value::Float(_) => Some(value.duration()),
                        Value::Text(_) | Value::Int(_) | Value::Bool(_) => None,
                    };
                    Ok(())
                },
                get: |config| match (config.linger, config.defaults) {
                    (Some(linger), _) => (linger.as_nanos() as f64 / 1e6).to_string(),
                    (None, Defaults::Native) => "adaptive".into(),
                    (None, Defaults::Librdkafka) => "5".into(),
                },
            },
        ),
    Property::int("batch.size", 1, 2_147_483_647, "1000000")
        .producer()
        .medium()
        .text("The most bytes a batch grows to before compression. Larger batches cost memory per partition.")
        .effective("batches_end_at_batch_size", number!(batch_size)),
    Property::int("batch.num.messages", 1, 1_000_000, "1000000")
        .librdkafka("10000")
        .producer()
        .medium()
        .text("The most records in a batch.")
        .effective("a_batch_takes_no_more_records_than_batch_num_messages", number!(batch_num_messages)),
    Property::int("max.request.size", 1000, 1_000_000_000, "1000000")
        .producer()
        .medium()
        .text("The most bytes of records in one request. Unset, it grows with `batch.size` and `message.max.bytes`. Java's.")
        .effective("requests_end_at_max_request_size", number!(max_request_size)),
    Property::int("buffer.memory", 1024, 2_199_023_254_528, "33554432")
        .librdkafka("1073741824")
        .producer()
        .high()
        .text("The most bytes that unacknowledged records may take; `try_enqueue` refuses beyond, the others wait. Java's.")
        .effective("the_queue_refuses_what_exceeds_buffer_memory", number!(buffer_memory)),
    Property::int("queue.buffering.max.kbytes", 1, 2_147_483_647, "32768")
        .librdkafka("1048576")
        .producer()
        .high()
        .text("`buffer.memory` in KiB.")
        .effective(
            "the_queue_refuses_what_exceeds_buffer_memory",
            Access {
                set: |config, value| {
                    config.buffer_memory = (value.int() as usize) << 10;
                    Ok(())
                },
                get: |config| (config.buffer_memory >> 10).to_string(),
            },
        ),
    Property::int("queue.buffering.max.messages", 0, 2_147_483_647, "0")
        .librdkafka("100000")
        .producer()
        .high()
        .text("The most records that wait for their acknowledgement; 0 is no limit but that of the bytes.")
        .effective("the_queue_refuses_what_exceeds_its_message_count", number!(queue_buffering_max_messages)),
    Property::int("queue.buffering.backpressure.threshold", 1, 1_000_000, "1")
        .producer()
        .text("While so many requests wait to be written to a broker, records gather in their batches instead of becoming further requests.")
        .effective("a_new_request_waits_while_enough_are_outstanding", number!(queue_buffering_backpressure_threshold)),
    Property::int("retries", 0, 2_147_483_647, "2147483647")
        .alias(&["message.send.max.retries"])
        .producer()
        .high()
        .text("The maximum number of retries of a batch before it fails with its last error. Its timeout ends it in any case. Without idempotence, retries with more than one request in flight may change the order.")
        .effective("retries_end_after_message_send_max_retries", number!(retries)),
    Property::choice("compression.codec", CODECS, "none")
        .alias(&["compression.type"])
        .producer()
        .medium()
        .text("The codec of batches: lz4 and zstd cost little, gzip much.")
        .effective(
            "requests_carry_what_the_properties_say",
            Access {
                set: |config, value| {
                    config.compression_codec = value.text().parse()?;
                    Ok(())
                },
                get: |config| config.compression_codec.name().to_owned(),
            },
        ),
    Property::float("sticky.partitioning.linger.ms", 0.0, 900_000.0, Some("batch"), "batch")
        .librdkafka("10")
        .producer()
        .text("The time for which records without a key go to one partition. With 0, each record goes to its own. Unset, they stay as long as a batch takes them.")
        .effective(
            "the_sticky_partition_stays_for_its_linger",
            Access {
                set: |config, value| {
                    config.sticky_partitioning_linger = match value {
                        Value::Float(_) => Some(value.duration()),
                        Value::Text(_) | Value::Int(_) | Value::Bool(_) => None,
                    };
                    Ok(())
                },
                get: |config| match config.sticky_partitioning_linger {
                    Some(linger) => (linger.as_nanos() as f64 / 1e6).to_string(),
                    None => "batch".into(),
                },
            },
        ),
    Property::bool("delivery.report.only.error", "false")
        .producer()
        .text("Reports only failures on the queue of delivery reports.")
        .effective("only_errors_are_reported_when_asked", flag!(delivery_report_only_error)),
];

/// The codec property of topic configurations: [`TopicConfig`](crate::TopicConfig) handles `inherit`.
pub(super) const TOPIC_COMPRESSION: Property =
    Property::choice("compression.codec", &["none", "gzip", "snappy", "lz4", "zstd", "inherit"], "inherit")
        .alias(&["compression.type"])
        .topic()
        .producer()
        .high()
        .text("The codec of this topic's batches; `inherit` is the client's codec.")
        .effective(
            "topic_settings_lie_over_those_of_the_client",
            Access {
                set: |config: &mut Config, value: &Value<'_>| {
                    if value.text() != "inherit" {
                        config.compression_codec = value.text().parse()?;
                    }
                    Ok(())
                },
                get: |config| config.compression_codec.name().to_owned(),
            },
        );
