//! The names of the admin interface's numbers.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null;

use crate::ffi::panic::on_panic;
use crate::ffi::*;

pub(super) const GROUP_STATES: &[&CStr] =
    &[c"Unknown", c"PreparingRebalance", c"CompletingRebalance", c"Stable", c"Dead", c"Empty"];
pub(super) const GROUP_TYPES: &[&CStr] = &[c"Unknown", c"Consumer", c"Classic"];

const UNSUPPORTED: &CStr = c"UNSUPPORTED";

fn at(names: &[&'static CStr], number: c_int) -> Option<&'static CStr> {
    names.get(usize::try_from(number).ok()?).copied()
}

/// The number of a name, whatever its case; 0 if there is none.
pub(super) fn number(names: &[&CStr], name: &str) -> c_int {
    let found = names.iter().position(|known| known.to_bytes().eq_ignore_ascii_case(name.as_bytes()));
    found.and_then(|found| c_int::try_from(found).ok()).unwrap_or(0)
}

macro_rules! name_functions {
    ($($function:ident($type:ty): $names:expr;)*) => {$(
        #[on_panic(null())]
        #[unsafe(no_mangle)]
        pub extern "C" fn $function(number: $type) -> *const c_char {
            at($names, number).unwrap_or(UNSUPPORTED).as_ptr()
        }
    )*};
}

name_functions! {
    rd_kafka_ResourceType_name(rd_kafka_ResourceType_t):
        &[c"UNKNOWN", c"ANY", c"TOPIC", c"GROUP", c"BROKER", c"TRANSACTIONAL_ID"];
    rd_kafka_ResourcePatternType_name(rd_kafka_ResourcePatternType_t):
        &[c"UNKNOWN", c"ANY", c"MATCH", c"LITERAL", c"PREFIXED"];
    rd_kafka_AclOperation_name(rd_kafka_AclOperation_t): &[
        c"UNKNOWN", c"ANY", c"ALL", c"READ", c"WRITE", c"CREATE", c"DELETE", c"ALTER", c"DESCRIBE",
        c"CLUSTER_ACTION", c"DESCRIBE_CONFIGS", c"ALTER_CONFIGS", c"IDEMPOTENT_WRITE",
    ];
    rd_kafka_AclPermissionType_name(rd_kafka_AclPermissionType_t): &[c"UNKNOWN", c"ANY", c"DENY", c"ALLOW"];
    rd_kafka_ConfigSource_name(rd_kafka_ConfigSource_t): &[
        c"UNKNOWN_CONFIG", c"DYNAMIC_TOPIC_CONFIG", c"DYNAMIC_BROKER_CONFIG", c"DYNAMIC_DEFAULT_BROKER_CONFIG",
        c"STATIC_BROKER_CONFIG", c"DEFAULT_CONFIG", c"DYNAMIC_BROKER_LOGGER_CONFIG", c"CLIENT_METRICS_CONFIG",
        c"GROUP_CONFIG",
    ];
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_consumer_group_state_name(
    state: rd_kafka_consumer_group_state_t,
) -> *const c_char {
    at(GROUP_STATES, state).map_or(null(), CStr::as_ptr)
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_consumer_group_type_name(type_: rd_kafka_consumer_group_type_t) -> *const c_char {
    at(GROUP_TYPES, type_).map_or(null(), CStr::as_ptr)
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_consumer_group_state_code(
    name: *const c_char,
) -> rd_kafka_consumer_group_state_t {
    // SAFETY: `name` is NULL or a C string (rdkafka.h, `rd_kafka_consumer_group_state_code`).
    unsafe { c_strings::text(name) }.map_or(0, |name| number(GROUP_STATES, &name))
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_consumer_group_type_code(
    name: *const c_char,
) -> rd_kafka_consumer_group_type_t {
    // SAFETY: `name` is NULL or a C string (rdkafka.h, `rd_kafka_consumer_group_type_code`).
    unsafe { c_strings::text(name) }.map_or(0, |name| number(GROUP_TYPES, &name))
}
