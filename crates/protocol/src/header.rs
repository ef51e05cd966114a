//! The headers of requests and responses.

use bytes::Bytes;

use crate::api::ApiKey;
use crate::decode::Decoder;
use crate::encode::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::field::{Field, Form};

/// The header of every request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RequestHeader {
    /// The type of the request.
    pub api_key: ApiKey,
    /// The version of the request and of its response.
    pub api_version: i16,
    /// The response has the same id.
    pub correlation_id: i32,
    /// The client's name for itself.
    pub client_id: Option<String>,
}

/// The client id keeps its two-byte length when the rest of the header is flexible (KIP-482), so that a broker can
/// read this much of a header whatever the version.
const CLIENT_ID: Form = Form { version: 2, flexible: false };

impl RequestHeader {
    /// Writes the header. A flexible message has a flexible header: version 2 instead of 1.
    pub fn encode(&self, out: &mut Encoder, flexible: bool) -> Result<(), EncodeError> {
        put_request_header(
            out,
            self.api_key,
            self.api_version,
            self.correlation_id,
            self.client_id.as_deref(),
            flexible,
        )
    }

    /// Reads the header. An unknown key or version is not an error here.
    ///
    /// [`ApiKey::is_flexible`] determines if the header is flexible. For requests that this crate does not implement,
    /// tagged fields remain in `input`.
    pub fn decode(input: &mut Decoder) -> Result<Self, DecodeError> {
        Self::read(input).map_err(|error| error.within("RequestHeader"))
    }

    fn read(input: &mut Decoder) -> Result<Self, DecodeError> {
        let api_key = ApiKey::from_i16(input.i16()?);
        let api_version = input.i16()?;
        let correlation_id = input.i32()?;
        let client_id =
            Option::<String>::read(input, CLIENT_ID).map_err(|error| error.within("client_id"))?;
        if api_key.is_flexible(api_version) {
            input.skip_tags()?;
        }
        Ok(Self { api_key, api_version, correlation_id, client_id })
    }
}

/// Writes the header of a request.
pub(crate) fn put_request_header(
    out: &mut Encoder,
    api_key: ApiKey,
    api_version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
    flexible: bool,
) -> Result<(), EncodeError> {
    out.put_i16(api_key.code());
    out.put_i16(api_version);
    out.put_i32(correlation_id);
    out.put_length(client_id.map(str::len), CLIENT_ID.string_length())
        .map_err(|error| error.within("client_id").within("RequestHeader"))?;
    out.put_slice(client_id.unwrap_or_default().as_bytes());
    if flexible {
        out.put_unsigned_varint(0);
    }
    Ok(())
}

/// `true` if the response header to a request has tagged fields.
///
/// The response header to ApiVersions never has them, because the client does not know the broker's versions yet.
#[inline]
pub fn is_response_header_flexible(api_key: ApiKey, is_flexible: bool) -> bool {
    is_flexible && api_key != ApiKey::ApiVersions
}

/// Reads the correlation id at the start of a response frame without consuming it.
pub fn peek_correlation_id(frame: &Bytes) -> Result<i32, DecodeError> {
    Decoder::new(frame.clone()).i32().map_err(|error| error.within("correlation_id").within("ResponseHeader"))
}
