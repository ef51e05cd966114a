//! The functions and pointers that an application puts into a configuration.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::rd_kafka_conf_t;
use crate::client::log_printers::rd_kafka_log_print;
use crate::ffi::panic::on_panic;
use crate::ffi::*;

/// The application's callbacks and their opaque. They run in the thread that polls, except those for logs, sockets,
/// certificates and background events.
#[derive(Clone, Copy)]
pub struct Callbacks {
    pub opaque: *mut c_void,
    /// `rd_kafka_conf_set_events`: the events that queues return as events instead of calling a function.
    pub events: c_int,
    /// Token refreshes have their own queue.
    pub sasl_queue: bool,
    pub engine_callback_data: *mut c_void,
    pub background_event: rd_kafka_background_event_cb_t,
    pub dr: rd_kafka_dr_cb_t,
    pub dr_msg: rd_kafka_dr_msg_cb_t,
    pub consume: rd_kafka_consume_cb_t,
    pub rebalance: rd_kafka_rebalance_cb_t,
    pub offset_commit: rd_kafka_offset_commit_cb_t,
    pub error: rd_kafka_error_cb_t,
    pub throttle: rd_kafka_throttle_cb_t,
    /// [`rd_kafka_log_print`] by default; `None` disables logs.
    pub log: rd_kafka_log_cb_t,
    pub stats: rd_kafka_stats_cb_t,
    pub oauthbearer_token_refresh: rd_kafka_oauthbearer_token_refresh_cb_t,
    pub socket: rd_kafka_socket_cb_t,
    pub connect: rd_kafka_connect_cb_t,
    pub closesocket: rd_kafka_closesocket_cb_t,
    pub open: rd_kafka_open_cb_t,
    pub resolve: rd_kafka_resolve_cb_t,
    pub ssl_cert_verify: rd_kafka_ssl_cert_verify_cb_t,
    /// `ut_handle_ProduceResponse`.
    pub handle_produce_response: handle_produce_response_t,
}

/// The hidden property whose value is a function pointer in place of a string.
pub(super) const HANDLE_PRODUCE_RESPONSE: &str = "ut_handle_ProduceResponse";

// SAFETY: the pointers are the application's; threads of the library may use them (rdkafka.h,
// `rd_kafka_conf_set_opaque`).
unsafe impl Send for Callbacks {}
// SAFETY: as above; none is read through here.
unsafe impl Sync for Callbacks {}

impl Default for Callbacks {
    fn default() -> Self {
        Self {
            opaque: null_mut(),
            events: 0,
            sasl_queue: false,
            engine_callback_data: null_mut(),
            background_event: None,
            dr: None,
            dr_msg: None,
            consume: None,
            rebalance: None,
            offset_commit: None,
            error: None,
            throttle: None,
            log: Some(rd_kafka_log_print),
            stats: None,
            oauthbearer_token_refresh: None,
            socket: None,
            connect: None,
            closesocket: None,
            open: None,
            resolve: None,
            ssl_cert_verify: None,
            handle_produce_response: None,
        }
    }
}

/// Maps the names of all callback properties to their fields.
macro_rules! named_fields {
    ($($name:literal $field:ident,)*) => {
        impl Callbacks {
            /// Returns the address in the property; 0 for NULL.
            pub(super) fn address(&self, name: &str) -> usize {
                match name {
                    $($name => self.$field.map_or(0, |function| function as usize),)*
                    "opaque" => self.opaque.addr(),
                    "ssl_engine_callback_data" => self.engine_callback_data.addr(),
                    _ => 0,
                }
            }

            /// Returns a copy without the properties for which `drops` returns `true`.
            pub(super) fn without(&self, drops: impl Fn(&str) -> bool) -> Self {
                let mut copy = *self;
                let fresh = Self::default();
                $(if drops($name) { copy.$field = fresh.$field; })*
                if drops("opaque") {
                    copy.opaque = fresh.opaque;
                }
                if drops("ssl_engine_callback_data") {
                    copy.engine_callback_data = fresh.engine_callback_data;
                }
                if drops("enabled_events") {
                    copy.events = fresh.events;
                }
                if drops("enable_sasl_queue") {
                    copy.sasl_queue = fresh.sasl_queue;
                }
                copy
            }
        }
    };
}

named_fields! {
    "background_event_cb" background_event,
    "dr_cb" dr,
    "dr_msg_cb" dr_msg,
    "consume_cb" consume,
    "rebalance_cb" rebalance,
    "offset_commit_cb" offset_commit,
    "error_cb" error,
    "throttle_cb" throttle,
    "log_cb" log,
    "stats_cb" stats,
    "oauthbearer_token_refresh_cb" oauthbearer_token_refresh,
    "socket_cb" socket,
    "connect_cb" connect,
    "closesocket_cb" closesocket,
    "open_cb" open,
    "resolve_cb" resolve,
    "ssl.certificate.verify_cb" ssl_cert_verify,
    "ut_handle_ProduceResponse" handle_produce_response,
}

/// The setters that only store a callback.
macro_rules! setters {
    ($($function:ident $field:ident: $type:ty,)*) => {
        $(
            #[on_panic(())]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $function(conf: *mut rd_kafka_conf_t, value: $type) {
                let conf = rd_kafka_conf_t::of_mut(conf, FUNCTION);
                if let Some(mut conf) = conf {
                    conf.callbacks.$field = value;
                }
            }
        )*
    };
}

setters! {
    rd_kafka_conf_set_opaque opaque: *mut c_void,
    rd_kafka_conf_set_events events: c_int,
    rd_kafka_conf_set_engine_callback_data engine_callback_data: *mut c_void,
    rd_kafka_conf_set_background_event_cb background_event: rd_kafka_background_event_cb_t,
    rd_kafka_conf_set_dr_cb dr: rd_kafka_dr_cb_t,
    rd_kafka_conf_set_dr_msg_cb dr_msg: rd_kafka_dr_msg_cb_t,
    rd_kafka_conf_set_consume_cb consume: rd_kafka_consume_cb_t,
    rd_kafka_conf_set_rebalance_cb rebalance: rd_kafka_rebalance_cb_t,
    rd_kafka_conf_set_offset_commit_cb offset_commit: rd_kafka_offset_commit_cb_t,
    rd_kafka_conf_set_error_cb error: rd_kafka_error_cb_t,
    rd_kafka_conf_set_throttle_cb throttle: rd_kafka_throttle_cb_t,
    rd_kafka_conf_set_log_cb log: rd_kafka_log_cb_t,
    rd_kafka_conf_set_stats_cb stats: rd_kafka_stats_cb_t,
    rd_kafka_conf_set_oauthbearer_token_refresh_cb oauthbearer_token_refresh: rd_kafka_oauthbearer_token_refresh_cb_t,
    rd_kafka_conf_set_socket_cb socket: rd_kafka_socket_cb_t,
    rd_kafka_conf_set_connect_cb connect: rd_kafka_connect_cb_t,
    rd_kafka_conf_set_closesocket_cb closesocket: rd_kafka_closesocket_cb_t,
    rd_kafka_conf_set_open_cb open: rd_kafka_open_cb_t,
    rd_kafka_conf_set_resolve_cb resolve: rd_kafka_resolve_cb_t,
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_conf_enable_sasl_queue(conf: *mut rd_kafka_conf_t, enable: c_int) {
    let conf = rd_kafka_conf_t::of_mut(conf, FUNCTION);
    if let Some(mut conf) = conf {
        conf.callbacks.sasl_queue = enable != 0;
        conf.hidden.insert("enable_sasl_queue", (enable != 0).to_string());
    }
}

#[on_panic(RD_KAFKA_CONF_INVALID)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_conf_set_ssl_cert_verify_cb(
    conf: *mut rd_kafka_conf_t,
    ssl_cert_verify_cb: rd_kafka_ssl_cert_verify_cb_t,
) -> rd_kafka_conf_res_t {
    let Some(mut conf) = rd_kafka_conf_t::of_mut(conf, FUNCTION) else { return RD_KAFKA_CONF_INVALID };
    conf.callbacks.ssl_cert_verify = ssl_cert_verify_cb;
    RD_KAFKA_CONF_OK
}
