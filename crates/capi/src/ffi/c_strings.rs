//! Strings on their way to C and back.

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char};

use crate::ffi::{RD_KAFKA_CONF_OK, RD_KAFKA_CONF_UNKNOWN, rd_kafka_conf_res_t};

/// `text` for C; what follows a NUL in it is lost.
pub fn c_string(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).expect("cut before its first NUL")
}

/// The host of a member of a group as brokers write it: as Java does, with a slash. Programs know it so.
pub fn slashed(host: &str) -> String {
    if host.is_empty() { String::new() } else { format!("/{host}") }
}

/// A copy of `text` that C frees with `rd_kafka_mem_free` or `free`.
pub fn malloced(text: &CStr) -> *mut c_char {
    // SAFETY: a C string; NULL when memory is out, which C's callers know.
    unsafe { libc::strdup(text.as_ptr()) }
}

/// A C string; `None` for NULL.
///
/// # Safety
/// NULL or a C string that lives as long as the caller uses the result.
pub unsafe fn text<'a>(pointer: *const c_char) -> Option<Cow<'a, str>> {
    // SAFETY: `pointer` is a C string (the contract of this function, above).
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_string_lossy())
}

/// The text that an application has written to a buffer of this library: up to its NUL, or to the end. `strncpy` writes no NUL
/// behind a text that fills the buffer.
pub fn buffer_text(buffer: &[c_char]) -> String {
    let written = buffer.iter().take_while(|byte| **byte != 0);
    let bytes: Vec<u8> = written.flat_map(|byte| byte.to_ne_bytes()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Writes `text` to the caller's buffer, cut to its size and always with a NUL; NULL and size 0 are fine.
///
/// # Safety
/// NULL, or `size` writable bytes.
pub unsafe fn write_errstr(buffer: *mut c_char, size: usize, text: &str) {
    if buffer.is_null() || size == 0 {
        return;
    }
    let count = text.len().min(size - 1);
    // SAFETY: `count` is less than `size`.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, count);
        *buffer.add(count) = 0;
    }
}

/// Answers a query of a property's value: its size with the NUL, and as much of it as fits.
///
/// # Safety
/// `size` is NULL or a valid place; `dest` is NULL or has `*size` writable bytes.
pub unsafe fn get_into(value: Option<&str>, dest: *mut c_char, size: *mut usize) -> rd_kafka_conf_res_t {
    let Some(value) = value else { return RD_KAFKA_CONF_UNKNOWN };
    // SAFETY: `size` is NULL or writable (the contract of this function, above).
    unsafe {
        if let Some(size) = size.as_mut() {
            write_errstr(dest, *size, value);
            *size = value.len() + 1;
        }
    }
    RD_KAFKA_CONF_OK
}

/// An array of names and values in turn, for `rd_kafka_conf_dump_free`.
///
/// # Safety
/// `count` is NULL or a valid place.
pub unsafe fn leaked_pairs(pairs: Vec<(&'static str, String)>, count: *mut usize) -> *mut *const c_char {
    let strings = pairs.iter().flat_map(|(name, value)| [*name, value.as_str()]);
    let array: Box<[*const c_char]> = strings.map(|text| c_string(text).into_raw().cast_const()).collect();
    // SAFETY: `count` is NULL or writable (the contract of this function, above).
    if let Some(count) = unsafe { count.as_mut() } {
        *count = array.len();
    }
    Box::into_raw(array).cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was read up to the next zero in the stack.
    #[test]
    fn a_text_that_fills_its_buffer_ends_with_it() {
        let mut buffer = [0 as c_char; 8];
        assert_eq!(buffer_text(&buffer), "");
        buffer[..3].fill(b'x' as c_char);
        assert_eq!(buffer_text(&buffer), "xxx");
        buffer.fill(b'x' as c_char);
        assert_eq!(buffer_text(&buffer), "xxxxxxxx");
    }
}
