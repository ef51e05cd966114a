//! Lines of a file or of standard input, of bounded length.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::failure::{Failure, sentence};

/// Reads lines one after another into one buffer.
pub(crate) struct Lines {
    from: Box<dyn BufRead + Send>,
    name: String,
    line: Vec<u8>,
    number: u64,
    bytes_max: usize,
}

impl Lines {
    /// Reads standard input. A line of more than `bytes_max` bytes is an error.
    pub(crate) fn of_stdin(bytes_max: usize) -> Self {
        Self::new(Box::new(BufReader::with_capacity(256 << 10, io::stdin())), "standard input", bytes_max)
    }

    /// Reads a file; `-` is standard input.
    pub(crate) fn of_file(path: &Path, bytes_max: usize) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Ok(Self::of_stdin(bytes_max));
        }
        let file = File::open(path).map_err(|error| Failure::file(path, &error))?;
        let from = BufReader::with_capacity(256 << 10, file);
        Ok(Self::new(Box::new(from), &path.display().to_string(), bytes_max))
    }

    fn new(from: Box<dyn BufRead + Send>, name: &str, bytes_max: usize) -> Self {
        Self { from, name: name.to_owned(), line: Vec::new(), number: 0, bytes_max }
    }

    /// `true` if there is another line.
    pub(crate) fn has_next(&mut self) -> Result<bool, Failure> {
        let bytes = self.from.fill_buf();
        let bytes = bytes.map_err(|error| Failure::failed(format!("{}: {}", self.name, sentence(&error))))?;
        Ok(!bytes.is_empty())
    }

    /// The next line, without its end.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, Failure> {
        self.line.clear();
        let limit = self.bytes_max as u64 + 1;
        let read = (&mut self.from).take(limit).read_until(b'\n', &mut self.line);
        let read = read.map_err(|error| Failure::failed(format!("{}: {}", self.name, sentence(&error))))?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if self.line.len() > self.bytes_max {
            return Err(Failure::failed(format!(
                "{}: line {} is longer than the {} bytes that max.request.size allows",
                self.name, self.number, self.bytes_max
            )));
        }
        Ok(Some(&self.line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_no_line_end_and_long_lines_are_rejected() {
        let mut lines = Lines::new(Box::new(&b"one\n\ntwo\r\nthree"[..]), "input", 5);
        for expected in [&b"one"[..], b"", b"two\r", b"three"] {
            assert_eq!(lines.next().expect("readable"), Some(expected));
        }
        assert_eq!(lines.next().expect("readable"), None);
        let mut lines = Lines::new(Box::new(&b"123456\n"[..]), "input", 5);
        assert!(lines.next().expect_err("too long").to_string().contains("line 1"));
    }
}
