//! Records that `rd_kafka_produceva` refuses. Bindings show the texts of its errors, and programs search them.

use std::ffi::{CStr, CString, c_int};
use std::ptr::{null, null_mut};

use ottla_broker::{ApiKey, Broker, ErrorCode, Fault};
use rdkafka::client::handle::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::*;
use rdkafka::messages::headers::*;
use rdkafka::produce::flush::*;
use rdkafka::produce::producer::*;
use rdkafka::produce::transactions::*;

use crate::common::{conf, new, produce};

const OK: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR;

/// One field of a record.
fn field(vtype: c_int, u: rd_kafka_vu_value_t) -> rd_kafka_vu_t {
    rd_kafka_vu_t { vtype, u }
}

fn topic(name: &CStr) -> rd_kafka_vu_t {
    field(RD_KAFKA_VTYPE_TOPIC, rd_kafka_vu_value_t { cstr: name.as_ptr() })
}

fn partition(partition: i32) -> rd_kafka_vu_t {
    field(RD_KAFKA_VTYPE_PARTITION, rd_kafka_vu_value_t { i32: partition })
}

/// The field of a value, which the caller keeps.
fn value(value: &[u8]) -> rd_kafka_vu_t {
    let mem = rd_kafka_vu_mem_t { ptr: value.as_ptr().cast_mut().cast(), size: value.len() };
    field(RD_KAFKA_VTYPE_VALUE, rd_kafka_vu_value_t { mem })
}

/// Sends a record of these fields. Returns the code and the text of the refusal.
fn send(rk: *mut rd_kafka_t, fields: &[rd_kafka_vu_t]) -> (rd_kafka_resp_err_t, String) {
    unsafe {
        let error = rd_kafka_produceva(rk, fields.as_ptr(), fields.len());
        let text = CStr::from_ptr(rd_kafka_error_string(error)).to_str().unwrap().to_owned();
        let refused = (rd_kafka_error_code(error), text);
        rd_kafka_error_destroy(error);
        refused
    }
}

/// They had the text of the code alone.
#[test]
fn a_refused_record_has_the_text_of_librdkafka() {
    let broker = Broker::builder().memory().topic("orders", 2).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let properties = [
        ("bootstrap.servers", servers.as_str()),
        ("message.max.bytes", "1000"),
        ("queue.buffering.max.messages", "1"),
        // The record that fills the queue stays there until the flush.
        ("linger.ms", "60000"),
    ];
    let rk = new(RD_KAFKA_PRODUCER, conf(&properties));
    // From then on the producer knows the partitions.
    produce(rk, c"orders", 0, "first", null_mut());
    assert_eq!(unsafe { rd_kafka_flush(rk, 60_000) }, OK);

    let text = "Failed to produce message: Broker: Message size too large".to_owned();
    let too_large = send(rk, &[topic(c"orders"), value(&[b'x'; 2000])]);
    assert_eq!(too_large, (RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, text));
    let text = "Failed to enqueue message: Local: Unknown partition".to_owned();
    for unknown in [7, -5] {
        let refused = send(rk, &[topic(c"orders"), partition(unknown), value(b"x")]);
        assert_eq!(refused, (RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION, text.clone()), "{unknown}");
    }

    produce(rk, c"orders", 0, "fills the queue", null_mut());
    let text = "Failed to produce message: Local: Queue full".to_owned();
    let full = send(rk, &[topic(c"orders"), partition(0), value(b"x")]);
    assert_eq!(full, (RD_KAFKA_RESP_ERR__QUEUE_FULL, text));
    unsafe {
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        rd_kafka_destroy(rk);
    }
}

/// It had the text of the code alone, which names no state.
#[test]
fn a_record_that_a_transaction_does_not_take_names_its_state() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let properties = [("bootstrap.servers", servers.as_str()), ("transactional.id", "payments")];
    let rk = new(RD_KAFKA_PRODUCER, conf(&properties));
    let refused = |state: &str| {
        let text = format!("Producing not allowed in transactional state {state}");
        assert_eq!(send(rk, &[topic(c"orders"), value(b"x")]), (RD_KAFKA_RESP_ERR__STATE, text));
        assert_eq!((rd_kafka_last_error(), rd_kafka_errno()), (RD_KAFKA_RESP_ERR__STATE, libc::ENOEXEC));
    };
    unsafe {
        refused("Init");
        assert!(rd_kafka_init_transactions(rk, 60_000).is_null());
        refused("Ready");
        assert!(rd_kafka_begin_transaction(rk).is_null());
        broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::Fail(ErrorCode::MessageTooLarge));
        assert_eq!(send(rk, &[topic(c"orders"), value(b"x")]).0, OK);
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        refused("AbortableError");
        assert!(rd_kafka_abort_transaction(rk, 60_000).is_null());
        refused("Ready");
        rd_kafka_destroy(rk);
    }
}

/// The texts were our own. A name that is too long made a topic.
#[test]
fn refused_fields_of_a_record_have_the_texts_of_librdkafka() {
    let rk = new(RD_KAFKA_PRODUCER, conf(&[]));
    let too_long = CString::new("t".repeat(513)).unwrap();
    let invalid = |text: &str| (RD_KAFKA_RESP_ERR__INVALID_ARG, text.to_owned());
    let no_topic = invalid("Topic name or object required");
    let null_topic = field(RD_KAFKA_VTYPE_TOPIC, rd_kafka_vu_value_t { cstr: null() });
    let no_fields: &[rd_kafka_vu_t] = &[];
    for fields in [no_fields, &[value(b"x")], &[null_topic], &[topic(&too_long)]] {
        assert_eq!(send(rk, fields), no_topic);
    }
    for unknown in [RD_KAFKA_VTYPE_END, 77] {
        let fields = [topic(c"orders"), field(unknown, rd_kafka_vu_value_t { i: 0 })];
        assert_eq!(send(rk, &fields), invalid(&format!("Unsupported VTYPE {unknown}")));
    }
    unsafe {
        let headers = rd_kafka_headers_new(1);
        let all = || field(RD_KAFKA_VTYPE_HEADERS, rd_kafka_vu_value_t { headers });
        let header = rd_kafka_vu_header_t { name: c"trace".as_ptr(), val: c"abc".as_ptr().cast(), size: 3 };
        let one = || field(RD_KAFKA_VTYPE_HEADER, rd_kafka_vu_value_t { header });
        for (fields, text) in [
            ([one(), all()], "VTYPE_HEADERS and VTYPE_HEADER are mutually exclusive"),
            ([all(), one()], "VTYPE_HEADER and VTYPE_HEADERS are mutually exclusive"),
        ] {
            assert_eq!(send(rk, &fields), (RD_KAFKA_RESP_ERR__CONFLICT, text.to_owned()));
        }
        rd_kafka_headers_destroy(headers);
        rd_kafka_destroy(rk);
    }
}
