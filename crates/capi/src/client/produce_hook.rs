//! `ut_handle_ProduceResponse`: a hidden property of librdkafka whose value is a function of the application. The function
//! sees the end of each Produce request and can replace it; librdkafka's test 0090 checks retries with it.

use ottla_client::{Config, ProduceHook};

use crate::conf::Callbacks;
use crate::errors::error_mapping;
use crate::ffi::*;
use crate::handles::handle_table::as_pointer;

/// Lets the engine call the application's function, if there is one. `client` is the id of the client's handle.
pub(crate) fn install(config: &mut Config, callbacks: &Callbacks, client: u64) {
    let Some(function) = callbacks.handle_produce_response else { return };
    config.produce_hook = Some(ProduceHook::new(move |end| {
        // The original numbers the messages of a partition from 1, and their sequences from 0.
        let message = u64::try_from(i64::from(end.first_sequence) + 1).unwrap_or(0);
        let err = end.error.map_or(RD_KAFKA_RESP_ERR_NO_ERROR, error_mapping::of);
        // SAFETY: the application's function, which it has passed as the value of the property (`rd_kafka_conf_set`); it
        // takes these four values and keeps none of them.
        let replaced = unsafe { function(as_pointer(client), end.node, message, err) };
        (replaced != err).then(|| error_mapping::produce_end_of(replaced))
    }));
}
