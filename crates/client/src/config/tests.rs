//! Tests of the table's consistency, and of its agreement with librdkafka's properties.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::properties::{self, Kind, Property, Scope, State};
use super::{Acks, Config, OffsetReset, TopicConfig};
use crate::config::net_settings::AddressFamily;
use crate::security::{Mechanism, OauthMethod, SecurityProtocol};
use crate::types::broker_version::BrokerVersion;

/// Scope, name, role and default of every property of librdkafka 2.16, as its library prints them.
const LIBRDKAFKA: &str = include_str!("../../tests/data/librdkafka_2_16_properties.tsv");

/// The properties that programs written after librdkafka's introductions set: each must have an effect.
const INTRODUCED: &[&str] = &[
    "acks",
    "api.version.request",
    "auto.commit.enable",
    "auto.commit.interval.ms",
    "batch.num.messages",
    "broker.version.fallback",
    "compression.codec",
    "connections.max.idle.ms",
    "debug",
    "linger.ms",
    "log.connection.close",
    "max.in.flight",
    "message.max.bytes",
    "message.send.max.retries",
    "message.timeout.ms",
    "metadata.broker.list",
    "metadata.max.age.ms",
    "offset.store.path",
    "offset.store.sync.interval.ms",
    "partitioner",
    "queue.buffering.max.messages",
    "queue.buffering.max.ms",
    "queued.min.messages",
    "reconnect.backoff.jitter.ms",
    "request.required.acks",
    "retries",
    "retry.backoff.ms",
    "socket.nagle.disable",
    "socket.timeout.ms",
];

fn listed() -> impl Iterator<Item = (Scope, &'static str, &'static str)> {
    LIBRDKAFKA.lines().map(|line| {
        let fields: Vec<_> = line.split('\t').collect();
        let scope = if fields[0] == "topic" { Scope::Topic } else { Scope::Global };
        (scope, fields[1], fields[3])
    })
}

fn set(name: &str, value: &str) -> Result<Config, String> {
    let mut config = Config::new("localhost");
    config.set(name, value).map_err(|error| error.to_string())?;
    Ok(config)
}

fn validated(pairs: &[(&str, &str)]) -> Result<Config, String> {
    let mut config = Config::new("localhost");
    config.set_all(pairs.iter().copied()).expect("each alone is fine");
    config.validated().map_err(|error| error.to_string())
}

#[test]
fn every_property_of_librdkafka_is_known_in_its_scope() {
    assert_eq!(listed().count(), 199);
    let missing: Vec<_> =
        listed().filter(|(scope, name, _)| properties::find_in(*scope, name).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn behind_the_c_interface_the_defaults_are_librdkafkas() {
    // The value depends on the build.
    for (scope, name, default) in listed().filter(|(_, name, _)| *name != "builtin.features") {
        let property = properties::find_in(scope, name).expect("known");
        // librdkafka lists one alias with a default that differs from its property's.
        let expected = if (scope, name) == (Scope::Topic, "compression.type") { "inherit" } else { default };
        assert_eq!(property.default_librdkafka, expected, "{scope:?} {name}");
    }
}

#[test]
fn no_name_stands_twice_and_every_row_says_what_it_does() {
    let mut names = BTreeSet::new();
    for property in properties::all() {
        for name in std::iter::once(&property.name).chain(property.aliases) {
            assert!(names.insert((property.scope, *name)), "{name} twice");
        }
        assert!(property.text.ends_with('.'), "{}", property.name);
        match property.state {
            State::Effective { test } => {
                let by_method = property.kind == Kind::Pointer || property.name == "enabled_events";
                let reached = property.access.is_some() || by_method;
                assert!(!test.is_empty() && reached, "{}", property.name);
            }
            State::Accepted { why } | State::Refused { why } => {
                assert!(!why.is_empty() && !why.ends_with('.'), "{}", property.name);
            }
        }
    }
}

#[test]
fn at_most_thirty_are_accepted_without_effect_and_none_that_the_introductions_name() {
    let accepted = |property: &&Property| matches!(property.state, State::Accepted { .. });
    assert!(properties::all().filter(accepted).count() <= 30);
    for name in INTRODUCED {
        let property = properties::find(name).unwrap_or_else(|| panic!("{name} is unknown"));
        assert!(!accepted(&property), "{name}");
    }
}

#[test]
fn every_default_can_be_set_and_reads_back() {
    for property in properties::all().filter(|property| property.kind != Kind::Pointer) {
        let sides =
            [(Config::default(), property.default), (Config::librdkafka(), property.default_librdkafka)];
        for (mut config, default) in sides {
            let untouched = properties::get(&config, property);
            let inherits = property.scope == Scope::Topic && default == "inherit";
            assert!(inherits || untouched == default, "{}: {untouched}, not {default}", property.name);
            properties::set(&mut config, property, property.name, default)
                .unwrap_or_else(|error| panic!("{}: {error}", property.name));
            let read = properties::get(&config, property);
            assert!(inherits || read == default, "{}: {read}, not {default}", property.name);
        }
    }
}

#[test]
fn ranges_hold_at_both_ends() {
    let mut checked = 0;
    for property in properties::all().filter(|property| !matches!(property.state, State::Refused { .. })) {
        let mut config = Config::default();
        let mut try_set = |value: String| {
            properties::set(&mut config, property, property.name, &value)
                .map(|()| properties::get(&config, property))
                .map_err(|error| error.to_string())
        };
        let (min, max) = match property.kind {
            Kind::Int(min, max) => (min, max),
            Kind::Float(min, max, _) => (min as i64, max as i64),
            Kind::Bool | Kind::Choice(_) | Kind::Flags(_) | Kind::Text | Kind::List | Kind::Pointer => {
                continue;
            }
        };
        for inside in [min, max] {
            // Every duration that means "never" reads back as -1.
            let read = try_set(inside.to_string()).unwrap_or_else(|error| panic!("{error}"));
            let never = property.name == "topic.metadata.refresh.interval.ms" && inside <= 0;
            assert_eq!(read, if never { "-1".into() } else { inside.to_string() }, "{}", property.name);
        }
        for outside in [min - 1, max + 1] {
            let error = try_set(outside.to_string()).expect_err(property.name);
            let says = |part: &str| assert!(error.contains(part), "{error}");
            says(property.name);
            says(&format!("`{outside}`"));
            says(&format!("{min} to {max}"));
        }
        checked += 1;
    }
    assert!(checked > 30, "{checked} properties are numbers");
}

#[test]
fn every_word_of_a_choice_is_taken_or_refused_with_a_reason() {
    for property in properties::all() {
        let Kind::Choice(words) = property.kind else { continue };
        for word in words {
            let mut config = Config::default();
            if let Err(error) = properties::set(&mut config, property, property.name, word) {
                let error = error.to_string();
                assert!(error.contains(property.name) && error.contains(word), "{error}");
            }
        }
        let error = properties::set(&mut Config::default(), property, property.name, "nonsense");
        assert!(error.expect_err("no such word").to_string().contains("not one of"), "{}", property.name);
    }
}

#[test]
fn errors_name_the_property_the_value_and_the_range_once() {
    for (name, value, error) in [
        ("fetch.min.bytes", "-3", "fetch.min.bytes=`-3`: outside 0 to 2147483647"),
        ("fetch.min.bytes", "x", "fetch.min.bytes=`x`: not a whole number; it takes 0 to 2147483647"),
        ("group.protocol", "new", "group.protocol=`new`: not one of classic, consumer"),
    ] {
        assert_eq!(set(name, value).expect_err("no such value"), format!("configuration: {error}"));
    }
    let error = set("linger.sm", "1").expect_err("no such name");
    assert!(error.contains("did you mean `linger.ms`?"), "{error}");
    let error = set("xyz", "1").expect_err("no such name");
    assert!(!error.contains("did you mean"), "{error}");
    let error = set("key.serializer", "org.apache.kafka.StringSerializer").expect_err("Java's");
    assert!(error.contains("records are bytes"), "{error}");
    let error = set("acks", "2").expect_err("brokers refuse it");
    assert!(error.contains("INVALID_REQUIRED_ACKS") && !error.contains("it takes"), "{error}");
}

#[test]
fn refused_properties_give_the_reason_and_take_their_default() {
    let error = set("ssl_engine_callback_data", "0x1234").expect_err("nothing would use it");
    assert!(error.starts_with("configuration: ssl_engine_callback_data=`0x1234` is refused: "), "{error}");
    set("ssl_engine_callback_data", "").expect("what is done anyway");
    assert!(set("group.protocol", "modern").expect_err("no such word").contains("classic, consumer"));
    let error = set("dr_msg_cb", "0x1234").expect_err("no text");
    assert!(error.contains("a `Delivery`"), "{error}");
}

#[test]
fn what_only_openssl_has_is_refused_when_a_client_with_tls_is_created() {
    for (name, value) in [("ssl.providers", "default,legacy"), ("ssl.engine.location", "/usr/lib/hsm.so")] {
        let mut config = Config::new("127.0.0.1:9092");
        config.set(name, value).expect("kept until a client is created");
        assert_eq!(config.get(name).expect("known"), value);
        assert_eq!(config.check(), Ok(()), "{name} means nothing without TLS");
        config.set("security.protocol", "ssl").expect("a protocol");
        let error = config.check().expect_err("OpenSSL's");
        assert!(error.starts_with(&format!("{name}=`{value}`: ")), "{error}");
    }
    let mut config = Config::new("127.0.0.1:9092");
    config.set_all([("ssl.providers", "default"), ("security.protocol", "ssl")]).expect("in the table");
    assert_eq!(config.check(), Ok(()), "rustls has the usual algorithms");
}

#[test]
fn accepted_properties_are_checked_kept_and_read_back() {
    let config = set("fetch.queue.backoff.ms", "7").expect("accepted");
    assert_eq!(config.get("fetch.queue.backoff.ms").expect("known"), "7");
    assert!(set("fetch.queue.backoff.ms", "-7").is_err());
}

#[test]
fn aliases_and_fractions_reach_the_same_field() {
    let config = set("queue.buffering.max.ms", "1.5").expect("an alias, and a fraction");
    assert_eq!(config.linger, Some(Duration::from_micros(1500)));
    assert_eq!(config.get("linger.ms").expect("known"), "1.5");
    assert!(config.is_set("linger.ms") && !config.is_set("acks"));
    assert_eq!(set("auto.offset.reset", "smallest").expect("known").auto_offset_reset, OffsetReset::Earliest);
    assert_eq!(set("message.timeout.ms", "0").expect("forever").delivery_timeout, super::NEVER);
}

#[test]
fn an_unset_linger_adapts_on_both_sides_and_reads_five_on_one() {
    let (native, behind_c) = (Config::default(), Config::librdkafka());
    assert_eq!((native.linger, behind_c.linger), (None, None));
    assert_eq!(native.get("linger.ms").expect("known"), "adaptive");
    assert_eq!(behind_c.get("linger.ms").expect("known"), "5");
    let mut behind_c = behind_c;
    behind_c.set("linger.ms", "5").expect("in range");
    assert_eq!(behind_c.linger, Some(Duration::from_millis(5)));
    assert!(
        !behind_c.enable_idempotence
            && !behind_c.check_crcs
            && behind_c.queue_buffering_max_messages == 100_000
    );
}

#[test]
fn contradictions_are_found_and_unset_properties_give_way() {
    let config = validated(&[("acks", "1")]).expect("asking for less than all switches idempotence off");
    assert!(!config.enable_idempotence && config.acks == Acks::Leader);
    assert!(!validated(&[("max.in.flight", "10")]).expect("likewise").enable_idempotence);
    assert!(!validated(&[("retries", "0")]).expect("likewise").enable_idempotence);
    let config = validated(&[("batch.size", "5000000")]).expect("the request grows with it");
    assert_eq!(config.max_request_size, 5_000_000);
    let config = validated(&[("request.timeout.ms", "7000")]).expect("Java's meaning");
    assert_eq!(config.socket_timeout, Duration::from_secs(7));
    let mut config = Config::librdkafka();
    config
        .set_all([("bootstrap.servers", "b"), ("enable.idempotence", "true"), ("request.timeout.ms", "7000")])
        .expect("known");
    let config = config.validated().expect("requests in flight give way");
    assert_eq!(
        (config.max_in_flight_requests_per_connection, config.socket_timeout),
        (5, Duration::from_secs(60))
    );

    for (pairs, parts) in [
        (&[("bootstrap.servers", " , ")][..], &["bootstrap.servers", "host[:port]"][..]),
        (&[("enable.idempotence", "true"), ("acks", "1")], &["enable.idempotence", "acks is 1"]),
        (&[("enable.idempotence", "true"), ("max.in.flight", "6")], &["1 to 5", "is 6"]),
        (&[("enable.idempotence", "true"), ("retries", "0")], &["retries is 0"]),
        (&[("session.timeout.ms", "3000")], &["session.timeout.ms (3000)", "heartbeat.interval.ms (3000)"]),
        (
            &[("max.poll.interval.ms", "44000")],
            &["max.poll.interval.ms (44000)", "session.timeout.ms (45000)"],
        ),
        (
            &[("reconnect.backoff.ms", "200"), ("reconnect.backoff.max.ms", "100")],
            &["reconnect.backoff.max.ms (100)", "reconnect.backoff.ms (200)"],
        ),
        (&[("retry.backoff.max.ms", "99")], &["retry.backoff.max.ms (99)", "retry.backoff.ms (100)"]),
        (&[("linger.ms", "120000")], &["delivery.timeout.ms (120000)", "linger.ms (120000)"]),
        (&[("batch.size", "20000"), ("max.request.size", "10000")], &["20000", "10000"]),
        (&[("receive.message.max.bytes", "1000")], &["receive.message.max.bytes (1000)", "52428800"]),
        (&[("compression.codec", "gzip"), ("compression.level", "12")], &["compression.level=12", "1 to 9"]),
    ] {
        let error = validated(pairs).expect_err("a contradiction");
        for part in parts {
            assert!(error.contains(part), "{pairs:?}: {error}");
        }
    }
}

#[test]
fn topic_settings_lie_over_those_of_the_client() {
    let mut topic = TopicConfig::default();
    let config = set("compression.codec", "zstd").expect("known");
    assert_eq!(topic.get("compression.type", &config).expect("known"), "inherit");
    for (name, value) in [
        ("acks", "1"),
        ("message.timeout.ms", "5000"),
        ("compression.codec", "lz4"),
        ("partitioner", "random"),
    ] {
        topic.set(name, value).expect("a property of topics");
        assert_eq!(topic.get(name, &config).expect("known"), value);
    }
    let own = topic.over(&config);
    assert_eq!((own.acks, own.compression_codec.name()), (Acks::Leader, "lz4"));
    topic.set("compression.codec", "inherit").expect("the client's");
    assert_eq!(topic.over(&config).compression_codec.name(), "zstd");
    let error = topic.set("client.id", "x").expect_err("the client's").to_string();
    assert!(error.contains("of clients, not of topics"), "{error}");
    assert!(topic.set("acs", "1").expect_err("unknown").to_string().contains("`acks`"));
    topic.set("offset.store.path", "/tmp").expect("a topic's");
    assert_eq!(topic.over(&config).offset_store_path, Path::new("/tmp"));
}

#[test]
fn missing_features_are_an_error() {
    set("builtin.features", "zstd, lz4").expect("both are there");
    let error = set("builtin.features", "sasl_digest").expect_err("not there");
    assert!(error.contains("`sasl_digest` is not one of gzip, snappy, ssl, sasl, "), "{error}");
}

#[test]
fn dumps_hold_every_property_once_and_no_secret() {
    let config = set("client.id", "dumped").expect("known");
    let dump = config.dump();
    let names: BTreeSet<_> = dump.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), dump.len());
    assert!(dump.contains(&("client.id", "dumped".into())) && dump.contains(&("acks", "all".into())));
    let mut secrets = 0;
    for property in properties::all().filter(|property| property.secret) {
        let mut config = Config::default();
        let Ok(()) = config.set(property.name, "canary") else { continue };
        assert!(config.dump().contains(&(property.name, "[secret]".into())), "{}", property.name);
        assert_eq!(config.get(property.name).expect("known"), "[secret]");
        config.set(property.name, "").expect("none");
        assert_eq!(config.get(property.name).expect("known"), "");
        secrets += 1;
    }
    assert!(secrets >= 6, "{secrets} secrets can be set");
    let password = set("sasl.password", " spaced ").expect("known").security.sasl.password;
    assert_eq!(password.expect("set").expose(), " spaced ");
}

#[test]
fn security_and_network_are_set_by_name() {
    let mut config = Config::new("localhost");
    config
        .set_all([
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanisms", "scram-sha-512"),
            ("ssl.ca.location", "/ca.pem"),
            ("ssl.keystore.location", "/client.p12"),
            ("ssl.endpoint.identification.algorithm", "none"),
            ("https.ca.location", "/https.pem"),
            ("sasl.oauthbearer.method", "oidc"),
            ("sasl.oauthbearer.client.credentials.client.id", "me"),
            ("broker.version.fallback", "1.1.0"),
            ("broker.address.family", "v6"),
            ("connections.max.idle.ms", "0"),
            ("metadata.recovery.strategy", "none"),
        ])
        .expect("known");
    let (security, net) = (&config.security, &config.net);
    assert_eq!(
        (security.protocol, security.sasl.mechanism),
        (SecurityProtocol::SaslSsl, Some(Mechanism::ScramSha512))
    );
    assert_eq!(security.tls.ca_location.as_deref(), Some(Path::new("/ca.pem")));
    assert_eq!(security.tls.keystore_location.as_deref(), Some(Path::new("/client.p12")));
    assert!(!security.tls.endpoint_identification && security.tls.verify_certificates);
    let oauth = &security.sasl.oauthbearer;
    assert_eq!((oauth.method, oauth.client_id.as_deref()), (OauthMethod::Oidc, Some("me")));
    assert_eq!(oauth.https_ca_location.as_deref(), Some(Path::new("/https.pem")));
    assert_eq!((net.version_fallback, net.address_family), (BrokerVersion::V1_1, AddressFamily::V6));
    assert_eq!((net.max_idle, net.rebootstrap), (None, false));
    let error = set("broker.version.fallback", "new").expect_err("no number");
    assert!(error.contains("no version, such as"), "{error}");
    let error = set("ssl.sigalgs.list", "RSA+SHA1").expect_err("too weak");
    assert!(error.contains("`RSA+SHA1` is not among"), "{error}");
}

#[test]
fn a_transactional_id_implies_idempotence_and_excludes_what_excludes_it() {
    let mut librdkafka = Config::librdkafka();
    librdkafka
        .set_all([("bootstrap.servers", "localhost"), ("transactional.id", "billing")])
        .expect("each alone");
    let librdkafka = librdkafka.validated().expect("no contradiction");
    assert!(librdkafka.enable_idempotence && librdkafka.max_in_flight_requests_per_connection <= 5);
    assert_eq!(
        librdkafka.delivery_timeout, librdkafka.transaction_timeout,
        "no record outlives its transaction"
    );
    for (name, value) in
        [("acks", "1"), ("enable.idempotence", "false"), ("max.in.flight", "6"), ("retries", "0")]
    {
        let refused = validated(&[("transactional.id", "billing"), (name, value)]).expect_err(name);
        assert!(refused.contains("enable.idempotence"), "{refused}");
    }
}

/// Programs that librdkafka accepts could not create a client.
#[test]
fn levels_that_a_codec_does_not_have_are_limited_as_in_librdkafka() {
    for (codec, level, limited) in [
        ("gzip", "12", Some(9)),
        ("gzip", "0", Some(1)),
        ("lz4", "0", None),
        ("zstd", "-1", None),
        ("zstd", "5", Some(5)),
    ] {
        let mut config = Config::librdkafka();
        config.set("bootstrap.servers", "127.0.0.1:1").expect("an address");
        config.set("compression.codec", codec).expect("a codec");
        config.set("compression.level", level).expect("a level");
        let config = config.validated().expect("valid");
        assert_eq!(config.compression_level, limited, "{codec} {level}");
    }
}

/// The topic lost all its settings: its level was refused, and the client's applied.
#[test]
fn the_level_of_a_topic_is_limited_by_its_own_codec() {
    let mut config = Config::librdkafka();
    config.set_all([("bootstrap.servers", "b"), ("compression.level", "12")]).expect("properties");
    let config = config.validated().expect("valid");
    let mut topic = TopicConfig::default();
    topic.set("compression.codec", "gzip").expect("a codec");
    let own = topic.over(&config);
    assert_eq!((own.compression_level, own.check()), (Some(9), Ok(())));
}
