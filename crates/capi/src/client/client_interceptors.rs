//! Interceptors of a client: functions that run for its records, commits and threads.
//!
//! The `on_new` functions add them while the client is created, and they do not change after that. For a client without
//! interceptors the cost is one check per record.

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ottla_broker::ApiKey;
use ottla_client::{BrokerStateEvent, Client, OffsetAndMetadata, RequestEvent, TopicPartition};

use crate::client::handle::Handle;
use crate::client::shown_sockets::with_last_used;
use crate::conf::conf_interceptors::{InterceptorChain, Of};
use crate::ffi::c_strings::{buffer_text, c_string};
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::messages::list_conversion::{self, OwnedList};
use crate::messages::message::Slot;
use crate::queue::op::Opaque;

/// Time limit for the start of the `on_thread_exit` interceptors when a client is destroyed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The functions of one client.
#[derive(Clone, Default)]
pub(crate) struct ClientInterceptors {
    on_destroy: InterceptorChain<Of<rd_kafka_interceptor_f_on_destroy_t>>,
    on_send: InterceptorChain<Of<rd_kafka_interceptor_f_on_send_t>>,
    on_acknowledgement: InterceptorChain<Of<rd_kafka_interceptor_f_on_acknowledgement_t>>,
    on_consume: InterceptorChain<Of<rd_kafka_interceptor_f_on_consume_t>>,
    on_commit: InterceptorChain<Of<rd_kafka_interceptor_f_on_commit_t>>,
    on_thread_start: InterceptorChain<Of<rd_kafka_interceptor_f_on_thread_start_t>>,
    on_thread_exit: InterceptorChain<Of<rd_kafka_interceptor_f_on_thread_exit_t>>,
    on_request_sent: InterceptorChain<Of<rd_kafka_interceptor_f_on_request_sent_t>>,
    on_response_received: InterceptorChain<Of<rd_kafka_interceptor_f_on_response_received_t>>,
    on_broker_state_change: InterceptorChain<Of<rd_kafka_interceptor_f_on_broker_state_change_t>>,
    any: bool,
}

/// Interceptors that `on_new` functions add. They do not change after the client is created.
#[derive(Default)]
pub(crate) struct InterceptorSetup {
    open: Mutex<Option<ClientInterceptors>>,
    done: OnceLock<Arc<ClientInterceptors>>,
}

impl InterceptorSetup {
    /// Calls the functions that add others.
    pub(crate) fn run(&self, handle: &Arc<Handle>) {
        let conf = handle.conf();
        let on_new = &conf.interceptors().on_new;
        if on_new.is_empty() {
            return;
        }
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(ClientInterceptors::default());
        for interceptor in on_new.iter() {
            let mut text = [0; 256];
            // SAFETY: the application's function, with a client that lives and a buffer of that size.
            let err = unsafe {
                let (function, opaque) = (interceptor.function, interceptor.opaque);
                function(handle.raw(), handle.conf_raw(), opaque, text.as_mut_ptr(), text.len())
            };
            if err != RD_KAFKA_RESP_ERR_NO_ERROR {
                let text = buffer_text(&text);
                let name = interceptor.name();
                handle.log(
                    LOG_WARNING,
                    c"ICFAIL",
                    &format!("interceptor {name}: on_new failed: {err}: {text}"),
                );
            }
        }
        let interceptors = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(interceptors) = interceptors.filter(|interceptors| interceptors.any) {
            let _ = self.done.set(Arc::new(interceptors));
        }
    }

    /// Returns the interceptors, if there are any.
    #[inline]
    pub(crate) fn get(&self) -> Option<&Arc<ClientInterceptors>> {
        self.done.get()
    }
}

const LOG_WARNING: u8 = 4;

/// Calls each function of a chain and ignores the results.
macro_rules! call_each {
    ($chain:expr, $($argument:expr),*) => {
        for interceptor in $chain.iter() {
            // SAFETY: the application's functions, with arguments that live until they return.
            unsafe { (interceptor.function)($($argument,)* interceptor.opaque) };
        }
    };
}

impl ClientInterceptors {
    pub(crate) fn on_send(&self, handle: &Handle, slot: &Slot) {
        call_each!(self.on_send, handle.raw(), slot.as_raw().cast_mut());
    }

    pub(crate) fn on_acknowledgement(&self, handle: &Handle, slot: &Slot) {
        call_each!(self.on_acknowledgement, handle.raw(), slot.as_raw().cast_mut());
    }

    #[inline]
    pub(crate) fn on_consume(&self, handle: &Handle, message: *mut rd_kafka_message_t) {
        call_each!(self.on_consume, handle.raw(), message);
    }

    /// Returns `true` if an interceptor receives the results of commits.
    pub(crate) fn wants_commits(&self) -> bool {
        !self.on_commit.is_empty()
    }

    pub(crate) fn on_commit(
        &self,
        handle: &Handle,
        offsets: &[(TopicPartition, OffsetAndMetadata, rd_kafka_resp_err_t)],
        err: rd_kafka_resp_err_t,
    ) {
        if self.wants_commits() {
            let list = OwnedList(list_conversion::with_offsets(offsets));
            call_each!(self.on_commit, handle.raw(), list.0, err);
        }
    }

    pub(crate) fn on_destroy(&self, handle: &Handle) {
        call_each!(self.on_destroy, handle.raw());
    }

    pub(crate) fn on_thread_start(&self, handle: &Handle, kind: rd_kafka_thread_type_t, name: &CStr) {
        call_each!(self.on_thread_start, handle.raw(), kind, name.as_ptr());
    }

    pub(crate) fn on_thread_exit(&self, handle: &Handle, kind: rd_kafka_thread_type_t, name: &CStr) {
        call_each!(self.on_thread_exit, handle.raw(), kind, name.as_ptr());
    }

    /// Subscribes to the client's requests, responses and broker states; the interceptors run in its thread.
    pub(crate) fn listen(self: &Arc<Self>, handle: &Arc<Handle>, client: &Client) {
        if !self.on_request_sent.is_empty() || !self.on_response_received.is_empty() {
            let (interceptors, handle) = (self.clone(), Arc::downgrade(handle));
            client.exchanges().on_each(move |told| {
                if let Some(handle) = handle.upgrade() {
                    interceptors.on_exchange(&handle, &told);
                }
            });
        }
        if !self.on_broker_state_change.is_empty() {
            let (interceptors, handle) = (self.clone(), Arc::downgrade(handle));
            client.broker_states().on_each(move |told| {
                if let Some(handle) = handle.upgrade() {
                    interceptors.on_broker_state(&handle, &told);
                }
            });
        }
    }

    fn on_exchange(&self, handle: &Handle, told: &RequestEvent) {
        let broker = match told.node {
            -1 => format!("{}/bootstrap", told.broker),
            node => format!("{}/{node}", told.broker),
        };
        let broker = c_string(&broker);
        let &RequestEvent { node, api_key, version, correlation_id, bytes, .. } = told;
        let received = |socket, rtt: Duration| {
            call_each!(
                self.on_response_received,
                handle.raw(),
                socket,
                broker.as_ptr(),
                node,
                api_key,
                version,
                correlation_id,
                bytes,
                rtt.as_micros() as i64,
                RD_KAFKA_RESP_ERR_NO_ERROR
            );
        };
        with_last_used(|socket| match told.round_trip {
            None => call_each!(
                self.on_request_sent,
                handle.raw(),
                socket,
                broker.as_ptr(),
                node,
                api_key,
                version,
                correlation_id,
                bytes
            ),
            Some(rtt) => {
                received(socket, rtt);
                if !is_answered_in_its_thread(api_key) {
                    received(socket, rtt);
                }
            }
        });
    }

    fn on_broker_state(&self, handle: &Handle, told: &BrokerStateEvent) {
        let (host, port) = told.broker.rsplit_once(':').unwrap_or((&told.broker, "0"));
        let protocol = handle.conf().get("security.protocol").unwrap_or_default();
        let (host, protocol, state) = (c_string(host), c_string(&protocol), c_string(told.state));
        call_each!(
            self.on_broker_state_change,
            handle.raw(),
            told.node,
            protocol.as_ptr(),
            host.as_ptr(),
            port.parse().unwrap_or(0),
            state.as_ptr()
        );
    }

    /// Runs the interceptors for the start of the engine's thread.
    pub(crate) fn engine_started(self: &Arc<Self>, handle: &Arc<Handle>, client: &Client) {
        let (interceptors, handle) = (self.clone(), Arc::downgrade(handle));
        client.spawn(async move {
            if let Some(handle) = handle.upgrade() {
                interceptors.on_thread_start(&handle, RD_KAFKA_THREAD_MAIN, c"main");
            }
        });
    }

    /// Runs the interceptors for the end of the engine's thread. Waits for them if they start within [`EXIT_TIMEOUT`].
    pub(crate) fn engine_ends(self: &Arc<Self>, handle: &Handle, client: &Client) {
        if self.on_thread_exit.is_empty() {
            return;
        }
        let interceptors = self.clone();
        let rk = Opaque(handle.raw().cast());
        // Without capacity: a send returns once it is received.
        let (said, saying) = std::sync::mpsc::sync_channel(0);
        client.spawn(async move {
            let rk = rk;
            if said.send(()).is_err() {
                return;
            }
            // The receiver waits below and keeps the client alive.
            if let Some(handle) = Handle::of(rk.0.cast(), "on_thread_exit") {
                interceptors.on_thread_exit(&handle, RD_KAFKA_THREAD_MAIN, c"main");
            }
            let _ = said.send(());
        });
        if saying.recv_timeout(EXIT_TIMEOUT).is_ok() {
            let _ = saying.recv();
        }
    }
}

/// Returns `true` for requests whose response the original handles in the thread of the broker's connection. It passes
/// the others to its main thread, and calls `on_response_received` in both threads (test 0105 counts the calls).
fn is_answered_in_its_thread(api_key: i16) -> bool {
    matches!(
        ApiKey::from_i16(api_key),
        ApiKey::Produce
            | ApiKey::Fetch
            | ApiKey::ApiVersions
            | ApiKey::SaslHandshake
            | ApiKey::SaslAuthenticate
    )
}

/// Functions that `on_new` calls to add others. As in the original, share consumers take none.
macro_rules! adders {
    ($($function:ident $chain:ident: $type:ty,)*) => {
        $(
            #[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $function(
                rk: *mut rd_kafka_t,
                ic_name: *const c_char,
                function: $type,
                ic_opaque: *mut c_void,
            ) -> rd_kafka_resp_err_t {
                let Some(handle) = Handle::of(rk, FUNCTION) else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
                if handle.is_share_consumer {
                    return RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED;
                }
                let mut open = handle.client_interceptors.open.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(interceptors) = open.as_mut() else { return RD_KAFKA_RESP_ERR__STATE };
                // SAFETY: `ic_name` is NULL or a C string (rdkafka.h, every function of this macro).
                let err = unsafe { interceptors.$chain.add(ic_name, function, ic_opaque) };
                interceptors.any |= err == RD_KAFKA_RESP_ERR_NO_ERROR;
                err
            }
        )*
    };
}

adders! {
    rd_kafka_interceptor_add_on_destroy on_destroy: rd_kafka_interceptor_f_on_destroy_t,
    rd_kafka_interceptor_add_on_send on_send: rd_kafka_interceptor_f_on_send_t,
    rd_kafka_interceptor_add_on_acknowledgement on_acknowledgement: rd_kafka_interceptor_f_on_acknowledgement_t,
    rd_kafka_interceptor_add_on_consume on_consume: rd_kafka_interceptor_f_on_consume_t,
    rd_kafka_interceptor_add_on_commit on_commit: rd_kafka_interceptor_f_on_commit_t,
    rd_kafka_interceptor_add_on_thread_start on_thread_start: rd_kafka_interceptor_f_on_thread_start_t,
    rd_kafka_interceptor_add_on_thread_exit on_thread_exit: rd_kafka_interceptor_f_on_thread_exit_t,
    rd_kafka_interceptor_add_on_request_sent on_request_sent: rd_kafka_interceptor_f_on_request_sent_t,
    rd_kafka_interceptor_add_on_response_received on_response_received: rd_kafka_interceptor_f_on_response_received_t,
    rd_kafka_interceptor_add_on_broker_state_change on_broker_state_change: rd_kafka_interceptor_f_on_broker_state_change_t,
}
