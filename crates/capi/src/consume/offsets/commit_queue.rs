//! `rd_kafka_commit_queue`: the result of a commit in a queue of the caller, or for a function that the caller passed.

use std::ffi::c_void;
use std::sync::Arc;

use super::{begin_commit, commit_timeout, group_consumer, push_result, tell, to_commit, with_error};
use crate::callbacks::trampoline::{CallbackLoop, Returns, Step, Task, start};
use crate::client::handle::Handle;
use crate::ffi::exported_from_c::{called_from_c, exported_from_c};
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::queue::op::{CommitCall, CommitReply, CommitResult, Op, Opaque};
use crate::queue::op_queue::OpQueue;

exported_from_c! {
    fn rd_kafka_commit_queue(
        rk: *mut rd_kafka_t,
        offsets: *const rd_kafka_topic_partition_list_t,
        rkqu: *mut rd_kafka_queue_t,
        cb: rd_kafka_offset_commit_cb_t,
        commit_opaque: *mut c_void
    ) -> rd_kafka_resp_err_t = ottla_commit_queue;
}

called_from_c! {
    "ottla_begin_commit_queue" begin_commit_queue,
}

/// Waits for the result of a commit and calls the function that the caller passed, if any.
struct AwaitCommit {
    queue: Arc<OpQueue>,
    err: Option<rd_kafka_resp_err_t>,
}

impl Task for AwaitCommit {
    fn next(&mut self, handle: &Arc<Handle>) -> Step {
        if self.err.is_none()
            && let Some(Op::CommitResult(result)) = self.queue.poll(Some(commit_timeout(handle)))
        {
            self.err = Some(result.err);
            return Step::Op(Op::CommitResult(result));
        }
        Step::Return(Returns::code(self.err.unwrap_or(RD_KAFKA_RESP_ERR__TIMED_OUT)))
    }
}

#[on_panic(())]
unsafe extern "C" fn begin_commit_queue(
    state: *mut CallbackLoop,
    rk: *mut rd_kafka_t,
    offsets: *const rd_kafka_topic_partition_list_t,
    rkqu: *mut rd_kafka_queue_t,
    cb: rd_kafka_offset_commit_cb_t,
    commit_opaque: *mut c_void,
) {
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    let state = unsafe { &mut *state };
    state.returns(Returns::code(RD_KAFKA_RESP_ERR__FAIL));
    let (handle, consumer) = match group_consumer(rk, FUNCTION) {
        Ok(found) => found,
        Err(code) => return state.returns(Returns::code(code)),
    };
    // SAFETY: `offsets` is NULL or a list of this library, not yet destroyed (rdkafka.h, `rd_kafka_commit_queue`).
    let (asked, offsets) = begin_commit(&handle, &consumer, unsafe { to_commit(&consumer, offsets) });
    let given = rd_kafka_queue_t::of(rkqu, FUNCTION).map(|queue| queue.queue.clone());
    let waits = given.is_none();
    let queue = given.unwrap_or_else(OpQueue::new);
    let function = cb.map(|function| function as CommitCall);
    let reply = Some(CommitReply { function, opaque: Opaque(commit_opaque) });
    match asked {
        Ok(asked) => tell(&handle, queue.clone(), asked, offsets, reply),
        Err(err) => {
            let offsets = with_error(offsets, err);
            push_result(Some(&handle), &queue, CommitResult { err, offsets, reply });
        }
    }
    state.returns(Returns::code(RD_KAFKA_RESP_ERR_NO_ERROR));
    if waits {
        start(state, handle, AwaitCommit { queue, err: None });
    }
}
