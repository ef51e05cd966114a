//! Closes of consumers whose application gives its partitions up in another thread.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads and time")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(clippy::wildcard_imports, reason = "C's names")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ottla_broker::{ApiKey, Broker, BrokerThread, Fault};
use rdkafka::client::handle::*;
use rdkafka::client::topic_handle::*;
use rdkafka::conf::*;
use rdkafka::consume::group_consumer::*;
use rdkafka::consume::group_metadata::*;
use rdkafka::consume::leave_group::*;
use rdkafka::consume::offsets::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::flush::*;
use rdkafka::queue::poll::*;
use rdkafka::queue::queue_handle::*;
use rdkafka::queue::queue_poll::*;

use crate::common::{conf, list, new, produce, read, subscribe, until};

/// Longer than a close takes that does not wait.
const LATER: Duration = Duration::from_millis(300);

/// The steps of an application that gives its partitions up in another thread than the one that closes.
#[derive(Default)]
struct GivingUp {
    assigned: AtomicUsize,
    revoked: AtomicUsize,
    given_up: AtomicUsize,
}

unsafe extern "C" fn on_rebalance_elsewhere(
    rk: *mut rd_kafka_t,
    err: rd_kafka_resp_err_t,
    partitions: *mut rd_kafka_topic_partition_list_t,
    opaque: *mut c_void,
) {
    let steps = unsafe { &*opaque.cast::<GivingUp>() };
    if err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
        unsafe { rd_kafka_assign(rk, partitions) };
        steps.assigned.fetch_add(1, Ordering::SeqCst);
    } else {
        steps.revoked.fetch_add(1, Ordering::SeqCst);
    }
}

fn assigned(broker: &BrokerThread, steps: &GivingUp) -> *mut rd_kafka_t {
    let conf = conf(&[("bootstrap.servers", &broker.bootstrap_servers()), ("group.id", "billing")]);
    unsafe {
        rd_kafka_conf_set_rebalance_cb(conf, Some(on_rebalance_elsewhere));
        rd_kafka_conf_set_opaque(conf, std::ptr::from_ref(steps).cast_mut().cast());
    }
    let rk = new(RD_KAFKA_CONSUMER, conf);
    subscribe(rk, c"orders");
    poll_until(rk, || steps.assigned.load(Ordering::SeqCst) == 1);
    rk
}

fn poll_until(rk: *mut rd_kafka_t, is_there: impl Fn() -> bool) {
    until("the rebalance", || {
        let message = unsafe { rd_kafka_consumer_poll(rk, 20) };
        if !message.is_null() {
            unsafe { rd_kafka_message_destroy(message) };
        }
        is_there()
    });
}

/// Closes the consumer while another thread gives the partitions up, some time after it has seen their revocation.
fn close(rk: *mut rd_kafka_t, steps: &GivingUp) {
    let address = rk.addr();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until("the revocation", || steps.revoked.load(Ordering::SeqCst) > 0);
            std::thread::sleep(LATER);
            steps.given_up.fetch_add(1, Ordering::SeqCst);
            unsafe { rd_kafka_assign(address as *mut rd_kafka_t, std::ptr::null()) };
        });
        assert_eq!(unsafe { rd_kafka_consumer_close(rk) }, RD_KAFKA_RESP_ERR_NO_ERROR);
        assert_eq!(steps.given_up.load(Ordering::SeqCst), 1);
    });
    unsafe { rd_kafka_destroy(rk) };
    assert_eq!(steps.revoked.load(Ordering::SeqCst), 1, "revocations");
}

fn broker() -> BrokerThread {
    Broker::builder().memory().topic("orders", 2).spawn().expect("a broker in memory")
}

/// confluent-kafka-javascript runs JavaScript for it: the consumer was destroyed before, and the program crashed.
#[test]
fn a_close_waits_until_another_thread_has_given_up_the_partitions() {
    let (broker, steps) = (broker(), GivingUp::default());
    close(assigned(&broker, &steps), &steps);
}

/// The close revoked them again, and confluent-kafka-javascript crashed in that second call.
#[test]
fn a_close_does_not_revoke_again_what_an_unsubscribe_has_revoked() {
    for polls_before in [false, true] {
        let (broker, steps) = (broker(), GivingUp::default());
        let rk = assigned(&broker, &steps);
        assert_eq!(unsafe { rd_kafka_unsubscribe(rk) }, RD_KAFKA_RESP_ERR_NO_ERROR);
        if polls_before {
            poll_until(rk, || steps.revoked.load(Ordering::SeqCst) == 1);
        }
        close(rk, &steps);
    }
}

/// The results of two commits in the revocation of a close.
#[derive(Default)]
struct Commits {
    assigned: AtomicUsize,
    before: AtomicI32,
    after: AtomicI32,
}

unsafe extern "C" fn on_rebalance_with_commits(
    rk: *mut rd_kafka_t,
    err: rd_kafka_resp_err_t,
    partitions: *mut rd_kafka_topic_partition_list_t,
    opaque: *mut c_void,
) {
    let commits = unsafe { &*opaque.cast::<Commits>() };
    if err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
        unsafe { rd_kafka_assign(rk, partitions) };
        commits.assigned.fetch_add(1, Ordering::SeqCst);
        return;
    }
    let offsets = rd_kafka_topic_partition_list_new(1);
    unsafe { (*rd_kafka_topic_partition_list_add(offsets, c"orders".as_ptr(), 0)).offset = 1 };
    commits.before.store(unsafe { rd_kafka_commit(rk, offsets, 0) }, Ordering::SeqCst);
    unsafe { rd_kafka_assign(rk, std::ptr::null()) };
    commits.after.store(unsafe { rd_kafka_commit(rk, offsets, 0) }, Ordering::SeqCst);
    unsafe { rd_kafka_topic_partition_list_destroy(offsets) };
}

/// librdkafka's test 0118: a closing consumer without partitions is leaving its group.
#[test]
fn a_closing_consumer_commits_until_it_has_given_up_its_partitions() {
    let (broker, commits) = (broker(), Commits::default());
    let conf = conf(&[("bootstrap.servers", &broker.bootstrap_servers()), ("group.id", "billing")]);
    unsafe {
        rd_kafka_conf_set_rebalance_cb(conf, Some(on_rebalance_with_commits));
        rd_kafka_conf_set_opaque(conf, std::ptr::from_ref(&commits).cast_mut().cast());
    }
    let rk = new(RD_KAFKA_CONSUMER, conf);
    subscribe(rk, c"orders");
    poll_until(rk, || commits.assigned.load(Ordering::SeqCst) == 1);
    assert_eq!(unsafe { rd_kafka_consumer_close(rk) }, RD_KAFKA_RESP_ERR_NO_ERROR);
    unsafe { rd_kafka_destroy(rk) };
    assert_eq!(commits.before.load(Ordering::SeqCst), RD_KAFKA_RESP_ERR_NO_ERROR);
    assert_eq!(commits.after.load(Ordering::SeqCst), RD_KAFKA_RESP_ERR__DESTROY);
}

/// They had the results of a consumer that is in no group: the offsets were committed.
#[test]
fn the_functions_of_a_group_fail_after_the_close() {
    let broker = broker();
    let servers = broker.bootstrap_servers();
    let properties =
        [("bootstrap.servers", &*servers), ("group.id", "billing"), ("enable.auto.offset.store", "false")];
    let rk = new(RD_KAFKA_CONSUMER, conf(&properties));
    let (ended, partitions) = (RD_KAFKA_RESP_ERR__DESTROY, list(&[(c"orders", 0)]));
    unsafe {
        let orders = rd_kafka_topic_new(rk, c"orders".as_ptr(), std::ptr::null_mut());
        (*(*partitions).elems).offset = 1;
        assert_eq!(rd_kafka_assign(rk, partitions), RD_KAFKA_RESP_ERR_NO_ERROR);
        assert_eq!(rd_kafka_consumer_close(rk), RD_KAFKA_RESP_ERR_NO_ERROR);
        assert_eq!(rd_kafka_offsets_store(rk, partitions), RD_KAFKA_RESP_ERR__STATE);
        assert_eq!(rd_kafka_commit(rk, partitions, 0), ended);
        assert_eq!(rd_kafka_commit(rk, std::ptr::null(), 0), ended);
        assert_eq!(rd_kafka_commit(rk, partitions, 1), RD_KAFKA_RESP_ERR_NO_ERROR);
        assert_eq!(rd_kafka_committed(rk, partitions, 60_000), ended);
        assert!(rd_kafka_memberid(rk).is_null());
        assert!(rd_kafka_consumer_group_metadata(rk).is_null());
        rd_kafka_topic_partition_list_destroy(partitions);
        rd_kafka_topic_destroy(orders);
        rd_kafka_destroy(rk);
    }
    assert_eq!(broker.cluster().committed_offset("billing", "orders", 0), None);
}

/// A consumer of the group. Without its LeaveGroup, the coordinator keeps it for two minutes.
fn member(broker: &BrokerThread, set: impl FnOnce(*mut rd_kafka_conf_t)) -> *mut rd_kafka_t {
    let conf = conf(&[
        ("bootstrap.servers", &broker.bootstrap_servers()),
        ("group.id", "billing"),
        ("auto.offset.reset", "earliest"),
        ("auto.commit.interval.ms", "3600000"),
        ("heartbeat.interval.ms", "100"),
        ("session.timeout.ms", "120000"),
    ]);
    set(conf);
    let rk = new(RD_KAFKA_CONSUMER, conf);
    subscribe(rk, c"orders");
    rk
}

/// Polls until the consumer has both partitions, and destroys it.
fn end_with_all_partitions(rk: *mut rd_kafka_t) {
    poll_until(rk, || assigned_count(rk) == 2);
    unsafe { rd_kafka_destroy(rk) };
}

fn assigned_count(rk: *mut rd_kafka_t) -> c_int {
    let mut partitions = std::ptr::null_mut();
    assert_eq!(unsafe { rd_kafka_assignment(rk, &raw mut partitions) }, RD_KAFKA_RESP_ERR_NO_ERROR);
    let count = unsafe { (*partitions).cnt };
    unsafe { rd_kafka_topic_partition_list_destroy(partitions) };
    count
}

/// The end of the client cut the close off: the last commit and the LeaveGroup were lost.
#[test]
fn a_destroy_waits_for_the_close_that_a_queue_serves() {
    let broker = broker();
    let producer = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", &broker.bootstrap_servers())]));
    for _ in 0..5 {
        produce(producer, c"orders", 0, "value", std::ptr::null_mut());
    }
    assert_eq!(unsafe { rd_kafka_flush(producer, 60_000) }, RD_KAFKA_RESP_ERR_NO_ERROR);
    unsafe { rd_kafka_destroy(producer) };

    let rk = member(&broker, |_| {});
    assert_eq!(read(rk, 5).len(), 5);
    let cluster = broker.cluster();
    assert_eq!(cluster.requests(ApiKey::OffsetCommit), 0);
    cluster.intercept(ApiKey::OffsetCommit, None, 1, Fault::Delay(LATER));
    unsafe {
        let queue = rd_kafka_queue_new(rk);
        assert!(rd_kafka_consumer_close_queue(rk, queue).is_null());
        until("the commit", || cluster.requests(ApiKey::OffsetCommit) > 0);
        rd_kafka_queue_destroy(queue);
        rd_kafka_destroy(rk);
    }
    assert_eq!(cluster.committed_offset("billing", "orders", 0), Some(5));
    end_with_all_partitions(member(&broker, |_| {}));
}

/// The consumer left its group ten seconds after the call, and another member read records that the application still handled.
#[test]
fn a_close_through_a_queue_waits_for_an_application_that_handles_the_revocation() {
    let (broker, steps) = (broker(), GivingUp::default());
    let rk = assigned(&broker, &steps);
    unsafe {
        let queue = rd_kafka_queue_new(rk);
        assert!(rd_kafka_consumer_close_queue(rk, queue).is_null());
        until("the revocation", || {
            rd_kafka_queue_poll_callback(queue, 20);
            steps.revoked.load(Ordering::SeqCst) == 1
        });
        std::thread::sleep(Duration::from_millis(10_500));
        assert_eq!((rd_kafka_consumer_closed(rk), assigned_count(rk)), (0, 2));
        assert_eq!(rd_kafka_assign(rk, std::ptr::null()), RD_KAFKA_RESP_ERR_NO_ERROR);
        until("the close", || {
            rd_kafka_queue_poll_callback(queue, 20);
            rd_kafka_consumer_closed(rk) == 1
        });
        rd_kafka_queue_destroy(queue);
        rd_kafka_destroy(rk);
    }
    assert_eq!(steps.revoked.load(Ordering::SeqCst), 1, "revocations");
}

/// The rebalances of an application that destroys its consumer in a revocation, and gives nothing up before.
#[derive(Default)]
struct Destroying {
    assigned: AtomicUsize,
    revoked: AtomicUsize,
    destroyed_within_ms: AtomicU64,
}

impl Destroying {
    fn set(&self, conf: *mut rd_kafka_conf_t) {
        unsafe {
            rd_kafka_conf_set_rebalance_cb(conf, Some(on_rebalance_with_destroy));
            rd_kafka_conf_set_opaque(conf, std::ptr::from_ref(self).cast_mut().cast());
        }
    }
}

unsafe extern "C" fn on_rebalance_with_destroy(
    rk: *mut rd_kafka_t,
    err: rd_kafka_resp_err_t,
    partitions: *mut rd_kafka_topic_partition_list_t,
    opaque: *mut c_void,
) {
    let steps = unsafe { &*opaque.cast::<Destroying>() };
    if err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
        unsafe { rd_kafka_assign(rk, partitions) };
        steps.assigned.fetch_add(1, Ordering::SeqCst);
        return;
    }
    steps.revoked.fetch_add(1, Ordering::SeqCst);
    let begun = Instant::now();
    unsafe { rd_kafka_destroy(rk) };
    let took_ms = u64::try_from(begun.elapsed().as_millis()).expect("a short time");
    steps.destroyed_within_ms.fetch_max(took_ms, Ordering::SeqCst);
}

/// The client ended without a LeaveGroup: the close that runs the function was counted as done.
#[test]
fn a_destroy_in_the_revocation_of_a_close_leaves_the_group() {
    let (broker, steps) = (broker(), Destroying::default());
    let rk = member(&broker, |conf| steps.set(conf));
    poll_until(rk, || steps.assigned.load(Ordering::SeqCst) == 1);
    assert_eq!(unsafe { rd_kafka_consumer_close(rk) }, RD_KAFKA_RESP_ERR_NO_ERROR);
    assert_eq!(steps.revoked.load(Ordering::SeqCst), 1, "revocations");
    end_with_all_partitions(member(&broker, |_| {}));
}

/// The destroy waited ten seconds for the callback around it, and revoked the partitions again.
#[test]
fn a_destroy_in_a_revocation_does_not_wait_for_its_own_callback() {
    let (broker, steps) = (broker(), Destroying::default());
    let first = member(&broker, |conf| steps.set(conf));
    poll_until(first, || steps.assigned.load(Ordering::SeqCst) == 1);
    let second = member(&broker, |_| {});
    poll_until(first, || steps.revoked.load(Ordering::SeqCst) > 0);
    assert_eq!(steps.revoked.load(Ordering::SeqCst), 1, "revocations");
    let took_ms = steps.destroyed_within_ms.load(Ordering::SeqCst);
    assert!(took_ms < 10_000, "{took_ms} ms");
    end_with_all_partitions(second);
}
