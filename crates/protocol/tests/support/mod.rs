//! Random messages, schemas and the Java client, for the tests of this crate.

#![allow(dead_code, reason = "every test file uses a part")]

pub(crate) mod java;
mod random;
pub(crate) mod schema_json;

pub(crate) use random::random_message;
