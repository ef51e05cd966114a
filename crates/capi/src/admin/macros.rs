//! Accessors and destructors of the admin interface's structs.

/// Functions that read something of a struct of ours. NULL reads as `$default`.
macro_rules! readers {
    ($($name:ident($type:ty) -> $returns:ty [$default:expr] |$this:ident| $body:expr;)*) => {$(
        #[$crate::ffi::panic::on_panic($default)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(this: *const $type) -> $returns {
            // SAFETY: `this` is NULL or an object of its type, not yet destroyed (rdkafka.h, every function of this
            // macro).
            let Some($this) = (unsafe { this.as_ref() }) else { return $default };
            $body
        }
    )*};
}

/// The same for arrays; the length is a second result.
macro_rules! array_readers {
    ($($name:ident($type:ty) -> $returns:ty, |$this:ident| $body:expr;)*) => {$(
        #[$crate::ffi::panic::on_panic(<$returns>::default_pointer())]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(this: *const $type, cntp: *mut usize) -> $returns {
            // SAFETY: `this` is NULL or an object of its type, not yet destroyed (rdkafka.h, every function of this
            // macro).
            let $this = unsafe { this.as_ref() };
            let (pointer, count) = match $this {
                Some($this) => $body,
                None => (<$returns>::default_pointer(), 0),
            };
            // SAFETY: `cntp` is NULL or writable (rdkafka.h, every function of this macro).
            if let Some(place) = unsafe { cntp.as_mut() } {
                *place = count;
            }
            pointer
        }
    )*};
}

/// Functions that free one thing, or an array's things but not the array.
macro_rules! destroyers {
    ($($one:ident $(, $many:ident)? ($type:ty);)*) => {$(
        #[$crate::ffi::panic::on_panic(())]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $one(this: *mut $type) {
            if !this.is_null() {
                // SAFETY: one of ours, given back once (rdkafka.h, every function of this macro).
                drop(unsafe { Box::from_raw(this) });
            }
        }

        $(
            #[$crate::ffi::panic::on_panic(())]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $many(array: *mut *mut $type, count: usize) {
                if array.is_null() {
                    return;
                }
                for index in 0..count {
                    // SAFETY: that many pointers, each one of ours or NULL (rdkafka.h, every function of this macro).
                    unsafe { $one(*array.add(index)) };
                }
            }
        )?
    )*};
}

pub(super) use {array_readers, destroyers, readers};
