//! Cluster metadata and its lifetime.

use crate::config::NEVER;
use crate::config::property::{Access, Property, choice, flag, millis};
use crate::types::pattern;

pub(super) const ROWS: &[Property] = &[
    Property::int("metadata.max.age.ms", 1, 86_400_000, "300000")
        .librdkafka("900000")
        .text("The age at which the client requests metadata again.")
        .effective("metadata_is_asked_for_again_when_it_is_old", millis!(metadata_max_age)),
    Property::int("topic.metadata.refresh.interval.ms", -1, 3_600_000, "300000")
        .text("The interval of metadata requests while there are no errors; 0 or -1 leave it to `metadata.max.age.ms`.")
        .effective(
            "metadata_is_asked_for_again_when_it_is_old",
            Access {
                set: |config, value| {
                    config.topic_metadata_refresh_interval = if value.int() < 0 { NEVER } else { value.duration() };
                    Ok(())
                },
                get: |config| {
                    let interval = config.topic_metadata_refresh_interval;
                    if interval == NEVER { "-1".into() } else { interval.as_millis().to_string() }
                },
            },
        ),
    Property::int("topic.metadata.refresh.fast.interval.ms", 1, 60_000, "100")
        .text("The interval of metadata requests while a topic in use has no leader. Unset, it is `retry.backoff.ms`.")
        .effective(
            "a_topic_without_a_leader_is_asked_for_at_the_fast_interval",
            Access {
                set: |config, value| {
                    config.topic_metadata_refresh_fast_interval = Some(value.duration());
                    Ok(())
                },
                get: |config| config.topic_metadata_refresh_fast_interval.unwrap_or(config.retry_backoff).as_millis().to_string(),
            },
        ),
    Property::int("topic.metadata.refresh.fast.cnt", 0, 1000, "10")
        .text("The number of fast refreshes in former versions of librdkafka.")
        .accepted("the fast refresh continues until there is a leader; librdkafka ignores it, too"),
    Property::bool("topic.metadata.refresh.sparse", "true")
        .text("Asks only for the topics in use. Off, the layout of all topics is fetched and kept, which large clusters feel.")
        .effective("all_topics_are_asked_for_when_sparse_is_off", flag!(net.sparse)),
    Property::int("topic.metadata.propagation.max.ms", 0, 3_600_000, "30000")
        .text("The time after which a topic that brokers do not know is an error. Until then it may still be on its way to them; then its records fail.")
        .effective("an_unknown_topic_is_waited_for_and_then_fails_for_good", millis!(topic_metadata_propagation_max)),
    Property::list("topic.blacklist", "")
        .text("Regular expressions of topics to take for absent, whatever brokers say of them.")
        .effective(
            "topics_of_the_blacklist_are_absent",
            Access {
                set: |config, value| {
                    let patterns = value.text().split(',').map(str::trim).filter(|text| !text.is_empty());
                    config.topic_blacklist = patterns.map(str::to_owned).collect();
                    let wrong = config.topic_blacklist.iter().find(|text| pattern(text).is_err());
                    wrong.map_or(Ok(()), |text| Err(format!("`{text}` is no regular expression")))
                },
                get: |config| config.topic_blacklist.join(","),
            },
        ),
    Property::choice("metadata.recovery.strategy", &["none", "rebootstrap"], "rebootstrap")
        .text("The action when no known broker responds: `rebootstrap` returns to the bootstrap servers.")
        .effective(
            "a_cluster_that_has_moved_is_found_through_the_bootstrap_servers_again",
            choice!(net.rebootstrap, [("none", false), ("rebootstrap", true)]),
        ),
    Property::int("metadata.recovery.rebootstrap.trigger.ms", 0, 2_147_483_647, "300000")
        .text("The time for which requests for metadata fail before the client returns to the bootstrap servers.")
        .effective("bootstrap_servers_are_asked_again_after_the_trigger", millis!(net.rebootstrap_after)),
    Property::bool("allow.auto.create.topics", "true")
        .librdkafka("false")
        .text("If `true`, a metadata request for an unknown topic may create it, provided that the broker allows that. A producer behind the C interface may by default. Beside a pattern, in the classic protocol, a consumer never does.")
        .effective("requests_carry_what_the_properties_say", flag!(allow_auto_create_topics)),
];
