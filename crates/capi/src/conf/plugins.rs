//! `plugin.library.paths`: libraries that the application wants loaded, which hang interceptors into the configuration.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;

use crate::conf::rd_kafka_conf_t;
use crate::ffi::c_strings::{buffer_text, c_string};
use crate::ffi::*;

/// The entry point of a plugin; runs once for each configuration that names it.
type Init = rd_kafka_plugin_f_conf_init_t;

const ERRSTR_BYTES: usize = 512;

/// Loads the libraries of a list that semicolons divide, and lets each have a look at the configuration. A library stays loaded,
/// for its interceptors may be called until the process ends. As in the original, one that is named again in the list is left out.
///
/// # Safety
/// A configuration that is not destroyed and has no other reference; loading a library runs its code.
pub(crate) unsafe fn load(conf: *mut rd_kafka_conf_t, paths: &str) -> Result<(), String> {
    let mut loaded = Vec::new();
    for path in paths.split(';').map(str::trim).filter(|path| !path.is_empty()) {
        if loaded.contains(&path) {
            continue;
        }
        loaded.push(path);
        // SAFETY: the application names the libraries whose code may run (rdkafka.h, `rd_kafka_conf_set`).
        let init = unsafe { init_of(path) }?;
        let mut errstr = [0 as c_char; ERRSTR_BYTES];
        let mut opaque: *mut c_void = null_mut();
        // SAFETY: a plugin's function has this type, by its name; it gets the configuration and a buffer that live.
        let code = unsafe { init(conf, &raw mut opaque, errstr.as_mut_ptr(), errstr.len()) };
        if code != RD_KAFKA_RESP_ERR_NO_ERROR {
            return Err(format!("{CALLED}() of plugin {path} failed: {}", buffer_text(&errstr)));
        }
    }
    Ok(())
}

const CALLED: &str = "conf_init";

/// # Safety
/// Loading a library runs its code.
unsafe fn init_of(path: &str) -> Result<crate::conf::conf_interceptors::Of<Init>, String> {
    let open = |path: &str| {
        // SAFETY: the caller wants the library's code to run; the name is a C string.
        let library = unsafe { libc::dlopen(c_string(path).as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        (!library.is_null()).then_some(library)
    };
    // After a second attempt, the error would be that of a file which the application has not named.
    let opened =
        open(path).or_else(|| if has_ending(path) { None } else { open(&format!("{path}{ENDING}")) });
    let library = opened.ok_or_else(|| format!("plugin {path}: {}", problem()))?;
    // SAFETY: a library that is loaded, and a C string.
    let found = unsafe { libc::dlsym(library, c_string(CALLED).as_ptr()) };
    // SAFETY: NULL is none, and else it is a function of that type by its name.
    let init = unsafe { std::mem::transmute::<*mut c_void, Init>(found) };
    init.ok_or_else(|| format!("plugin {path}: {}", problem()))
}

/// The ending of libraries, which a path may leave out.
const ENDING: &str = ".so";

/// Returns `true` if the file's name has a short ending. As in the original, a version such as `.1` is one.
fn has_ending(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.rfind('.').is_some_and(|dot| dot + ENDING.len() >= file.len())
}

/// The reason of the last failure.
fn problem() -> String {
    // SAFETY: NULL, or a text that lives until the next call in this thread.
    let text = unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    text.unwrap_or_else(|| format!("no {CALLED}"))
}
