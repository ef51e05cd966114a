//! Messages: what has a version of its own.

use std::ops::RangeInclusive;

use crate::api::ApiKey;
use crate::decode::Decoder;
use crate::encode::Encoder;
use crate::error::{DecodeError, DecodeFault, EncodeError, EncodeFault};
use crate::field::{Field, Form};
use crate::schema::{FieldType, Schema, Versions};

/// A request, a response, or a blob with a version: everything that `#[message]` stands on.
pub trait Message: Field + Default {
    /// Kafka's name for it.
    const NAME: &'static str;
    /// The versions it has.
    const VERSIONS: RangeInclusive<i16>;
    /// The versions that will not change any more upstream: what a broker may advertise.
    const STABLE_VERSIONS: RangeInclusive<i16>;
    /// The first version with compact lengths and tagged fields; `i16::MAX` if there is none.
    const FLEXIBLE_FROM: i16;
    /// All that its attributes say.
    const SCHEMA: Schema = Schema {
        name: Self::NAME,
        versions: Versions { min: *Self::VERSIONS.start(), max: *Self::VERSIONS.end() },
        flexible_from: Self::FLEXIBLE_FROM,
        fields: match Self::TYPE {
            FieldType::Struct(structure) => structure.fields,
            _ => &[],
        },
    };

    /// For how long the broker throttles, if the message is an answer that can say so.
    fn throttle_time_ms(&self) -> i32 {
        0
    }

    /// Whether `version` has compact lengths and tagged fields.
    #[inline]
    fn is_flexible(version: i16) -> bool {
        version >= Self::FLEXIBLE_FROM
    }

    /// Writes the message, without header or size.
    ///
    /// A value that `version` cannot carry is an error, unless the field is ignorable.
    fn encode(&self, out: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        if !Self::VERSIONS.contains(&version) {
            let (min, max) = (*Self::VERSIONS.start(), *Self::VERSIONS.end());
            return Err(EncodeError::from(EncodeFault::Version { version, min, max })
                .within_message(Self::NAME, version));
        }
        self.write(out, Form { version, flexible: Self::is_flexible(version) })
            .map_err(|error| error.within_message(Self::NAME, version))
    }

    /// Reads the message. Bytes that follow stay in `input`; see [`Decoder::finish`].
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

/// A message that asks.
pub trait Request: Message {
    /// What it asks for.
    const KEY: ApiKey;
    /// What answers it.
    type Response: Message;
}
