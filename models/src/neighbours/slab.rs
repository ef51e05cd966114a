//! The neighbours of a slab of messages: memory that the messages share, whose drop must come after each use.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::cell::UnsafeCell;

thread_local! {
    /// A model runs in one thread of the system.
    static LAST: Cell<Option<(SlotOwner, u32)>> = const { Cell::new(None) };
}

/// A view of shared memory that stays after its drop.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    cell: Arc<UnsafeCell<()>>,
    drops: Arc<AtomicUsize>,
}

impl Watch {
    /// Reads the memory. loom reports a drop that is not ordered after this.
    pub fn read(&self) {
        assert_eq!(self.drops(), 0, "memory of a message is there");
        self.cell.with(|_| ());
    }

    /// The number of its drops.
    pub fn drops(&self) -> usize {
        self.drops.load(Ordering::Relaxed)
    }
}

/// Memory that messages share: a topic, or a response.
#[derive(Debug)]
pub struct Shared(pub Watch);

impl Drop for Shared {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.0.drops.fetch_add(1, Ordering::Relaxed);
            self.0.cell.with_mut(|_| ());
        }
    }
}

/// The model has no messages of an application.
pub mod known_messages {
    /// The model does not ask for addresses.
    pub fn add(_: usize, _: usize) {}
}

/// In place of the C interface's topic.
pub type Topic = Shared;

/// In place of `bytes::Bytes`: a response.
#[derive(Clone, Debug)]
pub struct Bytes(pub Arc<Shared>);

impl Bytes {
    /// The address of the memory.
    pub fn as_ptr(&self) -> *const u8 {
        Arc::as_ptr(&self.0).cast()
    }
}

/// In place of the client's record.
#[derive(Debug)]
pub struct RecordView<'a>(pub &'a Bytes);

impl RecordView<'_> {
    /// The response that has the record.
    pub fn memory(&self) -> &Bytes {
        self.0
    }
}

/// The slab of a message.
#[derive(Clone, Copy, Debug)]
pub struct SlotOwner(pub NonNull<()>);

impl SlotOwner {
    /// The messages of the model are all in slabs.
    #[allow(non_snake_case, reason = "a variant of the type whose place it takes")]
    pub fn Slab<T>(slab: NonNull<T>) -> Self {
        Self(slab.cast())
    }
}

/// A message.
#[derive(Debug)]
pub struct Slot {
    /// Its slab.
    pub home: SlotOwner,
    /// Its place in the slab.
    pub index: u32,
}

impl Slot {
    /// A message of a record.
    pub fn fetched(_: &Topic, _: &RecordView<'_>, home: SlotOwner, index: u32) -> Self {
        LAST.set(Some((home, index)));
        Self { home, index }
    }
}

/// A message that belongs to the application. It knows its slab and its bit there.
#[derive(Clone, Copy, Debug)]
pub struct OwnedMessage {
    /// The message's slab.
    pub slab: NonNull<()>,
    /// The message's bit in the slab's word.
    pub bit: u64,
}

impl OwnedMessage {
    /// The message that was made last.
    pub fn new(_: NonNull<Slot>) -> Self {
        let (home, index) = LAST.get().expect("a message was made");
        Self { slab: home.0, bit: 1 << index }
    }
}
