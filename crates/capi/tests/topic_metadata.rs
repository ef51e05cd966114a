//! Metadata that the handle of a topic requests, and topics that it creates.

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use ottla_broker::{Broker, BrokerThread};
use rdkafka::client::handle::*;
use rdkafka::client::metadata::*;
use rdkafka::client::topic_handle::*;
use rdkafka::consume::offsets::*;
use rdkafka::consume::simple_consumer::*;
use rdkafka::ffi::*;

use crate::common::{conf, new, until};

const OK: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR;
const UNKNOWN: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;

fn client(broker: &BrokerThread, kind: rd_kafka_type_t, property: Option<(&str, &str)>) -> *mut rd_kafka_t {
    let servers = broker.bootstrap_servers();
    let mut properties = vec![("bootstrap.servers", servers.as_str())];
    properties.extend(property);
    new(kind, conf(&properties))
}

/// Returns `true` if the topic exists. The request creates none: it is one for all topics.
fn exists(rk: *mut rd_kafka_t, topic: &CStr) -> bool {
    let mut metadata: *const rd_kafka_metadata_t = null();
    unsafe {
        assert_eq!(rd_kafka_metadata(rk, 1, null_mut(), &raw mut metadata, 60_000), OK);
        let count = usize::try_from((*metadata).topic_cnt).unwrap();
        let found = (0..count).any(|at| CStr::from_ptr((*(*metadata).topics.add(at)).topic) == topic);
        rd_kafka_metadata_destroy(metadata);
        found
    }
}

/// The value in the producer's configuration was ignored.
#[test]
fn a_producer_creates_no_topic_if_its_configuration_forbids_it() {
    let broker = Broker::builder().memory().spawn().unwrap();
    let forbids = client(&broker, RD_KAFKA_PRODUCER, Some(("allow.auto.create.topics", "false")));
    let allows = client(&broker, RD_KAFKA_PRODUCER, None);
    for (rk, topic, creates) in [(allows, c"allowed", true), (forbids, c"forbidden", false)] {
        let mut metadata: *const rd_kafka_metadata_t = null();
        unsafe {
            // Both the handle and the request for its metadata create the topic if they may.
            let rkt = rd_kafka_topic_new(rk, topic.as_ptr(), null_mut());
            assert_eq!(rd_kafka_metadata(rk, 0, rkt, &raw mut metadata, 60_000), OK);
            rd_kafka_metadata_destroy(metadata);
            rd_kafka_topic_destroy(rkt);
        }
        if creates {
            until("the topic exists", || exists(allows, topic));
        }
        assert_eq!(exists(allows, topic), creates, "{topic:?}");
    }
    unsafe {
        rd_kafka_destroy(forbids);
        rd_kafka_destroy(allows);
    }
}

/// A consumer requested the metadata of a topic only when it was assigned a partition, so that a missing partition was like one that is
/// not assigned.
#[test]
fn a_consumer_s_handle_of_a_topic_requests_its_metadata() {
    let broker = Broker::builder().memory().topic("orders", 2).spawn().unwrap();
    let rk = client(&broker, RD_KAFKA_CONSUMER, Some(("group.id", "billing")));
    unsafe {
        let orders = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        until("the metadata has come", || rd_kafka_offset_store(orders, 9, 3) == UNKNOWN);
        assert_eq!(rd_kafka_seek(orders, 9, 0, 1000), UNKNOWN);
        assert_eq!(rd_kafka_seek(orders, 1, 0, 1000), RD_KAFKA_RESP_ERR__STATE);
        // It can be stopped although it was never started.
        assert_eq!((rd_kafka_consume_stop(orders, 1), rd_kafka_consume_stop(orders, 9)), (0, -1));
        rd_kafka_topic_destroy(orders);
        rd_kafka_destroy(rk);
    }
}

/// It was created when the consumer was assigned a partition of it.
#[test]
fn a_consumer_s_handle_creates_the_topic_if_its_configuration_allows_it() {
    let broker = Broker::builder().memory().spawn().unwrap();
    let rk = client(&broker, RD_KAFKA_CONSUMER, Some(("allow.auto.create.topics", "true")));
    let other = client(&broker, RD_KAFKA_PRODUCER, None);
    unsafe {
        let orders = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        until("the topic exists", || exists(other, c"orders"));
        rd_kafka_topic_destroy(orders);
        rd_kafka_destroy(rk);
        rd_kafka_destroy(other);
    }
}
