//! Errors that no call returns: they become events or calls of the application's function. A fatal one ends the client.

use std::ffi::{CStr, c_char};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ottla_client::{Error, LogLine};

use crate::client::handle::{Handle, LOG_ERR};
use crate::consume::consumer_errors::NO_PARTITION;
use crate::errors::error_mapping::{fatal_of, of as code_of};
use crate::errors::error_object::description;
use crate::ffi::c_strings::{c_string, write_errstr};
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::messages::message::OwnedMessage;
use crate::queue::op::Op;

impl Handle {
    /// Reports an error that no call returns. As in the original, the log has the lack of brokers if the application has no function and
    /// no event for errors. It has failed connections in any case.
    pub(super) fn tell_error(self: &Arc<Self>, error: &Error) {
        if let Some((code, text)) = fatal_of(error) {
            self.set_fatal(code, &text);
            return;
        }
        if self.ending.load(Ordering::Relaxed) {
            return;
        }
        let (code, text) = match error {
            Error::Unreachable { brokers, .. } => {
                let count = brokers.split(", ").count();
                (RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, format!("{count}/{count} brokers are down"))
            }
            Error::Transport { address, reason } | Error::UnknownHost { address, reason } => {
                (code_of(error), format!("{address}: {reason}"))
            }
            error => (code_of(error), error.to_string()),
        };
        if self.wants_errors() {
            self.main.push(Op::Error { code, text: c_string(&text), fatal: false });
        } else if code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN {
            let line = LogLine::new(LOG_ERR, "ERROR", &self.name.to_string_lossy(), text);
            self.logs.take_from_engine(self, line);
        }
    }

    /// Returns `true` if the application has a function or an event for errors.
    pub(super) fn wants_errors(&self) -> bool {
        self.callbacks.error.is_some() || self.callbacks.events & RD_KAFKA_EVENT_ERROR != 0
    }

    /// Records a fatal error that its caller reports.
    pub(crate) fn note_fatal(&self, code: rd_kafka_resp_err_t, text: &str) {
        let _ = self.fatal.set((code, text.to_owned()));
    }

    /// Records the fatal error and reports it once: as in the original, members of groups get it from the consumer's queue, and
    /// other clients as an error. A producer ends: its queued messages fail, and those in flight are not sent again.
    pub(crate) fn set_fatal(&self, code: rd_kafka_resp_err_t, text: &str) -> bool {
        let first = self.fatal.set((code, text.to_owned())).is_ok();
        if first {
            let (reason, text) = (text, fatal_text(code, text));
            let code = RD_KAFKA_RESP_ERR__FATAL;
            if let Some(consuming) = self.consumer_state().filter(|_| self.config.group_id.is_some()) {
                let (partition, offset) = (NO_PARTITION, RD_KAFKA_OFFSET_INVALID);
                let error = OwnedMessage::error(code, &text, None, partition, offset);
                consuming.queue.push(Op::Message(error));
            } else {
                self.main.push(Op::Error { code, text: c_string(&text), fatal: true });
            }
            // As in the original, only the broker decides about messages in flight.
            if let Some(producer) = self.producer() {
                producer.end(reason);
            }
        }
        first
    }

    /// Returns the fatal error of the client or of its producer.
    pub(crate) fn fatal_cause(&self) -> Option<(rd_kafka_resp_err_t, String)> {
        self.fatal.get().cloned().or_else(|| {
            let kind = self.producer()?.fatal_error()?;
            Some((crate::errors::error_mapping::of_kind(&kind), kind.to_string()))
        })
    }
}

/// Returns the text that reports a fatal error.
pub(crate) fn fatal_text(code: rd_kafka_resp_err_t, text: &str) -> String {
    format!("Fatal error: {}: {text}", description(code).to_string_lossy())
}

#[on_panic(RD_KAFKA_RESP_ERR_NO_ERROR)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_fatal_error(
    rk: *mut rd_kafka_t,
    errstr: *mut c_char,
    errstr_size: usize,
) -> rd_kafka_resp_err_t {
    let Some(handle) = Handle::of(rk, FUNCTION) else { return RD_KAFKA_RESP_ERR_NO_ERROR };
    let Some((code, text)) = handle.fatal_cause() else { return RD_KAFKA_RESP_ERR_NO_ERROR };
    // SAFETY: `errstr` is NULL or a buffer of `errstr_size` bytes (rdkafka.h, `rd_kafka_fatal_error`).
    unsafe { write_errstr(errstr, errstr_size, &text) };
    code
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_test_fatal_error(
    rk: *mut rd_kafka_t,
    err: rd_kafka_resp_err_t,
    reason: *const c_char,
) -> rd_kafka_resp_err_t {
    let (Some(handle), false) = (Handle::of(rk, FUNCTION), reason.is_null()) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    // SAFETY: `reason` is a C string (rdkafka.h, `rd_kafka_test_fatal_error`).
    let reason = unsafe { CStr::from_ptr(reason) }.to_string_lossy();
    if handle.set_fatal(err, &format!("test_fatal_error: {reason}")) {
        RD_KAFKA_RESP_ERR_NO_ERROR
    } else {
        RD_KAFKA_RESP_ERR__PREV_IN_PROGRESS
    }
}
