//! Details of the original on which its C++ library and bindings depend.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use time")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(
    clippy::wildcard_imports,
    clippy::unwrap_used,
    reason = "C's names, and a test that stops where it must"
)]

use std::ffi::{CStr, CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use ottla_broker::Broker;
use rdkafka::client::handle::*;
use rdkafka::client::oauth_tokens::*;
use rdkafka::client::topic_handle::*;
use rdkafka::conf::callbacks::*;
use rdkafka::conf::topic_conf::*;
use rdkafka::consume::leave_group::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::produce::flush::*;
use rdkafka::produce::producer::*;
use rdkafka::queue::poll::*;
use rdkafka::queue::queue_handle::*;
use rdkafka::queue::queue_poll::*;

use crate::common::*;

unsafe extern "C" fn to_the_second(
    _: *const rd_kafka_topic_t,
    _: *const c_void,
    _: usize,
    _: i32,
    _: *mut c_void,
    _: *mut c_void,
) -> i32 {
    1
}

/// The second topic object replaced the first. When that was destroyed, the partitioner was not called and keyed records failed.
#[test]
fn a_known_topic_keeps_its_configuration() {
    let broker = Broker::builder().memory().topic("orders", 2).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let rk = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", &servers)]));
    unsafe {
        let create = |opaque: *mut c_void| {
            let own = rd_kafka_topic_conf_new();
            rd_kafka_topic_conf_set_partitioner_cb(own, Some(to_the_second));
            rd_kafka_topic_conf_set_opaque(own, opaque);
            rd_kafka_topic_new(rk, c"orders".as_ptr(), own)
        };
        let send = |rkt: *mut rd_kafka_topic_t| {
            let key = b"key";
            rd_kafka_produce(
                rkt,
                RD_KAFKA_PARTITION_UA,
                RD_KAFKA_MSG_F_COPY,
                null_mut(),
                0,
                key.as_ptr().cast(),
                key.len(),
                null_mut(),
            )
        };
        let (mut one, mut two) = (1, 2);
        let first = create((&raw mut one).cast());
        assert_eq!(send(first), 0);
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        let second = create((&raw mut two).cast());
        assert_eq!(rd_kafka_topic_opaque(second), (&raw mut one).cast(), "the topic's own");
        rd_kafka_topic_destroy(first);
        assert_eq!(send(second), 0);
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        assert_eq!(broker.cluster().offsets_of("orders", 1), Some((0, 2)));
        rd_kafka_topic_destroy(second);
        rd_kafka_destroy(rk);
    }
}

/// The original frees it in any case, and programs do not.
#[test]
fn a_topic_configuration_is_taken_also_if_the_topic_cannot_be_created() {
    let rk = new(RD_KAFKA_PRODUCER, conf(&[]));
    unsafe {
        let long = CString::new("x".repeat(513)).unwrap();
        for name in [null(), long.as_ptr()] {
            let own = rd_kafka_topic_conf_new();
            assert!(rd_kafka_topic_new(rk, name, own).is_null());
            assert_eq!(rd_kafka_last_error(), RD_KAFKA_RESP_ERR__INVALID_ARG);
            assert!(rd_kafka_topic_conf_dup(own).is_null(), "the handle has ended");
        }
        rd_kafka_destroy(rk);
    }
}

/// It was refused, unlike other names that no topic can have.
#[test]
fn a_topic_may_have_an_empty_name_until_a_broker_refuses_it() {
    let rk = new(RD_KAFKA_PRODUCER, conf(&[]));
    unsafe {
        for own in [null_mut(), rd_kafka_topic_conf_new()] {
            let topic = rd_kafka_topic_new(rk, c"".as_ptr(), own);
            assert_eq!(CStr::from_ptr(rd_kafka_topic_name(topic)), c"");
            rd_kafka_topic_destroy(topic);
        }
        rd_kafka_destroy(rk);
    }
}

/// The last error was that of an earlier call: C++ programs got a message without an error and without a value.
#[test]
fn a_poll_without_a_message_sets_the_last_error() {
    let rk = new(RD_KAFKA_CONSUMER, conf(&[("group.id", "billing")]));
    unsafe {
        let queue = rd_kafka_queue_new(rk);
        assert!(rd_kafka_topic_new(rk, null(), null_mut()).is_null());
        assert_eq!(rd_kafka_last_error(), RD_KAFKA_RESP_ERR__INVALID_ARG);
        assert!(rd_kafka_consume_queue(queue, 1).is_null());
        assert_eq!(rd_kafka_last_error(), RD_KAFKA_RESP_ERR__TIMED_OUT);
        assert!(rd_kafka_topic_new(rk, null(), null_mut()).is_null());
        assert!(rd_kafka_consumer_poll(rk, 1).is_null());
        assert_eq!(rd_kafka_last_error(), RD_KAFKA_RESP_ERR__TIMED_OUT);
        rd_kafka_queue_destroy(queue);
        rd_kafka_destroy(rk);
    }
}

/// The last error was that of an earlier call, also for `KafkaConsumer::consume` after `close`.
#[test]
fn a_poll_of_a_closed_consumer_or_a_destroyed_queue_sets_the_last_error() {
    let rk = new(RD_KAFKA_CONSUMER, conf(&[("group.id", "billing")]));
    unsafe {
        let queue = rd_kafka_queue_new(rk);
        rd_kafka_queue_destroy(queue);
        assert!(rd_kafka_topic_new(rk, null(), null_mut()).is_null());
        assert_eq!(rd_kafka_last_error(), RD_KAFKA_RESP_ERR__INVALID_ARG);
        assert!(rd_kafka_consume_queue(queue, 1).is_null());
        assert_eq!(rd_kafka_last_error(), RD_KAFKA_RESP_ERR__TIMED_OUT);
        assert_eq!(rd_kafka_consumer_close(rk), RD_KAFKA_RESP_ERR_NO_ERROR);
        assert!(rd_kafka_topic_new(rk, null(), null_mut()).is_null());
        assert!(rd_kafka_consumer_poll(rk, 1).is_null());
        assert_eq!(rd_kafka_last_error(), RD_KAFKA_RESP_ERR__TIMED_OUT);
        assert_eq!(rd_kafka_errno(), libc::ETIMEDOUT);
        rd_kafka_destroy(rk);
    }
}

/// It returned NULL, as without a message.
#[test]
fn a_consumer_poll_of_a_producer_returns_the_error() {
    let rk = new(RD_KAFKA_PRODUCER, conf(&[]));
    unsafe {
        let message = rd_kafka_consumer_poll(rk, 1);
        assert_eq!((*message).err, RD_KAFKA_RESP_ERR__UNKNOWN_GROUP);
        assert!(CStr::from_ptr(rd_kafka_message_errstr(message)).to_str().unwrap().contains("nknown group"));
        rd_kafka_message_destroy(message);
        rd_kafka_destroy(rk);
    }
}

/// Such messages are in the array for a batch to produce. The bytes behind them were read: a fault if there were none.
#[test]
fn the_error_of_a_message_of_the_application_needs_no_memory_behind_it() {
    unsafe {
        let page = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).unwrap();
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let pages = libc::mmap(null_mut(), 2 * page, access, kind, -1, 0);
        assert_ne!(pages, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(pages.byte_add(page), page, libc::PROT_NONE), 0);
        let first: *mut rd_kafka_message_t =
            pages.byte_add(page - 2 * size_of::<rd_kafka_message_t>()).cast();
        let last = first.add(1);
        for message in [first, last] {
            assert!(rd_kafka_message_errstr(message).is_null());
            (*message).err = RD_KAFKA_RESP_ERR__QUEUE_FULL;
            let text = CStr::from_ptr(rd_kafka_message_errstr(message));
            assert_eq!(text, CStr::from_ptr(rd_kafka_err2str(RD_KAFKA_RESP_ERR__QUEUE_FULL)));
            (*message).payload = c"payload".as_ptr().cast_mut().cast();
            // A program may set the topic, too.
            (*message).rkt = std::ptr::dangling_mut();
            assert_eq!(CStr::from_ptr(rd_kafka_message_errstr(message)), c"payload", "as in the original");
            assert_eq!(CStr::from_ptr(rd_kafka_message_produce_errstr(message)), c"payload");
            assert_eq!(rd_kafka_message_timestamp(message, null_mut()), -1);
        }
        assert_eq!(libc::munmap(pages, 2 * page), 0);
    }
}

/// Error code, type of timestamp, and timestamp.
type Stamp = (rd_kafka_resp_err_t, rd_kafka_timestamp_type_t, i64);

unsafe extern "C" fn note_timestamp(
    _: *mut rd_kafka_t,
    report: *const rd_kafka_message_t,
    opaque: *mut c_void,
) {
    let mut kind = RD_KAFKA_TIMESTAMP_CREATE_TIME;
    unsafe {
        let timestamp = rd_kafka_message_timestamp(report, &raw mut kind);
        let text = CStr::from_ptr(rd_kafka_message_errstr(report));
        assert_ne!(text, c"late", "the text of the error, not the record");
        let seen = &*opaque.cast::<Mutex<Vec<Stamp>>>();
        seen.lock().unwrap().push(((*report).err, kind, timestamp));
    }
}

#[test]
fn the_report_of_a_failed_message_has_no_timestamp() {
    let seen: Mutex<Vec<Stamp>> = Mutex::default();
    let conf = conf(&[("bootstrap.servers", "127.0.0.1:1"), ("message.timeout.ms", "20")]);
    unsafe {
        rd_kafka_conf_set_opaque(conf, (&raw const seen).cast_mut().cast());
        rd_kafka_conf_set_dr_msg_cb(conf, Some(note_timestamp));
        let rk = new(RD_KAFKA_PRODUCER, conf);
        produce(rk, c"orders", 0, "late", null_mut());
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_destroy(rk);
    }
    let expected = (RD_KAFKA_RESP_ERR__MSG_TIMED_OUT, RD_KAFKA_TIMESTAMP_NOT_AVAILABLE, -1);
    assert_eq!(*seen.lock().unwrap(), [expected]);
}

/// The original's C++ library makes such a message itself. The bytes behind it were read as a pointer.
#[test]
fn an_error_that_the_library_has_not_made_has_a_text_and_nothing_else() {
    // No record, and no memory behind it.
    let message = rd_kafka_message_t {
        err: RD_KAFKA_RESP_ERR__TIMED_OUT,
        rkt: null_mut(),
        partition: -1,
        payload: null_mut(),
        len: 0,
        key: null_mut(),
        key_len: 0,
        offset: -1,
        _private: null_mut(),
    };
    #[repr(C)]
    struct Behind {
        message: rd_kafka_message_t,
        bytes: [u8; 256],
    }
    let behind = Behind { message, bytes: [0xff; 256] };
    let mut headers = null_mut();
    unsafe {
        // Through the whole, so that the bytes behind the message may be read.
        let message: *mut rd_kafka_message_t = (&raw const behind).cast_mut().cast();
        let text = CStr::from_ptr(rd_kafka_message_errstr(message));
        assert!(text.to_str().unwrap().contains("imed out"), "{text:?}");
        assert_eq!(rd_kafka_message_timestamp(message, null_mut()), -1);
        assert_eq!(rd_kafka_message_leader_epoch(message), -1);
        assert_eq!(rd_kafka_message_broker_id(message), -1);
        assert_eq!(rd_kafka_message_latency(message), -1);
        assert_eq!(rd_kafka_message_delivery_count(message), 0);
        assert_eq!(rd_kafka_message_status(message), RD_KAFKA_MSG_STATUS_NOT_PERSISTED);
        assert_eq!(rd_kafka_message_headers(message, &raw mut headers), RD_KAFKA_RESP_ERR__INVALID_ARG);
        assert_eq!(
            rd_kafka_message_detach_headers(message, &raw mut headers),
            RD_KAFKA_RESP_ERR__INVALID_ARG
        );
    }
    assert!(headers.is_null() && behind.bytes == [0xff; 256]);
}

const SASL: [(&str, &str); 2] = [("security.protocol", "SASL_PLAINTEXT"), ("sasl.mechanism", "OAUTHBEARER")];

/// An application that has tokens without being asked could create no client.
#[test]
fn a_client_needs_no_callback_for_tokens_that_its_application_sets() {
    let rk = new(RD_KAFKA_PRODUCER, conf(&SASL));
    unsafe {
        let main = rd_kafka_queue_get_main(rk);
        assert_eq!(rd_kafka_queue_length(main), 0, "nothing is asked");
        rd_kafka_queue_destroy(main);
        let (token, user) = (c"a.b.c", c"anna");
        let later_ms = i64::MAX / 4;
        let set = rd_kafka_oauthbearer_set_token(
            rk,
            token.as_ptr(),
            later_ms,
            user.as_ptr(),
            null_mut(),
            0,
            null_mut(),
            0,
        );
        assert_eq!(set, RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_destroy(rk);
    }
}

/// confluent-kafka-javascript enables background callbacks whatever the source of tokens, and does not connect if that fails.
#[test]
fn a_client_with_an_identity_provider_has_a_queue_for_sasl() {
    let oidc = [
        ("sasl.oauthbearer.method", "oidc"),
        ("sasl.oauthbearer.client.id", "id"),
        ("sasl.oauthbearer.client.secret", "secret"),
        ("sasl.oauthbearer.token.endpoint.url", "https://127.0.0.1:1/token"),
    ];
    for (enabled, properties) in
        [(1, [&SASL[..], &oidc].concat()), (0, [&SASL[..], &oidc].concat()), (1, vec![])]
    {
        let conf = conf(&properties);
        unsafe {
            rd_kafka_conf_enable_sasl_queue(conf, enabled);
            let rk = new(RD_KAFKA_PRODUCER, conf);
            let has_queue = enabled == 1 && !properties.is_empty();
            let queue = rd_kafka_queue_get_sasl(rk);
            assert_eq!(!queue.is_null(), has_queue);
            if has_queue {
                rd_kafka_queue_destroy(queue);
            }
            let error = rd_kafka_sasl_background_callbacks_enable(rk);
            assert_eq!(error.is_null(), has_queue);
            if !has_queue {
                assert_eq!(rd_kafka_error_code(error), RD_KAFKA_RESP_ERR__NOT_CONFIGURED);
                rd_kafka_error_destroy(error);
            }
            rd_kafka_destroy(rk);
        }
    }
}
