//! Tokens for SASL/OAUTHBEARER that the application gets.

use std::ffi::c_char;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ottla_client::{
    Config, Mechanism, OauthCloud, OauthMethod, Secret, Token, TokenCallback, TokenFuture, TokenProvider,
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
    answer: Mutex<Option<Result<Token, String>>>,
    answered: Notify,
    /// The queue of the requests: the main queue, unless `rd_kafka_conf_enable_sasl_queue` was called.
    queue: OnceLock<Arc<OpQueue>>,
    /// The queue is set.
    has_queue: Notify,
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
                if let Some(answer) = self.tokens.answer().take() {
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
    fn answer(&self) -> MutexGuard<'_, Option<Result<Token, String>>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, answer: Result<Token, String>) {
        *self.answer() = Some(answer);
        self.answered.notify_one();
    }

    /// Sets the queue of the requests. The first request is there at once: an application may poll right after the creation.
    pub(crate) fn set_queue(&self, queue: Arc<OpQueue>) {
        self.is_asked.store(true, Ordering::Release);
        self.ask(&queue);
        let _ = self.queue.set(queue);
        self.has_queue.notify_one();
    }

    fn ask(&self, queue: &Arc<OpQueue>) {
        if self.is_asking {
            queue.push(Op::TokenRefresh(c_string(&self.config)));
        }
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
    let oauth = &mut config.security.sasl.oauthbearer;
    // Bindings get AWS tokens in their own callback.
    let is_application = oauth.method == OauthMethod::Default || oauth.cloud == OauthCloud::AwsIam;
    let has_own =
        !is_application || (!is_asking && (oauth.unsecured_jwt || oauth.cloud == OauthCloud::AwsIam));
    if has_own {
        return None;
    }
    let config = oauth.config.as_ref().map_or_else(String::new, |config| config.expose().to_owned());
    let tokens = Arc::new(OauthTokens { config, is_asking, ..OauthTokens::default() });
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
    tokens.say(Ok(token.clone()));
    // The engine may use an earlier token, and it asks for the next one much later.
    if let Some(client) = handle.client() {
        client.renew_sasl_token(token);
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
    let told = format!("Failed to acquire SASL OAUTHBEARER token: {reason}");
    handle.main.push(Op::Error {
        code: RD_KAFKA_RESP_ERR__AUTHENTICATION,
        text: c_string(&told),
        fatal: false,
    });
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
