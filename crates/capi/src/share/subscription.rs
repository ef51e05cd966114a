//! The subscription of a share consumer.

use std::ffi::c_int;

use crate::consume::consumer_state::ENGINE_TIMEOUT;
use crate::ffi::c_strings::c_string;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::messages::list_conversion;
use crate::messages::partition_list::rd_kafka_topic_partition_list_new;
use crate::share::share_call::{Refused, ShareCall};

fn code(outcome: Result<(), Refused>) -> rd_kafka_resp_err_t {
    outcome.map_or_else(|refused| refused.code(), |()| RD_KAFKA_RESP_ERR_NO_ERROR)
}

/// Replaces the subscription of an open share consumer.
fn subscribe(call: &ShareCall, topics: Vec<(String, i32)>) -> Result<(), Refused> {
    let names: Vec<&str> = topics.iter().map(|(name, _)| name.as_str()).collect();
    let mut state = call.state();
    if let Some(consumer) = &mut state.consumer {
        consumer.subscribe_blocking(&names, ENGINE_TIMEOUT)?;
    } else if !names.is_empty() {
        return Err(Refused::new(RD_KAFKA_RESP_ERR__UNKNOWN_GROUP, ""));
    }
    state.subscription = topics;
    Ok(())
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_subscribe(
    rkshare: *mut rd_kafka_share_t,
    topics: *const rd_kafka_topic_partition_list_t,
) -> rd_kafka_resp_err_t {
    let call = match ShareCall::begin_open(rkshare, FUNCTION) {
        Ok(call) => call,
        Err(refused) => return refused.code(),
    };
    if topics.is_null() {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    // SAFETY: `topics` is a list of this library, not yet destroyed (rdkafka.h, `rd_kafka_share_subscribe`).
    let entries = unsafe { list_conversion::entries(topics) };
    let mut topics: Vec<(String, i32)> =
        entries.iter().map(|entry| (entry.topic().to_string_lossy().into_owned(), entry.partition)).collect();
    topics.sort();
    let has_nameless = topics.iter().any(|(name, _)| name.is_empty());
    if has_nameless || topics.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    code(subscribe(&call, topics))
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_unsubscribe(rkshare: *mut rd_kafka_share_t) -> rd_kafka_resp_err_t {
    code(ShareCall::begin_open(rkshare, FUNCTION).and_then(|call| subscribe(&call, Vec::new())))
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_subscription(
    rkshare: *mut rd_kafka_share_t,
    topics: *mut *mut rd_kafka_topic_partition_list_t,
) -> rd_kafka_resp_err_t {
    let call = match ShareCall::begin_open(rkshare, FUNCTION) {
        Ok(call) => call,
        Err(refused) => return refused.code(),
    };
    // SAFETY: `topics` is NULL or writable (rdkafka.h, `rd_kafka_share_subscription`).
    let Some(place) = (unsafe { topics.as_mut() }) else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
    let state = call.state();
    let list = rd_kafka_topic_partition_list_new(c_int::try_from(state.subscription.len()).unwrap_or(0));
    // SAFETY: made just now; NULL when memory is out.
    if let Some(list) = unsafe { list.as_mut() } {
        for (name, partition) in &state.subscription {
            list.add(&c_string(name), *partition);
        }
    }
    *place = list;
    RD_KAFKA_RESP_ERR_NO_ERROR
}
