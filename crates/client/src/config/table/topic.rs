//! Properties that can be set per topic.

use std::time::Duration;

use super::producer::TOPIC_COMPRESSION;
use crate::config::duration;
use crate::config::property::{Access, Property, millis_or_never, number};
use crate::config::{Acks, Defaults, OffsetReset};
use crate::types::partitioner::Partitioner;

pub(super) const ROWS: &[Property] = &[
    Property::choice("acks", &["all", "-1", "0", "1", "2"], "all")
        .alias(&["request.required.acks"])
        .librdkafka("-1")
        .topic()
        .producer()
        .high()
        .text("The replicas that must have a record before it is delivered: 0 none, 1 the leader, all the in-sync replicas. Asking for less than all switches idempotence off unless it is asked for. 2 is refused, as brokers refuse it; the C interface sends `all` instead.")
        .effective(
            "requests_carry_what_the_properties_say",
            Access {
                set: |config, value| {
                    config.acks = match value.text() {
                        "0" => Acks::None,
                        "1" => Acks::Leader,
                        "2" => {
                            return Err("brokers since 0.9 answer INVALID_REQUIRED_ACKS to it; use all with \
                                        the topic's min.insync.replicas=2"
                                .into());
                        }
                        _ => Acks::All,
                    };
                    Ok(())
                },
                get: |config| match (config.acks, config.defaults) {
                    (Acks::All, Defaults::Native) => "all".into(),
                    (acks, _) => acks.code().to_string(),
                },
            },
        ),
    Property::int("request.timeout.ms", 1, 900_000, "30000")
        .topic()
        .producer()
        .medium()
        .text("The time for which the broker may wait for replicas. In the native interface it is also the default of `socket.timeout.ms`, as in Java's client.")
        .effective(
            "requests_carry_what_the_properties_say",
            Access {
                set: |config, value| {
                    config.request_timeout = Some(value.duration());
                    Ok(())
                },
                get: |config| config.request_timeout.unwrap_or(config.socket_timeout).as_millis().to_string(),
            },
        ),
    Property::int("delivery.timeout.ms", 0, 2_147_483_647, "120000")
        .alias(&["message.timeout.ms"])
        .librdkafka("300000")
        .topic()
        .producer()
        .high()
        .text("From handing a record over to its acknowledgement, retries included; 0 is forever.")
        .effective("records_expire_no_earlier_than_their_timeout_and_not_much_later", millis_or_never!(delivery_timeout)),
    Property::choice("queuing.strategy", &["fifo", "lifo"], "fifo")
        .topic()
        .producer()
        .text("The order in which waiting records are sent: the oldest or the newest first.")
        .accepted("records are sent in the order in which they were handed over"),
    Property::bool("produce.offset.report", "false")
        .topic()
        .producer()
        .text("If `true`, delivery reports have offsets.")
        .accepted("every delivery carries its offset; librdkafka ignores it, too"),
    Property::choice(
        "partitioner",
        &["random", "consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random", "murmur2_sticky"],
        "murmur2_random",
    )
    .librdkafka("consistent_random")
    .topic()
    .producer()
    .high()
    .text("The choice of a partition for records that name none: at random, or by a hash of the key (consistent is CRC32, murmur2 Java's, fnv1a Sarama's). Those that end in random keep records without a key together for a while; murmur2_random, also called murmur2_sticky, is what Java's client does.")
    .effective(
        "partitioners_agree_with_librdkafka_and_java",
        Access {
            set: |config, value| {
                config.partitioner = match value.text() {
                    "random" => Partitioner::Random,
                    "consistent" => Partitioner::Consistent,
                    "consistent_random" => Partitioner::ConsistentRandom,
                    "murmur2" => Partitioner::Murmur2,
                    "fnv1a" => Partitioner::Fnv1a,
                    "fnv1a_random" => Partitioner::Fnv1aRandom,
                    _ => Partitioner::Murmur2Random,
                };
                Ok(())
            },
            get: |config| {
                let word = match config.partitioner {
                    Partitioner::Random => "random",
                    Partitioner::Consistent => "consistent",
                    Partitioner::ConsistentRandom => "consistent_random",
                    Partitioner::Murmur2 => "murmur2",
                    Partitioner::Murmur2Random => "murmur2_random",
                    Partitioner::Fnv1a => "fnv1a",
                    Partitioner::Fnv1aRandom => "fnv1a_random",
                    Partitioner::Custom(_) | Partitioner::CustomForKeys(_) => "custom",
                };
                word.into()
            },
        },
    ),
    TOPIC_COMPRESSION,
    Property::int("compression.level", -1, 22, "-1")
        .topic()
        .producer()
        .medium()
        .text("The codec's level; -1 is its default. gzip has 1 to 9, zstd 1 to 22; lz4 accepts 1 to 12 without an effect, snappy none.")
        .effective(
            "a_higher_compression_level_makes_smaller_batches",
            Access {
                set: |config, value| {
                    config.compression_level = Some(value.int() as i32).filter(|level| *level != -1);
                    Ok(())
                },
                get: |config| config.compression_level.unwrap_or(-1).to_string(),
            },
        ),
    Property::choice(
        "auto.offset.reset",
        &[
            "latest",
            "largest",
            "end",
            "earliest",
            "smallest",
            "beginning",
            "error",
            "none",
            "by_duration:P1D",
        ],
        "latest",
    )
    .librdkafka("largest")
    .topic()
    .consumer()
    .high()
    .text("The offset to start from without a committed offset, or when the position no longer exists: earliest (smallest, beginning), latest (largest, end), the first record of at most this age (by_duration: and an ISO 8601 duration, here a day), or with an error (none).")
    .effective(
        "auto_offset_reset_decides_where_reading_starts",
        Access {
            set: |config, value| {
                config.auto_offset_reset = match (value.text(), value.text().split_once(':')) {
                    ("earliest" | "smallest" | "beginning", _) => OffsetReset::Earliest,
                    ("latest" | "largest" | "end", _) => OffsetReset::Latest,
                    (_, Some((_, ago))) => {
                        let ago = duration::parse(ago).ok_or("no duration like P1DT12H30M0.5S")?;
                        OffsetReset::ByDuration(ago)
                    }
                    _ => OffsetReset::Error,
                };
                Ok(())
            },
            get: |config| {
                let word = match (config.auto_offset_reset, config.defaults) {
                    (OffsetReset::Earliest, Defaults::Native) => "earliest",
                    (OffsetReset::Earliest, Defaults::Librdkafka) => "smallest",
                    (OffsetReset::Latest, Defaults::Native) => "latest",
                    (OffsetReset::Latest, Defaults::Librdkafka) => "largest",
                    (OffsetReset::Error, _) => "error",
                    (OffsetReset::ByDuration(ago), _) => return format!("by_duration:{}", duration::write(ago)),
                };
                word.into()
            },
        },
    ),
    Property::bool("auto.commit.enable", "true")
        .alias(&["enable.auto.commit"])
        .topic()
        .consumer()
        .text("If `true`, processed offsets of partitions that are started individually (`Consumer::start`) are committed automatically. Unset, the client's `enable.auto.commit` applies.")
        .effective(
            "partitions_that_are_started_commit_as_their_topic_says",
            Access {
                set: |config, value| {
                    config.topic_auto_commit_enable = Some(value.bool());
                    Ok(())
                },
                get: |config| config.topic_auto_commit_enable().to_string(),
            },
        ),
    Property::int("auto.commit.interval.ms", 10, 86_400_000, "5000")
        .librdkafka("60000")
        .topic()
        .consumer()
        .high()
        .text("The interval of these commits; unset, it is `auto.commit.interval.ms` of the client.")
        .effective(
            "partitions_that_are_started_commit_as_their_topic_says",
            Access {
                set: |config, value| {
                    config.topic_auto_commit_interval = Some(value.duration());
                    Ok(())
                },
                get: |config| config.topic_auto_commit_interval().as_millis().to_string(),
            },
        ),
    Property::string("offset.store.path", ".")
        .topic()
        .consumer()
        .text("The directory of the files of offsets, or the file itself.")
        .effective(
            "offsets_in_files_outlive_the_consumer",
            Access {
                set: |config, value| {
                    config.offset_store_path = value.text().into();
                    Ok(())
                },
                get: |config| config.offset_store_path.display().to_string(),
            },
        ),
    Property::int("offset.store.sync.interval.ms", -1, 86_400_000, "-1")
        .topic()
        .consumer()
        .text("The interval at which the files of offsets are synced; 0 is after every write, -1 never.")
        .effective(
            "offsets_in_files_outlive_the_consumer",
            Access {
                set: |config, value| {
                    config.offset_store_sync_interval = u64::try_from(value.int()).ok().map(Duration::from_millis);
                    Ok(())
                },
                get: |config| config.offset_store_sync_interval.map_or("-1".into(), |every| every.as_millis().to_string()),
            },
        ),
    Property::choice("offset.store.method", &["file", "broker"], "broker")
        .topic()
        .consumer()
        .text("The storage of offsets: local files, or the group's coordinator.")
        .effective(
            "offsets_in_files_outlive_the_consumer",
            Access {
                set: |config, value| {
                    config.offset_store_file = value.text() == "file";
                    Ok(())
                },
                get: |config| if config.offset_store_file { "file".into() } else { "broker".into() },
            },
        ),
    Property::int("consume.callback.max.messages", 0, 1_000_000, "0")
        .topic()
        .consumer()
        .text("The maximum number of records of one call that passes each record to a function, if the call itself sets no limit. 0 means no limit.")
        .effective("a_call_passes_at_most_the_configured_number_of_records", number!(consume_callback_max_messages)),
];
