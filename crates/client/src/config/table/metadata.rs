//! What is known of the cluster, and for how long.

use crate::config::NEVER;
use crate::config::property::{Access, Property, choice, flag, millis};
use crate::group::subscription::pattern;

pub(super) const ROWS: &[Property] = &[
    Property::int("metadata.max.age.ms", 1, 86_400_000, "300000")
        .librdkafka("900000")
        .text("After this time what is known of a topic is asked for again.")
        .effective("metadata_is_asked_for_again_when_it_is_old", millis!(metadata_max_age)),
    Property::int("topic.metadata.refresh.interval.ms", -1, 3_600_000, "300000")
        .text("How often the cluster's layout is asked for while all is well; 0 or -1 leave it to `metadata.max.age.ms`.")
        .effective(
            "metadata_is_asked_for_again_when_it_is_old",
            Access {
                set: |config, value| {
                    config.metadata_refresh = if value.int() < 0 { NEVER } else { value.duration() };
                    Ok(())
                },
                get: |config| {
                    let interval = config.metadata_refresh;
                    if interval == NEVER { "-1".into() } else { interval.as_millis().to_string() }
                },
            },
        ),
    Property::int("topic.metadata.refresh.fast.interval.ms", 1, 60_000, "100")
        .text("How soon metadata is asked for again while a wanted topic has no leader. Unset, it is `retry.backoff.ms`.")
        .effective(
            "a_topic_without_a_leader_is_asked_for_at_the_fast_interval",
            Access {
                set: |config, value| {
                    config.metadata_backoff = Some(value.duration());
                    Ok(())
                },
                get: |config| config.metadata_backoff.unwrap_or(config.retry_backoff).as_millis().to_string(),
            },
        ),
    Property::int("topic.metadata.refresh.fast.cnt", 0, 1000, "10")
        .text("How often librdkafka once repeated the fast refresh.")
        .accepted("the fast refresh goes on until there is a leader; librdkafka ignores it, too"),
    Property::bool("topic.metadata.refresh.sparse", "true")
        .text("Asks only for the topics in use. Off, the layout of all topics is fetched and kept, which large clusters feel.")
        .effective("all_topics_are_asked_for_when_sparse_is_off", flag!(net.sparse)),
    Property::int("topic.metadata.propagation.max.ms", 0, 3_600_000, "30000")
        .text("How long a topic that brokers do not know may still be on its way to them; records for it fail after that.")
        .effective("a_topic_that_nobody_knows_is_waited_for_and_then_fails_for_good", millis!(metadata_propagation)),
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
        .text("Whether the bootstrap servers are asked again when no known broker answers.")
        .effective(
            "a_cluster_that_has_moved_is_found_through_the_bootstrap_servers_again",
            choice!(net.rebootstrap, [("none", false), ("rebootstrap", true)]),
        ),
    Property::int("metadata.recovery.rebootstrap.trigger.ms", 0, 2_147_483_647, "300000")
        .text("After how long without metadata the bootstrap servers are asked again.")
        .effective("bootstrap_servers_are_asked_again_after_the_trigger", millis!(net.rebootstrap_after)),
    Property::bool("allow.auto.create.topics", "true")
        .librdkafka("false")
        .text("Whether a consumer that asks for an unknown topic may create it, if the broker agrees.")
        .effective("requests_carry_what_the_properties_say", flag!(auto_create_topics)),
];
