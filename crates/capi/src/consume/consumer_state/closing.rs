//! The end of a group consumer: it revokes what the application still has, waits until that is given up, and leaves the group.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ottla_client::TopicPartition;

use super::{ConsumerState, lock};
use crate::client::handle::{CLOSE_TIMEOUT, Handle, LOG_WARNING};
use crate::ffi::*;
use crate::queue::op::Op;

/// The additional time for the engine's answer to a close that takes the whole [`CLOSE_TIMEOUT`].
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest pause between two checks of a wait that can take minutes.
const CHECK_PAUSE_MAX: Duration = Duration::from_millis(20);

/// Counts a commit from the request until its result is in its queue.
pub(crate) struct UnreportedCommit(Arc<AtomicUsize>);

impl Drop for UnreportedCommit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl ConsumerState {
    /// Returns the revocation of the whole assignment, if the application applies assignments itself.
    pub(crate) fn revocation(&self, handle: &Arc<Handle>) -> Option<Op> {
        Self::revocation_of(handle, self.control.assignment())
    }

    /// Returns the revocation of the assignment without the partitions whose revocation the application has received.
    pub(crate) fn revocation_of_rest(&self, handle: &Arc<Handle>) -> Option<Op> {
        let received = lock(&self.received_revocations).clone();
        let assigned = self.control.assignment().into_iter();
        Self::revocation_of(handle, assigned.filter(|at| !received.contains(at)).collect())
    }

    /// Returns the revocation that the group has decided and no poll has returned.
    pub(crate) fn unseen_revocation(&self, handle: &Arc<Handle>) -> Option<Op> {
        let unseen = self.control.unseen_revocations();
        lock(&self.received_revocations).extend(unseen.iter().cloned());
        Self::revocation_of(handle, unseen)
    }

    fn revocation_of(handle: &Arc<Handle>, partitions: Vec<TopicPartition>) -> Option<Op> {
        let applies = handle.config.rebalance == ottla_client::Rebalance::Application;
        (applies && !partitions.is_empty()).then(|| {
            let err = RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS;
            Op::Rebalance { err, partitions, lost: false }
        })
    }

    /// Begins to close. Returns `false` if another call has begun before.
    pub(crate) fn begin_close(&self) -> bool {
        !self.closing.swap(true, Ordering::AcqRel)
    }

    /// Waits for the close that another call has begun, at most as long as a close takes. Returns `true` if that close was
    /// cancelled: this call has begun one then.
    pub(crate) fn await_other_close(&self) -> bool {
        let deadline = Instant::now() + CLOSE_TIMEOUT + ANSWER_TIMEOUT;
        while !self.is_closed() && Instant::now() < deadline {
            if self.begin_close() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// Handles a rebalance callback of a close that did not return: a later call closes.
    pub(crate) fn cancel_close(&self) {
        self.closing.store(false, Ordering::Release);
    }

    /// Waits until the application has given up its partitions, at most [`CLOSE_TIMEOUT`]: it frees what they belong to after the
    /// close.
    pub(crate) fn await_given_up(&self) {
        self.await_none(|| !self.control.assignment().is_empty());
    }

    /// Waits until the application has given up its partitions, as long as a member may take for its records: until it has not polled
    /// for `max_poll_interval`. Another close, or a destroy, ends the wait.
    pub(crate) fn await_given_up_within(&self, max_poll_interval: Duration) {
        let (mut polls, mut polled_at) = (self.control.poll_count(), Instant::now());
        let mut pause = Duration::from_millis(1);
        while !self.control.assignment().is_empty() && !self.is_closing() && !self.is_closed() {
            let count = self.control.poll_count();
            let is_polling = count % 2 == 1;
            if is_polling || count != polls {
                (polls, polled_at) = (count, Instant::now());
            }
            if polled_at.elapsed() >= max_poll_interval {
                return;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(CHECK_PAUSE_MAX);
        }
    }

    /// The same as [`Self::await_given_up`] for the partitions whose revocation the application has received before the close.
    pub(crate) fn await_earlier_revocations(&self) {
        let received = lock(&self.received_revocations).clone();
        self.await_none(|| self.control.assignment().iter().any(|at| received.contains(at)));
    }

    /// Waits until nothing is left, or until a destroy inside the callback of this close has closed the consumer.
    fn await_none(&self, is_any_left: impl Fn() -> bool) {
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        while is_any_left() && !self.is_closed() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Begins a commit that the application requests.
    pub(crate) fn begin_report(&self) -> UnreportedCommit {
        self.unreported_commits.fetch_add(1, Ordering::Relaxed);
        UnreportedCommit(self.unreported_commits.clone())
    }

    /// Waits after a close until the results of all commits are in their queues: the engine has ended the commits by then.
    pub(crate) fn await_reports(&self) {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        while self.unreported_commits.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Leaves the group, ends the assignment, and waits until both are done. As in the original, a last commit that fails is
    /// logged, and the close succeeds. The client may end meanwhile.
    pub(crate) fn finish_close(&self, handle: &Weak<Handle>) {
        let closed = self.control.close(CLOSE_TIMEOUT).wait(CLOSE_TIMEOUT + ANSWER_TIMEOUT);
        self.closed.store(true, Ordering::Release);
        self.has_protocol.store(false, Ordering::Relaxed);
        // A poll that waits is woken: nothing will come.
        self.queue.yield_once();
        if let (Err(error), Some(handle)) = (closed, handle.upgrade()) {
            handle.log(LOG_WARNING, c"CLOSE", &error.to_string());
        }
    }
}
