//! Results of commits: the queue that they are in, and the entries that they list. Offsets of positions and times.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::time::Duration;

use ottla_broker::{ApiKey, Broker, BrokerThread, ErrorCode, Fault};
use rdkafka::client::handle::*;
use rdkafka::conf::callbacks::*;
use rdkafka::conf::*;
use rdkafka::consume::group_consumer::*;
use rdkafka::consume::leave_group::*;
use rdkafka::consume::offsets::*;
use rdkafka::ffi::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::flush::*;
use rdkafka::queue::event::*;
use rdkafka::queue::poll::*;
use rdkafka::queue::queue_handle::*;
use rdkafka::queue::queue_poll::*;

use crate::common::{Lines, conf, list, log_to, new, produce, read, subscribe, until};

const OK: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR;

/// The entries of the results that the commit function got: partition, offset and error.
type Seen = Mutex<Vec<Entries>>;
type Entries = Vec<(i32, i64, rd_kafka_resp_err_t)>;

unsafe extern "C" fn on_commit(
    _: *mut rd_kafka_t,
    _: rd_kafka_resp_err_t,
    offsets: *mut rd_kafka_topic_partition_list_t,
    opaque: *mut c_void,
) {
    let seen = unsafe { &*opaque.cast::<Seen>() };
    seen.lock().unwrap().push(unsafe { entries_of(offsets) });
}

unsafe fn entries_of(offsets: *const rd_kafka_topic_partition_list_t) -> Entries {
    unsafe { (*offsets).elems() }.iter().map(|entry| (entry.partition, entry.offset, entry.err)).collect()
}

fn broker() -> BrokerThread {
    Broker::builder().memory().topic("orders", 3).spawn().unwrap()
}

fn consumer(
    broker: &BrokerThread,
    more: &[(&str, &str)],
    set: impl FnOnce(*mut rd_kafka_conf_t),
) -> *mut rd_kafka_t {
    let servers = broker.bootstrap_servers();
    let mut properties = vec![("bootstrap.servers", servers.as_str()), ("group.id", "g")];
    properties.extend(more);
    let conf = conf(&properties);
    set(conf);
    new(RD_KAFKA_CONSUMER, conf)
}

fn opaque(seen: &Seen) -> *mut c_void {
    std::ptr::from_ref(seen).cast_mut().cast()
}

fn with_function(seen: &Seen) -> impl FnOnce(*mut rd_kafka_conf_t) {
    move |conf| unsafe {
        rd_kafka_conf_set_opaque(conf, opaque(seen));
        rd_kafka_conf_set_offset_commit_cb(conf, Some(on_commit));
    }
}

/// A list of partitions of one topic with offsets.
fn offsets(topic: &CStr, offsets: &[(i32, i64)]) -> *mut rd_kafka_topic_partition_list_t {
    let made = list(&[]);
    for (partition, offset) in offsets {
        unsafe { (*rd_kafka_topic_partition_list_add(made, topic.as_ptr(), *partition)).offset = *offset };
    }
    made
}

#[test]
fn the_mask_of_events_does_not_ask_for_results_of_manual_commits() {
    let broker = broker();
    let rk = consumer(&broker, &[], |conf| unsafe {
        rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_OFFSET_COMMIT);
    });
    unsafe {
        let (main, own) = (rd_kafka_queue_get_main(rk), rd_kafka_queue_get_consumer(rk));
        let offsets = offsets(c"orders", &[(0, 7)]);
        assert_eq!(rd_kafka_commit(rk, offsets, 0), OK);
        for queue in [main, own] {
            assert!(rd_kafka_queue_poll(queue, 100).is_null());
            rd_kafka_queue_destroy(queue);
        }
        rd_kafka_topic_partition_list_destroy(offsets);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn results_of_commits_are_in_the_main_queue() {
    let broker = broker();
    let seen = Seen::default();
    let rk = consumer(&broker, &[], with_function(&seen));
    unsafe {
        let offsets = offsets(c"orders", &[(0, 7)]);
        assert_eq!(rd_kafka_commit(rk, offsets, 0), OK);
        assert!(rd_kafka_consumer_poll(rk, 100).is_null());
        assert!(seen.lock().unwrap().is_empty());
        until("the result", || {
            rd_kafka_poll(rk, 10);
            !seen.lock().unwrap().is_empty()
        });
        rd_kafka_topic_partition_list_destroy(offsets);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn a_polled_queue_has_an_event_for_a_commit_with_its_own_function() {
    let broker = broker();
    let seen = Seen::default();
    let rk = consumer(&broker, &[], |_| ());
    unsafe {
        let queue = rd_kafka_queue_new(rk);
        let offsets = offsets(c"orders", &[(0, 7)]);
        assert_eq!(rd_kafka_commit_queue(rk, offsets, queue, Some(on_commit), opaque(&seen)), OK);
        let event = rd_kafka_queue_poll(queue, 60_000);
        assert_eq!(rd_kafka_event_type(event), RD_KAFKA_EVENT_OFFSET_COMMIT);
        assert_eq!((rd_kafka_event_error(event), rd_kafka_event_opaque(event)), (OK, opaque(&seen)));
        assert_eq!(entries_of(rd_kafka_event_topic_partition_list(event)), [(0, 7, OK)]);
        assert!(seen.lock().unwrap().is_empty(), "the function was not called");
        rd_kafka_event_destroy(event);
        rd_kafka_queue_destroy(queue);
        rd_kafka_topic_partition_list_destroy(offsets);
        rd_kafka_destroy(rk);
    }
}

/// The event had the opaque of the configuration, whose function was not called.
#[test]
fn a_commit_without_its_own_function_keeps_its_opaque_and_calls_that_of_the_configuration() {
    let broker = broker();
    let (seen, own) = (Seen::default(), Seen::default());
    let rk = consumer(&broker, &[], with_function(&seen));
    unsafe {
        let offsets = offsets(c"orders", &[(0, 7)]);
        let queue = rd_kafka_queue_new(rk);
        assert_eq!(rd_kafka_commit_queue(rk, offsets, queue, None, opaque(&own)), OK);
        let event = rd_kafka_queue_poll(queue, 60_000);
        assert_eq!(rd_kafka_event_type(event), RD_KAFKA_EVENT_OFFSET_COMMIT);
        assert_eq!((rd_kafka_event_error(event), rd_kafka_event_opaque(event)), (OK, opaque(&own)));
        rd_kafka_event_destroy(event);
        rd_kafka_queue_destroy(queue);
        until("the call of the configuration's function", || {
            rd_kafka_poll(rk, 10);
            !seen.lock().unwrap().is_empty()
        });
        assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), [[(0, 7, OK)]]);
        assert!(own.lock().unwrap().is_empty());

        // Without a queue the call returns the result; the function runs in the next poll.
        assert_eq!(rd_kafka_commit_queue(rk, offsets, null_mut(), None, opaque(&own)), OK);
        assert!(seen.lock().unwrap().is_empty(), "the function was called inside the commit");
        until("the call of the configuration's function", || {
            rd_kafka_poll(rk, 10);
            !seen.lock().unwrap().is_empty()
        });
        assert_eq!(*seen.lock().unwrap(), [[(0, 7, OK)]]);
        rd_kafka_topic_partition_list_destroy(offsets);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn results_list_all_entries_and_the_whole_assignment() {
    let broker = broker();
    let seen = Seen::default();
    let properties = [("enable.auto.commit", "false"), ("enable.auto.offset.store", "false")];
    let rk = consumer(&broker, &properties, with_function(&seen));
    let none = RD_KAFKA_OFFSET_INVALID;
    let result = || {
        until("the result", || unsafe {
            rd_kafka_poll(rk, 10);
            !seen.lock().unwrap().is_empty()
        });
        seen.lock().unwrap().remove(0)
    };
    unsafe {
        let given = offsets(c"orders", &[(2, none), (0, 7)]);
        assert_eq!(rd_kafka_commit(rk, given, 1), OK);
        assert_eq!(result(), [(2, none, OK), (0, 7, OK)]);
        rd_kafka_topic_partition_list_destroy(given);

        let all = offsets(c"orders", &[(0, 0), (1, 0)]);
        assert_eq!(rd_kafka_assign(rk, all), OK);
        rd_kafka_topic_partition_list_destroy(all);
        assert_eq!(rd_kafka_commit(rk, null_mut(), 0), RD_KAFKA_RESP_ERR__NO_OFFSET);
        assert_eq!(result(), [(0, none, OK), (1, none, OK)]);
        let stored = offsets(c"orders", &[(1, 3)]);
        assert_eq!(rd_kafka_offsets_store(rk, stored), OK);
        assert_eq!(rd_kafka_commit(rk, null_mut(), 0), OK);
        assert_eq!(result(), [(0, none, OK), (1, 3, OK)]);
        rd_kafka_topic_partition_list_destroy(stored);
        rd_kafka_destroy(rk);
    }
}

/// They were stored beside the consumer's own if it had no group or no automatic commits.
#[test]
fn a_consumer_that_stores_offsets_itself_takes_no_list_of_them() {
    for properties in [&[("group.id", "g"), ("enable.auto.commit", "false")][..], &[]] {
        let rk = new(RD_KAFKA_CONSUMER, conf(properties));
        unsafe {
            let entries = offsets(c"orders", &[(0, 7)]);
            assert_eq!(rd_kafka_offsets_store(rk, entries), RD_KAFKA_RESP_ERR__INVALID_ARG, "{properties:?}");
            rd_kafka_topic_partition_list_destroy(entries);
            rd_kafka_destroy(rk);
        }
    }
}

#[test]
fn a_member_commits_offsets_of_partitions_that_it_does_not_own() {
    let broker = Broker::builder().memory().topic("orders", 1).topic("other", 1).spawn().unwrap();
    let rk = consumer(&broker, &[], |_| ());
    subscribe(rk, c"orders");
    unsafe {
        until("it is a member", || {
            assert!(rd_kafka_consumer_poll(rk, 10).is_null());
            let mut assigned = null_mut();
            assert_eq!(rd_kafka_assignment(rk, &raw mut assigned), OK);
            let count = (*assigned).cnt;
            rd_kafka_topic_partition_list_destroy(assigned);
            count == 1
        });
        let other = offsets(c"other", &[(0, 7)]);
        assert_eq!(rd_kafka_commit(rk, other, 0), OK);
        assert_eq!(rd_kafka_committed(rk, other, 60_000), OK);
        assert_eq!(entries_of(other), [(0, 7, OK)]);
        rd_kafka_topic_partition_list_destroy(other);
        rd_kafka_destroy(rk);
    }
}

/// The epoch of an earlier answer stayed in the list. A commit or a seek with it found the log truncated, and records came
/// again.
#[test]
fn a_position_has_the_epoch_of_its_record_and_not_that_of_an_earlier_answer() {
    let broker = broker();
    let servers = broker.bootstrap_servers();
    let rk = consumer(&broker, &[("auto.offset.reset", "earliest")], |_| ());
    unsafe {
        let producer = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", servers.as_str())]));
        produce(producer, c"orders", 0, "paid", null_mut());
        assert_eq!(rd_kafka_flush(producer, 60_000), OK);
        rd_kafka_destroy(producer);

        let entries = list(&[(c"orders", 0), (c"orders", 1)]);
        let places = std::slice::from_raw_parts_mut((*entries).elems, 2);
        let stale = |places: &mut [rd_kafka_topic_partition_t], offset| {
            for place in places {
                place.offset = offset;
                rd_kafka_topic_partition_set_leader_epoch(place, 7);
            }
        };
        let results = |places: &[rd_kafka_topic_partition_t]| {
            let result = |place: &rd_kafka_topic_partition_t| {
                (place.err, place.offset, rd_kafka_topic_partition_get_leader_epoch(place))
            };
            places.iter().map(result).collect::<Vec<_>>()
        };
        assert_eq!(rd_kafka_assign(rk, entries), OK);
        assert_eq!(read(rk, 1), ["paid"]);
        stale(places, 0);
        assert_eq!(rd_kafka_position(rk, entries), OK);
        assert_eq!(results(places), [(OK, 1, 0), (OK, RD_KAFKA_OFFSET_INVALID, -1)]);
        // As timestamps.
        stale(places, 0);
        assert_eq!(rd_kafka_offsets_for_times(rk, entries, 60_000), OK);
        assert_eq!(results(places), [(OK, 0, 0), (OK, RD_KAFKA_OFFSET_END, -1)]);
        rd_kafka_topic_partition_list_destroy(entries);
        rd_kafka_destroy(rk);
    }
}

/// It had no error.
#[test]
fn offsets_for_no_times_are_an_invalid_argument() {
    let rk = new(RD_KAFKA_CONSUMER, conf(&[]));
    let none = list(&[]);
    unsafe {
        assert_eq!(rd_kafka_offsets_for_times(rk, none, 1000), RD_KAFKA_RESP_ERR__INVALID_ARG);
        rd_kafka_topic_partition_list_destroy(none);
        rd_kafka_destroy(rk);
    }
}

/// The close committed -1001: the group read everything again, or nothing of what came in between.
#[test]
fn a_stored_position_before_the_first_message_leaves_the_committed_offset() {
    let broker = broker();
    let servers = broker.bootstrap_servers();
    unsafe {
        let producer = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", servers.as_str())]));
        for _ in 0..5 {
            produce(producer, c"orders", 0, "paid", null_mut());
        }
        assert_eq!(rd_kafka_flush(producer, 60_000), OK);
        rd_kafka_destroy(producer);

        let rk = consumer(&broker, &[("enable.auto.offset.store", "false")], |_| ());
        let entries = offsets(c"orders", &[(0, 5)]);
        assert_eq!(rd_kafka_commit(rk, entries, 0), OK);
        assert_eq!(rd_kafka_assign(rk, entries), OK);
        assert_eq!(rd_kafka_position(rk, entries), OK);
        assert_eq!(entries_of(entries), [(0, RD_KAFKA_OFFSET_INVALID, OK)]);
        assert_eq!(rd_kafka_offsets_store(rk, entries), OK);
        assert_eq!(rd_kafka_consumer_close(rk), OK);
        rd_kafka_destroy(rk);

        let second = consumer(&broker, &[], |_| ());
        assert_eq!(rd_kafka_committed(second, entries, 60_000), OK);
        assert_eq!(entries_of(entries), [(0, 5, OK)]);
        rd_kafka_topic_partition_list_destroy(entries);
        rd_kafka_destroy(second);
    }
}

/// The call succeeded, and only the entry of the missing topic had an error: a program that looked at the result alone lost it.
#[test]
fn a_commit_of_several_partitions_fails_if_one_is_refused() {
    let broker = broker();
    let rk = consumer(&broker, &[], |_| ());
    let missing = RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    unsafe {
        let both = offsets(c"orders", &[(0, 7)]);
        (*rd_kafka_topic_partition_list_add(both, c"unknown".as_ptr(), 0)).offset = 3;
        let queue = rd_kafka_queue_new(rk);
        assert_eq!(rd_kafka_commit_queue(rk, both, queue, None, null_mut()), OK);
        let event = rd_kafka_queue_poll(queue, 60_000);
        assert_eq!(rd_kafka_event_error(event), missing);
        let refused = [(0, 7, missing), (0, 3, missing)];
        assert_eq!(entries_of(rd_kafka_event_topic_partition_list(event)), refused);
        rd_kafka_event_destroy(event);
        assert_eq!(broker.cluster().committed_offset("g", "orders", 0), Some(7));
        (*(*both).elems).offset = 8;
        assert_eq!(rd_kafka_commit(rk, both, 0), missing);
        assert_eq!(broker.cluster().committed_offset("g", "orders", 0), Some(8));
        // An entry without an offset is not sent, and has no error: it had that of the refused one.
        (*rd_kafka_topic_partition_list_add(both, c"orders".as_ptr(), 1)).offset = RD_KAFKA_OFFSET_INVALID;
        assert_eq!(rd_kafka_commit_queue(rk, both, queue, None, null_mut()), OK);
        let event = rd_kafka_queue_poll(queue, 60_000);
        let refused = [(0, 8, missing), (0, 3, missing), (1, RD_KAFKA_OFFSET_INVALID, OK)];
        assert_eq!(entries_of(rd_kafka_event_topic_partition_list(event)), refused);
        rd_kafka_event_destroy(event);
        rd_kafka_queue_destroy(queue);
        // A commit without any success fails.
        let one = offsets(c"unknown", &[(0, 3)]);
        assert_eq!(rd_kafka_commit(rk, one, 0), missing);
        for entries in [both, one] {
            rd_kafka_topic_partition_list_destroy(entries);
        }
        rd_kafka_destroy(rk);
    }
}

/// The close committed the lower offset, and the group read the records once more.
#[test]
fn a_backward_seek_does_not_lower_the_committed_offset() {
    let broker = broker();
    let servers = broker.bootstrap_servers();
    let rk = consumer(&broker, &[("auto.commit.interval.ms", "3600000")], |_| ());
    let committed = || broker.cluster().committed_offset("g", "orders", 0);
    unsafe {
        let producer = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", servers.as_str())]));
        for value in ["0", "1", "2", "3", "4"] {
            produce(producer, c"orders", 0, value, null_mut());
        }
        assert_eq!(rd_kafka_flush(producer, 60_000), OK);

        let entries = offsets(c"orders", &[(0, 0)]);
        assert_eq!(rd_kafka_assign(rk, entries), OK);
        assert_eq!(read(rk, 5).len(), 5);
        assert_eq!(rd_kafka_commit(rk, null_mut(), 0), OK);
        assert_eq!(committed(), Some(5));
        assert!(rd_kafka_seek_partitions(rk, entries, 60_000).is_null());
        assert_eq!(read(rk, 2), ["0", "1"]);
        assert_eq!(rd_kafka_commit(rk, null_mut(), 0), RD_KAFKA_RESP_ERR__NO_OFFSET);
        // Later offsets are committed again.
        produce(producer, c"orders", 0, "5", null_mut());
        assert_eq!(rd_kafka_flush(producer, 60_000), OK);
        rd_kafka_destroy(producer);
        assert_eq!(read(rk, 4), ["2", "3", "4", "5"]);
        assert_eq!(rd_kafka_commit(rk, null_mut(), 0), OK);
        assert_eq!(committed(), Some(6));
        assert!(rd_kafka_seek_partitions(rk, entries, 60_000).is_null());
        assert_eq!(read(rk, 2), ["0", "1"]);
        rd_kafka_topic_partition_list_destroy(entries);
        assert_eq!(rd_kafka_consumer_close(rk), OK);
        rd_kafka_destroy(rk);
    }
    assert_eq!(committed(), Some(6));
}

/// It failed after `socket.timeout.ms`, although the caller had more time.
#[test]
fn committed_offsets_are_requested_again_while_the_caller_waits() {
    let broker = broker();
    let rk = consumer(&broker, &[("socket.timeout.ms", "2000")], |_| ());
    unsafe {
        let entries = offsets(c"orders", &[(0, 7)]);
        assert_eq!(rd_kafka_commit(rk, entries, 0), OK);
        broker.cluster().intercept(ApiKey::OffsetFetch, None, 1, Fault::Delay(Duration::from_secs(4)));
        (*(*entries).elems).offset = 0;
        assert_eq!(rd_kafka_committed(rk, entries, 60_000), OK);
        assert_eq!(entries_of(entries), [(0, 7, OK)]);
        rd_kafka_topic_partition_list_destroy(entries);
        rd_kafka_destroy(rk);
    }
}

/// They were lost, also those of commits that the application had requested right before: a failed last commit was not seen.
#[test]
fn a_close_passes_the_results_of_the_last_commits_to_the_function() {
    let broker = broker();
    let servers = broker.bootstrap_servers();
    unsafe {
        let producer = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", servers.as_str())]));
        produce(producer, c"orders", 0, "paid", null_mut());
        assert_eq!(rd_kafka_flush(producer, 60_000), OK);
        rd_kafka_destroy(producer);
        for (group, forwards, closes) in
            [("closed", true, true), ("destroyed", true, false), ("apart", false, true)]
        {
            let seen = Seen::default();
            let properties = [("group.id", group), ("auto.commit.interval.ms", "3600000")];
            let rk = consumer(&broker, &properties, with_function(&seen));
            if forwards {
                assert_eq!(rd_kafka_poll_set_consumer(rk), OK);
            }
            let entries = offsets(c"orders", &[(0, 0)]);
            assert_eq!(rd_kafka_assign(rk, entries), OK);
            assert_eq!(read(rk, 1), ["paid"]);
            let entry = &mut *(*entries).elems;
            (entry.partition, entry.offset) = (1, 7);
            assert_eq!(rd_kafka_commit(rk, entries, 1), OK);
            rd_kafka_topic_partition_list_destroy(entries);
            if closes {
                assert_eq!(rd_kafka_consumer_close(rk), OK);
            }
            if !forwards {
                assert!(seen.lock().unwrap().is_empty(), "the main queue is the application's to poll");
                assert_eq!(rd_kafka_poll(rk, 0), 2);
            }
            rd_kafka_destroy(rk);
            assert_eq!(broker.cluster().committed_offset(group, "orders", 0), Some(1));
            let mut results = seen.lock().unwrap().clone();
            results.sort();
            assert_eq!(results, [[(0, 1, OK)], [(1, 7, OK)]], "{group}");
        }
    }
}

/// The application did not learn of it: the group read the records again after the next rebalance.
#[test]
fn the_log_has_a_failed_commit_that_no_function_gets() {
    let broker = broker();
    let servers = broker.bootstrap_servers();
    let lines = Lines::default();
    let has = |parts: [&str; 2]| {
        let is_it = |line: &String| parts.iter().all(|part| line.contains(part));
        lines.lock().unwrap().iter().filter(|line| line.starts_with("4 COMMITFAIL ")).any(is_it)
    };
    unsafe {
        let producer = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", servers.as_str())]));
        produce(producer, c"orders", 0, "paid", null_mut());
        assert_eq!(rd_kafka_flush(producer, 60_000), OK);
        rd_kafka_destroy(producer);

        let rk = consumer(&broker, &[("auto.commit.interval.ms", "100")], |conf| log_to(conf, &lines));
        let unknown = offsets(c"unknown", &[(0, 3)]);
        assert_eq!(rd_kafka_commit(rk, unknown, 1), OK);
        let reason = "unknown[0]@3(Broker: Unknown topic or partition)";
        until("the requested commit", || {
            has(["Offset commit (manual) failed for 1/1 partition(s): Broker: Unknown topic", reason])
        });
        rd_kafka_topic_partition_list_destroy(unknown);

        let refusal = Fault::Fail(ErrorCode::GroupAuthorizationFailed);
        broker.cluster().intercept(ApiKey::OffsetCommit, None, 1, refusal);
        let assigned = offsets(c"orders", &[(0, 0)]);
        assert_eq!(rd_kafka_assign(rk, assigned), OK);
        rd_kafka_topic_partition_list_destroy(assigned);
        assert_eq!(read(rk, 1), ["paid"]);
        let reason = "orders[0]@1(Broker: Group authorization failed)";
        until("the automatic commit", || has(["Offset commit (auto commit) failed for 1/1", reason]));
        rd_kafka_destroy(rk);
    }
}
