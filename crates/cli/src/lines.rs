//! Lines of a file or of standard input, of bounded length.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::failure::{Failure, sentence};

/// Bytes that are read at a time.
const READ_BYTES: usize = 256 << 10;

/// The limits of a large record: the client's, which is also that of a line, and the broker's.
pub(crate) const TO_RAISE: &str = "raise the limit of the client with -X message.max.bytes=BYTES (and max.request.size, if you \
     set it), and that of the topic with `ottla topics configs TOPIC --set max.message.bytes=BYTES`";

/// The longest line, and the remedy for a longer one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineLimit {
    pub(crate) bytes_max: usize,
    pub(crate) remedy: &'static str,
}

/// Reads lines one after another into one buffer.
pub(crate) struct Lines {
    from: BufReader<Box<dyn Read + Send>>,
    name: String,
    line: Vec<u8>,
    number: u64,
    limit: LineLimit,
}

impl Lines {
    /// Reads standard input. A line above the limit is an error.
    pub(crate) fn of_stdin(limit: LineLimit) -> Self {
        Self::new(Box::new(io::stdin()), "standard input", limit)
    }

    /// Reads a file; `-` is standard input.
    pub(crate) fn of_file(path: &Path, limit: LineLimit) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Ok(Self::of_stdin(limit));
        }
        let file = File::open(path).map_err(|error| Failure::file(path, &error))?;
        Ok(Self::new(Box::new(file), &path.display().to_string(), limit))
    }

    fn new(from: Box<dyn Read + Send>, name: &str, limit: LineLimit) -> Self {
        let from = BufReader::with_capacity(READ_BYTES, from);
        Self { from, name: name.to_owned(), line: Vec::new(), number: 0, limit }
    }

    /// `true` if there is another line.
    pub(crate) fn has_next(&mut self) -> Result<bool, Failure> {
        let bytes = self.from.fill_buf();
        let bytes = bytes.map_err(|error| Failure::failed(format!("{}: {}", self.name, sentence(&error))))?;
        Ok(!bytes.is_empty())
    }

    /// `true` if the next line was read with the last one, so that [`Lines::next`] does not wait for it.
    pub(crate) fn has_whole_line(&self) -> bool {
        self.from.buffer().contains(&b'\n')
    }

    /// The next line, without its end. A line above the limit is several ones.
    pub(crate) fn next_part(&mut self) -> Result<Option<&[u8]>, Failure> {
        self.line.clear();
        let bytes_max = self.limit.bytes_max as u64;
        let read = (&mut self.from).take(bytes_max).read_until(b'\n', &mut self.line);
        let read = read.map_err(|error| Failure::failed(format!("{}: {}", self.name, sentence(&error))))?;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        }
        Ok((read > 0).then_some(&*self.line))
    }

    /// The next line, without its end.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, Failure> {
        self.line.clear();
        let LineLimit { bytes_max, remedy } = self.limit;
        let read = (&mut self.from).take(bytes_max as u64 + 1).read_until(b'\n', &mut self.line);
        let read = read.map_err(|error| Failure::failed(format!("{}: {}", self.name, sentence(&error))))?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if self.line.len() > bytes_max {
            return Err(Failure::failed(format!(
                "{}: line {} is longer than {bytes_max} bytes: {remedy}",
                self.name, self.number
            )));
        }
        Ok(Some(&self.line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: LineLimit = LineLimit { bytes_max: 5, remedy: "split it" };

    /// Returns one part per read.
    struct Parts(Vec<&'static [u8]>);

    impl Read for Parts {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            self.0.remove(0).read(buffer)
        }
    }

    #[test]
    fn a_line_is_there_before_it_is_requested_or_it_is_not() {
        let mut lines = Lines::new(Box::new(Parts(vec![b"one\ntwo\nth", b"ree\n"])), "input", LIMIT);
        for (line, has_next) in [(&b"one"[..], true), (b"two", false), (b"three", false)] {
            assert_eq!(lines.next().expect("readable"), Some(line));
            assert_eq!(lines.has_whole_line(), has_next);
        }
    }

    #[test]
    fn lines_have_no_line_end_and_long_lines_are_rejected() {
        let mut lines = Lines::new(Box::new(&b"one\n\ntwo\r\nthree"[..]), "input", LIMIT);
        for expected in [&b"one"[..], b"", b"two\r", b"three"] {
            assert_eq!(lines.next().expect("readable"), Some(expected));
        }
        assert_eq!(lines.next().expect("readable"), None);
        let mut lines = Lines::new(Box::new(&b"123456\n"[..]), "input", LIMIT);
        let refused = lines.next().expect_err("too long").to_string();
        assert_eq!(refused, "input: line 1 is longer than 5 bytes: split it");
    }
}
