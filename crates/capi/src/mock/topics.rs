//! The mock cluster's topics and partitions: leaders, followers and injected errors.

use std::ffi::{c_char, c_int};

use ottla_broker::{Cluster, ErrorCode};

use super::{MockCluster, with};
use crate::ffi::c_strings::text;
use crate::ffi::panic::on_panic;
use crate::ffi::*;

type Answer = Result<(), ErrorCode>;

/// Does something with a topic, by its name.
unsafe fn with_topic(
    mcluster: *const rd_kafka_mock_cluster_t,
    topic: *const c_char,
    body: impl FnOnce(&Cluster, &str) -> Answer,
) -> rd_kafka_resp_err_t {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed; `topic` is NULL or a C string (required by the
    // C functions that call this).
    unsafe {
        let topic = text(topic);
        with(mcluster, RD_KAFKA_RESP_ERR__INVALID_ARG, |it: &MockCluster| match &topic {
            Some(topic) => code_of(body(&it.cluster(), topic)),
            None => RD_KAFKA_RESP_ERR__INVALID_ARG,
        })
    }
}

/// Does something with a partition. A topic that does not exist is created with the partitions up to this one.
pub(super) unsafe fn with_partition(
    mcluster: *const rd_kafka_mock_cluster_t,
    topic: *const c_char,
    partition: i32,
    body: impl FnOnce(&Cluster, &str) -> Answer,
) -> rd_kafka_resp_err_t {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed; `topic` is NULL or a C string (required by the
    // C functions that call this).
    unsafe {
        with_topic(mcluster, topic, |cluster, topic| {
            let index = usize::try_from(partition).map_err(|_| ErrorCode::UnknownTopicOrPartition)?;
            ensure(cluster, topic, partition.saturating_add(1))?;
            match cluster.partitions_of(topic) {
                Some(count) if index < count => body(cluster, topic),
                _ => Err(ErrorCode::UnknownTopicOrPartition),
            }
        })
    }
}

/// Creates a topic with this number of partitions if it does not exist; -1 is the default number.
fn ensure(cluster: &Cluster, topic: &str, partitions: i32) -> Answer {
    match cluster.partitions_of(topic) {
        Some(_) => Ok(()),
        None => cluster.add_topic(topic, partitions),
    }
}

fn code_of(answer: Answer) -> rd_kafka_resp_err_t {
    answer.map_or_else(|code| code.code().into(), |()| RD_KAFKA_RESP_ERR_NO_ERROR)
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_topic_create(
    mcluster: *mut rd_kafka_mock_cluster_t,
    topic: *const c_char,
    partition_cnt: c_int,
    replication_factor: c_int,
) -> rd_kafka_resp_err_t {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed; `topic` is NULL or a C string (rdkafka_mock.h,
    // `rd_kafka_mock_topic_create`).
    unsafe {
        with_topic(mcluster, topic, |cluster, topic| {
            cluster.add_topic(topic, partition_cnt)?;
            cluster.set_replicas_shown(topic, usize::try_from(replication_factor).unwrap_or(1));
            Ok(())
        })
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_topic_delete(
    mcluster: *mut rd_kafka_mock_cluster_t,
    topic: *const c_char,
) -> rd_kafka_resp_err_t {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed; `topic` is NULL or a C string (rdkafka_mock.h,
    // `rd_kafka_mock_topic_delete`).
    unsafe { with_topic(mcluster, topic, Cluster::remove_topic) }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_topic_set_error(
    mcluster: *mut rd_kafka_mock_cluster_t,
    topic: *const c_char,
    err: rd_kafka_resp_err_t,
) {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed; `topic` is NULL or a C string (rdkafka_mock.h,
    // `rd_kafka_mock_topic_set_error`).
    unsafe {
        with_topic(mcluster, topic, |cluster, topic| {
            ensure(cluster, topic, -1)?;
            let code = i16::try_from(err).unwrap_or(ErrorCode::UnknownServerError.code());
            cluster.set_topic_error(topic, ErrorCode::from_i16(code));
            Ok(())
        });
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_partition_set_leader(
    mcluster: *mut rd_kafka_mock_cluster_t,
    topic: *const c_char,
    partition: i32,
    broker_id: i32,
) -> rd_kafka_resp_err_t {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed; `topic` is NULL or a C string (rdkafka_mock.h,
    // `rd_kafka_mock_partition_set_leader`).
    unsafe {
        with_partition(mcluster, topic, partition, |cluster, topic| {
            // The original counts an epoch per call, also if the broker leads already.
            let moved = cluster.reelect_leader(topic, partition, broker_id);
            if moved { Ok(()) } else { Err(ErrorCode::BrokerNotAvailable) }
        })
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_partition_set_follower(
    mcluster: *mut rd_kafka_mock_cluster_t,
    topic: *const c_char,
    partition: i32,
    broker_id: i32,
) -> rd_kafka_resp_err_t {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed; `topic` is NULL or a C string (rdkafka_mock.h,
    // `rd_kafka_mock_partition_set_follower`).
    unsafe {
        with_partition(mcluster, topic, partition, |cluster, topic| {
            cluster.set_follower(topic, partition, (broker_id >= 0).then_some(broker_id));
            Ok(())
        })
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_partition_set_follower_wmarks(
    mcluster: *mut rd_kafka_mock_cluster_t,
    topic: *const c_char,
    partition: i32,
    lo: i64,
    hi: i64,
) -> rd_kafka_resp_err_t {
    let bound = |offset: i64| (offset >= 0).then_some(offset);
    // The original's follower returns the record at its high watermark too.
    let end = |offset: i64| bound(offset).map(|offset| offset.saturating_add(1));
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed; `topic` is NULL or a C string (rdkafka_mock.h,
    // `rd_kafka_mock_partition_set_follower_wmarks`).
    unsafe {
        with_partition(mcluster, topic, partition, |cluster, topic| {
            cluster.set_follower_offsets(topic, partition, bound(lo), end(hi));
            Ok(())
        })
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_partition_push_leader_response(
    mcluster: *mut rd_kafka_mock_cluster_t,
    topic: *const c_char,
    partition: c_int,
    leader_id: i32,
    leader_epoch: i32,
) -> rd_kafka_resp_err_t {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed; `topic` is NULL or a C string (rdkafka_mock.h,
    // `rd_kafka_mock_partition_push_leader_response`).
    unsafe {
        with_partition(mcluster, topic, partition, |cluster, topic| {
            cluster.tell_leader(topic, partition, leader_id, leader_epoch);
            Ok(())
        })
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_partition_delete_records(
    mcluster: *mut rd_kafka_mock_cluster_t,
    topic: *const c_char,
    partition: i32,
    before_offset: i64,
) -> rd_kafka_resp_err_t {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed; `topic` is NULL or a C string (rdkafka_mock.h,
    // `rd_kafka_mock_partition_delete_records`).
    unsafe {
        // A topic that does not exist is not created.
        with_topic(mcluster, topic, |cluster, topic| {
            cluster.delete_records(topic, partition, before_offset).map(drop)
        })
    }
}
