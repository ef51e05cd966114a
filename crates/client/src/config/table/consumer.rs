//! Fetching records.

use std::time::Duration;

use crate::config::property::{Access, Property, choice, flag, millis, number};
use crate::config::{Isolation, ShareAcknowledgementMode, ShareAcquireMode};

pub(super) const ROWS: &[Property] = &[
    Property::int("fetch.min.bytes", 0, 2_147_483_647, "1")
        .consumer()
        .text("The broker responds when it has this many bytes, or after `fetch.wait.max.ms`.")
        .effective("requests_carry_what_the_properties_say", number!(fetch_min_bytes)),
    Property::int("fetch.wait.max.ms", 0, 300_000, "500")
        .alias(&["fetch.max.wait.ms"])
        .consumer()
        .text("The time for which the broker may wait for `fetch.min.bytes`.")
        .effective("requests_carry_what_the_properties_say", millis!(fetch_wait_max)),
    Property::int("fetch.max.bytes", 0, 2_147_483_135, "52428800")
        .consumer()
        .medium()
        .text("The most bytes of one fetch response; a larger first batch is still returned whole. Brokers that respond within 2 ms get requests for 1 MiB at a time.")
        .effective("requests_carry_what_the_properties_say", number!(fetch_max_bytes)),
    Property::int("max.partition.fetch.bytes", 1, 1_000_000_000, "1048576")
        .alias(&["fetch.message.max.bytes"])
        .consumer()
        .medium()
        .text("The most bytes of one partition in one response; a larger batch is still returned whole.")
        .effective("requests_carry_what_the_properties_say", number!(max_partition_fetch_bytes)),
    Property::int("queued.max.messages.kbytes", 1, 2_097_151, "65536")
        .consumer()
        .medium()
        .text("The most KiB in memory: fetched ahead, being fetched, and in the application's hands. Decompressed sizes count.")
        .effective(
            "what_is_fetched_ahead_stays_within_its_limit",
            Access {
                set: |config, value| {
                    config.queued_max_messages_bytes = (value.int() as usize) << 10;
                    Ok(())
                },
                get: |config| (config.queued_max_messages_bytes >> 10).to_string(),
            },
        ),
    Property::int("queued.min.messages", 1, 10_000_000, "100000")
        .consumer()
        .medium()
        .text("So many records fetched ahead of one partition are enough; its next fetch waits until there are fewer. Unset, \
               half a MiB is enough too at first, and more where a poll had to wait.")
        .effective("a_partition_with_enough_fetched_ahead_is_not_fetched", number!(queued_min_messages)),
    Property::int("fetch.queue.backoff.ms", 0, 300_000, "1000")
        .consumer()
        .medium()
        .text("The pause of librdkafka's fetches when its local queue is full.")
        .accepted("there is no such pause: fetching continues as soon as there is room"),
    Property::int("fetch.error.backoff.ms", 0, 300_000, "500")
        .consumer()
        .medium()
        .text("The pause after a failed fetch. Unset, the wait begins with `retry.backoff.ms` and doubles up to a second.")
        .effective(
            "a_failed_fetch_is_repeated_after_its_own_backoff",
            Access {
                set: |config, value| {
                    config.fetch_error_backoff = Some(value.duration());
                    Ok(())
                },
                get: |config| config.fetch_error_backoff.unwrap_or(Duration::from_millis(500)).as_millis().to_string(),
            },
        ),
    Property::choice("isolation.level", &["read_uncommitted", "read_committed"], "read_committed")
        .consumer()
        .high()
        .text("The visibility of records of open and aborted transactions: `read_committed` omits them.")
        .effective(
            "requests_carry_what_the_properties_say",
            Access {
                set: |config, value| {
                    config.isolation_level = match value.text() {
                        "read_uncommitted" => Isolation::ReadUncommitted,
                        _ => Isolation::ReadCommitted,
                    };
                    Ok(())
                },
                get: |config| match config.isolation_level {
                    Isolation::ReadCommitted => "read_committed".into(),
                    Isolation::ReadUncommitted => "read_uncommitted".into(),
                },
            },
        ),
    Property::bool("check.crcs", "true")
        .librdkafka("false")
        .consumer()
        .medium()
        .text("Verifies the checksum of every fetched batch. Costs well below a nanosecond per byte.")
        .effective("a_damaged_batch_is_found_unless_check_crcs_is_off", flag!(check_crcs)),
    Property::int("decompressed.max.bytes", 1024, 2_147_483_647, "67108864")
        .consumer()
        .text("The most bytes one batch may inflate to: the cap against decompression bombs. Ours.")
        .effective("a_batch_that_inflates_beyond_the_cap_is_refused", number!(decompressed_max_bytes)),
    Property::bool("enable.partition.eof", "false")
        .consumer()
        .text("If `true`, reaching the end of a partition is an event.")
        .effective("the_end_of_a_partition_is_reported_once_per_arrival", flag!(enable_partition_eof)),
    Property::int("max.poll.records", 1, 2_147_483_647, "500")
        .consumer()
        .text("The number of records that a share consumer acquires at once from one leader. It does not limit the polls of other consumers, which give a view of a fetched batch and copy nothing.")
        .effective("a_record_limit_holds_and_transaction_markers_are_no_records", number!(max_poll_records)),
    Property::choice("share.acknowledgement.mode", &["implicit", "explicit"], "implicit")
        .consumer()
        .medium()
        .text("The acknowledgement of a share group's records: the next poll or commit accepts them, or the application acknowledges each one.")
        .effective(
            "explicit_acknowledgements_release_reject_and_redeliver",
            choice!(
                share_acknowledgement_mode,
                [
                    ("implicit", ShareAcknowledgementMode::Implicit),
                    ("explicit", ShareAcknowledgementMode::Explicit)
                ]
            ),
        ),
    Property::choice("share.acquire.mode", &["batch_optimized", "record_limit"], "batch_optimized")
        .consumer()
        .medium()
        .text("The acquisition of a share group's records: whole batches, also ahead of the next poll, or at most `max.poll.records` during a poll.")
        .effective(
            "a_record_limit_holds_and_transaction_markers_are_no_records",
            choice!(
                share_acquire_mode,
                [
                    ("batch_optimized", ShareAcquireMode::BatchOptimized),
                    ("record_limit", ShareAcquireMode::RecordLimit)
                ]
            ),
        ),
];
