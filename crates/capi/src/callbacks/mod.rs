//! Functions that call the application: C makes the call, Rust prepares it and releases its arguments.
//!
//! An exported function of this kind is a loop in `trampoline.c`. It asks Rust for the next callback, calls the
//! application, and asks again. While the application's function runs, no frame of Rust is between it and the caller of
//! the library, so that a C++ exception, `pthread_exit` or `longjmp` crosses frames of C only.

pub(crate) mod call_gate;
pub(crate) mod prepared;
pub(crate) mod running_calls;
pub(crate) mod trampoline;
