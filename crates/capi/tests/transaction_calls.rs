//! Transactional calls in states that do not allow them.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ottla_broker::{ApiKey, Broker, ErrorCode, Fault};
use rdkafka::client::handle::*;
use rdkafka::client::topic_handle::*;
use rdkafka::conf::*;
use rdkafka::consume::group_metadata::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::producer::*;
use rdkafka::produce::transactions::*;

use crate::common::{conf, list, new, produce};

/// The codes of records that the function for reports produces.
type Codes = Mutex<Vec<rd_kafka_resp_err_t>>;

/// Produces one more record, after the first report only.
unsafe extern "C" fn produce_another(rk: *mut rd_kafka_t, _: *const rd_kafka_message_t, opaque: *mut c_void) {
    let mut codes = unsafe { &*opaque.cast::<Codes>() }.lock().unwrap();
    if codes.is_empty() {
        codes.push(send(rk));
    }
}

/// Produces a record and returns its code.
fn send(rk: *mut rd_kafka_t) -> rd_kafka_resp_err_t {
    unsafe {
        let rkt = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        let done = rd_kafka_produce(rkt, 0, 0, null_mut(), 0, null(), 0, null_mut());
        let code = if done == 0 { RD_KAFKA_RESP_ERR_NO_ERROR } else { rd_kafka_last_error() };
        rd_kafka_topic_destroy(rkt);
        code
    }
}

/// The code and the text of an error, which it destroys.
fn told(error: *mut rd_kafka_error_t) -> (rd_kafka_resp_err_t, String) {
    unsafe {
        let text = CStr::from_ptr(rd_kafka_error_string(error)).to_str().unwrap().to_owned();
        let told = (rd_kafka_error_code(error), text);
        rd_kafka_error_destroy(error);
        told
    }
}

/// php-rdkafka's test `init_transaction_not_configured.phpt` compares the text, and programs search it: it was our own.
#[test]
fn a_transactional_call_of_another_producer_has_the_text_of_the_original() {
    let text = "The Transactional API requires transactional.id to be configured".to_owned();
    let refused = (RD_KAFKA_RESP_ERR__NOT_CONFIGURED, text);
    let rk = new(RD_KAFKA_PRODUCER, conf(&[]));
    unsafe {
        assert_eq!(told(rd_kafka_init_transactions(rk, 1_000)), refused);
        assert_eq!(told(rd_kafka_begin_transaction(rk)), refused);
        // An empty list was no error.
        let group = rd_kafka_consumer_group_metadata_new(c"billing".as_ptr());
        let none = rd_kafka_topic_partition_list_new(0);
        assert_eq!(told(rd_kafka_send_offsets_to_transaction(rk, none, group, 1_000)), refused);
        rd_kafka_topic_partition_list_destroy(none);
        rd_kafka_consumer_group_metadata_destroy(group);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn a_transactional_call_in_a_wrong_state_has_the_text_of_the_original() {
    let rk = new(RD_KAFKA_PRODUCER, conf(&[("transactional.id", "payments")]));
    unsafe {
        let refused = (RD_KAFKA_RESP_ERR__STATE, "Operation not valid in state Init".to_owned());
        assert_eq!(told(rd_kafka_begin_transaction(rk)), refused);
        assert_eq!(told(rd_kafka_abort_transaction(rk, 1_000)), refused);
        let text = "Timed out waiting for operation to finish, retry call to resume".to_owned();
        assert_eq!(told(rd_kafka_init_transactions(rk, 1)), (RD_KAFKA_RESP_ERR__TIMED_OUT, text));
        let text = "Conflicting init_transactions API call is already in progress".to_owned();
        let refused = (RD_KAFKA_RESP_ERR__CONFLICT, text);
        assert_eq!(told(rd_kafka_begin_transaction(rk)), refused);
        let group = rd_kafka_consumer_group_metadata_new(c"billing".as_ptr());
        let none = rd_kafka_topic_partition_list_new(0);
        assert_eq!(told(rd_kafka_send_offsets_to_transaction(rk, none, group, 1_000)), refused);
        rd_kafka_topic_partition_list_destroy(none);
        rd_kafka_consumer_group_metadata_destroy(group);
        rd_kafka_destroy(rk);
    }
}

/// The call waited for the records, which no thread could send, before it looked at the state.
#[test]
fn a_commit_in_a_wrong_state_does_not_wait_for_records() {
    let rk = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", "127.0.0.1:1")]));
    produce(rk, c"orders", 0, "unsendable", null_mut());
    unsafe {
        let begun = Instant::now();
        let (code, _) = told(rd_kafka_commit_transaction(rk, 60_000));
        assert_eq!(code, RD_KAFKA_RESP_ERR__NOT_CONFIGURED);
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        rd_kafka_destroy(rk);
    }
}

/// The first had the text of any timeout, and the second the code of the record.
#[test]
fn a_commit_of_records_that_are_not_delivered_has_the_errors_of_the_original() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let commit = |id: &str, message_timeout_ms: &str, timeout_ms| unsafe {
        let properties = [
            ("bootstrap.servers", servers.as_str()),
            ("transactional.id", id),
            ("message.timeout.ms", message_timeout_ms),
        ];
        let rk = new(RD_KAFKA_PRODUCER, conf(&properties));
        assert!(rd_kafka_init_transactions(rk, 60_000).is_null());
        assert!(rd_kafka_begin_transaction(rk).is_null());
        produce(rk, c"orders", 0, "undelivered", null_mut());
        let error = rd_kafka_commit_transaction(rk, timeout_ms);
        let remedies = (rd_kafka_error_is_retriable(error), rd_kafka_error_txn_requires_abort(error));
        let (code, text) = told(error);
        rd_kafka_destroy(rk);
        (code, text, remedies)
    };
    assert!(broker.cluster().set_leader("orders", 0, -1), "its records are not sent");
    let text = "Failed to flush all outstanding messages within the API timeout: 1 message(s) remaining";
    assert_eq!(commit("waiting", "60000", 200), (RD_KAFKA_RESP_ERR__TIMED_OUT, text.to_owned(), (1, 0)));
    let (code, text, remedies) = commit("expired", "500", 60_000);
    assert_eq!((code, remedies), (RD_KAFKA_RESP_ERR__INCONSISTENT, (0, 1)), "{text}");
    assert!(text.contains("message(s) failed delivery (see individual delivery reports)"), "{text}");

    assert!(broker.cluster().set_leader("orders", 0, 1));
    broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::Fail(ErrorCode::MessageTooLarge));
    let (code, text, remedies) = commit("refused", "60000", 60_000);
    assert_eq!((code, remedies), (RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, (0, 1)), "{text}");
    assert!(text.ends_with("current transaction must be aborted"), "{text}");
}

/// The transaction took records until all reports were served: a function that answers each report by a record kept it open.
#[test]
fn a_function_for_reports_adds_no_record_to_a_transaction_that_is_being_committed() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let conf = conf(&[("bootstrap.servers", servers.as_str()), ("transactional.id", "payments")]);
    let codes = Codes::default();
    unsafe {
        rd_kafka_conf_set_opaque(conf, (&raw const codes).cast_mut().cast());
        rd_kafka_conf_set_dr_msg_cb(conf, Some(produce_another));
        let rk = new(RD_KAFKA_PRODUCER, conf);
        assert!(rd_kafka_init_transactions(rk, 60_000).is_null());
        assert!(rd_kafka_begin_transaction(rk).is_null());
        assert_eq!(send(rk), RD_KAFKA_RESP_ERR_NO_ERROR);
        assert!(rd_kafka_commit_transaction(rk, 60_000).is_null());
        assert_eq!(*codes.lock().unwrap(), [RD_KAFKA_RESP_ERR__STATE]);
        rd_kafka_destroy(rk);
    }
}

/// librdkafka's `rd_kafka_txn_curr_api_begin` limits the call by the transaction timeout. It lasted for an hour.
#[test]
fn offsets_are_sent_for_as_long_as_a_transaction_lasts() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let properties = [
        ("bootstrap.servers", servers.as_str()),
        ("transactional.id", "payments"),
        ("transaction.timeout.ms", "1000"),
    ];
    let rk = new(RD_KAFKA_PRODUCER, conf(&properties));
    let loading = Fault::Fail(ErrorCode::CoordinatorLoadInProgress);
    broker.cluster().intercept(ApiKey::TxnOffsetCommit, None, u32::MAX, loading);
    let offsets = list(&[(c"orders", 0)]);
    unsafe {
        assert!(rd_kafka_init_transactions(rk, 60_000).is_null());
        assert!(rd_kafka_begin_transaction(rk).is_null());
        (*(*offsets).elems).offset = 1;
        let group = rd_kafka_consumer_group_metadata_new(c"billing".as_ptr());
        let begun = Instant::now();
        let error = rd_kafka_send_offsets_to_transaction(rk, offsets, group, 3_600_000);
        let waited = begun.elapsed();
        let is_retriable = rd_kafka_error_is_retriable(error) != 0;
        let (code, text) = told(error);
        assert!(is_retriable && waited < Duration::from_secs(30), "{waited:?}: {code} {text}");
        rd_kafka_topic_partition_list_destroy(offsets);
        rd_kafka_consumer_group_metadata_destroy(group);
        rd_kafka_destroy(rk);
    }
}
