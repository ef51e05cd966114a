//! The acknowledgements of single records.

use std::ffi::c_char;

use ottla_client::{AcknowledgeType, ShareAcknowledgementMode, TopicPartition};

use crate::ffi::c_strings::text;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::messages::message::place_of;
use crate::share::share_call::{Refused, ShareCall};

/// Acknowledges the record at a place, which is not read without a share consumer.
fn acknowledge(
    rkshare: *mut rd_kafka_share_t,
    function: &str,
    place: impl FnOnce() -> Option<(TopicPartition, i64)>,
    kind: rd_kafka_share_AcknowledgeType_t,
) -> rd_kafka_resp_err_t {
    let outcome = ShareCall::begin_open(rkshare, function).and_then(|call| {
        let (at, offset) = place()
            .filter(|(at, offset)| at.partition >= 0 && *offset >= 0)
            .ok_or_else(|| Refused::new(RD_KAFKA_RESP_ERR__INVALID_ARG, "no such record"))?;
        let is_explicit = call.client.config.share_acknowledgement_mode == ShareAcknowledgementMode::Explicit;
        let kind = match kind {
            RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_RELEASE => AcknowledgeType::Release,
            RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_REJECT => AcknowledgeType::Reject,
            RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_ACCEPT => AcknowledgeType::Accept,
            _ if is_explicit => {
                return Err(Refused::new(RD_KAFKA_RESP_ERR__INVALID_ARG, "no such acknowledgement"));
            }
            // The mode is the error that comes first.
            _ => AcknowledgeType::Accept,
        };
        call.with(|consumer| Ok(consumer.acknowledge_offset(&at, offset, kind)?))
    });
    outcome.map_or_else(|refused| refused.code(), |()| RD_KAFKA_RESP_ERR_NO_ERROR)
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_acknowledge(
    rkshare: *mut rd_kafka_share_t,
    rkmessage: *const rd_kafka_message_t,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rkmessage` is NULL or a message of this library (rdkafka.h, `rd_kafka_share_acknowledge`).
    let place = || unsafe { place_of(rkmessage, FUNCTION) };
    acknowledge(rkshare, FUNCTION, place, RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_ACCEPT)
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_acknowledge_type(
    rkshare: *mut rd_kafka_share_t,
    rkmessage: *const rd_kafka_message_t,
    type_: rd_kafka_share_AcknowledgeType_t,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rkmessage` is NULL or a message of this library (rdkafka.h, `rd_kafka_share_acknowledge_type`).
    let place = || unsafe { place_of(rkmessage, FUNCTION) };
    acknowledge(rkshare, FUNCTION, place, type_)
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_acknowledge_offset(
    rkshare: *mut rd_kafka_share_t,
    topic: *const c_char,
    partition: i32,
    offset: i64,
    type_: rd_kafka_share_AcknowledgeType_t,
) -> rd_kafka_resp_err_t {
    // SAFETY: `topic` is NULL or a C string (rdkafka.h, `rd_kafka_share_acknowledge_offset`).
    let topic = unsafe { text(topic) };
    let place = || topic.map(|topic| (TopicPartition::new(&topic, partition), offset));
    acknowledge(rkshare, FUNCTION, place, type_)
}
