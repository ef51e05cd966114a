//! Why a message could not be written or read.

use std::fmt;

use ottla_wire::varint::VarintError;

/// A message that cannot be written in the version asked for.
///
/// The cause of it is always the caller's value, never the peer.
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
        /// The version asked for.
        version: i16,
    },
    /// The field is `None` where the version wants a value.
    #[error("is null where a value must stand")]
    Null,
    /// The value has more bytes or elements than its length field can say.
    #[error("is {len} long, but at most {max} fit")]
    TooLong {
        /// How long the value is.
        len: usize,
        /// The most the format allows.
        max: usize,
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

/// Bytes that are not the message they should be. The peer is at fault, or the version was guessed wrong.
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
        /// Where the value starts.
        at: usize,
        /// How many bytes it needs.
        needed: usize,
        /// How many there are.
        remaining: usize,
    },
    /// An array claims more elements than the remaining bytes can hold.
    #[error("claims {count} elements before byte {at}, but {remaining} bytes remain")]
    ArrayTooLong {
        /// Where the elements would start.
        at: usize,
        /// How many elements are claimed.
        count: usize,
        /// How many bytes there are.
        remaining: usize,
    },
    /// An array takes more memory than the decoder was given.
    #[error("takes {bytes} bytes of memory for the elements at byte {at}, but {left} are left of the limit")]
    Memory {
        /// Where the elements start.
        at: usize,
        /// The memory they take.
        bytes: usize,
        /// What was left of the limit.
        left: usize,
    },
    /// A length below zero that does not mean null.
    #[error("has length {length} before byte {at}")]
    NegativeLength {
        /// Where the value would start.
        at: usize,
        /// The length read.
        length: i64,
    },
    /// A string longer than Kafka allows.
    #[error("is a string of {len} bytes, but at most {max} are allowed")]
    StringTooLong {
        /// How long the string claims to be.
        len: usize,
        /// The most Kafka allows.
        max: usize,
    },
    /// A string that is not UTF-8.
    #[error("is not UTF-8 from byte {at} on")]
    NotUtf8 {
        /// Where the string stops being UTF-8.
        at: usize,
    },
    /// Null where the version wants a value.
    #[error("is null before byte {at}, where a value must stand")]
    Null {
        /// Where the value would start.
        at: usize,
    },
    /// A varint that is cut off or too long.
    #[error("at byte {at}: {source}")]
    Varint {
        /// Where the varint starts.
        at: usize,
        /// What is wrong with it.
        source: VarintError,
    },
    /// A tagged field that is not as long as it claims.
    #[error("tag {tag} claims {size} bytes but holds {read}")]
    TagSize {
        /// The tag.
        tag: u32,
        /// The size it claims.
        size: usize,
        /// The bytes its value takes.
        read: usize,
    },
    /// Bytes after the end of the message.
    #[error("{remaining} bytes follow the end of the message at byte {at}")]
    TrailingBytes {
        /// Where the message ends.
        at: usize,
        /// How many bytes follow.
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

/// A fault and the place where it was met.
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
            /// What went wrong.
            pub fn fault(&self) -> &$fault {
                &self.0.fault
            }

            /// The names that lead to the field, joined by dots; empty if no field is to blame.
            pub fn field(&self) -> String {
                self.0.path()
            }

            /// The message and its version, if the fault lies within one.
            pub fn message(&self) -> Option<(&'static str, i16)> {
                self.0.message
            }

            /// The same error, met inside the field `name`.
            #[cold]
            #[must_use]
            pub fn within(mut self, name: &'static str) -> Self {
                self.0.path.push(name);
                self
            }

            /// The same error, met inside a message.
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
    /// The field `name` is set, but `version` lacks it.
    #[cold]
    pub fn unsupported(name: &'static str, version: i16) -> Self {
        Self::from(EncodeFault::UnsupportedField { version }).within(name)
    }

    /// The field `name` is null where a value must stand.
    #[cold]
    pub fn null(name: &'static str) -> Self {
        Self::from(EncodeFault::Null).within(name)
    }
}
