//! Calls of a share consumer: one thread at a time, and none from the callback for the results of acknowledgements.

use std::ops::Deref;
use std::sync::Arc;

use ottla_client::{Error, ShareConsumer};

use crate::callbacks::trampoline::Step;
use crate::client::handle::Handle;
use crate::errors::error_mapping;
use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::*;
use crate::queue::op::Op;
use crate::share::share_handle::{Share, lock};

/// The thread whose calls use a share consumer.
#[derive(Default)]
pub(crate) struct Access {
    user: Option<libc::pthread_t>,
    /// The number of its calls: a callback can make further ones.
    calls: usize,
    /// The callback for the results of acknowledgements runs.
    in_commit_callback: bool,
}

/// A call of the application. It ends when this is dropped.
pub(crate) struct ShareCall(Arc<Share>);

/// The reason why a call returns an error.
pub(crate) struct Refused(Box<rd_kafka_error_t>);

impl Refused {
    pub(super) fn new(code: rd_kafka_resp_err_t, text: &str) -> Self {
        Self(rd_kafka_error_t::new(code, text))
    }

    pub(super) fn code(&self) -> rd_kafka_resp_err_t {
        self.0.code()
    }

    /// To C, which destroys it.
    pub(super) fn into_raw(self) -> *mut rd_kafka_error_t {
        self.0.into_raw()
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self(error_mapping::object(&error))
    }
}

impl Deref for ShareCall {
    type Target = Arc<Share>;

    fn deref(&self) -> &Arc<Share> {
        &self.0
    }
}

impl ShareCall {
    /// Begins a call, also of a closed share consumer.
    pub(super) fn begin(rkshare: *const rd_kafka_share_t, function: &str) -> Result<Self, Refused> {
        if rkshare.is_null() {
            return Err(Refused::new(RD_KAFKA_RESP_ERR__STATE, "Share consumer handle is NULL"));
        }
        let Some(share) = Share::of(rkshare, function) else {
            let text = "the share consumer is destroyed, or belongs to a parent of this process";
            return Err(Refused::new(RD_KAFKA_RESP_ERR__INVALID_ARG, text));
        };
        let share = share.shared();
        // SAFETY: the call has no arguments.
        let own = unsafe { libc::pthread_self() };
        let mut access = lock(&share.access);
        if let Some(other) = access.user.filter(|user| *user != own) {
            let text = format!(
                "a share consumer is used by one thread at a time: thread {own} calls while thread {other} does"
            );
            return Err(Refused::new(RD_KAFKA_RESP_ERR__CONFLICT, &text));
        }
        if access.in_commit_callback {
            let text =
                "functions of a share consumer cannot be called from its acknowledgement commit callback";
            return Err(Refused::new(RD_KAFKA_RESP_ERR__STATE, text));
        }
        access.user = Some(own);
        access.calls += 1;
        drop(access);
        Ok(Self(share))
    }

    /// Begins a call of a share consumer that is not closed.
    pub(super) fn begin_open(rkshare: *const rd_kafka_share_t, function: &str) -> Result<Self, Refused> {
        let call = Self::begin(rkshare, function)?;
        if !call.is_open() {
            return Err(Refused::new(RD_KAFKA_RESP_ERR__STATE, "Share consumer is closed"));
        }
        Ok(call)
    }

    /// Runs `body` with the consumer.
    pub(super) fn with<T>(
        &self,
        body: impl FnOnce(&mut ShareConsumer) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let mut state = self.state();
        let consumer = state.consumer.as_mut().ok_or_else(without_group)?;
        body(consumer)
    }

    /// The reason why a poll returns an error. A member that its group refuses has a fatal error.
    pub(super) fn refused(&self, client: &Handle, error: Error) -> Refused {
        if self.state().consumer.as_ref().is_none_or(|consumer| consumer.refusal().is_none()) {
            return error.into();
        }
        let code = error_mapping::of(&error);
        let text = format!("ShareGroupHeartbeat fatal error: {error}");
        client.note_fatal(code, &text);
        Refused(rd_kafka_error_t::new(code, &text).fatal(true))
    }

    /// The step for an operation of the client's queue.
    pub(super) fn step(&self, op: Op) -> Step {
        lock(&self.access).in_commit_callback = matches!(op, Op::Acknowledged(_));
        Step::Op(op)
    }

    /// The callback of the last step has returned, or there was none.
    pub(super) fn callback_returned(&self) {
        lock(&self.access).in_commit_callback = false;
    }

    /// Returns a callback for the result of acknowledgements that has arrived.
    pub(super) fn next_result(&self) -> Option<Step> {
        let op = self.client.main.take_first(|op| matches!(op, Op::Acknowledged(_)))?;
        Some(self.step(op))
    }
}

impl Drop for ShareCall {
    fn drop(&mut self) {
        let mut access = lock(&self.0.access);
        access.calls -= 1;
        access.in_commit_callback = false;
        if access.calls == 0 {
            access.user = None;
        }
    }
}

fn without_group() -> Refused {
    Refused::new(RD_KAFKA_RESP_ERR__STATE, "the share consumer has no group: set group.id")
}
