//! `rd_kafka_Uuid_t`: 128 bits that name a topic.

use std::ffi::{CString, c_char};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ottla_client::Uuid;

use crate::ffi::panic::on_panic;

#[derive(Default)]
pub struct rd_kafka_Uuid_t {
    uuid: Uuid,
    /// Made when it is asked for, and alive as long as the id.
    text: OnceLock<CString>,
}

impl rd_kafka_Uuid_t {
    pub fn new(uuid: Uuid) -> Self {
        Self { uuid, text: OnceLock::new() }
    }

    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    fn bits(&self, most_significant: bool) -> i64 {
        let bits = u128::from(self.uuid);
        (if most_significant { bits >> 64 } else { bits }) as i64
    }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_Uuid_new(
    most_significant_bits: i64,
    least_significant_bits: i64,
) -> *mut rd_kafka_Uuid_t {
    let bits = (u128::from(most_significant_bits as u64) << 64) | u128::from(least_significant_bits as u64);
    Box::into_raw(Box::new(rd_kafka_Uuid_t::new(Uuid::from(bits))))
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_Uuid_copy(uuid: *const rd_kafka_Uuid_t) -> *mut rd_kafka_Uuid_t {
    // SAFETY: `uuid` is NULL or a `rd_kafka_Uuid_t` of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_Uuid_copy`).
    let uuid = unsafe { uuid.as_ref() };
    uuid.map_or(null_mut(), |uuid| Box::into_raw(Box::new(rd_kafka_Uuid_t::new(uuid.uuid))))
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_Uuid_destroy(uuid: *mut rd_kafka_Uuid_t) {
    if !uuid.is_null() {
        // SAFETY: one of ours, given back once (rdkafka.h, `rd_kafka_Uuid_destroy`).
        drop(unsafe { Box::from_raw(uuid) });
    }
}

/// In the plain alphabet of base64, unlike Kafka's own tools, and without padding.
#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_Uuid_base64str(uuid: *const rd_kafka_Uuid_t) -> *const c_char {
    // SAFETY: `uuid` is NULL or a `rd_kafka_Uuid_t` of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_Uuid_base64str`).
    let uuid = unsafe { uuid.as_ref() };
    uuid.map_or(null(), |uuid| {
        let text = || CString::new(STANDARD_NO_PAD.encode(uuid.uuid.0)).expect("base64 has no NUL");
        uuid.text.get_or_init(text).as_ptr()
    })
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_Uuid_most_significant_bits(uuid: *const rd_kafka_Uuid_t) -> i64 {
    // SAFETY: `uuid` is NULL or a `rd_kafka_Uuid_t` of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_Uuid_most_significant_bits`).
    unsafe { uuid.as_ref() }.map_or(0, |uuid| uuid.bits(true))
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_Uuid_least_significant_bits(uuid: *const rd_kafka_Uuid_t) -> i64 {
    // SAFETY: `uuid` is NULL or a `rd_kafka_Uuid_t` of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_Uuid_least_significant_bits`).
    unsafe { uuid.as_ref() }.map_or(0, |uuid| uuid.bits(false))
}
