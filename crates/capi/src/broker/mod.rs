//! `ottla.h`: the embedded broker, for tests in C.
//!
//! Its handles are those of `crate::handles`. All that a test asks of a broker passes through
//! [`ottla_broker_control`]: the requests of a control address, so that C needs no second interface for them.

mod settings;
mod signals;

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::sync::Arc;

use ottla_broker::BrokerThread;

use crate::ffi::c_strings::{c_string, malloced, text, write_errstr};
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::handles::handle_table::{HandleKind, HandleTable, as_pointer};

use self::settings::Described;
use self::signals::SigpipeBlocked;

/// The handle of a broker.
#[repr(C)]
pub struct ottla_broker_t {
    _private: [u8; 0],
}

static BROKERS: HandleTable<Running> = HandleTable::new(HandleKind::Broker);

struct Running {
    /// The process that started it: a child of a fork has no thread of it.
    process: u32,
    broker: BrokerThread,
}

/// Returns the broker of a handle; `None` in the child of a fork.
fn find(broker: *const ottla_broker_t, function: &str) -> Option<Arc<Running>> {
    let running = BROKERS.find(broker, function)?;
    (running.process == std::process::id()).then(|| running.shared())
}

fn start(settings: &str) -> Result<u64, String> {
    let reserved = BROKERS.reserve().ok_or("too many brokers exist: destroy some first")?;
    let described = Described::parse(settings)?;
    let blocked = SigpipeBlocked::new();
    let broker = described.start()?;
    drop(blocked);
    Ok(reserved.publish(Arc::new(Running { process: std::process::id(), broker })))
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_broker_start(
    settings: *const c_char,
    errstr: *mut c_char,
    errstr_size: usize,
) -> *mut ottla_broker_t {
    // SAFETY: `settings` is NULL or a C string (ottla.h, `ottla_broker_start`).
    let settings = unsafe { text(settings) }.unwrap_or_default();
    match start(&settings) {
        Ok(handle) => as_pointer(handle),
        Err(reason) => {
            // SAFETY: `errstr` is NULL or a buffer of `errstr_size` bytes (ottla.h, `ottla_broker_start`).
            unsafe { write_errstr(errstr, errstr_size, &reason) };
            null_mut()
        }
    }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub extern "C" fn ottla_broker_bootstrap_servers(broker: *const ottla_broker_t) -> *mut c_char {
    let servers = |running: Arc<Running>| malloced(&c_string(&running.broker.bootstrap_servers()));
    find(broker, FUNCTION).map_or(null_mut(), servers)
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_broker_control(
    broker: *mut ottla_broker_t,
    method: *const c_char,
    path: *const c_char,
    body: *const c_char,
    answer: *mut *mut c_char,
) -> c_int {
    // SAFETY: each is NULL or a C string (ottla.h, `ottla_broker_control`).
    let (method, path, body) = unsafe { (text(method), text(path), text(body)) };
    // SAFETY: `answer` is NULL or writable (ottla.h, `ottla_broker_control`).
    let mut answer = unsafe { answer.as_mut() };
    if let Some(answer) = answer.as_deref_mut() {
        *answer = null_mut();
    }
    let (Some(running), Some(method), Some(path)) = (find(broker, FUNCTION), method, path) else { return 0 };
    let body = body.filter(|body| !body.is_empty()).unwrap_or("{}".into());
    let answered = running.broker.control(&method, &path, body.as_bytes());
    if let Some(answer) = answer {
        *answer = malloced(&c_string(&answered.body.to_string()));
    }
    answered.status.into()
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub extern "C" fn ottla_broker_destroy(broker: *mut ottla_broker_t) -> rd_kafka_resp_err_t {
    // The last call that uses the broker stops it.
    match find(broker, FUNCTION) {
        Some(_running) if BROKERS.retire(broker.addr() as u64) => RD_KAFKA_RESP_ERR_NO_ERROR,
        _ => RD_KAFKA_RESP_ERR__INVALID_ARG,
    }
}
