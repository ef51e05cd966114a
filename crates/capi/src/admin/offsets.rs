//! Partitions of which records are deleted, offsets listed or leaders elected.

use std::ptr::{null, null_mut};

use ottla_client::{DeleteBefore, Election, FoundOffset, KeyedResults, OffsetAt, TopicPartition};

use super::checks::all_different;
use super::macros::{destroyers, readers};
use super::{Array, List, code_of, error_object, error_pointer};
use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::messages::list_conversion;

/// Up to where records are deleted.
pub struct rd_kafka_DeleteRecords_t(List);

impl rd_kafka_DeleteRecords_t {
    /// An offset that is none is refused by the broker, for its partition only.
    pub(super) fn before(&self) -> Vec<(TopicPartition, DeleteBefore)> {
        let before = |element: &rd_kafka_topic_partition_t| match element.offset {
            RD_KAFKA_OFFSET_END => DeleteBefore::End,
            offset => DeleteBefore::Offset(offset),
        };
        self.0.elems().iter().map(|element| (list_conversion::at(element), before(element))).collect()
    }
}

/// The list of an answer: the first offset that is left of each partition.
pub(super) fn deleted(answers: KeyedResults<TopicPartition, i64>) -> List {
    let mut list = List::default();
    for (at, answer) in answers {
        let err = code_of(&answer);
        list.add_with(&at, answer.unwrap_or(RD_KAFKA_OFFSET_INVALID), err);
    }
    list
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_DeleteRecords_new(
    before_offsets: *const rd_kafka_topic_partition_list_t,
) -> *mut rd_kafka_DeleteRecords_t {
    // SAFETY: `before_offsets` is NULL or a list of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_DeleteRecords_new`).
    let before = unsafe { List::copy_of(before_offsets) };
    Box::into_raw(Box::new(rd_kafka_DeleteRecords_t(before)))
}

/// Which partitions are to have leaders elected.
pub struct rd_kafka_ElectLeaders_t {
    kind: rd_kafka_ElectionType_t,
    partitions: Option<List>,
}

impl rd_kafka_ElectLeaders_t {
    pub(super) fn election(&self) -> Result<(Election, Option<Vec<TopicPartition>>), String> {
        let election = match self.kind {
            RD_KAFKA_ELECTION_TYPE_PREFERRED => Election::Preferred,
            RD_KAFKA_ELECTION_TYPE_UNCLEAN => Election::Unclean,
            other => return Err(format!("election_type: {other} is no kind of election")),
        };
        Ok((election, self.partitions.as_ref().map(List::partitions)))
    }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_ElectLeaders_new(
    election_type: rd_kafka_ElectionType_t,
    partitions: *mut rd_kafka_topic_partition_list_t,
) -> *mut rd_kafka_ElectLeaders_t {
    // SAFETY: `partitions` is NULL or a list of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_ElectLeaders_new`).
    let partitions = (!partitions.is_null()).then(|| unsafe { List::copy_of(partitions) });
    Box::into_raw(Box::new(rd_kafka_ElectLeaders_t { kind: election_type, partitions }))
}

/// The result for one partition.
pub struct rd_kafka_topic_partition_result_t {
    list: List,
    error: Box<rd_kafka_error_t>,
}

pub(super) fn elected(answers: KeyedResults<TopicPartition, ()>) -> Array<rd_kafka_topic_partition_result_t> {
    let result = |(at, answer): (TopicPartition, Result<(), ottla_client::Error>)| {
        let mut list = List::default();
        list.add_with(&at, 0, code_of(&answer));
        let none = || rd_kafka_error_t::new(RD_KAFKA_RESP_ERR_NO_ERROR, "");
        let error = answer.err().as_ref().map_or_else(none, error_object);
        rd_kafka_topic_partition_result_t { list, error }
    };
    Array::new(answers.into_iter().map(result).collect())
}

/// An offset that was found.
pub struct rd_kafka_ListOffsetsResultInfo_t {
    list: List,
    timestamp: i64,
}

pub(super) fn found(
    answers: KeyedResults<TopicPartition, FoundOffset>,
) -> Array<rd_kafka_ListOffsetsResultInfo_t> {
    let result = |(at, answer): (TopicPartition, Result<FoundOffset, ottla_client::Error>)| {
        let mut list = List::default();
        let err = code_of(&answer);
        let found = answer.ok();
        if let Some(element) = list.add(&at) {
            element.err = err;
            if let Some(found) = found {
                element.offset = found.offset;
                element.private_mut().leader_epoch = found.leader_epoch.unwrap_or(-1);
            }
        }
        rd_kafka_ListOffsetsResultInfo_t { list, timestamp: found.map_or(-1, |found| found.timestamp_ms) }
    };
    Array::new(answers.into_iter().map(result).collect())
}

/// The offsets that a list requests: its entries are timestamps or logical offsets. Programs compare the texts of the errors.
pub(super) fn wanted(list: &List) -> Result<Vec<(TopicPartition, OffsetAt)>, String> {
    const EARLIEST: i64 = RD_KAFKA_OFFSET_SPEC_EARLIEST as i64;
    const LATEST: i64 = RD_KAFKA_OFFSET_SPEC_LATEST as i64;
    const MAX_TIMESTAMP: i64 = RD_KAFKA_OFFSET_SPEC_MAX_TIMESTAMP as i64;
    for (index, element) in list.elems().iter().enumerate() {
        if element.topic().is_empty() {
            return Err(format!("Partition topic name at index {index} must be non-empty"));
        }
        if element.partition < 0 {
            return Err(format!("Partition at index {index} cannot be negative"));
        }
    }
    all_different(list.partitions().iter(), "Partitions must not contain duplicates")?;
    let wanted = |(index, element): (usize, &rd_kafka_topic_partition_t)| {
        let offset = match element.offset {
            EARLIEST => OffsetAt::Earliest,
            LATEST => OffsetAt::Latest,
            MAX_TIMESTAMP => OffsetAt::MaxTimestamp,
            timestamp @ 0.. => OffsetAt::Timestamp(timestamp),
            other => return Err(format!("Partition {index} has an invalid offset {other}")),
        };
        Ok((list_conversion::at(element), offset))
    };
    list.elems().iter().enumerate().map(wanted).collect()
}

/// The only element of a list, for C.
fn only(list: &List) -> *const rd_kafka_topic_partition_t {
    list.elems().first().map_or(null(), std::ptr::from_ref)
}

readers! {
    rd_kafka_topic_partition_result_partition(rd_kafka_topic_partition_result_t) -> *const rd_kafka_topic_partition_t
        [null()] |result| only(&result.list);
    rd_kafka_topic_partition_result_error(rd_kafka_topic_partition_result_t) -> *const rd_kafka_error_t
        [null()] |result| error_pointer(Some(&result.error));
    rd_kafka_ListOffsetsResultInfo_topic_partition(rd_kafka_ListOffsetsResultInfo_t) -> *const rd_kafka_topic_partition_t
        [null()] |info| only(&info.list);
    rd_kafka_ListOffsetsResultInfo_timestamp(rd_kafka_ListOffsetsResultInfo_t) -> i64 [-1] |info| info.timestamp;
}

destroyers! {
    rd_kafka_DeleteRecords_destroy, rd_kafka_DeleteRecords_destroy_array (rd_kafka_DeleteRecords_t);
    rd_kafka_ElectLeaders_destroy (rd_kafka_ElectLeaders_t);
}
