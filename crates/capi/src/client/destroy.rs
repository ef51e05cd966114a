//! `rd_kafka_destroy`: the end of a client.

use std::ffi::c_int;
use std::sync::Arc;

use crate::callbacks::running_calls;
use crate::callbacks::trampoline::{CallbackLoop, Returns, Step, Task, start};
use crate::client::handle::Handle;
use crate::consume::leave_group::{Close, CloseStep};
use crate::ffi::exported_from_c::{called_from_c, exported_from_c};
use crate::ffi::panic::on_panic;
use crate::ffi::*;

exported_from_c! {
    fn rd_kafka_destroy(rk: *mut rd_kafka_t) = ottla_destroy;
    fn rd_kafka_destroy_flags(rk: *mut rd_kafka_t, flags: c_int) = ottla_destroy_flags;
}

called_from_c! {
    "ottla_begin_destroy" begin_destroy,
}

/// Ends a client: a consumer leaves its group first, and its rebalance function runs.
struct Destroy {
    /// `None` with `RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE`, and once the consumer is closed.
    close: Option<Close>,
    ended: bool,
}

impl Destroy {
    fn end(&mut self, handle: &Arc<Handle>) {
        if !std::mem::replace(&mut self.ended, true) {
            handle.end();
        }
    }
}

impl Task for Destroy {
    fn next(&mut self, handle: &Arc<Handle>) -> Step {
        if let (Some(close), Some(consumer)) = (&mut self.close, handle.consumer_state())
            && let CloseStep::Op(op) = close.next(handle, consumer)
        {
            return Step::Op(op);
        }
        self.close = None;
        self.end(handle);
        Step::Return(Returns::Number(0))
    }

    /// The rebalance function did not return. The consumer leaves its group nevertheless.
    fn abandon(&mut self, handle: &Arc<Handle>) {
        if let (Some(Close::GiveUpRest | Close::AwaitGivenUp | Close::Leave), Some(consumer)) =
            (self.close.take(), handle.consumer_state())
        {
            consumer.finish_close(&Arc::downgrade(handle));
        }
        self.end(handle);
    }
}

#[on_panic(())]
unsafe extern "C" fn begin_destroy(state: *mut CallbackLoop, rk: *mut rd_kafka_t, flags: c_int) {
    // A child of a fork leaves the parent's client alone.
    let Some(handle) = Handle::shared(rk, FUNCTION) else { return };
    if !handle.begin_end() {
        return;
    }
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    let state = unsafe { &mut *state };
    running_calls::abandon_deeper(state.frame);
    running_calls::forget_abandoned(&handle);
    // C would make the rest of a batch's reports with a stale handle, and with an opaque that may be freed.
    running_calls::discard_reports(&handle);
    let close = (flags & RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE == 0).then_some(Close::GiveUp);
    // The last reference waits for the engine, which may be waiting for this thread's callback.
    start(state, handle, Destroy { close, ended: false });
}
