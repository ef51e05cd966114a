//! The mock cluster, as programs' own tests use it.

#![cfg(feature = "mock")]
#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(
    clippy::wildcard_imports,
    clippy::unwrap_used,
    reason = "C's names, and a test that stops where it must"
)]

use std::ffi::{CStr, c_int, c_void};
use std::io::ErrorKind;
use std::net::TcpStream;
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rdkafka::client::handle::*;
use rdkafka::client::metadata::*;
use rdkafka::conf::callbacks::*;
use rdkafka::consume::group_consumer::*;
use rdkafka::consume::leave_group::*;
use rdkafka::consume::offsets::*;
use rdkafka::ffi::*;
use rdkafka::messages::partition_list::*;
use rdkafka::mock::brokers::*;
use rdkafka::mock::requests::*;
use rdkafka::mock::telemetry::*;
use rdkafka::mock::topics::*;
use rdkafka::mock::*;
use rdkafka::produce::flush::*;

use crate::common::*;

const PRODUCE: i16 = 0;
const LIST_OFFSETS: i16 = 2;
const FIND_COORDINATOR: i16 = 10;
const JOIN_GROUP: i16 = 11;
const SYNC_GROUP: i16 = 14;
const GET_TELEMETRY_SUBSCRIPTIONS: i16 = 71;
const PUSH_TELEMETRY: i16 = 72;

const OK: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR;

#[allow(improper_ctypes, reason = "the inside of a cluster is not looked at")]
unsafe extern "C" {
    fn rd_kafka_mock_push_request_errors(
        mcluster: *mut rd_kafka_mock_cluster_t,
        api_key: c_int,
        cnt: usize,
        ...
    );
    pub(crate) fn rd_kafka_mock_broker_push_request_error_rtts(
        mcluster: *mut rd_kafka_mock_cluster_t,
        broker_id: i32,
        api_key: c_int,
        cnt: usize,
        ...
    ) -> rd_kafka_resp_err_t;
}

/// A cluster that has its own client and a topic `orders`.
pub(crate) struct Stage {
    rk: *mut rd_kafka_t,
    pub(crate) cluster: *mut rd_kafka_mock_cluster_t,
    servers: String,
}

impl Stage {
    pub(crate) fn of(brokers: c_int, partitions: c_int) -> Self {
        let rk = new(RD_KAFKA_PRODUCER, conf(&[]));
        unsafe {
            let cluster = rd_kafka_mock_cluster_new(rk, brokers);
            assert!(!cluster.is_null());
            assert_eq!(rd_kafka_mock_cluster_handle(cluster), rk);
            let servers = CStr::from_ptr(rd_kafka_mock_cluster_bootstraps(cluster)).to_str().unwrap();
            assert_eq!(servers.split(',').count(), brokers as usize, "{servers}");
            assert_eq!(rd_kafka_mock_topic_create(cluster, c"orders".as_ptr(), partitions, brokers), OK);
            Self { rk, cluster, servers: servers.to_owned() }
        }
    }

    pub(crate) fn client(&self, kind: rd_kafka_type_t, properties: &[(&str, &str)]) -> *mut rd_kafka_t {
        let mut all = vec![
            ("bootstrap.servers", self.servers.as_str()),
            ("group.id", "billing"),
            ("auto.offset.reset", "earliest"),
        ];
        all.extend(properties);
        new(kind, conf(&all))
    }

    /// Node, API and time of each request that was kept.
    fn requests(&self) -> Vec<(i32, i16, i64)> {
        unsafe {
            let mut count = 0;
            let all = rd_kafka_mock_get_requests(self.cluster, &raw mut count);
            let told = (0..count).map(|index| {
                let request = *all.add(index);
                (
                    rd_kafka_mock_request_id(request),
                    rd_kafka_mock_request_api_key(request),
                    rd_kafka_mock_request_timestamp(request),
                )
            });
            let told = told.collect();
            rd_kafka_mock_request_destroy_array(all, count);
            told
        }
    }

    /// The nodes that got requests of one API.
    pub(crate) fn nodes_asked(&self, api: i16) -> Vec<i32> {
        let mut nodes: Vec<_> =
            self.requests().into_iter().filter(|request| request.1 == api).map(|request| request.0).collect();
        nodes.dedup();
        nodes
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

/// The errors of delivery reports, by the opaque of the configuration.
unsafe extern "C" fn note(_rk: *mut rd_kafka_t, message: *const rd_kafka_message_t, opaque: *mut c_void) {
    let seen = unsafe { &*opaque.cast::<Mutex<Vec<rd_kafka_resp_err_t>>>() };
    seen.lock().unwrap().push(unsafe { (*message).err });
}

/// Produces one record and returns the error code of its report.
pub(crate) fn outcome(stage: &Stage, properties: &[(&str, &str)]) -> rd_kafka_resp_err_t {
    let seen: Mutex<Vec<rd_kafka_resp_err_t>> = Mutex::default();
    let mut all = vec![("bootstrap.servers", stage.servers.as_str())];
    all.extend(properties);
    let conf = conf(&all);
    unsafe {
        rd_kafka_conf_set_dr_msg_cb(conf, Some(note));
        rd_kafka_conf_set_opaque(conf, (&raw const seen).cast_mut().cast());
        let rk = new(RD_KAFKA_PRODUCER, conf);
        produce(rk, c"orders", 0, "one", null_mut());
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        rd_kafka_destroy(rk);
    }
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.len(), 1);
    seen[0]
}

fn in_flight(stage: &Stage) -> usize {
    let asked = stage.requests();
    asked.iter().filter(|request| request.1 == PRODUCE).count()
}

#[test]
fn pushed_errors_meet_the_next_requests_one_each() {
    let stage = Stage::of(1, 1);
    unsafe {
        rd_kafka_mock_start_request_tracking(stage.cluster);
        // Two that pass with time, one lost connection, and then it is taken.
        rd_kafka_mock_push_request_errors(
            stage.cluster,
            PRODUCE.into(),
            3,
            RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
            RD_KAFKA_RESP_ERR__TRANSPORT,
            RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        );
    }
    assert_eq!(outcome(&stage, &[("enable.idempotence", "true")]), OK);
    assert_eq!(in_flight(&stage), 4, "three that failed and one that did not");
    // One that is final reaches the application.
    let last = [RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED];
    unsafe { rd_kafka_mock_push_request_errors_array(stage.cluster, PRODUCE, 1, last.as_ptr()) };
    assert_eq!(outcome(&stage, &[]), RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
    // Cleared errors do not affect any request.
    unsafe {
        rd_kafka_mock_push_request_errors_array(stage.cluster, PRODUCE, 1, last.as_ptr());
        rd_kafka_mock_clear_request_errors(stage.cluster, PRODUCE);
        rd_kafka_mock_stop_request_tracking(stage.cluster);
        let before = stage.requests().len();
        assert_eq!(outcome(&stage, &[]), OK);
        assert_eq!(stage.requests().len(), before, "nothing is kept any more");
        rd_kafka_mock_clear_requests(stage.cluster);
        let mut count = 7;
        assert!(rd_kafka_mock_get_requests(stage.cluster, &raw mut count).is_null());
        assert_eq!(count, 0);
    }
}

#[test]
fn errors_of_one_broker_come_with_delays_and_are_counted() {
    let stage = Stage::of(2, 1);
    let mut left = 0;
    unsafe {
        let push = rd_kafka_mock_broker_push_request_error_rtts;
        let refused = RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS;
        assert_eq!(push(stage.cluster, 1, PRODUCE.into(), 2, refused, 0 as c_int, OK, 300 as c_int), OK);
        assert_eq!(
            push(stage.cluster, 7, PRODUCE.into(), 1, refused, 0 as c_int),
            RD_KAFKA_RESP_ERR__UNKNOWN_BROKER
        );
        assert_eq!(rd_kafka_mock_broker_error_stack_cnt(stage.cluster, 1, PRODUCE, &raw mut left), OK);
        assert_eq!(left, 2);
        // The errors of all brokers are cleared, and not those of one: as in the original.
        rd_kafka_mock_push_request_errors_array(stage.cluster, PRODUCE, 1, [refused].as_ptr());
        rd_kafka_mock_clear_request_errors(stage.cluster, PRODUCE);
        assert_eq!(rd_kafka_mock_broker_error_stack_cnt(stage.cluster, 1, PRODUCE, &raw mut left), OK);
        assert_eq!(left, 2);
    }
    let began = Instant::now();
    assert_eq!(outcome(&stage, &[]), OK);
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    unsafe { rd_kafka_mock_broker_error_stack_cnt(stage.cluster, 1, PRODUCE, &raw mut left) };
    assert_eq!(left, 0);
    // All responses of the broker are slow.
    unsafe { assert_eq!(rd_kafka_mock_broker_set_rtt(stage.cluster, -1, 100), OK) };
    let began = Instant::now();
    assert_eq!(outcome(&stage, &[]), OK);
    assert!(
        began.elapsed() >= Duration::from_millis(300),
        "versions, metadata, the record: {:?}",
        began.elapsed()
    );
}

#[test]
fn a_broker_that_is_down_stays_leader_and_is_found_again_when_it_is_up() {
    let stage = Stage::of(2, 2);
    unsafe {
        assert_eq!(rd_kafka_mock_broker_set_down(stage.cluster, 1), OK);
        assert_eq!(rd_kafka_mock_broker_set_down(stage.cluster, 9), RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE);
    }
    let servers =
        unsafe { CStr::from_ptr(rd_kafka_mock_cluster_bootstraps(stage.cluster)) }.to_str().unwrap();
    let first = servers.split(',').next().unwrap();
    let refused = TcpStream::connect(first).expect_err("it is down when the call returns");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(outcome(&stage, &[("message.timeout.ms", "1000")]), RD_KAFKA_RESP_ERR__MSG_TIMED_OUT);
    // The leader moves to the other broker, and the request succeeds.
    unsafe {
        assert_eq!(rd_kafka_mock_partition_set_leader(stage.cluster, c"orders".as_ptr(), 0, 2), OK);
        rd_kafka_mock_start_request_tracking(stage.cluster);
    }
    assert_eq!(outcome(&stage, &[]), OK);
    assert_eq!(stage.nodes_asked(PRODUCE), [2]);
    unsafe {
        assert_eq!(rd_kafka_mock_partition_set_leader(stage.cluster, c"orders".as_ptr(), 0, 1), OK);
        assert_eq!(rd_kafka_mock_broker_set_up(stage.cluster, -1), OK);
        rd_kafka_mock_clear_requests(stage.cluster);
    }
    assert_eq!(outcome(&stage, &[]), OK);
    assert_eq!(stage.nodes_asked(PRODUCE), [1]);
    let unknown = unsafe { rd_kafka_mock_partition_set_leader(stage.cluster, c"orders".as_ptr(), 5, 1) };
    assert_eq!(unknown, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
}

/// Leader, replicas and error of the first partition, and the topic's error.
pub(crate) fn described(
    rk: *mut rd_kafka_t,
    topic: &CStr,
) -> (Option<(i32, usize)>, rd_kafka_resp_err_t, i32, usize) {
    unsafe {
        let rkt = rdkafka::client::topic_handle::rd_kafka_topic_new(rk, topic.as_ptr(), null_mut());
        let mut metadata = null();
        assert_eq!(rd_kafka_metadata(rk, 0, rkt, &raw mut metadata, 30_000), OK);
        let told = &*(*metadata).topics;
        let first = (told.partition_cnt > 0).then(|| {
            let partition = &*told.partitions;
            (partition.leader, partition.replica_cnt as usize)
        });
        let told = (first, told.err, told.partition_cnt, (*metadata).broker_cnt as usize);
        rd_kafka_metadata_destroy(metadata);
        rdkafka::client::topic_handle::rd_kafka_topic_destroy(rkt);
        told
    }
}

#[test]
fn metadata_says_what_the_test_wants_it_to_say() {
    let stage = Stage::of(3, 2);
    let rk = stage.client(RD_KAFKA_CONSUMER, &[]);
    assert_eq!(described(rk, c"orders"), (Some((1, 3)), OK, 2, 3));
    unsafe {
        let create = rd_kafka_mock_topic_create(stage.cluster, c"orders".as_ptr(), 1, 1);
        assert_eq!(create, RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS);
        rd_kafka_mock_topic_set_error(
            stage.cluster,
            c"orders".as_ptr(),
            RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
        );
        assert_eq!(described(rk, c"orders").1, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
        rd_kafka_mock_topic_set_error(stage.cluster, c"orders".as_ptr(), OK);
        assert_eq!(described(rk, c"orders").1, OK);
        // A leader that is none, and then none at all.
        assert_eq!(
            rd_kafka_mock_partition_push_leader_response(stage.cluster, c"orders".as_ptr(), 0, 3, 9),
            OK
        );
        assert_eq!(described(rk, c"orders").0.unwrap().0, 3);
        assert_eq!(rd_kafka_mock_partition_set_leader(stage.cluster, c"orders".as_ptr(), 0, -1), OK);
        assert_eq!(described(rk, c"orders").0.unwrap().0, -1);
        // Brokers that are missing from metadata, or down.
        assert_eq!(rd_kafka_mock_broker_remove_from_metadata(stage.cluster, 3), OK);
        assert_eq!(described(rk, c"orders").3, 2);
        rd_kafka_mock_set_controller_id(stage.cluster, 2);
        // The controller is that of the last metadata, as brokers with KRaft name any.
        assert_ne!(rd_kafka_controllerid(rk, 30_000), 2);
        assert_eq!(described(rk, c"orders").3, 2);
        assert_eq!(rd_kafka_controllerid(rk, 30_000), 2);
        assert_eq!(rd_kafka_mock_broker_decommission(stage.cluster, 1), OK);
        assert_eq!(described(rk, c"orders").3, 1);
        // A topic that a call for a partition creates has the partitions up to that one.
        assert_eq!(rd_kafka_mock_partition_set_leader(stage.cluster, c"new".as_ptr(), 5, 2), OK);
        assert_eq!(described(rk, c"new").2, 6);
        assert_eq!(rd_kafka_mock_topic_delete(stage.cluster, c"new".as_ptr()), OK);
        let gone = rd_kafka_mock_topic_delete(stage.cluster, c"new".as_ptr());
        assert_eq!(gone, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn a_group_is_where_its_coordinator_is_and_waits_before_it_begins() {
    let stage = Stage::of(3, 1);
    assert_eq!(outcome(&stage, &[]), OK);
    unsafe {
        for node in 1..=3 {
            let group = c"group".as_ptr();
            assert_eq!(rd_kafka_mock_coordinator_set(stage.cluster, group, c"billing".as_ptr(), node), OK);
        }
        let kind = c"transaction".as_ptr();
        assert_eq!(rd_kafka_mock_coordinator_set(stage.cluster, kind, c"t".as_ptr(), 1), OK);
        rd_kafka_mock_group_initial_rebalance_delay_ms(stage.cluster, 400);
        rd_kafka_mock_start_request_tracking(stage.cluster);
        let rk = stage.client(RD_KAFKA_CONSUMER, &[]);
        subscribe(rk, c"orders");
        assert_eq!(read(rk, 1), ["one"]);
        assert_eq!(stage.nodes_asked(JOIN_GROUP), [3]);
        let requests = stage.requests();
        let first = |api| requests.iter().find(|request| request.1 == api).unwrap().2;
        let waited_us = first(SYNC_GROUP) - first(JOIN_GROUP);
        assert!(waited_us >= 400_000, "{waited_us} µs between joining and syncing");
        assert_eq!(rd_kafka_consumer_close(rk), OK);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn committed_offsets_have_the_epoch_of_the_leader() {
    let stage = Stage::of(3, 1);
    unsafe {
        for leader in [2, 3, 3] {
            assert_eq!(rd_kafka_mock_partition_set_leader(stage.cluster, c"orders".as_ptr(), 0, leader), OK);
        }
        let rk = stage.client(RD_KAFKA_CONSUMER, &[]);
        let offsets = rd_kafka_topic_partition_list_new(2);
        (*rd_kafka_topic_partition_list_add(offsets, c"orders".as_ptr(), 0)).offset = 5;
        assert_eq!(rd_kafka_commit(rk, offsets, 0), OK);
        assert_eq!(rd_kafka_committed(rk, offsets, 10_000), OK);
        let committed = (*offsets).elems;
        assert_eq!((*committed).offset, 5);
        assert_eq!(rd_kafka_topic_partition_get_leader_epoch(committed), 3, "an epoch for each call");
        rd_kafka_topic_partition_list_destroy(offsets);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn an_api_can_be_missing_and_records_can_be_gone() {
    let stage = Stage::of(1, 1);
    for _ in 0..3 {
        assert_eq!(outcome(&stage, &[]), OK);
    }
    let (mut low, mut high) = (-1, -1);
    unsafe {
        assert_eq!(rd_kafka_mock_partition_delete_records(stage.cluster, c"orders".as_ptr(), 0, 2), OK);
        // Neither is created.
        for (topic, partition) in [(c"none", 0), (c"orders", 9)] {
            let code = rd_kafka_mock_partition_delete_records(stage.cluster, topic.as_ptr(), partition, 1);
            assert_eq!(code, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, "{topic:?} {partition}");
        }
        let asked = |low, high| {
            let rk = stage.client(RD_KAFKA_CONSUMER, &[]);
            let asked = rd_kafka_query_watermark_offsets(rk, c"orders".as_ptr(), 0, low, high, 5_000);
            rd_kafka_destroy(rk);
            asked
        };
        assert_eq!((asked(&raw mut low, &raw mut high), low, high), (OK, 2, 3));
        assert_eq!(rd_kafka_mock_set_apiversion(stage.cluster, LIST_OFFSETS, -1, -1), OK);
        assert_eq!(asked(&raw mut low, &raw mut high), RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE);
        assert_eq!(rd_kafka_mock_set_apiversion(stage.cluster, LIST_OFFSETS, 1, 2), OK);
        assert_eq!(asked(&raw mut low, &raw mut high), OK);
    }
}

#[test]
fn a_client_starts_a_cluster_of_its_own_when_its_configuration_says_so() {
    unsafe {
        let plain = new(RD_KAFKA_PRODUCER, conf(&[]));
        assert!(rd_kafka_handle_mock_cluster(plain).is_null());
        rd_kafka_destroy(plain);
        // The mock cluster replaces the configured brokers, so that a program can be tested unchanged.
        let given = [
            ("test.mock.num.brokers", "3"),
            ("bootstrap.servers", "nowhere.invalid:9092"),
            ("security.protocol", "ssl"),
        ];
        let rk = new(RD_KAFKA_PRODUCER, conf(&given));
        let cluster = rd_kafka_handle_mock_cluster(rk);
        assert_eq!(rd_kafka_mock_cluster_handle(cluster), rk);
        produce(rk, c"orders", 2, "mine", null_mut());
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        let servers = CStr::from_ptr(rd_kafka_mock_cluster_bootstraps(cluster)).to_str().unwrap();
        let properties =
            [("bootstrap.servers", servers), ("group.id", "g"), ("auto.offset.reset", "earliest")];
        let consumer = new(RD_KAFKA_CONSUMER, conf(&properties));
        subscribe(consumer, c"orders");
        assert_eq!(read(consumer, 1), ["mine"]);
        rd_kafka_destroy(consumer);
        // It is the client's to destroy.
        rd_kafka_mock_cluster_destroy(cluster);
        produce(rk, c"orders", 1, "still there", null_mut());
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        rd_kafka_destroy(rk);
    }
}

/// The ids of the brokers that a client knows.
fn learned(rk: *mut rd_kafka_t) -> Vec<i32> {
    unsafe {
        let mut count = 0;
        let ids = rdkafka::client::control::rd_kafka_brokers_learned_ids(rk, &raw mut count);
        let learned = (0..count).map(|index| *ids.add(index)).collect();
        libc::free(ids.cast());
        learned
    }
}

#[test]
fn brokers_are_added_and_removed_and_clients_notice() {
    let stage = Stage::of(1, 2);
    unsafe {
        let add = |id| rd_kafka_mock_broker_add(stage.cluster, id);
        assert_eq!(add(1), RD_KAFKA_RESP_ERR__INVALID_ARG, "from the start");
        assert_eq!(add(5), OK);
        assert_eq!(add(5), RD_KAFKA_RESP_ERR__INVALID_ARG);
        assert_eq!(add(-5), RD_KAFKA_RESP_ERR__INVALID_ARG);
        let rk = stage.client(RD_KAFKA_PRODUCER, &[]);
        assert_eq!(described(rk, c"orders").3, 2);
        assert_eq!(learned(rk), [1, 5]);

        assert_eq!(rd_kafka_mock_broker_decommission(stage.cluster, 1), OK);
        let gone = rd_kafka_mock_broker_decommission(stage.cluster, 1);
        assert_eq!(gone, RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE);
        assert_eq!(described(rk, c"orders"), (Some((5, 1)), OK, 2, 1));
        assert_eq!(learned(rk), [5]);
        assert_eq!(add(1), OK);
        described(rk, c"orders");
        assert_eq!(learned(rk), [1, 5]);

        assert_eq!(rd_kafka_mock_broker_set_down(stage.cluster, 1), OK);
        assert_eq!(described(rk, c"orders").3, 1, "a broker that is down is not in metadata");
        assert_eq!(rd_kafka_mock_broker_set_up(stage.cluster, 1), OK);
        assert_eq!(described(rk, c"orders").3, 2);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn a_watermark_query_returns_that_the_leader_has_moved_once() {
    let stage = Stage::of(2, 1);
    unsafe {
        let lead = |node| rd_kafka_mock_partition_set_leader(stage.cluster, c"orders".as_ptr(), 0, node);
        assert_eq!(lead(1), OK);
        let rk = stage.client(RD_KAFKA_PRODUCER, &[]);
        let (mut low, mut high) = (-1, -1);
        let mut query = || {
            let topic = c"orders".as_ptr();
            rd_kafka_query_watermark_offsets(rk, topic, 0, &raw mut low, &raw mut high, 30_000)
        };
        assert_eq!(query(), OK);
        assert_eq!(lead(2), OK);
        assert_eq!(query(), RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION);
        assert_eq!(query(), OK);
        assert_eq!((low, high), (0, 0));
        rd_kafka_destroy(rk);
    }
}

/// librdkafka's test 0139 expects it: its mock cluster knows no timestamps.
#[test]
fn the_mock_cluster_finds_no_record_by_its_time() {
    let stage = Stage::of(1, 1);
    assert_eq!(outcome(&stage, &[]), OK);
    unsafe {
        let rk = stage.client(RD_KAFKA_PRODUCER, &[]);
        let times = rd_kafka_topic_partition_list_new(1);
        (*rd_kafka_topic_partition_list_add(times, c"orders".as_ptr(), 0)).offset = 1;
        assert_eq!(rd_kafka_offsets_for_times(rk, times, 30_000), OK);
        let found = &*(*times).elems;
        assert_eq!((found.err, found.offset), (OK, RD_KAFKA_OFFSET_END));
        rd_kafka_topic_partition_list_destroy(times);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn a_consumer_looks_up_its_coordinator_when_it_is_created() {
    let stage = Stage::of(1, 1);
    unsafe { rd_kafka_mock_start_request_tracking(stage.cluster) };
    let rk = stage.client(RD_KAFKA_CONSUMER, &[]);
    until("a lookup of the coordinator", || !stage.nodes_asked(FIND_COORDINATOR).is_empty());
    unsafe { rd_kafka_destroy(rk) };
}

/// Stores an offset with a leader's epoch, commits what is stored, and returns the committed offset.
fn commit_stored(rk: *mut rd_kafka_t, offset: i64, epoch: i32) -> i64 {
    unsafe {
        let offsets = rd_kafka_topic_partition_list_new(1);
        let entry = rd_kafka_topic_partition_list_add(offsets, c"orders".as_ptr(), 0);
        (*entry).offset = offset;
        rd_kafka_topic_partition_set_leader_epoch(entry, epoch);
        assert_eq!(rd_kafka_offsets_store(rk, offsets), OK);
        rd_kafka_commit(rk, null(), 0);
        assert_eq!(rd_kafka_committed(rk, offsets, 30_000), OK);
        let committed = (*(*offsets).elems).offset;
        rd_kafka_topic_partition_list_destroy(offsets);
        committed
    }
}

#[test]
fn the_offset_of_an_earlier_leader_is_not_committed() {
    let stage = Stage::of(2, 1);
    let properties = [("enable.auto.offset.store", "false"), ("enable.auto.commit", "false")];
    let rk = stage.client(RD_KAFKA_CONSUMER, &properties);
    let partitions = list(&[(c"orders", 0)]);
    unsafe {
        assert_eq!(rd_kafka_assign(rk, partitions), OK);
        rd_kafka_topic_partition_list_destroy(partitions);
        assert_eq!(commit_stored(rk, 6, 1), 6);
        assert_eq!(commit_stored(rk, 7, 0), 6, "epoch 0 came before epoch 1");
        assert_eq!(commit_stored(rk, 8, 1), 8);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn one_offset_can_be_stored_although_the_consumer_stores_offsets_itself() {
    let stage = Stage::of(1, 1);
    let rk = stage.client(RD_KAFKA_CONSUMER, &[]);
    let partitions = list(&[(c"orders", 0)]);
    unsafe {
        assert_eq!(rd_kafka_assign(rk, partitions), OK);
        let rkt = rdkafka::client::topic_handle::rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        assert_eq!(rd_kafka_offset_store(rkt, 0, -1), OK);
        assert_eq!(rd_kafka_offsets_store(rk, partitions), RD_KAFKA_RESP_ERR__INVALID_ARG);
        rdkafka::client::topic_handle::rd_kafka_topic_destroy(rkt);
        rd_kafka_topic_partition_list_destroy(partitions);
        rd_kafka_destroy(rk);
    }
}

/// librdkafka's test 0104.
#[test]
fn a_seek_with_an_epoch_that_ended_before_goes_to_its_end() {
    let stage = Stage::of(2, 1);
    unsafe {
        let leader = |node| rd_kafka_mock_partition_set_leader(stage.cluster, c"orders".as_ptr(), 0, node);
        for node in [1, 2] {
            assert_eq!(leader(node), OK);
            assert_eq!(outcome(&stage, &[]), OK);
        }
        let rk = stage.client(RD_KAFKA_CONSUMER, &[]);
        let partitions = list(&[(c"orders", 0)]);
        assert_eq!(rd_kafka_assign(rk, partitions), OK);
        assert_eq!(read(rk, 2).len(), 2);
        let place = (*partitions).elems;
        (*place).offset = 2;
        // The epoch of the first record: the first leader has written no other one.
        rd_kafka_topic_partition_set_leader_epoch(place, 1);
        assert!(rd_kafka_seek_partitions(rk, partitions, -1).is_null());
        assert_eq!(read(rk, 1).len(), 1, "the second record comes again");
        rd_kafka_topic_partition_list_destroy(partitions);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn a_topic_that_was_forbidden_is_allowed_again_when_metadata_has_come() {
    let stage = Stage::of(1, 1);
    let rk = stage.client(RD_KAFKA_PRODUCER, &[]);
    unsafe {
        let forbidden = RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
        rd_kafka_mock_push_request_errors(stage.cluster, c_int::from(PRODUCE), 1, forbidden);
        produce(rk, c"orders", 0, "refused", null_mut());
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        let rkt = rdkafka::client::topic_handle::rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        let value = c"value".as_ptr().cast_mut().cast();
        let send =
            || rdkafka::produce::producer::rd_kafka_produce(rkt, 0, 0, value, 5, null(), 0, null_mut());
        assert_eq!(send(), -1, "until metadata allows it");
        described(rk, c"orders");
        assert_eq!(send(), 0);
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        rdkafka::client::topic_handle::rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn clients_push_their_metrics_at_the_interval_of_the_mock_cluster_and_at_their_end() {
    let stage = Stage::of(1, 1);
    let mut metrics = [c"*".as_ptr().cast_mut()];
    unsafe {
        let set_metrics = rd_kafka_mock_telemetry_set_requested_metrics;
        assert_eq!(set_metrics(stage.cluster, metrics.as_mut_ptr(), metrics.len()), OK);
        assert_eq!(rd_kafka_mock_telemetry_set_push_interval(stage.cluster, 200), OK);
        assert_eq!(set_metrics(null_mut(), null_mut(), 0), RD_KAFKA_RESP_ERR__INVALID_ARG);
        rd_kafka_mock_start_request_tracking(stage.cluster);
    }
    let apis = || {
        let of_metrics = [GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY];
        let apis = stage.requests().into_iter().map(|request| request.1);
        apis.filter(|api| of_metrics.contains(api)).collect::<Vec<_>>()
    };
    let rk = stage.client(RD_KAFKA_PRODUCER, &[]);
    until("two pushes", || apis().len() >= 3);
    assert_eq!(apis()[..3], [GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY, PUSH_TELEMETRY]);
    // A changed subscription is asked for, and its interval applies.
    unsafe {
        assert_eq!(rd_kafka_mock_telemetry_set_push_interval(stage.cluster, 2000), OK);
        rd_kafka_mock_clear_requests(stage.cluster);
        rd_kafka_mock_push_request_errors(
            stage.cluster,
            PUSH_TELEMETRY.into(),
            1,
            RD_KAFKA_RESP_ERR_UNKNOWN_SUBSCRIPTION_ID,
        );
    }
    // The refused push, the question, and a push of the new subscription.
    until("a question and a push", || {
        let apis = apis();
        let from_question = apis.iter().skip_while(|api| **api != GET_TELEMETRY_SUBSCRIPTIONS);
        from_question.skip(1).any(|api| *api == PUSH_TELEMETRY)
    });
    let before = apis().len();
    unsafe { rd_kafka_destroy(rk) };
    assert!(apis()[before..].contains(&PUSH_TELEMETRY), "the end pushes at once");
    // A client that is not to push asks for nothing.
    unsafe { rd_kafka_mock_clear_requests(stage.cluster) };
    assert_eq!(outcome(&stage, &[("enable.metrics.push", "false")]), OK);
    assert_eq!(apis(), Vec::<i16>::new());
}
