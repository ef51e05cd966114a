//! Logs, statistics, and general properties of the library.

use crate::config::property::{Access, Property, flag, millis, number, string};

const CONTEXTS: &[&str] = &[
    "generic",
    "broker",
    "topic",
    "metadata",
    "feature",
    "queue",
    "msg",
    "protocol",
    "cgrp",
    "security",
    "fetch",
    "interceptor",
    "plugin",
    "consumer",
    "admin",
    "eos",
    "mock",
    "assignor",
    "conf",
    "telemetry",
    "all",
];

/// The features of this build, in librdkafka's words.
const FEATURES: &[&str] = &[
    "gzip",
    "snappy",
    "ssl",
    "sasl",
    "regex",
    "lz4",
    "sasl_gssapi",
    "sasl_plain",
    "sasl_scram",
    "plugins",
    "zstd",
    "sasl_oauthbearer",
    "http",
    "oidc",
];

const ALL_FEATURES: &str = "gzip,snappy,ssl,sasl,regex,lz4,sasl_gssapi,sasl_plain,sasl_scram,plugins,zstd,sasl_oauthbearer,http,oidc";

const FEATURES_ACCESS: Access = Access { set: |_, _| Ok(()), get: |_| ALL_FEATURES.to_owned() };

pub(super) const ROWS: &[Property] = &[
    Property::flags("builtin.features", FEATURES, ALL_FEATURES)
        .text("The features of this build. Setting it requires features: a missing one is an error.")
        .effective("missing_features_are_an_error", FEATURES_ACCESS),
    Property::flags("debug", CONTEXTS, "")
        .medium()
        .text(
            "The contexts to log in detail: `msg` shows each batch as it is delivered, `protocol` each request and each \
             answer. The lines of a context have the `tracing` target `ottla::CONTEXT`.",
        )
        .effective("debug_shows_batches_requests_and_round_trips", string!(debug)),
    Property::int("log_level", 0, 7, "6")
        .text("The least serious of the log lines to give, as in syslog. Setting `debug` makes it 7 while it is unset.")
        .effective("log_level_silences_what_is_less_serious", number!(log_level)),
    Property::bool("log.queue", "false")
        .text("If `true`, log lines wait in a queue for the application (`Client::log_lines`) instead of going to `tracing`.")
        .effective("debug_shows_batches_requests_and_round_trips", flag!(log_queue)),
    Property::bool("log.thread.name", "true")
        .text("If `true`, log lines name the thread.")
        .accepted("`tracing` and its subscribers know the thread: the subscriber decides"),
    Property::bool("log.connection.close", "true")
        .text("If `true`, a connection that is lost with requests in flight causes a warning. An idle one never does.")
        .effective("a_lost_connection_is_a_warning_unless_it_was_idle_or_asked_not_to_be", flag!(net.log_connection_close)),
    Property::int("statistics.interval.ms", 0, 86_400_000, "0")
        .high()
        .text("The interval of the statistics (docs/STATISTICS.md). With 0 there are none, and the client counts only if a broker subscribes to its metrics.")
        .effective("the_numbers_under_load_agree_with_each_other_and_with_the_broker", millis!(statistics_interval)),
    Property::int("enabled_events", 0, 2_147_483_647, "0")
        .text("The events that the C interface's queues carry: `rd_kafka_conf_set_events`.")
        .by_method("events_carry_reports_records_and_headers"),
    Property::bool("enable.random.seed", "true")
        .text("If `true`, librdkafka seeds the C library's random numbers.")
        .accepted("the C library's random numbers are not used: the system seeds ours"),
    Property::int("internal.termination.signal", 0, 128, "0")
        .text("The signal by which librdkafka wakes its threads when it ends.")
        .accepted("threads are woken through their queues, without signals"),
    Property::list("plugin.library.paths", "")
        .text("Libraries that the C interface loads when this is set, and that intercept calls.")
        .effective(
            "a_plugin_is_loaded_and_intercepts",
            Access {
                set: |_, value| {
                    let none = value.text().is_empty();
                    none.then_some(()).ok_or_else(|| "only the C interface loads plugins".into())
                },
                get: |_| String::new(),
            },
        ),
    Property::bool("enable.metrics.push", "true")
        .text("If `true`, the client pushes metrics to the brokers that subscribe to them (KIP-714, docs/CLIENT_METRICS.md).")
        .effective("metrics_arrive_at_a_broker_that_subscribes_to_them_unless_the_push_is_off", flag!(enable_metrics_push)),
];
