//! `plugin.library.paths`: a third-party library adds its interceptors to every configuration that names it.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it runs a compiler")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(
    clippy::wildcard_imports,
    clippy::unwrap_used,
    reason = "C's names, and a test that stops where it must"
)]

mod common;

use std::ffi::{CStr, CString, c_int, c_void};
use std::path::Path;
use std::process::Command;

use common::*;
use rdkafka::conf::conf_interceptors::*;
use rdkafka::conf::*;
use rdkafka::ffi::*;

/// A plugin that owns the property `mine`. A library cannot find functions of the test program, so the test sets `add`.
const SOURCE: &str = r#"
#include <string.h>
typedef int (*on_set)(void *conf, const char *name, const char *value, char *errstr, size_t size, void *opaque);
int (*add)(void *conf, const char *name, on_set function, void *opaque);
int calls;
static int set(void *conf, const char *name, const char *value, char *errstr, size_t size, void *opaque) {
  return strcmp(name, "mine") == 0 ? 0 : -2;
}
int conf_init(void *conf, void **opaque, char *errstr, size_t size) {
  calls++;
  if (add == NULL) {
    strncpy(errstr, "not today", size);
    return -185;
  }
  return add(conf, "plugin", set, NULL);
}
"#;

fn set(conf: *mut rd_kafka_conf_t, name: &CStr, value: &str) -> (rd_kafka_conf_res_t, String) {
    let value = CString::new(value).unwrap();
    let mut text = [0; 512];
    unsafe {
        let set = rd_kafka_conf_set(conf, name.as_ptr(), value.as_ptr(), text.as_mut_ptr(), text.len());
        (set, CStr::from_ptr(text.as_ptr()).to_str().unwrap().to_owned())
    }
}

fn compiled(dir: &Path) -> String {
    let (source, library) = (dir.join("plugin.c"), dir.join("plugin.so"));
    std::fs::write(&source, SOURCE).unwrap();
    let mut cc = Command::new("cc");
    let made = cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status().unwrap();
    assert!(made.success());
    library.to_str().unwrap().to_owned()
}

const PATHS: &CStr = c"plugin.library.paths";

/// Opens the plugin, and gives it the function that adds interceptors.
fn opened(library: &str) -> *mut c_void {
    unsafe {
        let loaded = libc::dlopen(CString::new(library).unwrap().as_ptr(), libc::RTLD_NOW);
        let add = libc::dlsym(loaded, c"add".as_ptr()).cast::<*mut c_void>();
        *add = rd_kafka_conf_interceptor_add_on_conf_set as *mut c_void;
        loaded
    }
}

/// The number of configurations that the plugin has seen.
fn calls(loaded: *mut c_void) -> c_int {
    unsafe { *libc::dlsym(loaded, c"calls".as_ptr()).cast::<c_int>() }
}

#[test]
fn a_plugin_is_loaded_and_intercepts() {
    let dir = tempfile::tempdir().unwrap();
    let library = compiled(dir.path());
    let conf = conf(&[]);

    let (code, text) = set(conf, PATHS, "/nowhere/plugin");
    assert!(code == RD_KAFKA_CONF_INVALID && text.starts_with("plugin.library.paths: "), "{text}");
    assert!(text.contains("/nowhere/plugin"), "{text}");
    let (code, text) = set(conf, PATHS, &library);
    assert!(code == RD_KAFKA_CONF_INVALID && text.ends_with("failed: not today"), "{text}");
    assert_eq!(set(conf, c"mine", "1").0, RD_KAFKA_CONF_UNKNOWN);

    unsafe {
        let loaded = opened(&library);
        // The ending may be left out, as it differs between systems.
        assert_eq!(set(conf, PATHS, library.strip_suffix(".so").unwrap()).0, RD_KAFKA_CONF_OK);
        assert_eq!(set(conf, c"mine", "1").0, RD_KAFKA_CONF_OK);
        // A copy has its own plugins, unless the filter excludes them.
        let copy = rd_kafka_conf_dup(conf);
        assert_eq!(set(copy, c"mine", "1").0, RD_KAFKA_CONF_OK);
        let filter = [c"plugin.".as_ptr()];
        let without = rd_kafka_conf_dup_filter(conf, filter.len(), filter.as_ptr().cast_mut());
        assert_eq!(set(without, c"mine", "1").0, RD_KAFKA_CONF_UNKNOWN);
        assert_eq!(calls(loaded), 3);
        for conf in [conf, copy, without] {
            rd_kafka_conf_destroy(conf);
        }
    }
}

/// The second call of `conf_init` added the same interceptor again, and the configuration was refused.
#[test]
fn a_plugin_that_is_named_twice_is_loaded_once() {
    let dir = tempfile::tempdir().unwrap();
    let library = compiled(dir.path());
    let loaded = opened(&library);
    let conf = conf(&[]);
    let (code, text) = set(conf, PATHS, &format!("{library}; {library}"));
    assert_eq!((code, calls(loaded)), (RD_KAFKA_CONF_OK, 1), "{text}");
    assert_eq!(set(conf, c"mine", "1").0, RD_KAFKA_CONF_OK);
    unsafe { rd_kafka_conf_destroy(conf) };
}

/// The error was that of `broken.so.so`, which does not exist.
#[test]
fn a_plugin_that_cannot_be_loaded_has_the_error_of_its_own_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("broken.so");
    std::fs::write(&file, "no library").unwrap();
    let conf = conf(&[]);
    let (code, text) = set(conf, PATHS, file.to_str().unwrap());
    assert_eq!(code, RD_KAFKA_CONF_INVALID);
    assert!(text.contains("broken.so: ") && !text.contains("broken.so.so"), "{text}");
    unsafe { rd_kafka_conf_destroy(conf) };
}
