//! The token that all connections of a client share: its request, its renewal and its end.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::TokenSource;
use crate::clock::Clock;
use crate::panics;
use crate::security::{Token, TokenCallback};

/// The pause after a failed request for a token.
const TOKEN_RETRY: Duration = Duration::from_millis(TOKEN_RETRY_MS as u64);
const TOKEN_RETRY_MS: i64 = 10_000;

/// The token of a client, and the source of its successors.
pub(super) struct SharedToken {
    source: TokenSource,
    clock: Clock,
    stored: Mutex<Option<StoredToken>>,
    /// The last request, if it failed and no token was valid.
    failed: Mutex<Option<FailedRequest>>,
    /// Held while a token is requested: connections that need one at the same time share it.
    requesting: tokio::sync::Mutex<()>,
    /// Notified when the application replaces the token.
    replaced: Notify,
}

struct StoredToken {
    token: Token,
    since_ms: i64,
    /// The earliest time of the next request, after a failed one.
    retry_at_ms: i64,
}

struct FailedRequest {
    reason: String,
    /// The earliest time of the next request.
    retry_at_ms: i64,
}

impl StoredToken {
    fn is(&self, token: &Token) -> bool {
        self.token.value.expose() == token.value.expose()
    }

    fn is_valid(&self, now_ms: i64) -> bool {
        now_ms < self.token.expires_at_ms
    }

    /// The time until it must be replaced, if less than four fifths of its lifetime have passed or a request failed just
    /// now.
    fn renewal_in(&self, now_ms: i64) -> Option<Duration> {
        let four_fifths = self.token.expires_at_ms.saturating_sub(self.since_ms) / 5 * 4;
        let left_ms = (self.since_ms + four_fifths - now_ms).max(pause_ms(self.retry_at_ms, now_ms));
        u64::try_from(left_ms)
            .ok()
            .filter(|left_ms| *left_ms > 0 && self.is_valid(now_ms))
            .map(Duration::from_millis)
    }
}

impl SharedToken {
    pub(super) fn new(source: TokenSource, clock: Clock) -> Self {
        Self {
            source,
            clock,
            stored: Mutex::default(),
            failed: Mutex::default(),
            requesting: tokio::sync::Mutex::default(),
            replaced: Notify::new(),
        }
    }

    fn stored(&self) -> MutexGuard<'_, Option<StoredToken>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self) -> MutexGuard<'_, Option<FailedRequest>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a token that has not expired: the last one, if at least a fifth of its lifetime remains, or if a request for
    /// the next one is under way or has failed just now. After a failed request without such a token, the connections of the next
    /// ten seconds fail for the same reason: each one would call the application, which reports its failure.
    pub(super) async fn get(&self) -> Result<Token, String> {
        if let Some((token, _)) = self.fresh() {
            return Ok(token);
        }
        let _one_requests = match (self.requesting.try_lock(), self.valid()) {
            (Ok(guard), _) => guard,
            // A source that does not answer must not delay connections that have a token.
            (Err(_), Some(token)) => return Ok(token),
            (Err(_), None) => self.requesting.lock().await,
        };
        if let Some((token, _)) = self.fresh() {
            return Ok(token);
        }
        let now_ms = self.clock.now_ms();
        let is_recent = |failed: &&FailedRequest| pause_ms(failed.retry_at_ms, now_ms) > 0;
        let recent = self.failed().as_ref().filter(is_recent).map(|failed| failed.reason.clone());
        if let (Some(reason), None) = (recent, self.valid()) {
            return Err(reason);
        }
        match self.request(now_ms).await {
            Ok(token) => {
                self.failed().take();
                let stored = StoredToken { token: token.clone(), since_ms: now_ms, retry_at_ms: now_ms };
                *self.stored() = Some(stored);
                Ok(token)
            }
            Err(reason) => self.keep(reason),
        }
    }

    async fn request(&self, now_ms: i64) -> Result<Token, String> {
        let token = match &self.source {
            TokenSource::Callback(callback) => of_application(callback).await?,
            TokenSource::Oidc(endpoint) => endpoint.token(now_ms).await?,
            TokenSource::Aws(tokens) => tokens.token(now_ms).await?,
            TokenSource::Unsecured(claims) => claims.token(now_ms),
        };
        let late_ms = self.clock.now_ms().saturating_sub(token.expires_at_ms);
        if late_ms >= 0 {
            return Err(format!("the token of `{}` expired {late_ms} ms ago", token.principal));
        }
        Ok(token)
    }

    /// The last token stays in use after a failed request, until it expires.
    fn keep(&self, reason: String) -> Result<Token, String> {
        let now_ms = self.clock.now_ms();
        let retry_at_ms = now_ms.saturating_add(TOKEN_RETRY_MS);
        let mut stored = self.stored();
        let Some(stored) = stored.as_mut().filter(|stored| stored.is_valid(now_ms)) else {
            *self.failed() = Some(FailedRequest { reason: reason.clone(), retry_at_ms });
            return Err(reason);
        };
        tracing::debug!(reason, "no new token for OAUTHBEARER; the last one is still valid");
        stored.retry_at_ms = retry_at_ms;
        Ok(stored.token.clone())
    }

    /// The last token and the time until its renewal.
    fn fresh(&self) -> Option<(Token, Duration)> {
        let now_ms = self.clock.now_ms();
        let stored = self.stored();
        let stored = stored.as_ref()?;
        Some((stored.token.clone(), stored.renewal_in(now_ms)?))
    }

    /// The last token, if it has not expired.
    fn valid(&self) -> Option<Token> {
        let now_ms = self.clock.now_ms();
        self.stored().as_ref().filter(|stored| stored.is_valid(now_ms)).map(|stored| stored.token.clone())
    }

    /// Gets tokens before there is a connection, and later ones before the last expires, until it is dropped.
    pub(super) async fn keep_fresh(&self) {
        if matches!(self.source, TokenSource::Unsecured(_)) {
            return;
        }
        loop {
            if let Err(reason) = self.get().await {
                tracing::debug!(reason, "no token for OAUTHBEARER");
            }
            let pause = self.fresh().map_or(TOKEN_RETRY, |(_, left)| left);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.replaced.notified() => {}
            }
        }
    }

    /// Discards a token that the broker refused: the next attempt requests a new one. Another connection may have got it
    /// already.
    pub(super) fn forget(&self, refused: &Token) {
        let mut stored = self.stored();
        if stored.as_ref().is_some_and(|stored| stored.is(refused)) {
            stored.take();
        }
    }

    /// Discards the token unless it is the source's current one: a request that was under way may have got that already.
    pub(super) fn discard_unless(&self, is_current: impl FnOnce(&Token) -> bool) {
        self.failed().take();
        let mut stored = self.stored();
        if stored.as_ref().is_none_or(|stored| !is_current(&stored.token)) {
            stored.take();
            drop(stored);
            self.replaced.notify_one();
        }
    }
}

/// The rest of the pause after a failed request. A longer one than the whole pause is over: the wall clock was set back.
fn pause_ms(retry_at_ms: i64, now_ms: i64) -> i64 {
    let left_ms = retry_at_ms.saturating_sub(now_ms);
    if (0..=TOKEN_RETRY_MS).contains(&left_ms) { left_ms } else { 0 }
}

/// The token of the application's provider. A panic of the provider is a failed request: the client continues.
async fn of_application(callback: &TokenCallback) -> Result<Token, String> {
    let request = async {
        // A closure panics here, before there is a future.
        let token = callback.token();
        token.await
    };
    let caught = panics::caught(request).await;
    caught.unwrap_or_else(|panic| Err(format!("the token provider has panicked: {panic}")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

    use super::*;
    use crate::security::{TokenFuture, TokenProvider};

    /// Numbers its tokens, each valid for 100 seconds.
    #[derive(Default)]
    struct Source {
        now_ms: Arc<AtomicI64>,
        is_down: AtomicBool,
        hangs: AtomicBool,
        panics: AtomicBool,
        requests: AtomicU64,
    }

    impl TokenProvider for Arc<Source> {
        fn token(&self) -> TokenFuture<'_> {
            Box::pin(async {
                let number = self.requests.fetch_add(1, Ordering::Relaxed);
                if self.hangs.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                assert!(!self.panics.load(Ordering::Relaxed), "no keys");
                if self.is_down.load(Ordering::Relaxed) {
                    return Err("down".into());
                }
                let expires_at_ms = self.now_ms.load(Ordering::Relaxed) + 100_000;
                let (value, principal) = (number.to_string().into(), "alice".into());
                Ok(Token { value, principal, expires_at_ms, extensions: Vec::new() })
            })
        }
    }

    fn shared(source: &Arc<Source>) -> SharedToken {
        let callback = TokenSource::Callback(TokenCallback::new(source.clone()));
        SharedToken::new(callback, Clock::Fixed(source.now_ms.clone()))
    }

    async fn value(shared: &SharedToken) -> Result<String, String> {
        shared.get().await.map(|token| token.value.expose().to_owned())
    }

    #[tokio::test]
    async fn a_token_is_used_until_it_expires_if_there_is_no_newer_one() {
        let source = Arc::<Source>::default();
        let shared = shared(&source);
        assert_eq!(value(&shared).await, Ok("0".into()));
        source.is_down.store(true, Ordering::Relaxed);
        for (now_ms, requests) in [(79_000, 1), (81_000, 2), (90_000, 2), (91_001, 3)] {
            source.now_ms.store(now_ms, Ordering::Relaxed);
            assert_eq!(value(&shared).await, Ok("0".into()), "at {now_ms}");
            assert_eq!(source.requests.load(Ordering::Relaxed), requests, "at {now_ms}");
        }
        source.now_ms.store(100_000, Ordering::Relaxed);
        assert_eq!(value(&shared).await, Err("down".into()));
        source.is_down.store(false, Ordering::Relaxed);
        source.now_ms.store(110_000, Ordering::Relaxed);
        assert_eq!(value(&shared).await, Ok("4".into()));
    }

    /// Each attempt to connect called the application, which reported the same error again.
    #[tokio::test]
    async fn a_failed_request_is_repeated_after_a_pause_or_when_there_is_another_token() {
        let source = Arc::<Source>::default();
        let shared = shared(&source);
        source.is_down.store(true, Ordering::Relaxed);
        for (now_ms, requests) in [(0, 1), (5_000, 1), (9_999, 1), (10_000, 2)] {
            source.now_ms.store(now_ms, Ordering::Relaxed);
            assert_eq!(value(&shared).await, Err("down".into()), "at {now_ms}");
            assert_eq!(source.requests.load(Ordering::Relaxed), requests, "at {now_ms}");
        }
        source.is_down.store(false, Ordering::Relaxed);
        assert_eq!(value(&shared).await, Err("down".into()), "the pause is not over");
        shared.discard_unless(|_| false);
        assert_eq!(value(&shared).await, Ok("2".into()));
    }

    #[tokio::test]
    async fn a_request_without_an_answer_does_not_delay_the_use_of_a_valid_token() {
        let source = Arc::<Source>::default();
        let shared = shared(&source);
        assert_eq!(value(&shared).await, Ok("0".into()));
        source.hangs.store(true, Ordering::Relaxed);
        source.now_ms.store(81_000, Ordering::Relaxed);
        tokio::select! {
            biased;
            token = value(&shared) => panic!("{token:?} without an answer"),
            token = value(&shared) => assert_eq!(token, Ok("0".into())),
        }
    }

    /// No connection had a token until the clock had caught up.
    #[tokio::test]
    async fn a_clock_that_is_set_back_ends_the_pause_after_a_failed_request() {
        let source = Arc::<Source>::default();
        let shared = shared(&source);
        let hour_ms = 3_600_000;
        source.now_ms.store(hour_ms, Ordering::Relaxed);
        source.is_down.store(true, Ordering::Relaxed);
        assert_eq!(value(&shared).await, Err("down".into()));
        source.is_down.store(false, Ordering::Relaxed);
        source.now_ms.store(0, Ordering::Relaxed);
        assert_eq!(value(&shared).await, Ok("1".into()));

        // A token is renewed at its time although the clock was set back after a failed renewal.
        source.is_down.store(true, Ordering::Relaxed);
        source.now_ms.store(99_000, Ordering::Relaxed);
        assert_eq!(value(&shared).await, Ok("1".into()), "the last token is valid");
        source.is_down.store(false, Ordering::Relaxed);
        source.now_ms.store(85_000, Ordering::Relaxed);
        assert_eq!(value(&shared).await, Ok("3".into()));
    }

    /// The panic ended the task that renews tokens, and with it the client.
    #[tokio::test]
    async fn a_panic_of_the_provider_is_a_failed_request() {
        let source = Arc::<Source>::default();
        let shared = shared(&source);
        source.panics.store(true, Ordering::Relaxed);
        assert_eq!(value(&shared).await, Err("the token provider has panicked: no keys".into()));
        source.panics.store(false, Ordering::Relaxed);
        source.now_ms.store(10_000, Ordering::Relaxed);
        assert_eq!(value(&shared).await, Ok("1".into()));

        // A closure panics before there is a future.
        let provider = || -> Result<Token, String> { panic!("no file") };
        let callback = TokenSource::Callback(TokenCallback::new(provider));
        let shared = SharedToken::new(callback, Clock::Fixed(source.now_ms.clone()));
        assert_eq!(value(&shared).await, Err("the token provider has panicked: no file".into()));
    }

    #[tokio::test]
    async fn only_the_refused_token_is_forgotten() {
        let source = Arc::<Source>::default();
        let shared = shared(&source);
        let refused = shared.get().await.expect("a token");
        source.now_ms.store(81_000, Ordering::Relaxed);
        assert_eq!(value(&shared).await, Ok("1".into()));
        shared.forget(&refused);
        assert_eq!(value(&shared).await, Ok("1".into()), "the newer one stays");
        let newer = shared.get().await.expect("a token");
        shared.forget(&newer);
        assert_eq!(value(&shared).await, Ok("2".into()));
    }

    #[tokio::test]
    async fn a_replaced_token_is_requested_at_once() {
        let source = Arc::<Source>::default();
        let shared = shared(&source);
        tokio::select! {
            biased;
            () = shared.keep_fresh() => panic!("it never ends"),
            () = async {
                while source.requests.load(Ordering::Relaxed) == 0 {
                    tokio::task::yield_now().await;
                }
                shared.get().await.expect("a token");
                shared.discard_unless(|used| used.value.expose() == "other");
                while source.requests.load(Ordering::Relaxed) == 1 {
                    tokio::task::yield_now().await;
                }
            } => {}
        }
        let current = shared.get().await.expect("a token");
        assert_eq!(current.value.expose(), "1");
        shared.discard_unless(|used| used.value.expose() == "1");
        assert_eq!(value(&shared).await, Ok("1".into()), "it is the source's");
    }
}
