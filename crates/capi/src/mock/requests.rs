//! The mock cluster's requests: which are to fail, and which came.

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::time::Duration;

use ottla_broker::{ApiKey, ErrorCode, Fault, FaultRule};

use super::topics::with_partition;
use super::with;
use crate::ffi::panic::on_panic;
use crate::ffi::*;

/// A request that came. `rd_kafka_mock_request_t` points to one in a box.
struct Request {
    node: i32,
    api_key: i16,
    at_us: i64,
}

/// The fault that a code and a delay inject in requests of an API. The client's own error codes inject none.
fn fault(api: ApiKey, err: rd_kafka_resp_err_t, rtt_ms: c_int) -> Option<Fault> {
    let delay = Duration::from_millis(u64::try_from(rtt_ms).unwrap_or_default());
    Some(match (err, i16::try_from(err)) {
        (RD_KAFKA_RESP_ERR__TRANSPORT, _) => Fault::Cut,
        // Metadata has the errors of topics, which `rd_kafka_mock_topic_set_error` sets. The original ignores pushed ones.
        _ if api == ApiKey::Metadata => Fault::AnswerAfter(delay),
        // The round-trip time of a request that has its effect at once.
        (RD_KAFKA_RESP_ERR_NO_ERROR, _) => Fault::AnswerAfter(delay),
        (-1 | 1.., Ok(code)) if delay.is_zero() => Fault::Fail(ErrorCode::from_i16(code)),
        (-1 | 1.., Ok(code)) => Fault::FailAfter(ErrorCode::from_i16(code), delay),
        _ => return None,
    })
}

/// # Safety
/// NULL, or so many.
unsafe fn array<'a, T>(pointer: *const T, cnt: usize) -> &'a [T] {
    if pointer.is_null() || cnt == 0 {
        return &[];
    }
    // SAFETY: `pointer` points to `cnt` elements (the contract of this function, above).
    unsafe { std::slice::from_raw_parts(pointer, cnt) }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_push_request_errors_array(
    mcluster: *mut rd_kafka_mock_cluster_t,
    api_key: i16,
    cnt: usize,
    errors: *const rd_kafka_resp_err_t,
) {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed; `errors` points to `cnt` elements
    // (rdkafka_mock.h, `rd_kafka_mock_push_request_errors_array`).
    unsafe {
        let (api, errors) = (ApiKey::from_i16(api_key), array(errors, cnt));
        with(mcluster, (), |it| {
            for fault in errors.iter().filter_map(|err| fault(api, *err, 0)) {
                it.cluster().intercept(api, None, 1, fault);
            }
        });
    }
}

/// `rd_kafka_mock_broker_push_request_error_rtts` with its variable arguments in arrays.
pub(crate) unsafe fn push_at_broker(
    mcluster: *mut rd_kafka_mock_cluster_t,
    broker_id: i32,
    api_key: i16,
    cnt: usize,
    errors: *const rd_kafka_resp_err_t,
    rtts_ms: *const c_int,
) -> rd_kafka_resp_err_t {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed; `errors` points to `cnt` elements (required by
    // the C functions that call this).
    unsafe {
        let api = ApiKey::from_i16(api_key);
        let pairs = array(errors, cnt).iter().zip(array(rtts_ms, cnt));
        with(mcluster, RD_KAFKA_RESP_ERR__INVALID_ARG, |it| {
            if !it.cluster().nodes().contains(&broker_id) {
                return RD_KAFKA_RESP_ERR__UNKNOWN_BROKER;
            }
            for fault in pairs.filter_map(|(err, rtt_ms)| fault(api, *err, *rtt_ms)) {
                it.cluster().intercept(api, Some(broker_id), 1, fault);
            }
            RD_KAFKA_RESP_ERR_NO_ERROR
        })
    }
}

/// Arranges errors of one partition. A topic that does not exist is created with the partitions up to this one.
pub(crate) unsafe fn push_at_partition(
    mcluster: *mut rd_kafka_mock_cluster_t,
    topic: *const c_char,
    partition: i32,
    api_key: i16,
    cnt: usize,
    errors: *const rd_kafka_resp_err_t,
) -> rd_kafka_resp_err_t {
    let api = ApiKey::from_i16(api_key);
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed; `topic` is NULL or a C string; `errors` points to `cnt`
    // elements (required by the C function that calls this).
    unsafe {
        let codes = array(errors, cnt);
        with_partition(mcluster, topic, partition, |cluster, topic| {
            for code in codes {
                let code = i16::try_from(*code).map_or(ErrorCode::UnknownServerError, ErrorCode::from_i16);
                cluster.add_partition_error(api, topic, partition, code);
            }
            Ok(())
        })
    }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_clear_request_errors(
    mcluster: *mut rd_kafka_mock_cluster_t,
    api_key: i16,
) {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_clear_request_errors`).
    unsafe {
        with(mcluster, (), |it| {
            let (cluster, api) = (it.cluster(), ApiKey::from_i16(api_key));
            // Each broker of the original has a list of its own, which stays.
            let of_cluster = |rule: &FaultRule| rule.api == api && rule.node.is_none();
            let cleared = cluster.faults().into_iter().filter(|(_, rule)| of_cluster(rule));
            for (id, _) in cleared {
                cluster.remove_fault(id);
            }
        });
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_broker_error_stack_cnt(
    mcluster: *mut rd_kafka_mock_cluster_t,
    broker_id: i32,
    api_key: i16,
    cntp: *mut usize,
) -> rd_kafka_resp_err_t {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed; `cntp` is NULL or writable (rdkafka_mock.h,
    // `rd_kafka_mock_broker_error_stack_cnt`).
    unsafe {
        with(mcluster, RD_KAFKA_RESP_ERR__INVALID_ARG, |it| {
            let Some(count) = cntp.as_mut() else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
            let cluster = it.cluster();
            if !cluster.nodes().contains(&broker_id) {
                return RD_KAFKA_RESP_ERR__UNKNOWN_BROKER;
            }
            *count = cluster.intercepts_left(ApiKey::from_i16(api_key), broker_id);
            RD_KAFKA_RESP_ERR_NO_ERROR
        })
    }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_start_request_tracking(mcluster: *mut rd_kafka_mock_cluster_t) {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_start_request_tracking`).
    // The requests of an earlier time are forgotten.
    unsafe {
        with(mcluster, (), |it| {
            it.cluster().forget_tracked_requests();
            it.cluster().track_requests(true);
        });
    };
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_stop_request_tracking(mcluster: *mut rd_kafka_mock_cluster_t) {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_stop_request_tracking`).
    unsafe { with(mcluster, (), |it| it.cluster().track_requests(false)) };
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_clear_requests(mcluster: *mut rd_kafka_mock_cluster_t) {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed (rdkafka_mock.h,
    // `rd_kafka_mock_clear_requests`).
    unsafe { with(mcluster, (), |it| it.cluster().forget_tracked_requests()) };
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_get_requests(
    mcluster: *mut rd_kafka_mock_cluster_t,
    cntp: *mut usize,
) -> *mut *mut rd_kafka_mock_request_t {
    // SAFETY: `mcluster` is NULL or a mock cluster, not yet destroyed; `cntp` is NULL or writable (rdkafka_mock.h,
    // `rd_kafka_mock_get_requests`).
    unsafe {
        with(mcluster, null_mut(), |it| {
            let Some(count) = cntp.as_mut() else { return null_mut() };
            let requests = it.cluster().tracked_requests();
            *count = 0;
            // As in the original, there is no array without requests.
            if requests.is_empty() {
                return null_mut();
            }
            // The array is C's to free.
            let size = size_of::<*mut rd_kafka_mock_request_t>();
            let all: *mut *mut rd_kafka_mock_request_t = libc::calloc(requests.len(), size).cast();
            if all.is_null() {
                return null_mut();
            }
            for (index, request) in requests.iter().enumerate() {
                let since = request.at.into_std().saturating_duration_since(it.started);
                let at_us = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
                let boxed = Box::new(Request { node: request.node, api_key: request.api.code(), at_us });
                *all.add(index) = Box::into_raw(boxed).cast();
            }
            *count = requests.len();
            all
        })
    }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_request_destroy(mreq: *mut rd_kafka_mock_request_t) {
    if !mreq.is_null() {
        // SAFETY: from `rd_kafka_mock_get_requests`, given back once (rdkafka_mock.h,
        // `rd_kafka_mock_request_destroy`).
        drop(unsafe { Box::from_raw(mreq.cast::<Request>()) });
    }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mock_request_destroy_array(
    mreqs: *mut *mut rd_kafka_mock_request_t,
    mreq_cnt: usize,
) {
    // SAFETY: allocated by `rd_kafka_mock_get_requests` (rdkafka_mock.h, `rd_kafka_mock_request_destroy_array`).
    unsafe {
        for request in array(mreqs, mreq_cnt) {
            rd_kafka_mock_request_destroy(*request);
        }
        libc::free(mreqs.cast());
    }
}

/// The fields of a request that the accessors read.
macro_rules! accessors {
    ($($function:ident $field:ident: $type:ty;)*) => {
        $(
            #[on_panic(-1)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $function(mreq: *mut rd_kafka_mock_request_t) -> $type {
                // SAFETY: `mreq` is NULL or a request of `rd_kafka_mock_get_requests`, not yet destroyed
                // (rdkafka_mock.h, every function of this macro).
                unsafe { mreq.cast::<Request>().as_ref() }.map_or(-1, |request| request.$field)
            }
        )*
    };
}

accessors! {
    rd_kafka_mock_request_id node: i32;
    rd_kafka_mock_request_api_key api_key: i16;
    rd_kafka_mock_request_timestamp at_us: i64;
}
