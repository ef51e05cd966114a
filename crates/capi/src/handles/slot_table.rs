//! A table of objects that are found by slot and generation.
//!
//! Slots are in chunks that are never freed, so a look at a slot is always a read of this table's memory. A slot has the
//! handle of its object, or 0. The generation in a handle grows with each use of its slot; a slot whose generations are
//! used up is not used again. So no two objects of a process have the same handle.

use std::ops::Deref;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::handles::use_marks;

/// The lowest bits of a handle are 0, as in the address of an aligned object.
const INDEX_SHIFT: u32 = 4;
const INDEX_BITS: u32 = 20;
const GENERATION_SHIFT: u32 = INDEX_SHIFT + INDEX_BITS;
const GENERATION_BITS: u32 = 36;
/// The kind makes a handle too large for an address, so a program that reads through it stops at once.
const KIND_SHIFT: u32 = GENERATION_SHIFT + GENERATION_BITS;
const GENERATION_MAX: u64 = (1 << GENERATION_BITS) - 1;
const CHUNK_SLOTS: usize = 1024;
const CHUNKS: usize = (1 << INDEX_BITS) / CHUNK_SLOTS;

const _: () = assert!(usize::BITS == 64, "a handle has 64 bits and is passed as a pointer");

/// The kind of a handle's object, as [`SlotTable::new`] got it.
pub(super) fn kind_of(handle: u64) -> u64 {
    handle >> KIND_SHIFT
}

/// The number of objects of all tables that were retired and are still in use.
static WAITING: AtomicUsize = AtomicUsize::new(0);

pub(crate) struct SlotTable<T: 'static> {
    kind: u64,
    chunks: [AtomicPtr<Chunk<T>>; CHUNKS],
    slots: Mutex<SlotLists>,
}

type Chunk<T> = [Slot<T>; CHUNK_SLOTS];

struct Slot<T: 'static> {
    table: &'static SlotTable<T>,
    /// The handle of the object; 0 while there is none.
    handle: AtomicU64,
    /// From `Arc::into_raw`. It stays until no call uses a retired object.
    object: AtomicPtr<T>,
    /// The calls that use the object and have no mark.
    counted: AtomicUsize,
    /// The generation of the last handle; changes under the table's lock.
    generation: AtomicU64,
}

struct SlotLists {
    /// The number of slots that were ever used.
    used: usize,
    free: Vec<usize>,
    /// Retired objects.
    waiting: Vec<usize>,
}

/// An object in use by a call: it stays until this is dropped, even if another thread destroys it meanwhile.
pub(crate) struct InUse<T: 'static> {
    object: NonNull<T>,
    slot: &'static Slot<T>,
    mark: Option<&'static AtomicUsize>,
}

// SAFETY: the table shares `T` between threads by reference and drops it in any thread.
unsafe impl<T: Send + Sync> Sync for SlotTable<T> {}

impl<T: 'static> SlotTable<T> {
    /// `kind`: 1 to 15, in four bits.
    pub(crate) const fn new(kind: u64) -> Self {
        Self {
            kind,
            chunks: [const { AtomicPtr::new(null_mut()) }; CHUNKS],
            slots: Mutex::new(SlotLists { used: 0, free: Vec::new(), waiting: Vec::new() }),
        }
    }

    /// Returns a new handle for an object that [`publish`](Self::publish) adds; `None` if 1,048,576 objects exist.
    pub(crate) fn reserve(&'static self) -> Option<u64> {
        let mut slots = self.lock();
        let index = match slots.free.pop() {
            Some(index) => index,
            None if slots.used == CHUNKS * CHUNK_SLOTS => return None,
            None => {
                slots.used += 1;
                slots.used - 1
            }
        };
        let slot = self.slot_or_new(index);
        let generation = slot.generation.load(Ordering::Relaxed) + 1;
        slot.generation.store(generation, Ordering::Relaxed);
        Some(self.kind << KIND_SHIFT | generation << GENERATION_SHIFT | (index as u64) << INDEX_SHIFT)
    }

    /// Adds the object of a reserved handle. Calls find it from now on.
    pub(crate) fn publish(&self, handle: u64, object: Arc<T>) {
        let Some(slot) = self.slot(handle) else { return };
        slot.object.store(Arc::into_raw(object).cast_mut(), Ordering::Relaxed);
        slot.handle.store(handle, Ordering::SeqCst);
    }

    /// Returns a reserved handle that gets no object.
    pub(crate) fn cancel(&self, handle: u64) {
        if let Some(slot) = self.slot(handle) {
            Self::free(&mut self.lock(), index_of(handle), slot);
        }
    }

    /// Returns the object of a handle; `None` if it was destroyed, or if this table did not make the handle.
    #[expect(clippy::inline_always, reason = "rd_kafka_produce: the use is three registers")]
    #[inline(always)]
    pub(crate) fn find(&'static self, handle: u64) -> Option<InUse<T>> {
        let slot = self.slot(handle)?;
        let mark = use_marks::set(slot.address());
        if mark.is_none() {
            slot.counted.fetch_add(1, Ordering::SeqCst);
        }
        if slot.handle.load(Ordering::SeqCst) == handle
            // NULL is no handle, and empty slots have it.
            && handle != 0
            && let Some(object) = NonNull::new(slot.object.load(Ordering::Relaxed))
        {
            return Some(InUse { object, slot, mark });
        }
        slot.end_use(mark);
        None
    }

    /// Ends a handle. Its object is dropped when no call uses it. Returns `false` if the handle was stale before.
    pub(crate) fn retire(&'static self, handle: u64) -> bool {
        let Some(slot) = self.slot(handle).filter(|_| handle != 0) else { return false };
        if slot.handle.compare_exchange(handle, 0, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return false;
        }
        WAITING.fetch_add(1, Ordering::SeqCst);
        // Without the barrier a mark may be hidden, so the object stays for ever.
        if use_marks::barrier() {
            self.lock().waiting.push(index_of(handle));
            self.drop_unused();
        }
        true
    }

    /// Drops the retired objects that no call uses.
    #[cold]
    fn drop_unused(&'static self) {
        let mut unused = Vec::new();
        {
            let mut slots = self.lock();
            let mut waiting = std::mem::take(&mut slots.waiting);
            waiting.retain(|index| {
                let slot = self.slot_or_new(*index);
                if slot.counted.load(Ordering::SeqCst) > 0 || use_marks::is_marked(slot.address()) {
                    return true;
                }
                let object = slot.object.swap(null_mut(), Ordering::Relaxed);
                // SAFETY: from `Arc::into_raw` in `publish`. The handle is retired and no call uses the object.
                unused.push(unsafe { Arc::from_raw(object.cast_const()) });
                Self::free(&mut slots, *index, slot);
                WAITING.fetch_sub(1, Ordering::SeqCst);
                false
            });
            slots.waiting = waiting;
        }
        // Without the lock: the objects may have handles of this table.
        drop(unused);
    }

    fn free(slots: &mut SlotLists, index: usize, slot: &Slot<T>) {
        if slot.generation.load(Ordering::Relaxed) < GENERATION_MAX {
            slots.free.push(index);
        }
    }

    #[inline]
    fn slot(&self, handle: u64) -> Option<&Slot<T>> {
        let index = index_of(handle);
        let chunk = self.chunks[index / CHUNK_SLOTS].load(Ordering::Acquire);
        // SAFETY: NULL or a chunk that `slot_or_new` leaked.
        unsafe { chunk.as_ref() }.map(|chunk| &chunk[index % CHUNK_SLOTS])
    }

    /// The caller has the lock.
    fn slot_or_new(&'static self, index: usize) -> &'static Slot<T> {
        let place = &self.chunks[index / CHUNK_SLOTS];
        let mut chunk = place.load(Ordering::Acquire);
        if chunk.is_null() {
            let slots: Box<[Slot<T>]> = (0..CHUNK_SLOTS).map(|_| Slot::new(self)).collect();
            chunk = Box::into_raw(slots).cast();
            place.store(chunk, Ordering::Release);
        }
        // SAFETY: as in `slot`.
        unsafe { &(&*chunk)[index % CHUNK_SLOTS] }
    }

    fn lock(&self) -> MutexGuard<'_, SlotLists> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn index_of(handle: u64) -> usize {
    (handle >> INDEX_SHIFT) as usize & ((1 << INDEX_BITS) - 1)
}

impl<T: 'static> Slot<T> {
    fn new(table: &'static SlotTable<T>) -> Self {
        Self {
            table,
            handle: AtomicU64::new(0),
            object: AtomicPtr::new(null_mut()),
            counted: AtomicUsize::new(0),
            generation: AtomicU64::new(0),
        }
    }

    /// Clears the mark or the count of a use, and drops the objects that waited for it.
    #[inline]
    fn end_use(&self, mark: Option<&AtomicUsize>) {
        match mark {
            Some(mark) => use_marks::clear(mark),
            None => {
                self.counted.fetch_sub(1, Ordering::SeqCst);
            }
        }
        if WAITING.load(Ordering::SeqCst) > 0 {
            self.table.drop_unused();
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl<T> InUse<T> {
    /// Returns the object with an additional reference, for a call that takes long.
    #[inline]
    pub(crate) fn shared(&self) -> Arc<T> {
        // SAFETY: from `Arc::into_raw`, and the table's reference stays while this exists.
        unsafe {
            Arc::increment_strong_count(self.object.as_ptr());
            Arc::from_raw(self.object.as_ptr())
        }
    }
}

impl<T> Deref for InUse<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the table's reference stays while this exists.
        unsafe { self.object.as_ref() }
    }
}

impl<T> Drop for InUse<T> {
    #[inline]
    fn drop(&mut self) {
        self.slot.end_use(self.mark);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    /// An object that notes its end.
    struct Noted(&'static AtomicUsize);

    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn table<T>() -> &'static SlotTable<T> {
        Box::leak(Box::new(SlotTable::new(1)))
    }

    fn insert<T>(table: &'static SlotTable<T>, object: T) -> u64 {
        let handle = table.reserve().expect("the table has room");
        table.publish(handle, Arc::new(object));
        handle
    }

    #[test]
    fn a_handle_is_stale_after_any_number_of_others() {
        let table = table();
        let first = insert(table, 0);
        assert!(table.retire(first));
        for number in 1..100_000 {
            let handle = insert(table, number);
            assert_eq!(table.find(handle).map(|found| *found), Some(number));
            assert!(table.find(first).is_none(), "after {number} others");
            assert!(table.retire(handle));
            assert!(!table.retire(handle), "a second time");
        }
    }

    /// An empty first slot has the handle 0: NULL found its object while a call used it, and the end of NULL freed it.
    #[test]
    fn null_is_no_handle() {
        static ENDED: AtomicUsize = AtomicUsize::new(0);
        let table = table();
        let first = insert(table, Noted(&ENDED));
        let used = table.find(first).expect("it is there");
        assert!(table.retire(first));
        assert!(table.find(0).is_none() && !table.retire(0));
        assert_eq!(ENDED.load(Ordering::SeqCst), 0, "a call uses it");
        drop(used);
        assert_eq!(ENDED.load(Ordering::SeqCst), 1);
        assert!(table.find(0).is_none() && !table.retire(0));
    }

    #[test]
    fn objects_exist_side_by_side_in_all_chunks() {
        let table = table();
        let count = CHUNK_SLOTS * 3;
        let handles: Vec<u64> = (0..count).map(|number| insert(table, number)).collect();
        for (number, handle) in handles.iter().enumerate() {
            assert_eq!(table.find(*handle).map(|found| *found), Some(number));
        }
    }

    #[test]
    fn a_number_that_is_no_handle_finds_nothing() {
        let table = table();
        let handle = insert(table, ());
        for other in
            [0, 1, 16, handle + 1, handle ^ 1 << KIND_SHIFT, handle ^ 1 << GENERATION_SHIFT, u64::MAX]
        {
            assert!(table.find(other).is_none(), "{other:#x}");
            assert!(!table.retire(other), "{other:#x}");
        }
        assert!(table.find(handle).is_some());
    }

    #[test]
    fn a_reserved_handle_finds_nothing_until_it_has_an_object() {
        let table = table();
        let handle = table.reserve().expect("the table has room");
        assert!(table.find(handle).is_none());
        table.publish(handle, Arc::new(7));
        assert_eq!(table.find(handle).map(|found| *found), Some(7));
        let cancelled = table.reserve().expect("the table has room");
        table.cancel(cancelled);
        assert_ne!(table.reserve(), Some(cancelled), "the same slot has another generation");
    }

    #[test]
    fn an_object_stays_until_the_last_use_ends() {
        static ENDED: AtomicUsize = AtomicUsize::new(0);
        let table = table();
        let handle = insert(table, Noted(&ENDED));
        let (first, second) = (table.find(handle).expect("found"), table.find(handle).expect("found"));
        assert!(table.retire(handle));
        assert!(table.find(handle).is_none(), "no new use begins");
        drop(first);
        assert_eq!(ENDED.load(Ordering::SeqCst), 0);
        drop(second);
        assert_eq!(ENDED.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_thread_has_more_uses_than_marks() {
        static ENDED: AtomicUsize = AtomicUsize::new(0);
        let table = table();
        let handle = insert(table, Noted(&ENDED));
        let mut uses: Vec<_> = (0..50).map(|_| table.find(handle).expect("found")).collect();
        assert!(uses.iter().any(|used| used.mark.is_none()), "some are counted");
        assert!(table.retire(handle));
        let last = uses.pop();
        drop(uses);
        assert_eq!(ENDED.load(Ordering::SeqCst), 0);
        drop(last);
        assert_eq!(ENDED.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_slot_whose_generations_are_used_up_is_not_used_again() {
        let table = table();
        let handle = insert(table, ());
        let slot = table.slot(handle).expect("its chunk exists");
        slot.generation.store(GENERATION_MAX, Ordering::Relaxed);
        assert!(table.retire(handle));
        let next = insert(table, ());
        assert_ne!(index_of(next), index_of(handle));
    }

    /// Threads use an object while another thread destroys it and makes the next. No use sees an ended object, and all
    /// objects end.
    #[test]
    fn uses_and_destroys_at_the_same_time() {
        const ROUNDS: usize = 2_000;
        static ENDED: AtomicUsize = AtomicUsize::new(0);
        /// Its memory is overwritten when it ends.
        struct Checked(AtomicUsize);
        impl Drop for Checked {
            fn drop(&mut self) {
                self.0.store(0, Ordering::SeqCst);
                ENDED.fetch_add(1, Ordering::SeqCst);
            }
        }
        let table = table();
        let current = AtomicU64::new(insert(table, Checked(AtomicUsize::new(1))));
        let (stop, seen) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        if let Some(found) = table.find(current.load(Ordering::Relaxed)) {
                            for _ in 0..20 {
                                assert_ne!(found.0.load(Ordering::Relaxed), 0, "an ended object is in use");
                            }
                            assert!(Arc::strong_count(&found.shared()) > 1);
                            seen.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            for round in 0..ROUNDS {
                let old =
                    current.swap(insert(table, Checked(AtomicUsize::new(round + 2))), Ordering::Relaxed);
                assert!(table.retire(old));
                let used = seen.load(Ordering::Relaxed);
                if round % 50 == 0 {
                    // So that the threads are in the middle of it.
                    while seen.load(Ordering::Relaxed) == used {
                        thread::yield_now();
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(table.retire(current.load(Ordering::Relaxed)));
        assert_eq!(ENDED.load(Ordering::SeqCst), ROUNDS + 1);
    }
}
