//! The schema of each message as data: for the conformance test, for logs, and for code that walks messages without
//! their types.

use std::fmt;

/// An inclusive range of versions. An open upper end is `i16::MAX`; an empty range is 0 to -1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Versions {
    /// The oldest version.
    pub min: i16,
    /// The newest version.
    pub max: i16,
}

impl Versions {
    /// `true` if the range contains `version`.
    pub const fn contains(self, version: i16) -> bool {
        self.min <= version && version <= self.max
    }

    /// `true` if the range is empty.
    pub const fn is_empty(self) -> bool {
        self.max < self.min
    }
}

/// `3-9`, `3+`, `3` or `none`, as Kafka's schemas write it.
impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { min, max } if max < min => f.write_str("none"),
            Self { min, max: i16::MAX } => write!(f, "{min}+"),
            Self { min, max } if min == max => write!(f, "{min}"),
            Self { min, max } => write!(f, "{min}-{max}"),
        }
    }
}

/// A whole message.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// The message's name.
    pub name: &'static str,
    /// The message's versions.
    pub versions: Versions,
    /// The first version with compact lengths and tagged fields; `i16::MAX` if there is none.
    pub flexible_from: i16,
    /// The fields, in encoding order.
    pub fields: &'static [FieldSchema],
}

/// A struct inside a message.
#[derive(Clone, Copy, Debug)]
pub struct StructSchema {
    /// The struct's name.
    pub name: &'static str,
    /// The fields, in encoding order.
    pub fields: &'static [FieldSchema],
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub struct FieldSchema {
    /// The name in Rust: Kafka's, in snake case.
    pub name: &'static str,
    /// The type.
    pub ty: FieldType,
    /// The versions that have the field.
    pub versions: Versions,
    /// The versions in which the field can be null.
    pub nullable: Versions,
    /// The tag, for tagged fields.
    pub tag: Option<u32>,
    /// The default as written in the attribute; empty for the zero value of the type.
    pub default: &'static str,
    /// `true` if a version without the field may drop its value.
    pub ignorable: bool,
}

impl FieldSchema {
    /// The name in Kafka's schemas, with a lower-case first letter: `transactionalId`.
    pub fn wire_name(&self) -> String {
        let mut name = String::with_capacity(self.name.len());
        for (at, word) in self.name.split('_').enumerate() {
            let mut letters = word.chars();
            match letters.next() {
                Some(first) if at > 0 => {
                    name.push(first.to_ascii_uppercase());
                    name.push_str(letters.as_str());
                }
                _ => name.push_str(word),
            }
        }
        name
    }
}

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub enum FieldType {
    /// One byte, 0 or 1.
    Bool,
    /// One byte.
    Int8,
    /// Two bytes.
    Int16,
    /// Two bytes.
    Uint16,
    /// Four bytes.
    Int32,
    /// Four bytes.
    Uint32,
    /// Eight bytes.
    Int64,
    /// Eight bytes.
    Float64,
    /// Sixteen bytes.
    Uuid,
    /// A length and UTF-8.
    String,
    /// A length and bytes.
    Bytes,
    /// A length and record batches.
    Records,
    /// A length and elements.
    Array(&'static FieldType),
    /// Fields, one after another.
    Struct(&'static StructSchema),
}

/// As Kafka's schemas write it: `[]int32`, `uuid`, the name of the struct.
impl fmt::Display for FieldType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "bool",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Uint16 => "uint16",
            Self::Int32 => "int32",
            Self::Uint32 => "uint32",
            Self::Int64 => "int64",
            Self::Float64 => "float64",
            Self::Uuid => "uuid",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Records => "records",
            Self::Array(element) => return write!(f, "[]{element}"),
            Self::Struct(structure) => structure.name,
        })
    }
}
