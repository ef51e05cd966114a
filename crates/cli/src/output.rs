//! Standard output: buffered. Its closing by a reader is not an error.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

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
    print_bytes(text.as_bytes())
}

/// Prints bytes that need not be UTF-8.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut output = Output::new();
    output.write(bytes)?;
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

/// Returns whether the log on standard error has colours: on a terminal that shows them, unless `NO_COLOR` is set.
pub(crate) fn log_has_colours() -> bool {
    let [no_color, term] = ["NO_COLOR", "TERM"].map(std::env::var_os);
    has_colours(io::stderr().is_terminal(), no_color.as_deref(), term.as_deref())
}

fn has_colours(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    // See https://no-color.org: an empty value counts as none.
    is_terminal && no_color.is_none_or(OsStr::is_empty) && term != Some(OsStr::new("dumb"))
}

/// Standard error for the whole log. An event is one line, whatever its texts contain.
pub(crate) struct LogLines;

impl Write for LogLines {
    /// Receives whole events.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        io::stderr().write_all(&one_line(event))?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Escapes the ends of lines in an event, except for that after it. The escape sequences of colours stay.
fn one_line(event: &[u8]) -> Cow<'_, [u8]> {
    let line = event.strip_suffix(b"\n").unwrap_or(event);
    if !line.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        return Cow::Borrowed(event);
    }
    let mut escaped = Vec::with_capacity(event.len() + 16);
    for byte in line {
        match byte {
            b'\n' => escaped.extend_from_slice(b"\\n"),
            b'\r' => escaped.extend_from_slice(b"\\r"),
            byte => escaped.push(*byte),
        }
    }
    escaped.extend_from_slice(event.get(line.len()..).unwrap_or_default());
    Cow::Owned(escaped)
}

/// A number with its noun: `1 record`, `2 records`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The help had no colours with NO_COLOR, and the log had them.
    #[test]
    fn the_log_has_colours_on_a_terminal_unless_they_are_off() {
        for (is_terminal, no_color, term, expected) in [
            (true, None, Some("xterm"), true),
            (true, Some(""), None, true),
            (true, Some("1"), Some("xterm"), false),
            (true, None, Some("dumb"), false),
            (false, None, Some("xterm"), false),
        ] {
            let [no_color, term] = [no_color, term].map(|text| text.map(OsStr::new));
            assert_eq!(has_colours(is_terminal, no_color, term), expected, "{no_color:?} {term:?}");
        }
    }

    /// With `-v`, a text with a newline looked like two events.
    #[test]
    fn an_event_of_the_whole_log_is_one_line() {
        for (event, line) in [
            ("WARN a\nb\r\nc\n", "WARN a\\nb\\r\\nc\n"),
            ("\u{1b}[33mWARN\u{1b}[0m a\n", "\u{1b}[33mWARN\u{1b}[0m a\n"),
            ("\n", "\n"),
            ("", ""),
        ] {
            assert_eq!(one_line(event.as_bytes()), line.as_bytes());
        }
    }
}
