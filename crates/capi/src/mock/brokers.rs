//! The mock cluster's brokers: up and down, slow, in racks, in charge.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use ottla_broker::{AddNodeError, ApiKey};

use super::with;
use crate::ffi::c_strings::text;
use crate::ffi::panic::on_panic;
use crate::ffi::*;

/// Functions that do something with one broker, or with all.
macro_rules! of_brokers {
    ($($function:ident => $does:expr;)*) => {
        $(
            #[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $function(
                mcluster: *mut rd_kafka_mock_cluster_t,
                broker_id: i32,
            ) -> rd_kafka_resp_err_t {
                // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h, every function of
                // this macro).
                unsafe { with(mcluster, RD_KAFKA_RESP_ERR__INVALID_ARG, |it| it.each_node(broker_id, $does)) }
            }
        )*
    };
}

of_brokers! {
    rd_kafka_mock_broker_set_down => |it, node| it.set_reachable(node, false);
    rd_kafka_mock_broker_set_up => |it, node| it.set_reachable(node, true);
    rd_kafka_mock_broker_decommission => |it, node| it.cluster().decommission(node);
    rd_kafka_mock_broker_remove_from_metadata => |it, node| it.cluster().remove_from_metadata(node);
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_broker_add(
    mcluster: *mut rd_kafka_mock_cluster_t,
    broker_id: i32,
) -> rd_kafka_resp_err_t {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h, `rd_kafka_mock_broker_add`).
    unsafe {
        with(mcluster, RD_KAFKA_RESP_ERR__INVALID_ARG, |it| match it.broker.add_node(broker_id) {
            Ok(()) => RD_KAFKA_RESP_ERR_NO_ERROR,
            Err(AddNodeError::Exists(_) | AddNodeError::InvalidId(_)) => RD_KAFKA_RESP_ERR__INVALID_ARG,
            Err(_) => RD_KAFKA_RESP_ERR__FAIL,
        })
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_broker_set_rtt(
    mcluster: *mut rd_kafka_mock_cluster_t,
    broker_id: i32,
    rtt_ms: c_int,
) -> rd_kafka_resp_err_t {
    let lag = Duration::from_millis(u64::try_from(rtt_ms).unwrap_or_default());
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_broker_set_rtt`).
    unsafe {
        with(mcluster, RD_KAFKA_RESP_ERR__INVALID_ARG, |it| {
            it.each_node(broker_id, |it, node| it.cluster().set_lag(node, lag))
        })
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_broker_set_rack(
    mcluster: *mut rd_kafka_mock_cluster_t,
    broker_id: i32,
    rack: *const c_char,
) -> rd_kafka_resp_err_t {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed; `rack` is NULL or a C string (rdkafka_mock.h,
    // `rd_kafka_mock_broker_set_rack`).
    unsafe {
        let rack = text(rack);
        with(mcluster, RD_KAFKA_RESP_ERR__INVALID_ARG, |it| {
            it.each_node(broker_id, |it, node| it.cluster().set_rack(node, rack.as_deref()))
        })
    }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_broker_set_host_port(
    mcluster: *mut rd_kafka_mock_cluster_t,
    broker_id: i32,
    host: *const c_char,
    port: c_int,
) {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed; `host` is NULL or a C string (rdkafka_mock.h,
    // `rd_kafka_mock_broker_set_host_port`).
    unsafe {
        let (host, port) = (text(host), u16::try_from(port));
        with(mcluster, (), |it| {
            if let (Some(host), Ok(port)) = (host, port) {
                it.cluster().advertise(broker_id, &host, port);
            }
        });
    }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_set_controller_id(
    mcluster: *mut rd_kafka_mock_cluster_t,
    controller_id: i32,
) {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_set_controller_id`).
    unsafe {
        with(mcluster, (), |it| it.cluster().set_controller(controller_id));
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_coordinator_set(
    mcluster: *mut rd_kafka_mock_cluster_t,
    key_type: *const c_char,
    key: *const c_char,
    broker_id: i32,
) -> rd_kafka_resp_err_t {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed; `key_type` and `key` are each NULL or a C
    // string (rdkafka_mock.h, `rd_kafka_mock_coordinator_set`).
    unsafe {
        let (kind, key) = (text(key_type), text(key));
        with(mcluster, RD_KAFKA_RESP_ERR__INVALID_ARG, |it| match (kind.as_deref(), key) {
            (Some("group"), Some(key)) if it.cluster().set_coordinator(&key, broker_id) => {
                RD_KAFKA_RESP_ERR_NO_ERROR
            }
            (Some("transaction"), Some(key)) if it.cluster().set_transaction_coordinator(&key, broker_id) => {
                RD_KAFKA_RESP_ERR_NO_ERROR
            }
            _ => RD_KAFKA_RESP_ERR__INVALID_ARG,
        })
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_set_apiversion(
    mcluster: *mut rd_kafka_mock_cluster_t,
    api_key: i16,
    min_version: i16,
    max_version: i16,
) -> rd_kafka_resp_err_t {
    let api = ApiKey::from_i16(api_key);
    if matches!(api, ApiKey::Unknown(_)) {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_set_apiversion`).
    unsafe {
        with(mcluster, RD_KAFKA_RESP_ERR__INVALID_ARG, |it| {
            // An API that the mock cluster does not answer has no versions.
            let _is_answered = it.cluster().set_versions(api, Some((min_version, max_version)));
            RD_KAFKA_RESP_ERR_NO_ERROR
        })
    }
}
