//! One queue of an inbox, and what wakes those who wait at it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::inbox::{Inbox, Item, RingId};
use crate::ear::Ear;

/// Rung when a queue that was empty is so no more.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    pub(crate) filled: Notify,
    /// Whether there is something that comes before all records.
    pub(super) has_news: AtomicBool,
    ear: Ear,
}

impl Bell {
    /// Calls `listener` too, from now on, or nobody.
    pub(crate) fn listen(&self, listener: Option<Arc<dyn Fn() + Send + Sync>>) {
        self.ear.listen(listener);
    }

    pub(super) fn ring(&self) {
        self.filled.notify_one();
        self.ear.tell();
    }
}

/// A handle on one ring of an inbox. A queue that was split off ends with it.
#[derive(Debug)]
pub(crate) struct Queue {
    inbox: Arc<Inbox>,
    ring: RingId,
    bell: Arc<Bell>,
}

impl Queue {
    /// The consumer's own queue.
    pub(crate) fn main(inbox: &Arc<Inbox>) -> Self {
        Self::of(inbox, RingId::MAIN)
    }

    pub(crate) fn of(inbox: &Arc<Inbox>, ring: RingId) -> Self {
        Self { inbox: inbox.clone(), ring, bell: inbox.bell(ring) }
    }

    pub(crate) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    pub(crate) fn bell(&self) -> Arc<Bell> {
        self.bell.clone()
    }

    pub(crate) fn ring(&self) -> RingId {
        self.ring
    }

    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.bell.has_news.load(Ordering::Relaxed)
    }

    pub(crate) fn pop(&self, news_only: bool) -> Option<Item> {
        self.inbox.pop(self.ring, news_only)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.ring != RingId::MAIN {
            self.inbox.rejoin(self.ring);
        }
    }
}
