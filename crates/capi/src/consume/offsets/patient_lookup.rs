//! Lookups of offsets that wait for a broker: as in the original, a call lasts until its timeout if no broker can be reached.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ottla_client::{Client, Error};

use super::wait_on;

/// Between two looks for a broker that can be reached.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Repeats a request while no broker can be reached, at most for `timeout`. Returns [`Error::Unreachable`] if there was none until the
/// end.
pub(super) fn wait_on_reachable<T, F>(
    client: &Client,
    timeout: Duration,
    ask: impl Fn() -> F + Send + 'static,
) -> Result<T, Error>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    let deadline = Instant::now() + timeout;
    let last: Arc<Mutex<Option<Error>>> = Arc::default();
    let noted = last.clone();
    let answered = wait_on(client, timeout, async move {
        loop {
            match ask().await {
                Err(error @ Error::Unreachable { .. }) => {
                    *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
                    // No caller waits any more.
                    if Instant::now() >= deadline {
                        return Err(error);
                    }
                    tokio::time::sleep(ASKED_AGAIN_AFTER).await;
                }
                answer => {
                    noted.lock().unwrap_or_else(PoisonError::into_inner).take();
                    return answer;
                }
            }
        }
    });
    match answered {
        Err(error @ Error::TimedOut { .. }) => {
            Err(last.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or(error))
        }
        answer => answer,
    }
}
