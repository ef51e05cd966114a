//! Kafka's UUID: sixteen bytes, written as URL-safe base64 without padding.

use std::fmt;
use std::str::FromStr;

/// A topic id, a directory id, an incarnation id.
#[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Uuid(pub [u8; 16]);

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Number of characters for 128 bits, at six bits each.
const TEXT_LEN: usize = 22;

impl Uuid {
    /// All zero: no id.
    pub const ZERO: Self = Self([0; 16]);
    /// Reserved by Kafka for the metadata topic.
    pub const ONE: Self = Self(1_u128.to_be_bytes());

    /// `true` if this is [`Uuid::ZERO`].
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }
}

impl From<u128> for Uuid {
    fn from(value: u128) -> Self {
        Self(value.to_be_bytes())
    }
}

impl From<Uuid> for u128 {
    fn from(value: Uuid) -> Self {
        Self::from_be_bytes(value.0)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from(*self);
        let mut text = [0; TEXT_LEN];
        for (at, letter) in text.iter_mut().enumerate() {
            // 21 characters of six bits leave two bits, which are the highest of the last character.
            let six = match at {
                21 => bits << 4,
                _ => bits >> (122 - 6 * at),
            };
            *letter = ALPHABET[six as usize & 63];
        }
        f.pad(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// An error in the text of a UUID.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum UuidError {
    /// The length is not 22.
    #[error("a UUID has 22 characters, not {0}")]
    Length(usize),
    /// A character outside the URL-safe base64 alphabet.
    #[error("character {0} of the UUID is not URL-safe base64")]
    Letter(usize),
    /// The last character has bits beyond the sixteen bytes.
    #[error("the last character of the UUID has bits beyond the last two")]
    Excess,
}

impl FromStr for Uuid {
    type Err = UuidError;

    fn from_str(text: &str) -> Result<Self, UuidError> {
        if text.len() != TEXT_LEN {
            return Err(UuidError::Length(text.len()));
        }
        let mut bits = 0_u128;
        for (at, letter) in text.bytes().enumerate() {
            let six = match letter {
                b'A'..=b'Z' => letter - b'A',
                b'a'..=b'z' => letter - b'a' + 26,
                b'0'..=b'9' => letter - b'0' + 52,
                b'-' => 62,
                b'_' => 63,
                _ => return Err(UuidError::Letter(at)),
            };
            if at < 21 {
                bits = bits << 6 | u128::from(six);
            } else if six & 0xf != 0 {
                return Err(UuidError::Excess);
            } else {
                bits = bits << 2 | u128::from(six >> 4);
            }
        }
        Ok(Self::from(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_is_the_java_clients() {
        // Pairs printed by org.apache.kafka.common.Uuid.
        assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(Uuid::ONE.to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        let id = Uuid::from(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210);
        assert_eq!(id.to_string(), "ASNFZ4mrze_-3LqYdlQyEA");
        for id in [Uuid::ZERO, Uuid::ONE, id, Uuid([0xff; 16])] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        assert_eq!("short".parse::<Uuid>(), Err(UuidError::Length(5)));
        assert_eq!("AAAAAAAAAA+AAAAAAAAAAA".parse::<Uuid>(), Err(UuidError::Letter(10)));
        assert_eq!("AAAAAAAAAAAAAAAAAAAAAB".parse::<Uuid>(), Err(UuidError::Excess));
    }
}
