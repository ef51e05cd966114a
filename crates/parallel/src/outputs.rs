//! Output records, buffered until their handler has succeeded.

use std::ops::Range;

use ottla_client::Record;

/// Output records in one buffer, which avoids an allocation per record.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    bytes: Vec<u8>,
    headers: Vec<(Range<usize>, Option<Range<usize>>)>,
    records: Vec<Output>,
}

#[derive(Debug)]
struct Output {
    topic: Range<usize>,
    partition: Option<i32>,
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
    headers: Range<usize>,
    timestamp_ms: Option<i64>,
}

/// A position in [`Outputs`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputMark(usize, usize, usize);

impl Outputs {
    pub(crate) fn push(&mut self, record: &Record<'_>) {
        let topic = self.keep(record.topic.as_bytes());
        let key = record.key.map(|key| self.keep(key));
        let value = record.value.map(|value| self.keep(value));
        let first = self.headers.len();
        for (name, value) in &record.headers {
            let header = (self.keep(name), value.map(|value| self.keep(value)));
            self.headers.push(header);
        }
        let headers = first..self.headers.len();
        let (partition, timestamp_ms) = (record.partition, record.timestamp_ms);
        self.records.push(Output { topic, partition, key, value, headers, timestamp_ms });
    }

    pub(crate) fn mark(&self) -> OutputMark {
        OutputMark(self.bytes.len(), self.headers.len(), self.records.len())
    }

    /// Removes the records after `mark`: their handler has failed.
    pub(crate) fn truncate(&mut self, mark: OutputMark) {
        self.bytes.truncate(mark.0);
        self.headers.truncate(mark.1);
        self.records.truncate(mark.2);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        self.records.iter().map(|output| {
            let bytes = |range: &Range<usize>| &self.bytes[range.clone()];
            let part = |range: &Option<Range<usize>>| range.clone().map(|range| &self.bytes[range]);
            let headers = &self.headers[output.headers.clone()];
            Record {
                topic: std::str::from_utf8(bytes(&output.topic)).unwrap_or_default(),
                partition: output.partition,
                key: part(&output.key),
                value: part(&output.value),
                headers: headers.iter().map(|(name, value)| (bytes(name), part(value))).collect(),
                timestamp_ms: output.timestamp_ms,
                ..Record::default()
            }
        })
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        from..self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_of_a_failed_handler_are_dropped() {
        let mut outputs = Outputs::default();
        outputs.push(&Record::to("a").key("1").value("x").header(b"h\xff", "v").partition(3));
        let mark = outputs.mark();
        outputs.push(&Record::to("b").value("y").header("h", "w"));
        outputs.truncate(mark);
        outputs.push(&Record::to("c").timestamp_ms(5));
        let seen: Vec<_> = outputs.iter().map(|record| (record.topic, record.key, record.value)).collect();
        assert_eq!(seen, [("a", Some(&b"1"[..]), Some(&b"x"[..])), ("c", None, None)]);
        let first = outputs.iter().next().expect("the first");
        assert_eq!((first.partition, first.headers), (Some(3), vec![(&b"h\xff"[..], Some(&b"v"[..]))]));
    }
}
