//! Messages: types with their own versions.

use std::ops::RangeInclusive;

use crate::api::ApiKey;
use crate::decode::Decoder;
use crate::encode::Encoder;
use crate::error::{DecodeError, DecodeFault, EncodeError, EncodeFault};
use crate::field::{Field, Form};
use crate::schema::{FieldType, Schema, Versions};

/// A request, a response, or a versioned blob: every type with `#[message]`.
pub trait Message: Field + Default {
    /// Kafka's name of the message.
    const NAME: &'static str;
    /// The supported versions.
    const VERSIONS: RangeInclusive<i16>;
    /// The versions that are final upstream, which a broker may advertise.
    const STABLE_VERSIONS: RangeInclusive<i16>;
    /// The first version with compact lengths and tagged fields; `i16::MAX` if there is none.
    const FLEXIBLE_FROM: i16;
    /// The schema, from the attributes.
    const SCHEMA: Schema = Schema {
        name: Self::NAME,
        versions: Versions { min: *Self::VERSIONS.start(), max: *Self::VERSIONS.end() },
        flexible_from: Self::FLEXIBLE_FROM,
        fields: match Self::TYPE {
            FieldType::Struct(structure) => structure.fields,
            _ => &[],
        },
    };

    /// The throttle time of a response, if it has one.
    fn throttle_time_ms(&self) -> i32 {
        0
    }

    /// `true` if `version` has compact lengths and tagged fields.
    #[inline]
    fn is_flexible(version: i16) -> bool {
        version >= Self::FLEXIBLE_FROM
    }

    /// Writes the message, without header and size.
    ///
    /// A value that `version` cannot represent is an error, unless the field is ignorable.
    fn encode(&self, out: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        if !Self::VERSIONS.contains(&version) {
            let (min, max) = (*Self::VERSIONS.start(), *Self::VERSIONS.end());
            return Err(EncodeError::from(EncodeFault::Version { version, min, max })
                .within_message(Self::NAME, version));
        }
        self.write(out, Form { version, flexible: Self::is_flexible(version) })
            .map_err(|error| error.within_message(Self::NAME, version))
    }

    /// Reads the message. Remaining bytes stay in `input`; see [`Decoder::finish`].
    fn decode(input: &mut Decoder, version: i16) -> Result<Self, DecodeError> {
        if !Self::VERSIONS.contains(&version) {
            let (min, max) = (*Self::VERSIONS.start(), *Self::VERSIONS.end());
            return Err(DecodeError::from(DecodeFault::Version { version, min, max })
                .within_message(Self::NAME, version));
        }
        Self::read(input, Form { version, flexible: Self::is_flexible(version) })
            .map_err(|error| error.within_message(Self::NAME, version))
    }
}

/// A request message.
pub trait Request: Message {
    /// The API key.
    const KEY: ApiKey;
    /// The response message.
    type Response: Message;
}
