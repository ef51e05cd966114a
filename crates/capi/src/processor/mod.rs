//! `ottla.h`: the processor, with handlers in C.
//!
//! The handles of processors and settings are those of `crate::handles`, as all handles of this library.

mod handler_call;
mod log;
mod settings;
mod stats;

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ottla_parallel::Processor;

use crate::conf::rd_kafka_conf_t;
use crate::errors::error_mapping;
use crate::ffi::c_strings::write_errstr;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::handles::handle_table::{HandleKind, HandleTable, as_pointer};

use self::handler_call::Handler;
use self::log::ProcessorLog;
use self::settings::Settings;

pub use self::handler_call::*;
pub use self::settings::*;
pub use self::stats::*;

/// The handle of a processor.
#[repr(C)]
pub struct ottla_processor_t {
    _private: [u8; 0],
}

/// Time limit for handlers to end after the processor has stopped.
const THREADS_END_WITHIN: Duration = Duration::from_secs(1);

static RUNNING: HandleTable<Running> = HandleTable::new(HandleKind::Processor);

/// A processor, and the count of its threads that hold the handler.
struct Running {
    /// The process that started it: a child of a fork has no threads of it.
    process: u32,
    processor: Processor,
    handlers: Arc<Handlers>,
    /// Set if the application has a function for lines.
    log: Option<Arc<ProcessorLog>>,
}

impl Running {
    /// Waits until the processor has stopped; `None` if it has not within this time.
    fn wait(&self, within: Duration) -> Option<Result<(), ottla_parallel::Error>> {
        let wait = || self.processor.wait(within);
        match &self.log {
            Some(log) => log.while_waiting(wait),
            None => wait(),
        }
    }
}

/// The number of threads that hold the application's function and its pointer.
#[derive(Default)]
struct Handlers {
    count: Mutex<usize>,
    fewer: Condvar,
}

/// One thread in the count of [`Handlers`].
struct Counted(Arc<Handlers>);

impl Handlers {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counted(self: &Arc<Self>) -> Counted {
        *self.lock() += 1;
        Counted(self.clone())
    }

    /// Returns `true` if no handler is left.
    fn await_none(&self, within: Duration) -> bool {
        let waited = self.fewer.wait_timeout_while(self.lock(), within, |count| *count > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.fewer.notify_all();
    }
}

/// Returns the processor of a handle; `None` in the child of a fork.
fn find(processor: *const ottla_processor_t, function: &str) -> Option<Arc<Running>> {
    let running = RUNNING.find(processor, function)?;
    (running.process == std::process::id()).then(|| running.shared())
}

fn start(conf: &rd_kafka_conf_t, settings: &Settings) -> Result<u64, ottla_parallel::Error> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let too_many = || ottla_parallel::Error::Config("too many processors exist: destroy some first".into());
    let reserved = RUNNING.reserve().ok_or_else(too_many)?;
    let name = reserved.handle() as usize;
    let number = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    if conf.callbacks().ssl_cert_verify.is_some() {
        let unsafe_without = "a processor calls no ssl.certificate.verify_cb: the application would not see the brokers' certificates";
        return Err(ottla_parallel::Error::Config(unsafe_without.into()));
    }
    let mut config = conf.client_config();
    config.name = Some(format!("{}#processor-{number}", config.client_id));
    let log = conf.callbacks().log.map(|function| ProcessorLog::new(function, config.log_level));
    config.log_callback = log.as_ref().map_or(config.log_callback, |log| Some(log.callback()));
    let builder = settings.builder(config)?;
    let handlers: Arc<Handlers> = Arc::default();
    let started = match settings.handler()? {
        Handler::Each(function, opaque) => builder.start_each_with(|_| {
            let counted = handlers.counted();
            let mut topics = Topics::default();
            Ok(move |message: &ottla_parallel::Message<'_>| {
                let _ = &counted;
                each(name, function, opaque, &mut topics, message)
            })
        }),
        Handler::Batch(function, opaque) => builder.start_batches_with(|_| {
            let counted = handlers.counted();
            let mut topics = Topics::default();
            Ok(move |messages: &ottla_parallel::Messages<'_>| {
                let _ = &counted;
                batch(name, function, opaque, &mut topics, messages)
            })
        }),
    };
    let end_log = |_: &ottla_parallel::Error| log.iter().for_each(|log| log.end());
    let processor = started.inspect_err(end_log)?;
    Ok(reserved.publish(Arc::new(Running { process: std::process::id(), processor, handlers, log })))
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_processor_start(
    conf: *mut rd_kafka_conf_t,
    settings: *mut ottla_processor_settings_t,
    errstr: *mut c_char,
    errstr_size: usize,
) -> *mut ottla_processor_t {
    let refuse = |text: &str| {
        // SAFETY: `errstr` is NULL or a buffer of `errstr_size` bytes (ottla.h, `ottla_processor_start`).
        unsafe { write_errstr(errstr, errstr_size, text) };
        null_mut()
    };
    let Some((given, taken)) = rd_kafka_conf_t::take(conf, FUNCTION) else {
        return refuse("no configuration: rd_kafka_conf_new() makes one");
    };
    let Some(known) = Settings::find(settings, FUNCTION) else {
        taken.give_back(given);
        return refuse(
            "no such settings: ottla_processor_settings_new() makes them, and starting takes them over",
        );
    };
    match start(&given, &known) {
        Ok(handle) => {
            Settings::forget(settings);
            taken.ended();
            as_pointer(handle)
        }
        Err(error) => {
            taken.give_back(given);
            refuse(&error.to_string())
        }
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub extern "C" fn ottla_processor_stop(processor: *mut ottla_processor_t) -> rd_kafka_resp_err_t {
    find(processor, FUNCTION).map_or(RD_KAFKA_RESP_ERR__INVALID_ARG, |running| {
        running.processor.stop();
        RD_KAFKA_RESP_ERR_NO_ERROR
    })
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub extern "C" fn ottla_processor_is_stopped(processor: *const ottla_processor_t) -> c_int {
    find(processor, FUNCTION).is_some_and(|running| running.processor.is_stopped()).into()
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub extern "C" fn ottla_processor_wait(
    processor: *mut ottla_processor_t,
    timeout_ms: c_int,
) -> *mut rd_kafka_error_t {
    let say = |code, text: &str| rd_kafka_error_t::new(code, text).into_raw();
    let Some(running) = find(processor, FUNCTION) else {
        return say(RD_KAFKA_RESP_ERR__INVALID_ARG, "no such processor");
    };
    if is_of(processor.addr()) {
        return say(RD_KAFKA_RESP_ERR__STATE, "a handler cannot wait for its own processor");
    }
    let within = u64::try_from(timeout_ms).map_or(Duration::MAX, Duration::from_millis);
    match running.wait(within) {
        None => {
            let text = format!("the processor is still running after {timeout_ms} ms");
            say(RD_KAFKA_RESP_ERR__TIMED_OUT, &text)
        }
        Some(Ok(())) => null_mut(),
        Some(Err(error)) => error_mapping::object_of_processor(&error).into_raw(),
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub extern "C" fn ottla_processor_destroy(processor: *mut ottla_processor_t) -> rd_kafka_resp_err_t {
    let Some(running) = find(processor, FUNCTION) else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
    if is_of(processor.addr()) {
        return RD_KAFKA_RESP_ERR__STATE;
    }
    running.processor.stop();
    // `ottla_processor_wait` returns the reason.
    let _ = running.wait(Duration::MAX);
    if !running.handlers.await_none(THREADS_END_WITHIN) {
        return RD_KAFKA_RESP_ERR__IN_PROGRESS;
    }
    if let Some(log) = &running.log {
        log.end();
    }
    // Of two concurrent calls, one destroys it.
    if RUNNING.retire(processor.addr() as u64) {
        RD_KAFKA_RESP_ERR_NO_ERROR
    } else {
        RD_KAFKA_RESP_ERR__INVALID_ARG
    }
}
