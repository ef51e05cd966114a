//! The end of a connection whose peer is to receive every response.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Transport;

/// The time that a peer has to close its side after the last response.
const LINGER_MAX: Duration = Duration::from_secs(1);
/// The unread bytes of a peer that are dropped at a time.
const DROPPED_BYTES: usize = 4 << 10;

/// Ends a connection so that the peer receives every response: a socket with unread bytes is reset when it is closed.
pub(super) async fn end_gently<T: Transport>(io: &mut T) {
    let ended = async {
        io.shutdown().await?;
        let mut unread = Vec::with_capacity(DROPPED_BYTES);
        while io.read_buf(&mut unread).await? > 0 {
            unread.clear();
        }
        std::io::Result::Ok(())
    };
    match tokio::time::timeout(LINGER_MAX, ended).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a drained connection was cut"),
        Err(_) => tracing::debug!("a drained connection was not closed by its peer"),
    }
}
