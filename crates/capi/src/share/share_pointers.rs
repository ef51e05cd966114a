//! The values of C's `rd_kafka_share_t *`.
//!
//! librdkafka's own tests, and programs after their example, read the client of a share consumer from the first word behind
//! the pointer. So it points to a cell with that word. The cells are static memory, so a look at the cell of any
//! destroyed share consumer is safe, and a cell is used again only after all the others.

use std::collections::VecDeque;
use std::ptr::from_ref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::ffi::rd_kafka_share_t;

/// The cells of a process: 16 MiB of address space, of which only the pages of used cells take memory.
const CELLS: usize = 1 << 20;

/// The memory behind C's pointer.
#[repr(C)]
struct Cell {
    /// C's `rd_kafka_t *` of the share consumer.
    client: AtomicU64,
    /// The handle in the table of share consumers; 0 in a cell that was never used.
    share: AtomicU64,
}

struct FreeCells {
    used: usize,
    /// The cells of destroyed share consumers, the oldest first.
    released: VecDeque<usize>,
}

static TABLE: [Cell; CELLS] = [const { Cell { client: AtomicU64::new(0), share: AtomicU64::new(0) } }; CELLS];
static FREE: Mutex<FreeCells> = Mutex::new(FreeCells { used: 0, released: VecDeque::new() });

/// The pointer of one share consumer.
#[derive(Clone, Copy)]
pub(super) struct SharePointer(&'static Cell);

/// Returns a pointer for these handles; `None` if there are too many share consumers.
pub(super) fn pointer_to(client: u64, share: u64) -> Option<SharePointer> {
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    let index = if free.used < CELLS {
        free.used += 1;
        free.used - 1
    } else {
        free.released.pop_front()?
    };
    TABLE[index].client.store(client, Ordering::Relaxed);
    TABLE[index].share.store(share, Ordering::Release);
    Some(SharePointer(&TABLE[index]))
}

impl SharePointer {
    /// The value for C.
    pub(super) fn raw(self) -> *mut rd_kafka_share_t {
        from_ref(self.0).cast_mut().cast()
    }

    /// The handle of the share consumer.
    pub(super) fn share(self) -> u64 {
        self.0.share.load(Ordering::Acquire)
    }

    /// Makes the cell free. It keeps its handles, so that a later use of the pointer is detected.
    pub(super) fn release(self) {
        if let Some(index) = index_of(self.raw()) {
            FREE.lock().unwrap_or_else(PoisonError::into_inner).released.push_back(index);
        }
    }
}

/// Returns the handle of the share consumer that got this pointer last. It may be destroyed.
pub(super) fn share_of(pointer: *const rd_kafka_share_t) -> Option<u64> {
    let share = TABLE[index_of(pointer)?].share.load(Ordering::Acquire);
    (share != 0).then_some(share)
}

fn index_of(pointer: *const rd_kafka_share_t) -> Option<usize> {
    let offset = pointer.addr().checked_sub(TABLE.as_ptr().addr())?;
    let index = offset / size_of::<Cell>();
    (offset.is_multiple_of(size_of::<Cell>()) && index < CELLS).then_some(index)
}

#[cfg(test)]
mod tests {
    use std::ptr::{null, without_provenance};

    use super::*;

    #[test]
    fn a_pointer_leads_to_its_share_consumer_and_to_the_client() {
        let pointer = pointer_to(0x1000, 0x9000).unwrap();
        assert_eq!(share_of(pointer.raw()), Some(0x9000));
        // SAFETY: the cell is static memory and begins with the client's handle.
        assert_eq!(unsafe { *pointer.raw().cast::<u64>() }, 0x1000);
        pointer.release();
        assert_eq!(share_of(pointer.raw()), Some(0x9000), "a destroyed share consumer is recognized");
        let next = pointer_to(0x1000, 0x9001).unwrap();
        assert_ne!(next.raw(), pointer.raw(), "a cell is not used again soon");
    }

    #[test]
    fn foreign_pointers_lead_nowhere() {
        let pointer = pointer_to(1, 2).unwrap().raw();
        assert_eq!(share_of(pointer.wrapping_byte_add(8)), None);
        assert_eq!(share_of(null()), None);
        assert_eq!(share_of(without_provenance(0x9000_0000_0100_0000)), None);
        assert_eq!(share_of(from_ref(&TABLE[CELLS - 1]).cast()), None, "no share consumer has it");
    }
}
