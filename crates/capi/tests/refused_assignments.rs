//! Changes of an assignment that are refused. Bindings show the texts of the errors, and programs search them and the log.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use ottla_broker::Broker;
use rdkafka::client::handle::*;
use rdkafka::conf::*;
use rdkafka::consume::group_consumer::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::flush::*;
use rdkafka::queue::poll::*;

use crate::common::{conf, list, new, produce, read, subscribe, until};

const OK: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR;
const INVALID: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR__INVALID_ARG;

/// The code and the text of an error, which it destroys.
unsafe fn code_and_text(error: *mut rd_kafka_error_t) -> (rd_kafka_resp_err_t, String) {
    unsafe {
        let text = CStr::from_ptr(rd_kafka_error_string(error)).to_str().unwrap().to_owned();
        let both = (rd_kafka_error_code(error), text);
        rd_kafka_error_destroy(error);
        both
    }
}

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

unsafe extern "C" fn on_line(_: *const rd_kafka_t, _: c_int, facility: *const c_char, text: *const c_char) {
    let owned = |text: *const c_char| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    LINES.lock().unwrap().push(format!("{}: {}", owned(facility), owned(text)));
}

/// A partition that was in the list twice was assigned. An invalid offset had the text of its code.
#[test]
fn an_assignment_names_the_partition_that_is_twice_in_the_list_or_has_an_invalid_offset() {
    let conf = conf(&[("group.id", "billing")]);
    unsafe {
        rd_kafka_conf_set_log_cb(conf, Some(on_line));
        let rk = new(RD_KAFKA_CONSUMER, conf);
        for (entries, offset, reason) in [
            ([(c"orders", 1), (c"orders", 0), (c"orders", 1)], 0, "Duplicate orders [1] in input list"),
            ([(c"orders", 1), (c"orders", 0), (c"orders", 2)], -7, "orders [0] has invalid start offset -7"),
        ] {
            let partitions = list(&entries);
            (*(*partitions).elems.add(1)).offset = offset;
            let refused = code_and_text(rd_kafka_incremental_assign(rk, partitions));
            assert_eq!(refused, (INVALID, reason.to_owned()));
            assert_eq!(rd_kafka_assign(rk, partitions), INVALID, "{reason}");
            rd_kafka_topic_partition_list_destroy(partitions);
            let line = format!("Group \"billing\": application *assign() call failed: {reason}");
            until("the lines of both calls", || {
                LINES
                    .lock()
                    .unwrap()
                    .iter()
                    .filter(|it| it.starts_with("ASSIGN") && it.ends_with(&line))
                    .count()
                    == 2
            });
        }
        rd_kafka_destroy(rk);
    }
}

/// It was refused, as if there were a partition to remove.
#[test]
fn no_partition_may_be_removed_from_an_empty_assignment() {
    let rk = new(RD_KAFKA_CONSUMER, conf(&[("group.id", "billing")]));
    let none = list(&[]);
    unsafe {
        assert!(rd_kafka_incremental_unassign(rk, none).is_null());
        assert!(rd_kafka_incremental_assign(rk, none).is_null());
        assert_eq!(rd_kafka_assign(rk, none), OK);
        rd_kafka_topic_partition_list_destroy(none);
        rd_kafka_destroy(rk);
    }
}

/// Changes the assignment by the wrong function, keeps the error, and then changes it by the right one.
unsafe extern "C" fn on_rebalance(
    rk: *mut rd_kafka_t,
    err: rd_kafka_resp_err_t,
    partitions: *mut rd_kafka_topic_partition_list_t,
    opaque: *mut c_void,
) {
    unsafe {
        let assigns = err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        if assigns {
            let errors = &*opaque.cast::<Mutex<Vec<(rd_kafka_resp_err_t, String)>>>();
            errors.lock().unwrap().push(code_and_text(rd_kafka_incremental_assign(rk, partitions)));
        }
        assert_eq!(rd_kafka_assign(rk, if assigns { partitions.cast_const() } else { null() }), OK);
    }
}

/// It had the text of the code alone.
#[test]
fn an_incremental_change_of_an_eager_member_names_the_function_to_use() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let properties = [
        ("bootstrap.servers", servers.as_str()),
        ("group.id", "billing"),
        ("partition.assignment.strategy", "range"),
    ];
    let errors: Mutex<Vec<(rd_kafka_resp_err_t, String)>> = Mutex::default();
    let conf = conf(&properties);
    unsafe {
        rd_kafka_conf_set_opaque(conf, (&raw const errors).cast_mut().cast());
        rd_kafka_conf_set_rebalance_cb(conf, Some(on_rebalance));
        let rk = new(RD_KAFKA_CONSUMER, conf);
        subscribe(rk, c"orders");
        until("the assignment", || {
            let message = rd_kafka_consumer_poll(rk, 20);
            if !message.is_null() {
                rd_kafka_message_destroy(message);
            }
            !errors.lock().unwrap().is_empty()
        });
        rd_kafka_destroy(rk);
    }
    let text =
        "Changes to the current assignment must be made using assign() when rebalance protocol type is EAGER";
    assert_eq!(errors.into_inner().unwrap(), [(RD_KAFKA_RESP_ERR__STATE, text.to_owned())]);
}

/// A list with the default partition of a binding, -1, or with an empty name was refused.
#[test]
fn a_partition_that_cannot_exist_may_be_assigned_and_waits() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let producer = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", servers.as_str())]));
    produce(producer, c"orders", 0, "paid", null_mut());
    assert_eq!(unsafe { rd_kafka_flush(producer, 60_000) }, OK);
    let rk =
        new(RD_KAFKA_CONSUMER, conf(&[("bootstrap.servers", servers.as_str()), ("group.id", "billing")]));
    let places = [(c"", 0), (c"orders", -1), (c"orders", 0)];
    unsafe {
        let partitions = list(&places);
        for entry in (*partitions).elems_mut() {
            entry.offset = RD_KAFKA_OFFSET_BEGINNING;
        }
        assert_eq!(rd_kafka_assign(rk, partitions), OK);
        assert_eq!(read(rk, 1), ["paid"]);
        let mut assigned = null_mut();
        assert_eq!(rd_kafka_assignment(rk, &raw mut assigned), OK);
        for (topic, partition) in places {
            let found = rd_kafka_topic_partition_list_find(assigned, topic.as_ptr(), partition);
            assert!(!found.is_null(), "{topic:?} [{partition}]");
        }
        rd_kafka_topic_partition_list_destroy(assigned);
        assert!(rd_kafka_incremental_unassign(rk, partitions).is_null());
        rd_kafka_topic_partition_list_destroy(partitions);
        rd_kafka_destroy(rk);
        rd_kafka_destroy(producer);
    }
}
