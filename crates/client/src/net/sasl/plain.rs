//! PLAIN (RFC 4616): the password itself.

use super::{Exchange, Line};
use crate::error::Error;
use crate::security::SaslSettings;

pub(super) async fn prove<L: Line>(
    exchange: &mut Exchange<'_, L>,
    settings: &SaslSettings,
) -> Result<(), Error> {
    let username = settings.username.as_deref().unwrap_or_default();
    let password = settings.password.as_ref().map(crate::security::Secret::expose).unwrap_or_default();
    let message = [b"\0", username.as_bytes(), b"\0", password.as_bytes()].concat();
    exchange.say(message).await.map(|_| ())
}
