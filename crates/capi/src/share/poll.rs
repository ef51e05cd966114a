//! `rd_kafka_share_poll`: records as a batch of messages. While it waits, the application's callbacks run in the polling thread.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::callbacks::running_calls;
use crate::callbacks::trampoline::{CallbackLoop, Returns, Step, Task, start};
use crate::client::handle::Handle;
use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::exported_from_c::{called_from_c, exported_from_c};
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::queue::op_queue::timeout_of;
use crate::queue::poll::OPS_PER_POLL_MAX;
use crate::share::message_batch::MessageBatch;
use crate::share::share_call::{Refused, ShareCall};

/// The interval at which a waiting poll looks for records, which shows that the application is alive (`max.poll.interval.ms`).
const LOOK_EVERY: Duration = Duration::from_millis(500);

exported_from_c! {
    fn rd_kafka_share_poll(
        rkshare: *mut rd_kafka_share_t,
        timeout_ms: c_int,
        rkmessages: *mut *mut rd_kafka_messages_t
    ) -> *mut rd_kafka_error_t = ottla_share_poll;
}

called_from_c! {
    "ottla_begin_share_poll" begin_share_poll,
}

/// Serves the operations of the client's queue, also without a subscription, and then takes records. Records that were taken reach the
/// application, because no callback follows.
struct SharePoll {
    call: ShareCall,
    /// `None` without a limit.
    deadline: Option<Instant>,
    /// The application's place for the batch.
    out: *mut *mut rd_kafka_messages_t,
    ops_left: usize,
    /// The operations that were there at the call are served, and the consumer knows of the poll.
    has_begun: bool,
}

impl SharePoll {
    /// Reports the poll to the consumer, once.
    fn begin(&mut self) -> Result<(), Refused> {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.call.with(|consumer| Ok(consumer.begin_poll()?))?;
        }
        Ok(())
    }

    /// Returns a batch if records have arrived.
    fn take(&self, client: &Arc<Handle>) -> Result<Option<MessageBatch>, Refused> {
        let share = &self.call;
        if !share.is_open() {
            return Err(Refused::new(RD_KAFKA_RESP_ERR__STATE, "Share consumer is closed"));
        }
        share.filled.store(false, Ordering::Release);
        let taken = share.state().take_messages(client);
        let messages = taken.map_err(|error| share.refused(client, error))?;
        Ok((!messages.is_empty()).then(|| MessageBatch::new(messages)))
    }

    /// Passes a batch to the application.
    fn store(&self, batch: MessageBatch) -> *mut rd_kafka_error_t {
        let Some(batch) = batch.into_raw() else {
            let text = "too many batches exist: destroy some first";
            return Refused::new(RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE, text).into_raw();
        };
        // SAFETY: `rkmessages` is writable for the time of the call (rdkafka.h, `rd_kafka_share_poll`), and the call has not
        // returned.
        unsafe { *self.out = batch };
        null_mut()
    }

    fn end(&self, outcome: Result<Option<MessageBatch>, Refused>) -> Step {
        // Without records, the engine continues to fetch for the next poll, as the original does.
        let error = match outcome {
            Ok(None) => null_mut(),
            Ok(Some(batch)) => self.store(batch),
            Err(refused) => refused.into_raw(),
        };
        Step::Return(Returns::Pointer(error.cast()))
    }
}

impl Task for SharePoll {
    fn next(&mut self, client: &Arc<Handle>) -> Step {
        self.call.callback_returned();
        loop {
            if self.ops_left > 0
                && let Some(op) = client.main.poll(Some(Duration::ZERO))
            {
                self.ops_left -= 1;
                return self.call.step(op);
            }
            if let Err(refused) = self.begin() {
                return self.end(Err(refused));
            }
            let taken = self.take(client);
            let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if !matches!(taken, Ok(None)) || left == Some(Duration::ZERO) || self.ops_left == 0 {
                return self.end(taken);
            }
            let wait = left.map_or(LOOK_EVERY, |left| left.min(LOOK_EVERY));
            if let Some(op) = client.main.poll_until(Some(wait), || self.call.filled.load(Ordering::Acquire))
            {
                self.ops_left -= 1;
                return self.call.step(op);
            }
        }
    }

    fn yields(&mut self) {
        self.ops_left = 0;
    }
}

#[on_panic(())]
unsafe extern "C" fn begin_share_poll(
    state: *mut CallbackLoop,
    rkshare: *mut rd_kafka_share_t,
    timeout_ms: c_int,
    rkmessages: *mut *mut rd_kafka_messages_t,
) {
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    let state = unsafe { &mut *state };
    // SAFETY: `rkmessages` is NULL or writable (rdkafka.h, `rd_kafka_share_poll`).
    let Some(out) = (unsafe { rkmessages.as_mut() }) else {
        let refused = Refused::new(RD_KAFKA_RESP_ERR__INVALID_ARG, "rkmessages is NULL");
        return state.returns(Returns::Pointer(refused.into_raw().cast()));
    };
    *out = null_mut();
    running_calls::abandon_deeper(state.frame);
    match ShareCall::begin_open(rkshare, FUNCTION) {
        Ok(call) => {
            let deadline = timeout_of(timeout_ms).and_then(|timeout| Instant::now().checked_add(timeout));
            let client = call.client.clone();
            let ops_left = OPS_PER_POLL_MAX;
            start(state, client, SharePoll { call, deadline, out: rkmessages, ops_left, has_begun: false });
        }
        Err(refused) => state.returns(Returns::Pointer(refused.into_raw().cast())),
    }
}
