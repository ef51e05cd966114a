//! Topics to be created, grown and deleted, and what became of each.

use std::borrow::Cow;
use std::ffi::{CString, c_char, c_int};
use std::ptr::{null, null_mut};

use ottla_client::{KeyedResults, NewPartitions, NewTopic};

use super::macros::{destroyers, readers};
use super::{Array, code, words};
use crate::errors::error_object::description;
use crate::ffi::c_strings::{c_string, text, write_errstr};
use crate::ffi::panic::on_panic;
use crate::ffi::*;

/// librdkafka's limit.
const PARTITIONS_MAX: usize = 100_000;
const BROKERS_MAX: c_int = 10_000;

pub struct rd_kafka_NewTopic_t(pub(super) NewTopic);
pub struct rd_kafka_DeleteTopic_t(pub(super) String);
pub struct rd_kafka_NewPartitions_t(pub(super) NewPartitions);

/// The result for one topic.
pub struct rd_kafka_topic_result_t {
    name: CString,
    err: rd_kafka_resp_err_t,
    text: Option<CString>,
}

/// One result for each topic.
pub(super) fn topic_results<V>(answers: KeyedResults<String, V>) -> Array<rd_kafka_topic_result_t> {
    let result = |(name, answer): (String, Result<V, ottla_client::Error>)| {
        let error = answer.err();
        rd_kafka_topic_result_t {
            name: c_string(&name),
            err: error.as_ref().map_or(RD_KAFKA_RESP_ERR_NO_ERROR, code),
            text: error.map(|error| c_string(&words(&error))),
        }
    };
    Array::new(answers.into_iter().map(result).collect())
}

readers! {
    rd_kafka_topic_result_error(rd_kafka_topic_result_t) -> rd_kafka_resp_err_t [RD_KAFKA_RESP_ERR_NO_ERROR] |topic| topic.err;
    rd_kafka_topic_result_error_string(rd_kafka_topic_result_t) -> *const c_char [null()] |topic| match &topic.text {
        Some(text) if !text.is_empty() => text.as_ptr(),
        Some(_) => description(topic.err).as_ptr(),
        None => null(),
    };
    rd_kafka_topic_result_name(rd_kafka_topic_result_t) -> *const c_char [null()] |topic| topic.name.as_ptr();
}

destroyers! {
    rd_kafka_NewTopic_destroy, rd_kafka_NewTopic_destroy_array (rd_kafka_NewTopic_t);
    rd_kafka_DeleteTopic_destroy, rd_kafka_DeleteTopic_destroy_array (rd_kafka_DeleteTopic_t);
    rd_kafka_NewPartitions_destroy, rd_kafka_NewPartitions_destroy_array (rd_kafka_NewPartitions_t);
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_NewTopic_new(
    topic: *const c_char,
    num_partitions: c_int,
    replication_factor: c_int,
    errstr: *mut c_char,
    errstr_size: usize,
) -> *mut rd_kafka_NewTopic_t {
    // SAFETY: `topic` is NULL or a C string (rdkafka.h, `rd_kafka_NewTopic_new`).
    match new_topic(unsafe { text(topic) }.as_deref(), num_partitions, replication_factor) {
        Ok(topic) => Box::into_raw(Box::new(rd_kafka_NewTopic_t(topic))),
        Err(reason) => {
            // SAFETY: `errstr` is NULL or a buffer of `errstr_size` bytes (rdkafka.h, `rd_kafka_NewTopic_new`).
            unsafe { write_errstr(errstr, errstr_size, &reason) };
            null_mut()
        }
    }
}

/// Programs compare the texts of the refusals.
fn new_topic(topic: Option<&str>, partitions: c_int, replication: c_int) -> Result<NewTopic, String> {
    let topic = topic.ok_or("Invalid topic name")?;
    let partitions_max = PARTITIONS_MAX as c_int;
    if !(-1..=partitions_max).contains(&partitions) {
        return Err(format!(
            "num_partitions out of expected range 1..{partitions_max} or -1 for broker default"
        ));
    }
    let factor =
        i16::try_from(replication).ok().filter(|factor| (-1..=BROKERS_MAX).contains(&(*factor).into()));
    let factor =
        factor.ok_or_else(|| format!("replication_factor out of expected range -1..{BROKERS_MAX}"))?;
    let mut topic = NewTopic::new(topic);
    topic.partitions = (partitions >= 0).then_some(partitions);
    topic.replication = (factor >= 0).then_some(factor);
    Ok(topic)
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_NewTopic_set_config(
    new_topic: *mut rd_kafka_NewTopic_t,
    name: *const c_char,
    value: *const c_char,
) -> rd_kafka_resp_err_t {
    // SAFETY: `new_topic` is NULL or a `rd_kafka_NewTopic_t` of this library, not yet destroyed; `name` and `value`
    // are each NULL or a C string (rdkafka.h, `rd_kafka_NewTopic_set_config`).
    let (Some(topic), Some(name), value) = (unsafe { (new_topic.as_mut(), text(name), text(value)) }) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    // As in the original, the broker decides about a setting without a value.
    topic.0.configs.push((name.into_owned(), value.map(Cow::into_owned)));
    RD_KAFKA_RESP_ERR_NO_ERROR
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_NewTopic_set_replica_assignment(
    new_topic: *mut rd_kafka_NewTopic_t,
    partition: i32,
    broker_ids: *mut i32,
    broker_id_cnt: usize,
    errstr: *mut c_char,
    errstr_size: usize,
) -> rd_kafka_resp_err_t {
    // SAFETY: `new_topic` is NULL or a `rd_kafka_NewTopic_t` of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_NewTopic_set_replica_assignment`).
    let Some(rd_kafka_NewTopic_t(topic)) = (unsafe { new_topic.as_mut() }) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    let limit = topic.partitions.map_or(PARTITIONS_MAX, |count| count as usize);
    let assigned = if topic.replication.is_some() {
        Err("Specifying a replication factor and a replica assignment are mutually exclusive".into())
    } else if topic.partitions.is_none() {
        Err("Specifying a default partition count and a replica assignment are mutually exclusive".into())
    } else {
        // SAFETY: `broker_ids` points to `broker_id_cnt` numbers (rdkafka.h,
        // `rd_kafka_NewTopic_set_replica_assignment`).
        unsafe { assign(&mut topic.assignments, (partition, "partition"), limit, broker_ids, broker_id_cnt) }
    };
    // SAFETY: `errstr` is NULL or a buffer of `errstr_size` bytes (rdkafka.h,
    // `rd_kafka_NewTopic_set_replica_assignment`).
    unsafe { answered(assigned, errstr, errstr_size) }
}

/// Adds the brokers of a partition, for which the original's text has the word `word`.
///
/// # Safety
/// `brokers` has `count` numbers, or is NULL.
unsafe fn assign(
    assignments: &mut Vec<Vec<i32>>,
    (partition, word): (i32, &str),
    limit: usize,
    brokers: *const i32,
    count: usize,
) -> Result<(), String> {
    let expected = assignments.len();
    if usize::try_from(partition) != Ok(expected) {
        return Err(format!(
            "Partitions must be added in order, starting at 0: expecting {word} {expected}, not {partition}"
        ));
    }
    if expected >= limit {
        return Err(format!("partition {partition} is one too many: there are {limit}"));
    }
    if count > BROKERS_MAX as usize {
        return Err(format!("Too many brokers specified (RD_KAFKAP_BROKERS_MAX={BROKERS_MAX})"));
    }
    let brokers = if brokers.is_null() {
        Vec::new()
    } else {
        // SAFETY: `brokers` points to `count` numbers (the contract of this function, above).
        unsafe { std::slice::from_raw_parts(brokers, count) }.to_vec()
    };
    assignments.push(brokers);
    Ok(())
}

/// # Safety
/// `errstr` is NULL or has `size` bytes.
unsafe fn answered(result: Result<(), String>, errstr: *mut c_char, size: usize) -> rd_kafka_resp_err_t {
    let Err(reason) = result else { return RD_KAFKA_RESP_ERR_NO_ERROR };
    // SAFETY: `errstr` is NULL or a buffer of `size` bytes (the contract of this function, above).
    unsafe { write_errstr(errstr, size, &reason) };
    RD_KAFKA_RESP_ERR__INVALID_ARG
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_DeleteTopic_new(topic: *const c_char) -> *mut rd_kafka_DeleteTopic_t {
    // SAFETY: `topic` is NULL or a C string (rdkafka.h, `rd_kafka_DeleteTopic_new`).
    let name = unsafe { text(topic) };
    name.map_or(null_mut(), |name| Box::into_raw(Box::new(rd_kafka_DeleteTopic_t(name.into_owned()))))
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_NewPartitions_new(
    topic: *const c_char,
    new_total_cnt: usize,
    errstr: *mut c_char,
    errstr_size: usize,
) -> *mut rd_kafka_NewPartitions_t {
    // SAFETY: `topic` is NULL or a C string (rdkafka.h, `rd_kafka_NewPartitions_new`).
    let topic = unsafe { text(topic) };
    let reason = match (&topic, i32::try_from(new_total_cnt)) {
        (Some(topic), Ok(total)) if (1..=PARTITIONS_MAX).contains(&new_total_cnt) => {
            let partitions = NewPartitions::new(topic.as_ref(), total);
            return Box::into_raw(Box::new(rd_kafka_NewPartitions_t(partitions)));
        }
        (None, _) => "Invalid topic name".to_owned(),
        (Some(_), _) => format!("new_total_cnt out of expected range 1..{PARTITIONS_MAX}"),
    };
    // SAFETY: `errstr` is NULL or a buffer of `errstr_size` bytes (rdkafka.h, `rd_kafka_NewPartitions_new`).
    unsafe { write_errstr(errstr, errstr_size, &reason) };
    null_mut()
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_NewPartitions_set_replica_assignment(
    new_parts: *mut rd_kafka_NewPartitions_t,
    new_partition_idx: i32,
    broker_ids: *mut i32,
    broker_id_cnt: usize,
    errstr: *mut c_char,
    errstr_size: usize,
) -> rd_kafka_resp_err_t {
    // SAFETY: `new_parts` is NULL or a `rd_kafka_NewPartitions_t` of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_NewPartitions_set_replica_assignment`).
    let Some(rd_kafka_NewPartitions_t(partitions)) = (unsafe { new_parts.as_mut() }) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    let limit = partitions.total as usize;
    // SAFETY: `broker_ids` points to `broker_id_cnt` numbers; `errstr` is NULL or a buffer of `errstr_size` bytes
    // (rdkafka.h, `rd_kafka_NewPartitions_set_replica_assignment`).
    unsafe {
        let index = (new_partition_idx, "partition index");
        let assigned = assign(&mut partitions.assignments, index, limit, broker_ids, broker_id_cnt);
        answered(assigned, errstr, errstr_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_are_named_in_turn_and_instead_of_a_factor() {
        // SAFETY: valid pointers; what is made is destroyed.
        unsafe {
            let with_factor = rd_kafka_NewTopic_new(c"t".as_ptr(), 2, 1, null_mut(), 0);
            let assign = |topic, partition, mut brokers: [i32; 2]| {
                let brokers = brokers.as_mut_ptr();
                rd_kafka_NewTopic_set_replica_assignment(topic, partition, brokers, 2, null_mut(), 0)
            };
            assert_eq!(assign(with_factor, 0, [1, 2]), RD_KAFKA_RESP_ERR__INVALID_ARG);
            let topic = rd_kafka_NewTopic_new(c"t".as_ptr(), 2, -1, null_mut(), 0);
            assert_eq!(assign(topic, 1, [1, 2]), RD_KAFKA_RESP_ERR__INVALID_ARG);
            assert_eq!((assign(topic, 0, [1, 2]), assign(topic, 1, [2, 1])), (0, 0));
            assert_eq!(assign(topic, 2, [1, 2]), RD_KAFKA_RESP_ERR__INVALID_ARG, "it has two");
            assert_eq!((*topic).0.assignments, [[1, 2], [2, 1]]);
            rd_kafka_NewTopic_destroy_array([with_factor, topic].as_mut_ptr(), 2);
            rd_kafka_NewTopic_destroy(null_mut());
        }
    }

    #[test]
    fn numbers_that_nobody_has_are_refused() {
        for (partitions, replication, fits) in [
            (1, 1, true),
            (0, 0, true),
            (-1, -1, true),
            (-2, 1, false),
            (100_001, 1, false),
            (1, 10_001, false),
        ] {
            assert_eq!(new_topic(Some("t"), partitions, replication).is_ok(), fits);
        }
        assert!(new_topic(None, 1, 1).is_err());
    }
}
