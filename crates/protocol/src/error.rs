//! Errors of encoding and decoding.

use std::fmt;

use ottla_wire::varint::VarintError;

/// An error for a message that the requested version cannot represent.
///
/// The caller's value causes it, never the peer.
#[derive(Clone, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct EncodeError(Box<Context<EncodeFault>>);

/// The causes of an [`EncodeError`].
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeFault {
    /// The field is set, but this version of the message has no such field.
    #[error("is set, but version {version} has no such field")]
    UnsupportedField {
        /// The requested version.
        version: i16,
    },
    /// The field is `None`, but the version requires a value.
    #[error("is null where a value is required")]
    Null,
    /// The value has more bytes or elements than its length field can represent.
    #[error("is {len} long, but at most {max} fit")]
    TooLong {
        /// The length of the value.
        len: usize,
        /// The maximum length.
        max: usize,
    },
    /// The message has no such version.
    #[error("version {version} is not one of {min}-{max}")]
    Version {
        /// The requested version.
        version: i16,
        /// The oldest known version.
        min: i16,
        /// The newest known version.
        max: i16,
    },
}

/// An error for bytes that are not a valid message. The peer is at fault, or the version is wrong.
#[derive(Clone, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(Box<Context<DecodeFault>>);

/// The causes of a [`DecodeError`].
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeFault {
    /// The bytes end inside a value.
    #[error("needs {needed} bytes at byte {at}, but {remaining} remain")]
    Truncated {
        /// Start of the value.
        at: usize,
        /// The number of bytes required.
        needed: usize,
        /// The number of bytes remaining.
        remaining: usize,
    },
    /// The declared number of elements exceeds the remaining bytes.
    #[error("declares {count} elements before byte {at}, but {remaining} bytes remain")]
    ArrayTooLong {
        /// Start of the elements.
        at: usize,
        /// The declared number of elements.
        count: usize,
        /// The number of bytes remaining.
        remaining: usize,
    },
    /// The elements of an array exceed the decoder's memory limit.
    #[error("needs {bytes} bytes of memory for the elements at byte {at}, but {left} remain of the limit")]
    Memory {
        /// Start of the elements.
        at: usize,
        /// The memory that they need.
        bytes: usize,
        /// The remaining memory of the limit.
        left: usize,
    },
    /// A negative length that does not mean null.
    #[error("has length {length} before byte {at}")]
    NegativeLength {
        /// Start of the value.
        at: usize,
        /// The length read.
        length: i64,
    },
    /// A string that exceeds Kafka's limit.
    #[error("is a string of {len} bytes, but at most {max} are allowed")]
    StringTooLong {
        /// The declared length.
        len: usize,
        /// Kafka's limit.
        max: usize,
    },
    /// A null, but the version requires a value.
    #[error("is null before byte {at}, where a value is required")]
    Null {
        /// Start of the value.
        at: usize,
    },
    /// A truncated or too long varint.
    #[error("at byte {at}: {source}")]
    Varint {
        /// Start of the varint.
        at: usize,
        /// The varint's error.
        source: VarintError,
    },
    /// A tagged field whose size differs from the declared size.
    #[error("tag {tag} declares {size} bytes but contains {read}")]
    TagSize {
        /// The tag.
        tag: u32,
        /// The declared size.
        size: usize,
        /// The size of its value.
        read: usize,
    },
    /// Bytes after the end of the message.
    #[error("{remaining} bytes follow the end of the message at byte {at}")]
    TrailingBytes {
        /// The end of the message.
        at: usize,
        /// The number of bytes after it.
        remaining: usize,
    },
    /// The message has no such version.
    #[error("version {version} is not one of {min}-{max}")]
    Version {
        /// The version asked for.
        version: i16,
        /// The oldest known version.
        min: i16,
        /// The newest known version.
        max: i16,
    },
}

/// A fault and its location.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Context<F> {
    fault: F,
    message: Option<(&'static str, i16)>,
    /// Innermost first.
    path: Vec<&'static str>,
}

impl<F> Context<F> {
    fn path(&self) -> String {
        let mut names = self.path.clone();
        names.reverse();
        names.join(".")
    }
}

impl<F: fmt::Display> fmt::Display for Context<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((message, version)) = self.message {
            write!(f, "{message} v{version}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "field `{}` ", self.path())?;
        }
        self.fault.fmt(f)
    }
}

macro_rules! context_methods {
    ($error:ident, $fault:ident) => {
        impl $error {
            /// The cause.
            pub fn fault(&self) -> &$fault {
                &self.0.fault
            }

            /// The path of the field, joined by dots; empty if the error concerns no field.
            pub fn field(&self) -> String {
                self.0.path()
            }

            /// The message and its version, if the error is inside one.
            pub fn message(&self) -> Option<(&'static str, i16)> {
                self.0.message
            }

            /// Adds the enclosing field `name` to the error's path.
            #[cold]
            #[must_use]
            pub fn within(mut self, name: &'static str) -> Self {
                self.0.path.push(name);
                self
            }

            /// Adds the enclosing message to the error.
            #[cold]
            #[must_use]
            pub fn within_message(mut self, name: &'static str, version: i16) -> Self {
                self.0.message = Some((name, version));
                self
            }
        }

        impl From<$fault> for $error {
            #[cold]
            fn from(fault: $fault) -> Self {
                Self(Box::new(Context { fault, message: None, path: Vec::new() }))
            }
        }

        impl fmt::Debug for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($error), "({})"), self.0)
            }
        }
    };
}

context_methods!(EncodeError, EncodeFault);
context_methods!(DecodeError, DecodeFault);

impl EncodeError {
    /// The error for a field `name` that is set, but missing in `version`.
    #[cold]
    pub fn unsupported(name: &'static str, version: i16) -> Self {
        Self::from(EncodeFault::UnsupportedField { version }).within(name)
    }

    /// The error for a field `name` that is null where a value is required.
    #[cold]
    pub fn null(name: &'static str) -> Self {
        Self::from(EncodeFault::Null).within(name)
    }
}
