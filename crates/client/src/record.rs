//! Records on their way out, and what is known of them once they are written.

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
    /// Headers in order; names may repeat.
    pub headers: Vec<HeaderRef<'a>>,
    /// Milliseconds since 1970, or `None` for the time of the call.
    pub timestamp_ms: Option<i64>,
    /// Comes back in the record's [`Report`](crate::Report); 0 is no tag.
    pub tag: u128,
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

    /// Sets the tag that comes back in the record's report.
    #[must_use]
    pub fn tag(mut self, tag: u128) -> Self {
        self.tag = tag;
        self
    }

    /// Appends a header.
    #[must_use]
    pub fn header<V: AsRef<[u8]> + ?Sized>(mut self, name: &'a str, value: &'a V) -> Self {
        self.headers.push((name, Some(value.as_ref())));
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

/// Where a record was written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecordMetadata {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: i32,
    /// Offset; -1 with `acks=0`, or when a retry was recognised as a duplicate whose offset the broker had forgotten.
    pub offset: i64,
}

/// A record that owns its bytes, for keeping or for handing to another thread.
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
    /// A copy that takes just the memory its parts need. The record itself shares the response it came in, which stays
    /// in memory, and counts against `queued.max.messages.kbytes`, until the last of its records is dropped: who keeps
    /// few records for long keeps them like this.
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
