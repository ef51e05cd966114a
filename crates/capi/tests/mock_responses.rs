//! Responses of the mock cluster that its functions change: errors, delays, versions and metadata.

#![cfg(feature = "mock")]
#![allow(unsafe_code, reason = "C's functions")]
#![allow(
    clippy::disallowed_methods,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    clippy::wildcard_imports,
    reason = "C's names, and a test that stops where it must"
)]

use std::ffi::{CStr, c_int};
use std::ptr::{null, null_mut};

use rdkafka::admin::*;
use rdkafka::client::handle::*;
use rdkafka::consume::group_consumer::*;
use rdkafka::consume::offsets::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::*;
use rdkafka::messages::partition_list::*;
use rdkafka::mock::brokers::*;
use rdkafka::mock::rd_kafka_mock_cluster_bootstraps;
use rdkafka::mock::requests::*;
use rdkafka::mock::topics::*;
use rdkafka::produce::flush::*;

use crate::asking::{Asking, array, text};
use crate::common::{list, produce, read, subscribe, until};
use crate::mock::{Stage, described, outcome, rd_kafka_mock_broker_push_request_error_rtts};
use crate::mock_groups::rd_kafka_mock_partition_push_request_errors;

const PRODUCE: i16 = 0;
const FETCH: i16 = 1;
const LIST_OFFSETS: i16 = 2;
const METADATA: i16 = 3;
const JOIN_GROUP: i16 = 11;
const HEARTBEAT: i16 = 12;
const DESCRIBE_GROUPS: i16 = 15;
const VOTE: i16 = 52;

const OK: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR;

/// The high watermark of a partition.
fn end_of(stage: &Stage, partition: i32) -> i64 {
    let rk = stage.client(RD_KAFKA_PRODUCER, &[]);
    let (mut low, mut high) = (-1, -1);
    unsafe {
        let topic = c"orders".as_ptr();
        let query = rd_kafka_query_watermark_offsets;
        assert_eq!(query(rk, topic, partition, &raw mut low, &raw mut high, 30_000), OK);
        rd_kafka_destroy(rk);
    }
    high
}

#[test]
fn an_error_of_a_partition_fails_its_next_produce_request_and_no_other() {
    let stage = Stage::of(1, 2);
    let push = |partition, api, error: rd_kafka_resp_err_t| unsafe {
        let topic = c"orders".as_ptr();
        rd_kafka_mock_partition_push_request_errors(stage.cluster, topic, partition, api, 1, error)
    };
    let forbidden = RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    assert_eq!(push(0, PRODUCE, forbidden), OK);
    let rk = stage.client(RD_KAFKA_PRODUCER, &[]);
    produce(rk, c"orders", 1, "elsewhere", null_mut());
    unsafe {
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        rd_kafka_destroy(rk);
    }
    assert_eq!(end_of(&stage, 1), 1);
    assert_eq!(outcome(&stage, &[]), forbidden);
    assert_eq!(outcome(&stage, &[]), OK);
    assert_eq!(end_of(&stage, 0), 1, "the refused record is not written");
    // Errors for every API are accepted, although most have none of partitions.
    assert_eq!((push(0, FETCH, forbidden), push(0, HEARTBEAT, forbidden)), (OK, OK));
}

#[test]
fn errors_of_a_broker_need_one_of_the_cluster() {
    let stage = Stage::of(2, 1);
    let push = |id| unsafe {
        let refused = RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS;
        let api = c_int::from(PRODUCE);
        rd_kafka_mock_broker_push_request_error_rtts(stage.cluster, id, api, 1, refused, 0 as c_int)
    };
    let left = |id| unsafe {
        let mut count = 77;
        (rd_kafka_mock_broker_error_stack_cnt(stage.cluster, id, PRODUCE, &raw mut count), count)
    };
    let unknown = RD_KAFKA_RESP_ERR__UNKNOWN_BROKER;
    unsafe {
        assert_eq!((push(7), left(7)), (unknown, (unknown, 77)));
        assert_eq!(rd_kafka_mock_broker_add(stage.cluster, 7), OK);
        assert_eq!((push(7), left(7)), (OK, (OK, 1)));
        assert_eq!((push(2), left(2)), (OK, (OK, 1)));
        assert_eq!(rd_kafka_mock_broker_decommission(stage.cluster, 2), OK);
        assert_eq!((push(2), left(2)), (unknown, (unknown, 77)));
    }
}

#[test]
fn the_partitions_of_a_broker_that_leaves_metadata_have_leaders_that_clients_know() {
    let stage = Stage::of(3, 1);
    let rk = stage.client(RD_KAFKA_PRODUCER, &[]);
    assert_eq!(described(rk, c"orders"), (Some((1, 3)), OK, 1, 3));
    unsafe {
        assert_eq!(rd_kafka_mock_broker_remove_from_metadata(stage.cluster, 1), OK);
        assert_eq!(described(rk, c"orders"), (Some((2, 2)), OK, 1, 2), "also the replicas");
        rd_kafka_mock_start_request_tracking(stage.cluster);
        assert_eq!(outcome(&stage, &[]), OK);
        assert_eq!(stage.nodes_asked(PRODUCE), [2]);
        assert_eq!(rd_kafka_mock_broker_decommission(stage.cluster, 1), OK);
        assert_eq!(rd_kafka_mock_broker_add(stage.cluster, 1), OK);
        assert_eq!(described(rk, c"orders").3, 3, "it is a new broker");
        rd_kafka_destroy(rk);
    }
}

#[test]
fn versions_are_limited_to_those_that_the_mock_cluster_has() {
    let stage = Stage::of(1, 1);
    let set = |api, min, max| unsafe { rd_kafka_mock_set_apiversion(stage.cluster, api, min, max) };
    let query = || unsafe {
        let rk = stage.client(RD_KAFKA_PRODUCER, &[]);
        let (topic, mut low, mut high) = (c"orders".as_ptr(), -1, -1);
        let code = rd_kafka_query_watermark_offsets(rk, topic, 0, &raw mut low, &raw mut high, 30_000);
        rd_kafka_destroy(rk);
        code
    };
    assert_eq!(set(LIST_OFFSETS, -1, -1), OK);
    assert_eq!(query(), RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE);
    // The lowest version is below, and the highest above those of the mock cluster.
    assert_eq!(set(LIST_OFFSETS, 0, 999), OK);
    assert_eq!(query(), OK);
    assert_eq!(set(LIST_OFFSETS, 998, 999), OK);
    assert_eq!(query(), RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE);
    assert_eq!(set(VOTE, 0, 1), OK, "an API that only Kafka answers");
    assert_eq!(
        (set(-1, 0, 1), set(999, 0, 1)),
        (RD_KAFKA_RESP_ERR__INVALID_ARG, RD_KAFKA_RESP_ERR__INVALID_ARG)
    );
}

#[test]
fn a_coordinator_can_be_set_before_its_broker_is_added_and_the_controller_to_none() {
    let stage = Stage::of(1, 1);
    unsafe {
        let set = |kind: &CStr, broker_id| {
            rd_kafka_mock_coordinator_set(stage.cluster, kind.as_ptr(), c"billing".as_ptr(), broker_id)
        };
        assert_eq!(set(c"share", 9), RD_KAFKA_RESP_ERR__INVALID_ARG);
        assert_eq!((set(c"transaction", 9), set(c"group", 9)), (OK, OK));
        rd_kafka_mock_start_request_tracking(stage.cluster);
        assert_eq!(rd_kafka_mock_broker_add(stage.cluster, 9), OK);
        let rk = stage.client(RD_KAFKA_CONSUMER, &[]);
        subscribe(rk, c"orders");
        until("a member at the new broker", || stage.nodes_asked(JOIN_GROUP) == [9]);
        rd_kafka_destroy(rk);

        rd_kafka_mock_set_controller_id(stage.cluster, -1);
        let rk = stage.client(RD_KAFKA_PRODUCER, &[]);
        described(rk, c"orders");
        assert_eq!(rd_kafka_controllerid(rk, 30_000), -1);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn an_error_of_a_topic_leaves_its_partitions_and_ends_with_the_topic() {
    let stage = Stage::of(1, 2);
    let rk = stage.client(RD_KAFKA_PRODUCER, &[]);
    let forbidden = RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    let set_error =
        |error| unsafe { rd_kafka_mock_topic_set_error(stage.cluster, c"orders".as_ptr(), error) };
    set_error(forbidden);
    assert_eq!(described(rk, c"orders"), (Some((1, 1)), forbidden, 2, 1));
    set_error(RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    assert_eq!(described(rk, c"orders"), (None, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, 0, 1));
    unsafe {
        let topic = c"orders".as_ptr();
        assert_eq!(rd_kafka_mock_topic_delete(stage.cluster, topic), OK);
        assert_eq!(rd_kafka_mock_topic_create(stage.cluster, topic, 3, 1), OK);
        assert_eq!(described(rk, c"orders"), (Some((1, 1)), OK, 3, 1));
        // A pushed error of Metadata is not the error of a topic.
        let errors = [forbidden; 20];
        rd_kafka_mock_push_request_errors_array(stage.cluster, METADATA, errors.len(), errors.as_ptr());
        assert_eq!(described(rk, c"orders"), (Some((1, 1)), OK, 3, 1));
        rd_kafka_destroy(rk);
    }
}

/// Offsets were lost if they were set before the follower: librdkafka's mock cluster keeps them.
#[test]
fn a_consumer_reads_at_the_follower_what_that_one_has() {
    let stage = Stage::of(2, 1);
    for _ in 0..5 {
        assert_eq!(outcome(&stage, &[]), OK);
    }
    unsafe {
        assert_eq!(rd_kafka_mock_broker_set_rack(stage.cluster, 2, c"eu".as_ptr()), OK);
        let (topic, set_offsets) = (c"orders".as_ptr(), rd_kafka_mock_partition_set_follower_wmarks);
        assert_eq!(set_offsets(stage.cluster, topic, 0, 0, 3), OK);
        assert_eq!(rd_kafka_mock_partition_set_follower(stage.cluster, topic, 0, 2), OK);
        rd_kafka_mock_start_request_tracking(stage.cluster);
        let rk = stage.client(RD_KAFKA_CONSUMER, &[("client.rack", "eu")]);
        let assigned = list(&[(c"orders", 0)]);
        (*assigned).elems_mut()[0].offset = 0;
        assert_eq!(rd_kafka_assign(rk, assigned), OK);
        assert_eq!(read(rk, 3).len(), 3);
        let asked = stage.nodes_asked(FETCH);
        assert!(asked.starts_with(&[1, 2]), "sent from the leader to the follower: {asked:?}");
        // It has the rest when it is let.
        assert_eq!(set_offsets(stage.cluster, topic, 0, -1, -1), OK);
        assert_eq!(read(rk, 2).len(), 2);
        rd_kafka_topic_partition_list_destroy(assigned);
        rd_kafka_destroy(rk);
    }
}

/// An automatically created topic had one replica: librdkafka's mock cluster gives it three, or as many as there are brokers.
#[test]
fn an_automatically_created_topic_shows_three_replicas() {
    for (brokers, replicas) in [(2, 2), (4, 3)] {
        let stage = Stage::of(brokers, 1);
        let rk = stage.client(RD_KAFKA_PRODUCER, &[]);
        assert_eq!(described(rk, c"automatic").0.unwrap().1, replicas);
        unsafe { rd_kafka_destroy(rk) };
    }
}

/// The whole calls failed with the code of the topic.
#[test]
fn the_offsets_of_a_forbidden_topic_are_those_of_an_unknown_partition() {
    let stage = Stage::of(1, 1);
    let (forbidden, unknown) =
        (RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION);
    let (topic, mut low, mut high) = (c"orders".as_ptr(), -1, -1);
    unsafe {
        rd_kafka_mock_topic_set_error(stage.cluster, topic, forbidden);
        let rk = stage.client(RD_KAFKA_PRODUCER, &[]);
        let code = rd_kafka_query_watermark_offsets(rk, topic, 0, &raw mut low, &raw mut high, 30_000);
        assert_eq!(code, unknown);
        rd_kafka_destroy(rk);

        let rk = stage.client(RD_KAFKA_PRODUCER, &[]);
        let times = list(&[(c"orders", 0)]);
        assert_eq!(rd_kafka_offsets_for_times(rk, times, 30_000), unknown);
        assert_eq!((*(*times).elems).err, forbidden);
        rd_kafka_topic_partition_list_destroy(times);
        rd_kafka_destroy(rk);
    }
}

/// The text did not say which request was refused.
#[test]
fn the_error_of_a_described_group_names_its_request() {
    let stage = Stage::of(1, 1);
    let forbidden = RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED;
    unsafe {
        let admin =
            Asking::new(&text(rd_kafka_mock_cluster_bootstraps(stage.cluster)), RD_KAFKA_PRODUCER, &[]);
        rd_kafka_mock_push_request_errors_array(stage.cluster, DESCRIBE_GROUPS, 1, &raw const forbidden);
        let mut groups = [c"billing".as_ptr()];
        rd_kafka_DescribeConsumerGroups(admin.rk, groups.as_mut_ptr(), 1, null(), admin.queue);
        let answer = admin.answer(RD_KAFKA_EVENT_DESCRIBECONSUMERGROUPS_RESULT);
        let result = rd_kafka_event_DescribeConsumerGroups_result(answer.0);
        let described = array(rd_kafka_DescribeConsumerGroups_result_groups, result);
        let error = rd_kafka_ConsumerGroupDescription_error(described[0]);
        assert_eq!(rd_kafka_error_code(error), forbidden);
        let reason = "DescribeConsumerGroups: Broker: Group authorization failed";
        assert_eq!(text(rd_kafka_error_string(error)), reason);
    }
}
