//! Kafka's requests and responses as Rust structs, every version of each.
//!
//! ```text
//!  client                                                                              broker
//!  FetchRequest  --encode_request-->  Chain ~~ network ~~> Bytes  --RequestHeader::decode, decode_request-->  FetchRequest
//!                                                                                                                  |
//!  FetchResponse <--decode_response-- Bytes <~~ network ~~ Chain  <--encode_response--------------------------  FetchResponse
//!
//!  an encoder produces:    [size, header, fields][records, linked][fields][records, still in a file][fields]
//!  a decoder returns:       structs with owned values, and records as slices of the frame
//! ```
//!
//! # Messages
//!
//! The schema is Rust code: [`messages`] has one file per request, with structs whose attributes repeat Kafka's
//! schemas. `#[derive(Message)]` generates encoder, decoder, `Default` and [`schema`]. A conformance test compares
//! the bytes and the schemas with the Java client.
//!
//! | Attribute | Means | Without it |
//! |---|---|---|
//! | `#[message(versions = "3-13")]` | the versions of a whole message | a struct inside a message |
//! | `#[message(flexible = "9+")]` | versions with compact lengths and tagged fields | none |
//! | `#[message(api = Produce, response = ProduceResponse)]` | this is a [`Request`] | it is not |
//! | `#[message(latest_unstable)]` | Kafka does not advertise the newest version yet | it does |
//! | `#[field(versions = "3-9")]` | the versions that have the field | all |
//! | `#[field(nullable = "7+")]` | the versions in which an `Option` may be `None` | all |
//! | `#[field(tag = 0)]` | a tagged field, written only if it differs from its default | an ordinary one |
//! | `#[field(default = -1)]` | its value in versions without it; `null` for `None` | zero or empty |
//! | `#[field(ignorable)]` | versions without it may drop its value | setting it is an [`EncodeError`] |
//!
//! # Errors and limits
//!
//! [`EncodeError`] is the caller's fault, [`DecodeError`] the peer's; both contain message, version and field. A
//! decoder checks every length against the remaining bytes, and limits the memory of arrays to
//! [`Decoder::with_memory_max`]. [`frame_size`] rejects frames before a byte of them is read.
//!
//! # Example
//!
//! ```
//! use ottla_protocol::messages::metadata::{MetadataRequestTopic, MetadataResponseBroker};
//! use ottla_protocol::messages::{MetadataRequest, MetadataResponse};
//! use ottla_protocol::{ApiKey, Decoder, RequestHeader, decode_request, decode_response, encode_request, encode_response};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A client requests one topic, in version 12.
//! let topic = MetadataRequestTopic { name: Some("orders".into()), ..Default::default() };
//! let request = MetadataRequest { topics: Some(vec![topic]), ..Default::default() };
//! let sent = encode_request(1, Some("till-1"), 12, &request)?;
//!
//! // A broker reads the four-byte size, then the frame; the header identifies the message.
//! let frame = sent.to_bytes()?.slice(4..);
//! let mut input = Decoder::new(frame);
//! let header = RequestHeader::decode(&mut input)?;
//! assert_eq!(header.api_key, ApiKey::Metadata);
//! assert_eq!(decode_request::<MetadataRequest>(input, header.api_version)?, request);
//!
//! let broker = MetadataResponseBroker { node_id: 1, host: "localhost".into(), port: 9092, ..Default::default() };
//! let response = MetadataResponse { brokers: vec![broker], ..Default::default() };
//! let answered = encode_response::<MetadataRequest>(header.correlation_id, header.api_version, &response)?;
//!
//! // The correlation id identifies the request.
//! let frame = answered.to_bytes()?.slice(4..);
//! assert_eq!(decode_response::<MetadataRequest>(frame, 12)?, (1, response));
//! # Ok(())
//! # }
//! ```

// The derive generates `::ottla_protocol::..` paths, in this crate as in any other.
extern crate self as ottla_protocol;

pub mod api;
pub mod decode;
pub mod encode;
pub mod error;
pub mod error_code;
pub mod error_tally;
pub mod field;
pub mod frame;
pub mod header;
pub mod message;
pub mod messages;
pub mod schema;
pub mod uuid;

pub use api::{Api, ApiKey};
pub use decode::Decoder;
pub use encode::Encoder;
pub use error::{DecodeError, DecodeFault, EncodeError, EncodeFault};
pub use error_code::ErrorCode;
pub use error_tally::ErrorTally;
pub use frame::{FrameError, decode_request, decode_response, encode_request, encode_response, frame_size};
pub use header::{RequestHeader, peek_correlation_id};
pub use message::{Message, Request};
pub use ottla_protocol_derive::Message;
pub use uuid::Uuid;
