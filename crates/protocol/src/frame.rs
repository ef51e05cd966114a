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
use crate::error_tally::ErrorTally;
use crate::field::frame_too_long;
use crate::header::{is_response_header_flexible, put_request_header};
use crate::message::{Message, Request};

/// Size of a frame's length prefix in bytes.
pub const SIZE_BYTES: usize = 4;

/// Initial capacity: room for a request or response with a few partitions.
const INLINE_BYTES_EXPECTED: usize = 512;

/// An invalid frame size.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FrameError {
    /// The size is negative: the peer does not speak Kafka, or the stream is out of sync.
    #[error("frame of {0} bytes")]
    Negative(i32),
    /// The size exceeds the reader's limit.
    #[error("frame of {size} bytes, but at most {max} are allowed")]
    TooLarge {
        /// The declared size.
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

/// Encodes a whole request: size, header, message.
pub fn encode_request<R: Request>(
    correlation_id: i32,
    client_id: Option<&str>,
    version: i16,
    request: &R,
) -> Result<Chain, EncodeError> {
    let framed = framed(|out| {
        put_request_header(out, R::KEY, version, correlation_id, client_id, R::is_flexible(version))?;
        request.encode(out, version)
    });
    framed.map(|(chain, _)| chain)
}

/// Encodes a whole response to `R`: size, header, message.
///
/// The type of the request cannot be inferred: `encode_response::<FetchRequest>(..)`.
pub fn encode_response<R: Request>(
    correlation_id: i32,
    version: i16,
    response: &R::Response,
) -> Result<Chain, EncodeError> {
    encode_response_with_errors::<R>(correlation_id, version, response).map(|(chain, _)| chain)
}

/// [`encode_response`], and the error codes of the response.
pub fn encode_response_with_errors<R: Request>(
    correlation_id: i32,
    version: i16,
    response: &R::Response,
) -> Result<(Chain, ErrorTally), EncodeError> {
    framed(|out| {
        out.put_i32(correlation_id);
        if is_response_header_flexible(R::KEY, R::is_flexible(version)) {
            out.put_unsigned_varint(0);
        }
        response.encode(out, version)
    })
}

fn framed(
    write: impl FnOnce(&mut Encoder) -> Result<(), EncodeError>,
) -> Result<(Chain, ErrorTally), EncodeError> {
    let mut out = Encoder::with_capacity(INLINE_BYTES_EXPECTED);
    out.put_i32(0);
    write(&mut out)?;
    let size = out.len() - SIZE_BYTES;
    out.set_i32_at_front(i32::try_from(size).map_err(|_| frame_too_long(size))?);
    let errors = *out.errors();
    Ok((out.finish(), errors))
}

/// Decodes the message of a request frame after its header was read from `input`.
///
/// Remaining bytes are ignored, as in Apache Kafka's brokers. librdkafka 2.16 encodes "all topics" in Metadata 13
/// with a four-byte count instead of a single byte, and so sends three bytes too many.
pub fn decode_request<R: Request>(mut input: Decoder, version: i16) -> Result<R, DecodeError> {
    R::decode(&mut input, version)
}

/// Decodes a response to `R` from a frame without its size. Returns the correlation id and the message.
///
/// Remaining bytes are an error.
pub fn decode_response<R: Request>(frame: Bytes, version: i16) -> Result<(i32, R::Response), DecodeError> {
    let (correlation_id, response, input) = decode_response_start::<R>(frame, version)?;
    input.finish().map_err(|error| error.within_message(R::Response::NAME, version))?;
    Ok((correlation_id, response))
}

/// The same, for a peer that may send more than the message. Returns the number of remaining bytes too.
pub fn decode_response_prefix<R: Request>(
    frame: Bytes,
    version: i16,
) -> Result<(i32, R::Response, usize), DecodeError> {
    let (correlation_id, response, input) = decode_response_start::<R>(frame, version)?;
    Ok((correlation_id, response, input.remaining()))
}

fn decode_response_start<R: Request>(
    frame: Bytes,
    version: i16,
) -> Result<(i32, R::Response, Decoder), DecodeError> {
    let mut input = Decoder::new(frame);
    let correlation_id = input.i32()?;
    if is_response_header_flexible(R::KEY, R::is_flexible(version)) {
        input.skip_tags()?;
    }
    let response = R::Response::decode(&mut input, version)?;
    Ok((correlation_id, response, input))
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
