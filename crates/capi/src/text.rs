//! Strings on their way to C and back.

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char};

/// `text` for C; what follows a NUL in it is lost.
pub fn c_string(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).expect("cut before its first NUL")
}

/// A copy of `text` that C frees with `rd_kafka_mem_free` or `free`.
pub fn malloced(text: &CStr) -> *mut c_char {
    // SAFETY: a C string; NULL when memory is out, which C's callers know.
    unsafe { libc::strdup(text.as_ptr()) }
}

/// What C says; `None` for NULL.
///
/// # Safety
/// NULL or a C string that lives as long as the caller uses the result.
pub unsafe fn text<'a>(pointer: *const c_char) -> Option<Cow<'a, str>> {
    // SAFETY: by contract.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_string_lossy())
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
