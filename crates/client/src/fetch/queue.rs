//! One queue of an inbox, and its signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::inbox::{Inbox, Item, QueueId};
use crate::wake_callback::WakeCallback;

/// Notified when a queue that was empty gets an item.
#[derive(Debug, Default)]
pub(crate) struct QueueSignal {
    pub(crate) filled: Notify,
    /// `true` if the queue has events, which come before all records.
    pub(super) has_events: AtomicBool,
    /// `true` if the queue gets the consumer's own items: it is that queue, or the one that it is forwarded to.
    pub(super) is_main: AtomicBool,
    wake_callback: WakeCallback,
}

impl QueueSignal {
    /// Sets the function that is called with each notification, or removes it.
    pub(crate) fn listen(&self, listener: Option<Arc<dyn Fn() + Send + Sync>>) {
        self.wake_callback.set(listener);
    }

    pub(super) fn notify(&self) {
        self.filled.notify_one();
        self.wake_callback.notify();
    }
}

/// A handle of one queue of an inbox. Dropping it ends a queue that was split off.
#[derive(Debug)]
pub(crate) struct Queue {
    inbox: Arc<Inbox>,
    id: QueueId,
    signal: Arc<QueueSignal>,
}

impl Queue {
    /// The consumer's own queue.
    pub(crate) fn main(inbox: &Arc<Inbox>) -> Self {
        Self::of(inbox, QueueId::MAIN)
    }

    pub(crate) fn of(inbox: &Arc<Inbox>, id: QueueId) -> Self {
        Self { inbox: inbox.clone(), id, signal: inbox.signal(id) }
    }

    pub(crate) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    pub(crate) fn signal(&self) -> Arc<QueueSignal> {
        self.signal.clone()
    }

    pub(crate) fn id(&self) -> QueueId {
        self.id
    }

    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        self.signal.has_events.load(Ordering::Relaxed)
    }

    /// Returns `true` if a poll of this queue is a poll of the consumer.
    #[inline]
    pub(crate) fn counts_as_consumer(&self) -> bool {
        self.id == QueueId::MAIN || self.signal.is_main.load(Ordering::Relaxed)
    }

    /// Records that a poll of this queue returned a revocation.
    pub(crate) fn note_revocation(&self) {
        self.inbox.note_revocation(self.id);
    }

    /// Returns `true` once after a revocation that a poll of this queue answers: it was returned by this queue, or by one from which
    /// this queue has taken over.
    #[inline]
    pub(crate) fn answers_revocation(&self) -> bool {
        self.inbox.answers_revocation(self.id, || self.signal.is_main.load(Ordering::Relaxed))
    }

    pub(crate) fn pop(&self, events_only: bool) -> Option<Item> {
        self.inbox.pop(self.id, events_only)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.id != QueueId::MAIN {
            self.inbox.rejoin(self.id);
        }
    }
}
