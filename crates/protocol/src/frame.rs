//! Whole frames: size, header, message.
//!
//! ```text
//! request   size i32 | key i16 | version i16 | correlation i32 | client id | tags? | message
//! response  size i32 | correlation i32 | tags? | message
//! ```

use bytes::Bytes;
use ottla_wire::Chain;

use crate::decode::Decoder;
use crate::encode::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::field::frame_too_long;
use crate::header::{is_response_header_flexible, put_request_header};
use crate::message::{Message, Request};

/// The bytes before a frame that say its size.
pub const SIZE_BYTES: usize = 4;

/// Room for a request or an answer with a handful of partitions; larger ones grow.
const INLINE_BYTES_EXPECTED: usize = 512;

/// Why a size is not that of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FrameError {
    /// The size is below zero: the peer does not speak Kafka, or not any more.
    #[error("frame of {0} bytes")]
    Negative(i32),
    /// The size is beyond what the reader takes.
    #[error("frame of {size} bytes, but at most {max} are taken")]
    TooLarge {
        /// The size claimed.
        size: usize,
        /// The reader's limit.
        max: usize,
    },
}

/// The size of the frame that follows `prefix`, if it is at most `max`.
pub fn frame_size(prefix: [u8; SIZE_BYTES], max: usize) -> Result<usize, FrameError> {
    let size = i32::from_be_bytes(prefix);
    match usize::try_from(size) {
        Err(_) => Err(FrameError::Negative(size)),
        Ok(size) if size > max => Err(FrameError::TooLarge { size, max }),
        Ok(size) => Ok(size),
    }
}

/// A request, ready to be sent: size, header, message.
pub fn encode_request<R: Request>(
    correlation_id: i32,
    client_id: Option<&str>,
    version: i16,
    request: &R,
) -> Result<Chain, EncodeError> {
    framed(|out| {
        put_request_header(out, R::KEY, version, correlation_id, client_id, R::is_flexible(version))?;
        request.encode(out, version)
    })
}

/// An answer to `R`, ready to be sent: size, header, message.
///
/// The type of the request cannot be inferred: `encode_response::<FetchRequest>(..)`.
pub fn encode_response<R: Request>(
    correlation_id: i32,
    version: i16,
    response: &R::Response,
) -> Result<Chain, EncodeError> {
    framed(|out| {
        out.put_i32(correlation_id);
        if is_response_header_flexible(R::KEY, R::is_flexible(version)) {
            out.put_unsigned_varint(0);
        }
        response.encode(out, version)
    })
}

fn framed(write: impl FnOnce(&mut Encoder) -> Result<(), EncodeError>) -> Result<Chain, EncodeError> {
    let mut out = Encoder::with_capacity(INLINE_BYTES_EXPECTED);
    out.put_i32(0);
    write(&mut out)?;
    let size = out.len() - SIZE_BYTES;
    out.set_i32_at_front(i32::try_from(size).map_err(|_| frame_too_long(size))?);
    Ok(out.finish())
}

/// Reads the message of a request frame whose header was read from `input`.
///
/// Bytes that are left are ignored, as Apache Kafka's brokers ignore them: librdkafka 2.16 says "all topics" in
/// Metadata 13 with a count of four bytes where one is the whole count, and so sends three too many.
pub fn decode_request<R: Request>(mut input: Decoder, version: i16) -> Result<R, DecodeError> {
    R::decode(&mut input, version)
}

/// Reads an answer to `R` from a frame without its size: the correlation id and the message.
///
/// Bytes that are left are an error.
pub fn decode_response<R: Request>(frame: Bytes, version: i16) -> Result<(i32, R::Response), DecodeError> {
    let mut input = Decoder::new(frame);
    let correlation_id = input.i32()?;
    if is_response_header_flexible(R::KEY, R::is_flexible(version)) {
        input.skip_tags()?;
    }
    let response = R::Response::decode(&mut input, version)?;
    input.finish().map_err(|error| error.within_message(R::Response::NAME, version))?;
    Ok((correlation_id, response))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_checked_before_anything_is_read() {
        assert_eq!(frame_size([0, 0, 0, 9], 9), Ok(9));
        assert_eq!(frame_size([0, 0, 0, 10], 9), Err(FrameError::TooLarge { size: 10, max: 9 }));
        assert_eq!(frame_size([0xff; 4], 9), Err(FrameError::Negative(-1)));
    }
}
