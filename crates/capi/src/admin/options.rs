//! `rd_kafka_AdminOptions_t`: the options of a request. A request rejects the options that it does not support.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::time::Duration;

use ottla_client::{AlterOptions, DescribeOptions, GroupFilter, Isolation, Timeouts};

use super::enum_names::{GROUP_STATES, GROUP_TYPES};
use super::invalid;
use super::macros::destroyers;
use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::c_strings::write_errstr;
use crate::ffi::panic::on_panic;
use crate::ffi::*;

const HOUR_MS: c_int = 3_600_000;

#[derive(Clone, Debug)]
pub struct rd_kafka_AdminOptions_t {
    api: rd_kafka_admin_op_t,
    request_timeout_ms: Option<c_int>,
    operation_timeout_ms: Option<c_int>,
    validate_only: bool,
    stable: bool,
    authorized: bool,
    isolation: Isolation,
    filter: GroupFilter,
    opaque: usize,
}

impl rd_kafka_AdminOptions_t {
    pub fn new(api: rd_kafka_admin_op_t) -> Self {
        Self {
            api,
            request_timeout_ms: None,
            operation_timeout_ms: None,
            validate_only: false,
            stable: false,
            authorized: false,
            isolation: Isolation::ReadUncommitted,
            filter: GroupFilter::default(),
            opaque: 0,
        }
    }

    pub fn timeouts(&self) -> Timeouts {
        // A negative time for the broker is none.
        let ms = |ms: c_int| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        Timeouts { request: self.request_timeout_ms.map(ms), operation: self.operation_timeout_ms.map(ms) }
    }

    pub fn change(&self) -> AlterOptions {
        AlterOptions { timeouts: self.timeouts(), validate_only: self.validate_only }
    }

    pub fn describe(&self) -> DescribeOptions {
        DescribeOptions { timeouts: self.timeouts(), authorized_operations: self.authorized }
    }

    pub fn stable(&self) -> bool {
        self.stable
    }

    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    pub fn filter(&self) -> GroupFilter {
        self.filter.clone()
    }

    pub fn opaque(&self) -> *mut c_void {
        self.opaque as *mut c_void
    }

    /// Returns `true` if the request of the options supports this option.
    fn check(&self, option: &str, apis: &[rd_kafka_admin_op_t]) -> Result<(), String> {
        if self.api == RD_KAFKA_ADMIN_OP_ANY || apis.contains(&self.api) {
            return Ok(());
        }
        Err(format!("\"{option}\" is not supported for this operation"))
    }
}

fn in_range(option: &str, value: c_int, min: c_int, max: c_int) -> Result<c_int, String> {
    if (min..=max).contains(&value) {
        return Ok(value);
    }
    Err(format!("Invalid value type for \"{option}\": expecting integer in range {min}..{max}"))
}

const OPERATION_TIMEOUT: &[rd_kafka_admin_op_t] = &[
    RD_KAFKA_ADMIN_OP_CREATETOPICS,
    RD_KAFKA_ADMIN_OP_DELETETOPICS,
    RD_KAFKA_ADMIN_OP_CREATEPARTITIONS,
    RD_KAFKA_ADMIN_OP_DELETERECORDS,
    RD_KAFKA_ADMIN_OP_LISTOFFSETS,
    RD_KAFKA_ADMIN_OP_ELECTLEADERS,
];
const VALIDATE_ONLY: &[rd_kafka_admin_op_t] = &[
    RD_KAFKA_ADMIN_OP_CREATETOPICS,
    RD_KAFKA_ADMIN_OP_CREATEPARTITIONS,
    RD_KAFKA_ADMIN_OP_ALTERCONFIGS,
    RD_KAFKA_ADMIN_OP_INCREMENTALALTERCONFIGS,
];
const STABLE: &[rd_kafka_admin_op_t] = &[RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS];
const AUTHORIZED: &[rd_kafka_admin_op_t] = &[
    RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS,
    RD_KAFKA_ADMIN_OP_DESCRIBETOPICS,
    RD_KAFKA_ADMIN_OP_DESCRIBECLUSTER,
];
const GROUPS: &[rd_kafka_admin_op_t] = &[RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPS];
const ISOLATION: &[rd_kafka_admin_op_t] = &[RD_KAFKA_ADMIN_OP_LISTOFFSETS];

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_AdminOptions_new(
    rk: *mut rd_kafka_t,
    for_api: rd_kafka_admin_op_t,
) -> *mut rd_kafka_AdminOptions_t {
    if rk.is_null() || !(RD_KAFKA_ADMIN_OP_ANY..RD_KAFKA_ADMIN_OP__CNT).contains(&for_api) {
        return null_mut();
    }
    Box::into_raw(Box::new(rd_kafka_AdminOptions_t::new(for_api)))
}

destroyers! {
    rd_kafka_AdminOptions_destroy (rd_kafka_AdminOptions_t);
}

/// Sets an option, or writes the reason for the failure to `errstr`.
///
/// # Safety
/// `options` is NULL or options of this library that no other thread uses; `errstr` is NULL or has `size` bytes.
unsafe fn set(
    options: *mut rd_kafka_AdminOptions_t,
    errstr: *mut c_char,
    size: usize,
    change: impl FnOnce(&mut rd_kafka_AdminOptions_t) -> Result<(), String>,
) -> rd_kafka_resp_err_t {
    // SAFETY: `options` is NULL or a `rd_kafka_AdminOptions_t` of this library, not yet destroyed (the contract of
    // this function, above).
    let Some(options) = (unsafe { options.as_mut() }) else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
    let Err(reason) = change(options) else { return RD_KAFKA_RESP_ERR_NO_ERROR };
    // SAFETY: `errstr` is NULL or a buffer of `size` bytes (the contract of this function, above).
    unsafe { write_errstr(errstr, size, &reason) };
    RD_KAFKA_RESP_ERR__INVALID_ARG
}

/// Sets an option and returns the error as an object.
///
/// # Safety
/// The contract of [`set`] without `errstr`.
unsafe fn try_set(
    options: *mut rd_kafka_AdminOptions_t,
    change: impl FnOnce(&mut rd_kafka_AdminOptions_t) -> Result<(), String>,
) -> *mut rd_kafka_error_t {
    // SAFETY: `options` is NULL or a `rd_kafka_AdminOptions_t` of this library, not yet destroyed (the contract of
    // this function, above).
    let Some(options) = (unsafe { options.as_mut() }) else { return invalid("options: NULL") };
    change(options).map_or_else(|reason| invalid(&reason), |()| null_mut())
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_AdminOptions_set_request_timeout(
    options: *mut rd_kafka_AdminOptions_t,
    timeout_ms: c_int,
    errstr: *mut c_char,
    errstr_size: usize,
) -> rd_kafka_resp_err_t {
    let change = |options: &mut rd_kafka_AdminOptions_t| {
        options.request_timeout_ms = Some(in_range("request_timeout", timeout_ms, 0, HOUR_MS)?);
        Ok(())
    };
    // SAFETY: `options` is NULL or a `rd_kafka_AdminOptions_t` of this library, not yet destroyed; `errstr` is NULL
    // or a buffer of `errstr_size` bytes (rdkafka.h, `rd_kafka_AdminOptions_set_request_timeout`).
    unsafe { set(options, errstr, errstr_size, change) }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_AdminOptions_set_operation_timeout(
    options: *mut rd_kafka_AdminOptions_t,
    timeout_ms: c_int,
    errstr: *mut c_char,
    errstr_size: usize,
) -> rd_kafka_resp_err_t {
    let change = |options: &mut rd_kafka_AdminOptions_t| {
        options.check("operation_timeout", OPERATION_TIMEOUT)?;
        options.operation_timeout_ms = Some(in_range("operation_timeout", timeout_ms, -1, HOUR_MS)?);
        Ok(())
    };
    // SAFETY: `options` is NULL or a `rd_kafka_AdminOptions_t` of this library, not yet destroyed; `errstr` is NULL
    // or a buffer of `errstr_size` bytes (rdkafka.h, `rd_kafka_AdminOptions_set_operation_timeout`).
    unsafe { set(options, errstr, errstr_size, change) }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_AdminOptions_set_validate_only(
    options: *mut rd_kafka_AdminOptions_t,
    true_or_false: c_int,
    errstr: *mut c_char,
    errstr_size: usize,
) -> rd_kafka_resp_err_t {
    let change = |options: &mut rd_kafka_AdminOptions_t| {
        options.check("validate_only", VALIDATE_ONLY)?;
        options.validate_only = in_range("validate_only", true_or_false, 0, 1)? == 1;
        Ok(())
    };
    // SAFETY: `options` is NULL or a `rd_kafka_AdminOptions_t` of this library, not yet destroyed; `errstr` is NULL
    // or a buffer of `errstr_size` bytes (rdkafka.h, `rd_kafka_AdminOptions_set_validate_only`).
    unsafe { set(options, errstr, errstr_size, change) }
}

/// The request determines the broker, so the number is only checked.
#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_AdminOptions_set_broker(
    options: *mut rd_kafka_AdminOptions_t,
    broker_id: i32,
    errstr: *mut c_char,
    errstr_size: usize,
) -> rd_kafka_resp_err_t {
    // SAFETY: `options` is NULL or a `rd_kafka_AdminOptions_t` of this library, not yet destroyed; `errstr` is NULL
    // or a buffer of `errstr_size` bytes (rdkafka.h, `rd_kafka_AdminOptions_set_broker`).
    unsafe { set(options, errstr, errstr_size, |_| in_range("broker", broker_id, 0, i32::MAX).map(|_| ())) }
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_AdminOptions_set_require_stable_offsets(
    options: *mut rd_kafka_AdminOptions_t,
    true_or_false: c_int,
) -> *mut rd_kafka_error_t {
    let change = |options: &mut rd_kafka_AdminOptions_t| {
        options.check("require_stable_offsets", STABLE)?;
        options.stable = in_range("require_stable_offsets", true_or_false, 0, 1)? == 1;
        Ok(())
    };
    // SAFETY: `options` is NULL or a `rd_kafka_AdminOptions_t` of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_AdminOptions_set_require_stable_offsets`).
    unsafe { try_set(options, change) }
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_AdminOptions_set_include_authorized_operations(
    options: *mut rd_kafka_AdminOptions_t,
    true_or_false: c_int,
) -> *mut rd_kafka_error_t {
    let change = |options: &mut rd_kafka_AdminOptions_t| {
        options.check("include_authorized_operations", AUTHORIZED)?;
        options.authorized = in_range("include_authorized_operations", true_or_false, 0, 1)? == 1;
        Ok(())
    };
    // SAFETY: `options` is NULL or a `rd_kafka_AdminOptions_t` of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_AdminOptions_set_include_authorized_operations`).
    unsafe { try_set(options, change) }
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_AdminOptions_set_isolation_level(
    options: *mut rd_kafka_AdminOptions_t,
    value: rd_kafka_IsolationLevel_t,
) -> *mut rd_kafka_error_t {
    let change = |options: &mut rd_kafka_AdminOptions_t| {
        options.check("isolation_level", ISOLATION)?;
        options.isolation = match in_range("isolation_level", value, 0, 1)? {
            RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED => Isolation::ReadCommitted,
            _ => Isolation::ReadUncommitted,
        };
        Ok(())
    };
    // SAFETY: `options` is NULL or a `rd_kafka_AdminOptions_t` of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_AdminOptions_set_isolation_level`).
    unsafe { try_set(options, change) }
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_AdminOptions_set_match_consumer_group_states(
    options: *mut rd_kafka_AdminOptions_t,
    consumer_group_states: *const rd_kafka_consumer_group_state_t,
    consumer_group_states_cnt: usize,
) -> *mut rd_kafka_error_t {
    let change = |options: &mut rd_kafka_AdminOptions_t| {
        options.check("match_consumer_group_states", GROUPS)?;
        // SAFETY: `consumer_group_states` points to `consumer_group_states_cnt` elements (rdkafka.h,
        // `rd_kafka_AdminOptions_set_match_consumer_group_states`).
        let states = unsafe { numbers(consumer_group_states, consumer_group_states_cnt) };
        options.filter.states = names(states, GROUP_STATES, &STATE_REFUSALS)?;
        Ok(())
    };
    // SAFETY: `options` is NULL or a `rd_kafka_AdminOptions_t` of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_AdminOptions_set_match_consumer_group_states`).
    unsafe { try_set(options, change) }
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_AdminOptions_set_match_consumer_group_types(
    options: *mut rd_kafka_AdminOptions_t,
    consumer_group_types: *const rd_kafka_consumer_group_type_t,
    consumer_group_types_cnt: usize,
) -> *mut rd_kafka_error_t {
    let change = |options: &mut rd_kafka_AdminOptions_t| {
        options.check("match_consumer_group_types", GROUPS)?;
        // SAFETY: `consumer_group_types` points to `consumer_group_types_cnt` elements (rdkafka.h,
        // `rd_kafka_AdminOptions_set_match_consumer_group_types`).
        let types = unsafe { numbers(consumer_group_types, consumer_group_types_cnt) };
        // An unknown state may be in a filter, but no unknown type.
        if types.contains(&RD_KAFKA_CONSUMER_GROUP_TYPE_UNKNOWN) {
            return Err("UNKNOWN type is not allowed".to_owned());
        }
        options.filter.kinds = names(types, GROUP_TYPES, &TYPE_REFUSALS)?;
        Ok(())
    };
    // SAFETY: `options` is NULL or a `rd_kafka_AdminOptions_t` of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_AdminOptions_set_match_consumer_group_types`).
    unsafe { try_set(options, change) }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_AdminOptions_set_opaque(
    options: *mut rd_kafka_AdminOptions_t,
    ev_opaque: *mut c_void,
) {
    // SAFETY: `options` is NULL or a `rd_kafka_AdminOptions_t` of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_AdminOptions_set_opaque`).
    if let Some(options) = unsafe { options.as_mut() } {
        options.opaque = ev_opaque as usize;
    }
}

/// # Safety
/// NULL, or that many.
unsafe fn numbers<'a>(pointer: *const c_int, count: usize) -> &'a [c_int] {
    if pointer.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: `pointer` points to `count` numbers (the contract of this function, above).
    unsafe { std::slice::from_raw_parts(pointer, count) }
}

/// The texts for numbers without a name and for repeated ones, which programs compare.
struct Refusals {
    unknown: &'static str,
    repeated: &'static str,
}

const STATE_REFUSALS: Refusals =
    Refusals { unknown: "Invalid group state value", repeated: "Duplicate states not allowed" };
const TYPE_REFUSALS: Refusals =
    Refusals { unknown: "Only a valid type is allowed", repeated: "Duplicate types not allowed" };

fn names(numbers: &[c_int], all: &[&std::ffi::CStr], refusals: &Refusals) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = Vec::new();
    for number in numbers {
        let name = usize::try_from(*number).ok().and_then(|index| all.get(index));
        let name = name.ok_or(refusals.unknown)?.to_string_lossy().into_owned();
        if names.contains(&name) {
            return Err(refusals.repeated.to_owned());
        }
        names.push(name);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_refused_where_nothing_would_heed_them() {
        let options = &mut rd_kafka_AdminOptions_t::new(RD_KAFKA_ADMIN_OP_DELETETOPICS);
        let mut text = [0 as c_char; 100];
        // SAFETY: valid pointers.
        unsafe {
            let size = text.len();
            let refused = rd_kafka_AdminOptions_set_validate_only(options, 1, text.as_mut_ptr(), size);
            assert_eq!(refused, RD_KAFKA_RESP_ERR__INVALID_ARG);
            let said = std::ffi::CStr::from_ptr(text.as_ptr()).to_str().expect("text");
            assert_eq!(said, "\"validate_only\" is not supported for this operation");
            for (ms, code) in [(-1, 0), (-2, RD_KAFKA_RESP_ERR__INVALID_ARG), (HOUR_MS, 0)] {
                assert_eq!(rd_kafka_AdminOptions_set_operation_timeout(options, ms, null_mut(), 0), code);
            }
            let refused = rd_kafka_AdminOptions_set_request_timeout(options, -1, null_mut(), 0);
            assert_eq!(refused, RD_KAFKA_RESP_ERR__INVALID_ARG);
            let refused = rd_kafka_AdminOptions_set_request_timeout(options, -1, text.as_mut_ptr(), size);
            assert_eq!(refused, RD_KAFKA_RESP_ERR__INVALID_ARG);
            let said = std::ffi::CStr::from_ptr(text.as_ptr()).to_str().expect("text");
            let expected =
                "Invalid value type for \"request_timeout\": expecting integer in range 0..3600000";
            assert_eq!(said, expected);
            assert_eq!(rd_kafka_AdminOptions_set_request_timeout(options, 5, null_mut(), 0), 0);
        }
        assert_eq!(options.timeouts().request, Some(Duration::from_millis(5)));
        assert_eq!(options.timeouts().operation, Some(Duration::from_secs(3_600)));
    }

    #[test]
    fn groups_are_chosen_by_states_and_types_that_there_are() {
        let states = |numbers: &[c_int]| names(numbers, GROUP_STATES, &STATE_REFUSALS);
        assert_eq!(states(&[3, 5]), Ok(vec!["Stable".into(), "Empty".into()]));
        assert_eq!(states(&[3, 3]), Err("Duplicate states not allowed".into()));
        for number in [-1, 99] {
            assert_eq!(states(&[number]), Err("Invalid group state value".into()));
            let refused = names(&[number], GROUP_TYPES, &TYPE_REFUSALS);
            assert_eq!(refused, Err("Only a valid type is allowed".into()));
        }
    }
}
