//! Random messages, encoded from the schema.
//!
//! This second encoder shares no code with the one under test. It walks the schema and follows Kafka's protocol
//! guide. Its output is canonical, so recoding must return the same bytes.

use bytes::Bytes;
use fastrand::Rng;
use ottla_protocol::schema::{FieldSchema, FieldType, Schema};

/// Maximum number of array elements.
const ELEMENTS_MAX: usize = 3;

/// A random message of `version`, without header.
pub(crate) fn random_message(schema: &Schema, version: i16, rng: &mut Rng) -> Bytes {
    let mut out = Vec::new();
    let flexible = version >= schema.flexible_from;
    Writer { version, flexible, rng }.fields(schema.fields, &mut out);
    out.into()
}

struct Writer<'a> {
    version: i16,
    flexible: bool,
    rng: &'a mut Rng,
}

impl Writer<'_> {
    fn fields(&mut self, fields: &[FieldSchema], out: &mut Vec<u8>) {
        let version = self.version;
        let present = fields.iter().filter(|field| field.versions.contains(version));
        for field in present.clone().filter(|field| field.tag.is_none()) {
            self.value(field, out);
        }
        if !self.flexible {
            return;
        }
        let mut tagged = Vec::new();
        for field in present.filter(|field| field.tag.is_some()) {
            let mut value = Vec::new();
            self.value(field, &mut value);
            // A tagged field with its default value is not written.
            if self.rng.bool() && value != self.default(field) {
                tagged.push((field.tag.expect("filtered above"), value));
            }
        }
        tagged.sort_by_key(|(tag, _)| *tag);
        varint(tagged.len() as u32, out);
        for (tag, value) in tagged {
            varint(tag, out);
            varint(value.len() as u32, out);
            out.extend(value);
        }
    }

    fn value(&mut self, field: &FieldSchema, out: &mut Vec<u8>) {
        if field.nullable.contains(self.version) && self.rng.u8(..4) == 0 {
            self.null(&field.ty, out);
            return;
        }
        if let (FieldType::Struct(structure), true) = (&field.ty, is_nullable_type(field)) {
            out.push(1);
            self.fields(structure.fields, out);
            return;
        }
        self.type_value(&field.ty, out);
    }

    fn null(&self, ty: &FieldType, out: &mut Vec<u8>) {
        match ty {
            FieldType::Struct(_) => out.push(0xff),
            _ if self.flexible => out.push(0),
            FieldType::String => out.extend([0xff; 2]),
            _ => out.extend([0xff; 4]),
        }
    }

    fn type_value(&mut self, ty: &FieldType, out: &mut Vec<u8>) {
        let edge = self.rng.u8(..6);
        let number = match edge {
            0 => 0,
            1 => -1,
            2 => i64::MAX,
            3 => i64::MIN,
            _ => self.rng.i64(..),
        };
        match ty {
            FieldType::Bool => out.push(self.rng.u8(..2)),
            FieldType::Int8 => out.extend((number as i8).to_be_bytes()),
            FieldType::Int16 | FieldType::Uint16 => out.extend((number as i16).to_be_bytes()),
            FieldType::Int32 | FieldType::Uint32 => out.extend((number as i32).to_be_bytes()),
            FieldType::Int64 => out.extend(number.to_be_bytes()),
            FieldType::Float64 => out.extend((self.rng.i32(..) as f64 / 8.0).to_be_bytes()),
            FieldType::Uuid => out.extend(self.rng.u128(..).to_be_bytes()),
            FieldType::String => {
                let text = self.text();
                if self.flexible {
                    varint(text.len() as u32 + 1, out);
                } else {
                    out.extend((text.len() as u16).to_be_bytes());
                }
                out.extend(text.bytes());
            }
            FieldType::Bytes | FieldType::Records => {
                // Some are long enough to be linked instead of copied.
                let len =
                    if self.rng.u8(..8) == 0 { self.rng.usize(1000..3000) } else { self.rng.usize(..9) };
                self.length(len, out);
                let from = out.len();
                out.resize(from + len, 0);
                self.rng.fill(&mut out[from..]);
            }
            FieldType::Array(element) => {
                let len = self.rng.usize(..=ELEMENTS_MAX);
                self.length(len, out);
                for _ in 0..len {
                    self.type_value(element, out);
                }
            }
            FieldType::Struct(structure) => self.fields(structure.fields, out),
        }
    }

    fn text(&mut self) -> String {
        let len = if self.rng.u8(..16) == 0 { self.rng.usize(60..300) } else { self.rng.usize(..12) };
        (0..len)
            .map(|_| match self.rng.u8(..12) {
                0 => 'é',
                1 => '語',
                2 => '\u{1f980}',
                _ => self.rng.alphanumeric(),
            })
            .collect()
    }

    fn length(&self, len: usize, out: &mut Vec<u8>) {
        if self.flexible {
            varint(len as u32 + 1, out);
        } else {
            out.extend((len as u32).to_be_bytes());
        }
    }

    /// The encoded default of a field.
    fn default(&mut self, field: &FieldSchema) -> Vec<u8> {
        let mut out = Vec::new();
        if field.default == "null" {
            self.null(&field.ty, &mut out);
            return out;
        }
        let number = match field.default {
            "" => 0,
            "i32::MAX" => i64::from(i32::MAX),
            "i32::MIN" => i64::from(i32::MIN),
            "i64::MAX" => i64::MAX,
            "true" => 1,
            number => number.parse().unwrap_or_else(|_| panic!("default {number} of {}", field.name)),
        };
        match &field.ty {
            FieldType::Bool | FieldType::Int8 => out.push(number as u8),
            FieldType::Int16 | FieldType::Uint16 => out.extend((number as i16).to_be_bytes()),
            FieldType::Int32 | FieldType::Uint32 => out.extend((number as i32).to_be_bytes()),
            FieldType::Int64 => out.extend(number.to_be_bytes()),
            FieldType::Float64 => out.extend((number as f64).to_be_bytes()),
            FieldType::Uuid => out.extend([0; 16]),
            // Tagged fields exist in flexible versions only: a compact length of zero.
            FieldType::String | FieldType::Bytes | FieldType::Records | FieldType::Array(_) => out.push(1),
            FieldType::Struct(structure) => {
                if is_nullable_type(field) {
                    out.push(1);
                }
                for inner in structure.fields {
                    if inner.tag.is_none() && inner.versions.contains(self.version) {
                        out.extend(self.default(inner));
                    }
                }
                out.push(0);
            }
        }
        out
    }
}

/// `true` if the field's struct has a presence byte.
fn is_nullable_type(field: &FieldSchema) -> bool {
    matches!(field.ty, FieldType::Struct(_)) && !field.nullable.is_empty()
}

fn varint(mut value: u32, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
