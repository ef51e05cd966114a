//! `rd_kafka_share_consumer_new`.

use std::ffi::c_char;
use std::ptr::null_mut;

use crate::client::handle::Handle;
use crate::client::role::Role;
use crate::conf::rd_kafka_conf_t;
use crate::errors::error_object::set_last_error_and_errno;
use crate::ffi::c_strings::write_errstr;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::share::share_handle::Share;

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_consumer_new(
    conf: *mut rd_kafka_conf_t,
    errstr: *mut c_char,
    errstr_size: usize,
) -> *mut rd_kafka_share_t {
    let refused = |text: &str| {
        // SAFETY: `errstr` is NULL or a buffer of `errstr_size` bytes (rdkafka.h, `rd_kafka_share_consumer_new`).
        unsafe { write_errstr(errstr, errstr_size, text) };
        set_last_error_and_errno(RD_KAFKA_RESP_ERR__INVALID_ARG, libc::EINVAL);
        null_mut()
    };
    if conf.is_null() {
        return refused("a share consumer needs a configuration with group.id");
    }
    let Some((conf, taken)) = rd_kafka_conf_t::take(conf, FUNCTION) else {
        return refused(
            "the configuration belongs to another client or is destroyed: give each client its own",
        );
    };
    let client = match Handle::new(Role::ShareConsumer, conf) {
        Ok(client) => client,
        Err((conf, error)) => {
            // The application keeps the configuration.
            taken.give_back(conf);
            return refused(&error.to_string());
        }
    };
    taken.ended();
    // Without a group there is no consumer. The original creates one nevertheless, and refuses to subscribe.
    let has_group = client.config.group_id.is_some();
    let consumer = client.client().filter(|_| has_group).and_then(|client| client.share_consumer().ok());
    if let Some(consumer) = &consumer {
        // As the original: what no poll has asked for stays at the broker, for other members.
        consumer.fetch_for_polls_only();
    }
    if let Some(share) = Share::publish(client.clone(), consumer) {
        return share;
    }
    if client.begin_end() {
        client.end();
    }
    refused("too many share consumers exist: destroy some first")
}
