//! The log of a processor: its client's lines for the application's function.

use std::ptr::null_mut;
use std::sync::Arc;

use ottla_client::{LogCallback, LogLine};

use crate::callbacks::call_gate::CallGate;
use crate::client::log_routing::{LogFunction, is_own};
use crate::client::log_thread::LogThread;
use crate::ffi::c_strings::c_string;

/// The application's function, and the thread that calls it: the engine must not wait for it.
pub(super) struct ProcessorLog {
    function: LogFunction,
    level: u8,
    calls: CallGate,
    thread: LogThread,
}

impl ProcessorLog {
    pub(super) fn new(function: LogFunction, level: u8) -> Arc<Self> {
        Arc::new(Self { function, level, calls: CallGate::default(), thread: LogThread::default() })
    }

    /// The callback that the client runs with each line.
    pub(super) fn callback(self: &Arc<Self>) -> LogCallback {
        let log = self.clone();
        LogCallback::new(move |line: &LogLine| log.take(line))
    }

    fn take(self: &Arc<Self>, line: &LogLine) {
        if line.level > self.level && line.context.is_none() {
            return;
        }
        let unsent = if is_own(self.function) { Err(line.clone()) } else { self.hand_over(line.clone()) };
        if let Err(line) = unsent {
            self.call(&line);
        }
    }

    fn hand_over(self: &Arc<Self>, line: LogLine) -> Result<(), LogLine> {
        self.thread.take(line, || {
            let log = Arc::downgrade(self);
            Box::new(move |line| {
                let Some(log) = log.upgrade() else { return false };
                log.call(line);
                true
            })
        })
    }

    fn call(&self, line: &LogLine) {
        let Some(_call) = self.calls.enter() else { return };
        let (facility, text) = (c_string(line.facility), c_string(&line.text));
        // SAFETY: the application's function, which may be called from any thread; ottla.h promises NULL.
        unsafe { (self.function)(null_mut(), line.level.into(), facility.as_ptr(), text.as_ptr()) };
    }

    /// Runs a function that waits for the engine, also in the application's function.
    pub(super) fn while_waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.thread.while_waiting(wait)
    }

    /// Passes the lines so far, and waits for calls in other threads. Later lines are dropped.
    pub(super) fn end(&self) {
        self.thread.end();
        self.calls.close();
    }
}
