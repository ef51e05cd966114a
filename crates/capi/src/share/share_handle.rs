//! The object behind C's `rd_kafka_share_t *`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use ottla_client::{Error, ShareConsumer, TopicPartition};

use crate::client::handle::Handle;
use crate::consume::consumer_state::ENGINE_TIMEOUT;
use crate::ffi::*;
use crate::handles::handle_table::{HandleKind, HandleTable};
use crate::handles::slot_table::InUse;
use crate::messages::message::OwnedMessage;
use crate::messages::message_slab::MessageFiller;
use crate::share::commit_callback::CommitCallback;
use crate::share::share_call::Access;
use crate::share::share_pointers::{self, SharePointer};

/// A share consumer with its client.
pub(crate) struct Share {
    /// C's `rd_kafka_share_t *`.
    pointer: SharePointer,
    pub(crate) client: Arc<Handle>,
    pub(super) access: Mutex<Access>,
    state: Mutex<ShareState>,
    pub(super) callback: Mutex<Option<CommitCallback>>,
    /// Records or errors have arrived since the last look.
    pub(super) filled: AtomicBool,
    progress: Mutex<CloseProgress>,
}

/// The consumer, while a call uses it.
pub(crate) struct ShareState {
    /// `None` without `group.id`, and once the close has begun.
    pub(super) consumer: Option<ShareConsumer>,
    /// The topics and partitions of the subscription as the application passed them, in order.
    pub(super) subscription: Vec<(String, i32)>,
    filler: MessageFiller,
    /// An error that arrived behind the records of a poll.
    error: Option<Error>,
}

/// The progress of the close.
#[derive(Default)]
enum CloseProgress {
    #[default]
    Open,
    /// A thread of the library closes the consumer, because the application polls a queue meanwhile.
    InThread(JoinHandle<()>),
    Closed,
}

static SHARES: HandleTable<Share> = HandleTable::new(HandleKind::Share);

impl Share {
    /// Makes the handle of a share consumer; `None` if there are too many.
    pub(super) fn publish(
        client: Arc<Handle>,
        consumer: Option<ShareConsumer>,
    ) -> Option<*mut rd_kafka_share_t> {
        let reserved = SHARES.reserve()?;
        let pointer = share_pointers::pointer_to(client.raw().addr() as u64, reserved.handle())?;
        let share = Arc::new(Self {
            pointer,
            client,
            access: Mutex::default(),
            state: Mutex::new(ShareState {
                consumer,
                subscription: Vec::new(),
                filler: MessageFiller::default(),
                error: None,
            }),
            callback: Mutex::default(),
            filled: AtomicBool::new(false),
            progress: Mutex::default(),
        });
        share.listen();
        let of_share = Arc::downgrade(&share);
        let _ = share
            .client
            .share_assignment
            .set(Box::new(move || of_share.upgrade().map(|share| share.assignment()).unwrap_or_default()));
        reserved.publish(share);
        Some(pointer.raw())
    }

    /// Returns the share consumer, unless it is destroyed or was created by a parent of this process.
    pub(super) fn of(rkshare: *const rd_kafka_share_t, function: &str) -> Option<InUse<Self>> {
        let found = match share_pointers::share_of(rkshare) {
            Some(share) => SHARES.find_handle(share, rkshare, function),
            None => SHARES.find(rkshare, function),
        };
        found.filter(|share| share.client.is_usable())
    }

    /// Returns C's pointer to the share consumer.
    pub(super) fn raw(&self) -> *mut rd_kafka_share_t {
        self.pointer.raw()
    }

    /// Ends the handle.
    pub(super) fn retire(&self) {
        if SHARES.retire(self.pointer.share()) {
            self.pointer.release();
        }
    }

    /// Returns the assigned partitions.
    fn assignment(&self) -> Vec<TopicPartition> {
        let state = self.state();
        let assigned = state.consumer.as_ref().map(|consumer| consumer.assignment_blocking(ENGINE_TIMEOUT));
        assigned.and_then(Result::ok).unwrap_or_default()
    }

    /// Wakes a waiting poll when there is something to poll.
    fn listen(self: &Arc<Self>) {
        let share = Arc::downgrade(self);
        if let Some(consumer) = &self.state().consumer {
            consumer.on_filled(move || {
                if let Some(share) = share.upgrade() {
                    share.filled.store(true, Ordering::Release);
                    share.client.main.ring();
                }
            });
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ShareState> {
        lock(&self.state)
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(*lock(&self.progress), CloseProgress::Open)
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(*lock(&self.progress), CloseProgress::Closed)
    }

    pub(super) fn set_closed(&self) {
        *lock(&self.progress) = CloseProgress::Closed;
    }

    /// Closes the consumer in a thread of the library. Returns `false` if there is no thread.
    pub(super) fn close_in_thread(self: &Arc<Self>, close: impl FnOnce(&Share) + Send + 'static) -> bool {
        // Locked until the thread is stored, so that its end is the last change.
        let mut progress = lock(&self.progress);
        let share = self.clone();
        let closing = std::thread::Builder::new().name("rdk:close".into()).spawn(move || {
            close(&share);
            share.set_closed();
            share.client.main.ring_though_empty();
        });
        let Ok(closing) = closing else { return false };
        *progress = CloseProgress::InThread(closing);
        true
    }

    /// Waits for the thread of [`close_in_thread`](Self::close_in_thread).
    pub(super) fn join_close(&self) {
        let progress = std::mem::take(&mut *lock(&self.progress));
        match progress {
            CloseProgress::Open => {}
            CloseProgress::InThread(closing) => drop(closing.join()),
            CloseProgress::Closed => self.set_closed(),
        }
    }
}

impl ShareState {
    /// Returns the messages of the records that have arrived, of one partition or of several. It takes no further partition once
    /// it has `max.poll.records`.
    pub(super) fn take_messages(&mut self, client: &Arc<Handle>) -> Result<Vec<OwnedMessage>, Error> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let Self { consumer, filler, .. } = self;
        let consumer = consumer.as_mut().ok_or(Error::Closed)?;
        let mut messages = Vec::new();
        while messages.len() < client.config.max_poll_records {
            let taken = if messages.is_empty() { consumer.take_ready() } else { consumer.take_more() };
            match taken {
                Ok(Some(batch)) => {
                    let topic = client.topic(batch.topic());
                    let message = |record: ottla_client::ShareRecord<'_>| {
                        filler.message(&topic, &record).in_batch(record.delivery_count())
                    };
                    messages.extend(batch.iter().map(message));
                }
                Ok(None) => break,
                Err(error) if messages.is_empty() => return Err(error),
                Err(error) => {
                    self.error = Some(error);
                    break;
                }
            }
        }
        // A message keeps its response alive only as long as it exists.
        filler.release();
        Ok(messages)
    }
}

pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
