//! The metrics that the mock cluster wants from its clients (KIP-714).

use std::ffi::{CStr, c_char};
use std::time::Duration;

use ottla_broker::MockSubscription;

use super::with;
use crate::ffi::panic::on_panic;
use crate::ffi::*;

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_telemetry_set_requested_metrics(
    mcluster: *mut rd_kafka_mock_cluster_t,
    metrics: *mut *mut c_char,
    metrics_cnt: usize,
) -> rd_kafka_resp_err_t {
    let mut wanted = Vec::new();
    if !metrics.is_null() {
        for index in 0..metrics_cnt {
            // SAFETY: `metrics` points to `metrics_cnt` pointers (rdkafka_mock.h,
            // `rd_kafka_mock_telemetry_set_requested_metrics`).
            let metric = unsafe { *metrics.add(index) };
            if metric.is_null() {
                return RD_KAFKA_RESP_ERR__INVALID_ARG;
            }
            // SAFETY: each is a string that ends with a zero byte (rdkafka_mock.h,
            // `rd_kafka_mock_telemetry_set_requested_metrics`).
            wanted.push(unsafe { CStr::from_ptr(metric) }.to_string_lossy().into_owned());
        }
    }
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_telemetry_set_requested_metrics`).
    unsafe {
        with(mcluster, RD_KAFKA_RESP_ERR__INVALID_ARG, |it| {
            it.cluster().change_mock_subscription(|subscription| subscription.metrics.clone_from(&wanted));
            RD_KAFKA_RESP_ERR_NO_ERROR
        })
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_telemetry_set_push_interval(
    mcluster: *mut rd_kafka_mock_cluster_t,
    push_interval_ms: i64,
) -> rd_kafka_resp_err_t {
    // As in the original, a number that is no interval stands for the default.
    let interval = match u64::try_from(push_interval_ms) {
        Ok(0) | Err(_) => MockSubscription::default().interval,
        Ok(ms) => Duration::from_millis(ms),
    };
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_telemetry_set_push_interval`).
    unsafe {
        with(mcluster, RD_KAFKA_RESP_ERR__INVALID_ARG, |it| {
            it.cluster().change_mock_subscription(|subscription| subscription.interval = interval);
            RD_KAFKA_RESP_ERR_NO_ERROR
        })
    }
}
