//! `--ready-fd`: a file descriptor that the supervisor has opened for this process.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::FromRawFd;

use crate::failure::{Failure, sentence};

/// The first file descriptor that is not a standard stream.
const FIRST: i32 = 3;

/// A file descriptor that was inherited and gets one line.
#[derive(Debug)]
pub(super) struct ReadyFd {
    number: i32,
    file: File,
}

impl ReadyFd {
    /// Takes the file descriptor. To be called before this process opens any file: the number is then not one of its own.
    pub(super) fn take(number: i32) -> Result<Self, Failure> {
        if number < FIRST {
            return Err(Failure::usage(format!(
                "--ready-fd {number}: the numbers below {FIRST} are the standard streams"
            )));
        }
        let file = inherited(number).ok_or_else(|| {
            Failure::usage(format!(
                "--ready-fd {number}: no open file has this number; the process that starts the broker must open it, \
                 as in `ottla broker --ready-fd 3 3>ready`"
            ))
        })?;
        Ok(Self { number, file })
    }

    /// Writes the message and closes the file descriptor.
    pub(super) fn write(mut self, message: &str) -> Result<(), Failure> {
        match self.file.write_all(message.as_bytes()) {
            // The supervisor does not wait any more.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            result => result.map_err(|error| {
                Failure::failed(format!("--ready-fd {}: {}", self.number, sentence(&error)))
            }),
        }
    }
}

/// The open file with this number. Children of this process do not inherit it.
#[expect(unsafe_code, reason = "a file descriptor that another process has opened has no owner in this one")]
fn inherited(number: i32) -> Option<File> {
    // SAFETY: F_SETFD takes a number and fails with EBADF if no file is open there.
    let set = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    // SAFETY: the file is open, as the call has shown, and was inherited: this process has opened no file with a number of 3 or
    // more yet, so it has no other owner.
    (set == 0).then(|| unsafe { File::from_raw_fd(number) })
}
