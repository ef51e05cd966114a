//! The priority of the threads that work in the background. Linux counts it for each thread.

use std::io;

/// The nice value of these threads. A thread that serves clients, at 0, then gets nine tenths of a processor that both want.
const NICE: i32 = 10;

/// The time slice of these threads in nanoseconds, the longest that Linux takes (from 6.12 on). A thread that is woken takes the
/// processor at once from one whose slice is longer, unless it has used more than its share. Otherwise it can wait for a tick, 4 ms
/// with 250 Hz, whatever their priorities are. A thread of such a slice must not yield: it would give up all of it.
const SLICE_NS: u64 = 100_000_000;

/// `struct sched_attr` of Linux, in its first version.
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Lowers the priority of this thread.
pub(super) fn lower() {
    if let Err(error) = set_attributes() {
        tracing::debug!(%error, "the time slice of a background thread stays");
        if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE) {
            tracing::debug!(%error, "the priority of a background thread stays");
        }
    }
}

#[expect(unsafe_code, reason = "a system call that no library wraps")]
fn set_attributes() -> io::Result<()> {
    const NORMAL: u32 = 0;
    const THIS_THREAD: libc::pid_t = 0;
    const NO_FLAGS: libc::c_uint = 0;
    let mut attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: NORMAL,
        flags: 0,
        nice: NICE,
        priority: 0,
        runtime_ns: SLICE_NS,
        deadline_ns: 0,
        period_ns: 0,
    };
    // SAFETY: the kernel reads `size` bytes from the pointer, which points to a value of that size for the whole call. It
    // writes at most its own size into `size`, when it fails.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setattr, THIS_THREAD, &raw mut attributes, NO_FLAGS) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
