//! The encoding of each field type.

use bytes::Bytes;
use ottla_wire::Chain;

use crate::decode::Decoder;
use crate::encode::{Encoder, LengthKind, STRING_BYTES_MAX};
use crate::error::{DecodeError, EncodeError, EncodeFault};
use crate::error_code::ErrorCode;
use crate::schema::FieldType;
use crate::uuid::Uuid;

/// The properties of the message that determine a field's encoding.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Form {
    /// The version of the enclosing message.
    pub version: i16,
    /// `true` if that version has compact lengths and tagged fields.
    pub flexible: bool,
}

impl Form {
    /// The encoding of lengths of arrays and bytes.
    #[inline]
    pub const fn length(self) -> LengthKind {
        if self.flexible { LengthKind::Compact } else { LengthKind::Int32 }
    }

    /// The encoding of lengths of strings.
    #[inline]
    pub const fn string_length(self) -> LengthKind {
        if self.flexible { LengthKind::CompactString } else { LengthKind::Int16 }
    }
}

/// A type that a message field can have.
pub trait Field: Sized {
    /// The type in the schema.
    const TYPE: FieldType;
    /// The minimum encoded size, in any version.
    const BYTES_MIN: usize;

    /// Writes the value.
    fn write(&self, out: &mut Encoder, form: Form) -> Result<(), EncodeError>;

    /// Reads a value.
    fn read(input: &mut Decoder, form: Form) -> Result<Self, DecodeError>;
}

/// A type with a null encoding. The provided methods are those of structs, which have a presence byte.
pub trait Nullable: Field {
    /// Writes the value, or null.
    #[inline]
    fn write_nullable(value: Option<&Self>, out: &mut Encoder, form: Form) -> Result<(), EncodeError> {
        out.put_i8(if value.is_some() { 1 } else { -1 });
        value.map_or(Ok(()), |value| value.write(out, form))
    }

    /// Reads the value, or null.
    #[inline]
    fn read_nullable(input: &mut Decoder, form: Form) -> Result<Option<Self>, DecodeError> {
        if input.i8()? < 0 { Ok(None) } else { Self::read(input, form).map(Some) }
    }
}

impl<T: Nullable> Field for Option<T> {
    const TYPE: FieldType = T::TYPE;
    const BYTES_MIN: usize = 1;

    #[inline]
    fn write(&self, out: &mut Encoder, form: Form) -> Result<(), EncodeError> {
        T::write_nullable(self.as_ref(), out, form)
    }

    #[inline]
    fn read(input: &mut Decoder, form: Form) -> Result<Self, DecodeError> {
        T::read_nullable(input, form)
    }
}

macro_rules! fixed {
    ($($type:ident $put:ident $kind:ident;)*) => {
        $(
            impl Field for $type {
                const TYPE: FieldType = FieldType::$kind;
                const BYTES_MIN: usize = size_of::<$type>();

                #[inline]
                fn write(&self, out: &mut Encoder, _: Form) -> Result<(), EncodeError> {
                    out.$put(*self);
                    Ok(())
                }

                #[inline]
                fn read(input: &mut Decoder, _: Form) -> Result<Self, DecodeError> {
                    input.$type()
                }
            }
        )*
    };
}

fixed! {
    bool put_bool Bool;
    i8 put_i8 Int8;
    i16 put_i16 Int16;
    u16 put_u16 Uint16;
    i32 put_i32 Int32;
    u32 put_u32 Uint32;
    i64 put_i64 Int64;
    f64 put_f64 Float64;
}

impl Field for ErrorCode {
    const TYPE: FieldType = FieldType::Int16;
    const BYTES_MIN: usize = 2;

    #[inline]
    fn write(&self, out: &mut Encoder, _: Form) -> Result<(), EncodeError> {
        out.put_error_code(*self);
        Ok(())
    }

    #[inline]
    fn read(input: &mut Decoder, _: Form) -> Result<Self, DecodeError> {
        input.i16().map(Self::from_i16)
    }
}

impl Field for Uuid {
    const TYPE: FieldType = FieldType::Uuid;
    const BYTES_MIN: usize = 16;

    #[inline]
    fn write(&self, out: &mut Encoder, _: Form) -> Result<(), EncodeError> {
        out.put_slice(&self.0);
        Ok(())
    }

    #[inline]
    fn read(input: &mut Decoder, _: Form) -> Result<Self, DecodeError> {
        input.array().map(Self)
    }
}

/// Implements `Field` for types with a null encoding: the same encoding, without null.
macro_rules! field_through_nullable {
    ($type:ty, $kind:expr $(, $param:ident)?) => {
        impl $(<$param: Field>)? Field for $type {
            const TYPE: FieldType = $kind;
            const BYTES_MIN: usize = 1;

            #[inline]
            fn write(&self, out: &mut Encoder, form: Form) -> Result<(), EncodeError> {
                Self::write_nullable(Some(self), out, form)
            }

            #[inline]
            fn read(input: &mut Decoder, form: Form) -> Result<Self, DecodeError> {
                Self::read_nullable(input, form)?.ok_or_else(|| input.null())
            }
        }
    };
}

field_through_nullable!(String, FieldType::String);
field_through_nullable!(Bytes, FieldType::Bytes);
field_through_nullable!(Chain, FieldType::Records);
field_through_nullable!(Vec<T>, FieldType::Array(&T::TYPE), T);

impl Nullable for String {
    #[inline]
    fn write_nullable(value: Option<&Self>, out: &mut Encoder, form: Form) -> Result<(), EncodeError> {
        out.put_length(value.map(String::len), form.string_length())?;
        if let Some(text) = value {
            out.put_slice(text.as_bytes());
        }
        Ok(())
    }

    #[inline]
    fn read_nullable(input: &mut Decoder, form: Form) -> Result<Option<Self>, DecodeError> {
        match input.length(form.string_length())? {
            Some(len) => input.string(len).map(Some),
            None => Ok(None),
        }
    }
}

/// Writes the text of an error, cut to the limit of strings.
///
/// Such a text repeats names of the request and can be longer than each of them. An error would take the whole response with it.
pub fn write_error_message(message: Option<&str>, out: &mut Encoder, form: Form) -> Result<(), EncodeError> {
    let message = message.map(|message| &message[..message.floor_char_boundary(STRING_BYTES_MAX)]);
    out.put_length(message.map(str::len), form.string_length())?;
    out.put_slice(message.unwrap_or_default().as_bytes());
    Ok(())
}

impl Nullable for Bytes {
    #[inline]
    fn write_nullable(value: Option<&Self>, out: &mut Encoder, form: Form) -> Result<(), EncodeError> {
        out.put_length(value.map(Bytes::len), form.length())?;
        if let Some(bytes) = value {
            out.put_bytes(bytes);
        }
        Ok(())
    }

    #[inline]
    fn read_nullable(input: &mut Decoder, form: Form) -> Result<Option<Self>, DecodeError> {
        match input.length(form.length())? {
            Some(len) => input.take(len).map(Some),
            None => Ok(None),
        }
    }
}

impl Nullable for Chain {
    #[inline]
    fn write_nullable(value: Option<&Self>, out: &mut Encoder, form: Form) -> Result<(), EncodeError> {
        out.put_length(value.map(Chain::len), form.length())?;
        if let Some(chain) = value {
            out.put_chain(chain);
        }
        Ok(())
    }

    #[inline]
    fn read_nullable(input: &mut Decoder, form: Form) -> Result<Option<Self>, DecodeError> {
        Ok(Bytes::read_nullable(input, form)?.map(Self::from))
    }
}

/// Memory reserved for an array before its elements are read. A struct can be much larger in memory than on the wire,
/// so longer arrays grow while their elements are read.
const ARRAY_BYTES_UNSEEN_MAX: usize = 64 * 1024;

impl<T: Field> Nullable for Vec<T> {
    #[inline]
    fn write_nullable(value: Option<&Self>, out: &mut Encoder, form: Form) -> Result<(), EncodeError> {
        out.put_length(value.map(Self::len), form.length())?;
        for element in value.into_iter().flatten() {
            element.write(out, form)?;
        }
        Ok(())
    }

    #[inline]
    fn read_nullable(input: &mut Decoder, form: Form) -> Result<Option<Self>, DecodeError> {
        let Some(count) = input.array_length(form.length(), T::BYTES_MIN)? else {
            return Ok(None);
        };
        input.charge_elements::<T>(count)?;
        let mut elements = Self::with_capacity(count.min(ARRAY_BYTES_UNSEEN_MAX / size_of::<T>().max(1)));
        for _ in 0..count {
            elements.push(T::read(input, form)?);
        }
        Ok(Some(elements))
    }
}

/// A message that exceeds the maximum frame length.
pub(crate) fn frame_too_long(len: usize) -> EncodeError {
    EncodeFault::TooLong { len, max: i32::MAX as usize }.into()
}
