//! Tokens for SASL/OAUTHBEARER that the application gets.

use std::ffi::c_char;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use ottla_client::{
    Clock, Config, Mechanism, OauthCloud, OauthMethod, Secret, Token, TokenCallback, TokenFuture,
    TokenProvider,
};
use tokio::sync::Notify;

use crate::client::handle::Handle;
use crate::conf::Callbacks;
use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::c_strings::{c_string, text, write_errstr};
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::queue::op::Op;
use crate::queue::op_queue::OpQueue;

/// Token requests to the application, and its answer.
#[derive(Default)]
pub(crate) struct OauthTokens {
    /// `sasl.oauthbearer.config`, for the application.
    config: String,
    /// The application has a callback or an event for the requests. Without one, it sets tokens when it has some.
    is_asking: bool,
    /// A request is in the queue, and the engine has not asked yet.
    is_asked: AtomicBool,
    /// Lives as long as the request in the queue.
    queued: Mutex<Weak<()>>,
    answers: Mutex<Answers>,
    answered: Notify,
    clock: Clock,
    /// The queue of the requests: the main queue, unless `rd_kafka_conf_enable_sasl_queue` was called.
    queue: OnceLock<Arc<OpQueue>>,
    /// The queue is set.
    has_queue: Notify,
}

#[derive(Default)]
struct Answers {
    /// The last answer, until the engine takes it.
    next: Option<Result<Token, String>>,
    /// The last token that the application has set.
    last: Option<Token>,
    /// The text of the last failure since then.
    failure: Option<String>,
}

/// An application has so long for a token before it is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(10);

struct ApplicationTokens {
    tokens: Arc<OauthTokens>,
}

impl TokenProvider for ApplicationTokens {
    fn token(&self) -> TokenFuture<'_> {
        Box::pin(async {
            let mut must_ask = !self.tokens.is_asked.swap(false, Ordering::AcqRel);
            loop {
                if let Some(answer) = self.tokens.next_answer() {
                    return answer;
                }
                let Some(queue) = self.tokens.queue.get() else {
                    // The engine starts before the client has its queues.
                    self.tokens.has_queue.notified().await;
                    continue;
                };
                if must_ask {
                    self.tokens.ask(queue);
                }
                // An answer that was there before the question has left a notification.
                must_ask = tokio::time::timeout(ASK_AGAIN, self.tokens.answered.notified()).await.is_err();
            }
        })
    }
}

impl OauthTokens {
    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, answer: Result<Token, String>) {
        let mut answers = self.answers();
        if let Ok(token) = &answer {
            answers.last = Some(token.clone());
            answers.failure = None;
        }
        answers.next = Some(answer);
        drop(answers);
        self.answered.notify_one();
    }

    /// Records the text of a failure. Returns `true` if the application does not know it yet.
    fn is_new_failure(&self, reason: &str) -> bool {
        self.answers().failure.replace(reason.to_owned()).is_none_or(|last| last != reason)
    }

    /// The answer that the engine has not taken. An application that is not asked sets no other token because a broker refused the
    /// last one, perhaps while it could not verify any: that token is the answer again, until it expires.
    fn next_answer(&self) -> Option<Result<Token, String>> {
        let mut answers = self.answers();
        if let Some(answer) = answers.next.take() {
            return Some(answer);
        }
        let last = answers.last.as_ref().filter(|_| !self.is_asking)?;
        (self.clock.now_ms() < last.expires_at_ms).then(|| Ok(last.clone()))
    }

    /// Returns `true` if the application has set no other token after this one.
    fn is_last(&self, token: &Token) -> bool {
        self.answers().last.as_ref().is_some_and(|last| last.value == token.value)
    }

    /// Sets the queue of the requests. The first request is there at once: an application may poll right after the creation.
    pub(crate) fn set_queue(&self, queue: Arc<OpQueue>) {
        self.is_asked.store(true, Ordering::Release);
        self.ask(&queue);
        let _ = self.queue.set(queue);
        self.has_queue.notify_one();
    }

    /// Adds a request, unless one still waits for the application's poll.
    fn ask(&self, queue: &Arc<OpQueue>) {
        if !self.is_asking {
            return;
        }
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        if queued.strong_count() > 0 {
            return;
        }
        let request = Arc::new(());
        *queued = Arc::downgrade(&request);
        drop(queued);
        queue.push(Op::TokenRefresh(c_string(&self.config), request));
    }

    pub(crate) fn queue(&self) -> Option<Arc<OpQueue>> {
        self.queue.get().cloned()
    }
}

/// Returns `true` if the client authenticates with tokens.
pub(crate) fn uses_tokens(config: &Config) -> bool {
    config.security.protocol.is_sasl()
        && config.security.sasl.mechanism.unwrap_or_default() == Mechanism::OauthBearer
}

/// Has the client get its tokens from the application, if the client authenticates with them and has no source of its own.
/// Bindings want the event whatever the configuration: an event without a need would stay in their queues.
pub(crate) fn install(config: &mut Config, callbacks: &Callbacks) -> Option<Arc<OauthTokens>> {
    let is_asking = callbacks.oauthbearer_token_refresh.is_some()
        || callbacks.events & RD_KAFKA_EVENT_OAUTHBEARER_TOKEN_REFRESH != 0;
    if !uses_tokens(config) {
        return None;
    }
    let clock = config.clock.clone();
    let oauth = &mut config.security.sasl.oauthbearer;
    // As in the original, a callback takes the place of a token endpoint, and an event does not. Bindings get AWS tokens in their own
    // callback.
    let is_application = oauth.method == OauthMethod::Default
        || oauth.cloud == OauthCloud::AwsIam
        || callbacks.oauthbearer_token_refresh.is_some();
    let has_own =
        !is_application || (!is_asking && (oauth.unsecured_jwt || oauth.cloud == OauthCloud::AwsIam));
    if has_own {
        return None;
    }
    let config = oauth.config.as_ref().map_or_else(String::new, |config| config.expose().to_owned());
    let tokens = Arc::new(OauthTokens { config, is_asking, clock, ..OauthTokens::default() });
    oauth.callback = Some(TokenCallback::new(ApplicationTokens { tokens: tokens.clone() }));
    Some(tokens)
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_oauthbearer_set_token(
    rk: *mut rd_kafka_t,
    token_value: *const c_char,
    md_lifetime_ms: i64,
    md_principal_name: *const c_char,
    extensions: *mut *const c_char,
    extension_size: usize,
    errstr: *mut c_char,
    errstr_size: usize,
) -> rd_kafka_resp_err_t {
    // SAFETY: `errstr` is NULL or a buffer of `errstr_size` bytes (rdkafka.h, `rd_kafka_oauthbearer_set_token`).
    let refuse = |code, text: &str| unsafe {
        write_errstr(errstr, errstr_size, text);
        code
    };
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `token_value` and `md_principal_name`
    // are each NULL or a C string (rdkafka.h, `rd_kafka_oauthbearer_set_token`).
    let (handle, value, principal) =
        unsafe { (Handle::of(rk, FUNCTION), text(token_value), text(md_principal_name)) };
    let (Some(handle), Some(value), Some(principal)) = (handle, value, principal) else {
        return refuse(
            RD_KAFKA_RESP_ERR__INVALID_ARG,
            "the handle, the token or the principal's name is NULL",
        );
    };
    let Some(tokens) = handle.tokens() else {
        let text =
            "SASL/OAUTHBEARER is not the configured authentication mechanism, or no token callback is set";
        return refuse(RD_KAFKA_RESP_ERR__STATE, text);
    };
    if md_lifetime_ms <= handle.config.clock.now_ms() {
        return refuse(
            RD_KAFKA_RESP_ERR__INVALID_ARG,
            &format!(
                "Must supply an unexpired token: now={}ms, exp={md_lifetime_ms}ms",
                handle.config.clock.now_ms()
            ),
        );
    }
    if !extension_size.is_multiple_of(2) {
        return refuse(
            RD_KAFKA_RESP_ERR__INVALID_ARG,
            "Incorrect extension size: names and values go in pairs",
        );
    }
    let mut pairs = Vec::new();
    for at in (0..extension_size).step_by(2) {
        // SAFETY: `extensions` points to `extension_size` C strings (rdkafka.h, `rd_kafka_oauthbearer_set_token`).
        let pair = unsafe { (text(*extensions.add(at)), text(*extensions.add(at + 1))) };
        let (Some(name), Some(value)) = pair else {
            return refuse(RD_KAFKA_RESP_ERR__INVALID_ARG, "an extension's name or value is NULL");
        };
        pairs.push((name.into_owned(), value.into_owned()));
    }
    let token = Token {
        value: Secret::new(value.into_owned()),
        principal: principal.into_owned(),
        expires_at_ms: md_lifetime_ms,
        extensions: pairs,
    };
    if let Err(reason) = token.check() {
        return refuse(RD_KAFKA_RESP_ERR__INVALID_ARG, &reason);
    }
    tokens.say(Ok(token));
    // The engine may use an earlier token, and it asks for the next one much later.
    if let Some(client) = handle.client() {
        let tokens = tokens.clone();
        client.renew_sasl_token(move |used| tokens.is_last(used));
    }
    RD_KAFKA_RESP_ERR_NO_ERROR
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_oauthbearer_set_token_failure(
    rk: *mut rd_kafka_t,
    errstr: *const c_char,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `errstr` is NULL or a C string
    // (rdkafka.h, `rd_kafka_oauthbearer_set_token_failure`).
    let (Some(handle), Some(reason)) = (Handle::of(rk, FUNCTION), unsafe { text(errstr) }) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    if reason.is_empty() {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    let Some(tokens) = handle.tokens() else { return RD_KAFKA_RESP_ERR__STATE };
    // The application is asked again every ten seconds. As in the original, the same failure is reported once.
    if tokens.is_new_failure(&reason) {
        let told = format!("Failed to acquire SASL OAUTHBEARER token: {reason}");
        handle.main.push(Op::Error {
            code: RD_KAFKA_RESP_ERR__AUTHENTICATION,
            text: c_string(&told),
            fatal: false,
        });
    }
    tokens.say(Err(reason.into_owned()));
    RD_KAFKA_RESP_ERR_NO_ERROR
}

#[on_panic(std::ptr::null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_sasl_background_callbacks_enable(
    rk: *mut rd_kafka_t,
) -> *mut rd_kafka_error_t {
    let refuse = |code, text| rd_kafka_error_t::new(code, text).into_raw();
    let Some(handle) = Handle::shared(rk, FUNCTION) else {
        return refuse(RD_KAFKA_RESP_ERR__INVALID_ARG, "the handle is NULL");
    };
    let Some(queue) = handle.sasl_queue() else {
        return refuse(RD_KAFKA_RESP_ERR__NOT_CONFIGURED, "rd_kafka_conf_enable_sasl_queue() was not called");
    };
    queue.forward_to(Some(&handle.background_or_start()));
    std::ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicI64;

    use super::*;

    fn tokens(is_asking: bool, now_ms: &Arc<AtomicI64>) -> Arc<OauthTokens> {
        let clock = Clock::Fixed(now_ms.clone());
        Arc::new(OauthTokens { is_asking, clock, ..OauthTokens::default() })
    }

    /// A token that expires 1000 ms after 1970.
    fn token(value: &str) -> Token {
        let (value, principal) = (Secret::new(value), "anna".to_owned());
        Token { value, principal, expires_at_ms: 1000, extensions: Vec::new() }
    }

    fn value(answer: Option<Result<Token, String>>) -> Option<String> {
        Some(answer?.expect("a token").value.expose().to_owned())
    }

    /// The client had no token any more after a broker had refused it once, and waited for a call that never came.
    #[test]
    fn a_token_that_was_set_without_a_question_is_the_answer_until_it_expires() {
        let now_ms = Arc::new(AtomicI64::new(0));
        let tokens = tokens(false, &now_ms);
        assert!(tokens.next_answer().is_none(), "none is set");
        tokens.say(Ok(token("first")));
        let provider = ApplicationTokens { tokens: tokens.clone() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        for _ in 0..3 {
            let answer = runtime.block_on(async {
                let asked = tokio::time::timeout(Duration::from_secs(60), provider.token());
                asked.await.expect("there is a token")
            });
            assert_eq!(value(Some(answer)).as_deref(), Some("first"));
        }
        tokens.say(Ok(token("second")));
        for _ in 0..2 {
            assert_eq!(value(tokens.next_answer()).as_deref(), Some("second"));
        }
        now_ms.store(1000, Ordering::Relaxed);
        assert!(tokens.next_answer().is_none(), "it has expired");
    }

    /// Each ten seconds without a poll added one, and a poll called the application as often.
    #[test]
    fn one_request_waits_for_the_application() {
        let (tokens, queue) = (tokens(true, &Arc::default()), OpQueue::new());
        for _ in 0..3 {
            tokens.ask(&queue);
        }
        assert_eq!(queue.ops(), 1);
        drop(queue.poll(Some(Duration::ZERO)).expect("the request"));
        assert_eq!(queue.ops(), 0);
        tokens.ask(&queue);
        assert_eq!(queue.ops(), 1, "the application has not answered");
    }

    #[test]
    fn an_application_with_a_callback_is_asked_for_each_token() {
        let tokens = tokens(true, &Arc::default());
        tokens.say(Ok(token("first")));
        assert_eq!(value(tokens.next_answer()).as_deref(), Some("first"));
        assert!(tokens.next_answer().is_none(), "the next one is asked for");
    }

    /// The announcement of the first one discarded the second, which the client had got already.
    #[test]
    fn the_second_of_two_tokens_in_quick_succession_is_the_last_one() {
        let tokens = tokens(true, &Arc::default());
        for set in ["first", "second"] {
            tokens.say(Ok(token(set)));
        }
        assert!(tokens.is_last(&token("second")) && !tokens.is_last(&token("first")));
        tokens.say(Err("no token".to_owned()));
        assert!(tokens.is_last(&token("second")), "a failure is no token");
    }

    #[test]
    fn a_failure_is_reported_again_only_with_another_text_or_after_a_token() {
        let tokens = tokens(true, &Arc::default());
        assert!(tokens.is_new_failure("no endpoint"));
        assert!(!tokens.is_new_failure("no endpoint"));
        assert!(tokens.is_new_failure("refused"));
        tokens.say(Ok(token("first")));
        assert!(tokens.is_new_failure("refused"));
    }
}
