//! Lists, headers, ids, errors and partitioners: values that C programs hold in their hands.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::wildcard_imports, reason = "C's names have a prefix of their own")]

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null, null_mut};

use rdkafka::client::thread_count::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::memory::*;
use rdkafka::ffi::version::*;
use rdkafka::ffi::*;
use rdkafka::messages::headers::*;
use rdkafka::messages::partition_list::*;
use rdkafka::messages::uuid::*;
use rdkafka::produce::partitioners::*;

fn list_of(parts: &[(&CStr, i32)]) -> *mut rd_kafka_topic_partition_list_t {
    let list = rd_kafka_topic_partition_list_new(0);
    for (topic, partition) in parts {
        // SAFETY: a list and a C string.
        let element = unsafe { rd_kafka_topic_partition_list_add(list, topic.as_ptr(), *partition) };
        assert!(!element.is_null());
    }
    list
}

fn parts(list: *const rd_kafka_topic_partition_list_t) -> Vec<(String, i32, i64)> {
    // SAFETY: a list.
    let elems = unsafe { (*list).elems() };
    elems.iter().map(|e| (e.topic().to_str().expect("UTF-8").to_owned(), e.partition, e.offset)).collect()
}

#[test]
fn a_list_grows_finds_sorts_and_deletes() {
    let list = list_of(&[(c"b", 1), (c"a", 2)]);
    // SAFETY: a list, C strings, and elements of it that are read before it changes.
    unsafe {
        rd_kafka_topic_partition_list_add_range(list, c"a".as_ptr(), 0, 1);
        assert_eq!((*list).cnt, 4);
        assert_eq!(rd_kafka_topic_partition_list_set_offset(list, c"a".as_ptr(), 1, 42), 0);
        let unknown = rd_kafka_topic_partition_list_set_offset(list, c"a".as_ptr(), 9, 42);
        assert_eq!(unknown, RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION);
        rd_kafka_topic_partition_list_sort(list, None, null_mut());
        let none = RD_KAFKA_OFFSET_INVALID;
        let sorted = [("a", 0, none), ("a", 1, 42), ("a", 2, none), ("b", 1, none)];
        assert_eq!(
            parts(list),
            sorted.map(|(topic, partition, offset)| (topic.to_owned(), partition, offset))
        );
        assert_eq!((*rd_kafka_topic_partition_list_find(list, c"a".as_ptr(), 1)).offset, 42);
        assert!(rd_kafka_topic_partition_list_find(list, c"c".as_ptr(), 1).is_null());
        assert_eq!(rd_kafka_topic_partition_list_del(list, c"a".as_ptr(), 1), 1);
        assert_eq!(rd_kafka_topic_partition_list_del(list, c"a".as_ptr(), 1), 0);
        assert_eq!(rd_kafka_topic_partition_list_del_by_idx(list, 0), 1);
        assert_eq!(rd_kafka_topic_partition_list_del_by_idx(list, 7), 0);
        assert_eq!(parts(list).len(), 2);
        for partition in 0..100 {
            rd_kafka_topic_partition_list_add(list, c"many".as_ptr(), partition);
        }
        assert_eq!(((*list).cnt, parts(list).len()), (102, 102));
        rd_kafka_topic_partition_list_destroy(list);
        rd_kafka_topic_partition_list_destroy(null_mut());
    }
}

#[test]
fn a_list_is_sorted_by_the_applications_function() {
    unsafe extern "C" fn downwards(a: *const c_void, b: *const c_void, calls: *mut c_void) -> c_int {
        // SAFETY: two elements and the opaque of the test.
        unsafe {
            *calls.cast::<u32>() += 1;
            let (a, b) = (&*a.cast::<rd_kafka_topic_partition_t>(), &*b.cast::<rd_kafka_topic_partition_t>());
            b.partition - a.partition
        }
    }
    let list = list_of(&[(c"t", 1), (c"t", 3), (c"t", 2)]);
    let mut calls = 0_u32;
    // SAFETY: a list, a function of the right type, and its opaque.
    unsafe {
        rd_kafka_topic_partition_list_sort(list, Some(downwards), (&raw mut calls).cast());
        assert_eq!(parts(list).iter().map(|part| part.1).collect::<Vec<_>>(), [3, 2, 1]);
        rd_kafka_topic_partition_list_destroy(list);
    }
    assert!(calls > 0);
}

#[test]
fn a_copy_of_a_list_has_its_own_memory() {
    let list = list_of(&[(c"t", 7)]);
    let mut opaque = 0;
    // SAFETY: lists and elements that live; metadata is C's memory, as the header says.
    unsafe {
        let element = &mut *(*list).elems;
        element.offset = 5;
        element.opaque = (&raw mut opaque).cast();
        element.err = RD_KAFKA_RESP_ERR__FAIL;
        element.metadata = libc::strdup(c"meta".as_ptr()).cast();
        element.metadata_size = 4;
        assert_eq!(rd_kafka_topic_partition_get_leader_epoch(element), -1);
        rd_kafka_topic_partition_set_leader_epoch(element, 9);
        let copy = rd_kafka_topic_partition_list_copy(list);
        rd_kafka_topic_partition_list_destroy(list);
        let element = &*(*copy).elems;
        assert_eq!((element.topic(), element.partition, element.offset), (c"t", 7, 5));
        assert_eq!((element.metadata(), element.err), (&b"meta"[..], RD_KAFKA_RESP_ERR__FAIL));
        assert_eq!(element.opaque, (&raw mut opaque).cast());
        assert_eq!(rd_kafka_topic_partition_get_leader_epoch(element), 9);
        rd_kafka_topic_partition_list_destroy(copy);
        rd_kafka_topic_partition_destroy(null_mut());
    }
}

#[test]
fn headers_keep_order_null_values_and_names_that_come_twice() {
    // SAFETY: headers that live, C strings, and places for what is read.
    unsafe {
        let headers = rd_kafka_headers_new(2);
        let add = |name: &CStr, size, value: *const c_void, value_size| {
            rd_kafka_header_add(headers, name.as_ptr(), size, value, value_size)
        };
        assert_eq!(add(c"a", -1, c"one".as_ptr().cast(), -1), 0);
        assert_eq!(add(c"bcd", 1, c"two".as_ptr().cast(), 2), 0);
        assert_eq!(add(c"a", -1, null(), 0), 0);
        assert_eq!(rd_kafka_header_cnt(headers), 3);
        let (mut name, mut value, mut size) = (null(), null(), 0);
        let mut at = |index| {
            let outcome =
                rd_kafka_header_get_all(headers, index, &raw mut name, &raw mut value, &raw mut size);
            (outcome == 0).then(|| {
                let bytes = (!value.is_null()).then(|| std::slice::from_raw_parts(value.cast::<u8>(), size));
                (CStr::from_ptr(name), bytes)
            })
        };
        assert_eq!(at(0), Some((c"a", Some(&b"one"[..]))));
        assert_eq!(at(1), Some((c"b", Some(&b"tw"[..]))));
        assert_eq!(at(2), Some((c"a", None)));
        assert_eq!(at(3), None);
        assert_eq!(rd_kafka_header_get_last(headers, c"a".as_ptr(), &raw mut value, &raw mut size), 0);
        assert!(value.is_null());
        assert_eq!(rd_kafka_header_get(headers, 0, c"a".as_ptr(), &raw mut value, &raw mut size), 0);
        assert_eq!(CStr::from_ptr(value.cast()), c"one", "a NUL follows");
        let second = rd_kafka_header_get(headers, 2, c"a".as_ptr(), &raw mut value, &raw mut size);
        assert_eq!(second, RD_KAFKA_RESP_ERR__NOENT);
        let copy = rd_kafka_headers_copy(headers);
        assert_eq!(rd_kafka_header_remove(headers, c"a".as_ptr()), 0);
        assert_eq!(rd_kafka_header_remove(headers, c"a".as_ptr()), RD_KAFKA_RESP_ERR__NOENT);
        assert_eq!((rd_kafka_header_cnt(headers), rd_kafka_header_cnt(copy)), (1, 3));
        rd_kafka_headers_destroy(headers);
        rd_kafka_headers_destroy(copy);
        rd_kafka_headers_destroy(null_mut());
    }
}

#[test]
fn an_id_has_two_halves_and_a_text() {
    // SAFETY: ids that live.
    unsafe {
        let id = rd_kafka_Uuid_new(0x1234_5678_9abc_def0, -5);
        let copy = rd_kafka_Uuid_copy(id);
        rd_kafka_Uuid_destroy(id);
        assert_eq!(rd_kafka_Uuid_most_significant_bits(copy), 0x1234_5678_9abc_def0);
        assert_eq!(rd_kafka_Uuid_least_significant_bits(copy), -5);
        assert_eq!(CStr::from_ptr(rd_kafka_Uuid_base64str(copy)), c"EjRWeJq83vD/////////+w");
        rd_kafka_Uuid_destroy(copy);
    }
}

#[test]
fn errors_have_the_names_and_words_that_programs_compare() {
    let text = |pointer| unsafe { CStr::from_ptr(pointer) }.to_str().expect("UTF-8").to_owned();
    assert_eq!(text(rd_kafka_err2name(RD_KAFKA_RESP_ERR__QUEUE_FULL)), "_QUEUE_FULL");
    assert_eq!(text(rd_kafka_err2str(RD_KAFKA_RESP_ERR__QUEUE_FULL)), "Local: Queue full");
    assert_eq!(text(rd_kafka_err2str(RD_KAFKA_RESP_ERR_NOT_COORDINATOR)), "Broker: Not coordinator");
    assert_eq!(
        (text(rd_kafka_err2name(999)), text(rd_kafka_err2str(-999))),
        ("ERR_999?".into(), "Err--999?".into())
    );
    let (mut table, mut count) = (null(), 0);
    // SAFETY: places for the table and its length, and the table itself.
    unsafe {
        rd_kafka_get_err_descs(&raw mut table, &raw mut count);
        let table = std::slice::from_raw_parts(table, count);
        let named: Vec<_> = table.iter().filter(|entry| !entry.desc.is_null()).collect();
        assert!(named.len() > 150, "{}", named.len());
        for entry in named {
            assert_eq!(text(entry.name), text(rd_kafka_err2name(entry.code)));
            assert_eq!(text(entry.desc), text(rd_kafka_err2str(entry.code)));
        }
    }
    assert_eq!(rd_kafka_errno2err(libc::ENOBUFS), RD_KAFKA_RESP_ERR__QUEUE_FULL);
    assert_eq!(rd_kafka_errno2err(libc::EIO), RD_KAFKA_RESP_ERR__FAIL);
    set_last_error_and_errno(RD_KAFKA_RESP_ERR__QUEUE_FULL, libc::ENOBUFS);
    assert_eq!((rd_kafka_errno(), rd_kafka_last_error()), (libc::ENOBUFS, RD_KAFKA_RESP_ERR__QUEUE_FULL));
    let elsewhere = std::thread::spawn(|| rd_kafka_last_error()).join().expect("no panic");
    assert_eq!(elsewhere, RD_KAFKA_RESP_ERR_NO_ERROR, "each thread has its own");
}

#[test]
fn an_error_says_what_the_application_can_still_do() {
    let error = rd_kafka_error_t::new(RD_KAFKA_RESP_ERR__FENCED, "taken over")
        .fatal(true)
        .retriable(false)
        .into_raw();
    // SAFETY: an error that lives, then NULL.
    unsafe {
        assert_eq!(
            (rd_kafka_error_code(error), rd_kafka_error_is_fatal(error)),
            (RD_KAFKA_RESP_ERR__FENCED, 1)
        );
        assert_eq!((rd_kafka_error_is_retriable(error), rd_kafka_error_txn_requires_abort(error)), (0, 0));
        assert_eq!(CStr::from_ptr(rd_kafka_error_string(error)), c"taken over");
        assert_eq!(CStr::from_ptr(rd_kafka_error_name(error)), c"_FENCED");
        rd_kafka_error_destroy(error);
        assert_eq!((rd_kafka_error_code(null()), CStr::from_ptr(rd_kafka_error_string(null()))), (0, c""));
    }
}

#[test]
fn partitioners_give_librdkafkas_partitions() {
    type PartitionerFn = unsafe extern "C" fn(
        *const rd_kafka_topic_t,
        *const c_void,
        usize,
        i32,
        *mut c_void,
        *mut c_void,
    ) -> i32;
    let choose = |partitioner: PartitionerFn, key: Option<&[u8]>, count| {
        let (pointer, length) = key.map_or((null(), 0), |key| (key.as_ptr().cast(), key.len()));
        // SAFETY: a key of that length.
        unsafe { partitioner(null(), pointer, length, count, null_mut(), null_mut()) }
    };
    // As librdkafka 2.16 answers.
    for (partitioner, of_abc, of_hello) in PARTITIONS {
        assert_eq!(choose(*partitioner, Some(b"abc"), 10), *of_abc);
        assert_eq!(choose(*partitioner, Some(b"hello world"), 10), *of_hello);
        assert_eq!(choose(*partitioner, Some(b"abc"), 0), RD_KAFKA_PARTITION_UA, "there is none to choose");
    }
    let random: Vec<_> = (0..200).map(|_| choose(rd_kafka_msg_partitioner_random, None, 4)).collect();
    for partition in 0..4 {
        assert!(random.contains(&partition), "{partition} never came");
    }

    const PARTITIONS: &[(PartitionerFn, i32, i32)] = &[
        (rd_kafka_msg_partitioner_consistent, 8, 7),
        (rd_kafka_msg_partitioner_consistent_random, 8, 7),
        (rd_kafka_msg_partitioner_murmur2, MURMUR2.0, MURMUR2.1),
        (rd_kafka_msg_partitioner_murmur2_random, MURMUR2.0, MURMUR2.1),
        (rd_kafka_msg_partitioner_fnv1a, FNV1A.0, FNV1A.1),
        (rd_kafka_msg_partitioner_fnv1a_random, FNV1A.0, FNV1A.1),
    ];
    const MURMUR2: (i32, i32) = (7, 9);
    const FNV1A: (i32, i32) = (1, 9);
}

#[test]
fn memory_and_threads_are_counted_on() {
    // SAFETY: memory of the library, freed once.
    unsafe {
        let memory = rd_kafka_mem_calloc(null_mut(), 4, 8).cast::<u64>();
        assert_eq!(std::slice::from_raw_parts(memory, 4), [0; 4]);
        rd_kafka_mem_free(null_mut(), memory.cast());
        rd_kafka_mem_free(null_mut(), rd_kafka_mem_malloc(null_mut(), 1));
    }
    let before = rd_kafka_thread_cnt();
    let counted = Counted::new();
    assert_eq!(rd_kafka_thread_cnt(), before + 1);
    drop(counted);
    assert_eq!((rd_kafka_thread_cnt(), rd_kafka_unittest()), (before, 0));
}

#[test]
fn the_version_is_new_enough_for_the_bindings() {
    assert!(rd_kafka_version() >= 0x020f_00ff);
    // SAFETY: constants.
    unsafe { assert_eq!(CStr::from_ptr(rd_kafka_version_str()), c"2.16.0") };
}
