//! The identity and the rights of a client.
//!
//! - `principal`: the identity of a client.
//! - `authorizer`: the decision whether a client may do an operation, from super users and ACLs.
//! - `acl`: ACLs, and filters for them.
//! - `acl_index`: all ACLs by resource and principal.
//! - `audit`: the log of denied operations.

pub(crate) mod acl;
pub(crate) mod acl_index;
mod audit;
mod authorizer;
mod principal;

pub(crate) use authorizer::{Authorizer, Client};
pub(crate) use principal::Principal;
