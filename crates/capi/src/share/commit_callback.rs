//! The application's callback for the results of acknowledgements.

use std::any::Any;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Arc, Weak};

use ottla_client::AcknowledgementResult;

use crate::callbacks::prepared::{CallbackArguments, set_function};
use crate::callbacks::trampoline::{CallbackKind, CallbackLoop};
use crate::errors::error_mapping::of_acknowledgement;
use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::queue::op::{Op, Opaque};
use crate::share::partition_offsets::LentOffsets;
use crate::share::share_call::ShareCall;
use crate::share::share_handle::{Share, lock};

/// The application's function with its opaque pointer.
#[derive(Clone, Copy)]
pub(crate) struct CommitCallback {
    function: unsafe extern "C" fn(
        *mut rd_kafka_share_t,
        *mut rd_kafka_share_partition_offsets_list_t,
        rd_kafka_resp_err_t,
        *mut c_void,
    ),
    opaque: Opaque,
}

/// A result on its way to the callback.
struct AcknowledgedOffsets {
    share: Weak<Share>,
    result: AcknowledgementResult,
}

impl CallbackArguments for AcknowledgedOffsets {
    fn fill(self: Box<Self>, state: &mut CallbackLoop) -> Option<Box<dyn Any>> {
        let share = self.share.upgrade()?;
        let callback = (*lock(&share.callback))?;
        let AcknowledgementResult { at, ranges, result, .. } = &self.result;
        let offsets = ranges.iter().cloned().flatten().collect();
        let list = LentOffsets::new(at, offsets)?;
        state.rk = share.raw().cast();
        state.pointer = list.raw().cast();
        state.number = result.as_ref().err().map_or(RD_KAFKA_RESP_ERR_NO_ERROR, of_acknowledgement);
        state.opaque = callback.opaque.0;
        set_function(state, CallbackKind::Acknowledged, callback.function as *const c_void);
        Some(Box::new(list))
    }
}

impl Share {
    /// Adds the results of acknowledgements to the client's queue from now on.
    fn queue_results(self: &Arc<Self>) {
        let share = Arc::downgrade(self);
        if let Some(consumer) = &self.state().consumer {
            consumer.acknowledgement_results().on_each(move |result| {
                let Some(owner) = share.upgrade() else { return };
                let acknowledged = AcknowledgedOffsets { share: share.clone(), result };
                owner.client.main.push(Op::Acknowledged(Box::new(acknowledged)));
            });
        }
    }
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_set_acknowledgement_commit_cb(
    rkshare: *mut rd_kafka_share_t,
    cb: rd_kafka_share_acknowledgement_commit_cb_t,
    opaque: *mut c_void,
) -> *mut rd_kafka_error_t {
    match ShareCall::begin_open(rkshare, FUNCTION) {
        Ok(call) => {
            let callback = cb.map(|function| CommitCallback { function, opaque: Opaque(opaque) });
            if callback.is_some() {
                call.queue_results();
            }
            *lock(&call.callback) = callback;
            null_mut()
        }
        Err(refused) => refused.into_raw(),
    }
}
