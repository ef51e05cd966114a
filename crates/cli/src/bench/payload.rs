//! Message bodies: slices of generated text, which compresses about as well as real text, or lines of a file.

use std::path::Path;

use crate::failure::Failure;

/// Large enough that caches and codecs do not see the same bytes again soon.
const POOL_BYTES: usize = 16 << 20;

const WORDS: [&str; 64] = [
    "order",
    "customer",
    "amount",
    "currency",
    "EUR",
    "USD",
    "status",
    "paid",
    "shipped",
    "pending",
    "warehouse",
    "Berlin",
    "Lyon",
    "Porto",
    "item",
    "sku",
    "quantity",
    "price",
    "discount",
    "total",
    "tax",
    "address",
    "street",
    "city",
    "postal",
    "code",
    "country",
    "phone",
    "email",
    "created",
    "updated",
    "user",
    "session",
    "device",
    "mobile",
    "browser",
    "click",
    "view",
    "search",
    "query",
    "result",
    "page",
    "referrer",
    "campaign",
    "latency",
    "error",
    "warning",
    "info",
    "debug",
    "request",
    "response",
    "upstream",
    "timeout",
    "retry",
    "partition",
    "offset",
    "leader",
    "replica",
    "batch",
    "record",
    "header",
    "key",
    "value",
    "null",
];

/// Text from which messages are sliced. Making a message only copies it.
pub(super) struct Pool {
    text: Vec<u8>,
    size: usize,
}

impl Pool {
    /// A pool of messages of `size` bytes. The same seed gives the same text.
    pub(super) fn new(size: usize) -> Self {
        // A generator of our own (xorshift): the pool must not change with a dependency's version.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let bytes = POOL_BYTES.max(size * 4);
        let mut text = Vec::with_capacity(bytes + 64);
        while text.len() < bytes {
            let number = random();
            text.extend_from_slice(WORDS[number as usize % WORDS.len()].as_bytes());
            match number >> 32 & 7 {
                0 => text.extend_from_slice(format!("={} ", number >> 40 & 0xffff).as_bytes()),
                1 => text.extend_from_slice(format!("\":\"{:06x}\",\"", number >> 40).as_bytes()),
                _ => text.push(b' '),
            }
        }
        Self { text, size }
    }

    /// The lines of a file, without line ends; all must have the same length.
    pub(super) fn of_lines(path: &Path) -> Result<Self, Failure> {
        let wrong = |why: &str| Failure::usage(format!("--payload {}: {why}", path.display()));
        let mut text = std::fs::read(path).map_err(|error| wrong(&error.to_string()))?;
        let lines = || {
            text.split_inclusive(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\n").unwrap_or(line))
        };
        let size = lines().next().map_or(0, <[u8]>::len);
        if size == 0 || lines().any(|line| line.len() != size) {
            return Err(wrong("all lines must have the same length, of at least one byte"));
        }
        if lines().nth(1).is_none() {
            return Err(wrong("the file needs at least two lines"));
        }
        text.retain(|byte| *byte != b'\n');
        Ok(Self { text, size })
    }

    /// Size of each message in bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Message number `n`.
    #[inline]
    pub(super) fn message(&self, n: u64) -> &[u8] {
        let from = self.place(n);
        &self.text[from..from + self.size]
    }

    /// The messages from number `n`, without end.
    pub(super) fn messages(&self, n: u64) -> Messages<'_> {
        Messages { pool: self, next: self.place(n) }
    }

    /// Consecutive messages are adjacent in memory, like data that an application has just written. The floor program
    /// accesses its pool in the same way.
    fn place(&self, n: u64) -> usize {
        let room = (self.text.len() - self.size) as u64;
        ((n * self.size as u64) % room) as usize
    }
}

/// An iterator over messages. It avoids the division that access by number needs.
pub(super) struct Messages<'a> {
    pool: &'a Pool,
    next: usize,
}

impl<'a> Iterator for Messages<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let from = self.next;
        let Pool { text, size } = self.pool;
        let room = text.len() - size;
        // The pool holds several messages, so one step passes its end at most once.
        self.next = from + size;
        if self.next >= room {
            self.next -= room;
        }
        text.get(from..from + size)
    }
}

/// A checksum that producers and consumers can compute in any order.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Sums {
    pub(super) messages: u64,
    pub(super) lengths: u64,
    pub(super) first_bytes: u64,
    pub(super) last_bytes: u64,
}

impl Sums {
    #[inline]
    pub(super) fn add(&mut self, message: &[u8]) {
        self.messages += 1;
        self.lengths += message.len() as u64;
        self.first_bytes += u64::from(message.first().copied().unwrap_or(0));
        self.last_bytes += u64::from(message.last().copied().unwrap_or(0));
    }
}

impl std::fmt::Display for Sums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { messages, lengths, first_bytes, last_bytes } = self;
        write!(f, "{messages}/{lengths}/{first_bytes}/{last_bytes}")
    }
}

impl std::str::FromStr for Sums {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Vec<u64> = text.split('/').filter_map(|part| part.parse().ok()).collect();
        match numbers[..] {
            [messages, lengths, first_bytes, last_bytes] => {
                Ok(Self { messages, lengths, first_bytes, last_bytes })
            }
            _ => Err(format!("`{text}` does not have the form messages/lengths/first bytes/last bytes")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_in_a_row_are_those_by_number_across_the_end_of_the_pool() {
        let size = 1 << 20;
        let pool = Pool::new(size);
        for (n, message) in (7..60).zip(pool.messages(7)) {
            assert_eq!(message, pool.message(n), "number {n}");
        }
    }

    #[test]
    fn messages_from_a_file_are_its_lines_and_uneven_lines_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let pool = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            Pool::of_lines(file.path())
        };
        let lines = pool("{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n").unwrap();
        let first: Vec<_> = lines.messages(0).take(3).map(|line| String::from_utf8_lossy(line)).collect();
        assert_eq!(first, ["{\"n\":1}", "{\"n\":2}", "{\"n\":1}"], "the last line closes the ring");
        assert_eq!(lines.size(), 7);
        for wrong in ["", "one\n", "one\nthree\n", "\n\n"] {
            assert!(pool(wrong).is_err(), "{wrong:?}");
        }
    }
}
