//! The mock cluster's groups of the consumer protocol (KIP-848) and share groups (KIP-932): settings and assignments.

use std::ffi::{c_char, c_int};
use std::ptr::{null_mut, slice_from_raw_parts};
use std::time::Duration;

use ottla_broker::{MemberPartitions, ShareGroupConfig, SharePartitionConfig};

use super::{MockCluster, NEVER, with};
use crate::ffi::c_strings::{c_string, malloced, text};
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::messages::list_conversion;

/// The settings of groups at the start. Those of the original's mock cluster have no limits, and it assigns without a pause.
pub(super) fn without_limits(config: &mut ottla_broker::BrokerConfig) {
    let any = (Duration::from_millis(1), NEVER);
    let groups = &mut config.consumer_groups;
    (groups.session_timeout_range, groups.heartbeat_interval_range) = (any, any);
    groups.assignment_interval = Duration::ZERO;
    // The interval of the application applies always.
    groups.rebalance_heartbeat_interval = NEVER;
    let groups = &mut config.share_groups;
    (groups.session_timeout_range, groups.heartbeat_interval_range) = (any, any);
    groups.assignment_interval = Duration::ZERO;
    let partitions = &mut config.share_partitions;
    partitions.lock_duration_range = any;
    partitions.delivery_count_limit_range = (1, u32::MAX);
    partitions.locks_max_range = (1, u32::MAX);
    partitions.splits_batches = true;
}

/// A time of the application; less than a millisecond is one.
fn ms(ms: c_int) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or_default().max(1))
}

/// A limit of the application; the original has no limit if it is 0 or less.
fn limit(limit: c_int) -> u32 {
    u32::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(u32::MAX)
}

/// Changes the settings of all share groups.
///
/// # Safety
/// `mcluster` is NULL or a mock cluster, not yet destroyed.
unsafe fn set(
    mcluster: *const rd_kafka_mock_cluster_t,
    change: impl FnOnce(&mut ShareGroupConfig, &mut SharePartitionConfig),
) {
    // SAFETY: the contract of this function, above.
    unsafe { with(mcluster, (), |it: &MockCluster| it.cluster().change_share_settings(change)) }
}

/// Reads `count` members with their lists of partitions. Lists and ids that are NULL are passed over.
///
/// # Safety
/// Both arrays are NULL or have `count` elements: C strings, and lists of this library that are not yet destroyed.
unsafe fn members(
    ids: *const *const c_char,
    lists: *const *mut rd_kafka_topic_partition_list_t,
    count: usize,
) -> MemberPartitions {
    if ids.is_null() || lists.is_null() {
        return MemberPartitions::new();
    }
    // SAFETY: neither is NULL, and both have `count` elements (the contract of this function, above).
    let (ids, lists) = unsafe { (&*slice_from_raw_parts(ids, count), &*slice_from_raw_parts(lists, count)) };
    let member = |(id, list): (&*const c_char, &*mut rd_kafka_topic_partition_list_t)| {
        // SAFETY: `id` is NULL or a C string, and `list` NULL or a list (the contract of this function, above).
        let (id, entries) = unsafe { (text(*id)?.into_owned(), list_conversion::entries(*list)) };
        let partitions = entries.iter().map(list_conversion::at);
        Some((id, partitions.map(|at| (at.topic.to_string(), at.partition)).collect()))
    };
    ids.iter().zip(lists).filter_map(member).collect()
}

/// `rd_kafka_mock_cgrp_consumer_target_assignment_t`: what the members of a group are to have.
#[derive(Debug)]
struct TargetAssignment(MemberPartitions);

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_set_group_consumer_session_timeout_ms(
    mcluster: *mut rd_kafka_mock_cluster_t,
    group_consumer_session_timeout_ms: c_int,
) {
    let change = |it: &MockCluster| {
        let timeout = ms(group_consumer_session_timeout_ms);
        it.cluster().change_consumer_group_settings(|groups| groups.session_timeout = timeout);
    };
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_set_group_consumer_session_timeout_ms`).
    unsafe { with(mcluster, (), change) }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_set_group_consumer_heartbeat_interval_ms(
    mcluster: *mut rd_kafka_mock_cluster_t,
    group_consumer_heartbeat_interval_ms: c_int,
) {
    let change = |it: &MockCluster| {
        let interval = ms(group_consumer_heartbeat_interval_ms);
        it.cluster().change_consumer_group_settings(|groups| groups.heartbeat_interval = interval);
    };
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_set_group_consumer_heartbeat_interval_ms`).
    unsafe { with(mcluster, (), change) }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_cgrp_consumer_target_assignment_new(
    member_ids: *mut *mut c_char,
    member_cnt: c_int,
    assignment: *mut *mut rd_kafka_topic_partition_list_t,
) -> *mut rd_kafka_mock_cgrp_consumer_target_assignment_t {
    let count = usize::try_from(member_cnt).unwrap_or_default();
    // SAFETY: both arrays have `member_cnt` elements (rdkafka_mock.h, `rd_kafka_mock_cgrp_consumer_target_assignment_new`).
    let members = unsafe { members(member_ids.cast(), assignment, count) };
    Box::into_raw(Box::new(TargetAssignment(members))).cast()
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_cgrp_consumer_target_assignment_destroy(
    target_assignment: *mut rd_kafka_mock_cgrp_consumer_target_assignment_t,
) {
    if !target_assignment.is_null() {
        // SAFETY: it is from `rd_kafka_mock_cgrp_consumer_target_assignment_new`, not yet destroyed (rdkafka_mock.h,
        // `rd_kafka_mock_cgrp_consumer_target_assignment_destroy`).
        drop(unsafe { Box::from_raw(target_assignment.cast::<TargetAssignment>()) });
    }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_cgrp_consumer_target_assignment(
    mcluster: *mut rd_kafka_mock_cluster_t,
    group_id: *const c_char,
    target_assignment: *mut rd_kafka_mock_cgrp_consumer_target_assignment_t,
) {
    // SAFETY: `mcluster` is NULL or a mock cluster, `group_id` is NULL or a C string, and `target_assignment` is NULL or from
    // `rd_kafka_mock_cgrp_consumer_target_assignment_new`; none is destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_cgrp_consumer_target_assignment`).
    unsafe {
        let Some(group) = text(group_id) else { return };
        let target = target_assignment.cast::<TargetAssignment>().as_ref();
        with(mcluster, (), |it| {
            it.cluster().assign_consumer_group(&group, target.map(|target| &target.0));
        });
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_sharegroup_get_member_ids(
    mcluster: *mut rd_kafka_mock_cluster_t,
    group_id: *const c_char,
    member_ids_out: *mut *mut *mut c_char,
    member_cnt_out: *mut usize,
) -> rd_kafka_resp_err_t {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed; `group_id` is NULL or a C string; the places for the results
    // are NULL or writable (rdkafka_mock.h, `rd_kafka_mock_sharegroup_get_member_ids`).
    unsafe {
        let (Some(group), Some(ids_out), Some(count_out)) =
            (text(group_id), member_ids_out.as_mut(), member_cnt_out.as_mut())
        else {
            return RD_KAFKA_RESP_ERR__INVALID_ARG;
        };
        (*ids_out, *count_out) = (null_mut(), 0);
        let members = with_members(mcluster, &group);
        let Some(members) = members else { return RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND };
        if members.is_empty() {
            return RD_KAFKA_RESP_ERR_NO_ERROR;
        }
        let array = libc::malloc(members.len() * size_of::<*mut c_char>()).cast::<*mut c_char>();
        if array.is_null() {
            return RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE;
        }
        for (index, member) in members.iter().enumerate() {
            array.add(index).write(malloced(&c_string(member)));
        }
        (*ids_out, *count_out) = (array, members.len());
    }
    RD_KAFKA_RESP_ERR_NO_ERROR
}

/// The ids of a share group's members; `None` if there is no such group.
///
/// # Safety
/// `mcluster` is NULL or a mock cluster, not yet destroyed.
unsafe fn with_members(mcluster: *const rd_kafka_mock_cluster_t, group: &str) -> Option<Vec<String>> {
    // SAFETY: the contract of this function, above.
    unsafe { MockCluster::of(mcluster) }.and_then(|it| it.cluster().share_group_members(group))
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_sharegroup_target_assignment(
    mcluster: *mut rd_kafka_mock_cluster_t,
    group_id: *const c_char,
    member_ids: *mut *const c_char,
    assignment: *mut *mut rd_kafka_topic_partition_list_t,
    member_cnt: usize,
) {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed; `group_id` is NULL or a C string; both arrays have
    // `member_cnt` elements (rdkafka_mock.h, `rd_kafka_mock_sharegroup_target_assignment`).
    unsafe {
        let Some(group) = text(group_id) else { return };
        let members = members(member_ids, assignment, member_cnt);
        with(mcluster, (), |it| {
            it.cluster().assign_share_group(&group, &members);
        });
    }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_sharegroup_set_session_timeout(
    mcluster: *mut rd_kafka_mock_cluster_t,
    session_timeout_ms: c_int,
) {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_sharegroup_set_session_timeout`).
    unsafe { set(mcluster, |groups, _| groups.session_timeout = ms(session_timeout_ms)) }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_sharegroup_set_heartbeat_interval(
    mcluster: *mut rd_kafka_mock_cluster_t,
    heartbeat_interval_ms: c_int,
) {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_sharegroup_set_heartbeat_interval`).
    unsafe { set(mcluster, |groups, _| groups.heartbeat_interval = ms(heartbeat_interval_ms)) }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_sharegroup_set_max_delivery_attempts(
    mcluster: *mut rd_kafka_mock_cluster_t,
    max_attempts: c_int,
) {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_sharegroup_set_max_delivery_attempts`).
    unsafe { set(mcluster, |_, partitions| partitions.delivery_count_limit = limit(max_attempts)) }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_sharegroup_set_record_lock_duration(
    mcluster: *mut rd_kafka_mock_cluster_t,
    lock_duration_ms: c_int,
) {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_sharegroup_set_record_lock_duration`).
    unsafe { set(mcluster, |_, partitions| partitions.lock_duration = ms(lock_duration_ms)) }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_sharegroup_set_isolation_level(
    mcluster: *mut rd_kafka_mock_cluster_t,
    level: c_int,
) {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_sharegroup_set_isolation_level`).
    unsafe { set(mcluster, |_, partitions| partitions.reads_committed = level == 1) }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_sharegroup_set_max_size(
    mcluster: *mut rd_kafka_mock_cluster_t,
    max_size: c_int,
) {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h, `rd_kafka_mock_sharegroup_set_max_size`).
    unsafe { set(mcluster, |groups, _| groups.members_max = limit(max_size) as usize) }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_sharegroup_set_max_fetch_sessions(
    mcluster: *mut rd_kafka_mock_cluster_t,
    max_fetch_sessions: c_int,
) {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_sharegroup_set_max_fetch_sessions`).
    unsafe { set(mcluster, |_, partitions| partitions.sessions_max = limit(max_fetch_sessions) as usize) }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_sharegroup_set_max_record_locks(
    mcluster: *mut rd_kafka_mock_cluster_t,
    max_record_locks: c_int,
) {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_sharegroup_set_max_record_locks`).
    unsafe { set(mcluster, |_, partitions| partitions.locks_max = limit(max_record_locks)) }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_sharegroup_set_auto_offset_reset(
    mcluster: *mut rd_kafka_mock_cluster_t,
    auto_offset_reset: c_int,
) {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_sharegroup_set_auto_offset_reset`).
    unsafe { set(mcluster, |_, partitions| partitions.begins_at_start = auto_offset_reset == 1) }
}
