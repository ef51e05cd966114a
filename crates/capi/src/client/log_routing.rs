//! Routes log lines to the application's function or to a queue, and keeps those that come before either exists.

use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ottla_client::{Config, Context, LogCallback, LogLine};

use crate::callbacks::call_gate::CallGate;
use crate::client::handle::Handle;
use crate::client::log_printers::{rd_kafka_log_print, rd_kafka_log_syslog};
use crate::client::log_thread::LogThread;
use crate::conf::Callbacks;
use crate::ffi::c_strings::c_string;
use crate::ffi::*;
use crate::queue::op::Op;
use crate::queue::op_queue::OpQueue;

/// Lines that are kept until there is a queue for them; older ones are lost.
const KEPT_MAX: usize = 1000;
/// The prefixes that name a line's thread: the engine's, or one of the application.
const ENGINE_THREAD: &str = "[thrd:main]: ";
const APPLICATION_THREAD: &str = "[thrd:app]: ";
/// `rd_kafka_set_log_level` was not called.
const UNSET: c_int = -1;

/// An application's function for lines.
pub(crate) type LogFunction = unsafe extern "C" fn(*const rd_kafka_t, c_int, *const c_char, *const c_char);

/// A client's log.
pub(crate) struct LogRouter {
    function: Mutex<rd_kafka_log_cb_t>,
    /// `log.queue`.
    queued: bool,
    /// `log.thread.name`: lines begin with the name of a thread.
    names_thread: bool,
    /// `log_level`, which lines of debug contexts pass.
    level: u8,
    /// Nothing passes this one.
    level_set: AtomicI32,
    queue: Mutex<HeldLines>,
    calls: CallGate,
    thread: LogThread,
}

/// The thread in which the application's function runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Runs {
    /// In the thread of the caller.
    Here,
    /// In a thread for log lines: the engine must not wait for it.
    Apart,
}

#[derive(Default)]
struct HeldLines {
    queue: Option<Arc<OpQueue>>,
    lines: VecDeque<LogLine>,
}

/// Lines that come while the client is made: the application's function needs its handle.
#[derive(Default)]
pub(crate) struct EarlyLogLines(Mutex<LogTarget>);

#[derive(Default)]
enum LogTarget {
    #[default]
    Unset,
    Lines(Vec<LogLine>),
    Handle(Weak<Handle>),
}

impl LogRouter {
    pub(crate) fn new(config: &Config, callbacks: &Callbacks, names_thread: bool) -> Self {
        Self {
            function: Mutex::new(callbacks.log),
            queued: config.log_queue,
            names_thread,
            level: config.log_level,
            level_set: AtomicI32::new(UNSET),
            queue: Mutex::default(),
            calls: CallGate::default(),
            thread: LogThread::default(),
        }
    }

    /// Takes a line that a thread of the application adds.
    pub(crate) fn take_from_application(&self, handle: &Arc<Handle>, line: LogLine) {
        self.take(handle, &line, APPLICATION_THREAD, Runs::Here);
    }

    /// Takes a line about the engine's work.
    pub(crate) fn take_from_engine(&self, handle: &Arc<Handle>, line: LogLine) {
        self.take(handle, &line, ENGINE_THREAD, Runs::Apart);
    }

    /// Takes a line of the client's.
    fn take(&self, handle: &Arc<Handle>, line: &LogLine, thread: &str, runs: Runs) {
        let most = self.level_set.load(Ordering::Relaxed);
        let passes = if most == UNSET {
            line.level <= self.level || line.context.is_some()
        } else {
            c_int::from(line.level) <= most
        };
        if !passes {
            return;
        }
        let mut line = line.clone();
        if self.names_thread {
            line.text.insert_str(0, thread);
        }
        if !self.queued {
            let unsent = match runs {
                Runs::Apart if !self.is_own_function() => self.thread.take(line, || {
                    let handle = Arc::downgrade(handle);
                    Box::new(move |line| {
                        let Some(handle) = handle.upgrade() else { return false };
                        handle.logs.call(&handle, line);
                        true
                    })
                }),
                Runs::Apart | Runs::Here => Err(line),
            };
            if let Err(line) = unsent {
                self.call(handle, &line);
            }
            return;
        }
        let mut kept = lock(&self.queue);
        if let Some(queue) = kept.queue.clone() {
            drop(kept);
            queue.push(Op::Log(line));
            return;
        }
        if kept.lines.len() == KEPT_MAX {
            kept.lines.pop_front();
        }
        kept.lines.push_back(line);
    }

    /// Calls the application with a line; `false` if it has no function for that.
    pub(crate) fn call(&self, handle: &Handle, line: &LogLine) -> bool {
        self.say(handle, line.level, &c_string(line.facility), &line.text)
    }

    /// The same for a line of our own.
    pub(crate) fn say(&self, handle: &Handle, level: u8, facility: &CStr, text: &str) -> bool {
        let function = *lock(&self.function);
        let Some(function) = function else { return false };
        let Some(_call) = self.calls.enter() else { return true };
        // SAFETY: the application's function; it may be called from any thread.
        unsafe {
            function(handle.raw(), level.into(), facility.as_ptr(), c_string(text).as_ptr());
        }
        true
    }

    /// Returns `true` if the lines go to a function of this library or to none, which does not block.
    fn is_own_function(&self) -> bool {
        self.function().is_none_or(is_own)
    }

    /// The application destroys the client: its function gets the lines so far, and its calls in other threads end. Later
    /// lines are dropped.
    pub(crate) fn end_calls(&self) {
        self.thread.end();
        self.calls.close();
    }

    /// Lines go to `queue` from now on, and those before them.
    pub(crate) fn set_queue(&self, queue: Option<Arc<OpQueue>>) {
        let lines = {
            let mut kept = lock(&self.queue);
            kept.queue.clone_from(&queue);
            std::mem::take(&mut kept.lines)
        };
        if let Some(queue) = queue {
            for line in lines {
                queue.push(Op::Log(line));
            }
        }
    }

    pub(crate) fn function(&self) -> rd_kafka_log_cb_t {
        *lock(&self.function)
    }

    pub(crate) fn set_function(&self, function: rd_kafka_log_cb_t) {
        *lock(&self.function) = function;
    }

    pub(crate) fn set_level(&self, level: c_int) {
        self.level_set.store(level.max(0), Ordering::Relaxed);
    }
}

impl EarlyLogLines {
    /// The callback that the client runs with each line.
    pub(crate) fn callback(early: &Arc<Self>) -> LogCallback {
        let early = early.clone();
        LogCallback::new(move |line: &LogLine| {
            let mut known = lock(&early.0);
            match &mut *known {
                LogTarget::Handle(handle) => {
                    let handle = handle.upgrade();
                    drop(known);
                    if let Some(handle) = handle {
                        handle.logs.take(&handle, line, ENGINE_THREAD, Runs::Apart);
                    }
                }
                LogTarget::Lines(lines) => lines.push(line.clone()),
                LogTarget::Unset => *known = LogTarget::Lines(vec![line.clone()]),
            }
        })
    }

    /// The client is made: it gets its lines.
    pub(crate) fn set(&self, handle: &Arc<Handle>) {
        let known = std::mem::replace(&mut *lock(&self.0), LogTarget::Handle(Arc::downgrade(handle)));
        if let LogTarget::Lines(lines) = known {
            for line in &lines {
                handle.logs.take(handle, line, ENGINE_THREAD, Runs::Here);
            }
        }
    }
}

/// Returns the text of the first log line of a client with any context of `debug`, as in the original. Programs and tests of bindings read
/// the features from it.
pub(crate) fn init_line(config: &Config) -> String {
    let [major, minor, revision, _] = RD_KAFKA_VERSION.to_be_bytes();
    let name = config.name.as_deref().unwrap_or_default();
    let features = config.get("builtin.features").unwrap_or_default();
    let names = |context: &Context| {
        config.debug.split(',').map(str::trim).any(|word| word == "all" || word == context.name())
    };
    let named = Context::ALL.iter().enumerate().filter(|(_, context)| names(context));
    let debug = named.fold(0_u32, |bits, (bit, _)| bits | (1 << bit));
    format!(
        "librdkafka v{major}.{minor}.{revision} ({RD_KAFKA_VERSION:#x}) {name} initialized (builtin.features {features}, \
         Ottla {}, debug {debug:#x})",
        env!("CARGO_PKG_VERSION")
    )
}

/// Returns `true` if the function is one of this library.
pub(crate) fn is_own(function: LogFunction) -> bool {
    let own: [LogFunction; 2] = [rd_kafka_log_print, rd_kafka_log_syslog];
    own.iter().any(|own| std::ptr::fn_addr_eq(*own, function))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
