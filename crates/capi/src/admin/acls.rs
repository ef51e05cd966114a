//! Access rules, and filters that look like them.

use std::ffi::{CString, c_char};
use std::ptr::{null, null_mut};

use ottla_client::{
    Acl, AclFilter, AclOperation, AclPermission, Error, KeyedResults, PatternType, ResourceType,
};

use super::macros::{array_readers, destroyers, readers};
use super::{Array, DefaultPointer, error_object, error_pointer, lossy, optional};
use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::c_strings::{c_string, text, write_errstr};
use crate::ffi::panic::on_panic;
use crate::ffi::*;

/// A rule, or a filter: that one may leave names out, and say `ANY`.
pub struct rd_kafka_AclBinding_t {
    kind: rd_kafka_ResourceType_t,
    pattern: rd_kafka_ResourcePatternType_t,
    name: Option<CString>,
    principal: Option<CString>,
    host: Option<CString>,
    operation: rd_kafka_AclOperation_t,
    permission: rd_kafka_AclPermissionType_t,
    /// The result in a response.
    error: Option<Box<rd_kafka_error_t>>,
}

impl rd_kafka_AclBinding_t {
    fn of(acl: &Acl, error: Option<&Error>) -> Self {
        Self {
            kind: acl.resource.code().into(),
            pattern: acl.pattern.code().into(),
            name: Some(c_string(&acl.name)),
            principal: Some(c_string(&acl.principal)),
            host: Some(c_string(&acl.host)),
            operation: acl.operation.code().into(),
            permission: acl.permission.code().into(),
            error: error.map(error_object),
        }
    }

    pub(super) fn filter(&self) -> AclFilter {
        let code = |number: std::ffi::c_int| i8::try_from(number).unwrap_or(0);
        AclFilter {
            resource: ResourceType::from_code(code(self.kind)),
            name: self.name.as_deref().map(lossy),
            pattern: PatternType::from_code(code(self.pattern)),
            principal: self.principal.as_deref().map(lossy),
            host: self.host.as_deref().map(lossy),
            operation: AclOperation::from_code(code(self.operation)),
            permission: AclPermission::from_code(code(self.permission)),
        }
    }

    /// The rule; a filter that leaves something out is none.
    pub(super) fn acl(&self) -> Result<Acl, &'static str> {
        let AclFilter { resource, name, pattern, principal, host, operation, permission } = self.filter();
        Ok(Acl {
            resource,
            name: name.ok_or("Invalid resource name")?,
            pattern,
            principal: principal.ok_or("Invalid principal")?,
            host: host.ok_or("Invalid host")?,
            operation,
            permission,
        })
    }

    /// Refuses numbers without a meaning; the valid ones begin at `least`. Programs compare the texts.
    fn check(&self, least: i32, patterns: &[rd_kafka_ResourcePatternType_t]) -> Result<(), &'static str> {
        for (is_valid, text) in [
            ((least..RD_KAFKA_RESOURCE__CNT).contains(&self.kind), "Invalid resource type"),
            (patterns.contains(&self.pattern), "Invalid resource pattern type"),
            ((least..RD_KAFKA_ACL_OPERATION__CNT).contains(&self.operation), "Invalid operation"),
            (
                (least..RD_KAFKA_ACL_PERMISSION_TYPE__CNT).contains(&self.permission),
                "Invalid permission type",
            ),
        ] {
            if !is_valid {
                return Err(text);
            }
        }
        Ok(())
    }
}

/// The result of creating a rule.
pub struct rd_kafka_acl_result_t {
    error: Option<Box<rd_kafka_error_t>>,
}

/// The rules that a filter matched and deleted.
pub struct rd_kafka_DeleteAcls_result_response_t {
    error: Option<Box<rd_kafka_error_t>>,
    matching: Array<rd_kafka_AclBinding_t>,
}

pub(super) fn created(answers: KeyedResults<Acl, ()>) -> Array<rd_kafka_acl_result_t> {
    let result = |(_, answer): (Acl, Result<(), Error>)| rd_kafka_acl_result_t {
        error: answer.err().as_ref().map(error_object),
    };
    Array::new(answers.into_iter().map(result).collect())
}

pub(super) fn described(acls: &[Acl]) -> Array<rd_kafka_AclBinding_t> {
    Array::new(acls.iter().map(|acl| rd_kafka_AclBinding_t::of(acl, None)).collect())
}

pub(super) fn deleted(
    answers: KeyedResults<AclFilter, KeyedResults<Acl, ()>>,
) -> Array<rd_kafka_DeleteAcls_result_response_t> {
    let result = |(_, answer): (AclFilter, Result<KeyedResults<Acl, ()>, Error>)| {
        let error = answer.as_ref().err().map(error_object);
        let matching = answer.unwrap_or_default();
        let binding = |(acl, deleted): &(Acl, Result<(), Error>)| {
            rd_kafka_AclBinding_t::of(acl, deleted.as_ref().err())
        };
        let matching = Array::new(matching.iter().map(binding).collect());
        rd_kafka_DeleteAcls_result_response_t { error, matching }
    };
    Array::new(answers.into_iter().map(result).collect())
}

readers! {
    rd_kafka_AclBinding_restype(rd_kafka_AclBinding_t) -> rd_kafka_ResourceType_t
        [RD_KAFKA_RESOURCE_UNKNOWN] |acl| acl.kind;
    rd_kafka_AclBinding_name(rd_kafka_AclBinding_t) -> *const c_char [null()] |acl| optional(acl.name.as_ref());
    rd_kafka_AclBinding_principal(rd_kafka_AclBinding_t) -> *const c_char
        [null()] |acl| optional(acl.principal.as_ref());
    rd_kafka_AclBinding_host(rd_kafka_AclBinding_t) -> *const c_char [null()] |acl| optional(acl.host.as_ref());
    rd_kafka_AclBinding_operation(rd_kafka_AclBinding_t) -> rd_kafka_AclOperation_t
        [RD_KAFKA_ACL_OPERATION_UNKNOWN] |acl| acl.operation;
    rd_kafka_AclBinding_permission_type(rd_kafka_AclBinding_t) -> rd_kafka_AclPermissionType_t
        [RD_KAFKA_ACL_PERMISSION_TYPE_UNKNOWN] |acl| acl.permission;
    rd_kafka_AclBinding_resource_pattern_type(rd_kafka_AclBinding_t) -> rd_kafka_ResourcePatternType_t
        [RD_KAFKA_RESOURCE_PATTERN_UNKNOWN] |acl| acl.pattern;
    rd_kafka_AclBinding_error(rd_kafka_AclBinding_t) -> *const rd_kafka_error_t
        [null()] |acl| error_pointer(acl.error.as_deref());
    rd_kafka_acl_result_error(rd_kafka_acl_result_t) -> *const rd_kafka_error_t
        [null()] |acl| error_pointer(acl.error.as_deref());
    rd_kafka_DeleteAcls_result_response_error(rd_kafka_DeleteAcls_result_response_t) -> *const rd_kafka_error_t
        [null()] |response| error_pointer(response.error.as_deref());
}

array_readers! {
    rd_kafka_DeleteAcls_result_response_matching_acls(rd_kafka_DeleteAcls_result_response_t)
        -> *mut *const rd_kafka_AclBinding_t, |response| response.matching.read();
}

destroyers! {
    rd_kafka_AclBinding_destroy, rd_kafka_AclBinding_destroy_array (rd_kafka_AclBinding_t);
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_AclBinding_new(
    restype: rd_kafka_ResourceType_t,
    name: *const c_char,
    resource_pattern_type: rd_kafka_ResourcePatternType_t,
    principal: *const c_char,
    host: *const c_char,
    operation: rd_kafka_AclOperation_t,
    permission_type: rd_kafka_AclPermissionType_t,
    errstr: *mut c_char,
    errstr_size: usize,
) -> *mut rd_kafka_AclBinding_t {
    // SAFETY: `name`, `principal` and `host` are each NULL or a C string; `errstr` is NULL or a buffer of
    // `errstr_size` bytes (rdkafka.h, `rd_kafka_AclBinding_new`).
    unsafe {
        let names = [name, principal, host];
        let numbers = [restype, resource_pattern_type, operation, permission_type];
        binding(names, numbers, false, errstr, errstr_size)
    }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_AclBindingFilter_new(
    restype: rd_kafka_ResourceType_t,
    name: *const c_char,
    resource_pattern_type: rd_kafka_ResourcePatternType_t,
    principal: *const c_char,
    host: *const c_char,
    operation: rd_kafka_AclOperation_t,
    permission_type: rd_kafka_AclPermissionType_t,
    errstr: *mut c_char,
    errstr_size: usize,
) -> *mut rd_kafka_AclBindingFilter_t {
    // SAFETY: `name`, `principal` and `host` are each NULL or a C string; `errstr` is NULL or a buffer of
    // `errstr_size` bytes (rdkafka.h, `rd_kafka_AclBindingFilter_new`).
    unsafe {
        let names = [name, principal, host];
        let numbers = [restype, resource_pattern_type, operation, permission_type];
        binding(names, numbers, true, errstr, errstr_size)
    }
}

/// A rule or a filter; what is wrong with it is written to `errstr`.
///
/// # Safety
/// `names` are NULL or C strings, `errstr` is NULL or has `size` bytes.
unsafe fn binding(
    names: [*const c_char; 3],
    numbers: [std::ffi::c_int; 4],
    is_filter: bool,
    errstr: *mut c_char,
    size: usize,
) -> *mut rd_kafka_AclBinding_t {
    // SAFETY: `names` are NULL or C strings (the contract of this function, above).
    let [name, principal, host] = names.map(|name| unsafe { text(name) }.map(|name| c_string(&name)));
    let [kind, pattern, operation, permission] = numbers;
    let binding =
        rd_kafka_AclBinding_t { kind, pattern, name, principal, host, operation, permission, error: None };
    let checked = if is_filter {
        let patterns = [
            RD_KAFKA_RESOURCE_PATTERN_ANY,
            RD_KAFKA_RESOURCE_PATTERN_MATCH,
            RD_KAFKA_RESOURCE_PATTERN_LITERAL,
            RD_KAFKA_RESOURCE_PATTERN_PREFIXED,
        ];
        binding.check(RD_KAFKA_RESOURCE_ANY, &patterns)
    } else {
        let patterns = [RD_KAFKA_RESOURCE_PATTERN_LITERAL, RD_KAFKA_RESOURCE_PATTERN_PREFIXED];
        binding.acl().and_then(|_| binding.check(RD_KAFKA_RESOURCE_ANY + 1, &patterns))
    };
    match checked {
        Ok(()) => Box::into_raw(Box::new(binding)),
        Err(reason) => {
            // SAFETY: `errstr` is NULL or a buffer of `size` bytes (the contract of this function, above).
            unsafe { write_errstr(errstr, size, reason) };
            null_mut()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that each function accepts; librdkafka accepts the same.
    #[test]
    fn rules_say_everything_and_filters_may_leave_things_out() {
        let made = |numbers, with_name: bool, is_filter| {
            let name = if with_name { c"n".as_ptr() } else { null() };
            // SAFETY: valid strings; what is made is destroyed.
            unsafe {
                let made = binding([name, c"p".as_ptr(), c"h".as_ptr()], numbers, is_filter, null_mut(), 0);
                rd_kafka_AclBinding_destroy(made);
                !made.is_null()
            }
        };
        for (numbers, with_name, rule, filter) in [
            ([2, 3, 3, 3], true, true, true),
            ([2, 3, 3, 3], false, false, true),
            ([0, 3, 3, 3], true, false, false),
            ([1, 3, 3, 3], true, false, true),
            ([6, 3, 3, 3], true, false, false),
            ([2, 0, 3, 3], true, false, false),
            ([2, 2, 3, 3], true, false, true),
            ([2, 5, 3, 3], true, false, false),
            ([2, 3, 1, 3], true, false, true),
            ([2, 3, 13, 3], true, false, false),
            ([2, 3, 3, 1], true, false, true),
            ([2, 3, 3, 4], true, false, false),
        ] {
            assert_eq!(made(numbers, with_name, false), rule, "{numbers:?}");
            assert_eq!(made(numbers, with_name, true), filter, "{numbers:?}");
        }
    }
}
