//! The control address of `ottla broker`: tests in any language make the broker misbehave over HTTP and JSON.
//!
//! ```text
//! ottla fault ... --> client --HTTP--> server --> routes --> Cluster
//! a test's HTTP client ----------------^
//! ```

mod address;
mod bodies;
pub(crate) mod client;
mod routes;
mod server;
mod token;

pub(crate) use address::ControlAddress;
pub(crate) use routes::NewNode;
pub(crate) use server::{ControlServer, next_node};
