//! Identities of clients, and their rights. The settings are in `config`.
//!
//! - `active_listener`: a listener as the connections of a running broker see it.
//! - `tls`: the server's side of TLS, with certificates that are read again when they change.
//! - `principal`: the identity of a client.
//! - `sasl`: the server's side of SASL.
//! - `secure_dir`: the files of a secure broker and its clients.
//! - `unauthenticated`: the limit of connections that have not authenticated yet.

pub(crate) mod active_listener;
mod principal;
pub(crate) mod sasl;
pub(crate) mod secure_dir;
pub(crate) mod tls;
mod unauthenticated;

pub(crate) use principal::Principal;
