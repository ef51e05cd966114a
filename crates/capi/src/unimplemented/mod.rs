//! Functions that a build without the embedded broker cannot have are exported as stubs, so that every program links. They return
//! `RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED`, NULL or 0, and write the reason to `errstr` if they have one.
//!
//! The stubs declare no arguments except `errstr`, because they read no
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
    (code $name:ident) => {
        #[$crate::ffi::panic::on_panic($crate::ffi::RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> $crate::ffi::rd_kafka_resp_err_t {
            $crate::ffi::RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED
        }
    };
    (text_and_null $name:ident ($($before:ident),*)) => {
        unimplemented_function! { @text $name ($($before),*) *mut std::ffi::c_void, std::ptr::null_mut() }
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

unsafe fn say(function: &str, errstr: *mut std::ffi::c_char, errstr_size: usize) {
    let text = format!("{function} is not implemented");
    // SAFETY: the caller's buffer, passed on.
    unsafe { crate::ffi::c_strings::write_errstr(errstr, errstr_size, &text) };
}
