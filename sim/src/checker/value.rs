//! The values of records, and the results of their delivery.

use std::fmt;

/// A record's value: its producer, and its number among that producer's records for the partition.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Value {
    /// The incarnation of the producer: a restarted producer is a different one.
    pub producer: u32,
    /// The partition it was sent to, of any topic.
    pub slot: i32,
    /// The record's number, from 0.
    pub number: u32,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}/{}/{}", self.producer, self.slot, self.number)
    }
}

impl Value {
    /// The bytes of a record with this value.
    pub fn text(self, padding: usize) -> String {
        format!("{self} {padding} {:x<padding$}", "")
    }

    /// Decodes a value; `None` for bytes that no producer sent.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(bytes).ok()?.split(' ');
        let mut parts = words.next()?.strip_prefix('p')?.split('/');
        let value = Self {
            producer: parts.next()?.parse().ok()?,
            slot: parts.next()?.parse().ok()?,
            number: parts.next()?.parse().ok()?,
        };
        let (padding, rest) = (words.next()?.parse::<usize>().ok()?, words.next()?);
        let is_whole = rest.len() == padding && rest.bytes().all(|byte| byte == b'x');
        (is_whole && parts.next().is_none() && words.next().is_none()).then_some(value)
    }
}

/// The delivery result of a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SendResult {
    /// No result yet: the record may be written, once.
    Unknown,
    /// Acknowledged at this offset; -1 if the broker no longer knew it.
    Acked(i64),
    /// Failed, but possibly written.
    PossiblyWritten,
    /// Failed and not written.
    NotWritten,
}
