//! PLAIN (RFC 4616): sends the password itself.

use super::{Credentials, SaslChannel, SaslExchange};
use crate::error::Error;

pub(super) async fn prove<L: SaslChannel>(
    exchange: &mut SaslExchange<'_, L>,
    credentials: &Credentials,
) -> Result<(), Error> {
    let (username, password) = (credentials.username.as_bytes(), credentials.password.expose().as_bytes());
    let message = [b"\0", username, b"\0", password].concat();
    exchange.say(message).await.map(|_| ())
}
