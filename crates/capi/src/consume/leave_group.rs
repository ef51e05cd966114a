//! `rd_kafka_subscribe`, `rd_kafka_unsubscribe` and `rd_kafka_consumer_close`: before a consumer leaves its group, the
//! application's rebalance function gives up the assignment: in a later poll, or during the close.

use std::sync::Arc;

use ottla_client::Error;

use crate::callbacks::running_calls;
use crate::callbacks::trampoline::{CallbackLoop, Returns, Step, Task, start};
use crate::client::handle::Handle;
use crate::consume::consumer_state::ConsumerState;
use crate::consume::group_consumer::{code, with_group};
use crate::ffi::exported_from_c::{called_from_c, exported_from_c};
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::messages::list_conversion;
use crate::queue::op::{CommitResult, Op};

/// Closes a consumer.
pub(crate) enum Close {
    /// For a destroy: it waits for the close that another call has begun.
    GiveUp,
    /// For a close: it returns if another call has begun to close.
    GiveUpOnce,
    /// The application has given up the partitions that the group revoked before.
    GiveUpRest,
    /// The application's function was called for the last revocation. Another thread may give the partitions up later: an addon of
    /// Node runs JavaScript for that.
    AwaitGivenUp,
    Leave,
    /// The consumer has left. As in the original, the application's functions get the operations that wait in the consumer's queue, at
    /// most so many: the results of the last commits are among them if the main queue is forwarded to it.
    Serve(usize),
}

/// The next step of a close.
pub(crate) enum CloseStep {
    Op(Op),
    Done(rd_kafka_resp_err_t),
}

impl Close {
    pub(crate) fn next(&mut self, handle: &Arc<Handle>, consumer: &ConsumerState) -> CloseStep {
        if let Self::Serve(left) = self {
            return serve(handle, consumer, left);
        }
        if matches!(self, Self::GiveUp | Self::GiveUpOnce) {
            if !consumer.begin_close() && !self.awaits_other_close(handle, consumer) {
                return CloseStep::Done(RD_KAFKA_RESP_ERR_NO_ERROR);
            }
            *self = Self::GiveUpRest;
            // As the original does, although the next revocation could contain these partitions.
            if let Some(op) = consumer.unseen_revocation(handle).filter(|_| consumer.has_protocol()) {
                return CloseStep::Op(op);
            }
        }
        // A destroy inside the callback of this close has ended it.
        if consumer.is_closed() {
            return CloseStep::Done(RD_KAFKA_RESP_ERR_NO_ERROR);
        }
        if matches!(self, Self::GiveUpRest) {
            // A rebalance callback of this thread returns after the close: the partitions that it gives up cannot be awaited.
            let awaits = !running_calls::is_in_rebalance(handle);
            *self = if awaits { Self::AwaitGivenUp } else { Self::Leave };
            // The application has received the revocation of some partitions and may give them up in another thread: they are not
            // revoked again.
            let revocation = if awaits {
                consumer.await_earlier_revocations();
                consumer.revocation(handle)
            } else {
                consumer.revocation_of_rest(handle)
            };
            if let Some(op) = revocation.filter(|_| consumer.has_protocol()) {
                return CloseStep::Op(op);
            }
            *self = Self::Leave;
        }
        if matches!(self, Self::AwaitGivenUp) {
            *self = Self::Leave;
            consumer.await_given_up();
        }
        consumer.finish_close(&Arc::downgrade(handle));
        consumer.await_reports();
        let mut left = consumer.queue.ops();
        let step = serve(handle, consumer, &mut left);
        *self = Self::Serve(left);
        step
    }

    /// Waits for the close of another call, if a destroy would lose its commit and its LeaveGroup otherwise. Returns `true` if this
    /// call closes instead.
    fn awaits_other_close(&self, handle: &Arc<Handle>, consumer: &ConsumerState) -> bool {
        if matches!(self, Self::GiveUpOnce) || consumer.is_closed() {
            return false;
        }
        if running_calls::is_in_rebalance(handle) {
            // The other close may wait for this callback.
            consumer.finish_close(&Arc::downgrade(handle));
            return false;
        }
        consumer.await_other_close()
    }
}

/// Takes the next operation that a function of the application gets.
fn serve(handle: &Handle, consumer: &ConsumerState, left: &mut usize) -> CloseStep {
    let next = if *left == 0 { None } else { consumer.queue.take_first(|op| has_function(handle, op)) };
    *left = left.saturating_sub(1);
    next.map_or(CloseStep::Done(RD_KAFKA_RESP_ERR_NO_ERROR), CloseStep::Op)
}

/// Returns `true` if a close passes the operation to a function of the application. As in the original, messages are dropped.
fn has_function(handle: &Handle, op: &Op) -> bool {
    let callbacks = &handle.callbacks;
    match op {
        Op::CommitResult(CommitResult { reply: Some(reply), .. }) => reply.function.is_some(),
        Op::CommitResult(CommitResult { reply: None, .. }) => callbacks.offset_commit.is_some(),
        Op::Error { .. } => callbacks.error.is_some(),
        Op::Stats(_) => callbacks.stats.is_some(),
        Op::Throttled(_) => callbacks.throttle.is_some(),
        Op::Log(_) => handle.logs.function().is_some(),
        Op::TokenRefresh(..) => callbacks.oauthbearer_token_refresh.is_some(),
        Op::Message(_)
        | Op::DeliveryReport { .. }
        | Op::Rebalance { .. }
        | Op::Acknowledged(_)
        | Op::Result(_) => false,
        #[cfg(test)]
        Op::Nothing => false,
    }
}

impl Task for Close {
    fn next(&mut self, handle: &Arc<Handle>) -> Step {
        let Some(consumer) = handle.consumer_state() else {
            return Step::Return(Returns::code(RD_KAFKA_RESP_ERR__UNKNOWN_GROUP));
        };
        match Self::next(self, handle, consumer) {
            CloseStep::Op(op) => Step::Op(op),
            CloseStep::Done(code) => Step::Return(Returns::code(code)),
        }
    }

    fn abandon(&mut self, handle: &Arc<Handle>) {
        if let (Self::GiveUpRest | Self::AwaitGivenUp | Self::Leave, Some(consumer)) =
            (&self, handle.consumer_state())
        {
            consumer.cancel_close();
        }
    }
}

exported_from_c! {
    fn rd_kafka_consumer_close(rk: *mut rd_kafka_t) -> rd_kafka_resp_err_t = ottla_consumer_close;
}

called_from_c! {
    "ottla_begin_consumer_close" begin_consumer_close,
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_subscribe(
    rk: *mut rd_kafka_t,
    topics: *const rd_kafka_topic_partition_list_t,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `topics` is NULL or a list of this
    // library, not yet destroyed (rdkafka.h, `rd_kafka_subscribe`).
    unsafe {
        with_group(rk, FUNCTION, |handle, consumer| {
            let mut names: Vec<String> = list_conversion::entries(topics)
                .iter()
                .map(|entry| entry.topic().to_string_lossy().into_owned())
                .collect();
            if names.is_empty() || names.iter().any(String::is_empty) {
                return Err(RD_KAFKA_RESP_ERR__INVALID_ARG);
            }
            names.sort();
            if names.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(RD_KAFKA_RESP_ERR__INVALID_ARG);
            }
            // As in the original, a subscription of a failed consumer ends the one that it has.
            if handle.fatal.get().is_some() {
                consumer.unsubscribe(handle);
                return Err(RD_KAFKA_RESP_ERR__FATAL);
            }
            consumer.subscribe(names).map_err(|error| match error {
                Error::Config(_) => RD_KAFKA_RESP_ERR__INVALID_ARG,
                other => code(other),
            })
        })
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_unsubscribe(rk: *mut rd_kafka_t) -> rd_kafka_resp_err_t {
    with_group(rk, FUNCTION, |handle, consumer| {
        consumer.unsubscribe(handle);
        // As in the original, the call has its effect.
        if handle.fatal.get().is_some() { Err(RD_KAFKA_RESP_ERR__FATAL) } else { Ok(()) }
    })
}

#[on_panic(())]
unsafe extern "C" fn begin_consumer_close(state: *mut CallbackLoop, rk: *mut rd_kafka_t) {
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    let state = unsafe { &mut *state };
    state.returns(Returns::code(RD_KAFKA_RESP_ERR__INVALID_ARG));
    let Some(handle) = Handle::shared(rk, FUNCTION) else { return };
    let Some(consumer) = handle.group_consumer() else {
        return state.returns(Returns::code(RD_KAFKA_RESP_ERR__UNKNOWN_GROUP));
    };
    if consumer.is_closed() {
        return state.returns(Returns::code(RD_KAFKA_RESP_ERR__DESTROY));
    }
    // The application's close reports a fatal error and leaves the rest to destroy.
    if handle.fatal.get().is_some() {
        return state.returns(Returns::code(RD_KAFKA_RESP_ERR__FATAL));
    }
    start(state, handle, Close::GiveUpOnce);
}
