//! `rd_kafka_flush`: waits for the delivery reports of all records and has the application called for each.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_client::Flushing;

use crate::callbacks::running_calls::take_over_reports;
use crate::callbacks::trampoline::{CallbackLoop, Returns, Step, Task, start};
use crate::client::handle::Handle;
use crate::ffi::exported_from_c::{called_from_c, exported_from_c};
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::queue::op::Op;
use crate::queue::op_queue::timeout_of;
use crate::queue::poll::OPS_PER_POLL_MAX;

/// The interval at which a flush checks whether another thread has read the reports.
const READ_ELSEWHERE: Duration = Duration::from_millis(5);

/// A flush checks its deadline at least this often.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// The wait for all delivery reports, in steps between callbacks.
pub(crate) struct Flush {
    deadline: Option<Instant>,
    /// While it lives, the client sends batches without a linger.
    _flushing: Option<Flushing>,
    /// The application's function for reports runs here, or there are none. Otherwise the application reads events.
    calls_back: bool,
    /// Operations to serve before the next check.
    ops_left: usize,
    /// A callback called `rd_kafka_yield`: the flush ends, whatever is left.
    yielded: bool,
}

/// The next step of a flush.
pub(crate) enum FlushStep {
    Op(Op),
    /// `true` if every record was reported in time.
    Done(bool),
}

impl Flush {
    pub(crate) fn new(handle: &Arc<Handle>, timeout: Option<Duration>) -> Self {
        let callbacks = &handle.callbacks;
        // As in the original: a function gets the reports although events are enabled, too.
        let has_function = callbacks.dr_msg.is_some() || callbacks.dr.is_some();
        let calls_back = has_function || callbacks.events & RD_KAFKA_EVENT_DR == 0;
        if calls_back {
            take_over_reports(handle);
        }
        Self {
            deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            _flushing: handle.producer().map(ottla_client::Producer::flushing),
            calls_back,
            ops_left: OPS_PER_POLL_MAX,
            yielded: false,
        }
    }

    /// Ends the flush at its next step, as in the original.
    pub(crate) fn yields(&mut self) {
        self.yielded = true;
    }

    pub(crate) fn next(&mut self, handle: &Arc<Handle>) -> FlushStep {
        let Some(producer) = handle.producer() else { return FlushStep::Done(true) };
        if self.yielded {
            // Reports that wait in the queue are left as well.
            return FlushStep::Done(handle.unreported() == 0);
        }
        loop {
            if self.calls_back
                && self.ops_left > 0
                && let Some(op) = handle.main.poll(Some(Duration::ZERO))
            {
                self.ops_left -= 1;
                return FlushStep::Op(op);
            }
            self.ops_left = OPS_PER_POLL_MAX;
            if producer.unsettled_records() == 0 {
                return FlushStep::Done(true);
            }
            let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return FlushStep::Done(false);
            }
            let wait = left.map_or(WAIT_MAX, |left| left.min(WAIT_MAX));
            if self.calls_back && handle.reports {
                let settled = || producer.unsettled_records() == 0;
                if let Some(op) = handle.main.poll_until(Some(wait), settled) {
                    return FlushStep::Op(op);
                }
            } else {
                let _ = producer.flush_blocking(wait);
                if producer.unsettled_records() > 0 && !self.calls_back {
                    // Another thread is to read the remaining reports.
                    std::thread::sleep(wait.min(READ_ELSEWHERE));
                }
            }
        }
    }
}

impl Task for Flush {
    fn next(&mut self, handle: &Arc<Handle>) -> Step {
        match Self::next(self, handle) {
            FlushStep::Op(op) => Step::Op(op),
            FlushStep::Done(true) => Step::Return(Returns::code(RD_KAFKA_RESP_ERR_NO_ERROR)),
            FlushStep::Done(false) => Step::Return(Returns::code(RD_KAFKA_RESP_ERR__TIMED_OUT)),
        }
    }

    fn yields(&mut self) {
        Self::yields(self);
    }
}

exported_from_c! {
    fn rd_kafka_flush(rk: *mut rd_kafka_t, timeout_ms: c_int) -> rd_kafka_resp_err_t = ottla_flush;
}

called_from_c! {
    "ottla_begin_flush" begin_flush,
}

#[on_panic(())]
unsafe extern "C" fn begin_flush(state: *mut CallbackLoop, rk: *mut rd_kafka_t, timeout_ms: c_int) {
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    let state = unsafe { &mut *state };
    state.returns(Returns::code(RD_KAFKA_RESP_ERR__FAIL));
    let Some(handle) = Handle::shared(rk, FUNCTION) else {
        return state.returns(Returns::code(RD_KAFKA_RESP_ERR__INVALID_ARG));
    };
    if handle.producer().is_none() {
        return state.returns(Returns::code(RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED));
    }
    let flush = Flush::new(&handle, timeout_of(timeout_ms));
    start(state, handle, flush);
}
