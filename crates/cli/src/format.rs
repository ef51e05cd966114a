//! Records as text: kcat's format strings, and JSON lines.

use serde_json::{Map, Value, json};

/// A record to print.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) timestamp_ms: i64,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) headers: ottla_wire::HeadersRef<'a>,
}

/// The output format of records.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Format {
    /// Text with `%` sequences.
    Text(Vec<Piece>),
    /// One JSON object per line.
    Json,
}

/// A part of a format string.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Piece {
    Literal(Vec<u8>),
    Topic,
    Partition,
    Offset,
    Timestamp,
    Key,
    KeyLength,
    Value,
    ValueLength,
    Headers,
}

impl Format {
    /// Parses kcat's format: `%t` topic, `%p` partition, `%o` offset, `%T` timestamp, `%k` key, `%K` its length, `%s`
    /// value, `%S` its length, `%h` headers, `%%`; `\n`, `\t`, `\r`, `\\`, `\xNN`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            let piece = match c {
                '%' => match chars.next() {
                    Some('t') => Piece::Topic,
                    Some('p') => Piece::Partition,
                    Some('o') => Piece::Offset,
                    Some('T') => Piece::Timestamp,
                    Some('k') => Piece::Key,
                    Some('K') => Piece::KeyLength,
                    Some('s') => Piece::Value,
                    Some('S') => Piece::ValueLength,
                    Some('h') => Piece::Headers,
                    Some('%') => {
                        literal.push(b'%');
                        continue;
                    }
                    other => {
                        let found = other.map(String::from).unwrap_or_default();
                        return Err(format!(
                            "unknown sequence `%{found}`: use %t %p %o %T %k %K %s %S %h %%"
                        ));
                    }
                },
                '\\' => {
                    literal.push(escape(&mut chars)?);
                    continue;
                }
                other => {
                    literal.extend(other.encode_utf8(&mut [0; 4]).bytes());
                    continue;
                }
            };
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(piece);
        }
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(Self::Text(pieces))
    }

    /// Appends a record's text.
    pub(crate) fn render(&self, record: &Shown<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Json => {
                out.extend_from_slice(to_json(record).to_string().as_bytes());
                out.push(b'\n');
            }
            Self::Text(pieces) => pieces.iter().for_each(|piece| render_piece(piece, record, out)),
        }
    }
}

/// Parses the rest of an escape sequence, after its backslash.
pub(crate) fn escape(chars: &mut std::str::Chars<'_>) -> Result<u8, String> {
    match chars.next() {
        Some('n') => Ok(b'\n'),
        Some('t') => Ok(b'\t'),
        Some('r') => Ok(b'\r'),
        Some('0') => Ok(0),
        Some('\\') => Ok(b'\\'),
        Some('x') => {
            let digits: String = chars.by_ref().take(2).collect();
            let byte = u8::from_str_radix(&digits, 16).ok();
            // A sign is no digit, although a number may have one.
            let byte =
                byte.filter(|_| digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
            byte.ok_or_else(|| format!("`\\x{digits}` is not a byte: use \\x and two hexadecimal digits"))
        }
        other => {
            let found = other.map(String::from).unwrap_or_default();
            Err(format!("`\\{found}` is not an escape sequence: use \\n \\t \\r \\0 \\\\ \\xNN"))
        }
    }
}

fn render_piece(piece: &Piece, record: &Shown<'_>, out: &mut Vec<u8>) {
    let mut number = |number: i64| out.extend_from_slice(number.to_string().as_bytes());
    let length = |part: Option<&[u8]>| part.map_or(-1, |part| part.len() as i64);
    match piece {
        Piece::Literal(text) => out.extend_from_slice(text),
        Piece::Topic => out.extend_from_slice(record.topic.as_bytes()),
        Piece::Partition => number(i64::from(record.partition)),
        Piece::Offset => number(record.offset),
        Piece::Timestamp => number(record.timestamp_ms),
        Piece::KeyLength => number(length(record.key)),
        Piece::ValueLength => number(length(record.value)),
        Piece::Key => out.extend_from_slice(record.key.unwrap_or_default()),
        Piece::Value => out.extend_from_slice(record.value.unwrap_or_default()),
        Piece::Headers => {
            for (at, (name, value)) in record.headers.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(name);
                out.push(b'=');
                out.extend_from_slice(value.unwrap_or(b"NULL"));
            }
        }
    }
}

fn to_json(record: &Shown<'_>) -> Value {
    let mut object = Map::new();
    object.insert("topic".into(), record.topic.into());
    object.insert("partition".into(), record.partition.into());
    object.insert("offset".into(), record.offset.into());
    object.insert("timestamp".into(), record.timestamp_ms.into());
    put_bytes(&mut object, "key", record.key);
    put_bytes(&mut object, "value", record.value);
    let header = |(name, value): (&[u8], Option<&[u8]>)| {
        let mut header = Map::new();
        header.insert("key".into(), String::from_utf8_lossy(name).into());
        put_bytes(&mut header, "value", value);
        Value::Object(header)
    };
    object.insert("headers".into(), record.headers.iter().map(header).collect());
    Value::Object(object)
}

/// Stores UTF-8 as text, and other bytes as base64 under a name that indicates it.
fn put_bytes(object: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    match bytes.map(std::str::from_utf8) {
        None => object.insert(name.into(), Value::Null),
        Some(Ok(text)) => object.insert(name.into(), text.into()),
        Some(Err(_)) => object.insert(format!("{name}_base64"), json!(base64(bytes.unwrap_or_default()))),
    };
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * at)) as usize & 63] as char;
            text.push(if at <= chunk.len() { letter } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(value: Option<&'static [u8]>) -> Shown<'static> {
        let headers = ottla_wire::HeadersRef::default();
        Shown { topic: "t", partition: 2, offset: 7, timestamp_ms: 99, key: Some(b"k"), value, headers }
    }

    fn rendered(format: &Format, record: &Shown<'_>) -> String {
        let mut out = Vec::new();
        format.render(record, &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn kcat_formats_are_understood() {
        let format = Format::parse(r"%t-%p@%o %T %k=%s (%K/%S) 100%%\t\x41\n").expect("valid");
        assert_eq!(rendered(&format, &record(Some(b"v!"))), "t-2@7 99 k=v! (1/2) 100%\tA\n");
        assert_eq!(rendered(&format, &record(None)), "t-2@7 99 k= (1/-1) 100%\tA\n");
        for text in ["%", "%z", r"\", r"\q", r"\x4"] {
            assert!(Format::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn json_marks_values_that_are_not_text() {
        let line = rendered(&Format::Json, &record(Some(&[0xff, 0, 1])));
        let object: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(object["value_base64"], "/wAB");
        assert_eq!(object["key"], "k");
        let object: Value = serde_json::from_str(&rendered(&Format::Json, &record(None))).expect("JSON");
        assert_eq!(object["value"], Value::Null);
    }

    #[test]
    fn base64_pads_to_four_letters() {
        for (bytes, text) in [(&b""[..], ""), (b"M", "TQ=="), (b"Ma", "TWE="), (b"Man", "TWFu")] {
            assert_eq!(base64(bytes), text);
        }
    }
}
