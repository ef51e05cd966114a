//! Transactional calls in states that do not allow them.

use std::ffi::CStr;

use rdkafka::client::handle::*;
use rdkafka::consume::group_metadata::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::transactions::*;

use crate::common::{conf, new};

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
        assert_eq!(told(rd_kafka_init_transactions(rk, 1)).0, RD_KAFKA_RESP_ERR__TIMED_OUT);
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
