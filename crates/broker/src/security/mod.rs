//! Who a client is, and what it may do.
//!
//! - `principal`: the identity of a client.

mod principal;

pub(crate) use principal::Principal;
