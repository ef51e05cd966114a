//! The control address of `ottla broker`: tests in any language make the broker misbehave over HTTP and JSON.
//!
//! ```text
//! ottla fault ... --> client --HTTP--> server --> ottla_broker::Control
//! a test's HTTP client ----------------^
//! ```

mod address;
pub(crate) mod client;
mod server;
mod token;

pub(crate) use address::ControlAddress;
pub(crate) use server::ControlServer;
