//! Types of the application's functions. NULL is `None`.

use std::ffi::{c_char, c_int, c_void};

use super::*;

pub type rd_kafka_topic_partition_list_cmp_t =
    Option<unsafe extern "C" fn(a: *const c_void, b: *const c_void, cmp_opaque: *mut c_void) -> c_int>;
pub type rd_kafka_background_event_cb_t =
    Option<unsafe extern "C" fn(rk: *mut rd_kafka_t, rkev: *mut rd_kafka_event_t, opaque: *mut c_void)>;
pub type rd_kafka_dr_cb_t = Option<
    unsafe extern "C" fn(
        rk: *mut rd_kafka_t,
        payload: *mut c_void,
        len: usize,
        err: rd_kafka_resp_err_t,
        opaque: *mut c_void,
        msg_opaque: *mut c_void,
    ),
>;
/// The value of `ut_handle_ProduceResponse`, which no header declares.
pub type handle_produce_response_t = Option<
    unsafe extern "C" fn(
        rk: *mut rd_kafka_t,
        brokerid: i32,
        msgseq: u64,
        err: rd_kafka_resp_err_t,
    ) -> rd_kafka_resp_err_t,
>;
pub type rd_kafka_dr_msg_cb_t = Option<
    unsafe extern "C" fn(rk: *mut rd_kafka_t, rkmessage: *const rd_kafka_message_t, opaque: *mut c_void),
>;
pub type rd_kafka_consume_cb_t =
    Option<unsafe extern "C" fn(rkmessage: *mut rd_kafka_message_t, opaque: *mut c_void)>;
pub type rd_kafka_rebalance_cb_t = Option<
    unsafe extern "C" fn(
        rk: *mut rd_kafka_t,
        err: rd_kafka_resp_err_t,
        partitions: *mut rd_kafka_topic_partition_list_t,
        opaque: *mut c_void,
    ),
>;
pub type rd_kafka_offset_commit_cb_t = Option<
    unsafe extern "C" fn(
        rk: *mut rd_kafka_t,
        err: rd_kafka_resp_err_t,
        offsets: *mut rd_kafka_topic_partition_list_t,
        opaque: *mut c_void,
    ),
>;
pub type rd_kafka_error_cb_t =
    Option<unsafe extern "C" fn(rk: *mut rd_kafka_t, err: c_int, reason: *const c_char, opaque: *mut c_void)>;
pub type rd_kafka_throttle_cb_t = Option<
    unsafe extern "C" fn(
        rk: *mut rd_kafka_t,
        broker_name: *const c_char,
        broker_id: i32,
        throttle_time_ms: c_int,
        opaque: *mut c_void,
    ),
>;
pub type rd_kafka_log_cb_t =
    Option<unsafe extern "C" fn(rk: *const rd_kafka_t, level: c_int, fac: *const c_char, buf: *const c_char)>;
pub type rd_kafka_stats_cb_t = Option<
    unsafe extern "C" fn(
        rk: *mut rd_kafka_t,
        json: *mut c_char,
        json_len: usize,
        opaque: *mut c_void,
    ) -> c_int,
>;
pub type rd_kafka_oauthbearer_token_refresh_cb_t =
    Option<unsafe extern "C" fn(rk: *mut rd_kafka_t, oauthbearer_config: *const c_char, opaque: *mut c_void)>;
pub type rd_kafka_socket_cb_t =
    Option<unsafe extern "C" fn(domain: c_int, kind: c_int, protocol: c_int, opaque: *mut c_void) -> c_int>;
pub type rd_kafka_connect_cb_t = Option<
    unsafe extern "C" fn(
        sockfd: c_int,
        addr: *const libc::sockaddr,
        addrlen: c_int,
        id: *const c_char,
        opaque: *mut c_void,
    ) -> c_int,
>;
pub type rd_kafka_closesocket_cb_t =
    Option<unsafe extern "C" fn(sockfd: c_int, opaque: *mut c_void) -> c_int>;
pub type rd_kafka_open_cb_t = Option<
    unsafe extern "C" fn(
        pathname: *const c_char,
        flags: c_int,
        mode: libc::mode_t,
        opaque: *mut c_void,
    ) -> c_int,
>;
pub type rd_kafka_resolve_cb_t = Option<
    unsafe extern "C" fn(
        node: *const c_char,
        service: *const c_char,
        hints: *const libc::addrinfo,
        res: *mut *mut libc::addrinfo,
        opaque: *mut c_void,
    ) -> c_int,
>;
pub type rd_kafka_ssl_cert_verify_cb_t = Option<
    unsafe extern "C" fn(
        rk: *mut rd_kafka_t,
        broker_name: *const c_char,
        broker_id: i32,
        x509_error: *mut c_int,
        depth: c_int,
        buf: *const c_char,
        size: usize,
        errstr: *mut c_char,
        errstr_size: usize,
        opaque: *mut c_void,
    ) -> c_int,
>;
pub type rd_kafka_partitioner_cb_t = Option<
    unsafe extern "C" fn(
        rkt: *const rd_kafka_topic_t,
        keydata: *const c_void,
        keylen: usize,
        partition_cnt: i32,
        rkt_opaque: *mut c_void,
        msg_opaque: *mut c_void,
    ) -> i32,
>;
pub type rd_kafka_msg_order_cmp_t =
    Option<unsafe extern "C" fn(a: *const rd_kafka_message_t, b: *const rd_kafka_message_t) -> c_int>;
pub type rd_kafka_queue_event_cb_t =
    Option<unsafe extern "C" fn(rk: *mut rd_kafka_t, qev_opaque: *mut c_void)>;
pub type rd_kafka_plugin_f_conf_init_t = Option<
    unsafe extern "C" fn(
        conf: *mut rd_kafka_conf_t,
        plug_opaquep: *mut *mut c_void,
        errstr: *mut c_char,
        errstr_size: usize,
    ) -> rd_kafka_resp_err_t,
>;
pub type rd_kafka_interceptor_f_on_conf_set_t = Option<
    unsafe extern "C" fn(
        conf: *mut rd_kafka_conf_t,
        name: *const c_char,
        val: *const c_char,
        errstr: *mut c_char,
        errstr_size: usize,
        ic_opaque: *mut c_void,
    ) -> rd_kafka_conf_res_t,
>;
pub type rd_kafka_interceptor_f_on_conf_dup_t = Option<
    unsafe extern "C" fn(
        new_conf: *mut rd_kafka_conf_t,
        old_conf: *const rd_kafka_conf_t,
        filter_cnt: usize,
        filter: *mut *const c_char,
        ic_opaque: *mut c_void,
    ) -> rd_kafka_resp_err_t,
>;
pub type rd_kafka_interceptor_f_on_conf_destroy_t =
    Option<unsafe extern "C" fn(ic_opaque: *mut c_void) -> rd_kafka_resp_err_t>;
pub type rd_kafka_interceptor_f_on_new_t = Option<
    unsafe extern "C" fn(
        rk: *mut rd_kafka_t,
        conf: *const rd_kafka_conf_t,
        ic_opaque: *mut c_void,
        errstr: *mut c_char,
        errstr_size: usize,
    ) -> rd_kafka_resp_err_t,
>;
pub type rd_kafka_interceptor_f_on_destroy_t =
    Option<unsafe extern "C" fn(rk: *mut rd_kafka_t, ic_opaque: *mut c_void) -> rd_kafka_resp_err_t>;
pub type rd_kafka_interceptor_f_on_send_t = Option<
    unsafe extern "C" fn(
        rk: *mut rd_kafka_t,
        rkmessage: *mut rd_kafka_message_t,
        ic_opaque: *mut c_void,
    ) -> rd_kafka_resp_err_t,
>;
pub type rd_kafka_interceptor_f_on_acknowledgement_t = Option<
    unsafe extern "C" fn(
        rk: *mut rd_kafka_t,
        rkmessage: *mut rd_kafka_message_t,
        ic_opaque: *mut c_void,
    ) -> rd_kafka_resp_err_t,
>;
pub type rd_kafka_interceptor_f_on_consume_t = Option<
    unsafe extern "C" fn(
        rk: *mut rd_kafka_t,
        rkmessage: *mut rd_kafka_message_t,
        ic_opaque: *mut c_void,
    ) -> rd_kafka_resp_err_t,
>;
pub type rd_kafka_interceptor_f_on_commit_t = Option<
    unsafe extern "C" fn(
        rk: *mut rd_kafka_t,
        offsets: *const rd_kafka_topic_partition_list_t,
        err: rd_kafka_resp_err_t,
        ic_opaque: *mut c_void,
    ) -> rd_kafka_resp_err_t,
>;
pub type rd_kafka_interceptor_f_on_request_sent_t = Option<
    unsafe extern "C" fn(
        rk: *mut rd_kafka_t,
        sockfd: c_int,
        brokername: *const c_char,
        brokerid: i32,
        ApiKey: i16,
        ApiVersion: i16,
        CorrId: i32,
        size: usize,
        ic_opaque: *mut c_void,
    ) -> rd_kafka_resp_err_t,
>;
pub type rd_kafka_interceptor_f_on_response_received_t = Option<
    unsafe extern "C" fn(
        rk: *mut rd_kafka_t,
        sockfd: c_int,
        brokername: *const c_char,
        brokerid: i32,
        ApiKey: i16,
        ApiVersion: i16,
        CorrId: i32,
        size: usize,
        rtt: i64,
        err: rd_kafka_resp_err_t,
        ic_opaque: *mut c_void,
    ) -> rd_kafka_resp_err_t,
>;
pub type rd_kafka_interceptor_f_on_thread_start_t = Option<
    unsafe extern "C" fn(
        rk: *mut rd_kafka_t,
        thread_type: rd_kafka_thread_type_t,
        thread_name: *const c_char,
        ic_opaque: *mut c_void,
    ) -> rd_kafka_resp_err_t,
>;
pub type rd_kafka_interceptor_f_on_thread_exit_t = Option<
    unsafe extern "C" fn(
        rk: *mut rd_kafka_t,
        thread_type: rd_kafka_thread_type_t,
        thread_name: *const c_char,
        ic_opaque: *mut c_void,
    ) -> rd_kafka_resp_err_t,
>;
pub type rd_kafka_interceptor_f_on_broker_state_change_t = Option<
    unsafe extern "C" fn(
        rk: *mut rd_kafka_t,
        broker_id: i32,
        secproto: *const c_char,
        name: *const c_char,
        port: c_int,
        state: *const c_char,
        ic_opaque: *mut c_void,
    ) -> rd_kafka_resp_err_t,
>;
pub type rd_kafka_share_acknowledgement_commit_cb_t = Option<
    unsafe extern "C" fn(
        rkshare: *mut rd_kafka_share_t,
        partitions: *mut rd_kafka_share_partition_offsets_list_t,
        err: rd_kafka_resp_err_t,
        opaque: *mut c_void,
    ),
>;
