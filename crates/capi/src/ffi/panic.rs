//! Panics end here: none crosses the boundary to C.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// `#[on_panic(VALUE)]` puts the whole body of an `extern "C"` function inside [`guard`].
pub use ottla_capi_attribute::on_panic;

/// Runs `body`; `value` makes the answer if it panics.
#[inline]
pub fn guard<T>(value: impl FnOnce() -> T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| value())
}

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
