//! Brokers, and topics with their partitions.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int};
use std::ptr::{null, null_mut};

use ottla_client::{
    ClusterDescription, Error, Node, PartitionDescription, TopicDescription, TopicDescriptions, Uuid,
};

use super::group_descriptions::codes;
use super::macros::{array_readers, destroyers, readers};
use super::{Array, DefaultPointer, error_object, error_pointer, optional};
use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::c_strings::{c_string, text};
use crate::ffi::panic::on_panic;
use crate::ffi::*;

/// A broker.
#[derive(Clone)]
pub struct rd_kafka_Node_t {
    id: c_int,
    host: CString,
    port: u16,
    rack: Option<CString>,
}

impl rd_kafka_Node_t {
    pub(super) fn of(node: &Node) -> Self {
        let rack = node.rack.as_deref().map(c_string);
        Self { id: node.id, host: c_string(&node.host), port: node.port, rack }
    }

    /// A broker that no response described.
    pub(super) fn nowhere() -> Self {
        Self { id: -1, host: CString::default(), port: 0, rack: None }
    }
}

/// The topics that are asked for.
pub struct rd_kafka_TopicCollection_t(pub(super) Vec<String>);

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_TopicCollection_of_topic_names(
    topics: *mut *const c_char,
    topics_cnt: usize,
) -> *mut rd_kafka_TopicCollection_t {
    // SAFETY: `topics` points to `topics_cnt` C strings (rdkafka.h, `rd_kafka_TopicCollection_of_topic_names`).
    let names = unsafe { texts(topics, topics_cnt) };
    Box::into_raw(Box::new(rd_kafka_TopicCollection_t(names)))
}

/// The strings of an array of C's; a NULL among them is an empty one.
///
/// # Safety
/// NULL, or that many pointers, each NULL or a C string.
pub(super) unsafe fn texts(array: *mut *const c_char, count: usize) -> Vec<String> {
    if array.is_null() {
        return Vec::new();
    }
    // SAFETY: `array` points to `count` C strings (the contract of this function, above).
    (0..count).map(|index| unsafe { text(*array.add(index)) }.unwrap_or_default().into_owned()).collect()
}

/// A topic, or why there is nothing to say of it.
pub struct rd_kafka_TopicDescription_t {
    name: CString,
    id: rd_kafka_Uuid_t,
    internal: bool,
    error: Option<Box<rd_kafka_error_t>>,
    operations: Option<Vec<rd_kafka_AclOperation_t>>,
    partitions: Array<rd_kafka_TopicPartitionInfo_t>,
}

/// A partition and the brokers that have it.
pub struct rd_kafka_TopicPartitionInfo_t {
    partition: c_int,
    leader: Option<rd_kafka_Node_t>,
    isr: Array<rd_kafka_Node_t>,
    replicas: Array<rd_kafka_Node_t>,
}

type Nodes = BTreeMap<c_int, rd_kafka_Node_t>;

pub(super) fn topics(described: TopicDescriptions) -> Array<rd_kafka_TopicDescription_t> {
    let nodes: Nodes = described.brokers.iter().map(|node| (node.id, rd_kafka_Node_t::of(node))).collect();
    let result = |(name, answer): (String, Result<TopicDescription, Error>)| {
        let error = answer.as_ref().err().map(error_object);
        let topic = answer.ok();
        let partitions = topic.iter().flat_map(|topic| &topic.partitions);
        rd_kafka_TopicDescription_t {
            name: c_string(&name),
            id: rd_kafka_Uuid_t::new(topic.as_ref().map_or_else(Uuid::default, |topic| topic.id)),
            internal: topic.as_ref().is_some_and(|topic| topic.internal),
            error,
            operations: codes(topic.as_ref().and_then(|topic| topic.authorized_operations.as_deref())),
            partitions: Array::new(partitions.map(|partition| of_partition(partition, &nodes)).collect()),
        }
    };
    Array::new(described.topics.into_iter().map(result).collect())
}

fn of_partition(partition: &PartitionDescription, nodes: &Nodes) -> rd_kafka_TopicPartitionInfo_t {
    // One that is gone has a number and nothing else.
    let node = |id: &i32| {
        let gone = || rd_kafka_Node_t { id: *id, ..rd_kafka_Node_t::nowhere() };
        nodes.get(id).cloned().unwrap_or_else(gone)
    };
    rd_kafka_TopicPartitionInfo_t {
        partition: partition.partition,
        leader: partition.leader.as_ref().map(node),
        isr: Array::new(partition.isr.iter().map(node).collect()),
        replicas: Array::new(partition.replicas.iter().map(node).collect()),
    }
}

/// The cluster, for the readers of its event.
pub struct Cluster {
    pub(super) id: Option<CString>,
    pub(super) controller: Option<rd_kafka_Node_t>,
    pub(super) nodes: Array<rd_kafka_Node_t>,
    pub(super) operations: Option<Vec<rd_kafka_AclOperation_t>>,
}

pub(super) fn cluster(described: &ClusterDescription) -> Cluster {
    let controller = described.brokers.iter().find(|node| Some(node.id) == described.controller);
    Cluster {
        id: described.id.as_deref().map(c_string),
        controller: controller.map(rd_kafka_Node_t::of),
        nodes: Array::new(described.brokers.iter().map(rd_kafka_Node_t::of).collect()),
        operations: codes(described.authorized_operations.as_deref()),
    }
}

/// The authorized operations as C's array; NULL if the request did not include them.
pub(super) fn operations(
    codes: Option<&[rd_kafka_AclOperation_t]>,
) -> (*const rd_kafka_AclOperation_t, usize) {
    codes.map_or((null(), 0), |codes| (codes.as_ptr(), codes.len()))
}

readers! {
    rd_kafka_Node_id(rd_kafka_Node_t) -> c_int [-1] |node| node.id;
    rd_kafka_Node_host(rd_kafka_Node_t) -> *const c_char [null()] |node| node.host.as_ptr();
    rd_kafka_Node_port(rd_kafka_Node_t) -> u16 [0] |node| node.port;
    rd_kafka_Node_rack(rd_kafka_Node_t) -> *const c_char [null()] |node| optional(node.rack.as_ref());
    rd_kafka_TopicDescription_name(rd_kafka_TopicDescription_t) -> *const c_char [null()] |topic| topic.name.as_ptr();
    rd_kafka_TopicDescription_topic_id(rd_kafka_TopicDescription_t) -> *const rd_kafka_Uuid_t
        [null()] |topic| std::ptr::from_ref(&topic.id);
    rd_kafka_TopicDescription_is_internal(rd_kafka_TopicDescription_t) -> c_int [0] |topic| topic.internal.into();
    rd_kafka_TopicDescription_error(rd_kafka_TopicDescription_t) -> *const rd_kafka_error_t
        [null()] |topic| error_pointer(topic.error.as_deref());
    rd_kafka_TopicPartitionInfo_partition(rd_kafka_TopicPartitionInfo_t) -> c_int [-1] |info| info.partition;
    rd_kafka_TopicPartitionInfo_leader(rd_kafka_TopicPartitionInfo_t) -> *const rd_kafka_Node_t
        [null()] |info| info.leader.as_ref().map_or(null(), std::ptr::from_ref);
}

array_readers! {
    rd_kafka_TopicDescription_partitions(rd_kafka_TopicDescription_t) -> *mut *const rd_kafka_TopicPartitionInfo_t,
        |topic| topic.partitions.read();
    rd_kafka_TopicDescription_authorized_operations(rd_kafka_TopicDescription_t) -> *const rd_kafka_AclOperation_t,
        |topic| operations(topic.operations.as_deref());
    rd_kafka_TopicPartitionInfo_isr(rd_kafka_TopicPartitionInfo_t) -> *mut *const rd_kafka_Node_t,
        |info| info.isr.read();
    rd_kafka_TopicPartitionInfo_replicas(rd_kafka_TopicPartitionInfo_t) -> *mut *const rd_kafka_Node_t,
        |info| info.replicas.read();
}

destroyers! {
    rd_kafka_TopicCollection_destroy (rd_kafka_TopicCollection_t);
}
