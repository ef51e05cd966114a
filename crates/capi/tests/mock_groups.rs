//! Groups of the mock cluster: share groups, groups of the consumer protocol, their settings and assignments.

#![cfg(feature = "mock")]
#![allow(unsafe_code, reason = "C's functions")]
#![allow(
    clippy::disallowed_methods,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    clippy::wildcard_imports,
    reason = "C's names, and a test that stops where it must"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::thread;
use std::time::Duration;

use rdkafka::client::handle::*;
use rdkafka::consume::group_consumer::*;
use rdkafka::consume::group_metadata::*;
use rdkafka::consume::leave_group::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::memory::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::messages::partition_list::*;
use rdkafka::mock::brokers::*;
use rdkafka::mock::groups::*;
use rdkafka::mock::requests::*;
use rdkafka::mock::topics::*;
use rdkafka::mock::*;
use rdkafka::produce::flush::*;
use rdkafka::queue::poll::*;
use rdkafka::share::commit::*;
use rdkafka::share::poll::*;

use crate::common::{conf, list, new, produce, subscribe, until};
use crate::mock::rd_kafka_mock_broker_push_request_error_rtts;
use crate::sharing::{Consumer, EXPLICIT, OK, RELEASE, Seen};

const SHARE_GROUP_HEARTBEAT: i16 = 76;
const SHARE_FETCH: i16 = 78;
const SHARE_ACKNOWLEDGE: i16 = 79;

unsafe extern "C" {
    /// Has a variable number of errors, so that C defines it.
    pub(crate) fn rd_kafka_mock_partition_push_request_errors(
        mcluster: *mut rd_kafka_mock_cluster_t,
        topic: *const c_char,
        partition: i32,
        api_key: i16,
        cnt: usize,
        ...
    ) -> rd_kafka_resp_err_t;
}

/// A cluster with share groups and a topic `orders`, whose groups begin at its first record.
struct Stage {
    rk: *mut rd_kafka_t,
    cluster: *mut rd_kafka_mock_cluster_t,
    servers: String,
}

impl Stage {
    fn of(partitions: c_int) -> Self {
        let rk = new(RD_KAFKA_PRODUCER, conf(&[]));
        unsafe {
            let cluster = rd_kafka_mock_cluster_new(rk, 3);
            assert!(!cluster.is_null());
            rd_kafka_mock_sharegroup_set_auto_offset_reset(cluster, 1);
            rd_kafka_mock_sharegroup_set_heartbeat_interval(cluster, 100);
            rd_kafka_mock_set_group_consumer_heartbeat_interval_ms(cluster, 100);
            assert_eq!(rd_kafka_mock_topic_create(cluster, c"orders".as_ptr(), partitions, 1), OK);
            let servers = CStr::from_ptr(rd_kafka_mock_cluster_bootstraps(cluster)).to_str().unwrap();
            Self { rk, cluster, servers: servers.to_owned() }
        }
    }

    fn produce(&self, partition: i32, values: impl IntoIterator<Item = usize>) {
        self.produce_to(c"orders", partition, values);
    }

    fn produce_to(&self, topic: &CStr, partition: i32, values: impl IntoIterator<Item = usize>) {
        let producer = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", &self.servers)]));
        for value in values {
            produce(producer, topic, partition, &value.to_string(), null_mut());
        }
        unsafe {
            assert_eq!(rd_kafka_flush(producer, 60_000), OK);
            rd_kafka_destroy(producer);
        }
    }

    /// A member of the share group `g`.
    fn member(&self, properties: &[(&str, &str)]) -> Consumer {
        let mut all = vec![("bootstrap.servers", self.servers.as_str()), ("group.id", "g")];
        all.extend(properties);
        let consumer = Consumer::of(conf(&all));
        assert_eq!(consumer.subscribe(&[c"orders"]), OK);
        consumer
    }

    /// The members of a share group.
    fn members(&self, group: &CStr) -> Result<Vec<*mut c_char>, rd_kafka_resp_err_t> {
        let (mut ids, mut count) = (null_mut(), 7);
        unsafe {
            let code = rd_kafka_mock_sharegroup_get_member_ids(
                self.cluster,
                group.as_ptr(),
                &raw mut ids,
                &raw mut count,
            );
            let all = (0..count).map(|index| *ids.add(index)).collect();
            rd_kafka_mem_free(null_mut(), ids.cast());
            if code == OK { Ok(all) } else { Err(code) }
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        unsafe {
            rd_kafka_mock_cluster_destroy(self.cluster);
            rd_kafka_destroy(self.rk);
        }
    }
}

fn free(text: *mut c_char) {
    unsafe { rd_kafka_mem_free(null_mut(), text.cast::<c_void>()) };
}

fn values(records: Vec<(String, i16)>) -> Vec<String> {
    records.into_iter().map(|(value, _)| value).collect()
}

#[test]
fn a_share_group_reads_from_the_beginning_and_holds_no_more_records_than_its_limit() {
    let stage = Stage::of(1);
    unsafe { rd_kafka_mock_sharegroup_set_max_record_locks(stage.cluster, 3) };
    stage.produce(0, 0..7);
    let consumer = stage.member(&[]);
    let mut seen = Vec::new();
    while seen.len() < 7 {
        let records = values(consumer.batch().records());
        assert!(records.len() <= 3, "{records:?}");
        seen.extend(records);
    }
    assert_eq!(seen, ["0", "1", "2", "3", "4", "5", "6"]);
}

#[test]
fn a_record_that_was_delivered_as_often_as_allowed_is_not_delivered_again() {
    let stage = Stage::of(1);
    unsafe { rd_kafka_mock_sharegroup_set_max_delivery_attempts(stage.cluster, 2) };
    stage.produce(0, 0..1);
    let consumer = stage.member(&[EXPLICIT]);
    for delivery in 1..=2 {
        let batch = consumer.batch();
        assert_eq!(batch.records(), [("0".to_owned(), delivery)]);
        assert_eq!(consumer.acknowledge(batch.messages()[0], RELEASE), OK);
    }
    stage.produce(0, 1..2);
    assert_eq!(consumer.read(1), [("1".to_owned(), 1)]);
}

#[test]
fn a_record_is_another_members_after_the_lock_duration() {
    let stage = Stage::of(1);
    unsafe { rd_kafka_mock_sharegroup_set_record_lock_duration(stage.cluster, 300) };
    stage.produce(0, 0..1);
    let slow = stage.member(&[EXPLICIT]);
    let batch = slow.batch();
    assert_eq!(batch.records(), [("0".to_owned(), 1)]);
    let other = stage.member(&[]);
    assert_eq!(other.read(1), [("0".to_owned(), 2)]);
}

#[test]
fn a_full_share_group_refuses_members() {
    let stage = Stage::of(1);
    unsafe { rd_kafka_mock_sharegroup_set_max_size(stage.cluster, 1) };
    stage.produce(0, 0..1);
    let first = stage.member(&[]);
    assert_eq!(values(first.read(1)), ["0"]);
    let second = stage.member(&[]);
    let mut refused = OK;
    until("the second member is refused", || {
        refused = second.poll(100).err().unwrap_or(OK);
        refused != OK
    });
    assert_eq!(refused, RD_KAFKA_RESP_ERR_GROUP_MAX_SIZE_REACHED);
}

#[test]
fn a_member_that_is_silent_for_the_session_timeout_is_removed() {
    let stage = Stage::of(1);
    assert_eq!(stage.members(c"g"), Err(RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND));
    unsafe {
        rd_kafka_mock_sharegroup_set_session_timeout(stage.cluster, 500);
        // After the first heartbeat there is none for a long time.
        rd_kafka_mock_sharegroup_set_heartbeat_interval(stage.cluster, 600_000);
    }
    let consumer = stage.member(&[]);
    until("the member has joined", || {
        assert!(consumer.poll(10).is_ok());
        stage.members(c"g").is_ok_and(|ids| ids.into_iter().inspect(|id| free(*id)).count() == 1)
    });
    until("the member is removed", || stage.members(c"g").is_ok_and(|ids| ids.is_empty()));
}

#[test]
fn share_sessions_are_limited_at_each_broker() {
    let stage = Stage::of(2);
    unsafe {
        rd_kafka_mock_sharegroup_set_max_fetch_sessions(stage.cluster, 1);
        assert_eq!(rd_kafka_mock_topic_create(stage.cluster, c"other".as_ptr(), 1, 1), OK);
        for partition in 0..2 {
            assert_eq!(
                rd_kafka_mock_partition_set_leader(stage.cluster, c"orders".as_ptr(), partition, 1),
                OK
            );
        }
        assert_eq!(rd_kafka_mock_partition_set_leader(stage.cluster, c"other".as_ptr(), 0, 2), OK);
    }
    stage.produce(0, 0..1);
    let first = stage.member(&[]);
    assert_eq!(values(first.read(1)), ["0"]);
    let refused = stage.member(&[("group.id", "h")]);
    for _ in 0..10 {
        assert!(refused.poll(20).expect("it tries again").is_none());
    }
    let elsewhere = stage.member(&[("group.id", "i")]);
    assert_eq!(elsewhere.subscribe(&[c"other"]), OK);
    stage.produce_to(c"other", 0, 7..8);
    assert_eq!(values(elsewhere.read(1)), ["7"]);
    // Room for one more.
    assert_eq!(first.close(), Ok(()));
    assert_eq!(values(refused.read(1)), ["0"]);
}

#[test]
fn records_below_a_new_beginning_of_the_log_are_not_delivered() {
    let stage = Stage::of(1);
    unsafe { rd_kafka_mock_sharegroup_set_max_record_locks(stage.cluster, 5) };
    stage.produce(0, 0..10);
    let first = stage.member(&[]);
    assert_eq!(first.read(5).len(), 5);
    assert_eq!(first.close(), Ok(()));
    unsafe {
        assert_eq!(rd_kafka_mock_partition_delete_records(stage.cluster, c"orders".as_ptr(), 0, 5), OK);
        rd_kafka_mock_sharegroup_set_max_record_locks(stage.cluster, 0);
    }
    let second = stage.member(&[]);
    assert_eq!(values(second.read(5)), ["5", "6", "7", "8", "9"]);
}

#[test]
fn a_member_whose_heartbeats_fail_for_longer_than_its_session_reads_on_later() {
    let stage = Stage::of(1);
    unsafe {
        rd_kafka_mock_sharegroup_set_session_timeout(stage.cluster, 500);
        rd_kafka_mock_sharegroup_set_max_record_locks(stage.cluster, 2);
    }
    stage.produce(0, 0..4);
    let consumer = stage.member(&[]);
    assert_eq!(values(consumer.read(2)), ["0", "1"]);
    let unavailable = [RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE; 20];
    unsafe {
        rd_kafka_mock_push_request_errors_array(
            stage.cluster,
            SHARE_GROUP_HEARTBEAT,
            20,
            unavailable.as_ptr(),
        );
    };
    until("the member is removed", || {
        stage.members(c"g").is_ok_and(|ids| ids.into_iter().inspect(|id| free(*id)).count() == 0)
    });
    let mut last = Vec::new();
    while last.last().map(String::as_str) != Some("3") {
        last = values(consumer.batch().records());
    }
}

#[test]
fn the_members_of_a_share_group_have_what_was_assigned_to_them() {
    let stage = Stage::of(4);
    let consumers = [stage.member(&[]), stage.member(&[])];
    let mut ids = Vec::new();
    until("both have joined", || {
        for consumer in &consumers {
            assert!(consumer.poll(10).is_ok());
        }
        ids.drain(..).for_each(free);
        ids = stage.members(c"g").unwrap_or_default();
        ids.len() == 2
    });
    let (all, none) = (list(&[(c"orders", 0), (c"orders", 1), (c"orders", 2), (c"orders", 3)]), list(&[]));
    let mut lists = [all, none];
    let mut names = [ids[0].cast_const(), ids[1].cast_const()];
    unsafe {
        let (names, lists) = (names.as_mut_ptr(), lists.as_mut_ptr());
        rd_kafka_mock_sharegroup_target_assignment(stage.cluster, c"g".as_ptr(), names, lists, 2);
        rd_kafka_topic_partition_list_destroy(all);
        rd_kafka_topic_partition_list_destroy(none);
    }
    ids.into_iter().for_each(free);
    // Rounds until a heartbeat of each has brought the assignment: then all records of a round are one member's.
    let mut round = 0;
    until("one member gets the records of all partitions", || {
        (0..4).for_each(|partition| stage.produce(partition, round..=round));
        round += 1;
        let mut counts = [0, 0];
        while counts[0] + counts[1] < 4 {
            for (consumer, count) in consumers.iter().zip(&mut counts) {
                *count += consumer.poll(50).expect("no error").map_or(0, |batch| batch.records().len());
            }
        }
        counts.contains(&4) && counts.contains(&0)
    });
}

/// The partitions that a consumer has.
fn assigned(consumer: *mut rd_kafka_t) -> Vec<i32> {
    let mut partitions = null_mut();
    unsafe {
        assert_eq!(rd_kafka_assignment(consumer, &raw mut partitions), OK);
        let all = (0..(*partitions).cnt as usize).map(|index| (*(*partitions).elems.add(index)).partition);
        let all = all.collect();
        rd_kafka_topic_partition_list_destroy(partitions);
        all
    }
}

#[test]
fn the_members_of_a_consumer_group_have_what_was_assigned_to_them_until_that_is_undone() {
    let stage = Stage::of(3);
    let properties = [
        ("bootstrap.servers", stage.servers.as_str()),
        ("group.id", "billing"),
        ("group.protocol", "consumer"),
    ];
    let consumer = new(RD_KAFKA_CONSUMER, conf(&properties));
    subscribe(consumer, c"orders");
    let poll = || unsafe {
        let message = rd_kafka_consumer_poll(consumer, 20);
        if !message.is_null() {
            rd_kafka_message_destroy(message);
        }
    };
    let has = |partitions: &[i32]| {
        poll();
        assigned(consumer) == partitions
    };
    until("the assignor has assigned all", || has(&[0, 1, 2]));
    unsafe {
        let metadata = rd_kafka_consumer_group_metadata(consumer);
        let mut ids = [rd_kafka_consumer_group_metadata_member_id(metadata).cast_mut()];
        let mut lists = [list(&[(c"orders", 1)])];
        let target =
            rd_kafka_mock_cgrp_consumer_target_assignment_new(ids.as_mut_ptr(), 1, lists.as_mut_ptr());
        rd_kafka_mock_cgrp_consumer_target_assignment(stage.cluster, c"billing".as_ptr(), target);
        rd_kafka_mock_cgrp_consumer_target_assignment_destroy(target);
        rd_kafka_topic_partition_list_destroy(lists[0]);
        rd_kafka_consumer_group_metadata_destroy(metadata);
    }
    until("it has what was assigned", || has(&[1]));
    // It stays so.
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(20));
        assert!(has(&[1]));
    }
    unsafe { rd_kafka_mock_cgrp_consumer_target_assignment(stage.cluster, c"billing".as_ptr(), null_mut()) };
    until("the assignor has assigned all again", || has(&[0, 1, 2]));
    unsafe { rd_kafka_destroy(consumer) };
}

/// librdkafka's test 0102: the second member had a passing error, and tried again and again.
#[test]
fn a_second_static_member_of_a_consumer_group_has_a_fatal_error() {
    let stage = Stage::of(1);
    let properties = [
        ("bootstrap.servers", stage.servers.as_str()),
        ("group.id", "billing"),
        ("group.protocol", "consumer"),
        ("group.instance.id", "till-1"),
    ];
    let [first, second] = [(); 2].map(|()| new(RD_KAFKA_CONSUMER, conf(&properties)));
    subscribe(first, c"orders");
    until("the first has the partition", || {
        assert!(unsafe { rd_kafka_consumer_poll(first, 20) }.is_null());
        assigned(first) == [0]
    });
    subscribe(second, c"orders");
    until("the second is refused", || unsafe {
        let message = rd_kafka_consumer_poll(second, 20);
        if message.is_null() {
            return false;
        }
        assert_eq!((*message).err, RD_KAFKA_RESP_ERR__FATAL);
        rd_kafka_message_destroy(message);
        true
    });
    unsafe {
        let fatal = rd_kafka_fatal_error(second, null_mut(), 0);
        assert_eq!(fatal, RD_KAFKA_RESP_ERR_UNRELEASED_INSTANCE_ID);
        rd_kafka_destroy(second);
        rd_kafka_destroy(first);
    }
}

/// librdkafka's test 0153.
#[test]
fn a_consumer_of_the_new_protocol_has_its_member_id_from_the_start() {
    let properties =
        [("bootstrap.servers", "127.0.0.1:1"), ("group.id", "billing"), ("group.protocol", "consumer")];
    let ids = [(); 2].map(|()| unsafe {
        let consumer = new(RD_KAFKA_CONSUMER, conf(&properties));
        let id = rd_kafka_memberid(consumer);
        let text = CStr::from_ptr(id).to_str().unwrap().to_owned();
        rd_kafka_mem_free(consumer, id.cast());
        rd_kafka_destroy(consumer);
        text
    });
    assert!(ids[0].len() == 22 && ids[0] != ids[1], "{ids:?}");
}

/// librdkafka's test 0109: in the new protocol the coordinator looks after the topics.
#[test]
fn a_missing_topic_of_a_consumer_group_is_no_error() {
    let stage = Stage::of(1);
    let properties = [
        ("bootstrap.servers", stage.servers.as_str()),
        ("group.id", "billing"),
        ("group.protocol", "consumer"),
        ("enable.partition.eof", "true"),
    ];
    let consumer = new(RD_KAFKA_CONSUMER, conf(&properties));
    let topics = list(&[(c"missing", -1), (c"orders", -1)]);
    unsafe {
        assert_eq!(rd_kafka_subscribe(consumer, topics), OK);
        rd_kafka_topic_partition_list_destroy(topics);
    }
    until("the end of the partition", || unsafe {
        let message = rd_kafka_consumer_poll(consumer, 20);
        if message.is_null() {
            return false;
        }
        assert_eq!((*message).err, RD_KAFKA_RESP_ERR__PARTITION_EOF);
        rd_kafka_message_destroy(message);
        true
    });
    unsafe { rd_kafka_destroy(consumer) };
}

#[test]
fn null_is_ignored() {
    let stage = Stage::of(1);
    unsafe {
        rd_kafka_mock_sharegroup_set_max_size(null_mut(), 1);
        rd_kafka_mock_cgrp_consumer_target_assignment_destroy(null_mut());
        rd_kafka_mock_cgrp_consumer_target_assignment(stage.cluster, std::ptr::null(), null_mut());
        let empty = rd_kafka_mock_cgrp_consumer_target_assignment_new(null_mut(), 1, null_mut());
        assert!(!empty.is_null());
        rd_kafka_mock_cgrp_consumer_target_assignment_destroy(empty);
        rd_kafka_mock_sharegroup_target_assignment(stage.cluster, c"g".as_ptr(), null_mut(), null_mut(), 2);
        let mut ids = null_mut();
        let code =
            rd_kafka_mock_sharegroup_get_member_ids(stage.cluster, c"g".as_ptr(), &raw mut ids, null_mut());
        assert_eq!(code, RD_KAFKA_RESP_ERR__INVALID_ARG);
    }
}

#[test]
fn the_client_of_a_share_consumer_is_the_first_word_behind_its_pointer_and_knows_its_assignment() {
    let stage = Stage::of(3);
    let consumer = stage.member(&[]);
    let client = unsafe { *consumer.0.cast::<*mut rd_kafka_t>() };
    until("an assignment", || {
        let mut partitions = null_mut();
        assert_eq!(unsafe { rd_kafka_assignment(client, &raw mut partitions) }, OK);
        crate::sharing::entries(partitions).len() == 3
    });
}

#[test]
fn a_refused_member_of_a_share_group_has_a_fatal_error_and_gets_no_more_records() {
    let stage = Stage::of(1);
    let consumer = stage.member(&[]);
    let refusal = RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED;
    until("the first heartbeat", || !stage.members(c"g").unwrap_or_default().is_empty());
    unsafe {
        rd_kafka_mock_push_request_errors_array(stage.cluster, SHARE_GROUP_HEARTBEAT, 1, &raw const refusal);
    }
    until("the refusal", || {
        let mut batch = null_mut();
        unsafe {
            let error = rd_kafka_share_poll(consumer.0, 100, &raw mut batch);
            let is_fatal = !error.is_null() && rd_kafka_error_is_fatal(error) == 1;
            crate::sharing::code_of(error).err() == Some(refusal) && is_fatal
        }
    });
    let client = unsafe { *consumer.0.cast::<*mut rd_kafka_t>() };
    assert_eq!(unsafe { rd_kafka_fatal_error(client, null_mut(), 0) }, refusal);
    stage.produce(0, 0..3);
    assert_eq!(consumer.poll(1000).err(), Some(refusal), "no records");
}

/// librdkafka's test 0157. On a broker a move of the leader releases the records that are in flight.
#[test]
fn records_stay_in_flight_when_the_leader_moves() {
    let stage = Stage::of(1);
    unsafe { rd_kafka_mock_sharegroup_set_max_record_locks(stage.cluster, 3) };
    stage.produce(0, 0..6);
    let consumer = stage.member(&[]);
    assert_eq!(consumer.read(3).len(), 3);
    unsafe {
        assert_eq!(rd_kafka_mock_partition_set_leader(stage.cluster, c"orders".as_ptr(), 0, 2), OK);
        rd_kafka_mock_sharegroup_set_max_record_locks(stage.cluster, 0);
    }
    assert_eq!(consumer.read(3).len(), 3, "the first three are not delivered again");
}

/// librdkafka's test 0179: it must not wait for a broker.
#[test]
fn a_destroy_after_a_fatal_error_sends_neither_acknowledgements_nor_a_leave_request() {
    let stage = Stage::of(1);
    stage.produce(0, 0..2);
    let consumer = stage.member(&[EXPLICIT]);
    let batch = consumer.batch();
    for message in batch.messages() {
        assert_eq!(consumer.acknowledge(message, RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_ACCEPT), OK);
    }
    drop(batch);
    unsafe {
        let client = *consumer.0.cast::<*mut rd_kafka_t>();
        assert_eq!(rd_kafka_test_fatal_error(client, RD_KAFKA_RESP_ERR__FATAL, c"any".as_ptr()), OK);
    }
    drop(consumer);
    assert_eq!(stage.members(c"g").map(|ids| ids.into_iter().inspect(|id| free(*id)).count()), Ok(1));
}

/// librdkafka's test 0179: the records of a decommissioned broker were delivered again.
#[test]
fn acknowledgements_are_taken_by_a_node_that_leads_no_longer() {
    let stage = Stage::of(1);
    unsafe { rd_kafka_mock_partition_set_leader(stage.cluster, c"orders".as_ptr(), 0, 1) };
    stage.produce(0, 0..1);
    let seen = Seen::default();
    let consumer = stage.member(&[EXPLICIT]);
    consumer.observe(&seen);
    let batch = consumer.batch();
    assert_eq!(consumer.acknowledge(batch.messages()[0], RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_ACCEPT), OK);
    drop(batch);
    unsafe {
        assert_eq!(rd_kafka_mock_partition_set_leader(stage.cluster, c"orders".as_ptr(), 0, 2), OK);
        assert_eq!(crate::sharing::code_of(rd_kafka_share_commit_async(consumer.0)), Ok(()));
    }
    until("the result", || {
        drop(consumer.poll(50));
        let results = seen.take();
        assert!(results.iter().all(|(_, _, _, code)| *code == OK), "{results:?}");
        !results.is_empty()
    });
}

/// librdkafka's test 0179: the commit waited for the answer until `socket.timeout.ms`.
#[test]
fn acknowledgements_fail_when_their_broker_leaves_the_cluster() {
    let stage = Stage::of(1);
    unsafe { rd_kafka_mock_partition_set_leader(stage.cluster, c"orders".as_ptr(), 0, 1) };
    stage.produce(0, 0..1);
    let seen = Seen::default();
    let consumer = stage.member(&[EXPLICIT, ("topic.metadata.refresh.interval.ms", "100")]);
    consumer.observe(&seen);
    let batch = consumer.batch();
    assert_eq!(consumer.acknowledge(batch.messages()[0], RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_ACCEPT), OK);
    drop(batch);
    let is_sent = || unsafe {
        let mut count = 0;
        let all = rd_kafka_mock_get_requests(stage.cluster, &raw mut count);
        let is_sent =
            (0..count).any(|index| rd_kafka_mock_request_api_key(*all.add(index)) == SHARE_ACKNOWLEDGE);
        rd_kafka_mock_request_destroy_array(all, count);
        is_sent
    };
    unsafe {
        rd_kafka_mock_start_request_tracking(stage.cluster);
        let api = c_int::from(SHARE_ACKNOWLEDGE);
        let never: c_int = 600_000;
        rd_kafka_mock_broker_push_request_error_rtts(stage.cluster, 1, api, 1, OK, never);
        assert_eq!(crate::sharing::code_of(rd_kafka_share_commit_async(consumer.0)), Ok(()));
    }
    until("the request is sent", is_sent);
    unsafe {
        assert_eq!(rd_kafka_mock_partition_set_leader(stage.cluster, c"orders".as_ptr(), 0, 2), OK);
        assert_eq!(rd_kafka_mock_broker_remove_from_metadata(stage.cluster, 1), OK);
    }
    until("the result", || {
        drop(consumer.poll(50));
        let results = seen.take();
        assert!(results.iter().all(|(_, _, _, code)| *code == RD_KAFKA_RESP_ERR__TRANSPORT), "{results:?}");
        !results.is_empty()
    });
}

#[test]
fn errors_of_single_partitions_are_answered_in_turn_and_leave_the_others_alone() {
    let stage = Stage::of(2);
    let push = |partition: i32, api: i16, error: rd_kafka_resp_err_t| unsafe {
        rd_kafka_mock_partition_push_request_errors(
            stage.cluster,
            c"orders".as_ptr(),
            partition,
            api,
            1,
            error,
        )
    };
    assert_eq!(
        push(9, SHARE_FETCH, RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR),
        RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART
    );
    assert_eq!(push(1, SHARE_FETCH, RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR), OK);
    stage.produce(0, 0..1);
    stage.produce(1, 1..2);
    let consumer = stage.member(&[EXPLICIT]);
    let mut seen = 0;
    while seen < 2 {
        let batch = consumer.batch();
        for message in batch.messages() {
            let is_second = unsafe { (*message).partition } == 1;
            let error = RD_KAFKA_RESP_ERR_INVALID_RECORD_STATE;
            if is_second {
                assert_eq!(push(1, SHARE_ACKNOWLEDGE, error), OK);
            }
            assert_eq!(consumer.acknowledge(message, RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_ACCEPT), OK);
            let mut results = null_mut();
            let outcome = unsafe { rd_kafka_share_commit_sync(consumer.0, 60_000, &raw mut results) };
            assert_eq!(crate::sharing::code_of(outcome), Ok(()));
            let codes: Vec<_> =
                crate::sharing::entries(results).into_iter().map(|(_, at, code)| (at, code)).collect();
            assert_eq!(codes, [if is_second { (1, error) } else { (0, OK) }]);
            seen += 1;
        }
    }
}
