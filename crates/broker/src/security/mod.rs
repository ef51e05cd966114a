//! Identities of clients, and their rights. The settings are in `config`.
//!
//! - `active_listener`: a listener as the connections of a running broker see it.
//! - `listener_tls`: the TLS of a listener at each node.
//! - `tls`: the server's side of TLS, with certificates that are read again when they change.
//! - `principal`: the identity of a client.
//! - `sasl`: the server's side of SASL.
//! - `scram_credentials`: the keys that stand for passwords.
//! - `secure_dir`: the files of a secure broker and its clients.
//! - `subject`: the subject of a certificate as text.
//! - `authorizer`: the decision whether a client may do an operation, from super users and ACLs.
//! - `acl`: ACLs, and filters for them.
//! - `acl_index`: all ACLs by resource and principal.
//! - `audit`: the log of denied operations.
//! - `version_1`: client certificates that rustls does not read.

pub(crate) mod acl;
pub(crate) mod acl_index;
pub(crate) mod active_listener;
mod audit;
mod authorizer;
mod listener_tls;
mod principal;
pub(crate) mod sasl;
pub(crate) mod scram_credentials;
pub(crate) mod secure_dir;
mod subject;
pub(crate) mod tls;
mod version_1;

pub(crate) use authorizer::{Authorizer, Client};
pub(crate) use principal::Principal;
