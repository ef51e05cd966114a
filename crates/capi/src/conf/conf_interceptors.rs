//! Interceptors of configurations: functions that plugins and applications add to an `rd_kafka_conf_t`.

use std::ffi::{CStr, CString, c_char, c_void};

use crate::conf::rd_kafka_conf_t;
use crate::ffi::panic::on_panic;
use crate::ffi::*;

/// One function with its owner's name and opaque.
#[derive(Clone)]
pub struct Interceptor<F> {
    name: CString,
    pub function: F,
    pub opaque: *mut c_void,
}

impl<F> Interceptor<F> {
    pub(crate) fn name(&self) -> std::borrow::Cow<'_, str> {
        self.name.to_string_lossy()
    }
}

// SAFETY: the pointers are the application's; threads of the library may use them (rdkafka.h,
// `rd_kafka_conf_set_opaque`).
unsafe impl<F: Send> Send for Interceptor<F> {}
// SAFETY: as above.
unsafe impl<F: Sync> Sync for Interceptor<F> {}

/// Functions of one kind, in the order in which they were added.
#[derive(Clone)]
pub struct InterceptorChain<F>(Vec<Interceptor<F>>);

impl<F> Default for InterceptorChain<F> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<F: PartialEq> InterceptorChain<F> {
    /// Adds a function; `_CONFLICT` if its owner has added the same function already: a copy of a configuration is
    /// intercepted by its plugins and by the functions of the original.
    ///
    /// # Safety
    /// `name` is NULL or a C string.
    pub unsafe fn add(
        &mut self,
        name: *const c_char,
        function: Option<F>,
        opaque: *mut c_void,
    ) -> rd_kafka_resp_err_t {
        let is_same = |known: &Interceptor<F>, name: &CStr, function: &F| {
            known.name.as_c_str() == name && known.function == *function
        };
        // SAFETY: `name` is NULL or a C string (the contract of this function, above).
        unsafe { self.add_unless(name, function, opaque, is_same) }
    }

    /// Adds a function each time, as for the destruction of a configuration: each opaque is released once.
    ///
    /// # Safety
    /// `name` is NULL or a C string.
    pub unsafe fn add_again(
        &mut self,
        name: *const c_char,
        function: Option<F>,
        opaque: *mut c_void,
    ) -> rd_kafka_resp_err_t {
        // SAFETY: `name` is NULL or a C string (the contract of this function, above).
        unsafe { self.add_unless(name, function, opaque, |_, _, _| false) }
    }

    unsafe fn add_unless(
        &mut self,
        name: *const c_char,
        function: Option<F>,
        opaque: *mut c_void,
        conflicts: impl Fn(&Interceptor<F>, &CStr, &F) -> bool,
    ) -> rd_kafka_resp_err_t {
        let (Some(function), false) = (function, name.is_null()) else {
            return RD_KAFKA_RESP_ERR__INVALID_ARG;
        };
        // SAFETY: `name` is a C string (the contract of the callers, above).
        let name = unsafe { CStr::from_ptr(name) };
        if self.0.iter().any(|known| conflicts(known, name, &function)) {
            return RD_KAFKA_RESP_ERR__CONFLICT;
        }
        self.0.push(Interceptor { name: name.to_owned(), function, opaque });
        RD_KAFKA_RESP_ERR_NO_ERROR
    }
}

impl<F> InterceptorChain<F> {
    pub fn iter(&self) -> impl Iterator<Item = &Interceptor<F>> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

pub(crate) type Of<T> = <T as Inner>::Function;

/// The function in a nullable function.
pub trait Inner {
    type Function;
}

impl<F> Inner for Option<F> {
    type Function = F;
}

/// Functions that run while a configuration lives, and when a client is made of it.
#[derive(Default)]
pub struct ConfInterceptors {
    on_conf_set: InterceptorChain<Of<rd_kafka_interceptor_f_on_conf_set_t>>,
    on_conf_dup: InterceptorChain<Of<rd_kafka_interceptor_f_on_conf_dup_t>>,
    on_conf_destroy: InterceptorChain<Of<rd_kafka_interceptor_f_on_conf_destroy_t>>,
    pub on_new: InterceptorChain<Of<rd_kafka_interceptor_f_on_new_t>>,
    /// Properties that `on_conf_set` functions handled, in the order of the calls. A copy gets them the same way.
    handled: Vec<HandledProperty>,
}

/// A property that a function handled, which only this function knows.
#[derive(Clone)]
pub(crate) struct HandledProperty {
    pub(crate) name: CString,
    pub(crate) value: Option<CString>,
}

/// The result of an interceptor of `rd_kafka_conf_set`.
pub(crate) enum ConfSetOutcome {
    /// Not mine.
    Pass,
    /// It set the property, or refused it.
    Done(rd_kafka_conf_res_t),
}

/// A copy, so that a function may change the configuration that it is called from.
pub(crate) struct ConfSetChain(InterceptorChain<Of<rd_kafka_interceptor_f_on_conf_set_t>>);

/// A copy, so that a function may read the configuration that is copied.
pub(crate) struct ConfDupChain(InterceptorChain<Of<rd_kafka_interceptor_f_on_conf_dup_t>>);

impl ConfInterceptors {
    pub(crate) fn setters(&self) -> ConfSetChain {
        ConfSetChain(self.on_conf_set.clone())
    }

    pub(crate) fn dups(&self) -> ConfDupChain {
        ConfDupChain(self.on_conf_dup.clone())
    }

    pub(crate) fn handled(&self) -> &[HandledProperty] {
        &self.handled
    }

    /// # Safety
    /// `name` and `value` are each NULL or a C string.
    pub(crate) unsafe fn note_handled(&mut self, name: *const c_char, value: *const c_char) {
        // SAFETY: NULL or C strings (the contract of this function, above).
        let [name, value] =
            [name, value].map(|text| (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned()));
        if let Some(name) = name {
            self.handled.push(HandledProperty { name, value });
        }
    }
}

impl ConfDupChain {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// # Safety
    /// The filter is the caller's.
    pub(crate) unsafe fn on_conf_dup(
        &self,
        new: *mut rd_kafka_conf_t,
        old: *const rd_kafka_conf_t,
        filter_cnt: usize,
        filter: *mut *const c_char,
    ) {
        for interceptor in self.0.iter() {
            // SAFETY: `new` and `old` are each NULL or a configuration from `rd_kafka_conf_new`, not yet destroyed;
            // `filter` is NULL or writable (the contract of this function, above); what it answers changes nothing,
            // the copy is made.
            unsafe { (interceptor.function)(new, old, filter_cnt, filter, interceptor.opaque) };
        }
    }
}

impl ConfSetChain {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// # Safety
    /// The arguments are those of `rd_kafka_conf_set`.
    pub(crate) unsafe fn on_conf_set(
        &self,
        conf: *mut rd_kafka_conf_t,
        name: *const c_char,
        value: *const c_char,
        errstr: *mut c_char,
        errstr_size: usize,
    ) -> ConfSetOutcome {
        for interceptor in self.0.iter() {
            // SAFETY: `conf` is NULL or a configuration from `rd_kafka_conf_new`, not yet destroyed; `name` and
            // `value` are each NULL or a C string; `errstr` is NULL or a buffer of `errstr_size` bytes (the contract
            // of this function, above).
            let outcome =
                unsafe { (interceptor.function)(conf, name, value, errstr, errstr_size, interceptor.opaque) };
            if outcome != RD_KAFKA_CONF_UNKNOWN {
                return ConfSetOutcome::Done(outcome);
            }
        }
        ConfSetOutcome::Pass
    }
}

impl Drop for ConfInterceptors {
    fn drop(&mut self) {
        for interceptor in self.on_conf_destroy.iter() {
            // SAFETY: the application's function and opaque; its answer changes nothing.
            unsafe { (interceptor.function)(interceptor.opaque) };
        }
    }
}

macro_rules! adders {
    ($($function:ident $chain:ident.$add:ident: $type:ty,)*) => {
        $(
            #[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $function(
                conf: *mut rd_kafka_conf_t,
                ic_name: *const c_char,
                function: $type,
                ic_opaque: *mut c_void,
            ) -> rd_kafka_resp_err_t {
                let conf = rd_kafka_conf_t::of_mut(conf, FUNCTION);
                match conf {
                    // SAFETY: `conf` is NULL or a configuration from `rd_kafka_conf_new`, not yet destroyed;
                    // `ic_name` is NULL or a C string (rdkafka.h, every function of this macro).
                    Some(mut conf) => unsafe { conf.interceptors_mut().$chain.$add(ic_name, function, ic_opaque) },
                    None => RD_KAFKA_RESP_ERR__INVALID_ARG,
                }
            }
        )*
    };
}

adders! {
    rd_kafka_conf_interceptor_add_on_conf_set on_conf_set.add: rd_kafka_interceptor_f_on_conf_set_t,
    rd_kafka_conf_interceptor_add_on_conf_dup on_conf_dup.add: rd_kafka_interceptor_f_on_conf_dup_t,
    rd_kafka_conf_interceptor_add_on_conf_destroy on_conf_destroy.add_again: rd_kafka_interceptor_f_on_conf_destroy_t,
    rd_kafka_conf_interceptor_add_on_new on_new.add: rd_kafka_interceptor_f_on_new_t,
}
