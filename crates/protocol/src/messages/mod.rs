//! The messages, one file per request: the request, its answer, and the structs inside them.
//!
//! Names are Kafka's, in snake case; what the fields mean stands in Kafka's protocol guide. Structs inside messages stay in
//! the module of their request, since Kafka uses some names twice.
#![allow(missing_docs, reason = "the fields are Kafka's, and Kafka's protocol guide documents them")]

pub mod api_versions;
pub mod create_topics;
pub mod fetch;
pub mod list_offsets;
pub mod metadata;
pub mod produce;

pub use api_versions::{ApiVersionsRequest, ApiVersionsResponse};
pub use create_topics::{CreateTopicsRequest, CreateTopicsResponse};
pub use fetch::{FetchRequest, FetchResponse};
pub use list_offsets::{ListOffsetsRequest, ListOffsetsResponse};
pub use metadata::{MetadataRequest, MetadataResponse};
pub use produce::{ProduceRequest, ProduceResponse};

use crate::api::Api;

/// Every request of this crate, by key.
pub static REQUESTS: &[Api] = &[
    Api::of::<ProduceRequest>(),
    Api::of::<FetchRequest>(),
    Api::of::<ListOffsetsRequest>(),
    Api::of::<MetadataRequest>(),
    Api::of::<ApiVersionsRequest>(),
    Api::of::<CreateTopicsRequest>(),
];
