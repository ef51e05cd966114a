//! The memory of messages that C gets: slabs of [`SLOTS`] messages, which are reused and never freed.
//!
//! A slab is one piece of memory and one word of marks for all its messages. They are destroyed in any order and from any
//! thread.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use ottla_client::RecordView;

use crate::client::topic_handle::Topic;
use crate::messages::known_messages;
use crate::messages::message::{OwnedMessage, Slot, SlotOwner};
use crate::messages::slab_pool::SlabPool;

/// Messages of one slab: enough that what they share costs nothing, few enough to stay in the caches. Each has a bit of a
/// word.
const SLOTS: usize = 63;
/// Slabs that stay unused, with 150 KB: the last 1000 messages are not reused.
const UNUSED_SLABS: usize = 16;

static SLABS: SlabPool<Slab> = SlabPool::new(UNUSED_SLABS);
/// The slab for messages that carry an error.
static ERRORS: Mutex<MessageFiller> = Mutex::new(MessageFiller { slab: None });

/// Messages that are allocated together. The memory is never freed.
pub(super) struct Slab {
    /// A bit for each message that exists or may still be made, and the last bit for the filler.
    live: AtomicU64,
    /// Touched by the filling thread alone until the last one is gone.
    keep: UnsafeCell<SlabKeep>,
    slots: [UnsafeCell<MaybeUninit<Slot>>; SLOTS],
}

#[derive(Default)]
struct SlabKeep {
    blocks: Vec<Bytes>,
    topics: Vec<Arc<Topic>>,
}

impl Slab {
    fn take() -> NonNull<Self> {
        let slab = SLABS.take(Self::new);
        // SAFETY: the slab is free, and its memory is never freed.
        unsafe { slab.as_ref() }.live.store(u64::MAX, Ordering::Relaxed);
        slab
    }

    fn new() -> NonNull<Self> {
        // In place: a slab that is made first and then moved to the heap is copied, 10 KB of it.
        let mut slab = Box::<Self>::new_uninit();
        let place = slab.as_mut_ptr();
        // SAFETY: `place` is memory for a slab. After these two writes all its fields are valid, because empty slots need
        // no value.
        let slab = unsafe {
            (&raw mut (*place).live).write(AtomicU64::new(0));
            (&raw mut (*place).keep).write(UnsafeCell::default());
            slab.assume_init()
        };
        let slab = NonNull::from(Box::leak(slab));
        known_messages::add(slab.addr().get(), size_of::<Self>());
        slab
    }

    /// The messages or the filler of `bits` no longer need the slab. Returns `false` if that was so before.
    #[inline]
    pub(super) fn release(slab: NonNull<Self>, bits: u64) -> bool {
        // SAFETY: slabs are never freed.
        let before = unsafe { slab.as_ref() }.live.fetch_and(!bits, Ordering::AcqRel);
        if before & !bits == 0 && before & bits != 0 {
            Self::reuse(slab);
        }
        before & bits == bits
    }

    fn reuse(slab: NonNull<Self>) {
        // SAFETY: the last bit was cleared by this thread, so no other code uses the slab.
        drop(std::mem::take(unsafe { &mut *slab.as_ref().keep.get() }));
        SLABS.give(slab);
    }

    pub(super) fn is_live(slab: NonNull<Self>, index: u32) -> bool {
        // SAFETY: slabs are never freed.
        unsafe { slab.as_ref() }.live.load(Ordering::Relaxed) & (1 << index) != 0
    }
}

/// Makes messages of fetched records. Belongs to one thread at a time.
#[derive(Default)]
pub(crate) struct MessageFiller {
    slab: Option<Filling>,
}

struct Filling {
    slab: NonNull<Slab>,
    used: usize,
    block: *const u8,
    topic: *const Topic,
}

impl Filling {
    fn new() -> Self {
        Self { slab: Slab::take(), used: 0, block: null(), topic: null() }
    }
}

// SAFETY: a slab may be filled by one thread after the other, and is released from any.
unsafe impl Send for MessageFiller {}

impl MessageFiller {
    /// The message of a record; C destroys it with `rd_kafka_message_destroy`.
    #[inline]
    pub(crate) fn message(&mut self, topic: &Arc<Topic>, record: &RecordView<'_>) -> OwnedMessage {
        if self.slab.as_ref().is_none_or(|filling| filling.used == SLOTS) {
            self.release();
        }
        let filling = self.slab.get_or_insert_with(Filling::new);
        // SAFETY: this filler is counted, so the slab lives.
        let slab = unsafe { filling.slab.as_ref() };
        let block = record.memory();
        if filling.block != block.as_ptr() || filling.topic != Arc::as_ptr(topic) {
            // SAFETY: only the filling thread touches it while the filler is counted.
            let keep = unsafe { &mut *slab.keep.get() };
            keep.blocks.push(block.clone());
            filling.block = block.as_ptr();
            if filling.topic != Arc::as_ptr(topic) {
                keep.topics.push(topic.clone());
                filling.topic = Arc::as_ptr(topic);
            }
        }
        let index = filling.used;
        let place = slab.slots[index].get();
        filling.used += 1;
        let owner = SlotOwner::Slab(filling.slab);
        // SAFETY: the slot is this filler's alone until it is given away.
        unsafe {
            OwnedMessage::new(NonNull::from((*place).write(Slot::fetched(
                topic,
                record,
                owner,
                index as u32,
            ))))
        }
    }

    /// The message of a slot that keeps what it points to.
    fn own(&mut self, mut slot: Slot) -> OwnedMessage {
        if self.slab.as_ref().is_none_or(|filling| filling.used == SLOTS) {
            self.release();
        }
        let filling = self.slab.get_or_insert_with(Filling::new);
        let index = filling.used;
        filling.used += 1;
        slot.home = SlotOwner::Slab(filling.slab);
        slot.index = index as u32;
        // SAFETY: this filler has its bit, so the slab is not reused; the slot is this filler's until it is given away.
        unsafe { OwnedMessage::new(NonNull::from((*filling.slab.as_ref().slots[index].get()).write(slot))) }
    }

    /// Lets go of what is filled: what it shares goes when its messages do.
    pub(crate) fn release(&mut self) {
        if let Some(filling) = self.slab.take() {
            let made = (1 << filling.used) - 1;
            Slab::release(filling.slab, !made);
        }
    }
}

impl Drop for MessageFiller {
    fn drop(&mut self) {
        self.release();
    }
}

/// A message that keeps what it points to.
pub(super) fn own(slot: Slot) -> OwnedMessage {
    ERRORS.lock().unwrap_or_else(PoisonError::into_inner).own(slot)
}
