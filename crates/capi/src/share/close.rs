//! The end of a share consumer: it leaves the group, and its handle ends.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;

use ottla_client::Error;

use crate::callbacks::running_calls;
use crate::callbacks::trampoline::{CallbackLoop, Returns, Step, Task, start};
use crate::client::handle::Handle;
use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::exported_from_c::{called_from_c, exported_from_c};
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::share::share_call::{Refused, ShareCall};
use crate::share::share_handle::Share;

exported_from_c! {
    fn rd_kafka_share_consumer_close(rkshare: *mut rd_kafka_share_t) -> *mut rd_kafka_error_t = ottla_share_consumer_close;
    fn rd_kafka_share_destroy(rkshare: *mut rd_kafka_share_t) -> *mut rd_kafka_error_t = ottla_share_destroy;
    fn rd_kafka_share_destroy_flags(rkshare: *mut rd_kafka_share_t, flags: c_int) -> *mut rd_kafka_error_t = ottla_share_destroy_flags;
}

called_from_c! {
    "ottla_begin_share_consumer_close" begin_share_consumer_close,
    "ottla_begin_share_destroy" begin_share_destroy,
}

impl Share {
    /// Sends the acknowledgements, releases the other records and leaves the group, within `socket.timeout.ms`.
    fn leave(&self) -> Result<(), Refused> {
        // Taken out first: other calls do not wait for the end.
        let consumer = self.state().consumer.take();
        let closed =
            consumer.map_or(Ok(()), |consumer| consumer.close_blocking(self.client.config.socket_timeout));
        match closed {
            // As in the original, a coordinator that does not answer is no error of the close.
            Err(Error::TimedOut { .. }) => Ok(()),
            closed => closed.map_err(Refused::from),
        }
    }
}

/// Runs the callbacks for the results that the close has brought.
struct Close {
    call: ShareCall,
    outcome: *mut rd_kafka_error_t,
}

impl Task for Close {
    fn next(&mut self, _client: &Arc<Handle>) -> Step {
        self.call.callback_returned();
        self.call.next_result().unwrap_or_else(|| {
            let outcome = std::mem::replace(&mut self.outcome, null_mut());
            Step::Return(Returns::Pointer(outcome.cast()))
        })
    }
}

#[on_panic(())]
unsafe extern "C" fn begin_share_consumer_close(state: *mut CallbackLoop, rkshare: *mut rd_kafka_share_t) {
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    let state = unsafe { &mut *state };
    running_calls::abandon_deeper(state.frame);
    let call = match ShareCall::begin_open(rkshare, FUNCTION) {
        Ok(call) => call,
        Err(refused) => return state.returns(Returns::Pointer(refused.into_raw().cast())),
    };
    if call.state().consumer.is_none() {
        let refused =
            Refused::new(RD_KAFKA_RESP_ERR__UNKNOWN_GROUP, "the share consumer has no group: set group.id");
        return state.returns(Returns::Pointer(refused.into_raw().cast()));
    }
    let outcome = call.leave().map_or_else(Refused::into_raw, |()| null_mut());
    call.set_closed();
    let client = call.client.clone();
    start(state, client, Close { call, outcome });
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_consumer_close_queue(
    rkshare: *mut rd_kafka_share_t,
    rkqu: *mut rd_kafka_queue_t,
) -> *mut rd_kafka_error_t {
    let refused = |code, text| Refused::new(code, text).into_raw();
    let call = match ShareCall::begin_open(rkshare, FUNCTION) {
        Ok(call) => call,
        Err(refused) => return refused.into_raw(),
    };
    let Some(queue) = rd_kafka_queue_t::of(rkqu, FUNCTION) else {
        return refused(RD_KAFKA_RESP_ERR__INVALID_ARG, "Queue must be specified");
    };
    if call.state().consumer.is_none() {
        return refused(RD_KAFKA_RESP_ERR__UNKNOWN_GROUP, "the share consumer has no group: set group.id");
    }
    call.client.main.forward_to(Some(&queue.queue));
    // A failed close is a closed consumer as well: the broker releases its records after their locks.
    if call.close_in_thread(|share| drop(share.leave())) {
        null_mut()
    } else {
        refused(RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE, "no thread to close the share consumer")
    }
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_consumer_closed(rkshare: *mut rd_kafka_share_t) -> c_int {
    Share::of(rkshare, FUNCTION).is_some_and(|share| share.is_closed()).into()
}

/// Runs the callbacks for the results that the close has brought, and ends the client.
struct Destroy {
    call: ShareCall,
    ended: bool,
}

impl Destroy {
    fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        if self.call.client.begin_end() {
            self.call.client.end();
        }
        self.call.retire();
    }
}

impl Task for Destroy {
    fn next(&mut self, _client: &Arc<Handle>) -> Step {
        self.call.callback_returned();
        if let Some(step) = self.call.next_result() {
            return step;
        }
        self.end();
        Step::Return(Returns::Pointer(null_mut()))
    }

    /// The callback did not return. The share consumer is destroyed nevertheless.
    fn abandon(&mut self, _client: &Arc<Handle>) {
        self.end();
    }
}

#[on_panic(())]
unsafe extern "C" fn begin_share_destroy(
    state: *mut CallbackLoop,
    rkshare: *mut rd_kafka_share_t,
    flags: c_int,
) {
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    let state = unsafe { &mut *state };
    running_calls::abandon_deeper(state.frame);
    let call = match ShareCall::begin(rkshare, FUNCTION) {
        Ok(call) => call,
        Err(refused) => return state.returns(Returns::Pointer(refused.into_raw().cast())),
    };
    let client = call.client.clone();
    running_calls::forget_abandoned(&client);
    call.join_close();
    // After a fatal error, the requests of a close could take the whole time-out.
    let closes = flags & RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE == 0 && client.fatal.get().is_none();
    if closes {
        // A failed close ends the consumer too.
        drop(call.leave());
    }
    drop(call.state().consumer.take());
    call.set_closed();
    start(state, client, Destroy { call, ended: false });
}
