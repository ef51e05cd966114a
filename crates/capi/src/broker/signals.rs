//! Signals that would end a program in which a broker runs.

use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// While it exists, SIGPIPE is blocked in the thread that made it. Threads that are started meanwhile keep it blocked: `sendfile` to a
/// client that has left raises it, and a C program need not ignore it.
pub(super) struct SigpipeBlocked {
    before: libc::sigset_t,
}

impl SigpipeBlocked {
    pub(super) fn new() -> Self {
        let (mut pipe, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: sigemptyset(3) initializes the set; pthread_sigmask(3) writes the previous one and fails only for an invalid first
        // argument.
        let before = unsafe {
            libc::sigemptyset(pipe.as_mut_ptr());
            libc::sigaddset(pipe.as_mut_ptr(), libc::SIGPIPE);
            libc::sigemptyset(before.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, pipe.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        Self { before }
    }
}

impl Drop for SigpipeBlocked {
    fn drop(&mut self) {
        // SAFETY: `before` is a set that pthread_sigmask(3) has written.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, null_mut()) };
    }
}
