//! The structs that programs read and write field by field, and their layouts on 64-bit systems.

#![allow(clippy::pub_underscore_fields, reason = "the headers' names")]

use std::ffi::{c_char, c_int, c_void};

use super::*;

#[repr(C)]
pub struct rd_kafka_err_desc {
    pub code: rd_kafka_resp_err_t,
    pub name: *const c_char,
    pub desc: *const c_char,
}

#[repr(C)]
pub struct rd_kafka_topic_partition_t {
    pub topic: *mut c_char,
    pub partition: i32,
    pub offset: i64,
    pub metadata: *mut c_void,
    pub metadata_size: usize,
    pub opaque: *mut c_void,
    pub err: rd_kafka_resp_err_t,
    pub _private: *mut c_void,
}

#[repr(C)]
pub struct rd_kafka_topic_partition_list_t {
    pub cnt: c_int,
    pub size: c_int,
    pub elems: *mut rd_kafka_topic_partition_t,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct rd_kafka_vu_mem_t {
    pub ptr: *mut c_void,
    pub size: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct rd_kafka_vu_header_t {
    pub name: *const c_char,
    pub val: *const c_void,
    pub size: isize,
}

#[repr(C)]
pub union rd_kafka_vu_value_t {
    pub cstr: *const c_char,
    pub rkt: *mut rd_kafka_topic_t,
    pub i: c_int,
    pub i32: i32,
    pub i64: i64,
    pub mem: rd_kafka_vu_mem_t,
    pub header: rd_kafka_vu_header_t,
    pub headers: *mut rd_kafka_headers_t,
    pub ptr: *mut c_void,
    _pad: [u8; 64],
}

#[repr(C)]
pub struct rd_kafka_vu_t {
    pub vtype: rd_kafka_vtype_t,
    pub u: rd_kafka_vu_value_t,
}

#[repr(C)]
pub struct rd_kafka_message_t {
    pub err: rd_kafka_resp_err_t,
    pub rkt: *mut rd_kafka_topic_t,
    pub partition: i32,
    pub payload: *mut c_void,
    pub len: usize,
    pub key: *mut c_void,
    pub key_len: usize,
    pub offset: i64,
    pub _private: *mut c_void,
}

#[repr(C)]
pub struct rd_kafka_metadata_broker_t {
    pub id: i32,
    pub host: *mut c_char,
    pub port: c_int,
}

#[repr(C)]
pub struct rd_kafka_metadata_partition_t {
    pub id: i32,
    pub err: rd_kafka_resp_err_t,
    pub leader: i32,
    pub replica_cnt: c_int,
    pub replicas: *mut i32,
    pub isr_cnt: c_int,
    pub isrs: *mut i32,
}

#[repr(C)]
pub struct rd_kafka_metadata_topic_t {
    pub topic: *mut c_char,
    pub partition_cnt: c_int,
    pub partitions: *mut rd_kafka_metadata_partition_t,
    pub err: rd_kafka_resp_err_t,
}

#[repr(C)]
pub struct rd_kafka_metadata_t {
    pub broker_cnt: c_int,
    pub brokers: *mut rd_kafka_metadata_broker_t,
    pub topic_cnt: c_int,
    pub topics: *mut rd_kafka_metadata_topic_t,
    pub orig_broker_id: i32,
    pub orig_broker_name: *mut c_char,
}

#[repr(C)]
pub struct rd_kafka_group_member_info {
    pub member_id: *mut c_char,
    pub client_id: *mut c_char,
    pub client_host: *mut c_char,
    pub member_metadata: *mut c_void,
    pub member_metadata_size: c_int,
    pub member_assignment: *mut c_void,
    pub member_assignment_size: c_int,
}

#[repr(C)]
pub struct rd_kafka_group_info {
    pub broker: rd_kafka_metadata_broker_t,
    pub group: *mut c_char,
    pub err: rd_kafka_resp_err_t,
    pub state: *mut c_char,
    pub protocol_type: *mut c_char,
    pub protocol: *mut c_char,
    pub members: *mut rd_kafka_group_member_info,
    pub member_cnt: c_int,
}

#[repr(C)]
pub struct rd_kafka_group_list {
    pub groups: *mut rd_kafka_group_info,
    pub group_cnt: c_int,
}

/// Size and offsets in bytes, as C's compiler lays the struct out.
#[cfg(target_pointer_width = "64")]
macro_rules! layout {
    ($type:ty, $size:literal: $($field:ident $offset:literal),*) => {
        const _: () = {
            assert!(size_of::<$type>() == $size);
            $(assert!(std::mem::offset_of!($type, $field) == $offset);)*
        };
    };
}

#[cfg(target_pointer_width = "64")]
pub(crate) use layout;

#[cfg(target_pointer_width = "64")]
mod layouts {
    use super::*;

    layout!(rd_kafka_err_desc, 24: code 0, name 8, desc 16);
    layout!(rd_kafka_topic_partition_t, 64: topic 0, partition 8, offset 16, metadata 24, metadata_size 32, opaque 40,
        err 48, _private 56);
    layout!(rd_kafka_topic_partition_list_t, 16: cnt 0, size 4, elems 8);
    layout!(rd_kafka_vu_t, 72: vtype 0, u 8);
    layout!(rd_kafka_message_t, 72: err 0, rkt 8, partition 16, payload 24, len 32, key 40, key_len 48, offset 56,
        _private 64);
    layout!(rd_kafka_metadata_broker_t, 24: id 0, host 8, port 16);
    layout!(rd_kafka_metadata_partition_t, 40: id 0, err 4, leader 8, replica_cnt 12, replicas 16, isr_cnt 24, isrs 32);
    layout!(rd_kafka_metadata_topic_t, 32: topic 0, partition_cnt 8, partitions 16, err 24);
    layout!(rd_kafka_metadata_t, 48: broker_cnt 0, brokers 8, topic_cnt 16, topics 24, orig_broker_id 32,
        orig_broker_name 40);
    layout!(rd_kafka_group_member_info, 56: member_id 0, client_id 8, client_host 16, member_metadata 24,
        member_metadata_size 32, member_assignment 40, member_assignment_size 48);
    layout!(rd_kafka_group_info, 80: broker 0, group 24, err 32, state 40, protocol_type 48, protocol 56, members 64,
        member_cnt 72);
    layout!(rd_kafka_group_list, 16: groups 0, group_cnt 8);
}
