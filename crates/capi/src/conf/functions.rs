//! The functions on configurations as a whole.

use std::ffi::{CString, c_char};
use std::ptr::{null, null_mut};

use ottla_client::properties::{self, Property, Role, Scope, State};

use super::callbacks::HANDLE_PRODUCE_RESPONSE;
use super::{NotSet, rd_kafka_conf_t};
use crate::conf::conf_handles::{default_topic, set_default_topic};
use crate::conf::conf_interceptors::{ConfDupChain, ConfSetChain, ConfSetOutcome, HandledProperty};
use crate::conf::topic_conf::answer;
use crate::conf::{plugins, property_names};
use crate::ffi::c_strings::{c_string, get_into, leaked_pairs, text};
use crate::ffi::panic::{guard, on_panic};
use crate::ffi::*;

const PLUGINS: &str = "plugin.library.paths";

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_conf_new() -> *mut rd_kafka_conf_t {
    rd_kafka_conf_t::new().into_handle()
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_conf_destroy(conf: *mut rd_kafka_conf_t) {
    let Some((own, taken)) = rd_kafka_conf_t::take(conf, FUNCTION) else { return };
    taken.ended();
    // Interceptors of the destruction run here.
    drop(own);
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_conf_dup(conf: *const rd_kafka_conf_t) -> *mut rd_kafka_conf_t {
    // SAFETY: the caller's pointers, passed on.
    unsafe { rd_kafka_conf_dup_filter(conf, 0, null_mut()) }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_conf_dup_filter(
    conf: *const rd_kafka_conf_t,
    filter_cnt: usize,
    filter: *mut *const c_char,
) -> *mut rd_kafka_conf_t {
    let Some(old) = rd_kafka_conf_t::of(conf, FUNCTION) else { return null_mut() };
    // SAFETY: that many C strings (rdkafka.h, `rd_kafka_conf_dup_filter`).
    let prefixes = (0..if filter.is_null() { 0 } else { filter_cnt })
        .filter_map(|at| unsafe { text(*filter.add(at)) })
        .collect::<Vec<_>>();
    let prefixes: Vec<&str> = prefixes.iter().map(AsRef::as_ref).collect();
    let intercepted = Intercepted::of(&old, &prefixes);
    let copy = old.dup(&prefixes).into_handle();
    drop(old);
    if !copy.is_null() {
        // SAFETY: the filter is the caller's; interceptors may add themselves to the copy.
        unsafe {
            intercepted.notified.on_conf_dup(copy, conf, filter_cnt, filter);
            intercepted.repeat_on(copy, FUNCTION);
        }
    }
    copy
}

/// The plugins and interceptors of a configuration, and the properties that a copy shows to its own.
struct Intercepted {
    notified: ConfDupChain,
    /// The properties of the table that were set, and `plugin.library.paths`, in the table's order.
    set: Vec<(&'static str, String)>,
    /// The properties that only interceptors know.
    handled: Vec<HandledProperty>,
}

impl Intercepted {
    /// Leaves out properties whose names begin with one of `filter`.
    fn of(conf: &rd_kafka_conf_t, filter: &[&str]) -> Self {
        let interceptors = &conf.interceptors;
        let passes = |name: &str| !filter.iter().any(|prefix| name.starts_with(prefix));
        let set = if conf.plugins.is_empty() && interceptors.dups().is_empty() {
            Vec::new()
        } else {
            let is_set = |name: &str| name == PLUGINS || conf.given.contains_key(name);
            let names = property_names::GLOBAL.iter().copied();
            let shown = names.filter(|name| is_set(name) && passes(name));
            shown.filter_map(|name| Some((name, conf.get(name)?))).collect()
        };
        let passes_handled = |handled: &&HandledProperty| passes(&handled.name.to_string_lossy());
        let handled = interceptors.handled().iter().filter(passes_handled).cloned().collect();
        Self { notified: interceptors.dups(), set, handled }
    }

    /// Loads the plugins for `copy` and shows its interceptors all properties.
    ///
    /// # Safety
    /// `copy` is a configuration that lives. Plugins and interceptors are the application's code.
    unsafe fn repeat_on(self, copy: *mut rd_kafka_conf_t, function: &str) {
        for (name, value) in self.set {
            let (c_name, c_value) = (c_string(name), c_string(&value));
            // The values were valid before, so results are ignored. SAFETY: the contract of this function, above.
            unsafe {
                if name == PLUGINS {
                    let _ = load_plugins(copy, &value, function);
                } else if let Some(setters) = setters(copy, function).filter(|setters| !setters.is_empty()) {
                    setters.on_conf_set(copy, c_name.as_ptr(), c_value.as_ptr(), null_mut(), 0);
                }
            }
        }
        for HandledProperty { name, value } in self.handled {
            let value = value.as_ref().map_or(null(), |value| value.as_ptr());
            // SAFETY: a configuration that lives, and C strings.
            unsafe { rd_kafka_conf_set(copy, name.as_ptr(), value, null_mut(), 0) };
        }
    }
}

fn setters(conf: *mut rd_kafka_conf_t, function: &str) -> Option<ConfSetChain> {
    rd_kafka_conf_t::of_mut(conf, function).map(|conf| conf.interceptors.setters())
}

#[on_panic(RD_KAFKA_CONF_INVALID)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_conf_set(
    conf: *mut rd_kafka_conf_t,
    name: *const c_char,
    value: *const c_char,
    errstr: *mut c_char,
    errstr_size: usize,
) -> rd_kafka_conf_res_t {
    let refusal = "rd_kafka_conf_set without a name, or without a configuration that is the application's";
    // SAFETY: `name` is NULL or a C string (rdkafka.h, `rd_kafka_conf_set`).
    if unsafe { text(name) }.as_deref() == Some(HANDLE_PRODUCE_RESPONSE)
        && let Some(mut conf) = rd_kafka_conf_t::of_mut(conf, FUNCTION)
    {
        // Interceptors do not see it: they would read the function as a string. SAFETY: the value of this property is NULL
        // or a function of this type (librdkafka's test 0090), and NULL is `None`.
        conf.callbacks.handle_produce_response =
            unsafe { std::mem::transmute::<*const c_char, handle_produce_response_t>(value) };
        return RD_KAFKA_CONF_OK;
    }
    let Some(setters) = setters(conf, FUNCTION) else {
        // SAFETY: `errstr` is NULL or a buffer of `errstr_size` bytes (rdkafka.h, `rd_kafka_conf_set`).
        return unsafe { answer(Err(NotSet::Invalid(refusal.into())), errstr, errstr_size) };
    };
    // SAFETY: the caller's arguments, passed on.
    match unsafe { setters.on_conf_set(conf, name, value, errstr, errstr_size) } {
        ConfSetOutcome::Pass => {}
        ConfSetOutcome::Done(outcome) => {
            let conf = rd_kafka_conf_t::of_mut(conf, FUNCTION);
            if let (Some(mut conf), RD_KAFKA_CONF_OK) = (conf, outcome) {
                // SAFETY: `name` and `value` are each NULL or a C string (rdkafka.h, `rd_kafka_conf_set`).
                unsafe { conf.interceptors.note_handled(name, value) };
            }
            return outcome;
        }
    }
    // SAFETY: `name` and `value` are each NULL or a C string (rdkafka.h, `rd_kafka_conf_set`).
    let (name, value) = unsafe { (text(name), text(value)) };
    if name.as_deref() == Some(PLUGINS) {
        // SAFETY: `conf` is NULL or a configuration from `rd_kafka_conf_new`, not yet destroyed; `value` is NULL or a
        // C string; `errstr` is NULL or a buffer of `errstr_size` bytes (rdkafka.h, `rd_kafka_conf_set`).
        return unsafe {
            answer(load_plugins(conf, &value.unwrap_or_default(), FUNCTION), errstr, errstr_size)
        };
    }
    let conf = rd_kafka_conf_t::of_mut(conf, FUNCTION);
    let set = guard(
        || Err(NotSet::Invalid("the property could not be set".into())),
        || match (conf, name) {
            (Some(mut conf), Some(name)) => conf.set(&name, value.as_deref()),
            _ => Err(NotSet::Invalid(refusal.into())),
        },
    );
    // SAFETY: `errstr` is NULL or a buffer of `errstr_size` bytes (rdkafka.h, `rd_kafka_conf_set`).
    unsafe { answer(set, errstr, errstr_size) }
}

/// Plugins add functions to the configuration, so no other reference exists meanwhile.
///
/// # Safety
/// A configuration that lives.
unsafe fn load_plugins(conf: *mut rd_kafka_conf_t, paths: &str, function: &str) -> Result<(), NotSet> {
    // SAFETY: the application names what it wants in its process (the contract of this function, above).
    guard(|| Err("the plugins could not be loaded".to_owned()), || unsafe { plugins::load(conf, paths) })
        .map_err(|why| NotSet::Invalid(format!("{PLUGINS}: {why}")))?;
    if let Some(mut conf) = rd_kafka_conf_t::of_mut(conf, function) {
        paths.clone_into(&mut conf.plugins);
    }
    Ok(())
}

#[on_panic(RD_KAFKA_CONF_INVALID)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_conf_get(
    conf: *const rd_kafka_conf_t,
    name: *const c_char,
    dest: *mut c_char,
    dest_size: *mut usize,
) -> rd_kafka_conf_res_t {
    // SAFETY: `conf` is NULL or a configuration from `rd_kafka_conf_new`, not yet destroyed; `name` is NULL or a C
    // string (rdkafka.h, `rd_kafka_conf_get`).
    let (conf, name) = unsafe { (rd_kafka_conf_t::of(conf, FUNCTION), text(name)) };
    let value = conf.zip(name).and_then(|(conf, name)| conf.get(&name));
    // SAFETY: `dest_size` is NULL or writable (rdkafka.h, `rd_kafka_conf_get`).
    unsafe { get_into(value.as_deref(), dest, dest_size) }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_conf_dump(
    conf: *mut rd_kafka_conf_t,
    cntp: *mut usize,
) -> *mut *const c_char {
    let conf = rd_kafka_conf_t::of(conf, FUNCTION);
    let pairs = conf.as_deref().map_or_else(Vec::new, rd_kafka_conf_t::dump);
    // SAFETY: `cntp` is NULL or writable (rdkafka.h, `rd_kafka_conf_dump`).
    unsafe { leaked_pairs(pairs, cntp) }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_conf_dump_free(arr: *mut *const c_char, cnt: usize) {
    if arr.is_null() {
        return;
    }
    for at in 0..cnt {
        // SAFETY: made by `leaked_pairs` with that many strings (rdkafka.h, `rd_kafka_conf_dump_free`).
        drop(unsafe { CString::from_raw((*arr.add(at)).cast_mut()) });
    }
    // SAFETY: as above; the array is a boxed slice of that length.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(arr, cnt)) });
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_conf_properties_show(fp: *mut libc::FILE) {
    if fp.is_null() {
        return;
    }
    let table = c_string(&table());
    // SAFETY: an open stream and a C string.
    unsafe { libc::fputs(table.as_ptr(), fp) };
}

fn table() -> String {
    let mut lines = Vec::new();
    for (scope, title) in
        [(Scope::Global, "Global configuration properties"), (Scope::Topic, "Topic configuration properties")]
    {
        lines.push(format!("## {title}\n"));
        lines.push(format!("{:<45}| C/P | {:<40} | {:>20} | Description", "Property", "Range", "Default"));
        lines.push(format!("{:-<45}|-----|-{:-<40}-|-{:->20}:|-{:-<24}", "", "", "", ""));
        lines.extend(properties::all().filter(|property| property.scope == scope).flat_map(rows));
        lines.push(String::new());
    }
    lines.join("\n")
}

fn rows(property: &'static Property) -> impl Iterator<Item = String> {
    let role = match property.role {
        Role::All => "*",
        Role::Producer => "P",
        Role::Consumer => "C",
    };
    let state = match property.state {
        State::Effective { .. } => String::new(),
        State::Accepted { why } => format!(" Has no effect: {why}."),
        State::Refused { why } => format!(" Only its default: {why}."),
    };
    let (range, default, text) = (property.range(), property.default_librdkafka, property.text);
    std::iter::once(&property.name)
        .chain(property.aliases)
        .map(move |name| format!("{name:<45}|  {role}  | {range:<40} | {default:>20} | {text}{state}"))
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_conf_set_default_topic_conf(
    conf: *mut rd_kafka_conf_t,
    tconf: *mut rd_kafka_topic_conf_t,
) {
    set_default_topic(conf, tconf, FUNCTION);
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_conf_get_default_topic_conf(
    conf: *mut rd_kafka_conf_t,
) -> *mut rd_kafka_topic_conf_t {
    default_topic(conf, FUNCTION)
}

/// The contexts of `debug`, as the header's constant has them.
#[on_panic(null())]
#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_get_debug_contexts() -> *const c_char {
    c"all,generic,broker,topic,metadata,feature,queue,msg,protocol,cgrp,security,fetch,interceptor,plugin,consumer,admin,eos,mock,assignor,conf".as_ptr()
}
