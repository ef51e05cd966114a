//! Resources and their settings: asked for, changed, described.

use std::ffi::{CString, c_char, c_int};
use std::ptr::{null, null_mut};

use ottla_client::{ConfigChange, ConfigResource, ConfigResourceType, KeyedResults};

use super::macros::{array_readers, destroyers, readers};
use super::{Array, DefaultPointer, GrowingArray, code, invalid, lossy, optional, words};
use crate::errors::error_object::{description, rd_kafka_error_t};
use crate::ffi::c_strings::{c_string, text};
use crate::ffi::panic::on_panic;
use crate::ffi::*;

/// Kafka's number for groups among resources with settings; the headers have the one of access rules.
const GROUP: i8 = 32;

/// A resource with settings: what is asked for, or what it has.
pub struct rd_kafka_ConfigResource_t {
    kind: rd_kafka_ResourceType_t,
    name: CString,
    /// The settings of a request or of a result.
    entries: GrowingArray<rd_kafka_ConfigEntry_t>,
    /// The incremental change of each setting of a request.
    changes: Vec<ConfigChange>,
    err: rd_kafka_resp_err_t,
    text: Option<CString>,
}

/// A setting, or one that it would fall back to.
pub struct rd_kafka_ConfigEntry_t {
    name: CString,
    value: Option<CString>,
    source: rd_kafka_ConfigSource_t,
    read_only: bool,
    default: bool,
    sensitive: bool,
    synonym: bool,
    synonyms: std::sync::Arc<Array<rd_kafka_ConfigEntry_t>>,
}

impl rd_kafka_ConfigEntry_t {
    fn set(name: &str, value: &str) -> Self {
        Self {
            name: c_string(name),
            value: Some(c_string(value)),
            source: RD_KAFKA_CONFIG_SOURCE_UNKNOWN_CONFIG,
            read_only: false,
            default: false,
            sensitive: false,
            synonym: false,
            synonyms: std::sync::Arc::new(Array::new(Vec::new())),
        }
    }

    fn described(entry: &ottla_client::ConfigEntry) -> Self {
        let synonym = |synonym: &ottla_client::ConfigSynonym| Self {
            value: synonym.value.as_deref().map(c_string),
            source: synonym.source.code().into(),
            synonym: true,
            // They are of the setting that they are synonyms of.
            read_only: entry.read_only,
            sensitive: entry.sensitive,
            ..Self::set(&synonym.name, "")
        };
        Self {
            value: entry.value.as_deref().map(c_string),
            source: entry.source.code().into(),
            read_only: entry.read_only,
            default: entry.default,
            sensitive: entry.sensitive,
            synonyms: std::sync::Arc::new(Array::new(entry.synonyms.iter().map(synonym).collect())),
            ..Self::set(&entry.name, "")
        }
    }
}

impl rd_kafka_ConfigResource_t {
    fn new(kind: rd_kafka_ResourceType_t, name: CString) -> Self {
        Self {
            kind,
            name,
            entries: GrowingArray::new(Vec::new()),
            changes: Vec::new(),
            err: RD_KAFKA_RESP_ERR_NO_ERROR,
            text: None,
        }
    }

    fn answered<V>(
        resource: &ConfigResource,
        answer: Result<V, ottla_client::Error>,
        entries: impl FnOnce(V) -> Vec<rd_kafka_ConfigEntry_t>,
    ) -> Self {
        let kind = match resource.kind {
            ConfigResourceType::Group => RD_KAFKA_RESOURCE_GROUP,
            kind => kind.code().into(),
        };
        let mut result = Self::new(kind, c_string(&resource.name));
        match answer {
            Ok(value) => result.entries = GrowingArray::new(entries(value)),
            Err(error) => {
                (result.err, result.text) = (code(&error), Some(c_string(&words(&error))));
            }
        }
        result
    }

    /// The resource in the client's words.
    pub(super) fn resource(&self) -> ConfigResource {
        let code = match self.kind {
            RD_KAFKA_RESOURCE_GROUP => GROUP,
            kind => i8::try_from(kind).unwrap_or(0),
        };
        ConfigResource::new(ConfigResourceType::from_code(code), lossy(&self.name))
    }

    /// The settings that replace all others of the resource.
    pub(super) fn replaced(&self) -> (ConfigResource, Vec<(String, String)>) {
        let value = |(entry, _): (&rd_kafka_ConfigEntry_t, _)| {
            (lossy(&entry.name), entry.value.as_deref().map(lossy).unwrap_or_default())
        };
        (self.resource(), self.set_entries().map(value).collect())
    }

    /// The settings that change, and no others.
    pub(super) fn changed(&self) -> (ConfigResource, Vec<(String, ConfigChange)>) {
        let change =
            |(entry, change): (&rd_kafka_ConfigEntry_t, &ConfigChange)| (lossy(&entry.name), change.clone());
        (self.resource(), self.set_entries().map(change).collect())
    }

    /// The settings of a request; a result has none.
    fn set_entries(&self) -> impl Iterator<Item = (&rd_kafka_ConfigEntry_t, &ConfigChange)> {
        self.entries.items().zip(&self.changes)
    }

    fn push(&mut self, name: &str, value: Option<&str>, change: ConfigChange) {
        let value = value.map(c_string);
        self.entries.push(rd_kafka_ConfigEntry_t { value, ..rd_kafka_ConfigEntry_t::set(name, "") });
        self.changes.push(change);
    }
}

/// The result of each change.
pub(super) fn altered(answers: KeyedResults<ConfigResource, ()>) -> Array<rd_kafka_ConfigResource_t> {
    let result = |(resource, answer): (ConfigResource, _)| {
        rd_kafka_ConfigResource_t::answered(&resource, answer, |()| Vec::new())
    };
    Array::new(answers.into_iter().map(result).collect())
}

/// The configuration of each resource.
pub(super) fn described(
    answers: KeyedResults<ConfigResource, Vec<ottla_client::ConfigEntry>>,
) -> Array<rd_kafka_ConfigResource_t> {
    let result = |(resource, answer): (ConfigResource, _)| {
        rd_kafka_ConfigResource_t::answered(&resource, answer, |entries: Vec<ottla_client::ConfigEntry>| {
            entries.iter().map(rd_kafka_ConfigEntry_t::described).collect()
        })
    };
    Array::new(answers.into_iter().map(result).collect())
}

readers! {
    rd_kafka_ConfigEntry_name(rd_kafka_ConfigEntry_t) -> *const c_char [null()] |entry| entry.name.as_ptr();
    rd_kafka_ConfigEntry_value(rd_kafka_ConfigEntry_t) -> *const c_char [null()] |entry| optional(entry.value.as_ref());
    rd_kafka_ConfigEntry_source(rd_kafka_ConfigEntry_t) -> rd_kafka_ConfigSource_t
        [RD_KAFKA_CONFIG_SOURCE_UNKNOWN_CONFIG] |entry| entry.source;
    rd_kafka_ConfigEntry_is_read_only(rd_kafka_ConfigEntry_t) -> c_int [0] |entry| entry.read_only.into();
    rd_kafka_ConfigEntry_is_default(rd_kafka_ConfigEntry_t) -> c_int [0] |entry| entry.default.into();
    rd_kafka_ConfigEntry_is_sensitive(rd_kafka_ConfigEntry_t) -> c_int [0] |entry| entry.sensitive.into();
    rd_kafka_ConfigEntry_is_synonym(rd_kafka_ConfigEntry_t) -> c_int [0] |entry| entry.synonym.into();
    rd_kafka_ConfigResource_type(rd_kafka_ConfigResource_t) -> rd_kafka_ResourceType_t
        [RD_KAFKA_RESOURCE_UNKNOWN] |resource| resource.kind;
    rd_kafka_ConfigResource_name(rd_kafka_ConfigResource_t) -> *const c_char [null()] |resource| resource.name.as_ptr();
    rd_kafka_ConfigResource_error(rd_kafka_ConfigResource_t) -> rd_kafka_resp_err_t
        [RD_KAFKA_RESP_ERR_NO_ERROR] |resource| resource.err;
    rd_kafka_ConfigResource_error_string(rd_kafka_ConfigResource_t) -> *const c_char [null()] |resource| {
        match &resource.text {
            Some(text) if !text.is_empty() => text.as_ptr(),
            Some(_) => description(resource.err).as_ptr(),
            None => null(),
        }
    };
}

array_readers! {
    rd_kafka_ConfigEntry_synonyms(rd_kafka_ConfigEntry_t) -> *mut *const rd_kafka_ConfigEntry_t,
        |entry| entry.synonyms.read();
    rd_kafka_ConfigResource_configs(rd_kafka_ConfigResource_t) -> *mut *const rd_kafka_ConfigEntry_t,
        |resource| resource.entries.read();
}

destroyers! {
    rd_kafka_ConfigResource_destroy, rd_kafka_ConfigResource_destroy_array (rd_kafka_ConfigResource_t);
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_ConfigResource_new(
    restype: rd_kafka_ResourceType_t,
    resname: *const c_char,
) -> *mut rd_kafka_ConfigResource_t {
    // SAFETY: `resname` is NULL or a C string (rdkafka.h, `rd_kafka_ConfigResource_new`).
    match unsafe { text(resname) } {
        Some(name) if !name.is_empty() && restype >= 0 => {
            Box::into_raw(Box::new(rd_kafka_ConfigResource_t::new(restype, c_string(&name))))
        }
        _ => null_mut(),
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_ConfigResource_set_config(
    config: *mut rd_kafka_ConfigResource_t,
    name: *const c_char,
    value: *const c_char,
) -> rd_kafka_resp_err_t {
    // SAFETY: `config` is NULL or a `rd_kafka_ConfigResource_t` of this library, not yet destroyed; `name` and
    // `value` are each NULL or a C string (rdkafka.h, `rd_kafka_ConfigResource_set_config`).
    let (Some(resource), Some(name), Some(value)) = (unsafe { (config.as_mut(), text(name), text(value)) })
    else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    if name.is_empty() {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    resource.push(&name, Some(&value), ConfigChange::Set(value.to_string()));
    RD_KAFKA_RESP_ERR_NO_ERROR
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_ConfigResource_add_incremental_config(
    config: *mut rd_kafka_ConfigResource_t,
    name: *const c_char,
    op_type: rd_kafka_AlterConfigOpType_t,
    value: *const c_char,
) -> *mut rd_kafka_error_t {
    // SAFETY: `config` is NULL or a `rd_kafka_ConfigResource_t` of this library, not yet destroyed; `name` and
    // `value` are each NULL or a C string (rdkafka.h, `rd_kafka_ConfigResource_add_incremental_config`).
    let (resource, name, value) = unsafe { (config.as_mut(), text(name), text(value)) };
    let (Some(resource), Some(name)) = (resource, name) else {
        return invalid("Config name is required");
    };
    if name.is_empty() {
        return invalid("Config name mustn't be empty");
    }
    let value = value.map(std::borrow::Cow::into_owned);
    let change = match (op_type, value.clone()) {
        (RD_KAFKA_ALTER_CONFIG_OP_TYPE_DELETE, _) => ConfigChange::Delete,
        (RD_KAFKA_ALTER_CONFIG_OP_TYPE_SET, Some(value)) => ConfigChange::Set(value),
        (RD_KAFKA_ALTER_CONFIG_OP_TYPE_APPEND, Some(value)) => ConfigChange::Append(value),
        (RD_KAFKA_ALTER_CONFIG_OP_TYPE_SUBTRACT, Some(value)) => ConfigChange::Subtract(value),
        (0..RD_KAFKA_ALTER_CONFIG_OP_TYPE__CNT, None) => return invalid("Config value is required"),
        _ => return invalid("Invalid alter config operation type"),
    };
    resource.push(&name, value.as_deref(), change);
    null_mut()
}
