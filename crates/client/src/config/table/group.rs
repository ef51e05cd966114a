//! Consumer groups and their offsets.

use crate::config::GroupProtocol;
use crate::config::property::{Access, Property, choice, flag, millis, millis_or_never, optional_string};

pub(super) const ROWS: &[Property] = &[
    Property::string("group.id", "")
        .consumer()
        .high()
        .text("The consumer group. Needed for subscribing and committing.")
        .effective("requests_carry_what_the_properties_say", optional_string!(group_id)),
    Property::string("group.instance.id", "")
        .consumer()
        .medium()
        .text("The name of a static member: it keeps its partitions across a restart.")
        .effective("a_static_member_comes_back_to_its_partitions", optional_string!(group_instance_id)),
    Property::list("partition.assignment.strategy", "range,cooperative-sticky")
        .librdkafka("range,roundrobin")
        .consumer()
        .medium()
        .text("The assignors for a group's partitions, by preference. The group uses one that all its members have, so the default joins groups of Java's client and of librdkafka; partitions are kept across rebalances only if all that are named are cooperative.")
        .effective(
            "a_group_uses_the_assignor_that_its_members_prefer",
            Access {
                set: |config, value| {
                    let names = value.text().split(',').map(str::trim).filter(|name| !name.is_empty());
                    config.partition_assignment_strategy = names.map(str::to_owned).collect();
                    Ok(())
                },
                get: |config| config.partition_assignment_strategy.join(","),
            },
        ),
    Property::int("session.timeout.ms", 1, 3_600_000, "45000")
        .consumer()
        .high()
        .text("The coordinator removes a member from its group after this time without a heartbeat.")
        .effective("requests_carry_what_the_properties_say", millis!(session_timeout)),
    Property::int("heartbeat.interval.ms", 1, 3_600_000, "3000")
        .consumer()
        .text("The interval of heartbeats. Usually at most a third of the session timeout.")
        .effective("members_are_heard_of_at_the_heartbeat_interval", millis!(heartbeat_interval)),
    Property::string("group.protocol.type", "consumer")
        .consumer()
        .text("The kind of group.")
        .accepted("groups of consumers are the only kind there is, as in librdkafka"),
    Property::choice("group.protocol", &["classic", "consumer"], "classic")
        .consumer()
        .high()
        .text("The group protocol: the members assign the partitions (classic), or the coordinator does (KIP-848).")
        .effective(
            "the_coordinator_shares_out_in_the_new_protocol",
            choice!(
                group_protocol,
                [("classic", GroupProtocol::Classic), ("consumer", GroupProtocol::Consumer)]
            ),
        ),
    Property::string("group.remote.assignor", "")
        .consumer()
        .medium()
        .text("The coordinator's assignor to use (KIP-848).")
        .effective("the_coordinator_shares_out_in_the_new_protocol", optional_string!(group_remote_assignor)),
    Property::int("coordinator.query.interval.ms", 1, 3_600_000, "600000")
        .consumer()
        .text("The interval at which librdkafka requests the group's coordinator while there is no error.")
        .accepted("the client looks up the coordinator when it needs it, and again whenever a broker reports that it moved"),
    Property::int("max.poll.interval.ms", 1, 86_400_000, "300000")
        .consumer()
        .high()
        .text("The time that the application may take between two polls before its member leaves the group, and that a rebalance waits for it.")
        .effective("requests_carry_what_the_properties_say", millis!(max_poll_interval)),
    Property::bool("enable.auto.commit", "true")
        .consumer()
        .high()
        .text("Commits what has been processed, in the background.")
        .effective("offsets_are_committed_at_the_interval_or_not_at_all", flag!(enable_auto_commit)),
    Property::int("auto.commit.interval.ms", 0, 86_400_000, "5000")
        .consumer()
        .medium()
        .text("The interval at which processed offsets are committed in the background. With 0, only rebalances and closing commit them.")
        .effective("offsets_are_committed_at_the_interval_or_not_at_all", millis_or_never!(auto_commit_interval)),
    Property::bool("enable.auto.offset.store", "true")
        .consumer()
        .high()
        .text("If `true`, the next poll marks a record as processed.")
        .effective("only_stored_offsets_are_committed_without_auto_offset_store", flag!(enable_auto_offset_store)),
    Property::choice("offset.store.method", &["none", "file", "broker"], "broker")
        .consumer()
        .text("The storage of offsets.")
        .effective(
            "offsets_in_files_outlive_the_consumer",
            Access {
                set: |config, value| {
                    if value.text() == "none" {
                        return Err("switch enable.auto.commit off instead".into());
                    }
                    config.offset_store_file = value.text() == "file";
                    Ok(())
                },
                get: |config| if config.offset_store_file { "file".into() } else { "broker".into() },
            },
        ),
];
