//! Who a client is, and what it may do.
//!
//! - `listener`: the settings of a listener: its address, TLS and SASL.
//! - `properties`: the same settings under Kafka's property names.
//! - `active_listener`: a listener as the connections of a running broker see it.
//! - `tls`: the server's side of TLS, with certificates that are read again when they change.
//! - `principal`: the identity of a client.
//! - `principal_rules`: the identity of a client certificate.
//! - `sasl`: the server's side of SASL.
//! - `unauthenticated`: the limit of connections that have not authenticated yet.

pub(crate) mod active_listener;
mod listener;
mod password;
mod principal;
mod principal_rules;
pub(crate) mod properties;
pub(crate) mod sasl;
pub(crate) mod tls;
mod unauthenticated;

pub use listener::{ClientAuth, Listener, OauthSettings, Pem, SaslMechanism, SaslSettings, TlsSettings};
pub use password::Password;
pub use principal_rules::PrincipalRules;

pub(crate) use principal::Principal;
