//! Records to produce, their acknowledged positions, and owned records.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use ottla_wire::HeaderRef;

/// A record to produce, borrowing what the application already has: nothing is copied before it is encoded.
///
/// ```
/// use ottla_client::Record;
///
/// let record = Record::to("orders").key("order-17").value("{\"amount\":3}").header("trace", "a1");
/// assert_eq!(record.topic, "orders");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Record<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Partition, or `None` to let the partitioner choose.
    pub partition: Option<i32>,
    /// Key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// Value; `None` is null (a tombstone in a compacted topic).
    pub value: Option<&'a [u8]>,
    /// The same bytes as `value`, refcounted: see [`Record::shared_value`].
    pub shared: Option<&'a Bytes>,
    /// Headers in order; names may repeat, and should be UTF-8: Java's client reads other bytes as replacement characters.
    pub headers: Vec<HeaderRef<'a>>,
    /// Milliseconds since 1970, or `None` for the time of the call.
    pub timestamp_ms: Option<i64>,
    /// A value for the application, which the record's [`Report`](crate::Report) returns.
    pub tag: Tag,
}

impl<'a> Record<'a> {
    /// A record for `topic` with neither key nor value.
    pub fn to(topic: &'a str) -> Self {
        Self { topic, ..Self::default() }
    }

    /// Sets the key.
    #[must_use]
    pub fn key<K: AsRef<[u8]> + ?Sized>(mut self, key: &'a K) -> Self {
        self.key = Some(key.as_ref());
        self
    }

    /// Sets the value.
    #[must_use]
    pub fn value<V: AsRef<[u8]> + ?Sized>(mut self, value: &'a V) -> Self {
        self.value = Some(value.as_ref());
        self.shared = None;
        self
    }

    /// Sets a value that need not be copied: above `message.copy.max.bytes` the request refers to these very bytes.
    ///
    /// Without compression, they are then never copied before they reach the socket.
    #[must_use]
    pub fn shared_value(mut self, value: &'a Bytes) -> Self {
        self.value = Some(value);
        self.shared = Some(value);
        self
    }

    /// Sets the tag that the record's report returns.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<Tag>) -> Self {
        self.tag = tag.into();
        self
    }

    /// Appends a header.
    #[must_use]
    pub fn header<N: AsRef<[u8]> + ?Sized, V: AsRef<[u8]> + ?Sized>(
        mut self,
        name: &'a N,
        value: &'a V,
    ) -> Self {
        self.headers.push((name.as_ref(), Some(value.as_ref())));
        self
    }

    /// Sends it to this partition instead of asking the partitioner.
    #[must_use]
    pub fn partition(mut self, partition: i32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// Sets the timestamp, milliseconds since 1970.
    #[must_use]
    pub fn timestamp_ms(mut self, timestamp_ms: i64) -> Self {
        self.timestamp_ms = Some(timestamp_ms);
        self
    }
}

/// A value of the application that identifies a record in its [`Report`](crate::Report). The default, 0, means no
/// tag.
///
/// ```
/// use ottla_client::{Record, Tag};
///
/// let record = Record::to("orders").value("paid").tag(17);
/// assert_eq!(record.tag, Tag::from(17));
/// assert_eq!(u128::from(record.tag), 17);
/// assert!(Record::to("orders").tag.is_none());
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Tag(u128);

impl Tag {
    /// The tag as a number; 0 means no tag.
    pub const fn get(self) -> u128 {
        self.0
    }

    /// Returns `true` for the default, which means that the record has no tag.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl From<u128> for Tag {
    fn from(tag: u128) -> Self {
        Self(tag)
    }
}

impl From<Tag> for u128 {
    fn from(tag: Tag) -> Self {
        tag.0
    }
}

/// The position of a record that the broker acknowledged.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecordMetadata {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: i32,
    /// Offset; `None` with `acks=0`, or when the broker recognised a retry as a duplicate and no longer knew its offset.
    pub offset: Option<i64>,
}

/// A record that owns its bytes, to be kept or moved to another thread.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OwnedRecord {
    /// Offset in its partition.
    pub offset: i64,
    /// Milliseconds since 1970; -1 if it has none.
    pub timestamp_ms: i64,
    /// Key; `None` is null.
    pub key: Option<Bytes>,
    /// Value; `None` is null.
    pub value: Option<Bytes>,
    /// Headers in order.
    pub headers: Vec<(String, Option<Bytes>)>,
}

impl OwnedRecord {
    /// Returns a copy that takes only the memory of its parts. The record itself shares the response it came in, which stays
    /// in memory, and counts against `queued.max.messages.kbytes`, until the last of its records is dropped. Use this to
    /// keep few records for long.
    #[must_use]
    pub fn compact(&self) -> Self {
        let headers = self.headers.iter().map(|(_, value)| value.as_ref());
        let parts: Vec<Option<&Bytes>> =
            [self.key.as_ref(), self.value.as_ref()].into_iter().chain(headers).collect();
        let mut memory = BytesMut::with_capacity(parts.iter().flatten().map(|part| part.len()).sum());
        for part in parts.iter().flatten() {
            memory.extend_from_slice(part);
        }
        let mut memory = memory.freeze();
        let mut copy = |part: &Option<Bytes>| part.as_ref().map(|part| memory.split_to(part.len()));
        let (key, value) = (copy(&self.key), copy(&self.value));
        let headers = self.headers.iter().map(|(name, value)| (name.clone(), copy(value))).collect();
        Self { offset: self.offset, timestamp_ms: self.timestamp_ms, key, value, headers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compact_copy_shares_nothing_and_says_the_same() {
        let response = Bytes::from(vec![7; 1 << 20]);
        let headers = vec![("trace".to_owned(), Some(response.slice(10..12))), ("none".to_owned(), None)];
        let (key, value) = (None, Some(response.slice(..5)));
        let record = OwnedRecord { offset: 3, timestamp_ms: 4, key, value, headers };
        let copy = record.compact();
        assert_eq!(copy, record);
        drop((record, response.slice(..0)));
        assert!(response.is_unique(), "the copy holds nothing of it");
    }
}
