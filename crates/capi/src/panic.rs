//! Panics end here: none crosses the boundary to C.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// `#[on_panic(VALUE)]` puts the whole body of an `extern "C"` function inside [`guard`]; `#[calls_back]` puts a
/// [`Boundary`] around the body of a function that calls the application.
pub use ottla_capi_attribute::{calls_back, on_panic};

/// Runs `body`; `value` makes the answer if it panics.
#[inline]
pub fn guard<T>(value: impl FnOnce() -> T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| value())
}

/// Ends the process if a panic gets here. C++ exceptions and `pthread_exit` of a callback pass.
pub struct Boundary {
    /// A Rust program may call from a destructor while it panics.
    panicked_before: bool,
}

impl Boundary {
    #[expect(clippy::new_without_default, reason = "made by `#[calls_back]` only")]
    pub fn new() -> Self {
        Self { panicked_before: std::thread::panicking() }
    }
}

impl Drop for Boundary {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.panicked_before {
            std::process::abort();
        }
    }
}

/// A callback of the application, as a function that may leave by a C++ exception or `pthread_exit`. A caller must not be
/// inside [`guard`], which ends the process when it meets those, and gives back what it holds by `Drop`.
macro_rules! leaving {
    ($function:expr, fn($($argument:ty),* $(,)?) $(-> $returns:ty)? $(,)?) => {
        // The same calling convention; the compiler only learns that the call may unwind.
        std::mem::transmute::<
            unsafe extern "C" fn($($argument),*) $(-> $returns)?,
            unsafe extern "C-unwind" fn($($argument),*) $(-> $returns)?,
        >($function)
    };
}
pub(crate) use leaving;

#[cfg(test)]
mod tests {
    use std::ffi::c_int;

    use super::*;

    #[on_panic(-1)]
    extern "C" fn doubled(number: c_int) -> c_int {
        assert!(number > 0, "a number that the body refuses by a panic");
        if number > 100 {
            return 200;
        }
        number * 2
    }

    #[on_panic(())]
    extern "C" fn panics() {
        panic!("inside a function that C calls");
    }

    #[test]
    fn a_panic_becomes_the_value_of_the_attribute() {
        assert_eq!(doubled(4), 8);
        assert_eq!(doubled(101), 200, "`return` leaves the function, as without the attribute");
        assert_eq!(doubled(0), -1);
        panics();
    }

    #[test]
    fn the_value_is_evaluated_on_panic_only() {
        assert_eq!(guard(|| unreachable!("no panic, no value"), || 1), 1);
    }
}
