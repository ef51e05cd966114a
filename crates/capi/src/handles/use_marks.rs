//! The marks that calls set on the slots they use, one list of them for each thread.
//!
//! A call stores a mark and then reads the slot. A destroy clears the slot and then reads the marks of all threads. One of
//! the two must see the other's write, which needs a memory barrier on both sides. The call has none: the destroy asks the
//! system to run a barrier in all threads (`membarrier`). Without that function calls count their uses in the slot.

use std::cell::Cell;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, compiler_fence};

/// Objects that one thread uses at the same time without a count: a call uses three at most, and callbacks make calls.
const MARKS: usize = 8;

/// The marks of a thread. A thread that ends leaves its list to a later one.
struct ThreadMarks {
    taken: AtomicBool,
    marks: [AtomicUsize; MARKS],
    next: *const ThreadMarks,
}

// SAFETY: `next` does not change after the list is published, and what it points to is never freed.
unsafe impl Sync for ThreadMarks {}

/// All lists; only grows.
static ALL: AtomicPtr<ThreadMarks> = AtomicPtr::new(null_mut());

/// A thread's claim on a list; `None` where the system has no barrier.
struct Claim(Option<&'static ThreadMarks>);

thread_local! {
    static MINE: Claim = Claim::new();
    /// The list of [`MINE`], or NULL: before the first use, after the last, and where the system has no barrier. It has no
    /// destructor, so a look at it is one call less.
    static LIST: Cell<*const ThreadMarks> = const { Cell::new(null()) };
}

/// Marks a slot by its address. Returns the mark, or `None` if the caller has to count.
#[inline]
pub(super) fn set(slot: usize) -> Option<&'static AtomicUsize> {
    // SAFETY: NULL or a list, and lists are leaked.
    let list = unsafe { LIST.get().as_ref() };
    let mark = match list {
        Some(list) if list.marks[0].load(Ordering::Relaxed) == 0 => &list.marks[0],
        _ => other_mark(list)?,
    };
    mark.store(slot, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    Some(mark)
}

/// Returns a mark for the first use of a thread, or for a use inside others.
#[cold]
fn other_mark(list: Option<&'static ThreadMarks>) -> Option<&'static AtomicUsize> {
    // A thread whose destructors have run has no list.
    let list = list.or_else(|| MINE.try_with(|claim| claim.0).ok().flatten())?;
    list.marks.iter().find(|mark| mark.load(Ordering::Relaxed) == 0)
}

/// Clears a mark, before the caller looks for destroyed objects that waited for it.
#[inline]
pub(super) fn clear(mark: &AtomicUsize) {
    mark.store(0, Ordering::Release);
    compiler_fence(Ordering::SeqCst);
}

/// Orders the caller's writes before its reads of marks, in the view of all threads. Returns `false` if the system refuses.
pub(super) fn barrier() -> bool {
    !system_has_barrier() || membarrier::run() || (membarrier::register() && membarrier::run())
}

/// Returns `true` if a thread has marked the slot.
pub(super) fn is_marked(slot: usize) -> bool {
    let mut list: *const ThreadMarks = ALL.load(Ordering::Acquire);
    // SAFETY: lists are leaked, and published by `Claim::new` with all their fields.
    while let Some(marks) = unsafe { list.as_ref() } {
        if marks.marks.iter().any(|mark| mark.load(Ordering::Acquire) == slot) {
            return true;
        }
        list = marks.next;
    }
    false
}

fn system_has_barrier() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(membarrier::register)
}

impl Claim {
    fn new() -> Self {
        let list = system_has_barrier().then(Self::list);
        LIST.set(list.map_or(null(), std::ptr::from_ref));
        Self(list)
    }

    /// A list that no living thread has, or a new one.
    fn list() -> &'static ThreadMarks {
        let mut list: *const ThreadMarks = ALL.load(Ordering::Acquire);
        // SAFETY: as in `is_marked`.
        while let Some(marks) = unsafe { list.as_ref() } {
            if !marks.taken.swap(true, Ordering::AcqRel) {
                return marks;
            }
            list = marks.next;
        }
        let new = Box::leak(Box::new(ThreadMarks {
            taken: AtomicBool::new(true),
            marks: [const { AtomicUsize::new(0) }; MARKS],
            next: null(),
        }));
        let place: *mut ThreadMarks = new;
        let mut head = ALL.load(Ordering::Acquire);
        loop {
            // SAFETY: the list is not published yet, so this is its only user.
            unsafe { (*place).next = head };
            match ALL.compare_exchange_weak(head, place, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: leaked above.
                Ok(_) => return unsafe { &*place },
                Err(other) => head = other,
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        LIST.set(null());
        if let Some(list) = self.0 {
            list.taken.store(false, Ordering::Release);
        }
    }
}

#[cfg(target_os = "linux")]
mod membarrier {
    /// `MEMBARRIER_CMD_PRIVATE_EXPEDITED`.
    const RUN: libc::c_int = 1 << 3;
    /// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`.
    const REGISTER: libc::c_int = 1 << 4;

    pub(super) fn register() -> bool {
        call(REGISTER)
    }

    pub(super) fn run() -> bool {
        call(RUN)
    }

    fn call(command: libc::c_int) -> bool {
        // SAFETY: the call takes numbers only.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0 as libc::c_uint, 0 as libc::c_int) == 0 }
    }
}

#[cfg(not(target_os = "linux"))]
mod membarrier {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn run() -> bool {
        false
    }
}
