//! Results, read out of events.

use std::ffi::c_char;
use std::ptr::{null, null_mut};

use super::groups::Listings;
use super::layout::{Cluster, operations};
use super::{Array, DefaultPointer, List, optional};
use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::queue::event::{Event, event};

/// The event as a result, if it is one of that kind.
macro_rules! results {
    ($($name:ident: $kind:ident;)*) => {$(
        #[on_panic(null())]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(rkev: *mut rd_kafka_event_t) -> *const rd_kafka_event_t {
            // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h, every function of
            // this macro).
            let outcome = unsafe { event(rkev, FUNCTION) }.and_then(Event::outcome);
            if outcome.is_some_and(|outcome| outcome.kind == $kind) { rkev } else { null() }
        }
    )*};
}

results! {
    rd_kafka_event_CreateTopics_result: RD_KAFKA_EVENT_CREATETOPICS_RESULT;
    rd_kafka_event_DeleteTopics_result: RD_KAFKA_EVENT_DELETETOPICS_RESULT;
    rd_kafka_event_CreatePartitions_result: RD_KAFKA_EVENT_CREATEPARTITIONS_RESULT;
    rd_kafka_event_AlterConfigs_result: RD_KAFKA_EVENT_ALTERCONFIGS_RESULT;
    rd_kafka_event_IncrementalAlterConfigs_result: RD_KAFKA_EVENT_INCREMENTALALTERCONFIGS_RESULT;
    rd_kafka_event_DescribeConfigs_result: RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT;
    rd_kafka_event_DeleteRecords_result: RD_KAFKA_EVENT_DELETERECORDS_RESULT;
    rd_kafka_event_ListConsumerGroups_result: RD_KAFKA_EVENT_LISTCONSUMERGROUPS_RESULT;
    rd_kafka_event_DescribeConsumerGroups_result: RD_KAFKA_EVENT_DESCRIBECONSUMERGROUPS_RESULT;
    rd_kafka_event_DeleteGroups_result: RD_KAFKA_EVENT_DELETEGROUPS_RESULT;
    rd_kafka_event_DeleteConsumerGroupOffsets_result: RD_KAFKA_EVENT_DELETECONSUMERGROUPOFFSETS_RESULT;
    rd_kafka_event_AlterConsumerGroupOffsets_result: RD_KAFKA_EVENT_ALTERCONSUMERGROUPOFFSETS_RESULT;
    rd_kafka_event_ListConsumerGroupOffsets_result: RD_KAFKA_EVENT_LISTCONSUMERGROUPOFFSETS_RESULT;
    rd_kafka_event_ListOffsets_result: RD_KAFKA_EVENT_LISTOFFSETS_RESULT;
    rd_kafka_event_DescribeTopics_result: RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT;
    rd_kafka_event_DescribeCluster_result: RD_KAFKA_EVENT_DESCRIBECLUSTER_RESULT;
    rd_kafka_event_DescribeUserScramCredentials_result: RD_KAFKA_EVENT_DESCRIBEUSERSCRAMCREDENTIALS_RESULT;
    rd_kafka_event_AlterUserScramCredentials_result: RD_KAFKA_EVENT_ALTERUSERSCRAMCREDENTIALS_RESULT;
    rd_kafka_event_CreateAcls_result: RD_KAFKA_EVENT_CREATEACLS_RESULT;
    rd_kafka_event_DescribeAcls_result: RD_KAFKA_EVENT_DESCRIBEACLS_RESULT;
    rd_kafka_event_DeleteAcls_result: RD_KAFKA_EVENT_DELETEACLS_RESULT;
    rd_kafka_event_ElectLeaders_result: RD_KAFKA_EVENT_ELECTLEADERS_RESULT;
}

/// The result, if a broker answered the request.
///
/// # Safety
/// NULL or an event that lives.
unsafe fn content<'a, T: 'static>(result: *const rd_kafka_event_t, function: &str) -> Option<&'a T> {
    // SAFETY: `result` is NULL or an event of this library, not yet destroyed (the contract of this function, above).
    unsafe { event(result, function) }?.outcome()?.result.downcast_ref()
}

macro_rules! arrays {
    ($($name:ident: $type:ty;)*) => {$(
        #[on_panic(null_mut())]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(result: *const rd_kafka_event_t, cntp: *mut usize) -> *mut *const $type {
            // SAFETY: `result` is NULL or an event of this library, not yet destroyed; `cntp` is NULL or writable
            // (rdkafka.h, every function of this macro).
            unsafe { told(content::<Array<$type>>(result, FUNCTION).map(Array::read), cntp) }
        }
    )*};
}

/// An array; the length is a second result.
///
/// # Safety
/// `cntp` is NULL or a place to write to.
unsafe fn told<P: DefaultPointer>(array: Option<(P, usize)>, cntp: *mut usize) -> P {
    let (pointer, count) = array.unwrap_or_else(|| (P::default_pointer(), 0));
    // SAFETY: `cntp` is NULL or writable (the contract of this function, above).
    if let Some(place) = unsafe { cntp.as_mut() } {
        *place = count;
    }
    pointer
}

arrays! {
    rd_kafka_CreateTopics_result_topics: rd_kafka_topic_result_t;
    rd_kafka_DeleteTopics_result_topics: rd_kafka_topic_result_t;
    rd_kafka_CreatePartitions_result_topics: rd_kafka_topic_result_t;
    rd_kafka_AlterConfigs_result_resources: rd_kafka_ConfigResource_t;
    rd_kafka_IncrementalAlterConfigs_result_resources: rd_kafka_ConfigResource_t;
    rd_kafka_DescribeConfigs_result_resources: rd_kafka_ConfigResource_t;
    rd_kafka_DescribeConsumerGroups_result_groups: rd_kafka_ConsumerGroupDescription_t;
    rd_kafka_DeleteGroups_result_groups: rd_kafka_group_result_t;
    rd_kafka_DeleteConsumerGroupOffsets_result_groups: rd_kafka_group_result_t;
    rd_kafka_AlterConsumerGroupOffsets_result_groups: rd_kafka_group_result_t;
    rd_kafka_ListConsumerGroupOffsets_result_groups: rd_kafka_group_result_t;
    rd_kafka_ListOffsets_result_infos: rd_kafka_ListOffsetsResultInfo_t;
    rd_kafka_DescribeTopics_result_topics: rd_kafka_TopicDescription_t;
    rd_kafka_DescribeUserScramCredentials_result_descriptions: rd_kafka_UserScramCredentialsDescription_t;
    rd_kafka_AlterUserScramCredentials_result_responses: rd_kafka_AlterUserScramCredentials_result_response_t;
    rd_kafka_CreateAcls_result_acls: rd_kafka_acl_result_t;
    rd_kafka_DescribeAcls_result_acls: rd_kafka_AclBinding_t;
    rd_kafka_DeleteAcls_result_responses: rd_kafka_DeleteAcls_result_response_t;
    rd_kafka_ElectLeaders_result_partitions: rd_kafka_topic_partition_result_t;
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_DeleteRecords_result_offsets(
    result: *const rd_kafka_event_t,
) -> *const rd_kafka_topic_partition_list_t {
    // SAFETY: `result` is NULL or an event of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_DeleteRecords_result_offsets`).
    unsafe { content::<List>(result, FUNCTION) }.map_or(null(), List::as_ptr)
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_ListConsumerGroups_result_valid(
    result: *const rd_kafka_event_t,
    cntp: *mut usize,
) -> *mut *const rd_kafka_ConsumerGroupListing_t {
    // SAFETY: `result` is NULL or an event of this library, not yet destroyed; `cntp` is NULL or writable (rdkafka.h,
    // `rd_kafka_ListConsumerGroups_result_valid`).
    unsafe { told(content::<Listings>(result, FUNCTION).map(|listings| listings.valid.read()), cntp) }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_ListConsumerGroups_result_errors(
    result: *const rd_kafka_event_t,
    cntp: *mut usize,
) -> *mut *const rd_kafka_error_t {
    // SAFETY: `result` is NULL or an event of this library, not yet destroyed; `cntp` is NULL or writable (rdkafka.h,
    // `rd_kafka_ListConsumerGroups_result_errors`).
    unsafe { told(content::<Listings>(result, FUNCTION).map(|listings| listings.errors.read()), cntp) }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_DescribeCluster_result_nodes(
    result: *const rd_kafka_event_t,
    cntp: *mut usize,
) -> *mut *const rd_kafka_Node_t {
    // SAFETY: `result` is NULL or an event of this library, not yet destroyed; `cntp` is NULL or writable (rdkafka.h,
    // `rd_kafka_DescribeCluster_result_nodes`).
    unsafe { told(content::<Cluster>(result, FUNCTION).map(|cluster| cluster.nodes.read()), cntp) }
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_DescribeCluster_result_authorized_operations(
    result: *const rd_kafka_event_t,
    cntp: *mut usize,
) -> *const rd_kafka_AclOperation_t {
    // SAFETY: `result` is NULL or an event of this library, not yet destroyed; `cntp` is NULL or writable (rdkafka.h,
    // `rd_kafka_DescribeCluster_result_authorized_operations`).
    unsafe {
        told(
            content::<Cluster>(result, FUNCTION).map(|cluster| operations(cluster.operations.as_deref())),
            cntp,
        )
    }
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_DescribeCluster_result_controller(
    result: *const rd_kafka_event_t,
) -> *const rd_kafka_Node_t {
    // SAFETY: `result` is NULL or an event of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_DescribeCluster_result_controller`).
    let cluster = unsafe { content::<Cluster>(result, FUNCTION) };
    cluster.and_then(|cluster| cluster.controller.as_ref()).map_or(null(), std::ptr::from_ref)
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_DescribeCluster_result_cluster_id(
    result: *const rd_kafka_event_t,
) -> *const c_char {
    // SAFETY: `result` is NULL or an event of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_DescribeCluster_result_cluster_id`).
    unsafe { content::<Cluster>(result, FUNCTION) }.map_or(null(), |cluster| optional(cluster.id.as_ref()))
}
