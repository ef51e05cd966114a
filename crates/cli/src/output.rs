//! Standard output: buffered. Its closing by a reader is not an error.

use std::io::{self, BufWriter, StdoutLock, Write};

use crate::failure::Failure;
use crate::printable::printable;

/// Standard output for many small writes.
pub(crate) struct Output {
    out: BufWriter<StdoutLock<'static>>,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self { out: BufWriter::with_capacity(64 << 10, io::stdout().lock()) }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(|error| Failure::output(&error))
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|error| Failure::output(&error))
    }
}

/// Prints a text.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut output = Output::new();
    output.write(text.as_bytes())?;
    output.flush()
}

/// Prints a line on standard error, with its control characters escaped. A closed standard error, as with `2>&1
/// head`, is not a failure.
pub(crate) fn note(line: &str) {
    note_lines(&printable(line));
}

/// Prints lines of this program on standard error.
pub(crate) fn note_lines(lines: &str) {
    let _ = writeln!(io::stderr(), "{lines}");
}

/// A number with its noun: `1 record`, `2 records`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}
