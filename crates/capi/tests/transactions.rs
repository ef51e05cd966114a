//! The ends of transactions: their error codes, and the records that come meanwhile.

use std::ptr::null_mut;

use ottla_broker::{ApiKey, Broker, BrokerThread, ErrorCode, Fault};
use rdkafka::client::handle::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::*;
use rdkafka::produce::producer::*;
use rdkafka::produce::transactions::*;

use crate::common::{conf, new, produce};

fn broker() -> BrokerThread {
    Broker::builder().memory().topic("orders", 1).spawn().unwrap()
}

/// A producer in a transaction.
fn in_transaction(broker: &BrokerThread) -> *mut rd_kafka_t {
    let servers = broker.bootstrap_servers();
    let properties = [("bootstrap.servers", servers.as_str()), ("transactional.id", "till")];
    let rk = new(RD_KAFKA_PRODUCER, conf(&properties));
    unsafe {
        assert!(rd_kafka_init_transactions(rk, 60_000).is_null());
        assert!(rd_kafka_begin_transaction(rk).is_null());
    }
    rk
}

/// The code of an error, and whether it requires an abort.
fn code_of(error: *mut rd_kafka_error_t) -> (rd_kafka_resp_err_t, bool) {
    unsafe {
        let found = (rd_kafka_error_code(error), rd_kafka_error_txn_requires_abort(error) != 0);
        rd_kafka_error_destroy(error);
        found
    }
}

/// librdkafka's `rd_kafka_txn_op_commit_transaction` counts deliveries that failed. The code was that of the record.
#[test]
fn a_commit_after_failed_deliveries_is_inconsistent_and_requires_an_abort() {
    let broker = broker();
    let rk = in_transaction(&broker);
    unsafe {
        assert!(broker.cluster().set_leader("orders", 0, -1), "its records are not sent");
        produce(rk, c"orders", 0, "paid", null_mut());
        assert_eq!(rd_kafka_purge(rk, RD_KAFKA_PURGE_F_QUEUE), RD_KAFKA_RESP_ERR_NO_ERROR);
        let commit = || code_of(rd_kafka_commit_transaction(rk, 60_000));
        assert_eq!(commit(), (RD_KAFKA_RESP_ERR__INCONSISTENT, true));
        assert_eq!(commit(), (RD_KAFKA_RESP_ERR__INCONSISTENT, true), "until it is aborted");
        assert!(rd_kafka_abort_transaction(rk, 60_000).is_null());

        assert!(rd_kafka_begin_transaction(rk).is_null());
        assert!(broker.cluster().set_leader("orders", 0, 1));
        let refused = Fault::Fail(ErrorCode::TopicAuthorizationFailed);
        broker.cluster().intercept(ApiKey::Produce, None, 1, refused);
        produce(rk, c"orders", 0, "paid", null_mut());
        assert_eq!(commit(), (RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, true), "the leader's own code");
        assert!(rd_kafka_abort_transaction(rk, 60_000).is_null());
        rd_kafka_destroy(rk);
    }
}
