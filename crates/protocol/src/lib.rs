//! Kafka's requests and responses as Rust structs, every version of each.
//!
//! ```text
//!   ProduceRequest --encode_request--> Chain ~~ network ~~> Bytes --RequestHeader::decode, decode_request--> ProduceRequest
//! ```

extern crate self as ottla_protocol;

pub mod api;
pub mod decode;
pub mod encode;
pub mod error;
pub mod error_code;
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
pub use frame::{FrameError, decode_request, decode_response, encode_request, encode_response, frame_size};
pub use header::RequestHeader;
pub use message::{Message, Request};
pub use ottla_protocol_derive::Message;
pub use uuid::Uuid;
