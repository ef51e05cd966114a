//! OAUTHBEARER (RFC 7628): a token in place of a password.

use super::{Authenticator, SaslChannel, SaslExchange};
use crate::error::Error;

const SEPARATOR: char = '\x01';

pub(super) async fn prove<L: SaslChannel>(
    exchange: &mut SaslExchange<'_, L>,
    authenticator: &Authenticator,
) -> Result<(), Error> {
    let token =
        authenticator.token().await.map_err(|reason| exchange.refused(&format!("no token: {reason}")))?;
    token.check().map_err(|reason| exchange.refused(&reason))?;
    let mut message = format!("n,,{SEPARATOR}auth=Bearer {}{SEPARATOR}", token.value.expose());
    for (key, value) in &token.extensions {
        for part in [key.as_str(), "=", value.as_str()] {
            message.push_str(part);
        }
        message.push(SEPARATOR);
    }
    message.push(SEPARATOR);
    let answer = exchange.say(message.into_bytes()).await;
    match answer {
        Ok(answer) if answer.is_empty() => Ok(()),
        Ok(problem) => {
            authenticator.forget_token(&token);
            // An error is a JSON object; the exchange ends with a message of one byte and the broker's error.
            let status = serde_json::from_slice::<serde_json::Value>(&problem).ok();
            let status =
                status.as_ref().and_then(|json| json["status"].as_str()).unwrap_or("no reason given");
            let reason = format!("the broker refuses the token of `{}`: {status}", token.principal);
            match exchange.say(vec![SEPARATOR as u8]).await {
                Err(Error::Authentication { reason: detail, .. }) => {
                    Err(exchange.refused(&format!("{reason} ({detail})")))
                }
                _ => Err(exchange.refused(&reason)),
            }
        }
        Err(error) => {
            // A lost connection says nothing about the token.
            if matches!(error, Error::Authentication { .. }) {
                authenticator.forget_token(&token);
            }
            Err(error)
        }
    }
}
