//! Unimplemented functions are exported as stubs, so that every program links. They return
//! `RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED`, an error object, NULL or 0, and write the reason to `errstr` if they have one.
//!
//! To implement a function, delete its line. The stubs declare no arguments except `errstr`, because they read no
//! others. With C's calling conventions on Linux the caller removes the arguments.

#![allow(non_snake_case, reason = "C's names")]

macro_rules! unimplemented_functions {
    ($($returns:ident $name:ident $(($($before:ident),*))?;)*) => {
        $(unimplemented_function! { $returns $name $(($($before),*))? })*
    };
}

macro_rules! unimplemented_function {
    (nothing $name:ident) => {
        #[$crate::ffi::panic::on_panic(())]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() {}
    };
    (zero $name:ident) => {
        #[$crate::ffi::panic::on_panic(0)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> i64 {
            0
        }
    };
    (null $name:ident) => {
        #[$crate::ffi::panic::on_panic(std::ptr::null_mut())]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> *mut std::ffi::c_void {
            $crate::errors::error_object::set_last_error($crate::ffi::RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED);
            std::ptr::null_mut()
        }
    };
    (minus_one $name:ident) => {
        #[$crate::ffi::panic::on_panic(0)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> i64 {
            $crate::errors::error_object::set_last_error($crate::ffi::RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED);
            -1
        }
    };
    (code $name:ident) => {
        #[$crate::ffi::panic::on_panic($crate::ffi::RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> $crate::ffi::rd_kafka_resp_err_t {
            $crate::ffi::RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED
        }
    };
    (unknown $name:ident) => {
        #[$crate::ffi::panic::on_panic($crate::ffi::RD_KAFKA_CONF_UNKNOWN)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> $crate::ffi::rd_kafka_conf_res_t {
            $crate::ffi::RD_KAFKA_CONF_UNKNOWN
        }
    };
    (error $name:ident) => {
        #[$crate::ffi::panic::on_panic(std::ptr::null_mut())]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> *mut $crate::ffi::rd_kafka_error_t {
            $crate::unimplemented::error(stringify!($name))
        }
    };
    (text_and_null $name:ident ($($before:ident),*)) => {
        unimplemented_function! { @text $name ($($before),*) *mut std::ffi::c_void, std::ptr::null_mut() }
    };
    (text_and_code $name:ident ($($before:ident),*)) => {
        unimplemented_function! { @text $name ($($before),*) $crate::ffi::rd_kafka_resp_err_t,
            $crate::ffi::RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED }
    };
    (text_and_unknown $name:ident ($($before:ident),*)) => {
        unimplemented_function! { @text $name ($($before),*) $crate::ffi::rd_kafka_conf_res_t,
            $crate::ffi::RD_KAFKA_CONF_UNKNOWN }
    };
    (@text $name:ident ($($before:ident),*) $returns:ty, $value:expr) => {
        #[$crate::ffi::panic::on_panic($value)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $(_: $crate::unimplemented::anything!($before),)*
            errstr: *mut std::ffi::c_char,
            errstr_size: usize,
        ) -> $returns {
            // SAFETY: `errstr` is NULL or a buffer of `errstr_size` bytes (rdkafka.h, every function of this macro).
            unsafe { $crate::unimplemented::say(stringify!($name), errstr, errstr_size) };
            $value
        }
    };
}

/// An argument that takes a register or a slot, whatever it is.
macro_rules! anything {
    ($name:ident) => {
        usize
    };
}
use anything;

mod mock;
mod share;

use std::ffi::c_char;

use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED;
use crate::ffi::c_strings::write_errstr;

fn error(function: &str) -> *mut rd_kafka_error_t {
    rd_kafka_error_t::new(RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED, &sentence(function)).into_raw()
}

unsafe fn say(function: &str, errstr: *mut c_char, errstr_size: usize) {
    // SAFETY: the caller's buffer, passed on.
    unsafe { write_errstr(errstr, errstr_size, &sentence(function)) };
}

fn sentence(function: &str) -> String {
    format!("{function} is not implemented")
}
