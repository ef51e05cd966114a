//! Configurations as C programs make, read, copy and dump them.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::wildcard_imports, reason = "C's names have a prefix of their own")]
#![allow(clippy::missing_transmute_annotations, reason = "the parameter says which type is meant")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};

use rdkafka::client::handle::*;
use rdkafka::conf::conf_interceptors::*;
use rdkafka::conf::topic_conf::*;
use rdkafka::conf::*;
use rdkafka::ffi::*;

/// Sets a property; the text of the refusal if there is one.
fn set(conf: *mut rd_kafka_conf_t, name: &CStr, value: &CStr) -> (rd_kafka_conf_res_t, String) {
    let mut errstr = [0_u8; 256];
    // SAFETY: a configuration, C strings, and a buffer of that size.
    let outcome = unsafe {
        rd_kafka_conf_set(conf, name.as_ptr(), value.as_ptr(), errstr.as_mut_ptr().cast(), errstr.len())
    };
    (outcome, CStr::from_bytes_until_nul(&errstr).expect("always ended").to_str().expect("UTF-8").to_owned())
}

fn get(conf: *const rd_kafka_conf_t, name: &CStr) -> Option<String> {
    let mut value = [0_u8; 256];
    let mut size = value.len();
    // SAFETY: a configuration, a C string, and a buffer of that size.
    let outcome = unsafe { rd_kafka_conf_get(conf, name.as_ptr(), value.as_mut_ptr().cast(), &raw mut size) };
    if outcome != RD_KAFKA_CONF_OK {
        return None;
    }
    let value = CStr::from_bytes_until_nul(&value).expect("always ended").to_str().expect("UTF-8").to_owned();
    assert_eq!(size, value.len() + 1, "the size counts the NUL");
    Some(value)
}

/// Names and values of a dump, which is freed.
fn pairs(array: *mut *const c_char, count: usize) -> Vec<(String, String)> {
    // SAFETY: `count` C strings, by contract.
    let text = |at: usize| unsafe { CStr::from_ptr(*array.add(at)) }.to_str().expect("UTF-8").to_owned();
    let pairs = (0..count).step_by(2).map(|at| (text(at), text(at + 1))).collect();
    // SAFETY: the array that was returned, once.
    unsafe { rd_kafka_conf_dump_free(array, count) };
    pairs
}

#[test]
fn what_is_set_is_read_back_and_dumped_by_librdkafkas_names() {
    let conf = rd_kafka_conf_new();
    assert_eq!(set(conf, c"bootstrap.servers", c"a:1,b:2").0, RD_KAFKA_CONF_OK);
    assert_eq!(set(conf, c"linger.ms", c"0x20").0, RD_KAFKA_CONF_OK);
    assert_eq!(get(conf, c"metadata.broker.list").as_deref(), Some("a:1,b:2"));
    assert_eq!(get(conf, c"queue.buffering.max.ms").as_deref(), Some("32"));
    assert_eq!(get(conf, c"group.id"), None, "what has no value is unknown");
    let mut count = 0;
    // SAFETY: a configuration and a place for the number.
    let array = unsafe { rd_kafka_conf_dump(conf, &raw mut count) };
    let dump = pairs(array, count);
    assert_eq!(dump[0].0, "builtin.features");
    assert!(dump.contains(&("metadata.broker.list".into(), "a:1,b:2".into())), "{dump:?}");
    assert!(dump.contains(&("client.id".into(), "rdkafka".into())), "{dump:?}");
    assert!(dump.iter().all(|(name, _)| name != "linger.ms"), "aliases are not dumped");
    // SAFETY: made above.
    unsafe { rd_kafka_conf_destroy(conf) };
}

/// librdkafka's test 0180. A share consumer may have any number.
#[test]
fn a_consumer_fetches_at_least_one_byte_and_at_most_100_megabytes() {
    for (value, is_refused) in [("0", true), ("1", false), ("100000000", false), ("100000001", true)] {
        let conf = crate::common::conf(&[("fetch.min.bytes", value)]);
        let mut text = [0; 512];
        unsafe {
            let rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text.as_mut_ptr(), text.len());
            let reason = CStr::from_ptr(text.as_ptr()).to_str().unwrap();
            assert_eq!(rk.is_null(), is_refused, "{value}: {reason}");
            if is_refused {
                assert!(reason.contains(&format!("fetch.min.bytes ({value}) is outside")), "{reason}");
                rd_kafka_conf_destroy(conf);
            } else {
                rd_kafka_destroy(rk);
            }
        }
    }
}

#[test]
fn refusals_name_the_property_and_fit_the_buffer() {
    let conf = rd_kafka_conf_new();
    let (outcome, text) = set(conf, c"no.such", c"1");
    assert_eq!(outcome, RD_KAFKA_CONF_UNKNOWN);
    assert!(text.starts_with("No such configuration property: \"no.such\""), "{text}");
    let (outcome, text) = set(conf, c"message.max.bytes", c"5");
    assert_eq!(outcome, RD_KAFKA_CONF_INVALID);
    assert!(text.contains("message.max.bytes") && text.contains("1000"), "{text}");
    let mut short = [b'~'; 8];
    // SAFETY: the buffer is as long as is said; then NULLs, which are misuse and no crash.
    unsafe {
        rd_kafka_conf_set(conf, c"no.such".as_ptr(), c"1".as_ptr(), short.as_mut_ptr().cast(), 4);
        assert_eq!(&short, b"No \0~~~~");
        assert_eq!(rd_kafka_conf_set(conf, null(), null(), null_mut(), 0), RD_KAFKA_CONF_INVALID);
        assert_eq!(
            rd_kafka_conf_set(null_mut(), c"acks".as_ptr(), null(), null_mut(), 0),
            RD_KAFKA_CONF_INVALID
        );
        assert_eq!(rd_kafka_conf_get(conf, null(), null_mut(), null_mut()), RD_KAFKA_CONF_UNKNOWN);
        let mut size = 0;
        assert_eq!(
            rd_kafka_conf_get(conf, c"client.id".as_ptr(), null_mut(), &raw mut size),
            RD_KAFKA_CONF_OK
        );
        assert_eq!(size, 8, "rdkafka and its NUL");
        rd_kafka_conf_destroy(conf);
        rd_kafka_conf_destroy(null_mut());
    }
}

/// The original stores any text: a share consumer checks it when it is created.
#[test]
fn without_a_check_an_acknowledgement_mode_is_stored() {
    let conf = rd_kafka_conf_new();
    let mode = c"share.acknowledgement.mode";
    assert_eq!(get(conf, mode).as_deref(), Some("implicit"));
    for (written, stored) in
        [(c"explicit", "explicit"), (c"nonsense", "nonsense"), (c" 7 ", "7 "), (c"", "implicit")]
    {
        assert_eq!(set(conf, mode, written), (RD_KAFKA_CONF_OK, String::new()), "{written:?}");
        assert_eq!(get(conf, mode).as_deref(), Some(stored), "{written:?}");
    }
    assert_eq!(set(conf, mode, c"nonsense").0, RD_KAFKA_CONF_OK);
    // SAFETY: a configuration, a filter of one C string, and a place for the number.
    unsafe {
        let copy = rd_kafka_conf_dup(conf);
        assert_eq!(get(copy, mode).as_deref(), Some("nonsense"), "a copy has the same text");
        rd_kafka_conf_destroy(copy);
        let filtered = rd_kafka_conf_dup_filter(conf, 1, [c"share.".as_ptr()].as_mut_ptr());
        assert_eq!(get(filtered, mode).as_deref(), Some("implicit"), "the filter leaves it out");
        rd_kafka_conf_destroy(filtered);
        let mut count = 0;
        let array = rd_kafka_conf_dump(conf, &raw mut count);
        assert!(pairs(array, count).contains(&("share.acknowledgement.mode".into(), "nonsense".into())));
        rd_kafka_conf_destroy(conf);
    }
}

#[test]
fn a_copy_has_the_properties_and_functions_but_for_the_filter() {
    unsafe extern "C" fn stats(_: *mut rd_kafka_t, _: *mut c_char, _: usize, _: *mut c_void) -> i32 {
        0
    }
    let conf = rd_kafka_conf_new();
    set(conf, c"client.id", c"me");
    set(conf, c"sasl.password", c"secret");
    let mut opaque = 5;
    let filter = [c"client.".as_ptr(), c"opaque".as_ptr()];
    // SAFETY: configurations that live, and arrays of the sizes that are said.
    unsafe {
        rd_kafka_conf_set_stats_cb(conf, Some(stats));
        rd_kafka_conf_set_opaque(conf, (&raw mut opaque).cast());
        rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_STATS);
        let copy = rd_kafka_conf_dup(conf);
        for name in [c"client.id", c"sasl.password", c"stats_cb", c"opaque", c"enabled_events"] {
            assert!(get(copy, name).is_some(), "{name:?}");
            assert_eq!(get(copy, name), get(conf, name), "{name:?}");
        }
        assert_eq!(get(copy, c"sasl.password").as_deref(), Some("secret"));
        assert_eq!(get(copy, c"enabled_events").as_deref(), Some("65"));
        let filtered = rd_kafka_conf_dup_filter(conf, filter.len(), filter.as_ptr().cast_mut());
        assert_eq!(get(filtered, c"client.id").as_deref(), Some("rdkafka"));
        assert_eq!(get(filtered, c"opaque"), None);
        assert_eq!(get(filtered, c"stats_cb"), get(conf, c"stats_cb"));
        for conf in [conf, copy, filtered] {
            rd_kafka_conf_destroy(conf);
        }
    }
}

#[test]
fn every_function_of_the_application_is_kept() {
    let conf = rd_kafka_conf_new();
    // SAFETY: none of the functions is called; their types differ, their size does not.
    unsafe {
        let any: unsafe extern "C" fn() = nothing;
        rd_kafka_conf_set_dr_cb(conf, std::mem::transmute(any));
        rd_kafka_conf_set_dr_msg_cb(conf, std::mem::transmute(any));
        rd_kafka_conf_set_consume_cb(conf, std::mem::transmute(any));
        rd_kafka_conf_set_rebalance_cb(conf, std::mem::transmute(any));
        rd_kafka_conf_set_offset_commit_cb(conf, std::mem::transmute(any));
        rd_kafka_conf_set_error_cb(conf, std::mem::transmute(any));
        rd_kafka_conf_set_throttle_cb(conf, std::mem::transmute(any));
        rd_kafka_conf_set_log_cb(conf, std::mem::transmute(any));
        rd_kafka_conf_set_background_event_cb(conf, std::mem::transmute(any));
        rd_kafka_conf_set_oauthbearer_token_refresh_cb(conf, std::mem::transmute(any));
        rd_kafka_conf_set_socket_cb(conf, std::mem::transmute(any));
        rd_kafka_conf_set_connect_cb(conf, std::mem::transmute(any));
        rd_kafka_conf_set_closesocket_cb(conf, std::mem::transmute(any));
        rd_kafka_conf_set_open_cb(conf, std::mem::transmute(any));
        rd_kafka_conf_set_resolve_cb(conf, std::mem::transmute(any));
        let judge = rd_kafka_conf_set_ssl_cert_verify_cb(conf, std::mem::transmute(any));
        assert_eq!(judge, RD_KAFKA_CONF_OK);
        rd_kafka_conf_set_engine_callback_data(conf, conf.cast());
        rd_kafka_conf_enable_sasl_queue(conf, 1);
        let address = Some(format!("{:#x}", any as usize));
        for name in [
            c"dr_cb",
            c"dr_msg_cb",
            c"consume_cb",
            c"rebalance_cb",
            c"offset_commit_cb",
            c"error_cb",
            c"throttle_cb",
            c"log_cb",
            c"background_event_cb",
            c"oauthbearer_token_refresh_cb",
            c"socket_cb",
            c"connect_cb",
            c"closesocket_cb",
            c"open_cb",
            c"resolve_cb",
            c"ssl.certificate.verify_cb",
        ] {
            assert_eq!(get(conf, name), address, "{name:?}");
        }
        assert_eq!(get(conf, c"ssl_engine_callback_data"), Some(format!("{:#x}", conf as usize)));
        assert_eq!(get(conf, c"enable_sasl_queue").as_deref(), Some("true"));
        rd_kafka_conf_destroy(conf);
    }
}

unsafe extern "C" fn nothing() {}

#[test]
fn topics_have_configurations_of_their_own_and_a_default() {
    unsafe extern "C" fn first(
        _: *const rd_kafka_topic_t,
        _: *const c_void,
        _: usize,
        _: i32,
        _: *mut c_void,
        _: *mut c_void,
    ) -> i32 {
        0
    }
    unsafe extern "C" fn equal(_: *const rd_kafka_message_t, _: *const rd_kafka_message_t) -> i32 {
        0
    }
    let topic_get = |conf, name: &CStr| {
        let mut value = [0_u8; 64];
        let mut size = value.len();
        // SAFETY: a configuration, a C string, and a buffer of that size.
        let outcome =
            unsafe { rd_kafka_topic_conf_get(conf, name.as_ptr(), value.as_mut_ptr().cast(), &raw mut size) };
        (outcome == RD_KAFKA_CONF_OK)
            .then(|| CStr::from_bytes_until_nul(&value).expect("ended").to_str().expect("UTF-8").to_owned())
    };
    // SAFETY: configurations that live, C strings, and buffers of the sizes that are said.
    unsafe {
        let topic = rd_kafka_topic_conf_new();
        let mut errstr = [0; 128];
        let mut set = |name: &CStr, value: &CStr| {
            rd_kafka_topic_conf_set(topic, name.as_ptr(), value.as_ptr(), errstr.as_mut_ptr(), errstr.len())
        };
        assert_eq!(set(c"acks", c"1"), RD_KAFKA_CONF_OK);
        assert_eq!(set(c"client.id", c"me"), RD_KAFKA_CONF_UNKNOWN);
        assert_eq!(set(c"acks", c"many"), RD_KAFKA_CONF_INVALID);
        assert_eq!(topic_get(topic, c"request.required.acks").as_deref(), Some("1"));
        rd_kafka_topic_conf_set_partitioner_cb(topic, Some(first));
        rd_kafka_topic_conf_set_msg_order_cmp(topic, Some(equal));
        rd_kafka_topic_conf_set_opaque(topic, topic.cast());
        let copy = rd_kafka_topic_conf_dup(topic);
        let mut count = 0;
        let of_topic = pairs(rd_kafka_topic_conf_dump(topic, &raw mut count), count);
        assert_eq!(of_topic, pairs(rd_kafka_topic_conf_dump(copy, &raw mut count), count));
        assert!(of_topic.contains(&("request.required.acks".into(), "1".into())), "{of_topic:?}");
        assert!(of_topic.iter().any(|(name, _)| name == "partitioner_cb"), "{of_topic:?}");
        rd_kafka_topic_conf_destroy(copy);

        let conf = rd_kafka_conf_new();
        assert!(rd_kafka_conf_get_default_topic_conf(conf).is_null());
        rd_kafka_conf_set_default_topic_conf(conf, topic);
        assert_eq!(rd_kafka_conf_get_default_topic_conf(conf), topic);
        assert_eq!(get(conf, c"acks").as_deref(), Some("1"));
        rd_kafka_conf_destroy(conf);
    }
}

/// It was an unknown property. The names that are read have no prefix.
#[test]
fn a_property_of_a_topic_may_be_set_with_its_prefix() {
    // SAFETY: a configuration that lives, C strings, and buffers of the sizes that are said.
    unsafe {
        let topic = rd_kafka_topic_conf_new();
        let set = |name: &CStr| rd_kafka_topic_conf_set(topic, name.as_ptr(), c"1".as_ptr(), null_mut(), 0);
        assert_eq!(set(c"topic.acks"), RD_KAFKA_CONF_OK);
        assert_eq!(set(c"topic.client.id"), RD_KAFKA_CONF_UNKNOWN);
        let mut value = [0_u8; 64];
        let mut get = |name: &CStr| {
            let mut size = value.len();
            rd_kafka_topic_conf_get(topic, name.as_ptr(), value.as_mut_ptr().cast(), &raw mut size)
        };
        assert_eq!(get(c"topic.acks"), RD_KAFKA_CONF_UNKNOWN);
        assert_eq!(get(c"acks"), RD_KAFKA_CONF_OK);
        assert_eq!(CStr::from_bytes_until_nul(&value).expect("ended"), c"1");
        rd_kafka_topic_conf_destroy(topic);
    }
}

#[test]
fn certificates_come_from_memory() {
    let conf = rd_kafka_conf_new();
    let mut errstr = [0; 128];
    // SAFETY: a configuration, and buffers of the sizes that are said.
    unsafe {
        let mut give = |kind, encoding, bytes: &[u8]| {
            rd_kafka_conf_set_ssl_cert(
                conf,
                kind,
                encoding,
                bytes.as_ptr().cast(),
                bytes.len(),
                errstr.as_mut_ptr(),
                errstr.len(),
            )
        };
        assert_eq!(give(RD_KAFKA_CERT_CA, RD_KAFKA_CERT_ENC_DER, &[1, 2, 3]), RD_KAFKA_CONF_OK);
        assert_eq!(give(RD_KAFKA_CERT_PRIVATE_KEY, RD_KAFKA_CERT_ENC_PEM, b"a key"), RD_KAFKA_CONF_OK);
        assert_eq!(give(RD_KAFKA_CERT_PUBLIC_KEY, RD_KAFKA_CERT_ENC_PKCS12, &[0]), RD_KAFKA_CONF_INVALID);
        assert_eq!(give(RD_KAFKA_CERT__CNT, RD_KAFKA_CERT_ENC_PEM, &[0]), RD_KAFKA_CONF_INVALID);
        assert_eq!(
            get(conf, c"ssl.ca.pem").as_deref(),
            Some("-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----")
        );
        assert_eq!(get(conf, c"ssl.key.pem").as_deref(), Some("a key"));
        rd_kafka_conf_destroy(conf);
    }
}

#[test]
fn interceptors_see_what_becomes_of_a_configuration() {
    #[derive(Default)]
    struct Seen {
        set: Vec<String>,
        copies: usize,
        destroyed: usize,
    }
    unsafe extern "C" fn on_set(
        _: *mut rd_kafka_conf_t,
        name: *const c_char,
        _: *const c_char,
        _: *mut c_char,
        _: usize,
        seen: *mut c_void,
    ) -> rd_kafka_conf_res_t {
        // SAFETY: the opaque of the test, and a C string.
        let (seen, name) = unsafe { (&mut *seen.cast::<Seen>(), CStr::from_ptr(name)) };
        seen.set.push(name.to_str().expect("UTF-8").to_owned());
        if name == c"mine" { RD_KAFKA_CONF_OK } else { RD_KAFKA_CONF_UNKNOWN }
    }
    unsafe extern "C" fn on_dup(
        _: *mut rd_kafka_conf_t,
        _: *const rd_kafka_conf_t,
        _: usize,
        _: *mut *const c_char,
        seen: *mut c_void,
    ) -> rd_kafka_resp_err_t {
        // SAFETY: the opaque of the test.
        unsafe { (*seen.cast::<Seen>()).copies += 1 };
        RD_KAFKA_RESP_ERR_NO_ERROR
    }
    unsafe extern "C" fn on_destroy(seen: *mut c_void) -> rd_kafka_resp_err_t {
        // SAFETY: the opaque of the test.
        unsafe { (*seen.cast::<Seen>()).destroyed += 1 };
        RD_KAFKA_RESP_ERR_NO_ERROR
    }
    let mut seen = Seen::default();
    let opaque = (&raw mut seen).cast::<c_void>();
    let name = c"test".as_ptr();
    let conf = rd_kafka_conf_new();
    // SAFETY: a configuration, functions of the right types, and an opaque that lives longer.
    unsafe {
        assert_eq!(rd_kafka_conf_interceptor_add_on_conf_set(conf, name, Some(on_set), opaque), 0);
        assert_eq!(rd_kafka_conf_interceptor_add_on_conf_dup(conf, name, Some(on_dup), opaque), 0);
        assert_eq!(rd_kafka_conf_interceptor_add_on_conf_destroy(conf, name, Some(on_destroy), opaque), 0);
        let again = rd_kafka_conf_interceptor_add_on_conf_set(conf, name, Some(on_set), opaque);
        assert_eq!(again, RD_KAFKA_RESP_ERR__CONFLICT);
    }
    assert_eq!(set(conf, c"mine", c"1").0, RD_KAFKA_CONF_OK, "the interceptor took it");
    assert_eq!(set(conf, c"client.id", c"me").0, RD_KAFKA_CONF_OK);
    // SAFETY: made above, destroyed once each.
    unsafe {
        rd_kafka_conf_destroy(rd_kafka_conf_dup(conf));
        assert_eq!((*opaque.cast::<Seen>()).destroyed, 0, "interceptors are not copied");
        rd_kafka_conf_destroy(conf);
        let seen = &*opaque.cast::<Seen>();
        assert_eq!(
            (seen.set.as_slice(), seen.copies, seen.destroyed),
            (&["mine".into(), "client.id".into()][..], 1, 1)
        );
    }
}

/// Asserts that no client is made, with an error that begins with the text.
fn is_refused_with(kind: rd_kafka_type_t, properties: &[(&CStr, &CStr)], text: &str) {
    let conf = rd_kafka_conf_new();
    for (name, value) in properties {
        assert_eq!(set(conf, name, value).0, RD_KAFKA_CONF_OK, "{name:?}");
    }
    let mut errstr = [0_u8; 512];
    // SAFETY: a configuration, and a buffer of that size.
    let rk = unsafe { rd_kafka_new(kind, conf, errstr.as_mut_ptr().cast(), errstr.len()) };
    assert!(rk.is_null(), "{text}");
    let refusal = CStr::from_bytes_until_nul(&errstr).expect("always ended").to_str().expect("UTF-8");
    assert!(refusal.starts_with(text), "{refusal}");
    // SAFETY: the application keeps the configuration of a client that was refused.
    unsafe { rd_kafka_conf_destroy(conf) };
}

/// Tests of confluent-kafka-dotnet (`InvalidHandle.cs`) and rdkafka-ruby (`config_test.rb`) search the first text, and programs the others:
/// all were our own.
#[test]
fn a_client_that_is_refused_has_the_text_of_librdkafka() {
    type Properties<'a> = &'a [(&'a CStr, &'a CStr)];
    let (tls, sasl) = ((c"security.protocol", c"ssl"), (c"security.protocol", c"sasl_plaintext"));
    let (consumer, producer) = (RD_KAFKA_CONSUMER, RD_KAFKA_PRODUCER);
    let cases: [(_, Properties<'_>, _); 16] = [
        (consumer, &[tls, (c"ssl.ca.location", c"/nonsense")], "ssl.ca.location failed: "),
        (producer, &[sasl, (c"sasl.mechanism", c"PLAIN")], "sasl.username and sasl.password must be set"),
        (
            consumer,
            &[(c"group.id", c"g"), (c"max.poll.interval.ms", c"1000")],
            "`max.poll.interval.ms`must be >= `session.timeout.ms`",
        ),
        (
            consumer,
            &[(c"group.protocol", c"consumer"), (c"session.timeout.ms", c"10000")],
            "`session.timeout.ms` is not supported for `group.protocol=consumer`",
        ),
        (
            consumer,
            &[tls, (c"ssl.ca.pem", c"garbage")],
            "failed to read certificate #0 from ssl.ca.pem: not in PEM format?: ",
        ),
        (
            producer,
            &[(c"ssl.keystore.location", c"/nonsense")],
            "`ssl.keystore.password` is mandatory when `ssl.keystore.location` is set",
        ),
        (
            producer,
            &[tls, (c"ssl.keystore.location", c"/nonsense"), (c"ssl.keystore.password", c"secret")],
            "Failed to open ssl.keystore.location: /nonsense: ",
        ),
        (
            producer,
            &[sasl, (c"sasl.mechanism", c"OAUTHBEARER"), (c"sasl.oauthbearer.method", c"oidc")],
            "`sasl.oauthbearer.token.endpoint.url` is mandatory when `sasl.oauthbearer.method=oidc` is set",
        ),
        (consumer, &[(c"fetch.max.bytes", c"1000")], "`fetch.max.bytes` must be >= `message.max.bytes`"),
        (
            consumer,
            &[(c"partition.assignment.strategy", c"range,cooperative-sticky")],
            "All partition.assignment.strategy (range,cooperative-sticky) assignors must have the same protocol type, \
             online migration between assignors with different protocol types is not supported",
        ),
        (
            consumer,
            &[(c"partition.assignment.strategy", c"range,none")],
            "Unsupported partition.assignment.strategy: none",
        ),
        (
            producer,
            &[(c"reconnect.backoff.ms", c"20000")],
            "`reconnect.backoff.max.ms` must be >= `reconnect.backoff.ms`",
        ),
        (
            producer,
            &[(c"reconnect.backoff.max.ms", c"50")],
            "`reconnect.backoff.max.ms` must be >= `reconnect.backoff.ms`",
        ),
        (
            producer,
            &[(c"enable.idempotence", c"true"), (c"acks", c"1")],
            "`acks` must be set to `all` when `enable.idempotence` is true",
        ),
        (
            producer,
            &[(c"transactional.id", c"t"), (c"enable.idempotence", c"false")],
            "`transactional.id` requires `enable.idempotence=true`",
        ),
        // It was accepted: a commit could wait longer for a record than the transaction lasts.
        (
            producer,
            &[(c"transactional.id", c"t"), (c"message.timeout.ms", c"70000")],
            "`message.timeout.ms` must be set <= `transaction.timeout.ms`",
        ),
    ];
    for (kind, properties, text) in cases {
        is_refused_with(kind, properties, text);
    }
}

/// The second was refused.
#[test]
fn a_client_is_made_where_librdkafka_makes_one() {
    type Properties<'a> = &'a [(&'a CStr, &'a CStr)];
    let cases: [(_, Properties<'_>); 4] = [
        (RD_KAFKA_PRODUCER, &[(c"transactional.id", c"t"), (c"message.timeout.ms", c"0")]),
        (RD_KAFKA_PRODUCER, &[(c"retry.backoff.ms", c"20000"), (c"retry.backoff.max.ms", c"100")]),
        (RD_KAFKA_PRODUCER, &[(c"transactional.id", c"")]),
        (RD_KAFKA_CONSUMER, &[(c"fetch.max.bytes", c"1000"), (c"message.max.bytes", c"1000")]),
    ];
    for (kind, properties) in cases {
        let conf = rd_kafka_conf_new();
        for (name, value) in properties {
            assert_eq!(set(conf, name, value).0, RD_KAFKA_CONF_OK, "{name:?}");
        }
        let mut errstr = [0_u8; 512];
        // SAFETY: a configuration that the client takes, and a buffer of that size.
        unsafe {
            let rk = rd_kafka_new(kind, conf, errstr.as_mut_ptr().cast(), errstr.len());
            assert!(!rk.is_null(), "{properties:?}: {:?}", CStr::from_bytes_until_nul(&errstr));
            rd_kafka_destroy(rk);
        }
    }
}
