//! `rd_kafka_headers_t`: a message's headers.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};

use crate::ffi::panic::on_panic;
use crate::ffi::*;

/// Headers in the order in which they were added; a name may come more than once.
#[derive(Clone, Default)]
pub struct rd_kafka_headers_t(Vec<Header>);

#[derive(Clone)]
struct Header {
    name: CString,
    /// With a NUL behind it, which C's callers may rely on; `None` is a null value.
    value: Option<Box<[u8]>>,
}

impl rd_kafka_headers_t {
    pub fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count.min(1024)))
    }

    /// Adds a header; what follows a NUL in the name is lost.
    pub fn add(&mut self, name: &[u8], value: Option<&[u8]>) {
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let name = CString::new(&name[..end]).expect("cut before its first NUL");
        let value = value.map(|bytes| [bytes, &[0]].concat().into_boxed_slice());
        self.0.push(Header { name, value });
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&CStr, Option<&[u8]>)> {
        self.0.iter().map(|header| (header.name.as_c_str(), header.value()))
    }

    /// To C, which frees it with `rd_kafka_headers_destroy`.
    pub fn into_raw(self) -> *mut Self {
        Box::into_raw(Box::new(self))
    }

    /// The header's value to C's places.
    unsafe fn hand_out(
        header: Option<&Header>,
        valuep: *mut *const c_void,
        sizep: *mut usize,
    ) -> rd_kafka_resp_err_t {
        let Some(header) = header else { return RD_KAFKA_RESP_ERR__NOENT };
        let value = header.value();
        // SAFETY: `valuep` and `sizep` are each NULL or writable (required by the C functions that call this).
        unsafe {
            if let Some(place) = valuep.as_mut() {
                *place = value.map_or(null(), |bytes| bytes.as_ptr().cast());
            }
            if let Some(place) = sizep.as_mut() {
                *place = value.map_or(0, <[u8]>::len);
            }
        }
        RD_KAFKA_RESP_ERR_NO_ERROR
    }
}

impl Header {
    fn value(&self) -> Option<&[u8]> {
        self.value.as_deref().map(|bytes| &bytes[..bytes.len() - 1])
    }
}

/// C's bytes, whose size may be -1 for what ends with a NUL.
///
/// # Safety
/// NULL, or that many bytes, or a C string.
pub unsafe fn bytes<'a>(pointer: *const c_void, size: isize) -> Option<&'a [u8]> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: `pointer` is NULL or points to `size` bytes (the contract of this function, above).
    Some(unsafe {
        match usize::try_from(size) {
            Ok(size) => std::slice::from_raw_parts(pointer.cast(), size),
            Err(_) => CStr::from_ptr(pointer.cast()).to_bytes(),
        }
    })
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_headers_new(initial_count: usize) -> *mut rd_kafka_headers_t {
    rd_kafka_headers_t::with_capacity(initial_count).into_raw()
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_headers_destroy(hdrs: *mut rd_kafka_headers_t) {
    if !hdrs.is_null() {
        // SAFETY: one of ours, given back once (rdkafka.h, `rd_kafka_headers_destroy`).
        drop(unsafe { Box::from_raw(hdrs) });
    }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_headers_copy(src: *const rd_kafka_headers_t) -> *mut rd_kafka_headers_t {
    // SAFETY: `src` is NULL or headers of this library, not yet destroyed (rdkafka.h, `rd_kafka_headers_copy`).
    let src = unsafe { src.as_ref() };
    src.map_or(null_mut(), |src| src.clone().into_raw())
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_header_add(
    hdrs: *mut rd_kafka_headers_t,
    name: *const c_char,
    name_size: isize,
    value: *const c_void,
    value_size: isize,
) -> rd_kafka_resp_err_t {
    // SAFETY: `hdrs` is NULL or headers of this library, not yet destroyed; `name` is NULL or a C string; `value` is
    // NULL or points to `value_size` bytes (rdkafka.h, `rd_kafka_header_add`).
    let (hdrs, name, value) =
        unsafe { (hdrs.as_mut(), bytes(name.cast(), name_size), bytes(value, value_size)) };
    match (hdrs, name) {
        (Some(hdrs), Some(name)) => {
            hdrs.add(name, value);
            RD_KAFKA_RESP_ERR_NO_ERROR
        }
        _ => RD_KAFKA_RESP_ERR__INVALID_ARG,
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_header_remove(
    hdrs: *mut rd_kafka_headers_t,
    name: *const c_char,
) -> rd_kafka_resp_err_t {
    // SAFETY: `hdrs` is NULL or headers of this library, not yet destroyed; `name` is a C string (rdkafka.h,
    // `rd_kafka_header_remove`).
    let (hdrs, name) = unsafe { (hdrs.as_mut(), (!name.is_null()).then(|| CStr::from_ptr(name))) };
    let (Some(hdrs), Some(name)) = (hdrs, name) else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
    let before = hdrs.0.len();
    hdrs.0.retain(|header| header.name.as_c_str() != name);
    if hdrs.0.len() == before { RD_KAFKA_RESP_ERR__NOENT } else { RD_KAFKA_RESP_ERR_NO_ERROR }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_header_get_last(
    hdrs: *const rd_kafka_headers_t,
    name: *const c_char,
    valuep: *mut *const c_void,
    sizep: *mut usize,
) -> rd_kafka_resp_err_t {
    // SAFETY: `hdrs` is NULL or headers of this library, not yet destroyed; `name` is a C string; `valuep` and
    // `sizep` are each NULL or writable (rdkafka.h, `rd_kafka_header_get_last`).
    unsafe {
        let (Some(hdrs), false) = (hdrs.as_ref(), name.is_null()) else {
            return RD_KAFKA_RESP_ERR__INVALID_ARG;
        };
        let name = CStr::from_ptr(name);
        let last = hdrs.0.iter().rfind(|header| header.name.as_c_str() == name);
        rd_kafka_headers_t::hand_out(last, valuep, sizep)
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_header_get(
    hdrs: *const rd_kafka_headers_t,
    idx: usize,
    name: *const c_char,
    valuep: *mut *const c_void,
    sizep: *mut usize,
) -> rd_kafka_resp_err_t {
    // SAFETY: `hdrs` is NULL or headers of this library, not yet destroyed; `name` is a C string; `valuep` and
    // `sizep` are each NULL or writable (rdkafka.h, `rd_kafka_header_get`).
    unsafe {
        let (Some(hdrs), false) = (hdrs.as_ref(), name.is_null()) else {
            return RD_KAFKA_RESP_ERR__INVALID_ARG;
        };
        let name = CStr::from_ptr(name);
        let found = hdrs.0.iter().filter(|header| header.name.as_c_str() == name).nth(idx);
        rd_kafka_headers_t::hand_out(found, valuep, sizep)
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_header_get_all(
    hdrs: *const rd_kafka_headers_t,
    idx: usize,
    namep: *mut *const c_char,
    valuep: *mut *const c_void,
    sizep: *mut usize,
) -> rd_kafka_resp_err_t {
    // SAFETY: `hdrs` is NULL or headers of this library, not yet destroyed; `namep`, `valuep` and `sizep` are each
    // NULL or writable (rdkafka.h, `rd_kafka_header_get_all`).
    unsafe {
        let Some(hdrs) = hdrs.as_ref() else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
        let header = hdrs.0.get(idx);
        if let (Some(header), Some(place)) = (header, namep.as_mut()) {
            *place = header.name.as_ptr();
        }
        rd_kafka_headers_t::hand_out(header, valuep, sizep)
    }
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_header_cnt(hdrs: *const rd_kafka_headers_t) -> usize {
    // SAFETY: `hdrs` is NULL or headers of this library, not yet destroyed (rdkafka.h, `rd_kafka_header_cnt`).
    unsafe { hdrs.as_ref() }.map_or(0, |hdrs| hdrs.0.len())
}
